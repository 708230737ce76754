"""Networks by hand, and padded networks as the small ones they contain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.core import prng
from counterpoint.core.nets import Layer, init_mlp, mlp, mlp_from_first

NET = (
    Layer(weight=jnp.array([[1.0, -1.0], [2.0, 0.5]]), bias=jnp.array([0.5, 0.0])),
    Layer(weight=jnp.array([[2.0], [10.0]]), bias=jnp.array([-1.0])),
)


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "jit"])
def test_forward_by_hand(compiled):
    """Hidden sums are [3.5, −0.5] and [−2.5, 2.5], then [[0.5, 0]]: ReLU keeps 3.5, 2.5 and 0.5."""
    forward = jax.jit(mlp) if compiled else mlp
    x = jnp.array([[1.0, 1.0], [-3.0, 0.0], [0.0, 0.0]])
    expected = np.array([[6.0], [29.0], [0.0]])
    np.testing.assert_allclose(forward(NET, x), expected, rtol=1e-6)
    np.testing.assert_allclose(forward(NET, x[0]), expected[0], rtol=1e-6)
    np.testing.assert_allclose(mlp_from_first(NET, x @ NET[0].weight), expected, rtol=1e-6)


def test_no_activation_after_the_last_layer():
    np.testing.assert_array_equal(mlp(NET[:1], jnp.array([0.0, -1.0])), [-1.5, -0.5])


fresh = jax.jit(init_mlp, static_argnames=("hidden", "init"))
INPUTS, OUTPUTS = jnp.array([1.0, 1.0, 0.0, 1.0, 0.0]), jnp.array([1.0, 1.0, 0.0])


def test_padding_starts_at_zero_and_does_not_count_as_fan_in():
    """Ten real inputs of 500 and twenty real outputs of 500, about a hidden layer of 40."""
    inputs, outputs = np.arange(500) % 50 == 0, np.arange(500) < 20
    first, last = fresh(prng.key(0), jnp.asarray(inputs, jnp.float32), (40,), jnp.asarray(outputs, jnp.float32))
    assert first.weight.shape == (500, 40)
    assert last.weight.shape == (40, 500)
    assert not np.any(first.weight[~inputs])
    assert not np.any(last.weight[:, ~outputs])
    assert not np.any(first.bias)
    assert not np.any(last.bias)
    for weight, fans in ((first.weight[inputs], 10 + 40), (last.weight[:, outputs], 40 + 20)):
        limit = np.sqrt(6 / fans)
        assert np.max(np.abs(weight)) <= limit
        assert np.max(np.abs(weight)) > 0.98 * limit
        assert abs(np.mean(weight)) < 0.1 * limit
        np.testing.assert_allclose(np.var(weight), limit**2 / 3, rtol=0.1)


@pytest.mark.parametrize("init", ["he", "glorot"])
def test_only_layers_before_a_relu_start_by_their_inputs_alone(init):
    """Ten real inputs, hidden layers of 40 and 30, twenty real outputs."""
    inputs, outputs = np.arange(50) % 5 == 0, np.arange(50) < 20
    masks = (jnp.asarray(inputs, jnp.float32), (40, 30), jnp.asarray(outputs, jnp.float32))
    first, second, last = fresh(prng.key(5), *masks, init=init)
    fans = {"he": (10, 40, 30 + 20), "glorot": (10 + 40, 40 + 30, 30 + 20)}[init]
    for weight, fan in zip((first.weight[inputs], second.weight, last.weight[:, outputs]), fans, strict=True):
        limit = np.sqrt(6 / fan)
        assert 0.98 * limit < np.max(np.abs(weight)) <= limit
        np.testing.assert_allclose(np.var(weight), limit**2 / 3, rtol=0.2)


def test_a_padded_network_is_the_small_one_inside():
    first, last = fresh(prng.key(1), INPUTS, (8,), OUTPUTS)
    real = np.array([0, 1, 3])
    small = (Layer(first.weight[real], first.bias), Layer(last.weight[:, :2], last.bias[:2]))
    x = jax.random.normal(prng.key(2), (6, 5))
    wide = mlp((first, last), x)
    np.testing.assert_allclose(wide[:, :2], mlp(small, x[:, real]), atol=1e-6)
    np.testing.assert_array_equal(wide[:, 2], 0.0)


def test_layers_and_agents_are_drawn_independently():
    deep = fresh(prng.key(3), jnp.ones(16), (16,), jnp.ones(16))
    assert not np.allclose(deep[0].weight, deep[1].weight)
    other = fresh(prng.key(4), jnp.ones(16), (16,), jnp.ones(16))
    assert not np.allclose(deep[0].weight, other[0].weight)
