"""Small environments in the words of other libraries, for tests of worlds that are not ours."""

import os
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
    """Three agents of different kinds; "walker" is done after two steps, the episode after `last`. Keeps what it was told."""

    metadata: ClassVar[dict[str, Any]] = {"name": "zoo", "render_modes": ["rgb_array"]}

    def __init__(self, last: int = 5, render_mode: str | None = None, trouble: str = "") -> None:
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
        """Once (a file remembers) or always: dies, hangs or fails in the third step."""
        if not self.trouble or self.time != 3:
            return
        kind, _, file = self.trouble.partition(":")
        if file:
            if Path(file).exists():
                return
            Path(file).touch()
        if kind == "die":
            os.kill(os.getpid(), 9)
        if kind == "hang":
            time.sleep(1000)
        raise ValueError("the walls fell down")

    def render(self) -> np.ndarray:
        return np.full((40, 60, 3), 40 * self.time % 256, np.uint8)


class Forgetful(Zoo):
    """Does not care for seeds."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        return super().reset(seed=None)


class Turns(AECEnv):
    """Two players who move one after the other, three times."""

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
    """Actions of a kind nobody here learns."""

    def action_space(self, agent: str) -> Any:
        return spaces.Text(5)


NOT_AN_ENV = 3
