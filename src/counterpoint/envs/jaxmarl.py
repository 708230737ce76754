"""Adapter: environments of JaxMARL (Rutherford et al. 2023), compiled into the same loop as ours: `--env jaxmarl:NAME`.

JaxMARL's `step` resets by itself; `step_env`, which this uses, returns the true successor. JaxMARL does not separate the end of
a game from the end of time: a `done` at the time limit counts as truncation here, an earlier one as termination.
"""

import contextlib
import dataclasses
import io
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import ActionSpace, Box
from counterpoint.core.types import Key, Step
from counterpoint.envs.base import World, pad_stack
from counterpoint.envs.jax_spaces import like, native, space_of, typed
from counterpoint.envs.own import LONGEST

LIMITS = ("max_steps", "episode_length", "num_inner_steps")
"""JaxMARL's names for the length of an episode."""


class State(NamedTuple):
    inner: Any
    """JaxMARL's own state."""
    over: Bool[Array, " N"]
    """Whose game is over."""
    step: Int[Array, ""]


@dataclass(frozen=True)
class JaxMARL(World):
    """An environment of JaxMARL; observations are flattened."""

    env_id: str
    arguments: tuple[tuple[str, Any], ...] = ()
    max_steps: int = LONGEST

    @property
    def name(self) -> str:
        return f"jaxmarl:{self.env_id}"

    @cached_property
    def env(self) -> Any:
        """Returns JaxMARL's own environment with our time limit: some show their agents the time that is left."""
        env = _open(self.env_id, dict(self.arguments))
        for limit in LIMITS:
            if hasattr(env, limit):
                setattr(env, limit, self.max_steps)
        return env

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(self.env.agents)

    @cached_property
    def action_spaces(self) -> tuple[ActionSpace, ...]:
        return tuple(space_of(self.env.action_space(agent), agent, self.name) for agent in self.agents)

    @cached_property
    def obs_sizes(self) -> tuple[int, ...]:
        obs, _ = jax.eval_shape(self.env.reset, prng.key(0))
        shapes = {agent: obs.get(agent) for agent in self.agents}
        for agent, seen in shapes.items():
            if not hasattr(seen, "shape"):
                raise UsageError(f"--env {self.name}: the observation of {agent} is a {type(seen).__name__}, not one array.")
        return tuple(shapes[agent].size for agent in self.agents)

    def reset(self, key: Key) -> tuple[State, Float[Array, "N O"]]:
        obs, inner = self.env.reset(key)
        state = State(typed(inner), jnp.zeros(len(self.agents), bool), jnp.zeros((), jnp.int32))
        return state, self._stacked(obs)

    def step(self, key: Key, state: State, action: Float[Array, "N A"]) -> tuple[State, Step]:
        chosen = {
            agent: native(self.env.action_space(agent), space, action[i])
            for i, (agent, space) in enumerate(zip(self.agents, self.action_spaces, strict=True))
        }
        obs, inner, rewards, dones, _ = self.env.step_env(key, state.inner, chosen)
        ended = jnp.stack([jnp.asarray(dones[agent], bool) | jnp.asarray(dones["__all__"], bool) for agent in self.agents])
        late = state.step + 1 >= self.max_steps
        over = state.over | (ended & ~late)
        reward = jnp.stack([jnp.asarray(rewards[agent], jnp.float32).reshape(()) for agent in self.agents])
        after = State(like(inner, state.inner), over, state.step + 1)
        return after, Step(
            obs=self._stacked(obs), reward=jnp.where(state.over, 0.0, reward), terminated=over, truncated=~over & late
        )

    def legal(self, state: State) -> Bool[Array, "N A"] | None:
        """Returns JaxMARL's available actions, if the environment has them; an agent without any may do everything."""
        ask = getattr(self.env, "get_legal_moves", None) or self.env.get_avail_actions  # the former is Hanabi's
        try:
            available = ask(state.inner)
        except (NotImplementedError, AttributeError):
            return None
        width = max(space.size for space in self.action_spaces)
        rows = []
        for agent, space in zip(self.agents, self.action_spaces, strict=True):
            row = jnp.ones(space.size, bool) if isinstance(space, Box) else jnp.ravel(available[agent]).astype(bool)
            rows.append(jnp.pad(jnp.where(jnp.any(row), row, True), (0, width - space.size)))
        return jnp.stack(rows)

    def _stacked(self, obs: dict[str, Array]) -> Float[Array, "N O"]:
        return pad_stack([jnp.ravel(obs[agent]).astype(jnp.float32)[None] for agent in self.agents])


def make(env_id: str, **arguments: Any) -> JaxMARL:
    """Returns the environment that JaxMARL knows by that name, with these arguments of its constructor."""
    hashable = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in arguments.items())
    env = _open(env_id, arguments)
    limit = next((int(getattr(env, name)) for name in LIMITS if getattr(env, name, None)), LONGEST)
    return dataclasses.replace(JaxMARL(env_id, hashable), max_steps=limit)


def _open(env_id: str, arguments: dict[str, Any]) -> Any:
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it greets when its list is first read
            jaxmarl: Any = import_module("jaxmarl")
            known = jaxmarl.registered_envs
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--env jaxmarl:{env_id} needs {error.name}, which is not installed: pip install 'counterpoint[jaxmarl]'."
        ) from error
    if env_id not in known:
        raise UsageError(f"--env jaxmarl:{env_id} is unknown; JaxMARL has {', '.join(known)}.")
    try:
        with jax.ensure_compile_time_eval():  # its tables are arrays, even if a trace opens it
            return jaxmarl.make(env_id, **arguments)
    except Exception as error:
        raise UsageError(
            f"--env jaxmarl:{env_id} cannot be made with {arguments} ({type(error).__name__}: {error})."
        ) from error
