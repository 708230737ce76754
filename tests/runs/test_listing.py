"""The list of runs: the right environment, algorithms, state, numbers and differences, from few bytes of each run."""

import os
from pathlib import Path
from typing import Any

import pytest

from counterpoint import runs
from counterpoint.core.errors import UsageError
from counterpoint.runs import listing, lock, metrics
from counterpoint.runs.folder import Run


def make(folder: Path, name: str, age: float = 0.0, rows: Any = (), **settings: Any) -> Run:
    """Returns a run of 100 planned episodes with these settings and rows."""
    world = {"scenario": settings.pop("scenario", "simple"), "env": settings.pop("env", "")}
    top = {key: settings.pop(key, usual) for key, usual in (("algorithm", "maddpg"), ("good_policy", ""), ("adv_policy", ""))}
    training = {"num_episodes": 100, "seed": 0, "lr": 0.01, **settings}
    run = runs.create(folder, name, {**top, "world": world, "training": training})
    for row in rows:
        run.append_metrics(row)
    for path in run.path.iterdir():
        now = path.stat().st_mtime - age
        os.utime(path, (now, now))
    return run


def test_every_run_says_its_own_environment_and_both_algorithms(tmp_path: Path) -> None:
    make(tmp_path, "file", env="/home/ada/my_env.py:Maze")
    make(tmp_path, "module", env="zoo.waterworld:env")
    make(tmp_path, "id", env="CartPole-v1")
    make(tmp_path, "teams", scenario="simple_tag", adv_policy="ddpg")
    make(tmp_path, "same", scenario="simple_tag", good_policy="maddpg", adv_policy="maddpg")
    found = {run.name: (run.env, run.algorithm) for run in runs.list_runs(tmp_path)}
    assert found == {
        "file": ("my_env.py:Maze", "maddpg"),
        "module": ("zoo.waterworld:env", "maddpg"),
        "id": ("CartPole-v1", "maddpg"),
        "teams": ("simple_tag", "good maddpg, adversary ddpg"),
        "same": ("simple_tag", "maddpg"),
    }


def test_the_state_comes_from_the_lock(tmp_path: Path) -> None:
    run = make(tmp_path, "one", rows=[{"step": 5, "episode": 100, "seed": 0}])
    assert runs.list_runs(tmp_path)[0].state == "finished"
    with lock.hold(run.path):
        busy = runs.list_runs(tmp_path)[0]
    assert busy.state == "running"
    assert f"process {os.getpid()} on" in busy.owner
    (run.path / "metrics.csv").unlink()
    assert runs.list_runs(tmp_path)[0].state == "stopped"


def test_returns_are_those_of_the_closing_table(tmp_path: Path) -> None:
    same = {"step": 9, "episode": 50, "team/good": -9.0}
    rows = [{**same, "seed": seed, "eval/team/good": -4.0 - seed, "eval/success": 0.5 + seed / 4} for seed in (0, 1)]
    make(tmp_path, "greedy", rows=rows, num_seeds=2)
    make(tmp_path, "plain", rows=[{"step": 9, "episode": 50, "seed": 0, "team/good": -9.0, "team/adversary": 2.0}])
    found = {run.name: run for run in runs.list_runs(tmp_path)}
    assert (found["greedy"].returns, found["greedy"].greedy, found["greedy"].success) == ({"good": -4.5}, True, 0.625)
    plain = found["plain"]
    assert (plain.returns, plain.greedy, plain.success) == ({"good": -9.0, "adversary": 2.0}, False, None)


def test_what_differs_is_what_differs_among_like_runs(tmp_path: Path) -> None:
    make(tmp_path, "a", lr=0.01, seed=0)
    make(tmp_path, "b", lr=0.02, seed=0)
    make(tmp_path, "other", scenario="simple_tag", lr=0.5, seed=7)
    assert {run.name: run.differs for run in runs.list_runs(tmp_path)} == {"a": {"lr": 0.01}, "b": {"lr": 0.02}, "other": {}}


def test_sorting_and_filtering(tmp_path: Path) -> None:
    for name, lr, good, age in (("a", 0.1, -3.0, 50), ("b", 0.2, -1.0, 0), ("c", 0.3, -2.0, 100)):
        make(tmp_path, name, age, [{"step": 9, "episode": 10, "seed": 0, "team/good": good}], lr=lr)
    make(tmp_path, "empty", 200)
    found = runs.list_runs(tmp_path)

    def names(chosen: list[listing.Summary]) -> str:
        return " ".join(run.name for run in chosen)

    assert names(found) == "empty c a b", "newest last"
    assert names(listing.sorted_by(found, "return")) == "empty a c b"
    assert names(listing.sorted_by(found, "lr")) == "empty a b c"
    assert names(listing.sorted_by(found, "name")) == "a b c empty"
    assert names(listing.sorted_by(found, "written")) == "empty c a b"
    assert names(listing.filtered(found, ["lr=2e-1"])) == "b"
    assert names(listing.filtered(found, ["name=[ac]", "state=stopped", "episodes=10"])) == "c a"
    assert names(listing.filtered(found, ["env=SIMPLE*"])) == "empty c a b"
    for call, words in [
        (lambda: listing.filtered(found, ["lr"]), "--filter lr must have the form key=value"),
        (lambda: listing.filtered(found, ["ler=1"]), r"--filter ler: no run has that; perhaps lr\?"),
        (lambda: listing.sorted_by(found, "retrun"), r"--sort retrun: no run has that; perhaps return\?"),
    ]:
        with pytest.raises(UsageError, match=words):
            call()


def test_listing_reads_only_the_end_of_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(tmp_path, "long", num_seeds=3)
    body = "".join(f"{i},{i // 3},{i % 3},{-i}\n" for i in range(60_000))
    run.metrics_path.write_text(f"step,episode,seed,team/good\n{body}")
    assert run.metrics_path.stat().st_size > 40 * metrics.BLOCK
    seen: list[int] = []
    real = metrics._lines
    monkeypatch.setattr(metrics, "_lines", lambda data, offset: seen.append(len(data)) or real(data, offset))
    summary = runs.list_runs(tmp_path)[0]
    assert summary.returns == {"good": -59_998.0}
    assert summary.episodes == 19_999
    assert sum(seen) <= metrics.BLOCK


@pytest.mark.parametrize("count", [1, 2, 700, 5000])
def test_last_rows_are_the_last_rows(tmp_path: Path, count: int) -> None:
    path = tmp_path / "metrics.csv"
    assert metrics.last_rows(path, count) == []
    path.write_text("step,note\n")
    assert metrics.last_rows(path, count) == []
    path.write_text("step,note\n" + "".join(f"{i},{'x' * (i % 50)}\n" for i in range(3000)) + "3000,to")
    assert metrics.last_rows(path, count) == metrics.read_rows(path)[-count:]


def test_a_block_that_begins_within_a_line_gives_no_torn_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "BLOCK", 60)
    path = tmp_path / "metrics.csv"
    path.write_text("step,note\n" + "".join(f"{1000 + i},abc\n" for i in range(50)))
    for count in range(1, 60):
        assert metrics.last_rows(path, count) == metrics.read_rows(path)[-count:], count


def test_the_speed_is_that_of_the_last_two_reports(tmp_path: Path) -> None:
    rows = [
        {"step": step, "episode": 1, "seed": seed, "seconds": seconds}
        for step, seconds in ((1000, 10.0), (2000, 11.0), (5000, 13.0))
        for seed in (0, 1)
    ]
    make(tmp_path, "two seeds", rows=rows, num_seeds=2)
    make(tmp_path, "one report", rows=rows[:1])
    found = {run.name: (run.speed, run.interval) for run in runs.list_runs(tmp_path)}
    assert found == {"two seeds": (2 * 3000 / 2.0, 2.0), "one report": (None, None)}


def test_a_growing_table_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.csv"
    table = metrics.Growing(path)
    assert table.rows() == []
    metrics.append(path, ["step", "note"], [[1, "a"], [2, "b"]])
    assert table.rows() == metrics.read_rows(path)
    seen: list[bytes] = []
    parse = metrics._cells
    monkeypatch.setattr(metrics, "_cells", lambda text: (seen.append(text), parse(text))[1])
    metrics.append(path, ["step", "note"], [[3, "c"]])
    with path.open("ab") as file:
        file.write(b"4,to")  # a line that is being written
    assert [row["step"] for row in table.rows()] == [1, 2, 3]
    with path.open("ab") as file:
        file.write(b"rn\n")
    assert table.rows()[-1] == {"step": 4, "note": "torn"}
    assert table.rows() is table.rows()
    assert seen == [b"3,c\n", b"4,torn\n"]
    metrics.truncate(path, 2)
    metrics.append(path, ["step", "note"], [[9, "z"], [10, "longer than before"], [11, "longer than before"]])
    assert [row["step"] for row in table.rows()] == [1, 2, 9, 10, 11]
    path.unlink()
    assert table.rows() == []
