"""Learners as threads of this process: the transport under which fast tests make learners slow, hang and die."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from counterpoint.coded.controller import Answer, Joined, Lost, Unreachable
from counterpoint.coded.learner import Learner, Order, Published, Work


class Died(Exception):
    """Instead of the process's end."""


class ThreadLearner(Learner):
    def _die(self) -> None:
        raise Died


class Threads:
    """A transport. `compute` is compiled once for all; `mischief(learner, order)` may sleep, raise Died, or wait for ever."""

    def __init__(self, work: Work, compute: Any, mischief: Callable[[int, Order], None] = lambda learner, order: None) -> None:
        self._work, self._compute, self._mischief = work, compute, mischief
        self._events: queue.Queue[Any] = queue.Queue()
        self._living: dict[int, tuple[int, ThreadLearner, queue.Queue[Any]]] = {}
        self.spawned = 0
        self.sent: list[tuple[int, Order]] = []
        self.refuse_to_start = False
        self.unreachable: set[int] = set()
        """Learners whose messages cannot be fetched."""

    def spawn(self, learner: int) -> None:
        self.spawned += 1
        thread = ThreadLearner(self._work)
        thread._compute = self._compute
        tasks: queue.Queue[Any] = queue.Queue()
        self._living[learner] = (self.spawned, thread, tasks)
        if self.refuse_to_start:
            self._events.put((self.spawned, Lost(learner, "it did not start")))
            return
        threading.Thread(target=self._run, args=(learner, self.spawned, thread, tasks), daemon=True).start()
        self._events.put((self.spawned, Joined(learner)))

    def _run(self, learner: int, life: int, thread: ThreadLearner, tasks: queue.Queue[Any]) -> None:
        while (item := tasks.get()) is not None:
            published, order = item
            try:
                self._mischief(learner, order)
                report, message = thread.work(published, order)
                self._events.put((life, Answer(learner, order, report, (learner, message))))
            except Died:
                self._events.put((life, Lost(learner, "its process died")))
                return

    def kill(self, learner: int) -> None:
        self._living.pop(learner)[2].put(None)

    def publish(self, published: Published) -> Published:
        return published

    def send(self, learner: int, handle: Published, order: Order) -> None:
        self.sent.append((learner, order))
        self._living[learner][2].put((handle, order))

    def stop(self, learner: int, update: int) -> None:
        self._living[learner][1].stop(update)

    def poll(self, timeout: float) -> list[Any]:
        deadline, found = time.monotonic() + timeout, []
        while True:
            try:
                left = deadline - time.monotonic()
                life, event = self._events.get(timeout=left) if left > 0 and not found else self._events.get_nowait()
            except queue.Empty:
                return found
            if event.learner in self._living and self._living[event.learner][0] == life:
                found.append(event)

    def fetch(self, message: Any) -> Any:
        learner, vector = message
        if learner in self.unreachable:
            self.unreachable.discard(learner)
            raise Unreachable("its machine is gone")
        return vector

    def close(self) -> None:
        for _, _, tasks in self._living.values():
            tasks.put(None)
