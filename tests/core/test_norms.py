"""Normalised networks: numbers by hand, averages outside the gradient, padding and devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.core import prng
from counterpoint.core.nets import COLUMNS, Layer, Norm, init_mlp, mlp, mlp_from_first, move_averages

EPS = 1e-5
IDENTITY = Layer(weight=jnp.eye(2), bias=jnp.zeros(2))
ALONE = lambda tree: tree  # noqa: E731 — one device


def one_layer(norm):
    """Inputs pass through the normalisation, a bias of [0.5, −1] and ReLU."""
    return IDENTITY._replace(bias=jnp.array([0.5, -1.0]), norm=norm), IDENTITY


def test_layer_norm_by_hand():
    """[1, 3] has mean 2 and variance 1, [4, 4] no variance: ±1 and 0, times scale, plus bias, then ReLU."""
    net = one_layer(Norm(scale=jnp.array([2.0, 3.0])))
    x = jnp.array([[1.0, 3.0], [4.0, 4.0]])
    one = 1 / np.sqrt(1 + EPS)
    expected = [[0.0, 3.0 * one - 1.0], [0.5, 0.0]]
    np.testing.assert_allclose(mlp(net, x), expected, rtol=1e-5)
    np.testing.assert_allclose(mlp(net, x, learning=True), expected, rtol=1e-5)


BATCH = jnp.array([[1.0, 10.0], [3.0, 30.0], [5.0, 50.0]])
"""Means 3 and 30, variances 8/3 and 800/3."""


def test_batch_norm_by_hand():
    net = one_layer(Norm(scale=jnp.array([2.0, 4.0]), mean=jnp.array([1.0, 0.0]), variance=jnp.array([4.0, 100.0])))
    z = np.array([-2.0, 0.0, 2.0]) / np.sqrt(8 / 3)
    by_batch = np.maximum(np.stack([2 * z + 0.5, 4 * z - 1.0], axis=1), 0.0)
    by_averages = np.maximum(np.stack([[0.5, 2.5, 4.5], [3.0, 11.0, 19.0]], axis=1), 0.0)
    np.testing.assert_allclose(mlp(net, BATCH, learning=True), by_batch, atol=1e-4)
    np.testing.assert_allclose(mlp(net, BATCH), by_averages, rtol=1e-4)
    np.testing.assert_allclose(mlp(net, BATCH[1]), by_averages[1], rtol=1e-4)


def test_averages_move_a_tenth_of_the_way():
    net = one_layer(Norm(scale=jnp.ones(2), mean=jnp.array([1.0, 0.0]), variance=jnp.array([4.0, 100.0])))
    moved = move_averages(net, BATCH.T, ALONE)
    np.testing.assert_allclose(moved[0].norm.mean, [1.2, 3.0], rtol=1e-6)
    np.testing.assert_allclose(moved[0].norm.variance, [0.9 * 4 + 0.8 / 3, 90 + 80 / 3], rtol=1e-5)
    back = moved[0]._replace(norm=moved[0].norm._replace(mean=net[0].norm.mean, variance=net[0].norm.variance))
    jax.tree.map(np.testing.assert_array_equal, (back, moved[1]), net)


def test_averages_of_a_deeper_layer_are_those_of_what_reaches_it():
    net = init_mlp(prng.key(0), jnp.ones(3), (5, 4), jnp.ones(2), "batch")
    x = jax.random.normal(prng.key(1), (64, 3))
    net = jax.lax.fori_loop(0, 200, lambda _, net: move_averages(net, x.T, ALONE), net)
    # Once the averages are those of the batch, it makes no difference which are used.
    np.testing.assert_allclose(mlp(net, x), mlp(net, x, learning=True), atol=1e-4)
    assert not np.allclose(mlp(net, x + 1.0), mlp(net, x + 1.0, learning=True), atol=1e-2)


@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_only_batch_norm_keeps_averages_and_plain_networks_are_as_before(norm):
    net = init_mlp(prng.key(0), jnp.ones(3), (5, 4), jnp.ones(2), norm)
    plain = init_mlp(prng.key(0), jnp.ones(3), (5, 4), jnp.ones(2))
    extra = {"none": 0, "layer": 1, "batch": 3}[norm]
    assert len(jax.tree.leaves(net)) == 6 + 2 * extra
    assert net[-1].norm is None
    for ours, theirs in zip(net, plain, strict=True):
        np.testing.assert_array_equal(ours.weight, theirs.weight)
    if norm != "batch":
        assert move_averages(net, jnp.ones((3, 4)), ALONE) is net


@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_columns_are_rows_turned(norm, learning):
    net = init_mlp(prng.key(0), jnp.ones(3), (5, 4), jnp.ones(2), norm)
    x = 2.0 + jax.random.normal(prng.key(1), (16, 3))
    turned = mlp(net, x.T, learning, COLUMNS)
    assert turned.shape == (2, 16)
    np.testing.assert_allclose(turned.T, mlp(net, x, learning), atol=1e-5)


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_a_shared_first_product_gives_the_same_output_and_gradient(norm):
    net = init_mlp(prng.key(0), jnp.ones(4), (5, 5), jnp.ones(1), norm)
    x, y = jax.random.normal(prng.key(1), (2, 32, 4))
    amended = x.at[:, 2:].set(y[:, 2:])

    def whole(tail):
        return jnp.sum(mlp(net, jnp.concatenate([x[:, :2], tail], axis=1), learning=True) ** 2)

    def by_parts(tail):
        product = x @ net[0].weight + (tail - x[:, 2:]) @ net[0].weight[2:]
        return jnp.sum(mlp_from_first(net, product, learning=True) ** 2)

    ours, theirs = (jax.value_and_grad(loss)(amended[:, 2:]) for loss in (by_parts, whole))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), ours, theirs)


def test_no_gradient_reaches_the_averages():
    net = init_mlp(prng.key(0), jnp.ones(3), (5,), jnp.ones(2), "batch")
    x = jax.random.normal(prng.key(1), (16, 3))
    grads = jax.grad(lambda net: jnp.sum(mlp(net, x, learning=True) ** 2))(net)
    np.testing.assert_array_equal(grads[0].norm.mean, 0.0)
    np.testing.assert_array_equal(grads[0].norm.variance, 0.0)
    assert np.all(np.abs(grads[0].norm.scale) > 0)


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_padding_is_invisible(norm):
    inputs, outputs = jnp.array([1.0, 0.0, 1.0]), jnp.array([1.0, 0.0])
    wide = init_mlp(prng.key(0), inputs, (6,), outputs, norm)
    small = (wide[0]._replace(weight=wide[0].weight[::2]), Layer(wide[1].weight[:, :1], wide[1].bias[:1]))
    x = jax.random.normal(prng.key(1), (16, 3)) * inputs[None, :]

    def loss(net, x):
        return jnp.sum((mlp(net, x, learning=True)[:, 0] - 1.0) ** 2)

    ours, theirs = jax.grad(loss)(wide, x), jax.grad(loss)(small, x[:, ::2])
    np.testing.assert_array_equal(ours[0].weight[1], 0.0)
    np.testing.assert_array_equal(ours[1].weight[:, 1], 0.0)
    np.testing.assert_allclose(ours[0].weight[::2], theirs[0].weight, atol=1e-4)
    np.testing.assert_allclose(ours[0].norm.scale, theirs[0].norm.scale, atol=1e-4)


def test_agents_side_by_side_are_normalised_each_by_itself():
    nets = jax.vmap(lambda key: init_mlp(key, jnp.ones(3), (5,), jnp.ones(2), "batch"))(jax.random.split(prng.key(0), 2))
    x = jax.random.normal(prng.key(1), (16, 2, 3)) * jnp.array([1.0, 50.0]).reshape(1, 2, 1)
    together = jax.vmap(lambda net, x: mlp(net, x, learning=True), in_axes=(0, 1), out_axes=1)(nets, x)
    for i in range(2):
        alone = mlp(jax.tree.map(lambda leaf, i=i: leaf[i], nets), x[:, i], learning=True)
        np.testing.assert_allclose(together[:, i], alone, atol=1e-5)


def test_devices_agree_on_the_averages():
    net = one_layer(Norm(scale=jnp.ones(2), mean=jnp.zeros(2), variance=jnp.ones(2)))
    shares = jnp.stack([BATCH.T, -3.0 * BATCH.T])
    mean = lambda tree: jax.lax.pmean(tree, "devices")  # noqa: E731
    moved = jax.vmap(lambda x: move_averages(net, x, mean), axis_name="devices")(shares)
    np.testing.assert_allclose(moved[0].norm.mean, np.tile(0.1 * np.array([-3.0, -30.0]), (2, 1)), rtol=1e-5)
    np.testing.assert_allclose(moved[0].norm.variance[:, 0], 0.9 + 0.1 * (8 / 3 + 24.0) / 2, rtol=1e-5)
