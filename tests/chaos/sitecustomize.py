"""Loaded by Python at its start if this folder is on PYTHONPATH: makes one system call of the process fail, or kills it there.

CHAOS_CALL is "name:count:what:times": at the count-th call of os.fsync, os.replace, os.unlink or open for writing, `what`
happens: kill (SIGKILL before the call), late (SIGKILL after it), or the name of an errno such as ENOSPC, for that many calls.
CHAOS_CLOCK is a number of seconds by which time.time jumps, to and fro, at every call.
Only the main process is disturbed: worker processes and learners have attacks of their own.
"""

import builtins
import errno
import os
import signal
import sys
import time


def _disturb(name, count, what, times):
    module, function = (builtins, "open") if name == "open" else (os, name)
    original, calls = getattr(module, function), 0

    def disturbed(*args, **kwargs):
        nonlocal calls
        mode = str(args[1] if len(args) > 1 else kwargs.get("mode", "r"))
        if name == "open" and not ("runs" in str(args[0]) and set(mode) & set("wa+")):
            return original(*args, **kwargs)
        calls += 1
        due = count <= calls < count + times
        if due and what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if due and what not in ("kill", "late"):
            number = getattr(errno, what)
            raise OSError(number, os.strerror(number))
        result = original(*args, **kwargs)
        if due and what == "late":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(module, function, disturbed)


if "CHAOS_CALL" in os.environ and "COUNTERPOINT_WORKER" not in os.environ and "counterpoint" in " ".join(sys.orig_argv):
    _name, _count, _what, _times = os.environ["CHAOS_CALL"].split(":")
    _disturb(_name, int(_count), _what, int(_times))
if "CHAOS_CLOCK" in os.environ:
    _time, _far, _turn = time.time, float(os.environ["CHAOS_CLOCK"]), [1]

    def _jumping():
        _turn[0] = -_turn[0]
        return _time() + _turn[0] * _far

    time.time = _jumping
