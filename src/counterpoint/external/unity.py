"""Unity builds as PettingZoo environments: those of ML-Agents (`mlagents_envs`) and those of Udacity's course (`unityagents`).

Unity's agents ask for decisions when they like, begin anew by themselves when they end, and are known by numbers. Here they get
names and keep to PettingZoo's episodes: who has ended is left alone, without actions, until everybody has and `reset` is
called. A step lasts until all who still play have acted and then asked for a decision or ended; who asks again sooner
repeats its action.
"""

import re
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from counterpoint.core.errors import UsageError

try:
    from gymnasium import spaces
    from pettingzoo import ParallelEnv
except ModuleNotFoundError:  # an extra: whoever makes an environment is told
    if TYPE_CHECKING:
        raise
    ParallelEnv, spaces = object, None

LONGEST_WAIT = 1000
"""Simulation steps after which an agent that neither asks for a decision nor ends is given up."""

Seat = tuple[str, int]
"""A behaviour (or brain) and the number that Unity gave the agent."""


class Report(NamedTuple):
    """What an agent said after a simulation step."""

    seat: Seat
    obs: np.ndarray
    reward: float
    end: Literal["", "terminated", "truncated"] = ""
    allowed: np.ndarray | None = None
    """[choices of all branches]: 1 where a choice is allowed, if the build says so."""


class Backend(Protocol):
    """One of the two protocols. `spaces` has the size of observations and the action space of every behaviour."""

    spaces: dict[str, tuple[int, Any]]

    def reset(self) -> Iterable[Report]: ...
    def step(self, actions: Mapping[Seat, np.ndarray]) -> Iterable[Report]:
        """Runs one simulation step; ends come before requests, because an agent that restarts may have both."""
        ...

    @property
    def over(self) -> bool:
        """Whether only a reset can follow."""
        ...

    def close(self) -> None: ...


def mlagents(env: Any = None, time_scale: float = 20.0, **arguments: Any) -> "UnityWorld":
    """Opens a build of ML-Agents: a file to start, None for the editor, or a `UnityEnvironment` that is running.

    Further arguments are those of `UnityEnvironment`. A file gets a free port of its own, so several copies may run at once.
    """
    base = _import("mlagents_envs.base_env", "mlagents_envs")
    if env is None or isinstance(env, str):
        channels = import_module("mlagents_envs.side_channel.engine_configuration_channel")
        engine = channels.EngineConfigurationChannel()
        engine.set_configuration_parameters(time_scale=time_scale)
        arguments["side_channels"] = [engine, *arguments.get("side_channels", ())]
        env = import_module("mlagents_envs.environment").UnityEnvironment(file_name=env, **_with_port(env, arguments))
    elif arguments:
        raise UsageError(f"{', '.join(arguments)} can only be given with a file; this environment runs already.")
    return UnityWorld(_MLAgents(env, base.ActionTuple))


def udacity(env: Any, train_mode: bool = True, **arguments: Any) -> "UnityWorld":
    """Opens a build of Udacity's course (Tennis, Reacher, Soccer …): a file to start, or a running `UnityEnvironment`."""
    package = _import("unityagents.environment", "unityagents")
    if not hasattr(package.np, "float_"):  # a name that NumPy 2 no longer has and every step of theirs asks for
        package.np = _OldNumPy("numpy")
    if isinstance(env, str):
        env = package.UnityEnvironment(file_name=env, **_with_port(env, arguments))
    elif arguments:
        raise UsageError(f"{', '.join(arguments)} can only be given with a file; this environment runs already.")
    return UnityWorld(_Udacity(env, train_mode))


def _import(module: str, package: str) -> Any:
    if spaces is None:
        raise UsageError("Unity builds need PettingZoo, which is not installed: pip install 'counterpoint[unity]'.")
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(f"{package} cannot be imported ({error}): docs/unity.md says how to install it.") from None


class _OldNumPy(ModuleType):
    """NumPy with the names that `unityagents` 0.4 still uses."""

    float_ = np.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def _with_port(file: str | None, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments with a free port, if a build will be started and no port was given."""
    if file is None or arguments.keys() & {"base_port", "worker_id"}:
        return arguments
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return {**arguments, "base_port": probe.getsockname()[1]}


class UnityWorld(ParallelEnv):
    """A Unity build in PettingZoo's words. Who plays is settled by the first reset: the same number per behaviour each time."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.metadata = {"name": "unity", "render_modes": [], "is_parallelizable": True}
        self.render_mode = None
        # Only how many there are counts: Unity numbers its agents anew as it likes.
        cast = Counter(behaviour for behaviour, _ in {report.seat for report in backend.reset() if not report.end})
        if not cast:
            raise UsageError("no agent of this Unity build asks for decisions: check the behaviour type of its agents.")
        plain = {behaviour: re.sub(r"[^A-Za-z0-9]+", "_", behaviour) for behaviour in sorted(cast)}
        self._names = {behaviour: [f"{name}_{k}" for k in range(cast[behaviour])] for behaviour, name in plain.items()}
        kinds = {name: backend.spaces[behaviour] for behaviour, names in self._names.items() for name in names}
        self.possible_agents = list(kinds)
        self.agents = []
        self.observation_spaces = {name: spaces.Box(-np.inf, np.inf, (size,), np.float32) for name, (size, _) in kinds.items()}
        self.action_spaces = {name: space for name, (_, space) in kinds.items()}
        self._seats: dict[Seat, str] = {}
        self._latest: dict[str, Report] = {}
        self._asking: set[str] = set()

    def observation_space(self, agent: str) -> "spaces.Space":
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> "spaces.Space":
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Starts a new episode for all agents. Unity takes a seed only when it starts: a seed given here has no effect."""
        fresh = {report.seat: report for report in self._backend.reset() if not report.end}
        self._seats = {}
        for behaviour in {behaviour for behaviour, _ in fresh}:
            present = sorted(seat for seat in fresh if seat[0] == behaviour)
            names = self._names.get(behaviour, [])
            if len(present) > len(names):
                raise UsageError(
                    f"{behaviour} has {len(present)} agents where it began with {len(names)}: their number must not grow."
                )
            self._seats |= dict(zip(present, names, strict=False))
        self._latest = {self._seats[seat]: report for seat, report in fresh.items()}
        self.agents = [name for name in self.possible_agents if name in self._latest]
        self._asking = set(self.agents)
        return self._observations(), self._infos()

    def step(self, actions: Mapping[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Runs the simulation until every agent that still plays has acted and then asked for a decision or ended."""
        if not self._seats:
            raise UsageError("this Unity build has not begun: call reset() first.")
        chosen = {name: self._action(name, actions) for name in self.agents}
        rewards = dict.fromkeys(chosen, 0.0)
        acted, waiting = set[str](), set(chosen)
        for _ in range(LONGEST_WAIT):
            if not waiting:
                break
            acted |= self._asking
            for name, report in self._simulate(chosen):
                rewards[name] += report.reward
                if report.end or name in acted:
                    waiting.discard(name)
            if self._backend.over:  # whoever said nothing has run out of time with the rest
                self._latest |= {name: self._latest[name]._replace(end="truncated") for name in waiting}
                waiting.clear()
        if waiting:
            raise UsageError(f"{min(waiting)} has neither asked for a decision nor ended in {LONGEST_WAIT} simulation steps.")
        terminated = {name: self._latest[name].end == "terminated" for name in chosen}
        truncated = {name: self._latest[name].end == "truncated" for name in chosen}
        result = self._observations(), rewards, terminated, truncated, self._infos()
        self.agents = [name for name in self.agents if not self._latest[name].end]
        return result

    def _simulate(self, chosen: Mapping[str, np.ndarray]) -> list[tuple[str, Report]]:
        """Runs one simulation step and records what the agents that still play report."""
        reports = self._backend.step({self._latest[name].seat: chosen[name] for name in self._asking})
        heard = []
        for report in reports:
            name = self._seats.get(report.seat, "")
            if name in chosen and not self._latest[name].end:  # not who came later, nor who has ended and begun anew
                self._latest[name] = report
                heard.append((name, report))
        self._asking = {name for name, report in heard if not report.end}
        return heard

    def close(self) -> None:
        self._backend.close()

    def _action(self, name: str, actions: Mapping[str, Any]) -> np.ndarray:
        space, given = self.action_spaces[name], actions.get(name)
        if given is None:
            raise UsageError(f"{name} has no action; step() needs one for each of {', '.join(self.agents)}.")
        vector = np.asarray(given)
        if isinstance(space, spaces.Box):
            if vector.shape == space.shape and np.isfinite(vector).all():
                return np.clip(vector, -1.0, 1.0).astype(np.float32)
        elif space.contains(vector if isinstance(space, spaces.MultiDiscrete) else given):
            return vector.reshape(-1).astype(np.int32)
        raise UsageError(f"{name} cannot take action {given!r}: give one of {space}.")

    def _observations(self) -> dict[str, np.ndarray]:
        return {name: np.array(self._latest[name].obs, np.float32) for name in self.agents}

    def _infos(self) -> dict[str, dict]:
        allowed = {name: self._latest[name].allowed for name in self.agents}
        return {name: {} if mask is None else {"action_mask": mask} for name, mask in allowed.items()}


def _action_space(behaviour: str, continuous: int, branches: tuple[int, ...]) -> Any:
    if continuous and branches:
        raise UsageError(
            f"{behaviour} has {continuous} continuous and {len(branches)} discrete actions at once: give it one kind only."
        )
    if continuous:
        return spaces.Box(-1.0, 1.0, (continuous,), np.float32)
    if not branches:
        raise UsageError(f"{behaviour} has no actions at all: nothing can be learnt for it.")
    return spaces.Discrete(int(branches[0])) if len(branches) == 1 else spaces.MultiDiscrete([int(n) for n in branches])


def _flat(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Returns all observations of an agent as one vector, cameras included."""
    return np.concatenate([np.asarray(part, np.float32).reshape(-1) for part in parts])


class _MLAgents:
    """The low-level interface of `mlagents_envs`."""

    over = False

    def __init__(self, env: Any, action_tuple: Any) -> None:
        self.env, self.action_tuple = env, action_tuple
        self.spaces: dict[str, tuple[int, Any]] = {}

    def reset(self) -> list[Report]:
        self.env.reset()
        return self._reports()

    def step(self, actions: Mapping[Seat, np.ndarray]) -> list[Report]:
        for (behaviour, number), action in actions.items():  # who is left out gets zeros from theirs
            kind = {"continuous" if action.dtype == np.float32 else "discrete": action[None]}
            self.env.set_action_for_agent(behaviour, number, self.action_tuple(**kind))
        self.env.step()
        return self._reports()

    def close(self) -> None:
        self.env.close()

    def _reports(self) -> list[Report]:
        ended, asking = [], []
        for behaviour, spec in self.env.behavior_specs.items():  # new ones may come at any time
            if behaviour not in self.spaces:
                size = sum(int(np.prod(part.shape)) for part in spec.observation_specs)
                action = spec.action_spec
                self.spaces[behaviour] = size, _action_space(behaviour, action.continuous_size, tuple(action.discrete_branches))
            decision, terminal = self.env.get_steps(behaviour)
            for number in terminal:
                step = terminal[number]
                end = "truncated" if step.interrupted else "terminated"
                ended.append(Report((behaviour, int(number)), _flat(step.obs), float(step.reward + step.group_reward), end))
            for number in decision:
                step = decision[number]
                allowed = None if step.action_mask is None else 1 - np.concatenate(step.action_mask).astype(np.int8)
                reward = float(step.reward + step.group_reward)
                asking.append(Report((behaviour, int(number)), _flat(step.obs), reward, allowed=allowed))
        return ended + asking


class _Udacity:
    """The interface of `unityagents` 0.4.

    In these builds an agent that ends begins anew before it is asked what it sees, so the observation that comes with the end
    belongs to the next episode. The last one before it stands in: it decides nothing where the game ended, and where time was
    up it is a step old.
    """

    def __init__(self, env: Any, train_mode: bool) -> None:
        self.env, self.train_mode = env, train_mode
        self.spaces: dict[str, tuple[int, Any]] = {}
        self._order: dict[str, list[int]] = {}
        self._last: dict[Seat, np.ndarray] = {}

    @property
    def over(self) -> bool:
        return bool(self.env.global_done)

    def reset(self) -> list[Report]:
        self._last = {}
        return self._reports(self.env.reset(train_mode=self.train_mode), beginning=True)

    def step(self, actions: Mapping[Seat, np.ndarray]) -> list[Report]:
        wanted = {}
        for brain, numbers in self._order.items():
            nothing = np.zeros(_width(self.spaces[brain][1])) if brain in self.spaces else np.zeros(1)
            wanted[brain] = np.array([actions.get((brain, number), nothing) for number in numbers], np.float64)
        return self._reports(self.env.step(vector_action=wanted), beginning=False)

    def close(self) -> None:
        self.env.close()

    def _reports(self, infos: Mapping[str, Any], beginning: bool) -> list[Report]:
        reports = []
        for brain in self.env.external_brain_names:
            info = infos[brain]
            self._order[brain] = [int(number) for number in info.agents]
            for k, number in enumerate(self._order[brain]):
                seat = (brain, number)
                obs = _flat([info.vector_observations[k], *(camera[k] for camera in info.visual_observations)])
                if brain not in self.spaces:
                    about = self.env.brains[brain]
                    size, discrete = int(about.vector_action_space_size), about.vector_action_space_type == "discrete"
                    self.spaces[brain] = obs.size, _action_space(brain, size * (not discrete), (size,) * discrete)
                end = ""
                if not beginning and (info.local_done[k] or self.over):
                    end = "truncated" if info.max_reached[k] else "terminated"
                seen = self._last.get(seat, obs) if end else obs
                self._last[seat] = obs
                reports.append(Report(seat, seen, float(info.rewards[k]), end))
        return reports


def _width(space: Any) -> int:
    return space.shape[0] if isinstance(space, spaces.Box) else 1
