"""Policy ensembles: who acts, which sub-policy learns from what, and the gradient of the ensemble objective."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterpoint
from counterpoint.algos import maddpg, offpolicy
from counterpoint.algos.ensemble import of_agents, only_member, sizes_of, with_ensemble
from counterpoint.core import prng
from counterpoint.core.actions import Draw, heads_of
from counterpoint.core.errors import UsageError
from counterpoint.core.types import Transition
from counterpoint.envs import make
from counterpoint.training.replay import example, of_members, uniform
from counterpoint.training.rollout import rollout, start
from tiny import TINY

SIZES = (3, 3)


@pytest.fixture(scope="module")
def parts() -> Any:
    env = make("simple_tag")
    config = maddpg.Config(num_units=4, num_layers=1, world_action="one-hot")
    algo = maddpg.make(config, env.spec, np.ones((4, 4), bool))
    wrapped = with_ensemble(algo, env.spec, SIZES)
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
    assert set(np.unique(member[..., 1])) == {0, 1, 2}
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


def test_one_environment_acts_as_the_drawn_sub_policy_would(parts: Any) -> None:
    _, algo, wrapped, agents, steps = parts
    carry = jax.tree.map(lambda leaf: leaf[None], wrapped.begin(prng.key(0)))._replace(member=jnp.array([[2, 1]]))
    policy, obs = wrapped.policy(agents), steps.obs[0, :1]
    action, after, (_, member) = wrapped.act(policy, carry, obs, prng.key(4), jnp.int32(0))
    plain = jax.tree.map(lambda leaf: leaf[np.arange(4), [2, 2, 2, 1]], policy)
    np.testing.assert_array_equal(action, algo.act(plain, (), obs, prng.key(4), jnp.int32(0))[0])
    np.testing.assert_array_equal(member, [[2, 1]])
    np.testing.assert_array_equal(after.member, [[2, 1]])


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(3, 3), (3, 1)], ids=["both teams", "one team"])
def test_an_update_steps_every_sub_policy_on_its_part(sizes: tuple[int, int]) -> None:
    """Composed by hand: critics step by the mean gradient of all parts, sub-policies by a third of that of their own part.

    Actions are continuous, so that nothing is random.
    """
    env, config = make("simple_tag", actions="continuous"), maddpg.Config(num_units=4, num_layers=1)
    spec, sees = env.spec, np.ones((4, 4), bool)
    wrapped = with_ensemble(maddpg.make(config, spec, sees, ensemble=of_agents(spec, sizes)), spec, sizes)
    agents = wrapped.init(prng.key(0))
    play = jax.jit(lambda envs: rollout(env, wrapped, wrapped.policy(agents), envs, prng.key(2), 4, jnp.int32(0)))
    steps = play(start(env, wrapped, prng.key(1), 12))[1]
    batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), steps._replace(carry=None, extras=()))
    dealt = np.array([[2, 1], [0, 2], [1, 0]]) * (np.array(sizes) > 1)
    members = jnp.repeat(jnp.asarray(dealt, jnp.int32), 16, axis=0)
    after, metrics = jax.jit(wrapped.update)(agents, batch._replace(extras=((), members)), prng.key(3))
    assert set(metrics) == set(wrapped.metrics)

    problem = offpolicy.with_networks(config, offpolicy.Problem(spec, heads_of(spec), sees))
    parts = [jax.tree.map(lambda leaf, k=k: leaf[16 * k : 16 * (k + 1)], batch) for k in range(3)]
    index = dealt[:, [0, 0, 0, 1]]
    for i in range(4):
        critic, views, grads = jax.tree.map(lambda leaf, i=i: leaf[i], agents.critic), [], []
        for part, playing in zip(parts, index, strict=True):
            mine, columns = offpolicy.in_columns(offpolicy.column(part, jnp.int32(i))), offpolicy.in_columns(part)
            target = jax.tree.map(lambda leaf, playing=playing: leaf[np.arange(4), playing], agents.target_actor)
            action = offpolicy.target_actions(problem, target, columns, config.relax, jnp.zeros_like(columns.action))
            seen = offpolicy.seen_by(problem, offpolicy.joint(columns.next_obs, action), jnp.int32(i))
            value = offpolicy.next_q(problem, jax.tree.map(lambda leaf, i=i: leaf[i], agents.target_critic), seen)
            y = offpolicy.targets(config, problem, mine, columns, mine.reward, value)
            views.append(offpolicy.view_of(problem, mine, columns, jnp.int32(i)))
            grads.append(
                jax.grad(lambda critic, view=views[-1], y=y: offpolicy.critic_loss(problem, critic, view, y)[0])(critic)
            )

        def stepped(name: str, net: Any, grad: Any, pick: Any) -> Any:
            return offpolicy.descend(config, config.lr, net, grad, jax.tree.map(pick, getattr(agents, f"{name}_opt")))[0]

        critic = stepped("critic", critic, mean_of(grads), lambda leaf, i=i: leaf[i])
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, atol=1e-6), after.critic, critic)
        climbs = []
        for part, view in enumerate(views):
            actor = jax.tree.map(lambda leaf, i=i, part=part: leaf[i, index[part, i]], agents.actor)
            noise = Draw(jnp.zeros((spec.act_size, 16)))
            climbs.append(jax.grad(partial(maddpg.actor_loss, config, problem))(actor, critic, view, noise))
        single = sizes[spec.teams[i] == "good"] == 1
        for part in range(3):
            k = index[part, i]
            grad = mean_of(climbs) if single else jax.tree.map(lambda leaf: leaf / 3, climbs[part])
            actor = jax.tree.map(lambda leaf, i=i, k=k: leaf[i, k], agents.actor)
            expected = stepped("actor", actor, grad, lambda leaf, i=i, k=k: leaf[i, k])
            jax.tree.map(lambda a, b, i=i, k=k: np.testing.assert_allclose(a[i, k], b, atol=1e-6), after.actor, expected)


def mean_of(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *trees)


class Toy(NamedTuple):
    """Agents whose policies are one number each."""

    actor: jax.Array
    target_actor: jax.Array
    actor_opt: jax.Array


GOAL = 3.0


def value(theta: jax.Array, obs: jax.Array) -> jax.Array:
    """Q(o, a) = −(a − 3)² of the action a = θ o."""
    return -((theta * obs - GOAL) ** 2)


def climb(problem: offpolicy.Problem, agents: Toy, batch: Transition, key: Any) -> tuple[Toy, dict[str, Any]]:
    """Steps up the gradient of Q over the minibatch, as `per_living` has it."""
    gradient = jax.grad(lambda actor: jnp.mean(value(actor[0], batch.obs[:, 0, 0])))(agents.actor)
    mine, columns = (offpolicy.in_columns(part) for part in (offpolicy.column(batch, jnp.int32(0)), batch))
    view = offpolicy.view_of(problem, mine, columns, jnp.int32(0))
    gradient, _ = offpolicy.per_living(problem, view, (gradient, {}), actor=jnp.int32(0))
    return agents._replace(actor=agents.actor + gradient), {}


def test_the_gradient_of_the_ensemble_objective_by_hand() -> None:
    """J(θ) = ½ (R(θ₁) + R(θ₂)), where R(θ_k) is the mean of Q(o, θ_k o) over what sub-policy k saw.

    With θ = (0, 1), o = 1 in the episodes of the first and o = 2 in those of the second, ∂R/∂θ₁ = −2 (0 − 3) · 1 = 6 and
    ∂R/∂θ₂ = −2 (2 − 3) · 2 = 4, so the gradient of J is (3, 2), even though the first sub-policy played three of four steps.
    """
    spec = make("simple").spec
    problem = offpolicy.Problem(spec, heads_of(spec), np.ones((1, 1), bool), ensemble=(2,))
    algo = maddpg.make(maddpg.Config(), spec, np.ones((1, 1), bool))._replace(
        init=lambda key: Toy(*jax.random.normal(key, (3, 1))), update=partial(climb, problem)
    )
    wrapped = with_ensemble(algo, spec, (2,))
    one = example(spec, extras=((), jax.ShapeDtypeStruct((1,), jnp.int32)))
    member = jnp.asarray(np.arange(64).reshape(32, 2, 1) % 4 == 3, jnp.int32)
    steps = jax.tree.map(lambda leaf: jnp.zeros((32, 2, *leaf.shape), leaf.dtype), one)
    obs = jnp.zeros((32, 2, 1, spec.obs_size)).at[..., 0].set(1.0 + member)
    steps = steps._replace(obs=obs, alive=jnp.ones((32, 2, 1), bool), extras=((), member))
    memory = of_members(uniform(one, 64, 8, 64), one, 8, (2,))
    ring = memory.add(memory.init(), steps)
    agents = wrapped.init(prng.key(0))._replace(actor=jnp.array([[0.0, 1.0]]))
    for k in range(5):
        after, _ = jax.jit(wrapped.update)(agents, memory.sample(ring, prng.key(k)), prng.key(k))
        np.testing.assert_allclose(after.actor - agents.actor, [[3.0, 2.0]], rtol=1e-5)
    objective = jax.grad(lambda theta: jnp.mean(value(theta, jnp.array([1.0, 2.0]))))
    np.testing.assert_allclose(objective(agents.actor[0]), [3.0, 2.0])


def test_every_sub_policy_plays_equally_often(parts: Any) -> None:
    _, _, wrapped, _, _ = parts
    count = 6000
    member = np.asarray(jax.jit(jax.vmap(lambda key: wrapped.begin(key).member))(jax.random.split(prng.key(5), count)))
    shares = np.histogram2d(*member.T, bins=(np.arange(4), np.arange(4)))[0] / count
    np.testing.assert_allclose(shares, 1 / 9, atol=5 * np.sqrt(1 / 9 * 8 / 9 / count))  # five standard errors


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
        parts = np.asarray(batch.extras[1]).reshape(3, 5, 2)  # 16 transitions make three parts of five
        assert (parts == parts[:, :1]).all()
        np.testing.assert_array_equal(np.sort(parts[:, 0], axis=0), np.arange(3)[:, None] + [[0, 0]])
        for part in range(3):
            pair, rows = tuple(parts[part, 0].tolist()), slice(5 * part, 5 * part + 5)
            alive = np.asarray(batch.alive)[rows]
            if pair in kept.values():
                assert alive.any()
                assert all(kept[tuple(row)] == pair for row in np.asarray(batch.obs)[rows].reshape(5, -1).tolist())
            else:
                assert not alive.any(), "nothing is learned from what nobody played"
            seen.add(pair)
    assert len(seen) == 9, "which sub-policies meet is drawn"


def test_devices_that_share_a_minibatch_draw_the_same_sub_policies(parts: Any) -> None:
    env, _, _, _, steps = parts
    one = example(env.spec, extras=((), jax.ShapeDtypeStruct((2,), jnp.int32)))
    halves = [jax.tree.map(lambda leaf, k=k: leaf[:, k::2], steps._replace(carry=None)) for k in (0, 1)]

    def members(axis: str | None) -> np.ndarray:
        memory = of_members(uniform(one, 360, 8, 360), one, 8, SIZES, axis)
        rings = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(memory.add(memory.init(), half) for half in halves))
        sample = jax.vmap(lambda ring, key: memory.sample(ring, key).extras[1][::2].ravel(), axis_name="devices")
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
        ({"ensemble": 2, "algorithm": "coma", "scenario": "simple_spread"}, "needs actors like MADDPG's, and coma has others"),
        ({"ensemble": 2, "norm": "batch"}, "--ensemble 2 excludes .* --norm batch"),
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
