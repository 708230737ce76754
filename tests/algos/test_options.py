"""Options of the learner that are off by default, and those that no other test turns on: each does what it says."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint import config as configs
from counterpoint.algos import maddpg, offpolicy
from counterpoint.algos.base import TD_ERRORS
from counterpoint.core import prng
from counterpoint.core.actions import heads_of
from counterpoint.core.errors import UsageError
from counterpoint.core.ops import Moments, add_moments
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Transition
from counterpoint.training.loop import compile_advance, compile_begin
from counterpoint.training.program import build
from counterpoint.training.replay import example, prioritised, uniform
from counterpoint.training.rollout import rollout, start
from probes import Matching, Reading, Steering, spec_of

FAST = {"xla_backend_optimization_level": 0}
"""Each program runs for a blink: the compiler need not try hard."""
QUICK = maddpg.Config(num_units=32, num_layers=1, tau=0.1, world_action="one-hot")
SPEC = spec_of((3, 2), (Discrete((2,)), Discrete((2,))))
EVERYBODY = np.ones((2, 2), bool)
PROBLEM = maddpg.Problem(SPEC, heads_of(SPEC), EVERYBODY)


def train(env, config, iterations):
    """Agents after that many rounds of rollout, add, sample, update and feedback under one jit."""
    algo = maddpg.make(config, env.spec, np.ones((env.spec.num_agents,) * 2, bool))
    make = uniform if config.replay == "uniform" else prioritised
    memory = make(example(env.spec), 64 * 256, 64, 64)

    def iteration(loop, key):
        agents, worlds, ring = loop
        key_roll, key_sample, key_learn = jax.random.split(key, 3)
        worlds, steps, _ = rollout(env, algo, algo.policy(agents), worlds, key_roll, 4, jnp.zeros((), jnp.int32))
        ring = memory.add(ring, steps)
        batch = memory.sample(ring, key_sample)
        agents, metrics = algo.update(agents, batch, key_learn)
        if TD_ERRORS in metrics:
            ring = memory.feedback(ring, batch.index, metrics[TD_ERRORS])
        return (agents, worlds, ring), None

    @functools.partial(jax.jit, compiler_options=FAST)
    def run(key):
        key_init, key_start, key_loop = jax.random.split(key, 3)
        loop = algo.init(key_init), start(env, algo, key_start, 16), memory.init()
        (agents, _, _), _ = jax.lax.scan(iteration, loop, jax.random.split(key_loop, iterations))
        return agents

    with jax.debug_nans(True):
        return run(prng.key(0)), algo


CUES = jnp.array([[[1.0]], [[-1.0]]])


@pytest.mark.parametrize(
    "option",
    [{"norm": "layer"}, {"norm": "batch", "num_layers": 2, "lr": 3e-3}, {"replay": "prioritised"}],
    ids=["layer", "batch", "prioritised"],
)
def test_the_choice_follows_what_is_seen(option):
    agents, algo = train(Matching(), dataclasses.replace(QUICK, **option), 600)
    action, _ = algo.greedy(algo.policy(agents), algo.begin(prng.key(0)), CUES)
    np.testing.assert_array_equal(action[:, 0], [[0.0, 1.0], [1.0, 0.0]])


class Salary(Reading):
    """Pays 500 plus 100 times the cue: far from standard."""

    def reward(self, state, action):
        return 500.0 + 100.0 * state.cue


@pytest.mark.parametrize(("init", "fans"), [("he", (3, 9)), ("glorot", (3 + 32, 9 + 32))])
def test_actors_and_critics_start_with_the_weights_asked_for(init, fans):
    """The first agent sees 3 numbers and its critic 9: all observations and actions."""
    algo = maddpg.make(dataclasses.replace(QUICK, init=init), SPEC, EVERYBODY)
    agents = jax.jit(algo.init)(prng.key(0))
    for net, fan in zip((agents.actor, agents.critic), fans, strict=True):
        largest = np.max(np.abs(net[0].weight[0]))
        assert 0.9 * np.sqrt(6 / fan) < largest <= np.sqrt(6 / fan)


def test_standardised_rewards_are_learnt_in_units_of_their_deviation():
    agents, _ = train(Salary(), dataclasses.replace(QUICK, standardise_rewards=True), 300)
    np.testing.assert_allclose(agents.rewards.mean, 500.0, rtol=0.01)
    np.testing.assert_allclose(agents.rewards.variance, 100.0**2, rtol=0.01)
    np.testing.assert_allclose(agents.rewards.count, 300 * 64)
    critic = jax.tree.map(lambda leaf: leaf[0], agents.critic)
    for choice in jnp.eye(2):  # what was done in training; between the choices a network may say anything
        inputs = maddpg.joint(jnp.moveaxis(CUES, 0, -1), jnp.broadcast_to(choice[None, :, None], (1, 2, 2)))
        np.testing.assert_allclose(offpolicy.q(PROBLEM, critic, inputs), [1.0, -1.0], atol=0.02)


def test_moments_of_groups_are_those_of_the_whole():
    groups = np.split(np.random.default_rng(0).normal(3.0, 5.0, 60).astype(np.float32), [10, 11, 40])
    moments = Moments(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))
    for group in groups:
        moments = add_moments(moments, *(jnp.float32(x) for x in (group.size, group.mean(), group.var())))
    whole = np.concatenate(groups)
    np.testing.assert_allclose(moments, [60, whole.mean(), whole.var()], rtol=1e-5)


def test_only_rewards_of_living_agents_count_and_devices_agree():
    reward, alive = jnp.array([[1.0, 3.0, 99.0], [8.0, 99.0, 99.0]]), jnp.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    nothing = Moments(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))
    split = PROBLEM._replace(axis="devices")
    seen = jax.vmap(lambda r, a: offpolicy.see_rewards(split, nothing, r, a), axis_name="devices")(reward, alive)
    np.testing.assert_allclose(seen.mean, 4.0)
    np.testing.assert_allclose(seen.variance, 26 / 3, rtol=1e-6)
    now = offpolicy.standardised(Moments(jnp.float32(2), jnp.float32(4), jnp.float32(9)), jnp.array([4.0, 10.0]))
    np.testing.assert_allclose(now, [0.0, 2.0], rtol=1e-6)


def random_batch(shape, seed=0):
    rng = np.random.default_rng(seed)
    arrays = {
        "obs": rng.normal(size=(*shape, 2, 3)) * SPEC.obs_mask,
        "action": rng.dirichlet(np.ones(2), (*shape, 2)),
        "reward": rng.normal(size=(*shape, 2)),
        "next_obs": rng.normal(size=(*shape, 2, 3)) * SPEC.obs_mask,
    }
    flags = {"terminated": np.zeros((*shape, 2), bool), "alive": np.ones((*shape, 2), bool), "done": np.zeros(shape, bool)}
    return Transition(**{name: jnp.asarray(array, jnp.float32) for name, array in arrays.items()}, **flags)


SMALL = maddpg.Config(num_units=8, num_layers=1, tau=0.5)


@functools.cache
def updater(config):
    algo = maddpg.make(config, SPEC, EVERYBODY)
    return algo.init(prng.key(0)), jax.jit(algo.update, compiler_options=FAST)


def row(tree, i):
    return jax.tree.map(lambda leaf: np.asarray(leaf[i]), tree)


def same(one, other):
    return all(np.allclose(a, b, atol=1e-7) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_one_after_another_the_second_agent_sees_what_the_first_became():
    batch = random_batch((16,))
    target = {}
    for order in ("snapshot", "sequential"):
        agents, update = updater(dataclasses.replace(SMALL, order=order))
        _, metrics = update(agents, batch, prng.key(1))
        target[order] = np.asarray(metrics["td_target"])
    np.testing.assert_allclose(target["sequential"][0], target["snapshot"][0], rtol=1e-5)
    assert abs(target["sequential"][1] - target["snapshot"][1]) > 1e-4


def test_with_a_minibatch_each_an_agent_learns_from_its_own():
    agents, update = updater(dataclasses.replace(SMALL, minibatch="per-agent"))
    batch, other = random_batch((2, 16)), random_batch((2, 16), seed=1)
    mixed = jax.tree.map(lambda a, b: jnp.stack([a[0], b[1]]), batch, other)
    (one, _), (two, _) = (update(agents, b, prng.key(1)) for b in (batch, mixed))
    assert same(row(one, 0), row(two, 0))
    assert not same(row(one, 1), row(two, 1))


def test_weights_scale_the_critics_loss_and_errors_come_back():
    """Equal weights, whatever their size, change nothing; a weight of nearly zero is as good as absence."""
    agents, update = updater(SMALL)
    batch = random_batch((16,))
    plain, metrics = update(agents, batch, prng.key(1))
    assert TD_ERRORS not in metrics
    index = jnp.arange(16)
    equal, metrics = update(agents, batch._replace(weight=jnp.full(16, 0.3), index=index), prng.key(1))
    assert same(plain, equal)
    errors = metrics[TD_ERRORS]
    assert errors.shape == (16,)
    lone = jnp.full(16, 1e-12).at[3].set(2.0)
    _, metrics = update(agents, batch._replace(weight=lone, index=index), prng.key(1))
    # The mean over both agents of |q − y| is what the memory hears; the loss is (q − y)² of the one sample, over 16.
    np.testing.assert_allclose(jnp.mean(jnp.sqrt(16 * metrics["critic_loss"])), errors[3], rtol=1e-4)
    np.testing.assert_allclose(metrics[TD_ERRORS], errors, rtol=1e-5)


def test_errors_of_own_minibatches_stay_apart_and_the_dead_have_none():
    agents, update = updater(dataclasses.replace(SMALL, minibatch="per-agent", order="sequential"))
    batch = random_batch((2, 16))
    batch = batch._replace(alive=batch.alive.copy(), weight=jnp.ones((2, 16)), index=jnp.zeros((2, 16), jnp.int32))
    batch.alive[0, 5, 0] = False
    _, metrics = update(agents, batch, prng.key(1))
    errors = np.asarray(metrics[TD_ERRORS])
    assert errors.shape == (2, 16)
    assert errors[0, 5] == 0
    assert (np.delete(errors.ravel(), 5) > 0).all()


def test_batch_norm_averages_follow_the_data_and_targets_follow_them():
    agents, update = updater(dataclasses.replace(SMALL, norm="batch"))
    batch = random_batch((16,))
    after, _ = update(agents, batch, prng.key(1))
    product = np.asarray(batch.obs[:, 1] @ agents.actor[0].weight[1])
    np.testing.assert_allclose(after.actor[0].norm.mean[1], 0.1 * product.mean(0), atol=1e-5)
    np.testing.assert_allclose(after.actor[0].norm.variance[1], 0.9 + 0.1 * product.var(0), rtol=1e-4)
    np.testing.assert_allclose(after.target_actor[0].norm.mean, 0.5 * after.actor[0].norm.mean, atol=1e-6)
    assert not np.allclose(after.critic[0].norm.mean, 0.0, atol=1e-4)


STEERING = Steering(max_steps=2, ends="truncated")


def steering(**settings):
    config = dataclasses.replace(SMALL, **{"noise_start": 0.2, "noise_end": 0.1, "noise_steps": 100, **settings})
    algo = maddpg.make(config, STEERING.spec, np.ones((1, 1), bool))
    return algo._replace(act=jax.jit(algo.act)), jax.jit(algo.init)(prng.key(0))


def test_noise_decays_linearly_and_then_stays():
    algo, agents = steering(noise="gaussian")
    obs = jnp.zeros((50, 1, 1))  # zero input and zero biases: the action without noise is 0
    at = {
        step: np.asarray(algo.act(algo.policy(agents), (), obs, prng.key(2), jnp.int32(step))[0]) for step in (0, 50, 100, 9999)
    }
    assert np.std(at[0]) > 0.1
    np.testing.assert_allclose(at[50], 0.75 * at[0], rtol=1e-5)
    np.testing.assert_allclose(at[100], 0.5 * at[0], rtol=1e-5)
    np.testing.assert_array_equal(at[9999], at[100])


def test_ornstein_uhlenbeck_noise_lasts_through_an_episode_and_ends_with_it():
    algo, agents = steering(noise="ou")
    worlds = jax.jit(lambda key: start(STEERING, algo, key, 400))(prng.key(3))
    np.testing.assert_array_equal(worlds.carry, 0.0)
    one = jax.jit(
        lambda worlds, key: rollout(STEERING, algo, algo.policy(agents), worlds, key, 1, jnp.int32(0)), compiler_options=FAST
    )
    middle, _, _ = one(worlds, prng.key(4))
    assert 0.4 < np.std(middle.carry) < 0.65  # √(1 − 0.85²) = 0.53
    end, steps, _ = one(middle, prng.key(5))
    assert steps.done.all()
    np.testing.assert_array_equal(end.carry, 0.0)
    carry = middle.carry
    _, following, _ = algo.act(algo.policy(agents), carry, middle.obs, prng.key(6), jnp.int32(0))
    shock = (np.asarray(following) - 0.85 * np.asarray(carry)) / np.sqrt(1 - 0.85**2)
    np.testing.assert_allclose(np.std(shock), 1.0, rtol=0.15)
    assert abs(np.mean(shock * carry)) < 0.1


def test_actions_reach_the_world_as_asked():
    env = Matching()
    for kind, is_whole in (("one-hot", True), ("soft", False)):
        algo = maddpg.make(dataclasses.replace(SMALL, world_action=kind), env.spec, np.ones((1, 1), bool))

        @jax.jit
        def act(key, algo=algo):
            worlds = start(env, algo, prng.key(1), 64)
            return algo.act(algo.policy(algo.init(key)), worlds.carry, worlds.obs, prng.key(2), jnp.int32(0))[0]

        action = act(prng.key(0))
        np.testing.assert_allclose(action.sum(-1), 1.0, rtol=1e-5)
        assert np.isin(np.asarray(action), [0.0, 1.0]).all() == is_whole
        assert 0.2 < action[..., 0].mean() < 0.8


TOGETHER = {
    "discrete, several heads": {
        **{"scenario": "simple_world_comm", "num_envs": 10, "updates": 2, "num_layers": 3, "devices": 1, "norm": "layer"},
        **{"replay": "prioritised", "minibatch": "per-agent", "order": "sequential", "clip_by": "global", "critic_lr": 0.003},
        **{"estimator": "straight-through", "world_action": "one-hot", "adv_policy": "ddpg"},
    },
    "continuous, two devices": {
        **{
            "scenario": "simple_reference",
            "actions": "continuous",
            "num_envs": 100,
            "updates": 2,
            "devices": 2,
            "norm": "batch",
        },
        **{"replay": "prioritised", "standardise_rewards": True, "noise": "ou", "num_layers": 3},
    },
}


@pytest.mark.parametrize("case", TOGETHER)
@pytest.mark.slow
def test_options_work_together_in_the_loop(case):
    settings = {
        "num_episodes": 400,
        "batch_size": 64,
        "buffer_size": 800,
        "warmup": 200,
        "num_units": 16,
        "report_every": 10**6,
    }
    config = configs.override(configs.Config(), **settings, **TOGETHER[case])
    program = build(config, config.world.build())
    loop = compile_begin(program)(jax.vmap(prng.key)(jnp.zeros(1, jnp.uint32)))
    before = jax.device_get(loop.agents.actor)
    advance = compile_advance(program, True)
    # From the very first rollout, so that one program will do: 12 rounds wrap the ring.
    advance = advance.lower(loop, 12, True).compile(compiler_options=FAST)
    loop = advance(loop, np.int32(12), np.bool_(True))
    assert int(loop.window.updates[0]) == 24
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(jax.device_get((loop.agents, loop.window))))
    assert not np.allclose(before[0].weight, loop.agents.actor[0].weight, atol=1e-3)
    for leaf in jax.tree.leaves(loop.agents):
        copies = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        assert all(np.array_equal(copies[0], copy) for copy in copies)
    devices = config.training.devices
    for tree in np.split(np.asarray(loop.replay.tree[0]), devices):
        priorities = tree[tree.size // 2 :]
        assert np.count_nonzero(priorities) == 800 // devices
        assert len(np.unique(priorities)) > 50  # learnt, not all as they came
        np.testing.assert_allclose(tree[1], priorities.sum(), rtol=1e-4)


@pytest.mark.parametrize(("name", "value"), [("priority_exponent", 1.5), ("priority_beta", -0.1)])
def test_senseless_priorities_are_refused(name, value):
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} must be from 0 to 1"):
        configs.override(configs.Config(), **{name: value})


def test_a_mixed_team_of_bodies_is_normalised_without_touching_padding():
    spec = spec_of((4, 2), (Discrete((3, 2)), Box(2, 0.0, 1.0)))
    problem = maddpg.Problem(spec, heads_of(spec), np.eye(2, dtype=bool), None)
    agents = jax.jit(lambda key: maddpg.init(dataclasses.replace(SMALL, norm="batch"), problem, key))(prng.key(0))
    obs = jax.random.normal(prng.key(1), (5, 2, 4)) * spec.obs_mask[None]
    outputs = np.asarray(offpolicy.acting_outputs(problem, agents.actor, obs))
    np.testing.assert_array_equal(outputs[:, 1, 2:], 0.0)
    np.testing.assert_array_equal(np.asarray(agents.actor[0].weight)[1, 2:], 0.0)
