"""Real training processes: start, interrupt, compare."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from counterpoint.runs.folder import Run

TIMES = ("seconds", "steps_per_second")
"""Columns that no two runs share."""


def spawn(*words: str) -> subprocess.Popen[str]:
    """`counterpoint WORDS` as a process of its own, which has as many devices as it asks for."""
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "device_count" not in flag]
    command = [sys.executable, "-m", "counterpoint", *words]
    return subprocess.Popen(
        command, env=os.environ | {"XLA_FLAGS": " ".join(flags)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, f"ended too soon: {process.communicate()[0]}"
        time.sleep(0.002)


def lines(path: Path) -> int:
    return (path / "metrics.csv").read_bytes().count(b"\n") if (path / "metrics.csv").exists() else 0


def newest(path: Path, kind: str) -> Path:
    return max((path / "checkpoints").glob(f"{kind}-*"), key=lambda file: file.name)


def assert_same_run(one: Path, other: Path) -> None:
    """Metrics but for the time, final state, replay and policy: bit for bit."""
    rows = [[{k: v for k, v in row.items() if k not in TIMES} for row in Run(path).rows()] for path in (one, other)]
    assert list(map(repr, rows[0])) == list(map(repr, rows[1])), "as text, where NaN is NaN"
    mine, theirs = Run(one).load(), Run(other).load()
    assert mine
    assert theirs
    assert mine.step == theirs.step
    assert mine.state.keys() == theirs.state.keys()
    for name, value in mine.state.items():
        np.testing.assert_array_equal(value, theirs.state[name], err_msg=name)
    assert mine.ring is not None
    np.testing.assert_array_equal(mine.ring, theirs.ring)
    assert_same_policy(one, other)


def assert_same_policy(one: Path, other: Path) -> None:
    """The trained policies of two runs are the same file."""
    assert (one / "policy.safetensors").read_bytes() == (other / "policy.safetensors").read_bytes()


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output = process.communicate(timeout=300)[0]
    return process.returncode, output


def interrupted(path: Path, process: subprocess.Popen[str], after_lines: int, number: int) -> str:
    """What a process said that was sent a signal at a random moment after it had reported so much."""
    wait_for(lambda: lines(path) >= after_lines, process)
    time.sleep(random.uniform(0, 0.1))
    process.send_signal(number)
    code, output = finish(process)
    if number == signal.SIGKILL:
        assert code == -signal.SIGKILL
    else:
        assert code == 130, output
        assert f"counterpoint resume {path}" in output
    return output
