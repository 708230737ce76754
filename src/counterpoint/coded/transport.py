"""The interface between the controller and its learners: requests, events and how they travel."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from counterpoint.coded.learner import TaskReport, TaskRequest, UpdateInputs, Vector


class TaskResult(NamedTuple):
    """A learner has finished or stopped a task."""

    learner: int
    request: TaskRequest
    report: TaskReport
    handle: Any
    """Reference to the result's vector, for `Transport.fetch`."""


class LearnerLost(NamedTuple):
    """A learner has died or cannot be reached."""

    learner: int
    reason: str


class LearnerReady(NamedTuple):
    """A learner is ready for work."""

    learner: int


Event = TaskResult | LearnerLost | LearnerReady


class ResultUnavailable(Exception):
    """A result cannot be fetched because the process that stored it is gone."""


@runtime_checkable
class Transport(Protocol):
    """Sends requests to learners and receives events. A lost learner is replaced only by calling `spawn`."""

    def spawn(self, learner: int) -> None: ...
    def kill(self, learner: int) -> None: ...
    def publish(self, inputs: UpdateInputs) -> Any: ...
    def send(self, learner: int, inputs: Any, request: TaskRequest) -> None: ...
    def stop(self, learner: int, update: int) -> None: ...
    def poll(self, timeout: float) -> list[Event]: ...
    def fetch(self, handle: Any) -> Vector: ...
    def close(self) -> None: ...
