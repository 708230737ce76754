"""MAPPO and IPPO as runs like any other: resumed to the bit, several seeds, external environments, both in one run."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint
import games
from counterpoint import config as configs
from counterpoint import presets
from counterpoint.core.errors import UsageError
from counterpoint.runs.folder import Run
from counterpoint.training import train as experiment
from counterpoint.training.external import check_external
from counterpoint.training.program import SCHEDULER, prepare
from stopped import Stopper, assert_same_end

SMALL: dict[str, Any] = {
    **{"algorithm": "mappo", "scenario": "switch2", "max_episode_len": 10, "recurrent": True, "epochs": 2, "minibatches": 2},
    **{"num_units": 8, "num_envs": 4, "update_every": 28, "num_seeds": 2, "devices": 1, "num_episodes": 48},
    **{"report_every": 8, "save_rate": 16, "eval_episodes": 2, "plots_dir": ""},
}
"""Rollouts of 7 steps in episodes of 10: every one begins in the middle of one, with something remembered."""
ZOO: dict[str, Any] = {
    **{
        "env": f"{games.__file__}:Zoo",
        "algorithm": "ippo",
        "num_envs": 2,
        "workers": 1,
        "update_every": 20,
        "num_episodes": 24,
    },
    **{"num_units": 8, "report_every": 8, "save_rate": 8, "eval_episodes": 1, "plots_dir": "", "devices": 1},
}
"""A choice, several heads and a box, of which one agent finishes early."""
REMEMBERING: dict[str, Any] = {**ZOO, "recurrent": True, "num_layers": 1, "update_every": 14, "algorithm": "mappo"}
"""Rollouts of 7 steps in episodes of 5."""


@pytest.mark.parametrize("settings", [SMALL, ZOO, REMEMBERING], ids=["recurrent seeds", "external", "recurrent external"])
def test_a_stopped_run_ends_as_if_left_alone(settings: dict[str, Any], tmp_path: Path) -> None:
    calm = counterpoint.train(save_dir=str(tmp_path), exp_name="calm", **settings)
    with pytest.raises(experiment.Interrupted):
        counterpoint.train(save_dir=str(tmp_path), exp_name="rough", progress=Stopper(after=2), **settings)
    assert len(Run(tmp_path / "rough").rows()) < len(calm.rows())
    assert_same_end(calm, counterpoint.resume(tmp_path / "rough"))
    assert {"kl/" + name for name in counterpoint.load(calm).env.spec.agents} <= set(calm.rows()[-1])


def test_an_external_probe_is_learnt(tmp_path: Path) -> None:
    """The probe pays 4 per episode for choices that follow what each agent sees; chance earns 2."""
    settings: dict[str, Any] = {
        **{"env": f"{games.__file__}:Match", "algorithm": "mappo", "num_envs": 4, "update_every": 64, "num_episodes": 1600},
        **{"lr": 5e-3, "critic_lr": 1e-2, "num_units": 16, "devices": 1, "workers": 2, "gamma": 0.5, "minibatches": 2},
        **{"report_every": 800, "save_rate": 800, "eval_episodes": 50, "plots_dir": "", "max_episode_len": 4},
    }
    run = counterpoint.train(**settings, save_dir=str(tmp_path), exp_name="match")
    assert run.rows()[-1]["eval/return/one"] > 3.6


def test_teams_may_have_critics_of_both_kinds() -> None:
    config = configs.override(configs.Config(), algorithm="mappo", scenario="simple_tag", adv_policy="ippo")
    sees = config.sees(config.world.build().spec)
    np.testing.assert_array_equal(sees[:3], np.eye(4, dtype=bool)[:3])
    assert sees[3].all()
    config.check(config.world.build())
    mixed = configs.override(config, adv_policy="coma")
    with pytest.raises(UsageError, match="mappo is for all teams"):
        mixed.check(mixed.world.build())


def test_the_learner_remembers_what_workers_remember(tmp_path: Path) -> None:
    """Workers follow the actors in NumPy; the learner follows actors and critics over the same observations."""
    settings: dict[str, Any] = REMEMBERING | {"num_episodes": 9}
    run = counterpoint.train(save_dir=str(tmp_path), exp_name="zoo", **settings)
    state = run.load().state  # pyright: ignore[reportOptionalMemberAccess]
    (workers,) = (value for name, value in state.items() if "positions" in name and "hidden" in name)
    actors, critics = (next(value for name, value in state.items() if f"carry.{part}" in name) for part in ("actor", "critic"))
    assert np.abs(workers).max() > 1e-3, "the last rollout ended in the middle of an episode"
    np.testing.assert_allclose(workers, actors, atol=1e-5)
    assert np.abs(critics - actors).max() > 1e-3


def test_acting_states_that_workers_cannot_have_are_refused() -> None:
    program = prepare(configs.override(configs.Config(), **ZOO)).program
    strange = program.algo._replace(begin=lambda key: np.zeros(3, np.float32))
    with pytest.raises(UsageError, match="worker processes without JAX, which cannot record what this algorithm's acting"):
        check_external(program._replace(algo=strange))


@pytest.mark.parametrize("name", [name for name in presets.PRESETS if name.startswith(("mappo", "ippo"))])
def test_presets_can_be_trained(name: str) -> None:
    config = presets.preset(name)
    assert name.startswith(config.algorithm)
    config.check(config.world.build())
    assert config.training.num_episodes * config.world.build().max_steps <= 20_000_000


def test_a_large_program_ends_with_the_compilers_usual_settings(tmp_path: Path) -> None:
    """XLA's schedule for concurrency made this program wait for ever."""
    usual = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    words = ["--algorithm", "mappo", "--scenario", "simple_spread", "--num-seeds", "2", "--num-envs", "128"]
    words += ["--update-every", "3200", "--num-episodes", "300", "--save-dir", str(tmp_path), "--plots-dir", ""]
    command = [sys.executable, "-m", "counterpoint", "train", *words]
    done = subprocess.run(command, env=usual, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert "policy" in done.stdout


@pytest.mark.parametrize(
    ("given", "before", "expected"),
    [
        ("--xla_backend_optimization_level=0", "", f"--xla_backend_optimization_level=0 --{SCHEDULER}=false"),
        (f"--{SCHEDULER}=true", "", f"--{SCHEDULER}=true"),
        ("", "import jax; jax.devices();", ""),
    ],
    ids=["added", "chosen by the user", "too late"],
)
def test_the_schedule_is_turned_off(given: str, before: str, expected: str) -> None:
    code = f"import os; {before} from counterpoint.training.program import prepare_jax; prepare_jax(2)"
    command = [sys.executable, "-c", f"{code}; print(os.environ['XLA_FLAGS'])"]
    done = subprocess.run(
        command, env=os.environ | {"XLA_FLAGS": given}, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.stdout.strip() == expected, done.stderr
