"""Action masks by hand: an illegal action is never chosen, is in no target, and gets no gradient."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import coma, maddpg, offpolicy
from counterpoint.core import prng
from counterpoint.core.actions import Draw, choosable, heads_of, masked
from counterpoint.core.nets import Layer
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Transition
from probes import spec_of

THREE = spec_of((1,), (Discrete((3,)),))
PROBLEM = maddpg.Problem(THREE, heads_of(THREE), np.ones((1, 1), bool))
MIXED = spec_of((1, 1), (Discrete((2, 3)), Box(2, -1.0, 1.0)))
CONFIG = maddpg.Config(num_units=8, num_layers=1, lr=1e-9, tau=0.0, gamma=0.5)
LAST_ILLEGAL = jnp.array([True, True, False])


def test_a_head_without_legal_choices_has_all_and_boxes_have_no_masks():
    legal = jnp.array([[True, False, False, False, False], [False] * 5])
    may = [[True, False, True, True, True], [False] * 5]
    np.testing.assert_array_equal(choosable(heads_of(MIXED), legal), may)
    outputs = masked(heads_of(MIXED), jnp.ones((2, 5)), legal)
    np.testing.assert_array_equal(outputs == 1, [[True, False, True, True, True], [True] * 5])
    np.testing.assert_array_equal(
        choosable(heads_of(THREE), jnp.array([[[False] * 3], [[False, True, False]]]))[:, 0].sum(-1), [3, 1]
    )


def actor_of(bias):
    """An actor, stacked for one agent, whose outputs are `bias` whatever it sees."""
    bias = jnp.asarray(bias, jnp.float32)
    return (Layer(jnp.zeros((1, 1, bias.size)), bias[None]),)


@pytest.mark.parametrize("form", ["soft", "one-hot"])
def test_maddpg_never_acts_illegally_though_it_wants_to(form):
    config = dataclasses.replace(CONFIG, world_action=form)
    algo, policy = maddpg.make(config, THREE, np.ones((1, 1), bool)), maddpg.Acting(actor_of([0.0, 1.0, 50.0]))
    obs, legal = jnp.zeros((512, 1, 1)), jnp.broadcast_to(LAST_ILLEGAL, (512, 1, 3))
    action, _, _ = jax.jit(algo.act)(policy, (), obs, prng.key(0), jnp.int32(0), legal)
    best, _ = jax.jit(algo.greedy)(policy, (), obs, legal)
    assert not np.any(action[..., 2])
    assert 0.5 < float(action[..., 1].mean()) < 0.95, "the legal ones are drawn as the policy has them: e to 1"
    np.testing.assert_array_equal(np.argmax(best, axis=-1), 1)
    assert np.argmax(jax.jit(algo.greedy)(policy, (), obs[:1])[0]) == 2, "without a mask it would do it"


def batch_of(lead, **fields):
    """One agent with three actions that took the first; all alive, nobody done, reward 7."""
    blank = {
        "obs": jnp.zeros((*lead, 1, 1)),
        "action": jnp.broadcast_to(jnp.eye(3)[0], (*lead, 1, 3)),
        "reward": jnp.full((*lead, 1), 7.0),
        "next_obs": jnp.zeros((*lead, 1, 1)),
        "terminated": jnp.zeros((*lead, 1), bool),
        "alive": jnp.ones((*lead, 1), bool),
        "done": jnp.zeros(lead, bool),
        "legal": jnp.broadcast_to(LAST_ILLEGAL, (*lead, 1, 3)),
        "next_legal": jnp.broadcast_to(LAST_ILLEGAL, (*lead, 1, 3)),
    }
    return Transition(**blank | fields)


def test_maddpg_has_no_illegal_action_in_a_target():
    """Q' is 100 for the third action and 20 for the second, which is chosen almost surely: y = 7 + ½·20, not 7 + ½·100."""
    algo = maddpg.make(dataclasses.replace(CONFIG, estimator="straight-through"), THREE, np.ones((1, 1), bool))
    critic = (Layer(jnp.array([[[0.0], [0.0], [20.0], [100.0]]]), jnp.zeros((1, 1))),)
    actor = actor_of([0.0, 90.0, 400.0])
    agents = jax.jit(algo.init)(prng.key(0))._replace(target_actor=actor, target_critic=critic)
    agents = agents._replace(actor=actor, critic=critic)
    agents = agents._replace(
        **{
            f"{name}_opt": jax.jit(jax.vmap(offpolicy.adam(maddpg.Config(), 1e-9).init))(getattr(agents, name))
            for name in ("actor", "critic")
        }
    )
    for masks, expected in ((True, 17.0), (False, 57.0)):
        batch = batch_of((4,)) if masks else batch_of((4,), legal=None, next_legal=None)
        _, metrics = jax.jit(algo.update)(agents, batch, prng.key(1))
        np.testing.assert_allclose(metrics["td_target"], expected, rtol=1e-6)


def test_maddpg_gives_an_illegal_action_no_gradient_and_counts_only_legal_outputs():
    """Outputs 1, 2 and 3, the last illegal: their mean square is (1 + 4) / 2. The critic likes the last and the first."""
    actor = jax.tree.map(lambda leaf: leaf[0], actor_of([1.0, 2.0, 3.0]))
    critic = (Layer(jnp.array([[0.0], [5.0], [0.0], [9.0]]), jnp.zeros(1)),)
    mine = offpolicy.View(
        inputs=jnp.zeros((4, 2)),
        obs=jnp.zeros((1, 2)),
        action=jnp.zeros((3, 2)),
        legal=jnp.broadcast_to(LAST_ILLEGAL[:, None], (3, 2)),
        alive=jnp.ones(2),
        weight=jnp.ones(2),
        heads=PROBLEM.heads,
        first=jnp.int32(1),
    )
    config = dataclasses.replace(CONFIG, logit_cost=10.0)
    drawn = Draw(jnp.zeros((3, 2)))
    loss_of = lambda actor: maddpg.actor_loss(config, PROBLEM, actor, critic, mine, drawn)  # noqa: E731
    loss, grads = jax.jit(jax.value_and_grad(loss_of))(actor)
    chance = 1 / (1 + np.e)
    np.testing.assert_allclose(loss, -5 * chance + 10 * 5 / 2, rtol=1e-5)
    slope = 5 * chance * (1 - chance)
    np.testing.assert_allclose(grads[0].bias, [-slope + 10 * 1, slope + 10 * 2, 0.0], rtol=1e-5)


def test_comas_floor_spreads_over_legal_actions_only():
    heads = heads_of(spec_of((1, 1), (Discrete((2, 3)), Discrete((4,)))))
    legal = jnp.array([[True, True, False, True, True], [False, True, True, True, False]])
    pi = coma.probabilities(heads, jnp.zeros((2, 5)), jnp.array([0.4, 0.6]), legal)
    np.testing.assert_allclose(pi, [[0.5, 0.5, 0, 0.5, 0.5], [0, 1 / 3, 1 / 3, 1 / 3, 0]], rtol=1e-6)
    sharp = coma.probabilities(heads_of(THREE), jnp.array([[0.0, 50.0, 90.0]]), jnp.array([0.2]), LAST_ILLEGAL[None])
    np.testing.assert_allclose(sharp, [[0.1, 0.9, 0.0]], rtol=1e-6)


def test_coma_never_acts_illegally_and_has_no_illegal_action_in_a_target():
    config = coma.Config(num_units=8, num_layers=1, epsilon_start=1.0, gamma=0.5, td_lambda=0.0)
    algo = coma.make(config, THREE)
    agents = jax.jit(algo.init)(prng.key(0))
    obs, legal = jnp.zeros((512, 1, 1)), jnp.broadcast_to(LAST_ILLEGAL, (512, 1, 3))
    action, _, _ = jax.jit(algo.act)(algo.policy(agents), (), obs, prng.key(1), jnp.int32(0), legal)
    np.testing.assert_allclose(action.mean(axis=(0, 1)), [0.5, 0.5, 0.0], atol=0.1)
    assert not np.any(action[..., 2])
    # Q' is 4, 8 and 1000; all policies are uniform, so that V' = (4 + 8) / 2 and y = 7 + ½·6.
    values = (*jax.tree.map(jnp.zeros_like, agents.critic[:-1]), Layer(jnp.zeros((1, 8, 3)), jnp.array([[4.0, 8.0, 1000.0]])))
    carry = jnp.zeros((1, 2, 0))
    batch = batch_of((3, 2), carry=carry)
    _, metrics = jax.jit(algo.update)(agents._replace(target_critic=values), batch, prng.key(2))
    np.testing.assert_allclose(metrics["td_target"], 10.0, rtol=1e-6)
    drawn = coma.next_actions(
        coma_problem(), batch._replace(done=jnp.ones((3, 2), bool)), jnp.full((3, 2, 1, 3), 1 / 3), prng.key(3)
    )
    assert not np.any(drawn[..., 2])
    assert np.all(drawn.sum(-1) == 1)


def coma_problem():
    return coma.Problem(THREE, heads_of(THREE), np.ones((1, 1), bool))


def test_coma_gives_an_illegal_action_no_gradient():
    batch = batch_of((3, 2))
    q = jnp.broadcast_to(jnp.array([1.0, 2.0, 30.0]), (3, 2, 1, 3))
    rates = coma.Rates(jnp.full(3, 0.2), jnp.float32(0.5))
    logits = jnp.broadcast_to(jnp.array([0.3, 0.1, 0.7]), (3, 2, 1, 3))
    loss_of = lambda logits: coma.actor_loss(coma.Config(), coma_problem(), logits, batch, q, rates)[0]  # noqa: E731
    grads = jax.jit(jax.grad(loss_of))(logits)
    assert not np.any(grads[..., 2])
    assert np.all(np.abs(grads[..., :2]) > 1e-4)
