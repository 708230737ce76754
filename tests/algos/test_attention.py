"""The critic over the set of agents: its values, whose action changes what, updates against plain NumPy, and runs."""

import dataclasses
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterpoint
from counterpoint.algos import attention, maddpg, matd3
from counterpoint.algos.base import TD_ERRORS
from counterpoint.core import prng
from counterpoint.core.actions import heads_of
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Transition
from probes import spec_of
from tiny import TINY

QUICKLY = {"xla_backend_optimization_level": 0}
SIZES = ((3, 3, 2), (Discrete((2,)), Discrete((2,)), Discrete((2,))))
PACK = dataclasses.replace(spec_of(*SIZES), roles=("wolf", "wolf", "sheep"))
HERD = dataclasses.replace(spec_of((3, 3, 3), SIZES[1]), roles=("sheep",) * 3)
SIZE = 5


def made(spec, **settings):
    config = maddpg.Config(num_units=6, clip=0.0, critic="attention", **{"share": "role", **settings})
    problem = maddpg.Problem(spec, heads_of(spec), np.ones((3, 3), bool))
    return config, problem, jax.jit(partial(maddpg.init, config, problem), compiler_options=QUICKLY)(prng.key(3))


def batch_of(spec, seed=0, size=SIZE):
    rng = np.random.default_rng(seed)
    obs, next_obs = (jnp.asarray(rng.normal(size=(size, 3, 3)) * spec.obs_mask, jnp.float32) for _ in range(2))
    return Transition(
        obs=obs,
        action=jnp.asarray(rng.uniform(size=(size, 3, 2)), jnp.float32),
        reward=jnp.asarray(rng.normal(size=(size, 3)), jnp.float32),
        next_obs=next_obs,
        terminated=jnp.asarray(rng.random((size, 3)) < 0.3),
        alive=jnp.asarray(rng.random((size, 3)) < 0.8),
        done=jnp.zeros(size, bool),
    )


def block(*members):
    """The agents with these numbers."""
    return attention.Block(np.array(members), len(members))


def one(agents, m=0):
    return jax.tree.map(lambda leaf: leaf[m], agents)


def numpy_q(critic, roles, obs, action):
    """Q of every agent, [B, N], as the formulas say it."""
    relu = partial(np.maximum, 0.0)
    tags = np.broadcast_to(roles, (*obs.shape[:2], roles.shape[1]))
    e = relu(np.concatenate([obs, action, tags], axis=-1) @ critic.pair[0].weight + critic.pair[0].bias)
    score = e @ critic.score[0].weight + critic.score[0].bias
    w = np.exp(5 * np.tanh(score / 5))
    p = (w * e).sum(1) / w.sum(1)
    h = relu(e @ critic.value[0].weight + (p @ critic.pooled[0].weight)[:, None] + critic.value[0].bias)
    return (h @ critic.value[1].weight + critic.value[1].bias)[..., 0]


@pytest.mark.parametrize("spec", [PACK, HERD], ids=["roles", "one role"])
def test_values_are_those_of_the_formula(spec):
    _, _, agents = made(spec)
    critic, batch, roles = one(agents).critic, batch_of(spec), attention.role_table(spec)
    assert roles.shape == (3, 2 if spec is PACK else 0)
    everyone = attention.pool(critic, "relu", roles, batch.obs, batch.action)
    found = attention.q(critic, "relu", everyone, block(0, 2))
    expected = numpy_q(jax.tree.map(np.asarray, critic), roles, *map(np.asarray, (batch.obs, batch.action)))
    np.testing.assert_allclose(found, expected[:, [0, 2]], rtol=1e-4, atol=1e-5)


def test_own_actions_change_only_ones_own_value():
    """Exchanging a part of the sums gives what a new pool with that one action exchanged gives."""
    _, _, agents = made(PACK)
    critic, batch, roles = one(agents).critic, batch_of(PACK), attention.role_table(PACK)
    new = jnp.asarray(np.random.default_rng(1).uniform(size=batch.action.shape), jnp.float32)
    everyone = attention.pool(critic, "relu", roles, batch.obs, batch.action)
    everybody = block(0, 1, 2)
    found = attention.q_with_own_actions(critic, "relu", roles, everyone, everybody, new)
    for i in range(3):
        action = batch.action.at[:, i].set(new[:, i])
        whole = attention.q(critic, "relu", attention.pool(critic, "relu", roles, batch.obs, action), everybody)
        np.testing.assert_allclose(found[:, i], whole[:, i], rtol=1e-4, atol=1e-5)


def test_the_order_of_agents_does_not_matter():
    _, _, agents = made(HERD)
    critic, batch, roles = one(agents).critic, batch_of(HERD), attention.role_table(HERD)
    order = np.array([2, 0, 1])
    q = lambda obs, action: attention.q(critic, "relu", attention.pool(critic, "relu", roles, obs, action), block(0, 1, 2))  # noqa: E731
    np.testing.assert_allclose(
        q(batch.obs[:, order], batch.action[:, order]), q(batch.obs, batch.action)[:, order], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("share", ["role", "all"])
def test_an_update_descends_the_losses_of_every_agent(share):
    """Metrics by NumPy; the first moment of Adam is a tenth of the critic's gradient, by finite differences."""
    config, problem, agents = made(PACK, share=share, gamma=0.0)
    batch, roles = batch_of(PACK), attention.role_table(PACK)
    learn = jax.jit(lambda agents: maddpg.update(config, problem, agents, batch, prng.key(5)), compiler_options=QUICKLY)
    after, metrics = learn(agents)
    assert jax.tree.structure(after) == jax.tree.structure(agents)
    sets = np.array([0, 0, 1] if share == "role" else [0, 0, 0])
    obs, action, reward, alive = (np.asarray(x, float) for x in (batch.obs, batch.action, batch.reward, batch.alive))

    def losses(critic):
        return (alive * (numpy_q(critic, roles, obs, action) - reward) ** 2).sum(0) / alive.sum(0)

    for m in range(sets.max() + 1):
        critic = jax.tree.map(lambda leaf, m=m: np.asarray(leaf[m], float), agents.critic)
        np.testing.assert_allclose(np.asarray(metrics["critic_loss"])[sets == m], losses(critic)[sets == m], rtol=1e-4)
        moment = np.asarray(after.critic_opt[0].mu.pair[0].weight[m])
        for entry in ((0, 0), (2, 3), (4, 1)):
            moved = [critic.pair[0].weight.copy() for _ in range(2)]
            moved[0][entry] += 1e-6
            moved[1][entry] -= 1e-6
            up, down = (
                losses(critic._replace(pair=(critic.pair[0]._replace(weight=weight),)))[sets == m].sum() for weight in moved
            )
            np.testing.assert_allclose(10 * moment[entry], (up - down) / 2e-6, rtol=1e-3, atol=1e-5)


def test_actors_ascend_their_own_values():
    """A step of the actors raises the mean value of their actions, and nothing else in it changes."""
    config, problem, agents = made(HERD, logit_cost=0.0, lr=1e-3)
    batch = batch_of(HERD)._replace(alive=jnp.ones((SIZE, 3), bool))
    learn = jax.jit(lambda agents: maddpg.update(config, problem, agents, batch, prng.key(5)), compiler_options=QUICKLY)
    after, first = learn(agents)
    frozen = after._replace(actor=agents.actor, actor_opt=agents.actor_opt)
    loss = lambda actor: learn(frozen._replace(actor=actor))[1]["actor_loss"].sum()  # noqa: E731
    assert np.isfinite(np.asarray(first["actor_loss"])).all()
    assert loss(after.actor) < loss(agents.actor)


def test_actors_learn_by_the_chosen_estimator():
    """The gradients of soft and Gumbel-Rao actions differ; that of Gumbel-Rao depends on its number of samples."""
    batch, found = batch_of(PACK), []
    for settings in ({}, {"estimator": "gumbel-rao"}, {"estimator": "gumbel-rao", "estimator_samples": 3}):
        config, problem, agents = made(PACK, **settings)
        learn = jax.jit(partial(maddpg.update, config, problem), compiler_options=QUICKLY)
        after, metrics = learn(agents, batch, prng.key(5))
        assert np.isfinite(np.asarray(metrics["actor_loss"])).all()
        found.append(np.asarray(after.actor_opt[0].mu[0].weight))
    assert np.abs(found[0] - found[1]).max() > 1e-6
    assert np.abs(found[1] - found[2]).max() > 1e-6


STEERED = dataclasses.replace(spec_of((3, 3, 2), (Box(2, -1.0, 1.0),) * 3), roles=PACK.roles)


class Restated:
    """The losses of one set of parameters in float64 NumPy, for continuous actions, which need no noise."""

    def __init__(self, config, agents, batch, m, taught=None):
        """`taught` [B, 3] says which agents learn from which samples; None stands for all."""
        self.config, self.roles = config, attention.role_table(STEERED)
        self.sets = np.array([0, 0, 1] if config.share == "role" else [0, 0, 0])
        self.mine, self.batch = self.sets == m, jax.tree.map(lambda leaf: np.asarray(leaf, float), batch)
        self.counts = self.batch.alive * (1.0 if taught is None else taught)
        later = np.concatenate(
            [self.act(self.of(agents.target_actor, j), batch.next_obs, i) for i, j in enumerate(self.sets)], 1
        )
        targets = getattr(agents, "target_critics", None) or (agents.target_critic,)
        worth = [numpy_q(self.of(critic, m), self.roles, np.asarray(batch.next_obs), later) for critic in targets]
        self.y = self.batch.reward + config.gamma * (1 - self.batch.terminated) * np.min(worth, axis=0)

    @staticmethod
    def of(net, m):
        return jax.tree.map(lambda leaf: np.asarray(leaf[m], float), net)

    def raw(self, actor, obs, i):
        """Outputs of agent i, [B, 1, A]; where roles share, its index follows what it sees."""
        x = np.asarray(obs, float)[:, [i]]
        if self.config.share == "all":
            x = np.concatenate([x, np.broadcast_to(np.eye(3)[i], (len(x), 1, 3))], axis=-1)
        for layer in actor[:-1]:
            x = np.maximum(x @ layer.weight + layer.bias, 0.0)
        return x @ actor[-1].weight + actor[-1].bias

    def act(self, actor, obs, i):
        return np.tanh(self.raw(actor, obs, i))

    def mean(self, values):
        """Means over the samples from which the agents of the set learn."""
        return ((self.counts * values).sum(0) / self.counts.sum(0))[self.mine]

    def critic(self, critic):
        return self.mean((numpy_q(critic, self.roles, self.batch.obs, self.batch.action) - self.y) ** 2)

    def actor(self, critic, actor):
        """The loss of every agent of the set, the others acting as replayed."""
        found = np.zeros_like(self.counts)
        for i in np.flatnonzero(self.mine):
            action, raw = self.batch.action.copy(), self.raw(actor, self.batch.obs, i)
            action[:, [i]] = np.tanh(raw)
            value = numpy_q(critic, self.roles, self.batch.obs, action)[:, i]
            found[:, i] = -value + self.config.logit_cost * (raw[:, 0] ** 2).mean(-1)
        return self.mean(found)


def slope(loss, net, change, entry):
    """The derivative of a loss with respect to one weight, by differences."""
    up, down = (loss(change(net, entry, step)).sum() for step in (1e-5, -1e-5))
    return (up - down) / 2e-5


def pair_moved(critic, entry, step):
    weight = critic.pair[0].weight.copy()
    weight[entry] += step
    return critic._replace(pair=(critic.pair[0]._replace(weight=weight),))


def first_layer_moved(actor, entry, step):
    weight = actor[0].weight.copy()
    weight[entry] += step
    return (actor[0]._replace(weight=weight), *actor[1:])


TAUGHT = np.array([[1, 0, 1], [1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 1, 1], [0, 1, 1], [0, 1, 1]], float)
"""Who learns from which of seven samples if there are two wolves, one of whom learns from a sample, and one sheep."""


@pytest.mark.parametrize(
    ("share", "alone"), [("role", False), ("all", False), ("role", True)], ids=["role", "all", "one agent per sample"]
)
@pytest.mark.parametrize("algo", [maddpg, matd3], ids=["maddpg", "matd3"])
def test_an_update_is_what_the_equations_say(algo, share, alone):
    """Targets, losses of one critic or of twins, and gradients: the first moment of Adam is a tenth of them."""
    more = {"policy_delay": 1, "target_noise": 0.0} if algo is matd3 else {}
    config = algo.Config(
        num_units=6, clip=0.0, critic="attention", share=share, gamma=0.9, agents_per_sample=int(alone), **more
    )
    made = algo.make(config, STEERED, np.ones((3, 3), bool))
    agents = jax.jit(made.init, compiler_options=QUICKLY)(prng.key(3))
    names = ("target_actor", "target_critics" if algo is matd3 else "target_critic")
    other = jax.jit(made.init, compiler_options=QUICKLY)(prng.key(4))  # targets unlike their networks
    agents = agents._replace(**{name: getattr(other, name) for name in names})
    batch, taught = (batch_of(STEERED, size=7), TAUGHT) if alone else (batch_of(STEERED), None)
    after, metrics = jax.jit(made.update, compiler_options=QUICKLY)(agents, batch, prng.key(5))
    if algo is matd3:
        pairs = list(zip(agents.critics, after.critics, after.critic_opts, strict=True))
    else:
        pairs = [(agents.critic, after.critic, after.critic_opt)]
    for m in range(2 if share == "role" else 1):
        known = Restated(config, agents, batch, m, taught)
        before, learnt = ([known.of(pair[k], m) for pair in pairs] for k in range(2))
        actor = known.of(agents.actor, m)
        expected = {
            "td_target": known.mean(known.y),
            "critic_loss": np.mean([known.critic(critic) for critic in before], axis=0),
            "actor_loss": known.actor(learnt[0], actor),
        }
        for name, value in expected.items():
            np.testing.assert_allclose(np.asarray(metrics[name])[known.mine], value, rtol=1e-4, atol=1e-5, err_msg=name)
        for entry in ((0, 0), (2, 3), (4, 1)):
            for critic, (_, _, opt) in zip(before, pairs, strict=True):
                found = 10 * np.asarray(opt[0].mu.pair[0].weight[m])[entry]
                np.testing.assert_allclose(found, slope(known.critic, critic, pair_moved, entry), rtol=1e-3, atol=1e-5)
        for entry in ((0, 0), (2, 3), (1, 5)):
            found = 10 * np.asarray(after.actor_opt[0].mu[0].weight[m])[entry]
            expected = slope(partial(known.actor, learnt[0]), actor, first_layer_moved, entry)
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def learnt(config, spec, batch):
    """Agents and metrics after an update from the start."""
    algo = matd3.make(config, spec, np.ones((3, 3), bool))
    agents = jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(3))
    return jax.device_get(jax.jit(algo.update, compiler_options=QUICKLY)(agents, batch, prng.key(5)))


def masked_batch(spec, size):
    """A batch with masks, importance weights and returns of several steps."""
    rng = np.random.default_rng(8)
    legal, next_legal = (jnp.asarray(np.stack([np.ones((size, 3)), rng.random((size, 3)) < 0.5], -1) > 0) for _ in range(2))
    return batch_of(spec, size=size)._replace(
        legal=legal,
        next_legal=next_legal,
        weight=jnp.asarray(rng.uniform(0.5, 1.0, size), jnp.float32),
        index=jnp.arange(size),
        discount=jnp.asarray(rng.uniform(0.8, 1.0, size), jnp.float32),
    )


@pytest.mark.parametrize("estimator", ["soft", "gumbel-rao"])
@pytest.mark.parametrize("parts", [3, 7])
def test_parts_of_a_minibatch_add_up_to_the_whole(parts, estimator, monkeypatch):
    """Seven samples in parts of three or two, and in parts of one."""
    config = matd3.Config(num_units=6, critic="attention", share="role", policy_delay=1, estimator=estimator)
    batch = masked_batch(PACK, 7)
    whole = learnt(config, PACK, batch)
    monkeypatch.setattr(attention, "CACHED_NUMBERS", 7 * 3 * 6 // parts)
    plan = attention.plan_of(config, batch, 2)
    assert len(plan.starts) == parts
    assert plan.size == -(-7 // parts)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), learnt(config, PACK, batch), whole)


def test_all_agents_per_sample_are_the_default():
    found = [
        learnt(matd3.Config(num_units=6, critic="attention", share="all", agents_per_sample=k), PACK, masked_batch(PACK, 7))
        for k in (0, 3, 5)
    ]
    jax.tree.map(np.testing.assert_array_equal, *found[:2])
    jax.tree.map(np.testing.assert_array_equal, *found[1:])


@pytest.mark.parametrize(("members", "count", "size"), [(30, 5, 512), (30, 7, 100), (3, 2, 7), (4, 1, 2), (5, 2, 1)])
def test_every_agent_learns_from_its_share_of_the_samples(members, count, size):
    """The samples of an agent differ by those of one part where blocks do not divide the agents; few samples teach more."""
    config = maddpg.Config(critic="attention", share="role", agents_per_sample=count)
    plan = attention.plan_of(config, batch_of(HERD, size=size), members)
    taught = plan.taught(members)
    assert taught.shape == (size, members)
    assert set(taught.sum(axis=1)) == {plan.count}
    assert plan.count == max(count, -(-members // size))
    blocks = -(-members // plan.count)
    assert taught.sum(axis=0).min() >= size // blocks
    np.testing.assert_array_equal(
        np.concatenate([np.arange(*edge) for edge in zip(plan.starts, plan.stops, strict=True)]), np.arange(size)
    )


def test_td_errors_of_agents_that_do_not_learn_are_those_of_the_others():
    """One of two wolves learns from a sample: the error of the sample is that of it and of the sheep, by their living."""
    config = maddpg.Config(num_units=6, critic="attention", share="role", agents_per_sample=1)
    batch, whole = masked_batch(PACK, 7), maddpg.Config(num_units=6, critic="attention", share="role")
    found = []
    for one_config in (config, whole):
        algo = maddpg.make(one_config, PACK, np.ones((3, 3), bool))
        agents = jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(3))
        each = []
        for alive in ([1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]):
            lives = batch._replace(alive=jnp.broadcast_to(jnp.asarray(alive, bool), (7, 3)))
            each.append(np.asarray(jax.jit(algo.update, compiler_options=QUICKLY)(agents, lives, prng.key(5))[1][TD_ERRORS]))
        found.append(each)
    (alone, *_), (_, *own) = found
    wolf = np.where(TAUGHT[:, 0] > 0, own[0], own[1])
    np.testing.assert_allclose(alone, (2 * wolf + own[2]) / 3, rtol=1e-4)


def test_matd3_delays_its_actors_and_smooths_its_targets():
    config = matd3.Config(num_units=6, critic="attention", share="role", target_noise=0.3)
    made = matd3.make(config, STEERED, np.ones((3, 3), bool))
    update = jax.jit(made.update, compiler_options=QUICKLY)
    batch = batch_of(STEERED)._replace(weight=jnp.ones(SIZE), index=jnp.arange(SIZE))
    agents = [jax.jit(made.init, compiler_options=QUICKLY)(prng.key(3))]
    losses = []
    for seed in range(3):
        after, metrics = update(agents[-1], batch, prng.key(seed))
        agents.append(after)
        losses.append(np.asarray(metrics["actor_loss"]))
        assert metrics[TD_ERRORS].shape == (SIZE,)

    def same(name):
        pairs = ((getattr(one, name), getattr(two, name)) for one, two in pairwise(agents))
        return [jax.tree.all(jax.tree.map(np.array_equal, *pair)) for pair in pairs]

    for name in ("actor", "actor_opt", "target_actor", "target_critics"):
        assert same(name) == [True, False, True], name
    assert same("critics") == [False, False, False]
    np.testing.assert_array_equal(losses[0], 0.0)
    np.testing.assert_allclose(losses[2], [losses[1][:2].mean()] * 2 + [losses[1][2]], rtol=1e-6)
    targets = [np.asarray(update(agents[0], batch, prng.key(seed))[1]["td_target"]) for seed in (7, 8)]
    assert np.abs(targets[0] - targets[1]).max() > 1e-6, "noise differs with the key"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"infer_policies": True}, "--infer-policies and --share role exclude each other"),
        ({"share": "none"}, "add --share role"),
        ({"minibatch": "per-agent"}, "--minibatch per-agent exclude each other"),
        ({"norm": "layer"}, "--norm layer exclude each other"),
        ({"agents_per_sample": -1}, "--agents-per-sample must be at least 0, not -1"),
        ({"agents_per_sample": 2, "critic": "joint"}, "--agents-per-sample 2 belongs to --critic attention: add that"),
    ],
)
def test_settings_without_meaning_are_refused(settings, sentence):
    for algo in (maddpg, matd3):
        with pytest.raises(UsageError, match=sentence):
            algo.Config(**{"critic": "attention", "share": "role", **settings})


def test_a_critic_that_sees_only_its_own_agent_is_refused():
    with pytest.raises(UsageError, match="beside ddpg"):
        maddpg.make(maddpg.Config(critic="attention", share="role"), PACK, np.eye(3, dtype=bool))


@pytest.mark.parametrize("algorithm", ["maddpg", "matd3"])
def test_a_run_of_twelve_agents_resumes_to_the_same_end(algorithm, tmp_path):
    settings = {
        **{
            "algorithm": algorithm,
            "scenario": "simple_spread",
            "scenario_args": ("N=12", "num_agent_neighbors=2", "num_landmark_neighbors=2"),
        },
        **{"share": "role", "critic": "attention", "standardise_rewards": True, "save_dir": str(tmp_path), **TINY},
    }
    whole = counterpoint.train(num_episodes=24, exp_name="whole", **settings)
    part = counterpoint.train(num_episodes=16, exp_name="part", **settings)
    part = counterpoint.resume(part.path, num_episodes=24)
    ends = [{name: row[name] for name in row if "second" not in name} for row in (whole.rows()[-1], part.rows()[-1])]
    assert ends[0] == ends[1]
