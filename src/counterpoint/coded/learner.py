"""A learner: computes agents' updates as a pure function of the published inputs and a task, with optional injected faults.

The controller publishes all agents (as rows of numbers), one minibatch and a key. Any learner computes the same bits for
agent i from these inputs, because learners keep no state between updates.
A vector holds an agent's floats, then the changes of its integers (Adam's counters), then its metrics, all as float32.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from counterpoint.coded.codes import encode, signed_sqrt
from counterpoint.coded.rounds import Task

Vector = np.ndarray
"""One agent's update, or a sum of several, as numbers [D]."""


class UpdateInputs(NamedTuple):
    """Everything an update depends on."""

    floats: np.ndarray
    """[N, ·]"""
    integers: np.ndarray
    """[N, ·]"""
    batch: Any
    key: np.ndarray


class InjectedFault(NamedTuple):
    """A fault injected into one learner during one update."""

    delay: float = 0.0
    """Seconds before the learner starts."""
    pace: float = 1.0
    """Slowdown factor; the learner repeats its computation accordingly."""
    pause_at: float = float("inf")
    pause_for: float = 0.0
    crash: bool = False


class TaskRequest(NamedTuple):
    """A task sent to a learner."""

    update: int
    task: Task
    fault: InjectedFault = InjectedFault()


class TaskReport(NamedTuple):
    """A learner's measurements of a task."""

    waited: float
    """Seconds of injected delay."""
    computed: float
    """Seconds of computation, including padding."""
    encoding: float
    """Seconds spent encoding the result."""
    stopped: bool
    """Whether the task was stopped before it finished."""


class AgentLayout(NamedTuple):
    """Shapes and dtypes of one agent's leaves and metrics, which map agents to rows of numbers and back."""

    agent: Any
    metrics: dict[str, Any]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Returns the numbers of floats, integers and metric values of one agent."""
        import jax

        leaves = jax.tree.leaves(self.agent)
        floats = sum(leaf.size for leaf in leaves if _is_float(leaf))
        return floats, sum(leaf.size for leaf in leaves) - floats, sum(leaf.size for leaf in self.metrics.values())


class Work(NamedTuple):
    """Describes what learners compute: an algorithm's `update_one` on rows of numbers."""

    update_one: Callable[..., Any]
    layout: AgentLayout
    example: UpdateInputs
    """Shapes and dtypes of the inputs."""
    pad: float
    """Minimum seconds per agent update."""


def _is_float(leaf: Any) -> bool:
    return np.issubdtype(leaf.dtype, np.floating)


def pack(agents: Any) -> tuple[Any, Any]:
    """Converts agents [N, …] to rows of floats and rows of integers."""
    import jax
    import jax.numpy as jnp

    leaves = jax.tree.leaves(agents)
    rows = [leaf.reshape(leaf.shape[0], -1) for leaf in leaves]
    floats = [row for row in rows if _is_float(row)]
    integers = [row.astype(jnp.int32) for row in rows if not _is_float(row)]
    empty = jnp.zeros((rows[0].shape[0], 0), jnp.int32)
    return jnp.concatenate(floats, axis=1), jnp.concatenate([empty, *integers], axis=1)


def unpack(layout: AgentLayout, floats: Any, integers: Any) -> Any:
    """Inverts `pack`."""
    import jax

    leaves, taken = [], {True: 0, False: 0}
    for shape in jax.tree.leaves(layout.agent):
        kind = bool(_is_float(shape))
        source, first = (floats if kind else integers), taken[kind]
        taken[kind] += shape.size
        leaves.append(source[:, first : first + shape.size].reshape(-1, *shape.shape).astype(shape.dtype))
    return jax.tree.unflatten(jax.tree.structure(layout.agent), leaves)


def vector_of(work: Work, inputs: UpdateInputs, i: Any) -> Any:
    """Computes agent i's update as a vector."""
    import jax
    import jax.numpy as jnp

    from counterpoint.core import prng

    agents = unpack(work.layout, inputs.floats, inputs.integers)
    agent, metrics = work.update_one(agents, inputs.batch, i, prng.wrap(inputs.key))
    floats, integers = pack(jax.tree.map(lambda leaf: leaf[None], agent))
    moved = (integers[0] - inputs.integers[i]).astype(jnp.float32)
    return jnp.concatenate([floats[0], moved, *(metrics[name].ravel() for name in work.layout.metrics)])


def layout_of(update_one: Callable[..., Any], agents: Any, batch: Any, key: Any) -> AgentLayout:
    """Returns the layout of an algorithm's agents and metrics."""
    import jax

    agent, metrics = jax.eval_shape(update_one, agents, batch, np.int32(0), key)
    return AgentLayout(agent, {name: metrics[name] for name in sorted(metrics)})


def compiled(work: Work) -> Callable[[UpdateInputs, Any], Any]:
    """Compiles the function that maps (inputs, i) to agent i's update as a vector."""
    import jax

    shapes = work.example, jax.ShapeDtypeStruct((), np.int32)
    return jax.jit(lambda inputs, i: vector_of(work, inputs, i)).lower(*shapes).compile()


class Learner:
    """Computes one task at a time and can be stopped."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._compute: Callable[[UpdateInputs, Any], Any] | None = None
        self._stopped = -1
        self._signal = threading.Condition()

    def pid(self) -> int:
        return os.getpid()

    def compile(self) -> None:
        """Compiles the update; call it before `run`."""
        self._compute = compiled(self._work)

    def stop(self, update: int) -> None:
        """Stops work on this update and all earlier ones."""
        with self._signal:
            self._stopped = max(self._stopped, update)
            self._signal.notify_all()

    def run(self, inputs: UpdateInputs, request: TaskRequest) -> tuple[TaskReport, Vector | None]:
        """Computes a task; returns its report and its result, or None if the task was stopped."""
        update, task, fault = request
        if fault.crash:
            self._crash()
        assert self._compute is not None, "compile() must be called first"
        began = time.monotonic()
        self._wait(update, fault.delay)
        waited, computed = time.monotonic() - began, 0.0
        vectors: list[Vector] = []
        for agent in task.agents:
            if self._stopped >= update:
                return TaskReport(waited, computed, 0.0, stopped=True), None
            begun = time.monotonic()
            vector = self._once(inputs, agent, update, fault.pace)
            ended = time.monotonic()
            computed += ended - begun
            if max(0.0, begun - began) <= fault.pause_at < ended - began:
                self._wait(update, fault.pause_for)
                waited += time.monotonic() - ended
            vectors.append(vector)
        if self._stopped >= update:
            return TaskReport(waited, computed, 0.0, stopped=True), None
        ended = time.monotonic()
        result = encode_result(task, vectors)
        return TaskReport(waited, computed, time.monotonic() - ended, stopped=False), result

    def _once(self, inputs: UpdateInputs, agent: int, update: int, pace: float) -> Vector:
        """Computes one agent's update; applies padding by waiting, and slowness by waiting or by repeating the computation."""
        assert self._compute is not None
        began = time.monotonic()
        vector = np.asarray(self._compute(inputs, np.int32(agent)))
        cost = time.monotonic() - began
        if self._work.pad:
            self._wait(update, self._work.pad * pace - cost)
        else:
            while time.monotonic() - began < pace * cost - 1e-4 and self._stopped < update:
                np.asarray(self._compute(inputs, np.int32(agent)))
        return vector

    def _wait(self, update: int, seconds: float) -> None:
        """Waits for this many seconds or until the update is stopped."""
        if seconds > 0:
            with self._signal:
                self._signal.wait_for(lambda: self._stopped >= update, min(seconds, threading.TIMEOUT_MAX))

    def _crash(self) -> None:
        os._exit(1)


def encode_result(task: Task, vectors: list[Vector]) -> Vector:
    """Returns one agent's vector unchanged or, for a row of a code, the weighted sum of signed square roots."""
    if not task.row:
        return vectors[0]
    return encode(np.array([task.row]), np.stack([signed_sqrt(vector) for vector in vectors]), np.float64)[0]


class JaxSetup(NamedTuple):
    """JAX settings of the controller, which learners must share to compute the same bits."""

    threads: int
    """Number of XLA threads, which determines the order of additions."""
    cache: str
    """Folder of the compilation cache."""

    @staticmethod
    def current() -> "JaxSetup":
        """Returns the settings of this process."""
        import jax

        threads = int(os.environ.get("NPROC", 0)) or len(os.sched_getaffinity(0))
        return JaxSetup(threads, str(jax.config.values.get("jax_compilation_cache_dir") or ""))

    def apply(self) -> None:
        """Applies the settings to this process; call it before JAX is used."""
        os.environ["NPROC"] = str(self.threads)  # XLA reads the number of processors from here
        import jax

        from counterpoint.core.compilation import keep_programs

        jax.config.update("jax_platforms", "cpu")
        keep_programs(self.cache)


class LearnerProcess(Learner):
    """A learner that runs in its own process."""

    def __init__(self, work: Work, setup: JaxSetup) -> None:
        setup.apply()
        super().__init__(work)
