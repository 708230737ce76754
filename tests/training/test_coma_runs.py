"""COMA as a run like any other: the same loop, folder and commands, with its own settings."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint
from counterpoint import config as configs
from counterpoint import presets
from counterpoint.algos import maddpg
from counterpoint.algos.base import find
from counterpoint.cli import main as cli
from counterpoint.core.errors import UsageError
from counterpoint.runs.folder import Run
from counterpoint.training import program
from counterpoint.training import train as experiment
from stopped import Stopper
from tiny import HOME

SMALL: dict[str, Any] = {
    **{"algorithm": "coma", "scenario": "switch2", "max_episode_len": 10, "recurrent": True, "standardise_rewards": True},
    **{"num_units": 8, "num_envs": 4, "update_every": 28, "num_seeds": 2, "devices": 1, "num_episodes": 96},
    **{"report_every": 8, "save_rate": 16, "eval_episodes": 2, "plots_dir": ""},
}
"""Rollouts of 7 steps in episodes of 10: every one begins in the middle of one, with something remembered."""


@pytest.fixture(scope="module")
def run() -> Run:
    return counterpoint.train(save_dir=str(HOME / "coma"), exp_name="calm", **SMALL)


def test_a_stopped_run_ends_as_if_left_alone(run: Run, tmp_path: Path) -> None:
    with pytest.raises(experiment.Interrupted):
        counterpoint.train(save_dir=str(tmp_path), exp_name="rough", progress=Stopper(after=5), **SMALL)
    assert len(Run(tmp_path / "rough").rows()) < len(run.rows())
    rough = counterpoint.resume(tmp_path / "rough")
    times = ("seconds", "steps_per_second")
    mine, theirs = ([{k: v for k, v in row.items() if k not in times} for row in r.rows()] for r in (run, rough))
    assert list(map(repr, mine)) == list(map(repr, theirs))
    ends = run.load(), rough.load()
    assert ends[0]
    assert ends[1]
    assert ends[0].ring is None, "what was seen is not kept: it will not be learnt from again"
    assert not any(name.startswith("replay") for name in ends[0].state)
    for name, value in ends[0].state.items():
        np.testing.assert_array_equal(value, ends[1].state[name], err_msg=name)
    assert (run.path / "policy.safetensors").read_bytes() == (rough.path / "policy.safetensors").read_bytes()


def test_the_other_commands_know_such_a_run(run: Run, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (f"play {run.path} --out pass.gif", f"benchmark {run.path} --benchmark-iters 50", f"plot {run.path}"):
        monkeypatch.setattr("sys.argv", ["counterpoint", *words.split()])
        cli.main()
    assert "| return of agent_1 |" in capsys.readouterr().out
    assert (tmp_path / "pass.gif").read_bytes()[:3] == b"GIF"
    team = counterpoint.load(run, seed_index=1)
    obs = {"agent_0": [0.0, 0.17, 0.0], "agent_1": [0.0, 0.83, 0.0]}
    assert set(team.act(obs).values()) <= set(range(5))
    assert {"entropy/agent_0", "eval/success", "team/good"} <= set(run.rows()[-1])


def parse(monkeypatch: Any, words: str) -> configs.Config:
    """The settings that a command line makes."""
    seen: list[configs.Config] = []
    monkeypatch.setattr("counterpoint.training.train.train", lambda config, console: seen.append(config))
    monkeypatch.setattr("sys.argv", ["counterpoint", "train", *words.split()])
    cli.main()
    return seen[0]


def test_an_algorithm_brings_its_own_settings(monkeypatch: Any, capsys: Any) -> None:
    config = parse(monkeypatch, "--scenario switch2 --algorithm coma --td-lambda 0.5 --num-seeds 3")
    assert (config.learning.td_lambda, config.training.num_seeds) == (0.5, 3)
    assert config.training.num_envs == configs.training_of(find("coma")).num_envs > 1
    assert type(config) is configs.Config
    assert configs.from_dict(json.loads(json.dumps(configs.to_dict(config)))) == config
    assert parse(monkeypatch, "--preset coma-notes --algorithm=maddpg").learning == maddpg.Config()
    with pytest.raises(SystemExit):
        parse(monkeypatch, "--algorithm coma --help")
    text = capsys.readouterr().out
    assert "--td-lambda" in text
    assert "--logit-cost" not in text
    assert " learning options " in text


def test_the_notes_settings_are_a_preset() -> None:
    config = presets.preset("coma-notes")
    env, learning, training = config.world.build(), config.learning, config.training
    assert (learning.lr, learning.critic_lr, learning.td_lambda, learning.num_layers) == (1e-4, 5e-3, 0.0, 2)
    assert training.update_every == 10 * env.max_steps, "ten episodes"
    assert training.num_episodes == 10_000
    assert learning.target_every > 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"actions": "continuous", "scenario": "simple_spread"}, "coma needs discrete actions, .*--actions discrete"),
        ({"scenario": "tennis"}, "those of racket_0 in tennis are continuous: choose --algorithm maddpg."),
        ({"good_policy": "ddpg"}, "leave out --good-policy and --adv-policy"),
        ({"learners": 3}, "leave out --learners 3"),
        ({"batch_size": 64}, "coma learns once from each rollout as a whole: leave out --batch-size 64"),
        ({"warmup": 64}, "leave out --warmup 64"),
        ({"td_lambda": 1.5}, "--td-lambda must be from 0 to 1, not 1.5"),
        ({"epsilon_steps": 0}, "--epsilon-steps must be at least 1, not 0"),
        ({"critic_lr": 0.0}, "--critic-lr must be above 0, not 0"),
        ({"devices": 2}, "coma trains one seed on one device, not on 2: choose --devices 1 or --num-seeds 2"),
        ({"logit_cost": 0.1}, "there is no setting 'logit_cost'.*one of maddpg's, and this is coma"),
    ],
)
def test_what_coma_cannot_use_is_refused_in_one_sentence(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        program.prepare(configs.override(configs.Config(), algorithm="coma", **settings))
    assert "\n" not in str(caught.value)


def test_settings_of_one_family_do_not_run_another() -> None:
    with pytest.raises(UsageError, match="algorithm coma has other learning settings"):
        program.prepare(configs.Config(algorithm="coma"))
