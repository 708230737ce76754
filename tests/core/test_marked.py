"""Marked processes end with whoever started them, even if that process is killed and they have a session of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from counterpoint.core import marked

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
NAME = "COUNTERPOINT_TEST_MARK"
PARENT = f"""
import os, subprocess, sys, time
from counterpoint.core import marked
marked.start_reaper({NAME!r}, sys.argv[1], 0.0)
os.environ[{NAME!r}] = sys.argv[1]
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
print("started", flush=True)
time.sleep(1000)
"""


def wait_until_gone(value: str) -> None:
    deadline = time.monotonic() + 60
    while marked.processes(NAME, value):
        assert time.monotonic() < deadline, "an orphan"
        time.sleep(0.05)


def test_the_reaper_ends_what_a_killed_process_leaves() -> None:
    value = f"reaped-{os.getpid()}"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, value], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "started\n"
    assert len(marked.processes(NAME, value)) == 1
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    wait_until_gone(value)


def test_end_kills_children_that_left_their_group_and_nobody_else() -> None:
    value = f"ended-{os.getpid()}"
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
    ours = subprocess.Popen(sleep, env={**os.environ, NAME: value}, start_new_session=True)
    other = subprocess.Popen(sleep, env={**os.environ, NAME: value + "0"})
    try:
        while ours.pid not in marked.processes(NAME, value):
            time.sleep(0.02)  # between fork and exec it has our environment
        assert marked.end(NAME, value) == 1
        assert ours.wait() == -signal.SIGKILL
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_end_finds_a_process_whose_mark_could_not_be_read_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the system loads a program, its environment reads as empty."""
    value = f"loading-{os.getpid()}"
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
    child = subprocess.Popen(sleep, env=os.environ | {NAME: value})
    seen, scans = marked.processes, iter([True])
    monkeypatch.setattr(marked, "processes", lambda name, value: [] if next(scans, False) else seen(name, value))
    assert marked.end(NAME, value) == 1
    assert child.wait(60) == -signal.SIGKILL
