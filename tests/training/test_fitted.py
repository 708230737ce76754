"""Settings that nobody gave are chosen for an external environment, and for no other."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint
from counterpoint import config as configs
from counterpoint import presets
from counterpoint.algos import masac
from counterpoint.cli import main as cli
from counterpoint.config import Config, external_defaults, fitted, override
from counterpoint.studies import grid as study
from counterpoint.training import program
from counterpoint.training import train as experiment
from counterpoint.training.loop import Schedule

CARTPOLE = override(Config(), env="CartPole-v1")
ENV = CARTPOLE.world.build()


def values(config: Config, *names: str) -> dict[str, Any]:
    return {name: configs.flat(config)[name] for name in names}


def test_an_external_environment_gets_settings_of_its_own() -> None:
    wanted = external_defaults(ENV.spec, ENV.max_steps)
    config = override(CARTPOLE, algorithm="maddpg")
    assert values(fitted(config, ENV, {"env", "algorithm"}), *wanted) == wanted
    assert wanted["lr"] < Config().learning.lr
    assert wanted["updates"] / wanted["update_every"] > 1 / Config().training.update_every


def test_an_external_environment_is_learned_by_masac_unless_another_algorithm_is_chosen_or_needed() -> None:
    config = fitted(override(CARTPOLE, batch_size=64, exp_name="mine"), ENV, {"env", "batch_size", "exp_name"})
    assert (config.algorithm, config.training.batch_size, config.checkpoints.exp_name) == ("masac", 64, "mine")
    assert config.learning.lr == external_defaults(ENV.spec, ENV.max_steps)["lr"]
    assert fitted(CARTPOLE, ENV, {"env", "algorithm"}).algorithm == "maddpg"
    assert fitted(override(CARTPOLE, temperature=0.5), ENV, {"env", "temperature"}).algorithm == "maddpg"


def test_an_environment_with_too_many_choices_keeps_maddpg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masac, "MOST_CHOICES", 3)
    zoo = override(Config(), env="tests.games:Zoo")
    assert fitted(zoo, zoo.world.build(), {"env"}).algorithm == "maddpg"


def test_the_horizon_follows_the_length_of_episodes() -> None:
    short, long = (external_defaults(ENV.spec, steps)["gamma"] for steps in (25, 500))
    assert short < long <= 0.99


def test_what_the_user_gives_stays_even_if_it_is_the_usual_value() -> None:
    usual = Config().learning.lr
    config = fitted(override(CARTPOLE, lr=usual), ENV, {"env", "lr"})
    assert config.learning.lr == usual
    assert config.learning.gamma != Config().learning.gamma


def test_what_depends_on_a_given_value_fits_it() -> None:
    config = fitted(override(CARTPOLE, num_envs=4, update_every=4, batch_size=200_000), ENV, {"env", "num_envs", "batch_size"})
    assert config.training.update_every % 4 == 0
    assert config.training.buffer_size >= config.training.batch_size == 200_000
    config = fitted(override(CARTPOLE, batch_size=64, buffer_size=64), ENV, {"env", "buffer_size"})
    assert config.training.batch_size == config.training.buffer_size == 64


def test_long_episodes_learn_from_several_rewards_where_that_is_possible() -> None:
    short, long = (external_defaults(ENV.spec, steps)["n_step"] for steps in (25, 500))
    assert short == 1 < long
    fits = {"n_step": long}
    assert values(fitted(CARTPOLE, ENV, {"env"}), *fits) == fits
    config = fitted(override(CARTPOLE, standardise_rewards=True), ENV, {"env", "standardise_rewards"})
    assert config.learning.n_step == 1
    config = fitted(override(CARTPOLE, recurrent=True, sequence_length=2), ENV, {"env", "recurrent", "sequence_length"})
    assert config.learning.n_step == 2


def test_a_compiled_world_a_preset_and_a_whole_configuration_keep_theirs() -> None:
    world = Config().world.build()
    assert fitted(Config(), world, set()) == Config()
    assert fitted(CARTPOLE, ENV, None) == CARTPOLE
    demo = override(presets.preset("demo"), env="CartPole-v1")
    assert fitted(demo, ENV, {"preset", "env"}) == demo


def test_an_on_policy_algorithm_keeps_its_own() -> None:
    coma = override(CARTPOLE, algorithm="coma")
    assert fitted(coma, ENV, {"env", "algorithm"}) == coma


def test_the_warm_up_ends_with_a_tenth_of_the_episodes_where_they_may_end_early() -> None:
    """Random play in CartPole lasts some 20 of 500 steps: 250 × 500 steps of a warm-up would be the whole run."""
    rule = Schedule(num_envs=1, rollout_length=1, updates=1, warmup=1000, report_every=1, num_episodes=50, warmup_episodes=5)
    assert not rule.warm(999, 4)
    assert rule.warm(1000, 0)
    assert rule.warm(100, 5)
    assert not rule._replace(warmup_episodes=None).warm(999, 50)

    def ends(**settings: Any) -> int | None:
        return program.prepare(override(Config(), num_episodes=200, **settings)).program.schedule.warmup_episodes

    assert ends(env="CartPole-v1") == 20
    assert ends(scenario="tennis") == 20
    assert ends(scenario="simple_spread", scenario_args=("terminate_on_success=True",)) == 20
    assert ends(scenario="simple_spread") is None
    assert ends(env="CartPole-v1", warmup=3000) is None, "what the user asks for stays"


MEMORIES: dict[str, dict[str, Any]] = {
    "uniform": {},
    "per-agent": {"minibatch": "per-agent"},
    "prioritised": {"replay": "prioritised"},
    "n-step": {"n_step": 5},
    "n-step-prioritised": {"n_step": 3, "replay": "prioritised"},
    "sequences": {"recurrent": True},
    "long-sequences": {"recurrent": True, "sequence_length": 300},
    "sub-policies": {"ensemble": 2},
    "newest": {"infer_policies": True},
}


@pytest.mark.parametrize("episodes", [1, 39, 44, 1000, 60_000])
def test_the_warm_up_is_never_more_than_a_tenth_of_the_run(episodes: int) -> None:
    """Whole rollouts are played without learning, so the last of them must end within the tenth, too."""
    every = 100
    config = override(Config(), scenario="simple_tag", num_episodes=episodes, update_every=every)
    warmup = program.prepare(config).program.schedule.warmup
    assert math.ceil(warmup / every) * every <= episodes * 25 / 10
    assert warmup == 1024 * 25 or (warmup + every) > episodes * 25 / 10, "and not shorter than it has to be"


@pytest.mark.parametrize("settings", MEMORIES.values(), ids=MEMORIES)
def test_a_run_shorter_than_a_minibatch_learns_from_its_tenth_on(settings: dict[str, Any], tmp_path: Path) -> None:
    """A thousand steps in all, and minibatches of 1024."""
    more: dict[str, Any] = {"num_units": 8, "devices": 1, "report_every": 4, "eval_episodes": 0, "plots_dir": ""}
    chosen = {"scenario": "simple_push", "num_episodes": 40, "save_dir": str(tmp_path), **more, **settings}
    run = counterpoint.train(progress=False, **chosen)
    names = ("critic_loss/agent_0", "critic_loss/adversary_0")
    losses = np.array([[row[name] for name in names] for row in run.rows()], float)
    assert np.isnan(losses[0]).all()
    assert losses.shape == (10, 2)
    assert np.isfinite(losses[1:]).all()


def test_a_run_without_a_warm_up_has_none_when_it_goes_on(tmp_path: Path) -> None:
    """A tenth of two episodes is less than a rollout; a tenth of forty is not, but by then the team has learned."""
    more: dict[str, Any] = {"num_units": 8, "devices": 1, "report_every": 2, "eval_episodes": 0, "plots_dir": ""}
    run = counterpoint.train(scenario="simple", num_episodes=4, save_dir=str(tmp_path), progress=False, **more)
    assert run.config["training"]["warmup"] == 0
    counterpoint.resume(run, progress=False, num_episodes=80)
    assert np.isfinite(np.array([row["critic_loss/agent_0"] for row in run.rows()], float)).all()


@pytest.mark.parametrize("words", [["--env", "CartPole-v1", "--lr", "0.01"], ["--env=CartPole-v1", "--lr=0.01"]])
def test_the_command_line_says_what_was_given(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(experiment, "train", lambda config, console, given: seen.append(fitted(config, ENV, given)))
    monkeypatch.setattr("sys.argv", ["counterpoint", "train", *words])
    cli.main()
    (config,) = seen
    assert config.learning.lr == 0.01
    assert config.training.batch_size == external_defaults(ENV.spec, ENV.max_steps)["batch_size"]


def test_the_cells_of_a_grid_are_fitted_too() -> None:
    def make(own: Any) -> Config:
        return override(CARTPOLE, **own)

    cells = study.cells_of({"algorithm": ["maddpg", "coma"]}, make, {"env", "algorithm"})
    maddpg, coma = (study._fitted(cell).config for cell in cells)
    assert maddpg.learning.lr == external_defaults(ENV.spec, ENV.max_steps)["lr"]
    assert coma == cells[1].config
