"""One writer per run: a lock on RUN/lock whose file names its owner.

The lock is the operating system's (flock), so it ends with the process that holds it, however that process ends. On a file
system without flock the file itself is the lock: it counts while the process that it names is alive, and one of another machine
counts until somebody removes the file.
"""

import errno
import json
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from counterpoint.core.errors import UsageError
from counterpoint.runs import files

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
"""How a file system says that it has no flock."""
PATIENCE = 0.5
"""Seconds to try for: whoever only looks at a lock holds it for a moment."""


class Owner(NamedTuple):
    """The process that writes a run."""

    pid: int
    host: str
    start: str
    """When it took the lock, as local time."""
    born: str = ""
    """When the system started the process, in its own units: tells it from a later process with the same number."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.start}"


class _Unsupported(Exception):
    """The file system has no flock."""


def lock_path(run: Path) -> Path:
    return run / "lock"


@contextmanager
def hold(run: Path, say: Callable[[str], object] = lambda sentence: None) -> Iterator[None]:
    """Holds a run's lock within the block; raises UsageError that names the owner if another process holds it."""
    try:
        handle = _acquire(run)
    except _Unsupported:
        say(f"the file system of {run} does not support locks: the process id in {lock_path(run)} guards the run instead.")
        handle = None
        _claim(run)
    try:
        yield
    finally:
        with suppress(OSError):
            lock_path(run).unlink()  # while the lock is held: whoever waits for this file finds that it is gone
        if handle is not None:
            os.close(handle)


def owner(run: Path) -> Owner | None:
    """Returns the process that writes a run now, or None."""
    try:
        handle = os.open(lock_path(run), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe must not block
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode) or _flock(handle, shared=True):
            return None
        return _read(run) or Owner(0, "an unknown machine", "an unknown time")
    except _Unsupported:
        named = _read(run)
        return named if named and _is_alive(named) else None
    finally:
        os.close(handle)


def _acquire(run: Path) -> int:
    """Returns the open and locked file, which names this process."""
    path, deadline = lock_path(run), time.monotonic() + PATIENCE
    while True:
        with files.explained(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if _flock(handle) and _is_same_file(handle, path):
                with files.explained(path):
                    os.ftruncate(handle, 0)
                    os.write(handle, _text())
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if time.monotonic() > deadline:
            raise _refusal(run, _read(run))
        time.sleep(0.02)


def _flock(handle: int, shared: bool = False) -> bool:
    """Locks an open file and returns True, or returns False if another process holds the lock."""
    if fcntl is None:
        raise _Unsupported
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in UNSUPPORTED:
            raise _Unsupported from None
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _is_same_file(handle: int, path: Path) -> bool:
    """Returns whether the open file is still the one at the path: its last owner may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _claim(run: Path) -> None:
    """Writes the file that is the lock itself, unless a living process has."""
    path = lock_path(run)
    named = _read(run)
    if named and _is_alive(named):
        raise _refusal(run, named)
    if named or path.exists():
        path.unlink(missing_ok=True)
    draft = path.with_name(f".lock.{os.getpid()}.tmp")
    with files.explained(path):
        try:
            draft.write_bytes(_text())
            os.link(draft, path)  # appears complete, and only if nobody else was faster
        except FileExistsError:
            raise _refusal(run, _read(run)) from None
        finally:
            draft.unlink(missing_ok=True)


def _refusal(run: Path, named: Owner | None) -> UsageError:
    who = str(named) if named else "another process"
    far = named is not None and named.host != socket.gethostname()
    dead = f", or remove {lock_path(run)} if that process has ended" if far else ""
    return UsageError(f"{run} is in use by {who}: wait until it has ended, or stop it{dead}.")


def _text() -> bytes:
    start = time.strftime("%Y-%m-%d %H:%M:%S")
    return files.compact_json(Owner(os.getpid(), socket.gethostname(), start, _born(os.getpid()))._asdict()).encode()


def _read(run: Path) -> Owner | None:
    try:
        facts: Any = json.loads(lock_path(run).read_bytes())
        return Owner(int(facts["pid"]), str(facts["host"]), str(facts["start"]), str(facts.get("born", "")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_alive(named: Owner) -> bool:
    """Returns whether a process lives; one of another machine is taken to."""
    if named.host != socket.gethostname():
        return True
    try:
        os.kill(named.pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # it belongs to somebody else
    return _born(named.pid) == named.born


def _born(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
