"""Distributions of actions against numbers worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.core import prng
from counterpoint.core.distributions import Bernoulli, Categorical, DiagGaussian, MultiCategorical, SoftCategorical

log = np.log
QUARTERS = Categorical(jnp.log(jnp.array([[1.0, 1.0, 2.0], [8.0, 1.0, 1.0]])))
"""Chances ¼, ¼, ½ and 0.8, 0.1, 0.1; logits are not normalised."""
SOME = [
    (QUARTERS, Categorical(jnp.zeros((2, 3)))),
    (SoftCategorical(QUARTERS.logits, 0.5), SoftCategorical(jnp.zeros((2, 3)), 0.5)),
    (
        MultiCategorical.split(jnp.tile(QUARTERS.logits, 2), (3, 3)),
        MultiCategorical.split(jnp.zeros((2, 6)), (3, 3)),
    ),
    (DiagGaussian(jnp.ones((2, 3)), jnp.zeros((2, 3))), DiagGaussian(jnp.zeros((2, 3)), jnp.ones((2, 3)))),
    (Bernoulli(jnp.log(jnp.array([[3.0, 1.0], [1.0, 1.0]]))), Bernoulli(jnp.zeros((2, 2)))),
]
each = pytest.mark.parametrize(("one", "other"), SOME, ids=lambda value: type(value).__name__)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, atol=2e-6)


def test_categorical():
    uniform = Categorical(jnp.zeros((2, 3)))
    close(QUARTERS.mode(), [2, 0])
    close(QUARTERS.logp(jnp.array([1, 0])), [log(0.25), log(0.8)])
    close(QUARTERS.entropy(), [1.5 * log(2), -0.8 * log(0.8) - 0.2 * log(0.1)])
    close(uniform.entropy(), [log(3), log(3)])
    close(QUARTERS.kl(uniform)[0], log(3) - 1.5 * log(2))
    close(uniform.kl(QUARTERS)[0], (2 * log(4 / 3) + log(2 / 3)) / 3)


def test_soft_categorical():
    """With two choices and temperature 1 the density is p q / (p y + q x)², which is 1 everywhere for a fair coin."""
    fair, skew = SoftCategorical(jnp.zeros(2)), SoftCategorical(jnp.log(jnp.array([3.0, 1.0])))
    close(fair.logp(jnp.array([0.2, 0.8])), 0.0)
    close(skew.logp(jnp.array([0.2, 0.8])), log((3 / 4) * (1 / 4) / (0.75 * 0.8 + 0.25 * 0.2) ** 2))
    close(skew.mode(), [0.75, 0.25])
    close(skew._replace(temperature=0.5).mode(), [0.9, 0.1])
    close(skew.entropy(), Categorical(skew.logits).entropy())
    close(skew.kl(fair), log(2) + 0.75 * log(0.75) + 0.25 * log(0.25))
    x = jnp.linspace(0.0005, 0.9995, 1000)  # a density: its integral over the simplex, here a line, is 1
    cold = SoftCategorical(jnp.broadcast_to(skew.logits, (1000, 2)), 0.7)
    assert float(jnp.mean(jnp.exp(cold.logp(jnp.stack([x, 1 - x], axis=1))))) == pytest.approx(1, abs=0.02)


def test_multi_categorical():
    both = MultiCategorical.split(jnp.log(jnp.array([1.0, 3.0, 1.0, 1.0, 2.0])), (2, 3))
    close(both.mode(), [1, 2])
    close(both.logp(jnp.array([0, 2])), log(1 / 4) + log(1 / 2))
    close(both.entropy(), 1.5 * log(2) - 0.75 * log(0.75) - 0.25 * log(0.25))
    close(both.kl(MultiCategorical.split(jnp.zeros(5), (2, 3))), log(6) - both.entropy())


def test_diagonal_gaussian():
    one = DiagGaussian(jnp.array([1.0, 2.0]), jnp.log(jnp.array([2.0, 0.5])))
    normal = DiagGaussian(jnp.zeros(2), jnp.zeros(2))
    close(one.mode(), [1.0, 2.0])
    close(one.logp(jnp.array([3.0, 2.0])), -0.5 - log(2 * np.pi))  # the deviations' logarithms cancel
    close(one.entropy(), 1 + log(2 * np.pi))
    close(one.kl(normal), (4 + 1 - 1) / 2 - log(2) + (0.25 + 4 - 1) / 2 + log(2))
    close(normal.kl(one), (0.25 + 0.25 - 1) / 2 + log(2) + (4 + 16 - 1) / 2 - log(2))


def test_bernoulli():
    switches = Bernoulli(jnp.log(jnp.array([3.0, 1.0])))  # chances ¾ and ½
    close(switches.mode(), [1.0, 0.0])
    close(switches.logp(jnp.array([0.0, 1.0])), log(1 / 4) + log(1 / 2))
    close(switches.entropy(), log(2) - 0.75 * log(0.75) - 0.25 * log(0.25))
    close(switches.kl(Bernoulli(jnp.zeros(2))), log(4) - switches.entropy())


@each
def test_samples_agree_with_probabilities(one, other):
    """Over samples E[log p] is minus the entropy, E[log p − log q] the divergence (not of what is relaxed), E[∇ log p] 0."""

    @jax.jit
    def averages(one, other):
        samples = jax.vmap(one.sample)(jax.random.split(prng.key(0), 20_000))
        logp, logq = jax.vmap(one.logp)(samples), jax.vmap(other.logp)(samples)
        score = jax.vmap(jax.grad(lambda one, sample: jnp.sum(one.logp(sample))), in_axes=(None, 0))(one, samples)
        means = jax.tree.map(lambda leaf: leaf.mean(0), (logp, logp - logq, score))
        return samples, *means, one.entropy(), one.kl(other), one.kl(one)

    samples, logp, gap, score, entropy, kl, nothing = averages(one, other)
    assert logp.shape == entropy.shape == kl.shape == (2,)
    np.testing.assert_allclose(nothing, 0.0, atol=1e-6)
    if isinstance(one, SoftCategorical):
        share = np.mean(np.asarray(samples).argmax(-1)[..., None] == np.arange(3), axis=0)
        np.testing.assert_allclose(share, jnp.exp(one.choice.log_probabilities), atol=0.02)
        np.testing.assert_allclose(samples.sum(-1), 1.0, atol=1e-5)
        score = score._replace(temperature=score.temperature / 3)  # whose scale is larger
    else:
        np.testing.assert_allclose(-logp, entropy, atol=0.05)
        np.testing.assert_allclose(gap, kl, atol=0.05)
    jax.tree.map(lambda leaf: np.testing.assert_allclose(leaf, 0.0, atol=0.05), score)
