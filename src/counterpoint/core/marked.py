"""Processes that carry a mark in their environment, and so do all processes that they start: none of them is left behind.

A process group does not hold a child that starts a session of its own, and a parent that is killed cannot end anybody. A mark
is inherited like any environment variable and read from /proc, so whoever remains finds all of them. Systems without /proc have
only the process groups.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

REAPER = """
import os, sys, time
name, value, parent, grace = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
while os.getppid() == parent:
    time.sleep(0.25)
mark, quiet, began = f"{name}={value}".encode(), 0, time.monotonic()
while quiet < 4 and time.monotonic() - began < 60:
    found = []
    for word in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{word}/environ", "rb") as file:
                if mark in file.read().split(b"\\0") and int(word) != os.getpid():
                    found.append(int(word))
        except OSError:
            pass
    if time.monotonic() - began >= grace:
        for process in found:
            try:
                os.kill(process, 9)
            except OSError:
                pass
    quiet = 0 if found else quiet + 1
    time.sleep(0.25)
"""
"""Waits for the end of its parent, then kills the marked processes that remain after a grace period."""
QUIET_LOOKS = 4
"""After how many looks without a marked process in sight none is left."""


def processes(name: str, value: str) -> list[int]:
    """Returns the processes, other than this one, whose environment had the mark when they started."""
    mark, found = f"{name}={value}".encode(), []
    with suppress(OSError):
        for word in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError):
                if mark in Path("/proc", word, "environ").read_bytes().split(b"\0") and int(word) != os.getpid():
                    found.append(int(word))
    return found


def end(name: str, value: str, grace: float = 0.0) -> int:
    """Kills the marked processes that have not ended within the grace period; returns how many it killed.

    It looks until it has found nobody several times: a killed process may have started another one, and the environment of a
    process cannot be read while its program is being loaded.
    """
    deadline, killed, quiet = time.monotonic() + grace, set(), 0
    while quiet < QUIET_LOOKS:
        left = [process for process in processes(name, value) if process not in killed]
        if left and time.monotonic() >= deadline:
            for process in left:
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
                killed.add(process)
        quiet = 0 if left else quiet + 1
        time.sleep(0.05)
    return len(killed)


def start_reaper(name: str, value: str, grace: float) -> subprocess.Popen[bytes]:
    """Starts the process that kills the marked ones when this process has ended, however it ended."""
    words = [sys.executable, "-I", "-S", "-c", REAPER, name, value, str(os.getpid()), str(grace)]
    environment = {key: text for key, text in os.environ.items() if key != name}
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(words, stdin=nowhere, stdout=nowhere, stderr=nowhere, env=environment, start_new_session=True)
