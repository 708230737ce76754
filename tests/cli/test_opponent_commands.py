"""The commands around opponents and units, from the command line."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_cli import call as call

import counterpoint
from counterpoint.cli.commands import benchmark
from counterpoint.runs.folder import Run
from counterpoint.studies import units
from tiny import TINY, tiny_words


@pytest.fixture(scope="module")
def tag(tmp_path_factory: pytest.TempPathFactory) -> str:
    settings = TINY | {"scenario": "simple_tag", "num_episodes": 24, "warmup": 100}
    return str(counterpoint.train(save_dir=str(tmp_path_factory.mktemp("runs")), exp_name="tag", **settings).path)


@pytest.mark.slow
def test_a_tournament_prints_tables_and_writes_files(call: Any, tag: str, tmp_path: Path) -> None:
    result = call(f"tournament {tag} {tag}@16 --episodes 4 --out games")
    assert result.code == 0, result.err
    assert "return of one agent of adversary" in result.out
    assert "touches" in result.out
    assert "| run | team | Elo | 95 % |" in result.out
    assert (tmp_path / "games" / "heatmap.png").exists()
    assert "at least two runs, not 1" in call(f"tournament {tag}").err


@pytest.mark.slow
def test_exploit_prints_the_gain(call: Any, tag: str) -> None:
    result = call(f"exploit {tag} --team good --num-episodes 60 --episodes 20 --out found")
    assert result.code == 0, result.err
    assert "| best response |" in result.out
    assert "against-good" in result.out
    assert "choose --team adversary or --team good" in call(f"exploit {tag} --team wolves").err


@pytest.mark.slow
def test_benchmark_mentions_exploitability_where_two_teams_play(call: Any, tag: str) -> None:
    result = call(f"benchmark {tag} --benchmark-iters 50")
    assert f"counterpoint exploit {tag}" in result.out


def test_which_teams_benchmark_asks_to_exploit() -> None:
    def asked(columns: list[str], freeze: list[str]) -> list[str]:
        run = SimpleNamespace(rows=lambda: [dict.fromkeys(columns, 0.0)], config={"opponents": {"freeze": freeze}})
        return benchmark._exploitable(run)

    assert asked(["team/adversary", "team/good", "eval/team/good"], []) == ["adversary", "good"]
    assert asked(["team/good", "eval/team/good"], ["adversary=tag-1"]) == ["good"]
    assert asked(["team/good", "eval/team/good"], []) == []


def push_words(**settings: Any) -> list[str]:
    """The words of `train` for a tiny run of simple_push."""
    return ["train", *tiny_words(scenario="simple_push", num_episodes=16, warmup=100, save_dir="runs", **settings)]


@pytest.mark.thorough
def test_an_ensemble_is_trained_played_measured_and_exported(call: Any, tmp_path: Path) -> None:
    result = call(push_words(exp_name="two", ensemble=2))
    assert result.code == 0, result.err
    result = call("play runs/two --member 1 --episodes 1 --out team.gif")
    assert result.code == 0, result.err
    assert (tmp_path / "team.gif").stat().st_size > 1000
    for line in ("benchmark runs/two --benchmark-iters 50", "benchmark runs/two --benchmark-iters 50 --member 0"):
        result = call(line)
        assert result.code == 0, result.err
        assert "return of adversary_0" in result.out
    for member in (0, 1):
        result = call(f"export runs/two --format numpy --member {member} --out out{member}")
        assert result.code == 0, result.err
    first, second = (np.load(tmp_path / f"out{member}" / "team.npz")["0.weight"] for member in (0, 1))
    assert not np.allclose(first, second)
    for line in ("play runs/two --out team.gif", "benchmark runs/two", "export runs/two --format numpy"):
        result = call(f"{line} --member 2")
        assert result.code == 2
        assert "has 2 sub-policies, counted from 0, and 2 is none of them" in result.err


STAY = """
def stay(obs):
    return {agent: 0 for agent in obs}
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "recorded"),
    [
        ("--freeze adversary=stay.py:stay", ("opponents", "freeze")),
        ("--league 2 --league-draw prioritised", ("opponents", "league")),
        ("--infer-policies", ("learning", "infer_policies")),
        ("--estimator gapped", ("learning", "estimator")),
    ],
)
def test_options_of_opponents_train_from_the_command_line(
    words: str, recorded: tuple[str, str], call: Any, tmp_path: Path
) -> None:
    (tmp_path / "stay.py").write_text(STAY)
    result = call([*push_words(exp_name="run"), *words.split()])
    assert result.code == 0, result.err
    section, name = recorded
    run = Run(tmp_path / "runs" / "run")
    assert run.config[section][name] not in (0, False, "soft", [])
    assert run.rows()[-1]["episode"] >= 16
    if name == "freeze":
        assert "counterpoint exploit runs/run --team good" in call("benchmark runs/run --benchmark-iters 50").out


def test_units_of_a_value(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    result = call("units -14.4 --scenario simple_speaker_listener --from openai")
    assert result.code == 0, result.err
    assert "of the way from random play to the scripted team" in result.out
    assert "| openai-sum | -28.8 |" in result.out
    listed = {line.split(" ")[1] for line in call("units").out.splitlines()[2:]}
    assert listed == {"simple", "simple_spread", "simple_speaker_listener", "simple_reference"}
    of_one = call("units --scenario simple").out.splitlines()[2:]
    assert [line.split(" | ")[:3] for line in of_one] == [
        ["| simple", flavour, policy] for flavour in ("openai", "mpe2") for policy in ("random", "scripted")
    ]
    assert "there is no scale for 'simple_tag'" in call("units --scenario simple_tag").err
    assert "in simple_spread, unit mpe2" in call("units -10").out
    assert "invalid choice" in call("units 3 --from metres").err
    monkeypatch.setattr(units, "record", lambda path, episodes: Path(path))
    assert call("units --record new.csv").out == "→ new.csv\n"


def test_a_benchmark_says_where_there_is_no_scale(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = {"env": "", "num_agents": 0, "num_adversaries": 0, "scenario_args": [], "flavour": "mpe2", "max_episode_len": 25}

    def opened(name: str) -> Any:
        return SimpleNamespace(path=Path(name), config={"world": {**usual, "scenario": name}}, rows=list)

    monkeypatch.setattr("counterpoint.runs.open_run", opened)
    found = [benchmark.SeedResult(0, 50, {"return of agent_0": np.array([-20.0, -19.0])})]
    monkeypatch.setattr(benchmark, "_measure", lambda *_: found)
    result = call("benchmark simple_spread --scale")
    assert "share of agent_0" in result.out
    assert "note" not in result.out
    for line in ("simple_tag", "simple_spread simple_tag"):
        assert f"note: {units.NO_SCALE}\n" in call(f"benchmark {line} --scale").out
    assert "note" not in call("benchmark simple_tag").out


@pytest.mark.slow
def test_the_scale_of_a_benchmark(call: Any, tmp_path: Path) -> None:
    settings = TINY | {"scenario": "simple", "num_episodes": 24, "warmup": 100}
    run = counterpoint.train(save_dir=str(tmp_path), exp_name="simple", **settings)
    result = call(f"benchmark {run.path} --benchmark-iters 50 --scale")
    assert "share of agent_0" in result.out
    assert "exploit" not in result.out
    assert "share between random play and scripted" in call(f"compare {run.path} --scale").out
