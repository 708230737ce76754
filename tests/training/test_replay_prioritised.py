"""Prioritised replay against a plain list of priorities: what is kept, how often it is drawn, how much it weighs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.core import prng
from counterpoint.core.types import Transition
from counterpoint.training.replay import _draw, example, prioritised, uniform
from probes import COIN, spec_of

SPEC = spec_of((1,), (COIN,))
CAPACITY, PER_ADD, BATCH, EXPONENT, BETA = 12, 4, 6, 0.7, 0.5


@functools.cache
def memory(batch_size=BATCH, exponent=EXPONENT, num_batches=1):
    return compiled(prioritised(example(SPEC), CAPACITY, batch_size, PER_ADD, num_batches, exponent, BETA))


def compiled(made):
    return made._replace(add=jax.jit(made.add), sample=jax.jit(made.sample), feedback=jax.jit(made.feedback))


def steps(first):
    """PER_ADD transitions whose reward is their serial number."""
    number = first + jnp.arange(PER_ADD, dtype=jnp.float32).reshape(PER_ADD, 1, 1)
    flag = jnp.zeros(number.shape, bool)
    return Transition(
        obs=number[..., None],
        action=jnp.zeros((PER_ADD, 1, 1, 2)),
        reward=number,
        next_obs=number[..., None],
        terminated=flag,
        alive=~flag,
        done=flag[..., 0],
    )


def leaves(state):
    return np.asarray(state.tree)[state.tree.size // 2 :]


def assert_sums(tree):
    """Every node is the sum of its two children."""
    tree = np.asarray(tree)
    np.testing.assert_allclose(tree[1 : tree.size // 2], tree[2:].reshape(-1, 2).sum(axis=1), rtol=1e-6)


ERRORS = st.lists(st.floats(0, 100, width=32), min_size=BATCH, max_size=BATCH)


@given(st.lists(st.none() | st.tuples(st.integers(0, 2**30), ERRORS), max_size=12))
def test_the_ring_is_a_list_with_priorities(events):
    """None stands for new transitions, a tuple for a sample (its seed) and the errors it came back with."""
    made = memory()
    state = made.add(made.init(), steps(0))
    rows, priorities, largest = [float(i) for i in range(PER_ADD)], [1.0] * PER_ADD, 1.0
    for event in events:
        if event is None:
            state = made.add(state, steps(len(rows)))
            rows += [float(len(rows) + i) for i in range(PER_ADD)]
            priorities += [largest] * PER_ADD
            continue
        seed, errors = event
        batch = made.sample(state, prng.key(seed))
        new = (np.array(errors) + 1e-6) ** EXPONENT
        kept = max(0, len(rows) - CAPACITY)
        serial = np.asarray(batch.reward)[:, 0].astype(int)
        assert (serial >= kept).all()
        np.testing.assert_array_equal(np.asarray(batch.index), serial % CAPACITY)
        for number in set(serial):
            priorities[number] = max(new[serial == number])
        largest = max(largest, *new)
        state = made.feedback(state, batch.index, jnp.asarray(errors, jnp.float32))
    expected = np.zeros(16)
    for number in range(max(0, len(rows) - CAPACITY), len(rows)):
        expected[number % CAPACITY] = priorities[number]
    np.testing.assert_allclose(leaves(state), expected, rtol=1e-5)
    np.testing.assert_allclose(state.largest, [largest], rtol=1e-5)
    assert_sums(state.tree)


def with_priorities(made, errors):
    """A ring with as many transitions as errors."""
    state = made.init()
    for first in range(0, len(errors), PER_ADD):
        state = made.add(state, steps(first))
    return made.feedback(state, jnp.arange(len(errors)), jnp.asarray(errors, jnp.float32))


LOPSIDED = [0.0, 0.1, 2.0, 5.0, 0.3, 0.3, 7.0, 40.0]
MANY = 40_000


@pytest.mark.parametrize("errors", [LOPSIDED, [*LOPSIDED, 1.0, 1.0, 3.0, 0.01]], ids=["two thirds full", "full"])
def test_chances_are_proportional_and_weights_undo_them(errors):
    made = memory(MANY)
    state = with_priorities(made, errors)
    batch = made.sample(state, prng.key(5))
    priority = (np.array(errors) + 1e-6) ** EXPONENT
    chance = priority / priority.sum()
    counts = np.bincount(np.asarray(batch.index), minlength=len(errors))
    assert counts.size == len(errors)  # nothing is drawn that was never stored
    expected = MANY * chance
    often = expected > 5
    statistic = np.sum((counts - expected)[often] ** 2 / expected[often])
    assert statistic < 35  # beyond the 0.1 % point of 11 degrees of freedom
    assert counts[~often].sum() < 20
    weight = (len(errors) * chance) ** -BETA
    np.testing.assert_allclose(batch.weight, weight[np.asarray(batch.index)], rtol=1e-4)


def test_exponent_zero_is_uniform():
    made = memory(MANY, exponent=0.0)
    batch = made.sample(with_priorities(made, LOPSIDED), prng.key(6))
    counts, expected = np.bincount(np.asarray(batch.index)), MANY / len(LOPSIDED)
    assert np.sum((counts - expected) ** 2 / expected) < 24.3  # 0.1 % of 7 degrees of freedom
    np.testing.assert_allclose(batch.weight, 1.0, rtol=1e-5)


def test_several_minibatches_are_drawn_and_fed_back_at_once():
    made = memory(num_batches=3)
    state = with_priorities(made, LOPSIDED)
    batch = made.sample(state, prng.key(7))
    assert batch.obs.shape == (3, BATCH, 1, 1)
    assert batch.index.shape == batch.weight.shape == (3, BATCH)
    assert len({tuple(row) for row in np.asarray(batch.index)}) == 3
    state = made.feedback(state, batch.index, jnp.full((3, BATCH), 9.0))
    np.testing.assert_allclose(leaves(state)[np.unique(batch.index)], 9.0**EXPONENT, rtol=1e-5)


def test_a_million_equal_leaves_are_told_apart():
    """The lowest bits of the index must be as random as the highest; the hole left by a zero must never be hit."""
    depth = 20
    level = np.ones(2**depth, np.float32)
    level[::4] = 0.0
    levels = [level]
    while levels[-1].size > 1:
        levels.append(levels[-1].reshape(-1, 2).sum(axis=1))
    tree = jnp.asarray(np.concatenate([[0.0], *levels[::-1]]), jnp.float32)
    index = np.asarray(jax.jit(lambda key: _draw(tree, depth, (60_000,), key))(prng.key(8)))
    assert (index % 4 != 0).all()
    for classes in (index % 64, index >> (depth - 6)):
        counts = np.bincount(classes, minlength=64)
        counts = counts[counts > 0]
        assert len(counts) in (48, 64)
        expected = 60_000 / len(counts)
        assert np.sum((counts - expected) ** 2 / expected) < 104  # 0.1 % of 63 degrees of freedom


def test_a_ring_that_may_grow_draws_as_the_larger_one_does():
    """A run made longer goes on with a longer ring: same priorities, same draws."""
    small, large = (compiled(prioritised(example(SPEC), capacity, BATCH, PER_ADD, room=40)) for capacity in (CAPACITY, 40))
    states = [with_priorities(made, LOPSIDED) for made in (small, large)]
    np.testing.assert_array_equal(states[0].tree, states[1].tree)
    one, other = (made.sample(state, prng.key(1)) for made, state in zip((small, large), states, strict=True))
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_uniform_ring_takes_no_feedback():
    plain = uniform(example(SPEC), CAPACITY, BATCH, PER_ADD)
    state = plain.add(plain.init(), steps(0))
    batch = plain.sample(state, prng.key(0))
    assert batch.weight is None
    assert batch.index is None
    assert plain.feedback(state, jnp.arange(2), jnp.ones(2)) is state
