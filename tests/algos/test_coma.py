"""COMA's pieces against numbers worked by hand, and the whole on games whose answer is known."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import coma, onpolicy
from counterpoint.core import prng
from counterpoint.core.actions import heads_of
from counterpoint.core.nets import Layer
from counterpoint.core.ops import Moments
from counterpoint.core.spaces import Discrete
from counterpoint.core.types import Transition
from counterpoint.training.replay import on_policy
from counterpoint.training.rollout import rollout, start
from probes import COIN, Delayed, Matching, Probe, Relay, TwoHeads, side, spec_of

QUICK = coma.Config(num_units=32, num_layers=1, lr=1e-2, critic_lr=1e-2, epsilon_start=0.1, epsilon_end=0.1)
MIXED = spec_of((2, 3), (Discrete((2, 3)), Discrete((4,))))
"""Agents of different sizes, one with two heads."""


@pytest.fixture(autouse=True)
def no_nans():
    with jax.debug_nans(True):
        yield


def one(params):
    return jax.tree.map(lambda leaf: leaf[0], params)


def problem_of(spec, side=None):
    n = spec.num_agents
    return coma.Problem(spec=spec, heads=heads_of(spec), side=np.ones((n, n), bool) if side is None else side)


def test_an_advantage_is_the_value_minus_what_the_policy_would_get():
    pi, q = jnp.array([[0.2, 0.3, 0.5]]), jnp.array([[1.0, 2.0, 4.0]])
    baseline = 0.2 * 1 + 0.3 * 2 + 0.5 * 4
    np.testing.assert_allclose(
        coma.advantages(heads_of(spec_of((1,), (Discrete((3,)),))), pi, q),
        [[1 - baseline, 2 - baseline, 4 - baseline]],
        rtol=1e-6,
    )


def test_an_agent_that_cannot_change_its_fate_learns_nothing_from_it():
    """The advantage has mean zero under π in every state: exactly, in numbers that floats hold exactly."""
    heads = heads_of(MIXED)
    logits = jnp.log(jnp.array([[[1, 3, 2, 1, 1], [1, 1, 1, 5, 1]], [[1, 1, 1, 2, 1], [1, 5, 1, 1, 1]]], jnp.float32))
    pi = jnp.round(coma.probabilities(heads, logits, jnp.zeros((2, 2))) * 64) / 64
    q = jnp.arange(20.0).reshape(2, 2, 5) * 8
    mean = np.asarray(pi * coma.advantages(heads, pi, q))
    np.testing.assert_array_equal(mean[:, 0, :2].sum(-1), 0)
    np.testing.assert_array_equal(mean[:, 0, 2:].sum(-1), 0)
    np.testing.assert_array_equal(mean[:, 1, :4].sum(-1), 0)
    assert np.abs(mean).max() > 1


def test_the_baseline_does_not_depend_on_the_agents_own_action():
    """What Q says of agent i changes with every other agent's action and every observation, never with i's own action."""
    spec = spec_of((2, 3, 2), (COIN, Discrete((3,)), COIN))
    agents = jax.jit(lambda key: coma.init(QUICK, problem_of(spec), key))(prng.key(1))
    values = jax.jit(lambda obs, action: coma.critic_values(spec, one(agents.critic), obs, action))
    obs = jax.random.normal(prng.key(2), (4, 3, 3)) * spec.obs_mask[None]
    action = jax.random.uniform(prng.key(3), (4, 3, 3)) * spec.act_mask[None]
    q = values(obs, action)
    for j in range(3):
        by_action = values(obs, action.at[:, j, 0].add(1.0))
        by_obs = values(obs.at[:, j, 0].add(1.0), action)
        np.testing.assert_array_equal(np.any(by_action != q, axis=(0, 2)), np.arange(3) != j)
        assert np.any(by_obs != q, axis=(0, 2)).all()


def test_the_floor_is_a_share_of_uniform_choice_in_each_head():
    pi = coma.probabilities(heads_of(MIXED), jnp.full((2, 5), 7.0), jnp.array([0.0, 0.4]))
    np.testing.assert_allclose(pi, [[0.5, 0.5, 1 / 3, 1 / 3, 1 / 3], [0.25, 0.25, 0.25, 0.25, 0.0]], rtol=1e-6)
    sharp = jnp.array([[50.0, 0, 0, 0, 0], [50.0, 0, 0, 0, 0]])
    pi = coma.probabilities(heads_of(MIXED), sharp, jnp.array([0.2, 0.4]))
    np.testing.assert_allclose(pi[0, :2], [0.9, 0.1], rtol=1e-6)
    np.testing.assert_allclose(pi[1, :4], [0.7, 0.1, 0.1, 0.1], rtol=1e-6)


def recording(alive, terminated, done, reward):
    """A transition [T, E = 1, N] with these flags and nothing else in it."""
    alive, terminated, reward = (np.asarray(table)[:, None] for table in (alive, terminated, reward))
    empty = jnp.zeros((*alive.shape, 1))
    return Transition(
        obs=empty,
        action=empty,
        reward=jnp.asarray(reward, jnp.float32),
        next_obs=empty,
        terminated=jnp.asarray(terminated, bool),
        alive=jnp.asarray(alive, bool),
        done=jnp.asarray(done, bool)[:, None],
    )


def targets_of(batch, next_value, side=None, **settings):
    config = coma.Config(gamma=0.5, **settings)
    problem = problem_of(spec_of((1,) * batch.alive.shape[-1], (COIN,) * batch.alive.shape[-1]), side)
    value = jnp.asarray(next_value, jnp.float32)[:, None]
    return np.asarray(coma.targets(config, problem, batch, batch.reward, value))[:, 0]


ONE = recording(alive=[[1]] * 5, terminated=[[0], [0], [1], [0], [0]], done=[0, 0, 1, 1, 0], reward=[[1], [2], [3], [4], [5]])
"""One agent: an episode of three steps to its end, one of one step to a time limit, one that goes on beyond the rollout."""
VALUE = [[10], [20], [30], [40], [50]]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"td_lambda": 0.0}, [1 + 5, 2 + 10, 3, 4 + 20, 5 + 25]),
        ({"td_lambda": 1.0}, [1 + 0.5 * (2 + 0.5 * 3), 2 + 0.5 * 3, 3, 4 + 20, 5 + 25]),
        # By hand: G_1 = 2 + ½(½·20 + ½·3) = 7.75 and G_0 = 1 + ½(½·10 + ½·7.75).
        ({"td_lambda": 0.5}, [1 + 0.5 * (5 + 3.875), 7.75, 3, 4 + 20, 5 + 25]),
        ({"n_steps": 1}, [1 + 5, 2 + 10, 3, 4 + 20, 5 + 25]),
        ({"n_steps": 2}, [1 + 0.5 * (2 + 0.5 * 20), 2 + 0.5 * 3, 3, 4 + 20, 5 + 25]),
        ({"n_steps": 9}, [1 + 0.5 * (2 + 0.5 * 3), 2 + 0.5 * 3, 3, 4 + 20, 5 + 25]),
    ],
)
def test_targets_by_hand(settings, expected):
    np.testing.assert_allclose(targets_of(ONE, VALUE, **settings)[:, 0], expected, rtol=1e-6)


PAIR = recording(
    alive=[[1, 1], [0, 1], [0, 1]],
    terminated=[[1, 0], [1, 0], [1, 0]],
    done=[0, 0, 1],
    reward=[[7, 1], [0, 2], [0, 3]],
)
"""Two agents: the first is home after one step, the second is stopped by the time limit two steps later."""


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_team_goes_on_while_one_of_it_plays_and_only_those_who_play_are_asked(n):
    """999 is what the first agent's critic says once it is home: nobody may listen. Rewards here are already the team's."""
    batch, value = (
        PAIR._replace(reward=jnp.asarray([[[4.0, 4.0]], [[1.0, 1.0]], [[1.5, 1.5]]])),
        [[999, 10], [999, 20], [999, 30]],
    )
    last = 1.5 + 0.5 * 30
    long = [4 + 0.5 * (1 + 0.5 * last), 1 + 0.5 * last, last]
    short = [4 + 0.5 * 10, 1 + 0.5 * 20, last]
    expected = short if n == 1 else long
    for i, column in enumerate(targets_of(batch, value, td_lambda=1.0, n_steps=n).T):
        np.testing.assert_allclose(column, expected, rtol=1e-6, err_msg=str(i))


def test_alone_an_agent_ends_when_it_is_home():
    y = targets_of(PAIR, [[999, 10], [999, 20], [999, 30]], side=np.eye(2, dtype=bool), td_lambda=0.0)
    np.testing.assert_allclose(y[0], [7, 1 + 0.5 * 10])
    np.testing.assert_allclose(y[:, 1], [6, 12, 18])


def test_a_team_learns_from_the_mean_of_its_rewards_and_standardises_it_if_asked():
    problem = problem_of(spec_of((1, 1), (COIN, COIN)))
    _, reward = onpolicy.see_rewards(problem, None, PAIR)
    np.testing.assert_allclose(reward[:, 0], [[4, 4], [1, 1], [1.5, 1.5]])
    fresh = Moments(jnp.zeros(2), jnp.zeros(2), jnp.zeros(2))
    moments, reward = onpolicy.see_rewards(problem, fresh, PAIR)
    assert moments
    np.testing.assert_allclose(moments.count, [1, 3])
    np.testing.assert_allclose(moments.mean, [4, 6.5 / 3], rtol=1e-6)
    np.testing.assert_allclose(reward[:, 0, 1], (np.array([4, 1, 1.5]) - 6.5 / 3) / np.std([4, 1, 1.5]), rtol=1e-5)


@pytest.mark.parametrize(("settings", "expected"), [({"target_every": 3}, [1, 1, 5, 5, 5, 5]), ({"tau": 0.25}, [2, 2.75])])
def test_the_target_is_copied_every_so_often_or_moves_a_little(settings, expected):
    target, critic = ((Layer(jnp.full((1, 1), start), jnp.full(1, start)),) for start in (1.0, 5.0))
    for updates, value in enumerate(expected, start=1):
        target = coma.move_target(coma.Config(**settings), target, critic, jnp.int32(updates))
        np.testing.assert_allclose(target[0].weight, [[value]])


RECURRENT = dataclasses.replace(QUICK, recurrent=True, num_layers=2)


def played(env, config, length, seed=0, num_envs=3):
    """An algorithm, its agents and the memory of a rollout that begins in the middle of episodes."""
    algo = coma.make(config, env.spec)

    def run(key):
        agents = algo.init(key)
        worlds, _, _ = rollout(env, algo, algo.policy(agents), start(env, algo, key, num_envs), key, 2, jnp.int32(0))
        return agents, rollout(env, algo, algo.policy(agents), worlds, jax.random.fold_in(key, 1), length, jnp.int32(0))[1]

    agents, steps = jax.jit(run)(prng.key(seed))
    memory = on_policy(jax.eval_shape(lambda: steps))
    return algo, agents, steps, memory.sample(memory.add(memory.init(), steps), prng.key(0))


@pytest.mark.parametrize("shared", [False, True])
def test_learning_over_a_rollout_remembers_what_acting_did(shared):
    """The hidden states before each step are those that acting had, across the ends of episodes, and none after them."""
    config = dataclasses.replace(RECURRENT, share="all" if shared else "none")
    env = Relay()
    _, agents, steps, batch = played(env, config, 9)
    assert batch.carry.shape == (1, 3, 3, config.num_units), "the first is all that learning needs"
    assert np.asarray(steps.carry[0]).any(), "it begins in the middle of an episode"
    unroll = jax.jit(lambda actor, batch: coma.unroll(config, env.spec, actor, batch.carry[0], batch.obs, batch.done))
    logits, after = unroll(agents.actor, batch)
    done = np.asarray(steps.done)
    assert done.sum() > 3
    np.testing.assert_array_equal(np.asarray(steps.carry)[1:][done[:-1]], 0)
    np.testing.assert_allclose(np.asarray(after)[:-1][~done[:-1]], np.asarray(steps.carry)[1:][~done[:-1]], atol=1e-6)
    stepped, _ = jax.jit(lambda actor: coma.policy(config, env.spec, actor, steps.carry, steps.obs))(agents.actor)
    np.testing.assert_allclose(logits, stepped, atol=1e-5)


@pytest.mark.parametrize("config", [QUICK, RECURRENT], ids=["perceptron", "recurrent"])
def test_padding_and_finished_agents_teach_nothing(config):
    """What stands where an agent had finished, or beyond its size, changes neither its networks nor anybody else's."""
    env = Relay(ends="truncated")
    algo, agents, _, batch = played(env, config, 6)
    over = ~np.asarray(batch.alive)
    assert over[..., 0].sum() > 3
    assert not over[..., 2].any()
    lies = batch._replace(action=jnp.where(over[..., None], 1 - batch.action, batch.action))
    update = jax.jit(algo.update)
    honest, figures = update(agents, batch, prng.key(5))
    told, _ = update(agents, lies, prng.key(5))
    jax.tree.map(np.testing.assert_array_equal, honest.actor, told.actor)
    jax.tree.map(np.testing.assert_array_equal, honest.critic, told.critic)
    assert set(figures) == set(coma.METRICS)
    assert not np.array_equal(honest.actor.body[0].weight, agents.actor.body[0].weight)
    finished = batch._replace(alive=batch.alive.at[..., 0].set(False))
    idle = update(agents, finished, prng.key(5))[0]
    for before, after in zip(jax.tree.leaves(agents.actor), jax.tree.leaves(idle.actor), strict=True):
        np.testing.assert_array_equal(before[0], after[0], err_msg="an agent that never played does not learn")
        assert after.shape[0] == 3


def train(env, config=QUICK, iterations=200, length=4, seed=0):
    """Agents after that many rounds of rollout and update under one jit, and the algorithm."""
    algo = coma.make(config, env.spec)

    def iteration(loop, key):
        agents, worlds = loop
        key_roll, key_learn = jax.random.split(key)
        worlds, steps, _ = rollout(env, algo, algo.policy(agents), worlds, key_roll, length, agents.step)
        return (algo.update(agents, steps, key_learn)[0], worlds), None

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def run(key):
        key_init, key_start, key_loop = jax.random.split(key, 3)
        loop = algo.init(key_init), start(env, algo, key_start, 16)
        return jax.lax.scan(iteration, loop, jax.random.split(key_loop, iterations))[0][0]

    return algo, run(prng.key(seed))


class Penalty(Probe):
    """A matrix game in which credit decides: both going first pays 1, both going second 0.6, but alone going first costs 2.

    A third agent adds ±3 by a coin of its own: a shared return is mostly its doing, and the others must see past it.
    """

    obs_sizes: ClassVar = (1, 1, 1)
    action_spaces: ClassVar = (COIN, COIN, Discrete((3,)))

    def reward(self, state, action):
        a, b = action[0, 0], action[1, 0]
        loud = 3.0 * (action[2, 0] - action[2, 1])
        return jnp.where((a + b) == 2, 1.0, jnp.where((a + b) == 0, 0.6, -2.0)) + loud


def test_credit_goes_to_the_agent_whose_doing_it_was():
    """The critic tells each agent what its own choice was worth, given the others': the advantages of the true game."""
    env = Penalty()
    flat = dataclasses.replace(QUICK, lr=1e-6, epsilon_start=1.0, epsilon_end=1.0, num_units=64, critic_lr=5e-3)
    _, agents = train(env, flat, iterations=1500)
    critic, spec = one(agents.critic), env.spec
    joint = list(np.ndindex(2, 2, 3))
    action = jnp.asarray(np.eye(3, dtype=np.float32)[np.array(joint)])
    values = np.asarray(coma.critic_values(spec, critic, jnp.zeros((len(joint), 3, 1)), action))
    for (a, b, c), q in zip(joint, values, strict=True):
        loud = (3.0, -3.0, 0.0)[c]
        expected = [[1, -2] if b == 0 else [-2, 0.6], [1, -2] if a == 0 else [-2, 0.6]]
        np.testing.assert_allclose(q[:2, :2], np.array(expected) + loud, atol=0.35)
        pair = 1.0 if a + b == 0 else 0.6 if a + b == 2 else -2.0
        np.testing.assert_allclose(q[2], pair + np.array([3.0, -3.0, 0.0]), atol=0.35)


@pytest.mark.parametrize(
    "settings",
    [{"td_lambda": 0.0, "target_every": 5}, {"share": "all", "n_steps": 3, "normalise_advantages": True}],
    ids=str,
)
def test_a_team_finds_the_safe_equilibrium_or_the_better_one(settings):
    env, config = Penalty(), dataclasses.replace(QUICK, **settings)
    algo, agents = train(env, config, iterations=300)
    action, _ = algo.greedy(algo.policy(agents), (), jnp.zeros((1, 3, 1)))
    assert int(action[0, 2, 0]) == 1, "the loud agent takes its 3"
    assert float(env.reward(None, action[0])) >= 3.6


def test_the_choice_follows_what_is_seen_and_a_later_reward_is_discounted():
    algo, agents = train(Matching())
    action, _ = algo.greedy(algo.policy(agents), (), jnp.array([[[1.0]], [[-1.0]]]))
    np.testing.assert_array_equal(action[:, 0], [[0, 1], [1, 0]])
    _, agents = train(Delayed(max_steps=2), dataclasses.replace(QUICK, gamma=0.5, tau=0.1), iterations=400)
    q = coma.critic_values(Delayed().spec, one(agents.critic), jnp.array([[[0.0]], [[1.0]]]), jnp.zeros((2, 1, 2)))
    np.testing.assert_allclose(q[:, 0].mean(-1), [0.5, 1.0], atol=0.1)


def test_each_head_is_chosen_for_itself():
    algo, agents = train(TwoHeads(), iterations=400)
    action, _ = algo.greedy(algo.policy(agents), (), jnp.array([[[1.0]], [[-1.0]]]))
    np.testing.assert_array_equal(action[:, 0], [[0, 1, 0, 0, 1], [1, 0, 0, 0, 1]])


class Recall(Probe):
    """The first agent sees the cue at the first step only and is asked for it at the last; a witness sees on, but is not asked.

    Without memory the first agent can only guess; through the witness the critic knows what would have been right.
    """

    obs_sizes: ClassVar = (2, 1)
    action_spaces: ClassVar = (COIN, COIN)

    def observe(self, state):
        shown = jnp.where(state.time == 0, state.cue, 0.0)
        return jnp.stack([jnp.stack([shown, state.time.astype(jnp.float32)]), jnp.stack([state.cue, jnp.zeros(())])])

    def reward(self, state, action):
        return jnp.where(state.time == self.max_steps - 1, state.cue * side(action[0]), 0.0)


def test_a_recurrent_actor_remembers_what_it_saw():
    algo, agents = train(Recall(max_steps=3), RECURRENT, iterations=300, length=6)
    cues = jnp.array([-1.0, 1.0])
    carry = jnp.stack([algo.begin(prng.key(0))] * 2)
    for time in range(3):
        seen = jnp.stack([cues * (time == 0), jnp.full(2, float(time))], axis=1)
        action, carry = algo.greedy(algo.policy(agents), carry, jnp.stack([seen, jnp.zeros((2, 2))], axis=1))
    np.testing.assert_array_equal(action[:, 0, 1], [0, 1])
