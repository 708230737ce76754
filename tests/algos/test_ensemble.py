"""Policy ensembles: who acts, which sub-policy learns from what, and the gradient of the ensemble objective."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterpoint
from counterpoint.algos import maddpg
from counterpoint.algos.ensemble import OWN, only_member, sizes_of, with_ensemble
from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.types import Transition
from counterpoint.envs import make
from counterpoint.training.replay import example, of_members, uniform
from counterpoint.training.rollout import rollout, start
from tiny import TINY

SIZES = (3, 2)


@pytest.fixture(scope="module")
def parts() -> Any:
    env = make("simple_tag")
    config = maddpg.Config(num_units=4, num_layers=1, world_action="one-hot")
    algo = maddpg.make(config, env.spec, np.ones((4, 4), bool))
    wrapped = with_ensemble(algo, env.spec, SIZES, "maddpg")
    agents = wrapped.init(prng.key(0))
    envs = start(env, wrapped, prng.key(1), 12)
    play = jax.jit(lambda agents, envs, key: rollout(env, wrapped, wrapped.policy(agents), envs, key, 60, jnp.int32(0)))
    _, steps, _ = play(agents, envs, prng.key(2))
    return env, algo, wrapped, agents, steps


def test_a_team_draws_one_sub_policy_for_a_whole_episode(parts: Any) -> None:
    *_, steps = parts
    _, member = steps.extras
    assert member.shape == (60, 12, 2)
    assert set(np.unique(member[..., 0])) == {0, 1, 2}
    assert set(np.unique(member[..., 1])) == {0, 1}
    pairs = {tuple(pair) for pair in np.asarray(member).reshape(-1, 2).tolist()}
    assert len(pairs) > 3, "teams draw independently"
    changed = np.asarray(member[1:] != member[:-1]).any(-1)
    assert changed.any()
    assert not np.any(changed & ~np.asarray(steps.done[:-1]))


def test_the_drawn_sub_policy_acts(parts: Any) -> None:
    """Greedy actions of the ensemble are those of the plain algorithm with the drawn actors in place."""
    _, algo, wrapped, agents, steps = parts
    obs, member = steps.obs[0], steps.extras[1][0]
    carry = wrapped.begin(prng.key(0))
    lead = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (12, *leaf.shape)), carry)._replace(member=member)
    policy = wrapped.policy(agents)
    action, _ = wrapped.greedy(policy, lead, obs)
    for e in range(12):
        index = np.asarray(member[e])[[0, 0, 0, 1]]
        plain = jax.tree.map(lambda leaf, index=index: leaf[np.arange(4), index], policy)
        expected, _ = algo.greedy(plain, (), obs[e][None])
        np.testing.assert_array_equal(action[e], expected[0])
    chosen = only_member(policy, 2, [3, 3, 3, 2])
    for leaf, old in zip(jax.tree.leaves(chosen), jax.tree.leaves(policy), strict=True):
        for k in range(3):
            np.testing.assert_array_equal(leaf[:3, k], old[:3, 2])
            np.testing.assert_array_equal(leaf[3, k], old[3, 1], err_msg="the smaller team plays its last")


@pytest.mark.slow
def test_an_update_is_that_of_the_sub_policies_that_played(parts: Any) -> None:
    """Members (2, 1) learn exactly as single policies would, the others stay, and the critics are shared."""
    _, algo, wrapped, agents, steps = parts
    batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:32], steps._replace(carry=None))
    batch = batch._replace(extras=((), jnp.broadcast_to(jnp.array([[2, 1]]), (32, 2))))
    after, metrics = jax.jit(wrapped.update)(agents, batch, prng.key(3))
    index = np.array([2, 2, 2, 1])
    single = agents._replace(
        **{name: jax.tree.map(lambda leaf: leaf[np.arange(4), index], getattr(agents, name)) for name in OWN}
    )
    expected, same = jax.jit(algo.update)(single, batch._replace(extras=()), prng.key(3))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), metrics, same)
    for name in expected._fields:
        ours, theirs = getattr(after, name), getattr(expected, name)
        if name in OWN:
            ours = jax.tree.map(lambda leaf: leaf[np.arange(4), index], ours)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), ours, theirs)
    moved = np.asarray(after.actor[0].weight != agents.actor[0].weight).any(axis=(2, 3))
    np.testing.assert_array_equal(moved, np.arange(3)[None] == index[:, None])


class Toy(NamedTuple):
    """Agents whose policies are one number each."""

    actor: jax.Array
    target_actor: jax.Array
    actor_opt: jax.Array


GOAL = 3.0


def value(theta: jax.Array, obs: jax.Array) -> jax.Array:
    """Q(o, a) = −(a − 3)² of the action a = θ o."""
    return -((theta * obs - GOAL) ** 2)


def climb(agents: Toy, batch: Transition, key: Any) -> tuple[Toy, dict[str, Any]]:
    """Steps up the gradient of Q over the minibatch."""
    gradient = jax.grad(lambda actor: jnp.mean(jnp.sum(value(actor[None], batch.obs[..., 0]), axis=1)))(agents.actor)
    return agents._replace(actor=agents.actor + gradient), {}


def test_the_gradient_of_the_ensemble_objective_by_hand() -> None:
    """J(θ) = ½ (R(θ₁) + R(θ₂)), where R(θ_k) is the mean of Q(o, θ_k o) over what sub-policy k saw.

    With θ = (0, 1), o = 1 in the episodes of the first and o = 2 in those of the second, ∂R/∂θ₁ = −2 (0 − 3) · 1 = 6 and
    ∂R/∂θ₂ = −2 (2 − 3) · 2 = 4, so the gradient of J is (3, 2). An update is a sample of it: (6, 0) or (0, 4), equally often,
    even though the first sub-policy played three of four steps.
    """
    spec, count = make("simple").spec, 4000
    algo = maddpg.make(maddpg.Config(), spec, np.ones((1, 1), bool))._replace(
        init=lambda key: Toy(*jax.random.normal(key, (3, 1))), update=climb
    )
    wrapped = with_ensemble(algo, spec, (2,), "toy")
    one = example(spec, extras=((), jax.ShapeDtypeStruct((1,), jnp.int32)))
    member = jnp.asarray(np.arange(64).reshape(32, 2, 1) % 4 == 3, jnp.int32)
    steps = jax.tree.map(lambda leaf: jnp.zeros((32, 2, *leaf.shape), leaf.dtype), one)
    obs = jnp.zeros((32, 2, 1, spec.obs_size)).at[..., 0].set(1.0 + member)
    steps = steps._replace(obs=obs, alive=jnp.ones((32, 2, 1), bool), extras=((), member))
    memory = of_members(uniform(one, 64, 8, 64), one, 8, (2,))
    ring = memory.add(memory.init(), steps)
    agents = wrapped.init(prng.key(0))._replace(actor=jnp.array([[0.0, 1.0]]))

    @jax.jit
    @jax.vmap
    def step(key: Any) -> jax.Array:
        return (wrapped.update(agents, memory.sample(ring, key), key)[0].actor - agents.actor)[0]

    found = np.asarray(step(jax.random.split(prng.key(1), count)))
    first = found[:, 0] > 0
    np.testing.assert_allclose(found[first], np.broadcast_to([6.0, 0.0], (first.sum(), 2)), rtol=1e-5)
    np.testing.assert_allclose(found[~first], np.broadcast_to([0.0, 4.0], ((~first).sum(), 2)), rtol=1e-5)
    error = 5 * np.sqrt(0.25 / count)  # five standard errors of a share of one half
    assert abs(first.mean() - 0.5) < error
    np.testing.assert_allclose(found.mean(axis=0), [3.0, 2.0], atol=6 * error)
    objective = jax.grad(lambda theta: jnp.mean(value(theta, jnp.array([1.0, 2.0]))))
    np.testing.assert_allclose(objective(agents.actor[0]), [3.0, 2.0])


def test_every_sub_policy_plays_equally_often(parts: Any) -> None:
    _, _, wrapped, _, _ = parts
    count = 6000
    member = np.asarray(jax.jit(jax.vmap(lambda key: wrapped.begin(key).member))(jax.random.split(prng.key(5), count)))
    shares = np.histogram2d(*member.T, bins=(np.arange(4), np.arange(3)))[0] / count
    np.testing.assert_allclose(shares, 1 / 6, atol=5 * np.sqrt(1 / 6 * 5 / 6 / count))  # five standard errors


def test_a_sample_is_of_one_pair_of_sub_policies(parts: Any) -> None:
    env, _, _, _, steps = parts
    extras = ((), jax.ShapeDtypeStruct((2,), jnp.int32))
    one = example(env.spec, extras=extras)
    memory = of_members(uniform(one, 720, 16, 720), one, 16, SIZES)
    ring = memory.add(memory.init(), steps._replace(carry=None))
    sample, seen = jax.jit(memory.sample), set()
    kept = {
        tuple(np.asarray(obs).ravel().tolist()): tuple(pair)
        for obs, pair in zip(
            np.asarray(steps.obs).reshape(720, -1), np.asarray(steps.extras[1]).reshape(720, 2).tolist(), strict=True
        )
    }
    for k in range(40):
        batch = sample(ring, prng.key(k))
        pair = tuple(np.asarray(batch.extras[1][0]).tolist())
        assert (np.asarray(batch.extras[1]) == np.array(pair)).all()
        if pair in kept.values():
            assert np.asarray(batch.alive).any()
            assert all(kept[tuple(row)] == pair for row in np.asarray(batch.obs).reshape(16, -1).tolist())
        else:
            assert not np.asarray(batch.alive).any(), "nothing is learned from what nobody played"
        seen.add(pair)
    assert len(seen) >= 5, "every pair has the same chance"


def test_devices_that_share_a_minibatch_draw_the_same_sub_policies(parts: Any) -> None:
    env, _, _, _, steps = parts
    one = example(env.spec, extras=((), jax.ShapeDtypeStruct((2,), jnp.int32)))
    halves = [jax.tree.map(lambda leaf, k=k: leaf[:, k::2], steps._replace(carry=None)) for k in (0, 1)]

    def members(axis: str | None) -> np.ndarray:
        memory = of_members(uniform(one, 360, 8, 360), one, 8, SIZES, axis)
        rings = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(memory.add(memory.init(), half) for half in halves))
        sample = jax.vmap(lambda ring, key: memory.sample(ring, key).extras[1][0], axis_name="devices")
        return np.array([sample(rings, jax.random.split(prng.key(k), 2)) for k in range(20)])

    drawn = members("devices")
    np.testing.assert_array_equal(drawn[:, 0], drawn[:, 1])
    assert len(np.unique(drawn[:, 0], axis=0)) >= 4
    apart = members(None)
    assert (apart[:, 0] != apart[:, 1]).any()


RUNS: dict[str, dict[str, Any]] = {
    "maddpg": {},
    "two devices": {"devices": 2},
    "ddpg": {"algorithm": "ddpg"},
    "matd3": {"algorithm": "matd3"},
    "continuous": {"actions": "continuous"},
    "continuous matd3": {"algorithm": "matd3", "actions": "continuous"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_with_an_ensemble_plays_exports_and_resumes(name: str, tmp_path: Path) -> None:
    settings = TINY | {"scenario": "simple_tag", "num_episodes": 24, "warmup": 100, "ensemble": 2, "save_dir": str(tmp_path)}
    settings |= RUNS[name]
    run = counterpoint.train(exp_name="two", ensemble_teams=["adversary"], **settings)
    assert counterpoint.resume(run.path, num_episodes=32).rows()[-1]["episode"] == 32
    first, second = (counterpoint.load(run, member=k) for k in (0, 1))
    weights = [np.asarray(policy.parameters.actor[0].weight) for policy in (first, second)]
    assert not np.allclose(weights[0][:3], weights[1][:3])
    drawn = np.asarray(counterpoint.load(run).parameters.actor[0].weight)
    np.testing.assert_array_equal(weights[1][:3, 0], drawn[:3, 1])
    np.testing.assert_array_equal(weights[1][3, 0], drawn[3, 0], err_msg="the good team has one policy")
    folders = [counterpoint.export(run, "numpy", tmp_path / f"out{k}", member=k) for k in (0, 1)]
    with np.load(folders[0] / "team.npz") as a, np.load(folders[1] / "team.npz") as b:
        assert not np.allclose(a["0.weight"][:3], b["0.weight"][:3])
    assert np.isfinite(counterpoint.load(run).evaluate(4).returns).all()
    with pytest.raises(UsageError, match="has 2 sub-policies, counted from 0, and 2 is none of them"):
        counterpoint.load(run, member=2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ensemble": 0}, "--ensemble must be at least 1"),
        ({"ensemble": 33}, "--ensemble must be at most 32"),
        ({"ensemble": 2, "algorithm": "coma", "scenario": "simple_spread"}, "needs a replay memory, and coma has none"),
        ({"ensemble": 2, "minibatch": "per-agent"}, "--ensemble 2 excludes --minibatch per-agent"),
        ({"ensemble": 2, "share": "role"}, "--ensemble 2 excludes .* --share"),
        ({"ensemble": 2, "ensemble_teams": ["wolves"]}, "--ensemble-teams wolves names no team here"),
    ],
)
def test_senseless_ensembles_are_refused(settings: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        counterpoint.train(**{"scenario": "simple_tag", "save_dir": str(tmp_path), **settings})


def test_sizes_follow_the_teams() -> None:
    spec = make("simple_tag").spec
    assert sizes_of(spec, 3) == (3, 3)
    assert sizes_of(spec, 3, ["good"]) == (1, 3)
