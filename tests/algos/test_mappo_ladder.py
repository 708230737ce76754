"""MAPPO and IPPO on worlds whose answer is known: value, discount, observation, action, coordination, memory."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import mappo, onpolicy
from counterpoint.core import prng
from counterpoint.core.actions import heads_of, to_world
from counterpoint.training.rollout import rollout, start
from probes import Delayed, Probe, Reading, Recall, Steering, TwoHeads, Xor

NUM_ENVS, NUM_STEPS = 32, 4
QUICK = mappo.Config(num_units=16, num_layers=1, lr=5e-3, critic_lr=1e-2, epochs=4, minibatches=2, value_decay=0.9)


def train(env, config=QUICK, iterations=60, joint=True, seed=0):
    """Agents after that many rounds of rollout and update under one jit, and their problem."""
    n = env.spec.num_agents
    sees = np.ones((n, n), bool) if joint else np.eye(n, dtype=bool)
    problem = mappo.Problem(env.spec, heads_of(env.spec), onpolicy.side_of(config, env.spec), sees)
    algo = mappo.make(config, env.spec, sees)

    def iteration(loop, key):
        agents, worlds = loop
        key_roll, key_learn = jax.random.split(key)
        worlds, steps, _ = rollout(env, algo, algo.policy(agents), worlds, key_roll, NUM_STEPS, jnp.zeros((), jnp.int32))
        steps = steps._replace(carry=jax.tree.map(lambda leaf: leaf[:1], steps.carry))
        return (algo.update(agents, steps, key_learn)[0], worlds), None

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def run(key):
        key_init, key_start, key_loop = jax.random.split(key, 3)
        loop = algo.init(key_init), start(env, algo, key_start, NUM_ENVS)
        return jax.lax.scan(iteration, loop, jax.random.split(key_loop, iterations))[0][0]

    with jax.debug_nans(True):
        return run(prng.key(seed)), problem, algo


def values(agents, problem, obs):
    """V of joint observations [B, N, O] in units of the rewards, [B, N]."""
    obs = jnp.asarray(obs, jnp.float32)[None]
    flags, done = jnp.zeros(obs.shape[:3], bool), jnp.zeros(obs.shape[:2], bool)
    action = jnp.zeros((*obs.shape[:3], problem.spec.act_size))
    batch = mappo.Transition(obs, action, jnp.zeros(obs.shape[:3]), obs, flags, ~flags, done)
    mean, std = mappo.scale_of(agents.returns)
    return np.asarray(mappo.judge(QUICK, problem, agents.nets, batch).value[0]) * np.asarray(std) + np.asarray(mean)


def greedy(env, algo, agents, obs):
    action, _ = algo.greedy(algo.policy(agents), algo.begin(prng.key(0)), jnp.asarray(obs, jnp.float32))
    return np.asarray(to_world(env.spec, action))


SEEN = np.array([[[1.0]], [[-1.0]]])


@pytest.mark.slow
def test_a_later_reward_is_discounted_once_per_step():
    agents, problem, _ = train(Delayed(max_steps=2))
    found = values(agents, problem, np.array([[[0.0]], [[1.0]]]))[:, 0]
    np.testing.assert_allclose(found, [QUICK.gamma, 1.0], atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "worth", "margin"), [("terminated", 1.0, 0.05), ("truncated", 1 / (1 - 0.8), 0.4)])
def test_a_time_limit_bootstraps_and_an_end_does_not(ends, worth, margin):
    # Returns that never vary have no width: in its units, which bound a step of Adam, the way to them would be long.
    config = dataclasses.replace(QUICK, gamma=0.8, critic_lr=3e-2, clip_value=0.0, value_norm="none")
    agents, problem, _ = train(Probe(ends=ends), config, iterations=100)
    np.testing.assert_allclose(values(agents, problem, np.zeros((1, 1, 1))), worth, atol=margin)


@pytest.mark.slow
def test_what_is_seen_is_worth_what_it_pays():
    agents, problem, _ = train(Reading())
    np.testing.assert_allclose(values(agents, problem, SEEN)[:, 0], [1.0, -1.0], atol=0.1)


def test_choices_follow_what_is_seen():
    agents, _, algo = train(TwoHeads())
    action = greedy(TwoHeads(), algo, agents, SEEN)[:, 0]
    np.testing.assert_array_equal(action, [[0, 1, 0, 0, 1], [1, 0, 0, 0, 1]])


def test_a_continuous_action_reaches_its_target():
    config = dataclasses.replace(QUICK, entropy_start=0.0, entropy_end=0.0)
    agents, _, algo = train(Steering(), config, iterations=150)
    np.testing.assert_allclose(greedy(Steering(), algo, agents, SEEN)[:, 0, 0], [2.5, 1.5], atol=0.15)
    assert float(agents.nets.actor.log_std[0, 0]) < np.log(0.3), "the width shrinks where precision pays"


@pytest.mark.slow
@pytest.mark.parametrize("joint", [True, False], ids=["mappo", "ippo"])
def test_two_agents_agree_on_a_parity_only_one_of_them_can_see(joint):
    env = Xor()
    agents, _, algo = train(env, iterations=100, joint=joint)
    obs = np.stack([env.observe(env.reset(prng.key(0))[0]._replace(cue=jnp.float32(cue))) for cue in (-1, 1)])
    side = greedy(env, algo, agents, obs)
    side = side[..., 1] - side[..., 0]
    assert (np.array([-1.0, 1.0]) * side[:, 0] * side[:, 1] > 0.8).all()


@pytest.mark.slow
def test_recurrent_actors_remember_the_cue():
    env = Recall(max_steps=3)
    agents, _, algo = train(env, dataclasses.replace(QUICK, recurrent=True, minibatches=2), iterations=100)
    carry = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), algo.begin(prng.key(0)))
    policy = algo.policy(agents)
    for seen in (SEEN, 0 * SEEN, 0 * SEEN):
        action, carry = algo.greedy(policy, carry, jnp.asarray(seen, jnp.float32))
    np.testing.assert_array_equal(action[:, 0], [[0, 1], [1, 0]])
