"""The algorithm of the tutorial, in a file of its own: it learns, and runs like ours from training to export."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterpoint
from counterpoint.algos.base import find
from counterpoint.core import prng
from counterpoint.training.rollout import rollout, start
from probes import Matching
from rollouts import random_rollout
from tiny import TINY

FILE = Path(__file__).parents[2] / "examples" / "own_algorithm.py"
ADDRESS = f"{FILE}:entry"


def test_it_is_short():
    assert len(FILE.read_text().splitlines()) < 80


def test_it_learns_to_follow_what_it_sees():
    env, entry = Matching(), find(ADDRESS)
    algo = entry.make(entry.settings(lr=1e-2), env.spec, np.ones((1, 1), bool), None)

    def iteration(loop, key):
        agents, envs = loop
        envs, steps, _ = rollout(env, algo, algo.policy(agents), envs, key, 4, jnp.int32(0))
        return (algo.update(agents, steps, key)[0], envs), None

    def run(key):
        loop = algo.init(key), start(env, algo, key, 16)
        return jax.lax.scan(iteration, loop, jax.random.split(key, 200))[0][0]

    agents = jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})(prng.key(0))
    action, _ = algo.greedy(algo.policy(agents), (), jnp.array([[[1.0]], [[-1.0]]]))
    np.testing.assert_array_equal(action[:, 0], [[0.0, 1.0], [1.0, 0.0]])


def test_steps_of_an_earlier_version_teach_nothing():
    spec, entry = Matching().spec, find(ADDRESS)
    algo, steps = entry.make(entry.settings(), spec, np.ones((1, 1), bool), None), random_rollout(spec, 2, 2, seed=0)
    agents, update = jax.jit(algo.init)(prng.key(0)), jax.jit(algo.update)

    def moved(own):
        after, _ = update(agents, steps._replace(own=own), prng.key(1))
        return any(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a != b).any()), agents.nets, after.nets)))

    assert moved(None)
    assert not moved(jnp.zeros_like(steps.alive))


def test_it_trains_saves_resumes_plays_and_exports(tmp_path: Path):
    settings = {name: value for name, value in TINY.items() if name not in ("batch_size", "num_units", "warmup")}
    run = counterpoint.train(
        algorithm=ADDRESS, scenario="simple_spread", num_episodes=32, save_dir=str(tmp_path), exp_name="own", **settings
    )
    assert json.loads((run.path / "config.json").read_text())["algorithm"] == ADDRESS
    assert (run.path / "curve.png").exists()
    longer = counterpoint.resume(run.path, num_episodes=48)
    _, about = longer.load_policy()
    assert about["episodes"] >= 48
    team = counterpoint.load(run.path)
    assert np.isfinite(team.evaluate(3).returns).all()
    assert team.save_film(tmp_path / "film.gif", episodes=1)
    folder = counterpoint.export(run.path, "numpy", tmp_path / "export")
    assert list(folder.glob("*.npz"))


def test_its_settings_are_options_and_others_are_refused():
    with pytest.raises(counterpoint.UsageError, match="num_layers"):
        counterpoint.train(algorithm=ADDRESS, scenario="simple", num_layers=3)
