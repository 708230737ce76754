"""A learner: a pure function of what was published and its task, and the troubles that a laboratory may inject.

The controller publishes every agent (as rows of numbers), one minibatch and a key. From these anybody computes agent i's
update, and gets the same bits: no learner keeps anything between updates.
Vectors: an agent's floats, then how far its integers moved (Adam's counters), then its figures, as float32.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from counterpoint.coded.codes import encode, fold
from counterpoint.coded.rounds import Task

Vector = np.ndarray
"""One agent's answer [D]."""


class Published(NamedTuple):
    """All that an update depends on."""

    floats: np.ndarray
    """[N, ·]"""
    integers: np.ndarray
    """[N, ·]"""
    batch: Any
    key: np.ndarray


class Trouble(NamedTuple):
    """What a laboratory does to one learner in one update."""

    delay: float = 0.0
    """Seconds before it begins."""
    pace: float = 1.0
    """It computes everything so many times over."""
    pause_at: float = float("inf")
    pause_for: float = 0.0
    dies: bool = False


class Order(NamedTuple):
    """A task on its way to a learner."""

    update: int
    task: Task
    trouble: Trouble = Trouble()


class Report(NamedTuple):
    """What a learner says about a task."""

    waited: float
    """Seconds of injected delay."""
    computed: float
    """Seconds of computing, padding included."""
    encoding: float
    """Seconds of adding up."""
    stopped: bool
    """Told to stop before the end."""


class Layout(NamedTuple):
    """How agents become rows of numbers and back: shapes and dtypes of one agent's leaves and of its figures."""

    agent: Any
    figures: dict[str, Any]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Floats, integers and figures of one agent."""
        import jax

        leaves = jax.tree.leaves(self.agent)
        floats = sum(leaf.size for leaf in leaves if _is_float(leaf))
        return floats, sum(leaf.size for leaf in leaves) - floats, sum(leaf.size for leaf in self.figures.values())


class Work(NamedTuple):
    """What learners compute: an algorithm's `update_one` on rows of numbers."""

    update_one: Callable[..., Any]
    layout: Layout
    example: Published
    """Shapes and dtypes of what will be published."""
    pad: float
    """Seconds that an agent's update takes at least."""


def _is_float(leaf: Any) -> bool:
    return np.issubdtype(leaf.dtype, np.floating)


def pack(agents: Any) -> tuple[Any, Any]:
    """Agents [N, …] as rows of floats and rows of integers."""
    import jax
    import jax.numpy as jnp

    leaves = jax.tree.leaves(agents)
    rows = [leaf.reshape(leaf.shape[0], -1) for leaf in leaves]
    floats = [row for row in rows if _is_float(row)]
    integers = [row.astype(jnp.int32) for row in rows if not _is_float(row)]
    nothing = jnp.zeros((rows[0].shape[0], 0), jnp.int32)
    return jnp.concatenate(floats, axis=1), jnp.concatenate([nothing, *integers], axis=1)


def unpack(layout: Layout, floats: Any, integers: Any) -> Any:
    """The agents that `pack` made rows."""
    import jax

    leaves, taken = [], {True: 0, False: 0}
    for shape in jax.tree.leaves(layout.agent):
        kind = bool(_is_float(shape))
        source, first = (floats if kind else integers), taken[kind]
        taken[kind] += shape.size
        leaves.append(source[:, first : first + shape.size].reshape(-1, *shape.shape).astype(shape.dtype))
    return jax.tree.unflatten(jax.tree.structure(layout.agent), leaves)


def vector_of(work: Work, published: Published, i: Any) -> Any:
    """Agent i's answer."""
    import jax
    import jax.numpy as jnp

    from counterpoint.core import prng

    agents = unpack(work.layout, published.floats, published.integers)
    agent, figures = work.update_one(agents, published.batch, i, prng.wrap(published.key))
    floats, integers = pack(jax.tree.map(lambda leaf: leaf[None], agent))
    moved = (integers[0] - published.integers[i]).astype(jnp.float32)
    return jnp.concatenate([floats[0], moved, *(figures[name].ravel() for name in work.layout.figures)])


def layout_of(update_one: Callable[..., Any], agents: Any, batch: Any, key: Any) -> Layout:
    """The layout of an algorithm's agents and figures."""
    import jax

    agent, figures = jax.eval_shape(update_one, agents, batch, np.int32(0), key)
    return Layout(agent, {name: figures[name] for name in sorted(figures)})


def compiled(work: Work) -> Callable[[Published, Any], Any]:
    """(published, i) → agent i's answer."""
    import jax

    shapes = work.example, jax.ShapeDtypeStruct((), np.int32)
    return jax.jit(lambda published, i: vector_of(work, published, i)).lower(*shapes).compile()


class Learner:
    """Computes tasks one at a time, and stops when told to."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._compute: Callable[[Published, Any], Any] | None = None
        self._stopped = -1
        self._signal = threading.Condition()

    def pid(self) -> int:
        return os.getpid()

    def ready(self) -> None:
        """Compiles."""
        self._compute = compiled(self._work)

    def stop(self, update: int) -> None:
        """No work on this update, or an earlier one, is wanted any more."""
        with self._signal:
            self._stopped = max(self._stopped, update)
            self._signal.notify_all()

    def work(self, published: Published, order: Order) -> tuple[Report, Vector | None]:
        """The answer to a task, if nobody stops it."""
        update, task, trouble = order
        if trouble.dies:
            self._die()
        assert self._compute is not None, "ready() comes first"
        began = time.monotonic()
        self._wait(update, trouble.delay)
        waited, computed = time.monotonic() - began, 0.0
        vectors: list[Vector] = []
        for agent in task.agents:
            if self._stopped >= update:
                return Report(waited, computed, 0.0, stopped=True), None
            begun = time.monotonic()
            vector = self._once(published, agent, update, trouble.pace)
            ended = time.monotonic()
            computed += ended - begun
            if max(0.0, begun - began) <= trouble.pause_at < ended - began:
                self._wait(update, trouble.pause_for)
                waited += time.monotonic() - ended
            vectors.append(vector)
        if self._stopped >= update:
            return Report(waited, computed, 0.0, stopped=True), None
        ended = time.monotonic()
        answer = message_of(task, vectors)
        return Report(waited, computed, time.monotonic() - ended, stopped=False), answer

    def _once(self, published: Published, agent: int, update: int, pace: float) -> Vector:
        """One agent's update, padded by waiting; a slow machine really computes again and again, or waits longer."""
        assert self._compute is not None
        began = time.monotonic()
        vector = np.asarray(self._compute(published, np.int32(agent)))
        cost = time.monotonic() - began
        if self._work.pad:
            self._wait(update, self._work.pad * pace - cost)
        else:
            while time.monotonic() - began < pace * cost - 1e-4 and self._stopped < update:
                np.asarray(self._compute(published, np.int32(agent)))
        return vector

    def _wait(self, update: int, seconds: float) -> None:
        """Returns after so many seconds, or when the update is stopped."""
        if seconds > 0:
            with self._signal:
                self._signal.wait_for(lambda: self._stopped >= update, min(seconds, threading.TIMEOUT_MAX))

    def _die(self) -> None:
        os._exit(1)


def message_of(task: Task, vectors: list[Vector]) -> Vector:
    """One agent's vector as it is, or with a row of a code the sum of what several fold to."""
    if not task.row:
        return vectors[0]
    return encode(np.array([task.row]), np.stack([fold(vector) for vector in vectors]), np.float64)[0]


class Machine(NamedTuple):
    """How the controller's JAX is set up; learners must be set up alike to get the same bits."""

    threads: int
    """XLA splits sums among so many threads, so the order of additions depends on it."""
    cache: str
    """Where compiled programs are kept."""

    @staticmethod
    def here() -> "Machine":
        import jax

        threads = int(os.environ.get("NPROC", 0)) or len(os.sched_getaffinity(0))
        return Machine(threads, str(jax.config.values.get("jax_compilation_cache_dir") or ""))

    def imitate(self) -> None:
        """Sets this process up so, before it uses JAX."""
        os.environ["NPROC"] = str(self.threads)  # how XLA is told the number of processors
        import jax

        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_compilation_cache_dir", self.cache or None)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


class LearnerProcess(Learner):
    """A learner in a process of its own."""

    def __init__(self, work: Work, machine: Machine) -> None:
        machine.imitate()
        super().__init__(work)
