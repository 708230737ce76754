"""Worlds × policy → transitions. The only auto-reset in the code base."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos.base import Agents, Algorithm, Carry
from counterpoint.core.actions import to_world
from counterpoint.core.ops import tree_select
from counterpoint.core.types import Env, Key, Step, Transition


class Worlds(NamedTuple):
    """E worlds in the middle of their episodes."""

    state: Any
    obs: Float[Array, "E N O"]
    alive: Bool[Array, "E N"]
    carry: Carry
    returns: Float[Array, "E N"]
    """Reward summed since the episode began."""
    length: Int[Array, " E"]


class Finished(NamedTuple):
    """Sums over the episodes that ended."""

    episodes: Int[Array, ""]
    returns: Float[Array, " N"]
    length: Float[Array, ""]


def start(env: Env, algo: Algorithm, key: Key, num_envs: int) -> Worlds:
    """E worlds at the start of an episode."""
    state, obs = jax.vmap(env.reset)(jax.random.split(key, num_envs))
    shape = obs.shape[:2]
    return Worlds(
        state=state,
        obs=obs,
        alive=jnp.ones(shape, bool),
        carry=jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_envs, *leaf.shape)), algo.begin()),
        returns=jnp.zeros(shape, jnp.float32),
        length=jnp.zeros(num_envs, jnp.int32),
    )


def move(env: Env, worlds: Worlds, action: Float[Array, "E N A"], carry: Carry, key: Key) -> tuple[Worlds, Step]:
    """The worlds after these actions, none of them reset, and what the step returned."""
    keys = jax.random.split(key, worlds.length.shape[0])
    state, result = jax.vmap(env.step)(keys, worlds.state, to_world(env.spec, action))
    moved = Worlds(
        state=state,
        obs=result.obs,
        alive=~(result.terminated | result.truncated),
        carry=carry,
        returns=worlds.returns + result.reward,
        length=worlds.length + 1,
    )
    return moved, result


def advance(
    env: Env, algo: Algorithm, agents: Agents, worlds: Worlds, key: Key, step: Int[Array, ""]
) -> tuple[Worlds, Transition, Float[Array, "E N"], Int[Array, " E"]]:
    """The worlds one step later, the transitions [E, …], and returns and lengths as they were before any reset."""
    num_envs = worlds.length.shape[0]
    key_act, key_step, key_reset = jax.random.split(key, 3)
    action, carry = algo.act(agents, worlds.carry, worlds.obs, key_act, step)
    moved, result = move(env, worlds, action, carry, key_step)
    done = ~jnp.any(moved.alive, axis=1)
    transition = Transition(
        obs=worlds.obs,
        action=action,
        reward=result.reward,
        next_obs=result.obs,  # the true successor: the reset below does not touch it
        terminated=result.terminated,
        alive=worlds.alive,
        done=done,
        carry=worlds.carry,
    )
    # A branch, not a select: fresh worlds are computed only in the steps in which an episode ends.
    after = jax.lax.cond(jnp.any(done), lambda: tree_select(done, start(env, algo, key_reset, num_envs), moved), lambda: moved)
    return after, transition, moved.returns, moved.length


def rollout(
    env: Env, algo: Algorithm, agents: Agents, worlds: Worlds, key: Key, num_steps: int, step: Int[Array, ""]
) -> tuple[Worlds, Transition, Finished]:
    """The worlds `num_steps` later, the transitions [T, E, …] and the episodes that ended; `step` counts world steps so far."""
    num_envs = worlds.length.shape[0]

    def proceed(worlds: Worlds, time: Int[Array, ""]) -> tuple[Worlds, tuple[Transition, jax.Array, jax.Array]]:
        now = step + time * num_envs
        worlds, transition, returns, length = advance(env, algo, agents, worlds, jax.random.fold_in(key, time), now)
        return worlds, (transition, returns, length)

    worlds, (steps, returns, length) = jax.lax.scan(proceed, worlds, jnp.arange(num_steps))
    finished = Finished(
        episodes=jnp.sum(steps.done, dtype=jnp.int32),
        returns=jnp.sum(jnp.where(steps.done[..., None], returns, 0.0), axis=(0, 1)),
        length=jnp.sum(jnp.where(steps.done, length, 0).astype(jnp.float32)),
    )
    return worlds, steps, finished
