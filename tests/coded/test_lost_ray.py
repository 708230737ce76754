"""Ray's own processes die, or the controller does: the run is saved, a sentence says why, and no process survives."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from counterpoint.coded import ray_transport
from counterpoint.coded.learner import InjectedFault, TaskRequest, UpdateInputs
from counterpoint.coded.rounds import Task
from counterpoint.coded.transport import LearnerLost, ResultUnavailable
from counterpoint.core import marked
from processes import assert_same_run, finish, spawn, wait_for
from tiny import tiny_words

OWN: dict[str, Any] = {"scenario": "simple_spread", "scenario_args": "N=2", "num_episodes": 96, "learners": 2, "code": "backup"}
MARK = "COUNTERPOINT_LOST_RAY"


class Dead:
    """A process that has ended."""

    def poll(self) -> int:
        return -9


def test_a_transport_without_ray_asks_it_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method returns, and every learner is reported as lost."""
    monkeypatch.setattr(ray_transport, "_lost", [])
    transport = object.__new__(ray_transport.RayTransport)
    ended: list[str] = []
    transport._ray = None  # any use of it fails
    transport._vital, transport.lost, transport._doomed = {"raylet": Dead()}, "", set()
    transport._actors, transport._waiting = {0: None, 1: None}, {None: None}  # pyright: ignore[reportAttributeAccessIssue]
    transport._shutdown = lambda: ended.append("closed")
    inputs: Any = UpdateInputs(None, None, None, None)  # pyright: ignore[reportArgumentType]
    assert transport.publish(inputs) is None
    transport.send(0, None, TaskRequest(0, Task((0,)), InjectedFault()))
    transport.stop(0, 0)
    transport.kill(1)
    assert transport.poll(1.0) == [LearnerLost(n, "the process raylet of Ray died") for n in (0, 1)]
    transport.spawn(1)
    assert transport.poll(1.0) == [LearnerLost(1, "the process raylet of Ray died")]
    with pytest.raises(ResultUnavailable, match="raylet"):
        transport.fetch(None)
    transport.close()
    assert ended == ["closed"]
    assert ray_transport._lost == ["raylet"]


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["raylet", "gcs_server"])
def test_a_lost_ray_saves_the_run_and_exits_with_4(victim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = f"{os.getpid()}-{victim}"
    monkeypatch.setenv(MARK, value)
    words = tiny_words(**OWN, save_dir=tmp_path)
    code, output = finish(spawn("train", *words, "--exp-name", "calm"))
    assert code == 0, output
    path = tmp_path / "rough"
    process = spawn("train", *words, "--exp-name", "rough")
    wait_for(lambda: (path / "checkpoints").exists() and any((path / "checkpoints").glob("ckpt-*")), process)
    [number] = [n for n in marked.processes(MARK, value) if is_named(n, victim)]
    os.kill(number, signal.SIGKILL)
    code, output = finish(process)
    assert code == 4, output
    assert (
        f"the process {victim} of Ray died, and with it all learners are gone; saved, go on with: counterpoint resume" in output
    )
    assert_none_left(value)
    code, output = finish(spawn("resume", str(path)))
    assert code == 0, output
    assert_same_run(path, tmp_path / "calm")


@pytest.mark.slow
def test_a_killed_controller_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = f"{os.getpid()}-killed"
    monkeypatch.setenv(MARK, value)
    process = spawn("train", *tiny_words(**OWN, save_dir=tmp_path), "--exp-name", "cut")
    wait_for(lambda: (tmp_path / "cut" / "metrics.csv").exists(), process)
    process.kill()
    process.communicate()
    assert_none_left(value)


def is_named(process: int, name: str) -> bool:
    try:
        return Path(os.readlink(f"/proc/{process}/exe")).name == name
    except OSError:
        return False


def assert_none_left(value: str) -> None:
    deadline = time.monotonic() + 30
    while (left := marked.processes(MARK, value)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, subprocess.run(["ps", "-p", ",".join(map(str, left))], capture_output=True, text=True, check=False).stdout
