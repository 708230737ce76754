"""Environments of other libraries as arrays: PettingZoo (parallel or turn-based) and Gymnasium (one agent or a tuple of them).

NumPy only, so that the worker processes that step them need no JAX. An environment is named by the address of its factory,
`package.module:factory` or `path/to/file.py:factory`, which any process can open, also one that resumes a run.
"""

import contextlib
import difflib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from counterpoint.core.checks import shown
from counterpoint.core.errors import UsageError
from counterpoint.core.loading import first_line, is_address, load_object
from counterpoint.core.spaces import ActionSpace, Box, Discrete, Spec, action_space_of, default_team

LONGEST = 1000
"""Steps after which an episode is truncated if neither the user nor the environment sets a limit."""
MASK = "action_mask"
"""The key under which an observation or an info holds an action mask, by PettingZoo's convention."""


def close_env(env: Any) -> None:
    """Closes an environment; one that fails to close has done its work, so the error goes to stderr and no further."""
    try:
        env.close()
    except Exception as error:
        print(f"{type(env).__name__}.close raised {_brief(error)}", file=sys.stderr)


def open_env(address: str, arguments: Mapping[str, Any], render: bool = False, factory: Any = None) -> Any:
    """Opens the environment at an address as a parallel one; with `render`, one that draws images, or None if it cannot.

    `factory` is the object at the address, if the caller has it already.
    """
    try:
        import gymnasium
        from pettingzoo import AECEnv
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--env needs {error.name}, which is not installed: pip install 'counterpoint[pettingzoo]'."
        ) from error
    factory = load_factory(address) if factory is None else factory
    if render and "render_mode" not in arguments:
        if not _takes(factory, "render_mode"):
            return None
        arguments = {**arguments, "render_mode": "rgb_array"}
    try:
        env = factory(**arguments)
    except Exception as error:
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        raise UsageError(f"--env {address} could not be made with ({given}): {_brief(error)}.") from error
    if isinstance(env, AECEnv):
        return _parallel(env)
    if isinstance(env, gymnasium.Env):
        return AgentTuple(env) if _is_tuple_of_agents(env) else SingleAgent(env)
    if not all(hasattr(env, name) for name in ("possible_agents", "reset", "step", "observation_space", "action_space")):
        raise UsageError(f"--env {address} made a {type(env).__name__}, which is not a PettingZoo or Gymnasium environment.")
    return env


def load_factory(address: str) -> Any:
    """Returns the function or class at an address, or for a Gymnasium id, that makes an environment."""
    if not is_address(address):
        return _gymnasium_factory(address)
    factory = load_object(address, "--env")
    if not callable(factory):
        raise UsageError(f"--env {address} is not a function or class that makes an environment.")
    if not makes_environment(factory, address):
        raise UsageError(
            f"--env {shown(address)} is not called, because nothing says that it makes an environment: name a class with reset"
            " and step, or give the function a return annotation such as -> gymnasium.Env."
        )
    return factory


def makes_environment(thing: Any, address: str = "") -> bool:
    """Returns whether a class or function is one that makes an environment. Calls nothing.

    A class must have `reset` and `step`. A function must be defined in the user's own file or script, or have a return
    annotation that is such a class, or be defined in a module, not of Python's own library, that deals with environments: one
    that defines or imports such a class, or belongs to or imports gymnasium or pettingzoo.
    """
    while isinstance(thing, partial):
        thing = thing.func
    if isinstance(thing, type):
        return _is_environment_class(thing)
    function = inspect.unwrap(thing if inspect.isroutine(thing) else type(thing).__call__)
    home = str(getattr(function, "__module__", None) or "")
    if home == "__main__" or home.partition(".")[0] in ENVIRONMENT_PACKAGES:
        return True
    with contextlib.suppress(Exception):  # an annotation that cannot be resolved here
        returned = get_type_hints(function).get("return")
        if isinstance(returned, type) and _is_environment_class(returned):
            return True
    place, code = address.rpartition(":")[0], getattr(function, "__code__", None)
    if place.endswith(".py") and code is not None and _same_file(code.co_filename, place):
        return True
    module = sys.modules.get(home)
    if module is None or home.partition(".")[0] in sys.stdlib_module_names:
        return False
    return any(map(_deals_with_environments, list(vars(module).values())))


ENVIRONMENT_PACKAGES = ("gymnasium", "gym", "pettingzoo", "counterpoint")
"""Packages whose functions make environments."""


def _deals_with_environments(value: Any) -> bool:
    if isinstance(value, type):
        return _is_environment_class(value)
    name = getattr(value, "__name__" if inspect.ismodule(value) else "__module__", None)
    return isinstance(name, str) and name.partition(".")[0] in ENVIRONMENT_PACKAGES[:3]


def _is_environment_class(kind: type) -> bool:
    return all(callable(getattr(kind, name, None)) for name in ("reset", "step"))


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, os.path.expanduser(other))
    except OSError:
        return False


def _gymnasium_factory(name: str) -> Any:
    """Returns what makes the environment of a Gymnasium id."""
    import gymnasium

    if name not in gymnasium.registry:
        close = difflib.get_close_matches(name, list(gymnasium.registry), 1)
        hint = f" (perhaps {close[0]}?)" if close else ""
        raise UsageError(f"--env {name} must be package.module:name or path/to/file.py:name, or a known Gymnasium id{hint}.")
    return partial(gymnasium.make, name)


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def _takes(factory: Callable[..., Any], name: str) -> bool:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _parallel(env: Any) -> Any:
    """Returns a PettingZoo AEC environment as a parallel one: by PettingZoo's own wrapper if it applies, else turn by turn."""
    from pettingzoo.utils.conversions import aec_to_parallel

    with contextlib.suppress(Exception):  # it refuses environments that are not marked as parallelizable
        return aec_to_parallel(env)
    return TurnBased(env)


def _is_tuple_of_agents(env: Any) -> bool:
    from gymnasium import spaces

    seen, done = env.observation_space, env.action_space
    return isinstance(seen, spaces.Tuple) and isinstance(done, spaces.Tuple) and len(seen) == len(done) > 0


Results = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]
"""Observations, rewards, terminations, truncations and infos by agent."""


class TurnBased:
    """A turn-based PettingZoo game (AEC) as a parallel environment: one step is one turn of one agent.

    The agents that wait stay in the game: they observe, only a placeholder action is legal for them (the first one), and the
    game never sees it. An agent's rewards accumulate while it waits and arrive with the step after which it is its turn
    again, or with which it leaves the game.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents = list(env.possible_agents)
        self.agents: list[str] = []
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.render, self.close = env.render, env.close

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.env.reset(seed=seed)
        self._next_turn()  # an agent may be out of the game before it begins
        self.agents = list(self.env.agents)
        return self._observations(self.agents), self._infos()

    def step(self, actions: dict[str, Any]) -> Results:
        before = self.agents
        self.env.step(actions[self.env.agent_selection])
        out = [agent for agent in before if self.env.terminations.get(agent) or self.env.truncations.get(agent)]
        last = self._observations(out)  # once an agent has left, it can no longer be observed
        told = {agent: {k: v for k, v in self.env.infos.get(agent, {}).items() if k != MASK} for agent in out}
        rewards, terminated, truncated = self._next_turn()
        self.agents = list(self.env.agents)
        left = {agent: True for agent in before if agent not in self.agents}
        return (
            last | self._observations(self.agents),
            dict.fromkeys(before, 0.0) | rewards,
            dict.fromkeys(before, False) | left | terminated,
            dict.fromkeys(before, False) | truncated,
            told | self._infos(),
        )

    def _next_turn(self) -> tuple[dict[str, Any], dict[str, bool], dict[str, bool]]:
        """Lets agents that are out of the game leave it until one that plays has its turn; returns what each was told."""
        rewards: dict[str, Any] = {}
        terminated: dict[str, bool] = {}
        truncated: dict[str, bool] = {}
        for _ in range(2 * len(self.possible_agents) + 2):
            if not self.env.agents:
                break
            agent = self.env.agent_selection
            _, reward, ended, cut, _ = self.env.last(observe=False)
            rewards[agent] = rewards.get(agent, 0.0) + reward
            if not (ended or cut):
                break
            terminated[agent], truncated[agent] = bool(ended), bool(cut)
            self.env.step(None)
        return rewards, terminated, truncated

    def _observations(self, agents: Sequence[str]) -> dict[str, Any]:
        return {agent: self.env.observe(agent) for agent in agents}

    def _infos(self) -> dict[str, Any]:
        """Returns the infos; those of agents that wait say that no action is legal."""
        infos = {agent: dict(self.env.infos.get(agent, {})) for agent in self.agents}
        for agent in self.agents:
            if agent != self.env.agent_selection:
                infos[agent][MASK] = NOTHING_LEGAL
        return infos


NOTHING_LEGAL = "nothing"
"""The action mask of an agent that waits for its turn."""


class SingleAgent:
    """A Gymnasium environment as a team of one agent, agent_0."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents = ["agent_0"]
        self.agents: list[str] = []
        self.render, self.close = env.render, env.close

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space

    def action_space(self, agent: str) -> Any:
        return self.env.action_space

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        obs, info = self.env.reset(seed=seed)
        self.agents = list(self.possible_agents)
        return {"agent_0": obs}, {"agent_0": info}

    def step(self, actions: dict[str, Any]) -> Results:
        obs, reward, terminated, truncated, info = self.env.step(actions["agent_0"])
        if terminated or truncated:
            self.agents = []
        return {"agent_0": obs}, {"agent_0": reward}, {"agent_0": terminated}, {"agent_0": truncated}, {"agent_0": info}


class AgentTuple:
    """A Gymnasium environment whose spaces are tuples with one entry per agent, as a team agent_0, agent_1, …

    Rewards are lists. Terminations and truncations are lists too, or one value for all agents.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents = [f"agent_{i}" for i in range(len(env.action_space))]
        self.agents: list[str] = []
        self.render, self.close = env.render, env.close
        own = {agent: action_space_of(self.action_space(agent), agent) for agent in self.possible_agents}
        self._idle = {agent: native(self.action_space(agent), own[agent])(np.zeros(own[agent].size)) for agent in own}
        """What an agent that has finished does while the others go on."""

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space[self.possible_agents.index(agent)]

    def action_space(self, agent: str) -> Any:
        return self.env.action_space[self.possible_agents.index(agent)]

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        obs, info = self.env.reset(seed=seed)
        self.agents = list(self.possible_agents)
        return self._by_agent(obs), self._infos(info)

    def step(self, actions: dict[str, Any]) -> Results:
        obs, reward, terminated, truncated, info = self.env.step(tuple((self._idle | actions).values()))
        ended, cut = self._by_agent(terminated), self._by_agent(truncated)
        self.agents = [agent for agent in self.agents if not (ended[agent] or cut[agent])]
        return self._by_agent(obs), self._by_agent(reward), ended, cut, self._infos(info)

    def _by_agent(self, values: Any) -> dict[str, Any]:
        if isinstance(values, tuple | list | np.ndarray):
            return dict(zip(self.possible_agents, values, strict=True))
        return dict.fromkeys(self.possible_agents, values)

    def _infos(self, info: Any) -> dict[str, Any]:
        """Returns each agent's mask, and the numbers about the whole team."""
        info = info if isinstance(info, dict) else {}
        shared = {name: value for name, value in info.items() if name != MASK and np.ndim(value) == 0}
        if info.get(MASK) is None:
            return dict.fromkeys(self.possible_agents, shared)
        return {agent: shared | {MASK: mask} for agent, mask in self._by_agent(info[MASK]).items()}


class Description(NamedTuple):
    """What opening an environment once tells about it."""

    spec: Spec
    max_steps: int
    observation_spaces: tuple[Any, ...]
    """Gymnasium's spaces, by agent."""
    action_spaces: tuple[Any, ...]
    has_masks: bool


def describe(env: Any, address: str, team_rules: Sequence[str], max_steps: int) -> Description:
    """Returns what an open environment is; `max_steps` 0 means its own limit."""
    spec = spec_of(env, address, team_rules)
    seen, done = (tuple(map(ask, spec.agents)) for ask in (env.observation_space, env.action_space))
    _refuse_vector_rewards(env, spec, address)
    try:
        _, infos = env.reset(seed=0)
    except Exception as error:
        raise UsageError(f"--env {address} failed in its first reset ({_brief(error)}).") from error
    has_masks = any(mask_key(space) for space in seen) or any(
        MASK in info for info in infos.values() if isinstance(info, Mapping)
    )
    return Description(spec, max_steps or own_limit(env) or LONGEST, seen, done, has_masks)


def spec_of(env: Any, address: str, team_rules: Sequence[str]) -> Spec:
    """Returns an environment's agents, teams, flattened observation sizes and action spaces."""
    from gymnasium import spaces

    agents = tuple(env.possible_agents)
    if not agents:
        raise UsageError(f"--env {address} has no possible_agents: it must name all of its agents when it is made.")
    sizes = []
    for agent in agents:
        seen = without_mask(env.observation_space(agent))
        try:
            size = int(spaces.flatdim(seen))
        except (NotImplementedError, ValueError):
            raise UsageError(
                f"--env {address}: the observation of {agent}, {seen}, has no fixed number of entries: wrap the environment."
            ) from None
        sizes.append(size)
    actions = tuple(action_space_of(env.action_space(agent), f"{agent} in --env {address}") for agent in agents)
    teams = teams_of(agents, team_rules)
    return Spec(agents, teams, teams, tuple(sizes), actions)


def _refuse_vector_rewards(env: Any, spec: Spec, address: str) -> None:
    """Refuses an environment that declares rewards of several numbers, as multi-objective libraries do."""
    inner = getattr(env, "env", env)
    for agent in spec.agents:
        size = 1
        for layer in (env, inner, getattr(inner, "unwrapped", None)):
            with contextlib.suppress(Exception):
                declared: Any = layer.reward_space  # pyright: ignore[reportOptionalMemberAccess]
                space: Any = declared(agent) if callable(declared) else declared
                size = max(size, int(np.prod(space.shape)))
        if size > 1:
            raise UsageError(_vector_reward(address, agent, size))


def _vector_reward(address: str, agent: str, size: int) -> str:
    return (
        f"--env {address} gives {agent} a reward of {size} numbers, and learning needs one: wrap the environment so that it"
        " returns their weighted sum."
    )


def mask_key(space: Any) -> bool:
    """Returns whether observations of a space are dictionaries that hold an action mask."""
    return MASK in getattr(space, "spaces", {}) if type(space).__name__ == "Dict" else False


def without_mask(space: Any) -> Any:
    """Returns the space of what is left of an observation without its action mask: a single entry stands for itself."""
    from gymnasium import spaces

    if not mask_key(space):
        return space
    rest = {key: part for key, part in space.spaces.items() if key != MASK}
    return next(iter(rest.values())) if len(rest) == 1 else spaces.Dict(rest)


def own_limit(env: Any) -> int:
    """Returns the number of steps after which the environment says that it ends an episode, or 0."""
    for name in ("max_cycles", "max_steps", "_max_episode_steps"):
        for layer in (env, getattr(env, "unwrapped", None), getattr(env, "env", None), getattr(env, "aec_env", None)):
            with contextlib.suppress(Exception):
                if layer is not None and 0 < int(getattr(layer, name)) <= 10**6:
                    return int(getattr(layer, name))
    return 0


class EnvCopy:
    """One copy of an environment: arrays in, arrays out. An agent that is absent observes zeros and earns nothing."""

    def __init__(self, env: Any, spec: Spec, max_steps: int, has_masks: bool = False, address: str = "") -> None:
        self.env, self.spec, self.max_steps, self.has_masks = env, spec, max_steps, has_masks
        self._address = address
        spaces = [env.observation_space(agent) for agent in spec.agents]
        self._encode = [flattener(space) for space in spaces]
        self._masked = [mask_key(space) for space in spaces]
        self._decode = [
            from_learner(env.action_space(agent), own) for agent, own in zip(spec.agents, spec.action_spaces, strict=True)
        ]
        self._obs_shape = spec.obs_mask.shape
        self.obs = np.zeros(self._obs_shape, np.float32)
        self.alive = np.zeros(spec.num_agents, bool)
        self.legal = np.ones(spec.act_mask.shape, bool) if has_masks else None
        """[N, A]: which action entries are legal now; None if the environment has no action masks."""
        self.infos: Mapping[str, Any] = {}
        """The infos of the last reset or step, by agent."""
        self.length = 0

    def reset(self, seed: int) -> None:
        """Starts an episode; the same seed starts the same one in environments that respect seeds."""
        seen, self.infos = self.env.reset(seed=seed)
        self.obs, self.alive = self._observations(seen)
        self.legal = self._legal(seen)
        self.length = 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """Takes a step with action vectors [N, A]; returns next_obs, reward, terminated and whether the episode is over."""
        agents = self.spec.agents
        chosen = {agent: self._decode[i](action[i]) for i, agent in enumerate(agents) if self.alive[i]}
        seen, rewards, terminated, truncated, self.infos = self.env.step(chosen)
        self.length += 1
        next_obs, _ = self._observations(seen)
        reward, ended, alive = np.zeros(len(agents), np.float32), ~self.alive, self.alive.copy()
        for i, agent in enumerate(agents):
            if not self.alive[i]:
                continue
            reward[i] = self._reward(agent, rewards.get(agent, 0.0))
            over = bool(terminated.get(agent, agent not in seen))
            ended[i] = over
            alive[i] = not (over or truncated.get(agent, False))
        if not self.alive.all():
            for agent in self.env.agents:
                if not self.alive[i := agents.index(agent)]:  # joined in the middle of the episode
                    alive[i], ended[i] = True, False
        done = not alive.any() or self.length >= self.max_steps
        self.obs, self.alive, self.legal = next_obs, alive, self._legal(seen)
        return next_obs, reward, ended, done

    def _reward(self, agent: str, reward: Any) -> float:
        if np.size(reward) != 1:
            raise UsageError(_vector_reward(self._address, agent, np.size(reward)))
        return float(np.ravel(reward)[0])

    def _observations(self, seen: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        obs, there = np.zeros(self._obs_shape, np.float32), np.zeros(self._obs_shape[0], bool)
        for i, agent in enumerate(self.spec.agents):
            if agent in seen:
                obs[i, : self.spec.obs_sizes[i]] = self._encode[i](seen[agent])
                there[i] = True
        return obs, there

    def _legal(self, seen: Mapping[str, Any]) -> np.ndarray | None:
        if not self.has_masks:
            return None
        legal = np.ones(self.spec.act_mask.shape, bool)
        for i, agent in enumerate(self.spec.agents):
            info = self.infos.get(agent) if isinstance(self.infos, Mapping) else None
            mask = info.get(MASK) if isinstance(info, Mapping) else None
            if self._masked[i] and agent in seen and mask is not NOTHING_LEGAL:
                mask = seen[agent][MASK]
            if mask is not None:
                legal[i, : self.spec.act_sizes[i]] = legal_entries(self.spec.action_spaces[i], mask, agent)
        return legal


LAST = ("is_success", "success")
"""Infos whose last value describes an episode; of all others the mean does. An episode without them has no success."""
TAKEN = ("length", "return_sum", "team", "return")
"""Names that the metrics table already uses."""


class InfoMetrics:
    """Collects the numbers of an episode's infos: one number per name, averaged over the agents that report it."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._last: dict[str, dict[str, float]] = {}

    def add(self, infos: Any) -> None:
        """Adds the infos of a step, by agent."""
        for agent, info in infos.items() if isinstance(infos, Mapping) else ():
            for name, value in info.items() if isinstance(info, Mapping) else ():
                number = _finite_number(value) if isinstance(name, str) and name != MASK else None
                if number is None:
                    continue
                if name in LAST:
                    self._last.setdefault(name, {})[agent] = number
                else:
                    self._sums[name] = self._sums.get(name, 0.0) + number
                    self._counts[name] = self._counts.get(name, 0) + 1

    def result(self) -> dict[str, float]:
        """Returns the episode's numbers by name."""
        last = {name: float(np.mean(list(values.values()))) for name, values in self._last.items()}
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        return last | {_free_name(name): value for name, value in means.items()}


def episode_metrics(episodes: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    """Returns one array over the episodes per name, in alphabetical order; NaN where an episode lacks the number."""
    names = sorted({name for episode in episodes for name in episode})
    return {name: np.array([e.get(name, 0.0 if name in LAST else np.nan) for e in episodes]) for name in names}


def _finite_number(value: Any) -> float | None:
    """Returns a number or truth value as a float; None for anything else, and for numbers that are not finite."""
    if not isinstance(value, bool | int | float | np.number | np.bool_ | np.ndarray) or np.size(value) != 1:
        return None
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        number = float(np.ravel(value)[0])
        return number if np.isfinite(number) else None
    return None


def _free_name(name: str) -> str:
    """Returns the metric's name in the table: slashes would make it a column by agent or team."""
    return f"info_{name}".replace("/", "_") if name.split("/")[0] in TAKEN else name.replace("/", "_")


def legal_entries(space: ActionSpace, mask: Any, agent: str = "the agent") -> np.ndarray:
    """Returns which entries of an action vector a native mask allows: [size], at least one in each head.

    Where the mask allows nothing, as for an agent that waits for its turn, the first choice is a placeholder. A mask of
    several heads holds them side by side, or is a tuple of one mask per head. Continuous actions have no mask.
    """
    if not isinstance(space, Discrete):
        return np.ones(space.size, bool)
    flat = np.zeros(space.size, bool)
    if mask is not NOTHING_LEGAL:
        parts = mask if isinstance(mask, tuple | list) else (mask,)
        flat = np.concatenate([np.ravel(np.asarray(part)) for part in parts]).astype(bool)
        if flat.size != space.size:
            raise UsageError(f"the action mask of {agent} has {flat.size} entries, and its actions have {space.size}.")
        flat = flat.copy()
    for start, stop in pairwise(np.cumsum((0, *space.heads)).tolist()):
        if not flat[start:stop].any():
            flat[start] = True
    return flat


def flattener(space: Any) -> Callable[[Any], np.ndarray]:
    """Returns the function from a native observation, without its action mask, to a vector."""
    from gymnasium import spaces

    rest = without_mask(space)
    if rest is not space:
        inner, names = flattener(rest), [key for key in space.spaces if key != MASK]
        if len(names) == 1:
            return lambda value: inner(value[names[0]])
        return lambda value: inner({name: value[name] for name in names})
    if isinstance(space, spaces.Box):
        return np.ravel
    return lambda value: np.asarray(spaces.flatten(space, value))


def native(space: Any, own: ActionSpace) -> Callable[[np.ndarray], Any]:
    """Returns the function from an action vector, in the environment's range, to the native action."""
    if isinstance(own, Box):
        low, high, shape, dtype, size = space.low.ravel(), space.high.ravel(), space.shape, space.dtype, own.size
        return lambda vector: np.clip(vector[:size], low, high).astype(dtype).reshape(shape)
    start = np.ravel(getattr(space, "start", 0))
    if type(space).__name__ == "Discrete":
        first = int(start[0])
        return lambda vector: first + own.choices(vector)[0]
    return lambda vector: (np.array(own.choices(vector)) + start).astype(space.dtype).reshape(space.shape)


def from_learner(space: Any, own: ActionSpace) -> Callable[[np.ndarray], Any]:
    """Returns the function from a learner's action vector, real entries in [−1, 1], to the native action."""
    convert = native(space, own)
    if not isinstance(own, Box):
        return convert
    half, middle, size = own.half_width, own.middle, own.size
    return lambda vector: convert(middle + half * vector[:size])


def teams_of(agents: Sequence[str], rules: Sequence[str]) -> tuple[str, ...]:
    """Returns each agent's team: that of the first rule PATTERN=TEAM that matches, else "adversary" if its name starts so."""
    from fnmatch import fnmatchcase

    pairs = []
    for rule in rules:
        pattern, sign, team = rule.partition("=")
        if not sign or not pattern or not team:
            raise UsageError(f"--teams {rule} must have the form NAME=TEAM, such as wolf_*=adversary.")
        if not any(fnmatchcase(agent, pattern) for agent in agents):
            raise UsageError(f"--teams {rule} matches none of the agents {', '.join(agents)}.")
        pairs.append((pattern, team))
    return tuple(
        next((team for pattern, team in pairs if fnmatchcase(agent, pattern)), default_team(agent)) for agent in agents
    )
