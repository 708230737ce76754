"""Numbers in the infos of external environments become metrics of evaluations, in columns that do not change."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv

import counterpoint
from counterpoint.config import EnvSettings
from counterpoint.external.adapters import AgentTuple, InfoMetrics, TurnBased, episode_metrics
from counterpoint.policies.policy import random_team
from counterpoint.training.external import info_columns
from tiny import TINY


class Reaching(gymnasium.Env[Any, Any]):
    """Four steps; reports its time, success at the last one, and something new once a file exists or after two episodes."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)

    def __init__(self, late: bool = False, sign: str = "nowhere") -> None:
        self.late, self.sign, self.episode = late, Path(sign), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time, self.episode = 0, self.episode + 1
        return np.zeros(2, np.float32), {"is_success": True}

    def step(self, action: Any) -> Any:
        self.time += 1
        info: dict[str, Any] = {"time": self.time, "length": 7, "is_success": self.time == 4, "note": "text", "nothing": None}
        if (self.late and self.episode > 2) or self.sign.exists():
            info["surprise"] = 1.0
        return np.zeros(2, np.float32), 1.0, self.time == 4, False, info


def test_success_is_its_last_value_and_other_numbers_are_means() -> None:
    infos = InfoMetrics()
    infos.add(
        {"a": {"is_success": True, "speed": 1, "x/y": np.float32(2)}, "b": {"is_success": True, "speed": np.array([3.0])}}
    )
    infos.add(
        {"a": {"is_success": np.bool_(False), "speed": np.nan, "action_mask": np.ones(2)}, "b": {"name": "b", "list": [1]}}
    )
    infos.add({"a": None, "b": {3: 4.0}})
    infos.add(None)
    assert infos.result() == {"is_success": 0.5, "speed": 2.0, "x_y": 2.0}


def test_names_that_the_table_uses_are_changed() -> None:
    infos = InfoMetrics()
    infos.add({"a": {"length": 1.0, "team/good": 2.0, "return": 3.0}})
    assert infos.result() == {"info_length": 1.0, "info_team_good": 2.0, "info_return": 3.0}


def test_an_episode_that_reports_no_success_has_none() -> None:
    found = episode_metrics([{"success": 1.0, "speed": 2.0}, {"heat": 1.0}])
    assert list(found) == ["heat", "speed", "success"]
    np.testing.assert_array_equal(found["success"], [1.0, 0.0])
    np.testing.assert_array_equal(found["speed"], [2.0, np.nan])


def test_a_team_evaluated_on_a_gymnasium_environment_reports_its_infos() -> None:
    settings = EnvSettings(env=f"{__file__}:Reaching")
    episodes = random_team(settings.build()).evaluate(3)
    np.testing.assert_array_equal(episodes.metrics["is_success"], [1.0, 1.0, 1.0])
    np.testing.assert_array_equal(episodes.metrics["time"], [2.5, 2.5, 2.5])
    np.testing.assert_array_equal(episodes.metrics["info_length"], [7.0] * 3)
    assert set(episodes.metrics) == {"is_success", "time", "info_length"}


def test_a_tuple_of_agents_shares_the_numbers_of_its_info() -> None:
    class Pair(gymnasium.Env[Any, Any]):
        observation_space = spaces.Tuple([spaces.Box(0.0, 1.0, (1,))] * 2)
        action_space = spaces.Tuple([spaces.Discrete(2)] * 2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return (np.zeros(1), np.zeros(1)), {"food": 3, "action_mask": [np.ones(2), np.zeros(2)], "list": [1, 2, 3]}

    _, infos = AgentTuple(Pair()).reset()
    assert infos["agent_1"].keys() == {"food", "action_mask"}
    assert infos["agent_0"]["food"] == 3


def test_the_last_infos_of_a_turn_based_game_are_kept() -> None:
    class Turn(AECEnv):
        """One agent, whose first move ends the game."""

        metadata = {"name": "turn"}  # noqa: RUF012
        possible_agents = ["a"]  # noqa: RUF012

        def reset(self, seed: int | None = None, options: Any = None) -> None:
            self.agents, self.agent_selection = ["a"], "a"
            self.rewards, self._cumulative_rewards = {"a": 0.0}, {"a": 0.0}
            self.terminations, self.truncations, self.infos = {"a": False}, {"a": False}, {"a": {}}

        def step(self, action: Any) -> None:
            if self.terminations["a"]:
                self._was_dead_step(action)
                return
            self.terminations, self.infos = {"a": True}, {"a": {"is_success": True, "action_mask": [1]}}

        def observe(self, agent: str) -> Any:
            return np.zeros(1)

        def observation_space(self, agent: str) -> Any:
            return spaces.Box(0.0, 1.0, (1,))

        def action_space(self, agent: str) -> Any:
            return spaces.Discrete(2)

    game = TurnBased(Turn())
    game.reset()
    assert game.step({"a": 0})[4] == {"a": {"is_success": True}}


def test_columns_are_those_of_the_metrics_table(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    assert info_columns(path) is None
    path.write_text("step,eval/team/good,eval/length,eval/succ")
    assert info_columns(path) is None  # torn: it will be written again
    path.write_text("step,team/good\n")
    assert info_columns(path) is None  # the run may begin to evaluate when it is resumed
    path.write_text("step,eval/team/good,eval/return/agent_0,eval/length,eval/success,eval/time\n")
    assert info_columns(path) == ("success", "time")


@pytest.mark.parametrize("late", [False, True])
def test_a_run_reports_infos_in_columns_that_stay(tmp_path: Path, late: bool) -> None:
    """An info that appears after the first evaluation has no column, before and after the run is resumed."""
    size = {"num_episodes": 16, "update_every": 20, "batch_size": 16, "num_envs": 2}
    words = [f"late={late}", f"sign={tmp_path / 'sign'}"]
    settings: dict[str, Any] = TINY | size | {"env": f"{__file__}:Reaching", "scenario_args": words}
    run = counterpoint.train(**settings, save_dir=str(tmp_path))
    (tmp_path / "sign").touch()
    counterpoint.resume(run, num_episodes=32)
    rows = run.rows()
    own = {name for name in rows[0] if name.startswith("eval/") and name.count("/") == 1}
    assert own == {"eval/length", "eval/is_success", "eval/time", "eval/info_length"}
    assert len(rows) > 2
    assert all(row["eval/is_success"] == 1.0 and row["eval/time"] == 2.5 for row in rows)
