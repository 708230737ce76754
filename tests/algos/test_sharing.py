"""Agents that share parameters: who shares with whom, summed gradients, acting, and whole runs."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterpoint
from counterpoint import config as configs
from counterpoint.algos import coma, maddpg, offpolicy, sharing
from counterpoint.algos.base import find
from counterpoint.core import prng
from counterpoint.core.actions import heads_of
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import Layer
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Transition
from counterpoint.training.program import prepare
from probes import spec_of
from tiny import TINY

QUICKLY = {"xla_backend_optimization_level": 0}
PACK = dataclasses.replace(
    spec_of((2, 2, 3), (Discrete((2,)), Discrete((2,)), Discrete((3,)))), roles=("wolf", "wolf", "sheep")
)
HERD = dataclasses.replace(spec_of((2, 2), (Discrete((2,)), Discrete((2,)))), roles=("sheep", "sheep"))
ARMS = dataclasses.replace(
    spec_of((2, 2, 3), (Box(2, -1.0, 1.0), Box(2, -1.0, 1.0), Box(1, 0.0, 2.0))), roles=("wolf", "wolf", "sheep")
)
JOINT = np.ones((3, 3), bool)
SIZE = 6


def config_of(**settings):
    return maddpg.Config(num_units=4, num_layers=1, clip=0.0, gamma=0.0, **settings)


def problem_of(config, spec, sees=JOINT):
    n = spec.num_agents
    return offpolicy.with_networks(config, maddpg.Problem(spec, heads_of(spec), sees[:n, :n]))


def batch_of(spec, seed=0):
    rng, n = np.random.default_rng(seed), spec.num_agents
    obs, next_obs = (jnp.asarray(rng.normal(size=(SIZE, n, spec.obs_size)) * spec.obs_mask, jnp.float32) for _ in range(2))
    return Transition(
        obs=obs,
        action=jnp.asarray(rng.uniform(size=(SIZE, n, spec.act_size)) * spec.act_mask, jnp.float32),
        reward=jnp.asarray(rng.normal(size=(SIZE, n)), jnp.float32),
        next_obs=next_obs,
        terminated=jnp.zeros((SIZE, n), bool),
        alive=jnp.asarray(rng.random((SIZE, n)) < 0.8),
        done=jnp.zeros(SIZE, bool),
    )


def test_sets_follow_roles():
    assert sharing.sharing_of("none", PACK) is None
    by_role, by_all = sharing.sharing_of("role", PACK), sharing.sharing_of("all", PACK)
    assert by_role is not None
    assert by_all is not None
    np.testing.assert_array_equal(by_role.sets, [0, 0, 1])
    np.testing.assert_array_equal(by_role.first, [0, 2])
    np.testing.assert_array_equal(by_all.sets, [0, 0, 0])
    assert (by_role.ids, by_all.ids) == (False, True), "only where agents of different roles share"
    alike = sharing.sharing_of("all", HERD)
    assert alike is not None
    assert not alike.ids


def test_sums_are_those_of_each_set():
    by_role = sharing.sharing_of("role", PACK)
    assert by_role is not None
    found = jax.vmap(lambda x: sharing.summed(by_role, x), axis_name=sharing.AGENTS)(jnp.array([1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(found, [3.0, 3.0, 4.0])


def test_a_shared_critic_lists_the_agent_itself_first():
    problem = problem_of(config_of(share="role"), PACK)
    inputs = jnp.arange(18.0)[:, None]  # three observations of 3, then three actions of 3
    seen = offpolicy.seen_by(problem, inputs, jnp.int32(1))
    np.testing.assert_array_equal(seen[:, 0], [3, 4, 5, 0, 1, 2, 6, 7, 8, 12, 13, 14, 9, 10, 11, 15, 16, 17])


@pytest.mark.parametrize("share", ["role", "all"])
def test_gradients_are_summed_over_sharers(share):
    """The first moment of Adam is a tenth of the gradient: that of the sum of the losses of the agents of each set."""
    config = config_of(share=share)
    problem, batch, key = problem_of(config, PACK), batch_of(PACK), prng.key(1)
    agents = maddpg.init(config, problem, key)
    sets = problem.sharing.sets
    assert {leaf.shape[0] for leaf in jax.tree.leaves(agents.actor)} == {sets.max() + 1}
    after, metrics = jax.jit(lambda agents: maddpg.update(config, problem, agents, batch, key), compiler_options=QUICKLY)(
        agents
    )
    assert all(value.shape == (3,) for value in metrics.values())

    columns = offpolicy.in_columns(batch)

    def losses(critics):
        total = 0.0
        for i in range(3):
            mine = offpolicy.in_columns(offpolicy.column(batch, jnp.int32(i)))
            view = offpolicy.view_of(problem, mine, columns, jnp.int32(i))
            own = jax.tree.map(lambda leaf, i=i: leaf[sets[i]], critics)
            loss, _ = maddpg.critic_loss(problem, own, view, mine.reward)  # γ = 0
            total = total + loss / jnp.mean(view.alive)
        return total

    expected = jax.grad(losses)(agents.critic)
    moment = after.critic_opt[0].mu
    jax.tree.map(lambda m, g: np.testing.assert_allclose(10 * m, g, rtol=1e-4, atol=1e-5), moment, expected)


def of_nets(function, *trees):
    """The function of every network of these trees."""
    return jax.tree.map(function, *trees, is_leaf=lambda tree: isinstance(tree, tuple) and isinstance(tree[0], Layer))


def as_if_alone(shared, rows, real, net):
    """Networks of each agent's own that compute what a shared one does, given the row of its input for each row of theirs.

    `real` is True where an output is real. The agent's index becomes a part of the first bias.
    """
    nets = []
    for i, own in enumerate(rows):
        first, *rest = jax.tree.map(lambda leaf, m=shared.sets[i]: leaf[m], net)
        bias = first.bias + (first.weight[len(own) + i] if shared.ids else 0.0)
        first = first._replace(weight=first.weight[np.argsort(own)], bias=bias)
        *before, last = (first, *rest)
        outputs = np.tile(real[i], last.bias.size // real[i].size)  # MASAC: deviations follow the means
        weight, bias = (jnp.where(np.broadcast_to(outputs, leaf.shape), leaf, 0.0) for leaf in (last.weight, last.bias))
        nets.append((*before, last._replace(weight=weight, bias=bias)))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *nets)


def summed_over_sets(shared, rows, grads):
    """The sums over each set of the gradients of networks of each agent's own, laid out as those of a shared network."""
    each = []
    for i, own in enumerate(rows):
        first, *rest = jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), grads)
        index = np.eye(len(rows))[i, : shared.num_ids, None] * first.bias
        each.append((first._replace(weight=np.concatenate([first.weight[own], index])), *rest))
    sums = [jax.tree.map(lambda *leaves: sum(leaves), *(each[i] for i in members)) for members in shared.members]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *sums)


@pytest.mark.parametrize("share", ["role", "all"])
@pytest.mark.parametrize("algorithm", ["maddpg", "ddpg", "matd3", "masac"])
def test_continuous_agents_that_share_step_along_the_sum_of_what_each_would_learn_alone(algorithm, share):
    """Each agent alone has networks that compute the same; its critic lists all agents in their order, not itself first."""
    entry, n = find(algorithm), ARMS.num_agents
    sees = np.eye(n, dtype=bool) if entry.critic == "own" else JOINT
    settings = {"num_units": 4, "num_layers": 1, "clip": 0.0, "policy_delay": 1, "logit_cost": 0.3}
    settings |= {"critic_lr": 1e-12}  # actors learn from critics that have made their step, and these would step apart
    settings = {name: value for name, value in settings.items() if hasattr(entry.settings, name)}
    algo = entry.make(entry.settings(share=share, **settings), ARMS, sees, None)
    alone = entry.make(entry.settings(**settings), ARMS, sees, None)
    shared = sharing.sharing_of(share, ARMS)
    assert shared is not None
    obs, action = ((sharing.own_first(n)[..., None] * size + np.arange(size)).reshape(n, -1) for size in (3, 2))
    of_actors = np.tile(np.arange(3), (n, 1)), ARMS.act_mask
    of_critics = np.concatenate([obs, 3 * n + action], axis=1), np.ones((n, 1), bool)

    @partial(jax.jit, compiler_options=QUICKLY)
    def run(key):
        agents, batch = algo.init(key), batch_of(ARMS)
        nets = {
            name: of_nets(partial(as_if_alone, shared, *(of_actors if "actor" in name else of_critics)), getattr(agents, name))
            for name in agents._fields
            if name.removeprefix("target_") in ("actor", "critic", "critics")
        }
        return algo.update(agents, batch, key), alone.update(alone.init(key)._replace(**nets), batch, key)

    (after, metrics), (expected, expected_metrics) = run(prng.key(3))
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, metrics, expected_metrics)
    for name in after._fields:
        if "opt" not in name:
            continue
        gradients = [
            [opt[0].mu for opt in (opts if name.endswith("opts") else [opts])]  # tenths of them
            for opts in (getattr(agents, name) for agents in (after, expected))
        ]
        for found, each in zip(*gradients, strict=True):
            if name == "alpha_opt":
                close(found, [each[members].sum() for members in shared.members])
                continue
            rows, _ = of_actors if "actor" in name else of_critics
            total = summed_over_sets(shared, rows, each)
            jax.tree.map(close, found, total)
            assert np.abs(total[0].weight).max() > 1e-3


def test_reward_moments_are_those_of_the_set():
    config = config_of(share="role", standardise_rewards=True)
    problem, batch = problem_of(config, PACK), batch_of(PACK)

    @partial(jax.jit, compiler_options=QUICKLY)
    def run(key):
        return maddpg.update(config, problem, maddpg.init(config, problem, key), batch, key)

    after, _ = run(prng.key(0))
    for m, members in enumerate(([0, 1], [2])):
        rewards = np.concatenate([np.asarray(batch.reward)[np.asarray(batch.alive)[:, i], i] for i in members])
        assert after.rewards.count[m] == len(rewards)
        np.testing.assert_allclose(after.rewards.mean[m], rewards.mean(), rtol=1e-5)
        np.testing.assert_allclose(after.rewards.variance[m], rewards.var(), rtol=1e-4)


@pytest.mark.parametrize("share", ["role", "all"])
def test_plain_networks_act_like_shared_ones(share):
    config = config_of(share=share)
    problem = problem_of(config, PACK)
    agents = maddpg.init(config, problem, prng.key(2))
    obs = batch_of(PACK).obs
    shared = offpolicy.acting_outputs(problem, agents.actor, obs)
    layers = offpolicy.plain_actors(config, PACK, agents.actor)
    alone = offpolicy.acting_outputs(problem._replace(sharing=None), layers, obs)
    np.testing.assert_allclose(shared, alone, atol=1e-5)


def test_agents_of_a_role_act_alike_and_others_do_not():
    config = coma.Config(num_units=4, num_layers=1, share="role")
    algo = coma.make(config, PACK)
    agents = algo.init(prng.key(0))
    obs = jnp.ones((1, 3, 3)) * jnp.asarray(PACK.obs_mask)[None]
    logits, _ = coma.policy(config, PACK, agents.actor, (), obs)
    np.testing.assert_array_equal(logits[0, 0], logits[0, 1])
    assert np.abs(logits[0, 0, :2] - logits[0, 2, :2]).max() > 1e-3


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"share": "role", "order": "sequential"}, "leave out --order sequential"),
        ({"share": "all", "norm": "batch"}, "choose --norm layer beside --share all"),
    ],
)
def test_what_cannot_be_shared_is_refused(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        maddpg.Config(**settings)


def test_masac_shares_between_discrete_or_between_continuous_agents():
    """Its critics have an output for each choice of a discrete agent, and read the action of a continuous one."""
    mixed = dataclasses.replace(ARMS, action_spaces=(*ARMS.action_spaces[:2], Discrete((2,))))
    algo = find("masac").make(find("masac").settings(share="all"), mixed, JOINT, None)
    with pytest.raises(UsageError, match="discrete and with continuous actions cannot share parameters: choose --share role"):
        jax.eval_shape(algo.init, prng.key(0))


def test_mixed_teams_and_learners_are_refused():
    config = configs.override(configs.Config(), scenario="simple_tag", share="all", adv_policy="ddpg", **TINY)
    with pytest.raises(UsageError, match="choose --share role"):
        prepare(config)
    config = configs.override(configs.Config(), scenario="simple_tag", share="role", learners=4, **TINY)
    with pytest.raises(UsageError, match="--share none"):
        prepare(config)


@pytest.mark.parametrize("algorithm", ["matd3", "masac"])
@pytest.mark.parametrize("share", ["role", "all"])
def test_every_off_policy_algorithm_learns_with_shared_parameters(algorithm, share):
    """Sets of parameters stay sets, everything stays finite, and plain networks act like the shared ones."""
    entry = find(algorithm)
    settings = entry.settings(num_units=4, num_layers=1, share=share)
    algo = entry.make(settings, PACK, JOINT, None)
    before = algo.init(prng.key(0))
    batch = batch_of(PACK)
    batch = batch._replace(action=(batch.action == jnp.max(batch.action, axis=-1, keepdims=True)).astype(jnp.float32))
    after, metrics = jax.jit(algo.update, compiler_options=QUICKLY)(before, batch, prng.key(1))
    assert {leaf.shape[0] for leaf in jax.tree.leaves(after)} == {2 if share == "role" else 1}
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, metrics)))
    assert {value.shape for value in metrics.values()} == {(3,)}
    plain = entry.actors(settings, PACK, algo.policy(after))
    assert plain is not None
    assert {leaf.shape[0] for leaf in jax.tree.leaves(plain.layers)} == {3}


@pytest.mark.parametrize(("algorithm", "share"), [("maddpg", "role"), ("ddpg", "all")])
def test_a_resumed_run_equals_an_uninterrupted_one(algorithm, share, tmp_path):
    settings = {
        "algorithm": algorithm,
        "share": share,
        "scenario": "simple_tag",
        "num_seeds": 2,
        "save_dir": str(tmp_path),
        **TINY,
    }
    whole = counterpoint.train(num_episodes=24, exp_name="whole", **settings)
    part = counterpoint.train(num_episodes=16, exp_name="part", **settings)
    part = counterpoint.resume(part.path, num_episodes=24)
    ends = [{name: row[name] for name in row if "second" not in name} for row in (whole.rows()[-1], part.rows()[-1])]
    assert ends[0] == ends[1]
