"""Who computes what in one update, as a state machine: it is told what happens and when, and says what to hand out.

Nothing here knows how tasks travel or what they compute, and time is an argument, so every course of events can be tested.
A learner has at most one task. `assign` gives work to those that are free; `answered` and `lost` say what became of it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from counterpoint.coded.codes import Code, make_code, recoverable
from counterpoint.coded.simulator import COPIES, HEDGE, Scheme, queues


class Task(NamedTuple):
    """What one learner is asked for in one answer."""

    agents: tuple[int, ...]
    row: tuple[float, ...] = ()
    """Coefficients of the sum of updates that is the answer; none: one agent, returned as it is."""
    index: int = -1
    """The row of the code."""


@runtime_checkable
class Round(Protocol):
    """One update under some scheme."""

    running: dict[int, Task]

    @property
    def done(self) -> bool:
        """Whether every agent's update is known."""
        ...

    def free(self, learner: int) -> None:
        """The learner has nothing to do."""
        ...

    def lost(self, learner: int) -> None:
        """The learner is gone, and with it what it was computing."""
        ...

    def wanted(self, learner: int) -> bool:
        """Whether the answer of this learner would be of use."""
        ...

    def answered(self, learner: int) -> None:
        """The learner has answered and is free."""
        ...

    def assign(self, now: float) -> list[tuple[int, Task]]:
        """New tasks for free learners."""
        ...

    def timer(self, now: float) -> float:
        """Seconds until there may be something to assign even if nothing happens."""
        ...


def make_round(scheme: Scheme, num_agents: int, order: Sequence[int], unit: Callable[[], float]) -> Round:
    """A round in which the learners take their parts in that order; `unit` tells the time of one agent's update, as known."""
    match scheme.name:
        case "uncoded":
            return HandOut(num_agents, order, lambda: math.inf)
        case "backup":
            return HandOut(num_agents, order, lambda: 0.0)
        case "hedge":
            return HandOut(num_agents, order, lambda: unit() * (HEDGE if scheme.number is None else scheme.number))
        case "replication":
            return Streams(num_agents, order, 1)
        case "stream":
            return Streams(num_agents, order, int(scheme.number or COPIES))
        case _:
            return Rows(code_of(scheme, num_agents, len(order)), order)


def code_of(scheme: Scheme, num_agents: int, num_learners: int) -> Code:
    tolerance = None if scheme.number is None else int(scheme.number)
    return make_code(scheme.name, num_agents, num_learners, tolerance=tolerance)


def is_linear(scheme: Scheme) -> bool:
    """Whether answers are sums that must be decoded, instead of the updates themselves."""
    return scheme.name not in ("uncoded", "replication", "stream", "backup", "hedge")


class _Agents:
    """Rounds whose tasks are one agent each."""

    def __init__(self, num_agents: int, order: Sequence[int]) -> None:
        self.order = list(order)
        self.running: dict[int, Task] = {}
        self._idle: set[int] = set()
        self._unfinished = dict.fromkeys(range(num_agents), -math.inf)
        """When each was last handed out, those longest ago first; never, or lost, is minus infinity."""

    @property
    def done(self) -> bool:
        return not self._unfinished

    def free(self, learner: int) -> None:
        self._idle.add(learner)

    def lost(self, learner: int) -> None:
        self._idle.discard(learner)
        task = self.running.pop(learner, None)
        if task and (agent := task.agents[0]) in self._unfinished and not self._copies(agent):
            self._unfinished = {agent: -math.inf, **{a: at for a, at in self._unfinished.items() if a != agent}}

    def wanted(self, learner: int) -> bool:
        return self.running[learner].agents[0] in self._unfinished

    def answered(self, learner: int) -> None:
        self._unfinished.pop(self.running.pop(learner).agents[0], None)
        self._idle.add(learner)

    def assign(self, now: float) -> list[tuple[int, Task]]:
        tasks = []
        for position, learner in enumerate(self.order):
            if learner in self._idle and (agent := self._pick(position, now)) is not None:
                del self._unfinished[agent]
                self._unfinished[agent] = now
                self._idle.remove(learner)
                self.running[learner] = Task((agent,))
                tasks.append((learner, self.running[learner]))
        return tasks

    def timer(self, now: float) -> float:
        return math.inf

    def _pick(self, position: int, now: float) -> int | None:
        raise NotImplementedError

    def _copies(self, agent: int) -> int:
        return sum(task.agents[0] == agent for task in self.running.values())


class HandOut(_Agents):
    """Agents handed out one by one; a free learner copies the one handed out longest ago once that is `after` past."""

    def __init__(self, num_agents: int, order: Sequence[int], after: Callable[[], float]) -> None:
        super().__init__(num_agents, order)
        self._after = after

    def _pick(self, position: int, now: float) -> int | None:
        agent, at = next(iter(self._unfinished.items()), (None, now))
        return agent if now - at >= self._after() else None

    def timer(self, now: float) -> float:
        if not self._idle or not self._unfinished:
            return math.inf
        return max(0.0, next(iter(self._unfinished.values())) + self._after() - now)


class Streams(_Agents):
    """Each learner has a queue of agents and returns every update at once; what others have finished is left out."""

    def __init__(self, num_agents: int, order: Sequence[int], copies: int) -> None:
        super().__init__(num_agents, order)
        length = min(num_agents, max(copies, math.ceil(num_agents / len(order))))
        self._queues = [list(queue) for queue in queues(num_agents, len(order), length).tolist()]

    def _pick(self, position: int, now: float) -> int | None:
        queue = self._queues[position]
        while queue:
            if (agent := queue.pop(0)) in self._unfinished:
                return agent
        # Agents that nobody computes or will come to: their learners were lost, or never free.
        coming = {agent for i, learner in enumerate(self.order) if learner in self.running for agent in self._queues[i]}
        return next((agent for agent in self._unfinished if agent not in coming and not self._copies(agent)), None)


class Rows:
    """A linear code: a row for each learner; rows of the lost go to others only when the rest do not suffice."""

    def __init__(self, code: Code, order: Sequence[int]) -> None:
        self.code, self.order = code, list(order)
        self.running: dict[int, Task] = {}
        self.arrived = np.zeros(code.num_learners, bool)
        self._tasks = {index: _row_task(code, index) for index in np.flatnonzero(code.loads).tolist()}
        """Those still to be handed out."""
        self._idle: set[int] = set()
        self._done = False

    @property
    def done(self) -> bool:
        return self._done

    def free(self, learner: int) -> None:
        self._idle.add(learner)

    def lost(self, learner: int) -> None:
        self._idle.discard(learner)
        if task := self.running.pop(learner, None):
            self._tasks[task.index] = task

    def wanted(self, learner: int) -> bool:
        return not self.done

    def answered(self, learner: int) -> None:
        self.arrived[self.running.pop(learner).index] = True
        self._idle.add(learner)
        self._done = recoverable(self.code, self.arrived)

    def assign(self, now: float) -> list[tuple[int, Task]]:
        if self.done:
            return []
        own = [(learner, i) for i, learner in enumerate(self.order) if learner in self._idle and i in self._tasks]
        given = [self._give(learner, index) for learner, index in own]
        while self._tasks and self._idle and not recoverable(self.code, self._expected()):
            learner = next(learner for learner in self.order if learner in self._idle)
            given.append(self._give(learner, next(iter(self._tasks))))
        return given

    def timer(self, now: float) -> float:
        return math.inf

    def _expected(self) -> np.ndarray:
        expected = self.arrived.copy()
        expected[[task.index for task in self.running.values()]] = True
        return expected

    def _give(self, learner: int, index: int) -> tuple[int, Task]:
        self._idle.remove(learner)
        self.running[learner] = self._tasks.pop(index)
        return learner, self.running[learner]


def _row_task(code: Code, index: int) -> Task:
    agents = np.flatnonzero(code.matrix[index])
    values = code.matrix[index][agents]
    plain = len(agents) == 1 and values[0] == 1
    return Task(tuple(agents.tolist()), () if plain else tuple(values.tolist()), index)


def fastest_first(learners: Iterable[int], times: dict[int, float]) -> list[int]:
    """The learners in order of their time per update; the unknown count as ordinary."""
    usual = float(np.median(list(times.values()))) if times else 0.0
    return sorted(learners, key=lambda learner: (times.get(learner, usual), learner))
