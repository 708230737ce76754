"""The NumPy actors equal the JAX ones, for every kind of team."""

import subprocess
import sys
import time
from functools import cache
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import coma, maddpg
from counterpoint.core import numpy_policy, prng
from counterpoint.core.actions import to_world
from counterpoint.core.spaces import Box, Discrete, Spec
from probes import spec_of

TEAMS: dict[str, Spec] = {
    "plain": spec_of((4, 4, 4), (Discrete((3,)),) * 3),
    "boxes": spec_of((3, 2), (Box(2, -2.0, 6.0), Box(1, 0.0, 1.0))),
    "mixed": spec_of((3, 5, 2, 1), (Discrete((3,)), Discrete((2, 3)), Box(2, -2.0, 6.0), Discrete((2,)))),
    "alone": spec_of((3,), (Discrete((2, 2)),)),
}
SETTINGS = {
    "soft": {"temperature": 0.5},
    "one-hot": {"world_action": "one-hot"},
    "layer": {"norm": "layer", "noise": "ou"},
    "batch": {"norm": "batch", "num_layers": 3, "world_action": "one-hot"},
}
every = pytest.mark.parametrize(
    ("team", "settings"),
    [("plain", "soft"), ("plain", "batch"), ("boxes", "layer"), ("mixed", "soft"), ("mixed", "batch"), ("alone", "one-hot")],
)


@cache
def both(team, settings):
    """Returns an algorithm, a policy with random numbers in every array, the NumPy team and observations [E, N, O]."""
    spec, config = TEAMS[team], maddpg.Config(num_units=8, **SETTINGS[settings])
    algo = maddpg.make(config, spec, np.ones((spec.num_agents,) * 2, bool))
    rng = np.random.default_rng(2)
    shapes = jax.eval_shape(lambda: algo.policy(algo.init(prng.key(0))))
    agents = jax.tree.map(lambda leaf: jnp.asarray(rng.uniform(-0.5, 1.0, leaf.shape), jnp.float32), shapes)
    agents = jax.tree.map_with_path(lambda path, leaf: abs(leaf) if "variance" in str(path) else leaf, agents)
    made = numpy_policy.team_of(jax.device_get(agents.actor), spec.action_spaces, config)
    obs = 2 * np.random.default_rng(3).normal(size=(6, *spec.obs_mask.shape)) * spec.obs_mask
    return spec, config, algo, agents, made, obs.astype(np.float32)


def carry(algo, num_envs):
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_envs, *leaf.shape)), algo.begin(prng.key(0)))


def some_legal(spec, num_envs, seed=4):
    """Returns random masks [E, N, A] with at least one legal choice per head; boxes and padding are always legal."""
    rng = np.random.default_rng(seed)
    legal = np.ones((num_envs, *spec.act_mask.shape), bool)
    for i, space in enumerate(spec.action_spaces):
        for start, stop in pairwise(np.cumsum((0, *getattr(space, "heads", ())))):
            head = rng.random((num_envs, stop - start)) < 0.5
            head[np.arange(num_envs), rng.integers(stop - start, size=num_envs)] = True
            legal[:, i, start:stop] = head
    return legal


@every
def test_greedy_actions_are_the_learners(team, settings):
    spec, _, algo, agents, made, obs = both(team, settings)
    wanted, _ = algo.greedy(agents, carry(algo, len(obs)), jnp.asarray(obs), None)
    found = numpy_policy.greedy(made, obs)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    np.testing.assert_allclose(numpy_policy.greedy(made, obs[0]), wanted[0], atol=2e-6)
    np.testing.assert_allclose(numpy_policy.to_world(made, found), to_world(spec, wanted), atol=1e-5)
    assert np.asarray(wanted).std() > 0.1


@every
def test_exploring_actions_are_the_learners_given_the_same_noise(team, settings):
    spec, config, algo, agents, made, obs = both(team, settings)
    key, before = prng.key(7), carry(algo, len(obs))
    before = jax.tree.map(lambda leaf: leaf + 0.5, before)
    wanted, after, _ = algo.act(agents, before, jnp.asarray(obs), key, jnp.asarray(100_000), None)
    key_gumbel, key_noise = jax.random.split(key)
    gumbel = np.asarray(jax.random.gumbel(key_gumbel, wanted.shape))
    shock = np.asarray(jax.random.normal(key_noise, wanted.shape))
    raw = numpy_policy.outputs(made, obs)
    found, kept = numpy_policy.noisy(made, np.asarray(before) if config.noise == "ou" else None, raw, gumbel, shock, 100_000)
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    has_box = any(isinstance(space, Box) for space in spec.action_spaces)
    if config.noise == "ou" and has_box:
        np.testing.assert_allclose(kept, after, atol=1e-6)
        assert np.abs(np.asarray(after) - 0.5).max() > 0.1
    assert np.abs(found - numpy_policy.greedy(made, obs)).max() > 1e-3


@pytest.mark.parametrize(("team", "settings"), [("plain", "soft"), ("plain", "batch"), ("mixed", "soft"), ("mixed", "batch")])
def test_actions_under_masks_are_the_learners(team, settings):
    spec, _, algo, agents, made, obs = both(team, settings)
    legal, key = some_legal(spec, len(obs)), prng.key(7)
    wanted, _ = algo.greedy(agents, carry(algo, len(obs)), jnp.asarray(obs), jnp.asarray(legal))
    found = numpy_policy.greedy(made, obs, legal)
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    assert np.abs(found - numpy_policy.greedy(made, obs)).max() > 0.1
    assert not found[~legal].any()
    wanted, _, _ = algo.act(agents, carry(algo, len(obs)), jnp.asarray(obs), key, jnp.asarray(0), jnp.asarray(legal))
    key_gumbel, key_noise = jax.random.split(key)
    gumbel = np.asarray(jax.random.gumbel(key_gumbel, wanted.shape))
    shock = np.asarray(jax.random.normal(key_noise, wanted.shape))
    found, _ = numpy_policy.noisy(made, None, numpy_policy.outputs(made, obs), gumbel, shock, 0, legal)
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    assert not found[~legal].any()


@pytest.mark.parametrize("team", ["plain", "alone"])
def test_comas_actions_are_drawn_above_a_floor(team):
    spec, config = TEAMS[team], coma.Config(num_units=8, epsilon_start=0.8, epsilon_end=0.2, epsilon_steps=100)
    algo = coma.make(config, spec)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: algo.policy(algo.init(prng.key(0))))
    agents = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), shapes)
    rules = numpy_policy.Rules(**coma.actors(config, spec, agents).rules)
    spaces = tuple(map(numpy_policy.space_of, spec.action_spaces))
    made = numpy_policy.make_team(numpy_policy.layers_of(jax.device_get(agents.actor.body)), spaces, rules)
    obs = np.asarray(rng.normal(size=(200, *spec.obs_mask.shape)), np.float32)
    gumbel, drawn = np.asarray(jax.random.gumbel(prng.key(1), (200, *spec.act_mask.shape))), []
    for step in (0, 50, 1000):  # the floor falls from 0.8 over 0.5 to 0.2
        wanted, _, _ = algo.act(agents, (), jnp.asarray(obs), prng.key(1), jnp.asarray(step), None)
        found, _ = numpy_policy.noisy(made, None, numpy_policy.outputs(made, obs), gumbel, gumbel, step)
        np.testing.assert_array_equal(found, wanted)
        drawn.append(found)
    assert (drawn[0] != drawn[1]).any()
    assert (drawn[1] != drawn[2]).any()
    np.testing.assert_array_equal(numpy_policy.greedy(made, obs), algo.greedy(agents, (), jnp.asarray(obs), None)[0])


def test_the_floor_is_spread_over_legal_actions():
    """Probabilities by hand: outputs 0, 0, log 2 with the second illegal, floor 0.6: 0.4·1/3 + 0.3 and 0.4·2/3 + 0.3."""
    layer = numpy_policy.Layer(np.zeros((1, 1, 3), np.float32), np.array([[[0, 0, np.log(2)]]], np.float32))
    rules = numpy_policy.Rules(world_action="one-hot", floor_start=0.6, floor_end=0.6)
    made = numpy_policy.make_team((layer,), (numpy_policy.Space(3, (3,)),), rules)
    legal = np.broadcast_to(np.array([True, False, True]), (40_000, 1, 3))
    drawn, _ = numpy_policy.explore(made, None, np.zeros((40_000, 1, 1), np.float32), np.random.default_rng(0), 0, legal)
    np.testing.assert_allclose(drawn.mean(axis=(0, 1)), [0.4 / 3 + 0.3, 0, 0.8 / 3 + 0.3], atol=0.01)
    assert drawn[..., 1].sum() == 0


def test_uniform_noise_ignores_the_outputs_and_fills_every_box():
    """One-sided and per-entry bounds: means and quarters of the environment's range by hand."""
    spaces = (numpy_policy.Space(2, (), (0.0, -2.0), (1.0, 6.0)), numpy_policy.Space(1, (), 0.0, 10.0))
    layer = numpy_policy.Layer(np.ones((2, 1, 2), np.float32), np.full((2, 1, 2), 3, np.float32))
    made = numpy_policy.make_team((layer,), spaces, numpy_policy.Rules(noise="uniform"))
    drawn, _ = numpy_policy.explore(made, None, np.ones((40_000, 2, 1), np.float32), np.random.default_rng(0))
    scaled = numpy_policy.to_world(made, drawn)
    for i, entry, low, high in ((0, 0, 0, 1), (0, 1, -2, 6), (1, 0, 0, 10)):
        share = (scaled[:, i, entry] - low) / (high - low)
        np.testing.assert_allclose(np.quantile(share, (0, 0.25, 0.5, 0.75, 1)), (0, 0.25, 0.5, 0.75, 1), atol=0.02)
        assert len(np.unique(share)) > 1000


def test_an_exported_policy_obeys_masks():
    layer = numpy_policy.Layer(np.zeros((1, 1, 3), np.float32), np.array([[[0, 1, 2]]], np.float32))
    made = numpy_policy.make_team((layer,), (numpy_policy.Space(3, (3,)),), numpy_policy.Rules(world_action="one-hot"))
    facts = {"agents": ["a"], "obs_sizes": [1], "integers": [[[0, 1, 2]]], "joined": [False]}
    policy = numpy_policy.Policy(made, facts)
    assert policy.act({"a": [0.0]})["a"] == [2]
    assert policy.act({"a": [0.0]}, legal={"a": [1, 1, 0]})["a"] == [1]
    chosen = {int(policy.act({"a": [0.0]}, greedy=False, legal={"a": [1, 0, 1]})["a"][0]) for _ in range(200)}
    assert chosen == {0, 2}


def test_noise_is_standard_gumbel_and_normal():
    """Logits of 1, 1 and 6 give an eighth, an eighth and three quarters; noise is 0.2 at the start, 0.05 late."""
    layer = numpy_policy.Layer(np.zeros((2, 1, 3), np.float32), np.array([[[0, 0, np.log(6)]], [[0, 0, 0]]], np.float32))
    spaces = (numpy_policy.Space(3, (3,)), numpy_policy.Space(3))
    made = numpy_policy.make_team((layer,), spaces, numpy_policy.Rules(world_action="one-hot"))
    rng, obs = np.random.default_rng(0), np.zeros((40_000, 2, 1), np.float32)
    early, _ = numpy_policy.explore(made, None, obs, rng, 0)
    late, _ = numpy_policy.explore(made, None, obs, rng)
    assert early[:, 0, 2].mean() == pytest.approx(0.75, abs=0.01)
    assert early[:, 0].sum(-1) == pytest.approx(1)
    assert early[:, 1].std() == pytest.approx(0.2, rel=0.02)
    assert late[:, 1].std() == pytest.approx(0.05, rel=0.02)


def test_the_first_of_equal_choices_counts():
    layer = numpy_policy.Layer(np.zeros((2, 1, 5), np.float32), np.zeros((2, 1, 5), np.float32))
    spaces = (numpy_policy.Space(5, (2, 3)), numpy_policy.Space(3, (3,)))
    for some in (spaces, spaces[1:] * 2):
        made = numpy_policy.make_team((layer,), some, numpy_policy.Rules(world_action="one-hot"))
        found = numpy_policy.greedy(made, np.zeros((2, 1), np.float32))
        assert found[1].tolist() == [1, 0, 0, 0, 0]
        assert found[0].tolist() == ([1, 0, 1, 0, 0] if some is spaces else [1, 0, 0, 0, 0])
    assert numpy_policy.choices(spaces[0], np.array([0.2, 0.8, 0.1, 0.1, 0.8])) == [1, 2]


@every
def test_one_agent_out_of_the_team(team, settings):
    spec, _, _, _, made, obs = both(team, settings)
    whole = numpy_policy.greedy(made, obs)
    for i, size in enumerate(spec.obs_sizes):
        one = numpy_policy.only(made, i, size)
        alone = numpy_policy.greedy(one, obs[:, i : i + 1, :size])
        np.testing.assert_allclose(alone[:, 0], whole[:, i, : spec.act_sizes[i]], atol=1e-6)


def test_the_module_needs_numpy_alone(tmp_path: Path):
    """A copy of the file runs where nothing else of ours can be imported."""
    (tmp_path / "policy.py").write_text(Path(numpy_policy.__file__).read_text())
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('jax', 'jaxlib', 'jaxtyping', 'counterpoint')));"
        f"sys.path.insert(0, {str(tmp_path)!r}); import policy; print(policy.Space(2, (2,)).heads)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "(2,)\n"), done.stderr


def test_acting_takes_microseconds():
    """Three agents of two layers of 64: far below a millisecond even on a busy machine (20 to 50 µs on an idle one)."""
    widths = [18, 64, 64, 5]
    layers = [numpy_policy.Layer(np.ones((3, a, b), np.float32), np.ones((3, 1, b), np.float32)) for a, b in pairwise(widths)]
    made = numpy_policy.make_team(tuple(layers), (numpy_policy.Space(5, (5,)),) * 3, numpy_policy.Rules())
    obs, rng, best = np.ones((3, 18), np.float32), np.random.default_rng(0), np.inf
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(50):
            numpy_policy.explore(made, None, obs, rng)
        best = min(best, (time.perf_counter() - start) / 50)
    assert best < 5e-4
