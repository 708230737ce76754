"""The learner's pieces together, on worlds whose answer is known: value, discount, observation, action, coordination."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import maddpg, offpolicy
from counterpoint.core import prng
from counterpoint.core.actions import heads_of, to_world
from counterpoint.training.replay import example, uniform
from counterpoint.training.rollout import rollout, start
from probes import Choosing, Delayed, Matching, Probe, Reading, Steering, TwoHeads, Xor

NUM_ENVS, NUM_STEPS, BATCH, CAPACITY = 16, 4, 64, 64 * 512
QUICK = maddpg.Config(num_units=32, num_layers=1, tau=0.1, noise_start=0.5, noise_end=0.5)


@pytest.fixture(autouse=True)
def no_nans():
    with jax.debug_nans(True):
        yield


def train(env, config=QUICK, iterations=300, sees=None, seed=0):
    """Agents after that many rounds of rollout, add, sample, update under one jit."""
    spec = env.spec
    algo = maddpg.make(config, spec, np.ones((spec.num_agents,) * 2, bool) if sees is None else sees)
    memory = uniform(example(spec), CAPACITY, BATCH, NUM_ENVS * NUM_STEPS)

    def iteration(loop, key):
        agents, worlds, ring = loop
        key_roll, key_sample, key_learn = jax.random.split(key, 3)
        worlds, steps, _ = rollout(env, algo, algo.policy(agents), worlds, key_roll, NUM_STEPS, jnp.zeros((), jnp.int32))
        ring = memory.add(ring, steps)
        agents, _ = algo.update(agents, memory.sample(ring, key_sample), key_learn)
        return (agents, worlds, ring), None

    # Each world is compiled once and run for a blink: the compiler need not try hard.
    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def run(key):
        key_init, key_start, key_loop = jax.random.split(key, 3)
        loop = algo.init(key_init), start(env, algo, key_start, NUM_ENVS), memory.init()
        (agents, _, _), _ = jax.lax.scan(iteration, loop, jax.random.split(key_loop, iterations))
        return agents

    return run(prng.key(seed))


def q_of(agents, obs, action, i=0):
    """Critic i's values of joint observations [B, N, O] and actions [B, N, A]."""
    inputs = maddpg.joint(*(jnp.moveaxis(jnp.asarray(part, jnp.float32), 0, -1) for part in (obs, action)))
    critic = jax.tree.map(lambda leaf: leaf[i], agents.critic)
    spec = Choosing().spec
    problem = maddpg.Problem(spec, heads_of(spec), np.ones((1, 1), bool))  # `q` reads none of it without a model
    return np.asarray(offpolicy.q(problem, critic, inputs))


def greedy(env, agents, obs, config=QUICK):
    """The noiseless actions [B, N, A] as the world receives them."""
    spec = env.spec
    algo = maddpg.make(config, spec, np.ones((spec.num_agents,) * 2, bool))

    @jax.jit
    def act(agents, obs):
        return to_world(spec, algo.greedy(algo.policy(agents), algo.begin(prng.key(0)), obs)[0])

    return np.asarray(act(agents, jnp.asarray(obs, jnp.float32)))


EITHER = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
"""Both choices of one agent."""


def test_a_later_reward_is_discounted_once_per_step():
    agents = train(Delayed(max_steps=2))
    first, second = q_of(agents, np.array([[[0.0]], [[1.0]]]), np.full((2, 1, 2), 0.5))
    np.testing.assert_allclose([first, second], [QUICK.gamma, 1.0], atol=0.04)


@pytest.mark.parametrize(("ends", "worth", "margin"), [("terminated", 1.0, 0.05), ("truncated", 1 / (1 - 0.8), 0.25)])
def test_a_constant_reward_is_the_value_and_a_time_limit_bootstraps(ends, worth, margin):
    config = dataclasses.replace(QUICK, gamma=0.8, tau=0.2)
    agents = train(Probe(ends=ends), config, iterations=600)
    np.testing.assert_allclose(q_of(agents, np.zeros((2, 1, 1)), EITHER), worth, atol=margin)


def test_what_is_seen_is_worth_what_it_pays():
    agents = train(Reading())
    seen = np.array([[[1.0]], [[-1.0]]])
    for action in EITHER:
        np.testing.assert_allclose(q_of(agents, seen, np.stack([action, action])), [1.0, -1.0], atol=0.12)


def test_the_better_choice_is_found():
    agents = train(Choosing())
    np.testing.assert_allclose(q_of(agents, np.zeros((2, 1, 1)), EITHER), [-1.0, 1.0], atol=0.15)
    assert greedy(Choosing(), agents, np.zeros((1, 1, 1)))[0, 0, 1] > 0.9


def test_the_choice_follows_what_is_seen():
    config = dataclasses.replace(QUICK, world_action="one-hot")
    agents = train(Matching(), config)
    action = greedy(Matching(), agents, np.array([[[1.0]], [[-1.0]]]), config)
    np.testing.assert_array_equal(action[:, 0], [[0.0, 1.0], [1.0, 0.0]])


def test_two_agents_agree_on_a_parity_only_one_of_them_can_see():
    env = Xor()
    agents = train(env, iterations=1000)
    see = jax.jit(lambda cue: env.observe(env.reset(prng.key(0))[0]._replace(cue=cue)))
    obs = np.stack([see(np.float32(cue)) for cue in (-1, 1)])
    action = greedy(env, agents, obs)
    side = action[..., 1] - action[..., 0]
    paid = np.array([-1.0, 1.0]) * side[:, 0] * side[:, 1]
    assert (paid > 0.8).all()
    chosen = np.round(action)
    for i in range(2):  # each critic knows that the same choice loses if the partner strays
        astray = chosen.copy()
        astray[:, 1 - i] = 1 - astray[:, 1 - i]
        assert (q_of(agents, obs, chosen, i) > 0.8).all()
        assert (q_of(agents, obs, astray, i) < -0.5).all()


def test_a_continuous_action_reaches_its_target():
    agents = train(Steering(), iterations=600)
    action = greedy(Steering(), agents, np.array([[[1.0]], [[-1.0]]]))
    np.testing.assert_allclose(action[:, 0, 0], [2.5, 1.5], atol=0.2)


def test_two_heads_learn_side_by_side():
    agents = train(TwoHeads(), iterations=600)
    action = greedy(TwoHeads(), agents, np.array([[[1.0]], [[-1.0]]]))[:, 0]
    assert action[0, 1] > 0.9
    assert action[1, 0] > 0.9
    assert (action[:, 4] > 0.9).all()
