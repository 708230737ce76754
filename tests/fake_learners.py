"""A transport with learners as threads of this process, so that tests can quickly make them slow, hang or crash."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from counterpoint.coded.learner import Learner, TaskRequest, UpdateInputs, Work
from counterpoint.coded.transport import LearnerLost, LearnerReady, ResultUnavailable, TaskResult


class Crashed(Exception):
    """Raised where a real learner's process would end."""


class ThreadLearner(Learner):
    """A learner whose crash ends only its thread."""

    def _crash(self) -> None:
        raise Crashed


class ThreadTransport:
    """Runs learners as threads that share `compute`; `inject(learner, request)` may sleep, hang or raise Crashed."""

    def __init__(
        self, work: Work, compute: Any, inject: Callable[[int, TaskRequest], None] = lambda learner, request: None
    ) -> None:
        self._work, self._compute, self._inject = work, compute, inject
        self._events: queue.Queue[Any] = queue.Queue()
        self._alive: dict[int, tuple[int, ThreadLearner, queue.Queue[Any]]] = {}
        self.spawned = 0
        self.sent: list[tuple[int, TaskRequest]] = []
        self.refuse_to_start = False
        self.unreachable: set[int] = set()
        """Learners whose results cannot be fetched."""

    def spawn(self, learner: int) -> None:
        self.spawned += 1
        thread = ThreadLearner(self._work)
        thread._compute = self._compute
        tasks: queue.Queue[Any] = queue.Queue()
        self._alive[learner] = (self.spawned, thread, tasks)
        if self.refuse_to_start:
            self._events.put((self.spawned, LearnerLost(learner, "it did not start")))
            return
        threading.Thread(target=self._run, args=(learner, self.spawned, thread, tasks), daemon=True).start()
        self._events.put((self.spawned, LearnerReady(learner)))

    def _run(self, learner: int, life: int, thread: ThreadLearner, tasks: queue.Queue[Any]) -> None:
        while (item := tasks.get()) is not None:
            inputs, request = item
            try:
                self._inject(learner, request)
                report, vector = thread.run(inputs, request)
                self._events.put((life, TaskResult(learner, request, report, (learner, vector))))
            except Crashed:
                self._events.put((life, LearnerLost(learner, "its process died")))
                return

    def kill(self, learner: int) -> None:
        self._alive.pop(learner)[2].put(None)

    def publish(self, inputs: UpdateInputs) -> UpdateInputs:
        return inputs

    def send(self, learner: int, inputs: UpdateInputs, request: TaskRequest) -> None:
        self.sent.append((learner, request))
        self._alive[learner][2].put((inputs, request))

    def stop(self, learner: int, update: int) -> None:
        self._alive[learner][1].stop(update)

    def poll(self, timeout: float) -> list[Any]:
        deadline, found = time.monotonic() + timeout, []
        while True:
            try:
                left = deadline - time.monotonic()
                life, event = self._events.get(timeout=left) if left > 0 and not found else self._events.get_nowait()
            except queue.Empty:
                return found
            if event.learner in self._alive and self._alive[event.learner][0] == life:
                found.append(event)

    def fetch(self, handle: Any) -> Any:
        learner, vector = handle
        if learner in self.unreachable:
            self.unreachable.discard(learner)
            raise ResultUnavailable("its machine is unreachable")
        return vector

    def close(self) -> None:
        for _, _, tasks in self._alive.values():
            tasks.put(None)
