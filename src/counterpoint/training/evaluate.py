"""Whole episodes under a fixed policy: the one evaluation behind reports, benchmark, play and films."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from counterpoint.algos.base import Actors, Algorithm
from counterpoint.core import prng
from counterpoint.core.action_stats import ActionSums, action_sums, no_actions
from counterpoint.core.errors import UsageError
from counterpoint.core.numpy_policy import Layer, Rules, layers_of
from counterpoint.core.ops import tree_select
from counterpoint.core.picture import Picture
from counterpoint.core.types import Env, Environment, Key, Metric
from counterpoint.external.environment import limited, setup_of
from counterpoint.external.workers import EvalRequest
from counterpoint.external.workers import evaluate as evaluate_external
from counterpoint.training.rollout import legal_actions, move, start
from counterpoint.viz import render

LATE = np.int32(2**31 - 1)
"""A step count at which every exploration schedule has ended."""


class Episodes(NamedTuple):
    """Whole episodes, one row each."""

    returns: Float[Array, "E N"]
    length: Int[Array, " E"]
    metrics: dict[str, Float[Array, " E"]]
    """The environment's metrics, one number per episode."""
    states: Any = None
    """Every state [T + 1, E, …] of a compiled environment, if recorded; after an episode's end its last state repeats."""
    frames: list[list[np.ndarray]] | None = None
    """The images of each episode of an external environment, if recorded."""
    actions: ActionSums | None = None
    """Sums over the actions of each episode, [E, N, A]."""


def evaluate(
    env: Env, algo: Algorithm, policy: Any, key: Key, num_episodes: int, explore: bool = False, record: bool = False
) -> Episodes:
    """Plays that many episodes side by side, each to its end, greedily or as training explores."""
    key_start, key_run = jax.random.split(key)
    envs = start(env, algo, key_start, num_episodes)
    first = envs.state
    reductions = reductions_of(env)
    zero = {name: jnp.zeros(num_episodes) for name in reductions}

    def advance(carry: Any, time: Int[Array, ""]) -> Any:
        envs, live, sums, actions = carry
        key_act, key_step = jax.random.split(jax.random.fold_in(key_run, time))
        legal = legal_actions(env, envs)
        if explore:
            action, memory, _ = algo.act(policy, envs.carry, envs.obs, key_act, jnp.asarray(LATE), legal)
        else:
            action, memory = algo.greedy(policy, envs.carry, envs.obs, legal)
        moved, _ = move(env, envs, action, memory, key_step)
        now = jax.vmap(env.metrics)(moved.state)
        kept = {name: _reduce(how, sums[name], now[name].value, time) for name, how in reductions.items()}
        added = actions.plus(action_sums(env.spec, action, envs.alive, legal))
        envs, sums, actions = tree_select(live, (moved, kept, added), (envs, sums, actions))
        return (envs, live & jnp.any(moved.alive, axis=1), sums, actions), envs.state if record else None

    carry = (envs, jnp.ones(num_episodes, bool), zero, no_actions(env.spec, num_episodes))
    (envs, _, sums, actions), states = jax.lax.scan(advance, carry, jnp.arange(env.max_steps))
    metrics = {name: sums[name] / envs.length if how == "mean" else sums[name] for name, how in reductions.items()}
    if record:
        states = jax.tree.map(lambda start, rest: jnp.concatenate([start[None], rest]), first, states)
    return Episodes(returns=envs.returns, length=envs.length, metrics=metrics, states=states, actions=actions)


def reductions_of(env: Env) -> dict[str, str]:
    """Returns how each of the environment's metrics becomes one number per episode."""

    def shapes(key: Key) -> dict[str, Metric]:
        return env.metrics(env.reset(key)[0])

    found = jax.eval_shape(shapes, jax.random.key(0))
    return {name: metric.reduction for name, metric in found.items()}


def _reduce(how: str, kept: Float[Array, " E"], now: Float[Array, " E"], time: Int[Array, ""]) -> Float[Array, " E"]:
    """Returns the running value of an episode's metric; a mean is kept as a sum until the end."""
    if how == "last":
        return now
    if how == "max":
        return jnp.where(time == 0, now, jnp.maximum(kept, now))
    return kept + now


def numpy_actors(env: Environment, actors: Callable[[Any], Actors | None], policy: Any) -> tuple[tuple[Layer, ...], Rules]:
    """Returns a policy as NumPy layers (copies) and rules, for processes without JAX."""
    plain = actors(policy)
    if plain is None:
        raise UsageError(
            f"--env {env.name} is stepped by worker processes without JAX, which cannot run this algorithm's policy:"
            " choose another --algorithm or a compiled environment."
        )
    return layers_of(*jax.tree.map(np.array, (plain.layers, plain.std))), Rules(**plain.rules)


EPISODE_SECONDS = 600.0
"""How long an episode of an external environment may take in this process."""
Evaluate = Callable[..., Episodes]
"""(policy, episodes, seed=0, explore=False, record=False) → whole episodes of the policy."""


def evaluator(env: Environment, algo: Algorithm, actors: Callable[[Any], Actors | None]) -> Evaluate:
    """Returns the function that plays episodes of an environment: compiled, or in this process if it is external."""
    compiled = env.compiled
    if compiled is None:

        def play(policy: Any, episodes: int, seed: int = 0, explore: bool = False, record: bool = False) -> Episodes:
            layers, rules = numpy_actors(env, actors, policy)
            request = EvalRequest(layers, episodes, seed, explore, record)
            with limited(EPISODE_SECONDS * (1 + episodes), env.name, f"played {episodes} episodes"):
                result = evaluate_external(setup_of(env, rules=rules), request)
            return Episodes(result.returns, result.lengths, result.metrics, None, result.frames, result.actions)  # pyright: ignore[reportArgumentType]

        return play
    jitted = jax.jit(
        lambda policy, key, episodes, explore, record: evaluate(compiled, algo, policy, key, episodes, explore, record),
        static_argnums=(2, 3, 4),
    )
    return lambda policy, episodes, seed=0, explore=False, record=False: jax.device_get(
        jitted(policy, prng.key(seed), episodes, explore, record)
    )


def save_film(env: Environment, episodes: Episodes, path: str | Path) -> bool:
    """Writes recorded episodes as a film; returns False, and writes nothing, if the environment cannot draw."""
    if episodes.frames is not None:
        if any(episodes.frames):
            render.save_frames(episodes.frames, path)
        return any(episodes.frames)
    films = pictures(env, episodes)
    if films:
        render.save(films, path)
    return bool(films)


def pictures(env: Environment, episodes: Episodes) -> list[list[Picture]]:
    """Returns the captioned pictures of recorded episodes; none if the environment cannot draw."""
    compiled = env.compiled
    if compiled is None:
        return []
    films: list[list[Picture]] = []
    lengths = np.asarray(episodes.length).tolist()
    success = jax.device_get(jax.jit(jax.vmap(jax.vmap(compiled.metrics)))(episodes.states)).get("success")
    for e, length in enumerate(lengths):
        moments = (jax.tree.map(lambda leaf: leaf[t, e], episodes.states) for t in range(length + 1))  # noqa: B023 — used at once
        film = [picture for state in moments if (picture := compiled.draw(state)) is not None]
        if not film:
            return []
        outcome = [""] * len(film)
        if success is not None:
            reached = np.asarray(success.value)[: length + 1, e] >= 1.0
            outcome = outcome_texts(reached, getattr(compiled, "outcomes", ("success", "no success")))
        which = f"episode {e + 1}/{len(lengths)}"
        films.append([_captioned(picture, which, text) for picture, text in zip(film, outcome, strict=True)])
    return films


def outcome_texts(reached: np.ndarray, texts: tuple[str, str]) -> list[str]:
    """Returns what to say of each moment of an episode [T + 1]: once it is decided, whether and when it succeeded."""
    last = len(reached) - 1
    missed = np.flatnonzero(~reached)
    first = 0 if missed.size == 0 else int(missed[-1]) + 1
    if first > last:
        return [""] * last + [texts[1]]
    return [""] * first + [f"{texts[0]} in {first} step{'s' * (first != 1)}"] * (last + 1 - first)


def _captioned(picture: Picture, which: str, outcome: str) -> Picture:
    """Returns the picture with the episode's number and, once known, its outcome in the caption."""
    title, _, rest = picture.caption.partition("  ")
    return picture._replace(caption=f"{title}  {which} · {outcome or rest}".rstrip(" ·"))
