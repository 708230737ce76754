"""MAPPO and IPPO by hand: advantages, clipping, the value normaliser, policies, who sees whom, the dead, recurrence."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import mappo, onpolicy, sharing
from counterpoint.core import numpy_policy, prng
from counterpoint.core.actions import heads_of
from counterpoint.core.errors import UsageError
from counterpoint.core.ops import Moments
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Transition
from counterpoint.training.rollout import rollout, start
from probes import Relay, Steering, spec_of
from rollouts import random_rollout

QUICKLY = {"xla_backend_optimization_level": 0}
PAIR = spec_of((2, 1), (Discrete((2,)), Discrete((2,))))
MIXED = spec_of((3, 2), (Discrete((2, 3)), Box(2, -1.0, 1.0)))
PACK = dataclasses.replace(
    spec_of((2, 2, 3), (Discrete((2,)), Discrete((2,)), Box(1, -1.0, 1.0))), roles=("wolf", "wolf", "sheep")
)
SMALL = mappo.Config(num_units=4, num_layers=1, epochs=1, minibatches=1)


def problem_of(spec, config=SMALL, joint=True):
    sees = np.ones((spec.num_agents,) * 2, bool) if joint else np.eye(spec.num_agents, dtype=bool)
    return mappo.Problem(spec=spec, heads=heads_of(spec), side=onpolicy.side_of(config, spec), sees=sees)


def fresh(config, problem, seed=0):
    return jax.jit(functools.partial(mappo.init, config, problem), compiler_options=QUICKLY)(prng.key(seed))


def judges(config, problem):
    return jax.jit(functools.partial(mappo.judge, config, problem), compiler_options=QUICKLY)


def test_advantages_of_four_steps_with_a_time_limit_and_an_end():
    """γ = λ = 1/2. The second step ends by time, so it counts on V'; the fourth ends the game, so it does not."""
    spec = spec_of((1,), (Discrete((2,)),))
    column = lambda *numbers: jnp.asarray(numbers, jnp.float32).reshape(4, 1, 1)  # noqa: E731
    batch = Transition(
        obs=jnp.zeros((4, 1, 1, 1)),
        action=jnp.zeros((4, 1, 1, 2)),
        reward=column(1, 2, 3, 4),
        next_obs=jnp.zeros((4, 1, 1, 1)),
        terminated=column(0, 0, 0, 1) > 0,
        alive=jnp.ones((4, 1, 1), bool),
        done=jnp.asarray([[False], [True], [False], [True]]),
    )
    kind = onpolicy.Returns(gamma=0.5, td_lambda=0.5)
    target = onpolicy.own_returns(kind, problem_of(spec), batch, batch.reward, column(10, 20, 30, 40))
    # 1 + ½ (½·10 + ½·12); 2 + ½·20; 3 + ½ (½·30 + ½·4); 4
    np.testing.assert_allclose(target.ravel(), [6.5, 12, 11.5, 4])
    # GAE: δ = 1, 2, −2, −26 with V = 5, 10, 20, 30; A_0 = 1 + ¼·2, A_2 = −2 − ¼·26
    np.testing.assert_allclose((target - column(5, 10, 20, 30)).ravel(), [1.5, 2, -8.5, -26])


def test_the_future_of_the_dead_is_what_their_team_expects():
    batch = random_rollout(PAIR, times=2, envs=1)
    batch = batch._replace(
        reward=jnp.asarray([[[1.0, 1.0]], [[2.0, 2.0]]]),
        terminated=jnp.asarray([[[True, False]], [[True, True]]]),
        alive=jnp.asarray([[[True, True]], [[False, True]]]),
        done=jnp.asarray([[False], [True]]),
    )
    next_value = jnp.asarray([[[50.0, 10.0]], [[70.0, 30.0]]])
    kind = onpolicy.Returns(gamma=0.5, td_lambda=0.0)
    target = onpolicy.own_returns(kind, problem_of(PAIR), batch, batch.reward, next_value)
    np.testing.assert_allclose(target[:, 0], [[6, 6], [2, 2]], err_msg="1 + ½·10 for both: only the second plays on")
    alone = problem_of(PAIR, mappo.Config(learn_from="own"))
    np.testing.assert_allclose(onpolicy.own_returns(kind, alone, batch, batch.reward, next_value)[:, 0], [[1, 6], [2, 2]])


def test_nothing_is_gained_beyond_the_clip():
    old = jnp.log(jnp.full(4, 0.4))
    new = jnp.log(jnp.asarray([0.6, 0.2, 0.6, 0.2]))  # ratios 1.5 and 0.5
    advantage = jnp.asarray([2.0, 2.0, -2.0, -2.0])
    np.testing.assert_allclose(mappo.policy_gain(0.2, new, old, advantage), [2.4, 1.0, -3.0, -1.6], rtol=1e-6)
    slope = jax.grad(lambda new: jnp.sum(mappo.policy_gain(0.2, new, old, advantage)))(new)
    np.testing.assert_allclose(slope, [0, 1.0, -3.0, 0], atol=1e-6)


def test_values_are_clipped_to_the_old_ones():
    config = mappo.Config(clip_value=0.2, huber=1.0)
    value, old, target = (jnp.asarray(x) for x in ([1.0, 1.0, 0.1], [0.0, 0.0, 0.0], [3.0, 0.5, 0.5]))
    # The clipped values are 0.2, 0.2 and 0.1. Errors 2 and 2.8 → 2.8 − ½; 0.5 and 0.3 → ½·0.25; 0.4 and 0.4 → ½·0.16
    np.testing.assert_allclose(mappo.value_error(config, value, old, target), [2.3, 0.125, 0.08], rtol=1e-6)
    free = mappo.Config(clip_value=0.0, huber=0.0)
    np.testing.assert_allclose(mappo.value_error(free, value, old, target), [2.0, 0.125, 0.08], rtol=1e-6)


def test_the_normaliser_weighs_rollouts_and_forgets_the_old():
    config = mappo.Config(value_decay=0.5)
    none = Moments(*(jnp.zeros(2) for _ in range(3)))
    alive = jnp.ones((2, 1, 2), bool).at[1, 0, 1].set(False)
    once = mappo.see_returns(config, none, jnp.asarray([[[1.0, 7.0]], [[3.0, 9.0]]]), alive)
    np.testing.assert_allclose(once.mean, [2, 7])
    np.testing.assert_allclose(once.variance, [1, 0])
    twice = mappo.see_returns(config, once, jnp.asarray([[[5.0, 10.0]], [[5.0, 0.0]]]), alive)
    np.testing.assert_allclose(twice.mean, [(0.5 * 2 + 5) / 1.5, (0.5 * 7 + 10) / 1.5], rtol=1e-6)
    second = (0.5 * (1 + 4) + 25) / 1.5 - 16  # E[x²] − E[x]²
    np.testing.assert_allclose(twice.variance[0], second, rtol=1e-5)


@pytest.mark.parametrize("recurrent", [False, True])
def test_popart_keeps_values_in_units_of_the_rewards(recurrent):
    config = mappo.Config(num_units=4, num_layers=1, recurrent=recurrent)
    critic = fresh(config, problem_of(PAIR, config)).nets.critic
    before, after = (
        Moments(jnp.ones(2), jnp.asarray(m), jnp.asarray(v)) for m, v in (([1.0, 0], [4.0, 1]), ([5.0, 2], [9.0, 4]))
    )
    moved = mappo.rescaled(critic, before, after)
    last = lambda net: (net.body if net.head is None else net.head)[-1]  # noqa: E731
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    said = lambda net: np.einsum("nh,nho->no", x, last(net).weight)[:, 0] + np.asarray(last(net).bias)[:, 0]  # noqa: E731
    np.testing.assert_allclose(said(moved) * [3, 2] + [5, 2], said(critic) * [2, 1] + [1, 0], rtol=1e-5, atol=1e-6)
    none = Moments(*(jnp.zeros(2) for _ in range(3)))
    np.testing.assert_array_equal(last(mappo.rescaled(critic, none, after)).weight, last(critic).weight)


def test_a_gaussian_clipped_to_its_bounds_is_a_distribution():
    for mean, std in ((0.3, 0.5), (-0.9, 0.2), (0.99, 1.5)):
        inner = np.linspace(-1, 1, 20_001)[1:-1].astype(np.float32)
        density = lambda x, m=mean, s=std: np.exp(  # noqa: E731
            onpolicy.clipped_gaussian(jnp.asarray(x), jnp.full(np.shape(x), m), jnp.full(np.shape(x), np.log(s)))
        )
        bounds = density(np.float32([-1, 1]))
        np.testing.assert_allclose(density(inner).sum() * 1e-4 + bounds.sum(), 1.0, atol=1e-3)
        draws = np.clip(mean + std * np.random.default_rng(0).normal(size=100_000), -1, 1)
        np.testing.assert_allclose(bounds, [(draws == -1).mean(), (draws == 1).mean()], atol=5e-3)


def test_probabilities_of_all_legal_choices_add_up():
    heads = jax.tree.map(lambda table: jnp.asarray(table)[0], heads_of(MIXED))
    raw = jnp.asarray([0.1, 2.0, 1.0, -1.0, 0.5])
    legal = jnp.asarray([True, True, True, False, True])
    chances, surprise = [], 0.0
    for move, word in itertools.product(range(2), range(3)):
        action = jnp.zeros(5).at[move].set(1.0).at[2 + word].set(1.0)
        log_pi, entropy = onpolicy.log_policy(heads, raw[:, None], None, action[:, None], legal[:, None])
        chances.append(float(jnp.exp(log_pi[0])))
        surprise = float(entropy[0])
    np.testing.assert_allclose(sum(chances), 1.0, rtol=1e-5)
    np.testing.assert_allclose(chances[1], 0, atol=1e-8, err_msg="the illegal word")
    first = np.exp([0.1, 2.0]) / np.exp([0.1, 2.0]).sum()
    np.testing.assert_allclose(chances[3], first[1] * 1 / (1 + np.exp(-0.5)), rtol=1e-5)
    np.testing.assert_allclose(surprise, -sum(p * np.log(p) for p in chances if p > 1e-6), rtol=1e-4)


def test_initial_weights_are_orthogonal_and_padding_is_zero():
    config = mappo.Config(num_units=8, num_layers=2, policy_gain=0.01)
    agents = fresh(config, problem_of(MIXED, config), 1)
    first, second, last = agents.nets.actor.network.body
    np.testing.assert_allclose(first.weight[0] @ first.weight[0].T, 2 * np.eye(3), atol=1e-5)
    np.testing.assert_allclose(second.weight[1].T @ second.weight[1], 2 * np.eye(8), atol=1e-5)
    np.testing.assert_allclose(last.weight[0].T @ last.weight[0], 1e-4 * np.eye(5), atol=1e-9)
    np.testing.assert_allclose(last.weight[1, :, :2].T @ last.weight[1, :, :2], 1e-4 * np.eye(2), atol=1e-9)
    assert not first.weight[1, 2:].any()
    assert not last.weight[1, :, 2:].any()
    gru = fresh(mappo.Config(num_units=8, recurrent=True), problem_of(MIXED), 1).nets.critic.cell
    gate = gru.state.weight[0, :, 8:16]
    np.testing.assert_allclose(gate @ gate.T, np.eye(8), atol=1e-5)


def test_minibatches_are_dealt_from_the_key():
    rows = jnp.arange(7.0)[:, None] + 1
    dealt = onpolicy.shuffled(rows, 3, prng.key(0))
    assert dealt.shape == (3, 3, 1)
    np.testing.assert_array_equal(np.sort(dealt.ravel()), [0, 0, *range(1, 8)])
    np.testing.assert_array_equal(dealt, onpolicy.shuffled(rows, 3, prng.key(0)))
    assert (dealt != onpolicy.shuffled(rows, 3, prng.key(1))).any()
    assert onpolicy.shuffled(rows, 99, prng.key(0)).shape == (7, 1, 1)
    uneven = onpolicy.shuffled(jnp.ones((10, 1)), 8, prng.key(0))
    assert uneven.shape == (5, 2, 1), "no minibatch is empty"
    tree = {"a": rows[:, :, None], "b": rows > 3, "c": None, "d": ()}
    back = onpolicy.unpack(tree, onpolicy.pack(tree))
    jax.tree.map(np.testing.assert_array_equal, back, tree)


@pytest.mark.parametrize("joint", [True, False])
def test_values_depend_on_what_critics_see(joint):
    problem = problem_of(PAIR, joint=joint)
    nets, batch = fresh(SMALL, problem).nets, random_rollout(PAIR)
    judge = judges(SMALL, problem)
    other = batch._replace(obs=batch.obs.at[..., 1, :].multiply(3.0), next_obs=batch.next_obs.at[..., 1, :].multiply(3.0))
    one, two = (judge(nets, steps) for steps in (batch, other))
    assert np.allclose(one.value[..., 0], two.value[..., 0]) != joint
    assert np.allclose(one.next_value[..., 0], two.next_value[..., 0]) != joint
    assert not np.allclose(one.value[..., 1], two.value[..., 1])
    np.testing.assert_array_equal(one.log_pi[..., 0], two.log_pi[..., 0])


def test_a_critic_that_sees_some_ignores_the_rest():
    spec = spec_of((2, 1, 2), (Discrete((2,)),) * 3)
    sees = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], bool)
    problem = problem_of(spec)._replace(sees=sees)
    algo = mappo.make(SMALL, spec, sees)
    batch = random_rollout(spec)
    learn = jax.jit(algo.update, compiler_options=QUICKLY)
    agents, _ = learn(jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(0)), batch, prng.key(1))
    other = batch._replace(obs=batch.obs.at[..., 2, :].set(5.0), next_obs=batch.next_obs.at[..., 2, :].set(5.0))
    judge = judges(SMALL, problem)
    one, two = (judge(agents.nets, steps) for steps in (batch, other))
    np.testing.assert_allclose(one.value[..., :2], two.value[..., :2])
    assert not np.allclose(one.value[..., 2], two.value[..., 2])


@pytest.mark.parametrize("spec", [MIXED, PAIR], ids=["mixed", "pair"])
def test_what_the_dead_did_teaches_nothing(spec):
    """Their observations, actions and values change neither their own networks nor those of the living."""
    algo, batch = mappo.make(SMALL, spec), random_rollout(spec, alive=0.6)
    gone = ~batch.alive
    noise = jnp.asarray(np.random.default_rng(7).normal(size=batch.obs.shape) * spec.obs_mask, jnp.float32)
    half = jnp.broadcast_to(np.where(spec.act_mask, np.float32(0.5), np.float32(0)), batch.action.shape)
    other = batch._replace(
        obs=jnp.where(gone[..., None], noise, batch.obs),
        action=jnp.where(gone[..., None], half, batch.action),
        next_obs=jnp.where((gone | batch.terminated)[..., None], noise, batch.next_obs),
    )
    learn = jax.jit(algo.update, compiler_options=QUICKLY)
    one, two = (
        learn(jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(0)), steps, prng.key(1))[0] for steps in (batch, other)
    )
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), one.nets, two.nets)


@pytest.mark.parametrize(("joint", "share"), [(True, "none"), (True, "all"), (False, "all"), (False, "none")])
def test_recurrent_networks_unrolled_are_those_that_acted(joint, share):
    """Hidden states and probabilities while acting are those that learning finds, over the ends of episodes."""
    env = Relay()
    config = mappo.Config(num_units=5, recurrent=True, share=share, epochs=1, minibatches=2)
    problem = problem_of(env.spec, config, joint)
    algo = mappo.make(config, env.spec, problem.sees)

    @functools.partial(jax.jit, compiler_options=QUICKLY)
    def run(key):
        agents = algo.init(key)
        envs, _, _ = rollout(env, algo, algo.policy(agents), start(env, algo, key, 3), key, 2, jnp.int32(0))
        _, steps, _ = rollout(env, algo, algo.policy(agents), envs, key, 6, jnp.int32(0))
        judged = mappo.judge(config, problem, agents.nets, steps._replace(carry=jax.tree.map(lambda x: x[:1], steps.carry)))
        # One step at a time, from the hidden states that were recorded while acting.
        each = jax.vmap(lambda step: mappo.judge(config, problem, agents.nets, jax.tree.map(lambda x: x[None], step)))(steps)
        return agents, steps, judged, jax.tree.map(lambda x: x[:, 0], each)

    agents, steps, judged, each = run(prng.key(2))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), judged, each)
    same = ~np.asarray(steps.done[:-1])
    np.testing.assert_allclose(judged.next_value[:-1][same], judged.value[1:][same], rtol=1e-4, atol=1e-5)
    assert np.abs(np.asarray(steps.carry.critic)).max() > 0.01
    batch = steps._replace(carry=jax.tree.map(lambda x: x[:1], steps.carry))
    after, metrics = jax.jit(algo.update, compiler_options=QUICKLY)(agents, batch, prng.key(0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, metrics)))
    before, now = (net.nets.critic.cell.state.weight for net in (agents, after))
    assert (np.asarray(before) != np.asarray(now))[-1].all(), "gradients flow through time"


def test_step_sizes_fall_to_zero():
    config = mappo.Config(num_units=4, num_layers=1, lr_steps=12, value_norm="none")
    algo, batch = mappo.make(config, PAIR), random_rollout(PAIR)
    learn = jax.jit(algo.update, compiler_options=QUICKLY)
    agents, _ = learn(jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(0)), batch, prng.key(1))
    last, _ = learn(agents, batch, prng.key(1))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-9), last.nets, agents.nets)
    assert int(last.step) == 24


def test_one_actor_for_all_is_exported_for_each():
    config = mappo.Config(num_units=4, share="all")
    algo, batch = mappo.make(config, MIXED), random_rollout(MIXED, alive=0.8)
    agents, _ = jax.jit(algo.update, compiler_options=QUICKLY)(
        jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(0)), batch, prng.key(1)
    )
    assert agents.nets.critic.body[0].weight.shape[0] == 1
    plain = mappo.actors(config, MIXED, algo.policy(agents))
    spaces = tuple(map(numpy_policy.space_of, MIXED.action_spaces))
    team = numpy_policy.make_team(numpy_policy.layers_of(plain.layers, plain.std), spaces, numpy_policy.Rules(**plain.rules))
    expected, _ = algo.greedy(algo.policy(agents), (), batch.obs[0])
    np.testing.assert_allclose(numpy_policy.greedy(team, np.asarray(batch.obs[0])), expected, atol=1e-6)


def test_a_shared_set_steps_along_the_mean_gradient_of_its_agents():
    """As networks of each agent's own that compute the same: joint critics whose weights are in the order of the agents."""
    config = dataclasses.replace(SMALL, clip=0.0, value_norm="none", norm="layer", share="role")
    algo, batch = mappo.make(config, PACK), random_rollout(PACK, alive=0.8)
    alone = mappo.make(dataclasses.replace(config, share="none"), PACK)
    by_role = sharing.sharing_of("role", PACK)
    assert by_role is not None
    rows = [(3 * order[:, None] + np.arange(3)).ravel() for order in sharing.own_first(3)]

    def with_rows(critic, rows):
        first, *rest = critic.body
        weight = jnp.stack([weight[own] for weight, own in zip(first.weight, rows, strict=True)])
        return critic._replace(body=(first._replace(weight=weight), *rest))

    @functools.partial(jax.jit, compiler_options=QUICKLY)
    def run(key):
        agents = algo.init(key)
        actor, critic = sharing.expanded(by_role, agents.nets)
        each = alone.init(key)._replace(nets=mappo.Nets(actor, with_rows(critic, map(np.argsort, rows))))
        return algo.update(agents, batch, key), alone.update(each, batch, key)

    (after, metrics), (expected, expected_metrics) = run(prng.key(0))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, metrics, expected_metrics)
    moments = expected.actor_opt.mu, with_rows(expected.critic_opt.mu, rows)
    means = jax.tree.map(lambda leaf: np.stack([leaf[:2].mean(axis=0), leaf[2]]), moments)
    jax.tree.map(close, (after.actor_opt.mu, after.critic_opt.mu), means)
    assert np.abs(means[1].body[0].weight).max() > 1e-3


def test_a_shared_set_has_one_value_normaliser():
    config, by_role = mappo.Config(value_decay=0.5), sharing.sharing_of("role", PACK)
    target = jnp.asarray([[[1.0, 3.0, 5.0]], [[8.0, 100.0, 7.0]]])
    alive = jnp.asarray([[[True, True, True]], [[True, False, True]]])
    found = mappo.see_returns(config, Moments(*(jnp.zeros(2),) * 3), target, alive, by_role)
    np.testing.assert_allclose(found.count, [1, 1])
    np.testing.assert_allclose(found.mean, [4, 6])  # of 1, 8 and 3; of 5 and 7
    np.testing.assert_allclose(found.variance, [(9 + 16 + 1) / 3, 1], rtol=1e-6)


def test_workers_explore_with_the_learnt_widths():
    env = Steering()
    config = mappo.Config(num_units=4)
    algo = mappo.make(config, env.spec)
    acting = algo.policy(jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(0)))
    acting = acting._replace(actor=acting.actor._replace(log_std=jnp.full((1, 1), jnp.log(0.25))))
    plain = mappo.actors(config, env.spec, acting)
    spaces = tuple(map(numpy_policy.space_of, env.spec.action_spaces))
    team = numpy_policy.make_team(numpy_policy.layers_of(plain.layers, plain.std), spaces, numpy_policy.Rules(**plain.rules))
    obs = np.full((4000, 1, 1), 0.5, np.float32)
    drawn, _ = numpy_policy.explore(team, None, obs, np.random.default_rng(0))
    ours, _, extras = algo.act(acting, (), jnp.asarray(obs), prng.key(3), jnp.int32(0))
    assert extras == ()
    for actions in (drawn, np.asarray(ours)):
        np.testing.assert_allclose([actions.mean(), actions.std()], [numpy_policy.greedy(team, obs)[0, 0, 0], 0.25], atol=0.02)


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(UsageError, match="--clip-ratio must be above 0, not 0"):
        mappo.Config(clip_ratio=0)
    sees = np.eye(3, dtype=bool) | np.array([[True], [True], [False]])
    with pytest.raises(UsageError, match="choose --share role"):
        mappo.make(mappo.Config(share="all"), PACK, sees)
    mappo.make(mappo.Config(share="role"), PACK, sees)
