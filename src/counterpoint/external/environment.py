"""What an external environment is: its address, agents, spaces and time limit, found by opening it once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoint.core.loading import by_value
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Environment
from counterpoint.external.adapters import describe, flattener, legal_entries, load_factory, mask_key, native, open_env
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


def open_environment(address: str, arguments: Mapping[str, Any], teams: Sequence[str], max_steps: int) -> Environment:
    """Opens the environment at an address once and returns what it is."""
    env = open_env(address, arguments)
    try:
        found = describe(env, address, teams, max_steps)
    finally:
        env.close()
    hashable = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in arguments.items())
    return External(address, hashable, *found)


def setup_of(env: Any, **more: Any) -> EnvSetup:
    """Returns what worker processes need to open and step an external environment."""
    factory = by_value(load_factory(env.address), "env")
    return EnvSetup(env.address, dict(env.arguments), env.spec, env.max_steps, env.has_masks, factory, **more)
