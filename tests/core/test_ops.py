"""The shared arithmetic against numbers worked by hand, with and without jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.core.ops import clip_by_norm, discounted_returns, masked_mean, polyak, td_target, tree_select

either = pytest.mark.parametrize("compiled", [False, True], ids=["plain", "jit"])


def maybe_jit(function, compiled):
    return jax.jit(function) if compiled else function


@either
def test_td_target(compiled):
    target = maybe_jit(lambda *args: td_target(*args, 0.5), compiled)
    y = target(jnp.array([1.0, 1.0, -2.0]), jnp.array([False, True, False]), jnp.array([4.0, 4.0, 0.0]))
    np.testing.assert_array_equal(y, [3.0, 1.0, -2.0])


def test_td_target_ignores_a_value_that_is_no_number_after_the_end():
    y = td_target(jnp.array([1.0]), jnp.array([True]), jnp.array([jnp.inf]), 0.9)
    np.testing.assert_array_equal(y, [1.0])


@either
def test_discounted_returns(compiled):
    """Backwards with γ = ½: 8; 4 + 4; 2, where the game ended; 1 + 1. The reward of the last step of a game counts."""
    returns = maybe_jit(lambda *args: discounted_returns(*args, 0.5), compiled)
    done = jnp.array([False, True, False, False])
    np.testing.assert_array_equal(returns(jnp.array([1.0, 2.0, 4.0, 8.0]), done), [2.0, 2.0, 8.0, 8.0])


@either
def test_polyak(compiled):
    move = maybe_jit(lambda slow, fast: polyak(slow, fast, 0.25), compiled)
    moved = move({"w": jnp.array([0.0, 4.0]), "b": jnp.array(1.0)}, {"w": jnp.array([8.0, 4.0]), "b": jnp.array(-3.0)})
    np.testing.assert_array_equal(moved["w"], [2.0, 4.0])
    np.testing.assert_array_equal(moved["b"], 0.0)


@either
def test_masked_mean(compiled):
    mean = maybe_jit(masked_mean, compiled)
    values = jnp.array([[1.0, 2.0], [jnp.nan, 6.0]])
    assert mean(values, jnp.array([[True, True], [False, True]])) == 3.0
    assert mean(values, jnp.zeros((2, 2), bool)) == 0.0


GRADS = {"a": jnp.array([3.0, 4.0]), "b": jnp.array([[0.0, 12.0]]), "c": jnp.array([0.3])}
"""Norms 5, 12 and 0.3; of the first two together 13."""


@either
def test_each_variable_is_clipped_by_its_own_norm(compiled):
    clipped = maybe_jit(lambda tree: clip_by_norm(tree, 0.5, per_variable=True), compiled)(GRADS)
    np.testing.assert_allclose(clipped["a"], [0.3, 0.4], rtol=1e-6)
    np.testing.assert_allclose(clipped["b"], [[0.0, 0.5]], rtol=1e-6)
    np.testing.assert_array_equal(clipped["c"], GRADS["c"])


@either
def test_all_variables_are_clipped_by_their_common_norm(compiled):
    grads = {"a": GRADS["a"], "b": GRADS["b"]}
    clipped = maybe_jit(lambda tree: clip_by_norm(tree, 6.5, per_variable=False), compiled)(grads)
    np.testing.assert_allclose(clipped["a"], [1.5, 2.0], rtol=1e-6)
    np.testing.assert_allclose(clipped["b"], [[0.0, 6.0]], rtol=1e-6)
    within = clip_by_norm(grads, 14.0, per_variable=False)
    jax.tree.map(np.testing.assert_array_equal, within, grads)


@pytest.mark.parametrize("per_variable", [False, True])
def test_no_limit_and_no_gradient(per_variable):
    jax.tree.map(np.testing.assert_array_equal, clip_by_norm(GRADS, 0.0, per_variable), GRADS)
    nothing = jax.tree.map(jnp.zeros_like, GRADS)
    jax.tree.map(np.testing.assert_array_equal, clip_by_norm(nothing, 0.5, per_variable), nothing)


@either
def test_tree_select_takes_whole_rows(compiled):
    mask = jnp.array([True, False])
    new = {"x": jnp.ones((2, 3)), "n": jnp.array([1, 1])}
    old = {"x": jnp.zeros((2, 3)), "n": jnp.array([7, 8])}
    chosen = maybe_jit(tree_select, compiled)(mask, new, old)
    np.testing.assert_array_equal(chosen["x"], [[1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(chosen["n"], [1, 8])
