"""The update against an independent restatement of the authors' one: NumPy, float64, loops over agents, no padding or autodiff.

Both run in float64, so they agree to rounding; a separate test says how far float32 strays. The reference follows the public
code of Lowe et al. 2017, except that Adam's ε is added after the bias correction (optax's form; TensorFlow's is before).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import maddpg
from counterpoint.core import prng
from counterpoint.core.actions import heads_of
from counterpoint.core.spaces import Box, Discrete
from counterpoint.envs import make
from numpy_learner import adam, backward, clip, forward, play, random_batch, random_networks, rows_of_critic, slide, unpad_batch
from probes import spec_of

BATCH = 24


# --- The reference.


def learn_one(config, spec, sees, team, batch, i, noise_target, noise_actor):
    """Agent i after its critic step, its actor step and the move of its targets."""
    me, watched = team[i], [j for j in range(spec.num_agents) if sees[i, j]]
    rows = np.flatnonzero(batch["alive"][i])

    def critic_input(obs, action):
        return np.concatenate([obs[j] for j in watched] + [action[j] for j in watched], axis=1)[rows]

    next_action = []
    for j in range(spec.num_agents):
        outputs, _ = forward(team[j]["target_actor"], batch["next_obs"][j])
        next_action.append(play(config, spec.action_spaces[j], outputs, noise_target[j])[0])
    next_q = forward(me["target_critic"], critic_input(batch["next_obs"], next_action))[0][:, 0]
    y = batch["reward"][i][rows] + config.gamma * (1.0 - batch["terminated"][i][rows]) * next_q

    q, inputs = forward(me["critic"], critic_input(batch["obs"], batch["action"]))
    grads, _ = backward(me["critic"], inputs, 2 * (q - y[:, None]) / len(rows))
    critic = adam(me["critic"], clip(config, grads), me["critic_adam"], config.critic_lr or config.lr)

    outputs, actor_inputs = forward(me["actor"], batch["obs"][i])
    mine, back = play(config, spec.action_spaces[i], outputs, noise_actor)
    actions = [mine if j == i else batch["action"][j] for j in range(spec.num_agents)]
    q_now, inputs = forward(critic, critic_input(batch["obs"], actions))
    _, grad_input = backward(critic, inputs, np.full((len(rows), 1), -1.0 / len(rows)))
    first = sum(spec.obs_sizes[j] for j in watched) + sum(spec.act_sizes[j] for j in watched if j < i)
    grad_action = np.zeros_like(mine)
    grad_action[rows] = grad_input[:, first : first + spec.act_sizes[i]]
    grad_outputs = back(grad_action)
    grad_outputs[rows] += config.logit_cost * 2 * outputs[rows] / outputs[rows].size
    grads, _ = backward(me["actor"], actor_inputs, grad_outputs)
    actor = adam(me["actor"], clip(config, grads), me["actor_adam"], config.lr)

    learnt = {
        "actor": actor,
        "critic": critic,
        "target_actor": slide(me["target_actor"], actor, config.tau),
        "target_critic": slide(me["target_critic"], critic, config.tau),
        "actor_adam": me["actor_adam"],
        "critic_adam": me["critic_adam"],
    }
    losses = {
        "critic_loss": np.mean((q[:, 0] - y) ** 2),
        "actor_loss": -np.mean(q_now) + config.logit_cost * np.mean(outputs[rows] ** 2),
    }
    return learnt, losses


def learn(config, spec, sees, team, batches, noises_target, noises_actor):
    """The team after one update; agent i has batches[i]."""
    start, losses = list(team), []
    team = list(team)
    for i in range(spec.num_agents):
        seen = team if config.order == "sequential" else start
        team[i], loss = learn_one(config, spec, sees, seen, batches[i], i, noises_target, noises_actor[i])
        losses.append(loss)
    return team, losses


# --- Between the padded, stacked form and the reference's.


def unpad(spec, sees, agents, i):
    """Agent i's four networks at their true sizes."""

    def net(params, rows, columns):
        layers = [[np.asarray(layer.weight[i], np.float64), np.asarray(layer.bias[i], np.float64)] for layer in params]
        layers[0][0] = layers[0][0][rows]
        layers[-1] = [layers[-1][0][:, :columns], layers[-1][1][:columns]]
        return [tuple(layer) for layer in layers]

    actor, critic = (np.arange(spec.obs_sizes[i]), spec.act_sizes[i]), (rows_of_critic(spec, sees, i), 1)
    sizes = {"actor": actor, "critic": critic, "target_actor": actor, "target_critic": critic}
    return {name: net(getattr(agents, name), *size) for name, size in sizes.items()}


def noise_of(spec, key, batch_size):
    """The noise the update draws from its key: for all target actors, and for each agent's own action."""
    n, a = spec.num_agents, spec.act_size
    key_target, key_actor = jax.random.split(key)
    target = np.asarray(jax.random.gumbel(key_target, (n, a, batch_size), jnp.float32), np.float64)
    own = [np.asarray(jax.random.gumbel(jax.random.fold_in(key_actor, i), (a, batch_size), jnp.float32)) for i in range(n)]
    sizes = spec.act_sizes
    return [target[j, : sizes[j]].T for j in range(n)], [own[j][: sizes[j]].T.astype(np.float64) for j in range(n)]


# --- Inputs.


def started(config, spec, sees, dtype):
    """Agents with random networks (zero where padded or unseen), targets unlike them, and optimisers at rest."""
    shapes = jax.eval_shape(lambda: maddpg.init(config, maddpg.Problem(spec, heads_of(spec), sees, None), prng.key(0)))
    rng = np.random.default_rng(7)
    seen = np.zeros((spec.num_agents, shapes.critic[0].weight.shape[1]))
    for i in range(spec.num_agents):
        seen[i, rows_of_critic(spec, sees, i)] = 1.0

    def network(params, inputs, outputs):
        return random_networks(rng, params, inputs, outputs, dtype)

    actor = (spec.obs_mask.astype(float), spec.act_mask.astype(float))
    critic = (seen, np.ones((spec.num_agents, 1)))
    rest = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, dtype if leaf.dtype.kind == "f" else leaf.dtype), shapes)
    return rest._replace(
        actor=network(shapes.actor, *actor),
        critic=network(shapes.critic, *critic),
        target_actor=network(shapes.target_actor, *actor),
        target_critic=network(shapes.target_critic, *critic),
    )


MIXED = spec_of((4, 2, 3), (Discrete((3, 2)), Box(2, 0.0, 1.0), Discrete((4,))))
TEAMS = np.array([[True, True, False], [True, True, False], [False, False, True]])
SMALL = maddpg.Config(num_units=16)
THEIRS = dataclasses.replace(SMALL, order="sequential", minibatch="per-agent")
ALL = {spec.num_agents: np.ones((spec.num_agents,) * 2, bool) for spec in (MIXED, make("simple_speaker_listener").spec)}
CASES = {
    "spread, theirs": (make("simple_spread").spec, THEIRS, ALL[3], True),
    "spread, ours": (make("simple_spread").spec, SMALL, ALL[3], True),
    "speaker_listener, theirs": (make("simple_speaker_listener").spec, THEIRS, ALL[2], True),
    "speaker_listener, ours": (make("simple_speaker_listener").spec, SMALL, ALL[2], True),
    "mixed bodies and teams, some dead": (
        MIXED,
        dataclasses.replace(SMALL, order="sequential", clip_by="global", critic_lr=0.003, temperature=0.7, logit_cost=0.1),
        TEAMS,
        False,
    ),
    "independent, straight-through, no clip": (
        MIXED,
        dataclasses.replace(
            SMALL, minibatch="per-agent", estimator="straight-through", clip=0.0, num_layers=1, gamma=0.5, tau=0.3
        ),
        np.eye(3, dtype=bool),
        False,
    ),
}


def largest_difference(spec, sees, agents, team):
    """Between our padded networks and the reference's, over all agents and networks."""
    worst = 0.0
    for i in range(spec.num_agents):
        for name, net in unpad(spec, sees, agents, i).items():
            for ours, theirs in zip(net, team[i][name], strict=True):
                worst = max(worst, *(np.max(np.abs(a - b)) for a, b in zip(ours, theirs, strict=True)))
    return worst


def both(case, num_updates, dtype):
    """Our agents and the reference's team after each of some updates, with their losses."""
    spec, config, sees, all_alive = CASES[case]
    n, per_agent = spec.num_agents, config.minibatch == "per-agent"
    agents = started(config, spec, sees, dtype)
    team = [unpad(spec, sees, agents, i) for i in range(n)]
    for member in team:
        member.update({name: {"t": 0, "m": {}, "v": {}} for name in ("actor_adam", "critic_adam")})
    update = jax.jit(maddpg.make(config, spec, sees).update, compiler_options={"xla_backend_optimization_level": 0})
    for seed in range(num_updates):
        batch = random_batch(spec, seed, (n, BATCH) if per_agent else (BATCH,), dtype, all_alive)
        parts = [jax.tree.map(lambda leaf, i=i: leaf[i], batch) if per_agent else batch for i in range(n)]
        key = prng.key(100 + seed)
        agents, metrics = update(agents, batch, key)
        team, losses = learn(config, spec, sees, team, [unpad_batch(spec, p) for p in parts], *noise_of(spec, key, BATCH))
        yield spec, sees, agents, metrics, team, losses


@pytest.mark.parametrize("case", CASES)
def test_three_updates_are_the_references(case):
    with jax.enable_x64(True):
        for spec, sees, agents, metrics, team, losses in both(case, 3, np.float64):
            assert agents.actor[0].weight.dtype == np.float64
            assert largest_difference(spec, sees, agents, team) < 1e-7
            for name in ("critic_loss", "actor_loss"):
                np.testing.assert_allclose(metrics[name], [loss[name] for loss in losses], atol=1e-6)


def test_single_precision_strays_little():
    for spec, sees, agents, _, team, _ in both("speaker_listener, theirs", 3, np.float32):
        assert largest_difference(spec, sees, agents, team) < 1e-5
