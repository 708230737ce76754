"""Arithmetic that algorithms share: returns, schedules, moments, clipping."""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

Tree = TypeVar("Tree")


def td_target(
    reward: Float[Array, "*b"],
    terminated: Bool[Array, "*b"],
    next_value: Float[Array, "*b"],
    gamma: float | Float[Array, "*b"],
) -> Float[Array, "*b"]:
    """Returns r + γ V(s'), and r alone where the game ended. A time limit does not end the game."""
    return reward + gamma * jnp.where(terminated, 0.0, next_value)


def lambda_returns(
    reward: Float[Array, "*tb"], next_value: Float[Array, "*tb"], cut: Bool[Array, "*tb"], gamma: float, decay: float
) -> Float[Array, "*tb"]:
    """Returns TD(λ) targets: G_t = r_t + γ ((1 − λ) V(s_t+1) + λ G_t+1), and r_t + γ V(s_t+1) where the recording is cut.

    The recording is cut after its last step and wherever an episode ends; V is 0 where the game is over.
    """

    def back(later: jax.Array, now: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, value, cut = now
        value = reward + gamma * jnp.where(cut, value, (1 - decay) * value + decay * later)
        return value, value

    last = jnp.ones_like(cut).at[:-1].set(False)
    return jax.lax.scan(back, jnp.zeros_like(reward[0]), (reward, next_value, cut | last), reverse=True)[1]


def n_step_returns(
    reward: Float[Array, "*tb"], next_value: Float[Array, "*tb"], cut: Bool[Array, "*tb"], gamma: float, num_steps: int
) -> Float[Array, "*tb"]:
    """Returns n-step targets: G⁽¹⁾_t = r_t + γ V(s_t+1), G⁽ⁿ⁾_t = r_t + γ G⁽ⁿ⁻¹⁾_t+1 unless the recording is cut after t."""
    once = reward + gamma * next_value

    def longer(_: jax.Array, shorter: jax.Array) -> jax.Array:
        return reward.at[:-1].add(gamma * jnp.where(cut[:-1], next_value[:-1], shorter[1:])).at[-1].set(once[-1])

    return jax.lax.fori_loop(1, num_steps, longer, once)


def discounted_returns(reward: Float[Array, " T"], done: Bool[Array, " T"], gamma: float) -> Float[Array, " T"]:
    """Returns discounted returns, R_t = r_t + γ R_{t+1}, where nothing follows a step that is done."""

    def back(later: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        value = now[0] + gamma * jnp.where(now[1], 0.0, later)
        return value, value

    return jax.lax.scan(back, jnp.zeros((), reward.dtype), (reward, done), reverse=True)[1]


class Moments(NamedTuple):
    """The count, mean and variance of all numbers so far."""

    count: Float[Array, "*n"]
    mean: Float[Array, "*n"]
    variance: Float[Array, "*n"]


def add_moments(moments: Moments, count: Float[Array, "*n"], mean: Float[Array, "*n"], variance: Float[Array, "*n"]) -> Moments:
    """Returns the moments after another group of numbers, which is given by its own moments (Chan et al. 1983)."""
    total = moments.count + count
    share, gap = count / jnp.maximum(total, 1e-6), mean - moments.mean
    return Moments(
        count=total,
        mean=moments.mean + share * gap,
        variance=(1 - share) * moments.variance + share * variance + share * (1 - share) * gap**2,
    )


def polyak(target: Tree, online: Tree, tau: float) -> Tree:
    """Returns the target parameters moved a fraction τ towards the online parameters."""
    return jax.tree.map(lambda slow, fast: slow + tau * (fast - slow), target, online)


def masked_mean(values: Float[Array, "*b"], mask: Bool[Array, "*b"]) -> Float[Array, ""]:
    """Returns the mean over entries whose mask is true; 0 if there is none."""
    return jnp.sum(jnp.where(mask, values, 0.0)) / jnp.maximum(jnp.sum(mask), 1)


def clip_by_norm(tree: Tree, limit: float, per_variable: bool) -> Tree:
    """Returns gradients with norm at most `limit`, per array or over the whole tree; 0 means no limit."""
    if not limit:
        return tree
    if not per_variable:
        clip = optax.clip_by_global_norm(limit)
        return clip.update(tree, clip.init(tree))[0]  # pyright: ignore[reportArgumentType, reportReturnType] — any tree of arrays
    return jax.tree.map(lambda leaf: leaf * (limit / jnp.maximum(jnp.sqrt(jnp.sum(leaf**2)), limit)), tree)


def tree_select(mask: Bool[Array, " E"], true: Tree, false: Tree) -> Tree:
    """Returns rows of `true` where the mask is true and of `false` elsewhere, leaf by leaf."""

    def select(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)

    return jax.tree.map(select, true, false)
