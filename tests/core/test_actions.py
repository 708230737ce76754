"""Action vectors of mixed teams against numbers worked by hand: one head, move and word, padded, continuous."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from counterpoint.core import prng
from counterpoint.core.actions import (
    Heads,
    gumbel,
    heads_of,
    one_hot_best,
    relaxed,
    relaxed_columns,
    sampled,
    softmax,
    straight_through,
    to_world,
)
from counterpoint.core.spaces import Box, Discrete
from probes import spec_of

MIXED = spec_of((1, 1, 1, 1), (Discrete((3,)), Discrete((2, 3)), Box(2, -2.0, 6.0), Discrete((2,))))
PLAIN = spec_of((1, 1), (Discrete((3,)), Discrete((3,))))
either = pytest.mark.parametrize("compiled", [False, True], ids=["plain", "jit"])

# Softmax of logarithms is the numbers over their sum; what is written in padding must not matter.
LOGITS = np.log(
    np.array(
        [
            [1.0, 2.0, 5.0, 99.0, 99.0],
            [3.0, 1.0, 1.0, 1.0, 2.0],
            [1.0, 1.0, 99.0, 99.0, 99.0],
            [1.0, 9.0, 99.0, 99.0, 99.0],
        ]
    )
).astype(np.float32)
PROBABILITIES = np.array(
    [
        [0.125, 0.25, 0.625, 0.0, 0.0],
        [0.75, 0.25, 0.25, 0.25, 0.5],
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [0.1, 0.9, 0.0, 0.0, 0.0],
    ]
)
BEST = np.array([[0, 0, 1, 0, 0], [1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]])


def maybe_jit(function, compiled):
    return jax.jit(function) if compiled else function


@either
def test_softmax_is_within_each_head(compiled):
    heads = heads_of(MIXED)
    stacked = jnp.stack([LOGITS, LOGITS + 100.0])
    result = maybe_jit(lambda logits: softmax(heads, logits), compiled)(stacked)
    np.testing.assert_allclose(result[0], PROBABILITIES, atol=1e-6)
    np.testing.assert_allclose(result[1], PROBABILITIES, atol=1e-5)  # a common shift changes nothing
    assert not np.any(result[:, ~MIXED.act_mask])


@either
def test_one_hot_best_is_within_each_head_and_takes_the_first_of_equals(compiled):
    heads = heads_of(MIXED)
    best = maybe_jit(lambda scores: one_hot_best(heads, scores), compiled)
    np.testing.assert_array_equal(best(jnp.asarray(LOGITS)), BEST)
    np.testing.assert_array_equal(best(jnp.zeros_like(LOGITS)), [[1, 0, 0, 0, 0], [1, 0, 1, 0, 0], [0] * 5, [1, 0, 0, 0, 0]])


def test_equal_teams_need_no_tables_and_give_the_same():
    heads = heads_of(PLAIN)
    assert heads == (None, None, None)
    logits = jnp.asarray(LOGITS[:2, :3])
    np.testing.assert_allclose(softmax(heads, logits), [[0.125, 0.25, 0.625], [0.6, 0.2, 0.2]], atol=1e-6)
    np.testing.assert_array_equal(one_hot_best(heads, logits), [[0, 0, 1], [1, 0, 0]])
    np.testing.assert_array_equal(one_hot_best(heads, jnp.zeros((2, 3))), [[1, 0, 0], [1, 0, 0]])


def test_one_agents_row_of_the_tables_does_what_the_team_does():
    heads = heads_of(MIXED)
    for i in range(MIXED.num_agents):
        row = jax.tree.map(lambda table, i=i: table[i], heads)
        np.testing.assert_allclose(softmax(row, jnp.asarray(LOGITS[i])), PROBABILITIES[i], atol=1e-6)
        batch = jnp.stack([LOGITS[i]] * 2)
        np.testing.assert_array_equal(one_hot_best(row, batch), np.stack([BEST[i]] * 2))


@either
def test_relaxed_adds_noise_then_divides_by_the_temperature(compiled):
    """(2·log p − noise) + noise over 2 is log p: the probabilities above; continuous entries are tanh of the bare outputs."""
    heads = heads_of(MIXED)
    noise = np.linspace(-1.0, 3.0, LOGITS.size, dtype=np.float32).reshape(LOGITS.shape)
    outputs, noise = jnp.asarray(2 * LOGITS - noise), jnp.asarray(noise)
    result = maybe_jit(lambda outputs: relaxed(heads, outputs, noise, 2.0), compiled)(outputs)
    expected = PROBABILITIES.copy()
    expected[2, :2] = np.tanh(-noise[2, :2])
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_straight_through_is_one_hot_forward_and_soft_backward():
    heads = heads_of(MIXED)
    noise, weights = gumbel(prng.key(0), LOGITS.shape), jax.random.normal(prng.key(1), LOGITS.shape)
    value, grads = {}, {}
    for action in (relaxed, straight_through):
        value[action] = action(heads, jnp.asarray(LOGITS), noise, 1.0)
        grads[action] = jax.grad(lambda x, action=action: jnp.sum(weights * action(heads, x, noise, 1.0)))(jnp.asarray(LOGITS))
    np.testing.assert_allclose(value[straight_through], sampled(heads, jnp.asarray(LOGITS), noise), atol=1e-6)
    assert not np.allclose(value[straight_through], value[relaxed], atol=0.01)
    np.testing.assert_allclose(grads[straight_through], grads[relaxed], atol=1e-6)
    assert not np.any(np.asarray(grads[straight_through])[~MIXED.act_mask])


def test_one_agents_columns_are_its_rows_turned():
    tables, single = heads_of(MIXED), Heads(None, None, None)
    for heads in (*(jax.tree.map(lambda table, i=i: table[i], tables) for i in range(MIXED.num_agents)), single):
        outputs, noise = jax.random.normal(prng.key(0), (2, 6, MIXED.act_size))
        turned = relaxed_columns(heads, outputs.T, noise.T, 0.7)
        np.testing.assert_allclose(turned.T, relaxed(heads, outputs, noise, 0.7), atol=1e-6)


@either
def test_sampled_is_the_best_of_outputs_plus_noise(compiled):
    heads = heads_of(MIXED)
    draw = maybe_jit(lambda outputs, noise: sampled(heads, outputs, noise), compiled)
    noise = jnp.zeros_like(LOGITS).at[0, 1].set(10.0).at[1, 3].set(10.0).at[2].set(10.0)
    result = draw(jnp.asarray(LOGITS), noise)
    expected = np.array([[0, 1, 0, 0, 0], [1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]])
    np.testing.assert_allclose(result, expected, atol=1e-6)  # log 1 = 0, so tanh is 0 for the continuous agent


def test_gumbel_noise_draws_from_the_softmax():
    heads, count = heads_of(MIXED), 20_000
    outputs = jnp.broadcast_to(LOGITS, (count, *LOGITS.shape))
    often = np.mean(sampled(heads, outputs, gumbel(prng.key(2), outputs.shape)), axis=0)
    np.testing.assert_allclose(often, PROBABILITIES, atol=0.02)  # five standard errors


@either
def test_to_world_stretches_continuous_agents_only(compiled):
    action = jnp.asarray(np.where(MIXED.act_mask, 0.5, 0.0), jnp.float32).at[2, 1].set(-1.0)
    result = maybe_jit(lambda action: to_world(MIXED, action), compiled)(jnp.stack([action] * 3))
    expected = np.asarray(action).copy()
    expected[2, :2] = [4.0, -2.0]  # 2 + 4a
    np.testing.assert_allclose(result, np.stack([expected] * 3), rtol=1e-6)
    np.testing.assert_array_equal(to_world(PLAIN, jnp.ones((2, 3))), 1.0)


def test_gradients_of_relaxed_actions():
    heads, noise = heads_of(MIXED), gumbel(prng.key(3), LOGITS.shape)
    weights = jax.random.normal(prng.key(4), LOGITS.shape)
    function = lambda x: jnp.sum(weights * relaxed(heads, x, noise, 0.7))  # noqa: E731
    check_grads(jax.jit(function), (jnp.asarray(LOGITS),), order=1, modes=["rev"], atol=2e-2, rtol=2e-2, eps=1e-2)
