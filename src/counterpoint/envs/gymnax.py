"""Adapter: environments of gymnax (Lange 2022) as a team of one, compiled into the same loop as ours: `--env gymnax:NAME`.

gymnax's `step` resets by itself; `step_env`, which this uses, returns the true successor. gymnax counts the end of time
as an end of the game; here its own clock is switched off, and the time limit truncates.
"""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import ActionSpace
from counterpoint.core.types import Key, Step
from counterpoint.envs.base import World
from counterpoint.envs.jax_spaces import like, native, space_of, typed
from counterpoint.envs.own import LONGEST

NEVER = 2**30


class State(NamedTuple):
    inner: Any
    """gymnax's own state."""
    over: Bool[Array, ""]
    step: Int[Array, ""]


@dataclass(frozen=True)
class Gymnax(World):
    """An environment of gymnax; observations are flattened."""

    env_id: str
    arguments: tuple[tuple[str, Any], ...] = ()
    max_steps: int = LONGEST

    @property
    def name(self) -> str:
        return f"gymnax:{self.env_id}"

    @cached_property
    def opened(self) -> tuple[Any, Any]:
        """Returns gymnax's own environment and its parameters."""
        env, params = _open(self.env_id, dict(self.arguments))
        return env, params.replace(max_steps_in_episode=NEVER) if hasattr(params, "max_steps_in_episode") else params

    @property
    def agents(self) -> int:
        return 1

    @cached_property
    def action_spaces(self) -> tuple[ActionSpace, ...]:
        return (space_of(self._action_space, "the agent", self.name),)

    @cached_property
    def _action_space(self) -> Any:
        env, params = self.opened
        return env.action_space(params)

    def reset(self, key: Key) -> tuple[State, Float[Array, "1 O"]]:
        env, params = self.opened
        obs, inner = env.reset_env(key, params)
        return State(typed(inner), jnp.zeros((), bool), jnp.zeros((), jnp.int32)), _row(obs)

    def step(self, key: Key, state: State, action: Float[Array, "1 A"]) -> tuple[State, Step]:
        env, params = self.opened
        chosen = native(self._action_space, self.action_spaces[0], action[0])
        obs, inner, reward, done, _ = env.step_env(key, state.inner, chosen, params)
        over = state.over | jnp.asarray(done, bool)
        after = State(like(inner, state.inner), over, state.step + 1)
        reward = jnp.where(state.over, 0.0, jnp.asarray(reward, jnp.float32).reshape(()))
        late = ~over & (after.step >= self.max_steps)
        return after, Step(obs=_row(obs), reward=reward[None], terminated=over[None], truncated=late[None])


def _row(obs: Array) -> Float[Array, "1 O"]:
    return jnp.ravel(obs).astype(jnp.float32)[None]


def make(env_id: str, **arguments: Any) -> Gymnax:
    """Returns the environment that gymnax knows by that name, with these parameters or arguments of its constructor."""
    _, params = _open(env_id, arguments)
    limit = int(getattr(params, "max_steps_in_episode", 0)) or LONGEST
    hashable = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in arguments.items())
    return Gymnax(env_id, hashable, limit)


def _open(env_id: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
    try:
        gymnax: Any = import_module("gymnax")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--env gymnax:{env_id} needs {error.name}, which is not installed: pip install 'counterpoint[gymnax]'."
        ) from error
    if env_id not in gymnax.registered_envs:
        raise UsageError(f"--env gymnax:{env_id} is unknown; gymnax has {', '.join(gymnax.registered_envs)}.")
    try:
        with jax.ensure_compile_time_eval():  # its tables are arrays, even if a trace opens it
            names = {field.name for field in dataclasses.fields(gymnax.make(env_id)[1])}
            env, params = gymnax.make(env_id, **{name: value for name, value in arguments.items() if name not in names})
            return env, params.replace(**{name: value for name, value in arguments.items() if name in names})
    except Exception as error:
        raise UsageError(f"--env gymnax:{env_id} cannot be made with {arguments} ({type(error).__name__}: {error}).") from error
