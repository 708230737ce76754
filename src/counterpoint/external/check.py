"""`check_env`: the contract of any environment, compiled or stepped by Python, as sentences about what is wrong with it."""

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from counterpoint.core.errors import UsageError
from counterpoint.core.loading import first_line, is_address, load_object
from counterpoint.envs import WORLDS, check, make
from counterpoint.envs.own import is_world, makes_world
from counterpoint.external.adapters import SingleAgent, spec_of
from counterpoint.external.opening import ADAPTERS, open_environment

STEPS = 100


def check_env(env: Any) -> None:
    """Raises UsageError with everything that is wrong with an environment, one sentence each; returns if nothing is.

    `env` is a compiled world, a PettingZoo environment (parallel or in turns) or a Gymnasium one, as an object, a class or
    factory without required arguments, the name of a built-in world, or an address as --env takes it.
    """
    problems = problems_of(env)
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise UsageError("\n".join([f"{_name(env)} has {count}:", *(f"- {problem}" for problem in problems)]))


def problems_of(env: Any) -> list[str]:
    """Returns what is wrong with an environment, one sentence each; see `check_env`."""
    if isinstance(env, str):
        env = _named(env)
    if is_world(env):
        return check.problems_of(env)
    foreign = not hasattr(env, "step") or isinstance(env, type)  # a class or a factory: what it makes is checked
    if foreign and callable(env):
        compiled = makes_world(env)
        try:
            env = env()
        except Exception as error:
            return [f"making the environment fails ({type(error).__name__}: {first_line(error)})."]
        if compiled:
            return check.problems_of(env)
    return list(dict.fromkeys(_foreign(env)))


def _named(text: str) -> Any:
    if text in WORLDS:
        return make(text)
    if text.partition(":")[0] in ADAPTERS:
        return open_environment(text, {}, (), 0)
    if not is_address(text):
        make(text)  # for its sentence
    return load_object(text, "env")


def _name(env: Any) -> str:
    return env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)


def _foreign(env: Any) -> Iterator[str]:
    """What is wrong with an environment that Python steps."""
    try:
        import gymnasium
        from pettingzoo import AECEnv
        from pettingzoo.utils.conversions import aec_to_parallel
    except ModuleNotFoundError as error:
        raise UsageError(f"check_env needs {error.name}: pip install 'counterpoint[pettingzoo]'.") from error
    if isinstance(env, gymnasium.Env):
        yield from _official("Gymnasium's check_env", _gymnasium_check, env)
        parallel: Any = SingleAgent(env)
    elif isinstance(env, AECEnv):
        yield from _official("PettingZoo's api_test", _aec_test, env)
        try:
            parallel = aec_to_parallel(env)
        except Exception:  # agents really act one at a time: PettingZoo's own test has to do
            return
    else:
        parallel = env
        missing = [n for n in ("possible_agents", "reset", "step", "observation_space", "action_space") if not hasattr(env, n)]
        if missing:
            kinds = "neither a compiled nor a PettingZoo nor a Gymnasium environment"
            yield f"{type(env).__name__} has no {', '.join(missing)}: it is {kinds}."
            return
    try:
        spec_of(parallel, "env", ())
    except UsageError as error:
        yield str(error)
        return
    ours = list(_parallel(parallel))
    yield from ours
    if parallel is env and not ours:
        yield from _official("PettingZoo's parallel_api_test", _parallel_test, env)


def _official(name: str, test: Any, env: Any) -> Iterator[str]:
    """The complaint of another package's test, as a sentence."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            test(env)
    except Exception as error:
        detail = first_line(error).rstrip(".") or type(error).__name__
        yield f"{name} fails: {detail}."


def _gymnasium_check(env: Any) -> None:
    from gymnasium.utils.env_checker import check_env

    check_env(env.unwrapped, skip_render_check=True)


def _parallel_test(env: Any) -> None:
    from pettingzoo.test import parallel_api_test

    parallel_api_test(env, num_cycles=STEPS)


def _aec_test(env: Any) -> None:
    from pettingzoo.test import api_test

    api_test(env, num_cycles=STEPS)


def _parallel(env: Any) -> Iterator[str]:
    """What is wrong with a parallel environment: episodes under random actions, the first of them played twice."""
    try:
        first, second = (_record(env) for _ in range(2))
    except _Wrong as error:
        yield str(error)
        return
    except Exception as error:
        yield f"an episode under random actions fails ({type(error).__name__}: {first_line(error)})."
        return
    if not _same(first, second):
        yield "reset(seed=…) must fix the whole episode, but the same seed and actions give different results."


class _Wrong(Exception):
    """What is wrong; the message is the sentence."""


def _record(env: Any) -> list[Any]:
    """Returns everything that an episode under random actions returned."""
    result = env.reset(seed=3)
    if not isinstance(result, tuple) or len(result) != 2:
        raise _Wrong(f"reset must return (observations, infos), not a {type(result).__name__}.")
    seen, _ = result
    _observations(env, "reset", seen)
    spaces = {agent: env.action_space(agent) for agent in env.possible_agents}
    for i, space in enumerate(spaces.values()):
        space.seed(i)
    record: list[Any] = [dict(seen)]
    finished: set[str] = set()
    for _ in range(STEPS):
        if not env.agents:
            break
        if back := finished & set(env.agents):
            raise _Wrong(f"step brings {min(back)} back after its end: an agent that has finished stays away until reset.")
        masks = {agent: seen[agent].get("action_mask") for agent in seen if isinstance(seen[agent], Mapping)}
        actions = {a: spaces[a].sample(masks[a]) if masks.get(a) is not None else spaces[a].sample() for a in env.agents}
        result = env.step(actions)
        if not isinstance(result, tuple) or len(result) != 5:
            raise _Wrong("step must return (observations, rewards, terminations, truncations, infos), five dicts by agent.")
        seen, rewards, terminated, truncated, _ = result
        for agent in actions:
            for what, values in (("reward", rewards), ("termination", terminated), ("truncation", truncated)):
                if agent not in values:
                    raise _Wrong(f"step must return a {what} for {agent}, who acted.")
            if np.ndim(rewards[agent]) != 0:
                raise _Wrong(
                    f"step must return one number as the reward of {agent}, not shape {list(np.shape(rewards[agent]))}."
                )
            if not np.isfinite(rewards[agent]):
                raise _Wrong(f"step returns a reward that is not finite, to {agent}.")
        _observations(env, "step", seen)
        record.append((dict(seen), dict(rewards), dict(terminated), dict(truncated)))
        finished |= {agent for agent in actions if terminated[agent] or truncated[agent]}
    return record


def _observations(env: Any, method: str, seen: Any) -> None:
    if not isinstance(seen, Mapping):
        raise _Wrong(f"{method} must return observations as a dict by agent, not a {type(seen).__name__}.")
    for agent, value in seen.items():
        if agent not in env.possible_agents:
            raise _Wrong(f"{method} returns an observation of {agent}, who is not among possible_agents.")
        space = env.observation_space(agent)
        leaves = list(value.values()) if isinstance(value, Mapping) else [value]
        if any(np.asarray(x).dtype.kind == "f" and np.isnan(np.asarray(x)).any() for x in leaves):
            raise _Wrong(f"{method} returns an observation that is not finite, of {agent}.")
        if not space.contains(value):
            found = f"{np.asarray(value).dtype.name}{list(np.shape(value))}" if not isinstance(value, Mapping) else "a dict"
            raise _Wrong(f"{method} must return an observation of {agent} from {space}, not {found}.")


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return np.array_equal(first, second)
