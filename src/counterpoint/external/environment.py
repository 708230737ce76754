"""What an external environment is: its address, agents, spaces and time limit, found by opening it once."""

import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoint.core.checks import shown
from counterpoint.core.errors import UsageError
from counterpoint.core.loading import by_value
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Environment
from counterpoint.external.adapters import (
    close_env,
    describe,
    flattener,
    legal_entries,
    load_factory,
    mask_key,
    native,
    open_env,
)
from counterpoint.external.workers import EnvSetup


@dataclass(frozen=True)
class External:
    """An environment that Python steps. It can be neither compiled nor drawn by us: worker processes open it."""

    address: str
    arguments: tuple[tuple[str, Any], ...]
    spec: Spec
    max_steps: int
    observation_spaces: tuple[Any, ...] = field(compare=False, repr=False)
    """Gymnasium's spaces, by agent."""
    action_spaces: tuple[Any, ...] = field(compare=False, repr=False)
    has_masks: bool = False

    @property
    def compiled(self) -> None:
        return None

    @property
    def name(self) -> str:
        return self.address

    def encode(self, agent: int, observation: Any) -> np.ndarray:
        """Returns an agent's native observation, without its action mask, as a vector."""
        return np.asarray(flattener(self.observation_spaces[agent])(observation), np.float32)

    def decode(self, agent: int, vector: np.ndarray) -> Any:
        """Returns an action vector, in the environment's range, as the agent's native action."""
        return native(self.action_spaces[agent], self.spec.action_spaces[agent])(vector)

    def legal(self, agent: int, observation: Any) -> np.ndarray | None:
        """Returns which action entries the mask within an agent's native observation allows, or None if it has no mask."""
        if not mask_key(self.observation_spaces[agent]):
            return None
        return legal_entries(self.spec.action_spaces[agent], observation["action_mask"], self.spec.agents[agent])


OPEN_SECONDS = 300.0
"""How long an environment may take to be made, reset and closed once, before anything else starts."""


class _TooSlow(BaseException):
    """Ends an environment that hangs; not an Exception, which the environment might catch."""


@contextmanager
def limited(seconds: float, address: str, what: str = "been made and reset") -> Iterator[None]:
    """Ends a block that takes longer with a sentence. Only the main thread can be interrupted; others have no limit."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise _TooSlow

    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    except _TooSlow:
        raise UsageError(
            f"--env {shown(address)} has not {what} within {seconds:g} s: it hangs, or is too slow; correct it."
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old)


def open_environment(address: str, arguments: Mapping[str, Any], teams: Sequence[str], max_steps: int) -> Environment:
    """Opens the environment at an address once and returns what it is."""
    with limited(OPEN_SECONDS, address):
        env = open_env(address, arguments)
        try:
            found = describe(env, address, teams, max_steps)
        finally:
            close_env(env)
    hashable = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in arguments.items())
    return External(address, hashable, *found)


def setup_of(env: Any, **more: Any) -> EnvSetup:
    """Returns what worker processes need to open and step an external environment."""
    factory = by_value(load_factory(env.address), "env")
    return EnvSetup(env.address, dict(env.arguments), env.spec, env.max_steps, env.has_masks, factory, **more)
