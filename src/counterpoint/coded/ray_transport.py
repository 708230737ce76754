"""Learners as Ray actors, either on this machine, reachable only from here, or on a cluster.

Ray is an optional dependency and imported lazily. A learner has at most one request at a time; a second thread receives `stop`.
Ray takes seconds to report and restart a dead actor, so the controller replaces learners instead.

Every process of a Ray that we start carries a mark. A reaper kills the marked processes when this process has ended, however it
ended; Ray itself leaves some behind. If Ray's own processes on this machine die, no call to Ray is safe any more (some end the
process without a word): the transport then reports all learners as lost, and asks Ray for nothing.
"""

import importlib.util
import logging
import os
import secrets
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from counterpoint.coded.learner import JaxSetup, LearnerProcess, TaskRequest, UpdateInputs, Vector, Work
from counterpoint.coded.transport import Event, LearnerLost, LearnerReady, ResultUnavailable, TaskResult
from counterpoint.core import marked
from counterpoint.core.errors import UsageError

MARK = "COUNTERPOINT_RAY"
"""The environment variable that marks the processes of our Ray."""
GRACE_SECONDS = 5.0
"""How long Ray's processes may take to end by themselves."""
VITAL = ("raylet", "gcs_server")
"""The processes without which Ray cannot work."""
_lost: list[str] = []
"""The vital processes of Ray that have died, for the end of the process."""
FETCH_LIMIT = 10.0
"""Maximum seconds for fetching one result before its learner counts as lost."""


def require_ray() -> None:
    """Raises UsageError if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("--learners needs Ray, which is not installed: pip install 'counterpoint[ray]'.")


def connect(address: str, num_learners: int, store_bytes: int) -> Callable[[], None]:
    """Starts Ray here, or connects to the address; returns the function that shuts it down."""
    require_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # avoids a warning
    os.environ.setdefault("RAY_worker_niceness", "0")  # at Ray's default of 15, a busy machine starves the learners
    if not address:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # makes Ray listen on 127.0.0.1 only
    import ray

    if ray.is_initialized():
        return lambda: None
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    if address:
        try:
            with _own_signals():
                ray.init(address=address, **common)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            message = f"no Ray cluster found at --ray-address {address} ({reason}): start one, or leave out --ray-address."
            raise UsageError(message) from None
    else:
        mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        reaper = marked.start_reaper(MARK, mark, GRACE_SECONDS)
        os.environ[MARK] = mark  # inherited by all that Ray starts
        with _own_signals(), warnings.catch_warnings(), _without(MARK):
            # The processes that Ray forks do not use the JAX of this process.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            ray.init(
                address="local",
                num_cpus=num_learners,
                object_store_memory=max(store_bytes, 100 * 2**20),
                include_dashboard=False,
                **common,
            )
        return lambda: _end(ray.shutdown, mark, reaper)
    return ray.shutdown


def _end(shutdown: Callable[[], None], mark: str, reaper: Any) -> None:
    """Ends our Ray and all its processes."""
    if not _lost:
        shutdown()
    marked.end(MARK, mark, grace=0.0 if _lost else GRACE_SECONDS)
    reaper.kill()
    reaper.wait()


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Removes an environment variable after the block."""
    try:
        yield
    finally:
        os.environ.pop(name, None)


def exit_safely(code: int) -> None:
    """Ends the process with this code if Ray is lost, because Ray's own exit handlers would crash; returns otherwise."""
    if _lost:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keeps our signal handlers, which save the run, because Ray installs its own."""
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class _Sent(NamedTuple):
    """A call to an actor that has not returned yet."""

    learner: int
    request: TaskRequest | None
    """None while the learner starts."""
    handle: Any


class RayTransport:
    """Sends requests and receives results through Ray."""

    def __init__(self, work: Work, num_learners: int, address: str = "") -> None:
        size = sum(int(np.prod(leaf.shape)) * 4 for leaf in _leaves(work.example))
        self._shutdown = connect(address, num_learners, (8 + num_learners) * size)
        import ray
        import ray.exceptions

        self._ray: Any = ray
        self._class = ray.remote(LearnerProcess).options(
            max_restarts=0, max_concurrency=2, num_cpus=1, scheduling_strategy="SPREAD" if address else "DEFAULT"
        )
        self._setup = ray.put(work), JaxSetup.current()
        self._actors: dict[int, Any] = {}
        self._waiting: dict[Any, _Sent] = {}
        self._doomed: set[int] = set()
        """Learners that were started after Ray was lost."""
        self.lost = ""
        """Which process of Ray has died, if one has: then nothing is asked of Ray any more."""
        self._vital = _vital_processes(ray) if not address else {}

    def _is_lost(self) -> bool:
        """Returns whether Ray on this machine has died."""
        if not self.lost and (dead := [name for name, process in self._vital.items() if process.poll() is not None]):
            self.lost = f"the process {dead[0]} of Ray died"
            _lost.extend(dead)
            self._doomed |= self._actors.keys()
            self._actors.clear()
            self._waiting.clear()
        return bool(self.lost)

    def spawn(self, learner: int) -> None:
        if self._is_lost():
            self._doomed.add(learner)
            return
        self._actors[learner] = actor = self._class.remote(*self._setup)
        self._waiting[actor.compile.remote()] = _Sent(learner, None, None)

    def kill(self, learner: int) -> None:
        self._waiting = {ref: sent for ref, sent in self._waiting.items() if sent.learner != learner}
        if self._is_lost() or learner not in self._actors:
            return
        self._ray.kill(self._actors.pop(learner), no_restart=True)

    def publish(self, inputs: UpdateInputs) -> Any:
        return None if self._is_lost() else self._ray.put(inputs)

    def send(self, learner: int, inputs: Any, request: TaskRequest) -> None:
        if self._is_lost():
            return
        report, handle = self._actors[learner].run.options(num_returns=2).remote(inputs, request)
        self._waiting[report] = _Sent(learner, request, handle)

    def stop(self, learner: int, update: int) -> None:
        if not self._is_lost():
            self._actors[learner].stop.remote(update)

    def poll(self, timeout: float) -> list[Event]:
        """Returns new events, waiting at most `timeout` seconds for the first."""
        if self._is_lost():
            doomed, self._doomed = sorted(self._doomed), set()
            return [LearnerLost(learner, self.lost) for learner in doomed]
        if not self._waiting:
            time.sleep(min(timeout, 0.05))
            return []
        refs = list(self._waiting)
        ready, _ = self._ray.wait(refs, num_returns=1, timeout=timeout, fetch_local=False)
        if self._is_lost():
            return []
        if ready and len(refs) > 1:
            ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        return [self._event(ref, self._waiting.pop(ref)) for ref in ready]

    def _event(self, ref: Any, sent: _Sent) -> Event:
        try:
            report = self._ray.get(ref, timeout=FETCH_LIMIT)
        except self._ray.exceptions.RayError as error:
            self._actors.pop(sent.learner, None)
            return LearnerLost(sent.learner, _reason(error))
        if sent.request is None:
            return LearnerReady(sent.learner)
        return TaskResult(sent.learner, sent.request, report, sent.handle)

    def fetch(self, handle: Any) -> Vector:
        if self._is_lost():
            raise ResultUnavailable(self.lost)
        try:
            return self._ray.get(handle, timeout=FETCH_LIMIT)
        except self._ray.exceptions.RayError as error:
            raise ResultUnavailable(_reason(error)) from None

    def close(self) -> None:
        self._waiting.clear()
        for actor in [] if self._is_lost() else self._actors.values():
            self._ray.kill(actor, no_restart=True)
        self._actors.clear()
        self._shutdown()

    @property
    def processes(self) -> dict[int, int]:
        """Returns the process id of each learner."""
        return dict(zip(self._actors, self._ray.get([actor.pid.remote() for actor in self._actors.values()]), strict=True))


def _vital_processes(ray: Any) -> dict[str, Any]:
    """Returns the processes of our Ray that it cannot do without, as far as this version of Ray tells."""
    try:
        running = ray._private.worker._global_node.all_processes
        return {name: running[name][0].process for name in VITAL if running.get(name)}
    except AttributeError:
        return {}


def _reason(error: Exception) -> str:
    """Returns a short reason for a Ray error."""
    name = type(error).__name__
    if name in ("ActorDiedError", "RayActorError", "ActorUnavailableError"):
        return "its process died"
    if name in ("OwnerDiedError", "ObjectLostError", "NodeDiedError", "GetTimeoutError"):
        return "its machine is unreachable"
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{name}: {lines[-1].strip()}" if lines else name


def _leaves(tree: Any) -> list[Any]:
    import jax

    return jax.tree.leaves(tree)
