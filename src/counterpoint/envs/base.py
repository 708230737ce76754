"""The base class of compiled environments: what they must have, what they may have, and what is derived for them."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.picture import Picture
from counterpoint.core.spaces import ActionSpace, Discrete, Spec, action_space_of, default_team
from counterpoint.core.types import Key, Metric, State, Step

Observations = Float[Array, "_n _o"] | Sequence[Float[Array, "_n _o"]]
"""Observations of consecutive groups of agents, each group at its own size; one array is one group."""


class World:
    """A compiled environment: subclasses are frozen dataclasses whose fields are their arguments.

    A subclass has `reset`, `step`, `max_steps`, `agents` (names, or how many) and `actions` (one space for all agents) or
    `action_spaces` (one per agent). It may have `observe`, `metrics`, `legal` and `draw`, and may name its `roles` and `teams`.
    Everything else is derived: the sizes of observations from `observe` (from `reset` if there is none), masks from `legal`.
    """

    max_steps: int
    outcomes: ClassVar[tuple[str, str]] = ("success", "no success")
    """What films say of an episode whose last state has `success`, and of one whose has not."""

    @property
    def name(self) -> str:
        """The name of the environment: that of its class, unless the class says otherwise."""
        return type(self).__name__

    @cached_property
    def spec(self) -> Spec:
        """The agents, and what each of them observes and does."""
        return derive_spec(self)

    @property
    def obs_sizes(self) -> tuple[int, ...]:
        """The size of each agent's observation."""
        return observation_sizes(self)

    @property
    def has_masks(self) -> bool:
        """Whether some actions are illegal at times."""
        return masks(self)

    def reset(self, key: Key) -> tuple[State, Float[Array, "N O"]]:
        raise NotImplementedError

    def step(self, key: Key, state: State, action: Float[Array, "N A"]) -> tuple[State, Step]:
        raise NotImplementedError

    def metrics(self, state: State) -> dict[str, Metric]:
        """Returns the metrics of a state: none, unless the environment has some."""
        return {}

    def legal(self, state: State) -> Bool[Array, "N A"] | None:
        """Returns which action entries are legal: all, unless the environment has action masks."""
        return None

    def draw(self, state: State) -> Picture | None:
        """Returns a picture of the state: none, unless the environment can draw itself."""
        return None

    @property
    def compiled(self) -> Any:
        return self

    def encode(self, agent: int, observation: Any) -> np.ndarray:
        """Returns an agent's observation as a vector."""
        return np.asarray(observation, np.float32)

    def decode(self, agent: int, vector: np.ndarray) -> Any:
        """Returns an action vector as the agent's native action: one integer if discrete, an array if continuous.

        Several heads make one integer, the first head counting fastest (as in mpe2: move + 5·word).
        """
        space = self.spec.action_spaces[agent]
        if not isinstance(space, Discrete):
            return vector
        choices = self.integers_of_choice(agent, space.choices(vector))
        return int(sum(c * np.prod(space.heads[:h], dtype=int) for h, c in enumerate(choices)))

    def integers_of_choice(self, agent: int, choice: list[int]) -> list[int]:
        """Returns the environment's own integer for the chosen entry of each head."""
        return choice


def pad_stack(groups: Observations) -> Float[Array, "N O"]:
    """Returns the observations of all groups as one array, padded with zeros to the largest size."""
    if not isinstance(groups, Sequence):
        return groups
    width = max(group.shape[-1] for group in groups)
    return jnp.concatenate([jnp.pad(group, ((0, 0), (0, width - group.shape[-1]))) for group in groups])


def derive_spec(world: Any) -> Spec:
    """Returns the Spec of a world from its attributes: `agents` and `actions`, and the optional ones."""
    agents = _agents(world)
    return Spec(
        agents=agents,
        roles=tuple(getattr(world, "roles", None) or map(_stem, agents)),
        teams=tuple(getattr(world, "teams", None) or map(default_team, agents)),
        obs_sizes=tuple(getattr(world, "obs_sizes", None) or observation_sizes(world)),
        action_spaces=_action_spaces(world, agents),
    )


def _agents(world: Any) -> tuple[str, ...]:
    """Returns the names of a world's agents; a number gives agent_0, agent_1, …"""
    agents = getattr(world, "agents", None)
    if isinstance(agents, int) and not isinstance(agents, bool) and agents > 0:
        return tuple(f"agent_{i}" for i in range(agents))
    if isinstance(agents, Sequence) and not isinstance(agents, str) and agents and all(isinstance(a, str) for a in agents):
        return tuple(agents)
    raise UsageError(
        f"{type(world).__name__}.agents must be the names of its agents, such as ('wolf_0', 'sheep_0'), or their number,"
        f" not {agents!r}."
    )


def _stem(agent: str) -> str:
    """Returns an agent's name without its number."""
    stem, _, number = agent.rpartition("_")
    return stem if number.isdigit() and stem else agent


def _action_spaces(world: Any, agents: tuple[str, ...]) -> tuple[ActionSpace, ...]:
    """Returns the action space of each agent; one space or one whole number of choices is everybody's."""
    spaces = getattr(world, "action_spaces", None) or getattr(world, "actions", None)
    if spaces is None:
        raise UsageError(f"{type(world).__name__} needs `actions`, such as Discrete((5,)) or Box(2, -1.0, 1.0).")
    if not isinstance(spaces, Sequence):
        spaces = (spaces,) * len(agents)
    if len(spaces) != len(agents):
        raise UsageError(f"{type(world).__name__} has {len(agents)} agents and {len(spaces)} action spaces: give one for each.")
    return tuple(
        Discrete((space,)) if isinstance(space, int) else action_space_of(space, agent)
        for agent, space in zip(agents, spaces, strict=True)
    )


@lru_cache(maxsize=256)
def observation_sizes(world: Any) -> tuple[int, ...]:
    """Returns the size of each agent's observation, from what `observe` (without it, `reset`) returns. Computes nothing."""
    observe = getattr(world, "observe", None)

    def first() -> Observations:
        state, obs = world.reset(prng.key(0))
        return observe(state) if observe else obs

    seen = jax.eval_shape(first)
    groups = seen if isinstance(seen, Sequence) else (seen,)
    return tuple(group.shape[1] for group in groups for _ in range(group.shape[0]))


@lru_cache(maxsize=256)
def masks(world: Any) -> bool:
    """Returns whether a world's `legal` returns masks. Computes nothing."""
    return jax.eval_shape(lambda: world.legal(world.reset(prng.key(0))[0])) is not None


def check_choice(settings: Any, field: str, choices: Sequence[str]) -> None:
    """Refuses a field that is none of the choices."""
    value = getattr(settings, field)
    if value not in choices:
        raise UsageError(f"{field} must be one of {', '.join(choices)}, not {value!r}.")


def check_count(settings: Any, field: str, least: int) -> None:
    """Refuses a field that is not a whole number of at least `least`."""
    value = getattr(settings, field)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{field} must be a whole number of at least {least}, not {value!r}.")


def check_neighbors(settings: Any) -> None:
    """Refuses numbers of observed neighbours that are neither None nor whole numbers of at least 1."""
    for field in ("num_agent_neighbors", "num_landmark_neighbors"):
        value = getattr(settings, field)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UsageError(f"{field} must be a whole number of at least 1, or None for all, not {value!r}.")


def check_stage(settings: Any, stages: int) -> None:
    """Refuses a stage that the curriculum does not have, and a stage without a curriculum."""
    stage = settings.curriculum_stage
    if isinstance(stage, bool) or not isinstance(stage, int) or not 0 <= stage < stages:
        raise UsageError(f"curriculum_stage must be a whole number from 0 to {stages - 1}, not {stage!r}.")
    if stage and not settings.curriculum:
        raise UsageError(f"curriculum_stage={stage} has no meaning without curriculum=True: add it.")


def check_fraction(settings: Any, field: str) -> None:
    """Refuses a field that is not a number between 0 and 1."""
    value = getattr(settings, field)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise UsageError(f"{field} must be a number from 0 to 1, not {value!r}.")
