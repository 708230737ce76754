"""An algorithm and a world that live outside the package: train, kill -9, resume, play, benchmark, export."""

import signal
from pathlib import Path

import pytest

from processes import assert_same_policy, finish, interrupted, spawn

EXAMPLES = Path(__file__).parents[1] / "examples"
OUTSIDE = {
    "algorithm": ["--algorithm", f"{EXAMPLES / 'own_algorithm.py'}:entry", "--scenario", "simple_spread"],
    "world": [
        "--env",
        f"{EXAMPLES / 'own_world.py'}:Gather",
        "--scenario-args",
        "n=3",
        "--num-units",
        "16",
        "--batch-size",
        "64",
    ],
}
SMALL = ["--num-episodes", "1200", "--report-every", "40", "--save-rate", "80"]
QUICK = ["--eval-episodes", "2", "--devices", "1", "--plots-dir", ""]


@pytest.mark.parametrize("what", OUTSIDE)
def test_it_trains_survives_kill_resumes_plays_benchmarks_and_exports(what: str, tmp_path: Path) -> None:
    words = ["train", *OUTSIDE[what], *SMALL, *QUICK, "--save-dir", str(tmp_path)]
    code, output = finish(spawn(*words, "--exp-name", "calm"))
    assert code == 0, output
    path = tmp_path / "rough"
    interrupted(path, spawn(*words, "--exp-name", "rough"), 4, signal.SIGKILL)
    code, output = finish(spawn("resume", str(path)))
    assert code == 0, output
    assert_same_policy(path, tmp_path / "calm")
    for command in ("play", "benchmark", "export"):
        more = {"benchmark": ["--benchmark-dir", str(tmp_path), "--benchmark-iters", "200"], "export": ["--format", "numpy"]}
        code, output = finish(spawn(command, str(path), *more.get(command, [])))
        assert code == 0, output
    assert (path / "play.gif").stat().st_size > 1000
    assert list((path / "export" / "numpy").glob("*.npz"))
