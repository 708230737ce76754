"""What an external environment is: its address, agents, spaces and time limit, found by opening it once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoint.core.spaces import Spec
from counterpoint.core.types import Environment
from counterpoint.external.adapters import LONGEST, flattener, native, open_env, own_limit, spec_of
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
        """Returns an agent's native observation as a vector."""
        return np.asarray(flattener(self.observation_spaces[agent])(observation), np.float32)

    def decode(self, agent: int, vector: np.ndarray) -> Any:
        """Returns an action vector, in the environment's range, as the agent's native action."""
        return native(self.action_spaces[agent], self.spec.action_spaces[agent])(vector)


def open_environment(address: str, arguments: Mapping[str, Any], teams: Sequence[str], max_steps: int) -> Environment:
    """Opens the environment at an address once and returns what it is."""
    env = open_env(address, arguments)
    try:
        spec, limit = spec_of(env, address, teams), max_steps or own_limit(env) or LONGEST
        seen, done = (tuple(map(ask, spec.agents)) for ask in (env.observation_space, env.action_space))
    finally:
        env.close()
    hashable = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in arguments.items())
    return External(address, hashable, spec, limit, seen, done)


def setup_of(env: Any, **more: Any) -> EnvSetup:
    """Returns what worker processes need to open and step an external environment."""
    return EnvSetup(env.address, dict(env.arguments), env.spec, env.max_steps, **more)
