"""Recurrent off-policy teams as runs like any other: resumed to the bit, devices, shared parameters, external environments."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import counterpoint
import games
from counterpoint import config as configs
from counterpoint import presets
from counterpoint.core import prng
from counterpoint.runs.folder import Run
from counterpoint.training import train as experiment
from counterpoint.training.program import prepare
from stopped import Stopper, assert_same_end

TINY: dict[str, Any] = {
    **{"recurrent": True, "sequence_length": 4, "burn_in": 2, "num_units": 8, "num_layers": 1, "batch_size": 16},
    **{"report_every": 8, "save_rate": 8, "eval_episodes": 1, "plots_dir": "", "warmup": 40},
}
WORLD: dict[str, Any] = {
    **TINY,
    **{"scenario": "switch2", "max_episode_len": 10, "num_envs": 4, "update_every": 28, "num_episodes": 32},
    **{"n_step": 2, "minibatch": "per-agent", "buffer_size": 240},
}
"""Rollouts of 7 steps in episodes of 10, in a memory that fills up."""
ZOO: dict[str, Any] = {
    **TINY,
    **{"env": f"{games.__file__}:Zoo", "algorithm": "masac", "num_envs": 2, "workers": 1, "update_every": 20},
    **{"num_episodes": 24, "devices": 1},
}
"""A choice, several heads and a box, of which one agent finishes early."""
CASES: dict[str, dict[str, Any]] = {
    "maddpg, two seeds": {**WORLD, "num_seeds": 2, "devices": 1},
    "masac, shared, two devices": {**WORLD, "algorithm": "masac", "minibatch": "shared", "share": "all", "devices": 2},
    "external": ZOO,
}


@pytest.mark.parametrize("name", CASES)
def test_a_stopped_run_ends_as_if_left_alone(name: str, tmp_path: Path) -> None:
    calm = counterpoint.train(save_dir=str(tmp_path), exp_name="calm", **CASES[name])
    with pytest.raises(experiment.Interrupted):
        counterpoint.train(save_dir=str(tmp_path), exp_name="rough", progress=Stopper(after=2), **CASES[name])
    assert len(Run(tmp_path / "rough").rows()) < len(calm.rows())
    assert_same_end(calm, counterpoint.resume(tmp_path / "rough"))
    assert np.isfinite([row["critic_loss/" + counterpoint.load(calm).env.spec.agents[0]] for row in calm.rows()[-2:]]).all()


def test_what_is_remembered_outlives_a_rollout_and_not_an_episode(tmp_path: Path) -> None:
    """The policy of a short run on an external environment acts on what it has seen before, until it is reset."""
    run = counterpoint.train(save_dir=str(tmp_path), exp_name="zoo", **ZOO | {"num_episodes": 8})
    team = counterpoint.load(run)
    assert "hidden" in str(sorted(run.load().state)), "a worker's copy takes its memory along"  # pyright: ignore[reportOptionalMemberAccess]
    spec, rng = team.env.spec, np.random.default_rng(0)
    seen = np.stack([rng.normal(size=(1, *spec.obs_mask.shape)) * spec.obs_mask for _ in range(2)]).astype(np.float32)
    begin = team._carry
    _, after = team.algo.greedy(team.parameters, begin, jnp.asarray(seen[0]), None)
    again, _ = team.algo.greedy(team.parameters, after, jnp.asarray(seen[1]), None)
    afresh, _ = team.algo.greedy(team.parameters, begin, jnp.asarray(seen[1]), None)
    boxes = ~np.array([bool(getattr(space, "heads", ())) for space in spec.action_spaces])
    assert not np.allclose(np.asarray(again)[0, boxes], np.asarray(afresh)[0, boxes])
    assert not np.asarray(begin.hidden).any()


def test_a_batch_counts_steps_not_sequences() -> None:
    settings = {**WORLD, "batch_size": 40, "sequence_length": 8, "burn_in": 2, "devices": 1}
    built = prepare(configs.override(configs.Config(), **settings)).program
    batch = built.memory.sample(built.memory.init(), prng.key(0))
    assert batch.obs.shape[:2] == (2, 50), "five sequences of ten steps for each of two agents"
    assert built.memory.init().rows.shape[0] >= 240


@pytest.mark.slow
def test_switch2_without_a_clock_is_solved(tmp_path: Path) -> None:
    """Agents see their own cell only: who waits for the other must remember having waited."""
    settings = {"num_episodes": 8000, "seed": 100, "devices": 1, "plots_dir": ""}
    run = counterpoint.train(preset="masac-switch2-v0", save_dir=str(tmp_path), **settings)
    assert run.rows()[-1]["eval/success"] == 1.0


@pytest.mark.parametrize("name", [name for name in presets.PRESETS if name.endswith("switch2-v0")])
def test_presets_of_switch2_v0_can_be_trained(name: str) -> None:
    config = presets.preset(name)
    config.check(config.world.build())
    assert config.learning.recurrent
    assert not getattr(config.world.build(), "clock", True)
