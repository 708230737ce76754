"""MADDPG's losses by hand, and what must be invisible: padding, and whom a critic does not see."""

import dataclasses
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from counterpoint.algos import maddpg, offpolicy
from counterpoint.core import prng
from counterpoint.core.actions import Draw, Heads, heads_of
from counterpoint.core.nets import Layer
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Transition
from counterpoint.training.replay import example, uniform
from probes import spec_of

either = pytest.mark.parametrize("compiled", [False, True], ids=["plain", "jit"])
PLAIN = Heads(mask=None, discrete=None, same=None)
SMALL = maddpg.Config(num_units=8, num_layers=1)
PAIR = spec_of((1, 1), (Discrete((2,)), Discrete((2,))))
PROBLEM = maddpg.Problem(PAIR, PLAIN, np.ones((2, 2), bool))
QUICKLY = {"xla_backend_optimization_level": 0}


def maybe_jit(function, compiled):
    return jax.jit(function) if compiled else function


def test_the_defaults_are_the_authors():
    config = maddpg.Config()
    assert (config.lr, config.gamma, config.tau, config.hidden) == (0.01, 0.95, 0.01, (64, 64))
    assert (config.clip, config.clip_by, config.logit_cost, config.temperature) == (0.5, "variable", 1e-3, 1.0)
    assert (config.estimator, config.world_action) == ("soft", "soft")


def view(inputs, obs=None, action=None, legal=None, alive=None, weight=None, heads=PLAIN, first=0):
    """An agent's view of a minibatch; what is left out is not read."""
    size = inputs.shape[-1]
    return offpolicy.View(
        inputs=inputs,
        obs=jnp.zeros((1, size)) if obs is None else obs,
        action=jnp.zeros((1, size)) if action is None else action,
        legal=legal,
        alive=jnp.ones(size) if alive is None else alive,
        weight=jnp.ones(size) if weight is None else weight,
        heads=heads,
        first=jnp.int32(first),
    )


@either
def test_joint_is_all_observations_then_all_actions(compiled):
    obs = jnp.array([[[1.0], [2.0]], [[3.0], [4.0]]])
    action = jnp.array([[[5.0], [6.0], [7.0]], [[8.0], [9.0], [10.0]]])
    np.testing.assert_array_equal(maybe_jit(maddpg.joint, compiled)(obs, action), np.arange(1.0, 11.0)[:, None])


def test_visible_marks_what_is_real_and_seen():
    spec = spec_of((2, 1), (Discrete((1,)), Discrete((2,))))
    expected = [[1, 1, 0, 0, 1, 0, 0, 0], [1, 1, 1, 0, 1, 0, 1, 1]]
    np.testing.assert_array_equal(maddpg.visible(spec, np.array([[True, False], [True, True]])), expected)


CRITIC = (
    Layer(weight=jnp.array([[1.0, -1.0], [2.0, 0.5]]), bias=jnp.array([0.5, 0.0])),
    Layer(weight=jnp.array([[2.0], [10.0]]), bias=jnp.array([-1.0])),
)
"""Its values of (1, 1), (−3, 0) and (0, 0) are 6, 29 and 0."""
INPUTS = jnp.array([[1.0, 1.0], [-3.0, 0.0], [0.0, 0.0]]).T


@either
def test_critic_loss(compiled):
    """Errors 2, −1 and 3: squares 4, 1 and 9."""
    loss = maybe_jit(lambda y, weight: maddpg.critic_loss(PROBLEM, CRITIC, view(INPUTS, weight=weight), y), compiled)
    y = jnp.array([4.0, 30.0, -3.0])
    value, q = loss(y, jnp.ones(3))
    np.testing.assert_allclose(q, [6.0, 29.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(value, 14 / 3, rtol=1e-6)
    value, _ = loss(y, jnp.array([1.5, 0.0, 1.5]))  # the second agent was dead
    np.testing.assert_allclose(value, 13 / 2, rtol=1e-6)


LOG2, LOG3 = np.log(2.0), np.log(3.0)
ACTOR = (Layer(weight=jnp.array([[LOG2, 0.0]]), bias=jnp.zeros(2)),)
"""One input; outputs (o·log 2, 0), that is 2/3 to 1/3 at o = 1 and 1/2 each at o = 0."""


@either
def test_actor_loss_replaces_the_own_action_only(compiled):
    """Two agents, joint = [o₀ o₁ | a₀ a₀ | a₁ a₁]; agent 1 acts anew, the other keeps (0.25, 0.75).

    Q = 0.1·o₁ + 4·a₀[1] + 3·a₁[0] − 3·a₁[1] is 0.1 + 3 + 1 = 4.1 at o₁ = 1 and 0 + 3 + 0 = 3 at o₁ = 0.
    """
    critic = (Layer(weight=jnp.array([[0.0], [0.1], [0.0], [4.0], [3.0], [-3.0]]), bias=jnp.zeros(1)),)
    inputs = jnp.array([[7.0, 1.0, 0.25, 0.75, 0.9, 0.1], [7.0, 0.0, 0.25, 0.75, 0.9, 0.1]]).T
    config = dataclasses.replace(SMALL, logit_cost=0.5)

    def loss(noise, alive):
        mine = view(inputs, obs=inputs[1:2], action=inputs[4:6], alive=alive, first=jnp.int32(4))
        return maddpg.actor_loss(config, PROBLEM, ACTOR, critic, mine, Draw(noise))

    loss = maybe_jit(loss, compiled)
    cost = 0.5 * LOG2**2 / 4  # mean over two rows of two outputs, of which one is not zero
    np.testing.assert_allclose(loss(jnp.zeros((2, 2)), jnp.ones(2)), -3.55 + cost, rtol=1e-6)
    # Noise log 3 on the second entry makes 2 : 3 at o = 1 and 1 : 3 at o = 0; it costs nothing.
    noisy = jnp.array([[0.0, LOG3]] * 2).T
    np.testing.assert_allclose(loss(noisy, jnp.ones(2)), -((3.1 - 0.6) + (3.0 - 1.5)) / 2 + cost, rtol=1e-6)
    # The second row's agent was dead: the first counts alone.
    np.testing.assert_allclose(loss(jnp.zeros((2, 2)), jnp.array([2.0, 0.0])), -4.1 + 2 * cost, rtol=1e-6)


def test_the_output_cost_is_a_mean_over_real_outputs():
    """Outputs (log 2, 0, padding): the mean of squares is log²2 / 2, not / 3; the critic is blind."""
    spec = spec_of((1, 1), (Discrete((2,)), Discrete((3,))))
    heads = jax.tree.map(lambda table: table[0], heads_of(spec))
    actor = (Layer(weight=jnp.array([[LOG2, 0.0, 0.0]]), bias=jnp.zeros(3)),)
    critic = (Layer(weight=jnp.zeros((4, 1)), bias=jnp.zeros(1)),)
    mine = view(jnp.zeros((4, 1)), obs=jnp.ones((1, 1)), action=jnp.zeros((3, 1)), heads=heads, first=jnp.int32(1))
    loss = maddpg.actor_loss(dataclasses.replace(SMALL, logit_cost=1.0), PROBLEM, actor, critic, mine, Draw(jnp.zeros((3, 1))))
    np.testing.assert_allclose(loss, LOG2**2 / 2, rtol=1e-6)


@pytest.fixture(scope="module")
def smooth():
    """A critic and an actor with no ReLU near its kink, and a batch for them."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    bias = jnp.array([3.0, -9.0, 3.0, 3.0, -9.0])
    critic = (Layer(weight=0.5 * draw(4, 5), bias=bias), Layer(weight=draw(5, 1), bias=draw(1)))
    actor = (Layer(weight=0.5 * draw(2, 5), bias=bias), Layer(weight=draw(5, 2), bias=draw(2)))
    return SimpleNamespace(critic=critic, actor=actor, inputs=draw(4, 6), y=draw(6), noise=draw(2, 6))


def test_gradients_of_the_losses(smooth):
    weight = jnp.array([2.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    config = dataclasses.replace(SMALL, logit_cost=0.1)
    mine = view(smooth.inputs, smooth.inputs[:2], smooth.inputs[2:], alive=weight, weight=weight, first=jnp.int32(2))

    def critic_loss(critic):
        return maddpg.critic_loss(PROBLEM, critic, mine, smooth.y)[0]

    def actor_loss(actor):
        return maddpg.actor_loss(config, PROBLEM, actor, smooth.critic, mine, Draw(smooth.noise))

    for loss, net in ((critic_loss, smooth.critic), (actor_loss, smooth.actor)):
        assert float(jnp.max(jnp.abs(jax.jit(jax.grad(loss))(net)[0].weight))) > 1e-3
        check_grads(jax.jit(loss), (net,), order=1, modes=["rev"], atol=1e-2, rtol=1e-2, eps=1e-2)


# --- What must be invisible.

UNEQUAL = spec_of((4, 2, 3), (Discrete((3, 2)), Box(2, 0.0, 1.0), Discrete((4,))))
EVERYBODY = np.ones((3, 3), bool)
ALONE = np.eye(3, dtype=bool)
TEAMS = np.array([[True, True, False], [True, True, False], [False, False, True]])


PER_AGENT = ("obs", "action", "reward", "next_obs", "terminated", "alive")


def random_batch(spec, seed, size=16):
    """Transitions [B, …], zero where padded."""
    rng = np.random.default_rng(seed)
    n = spec.num_agents
    fields = {
        "obs": rng.normal(size=(size, n, spec.obs_size)) * spec.obs_mask,
        "action": rng.uniform(size=(size, n, spec.act_size)) * spec.act_mask,
        "reward": rng.normal(size=(size, n)),
        "next_obs": rng.normal(size=(size, n, spec.obs_size)) * spec.obs_mask,
    }
    flags = {"terminated": rng.random((size, n)) < 0.2, "alive": rng.random((size, n)) < 0.8, "done": np.zeros(size, bool)}
    return Transition(**{name: np.asarray(field, np.float32) for name, field in fields.items()}, **flags)


def learner(config, spec, sees):
    """Fresh agents and the compiled update."""
    algo = maddpg.make(config, spec, sees)
    agents = jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(0))
    return agents, jax.jit(algo.update, compiler_options=QUICKLY)


@pytest.fixture(scope="module", params=[EVERYBODY, ALONE, TEAMS], ids=["maddpg", "ddpg", "teams"])
def team(request):
    agents, update = learner(SMALL, UNEQUAL, request.param)
    return SimpleNamespace(sees=request.param, agents=agents, update=update)


def test_what_is_padded_or_unseen_stays_exactly_zero(team):
    agents = team.agents
    for seed in range(100):
        agents, _ = team.update(agents, random_batch(UNEQUAL, seed), prng.key(seed))
    obs, act = UNEQUAL.obs_mask, UNEQUAL.act_mask
    seen = maddpg.visible(UNEQUAL, team.sees) > 0
    for which in (agents, agents.actor_opt[0].mu, agents.actor_opt[0].nu):
        nets = (which.actor, which.target_actor) if which is agents else (which,)
        for net in nets:
            assert not np.any(net[0].weight[~obs])
            assert not np.any(np.asarray(net[-1].weight).transpose(0, 2, 1)[~act])
            assert not np.any(net[-1].bias[~act])
    for net in (agents.critic, agents.target_critic, agents.critic_opt[0].mu, agents.critic_opt[0].nu):
        assert not np.any(net[0].weight[~seen])
        assert np.all(np.any(net[0].weight[seen], axis=-1))  # and all else has learnt
    assert not np.allclose(agents.actor[0].weight, team.agents.actor[0].weight, atol=1e-2)


def test_an_accelerator_takes_all_agents_at_once_to_the_same_end(team, monkeypatch):
    batch, key = random_batch(UNEQUAL, 0), prng.key(0)
    looped, figures = team.update(team.agents, batch, key)
    assert "while" in team.update.lower(team.agents, batch, key).as_text()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    wide = jax.jit(maddpg.make(SMALL, UNEQUAL, team.sees).update)
    assert "while" not in wide.lower(team.agents, batch, key).as_text()
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), (looped, figures), wide(team.agents, batch, key))


def disturbed(batch, j):
    """The batch with everything about agent j changed."""
    other, fields = random_batch(UNEQUAL, 999), {}
    for name in PER_AGENT:
        fields[name] = getattr(batch, name).copy()
        fields[name][:, j] = getattr(other, name)[:, j]
    return batch._replace(**fields)


def test_a_critic_learns_from_those_it_sees_and_nobody_else(team):
    """Changing agent j's experience and networks leaves agent i bit for bit the same exactly if i does not see j."""
    batch, key = random_batch(UNEQUAL, 0), prng.key(0)
    base, _ = team.update(team.agents, batch, key)
    for j in range(3):
        strange = jax.tree.map(lambda leaf, j=j: leaf.at[j].multiply(2).astype(leaf.dtype), team.agents)
        changed, _ = team.update(strange, disturbed(batch, j), key)
        for i in range(3):
            same = all(np.array_equal(a[i], b[i]) for a, b in zip(jax.tree.leaves(base), jax.tree.leaves(changed), strict=True))
            assert same == (not team.sees[i, j])


def steady_noise(key, shape):
    """Noise that depends on the place only, so that padding does not reshuffle it."""
    places = np.meshgrid(*map(np.arange, shape), indexing="ij")
    return jnp.asarray(np.sin(sum((k + 1) * 1.7 * place for k, place in enumerate(places))), jnp.float32)


def test_a_wider_stranger_changes_nothing(monkeypatch):
    """A fourth agent, larger than all, whom nobody sees: the three learn what they learnt without it."""
    monkeypatch.setattr(maddpg, "gumbel", steady_noise)
    wider = spec_of((*UNEQUAL.obs_sizes, 9), (*UNEQUAL.action_spaces, Discrete((7,))))
    sees = np.zeros((4, 4), bool)
    sees[:3, :3] = TEAMS
    sees[3, 3] = True
    few, update_few = learner(SMALL, UNEQUAL, TEAMS)
    many, update_many = learner(SMALL, wider, sees)

    def embed(small, large):
        """The three agents' networks inside the wider ones; the critic's rows are scattered, so they are placed by mask."""
        rows_few, rows_many = (maddpg.visible(spec, np.ones((spec.num_agents,) * 2, bool))[0] > 0 for spec in (UNEQUAL, wider))
        rows_many = np.flatnonzero(rows_many)
        inside = [row for row in rows_many if not (27 <= row < 36 or 57 <= row < 64)]  # the stranger's own places
        leaf = np.array(large)
        if small.shape[1:2] == rows_few.shape:
            leaf[:3] = 0.0
            leaf[:3, inside] = np.asarray(small)[:, rows_few]
        elif small.ndim > 1:
            leaf[:3] = 0.0
            leaf[(slice(0, 3), *map(slice, small.shape[1:]))] = small
        return jnp.asarray(leaf)

    many = jax.tree.map(embed, few, many)
    start = many
    for seed in range(3):
        batch, full = random_batch(UNEQUAL, seed), random_batch(wider, 50 + seed)
        for name in PER_AGENT:
            small, large = getattr(batch, name), getattr(full, name)
            large[:, :3] = 0
            large[(slice(None), slice(0, 3), *map(slice, small.shape[2:]))] = small
        few, _ = update_few(few, batch, prng.key(seed))
        many, _ = update_many(many, full, prng.key(seed))
    expected = jax.tree.map(embed, few, many)
    for a, b in zip(jax.tree.leaves(many), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a[:3], b[:3], atol=2e-6)
    assert not np.allclose(many.critic[1].weight, start.critic[1].weight, atol=1e-3)


@pytest.mark.parametrize("order", ["snapshot", "sequential"])
def test_one_agent_needs_no_axis_for_its_own_minibatch(order):
    """What memory hands out for one agent is [B, …] either way."""
    spec = spec_of((3,), (Discrete((2,)),))
    algo = maddpg.make(dataclasses.replace(SMALL, minibatch="per-agent", order=order), spec, np.ones((1, 1), bool))
    memory = uniform(example(spec), capacity=16, batch_size=8, per_add=16, num_batches=spec.num_agents)

    def once(key):
        agents = algo.init(key)
        batch = memory.sample(memory.init(), key)
        return agents, algo.update(agents, batch, key)

    before, (after, metrics) = jax.eval_shape(once, prng.key(0))
    assert jax.tree.map(lambda leaf: leaf.shape, before) == jax.tree.map(lambda leaf: leaf.shape, after)
    assert {leaf.shape for leaf in metrics.values()} == {(1,)}


# --- Acting.


@pytest.fixture(scope="module")
def acting():
    """The act of mixed bodies with each kind of noise, on the same observations; networks whose outputs are zero."""
    obs = jnp.zeros((512, 3, UNEQUAL.obs_size))
    result = {}
    for noise in ("gaussian", "ou"):
        config = dataclasses.replace(
            SMALL, noise=noise, noise_start=0.3, noise_end=0.1, noise_steps=100, world_action="one-hot"
        )
        algo = maddpg.make(config, UNEQUAL, EVERYBODY)
        agents = jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(0))
        act = jax.jit(algo.act, compiler_options=QUICKLY)
        carry = jax.tree.map(lambda leaf: jnp.zeros((512, *leaf.shape)), algo.begin(prng.key(0)))
        actions = []
        for t in range(60):
            action, carry, _ = act(
                algo.policy(agents), carry, obs, jax.random.fold_in(prng.key(1), t), jnp.int32(0 if t < 59 else 10_000)
            )
            actions.append(np.asarray(action))
        result[noise] = np.stack(actions)
    return result


def test_acting_draws_one_hots_and_keeps_padding_zero(acting):
    for actions in acting.values():
        assert not np.any(actions[:, :, ~UNEQUAL.act_mask])
        np.testing.assert_array_equal(actions[:, :, 0, :3].sum(-1), 1.0)
        np.testing.assert_array_equal(actions[:, :, 0, 3:].sum(-1), 1.0)
        np.testing.assert_array_equal(np.unique(actions[:, :, 0]), [0.0, 1.0])
        np.testing.assert_allclose(actions[:, :, 0, :3].mean((0, 1)), 1 / 3, atol=0.02)


def test_continuous_noise_decays_and_only_ou_remembers(acting):
    for noise, actions in acting.items():
        moves = actions[:, :, 1, :2]
        assert np.abs(moves).max() <= 1.0
        late = moves[40:59]  # past the start of the walk
        np.testing.assert_allclose(late.std(), 0.3, rtol=0.05)
        np.testing.assert_allclose(moves[59].std(), 0.1, rtol=0.1)
        echo = np.corrcoef(late[:-1].ravel(), late[1:].ravel())[0, 1]
        np.testing.assert_allclose(echo, 0.85 if noise == "ou" else 0.0, atol=0.05)


def test_greedy_is_the_policy_without_noise():
    obs = jnp.asarray(random_batch(UNEQUAL, 0).obs)
    with_soft, with_hard = (
        maddpg.make(dataclasses.replace(SMALL, world_action=form), UNEQUAL, EVERYBODY) for form in ("soft", "one-hot")
    )

    @jax.jit
    def run(key):
        agents = with_soft.init(key)
        outputs = offpolicy.acting_outputs(maddpg.Problem(UNEQUAL, heads_of(UNEQUAL), EVERYBODY), agents.actor, obs)
        policy = with_soft.policy(agents)
        return outputs, with_soft.greedy(policy, (), obs)[0], with_hard.greedy(policy, (), obs)[0]

    outputs, soft, hard = map(np.asarray, run(prng.key(0)))
    weight = np.exp(outputs[:, 2, :4])
    np.testing.assert_allclose(soft[:, 2, :4], weight / weight.sum(-1, keepdims=True), atol=1e-6)
    np.testing.assert_array_equal(hard[:, 2, :4], np.eye(4)[outputs[:, 2, :4].argmax(-1)])
    for action in (soft, hard):
        np.testing.assert_allclose(action[:, 1, :2], np.tanh(outputs[:, 1, :2]), atol=1e-6)
