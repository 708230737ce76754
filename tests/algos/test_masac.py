"""MASAC: soft values, exact sums over choices, squashed Gaussians and temperatures, by hand, against NumPy, and on probes."""

import dataclasses
from itertools import pairwise, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import masac, offpolicy
from counterpoint.algos.base import TD_ERRORS
from counterpoint.config import Config, override
from counterpoint.core import numpy_policy, prng
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
    random_batch,
    random_networks,
    rows_of_critic,
    slide,
    true_size,
    unpad_batch,
)
from probes import Choosing, Matching, Probe, Steering, TwoHeads, Xor, spec_of

QUICKLY = {"xla_backend_optimization_level": 0}
BATCH = 24
ALONE = np.ones((1, 1), bool)
THREE = spec_of((1,), (Discrete((3,)),))
LINE = spec_of((1,), (Box(1, -1.0, 1.0),))
MIXED = spec_of((4, 2, 3), (Discrete((3, 2)), Box(2, 0.0, 1.0), Discrete((4,))))
SMALL = masac.Config(num_units=16)


# --- By hand.


def test_several_heads_make_one_choice_and_a_continuous_agent_has_a_single_one():
    choices = masac.choices_of(MIXED)
    np.testing.assert_array_equal(choices.real.sum(axis=1), [6, 1, 4])
    np.testing.assert_array_equal(choices.size, [0, 2, 0])
    np.testing.assert_array_equal(choices.entries[0][3], [0, 1, 0, 0, 1])  # the second of three, the second of two
    np.testing.assert_array_equal(choices.entries[1], 0.0)
    taken = jnp.array([[0.0, 1.0, 0.0, 0.0, 1.0], [0.3, -0.2, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0]])
    for i, place in enumerate((3, 0, 3)):
        row = jax.tree.map(lambda table: jnp.asarray(table)[i], choices)  # noqa: B023 — used at once
        np.testing.assert_array_equal(masac.chosen_of(row, taken[i][:, None])[:, 0], np.arange(6) == place)
    assert masac.choices_of(THREE).entries is None


def test_too_many_combinations_are_refused():
    spec = spec_of((1,), (Discrete((20, 20)),))
    with pytest.raises(UsageError, match="agent_0 has 400"):
        masac.make(SMALL, spec, ALONE)


def test_the_density_of_a_squashed_gaussian():
    """mean ½, deviation 2, noise −1: u = −1½ and a = tanh u; log N(−1) − log 2 − log(1 − a²)."""
    problem = masac.problem_of(LINE, ALONE)
    row = lambda tables: jax.tree.map(lambda table: jnp.asarray(table)[0], tables)  # noqa: E731
    noise = masac.Noise(None, jnp.array([[-1.0]]))
    raw = jnp.array([[0.5], [np.log(2.0)]])
    decision = masac.decide(row(problem.heads), row(masac.choices_of(LINE)), raw, None, noise)
    action = np.tanh(-1.5)
    np.testing.assert_allclose(decision.action, [[action]], rtol=1e-6)
    expected = -0.5 - 0.5 * np.log(2 * np.pi) - np.log(2.0) - np.log(1 - action**2)
    np.testing.assert_allclose(decision.log_density, [expected], rtol=1e-5)
    np.testing.assert_allclose(decision.entropy, [-expected], rtol=1e-5)
    for far in (30.0, -30.0):  # tanh is ±1 to rounding, and the density stays finite
        assert np.isfinite(masac.log_slope(jnp.float32(far)))


def batch_of(spec, size, **fields):
    """One agent that saw 0, did what all zeros are and earned 1, in each of `size` samples."""
    blank = {
        "obs": jnp.zeros((size, 1, 1)),
        "action": jnp.zeros((size, 1, spec.act_size)),
        "reward": jnp.ones((size, 1)),
        "next_obs": jnp.zeros((size, 1, 1)),
        "terminated": jnp.zeros((size, 1), bool),
        "alive": jnp.ones((size, 1), bool),
        "done": jnp.zeros(size, bool),
    }
    return Transition(**blank | fields)


def constant(outputs, inputs):
    """A network, stacked for one agent, whose outputs are these whatever it reads."""
    outputs = jnp.asarray(outputs, jnp.float32)
    return (Layer(jnp.zeros((1, inputs, outputs.size)), outputs[None]),)


def agents_of(config, spec, actor, one, two):
    """An agent with these networks, its critics' targets included, and optimisers at rest."""
    algo = masac.make(config, spec, ALONE)
    algo = algo._replace(update=jax.jit(algo.update, compiler_options=QUICKLY))
    start = jax.vmap(offpolicy.adam(config, config.lr).init)
    return algo, jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(0))._replace(
        actor=actor,
        critics=(one, two),
        target_critics=(one, two),
        actor_opt=start(actor),
        critic_opts=(start(one), start(two)),
    )


PROBABILITIES = np.array([0.5, 0.25, 0.25])
CHOICE = jnp.eye(3)[jnp.array([1, 1])][:, None]


def three_choices(config):
    """Probabilities ½, ¼, ¼; the critics give 1, 2, 3 and 4, 1, 5, of which the smaller are 1, 1, 3."""
    nets = constant(np.log(PROBABILITIES), 1), constant([1.0, 2.0, 3.0], 4), constant([4.0, 1.0, 5.0], 4)
    return agents_of(config, THREE, *nets)


def test_the_soft_value_of_choices_is_an_exact_sum():
    """Σ π min Q = 1½ and H = 1½ log 2, so that y = 1 + ½ (1½ + α H), and the actor's loss is −(1½ + α H)."""
    config = masac.Config(gamma=0.5, alpha=0.2, lr=1e-9)
    algo, agents = three_choices(config)
    batch = batch_of(THREE, 2, action=CHOICE, weight=jnp.ones(2), index=jnp.arange(2))
    _, metrics = algo.update(agents, batch, prng.key(0))
    entropy = 1.5 * np.log(2.0)
    y = 1 + 0.5 * (1.5 + 0.2 * entropy)
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-6)
    np.testing.assert_allclose(metrics["td_target"], y, rtol=1e-6)
    np.testing.assert_allclose(metrics["actor_loss"], -(1.5 + 0.2 * entropy), rtol=1e-6)
    np.testing.assert_allclose(metrics["critic_loss"], ((2 - y) ** 2 + (1 - y) ** 2) / 2, rtol=1e-5)
    np.testing.assert_allclose(metrics["q"], 1.5)
    np.testing.assert_allclose(metrics["alpha"], 0.2, rtol=1e-6)
    np.testing.assert_allclose(metrics[TD_ERRORS], max(abs(2 - y), abs(1 - y)), rtol=1e-5)
    ended = batch._replace(terminated=jnp.ones((2, 1), bool))
    np.testing.assert_allclose(algo.update(agents, ended, prng.key(0))[1]["td_target"], 1.0)


def test_an_illegal_choice_is_in_no_sum_and_lowers_the_target_entropy():
    """Without the third choice π is ⅔, ⅓ and both Q are 1; half of the entropy of uniform choice is ½ log 2."""
    config = masac.Config(gamma=0.5, alpha=0.2, lr=0.01, discrete_entropy=0.5)
    algo, agents = three_choices(config)
    legal = jnp.broadcast_to(jnp.array([True, True, False]), (2, 1, 3))
    after, metrics = algo.update(agents, batch_of(THREE, 2, action=CHOICE, legal=legal, next_legal=legal), prng.key(0))
    entropy = np.log(3.0) - 2 / 3 * np.log(2.0)
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-6)
    np.testing.assert_allclose(metrics["td_target"], 1 + 0.5 * (1 + 0.2 * entropy), rtol=1e-6)
    assert entropy > 0.5 * np.log(2.0)
    assert after.log_alpha[0] < agents.log_alpha[0]
    assert float(after.actor[0].bias[0, 2]) == float(agents.actor[0].bias[0, 2])


@pytest.mark.parametrize(("share", "direction"), [(0.99, 1), (0.5, -1)])
def test_the_temperature_moves_the_entropy_towards_its_target(share, direction):
    """The entropy of ½, ¼, ¼ is 0.946 of that of uniform choice; Adam's first step is as long as the step size."""
    algo, agents = three_choices(masac.Config(discrete_entropy=share, lr=1e-3, alpha_lr=0.01))
    after, _ = algo.update(agents, batch_of(THREE, 2, action=CHOICE), prng.key(0))
    np.testing.assert_allclose(after.log_alpha - agents.log_alpha, direction * 0.01, rtol=1e-3)
    algo, agents = three_choices(masac.Config(discrete_entropy=share, tune_alpha=False))
    after, _ = algo.update(agents, batch_of(THREE, 2, action=CHOICE), prng.key(0))
    assert after.log_alpha == agents.log_alpha


def test_a_dead_agent_teaches_nothing():
    algo, agents = three_choices(masac.Config(lr=0.01))
    batch = batch_of(THREE, 4, action=jnp.concatenate([CHOICE, CHOICE]))
    strange = batch._replace(
        alive=jnp.array([[True], [True], [False], [False]]), reward=batch.reward.at[2:].set(1e3), obs=batch.obs.at[2:].set(9.0)
    )
    for one, other in zip(
        jax.tree.leaves(algo.update(agents, jax.tree.map(lambda leaf: leaf[:2], batch), prng.key(0))),
        jax.tree.leaves(algo.update(agents, strange, prng.key(0))),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_critics_of_choices_ignore_their_own_agents_action():
    algo = masac.make(SMALL, MIXED, np.ones((3, 3), bool))
    agents = jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(0))
    batch = random_batch(MIXED, 0, (BATCH,), np.float32, True)
    after, _ = jax.jit(algo.update, compiler_options=QUICKLY)(agents, batch, prng.key(1))
    for net in (*agents.critics, *after.critics):
        rows = np.asarray(net[0].weight)[:, 3 * 4 :].reshape(3, 3, 5, -1)
        assert not rows[0, 0].any()
        assert not rows[2, 2].any()
        assert rows[1, 1, :2].all(axis=-1).any(), "those of a continuous agent read it"
        assert rows[0, 2, :4].any()


def test_workers_draw_as_the_policy_does():
    """Means ½ and −1 and deviations e^−1 and e^9, which is cut to e²: the same numbers for the same noise."""
    spec = spec_of((1, 1), (Box(2, 0.0, 1.0), Discrete((2,))))
    algo = masac.make(SMALL, spec, np.ones((2, 2), bool))
    raw = jnp.array([[0.5, -1.0, -1.0, 9.0], [0.0, 3.0, 0.0, 0.0]])
    policy = masac.Acting((Layer(jnp.zeros((2, 1, 4)), raw),))
    plain = masac.actors(SMALL, spec, policy)
    spaces = tuple(map(numpy_policy.space_of, spec.action_spaces))
    team = numpy_policy.make_team(numpy_policy.layers_of(plain.layers), spaces, numpy_policy.Rules(**plain.rules))
    key, obs = prng.key(3), jnp.zeros((64, 2, 1))
    noise = masac.noise_of(masac.problem_of(spec, np.ones((2, 2), bool)), key, (64, 2, 2))
    expected, _, _ = algo.act(policy, (), obs, key, jnp.int32(0))
    outputs = numpy_policy.outputs(team, np.asarray(obs))
    action, _ = numpy_policy.noisy(team, None, outputs, np.asarray(noise.gumbel), np.asarray(noise.normal), 0)
    np.testing.assert_allclose(action, expected, atol=2e-6)
    drawn, _ = numpy_policy.explore(team, None, np.zeros((512, 2, 1), np.float32), np.random.default_rng(0))
    np.testing.assert_allclose(np.arctanh(drawn[:, 0, 0]).std(), np.exp(-1.0), rtol=0.1)
    alone = numpy_policy.only(team, 0, 1)
    np.testing.assert_allclose(numpy_policy.greedy(alone, np.zeros((1, 1), np.float32)), np.tanh([[0.5, -1.0]]), rtol=1e-6)
    assert numpy_policy.without_deviations(alone)[-1].weight.shape == (1, 1, 2)


@pytest.mark.parametrize(
    ("name", "value"), [("alpha", 0.0), ("alpha_lr", -1.0), ("discrete_entropy", 1.5), ("continuous_entropy", np.inf)]
)
def test_senseless_settings_are_refused(name, value):
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} must be"):
        override(Config(), algorithm="masac", **{name: value})


# --- Against NumPy.


def policy_of(space, raw, normal):
    """An agent's choices with their probabilities [B, C], its continuous action and the log-density of that.

    The last is the function that takes gradients with respect to probabilities, action and log-density back to the outputs.
    """
    size = len(raw[0]) // 2
    if isinstance(space, Box):
        mean, log_std = raw[:, : space.size], raw[:, size : size + space.size]
        std = np.exp(np.clip(log_std, -5, 2))
        u = mean + std * normal
        action = np.tanh(u)
        density = np.sum(-(normal**2) / 2 - np.clip(log_std, -5, 2) - np.log(2 * np.pi) / 2 - np.log(1 - action**2), axis=1)

        def back(_, grad_action, grad_density):
            grad_u = grad_action * (1 - action**2) + grad_density[:, None] * 2 * action
            grad_std = (grad_u * std * normal - grad_density[:, None]) * ((log_std > -5) & (log_std < 2))
            grads = np.zeros_like(raw)
            grads[:, : space.size], grads[:, size : size + space.size] = grad_u, grad_std
            return grads

        return [()], np.ones((len(raw), 1)), action, density, back
    edges = np.cumsum((0, *space.heads))
    parts = [np.exp(raw[:, a:b] - raw[:, a:b].max(1, keepdims=True)) for a, b in pairwise(edges)]
    parts = [part / part.sum(1, keepdims=True) for part in parts]
    combos = list(product(*map(range, space.heads)))
    chances = np.stack([np.prod([part[:, k] for part, k in zip(parts, c, strict=True)], axis=0) for c in combos], axis=1)

    def back(grad_chance, _, __):
        grads = np.zeros_like(raw)
        for h, part in enumerate(parts):
            slope = np.zeros_like(part)
            for place, c in enumerate(combos):
                rest = np.prod([p[:, k] for g, (p, k) in enumerate(zip(parts, c, strict=True)) if g != h], axis=0)
                slope[:, c[h]] += grad_chance[:, place] * rest
            grads[:, edges[h] : edges[h + 1]] = part * (slope - (slope * part).sum(1, keepdims=True))
        return grads

    return combos, chances, None, np.zeros(len(raw)), back


def drawn(space, raw, gumbel, normal):
    """An agent's sampled action vector."""
    if isinstance(space, Box):
        return policy_of(space, raw, normal)[2]
    edges = np.cumsum((0, *space.heads))
    pairs = pairwise(edges)
    return np.concatenate([np.eye(b - a)[np.argmax((raw + gumbel)[:, a:b], axis=1)] for a, b in pairs], axis=1)


def learn_one(config, spec, sees, team, batch, i, later, now, own_normal):
    """Agent i after an update, and its losses. `later` and `now` are the noises of all agents at o′ and at o."""
    me, space, n = team[i], spec.action_spaces[i], spec.num_agents
    rows, alpha = np.flatnonzero(batch["alive"][i]), np.exp(team[i]["log_alpha"])
    watched = [j for j in range(n) if sees[i, j]]
    acting = [j for j in watched if j != i or isinstance(space, Box)]

    def critic_input(obs, action):
        return np.concatenate([obs[j] for j in watched] + [action[j] for j in acting], axis=1)[rows]

    def everyone(obs, gumbels, normals):
        raw = [forward(team[j]["actor"], obs[j])[0] for j in range(n)]
        pads = [np.pad(gumbels[j], ((0, 0), (0, len(raw[j][0]) - len(gumbels[j][0])))) for j in range(n)]
        return raw, [drawn(spec.action_spaces[j], raw[j], pads[j], normals[j]) for j in range(n)]

    raw, action = everyone(batch["next_obs"], *later)
    _, chances, _, density, _ = policy_of(space, raw[i], later[1][i])
    next_q = np.min([forward(net, critic_input(batch["next_obs"], action))[0] for net in me["target_critics"]], axis=0)
    soft = np.sum(chances[rows] * (next_q - alpha * np.log(chances[rows])), axis=1) - alpha * density[rows]
    y = batch["reward"][i][rows] + config.gamma * (1.0 - batch["terminated"][i][rows]) * soft

    others = batch["action"]
    if config.order == "sequential":
        fresh = everyone(batch["obs"], *now)[1]
        others = [batch["action"][j] if j == i else fresh[j] for j in range(n)]
    raw, actor_inputs = forward(me["actor"], batch["obs"][i])
    combos, chances, mine, density, back = policy_of(space, raw, own_normal)
    chances, density = chances[rows], density[rows]
    actions = [mine if j == i and mine is not None else others[j] for j in range(n)]
    each = [forward(net, critic_input(batch["obs"], actions)) for net in me["critics"]]
    smaller = np.argmin([q for q, _ in each], axis=0)
    q_now = np.min([q for q, _ in each], axis=0)
    loss = np.mean(np.sum(chances * (alpha * np.log(chances) - q_now), axis=1) + alpha * density)
    grad_chance, grad_action = np.zeros((len(raw), len(combos))), np.zeros((len(raw), space.size))
    grad_chance[rows] = (alpha * (np.log(chances) + 1) - q_now) / len(rows)
    if mine is not None:
        first = sum(spec.obs_sizes[j] for j in watched) + sum(spec.act_sizes[j] for j in acting if j < i)
        for which, (net, (_, inputs)) in enumerate(zip(me["critics"], each, strict=True)):
            _, grad_input = backward(net, inputs, -1.0 * (smaller == which) / len(rows))
            grad_action[rows] += grad_input[:, first : first + space.size]
    grad_density = np.zeros(len(raw))
    grad_density[rows] = alpha / len(rows)
    grads, _ = backward(me["actor"], actor_inputs, back(grad_chance, grad_action, grad_density))
    actor = adam(me["actor"], clip(config, grads), me["actor_adam"], config.lr)

    edges = () if isinstance(space, Box) else np.cumsum((0, *space.heads))[:-1]
    taken = [
        tuple(np.argmax(row[a : a + w]) for a, w in zip(edges, getattr(space, "heads", ()), strict=True))
        for row in batch["action"][i][rows]
    ]
    chosen = np.array([combos.index(choice) for choice in taken])
    critics, losses = [], []
    for net, memory in zip(me["critics"], me["critic_adams"], strict=True):
        q, inputs = forward(net, critic_input(batch["obs"], batch["action"]))
        picked = np.eye(len(combos))[chosen]
        error = np.sum(q * picked, axis=1) - y
        net_grads, _ = backward(net, inputs, 2 * picked * error[:, None] / len(rows))
        critics.append(adam(net, clip(config, net_grads), memory, config.critic_lr or config.lr))
        losses.append(np.mean(error**2))

    entropy = -np.sum(chances * np.log(chances), axis=1) - density
    target = config.continuous_entropy * space.size if mine is not None else config.discrete_entropy * np.log(len(combos))
    slope = np.mean(entropy) - target
    slope = np.clip(slope, -config.clip, config.clip) if config.clip else slope
    ((log_alpha,),) = adam([(me["log_alpha"],)], [(slope,)], me["alpha_adam"], config.alpha_lr or config.lr)
    learnt = me | {
        "actor": actor,
        "critics": critics,
        "target_critics": [slide(*pair, config.tau) for pair in zip(me["target_critics"], critics, strict=True)],
        "log_alpha": log_alpha,
    }
    return learnt, {"critic_loss": np.mean(losses), "actor_loss": loss, "entropy": np.mean(entropy), "alpha": alpha}


def own_rows(spec, sees, i):
    """Where critic i's true inputs lie: its agent's own discrete action is not among them."""
    rows = rows_of_critic(spec, sees, i)
    first = spec.num_agents * spec.obs_size + i * spec.act_size
    own = (rows >= first) & (rows < first + spec.act_size)
    return rows if isinstance(spec.action_spaces[i], Box) else rows[~own]


def unpadded(spec, sees, agents, i):
    """Agent i's networks at their true sizes; the actor keeps all outputs, which are zero where they are padding."""
    outputs = np.arange(agents.actor[-1].bias.shape[-1])
    critic = own_rows(spec, sees, i), np.arange(int(masac.choices_of(spec).real[i].sum()))
    return {
        "actor": true_size(agents.actor, i, np.arange(spec.obs_sizes[i]), outputs),
        **{name: [true_size(net, i, *critic) for net in getattr(agents, name)] for name in ("critics", "target_critics")},
    }


def started(config, spec, sees):
    """Agents with random networks, targets unlike them, and optimisers at rest, in float64."""
    shapes = jax.eval_shape(lambda: masac.init(config, masac.problem_of(spec, sees), prng.key(0)))
    rng, n = np.random.default_rng(7), spec.num_agents
    seen = np.zeros((n, shapes.critics[0][0].weight.shape[1]))
    for i in range(n):
        seen[i, own_rows(spec, sees, i)] = 1.0
    choices = masac.choices_of(spec)
    spread = spec.act_mask & (choices.size > 0)[:, None]
    actor = spec.obs_mask.astype(float), np.concatenate([spec.act_mask, spread], axis=1).astype(float)
    rest = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, np.float64 if leaf.dtype.kind == "f" else leaf.dtype), shapes)
    random = lambda net, *masks: random_networks(rng, net, *masks, np.float64)  # noqa: E731
    twins = {
        name: tuple(random(net, seen, choices.real.astype(float)) for net in getattr(shapes, name))
        for name in ("critics", "target_critics")
    }
    return rest._replace(actor=random(shapes.actor, *actor), log_alpha=jnp.asarray(rng.normal(size=n)), **twins)


def noises(spec, key):
    """The noise that an update draws from its key: all agents' at o′; and for each agent, all agents' at o and its own."""
    n, a = spec.num_agents, spec.act_size
    problem = masac.problem_of(spec, np.ones((n, n), bool))
    key_target, key_actor = jax.random.split(key)
    cut = lambda part: [np.asarray(part[j][:size].T, np.float64) for j, size in enumerate(spec.act_sizes)]  # noqa: E731
    whole = lambda key: tuple(map(cut, masac.noise_of(problem, key, (n, a, BATCH))))  # noqa: E731
    own = [
        masac.noise_of(problem, jax.random.fold_in(key_actor, n + i), (a, BATCH)).normal[: spec.act_sizes[i]].T
        for i in range(n)
    ]
    return whole(key_target), [whole(jax.random.fold_in(key_actor, i)) for i in range(n)], own


TEAMS = np.array([[True, True, False], [True, True, False], [False, False, True]])
CASES = {
    "all see all": (SMALL, np.ones((3, 3), bool), True),
    "teams, some dead, one after another": (
        dataclasses.replace(SMALL, order="sequential", clip_by="global", critic_lr=0.01, alpha_lr=0.02, clip=0.3),
        TEAMS,
        False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_three_updates_are_the_references(case):
    config, sees, all_alive = CASES[case]
    spec, n = MIXED, 3
    with jax.enable_x64(True):
        agents = started(config, spec, sees)
        team = [unpadded(spec, sees, agents, i) | {"log_alpha": float(agents.log_alpha[i])} for i in range(n)]
        for member in team:
            member |= {"actor_adam": at_rest(), "critic_adams": [at_rest(), at_rest()], "alpha_adam": at_rest()}
        update = jax.jit(masac.make(config, spec, sees).update, compiler_options=QUICKLY)
        for seed in range(3):
            batch, key = one_hot(spec, random_batch(spec, seed, (BATCH,), np.float64, all_alive)), prng.key(100 + seed)
            agents, metrics = update(agents, batch, key)
            later, now, own = noises(spec, key)
            snapshot, losses = list(team), []
            for i in range(n):
                read = team if config.order == "sequential" else snapshot
                normal = np.asarray(own[i], np.float64)
                team[i], loss = learn_one(config, spec, sees, read, unpad_batch(spec, batch), i, later, now[i], normal)
                losses.append(loss)
            for i in range(n):
                ours = unpadded(spec, sees, agents, i)
                assert apart(ours["actor"], team[i]["actor"]) < 1e-7
                for name in ("critics", "target_critics"):
                    assert max(map(apart, ours[name], team[i][name])) < 1e-7
            np.testing.assert_allclose(agents.log_alpha, [member["log_alpha"] for member in team], atol=1e-7)
            for name in ("critic_loss", "actor_loss", "entropy", "alpha"):
                np.testing.assert_allclose(metrics[name], [loss[name] for loss in losses], atol=1e-6)


def one_hot(spec, batch):
    """The batch with choices in place of relaxed actions."""
    action = np.array(batch.action)
    for i, space in enumerate(spec.action_spaces):
        for start, width in zip(np.cumsum((0, *getattr(space, "heads", ()))), getattr(space, "heads", ()), strict=False):
            action[:, i, start : start + width] = np.eye(width)[action[:, i, start : start + width].argmax(-1)]
    return batch._replace(action=jnp.asarray(action))


# --- Probes.

QUICK = masac.Config(num_units=32, num_layers=1, tau=0.1, lr=1e-2)


@pytest.mark.parametrize("order", ["snapshot", "sequential"])
def test_two_agents_agree_on_a_parity_only_one_of_them_can_see(order):
    config = dataclasses.replace(QUICK, order=order)
    agents = climb(masac.make, Xor(), config, iterations=1000)
    np.testing.assert_array_equal(parity(masac.make, Xor(), config, agents), 1.0)


def test_a_continuous_action_reaches_its_target():
    config = dataclasses.replace(QUICK, continuous_entropy=-2.0)
    agents = climb(masac.make, Steering(), config, iterations=900)
    action = greedy(masac.make, Steering(), config, agents, np.array([[[1.0]], [[-1.0]]]))
    np.testing.assert_allclose(action[:, 0, 0], [2.5, 1.5], atol=0.25)


@pytest.mark.slow
def test_the_choice_follows_what_is_seen_and_its_entropy_the_target():
    agents = climb(masac.make, Matching(), QUICK, iterations=600)
    action = greedy(masac.make, Matching(), QUICK, agents, np.array([[[1.0]], [[-1.0]]]))
    np.testing.assert_array_equal(action[:, 0], [[0.0, 1.0], [1.0, 0.0]])
    algo = masac.make(QUICK, Matching().spec, ALONE)
    obs = jnp.asarray(np.repeat([[[1.0]], [[-1.0]]], 2048, axis=0))
    choice, _, _ = algo.act(algo.policy(agents), (), obs, prng.key(5), jnp.int32(0))
    chance = np.mean(np.asarray(choice[:2048, 0, 0]))
    entropy = -chance * np.log(chance) - (1 - chance) * np.log(1 - chance)
    assert 0.1 * np.log(2) < entropy < 0.35 * np.log(2), "the target is 0.2 log 2"


@pytest.mark.slow
def test_two_heads_learn_side_by_side():
    agents = climb(masac.make, TwoHeads(), QUICK, iterations=600)
    action = greedy(masac.make, TwoHeads(), QUICK, agents, np.array([[[1.0]], [[-1.0]]]))[:, 0]
    np.testing.assert_array_equal(action, [[0, 1, 0, 0, 1], [1, 0, 0, 0, 1]])


@pytest.mark.slow
def test_the_better_choice_is_found():
    agents = climb(masac.make, Choosing(), QUICK)
    np.testing.assert_array_equal(greedy(masac.make, Choosing(), QUICK, agents, np.zeros((1, 1, 1)))[0, 0], [0.0, 1.0])


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "worth"), [("terminated", 1.0), ("truncated", 5.0)])
def test_a_constant_reward_is_the_value_and_a_time_limit_bootstraps(ends, worth):
    config = dataclasses.replace(QUICK, gamma=0.8, tau=0.2, alpha=1e-6, tune_alpha=False)
    agents = climb(masac.make, Probe(ends=ends), config, iterations=900)
    problem = masac.problem_of(Probe().spec, ALONE)
    for critic in agents.critics:
        value = masac.values(problem, jax.tree.map(lambda leaf: leaf[0], critic), jnp.zeros((3, 1)))
        np.testing.assert_allclose(value, worth, atol=0.06 * worth)
