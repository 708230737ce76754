"""Gradient estimators of discrete actions: against their definitions by hand, and on a problem with a known gradient."""

import dataclasses
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint import config as configs
from counterpoint.algos import maddpg
from counterpoint.core import prng
from counterpoint.core.actions import (
    EstimatorSettings,
    Heads,
    draw,
    estimated,
    gapped,
    gumbel,
    gumbel_rao,
    heads_of,
    sampled,
    straight_through,
    target_action,
)
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Transition
from probes import spec_of

ONE = Heads(None, None, None)
ESTIMATORS = ("soft", "straight-through", "st-temperature", "annealed", "gumbel-rao", "gapped")
MIXED = spec_of((1, 1, 1), (Discrete((3,)), Discrete((2, 2)), Box(2, -2.0, 6.0)))


def jacobian_of_softmax(scores):
    p = np.exp(scores) / np.exp(scores).sum()
    return np.diag(p) - np.outer(p, p)


def test_gumbel_rao_by_hand():
    """Outputs 0, 0, entry 0 drawn, E = 1: the perturbed outputs are log 2 and −log(1 + ½), whose softmax is ¾ and ¼."""
    noise, more = jnp.array([1.0, 0.0]), jnp.zeros((1, 2))
    first = jax.jit(jax.value_and_grad(lambda x, more: gumbel_rao(ONE, x, noise, more, 1.0)[0]))
    action, jacobian = first(jnp.zeros(2), more)
    assert action == 1.0
    np.testing.assert_allclose(jacobian, [0.1875, -0.1875], atol=1e-6)
    # Two samples, the second with E = 1 and e⁻¹ … e: the mean of both gradients.
    second = jnp.array([[0.0, 0.0], [1.0, -1.0]])
    top, other = np.log(2) + 1, -np.log(np.e + np.exp(-1) / 2)
    p = 1 / (1 + np.exp(other - top))
    _, gradient = first(jnp.zeros(2), second)
    np.testing.assert_allclose(gradient[0], (0.1875 + p * (1 - p)) / 2, atol=1e-6)


def test_the_conditional_noise_of_gumbel_rao_draws_the_same_action_and_is_gumbel():
    """At a low temperature the softmax is one-hot at the drawn action, in every sample; drawn from the prior it is unbiased."""
    outputs = np.broadcast_to(np.array([1.0, -0.5, 0.3, -2.0], np.float32), (1000, 4))

    @jax.jit
    def both(outputs):
        noise, more = gumbel(prng.key(0), (1000, 4)), gumbel(prng.key(1), (3, 1000, 4))
        return jax.vjp(lambda x: gumbel_rao(ONE, x, noise, more, 1e-3), outputs)[0], sampled(ONE, outputs, noise)

    surrogate, drawn = both(outputs)
    np.testing.assert_allclose(surrogate, drawn, atol=1e-5)


def test_gapped_by_hand():
    """Outputs 2, 1, 0 with the second drawn and a gap of 1 become 1, 2, 0; the gradient is that of their softmax."""
    outputs, noise = jnp.array([2.0, 1.0, 0.0]), jnp.array([0.0, 5.0, 0.0])

    @partial(jax.jit, static_argnames="gap")
    def both(noise, temperature, gap):
        function = lambda x: gapped(ONE, x, noise, temperature, gap)  # noqa: E731
        return function(outputs), jax.jacobian(function)(outputs)

    action, jacobian = both(noise, 1.0, gap=1.0)
    np.testing.assert_allclose(action, [0.0, 1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(jacobian, jacobian_of_softmax(np.array([1.0, 2.0, 0.0])), atol=1e-6)
    # The largest drawn, and far ahead of one other: only the nearer one is lowered, here to 2 − 1.5.
    _, wide = both(jnp.zeros(3), 0.5, gap=1.5)
    np.testing.assert_allclose(wide, jacobian_of_softmax(np.array([4.0, 1.0, 0.0])) / 0.5, atol=1e-6)


def test_the_annealed_temperature_falls_geometrically():
    settings = EstimatorSettings(estimator="annealed", temperature=4.0, estimator_temperature=1.0, estimator_steps=100)
    after = jax.jit(lambda updates: draw(settings, prng.key(0), (3, 2), updates))
    found = [float(after(updates).temperature) for updates in (0, 50, 100, 900)]
    np.testing.assert_allclose(found, [4.0, 2.0, 1.0, 1.0], rtol=1e-6)
    drawn, outputs = after(50), np.arange(6.0, dtype=np.float32).reshape(3, 2)
    ours = jax.jit(jax.jacobian(lambda x: estimated(settings, ONE, x, drawn)))(outputs)
    by_hand = jax.jit(jax.jacobian(lambda x: straight_through(ONE, x.T, drawn.noise.T, 2.0).T))(outputs)
    np.testing.assert_allclose(ours, by_hand, atol=1e-6)


def gradients(settings, outputs, weights, count, updates=0):
    """`count` independent gradients of the weighted action, after so many updates."""

    def one(key):
        drawn = draw(settings, key, (outputs.size, 1), updates)
        return jax.grad(lambda x: jnp.sum(weights * estimated(settings, ONE, x[:, None], drawn)[:, 0]))(outputs)

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(prng.key(0), count)), np.float64)


def test_bias_and_variance_where_the_gradient_is_known():
    """E[w·a] has the gradient p (w − p·w). A low temperature has less bias and more variance; conditioning removes variance."""
    outputs, weights = jnp.array([0.5, -0.4, 1.1]), jnp.array([1.0, -2.0, 0.5])
    p = np.asarray(jax.nn.softmax(outputs))
    true = p * (np.asarray(weights) - p @ np.asarray(weights))
    found = {}
    for name, options in {
        "warm": {"estimator": "st-temperature", "estimator_temperature": 2.0},
        "cold": {"estimator": "st-temperature", "estimator_temperature": 0.2},
        "rao": {"estimator": "gumbel-rao", "estimator_temperature": 0.2, "estimator_samples": 10},
        "gapped": {"estimator": "gapped", "estimator_temperature": 0.2},
    }.items():
        sample = gradients(EstimatorSettings(**options), outputs, weights, 5000)
        found[name] = (np.linalg.norm(sample.mean(0) - true), sample.var(0).sum(), sample.mean(0))
    assert found["cold"][0] < 0.3 * found["warm"][0]
    assert found["cold"][1] > 3 * found["warm"][1]
    np.testing.assert_allclose(found["rao"][2], found["cold"][2], atol=0.05)  # the same expectation, less variance
    assert found["rao"][1] < 0.6 * found["cold"][1]
    assert found["gapped"][1] < 0.6 * found["cold"][1]


LEAD, PRIZE, COUNT = 0.7, 1.5, 20_000
"""A choice of two: how far the first output is ahead, how much more its action earns, and how many gradients are drawn."""
WAYS = {
    "soft": ({"temperature": 0.8}, 0.8),
    "straight-through": ({"temperature": 0.8}, 0.8),
    "st-temperature": ({"estimator_temperature": 0.3}, 0.3),
    "annealed": ({"temperature": 2.0, "estimator_temperature": 0.5, "estimator_steps": 100}, 1.0),  # half-way: √(2 · ½)
    "gumbel-rao": ({"estimator_temperature": 0.3, "estimator_samples": 8}, 0.3),
    "gapped": ({"estimator_temperature": 0.3, "estimator_gap": 0.5}, 0.3),
}
"""The settings of each estimator, and its temperature after 50 updates."""
BIAS = {
    "soft": -0.072,
    "straight-through": -0.072,
    "st-temperature": -0.015,
    "annealed": -0.0945,
    "gumbel-rao": -0.015,
    "gapped": 0.158,
}
"""By the definitions: a low temperature brings straight-through near the true gradient, 0.333, but not the gapped estimator."""


def slope(scores, temperature):
    """The derivative of the weighted softmax of two outputs whose difference is `scores`, with respect to the first."""
    p = 1 / (1 + np.exp(-scores / temperature))
    return PRIZE * p * (1 - p) / temperature


def moments(name, temperature):
    """Mean and variance of an estimator by its definition.

    The difference of two Gumbel variables is logistic, so the perturbed outputs differ by `LEAD` plus a logistic variable. The
    gapped estimator knows two cases only: the first is drawn and leads by 0.7, more than the gap, or the second, which leads by
    the gap, 0.5.
    """
    if name == "gapped":
        p = 1 / (1 + np.exp(-LEAD))
        first, second = slope(LEAD, temperature), slope(0.5, temperature)
        return p * first + (1 - p) * second, p * (1 - p) * (first - second) ** 2
    quantiles = (np.arange(200_000) + 0.5) / 200_000
    values = slope(LEAD + np.log(quantiles / (1 - quantiles)), temperature)
    return values.mean(), values.var()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_bias_and_variance_of_a_choice_of_two(name):
    """E[w·a] has the gradient w p (1 − p); every estimator has the mean, so the bias, and the variance of its definition."""
    options, temperature = WAYS[name]
    settings = EstimatorSettings(estimator=name, **options)
    sample = gradients(settings, jnp.array([LEAD, 0.0]), jnp.array([PRIZE, 0.0]), COUNT, updates=50)
    np.testing.assert_allclose(sample[:, 0], -sample[:, 1], atol=1e-5)
    mean, variance = moments(name, temperature)
    true = slope(LEAD, 1.0)
    error = 5 * np.sqrt(variance / COUNT)  # five standard errors
    np.testing.assert_allclose(mean - true, BIAS[name], atol=5e-4)
    np.testing.assert_allclose(sample[:, 0].mean() - true, BIAS[name], atol=error + 5e-4)
    assert name != "gapped" or sample[:, 0].mean() - true > 20 * error
    if name == "gumbel-rao":
        assert sample[:, 0].var() < 0.6 * variance, "the mean over noise that draws the same action varies less"
    else:
        np.testing.assert_allclose(sample[:, 0].var(), variance, rtol=0.05)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_respects_heads_masks_and_padding(name):
    settings = EstimatorSettings(estimator=name)
    outputs = np.random.default_rng(0).normal(size=(3, MIXED.act_size, 5)).astype(np.float32)
    outputs[:, 0, 0] = -1e9

    @jax.jit
    @jax.vmap
    def of_agent(heads, outputs):
        drawn = draw(settings, prng.key(9), outputs.shape, 7)
        function = lambda x: estimated(settings, heads, x, drawn)  # noqa: E731
        return function(outputs), target_action(settings, heads, outputs, drawn.noise), jax.jacobian(function)(outputs)

    found = of_agent(jax.tree.map(jnp.asarray, heads_of(MIXED)), outputs)
    for space, action, target, grads in zip(MIXED.action_spaces, *found, strict=True):
        np.testing.assert_allclose(action, target, atol=1e-6)
        assert np.isfinite(grads).all()
        assert not np.any(np.asarray(action)[space.size :])
        assert not np.any(np.asarray(grads)[:, :, space.size :])
        if isinstance(space, Discrete):
            edges = np.cumsum((0, *space.heads))
            sums = [np.asarray(action)[a:b].sum(0) for a, b in pairwise(edges)]
            np.testing.assert_allclose(sums, 1.0, atol=1e-5)
            assert float(action[0, 0]) < 1e-6
            if name != "soft":
                assert np.isin(np.round(np.asarray(action), 5), [0.0, 1.0]).all()


@pytest.mark.slow
def test_plain_heads_give_what_tables_give():
    spec = spec_of((1,), (Discrete((3,)),))
    tables = jax.tree.map(lambda table: table[0], heads_of(spec_of((1, 1), (Discrete((3,)), Box(3, -1.0, 1.0)))))
    assert heads_of(spec).same is None
    outputs = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    for name in ESTIMATORS:
        settings = EstimatorSettings(estimator=name)
        drawn = draw(settings, prng.key(1), (3, 4), 3)
        ours, theirs = (jax.jit(jax.jacobian(partial(estimated, settings, h, drawn=drawn)))(outputs) for h in (ONE, tables))
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.slow
def test_one_update_by_each_estimator_learns_and_differs():
    spec = spec_of((2, 2), (Discrete((3,)), Discrete((3,))))
    small = maddpg.Config(num_units=8, num_layers=1)
    key = prng.key(3)
    batch_obs = jax.random.normal(key, (16, 2, 2))
    batch = Transition(
        obs=batch_obs,
        action=jax.nn.one_hot(jax.random.randint(key, (16, 2), 0, 3), 3),
        reward=jnp.ones((16, 2)),
        next_obs=batch_obs,
        terminated=jnp.zeros((16, 2), bool),
        alive=jnp.ones((16, 2), bool),
        done=jnp.zeros(16, bool),
    )
    found = []
    for name in ESTIMATORS:
        algo = maddpg.make(dataclasses.replace(small, estimator=name, temperature=0.8), spec, np.ones((2, 2), bool))
        agents, metrics = jax.jit(lambda algo=algo: algo.update(algo.init(prng.key(0)), batch, prng.key(1)))()
        assert all(np.isfinite(value).all() for value in metrics.values())
        found.append(np.asarray(agents.actor_opt[0].mu[0].weight))
    for i, first in enumerate(found):
        for j, second in enumerate(found[:i]):
            same = {ESTIMATORS[i], ESTIMATORS[j]} == {"straight-through", "annealed"}  # before the first update
            assert np.allclose(first, second, atol=1e-7) == same, (ESTIMATORS[i], ESTIMATORS[j])


def test_senseless_estimators_are_refused():
    with pytest.raises(UsageError, match="estimator must be one of soft, straight-through"):
        configs.override(configs.Config(), estimator="hard")
    with pytest.raises(UsageError, match="--estimator-samples must be at least 1"):
        configs.override(configs.Config(), estimator_samples=0)
