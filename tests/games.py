"""Small PettingZoo and Gymnasium environments for tests of external environments."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

SEES = {
    "walker": spaces.Dict({"here": spaces.Discrete(3), "there": spaces.Box(-1.0, 1.0, (2, 2))}),
    "adversary_0": spaces.Tuple((spaces.MultiBinary(2), spaces.Box(0.0, 5.0, (1,)))),
    "mixer": spaces.Box(-np.inf, np.inf, (3,)),
}
DOES = {
    "walker": spaces.Discrete(3, start=-1),
    "adversary_0": spaces.MultiDiscrete([2, 4], start=[0, 1]),
    "mixer": spaces.Box(np.array([0.0, -2.0], np.float32), np.array([1.0, 6.0], np.float32)),
}


class Zoo(ParallelEnv):
    """Three agents of different kinds; "walker" is done after two steps, the episode after `last`. Records its actions.

    Every opening adds a line to the file `opened`: the process and the render mode.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "zoo", "render_modes": ["rgb_array"]}

    def __init__(self, last: int = 5, render_mode: str | None = None, trouble: str = "", opened: str = "") -> None:
        if opened:
            with Path(opened).open("a") as file:
                file.write(f"{os.getpid()} {render_mode}\n")
        self.possible_agents = list(SEES)
        self.last, self.render_mode, self.trouble = last, render_mode, trouble
        self.agents: list[str] = []
        self.told: list[dict[str, Any]] = []

    def observation_space(self, agent: str) -> Any:
        return SEES[agent]

    def action_space(self, agent: str) -> Any:
        return DOES[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.rng, self.time, self.agents = np.random.default_rng(seed), 0, list(SEES)
        return self._seen(), {agent: {} for agent in self.agents}

    def _seen(self) -> dict[str, Any]:
        draw = self.rng.random(3).astype(np.float32)
        seen = {
            "walker": {"here": self.time % 3, "there": np.full((2, 2), draw[0], np.float32)},
            "adversary_0": (np.array([1, 0], np.int8), draw[1:2]),
            "mixer": draw,
        }
        return {agent: seen[agent] for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        assert set(actions) == set(self.agents)
        assert all(DOES[agent].contains(action) for agent, action in actions.items())
        self.told.append(actions)
        self.time += 1
        self._misbehave()
        rewards = {agent: float(self.time) for agent in self.agents}
        terminated = {agent: agent == "walker" and self.time == 2 for agent in self.agents}
        truncated = dict.fromkeys(self.agents, self.time >= self.last)
        seen = self._seen()
        self.agents = [a for a in self.agents if not (terminated[a] or truncated[a])]
        return seen, rewards, terminated, truncated, {agent: {} for agent in rewards}

    def _misbehave(self) -> None:
        """Dies, hangs or fails in the third step: once (a file remembers it) or always."""
        if not self.trouble or self.time != 3:
            return
        kind, _, file = self.trouble.partition(":")
        if file:
            try:
                Path(file).touch(exist_ok=False)  # of two processes, only one misbehaves
            except FileExistsError:
                return
        if kind == "fork":  # starts a child that outlives it, prints without end, and hangs
            child = subprocess.Popen(["sleep", "1000"])
            Path(file).write_text(str(child.pid))
            print("noise " * 1_000_000, flush=True)
            time.sleep(1000)
        if kind == "die":
            os.kill(os.getpid(), 9)
        if kind == "hang":
            time.sleep(1000)
        raise ValueError("the walls fell down")

    def render(self) -> np.ndarray:
        return np.full((40, 60, 3), 40 * self.time % 256, np.uint8)


class Forgetful(Zoo):
    """Ignores seeds."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        return super().reset(seed=None)


class Turns(AECEnv):
    """Two players who move one after the other, three times; an action is its player's reward."""

    metadata: ClassVar[dict[str, Any]] = {"name": "turns", "is_parallelizable": True}

    def __init__(self) -> None:
        self.possible_agents = ["left", "right"]
        self.render_mode = None

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0.0, 10.0, (1,))

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.time, self.agent_selection = 0, "left"

    def observe(self, agent: str) -> np.ndarray:
        return np.array([self.time], np.float32)

    def step(self, action: int) -> None:
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
            return
        agent = self.agent_selection
        self._cumulative_rewards[agent] = 0.0
        self.rewards = {name: float(name == agent and action) for name in self.agents}
        if agent == "right":
            self.time += 1
            self.terminations = dict.fromkeys(self.agents, self.time >= 3)
        self.agent_selection = "left" if agent == "right" else "right"
        self._accumulate_rewards()


class StrictTurns(Turns):
    """The same game, which PettingZoo cannot make parallel."""

    metadata: ClassVar[dict[str, Any]] = {"name": "strict turns", "is_parallelizable": False}


class Masked(ParallelEnv):
    """Two agents with action masks: "left" has them in its observations, "right" in its infos, over two heads.

    In each step of an episode of six, one action of "left" and one choice of each head of "right" are illegal. The reward is 1
    for the largest legal choice.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "masked"}

    def __init__(self) -> None:
        self.possible_agents = ["left", "right"]
        self.render_mode = None

    def observation_space(self, agent: str) -> Any:
        if agent == "right":
            return spaces.Box(0.0, 1.0, (5,))
        return spaces.Dict({"observation": spaces.Box(0.0, 1.0, (3,)), "action_mask": spaces.MultiBinary(3)})

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3) if agent == "left" else spaces.MultiDiscrete([2, 3])

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.rng, self.time, self.agents = np.random.default_rng(seed), 0, self.possible_agents[:]
        return self._next()

    def _next(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self.masks = [np.ones(width, np.int8) for width in (3, 2, 3)]
        for mask in self.masks:
            mask[self.rng.integers(len(mask))] = 0
        left, *right = self.masks
        seen = {"left": {"observation": left.astype(np.float32), "action_mask": left}}
        seen["right"] = np.concatenate(right).astype(np.float32)
        return seen, {"left": {}, "right": {"action_mask": np.concatenate(right)}}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        chosen = [actions["left"], *actions["right"]]
        assert all(mask[choice] for mask, choice in zip(self.masks, chosen, strict=True)), "an illegal action"
        best = [float(choice == np.flatnonzero(mask)[-1]) for mask, choice in zip(self.masks, chosen, strict=True)]
        self.time += 1
        seen, infos = self._next()
        over = dict.fromkeys(self.agents, self.time >= 6)
        if self.time >= 6:
            self.agents = []
        return seen, {"left": best[0], "right": (best[1] + best[2]) / 2}, dict.fromkeys(over, False), over, infos


class Match(ParallelEnv):
    """A probe: each of two agents sees a bit and is to choose the same; both are paid for the number of right choices."""

    metadata: ClassVar[dict[str, Any]] = {"name": "match"}

    def __init__(self, last: int = 4) -> None:
        self.possible_agents, self.last, self.render_mode = ["one", "two"], last, None

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0.0, 1.0, (2,))

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.rng, self.time, self.agents = np.random.default_rng(seed), 0, self.possible_agents[:]
        return self._next(), {agent: {} for agent in self.agents}

    def _next(self) -> dict[str, Any]:
        self.bits = dict(zip(self.possible_agents, self.rng.integers(2, size=2).tolist(), strict=True))
        return {agent: np.eye(2, dtype=np.float32)[bit] for agent, bit in self.bits.items()}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        right = sum(actions[agent] == bit for agent, bit in self.bits.items())
        self.time += 1
        over = dict.fromkeys(self.possible_agents, self.time >= self.last)
        if self.time >= self.last:
            self.agents = []
        return self._next(), dict.fromkeys(over, right / 2), dict.fromkeys(over, False), over, {agent: {} for agent in over}


class Foragers(gymnasium.Env):
    """Two agents as Gymnasium tuples, as lbforaging and rware have them: rewards are a list, termination is one value."""

    observation_space = spaces.Tuple((spaces.Box(0.0, 9.0, (2,)), spaces.Box(0.0, 9.0, (3,))))
    action_space = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3)))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._seen(), {}

    def _seen(self) -> tuple[np.ndarray, ...]:
        return np.full(2, self.time, np.float32), np.full(3, self.time + 1, np.float32)

    def step(self, action: Any) -> tuple[tuple[np.ndarray, ...], list[float], bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.time += 1
        return self._seen(), [float(a) for a in action], self.time >= 3, False, {}


class Objectives(Zoo):
    """Rewards of two numbers, undeclared."""

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        seen, rewards, *rest = super().step(actions)
        return seen, {agent: np.array([reward, -reward]) for agent, reward in rewards.items()}, *rest


class DeclaredObjectives(Objectives):
    """Rewards of two numbers, declared as multi-objective libraries do."""

    def reward_space(self, agent: str) -> Any:
        return spaces.Box(-9.0, 9.0, (2,))


class Cameras(Zoo):
    """Twenty agents that see images."""

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = [f"camera_{i}" for i in range(20)]

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 255, (457, 120, 3), np.uint8)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {}


class Count(gymnasium.Env):
    """One agent, four steps, the reward is its action."""

    observation_space = spaces.Box(0.0, 4.0, (1,))
    action_space = spaces.Box(-3.0, 3.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.full(1, self.time, np.float32), float(action[0]), False, self.time >= 4, {}


class Endless(Zoo):
    """Actions without bounds."""

    def action_space(self, agent: str) -> Any:
        return spaces.Box(-np.inf, np.inf, (1,))


class Wordy(Zoo):
    """Actions of an unsupported kind."""

    def action_space(self, agent: str) -> Any:
        return spaces.Text(5)


NOT_AN_ENV = 3
