"""An algorithm and a world that live outside the package, together: train, kill -9, resume, play, benchmark, export."""

import signal
from pathlib import Path

from processes import assert_same_policy, finish, interrupted, spawn

EXAMPLES = Path(__file__).parents[1] / "examples"
OUTSIDE = ["--algorithm", f"{EXAMPLES / 'own_algorithm.py'}:entry", "--env", f"{EXAMPLES / 'own_world.py'}:Gather"]
SMALL = ["--scenario-args", "n=3", "--num-episodes", "1200", "--report-every", "40", "--save-rate", "80"]
QUICK = ["--eval-episodes", "2", "--devices", "1", "--plots-dir", ""]


def test_they_train_survive_kill_and_resume_play_benchmark_and_export(tmp_path: Path) -> None:
    words = ["train", *OUTSIDE, *SMALL, *QUICK, "--save-dir", str(tmp_path)]
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
