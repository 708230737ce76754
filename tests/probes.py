"""Worlds so small that the right answer is known: each asks one question of rollout, replay and learner."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.core.picture import Picture
from counterpoint.core.spaces import ActionSpace, Box, Discrete, Spec
from counterpoint.core.types import Step
from counterpoint.envs.base import World

COIN = Discrete((2,))


def spec_of(obs_sizes: tuple[int, ...], action_spaces: tuple[ActionSpace, ...]) -> Spec:
    """A team of agents with these sizes."""
    n = len(obs_sizes)
    names = tuple(f"agent_{i}" for i in range(n))
    return Spec(agents=names, roles=names, teams=("good",) * n, obs_sizes=obs_sizes, action_spaces=action_spaces)


class State(NamedTuple):
    cue: jax.Array
    """−1 or 1, drawn at reset."""
    time: jax.Array


@dataclass(frozen=True)
class Probe(World):
    """A game of `max_steps` steps about one cue; subclasses say who sees what and what it is worth."""

    max_steps: int = 1
    ends: Literal["terminated", "truncated"] = "terminated"

    name: ClassVar[str] = "probe"
    obs_sizes: ClassVar[tuple[int, ...]] = (1,)
    action_spaces: ClassVar[tuple[ActionSpace, ...]] = (COIN,)

    @cached_property
    def spec(self) -> Spec:
        return spec_of(self.obs_sizes, self.action_spaces)

    def reset(self, key):
        state = State(cue=jax.random.rademacher(key, (), jnp.float32), time=jnp.zeros((), jnp.int32))
        return state, self.observe(state)

    def step(self, key, state, action):
        reward = jnp.full(self.spec.num_agents, self.reward(state, action))
        state = state._replace(time=state.time + 1)
        over = jnp.full(self.spec.num_agents, state.time >= self.max_steps)
        never = jnp.zeros_like(over)
        terminated, truncated = (over, never) if self.ends == "terminated" else (never, over)
        return state, Step(obs=self.observe(state), reward=reward, terminated=terminated, truncated=truncated)

    def observe(self, state):
        return jnp.zeros((self.spec.num_agents, self.spec.obs_size))

    def reward(self, state, action):
        return jnp.ones(())

    def metrics(self, state):
        return {}

    def draw(self, state):
        return Picture((0.0, 0.0, 1.0, 1.0), ())


def side(action):
    """1 for the second of two choices, −1 for the first, in between if the choice is soft."""
    return action[1] - action[0]


class Delayed(Probe):
    """Pays 1 at the last step only; the clock is seen."""

    def observe(self, state):
        return state.time.astype(jnp.float32).reshape(1, 1)

    def reward(self, state, action):
        return (state.time == self.max_steps - 1).astype(jnp.float32)


class Reading(Probe):
    """Pays what is seen, whatever is done."""

    def observe(self, state):
        return state.cue.reshape(1, 1)

    def reward(self, state, action):
        return state.cue


class Choosing(Probe):
    """Pays 1 for the second choice and −1 for the first."""

    def reward(self, state, action):
        return side(action[0])


class Matching(Reading):
    """Pays for the choice that matches what is seen."""

    def reward(self, state, action):
        return state.cue * side(action[0])


class Recall(Matching):
    """Shows the cue at the first step only and pays at the last: who does not remember earns nothing."""

    def observe(self, state):
        return jnp.where(state.time == 0, state.cue, 0.0).reshape(1, 1)

    def reward(self, state, action):
        return jnp.where(state.time == self.max_steps - 1, super().reward(state, action), 0.0)


class Xor(Probe):
    """Pays both agents for a pair of choices whose parity is the cue; only the first agent sees it, the second is blind.

    What either choice is worth depends wholly on the other: only a critic that sees both can tell.
    """

    obs_sizes = (2, 1)
    action_spaces = (COIN, COIN)

    def observe(self, state):
        return jnp.stack([jnp.stack([state.cue, -state.cue]), jnp.zeros(2)])

    def reward(self, state, action):
        return state.cue * side(action[0]) * side(action[1])


class Steering(Reading):
    """Pays minus the squared distance to two plus half the cue; the range reaches it only if scaled and shifted."""

    action_spaces = (Box(1, 1.0, 3.0),)

    def reward(self, state, action):
        return -((action[0, 0] - (2.0 + 0.5 * state.cue)) ** 2)


class TwoHeads(Reading):
    """Pays for matching the cue with the first head and for the third of three choices of the second."""

    action_spaces = (Discrete((2, 3)),)

    def reward(self, state, action):
        return state.cue * side(action[0, :2]) + action[0, 4]


@dataclass(frozen=True)
class Kinds(Reading):
    """Two agents of different kinds and sizes: the first matches the cue and has a second head, the second steers to it."""

    obs_sizes: ClassVar[tuple[int, ...]] = (1, 2)
    action_spaces: ClassVar[tuple[ActionSpace, ...]] = (Discrete((2, 3)), Box(1, -1.0, 3.0))

    def observe(self, state):
        return jnp.stack([jnp.stack([state.cue, 0.0 * state.cue]), jnp.stack([state.cue, state.time.astype(jnp.float32)])])

    def reward(self, state, action):
        return state.cue * side(action[0, :2]) + action[0, 4] - (action[1, 0] - state.cue) ** 2


@dataclass(frozen=True)
class Choices(Kinds):
    """The same without the steering, for algorithms whose actions are discrete."""

    action_spaces: ClassVar[tuple[ActionSpace, ...]] = (Discrete((2, 3)), COIN)

    def reward(self, state, action):
        return state.cue * side(action[0, :2]) * side(action[1, :2]) + action[0, 4]


class RelayState(NamedTuple):
    ticket: jax.Array
    """Drawn at reset: tells episodes apart."""
    last: jax.Array
    """The step at which the last agent finishes."""
    time: jax.Array


@dataclass(frozen=True)
class Relay(Probe):
    """Three agents: the first finishes after 1 step, the second after 2, the third after 3 or 4, by `ends`; the ticket decides.

    obs = [time, ticket, agent]; reward = 10 · agent + time while playing, 0 afterwards.
    """

    obs_sizes: ClassVar[tuple[int, ...]] = (3, 3, 3)
    action_spaces: ClassVar[tuple[ActionSpace, ...]] = (COIN, COIN, COIN)

    def reset(self, key):
        ticket = jax.random.uniform(key)
        last = jnp.where(ticket < 0.5, 3, 4).astype(jnp.int32)
        state = RelayState(ticket=ticket, last=last, time=jnp.zeros((), jnp.int32))
        return state, self.observe(state)

    def step(self, key, state, action):
        until = jnp.stack([jnp.int32(1), jnp.int32(2), state.last])
        time = state.time + 1
        playing = until >= time
        reward = jnp.where(playing, 10.0 * np.arange(3) + time, 0.0).astype(jnp.float32)
        over = time >= until
        by_time = np.array([False, False, self.ends == "truncated"])
        state = state._replace(time=time)
        return state, Step(obs=self.observe(state), reward=reward, terminated=over & ~by_time, truncated=over & by_time)

    def observe(self, state):
        return jnp.stack([jnp.stack([state.time.astype(jnp.float32), state.ticket, jnp.float32(i)]) for i in range(3)])
