"""The critic over the set of agents: its values, whose action changes what, one update against plain NumPy, and a run."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterpoint
from counterpoint.algos import attention, maddpg
from counterpoint.core import prng
from counterpoint.core.actions import heads_of
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Discrete
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


def batch_of(spec, seed=0):
    rng = np.random.default_rng(seed)
    obs, next_obs = (jnp.asarray(rng.normal(size=(SIZE, 3, 3)) * spec.obs_mask, jnp.float32) for _ in range(2))
    return Transition(
        obs=obs,
        action=jnp.asarray(rng.uniform(size=(SIZE, 3, 2)), jnp.float32),
        reward=jnp.asarray(rng.normal(size=(SIZE, 3)), jnp.float32),
        next_obs=next_obs,
        terminated=jnp.asarray(rng.random((SIZE, 3)) < 0.3),
        alive=jnp.asarray(rng.random((SIZE, 3)) < 0.8),
        done=jnp.zeros(SIZE, bool),
    )


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
    found = attention.q(critic, "relu", everyone, np.array([0, 2]))
    expected = numpy_q(jax.tree.map(np.asarray, critic), roles, *map(np.asarray, (batch.obs, batch.action)))
    np.testing.assert_allclose(found, expected[:, [0, 2]], rtol=1e-4, atol=1e-5)


def test_own_actions_change_only_ones_own_value():
    """Exchanging a part of the sums gives what a new pool with that one action exchanged gives."""
    _, _, agents = made(PACK)
    critic, batch, roles = one(agents).critic, batch_of(PACK), attention.role_table(PACK)
    new = jnp.asarray(np.random.default_rng(1).uniform(size=batch.action.shape), jnp.float32)
    everyone = attention.pool(critic, "relu", roles, batch.obs, batch.action)
    members = np.arange(3)
    swapped = attention.embedded(critic, "relu", roles, batch.obs, new)
    found = attention.q_with_own_actions(critic, "relu", everyone, members, swapped)
    for i in members:
        action = batch.action.at[:, i].set(new[:, i])
        whole = attention.q(critic, "relu", attention.pool(critic, "relu", roles, batch.obs, action), members)
        np.testing.assert_allclose(found[:, i], whole[:, i], rtol=1e-4, atol=1e-5)


def test_the_order_of_agents_does_not_matter():
    _, _, agents = made(HERD)
    critic, batch, roles = one(agents).critic, batch_of(HERD), attention.role_table(HERD)
    order = np.array([2, 0, 1])
    q = lambda obs, action: attention.q(critic, "relu", attention.pool(critic, "relu", roles, obs, action), np.arange(3))  # noqa: E731
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


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"infer_policies": True}, "--infer-policies and --share role exclude each other"),
        ({"share": "none"}, "add --share role"),
        ({"minibatch": "per-agent"}, "--minibatch per-agent exclude each other"),
        ({"norm": "layer"}, "--norm layer exclude each other"),
    ],
)
def test_settings_without_meaning_are_refused(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        maddpg.Config(critic="attention", **{"share": "role", **settings})


def test_a_critic_that_sees_only_its_own_agent_is_refused():
    with pytest.raises(UsageError, match="beside ddpg"):
        maddpg.make(maddpg.Config(critic="attention", share="role"), PACK, np.eye(3, dtype=bool))


def test_a_run_of_twelve_agents_resumes_to_the_same_end(tmp_path):
    settings = {
        **{"scenario": "simple_spread", "scenario_args": ("N=12", "num_agent_neighbors=2", "num_landmark_neighbors=2")},
        **{"share": "role", "critic": "attention", "standardise_rewards": True, "save_dir": str(tmp_path), **TINY},
    }
    whole = counterpoint.train(num_episodes=24, exp_name="whole", **settings)
    part = counterpoint.train(num_episodes=16, exp_name="part", **settings)
    part = counterpoint.resume(part.path, num_episodes=24)
    ends = [{name: row[name] for name in row if "second" not in name} for row in (whole.rows()[-1], part.rows()[-1])]
    assert ends[0] == ends[1]
