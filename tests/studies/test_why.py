"""`counterpoint why` names the cause of a failure once, with its cure, and finds nothing in a run that learns."""

import dataclasses
import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import pytest

import counterpoint
from counterpoint.cli import main
from counterpoint.core.errors import Diverged, UsageError
from counterpoint.runs import Run, trend
from counterpoint.studies import evidence
from counterpoint.studies.evidence import Agent, Case, Progress, Speech
from counterpoint.studies.why import CAUSES, conclude, examine, step_ratio
from made import made_run
from tiny import HOME, TINY, trained_run

ROOT = Path(__file__).parents[2]
AGENT = Agent(
    name="agent_0",
    steps=1000,
    size=1.0,
    spread=0.5,
    alive=(0.9, 0.8),
    entropy=0.5,
    bounded=None,
    stuck=None,
    variation=0.4,
    speech=None,
    reward=0.5,
    largest=2.0,
    constant=False,
)
LEARNED, FLAT, LOST = (Progress(-10.0, last, best, 2.0) for last, best in ((-2.0, -2.0), (-10.0, -9.9), (-9.0, -2.0)))
SETTINGS: dict[str, Any] = {
    **{"lr": 1e-3, "num_units": 64, "gamma": 0.95, "tau": 0.01, "norm": "none", "logit_cost": 1e-3, "noise_start": 0.2},
    **{"standardise_rewards": False, "buffer_size": 100_000, "batch_size": 256, "update_every": 10, "updates": 1},
    **{"warmup": 0, "num_episodes": 4000, "seed": 0, "num_seeds": 1, "eval_episodes": 100},
}


def rows_of(*scores: float, seed: int = 0, **columns: Any) -> list[dict[str, Any]]:
    """Reports with these returns, 10 000 steps apart."""
    return [
        {"step": 10_000 * (k + 1), "episode": 400 * (k + 1), "seed": seed, "length": 25.0}
        | {"team/good": score, "return/agent_0": score, "eval/team/good": score, "q/agent_0": -3.0, "critic_loss/agent_0": 0.1}
        | columns
        for k, score in enumerate(scores)
    ]


def case_of(progress: Progress = FLAT, agent: dict[str, Any] | None = None, rows: Any = None, **changes: Any) -> Case:
    """A run of one agent that failed without any other sign, with some facts changed; others are settings."""
    facts = {name: changes.pop(name) for name in ("finished", "running", "diverged", "replays") if name in changes}
    case = Case(
        run=Run(Path("runs/one")),
        settings=SETTINGS | changes,
        seed=0,
        rows=rows or rows_of(*[-10.0, -10.1] * 4),
        all_rows=[],
        finished=True,
        running=False,
        diverged="",
        replays=True,
        teams={"good": progress},
        agents=(AGENT._replace(**(agent or {})),),
    )
    return dataclasses.replace(case, all_rows=case.rows, **facts)


def success(share: float) -> dict[str, Any]:
    """A column of success."""
    return {"eval/success": share}


def stating(q: float) -> dict[str, Any]:
    """A column of values that the critic states."""
    return {"q/agent_0": q}


def several_seeds(*shares: float) -> Case:
    """A run of several seeds with these successes; seed 0 is examined."""
    rows = [row for seed, share in enumerate(shares) for row in rows_of(-10, -10, -10, seed=seed, **success(share))]
    return dataclasses.replace(case_of(rows=trend.of_seed(rows, 0), num_seeds=len(shares)), all_rows=rows)


NOISY = rows_of(*[-10.0, -14.0, -6.0, -13.0] * 3)
BOX = {"entropy": None, "bounded": 1.0, "stuck": 1.0, "variation": 0.0}
FAILURES: dict[str, tuple[Case, str, str]] = {
    "diverged": (case_of(diverged="the actor of agent_0 became NaN by step 9."), "by step 9", "--lr 0.0003"),
    "unlucky_seed": (several_seeds(0.1, 0.95, 0.9), "2 of 3 seeds", "--seed-index 1"),
    "no_reward": (case_of(rows=rows_of(*[0.0] * 8), agent={"constant": True}), "paid the same", "--logit-cost 0.01"),
    "too_little_data": (case_of(rows=rows_of(-10.0)[:1], update_every=100), "100 updates in 10000 steps", "--update-every 10"),
    "reward_unit": (case_of(agent={"reward": 1e4, "largest": 1e5}), "A step pays 1e+04", "--standardise-rewards"),
    "observation_unit": (case_of(agent={"size": 900.0, "spread": 500.0, "alive": (0.0, 0.0)}), "reach 900", "--norm layer"),
    "large_steps": (case_of(lr=0.1), "by up to 57 %", "--lr 0.004"),
    "forgetting": (case_of(LOST, buffer_size=500), "20 episodes, and was overwritten 160 times", "--buffer-size 10000"),
    "dead_units": (case_of(agent={"alive": (0.7, 0.0)}), "100 % of the units of its hidden layer 2", "--norm layer"),
    "runaway_q": (case_of(rows=rows_of(-10, -10, -10, **stating(1e4))), "give at most 40", "--lr"),
    "at_the_bounds": (case_of(agent=BOX), "100 % of its actions are at a bound", "--logit-cost 0.01"),
    "mute_speaker": (
        case_of(agent={"speech": Speech(1.0, 0.001), "variation": 0.001}, algorithm="ddpg"),
        "in 100 % of 1000",
        "--algorithm maddpg",
    ),
    "entropy_gone": (case_of(agent={"entropy": 0.001}), "0.1 % of that of uniform choice", "--logit-cost 0.01"),
    "ignores_observation": (case_of(agent={"variation": 0.001, "spread": 0.001}), "differ by 0.001", "by about 1000"),
    "collapsed": (case_of(LOST), "best policy earns -2", "--at best"),
    "stalled": (case_of(), "untrained team earns -10", "check_env"),
    "interrupted": (case_of(LEARNED, finished=False), "3200 of 4000 episodes", "counterpoint resume runs/one"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_each_cause_is_named_alone_with_its_evidence_and_cure(name: str) -> None:
    case, evidence, cure = FAILURES[name]
    expected = CAUSES[name].look(case)
    assert expected is not None
    assert conclude(case) == [expected]
    assert evidence in expected.evidence
    assert cure in expected.cure
    assert all(text.endswith(".") for text in (expected.words, expected.evidence, expected.cure))


@pytest.mark.parametrize("name", sorted(set(CAUSES) - {"diverged", "unlucky_seed", "runaway_q", "interrupted"}))
def test_the_signs_of_a_failure_mean_nothing_in_a_team_that_learned(name: str) -> None:
    case = FAILURES[name][0]
    assert conclude(dataclasses.replace(case, teams={"good": LEARNED})) == []


# --- From reports alone, as the page judges.

WORDLESS = {"eval/action_variation/agent_0": 0.7, "eval/message_variation/agent_0": 0.01}
BOUNDED = {"eval/action_variation/agent_0": 0.01, "eval/at_bound/agent_0": 0.99}
BLIND = {"eval/action_variation/agent_0": 0.0, "eval/action_variation/agent_1": 0.6}
REPORTED = {
    "mute_speaker": (WORDLESS, "messages hardly differ", "standard deviation 0.010"),
    "at_the_bounds": (BOUNDED, "99 % of its actions in the last evaluation", "at a bound"),
    "ignores_observation": (BLIND, "actions hardly differ", "standard deviation 0.000"),
}
FLAT_RETURNS, RISING = [-10.0, -10.1] * 4, [float(score) for score in range(-10, -2)]


def reported(columns: dict[str, float], scores: list[float] = FLAT_RETURNS, **changes: Any) -> Case:
    """A run that was not played, with these columns in each report."""
    return dataclasses.replace(case_of(rows=rows_of(*scores, **columns), **changes), teams={}, agents=())


@pytest.mark.parametrize("name", REPORTED)
def test_reports_alone_show_what_is_wrong_with_an_agent(name: str) -> None:
    columns, *words = REPORTED[name]
    (found,) = conclude(reported(columns))
    assert found == CAUSES[name].look(reported(columns))
    assert "agent_0" in found.words
    assert all(each in found.evidence for each in words)


@pytest.mark.parametrize("name", REPORTED)
def test_reports_of_a_run_that_improved_accuse_nobody(name: str) -> None:
    """In a world where it is right to do the same always, a team that learned does so."""
    assert conclude(reported(REPORTED[name][0], RISING)) == []


@pytest.mark.parametrize("name", REPORTED)
def test_reports_accuse_nobody_by_a_single_one_nor_at_the_start_of_a_run(name: str) -> None:
    columns = REPORTED[name][0]
    once = reported(dict.fromkeys(columns, 0.5))
    once.rows[-1].update(columns)
    assert [finding.name for finding in conclude(once)] == ["stalled"]
    begun = reported(columns, running=True)
    assert [finding.name for finding in conclude(begun)] == ["stalled"]
    assert CAUSES[name].look(reported(columns, FLAT_RETURNS * 2, running=True)) is not None


@pytest.mark.parametrize("name", REPORTED)
def test_what_was_played_counts_more_than_reports(name: str) -> None:
    case = dataclasses.replace(reported(REPORTED[name][0]), agents=(AGENT,), teams={"good": FLAT})
    assert [finding.name for finding in conclude(case)] == ["stalled"]


def test_reports_accuse_neither_of_two_teams_that_may_hold_each_other() -> None:
    rows = rows_of(*FLAT_RETURNS, **BLIND | {"team/adversary": 10.0})
    assert conclude(dataclasses.replace(reported(BLIND), rows=rows, all_rows=rows)) == []


def test_an_agent_that_only_speaks_is_mute_and_not_blind() -> None:
    silent = {"eval/action_variation/agent_0": 0.01, "eval/message_variation/agent_0": 0.01}
    assert [finding.name for finding in conclude(reported(silent))] == ["mute speaker"]
    assert CAUSES["ignores_observation"].look(reported(silent)) is None


@pytest.mark.parametrize(
    ("settings", "wanted", "unwanted"),
    [
        ({"algorithm": "ddpg", "scenario": "simple_speaker_listener"}, ["--algorithm maddpg", "--preset tuned"], []),
        ({"algorithm": "ddpg", "scenario": "simple_reference"}, ["--algorithm maddpg"], ["--preset"]),
        ({"algorithm": "ippo", "scenario": "simple_reference"}, ["--algorithm mappo"], ["--preset"]),
        ({"algorithm": "maddpg", "scenario": "simple_reference"}, ["Let the speaker explore"], ["--algorithm", "--preset"]),
        (
            {"algorithm": "maddpg", "good_policy": "ddpg", "adv_policy": "maddpg"},
            ["--good-policy maddpg"],
            ["--algorithm", "--preset"],
        ),
        ({"algorithm": "ddpg", "good_policy": "maddpg", "adv_policy": "matd3"}, ["Let the speaker explore"], ["--algorithm"]),
        ({"algorithm": "ddpg", "scenario": "simple_speaker_listener", "env": "mine.py:Mine"}, ["--algorithm"], ["--preset"]),
    ],
)
def test_a_mute_speaker_is_told_only_what_its_run_lacks(
    settings: dict[str, str], wanted: list[str], unwanted: list[str]
) -> None:
    mute = case_of(agent={"speech": Speech(1.0, 0.001), "variation": 0.001}, **settings)
    (found,) = conclude(mute)
    assert all(each in found.cure for each in [*wanted, "--logit-cost 0.01"])
    assert not any(each in found.cure for each in unwanted)


def test_a_run_that_has_just_begun_is_not_blamed() -> None:
    for name in ("no_reward", "too_little_data"):
        assert CAUSES[name].look(dataclasses.replace(FAILURES[name][0], running=True)) is None
    without = case_of(rows=rows_of(*[0.0] * 12), agent={"constant": True}, running=True)
    assert conclude(without)[0].name == "no reward"


def test_a_solved_run_has_no_findings_whatever_else_it_shows() -> None:
    solved = rows_of(-10.0, -10.0, -10.0, **success(0.9), **stating(1e4))
    assert conclude(case_of(rows=solved, agent={"alive": (0.0, 0.0), "entropy": 0.0, "variation": 0.0}, lr=0.1)) == []


@pytest.mark.parametrize(("gamma", "lower"), [(0.97, 0.91), (0.99, 0.97), (0.999, 0.997)])
def test_runaway_values_are_discounted_three_times_as_much(gamma: float, lower: float) -> None:
    (found,) = conclude(case_of(rows=rows_of(-10, -10, -10, **stating(1e6)), gamma=gamma))
    assert f"--gamma {lower}," in found.cure


def test_one_root_cause_is_reported_once() -> None:
    ruined = {"alive": (0.0, 0.0), "entropy": 0.0, "variation": 0.0}
    found = conclude(case_of(agent=ruined, lr=0.1, rows=rows_of(-10, -10, -10, **stating(1e6))))
    assert [finding.name for finding in found] == ["learning rate too large"]
    assert "100 % of the units" in found[0].evidence


def test_a_doubtful_step_is_too_large_only_if_returns_swing() -> None:
    calm, swinging = case_of(lr=0.01), case_of(lr=0.01, rows=NOISY)
    assert step_ratio(calm) == pytest.approx(0.0566, abs=1e-3)
    assert conclude(calm)[0].name == "stalled"
    assert conclude(swinging)[0].name == "learning rate too large"
    assert "swing between -14 and -6" in conclude(swinging)[0].evidence


def test_dead_units_follow_from_observations_that_hardly_differ() -> None:
    (found,) = conclude(case_of(agent={"alive": (0.0, 0.0), "variation": 0.001, "spread": 0.001}))
    assert found.name == "ignores its observation"


def test_a_small_replay_is_named_if_what_was_learned_comes_and_goes() -> None:
    (found,) = conclude(case_of(LEARNED, rows=NOISY, buffer_size=500))
    assert found.name == "replay turned over"
    assert "swing between -14 and -6" in found.evidence
    assert conclude(case_of(LEARNED, rows=NOISY)) == [], "a replay that holds enough"
    assert conclude(case_of(LEARNED, buffer_size=500)) == [], "a team that learned from a small one"


def test_a_run_that_rests_far_from_success_fails_although_it_improved() -> None:
    resting = rows_of(*[-10.0, -2.0, -2.1] * 3, **success(0.2))
    gone = case_of(LEARNED, agent={"entropy": 0.001}, rows=resting)
    assert gone.learned is True
    assert gone.failing
    assert [finding.name for finding in conclude(gone)] == ["entropy gone"]
    rising = rows_of(*range(-10, 2), **success(0.2))
    assert conclude(case_of(LEARNED, agent={"entropy": 0.001}, rows=rising)) == []


def test_rewards_that_are_standardised_have_no_unit() -> None:
    large = case_of(agent={"reward": 1e4, "largest": 1e5}, standardise_rewards=True)
    assert conclude(large)[0].name == "stalled"


def test_seeds_that_all_failed_are_not_unlucky_and_two_clusters_of_returns_are() -> None:
    assert conclude(several_seeds(0.1, 0.2, 0.1))[0].name != "unlucky seed"
    rows = [row for seed, score in enumerate((-9, -9.1, -1, -1.2)) for row in rows_of(-10, score, seed=seed)]
    apart = dataclasses.replace(case_of(rows=trend.of_seed(rows, 0), num_seeds=4), all_rows=rows)
    found = conclude(apart)
    assert [finding.name for finding in found] == ["unlucky seed"]
    assert "of seed 2 -1.00" in found[0].evidence


@pytest.mark.parametrize(
    ("scores", "share", "expected"),
    [
        ([-10, -5, -2, -2.1, -1.9, -2], None, True),
        ([-10, -10.5, -9.9, -10.2, -10.1, -10], None, False),
        ([-10, -10], None, None),
        ([-2, -2, -2, -2], 0.95, True),
        ([-2, -2, -2, -2], 0.1, False),
    ],
)
def test_reports_tell_whether_a_run_improved(scores: list[float], share: float | None, expected: bool | None) -> None:
    extra: dict[str, Any] = {} if share is None else {"eval/success": share}
    assert trend.improved(rows_of(*scores, **extra)) is expected
    assert trend.is_flat(rows_of(*scores, **extra)) is (expected is False)


def test_losses_before_the_first_update_are_no_divergence_and_later_ones_are() -> None:
    rows = rows_of(*[-10.0] * 4)
    rows[0]["q/agent_0"] = math.nan
    assert conclude(case_of(rows=rows))[0].name == "stalled"
    rows[-1]["q/agent_0"] = math.nan
    assert conclude(case_of(rows=rows))[0].name == "diverged"


def test_the_worst_seed_is_examined(tmp_path: Path) -> None:
    run = made_run(tmp_path, "seeds", [9.0, 2.0, 8.0], first_seed=4)
    assert evidence.gather(run, play=False).seed == 5
    assert evidence.gather(run, 2, play=False).seed == 6
    with pytest.raises(UsageError, match="has 3 seeds: choose --seed-index from 0 to 2, not"):
        evidence.gather(run, 3)


def test_a_run_without_a_policy_is_judged_by_its_reports(tmp_path: Path) -> None:
    run = made_run(tmp_path, "bare", [0.5])
    findings, case = examine(run)
    assert case.agents == ()
    assert "only settings and reports were examined" in case.note
    assert [finding.name for finding in findings] == ["interrupted"]


def test_the_command_tells_of_too_little_data_and_exits_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained_run()
    monkeypatch.setattr(sys, "argv", ["counterpoint", "why", str(run.path)])
    main.main()
    out = capsys.readouterr().out
    assert "TOO LITTLE DATA\n  what      The run ended before it learned from enough data." in out
    assert f"counterpoint resume {run.path} --num-episodes" in out
    assert [finding.name for finding in counterpoint.why(str(run.path))] == ["too little data"]


@pytest.mark.slow
def test_divergence_is_recorded_and_forgotten_when_the_run_goes_on(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"scenario": "simple", "num_episodes": 24, "save_dir": str(tmp_path), "exp_name": "bad"}
    settings |= TINY | {"lr": 1e9}
    with pytest.raises(Diverged):
        counterpoint.train(**settings, progress=False)
    run = counterpoint.Run(tmp_path / "bad")
    (found,) = counterpoint.why(run)
    assert found.name == "diverged"
    assert "became infinite or NaN by step" in found.evidence
    counterpoint.resume(run, lr=1e-3, progress=False)
    assert run.divergence() == ""


# --- Real runs that fail in different ways, and what their cures do: those of the results page.


def bench() -> Any:
    """The module that writes the results page."""
    spec = importlib.util.spec_from_file_location("why_benchmark", ROOT / "benchmarks" / "why.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BENCH = bench()


def test_the_results_page_names_ten_failures_and_finds_nothing_in_five_healthy_runs() -> None:
    names = {failure.finding for failure in BENCH.FAILURES}
    assert len(names) == len(BENCH.FAILURES) >= 10
    assert len(BENCH.HEALTHY) >= 5
    failures, healthy = (ROOT / "docs/results/why.md").read_text().split("## Healthy runs")
    for failure in BENCH.FAILURES:
        (row,) = [line for line in failures.splitlines() if line.startswith(f"| {failure.about} |")]
        assert f"| {failure.finding} |" in row
    for each in BENCH.HEALTHY:
        (row,) = [line for line in healthy.splitlines() if line.startswith(f"| {each.about} |")]
        assert row.endswith("| nothing |")


@pytest.mark.slow
@pytest.mark.parametrize("failure", BENCH.FAILURES, ids=lambda failure: failure.finding)
def test_a_real_failure_is_found_and_its_cure_helps(failure: Any) -> None:
    sick, cured = (BENCH.trained(HOME / "why", failure, cured) for cured in (False, True))
    (found,) = examine(sick).findings
    assert found.name == failure.finding
    assert failure.said in found.cure
    assert BENCH.score(cured) > BENCH.score(sick) + 0.2
    assert examine(cured).findings == []


@pytest.mark.slow
@pytest.mark.parametrize("healthy", BENCH.HEALTHY, ids=lambda healthy: healthy.about)
def test_a_healthy_run_has_no_findings(healthy: Any) -> None:
    assert examine(BENCH.trained(HOME / "why", healthy)).findings == []
