"""What a page computes: a world and its teams as JavaScript functions, translated from the functions that train.

An episode of seed S is that of `counterpoint play RUN --seed S` in its first place: the same keys, so the same states. States,
carries and parameters are lists of typed arrays in the order of `jax.tree.leaves`.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from counterpoint.algos.base import Algorithm
from counterpoint.core import prng
from counterpoint.core.actions import to_world
from counterpoint.core.types import Env
from counterpoint.envs.base import pad_stack
from counterpoint.envs.own import TimeLimit
from counterpoint.training.evaluate import reductions_of
from counterpoint.view.javascript import Program


def add_world(program: Program, world: Env) -> int:
    """Adds the functions of a world and returns how many arrays its state has.

    first_keys(low, high) → run key, reset key · step_key(run key, time) · reset(key) → state, obs · step(key, state, action) →
    state, obs, reward, terminated, truncated · and, if the world has them, observe(state), metrics(state) in the order
    of `reductions_of`, legal(state).
    """
    word = jax.ShapeDtypeStruct((), np.uint32)
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    state, _ = jax.eval_shape(world.reset, jax.eval_shape(lambda: prng.key(0)))
    action = jax.ShapeDtypeStruct(world.spec.act_mask.shape, np.float32)

    def first_keys(low: Any, high: Any) -> Any:
        key_start, key_run = jax.random.split(prng.of_words(low, high))
        return jax.random.key_data(key_run), jax.random.key_data(jax.random.split(key_start, 1)[0])

    def step_key(data: Any, time: Any) -> Any:
        _, key = jax.random.split(jax.random.fold_in(prng.wrap(data), time))
        return jax.random.key_data(jax.random.split(key, 1)[0])

    program.add("first_keys", first_keys, word, word)
    program.add("step_key", step_key, key, jax.ShapeDtypeStruct((), np.int32))
    program.add("reset", lambda data: physical_leaves(world.reset(prng.wrap(data))), key)
    program.add(
        "step",
        lambda data, state, action: physical_leaves(world.step(prng.wrap(data), state, action)),
        key,
        state,
        action,
    )
    names = reductions_of(world)
    program.add("metrics", lambda state: [world.metrics(state)[name].value for name in names], state)
    if world.has_masks:
        program.add("legal", lambda state: world.legal(state), state)
    observe = observe_of(world)
    if observe is not None:
        program.add("observe", lambda state: pad_stack(observe(state)), state)
    return len(jax.tree.leaves(state))


def observe_of(world: Env) -> Callable[[Any], Any] | None:
    """Returns what the agents observe of a state, as a function, or None if only steps say it."""
    if hasattr(world, "observe"):
        return world.observe  # pyright: ignore[reportAttributeAccessIssue] — optional
    inner = getattr(getattr(world, "world", None), "observe", None)
    if inner is None:
        return None
    return (lambda state: inner(state.state)) if isinstance(world, TimeLimit) else inner


def physical_leaves(tree: Any) -> list[Any]:
    """Returns the leaves of a tree with random keys as their data."""

    def data(leaf: Any) -> Any:
        return jax.random.key_data(leaf) if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf

    return [data(leaf) for leaf in jax.tree.leaves(tree)]


def add_team(program: Program, name: str, world: Env, algo: Algorithm, parameters: Any) -> None:
    """Adds begin_NAME(reset key) → carry and act_NAME(parameters, carry, obs, legal) → action in the world's range, carry."""
    spec = world.spec
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    begin: Callable[..., Any] = lambda data: algo.begin(jax.random.fold_in(prng.wrap(data), 1))  # noqa: E731
    carry = jax.eval_shape(begin, key)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype), parameters)
    obs = jax.ShapeDtypeStruct((spec.num_agents, spec.obs_size), np.float32)
    masks = [jax.ShapeDtypeStruct(spec.act_mask.shape, bool)] if world.has_masks else []

    def act(parameters: Any, carry: Any, obs: Any, *legal: Any) -> Any:
        one = jax.tree.map(lambda leaf: leaf[None], carry)
        action, after = algo.greedy(parameters, one, obs[None], *(mask[None] for mask in legal))
        return to_world(spec, action)[0], physical_leaves(jax.tree.map(lambda leaf: leaf[0], after))

    program.add(f"begin_{name}", lambda data: physical_leaves(begin(data)), key)
    program.add(f"act_{name}", act, shapes, carry, obs, *masks)
