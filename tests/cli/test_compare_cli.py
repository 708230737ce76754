"""`compare`, `benchmark` over several runs and seeds, and grids by `train`, as typed by a user."""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import counterpoint
from counterpoint.cli import grids, main
from counterpoint.runs.folder import Run
from counterpoint.runs.tables import print_table
from made import made_run
from tiny import HOME, TINY, tiny_words, trained_run


class Result:
    """The exit code and the output of a command."""

    def __init__(self, code: Any, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Returns a function that runs a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("counterpoint.viz.comparison.SUFFIXES", (".svg",))

    def run(*words: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["counterpoint", *map(str, words)])
        try:
            code: Any = main.main() or 0
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return Result(code, said.out, said.err)

    return run


@cache
def two_seeds() -> Run:
    """A finished run of `simple_spread` with two seeds."""
    return counterpoint.train(
        scenario="simple_spread",
        num_episodes=16,
        num_seeds=2,
        seed=5,
        save_dir=str(HOME / "runs"),
        exp_name="two-seeds",
        progress=False,
        **TINY,
    )


def test_compare_prints_tables_and_says_where_the_files_are(call: Any, tmp_path: Path) -> None:
    for name, algorithm, scores in (("a", "maddpg", [1.0, 2.0, 3.0]), ("b", "ddpg", [4.0, 5.0])):
        made_run(tmp_path / "runs", name, scores, algorithm)
    result = call("compare", "runs/a", "runs/b", "--by", "algorithm", "--metric", "team/good", "--x", "steps", "--smooth", 2)
    assert (result.code, result.err) == (0, "")
    assert "team/good at the end of training" in result.out
    assert "| maddpg | 3 | 0.500 | 0.500 | -0.500 … 1.500 (range) |" in result.out
    assert "note: Bands and intervals of groups with two or three seeds are only the range" in result.out
    assert "by algorithm → comparison" in result.out
    assert (tmp_path / "comparison" / "marl-eval.json").exists()
    solved = call("compare", "runs", "--solved", "2.5", "--style", "slide", "--width", "8", "--log", "--out", "slides")
    assert solved.code == 0
    assert "| 1/3 [0.01, 0.91] |" in solved.out
    assert (tmp_path / "slides" / "curves.svg").exists()


def test_compare_takes_the_bare_name_of_a_grid(call: Any, tmp_path: Path) -> None:
    for name, algorithm in (("maddpg", "maddpg"), ("ddpg", "ddpg")):
        made_run(tmp_path / "runs" / "speaker", name, [1.0, 2.0], algorithm)
    (tmp_path / "runs" / "speaker" / "grid.json").write_text("{}")
    result = call("compare", "speaker")
    assert (result.code, result.err) == (0, "")
    assert "| maddpg | 2 |" in result.out
    assert "|\n\nPairs of groups\n\n|" in result.out, "text after a Markdown table needs an empty line before it"


REFUSED = {
    "compare": "there is nothing to compare: name at least one run",
    "compare nowhere": "nowhere is not a run, it has no config.json: check the path",
    "compare runs --metric sucess": "--metric sucess: the runs have no such column; perhaps eval/success?",
    "compare runs --by algoritm": "--by algoritm: the runs have no such setting; perhaps algorithm?",
    "compare runs --x weeks": "invalid choice 'weeks' for argument '--x': expected one of episodes, steps, seconds",
    "benchmark": "name at least one run to measure; `counterpoint runs` lists them.",
    "benchmark nowhere": "nowhere is not a run, it has no config.json: check the path",
    "train --algorithm maddpg,mapg": "mapg",
    "train --scenario simple,simple_sprad": "unknown scenario 'simple_sprad' (perhaps simple_spread?)",
    "train --env CartPole-v1 --scenario simple,simple_tag": (
        "--env CartPole-v1 and --scenario simple,simple_tag exclude each other: choose one of them."
    ),
    "train --lr 0.1,nan": "--lr must be above 0, not nan.",
    "train --lr 0.1,0.1": "--lr 0.1,0.1 repeats a value: name each one once.",
    "train --lr 0.1, --display": "--lr 0.1, has an empty value: name every value.",
    "train --lr 0.1,0.2 --display": "--display, --benchmark and --load-dir take one run, not a grid",
}


@pytest.mark.parametrize("line", REFUSED)
def test_wrong_usage_is_refused_in_one_sentence(call: Any, tmp_path: Path, line: str) -> None:
    made_run(tmp_path / "runs", "a", [1.0])
    result = call(*line.split())
    assert result.code == 2
    assert REFUSED[line] in result.err
    assert result.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_tables_are_aligned_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table(["group", "mean"], [["maddpg [2]", "1.50"], ["b", "-12.25"]])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "|" not in "".join(lines)
    assert any(line.endswith("  1.50") for line in lines)
    assert any("maddpg [2]" in line for line in lines)


def test_a_narrow_terminal_never_cuts_numbers_off(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    print_table(["environment", "mean", "IQM"], [["simple_speaker_listener", "-1234.56", "-1234.78"]])
    shown = capsys.readouterr().out
    assert "-1234.56" in shown
    assert "-1234.78" in shown


def test_values_with_commas_span_a_grid_and_other_commas_do_not() -> None:
    words = ["--algorithm", "maddpg,coma", "--lr=0.1,0.2", "--scenario-args", "a=(1,2)", "--exp-name", "x,y", "--seed", "3"]
    assert grids.axes_of(words) == {"algorithm": ["maddpg", "coma"], "lr": ["0.1", "0.2"]}
    changed = grids.with_values(words, {"algorithm": "coma", "lr": "0.2"})
    assert changed == ["--algorithm", "coma", "--lr=0.2", *words[3:]]
    assert grids.axes_of(["--algorithm", "maddpg"]) == {}


def test_train_trains_a_grid_and_goes_on_with_it(call: Any, tmp_path: Path) -> None:
    words = ["train", *tiny_words(num_episodes=16), "--algorithm", "maddpg,ddpg", "--scenario", "simple", "--num-seeds", "2"]
    result = call(*words)
    assert (result.code, result.err) == (0, "")
    assert "cell 1 of 2, 0% of the grid" in result.out
    assert "cell 2/2 (100% of the grid)  episode 16/16" in result.out
    assert "2 of 2 cells are finished → runs/maddpg+ddpg" in result.out
    assert "| maddpg | 2 |" in result.out
    folder = tmp_path / "runs" / "maddpg+ddpg"
    assert sorted(path.name for path in folder.iterdir()) == ["comparison", "ddpg", "grid.json", "maddpg"]
    before = (folder / "ddpg" / "policy.safetensors").stat().st_mtime_ns
    again = call(*words)
    assert again.code == 0
    assert "[2/2] ddpg is finished." in again.out
    assert (folder / "ddpg" / "policy.safetensors").stat().st_mtime_ns == before


def test_benchmark_measures_every_seed_of_every_run(call: Any, tmp_path: Path) -> None:
    several, one = two_seeds().path, trained_run().path
    result = call("benchmark", several, one, "--benchmark-iters", 500)
    assert (result.code, result.err) == (0, "")
    table = [line for line in result.out.splitlines() if line.startswith("|")]
    assert table[0] == "| run | per episode | mean | 95 % over seeds | 95 % over episodes | seeds | episodes |"
    assert table[2].startswith(f"| {several} | success |")  # it leads
    facts = json.loads((tmp_path / "benchmark_files" / "two-seeds.json").read_text())
    assert facts["steps"] == 1000
    assert [seed["seed"] for seed in facts["seeds"]] == [5, 6]
    name = "return of agent_0"
    means = [seed["metrics"][name]["mean"] for seed in facts["seeds"]]
    whole = facts["metrics"][name]
    assert means[0] != means[1]
    assert whole["mean"] == pytest.approx(sum(means) / 2)
    assert (whole["seed_low"], whole["seed_high"]) == pytest.approx((min(means), max(means)))
    assert (whole["count"], whole["seeds"]) == (40, 2)
    assert whole["low"] < whole["mean"] < whole["high"]
    assert f"{several}: success by seed: " in result.out
    alone = json.loads((tmp_path / "benchmark_files" / "first.json").read_text())
    assert alone["metrics"]["return of agent_0"]["seed_low"] is None


def test_benchmark_measures_one_seed_if_asked(call: Any, tmp_path: Path) -> None:
    path = two_seeds().path
    call("benchmark", path, "--benchmark-iters", 100, "--benchmark-dir", "all")
    result = call("benchmark", path, "--benchmark-iters", 100, "--seed-index", 1, "--benchmark-dir", "one")
    assert result.code == 0
    every, one = (json.loads((tmp_path / folder / "two-seeds.json").read_text()) for folder in ("all", "one"))
    assert [seed["seed"] for seed in one["seeds"]] == [6]
    assert one["seeds"][0]["metrics"] == every["seeds"][1]["metrics"]
    wrong = call("benchmark", path, "--seed-index", 2)
    assert wrong.code == 2
    assert "has 2 seeds: choose --seed-index from 0 to 1, not 2" in wrong.err


def test_benchmark_hands_on_which_policy_and_which_environment(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    load = counterpoint.load

    def note(run: Any, seed_index: int = 0, **options: Any) -> Any:
        asked.append((seed_index, options))
        return load(run, seed_index)

    monkeypatch.setattr("counterpoint.policies.policy.load", note)
    call("benchmark", two_seeds().path, "--benchmark-iters", 50)
    call("benchmark", two_seeds().path, "--benchmark-iters", 50, "--at", "best", "--env", "my.py:Env", "--seed-index", 1)
    assert asked == [(0, {}), (1, {}), (1, {"at": "best", "env": "my.py:Env"})]
