"""The contract of compiled environments, as sentences about what a world gets wrong.

The same checks are behind `counterpoint.check_env` and the tests of the built-in worlds.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.core import prng
from counterpoint.core.actions import to_world
from counterpoint.core.picture import Picture
from counterpoint.core.spaces import Discrete, Spec
from counterpoint.core.types import Metric, Reduction, Step
from counterpoint.envs.own import as_world, not_frozen

EPISODES = 3
BEYOND = 3
"""Steps that are taken after the time limit, to see that nothing starts again."""
LONGEST_CHECK = 2000
"""Steps after which a check stops waiting for the end of an episode."""


class Broken(Exception):
    """A method fails, so that nothing after it can be checked; the message is the sentence."""


def problems_of(thing: Any) -> list[str]:
    """Returns what is wrong with a compiled environment (a world or its class), one sentence each; none if nothing is."""
    found: list[str] = []
    try:
        found.extend(_problems(thing() if isinstance(thing, type) else thing))
    except Broken as error:
        found.append(str(error))
    return list(dict.fromkeys(found))


def _problems(thing: Any) -> Iterator[str]:
    if problem := not_frozen(thing):
        raise Broken(problem)
    world = as_world(thing)
    spec: Spec = _try("spec", lambda: world.spec)
    wrong = [*_first(world, spec), *_types(world, spec), *_same_again(world, spec)]
    yield from wrong
    if wrong:  # what follows counts on them
        return
    played = _try("step", lambda: jax.device_get(_play(world, spec, batched=True)))
    yield from _episodes(world, spec, played)
    yield from _alone(world, spec, played)
    yield from _pictures(world)


def _try(method: str, run: Callable[[], Any]) -> Any:
    """Returns what a method gives; a failure ends the check with a sentence that names the method."""
    try:
        return run()
    except Broken:
        raise
    except RecursionError:
        raise Broken(f"{method} uses `spec`, which is derived from it: use the world's own fields instead.") from None
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise Broken(
            f"{method} cannot be compiled: use jnp.where and jnp functions where it decides by a value with `if`, float() or"
            f" NumPy ({_words(error)})."
        ) from error
    except Exception as error:
        raise Broken(f"{method} fails ({type(error).__name__}: {_words(error)}).") from error


def _words(error: Exception) -> str:
    line = next(iter(str(error).splitlines()), "")
    return line.rstrip(".:") if len(line) < 160 else line[:157] + "…"


def _first(world: Any, spec: Spec) -> Iterator[str]:
    """Yields what is wrong with the result of `reset`."""
    result = _try("reset", lambda: jax.eval_shape(world.reset, prng.key(0)))
    if not isinstance(result, tuple) or len(result) != 2:
        raise Broken(f"reset must return (state, obs), not {_kind(result)}.")
    yield from _array("reset", "obs", result[1], spec.obs_mask.shape, jnp.float32)
    if int(getattr(world, "max_steps", 0)) < 1:
        raise Broken(f"max_steps must be at least 1, not {world.max_steps!r}.")


def _array(method: str, what: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Iterator[str]:
    """A problem if a value is not an array of that shape and type; a wrong shape ends the check."""
    name = np.dtype(dtype).name
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise Broken(f"{method} must return {what} as an array {name}{list(shape)}, not {_kind(value)}.")
    if tuple(value.shape) != tuple(shape):
        raise Broken(f"{method} must return {what} with shape {list(shape)}, not {list(value.shape)}.")
    if value.dtype != dtype:
        yield f"{method} must return {what} as {name}, not {value.dtype.name}."


def _kind(value: Any) -> str:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"a tuple of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _action(spec: Spec) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(spec.act_mask.shape, jnp.float32)


def _types(world: Any, spec: Spec) -> Iterator[str]:
    """What `step`, `metrics` and `legal` return, by shape and type."""
    key = prng.key(0)
    state, _ = jax.eval_shape(world.reset, key)
    result = _try("step", lambda: jax.eval_shape(world.step, key, state, _action(spec)))
    if not isinstance(result, tuple) or len(result) != 2:
        raise Broken(f"step must return (state, Step), not {_kind(result)}.")
    after, step = result
    if not isinstance(step, Step):
        raise Broken(f"step must return (state, Step), but its second part is {_kind(step)}.")
    if jax.tree.structure(after) != jax.tree.structure(state):
        raise Broken("step must return a state with the fields of the state that reset returns, so that a loop can carry it.")
    for (path, new), old in zip(jax.tree_util.tree_leaves_with_path(after), jax.tree.leaves(state), strict=True):
        if new.shape != old.shape or new.dtype != old.dtype:
            raise Broken(
                f"step must return state{jax.tree_util.keystr(path)} as reset does, {old.dtype.name}{list(old.shape)},"
                f" not {new.dtype.name}{list(new.shape)}."
            )
    team = (spec.num_agents,)
    yield from _array("step", "obs", step.obs, spec.obs_mask.shape, jnp.float32)
    yield from _array("step", "reward", step.reward, team, jnp.float32)
    yield from _array("step", "terminated", step.terminated, team, jnp.bool_)
    yield from _array("step", "truncated", step.truncated, team, jnp.bool_)
    metrics = _try("metrics", lambda: jax.eval_shape(world.metrics, state))
    if not isinstance(metrics, dict):
        raise Broken(f"metrics must return a dict of Metric by name, not {_kind(metrics)}.")
    for name, metric in metrics.items():
        if not isinstance(metric, Metric):
            raise Broken(f"metrics must return a Metric for {name!r}, such as Metric(value, 'mean'), not {_kind(metric)}.")
        if tuple(getattr(metric.value, "shape", (None,))) != ():
            raise Broken(f"metrics must return one number for {name!r}, not an array {list(metric.value.shape)}.")
        if metric.reduction not in get_args(Reduction):
            choices = ", ".join(get_args(Reduction))
            yield f"metrics gives {name!r} the reduction {metric.reduction!r}, which must be one of {choices}."
    legal = _try("legal", lambda: jax.eval_shape(world.legal, state))
    if legal is not None:
        yield from _array("legal", "its mask", legal, spec.act_mask.shape, jnp.bool_)


def _same_again(world: Any, spec: Spec) -> Iterator[str]:
    """Whether a key decides everything: traced twice, so that random numbers from outside of JAX differ."""
    key = prng.key(5)
    state, _ = jax.eval_shape(world.reset, key)
    for method, arguments in (("reset", (key,)), ("step", (key, state, _action(spec)))):
        first, second = (jax.make_jaxpr(_fresh(getattr(world, method)))(*arguments) for _ in range(2))
        if str(first) != str(second) or not all(map(_equal, first.consts, second.consts)):
            yield f"{method} differs between calls with the same key: draw every random number with jax.random from the key."


def _equal(first: Any, second: Any) -> bool:
    first, second = np.asarray(first), np.asarray(second)
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


def _fresh(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a new function that calls the method, so that JAX traces it again."""
    return lambda *arguments: method(*arguments)


def _play(world: Any, spec: Spec, batched: bool) -> dict[str, Any]:
    """Plays episodes of random legal actions to a little beyond the time limit; returns everything as [T, E, …]."""
    steps = min(world.max_steps, LONGEST_CHECK) + BEYOND

    def one(key: Any) -> dict[str, Any]:
        state, obs = world.reset(key)

        def advance(state: Any, key: Any) -> tuple[Any, dict[str, Any]]:
            key_act, key_step = jax.random.split(key)
            legal = world.legal(state)
            action = to_world(spec, _random_action(spec, legal, key_act)[None])[0]
            state, step = world.step(key_step, state, action)
            metrics = {name: metric.value for name, metric in world.metrics(state).items()}
            return state, {"step": step, "legal": legal, "metrics": metrics, "counters": _counters(state)}

        _, record = jax.lax.scan(advance, state, jax.random.split(jax.random.fold_in(key, 1), steps))
        return {"first": obs, **record}

    keys = jax.random.split(prng.key(7), EPISODES)
    quick = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None  # compiling takes longest
    if batched:
        return jax.jit(jax.vmap(one), compiler_options=quick)(keys)
    return jax.jit(one, compiler_options=quick)(keys[0])


def _counters(state: Any) -> list[Any]:
    """Returns the whole numbers of a state: its clock is one of them, if it has one."""
    return [leaf for leaf in jax.tree.leaves(state) if leaf.shape == () and jnp.issubdtype(leaf.dtype, jnp.integer)]


def _random_action(spec: Spec, legal: Any, key: Any) -> Any:
    """Returns a random action vector [N, A] as a learner gives it: one-hot by head, real entries from [−1, 1]."""
    scores = jax.random.uniform(key, spec.act_mask.shape)
    allowed = jnp.where(spec.act_mask if legal is None else spec.act_mask & legal, scores, -1.0)
    rows = []
    for i, space in enumerate(spec.action_spaces):
        if isinstance(space, Discrete):
            edges = np.cumsum((0, *space.heads)).tolist()
            heads = [jax.nn.one_hot(jnp.argmax(allowed[i, a:b]), b - a) for a, b in pairwise(edges)]
            row = jnp.concatenate(heads)
        else:
            row = 2 * scores[i, : space.size] - 1
        rows.append(jnp.pad(row, (0, spec.act_size - space.size)))
    return jnp.stack(rows)


def _episodes(world: Any, spec: Spec, played: dict[str, Any]) -> Iterator[str]:
    """What must hold in every step of every episode. Arrays are [E, T, …]."""
    step: Step = played["step"]
    names = spec.agents
    for what, obs in (("reset", played["first"][:, None]), ("step", step.obs)):
        if not np.isfinite(obs).all():
            yield f"{what} returns an observation that is not finite, of {_agent(names, ~np.isfinite(obs).all(-1))}."
        if np.any(obs[..., ~spec.obs_mask] != 0):
            yield f"{what} must return zeros beyond an agent's own observation (sizes {list(spec.obs_sizes)}): pad with zeros."
    if not np.isfinite(step.reward).all():
        yield f"step returns a reward that is not finite, to {_agent(names, ~np.isfinite(step.reward))}."
    for name, values in played["metrics"].items():
        if not np.isfinite(values).all():
            yield f"metrics returns a {name!r} that is not finite."
    if np.any(both := step.terminated & step.truncated):
        yield f"step returns terminated and truncated together for {_agent(names, both)}: choose one."
    over = (step.terminated | step.truncated).all(-1)
    playing = ~np.logical_or.accumulate(over, axis=1)[:, :, None]
    if np.any(wrong := step.terminated[:, :-1] & ~step.terminated[:, 1:] & playing[:, :-1]):
        yield f"step must keep terminated True until reset, but {_agent(names, wrong)} plays on after its end."
    if world.max_steps <= LONGEST_CHECK and not over[:, : world.max_steps].any(1).all():
        yield f"step must end every episode within max_steps ({world.max_steps}): set truncated when time is up."
    elif any(_restarts(step, over, played["counters"], episode) for episode in range(EPISODES)):
        yield "step starts a new episode by itself: return the true successor, and leave resetting to the loop."
    if played["legal"] is not None:
        for i, space in enumerate(spec.action_spaces):
            if isinstance(space, Discrete):
                edges = np.cumsum((0, *space.heads)).tolist()
                for h, (a, b) in enumerate(pairwise(edges)):
                    if not played["legal"][:, :, i, a:b].any(-1).all():
                        yield f"legal leaves {names[i]} no legal action in head {h}: at least one must be True at every step."


def _restarts(step: Step, over: Any, counters: list[np.ndarray], episode: int) -> bool:
    """Whether an episode goes on after time was up, or a counter that has risen at every step falls back at its end."""
    if not over[episode].any():
        return False
    end = int(np.argmax(over[episode]))
    if step.truncated[episode, end].any() and not over[episode, end + 1 :].all():
        return True
    clocks = [counter[episode, : end + 1] for counter in counters]
    return any(len(clock) > 2 and (np.diff(clock[:-1]) == 1).all() and clock[-1] < clock[-2] for clock in clocks)


def _agent(names: tuple[str, ...], wrong: Any) -> str:
    """Returns the first agent for which something is wrong, wrong[…, N]."""
    return names[int(np.argmax(wrong.reshape(-1, len(names)).any(0)))]


def _alone(world: Any, spec: Spec, played: dict[str, Any]) -> Iterator[str]:
    """Whether an episode is the same alone as in a batch."""
    alone = _try("step", lambda: jax.device_get(_play(world, spec, batched=False)))
    steps = min(world.max_steps, 10)  # rounding may grow later
    pairs = zip(jax.tree.leaves(alone["step"]), jax.tree.leaves(played["step"]), strict=True)
    same = all(np.allclose(a[:steps], b[0, :steps], rtol=1e-3, atol=1e-3, equal_nan=True) for a, b in pairs)
    if not same:
        yield "an episode differs between jax.vmap and alone: step must not mix parallel environments."


def _pictures(world: Any) -> Iterator[str]:
    """What `draw` returns."""
    state, _ = jax.jit(world.reset)(prng.key(0))
    picture = _try("draw", lambda: world.draw(jax.device_get(state)))
    if picture is not None and not isinstance(picture, Picture):
        yield f"draw must return a Picture (or None), not {_kind(picture)}."
