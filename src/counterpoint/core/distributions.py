"""Distributions of actions for learners and loops of your own: sample, mode, logp, entropy, kl.

Each is a NamedTuple of arrays, so it works with `jit`, `vmap` and `grad`. The last axis is the action; the leading axes are a
batch and remain in log-probabilities, entropies and divergences. `kl` goes from self to another distribution of the same kind.
"""

from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from counterpoint.core.types import Key

LOG_2_PI = float(np.log(2 * np.pi))


class Categorical(NamedTuple):
    """One of A choices; a sample is the integer of a choice."""

    logits: Float[Array, "*b A"]

    @property
    def log_probabilities(self) -> Float[Array, "*b A"]:
        return jax.nn.log_softmax(self.logits, axis=-1)

    def sample(self, key: Key) -> Int[Array, "*b"]:
        return jax.random.categorical(key, self.logits)

    def mode(self) -> Int[Array, "*b"]:
        return jnp.argmax(self.logits, axis=-1)

    def logp(self, choice: Int[Array, "*b"]) -> Float[Array, "*b"]:
        return jnp.take_along_axis(self.log_probabilities, choice[..., None], axis=-1)[..., 0]

    def entropy(self) -> Float[Array, "*b"]:
        return -jnp.sum(jnp.exp(self.log_probabilities) * self.log_probabilities, axis=-1)

    def kl(self, other: "Categorical") -> Float[Array, "*b"]:
        gap = self.log_probabilities - other.log_probabilities
        return jnp.sum(jnp.exp(self.log_probabilities) * gap, axis=-1)


class SoftCategorical(NamedTuple):
    """A relaxed choice, a point inside the simplex instead of a corner: softmax((logits + Gumbel noise) / temperature).

    Entropy and divergence are those of the relaxed choice, because its own have no closed form.
    """

    logits: Float[Array, "*b A"]
    temperature: float = 1.0

    @property
    def choice(self) -> Categorical:
        """The choice that is relaxed."""
        return Categorical(self.logits)

    def sample(self, key: Key) -> Float[Array, "*b A"]:
        noise = jax.random.gumbel(key, self.logits.shape, self.logits.dtype)
        return jax.nn.softmax((self.logits + noise) / self.temperature, axis=-1)

    def mode(self) -> Float[Array, "*b A"]:
        """Returns the sample without noise."""
        return jax.nn.softmax(self.logits / self.temperature, axis=-1)

    def logp(self, point: Float[Array, "*b A"]) -> Float[Array, "*b"]:
        """Returns the log-density inside the simplex (Maddison et al. 2017, arXiv:1611.00712, Eq. 10)."""
        size, log_point = self.logits.shape[-1], jnp.log(point)
        pull = jax.nn.logsumexp(self.logits - self.temperature * log_point, axis=-1)
        weight = jnp.sum(self.logits - (self.temperature + 1) * log_point, axis=-1)
        return gammaln(float(size)) + (size - 1) * jnp.log(self.temperature) + weight - size * pull

    def entropy(self) -> Float[Array, "*b"]:
        return self.choice.entropy()

    def kl(self, other: "SoftCategorical") -> Float[Array, "*b"]:
        return self.choice.kl(other.choice)


class MultiCategorical(NamedTuple):
    """Several independent choices, such as a move and a word; a sample has one integer per choice."""

    heads: tuple[Categorical, ...]

    @classmethod
    def split(cls, logits: Float[Array, "*b A"], sizes: tuple[int, ...]) -> "MultiCategorical":
        """Returns the distribution of heads with these widths, side by side."""
        return cls(tuple(Categorical(logits[..., start:stop]) for start, stop in pairwise(np.cumsum((0, *sizes)))))

    def sample(self, key: Key) -> Int[Array, "*b H"]:
        keys = jax.random.split(key, len(self.heads))
        return jnp.stack([head.sample(own) for head, own in zip(self.heads, keys, strict=True)], axis=-1)

    def mode(self) -> Int[Array, "*b H"]:
        return jnp.stack([head.mode() for head in self.heads], axis=-1)

    def logp(self, choices: Int[Array, "*b H"]) -> Float[Array, "*b"]:
        return sum((head.logp(choices[..., h]) for h, head in enumerate(self.heads)), jnp.zeros(()))

    def entropy(self) -> Float[Array, "*b"]:
        return sum((head.entropy() for head in self.heads), jnp.zeros(()))

    def kl(self, other: "MultiCategorical") -> Float[Array, "*b"]:
        return sum((mine.kl(theirs) for mine, theirs in zip(self.heads, other.heads, strict=True)), jnp.zeros(()))


class DiagGaussian(NamedTuple):
    """Independent normal numbers."""

    mean: Float[Array, "*b A"]
    log_std: Float[Array, "*b A"]

    def sample(self, key: Key) -> Float[Array, "*b A"]:
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape, self.mean.dtype)

    def mode(self) -> Float[Array, "*b A"]:
        return self.mean

    def logp(self, point: Float[Array, "*b A"]) -> Float[Array, "*b"]:
        away = (point - self.mean) * jnp.exp(-self.log_std)
        return -jnp.sum(away**2 / 2 + self.log_std + LOG_2_PI / 2, axis=-1)

    def entropy(self) -> Float[Array, "*b"]:
        return jnp.sum(self.log_std + (LOG_2_PI + 1) / 2, axis=-1)

    def kl(self, other: "DiagGaussian") -> Float[Array, "*b"]:
        wider = self.log_std - other.log_std
        apart = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return jnp.sum((jnp.exp(2 * wider) + apart**2 - 1) / 2 - wider, axis=-1)


class SquashedGaussian(NamedTuple):
    """middle + half_width · tanh of independent normal numbers."""

    mean: Float[Array, "*b A"]
    """Before tanh, as is log_std."""
    log_std: Float[Array, "*b A"]
    half_width: Float[Array, "*b A"]
    middle: Float[Array, "*b A"]

    @property
    def normal(self) -> DiagGaussian:
        """The distribution before tanh."""
        return DiagGaussian(self.mean, self.log_std)

    def sample(self, key: Key) -> Float[Array, "*b A"]:
        return self._squash(self.normal.sample(key))

    def mode(self) -> Float[Array, "*b A"]:
        """Returns the squashed mean."""
        return self._squash(self.mean)

    def logp(self, point: Float[Array, "*b A"]) -> Float[Array, "*b"]:
        inner = jnp.arctanh((point - self.middle) / self.half_width)
        return self.normal.logp(inner) - jnp.sum(self._log_slope(inner), axis=-1)

    def entropy(self) -> Float[Array, "*b"]:
        """Returns the entropy of the normal numbers plus the mean logarithm of the slope, by Gauss-Hermite quadrature."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(32)
        inner = self.mean[..., None] + jnp.exp(self.log_std)[..., None] * jnp.broadcast_to(nodes, (*self.mean.shape, 32))
        slopes = jax.nn.softplus(-2 * inner) @ jnp.asarray(weights / weights.sum(), self.mean.dtype)
        mean_slope = 2 * (np.log(2.0) - self.mean - slopes) + jnp.log(self.half_width)
        return self.normal.entropy() + jnp.sum(mean_slope, axis=-1)

    def kl(self, other: "SquashedGaussian") -> Float[Array, "*b"]:
        """Returns the divergence, which squashing both into the same range does not change."""
        return self.normal.kl(other.normal)

    def _squash(self, inner: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
        return self.middle + self.half_width * jnp.tanh(inner)

    def _log_slope(self, inner: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
        return 2 * (np.log(2.0) - inner - jax.nn.softplus(-2 * inner)) + jnp.log(self.half_width)


class Bernoulli(NamedTuple):
    """Independent switches; a sample is 0 or 1 for each, and logits are those of 1."""

    logits: Float[Array, "*b A"]

    def sample(self, key: Key) -> Float[Array, "*b A"]:
        return jax.random.bernoulli(key, jax.nn.sigmoid(self.logits)).astype(self.logits.dtype)

    def mode(self) -> Float[Array, "*b A"]:
        return (self.logits > 0).astype(self.logits.dtype)

    def logp(self, switches: Float[Array, "*b A"]) -> Float[Array, "*b"]:
        on, off = jax.nn.log_sigmoid(self.logits), jax.nn.log_sigmoid(-self.logits)
        return jnp.sum(switches * on + (1 - switches) * off, axis=-1)

    def entropy(self) -> Float[Array, "*b"]:
        return -self.logp(jax.nn.sigmoid(self.logits))

    def kl(self, other: "Bernoulli") -> Float[Array, "*b"]:
        chance = jax.nn.sigmoid(self.logits)
        return self.logp(chance) - other.logp(chance)


Distribution = Categorical | SoftCategorical | MultiCategorical | DiagGaussian | SquashedGaussian | Bernoulli
