"""Learners as Ray actors: on this machine, reachable from nowhere else, or on a cluster by its address.

Ray is an extra and imported late. Learners have at most one order at a time; a second thread hears `stop`. They are not
restarted by Ray, which takes seconds to say so: the controller replaces them.
"""

import importlib.util
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from counterpoint.coded.controller import Answer, Joined, Lost, Unreachable
from counterpoint.coded.learner import LearnerProcess, Machine, Order, Published, Vector, Work
from counterpoint.core.errors import UsageError

FETCH_LIMIT = 10.0
"""Seconds that pulling one message may take before its learner counts as lost."""


def require_ray() -> None:
    if importlib.util.find_spec("ray") is None:
        raise UsageError("--learners needs Ray, which is not installed: pip install 'counterpoint[ray]'.")


def connect(address: str, num_learners: int, store_bytes: int) -> Callable[[], None]:
    """Makes sure that Ray runs, here or at that address; returns what ends it again."""
    require_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray warns
    os.environ.setdefault("RAY_worker_niceness", "0")  # learners do the work: at Ray's 15 a busy machine starves them
    if not address:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray's word for: 127.0.0.1 only
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
            sentence = f"there is no Ray cluster at --ray-address {address} ({reason}): start one, or leave it out."
            raise UsageError(sentence) from None
    else:
        with _own_signals(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)  # Ray's processes do not use ours
            ray.init(
                address="local",
                num_cpus=num_learners,
                object_store_memory=max(store_bytes, 100 * 2**20),
                include_dashboard=False,
                **common,
            )
    return ray.shutdown


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keeps our handlers of signals, which save the run; Ray would install its own."""
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class _Sent(NamedTuple):
    learner: int
    order: Order | None
    """None while the learner starts."""
    message: Any


class RayTransport:
    """Orders and answers through Ray."""

    def __init__(self, work: Work, num_learners: int, address: str = "") -> None:
        size = sum(int(np.prod(leaf.shape)) * 4 for leaf in _leaves(work.example))
        self._shutdown = connect(address, num_learners, (8 + num_learners) * size)
        import ray
        import ray.exceptions

        self._ray: Any = ray
        self._class = ray.remote(LearnerProcess).options(
            max_restarts=0, max_concurrency=2, num_cpus=1, scheduling_strategy="SPREAD" if address else "DEFAULT"
        )
        self._setup = ray.put(work), Machine.here()
        self._actors: dict[int, Any] = {}
        self._waiting: dict[Any, _Sent] = {}

    def spawn(self, learner: int) -> None:
        self._actors[learner] = actor = self._class.remote(*self._setup)
        self._waiting[actor.ready.remote()] = _Sent(learner, None, None)

    def kill(self, learner: int) -> None:
        self._waiting = {ref: sent for ref, sent in self._waiting.items() if sent.learner != learner}
        self._ray.kill(self._actors.pop(learner), no_restart=True)

    def publish(self, published: Published) -> Any:
        return self._ray.put(published)

    def send(self, learner: int, handle: Any, order: Order) -> None:
        report, message = self._actors[learner].work.options(num_returns=2).remote(handle, order)
        self._waiting[report] = _Sent(learner, order, message)

    def stop(self, learner: int, update: int) -> None:
        self._actors[learner].stop.remote(update)

    def poll(self, timeout: float) -> list[Answer | Lost | Joined]:
        """What has happened, after at most so many seconds."""
        if not self._waiting:
            time.sleep(min(timeout, 0.05))
            return []
        refs = list(self._waiting)
        ready, _ = self._ray.wait(refs, num_returns=1, timeout=timeout, fetch_local=False)
        if ready and len(refs) > 1:
            ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        return [self._event(ref, self._waiting.pop(ref)) for ref in ready]

    def _event(self, ref: Any, sent: _Sent) -> Answer | Lost | Joined:
        try:
            result = self._ray.get(ref, timeout=FETCH_LIMIT)
        except self._ray.exceptions.RayError as error:
            self._actors.pop(sent.learner, None)
            return Lost(sent.learner, _reason(error))
        return Joined(sent.learner) if sent.order is None else Answer(sent.learner, sent.order, result, sent.message)

    def fetch(self, message: Any) -> Vector:
        try:
            return self._ray.get(message, timeout=FETCH_LIMIT)
        except self._ray.exceptions.RayError as error:
            raise Unreachable(_reason(error)) from None

    def close(self) -> None:
        self._waiting.clear()
        for actor in self._actors.values():
            self._ray.kill(actor, no_restart=True)
        self._actors.clear()
        self._shutdown()

    @property
    def processes(self) -> dict[int, int]:
        """Each learner's process, asked for anew."""
        return dict(zip(self._actors, self._ray.get([actor.pid.remote() for actor in self._actors.values()]), strict=True))


def _reason(error: Exception) -> str:
    """The first words of what Ray says."""
    name = type(error).__name__
    if name in ("ActorDiedError", "RayActorError", "ActorUnavailableError"):
        return "its process died"
    if name in ("OwnerDiedError", "ObjectLostError", "NodeDiedError", "GetTimeoutError"):
        return "its machine is gone"
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{name}: {lines[-1].strip()}" if lines else name


def _leaves(tree: Any) -> list[Any]:
    import jax

    return jax.tree.leaves(tree)
