"""A run has one writer; the lock names it, and ends with it."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from counterpoint.core.errors import UsageError
from counterpoint.runs import lock

HOLDER = """
import sys, time
from pathlib import Path
from counterpoint.runs import lock
with lock.hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(params=["flock", "pid file"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both kinds of lock; without flock, in this process and in the holder."""
    if request.param == "pid file":
        monkeypatch.setattr(lock, "fcntl", None)
    return request.param


def holder(run: Path, kind: str) -> subprocess.Popen[str]:
    """Returns a process that holds the lock of a run until it reads a line."""
    program = HOLDER if kind == "flock" else HOLDER.replace("with lock", "lock.fcntl = None\nwith lock")
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_writer_is_refused_and_the_owner_named(tmp_path: Path, kind: str) -> None:
    process = holder(tmp_path, kind)
    try:
        owner = lock.owner(tmp_path)
        assert owner
        assert (owner.pid, owner.host) == (process.pid, socket.gethostname())
        with pytest.raises(UsageError) as caught, lock.hold(tmp_path):
            pytest.fail("two writers")
        assert f"is in use by process {process.pid} on {owner.host} since {owner.start}: wait" in str(caught.value)
        assert "\n" not in str(caught.value)
    finally:
        process.communicate("\n")
    assert process.returncode == 0
    assert lock.owner(tmp_path) is None
    assert list(tmp_path.iterdir()) == [], "the lock leaves nothing behind"


def test_a_dead_owner_is_succeeded(tmp_path: Path, kind: str) -> None:
    process = holder(tmp_path, kind)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert lock.lock_path(tmp_path).exists()
    assert lock.owner(tmp_path) is None
    with lock.hold(tmp_path):
        assert lock.owner(tmp_path) is not None
        assert json.loads(lock.lock_path(tmp_path).read_text())["pid"] == os.getpid()


def test_one_process_cannot_hold_a_run_twice(tmp_path: Path, kind: str) -> None:
    with lock.hold(tmp_path), pytest.raises(UsageError, match=f"process {os.getpid()} on"), lock.hold(tmp_path):
        pytest.fail("two writers")
    with lock.hold(tmp_path):
        pass


def test_looking_at_a_lock_does_not_take_it(tmp_path: Path, kind: str) -> None:
    with lock.hold(tmp_path):
        for _ in range(3):
            assert lock.owner(tmp_path)
    assert lock.owner(tmp_path) is None


def test_a_file_system_without_flock_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    said: list[str] = []
    with lock.hold(tmp_path, said.append):
        assert lock.owner(tmp_path)
    assert len(said) == 1
    assert "does not support locks: the process id in" in said[0]


def test_without_flock_an_owner_on_another_machine_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    far = {"pid": 1, "host": "elsewhere", "start": "2026-01-01 00:00:00", "born": ""}
    lock.lock_path(tmp_path).write_text(json.dumps(far))
    with pytest.raises(UsageError, match=r"process 1 on elsewhere .* or remove .*lock if that process has ended"):
        lock.hold(tmp_path).__enter__()
    lock.lock_path(tmp_path).write_text("torn {")
    with lock.hold(tmp_path):
        assert lock.owner(tmp_path)


def test_without_flock_a_reused_process_number_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    mine = {"pid": os.getpid(), "host": socket.gethostname(), "start": "2026-01-01 00:00:00", "born": "1"}
    lock.lock_path(tmp_path).write_text(json.dumps(mine))
    assert lock.owner(tmp_path) is None
