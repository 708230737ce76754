"""MATD3: the smaller of two critics, delayed actors and smoothed targets, by hand, against NumPy, and on probes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import maddpg, matd3
from counterpoint.algos.base import TD_ERRORS
from counterpoint.config import Config, override
from counterpoint.core import prng
from counterpoint.core.actions import heads_of
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import Layer
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Transition
from ladders import climb, greedy, parity
from numpy_learner import (
    adam,
    apart,
    at_rest,
    backward,
    clip,
    forward,
    play,
    random_batch,
    random_networks,
    rows_of_critic,
    slide,
    true_size,
    unpad_batch,
)
from probes import Choosing, Probe, Steering, Xor, spec_of

QUICKLY = {"xla_backend_optimization_level": 0}
BATCH = 24
MIXED = spec_of((4, 2, 3), (Discrete((3, 2)), Box(2, 0.0, 1.0), Discrete((4,))))
LINE = spec_of((1,), (Box(1, -1.0, 1.0),))
SMALL = matd3.Config(num_units=16)


# --- By hand.


def line_batch(size, **fields):
    """One agent on a line that stands at 0, did 0 and earned 1, in each of `size` samples."""
    blank = {
        "obs": jnp.zeros((size, 1, 1)),
        "action": jnp.zeros((size, 1, 1)),
        "reward": jnp.ones((size, 1)),
        "next_obs": jnp.zeros((size, 1, 1)),
        "terminated": jnp.zeros((size, 1), bool),
        "alive": jnp.ones((size, 1), bool),
        "done": jnp.zeros(size, bool),
    }
    return Transition(**blank | fields)


def linear(slope, offset):
    """The critic slope · action + offset, stacked for one agent."""
    return (Layer(jnp.array([[[0.0], [slope]]], jnp.float32), jnp.full((1, 1), offset, jnp.float32)),)


def line_agents(config, bias=0.0):
    """An agent that always does tanh(bias), with critics and targets of its own to be replaced."""
    algo = matd3.make(config, LINE, np.ones((1, 1), bool))
    algo = algo._replace(update=jax.jit(algo.update, compiler_options=QUICKLY))
    agents = jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(0))
    actor = (Layer(jnp.zeros((1, 1, 1)), jnp.full((1, 1), bias, jnp.float32)),)
    start = jax.vmap(matd3.offpolicy.adam(config, config.lr).init)
    one, two = linear(3.0, 5.0), linear(-2.0, 4.0)
    return algo, agents._replace(
        actor=actor,
        target_actor=actor,
        actor_opt=start(actor),
        critics=(one, two),
        target_critics=(one, two),
        critic_opts=(start(one), start(two)),
    )


def test_the_target_is_the_smaller_of_two_critics_and_a_priority_the_larger_error():
    """Q' = 5 and 4 at action 0, so that y = 1 + ½ · 4 = 3; the critics' errors are 5 − 3 and 4 − 3, squared 4 and 1."""
    algo, agents = line_agents(matd3.Config(gamma=0.5, target_noise=0.0, lr=1e-9))
    batch = line_batch(2, weight=jnp.ones(2), index=jnp.arange(2))
    _, metrics = algo.update(agents, batch, prng.key(1))
    np.testing.assert_allclose(metrics["td_target"], 3.0)
    np.testing.assert_allclose(metrics["critic_loss"], (4.0 + 1.0) / 2)
    np.testing.assert_allclose(metrics["q"], 4.5)
    np.testing.assert_allclose(metrics[TD_ERRORS], 2.0)
    ended = batch._replace(terminated=jnp.ones((2, 1), bool))
    np.testing.assert_allclose(algo.update(agents, ended, prng.key(1))[1]["td_target"], 1.0)


def test_target_actions_are_shaken_within_the_clip_and_the_range():
    problem = maddpg.Problem(MIXED, heads_of(MIXED), np.ones((3, 3), bool))
    config = dataclasses.replace(SMALL, target_noise=1.0, target_noise_clip=0.25)
    action = jnp.zeros((3, 5, 4096)).at[1, :2].set(0.9).at[0, 0].set(1.0)
    shaken = np.asarray(matd3.smoothed(config, problem, action, prng.key(0)))
    np.testing.assert_array_equal(shaken[[0, 2]], action[jnp.array([0, 2])])
    np.testing.assert_array_equal(shaken[1, 2:], 0.0)
    assert shaken[1, :2].max() == 1.0
    np.testing.assert_allclose(shaken[1, :2].min(), 0.65)
    share = np.mean(shaken[1, :2] <= 0.6500001)  # normal numbers below −¼
    assert 0.35 < share < 0.45
    still = dataclasses.replace(config, target_noise=0.0)
    assert matd3.smoothed(still, problem, action, prng.key(0)) is action


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_actor_and_targets_move_in_every_dth_update_and_critics_in_all(delay):
    algo, agents = line_agents(matd3.Config(policy_delay=delay, tau=0.5, lr=0.1))
    losses = []
    for count in range(1, 5):
        before, (agents, metrics) = agents, algo.update(agents, line_batch(2), prng.key(count))
        moved = [
            not np.array_equal(getattr(before, name)[0].bias, getattr(agents, name)[0].bias)
            for name in ("actor", "target_actor")
        ]
        targets = [
            not np.array_equal(a[0].bias, b[0].bias) for a, b in zip(before.target_critics, agents.target_critics, strict=True)
        ]
        critics = [not np.array_equal(a[0].bias, b[0].bias) for a, b in zip(before.critics, agents.critics, strict=True)]
        assert moved + targets == [count % delay == 0] * 4
        assert critics == [True, True]
        assert int(agents.updates[0]) == count
        losses.append(float(metrics["actor_loss"][0]))
    for count in range(1, 5):  # in between, the last loss is reported
        assert losses[count - 1] == losses[count // delay * delay - 1] if count >= delay else losses[count - 1] == 0.0


def test_the_actor_climbs_the_first_critic():
    """Slopes 3 and −2: by the first, more is better; the second would say less."""
    algo, agents = line_agents(matd3.Config(policy_delay=1, lr=0.1))
    after, _ = algo.update(agents, line_batch(2), prng.key(0))
    assert float(after.actor[0].bias[0, 0]) > 0


@pytest.mark.parametrize(("name", "value"), [("policy_delay", 0), ("target_noise", -0.1), ("target_noise_clip", -1.0)])
def test_senseless_settings_are_refused(name, value):
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} must be at least"):
        override(Config(), algorithm="matd3", **{name: value})


# --- Against NumPy.


def learn_one(config, spec, sees, team, batch, i, noise_target, shake, noise_actor):
    """Agent i after an update, and its losses."""
    me, watched = team[i], [j for j in range(spec.num_agents) if sees[i, j]]
    rows = np.flatnonzero(batch["alive"][i])
    me = me | {"updates": me["updates"] + 1}

    def critic_input(obs, action):
        return np.concatenate([obs[j] for j in watched] + [action[j] for j in watched], axis=1)[rows]

    next_action = []
    for j, space in enumerate(spec.action_spaces):
        outputs, _ = forward(team[j]["target_actor"], batch["next_obs"][j])
        action = play(config, space, outputs, noise_target[j])[0]
        if isinstance(space, Box):
            noise = np.clip(config.target_noise * shake[j], -config.target_noise_clip, config.target_noise_clip)
            action = np.clip(action + noise, -1, 1)
        next_action.append(action)
    next_in = critic_input(batch["next_obs"], next_action)
    next_q = np.min([forward(target, next_in)[0][:, 0] for target in me["target_critics"]], axis=0)
    y = batch["reward"][i][rows] + config.gamma * (1.0 - batch["terminated"][i][rows]) * next_q

    critics, losses = [], []
    for critic, memory in zip(me["critics"], me["critic_adams"], strict=True):
        q, inputs = forward(critic, critic_input(batch["obs"], batch["action"]))
        grads, _ = backward(critic, inputs, 2 * (q - y[:, None]) / len(rows))
        critics.append(adam(critic, clip(config, grads), memory, config.critic_lr or config.lr))
        losses.append(np.mean((q[:, 0] - y) ** 2))
    learnt = me | {"critics": critics}
    loss = me["actor_loss"]
    if me["updates"] % config.policy_delay == 0:
        outputs, actor_inputs = forward(me["actor"], batch["obs"][i])
        mine, back = play(config, spec.action_spaces[i], outputs, noise_actor)
        actions = [mine if j == i else batch["action"][j] for j in range(spec.num_agents)]
        q_now, inputs = forward(critics[0], critic_input(batch["obs"], actions))
        _, grad_input = backward(critics[0], inputs, np.full((len(rows), 1), -1.0 / len(rows)))
        first = sum(spec.obs_sizes[j] for j in watched) + sum(spec.act_sizes[j] for j in watched if j < i)
        grad_action = np.zeros_like(mine)
        grad_action[rows] = grad_input[:, first : first + spec.act_sizes[i]]
        grad_outputs = back(grad_action)
        grad_outputs[rows] += config.logit_cost * 2 * outputs[rows] / outputs[rows].size
        grads, _ = backward(me["actor"], actor_inputs, grad_outputs)
        actor = adam(me["actor"], clip(config, grads), me["actor_adam"], config.lr)
        loss = -np.mean(q_now) + config.logit_cost * np.mean(outputs[rows] ** 2)
        learnt |= {
            "actor": actor,
            "target_actor": slide(me["target_actor"], actor, config.tau),
            "target_critics": [slide(*pair, config.tau) for pair in zip(me["target_critics"], critics, strict=True)],
        }
    return learnt | {"actor_loss": loss}, {"critic_loss": np.mean(losses), "actor_loss": loss}


def unpadded(spec, sees, agents, i):
    """Agent i's networks at their true sizes."""
    actor, critic = (np.arange(spec.obs_sizes[i]), np.arange(spec.act_sizes[i])), (rows_of_critic(spec, sees, i), np.arange(1))
    return {
        **{name: true_size(getattr(agents, name), i, *actor) for name in ("actor", "target_actor")},
        **{name: [true_size(net, i, *critic) for net in getattr(agents, name)] for name in ("critics", "target_critics")},
    }


def started(config, spec, sees):
    """Agents with random networks, targets unlike them, and optimisers at rest, in float64."""
    shapes = jax.eval_shape(lambda: matd3.init(config, maddpg.Problem(spec, heads_of(spec), sees), prng.key(0)))
    rng, n = np.random.default_rng(7), spec.num_agents
    seen = np.zeros((n, shapes.critics[0][0].weight.shape[1]))
    for i in range(n):
        seen[i, rows_of_critic(spec, sees, i)] = 1.0
    actor, critic = (spec.obs_mask.astype(float), spec.act_mask.astype(float)), (seen, np.ones((n, 1)))
    rest = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, np.float64 if leaf.dtype.kind == "f" else leaf.dtype), shapes)
    random = lambda net, masks: random_networks(rng, net, *masks, np.float64)  # noqa: E731
    return rest._replace(
        **{name: random(getattr(shapes, name), actor) for name in ("actor", "target_actor")},
        **{name: tuple(random(net, critic) for net in getattr(shapes, name)) for name in ("critics", "target_critics")},
    )


def noises(spec, key):
    """The noise that an update draws from its key: of target actors, of smoothing, and of each agent's own action."""
    n, a = spec.num_agents, spec.act_size
    key_target, key_actor = jax.random.split(key)
    target = jax.random.gumbel(key_target, (n, a, BATCH), jnp.float32)
    shake = jax.random.normal(jax.random.fold_in(key_target, 1), (n, a, BATCH), jnp.float32)
    own = [jax.random.gumbel(jax.random.fold_in(key_actor, i), (a, BATCH), jnp.float32) for i in range(n)]
    cut = lambda part: [np.asarray(part[j][:size].T, np.float64) for j, size in enumerate(spec.act_sizes)]  # noqa: E731
    return cut(target), cut(shake), cut(own)


TEAMS = np.array([[True, True, False], [True, True, False], [False, False, True]])
CASES = {
    "all see all": (SMALL, np.ones((3, 3), bool), True),
    "teams, some dead, sequential": (
        dataclasses.replace(
            SMALL, order="sequential", clip_by="global", critic_lr=0.003, target_noise_clip=0.1, policy_delay=3, temperature=0.7
        ),
        TEAMS,
        False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_four_updates_are_the_references(case):
    config, sees, all_alive = CASES[case]
    spec, n = MIXED, 3
    with jax.enable_x64(True):
        agents = started(config, spec, sees)
        team = [unpadded(spec, sees, agents, i) | {"updates": 0, "actor_loss": 0.0} for i in range(n)]
        for member in team:
            member |= {"actor_adam": at_rest(), "critic_adams": [at_rest(), at_rest()]}
        update = jax.jit(matd3.make(config, spec, sees).update, compiler_options=QUICKLY)
        for seed in range(4):
            batch, key = random_batch(spec, seed, (BATCH,), np.float64, all_alive), prng.key(100 + seed)
            agents, metrics = update(agents, batch, key)
            target, shake, own = noises(spec, key)
            snapshot, losses = list(team), []
            for i in range(n):
                read = team if config.order == "sequential" else snapshot
                team[i], loss = learn_one(config, spec, sees, read, unpad_batch(spec, batch), i, target, shake, own[i])
                losses.append(loss)
            for i in range(n):
                ours = unpadded(spec, sees, agents, i)
                for name in ("actor", "target_actor"):
                    assert apart(ours[name], team[i][name]) < 1e-7
                for name in ("critics", "target_critics"):
                    assert max(map(apart, ours[name], team[i][name])) < 1e-7
            for name in ("critic_loss", "actor_loss"):
                np.testing.assert_allclose(metrics[name], [loss[name] for loss in losses], atol=1e-6)


# --- Probes.

QUICK = matd3.Config(num_units=32, num_layers=1, tau=0.1, noise_start=0.5, noise_end=0.5)


def test_a_continuous_action_reaches_its_target():
    agents = climb(matd3.make, Steering(), QUICK, iterations=900)
    action = greedy(matd3.make, Steering(), QUICK, agents, np.array([[[1.0]], [[-1.0]]]))
    np.testing.assert_allclose(action[:, 0, 0], [2.5, 1.5], atol=0.25)


@pytest.mark.slow
def test_the_better_choice_is_found():
    agents = climb(matd3.make, Choosing(), QUICK)
    assert greedy(matd3.make, Choosing(), QUICK, agents, np.zeros((1, 1, 1)))[0, 0, 1] > 0.9


@pytest.mark.slow
def test_two_agents_agree_on_a_parity_only_one_of_them_can_see():
    agents = climb(matd3.make, Xor(), QUICK, iterations=1500)
    assert (parity(matd3.make, Xor(), QUICK, agents) > 0.8).all()


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "worth"), [("terminated", 1.0), ("truncated", 5.0)])
def test_a_constant_reward_is_the_value_and_a_time_limit_bootstraps(ends, worth):
    config = dataclasses.replace(QUICK, gamma=0.8, tau=0.2)
    agents = climb(matd3.make, Probe(ends=ends), config, iterations=900)
    problem = maddpg.Problem(Probe().spec, heads_of(Probe().spec), np.ones((1, 1), bool))
    inputs = jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    for critic in agents.critics:
        value = matd3.q(problem, jax.tree.map(lambda leaf: leaf[0], critic), inputs)
        np.testing.assert_allclose(value, worth, atol=0.06 * worth)
