"""Runs that are stopped, and whether they end as if left alone."""

import os
import signal
from typing import Any

import numpy as np

from counterpoint.runs.folder import Run
from counterpoint.training.progress import Progress


class Stopper(Progress):
    """Asks to stop after so many reports."""

    def __init__(self, after: int) -> None:
        self.left = after

    def report(self, row: dict[str, Any]) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


def assert_same_end(one: Run, other: Run) -> None:
    times = ("seconds", "steps_per_second")
    rows = [[{k: v for k, v in row.items() if k not in times} for row in run.rows()] for run in (one, other)]
    assert list(map(repr, rows[0])) == list(map(repr, rows[1]))
    assert (one.path / "policy.safetensors").read_bytes() == (other.path / "policy.safetensors").read_bytes()
    ends = one.load(), other.load()
    assert ends[0]
    assert ends[1]
    for name, value in ends[0].state.items():
        np.testing.assert_array_equal(value, ends[1].state[name], err_msg=name)
