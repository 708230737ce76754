"""The controller of real learners is killed and terminated during a run; the resumed run ends with the same bits."""

import signal
from pathlib import Path
from typing import Any

import pytest

from processes import assert_same_run, finish, interrupted, spawn
from tiny import tiny_words

OWN: dict[str, Any] = {"scenario": "simple_spread", "scenario_args": "N=2", "num_episodes": 96, "learners": 3, "code": "backup"}


@pytest.mark.slow
def test_a_killed_and_terminated_controller_resumes_to_the_same_bits(tmp_path: Path) -> None:
    words = tiny_words(**OWN, save_dir=tmp_path)
    code, output = finish(spawn("train", *words, "--exp-name", "calm"))
    assert code == 0, output
    path = tmp_path / "rough"
    interrupted(path, spawn("train", *words, "--exp-name", "rough"), 4, signal.SIGKILL)
    interrupted(path, spawn("resume", str(path)), 8, signal.SIGTERM)
    code, output = finish(spawn("resume", str(path)))
    assert code == 0, output
    assert_same_run(path, tmp_path / "calm")
