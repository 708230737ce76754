"""Runs on external environments: opened once, trained, resumed to the same bits, with masks, seeds, COMA and scripts."""

import csv
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint
import games
from counterpoint.external.environment import open_environment
from counterpoint.policies.policy import random_team
from counterpoint.training import train as experiment
from tiny import HOME, TINY

ZOO = f"{games.__file__}:Zoo"
SMALL: dict[str, Any] = TINY | {"env": ZOO, "num_episodes": 40, "update_every": 20, "batch_size": 16, "num_envs": 2}
MATCH: dict[str, Any] = {
    **{"env": f"{games.__file__}:Match", "algorithm": "coma", "num_envs": 4, "update_every": 64, "num_episodes": 1600},
    **{"lr": 5e-3, "critic_lr": 1e-2, "num_units": 16, "epsilon_steps": 3000, "devices": 1, "workers": 2, "gamma": 0.5},
    **{"report_every": 400, "save_rate": 400, "eval_episodes": 50, "plots_dir": "", "max_episode_len": 4},
}


def rows_of(run: Any) -> list[dict[str, str]]:
    with (run.path / "metrics.csv").open() as file:
        return [{k: v for k, v in row.items() if k not in ("seconds", "steps_per_second")} for row in csv.DictReader(file)]


def bits(run: Any) -> dict[str, np.ndarray]:
    return run.load_policy()[0]


@cache
def whole() -> Any:
    """A run of the zoo that nothing disturbed."""
    return counterpoint.train(**SMALL, save_dir=str(HOME / "runs"), exp_name="whole-zoo")


class Impatient(experiment.Progress):
    """Interrupts the run, once, after that many episodes."""

    def __init__(self, episodes: int) -> None:
        super().__init__()
        self.episodes = episodes

    def report(self, row: dict[str, Any]) -> None:
        if row["episode"] >= self.episodes:
            self.episodes = 10**9
            os.kill(os.getpid(), signal.SIGINT)


def assert_same(one: Any, other: Any) -> None:
    assert rows_of(one) == rows_of(other)
    assert bits(one).keys() == bits(other).keys()
    for name, value in bits(one).items():
        np.testing.assert_array_equal(bits(other)[name], value)


def test_a_run_is_the_same_after_an_interruption_and_a_lost_process(tmp_path: Path) -> None:
    """Stopped in the middle of episodes and resumed, and with a process killed on the way."""
    once = tmp_path / "once"
    troubled: dict[str, Any] = SMALL | {"scenario_args": (f"trouble=die:{once}",)}
    with pytest.raises(experiment.Interrupted):
        counterpoint.train(progress=Impatient(16), **troubled, save_dir=str(tmp_path), exp_name="cut")
    cut = counterpoint.resume(tmp_path / "cut")
    assert once.exists()
    assert_same(cut, whole())
    assert rows_of(whole())[-1]["length"] == "5.0"


def test_the_main_process_opens_the_environment_once_before_training(tmp_path: Path) -> None:
    """Workers open a copy per environment, the evaluation worker one for all evaluations; the film opens one that draws."""
    opened = tmp_path / "opened"
    settings: dict[str, Any] = SMALL | {"scenario_args": (f"opened={opened}",), "workers": 2}
    run = counterpoint.train(**settings, save_dir=str(tmp_path), exp_name="zoo")
    lines = [line.split() for line in opened.read_text().splitlines()]
    main = str(os.getpid())
    assert [mode for process, mode in lines if process == main] == ["None", "rgb_array"]
    others = [process for process, _ in lines if process != main]
    assert len(rows_of(run)) > 2  # with an evaluation each
    assert len(others) == 2 + 1
    assert len(set(others)) == 3


def test_a_trained_policy_acts_in_the_environment_itself() -> None:
    run = whole()
    policy = counterpoint.load(run)
    env = games.Zoo()
    seen, _ = env.reset(seed=1)
    env.step(policy.act(seen))  # the environment itself asserts that its spaces contain the actions
    assert run.gif_path.stat().st_size > 100
    returns = policy.evaluate(3).returns
    np.testing.assert_array_equal(returns, [[3, 15, 15]] * 3)


def test_reports_say_how_much_the_actions_of_each_agent_vary() -> None:
    last = rows_of(whole())[-1]
    varied = {name: float(cell) for name, cell in last.items() if name.startswith(("eval/action_var", "eval/at_bound"))}
    assert sorted(varied) == [
        *(f"eval/action_variation/{agent}" for agent in ("adversary_0", "mixer", "walker")),
        "eval/at_bound/mixer",
    ]
    assert all(0 <= value <= 1 for value in varied.values())
    count = counterpoint.load(whole()).evaluate(2).actions.count
    np.testing.assert_array_equal(count[..., 0], [[2, 5, 5]] * 2)  # the walker leaves after two steps


def test_a_factory_may_be_given_as_it_is_and_teams_as_a_mapping(tmp_path: Path) -> None:
    settings: dict[str, Any] = SMALL | {"env": games.Zoo, "teams": {"mixer": "adversary"}, "num_episodes": 10}
    run = counterpoint.train(**settings, save_dir=str(tmp_path), exp_name="zoo")
    assert run.config["world"]["env"] == "games:Zoo"
    assert "team/adversary" in rows_of(run)[-1]


def test_several_seeds_train_in_one_run_as_each_would_alone(tmp_path: Path) -> None:
    """Resumed to the same bits, too; rows of all seeds in one table, their policies in one file."""
    settings: dict[str, Any] = SMALL | {"save_dir": str(tmp_path), "seed": 3}
    both = counterpoint.train(**settings, num_seeds=2, exp_name="both")
    alone = counterpoint.train(**settings | {"seed": 4}, exp_name="alone")
    for name, value in bits(alone).items():
        np.testing.assert_array_equal(bits(both)[name][1:], value)
    rows = rows_of(both)
    assert [row["seed"] for row in rows] == ["3", "4"] * (len(rows) // 2)
    assert [row for row in rows if row["seed"] == "4"] == rows_of(alone)
    with pytest.raises(experiment.Interrupted):
        counterpoint.train(**settings, num_seeds=2, exp_name="cut", progress=Impatient(16))
    assert_same(counterpoint.resume(tmp_path / "cut"), both)
    second = counterpoint.load(both, seed_index=1)
    np.testing.assert_array_equal(second.evaluate(1).returns, counterpoint.load(alone).evaluate(1).returns)


def test_coma_learns_from_rollouts_of_its_own_policy_and_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """The probe pays 4 per episode for choices that follow what each agent sees; chance earns 2."""
    whole = counterpoint.train(**MATCH, save_dir=str(tmp_path), exp_name="whole")
    assert float(rows_of(whole)[-1]["eval/return/one"]) > 3.6
    with pytest.raises(experiment.Interrupted):
        counterpoint.train(progress=Impatient(800), **MATCH, save_dir=str(tmp_path), exp_name="cut")
    assert_same(counterpoint.resume(tmp_path / "cut"), whole)


def test_learning_under_masks(tmp_path: Path) -> None:
    """The best legal choices earn 6 per episode; legal choices at random earn 3 and 3."""
    settings: dict[str, Any] = SMALL | {
        "env": f"{games.__file__}:Masked",
        "max_episode_len": 6,
        "num_episodes": 1500,
        "update_every": 12,
    }
    settings |= {"lr": 3e-3, "gamma": 0.5, "num_units": 32, "batch_size": 128, "report_every": 500, "save_rate": 500}
    settings |= {"update_every": 12}
    run = counterpoint.train(**settings | {"eval_episodes": 30}, save_dir=str(tmp_path), exp_name="masked")
    last = rows_of(run)[-1]
    assert float(last["eval/return/left"]) > 5
    assert float(last["eval/return/right"]) > 5
    policy, env = counterpoint.load(run), games.Masked()
    seen, infos = env.reset(seed=5)
    masks = {"left": seen["left"]["action_mask"], "right": infos["right"]["action_mask"]}
    env.step(policy.act(seen, legal=masks))  # the environment itself asserts that the actions are legal


def test_a_random_team_is_legal_and_finds_no_favourites() -> None:
    team = random_team(open_environment(f"{games.__file__}:Masked", {}, (), 0))
    returns = np.asarray(team.evaluate(200).returns)
    np.testing.assert_allclose(returns.mean(axis=0), [3, 4.5], atol=0.3)


TICTACTOE: dict[str, Any] = {
    **{"env": "pettingzoo.classic.tictactoe_v3:env", "max_episode_len": 10, "num_envs": 4, "workers": 2, "devices": 1},
    **{"report_every": 2000, "save_rate": 10_000, "eval_episodes": 20, "plots_dir": ""},
}


def against_random(run: Any, player: str, games_played: int, seed: int = 0) -> float:
    """Returns the mean result (win 1, loss −1) of a trained player against uniform legal moves."""
    from pettingzoo.classic import tictactoe_v3

    policy, rng, total = counterpoint.load(run), np.random.default_rng(seed), 0.0
    for _ in range(games_played):
        env = tictactoe_v3.env()
        env.reset(seed=0)
        for agent in env.agent_iter():
            seen, reward, terminated, truncated, _ = env.last()
            if agent == player:
                total += reward
            if terminated or truncated:
                env.step(None)
            elif agent == player:
                env.step(policy.act({agent: seen}, legal={agent: seen["action_mask"]})[agent])
            else:
                env.step(int(rng.choice(np.flatnonzero(seen["action_mask"]))))
    return total / games_played


@pytest.mark.filterwarnings("ignore")  # theirs, not ours
def test_tictactoe_trains_against_itself(tmp_path: Path) -> None:
    settings: dict[str, Any] = TICTACTOE | TINY | {"num_episodes": 40, "update_every": 40, "batch_size": 32, "warmup": 40}
    run = counterpoint.train(**settings, save_dir=str(tmp_path), exp_name="board")
    last = rows_of(run)[-1]
    assert 5 <= float(last["length"]) <= 9
    assert float(last["return/player_1"]) == -float(last["return/player_2"])
    assert -1 <= against_random(run, "player_2", 5) <= 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # theirs, not ours
def test_tictactoe_learnt_against_itself_beats_a_random_player(tmp_path: Path) -> None:
    """Two random players: the first earns 0.30 per game, the second −0.30."""
    run = counterpoint.train(**TICTACTOE, **LEARN_TICTACTOE, save_dir=str(tmp_path), exp_name="board")
    assert against_random(run, "player_1", 400) > 0.75
    assert against_random(run, "player_2", 400) > 0.35


LEARN_TICTACTOE: dict[str, Any] = {
    **{"num_episodes": 20_000, "update_every": 40, "batch_size": 256, "warmup": 2000, "lr": 1e-3, "num_units": 128},
    **{"gamma": 0.95, "tau": 0.01},
}

GAME = """
import sys
import gymnasium, numpy as np
import counterpoint

with open({log!r}, "a") as file:
    file.write("ran\\n")
{extra}
class Coin(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        {touch}
        self.time = 0
        return np.zeros(1, np.float32), {{}}

    def step(self, action):
        self.time += 1
        return np.ones(1, np.float32), float(action), False, self.time >= 4, {{}}

{guard}
    run = counterpoint.train(
        env=Coin, num_episodes=8, update_every=8, num_envs=2, workers=1, batch_size=8, warmup=8, num_units=4, eval_episodes=1,
        report_every=4, devices=1, plots_dir="", save_dir={folder!r}, exp_name="coin", max_episode_len=4)
    print("rows", len(run.rows()))
"""
GUARD, NO_GUARD = 'if __name__ == "__main__":', "if True:"
BY_VALUE, BY_IMPORT = {"extra": "", "touch": "pass"}, {"extra": "import threading; LOCK = threading.Lock()", "touch": "LOCK"}
"""Classes that worker processes receive by value, or must import because they refer to something that cannot be sent."""


def run_script(tmp_path: Path, guard: str, kind: dict[str, str], as_file: bool = True) -> tuple[Any, int]:
    """Returns the finished script and how often it was executed."""
    log, file = tmp_path / "log", tmp_path / "script.py"
    code = GAME.format(log=str(log), folder=str(tmp_path / "runs"), guard=guard, **kind)
    file.write_text(code)
    words = [str(file)] if as_file else ["-c", code]
    path = os.pathsep.join(sys.path)
    env = os.environ | {"PYTHONPATH": path}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=500, env=env, check=False)
    return done, len(log.read_text().splitlines())


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    done, count = run_script(tmp_path, NO_GUARD, BY_VALUE)
    assert done.returncode == 0, done.stderr
    assert "rows 4" in done.stdout
    assert count == 1


def test_a_class_of_a_notebook_trains(tmp_path: Path) -> None:
    """As in a cell, `__main__` has no file."""
    done, count = run_script(tmp_path, NO_GUARD, BY_VALUE, as_file=False)
    assert done.returncode == 0, done.stderr
    assert count == 1


def test_a_guarded_script_that_workers_must_import_trains(tmp_path: Path) -> None:
    done, count = run_script(tmp_path, GUARD, BY_IMPORT)
    assert done.returncode == 0, done.stderr
    assert count == 3  # the main process, a worker and the evaluation worker


def test_an_unguarded_script_that_workers_must_import_is_refused(tmp_path: Path) -> None:
    done, count = run_script(tmp_path, NO_GUARD, BY_IMPORT)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "counterpoint.train was called while importing script.py: put the call under if __name__" in last
    assert count == 2
