"""A run's folder returns exactly what it was given, and refuses what it cannot read in one sentence."""

import errno
import json
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import counterpoint
from counterpoint import runs
from counterpoint.core.errors import UsageError
from counterpoint.runs import metrics

CONFIG = {"algorithm": "maddpg", "world": {"scenario": "tag"}, "training": {"num_episodes": 100, "num_seeds": 2}}


@pytest.fixture
def run(tmp_path):
    return runs.create(tmp_path, "tag", CONFIG)


def test_import_needs_no_jax():
    code = "import sys; from counterpoint import runs; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_create_and_open(tmp_path):
    run = runs.create(tmp_path / "deep" / "er", "tag", CONFIG)
    assert run.path == tmp_path / "deep" / "er" / "tag"
    written = json.loads((run.path / "config.json").read_text())
    assert {**CONFIG, "format": 1, "counterpoint": counterpoint.__version__}.items() <= written.items()
    assert runs.open_run(f"{run.path}/") == runs.open_run(run.path) == run
    assert run.config == CONFIG
    assert run.load() is None
    assert run.rows() == []


def test_create_never_shares_a_folder(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda i: runs.create(tmp_path, "tag", {"i": i}), range(16)))
    assert {run.name for run in made} == {"tag"} | {f"tag-{i}" for i in range(2, 17)}
    assert [run.config["i"] for run in made] == list(range(16))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0b"])
def test_bad_exp_name(tmp_path, name):
    with pytest.raises(UsageError, match=r"exp_name must be the name of a folder"):
        runs.create(tmp_path, name, CONFIG)
    assert os.listdir(tmp_path) == []


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file/sub/tag cannot be written"):
        runs.create(tmp_path / "file" / "sub", "tag", CONFIG)
    with pytest.raises(UsageError, match=r"file/tag cannot be written"):
        runs.create(tmp_path / "file", "tag", CONFIG)
    denied = mock.patch.object(Path, "mkdir", side_effect=PermissionError(errno.EACCES, "Permission denied"))
    with denied, pytest.raises(UsageError, match=r"runs/tag cannot be written .Permission denied.: make its folder writable"):
        runs.create(tmp_path / "runs", "tag", CONFIG)


def test_open_what_is_no_run(tmp_path, run):
    with pytest.raises(UsageError, match=r"nowhere is not a run.*check the path"):
        runs.open_run(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"config.json is not a run"):
        runs.open_run(run.path / "config.json")
    with pytest.raises(UsageError, match=r"choose one of the runs in it \(tag\)"):
        runs.open_run(tmp_path)
    (run.path / "config.json").write_text('{"format": 1, "scen')
    with pytest.raises(UsageError, match=r"config.json cannot be read"):
        runs.open_run(run.path)


def test_newer_format(run):
    (run.path / "config.json").write_text(json.dumps({"format": 2, "counterpoint": "9.0", **CONFIG}))
    with pytest.raises(UsageError, match=r"written by counterpoint 9.0 in format 2.*upgrade counterpoint"):
        runs.open_run(run.path)


def test_list_runs(tmp_path):
    done, half = runs.create(tmp_path, "done", CONFIG), runs.create(tmp_path, "half", CONFIG)
    for episode in (50, 100):
        for seed in (0, 1):
            done.append_metrics(
                {"step": episode * 25, "episode": episode + seed, "seed": seed, "team/good": seed - episode / 8}
            )
            half.append_metrics({"step": episode * 25, "episode": episode - 1 + seed, "seed": seed, "team/good": float("nan")})
    runs.create(tmp_path, "fresh", CONFIG)
    torn = runs.create(tmp_path, "torn", CONFIG)
    (torn.path / "config.json").write_text("{")
    runs.create(tmp_path, "foreign", {"world": "flat"})
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    hour_ago = time.time() - 3600
    for path in (done.path / "config.json", done.path / "metrics.csv", done.path / "checkpoints"):
        os.utime(path, (hour_ago, hour_ago))
    listed = {summary.name: summary for summary in runs.list_runs(tmp_path)}
    assert set(listed) == {"done", "half", "fresh", "torn", "foreign"}
    done_now = listed["done"]
    assert (done_now.env, done_now.algorithm, done_now.episodes, done_now.state) == ("tag", "maddpg", 100, "finished")
    assert done_now.returns == {"good": -12.0}
    assert 3600 <= done_now.age < 3700
    assert (listed["half"].episodes, listed["half"].state) == (99, "stopped")
    assert np.isnan(listed["half"].returns["good"])
    assert (listed["fresh"].env, listed["fresh"].episodes, listed["fresh"].returns) == ("tag", 0, {})
    assert listed["fresh"].state == "stopped"
    assert listed["torn"].state == listed["foreign"].state == "unreadable"
    assert runs.list_runs(tmp_path)[0].name == "done", "newest last"
    assert runs.list_runs(tmp_path / "nowhere") == []


def test_the_cells_of_a_grid_are_listed_and_found_by_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs.create("runs", "one", CONFIG)
    runs.create("runs/both", "maddpg", CONFIG)
    runs.create("runs/folder", "not-listed", CONFIG)
    Path("runs/both/grid.json").write_text("{}")
    assert {run.name for run in runs.list_runs("runs")} == {"one", "both/maddpg"}
    assert runs.open_run("both/maddpg").path == Path("runs/both/maddpg")
    with pytest.raises(UsageError, match="is not a run"):
        runs.open_run("../runs/both/ddpg")


def test_metrics_round_trip(run):
    run.append_metrics({"step": 1, "return": np.float32(-0.1), "loss": np.float64(1 / 3), "name": 'a, "b"\nc'})
    run.append_metrics({"step": np.int64(2), "name": "", "return": float("inf")})
    rows = run.rows()
    assert rows[0] == {"step": 1, "return": -0.1, "loss": 1 / 3, "name": 'a, "b" c'}
    assert rows[1] == {"step": 2, "return": float("inf"), "loss": None, "name": None}
    assert isinstance(rows[1]["step"], int)
    run.append_metrics({"step": 3, "new": 1})  # such as evaluation, if a resumed run begins to evaluate
    assert run.rows()[:2] == [row | {"new": None} for row in rows]
    assert run.rows()[2] == {"step": 3, "return": None, "loss": None, "name": None, "new": 1}
    assert metrics.check(run.metrics_path).problem == ""
    run.append_metrics({"step": 10**400})
    assert run.rows()[-1]["step"] == math.inf


def test_metrics_torn_anywhere(run):
    path = run.path / "metrics.csv"
    for step in (1, 2):
        run.append_metrics({"step": step, "return": 10.5 * step})
    whole, sums = path.read_bytes(), path.with_suffix(".sums").read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        complete = whole[:length].count(b"\n")  # the checksum of a line is written after the line
        path.with_suffix(".sums").write_bytes(sums[: 22 * max(complete - length % 2, 0)])
        left = [{"step": 1, "return": 10.5}, {"step": 2, "return": 21.0}][: max(whole[:length].count(b"\n") - 1, 0)]
        assert run.rows() == left
        run.append_metrics({"step": 7, "return": 0.0})
        assert run.rows() == [*left, {"step": 7, "return": 0.0}]


def test_truncate_metrics(run):
    run.truncate_metrics(5)
    for step in (10, 20, 30):
        run.append_metrics({"return": 0.1 * step, "step": step})
    with open(run.path / "metrics.csv", "ab") as file:
        file.write(b"garbage\n3.0,40")
    assert [row["step"] for row in run.rows()] == [10, 20, 30]
    run.truncate_metrics(20)
    assert (run.path / "metrics.csv").read_bytes() == b"return,step\n1.0,10\n2.0,20\n"
    run.truncate_metrics(0)
    assert run.rows() == []


def test_policy_round_trip(run):
    with pytest.raises(UsageError, match=r"saved no policy yet"):
        run.load_policy()
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    run.save_policy({"w": weights.T, "b": np.zeros(())}, {"agents": ["adversary_0"], "size": 3})
    tensors, about = run.load_policy()
    np.testing.assert_array_equal(tensors["w"], weights.T)
    assert tensors["b"].shape == ()
    assert about == {"agents": ["adversary_0"], "size": 3}
    path = run.path / "policy.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"policy.safetensors is damaged"):
        run.load_policy()


def test_a_bare_name_is_found_in_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs.create("runs", "demo", CONFIG)
    assert runs.open_run("demo").path == Path("runs/demo")
    with pytest.raises(UsageError, match=r"dmo is not a run.*check the path \(perhaps demo\?\)"):
        runs.open_run("dmo")
    with pytest.raises(UsageError, match="is not a run"):
        runs.open_run("./demo")
    runs.create(".", "demo", CONFIG)
    assert runs.open_run("demo").path == Path("demo"), "a folder here comes first"


def test_changes_are_recorded_beside_the_settings(run):
    assert run.changes == []
    run.rewrite_config(CONFIG | {"algorithm": "ddpg"}, {"episode": 40, "lr": [0.01, 0.001]})
    run.rewrite_config(CONFIG)
    run.rewrite_config(CONFIG, {"episode": 60, "lr": [0.001, 0.002]})
    assert run.config == CONFIG
    assert run.changes == [{"episode": 40, "lr": [0.01, 0.001]}, {"episode": 60, "lr": [0.001, 0.002]}]
