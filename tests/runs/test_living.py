"""Runs one can live with: resumed with other settings, moved, watched while they learned, and never written by two."""

import json
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterpoint
from counterpoint import config as configs
from counterpoint.core.errors import Diverged, UsageError
from counterpoint.core.trees import names_of
from counterpoint.envs.mpe.simple import Simple
from counterpoint.policies.policy import film_history, load_history
from counterpoint.runs import history, list_runs, lock
from counterpoint.runs.folder import Run
from counterpoint.training import train as experiment
from processes import finish, lines, spawn, wait_for
from tiny import TINY, tiny_words, trained_run


@pytest.fixture
def copy(tmp_path: Path) -> Run:
    """A copy of a finished run of 48 episodes."""
    return Run(Path(shutil.copytree(trained_run().path, tmp_path / "copy")))


def test_a_run_keeps_its_policies_and_its_best() -> None:
    run = trained_run()
    assert list(history.kept(run)) == [16, 32, 48]
    rows = run.rows()
    best = max(rows, key=lambda row: (row["eval/success"], row["eval/team/good"]))
    assert counterpoint.load(run, at="best").about["episodes"] == best["episode"]
    assert not lock.lock_path(run.path).exists()


def test_load_at_returns_the_policy_of_that_moment() -> None:
    run = trained_run()
    last, early = counterpoint.load(run), counterpoint.load(run, at=16)
    assert (early.about["episodes"], last.about["episodes"]) == (16, 48)
    for policy, at in ((early, 16), (last, "last")):
        tensors, _ = history.load_at(run, at)
        for name, leaf in zip(names_of(policy.parameters), jax.tree.leaves(policy.parameters), strict=True):
            np.testing.assert_array_equal(leaf, tensors[name][0])
    same = [np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (early.parameters, last.parameters)), strict=True)]
    assert not all(same)


def test_the_history_is_filmed_with_titles(tmp_path: Path) -> None:
    policies = load_history(trained_run())
    assert [policy.about["episodes"] for policy in policies] == [16, 32, 48]
    assert film_history(policies, tmp_path / "history.svg")
    drawn = (tmp_path / "history.svg").read_text()
    assert all(f"after {episodes} episodes" in drawn for episodes in (16, 32, 48))


def test_resume_changes_what_is_safe_and_records_it(copy: Run) -> None:
    counterpoint.resume(copy, num_episodes=64, lr=0.002, eval_episodes=3)
    assert copy.changes == [{"episode": 48, "num_episodes": [48, 64], "lr": [0.01, 0.002], "eval_episodes": [2, 3]}]
    config = configs.from_dict(copy.config)
    assert (config.training.num_episodes, config.learning.lr, config.evaluation.eval_episodes) == (64, 0.002, 3)
    rows = copy.rows()
    assert [row["episode"] for row in rows] == list(range(4, 65, 4))
    plain = Run(Path(shutil.copytree(trained_run().path, copy.path.with_name("plain"))))
    counterpoint.resume(plain, num_episodes=64)
    loss = "critic_loss/agent_0"
    assert plain.rows()[-1][loss] != rows[-1][loss], "the other learning rate was used"
    with pytest.raises(UsageError, match="--gamma cannot change in a run that goes on: leave it out, or start a new run"):
        counterpoint.resume(copy, num_episodes=80, gamma=0.5)
    assert len(copy.changes) == 1


def test_a_run_that_is_trained_cannot_be_resumed(copy: Run) -> None:
    before = copy.metrics_path.read_bytes()
    with lock.hold(copy.path), pytest.raises(UsageError, match=r"copy is in use by process \d+ on .*: wait until"):
        counterpoint.resume(copy, num_episodes=64)
    assert copy.metrics_path.read_bytes() == before


def test_a_training_process_holds_the_lock_until_it_is_killed(tmp_path: Path) -> None:
    process = spawn("train", *tiny_words(scenario="simple", num_episodes=10**6, save_dir=tmp_path, exp_name="busy"))
    try:
        path = tmp_path / "busy"
        wait_for(lambda: lines(path) >= 2, process)
        assert list_runs(tmp_path)[0].state == "running"
        with pytest.raises(UsageError, match=rf"is in use by process {process.pid} on"):
            counterpoint.resume(path)
    finally:
        process.send_signal(signal.SIGKILL)
        finish(process)
    assert list_runs(tmp_path)[0].state == "stopped"


WORLD = """
from dataclasses import dataclass

from counterpoint.envs.mpe.simple import Simple


@dataclass(frozen=True)
class Moved(Simple):
    pass
"""


def test_a_run_finds_its_environment_from_any_folder_or_says_what_to_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "moved_world.py"
    source.write_text(WORLD)
    run = counterpoint.train(env="moved_world.py:Moved", num_episodes=8, save_dir=str(tmp_path / "runs"), **TINY)
    assert configs.from_dict(run.config).world.env == f"{source}:Moved"
    assert (run.path / "env" / "moved_world.py").read_text() == WORLD
    assert list_runs(tmp_path / "runs")[0].env == "moved_world.py:Moved"
    monkeypatch.chdir("/")
    assert counterpoint.load(run).env.spec.agents == ("agent_0",)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    source.rename(elsewhere / "moved_world.py")
    gone = rf"was trained in {source}, which does not exist here: pass --env FILE.py:Moved; a copy of its text is .*env/moved"
    with pytest.raises(UsageError, match=gone):
        counterpoint.load(run)
    with pytest.raises(UsageError, match=gone):
        counterpoint.resume(run, num_episodes=16)
    new = f"{elsewhere / 'moved_world.py'}:Moved"
    assert counterpoint.load(run, env=new).env.spec.agents == ("agent_0",)
    counterpoint.resume(run, num_episodes=16, env=new)
    assert configs.from_dict(run.config).world.env == new
    with pytest.raises(UsageError, match="--env x:y is for runs of an environment of your own"):
        counterpoint.load(trained_run(), env="x:y")


@dataclass(frozen=True)
class Spoilt(Simple):
    """Pays NaN in the third step of every episode."""

    def step(self, key: Any, state: Any, action: Any) -> Any:
        state, result = super().step(key, state, action)
        return state, result._replace(reward=jnp.where(state.step == 3, jnp.nan, result.reward))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"devices": 2, "num_envs": 2},
        {"algorithm": "coma", "num_envs": 1},
        {"algorithm": "coma", "num_envs": 2, "num_seeds": 2},
        {"algorithm": "mappo", "num_envs": 4},
    ],
    ids=["one", "devices", "coma", "coma, seeds", "mappo"],
)
def test_a_reward_that_is_nan_is_named_with_its_agent_and_step(tmp_path: Path, settings: dict[str, Any]) -> None:
    small = {name: value for name, value in TINY.items() if name not in ("batch_size", "warmup") or "algorithm" not in settings}
    with pytest.raises(Diverged) as caught:
        counterpoint.train(env=Spoilt, num_episodes=48, save_dir=str(tmp_path), **small | settings)
    said = str(caught.value)
    step = 2 * settings.get("num_envs", 1) + 1  # with two environments, their third steps are the fifth and the sixth in all
    assert said.startswith(f"the reward of agent_0 at step {step} is nan: every reward must be a finite number, correct ")
    assert "--lr" not in said


def test_env_and_scenario_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="env and scenario='simple' exclude each other"):
        counterpoint.train(env="CartPole-v1", scenario="simple")


def test_whole_numbers_may_be_floats_in_python() -> None:
    assert configs.override(configs.Config(), num_episodes=1e4).training.num_episodes == 10_000


def test_a_gymnasium_id_is_an_environment() -> None:
    pytest.importorskip("gymnasium")
    world = configs.EnvSettings(env="CartPole-v1")
    assert world.short == "CartPole-v1"
    assert configs.EnvSettings(env="jaxmarl:MPE_simple_tag_v3").short == "MPE_simple_tag_v3"
    env = world.build()
    assert env.name == "CartPole-v1"
    assert env.max_steps == 500
    with pytest.raises(UsageError, match=r"or a known Gymnasium id \(perhaps CartPole-v1\?\)"):
        configs.EnvSettings(env="CartPoll-v1").build()


def test_the_recorded_config_is_plain_json(copy: Run) -> None:
    assert json.loads((copy.path / "config.json").read_text())["format"] == 1
    assert experiment.is_finished(copy, 48)
    assert not experiment.is_finished(copy, 49)
