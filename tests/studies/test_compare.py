"""Comparisons group runs by what differs, give the statistics of their seeds, and say what few seeds cannot show."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterpoint.core.errors import UsageError
from counterpoint.runs import create, stats
from counterpoint.studies import compare as study
from counterpoint.studies import units
from made import made_run

compare = study.compare


@pytest.fixture(autouse=True)
def _one_format(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes figures as SVG alone, which is fastest, except where a test looks at all files."""
    if "files" not in request.node.name:
        monkeypatch.setattr(study.figures, "SUFFIXES", (".svg",))


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """MADDPG with five seeds in two runs, DDPG with five in one."""
    return [
        made_run(tmp_path, "a", [10.0, 11.0, 12.0]).path,
        made_run(tmp_path, "b", [13.0, 14.0], first_seed=3).path,
        made_run(tmp_path, "c", [1.0, 2.0, 3.0, 4.0, 13.5], algorithm="ddpg").path,
    ]


def by_group(result: study.Comparison) -> dict[tuple[str, str], study.Scores]:
    return {(row.environment, row.group): row for row in result.scores}


def test_groups_are_what_differs_over_all_seeds_of_all_runs(two: list[Path], tmp_path: Path) -> None:
    result = compare(two, out=tmp_path / "out")
    assert result.by == ("algorithm",)
    assert result.metric == "eval/team/good"
    rows = by_group(result)
    maddpg, ddpg = rows["simple_spread", "maddpg"], rows["simple_spread", "ddpg"]
    assert (maddpg.seeds, ddpg.seeds) == (5, 5)
    assert (maddpg.mean, maddpg.iqm) == (12.0, 12.0)
    assert (maddpg.low, maddpg.high) == stats.bootstrap_interval([10, 11, 12, 13, 14])
    assert ddpg.mean == pytest.approx(4.7)
    assert ddpg.iqm == 3.0
    assert maddpg.gap == pytest.approx(2.0)  # from the best seed, 14
    (pair,) = result.pairs
    assert (pair.better, pair.other) == ("maddpg", "ddpg")
    assert pair.probability == 21 / 25  # 20 pairs without the outlier, and 14 is above 13.5
    assert pair.low < pair.probability < pair.high <= 1


def test_only_the_settings_that_tell_runs_apart_are_named(tmp_path: Path) -> None:
    made_run(tmp_path, "a", [1.0], lr=0.1, batch_size=64)
    made_run(tmp_path, "b", [2.0], lr=0.01, batch_size=128)
    made_run(tmp_path, "c", [3.0], lr=0.001, batch_size=128)
    result = compare([tmp_path], out=tmp_path / "out")
    assert result.by == ("lr",)
    assert [row.group for row in result.scores] == ["lr=0.001", "lr=0.01", "lr=0.1"]
    merged = compare([tmp_path], by="batch-size", out=tmp_path / "out")
    assert [(row.group, row.seeds) for row in merged.scores] == [("batch_size=64", 1), ("batch_size=128", 2)]
    assert any("also differ in lr" in note for note in merged.notes)
    single = compare([tmp_path], by="run", out=tmp_path / "out")
    assert [row.group for row in single.scores] == ["a", "b", "c"]


def test_an_algorithm_with_its_own_settings_is_still_one_difference(tmp_path: Path) -> None:
    made_run(tmp_path, "a", [1.0, 2.0], batch_size=64)
    made_run(tmp_path, "b", [2.0, 1.0], algorithm="coma", critic_lr=0.1, num_envs=8)
    made_run(tmp_path, "c", [2.0, 1.0], algorithm="own/my_algorithm.py:entry", lr=3)
    result = compare([tmp_path], out=tmp_path / "out")
    assert result.by == ("algorithm",)
    assert [row.group for row in result.scores] == ["maddpg", "coma", "my_algorithm"]


def test_environments_are_panels_and_give_an_overall_result(tmp_path: Path) -> None:
    for scenario, scale in (("simple_spread", 1.0), ("simple_tag", 100.0)):
        for algorithm, base in (("maddpg", 5.0), ("ddpg", 1.0)):
            scores = [scale * (base + k) for k in range(5)]
            made_run(tmp_path, f"{scenario}-{algorithm}", scores, algorithm, scenario, lr=scale)
    result = compare([tmp_path], out=tmp_path / "out")
    assert result.by == ("algorithm",)
    assert {row.environment for row in result.scores} == {"simple_spread", "simple_tag"}
    overall = {row.group: row for row in result.overall}
    assert overall["maddpg"].mean == pytest.approx(np.mean([4, 5, 6, 7, 8]) / 8)
    assert overall["maddpg"].gap == pytest.approx(1 - overall["maddpg"].mean)
    assert overall["ddpg"].iqm == pytest.approx(2 / 8)
    assert overall["ddpg"].low < 2 / 8 < overall["ddpg"].high < overall["maddpg"].low
    assert (tmp_path / "out" / "profiles.svg").exists()
    assert "All environments" in (tmp_path / "out" / "comparison.md").read_text()


def test_environments_of_one_name_are_told_apart_by_their_settings(tmp_path: Path) -> None:
    made_run(tmp_path, "a", [1.0], world={"scenario_args": ["N=3"]})
    made_run(tmp_path, "b", [2.0], world={"scenario_args": ["N=5"]})
    result = compare([tmp_path], out=tmp_path / "out")
    assert {row.environment for row in result.scores} == {"simple_spread (N=3)", "simple_spread (N=5)"}
    together = compare([tmp_path], by="scenario_args", out=tmp_path / "out")
    assert [(row.environment, row.group) for row in together.scores] == [
        ("simple_spread", "scenario_args=N=3"),
        ("simple_spread", "scenario_args=N=5"),
    ]


def test_few_seeds_show_their_range_and_what_the_difference_would_need(tmp_path: Path) -> None:
    made_run(tmp_path, "a", [0.0, 1.0, 2.0])
    made_run(tmp_path, "b", [1.0, 2.0, 3.0], algorithm="ddpg")
    result = compare([tmp_path], out=tmp_path / "out")
    rows = by_group(result)
    assert (rows["simple_spread", "maddpg"].low, rows["simple_spread", "maddpg"].high) == (0.0, 2.0)
    assert any("three seeds are only the range" in note for note in result.notes)
    assert result.pairs[0].seeds_needed == 17  # one standard deviation: the textbook's number
    assert any("needs about 17 seeds per group" in note and "there are 3 and 3" in note for note in result.notes)
    text = (tmp_path / "out" / "comparison.md").read_text()
    assert "0.000 … 2.000 (range)" in text
    assert (result.pairs[0].low, result.pairs[0].high) == (None, None)
    assert "| ddpg | maddpg | 1.000 | 0.78 | – | 17 |" in text
    assert "0.7777777777777778,,,17" in (tmp_path / "out" / "pairs.csv").read_text()


def test_four_seeds_give_an_interval_to_a_pair(tmp_path: Path) -> None:
    made_run(tmp_path, "a", [0.0, 1.0, 2.0, 3.0])
    made_run(tmp_path, "b", [1.0, 2.0, 3.0, 4.0], algorithm="ddpg")
    (pair,) = compare([tmp_path], out=tmp_path / "out").pairs
    assert pair.low is not None
    assert pair.high is not None
    assert pair.low < pair.probability < pair.high


def test_groups_that_are_missing_over_all_environments_are_named(tmp_path: Path) -> None:
    for scenario in ("simple_spread", "simple_tag", "simple_push"):
        made_run(tmp_path, f"{scenario}-maddpg", [1.0, 2.0], "maddpg", scenario)
    made_run(tmp_path, "ddpg", [3.0, 4.0], "ddpg", "simple_tag")
    result = compare([tmp_path], out=tmp_path / "out")
    assert [row.group for row in result.overall] == ["maddpg"]
    assert "The table over all environments leaves out ddpg (not in simple_push, simple_spread)." in result.notes
    apart = compare([tmp_path], by="run", out=tmp_path / "out")
    assert apart.overall == []
    assert "No group occurs in every environment, so there is no table over all environments." in apart.notes


def test_many_seeds_with_a_clear_difference_need_no_notes(tmp_path: Path) -> None:
    made_run(tmp_path, "a", [0.0, 1.0, 2.0, 1.5, 0.5])
    made_run(tmp_path, "b", [50.0, 51.0, 52.0, 53.0, 54.0], algorithm="ddpg")
    assert compare([tmp_path], out=tmp_path / "out").notes == []


def test_bimodal_results_and_a_threshold_give_the_share_solved(tmp_path: Path) -> None:
    made_run(tmp_path, "a", [0.1, 0.2, 9.0, 9.1, 9.2])
    made_run(tmp_path, "b", [0.0, 0.3, 0.2, 0.1, 9.0], algorithm="ddpg")
    result = compare([tmp_path], out=tmp_path / "out")
    rows = by_group(result)
    assert [rows["simple_spread", name].solved for name in ("maddpg", "ddpg")] == [3, 1]
    assert rows["simple_spread", "maddpg"].solved_low == pytest.approx(0.1466, abs=1e-4)  # Clopper and Pearson's, of 3 in 5
    assert any("bimodal" in note for note in result.notes)
    strict = by_group(compare([tmp_path], solved=9.15, out=tmp_path / "out"))
    assert [strict["simple_spread", name].solved for name in ("maddpg", "ddpg")] == [1, 0]
    low = by_group(compare([tmp_path], solved=0.1, lower_is_better=True, out=tmp_path / "out"))
    assert [low["simple_spread", name].solved for name in ("maddpg", "ddpg")] == [1, 2]


def test_groups_that_merely_differ_are_not_bimodal(tmp_path: Path) -> None:
    made_run(tmp_path, "a", [0.0, 0.1, 0.2])
    made_run(tmp_path, "b", [9.0, 9.1, 9.2], algorithm="ddpg")
    assert all(row.solved is None for row in compare([tmp_path], out=tmp_path / "out").scores)


def test_the_score_of_a_smoothed_curve_averages_its_last_reports(tmp_path: Path) -> None:
    made_run(tmp_path, "a", [10.0])
    assert compare([tmp_path], smooth=3, out=tmp_path / "out").scores[0].mean == 9.0


def test_lower_is_better_turns_pairs_and_gaps_around(two: list[Path], tmp_path: Path) -> None:
    result = compare(two, lower_is_better=True, out=tmp_path / "out")
    assert (result.pairs[0].better, result.pairs[0].other) == ("ddpg", "maddpg")
    assert by_group(result)["simple_spread", "maddpg"].gap == pytest.approx(11.0)  # from the best seed, 1


def test_the_same_seed_again_is_not_a_second_observation(tmp_path: Path) -> None:
    made_run(tmp_path, "a", [1.0, 2.0], reports=4, num_episodes=400)
    made_run(tmp_path, "b", [7.0, 8.0], reports=2, num_episodes=400)
    result = compare([tmp_path], out=tmp_path / "out")
    assert [(row.seeds, row.mean) for row in result.scores] == [(2, 1.5)]
    assert any("Seed 1 of b repeats that of a" in note for note in result.notes)


def test_runs_that_end_early_are_named(tmp_path: Path) -> None:
    made_run(tmp_path, "a", [1.0, 2.0], num_episodes=400)
    made_run(tmp_path, "b", [7.0, 8.0], reports=2, num_episodes=400, algorithm="ddpg")
    notes = compare([tmp_path], out=tmp_path / "out").notes
    assert any("b ends at 200 episodes and a at 400" in note for note in notes)


def test_files_hold_the_same_numbers(two: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = compare(two, solved=10.5, out=out)
    assert {path.name for path in result.files} == {
        *("curves.png", "curves.pdf", "curves.svg", "comparison.md", "table.tex", "table.csv", "pairs.csv", "curves.csv"),
        "marl-eval.json",
    }
    assert all(path.stat().st_size > 100 for path in result.files)
    table = list(csv.DictReader((out / "table.csv").read_text().splitlines()))
    assert [row["group"] for row in table] == ["maddpg", "ddpg"]
    assert float(table[0]["low"]) == result.scores[0].low
    tex = (out / "table.tex").read_text()
    assert r"maddpg & 5 & 12.00 & 12.00 &" in tex
    assert r"95 \% interval" in tex
    assert r"\toprule" in tex
    assert "4/5 [0.28, 0.99]" in (out / "comparison.md").read_text()
    curves = list(csv.DictReader((out / "curves.csv").read_text().splitlines()))
    assert len(curves) == 10 * 4
    assert {(row["run"], row["seed"]) for row in curves} >= {("b", "4"), ("c", "0")}


def test_latex_escapes_names_and_typesets_negative_numbers() -> None:
    text = study.latex_table(["group", "mean"], [["a_b 5 %", "-1.50"], ["c^d", "–"]])
    assert r"a\_b 5 \% & $-1.50$ \\" in text
    assert r"c\textasciicircum{}d & -- \\" in text
    assert r"\begin{tabular}{lr}" in text


def test_marl_eval_finds_equal_numbers_of_runs_and_steps(tmp_path: Path) -> None:
    """As its format asks: lower-case names, step_1 … step_k, one list per metric, and absolute_metrics last."""
    made_run(tmp_path, "a", [1.0, 2.0, 3.0], reports=8)
    made_run(tmp_path, "b", [4.0, 5.0], algorithm="own/Mine.py:entry", reports=3)
    compare([tmp_path], by="algorithm", out=tmp_path / "out")
    data = json.loads((tmp_path / "out" / "marl-eval.json").read_text())
    (task,) = data["counterpoint"].values()
    assert list(task) == ["maddpg", "mine"]
    for algorithm in task.values():
        assert list(algorithm) == ["run_1", "run_2"]
        for run in algorithm.values():
            assert list(run) == ["step_1", "step_2", "step_3", "absolute_metrics"]
    assert task["maddpg"]["run_2"]["step_3"] == {"step_count": 20000, "return": [2.0]}
    assert task["maddpg"]["run_2"]["absolute_metrics"] == {"return": [2.0]}
    counts = [task["maddpg"]["run_1"][f"step_{i}"]["step_count"] for i in (1, 2, 3)]
    assert counts == sorted(set(counts))


def test_a_folder_of_runs_stands_for_its_runs_and_old_comparisons_are_skipped(two: list[Path], tmp_path: Path) -> None:
    compare([tmp_path], out=tmp_path / "comparison")
    again = compare([*sorted(tmp_path.iterdir()), tmp_path], out=tmp_path / "comparison")
    assert sum(row.seeds for row in again.scores) == 10


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown metric": ({"metric": "eval/sucess"}, "no such column; perhaps eval/success?"),
    "unknown metric by its last word": ({"metric": "adversry"}, "perhaps team/adversary?"),
    "unknown setting": ({"by": "algoritm"}, "no such setting; perhaps algorithm?"),
    "seeds": ({"by": "seed"}, "would make a group of each seed"),
    "smooth": ({"smooth": 0}, "--smooth must be at least 1, not 0."),
    "width": ({"look": study.Look(width=-1)}, "--width must be a number of inches, not -1."),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_are_refused_with_the_nearest_name(two: list[Path], tmp_path: Path, case: str) -> None:
    options, sentence = WRONG[case]
    with pytest.raises(UsageError) as error:
        compare(two, out=tmp_path / "out", **options)
    assert sentence in str(error.value)
    assert not (tmp_path / "out").exists()


def test_runs_that_cannot_be_compared_are_named(two: list[Path], tmp_path: Path) -> None:
    empty = create(tmp_path, "empty", {"algorithm": "maddpg", "world": {"scenario": "simple"}}).path
    with pytest.raises(UsageError, match="empty has no reports yet"):
        compare([*two, empty], out=tmp_path / "out")
    other = create(tmp_path / "others", "other", {"algorithm": "maddpg", "world": {"scenario": "simple"}})
    other.append_metrics({"step": 1, "episode": 1, "seed": 0, "seconds": 1.0, "team/good": 1.0})
    with pytest.raises(UsageError, match="other has no column eval/success"):
        compare([*two, other.path], metric="success", out=tmp_path / "out")
    assert compare([*two, other.path], out=tmp_path / "out").metric == "team/good"
    with pytest.raises(UsageError, match="there is nothing to compare"):
        compare([], out=tmp_path / "out")
    with pytest.raises(UsageError, match="nowhere is not a run"):
        compare([tmp_path / "nowhere"], out=tmp_path / "out")


def test_comparing_needs_no_jax(two: list[Path], tmp_path: Path) -> None:
    code = (
        "import sys; from counterpoint.cli import main; sys.argv[1:] = sys.argv[1:]; main.main();"
        "sys.exit('jax' in sys.modules and 'jax was imported')"
    )
    words = ["compare", *map(str, two), "--out", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "| maddpg | 5 | 12.00 |" in done.stdout


@pytest.mark.parametrize(
    ("world", "title"),
    [
        ({"env": "gymnasium:make", "scenario_args": ["id=CartPole-v1"]}, "CartPole-v1"),
        ({"env": "gymnax:CartPole-v1"}, "CartPole-v1"),
        ({"env": "CartPole-v1"}, "CartPole-v1"),
        ({"env": "mpe2.simple_spread_v3:parallel_env"}, "simple_spread_v3"),
        ({"env": "games/my_game.py:make"}, "my_game"),
    ],
)
def test_external_environments_are_named_in_one_word(tmp_path: Path, world: dict[str, Any], title: str) -> None:
    made_run(tmp_path, "a", [1.0], world=world)
    assert compare([tmp_path], out=tmp_path / "out").scores[0].environment == title


def test_scores_on_the_scale_from_random_play_to_a_scripted_team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random play earns −26 and the scripted team −8: −17 is half-way, and each point is 1/18."""
    means = {"random": -26.0, "scripted": -8.0}
    known = {("simple_spread", "mpe2", policy): units.Reference(mean, mean, mean, 10) for policy, mean in means.items()}
    monkeypatch.setattr(units, "references", lambda: known)
    world = {"flavour": "mpe2", "max_episode_len": 25, "scenario_args": []}
    made_run(tmp_path, "a", [-16.0, -17.0, -18.0], world=world)
    made_run(tmp_path, "b", [-8.0, -8.0], algorithm="ddpg", world=world)
    result = compare([tmp_path], out=tmp_path / "out", scale=True)
    shares = {share.group: share for share in result.shares}
    assert shares["maddpg"].mean == pytest.approx(0.5)
    assert (shares["maddpg"].low, shares["maddpg"].high) == (pytest.approx(8 / 18), pytest.approx(10 / 18))
    assert shares["ddpg"].mean == pytest.approx(1.0)
    assert "share between random play and scripted" in (tmp_path / "out" / "comparison.md").read_text()
    assert not compare([tmp_path], out=tmp_path / "out").shares
    made_run(tmp_path, "c", [5.0, 6.0], algorithm="coma", scenario="simple_tag", world=world)
    mixed = compare([tmp_path], out=tmp_path / "out", scale=True)
    assert {share.group for share in mixed.shares} == {"maddpg", "ddpg"}
    assert any("A scale needs returns in a world of the usual size" in note for note in mixed.notes)
