"""Rounds: state machines that assign the tasks of one update to learners.

A round knows neither how tasks travel nor what they compute, and time is an argument, so tests can replay any sequence of
events. A learner has at most one task: `assign` gives tasks to free learners, `completed` and `lost` report how they ended.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from counterpoint.coded.codes import Code, recoverable
from counterpoint.coded.schemes import Scheme, code_of, queue_length, queues


class Task(NamedTuple):
    """The agents that one learner computes for one result."""

    agents: tuple[int, ...]
    row: tuple[float, ...] = ()
    """Coefficients of the sum to return; empty if a single agent's update is returned unchanged."""
    index: int = -1
    """Index of the row in the code."""


@runtime_checkable
class Round(Protocol):
    """Assigns the tasks of one update under some scheme."""

    running: dict[int, Task]

    @property
    def done(self) -> bool:
        """Returns whether every agent's update is known."""
        ...

    def free(self, learner: int) -> None:
        """Marks the learner as free."""
        ...

    def lost(self, learner: int) -> None:
        """Removes the learner together with its unfinished task."""
        ...

    def needed(self, learner: int) -> bool:
        """Returns whether this learner's result is still needed."""
        ...

    def completed(self, learner: int) -> None:
        """Records the learner's result and marks the learner as free."""
        ...

    def assign(self, now: float) -> list[tuple[int, Task]]:
        """Returns new tasks for free learners."""
        ...

    def timer(self, now: float) -> float:
        """Returns the seconds until `assign` may have new tasks even without any event."""
        ...


def make_round(scheme: Scheme, num_agents: int, order: Sequence[int], unit: Callable[[], float]) -> Round:
    """Returns a round with learners in this order; `unit` returns the current estimate of one agent's update time."""
    match scheme.name:
        case "uncoded":
            return BackupRound(num_agents, order, lambda: math.inf)
        case "backup":
            return BackupRound(num_agents, order, lambda: 0.0)
        case "hedge":
            return BackupRound(num_agents, order, lambda: unit() * scheme.hedge)
        case "replication":
            return StreamRound(num_agents, order, 1)
        case "stream":
            return StreamRound(num_agents, order, scheme.copies)
        case _:
            return CodedRound(code_of(scheme, num_agents, len(order)), order)


class _AgentRound:
    """Base of rounds whose tasks compute one agent each."""

    def __init__(self, num_agents: int, order: Sequence[int]) -> None:
        self.order = list(order)
        self.running: dict[int, Task] = {}
        self._idle: set[int] = set()
        self._unfinished = dict.fromkeys(range(num_agents), -math.inf)
        """When each agent was last assigned, oldest first; minus infinity if it is unassigned or lost."""

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

    def needed(self, learner: int) -> bool:
        return self.running[learner].agents[0] in self._unfinished

    def completed(self, learner: int) -> None:
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


class BackupRound(_AgentRound):
    """Assigns agents one by one; a free learner copies the agent assigned longest ago once `after` seconds have passed."""

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


class StreamRound(_AgentRound):
    """Gives each learner a queue of agents; it returns each update at once and skips agents that others have finished."""

    def __init__(self, num_agents: int, order: Sequence[int], copies: int) -> None:
        super().__init__(num_agents, order)
        length = queue_length(num_agents, len(order), copies)
        self._queues = [list(queue) for queue in queues(num_agents, len(order), length).tolist()]

    def _pick(self, position: int, now: float) -> int | None:
        queue = self._queues[position]
        while queue:
            if (agent := queue.pop(0)) in self._unfinished:
                return agent
        # Pick an agent that no running learner computes or has queued, because its learners were lost or never free.
        queued = {agent for i, learner in enumerate(self.order) if learner in self.running for agent in self._queues[i]}
        return next((agent for agent in self._unfinished if agent not in queued and not self._copies(agent)), None)


class CodedRound:
    """Gives each learner one row of a code; reassigns rows of lost learners only if the other rows do not suffice."""

    def __init__(self, code: Code, order: Sequence[int]) -> None:
        self.code, self.order = code, list(order)
        self.running: dict[int, Task] = {}
        self.arrived = np.zeros(code.num_learners, bool)
        self._tasks = {index: _row_task(code, index) for index in np.flatnonzero(code.loads).tolist()}
        """Tasks not assigned yet."""
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

    def needed(self, learner: int) -> bool:
        return not self.done

    def completed(self, learner: int) -> None:
        self.arrived[self.running.pop(learner).index] = True
        self._idle.add(learner)
        self._done = recoverable(self.code, self.arrived)

    def assign(self, now: float) -> list[tuple[int, Task]]:
        if self.done:
            return []
        own = [(learner, i) for i, learner in enumerate(self.order) if learner in self._idle and i in self._tasks]
        assigned = [self._give(learner, index) for learner, index in own]
        while self._tasks and self._idle and not recoverable(self.code, self._expected()):
            learner = next(learner for learner in self.order if learner in self._idle)
            assigned.append(self._give(learner, next(iter(self._tasks))))
        return assigned

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
    """Sorts learners by their time per update; learners without a measurement count as the median."""
    median = float(np.median(list(times.values()))) if times else 0.0
    return sorted(learners, key=lambda learner: (times.get(learner, median), learner))
