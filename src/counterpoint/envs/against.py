"""An environment with frozen teams inside it: the remaining agents learn, and everything else is part of the world.

A frozen team is a pure function of what its agents see, so an environment that contains it is stationary, compiles into the
same program as any other, and keeps the team's acting state in its own state, where checkpoints find it.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from counterpoint.core.actions import to_world
from counterpoint.core.picture import Picture
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Env, Key, Metric, Step


class TeamPolicy(NamedTuple):
    """The policy of some agents. Arrays have the layout of the whole environment; rows of other agents are not read."""

    agents: tuple[str, ...]
    begin: Callable[[Key], Any]
    """(key) → the acting state at the start of an episode."""
    act: Callable[..., tuple[Float[Array, "N A"], Any]]
    """(parameters, carry, obs[N,O], key, legal[N,A] or None) → (action[N,A], carry), continuous actions in [−1, 1]."""
    parameters: Any = ()
    kind: str = ""
    """Policies of the same kind, if it is not empty, differ in their parameters only, so that they share a program."""

    def rows(self, spec: Spec) -> np.ndarray:
        """Returns [N]: which agents the policy acts for."""
        return np.array([agent in self.agents for agent in spec.agents])


class AgainstState(NamedTuple):
    inner: Any
    obs: Float[Array, "N O"]
    """What all agents see now."""
    carry: tuple[Any, ...]
    """The acting state of each frozen team."""


def part_of(spec: Spec, agents: Sequence[str]) -> Spec:
    """Returns the spec of some of the agents."""
    each = [i for i, agent in enumerate(spec.agents) if agent in agents]
    return Spec(*(tuple(field[i] for i in each) for field in vars_of(spec)))


def vars_of(spec: Spec) -> tuple[tuple[Any, ...], ...]:
    """Returns the fields of a spec, one entry per agent each."""
    return (spec.agents, spec.roles, spec.teams, spec.obs_sizes, spec.action_spaces)


class Against:
    """An environment of the agents that no frozen team plays."""

    def __init__(self, env: Env, teams: Sequence[TeamPolicy]) -> None:
        self.inner, self.teams = env, tuple(teams)
        taken = {agent for team in teams for agent in team.agents}
        self._own = np.array([i for i, agent in enumerate(env.spec.agents) if agent not in taken])

    def __getattr__(self, name: str) -> Any:
        if name in ("outcomes", "flavour", "ends_at_limit"):  # facts about the world that do not depend on who plays
            return getattr(self.inner, name)
        raise AttributeError(name)

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def max_steps(self) -> int:
        return self.inner.max_steps

    @cached_property
    def spec(self) -> Spec:
        return part_of(self.inner.spec, [self.inner.spec.agents[i] for i in self._own])

    @property
    def has_masks(self) -> bool:
        return self.inner.has_masks

    @property
    def compiled(self) -> "Against":
        return self

    def encode(self, agent: int, observation: Any) -> np.ndarray:
        """Returns an agent's native observation as a vector."""
        return self.inner.encode(int(self._own[agent]), observation)

    def decode(self, agent: int, vector: np.ndarray) -> Any:
        """Returns an action vector as the agent's native action."""
        return self.inner.decode(int(self._own[agent]), vector)

    def integers_of_choice(self, agent: int, choice: list[int]) -> list[int]:
        """Returns the environment's own integer for the chosen entry of each head."""
        return getattr(self.inner, "integers_of_choice")(int(self._own[agent]), choice)  # noqa: B009 — external ones lack it

    def reset(self, key: Key) -> tuple[AgainstState, Float[Array, "M O"]]:
        state, obs = self.inner.reset(key)
        carry = tuple(team.begin(jax.random.fold_in(key, 101 + i)) for i, team in enumerate(self.teams))
        return AgainstState(state, obs, carry), self._seen(obs)

    def step(self, key: Key, state: AgainstState, action: Float[Array, "M A"]) -> tuple[AgainstState, Step]:
        spec = self.inner.spec
        full = jnp.zeros(spec.act_mask.shape, action.dtype).at[self._own, : action.shape[1]].set(action)
        legal, carries = self.inner.legal(state.inner), []
        for i, (team, carry) in enumerate(zip(self.teams, state.carry, strict=True)):
            theirs, carry = team.act(team.parameters, carry, state.obs, jax.random.fold_in(key, 101 + i), legal)
            full = jnp.where(jnp.asarray(team.rows(spec))[:, None], to_world(spec, theirs), full)
            carries.append(carry)
        inner, result = self.inner.step(key, state.inner, full)
        own = Step(self._seen(result.obs), *(field[self._own] for field in result[1:]))
        return AgainstState(inner, result.obs, tuple(carries)), own

    def metrics(self, state: AgainstState) -> dict[str, Metric]:
        """Returns the world's own metrics."""
        return self.inner.metrics(state.inner)

    def legal(self, state: AgainstState) -> Bool[Array, "M A"] | None:
        """Returns which action entries of the learning agents are legal."""
        legal = self.inner.legal(state.inner)
        return None if legal is None else legal[self._own, : self.spec.act_size]

    def draw(self, state: AgainstState) -> Picture | None:
        """Returns a picture of everybody."""
        return self.inner.draw(state.inner)

    def _seen(self, obs: Float[Array, "N O"]) -> Float[Array, "M P"]:
        return obs[self._own, : self.spec.obs_size]
