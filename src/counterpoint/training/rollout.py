"""Environments × policy → transitions. The only automatic reset in the code base."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos.base import Algorithm, Carry
from counterpoint.core.actions import to_world
from counterpoint.core.ops import tree_select
from counterpoint.core.types import Env, Key, Step, Transition


class EnvStates(NamedTuple):
    """E parallel environments in the middle of their episodes."""

    state: Any
    obs: Float[Array, "E N O"]
    alive: Bool[Array, "E N"]
    carry: Carry
    returns: Float[Array, "E N"]
    """The sum of rewards since the episode began."""
    length: Int[Array, " E"]


class Finished(NamedTuple):
    """Sums over the episodes that ended."""

    episodes: Int[Array, ""]
    returns: Float[Array, " N"]
    length: Float[Array, ""]


def start(env: Env, algo: Algorithm, key: Key, num_envs: int) -> EnvStates:
    """Returns E environments at the start of an episode."""
    keys = jax.random.split(key, num_envs)
    state, obs = jax.vmap(env.reset)(keys)
    shape = obs.shape[:2]
    return EnvStates(
        state=state,
        obs=obs,
        alive=jnp.ones(shape, bool),
        carry=jax.vmap(lambda key: algo.begin(jax.random.fold_in(key, 1)))(keys),
        returns=jnp.zeros(shape, jnp.float32),
        length=jnp.zeros(num_envs, jnp.int32),
    )


def legal_actions(env: Env, envs: EnvStates) -> Bool[Array, "E N A"] | None:
    """Returns which actions are legal now, or None if the environment has no action masks."""
    return jax.vmap(env.legal)(envs.state)


def move(env: Env, envs: EnvStates, action: Float[Array, "E N A"], carry: Carry, key: Key) -> tuple[EnvStates, Step]:
    """Returns the environments after these actions, none of them reset, and the result of the step."""
    keys = jax.random.split(key, envs.length.shape[0])
    state, result = jax.vmap(env.step)(keys, envs.state, to_world(env.spec, action))
    moved = EnvStates(
        state=state,
        obs=result.obs,
        alive=~(result.terminated | result.truncated),
        carry=carry,
        returns=envs.returns + result.reward,
        length=envs.length + 1,
    )
    return moved, result


def advance(
    env: Env, algo: Algorithm, policy: Any, envs: EnvStates, key: Key, step: Int[Array, ""]
) -> tuple[EnvStates, Transition, Float[Array, "E N"], Int[Array, " E"]]:
    """Returns the environments one step later, transitions [E, …], and returns and lengths as they were before any reset."""
    num_envs = envs.length.shape[0]
    key_act, key_step, key_reset = jax.random.split(key, 3)
    legal = legal_actions(env, envs)
    action, carry, extras = algo.act(policy, envs.carry, envs.obs, key_act, step, legal)
    moved, result = move(env, envs, action, carry, key_step)
    done = ~jnp.any(moved.alive, axis=1)
    transition = Transition(
        obs=envs.obs,
        action=action,
        reward=result.reward,
        next_obs=result.obs,  # the true successor: the reset below does not touch it
        terminated=result.terminated,
        alive=envs.alive,
        done=done,
        carry=envs.carry,
        legal=legal,
        next_legal=legal_actions(env, moved),
        extras=extras,
    )
    # A branch, not a select: fresh environments are computed only in the steps in which an episode ends.
    after = jax.lax.cond(jnp.any(done), lambda: tree_select(done, start(env, algo, key_reset, num_envs), moved), lambda: moved)
    return after, transition, moved.returns, moved.length


def rollout(
    env: Env, algo: Algorithm, policy: Any, envs: EnvStates, key: Key, num_steps: int, step: Int[Array, ""]
) -> tuple[EnvStates, Transition, Finished]:
    """Returns the environments `num_steps` later, the transitions [T, E, …] and the episodes that ended.

    `step` counts the environment steps of the run so far.
    """
    num_envs = envs.length.shape[0]

    def proceed(envs: EnvStates, time: Int[Array, ""]) -> tuple[EnvStates, tuple[Transition, jax.Array, jax.Array]]:
        now = step + time * num_envs
        envs, transition, returns, length = advance(env, algo, policy, envs, jax.random.fold_in(key, time), now)
        return envs, (transition, returns, length)

    envs, (steps, returns, length) = jax.lax.scan(proceed, envs, jnp.arange(num_steps))
    finished = Finished(
        episodes=jnp.sum(steps.done, dtype=jnp.int32),
        returns=jnp.sum(jnp.where(steps.done[..., None], returns, 0.0), axis=(0, 1)),
        length=jnp.sum(jnp.where(steps.done, length, 0).astype(jnp.float32)),
    )
    return envs, steps, finished
