"""Turns the outputs of policy networks into action vectors, for agents of every kind at once.

Arrays are [..., N, A] over all agents. The vector of a discrete agent holds one probability vector per head; that of a
continuous agent is in [−1, 1] here and in the environment's own range only where it enters the environment (`to_world`).
Padding is always zero.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from counterpoint.core.checks import above, at_least, at_most
from counterpoint.core.spaces import Box, Discrete, Spec
from counterpoint.core.types import Key

LOWEST = -1e9
"""Replaces minus infinity in masked maxima; it is finite so that gradients stay finite."""


Table = Any
"""A static array (NumPy), one agent's row of it (traced), or None."""


class Heads(NamedTuple):
    """The layout of heads: static tables, [N, …] or one agent's. None if every agent has one discrete head of width A."""

    mask: Table
    """[N, A]: real entries."""
    discrete: Table
    """[N, A]: entries of a discrete head."""
    same: Table
    """[N, A, A]: whether two entries belong to the same head."""


def heads_of(spec: Spec) -> Heads:
    """Returns the tables of a spec's action spaces."""
    if all(space == Discrete((spec.act_size,)) for space in spec.action_spaces):
        return Heads(mask=None, discrete=None, same=None)
    shape = (spec.num_agents, spec.act_size)
    discrete, same = np.zeros(shape, bool), np.zeros((*shape, shape[1]), bool)
    for i, space in enumerate(spec.action_spaces):
        if isinstance(space, Discrete):
            edges = np.cumsum((0, *space.heads))
            for start, stop in pairwise(edges):
                same[i, start:stop, start:stop] = True
            discrete[i, : space.size] = True
    return Heads(mask=spec.act_mask, discrete=discrete, same=same)


def choosable(heads: Heads, legal: Bool[Array, "*b A"]) -> Bool[Array, "*b A"]:
    """Returns which entries may be chosen: the legal ones of each discrete head, or all of a head without a legal one."""
    discrete = jnp.ones_like(legal) if heads.discrete is None else jnp.broadcast_to(heads.discrete, legal.shape)
    possible = head_sum(heads, (legal & discrete).astype(jnp.float32)) > 0
    return discrete & (legal | ~possible)


def masked(heads: Heads, outputs: Float[Array, "*b A"], legal: Bool[Array, "*b A"] | None) -> Float[Array, "*b A"]:
    """Returns outputs under which illegal choices have probability zero; None means that all choices are legal."""
    if legal is None:
        return outputs
    forbidden = ~choosable(heads, legal)
    if heads.discrete is not None:
        forbidden &= jnp.broadcast_to(heads.discrete, outputs.shape)
    return jnp.where(forbidden, LOWEST, outputs)


def softmax(heads: Heads, logits: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns probabilities within each discrete head, zero elsewhere."""
    if heads.same is None:
        return jax.nn.softmax(logits, axis=-1)
    _, discrete, same = _over(heads, logits)
    peers = jnp.where(same, logits[..., None, :], LOWEST)
    top = jax.lax.stop_gradient(jnp.max(peers, axis=-1))
    weight = jnp.where(discrete, jnp.exp(jnp.where(discrete, logits - top, 0.0)), 0.0)
    total = jnp.sum(jnp.where(same, weight[..., None, :], 0.0), axis=-1)
    return weight / jnp.where(discrete, total, 1.0)


def head_sum(heads: Heads, values: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns at each entry the sum over its head; zero outside discrete heads."""
    if heads.same is None:
        return jnp.broadcast_to(jnp.sum(values, axis=-1, keepdims=True), values.shape)
    return jnp.sum(jnp.where(_over(heads, values).same, values[..., None, :], 0.0), axis=-1)


def one_hot_best(heads: Heads, scores: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns 1 at the largest score of each discrete head (the first of equal ones), zero elsewhere."""
    size = scores.shape[-1]
    if heads.same is None:
        return jax.nn.one_hot(jnp.argmax(scores, axis=-1), size, dtype=scores.dtype)
    _, discrete, same = _over(heads, scores)
    before = jnp.broadcast_to(np.tri(size, k=-1, dtype=bool), same.shape)
    mine, theirs = scores[..., :, None], scores[..., None, :]
    beaten = same & ((theirs > mine) | ((theirs == mine) & before))
    return (discrete & ~jnp.any(beaten, axis=-1)).astype(scores.dtype)


def gumbel(key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Returns standard Gumbel noise, −log(−log U)."""
    return jax.random.gumbel(key, shape, jnp.float32)


def relaxed(heads: Heads, outputs: Float[Array, "*b A"], noise: Float[Array, "*b A"], temperature: Any) -> Float[Array, "*b A"]:
    """Returns differentiable actions: Gumbel-softmax in discrete heads, else tanh."""
    return _merge(heads, softmax(heads, (outputs + noise) / temperature), outputs)


def straight_through(
    heads: Heads, outputs: Float[Array, "*b A"], noise: Float[Array, "*b A"], temperature: Any
) -> Float[Array, "*b A"]:
    """Returns the drawn one-hot actions, with the gradient of `relaxed`; tanh for continuous agents."""
    drawn = one_hot_best(heads, outputs + noise)
    return _merge(heads, _with_gradient_of(drawn, softmax(heads, (outputs + noise) / temperature)), outputs)


def gumbel_rao(
    heads: Heads,
    outputs: Float[Array, "*b A"],
    noise: Float[Array, "*b A"],
    more: Float[Array, "K *b A"],
    temperature: Any,
) -> Float[Array, "*b A"]:
    """Returns the drawn one-hot actions, with the mean gradient of `relaxed` over K noises that would draw the same actions.

    Paulus, Maddison and Krause (2021, arXiv:2010.04838). `more` is Gumbel noise, −log E with E exponential. Given that entry d
    was drawn, the perturbed output of d is log Z − log E_d, and that of another entry j is −log(E_j / exp(output_j) + E_d / Z).
    """
    drawn = one_hot_best(heads, outputs + noise)
    log_z = _log_sum_exp(heads, outputs)

    def given(extra: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
        best = log_z + head_sum(heads, drawn * extra)
        other = -jnp.logaddexp(-extra - outputs, -best)
        perturbed = jax.lax.stop_gradient(jnp.where(drawn > 0, best, other) - outputs) + outputs
        return softmax(heads, perturbed / temperature)

    return _merge(heads, _with_gradient_of(drawn, jnp.mean(jax.vmap(given)(more), axis=0)), outputs)


def gapped(
    heads: Heads, outputs: Float[Array, "*b A"], noise: Float[Array, "*b A"], temperature: Any, gap: float
) -> Float[Array, "*b A"]:
    """Returns the drawn one-hot actions, with the gradient of a softmax in which the drawn entry leads by at least `gap`.

    Gapped straight-through (Fan et al. 2022, arXiv:2206.07235): the drawn output is raised to its head's largest one, and the
    others are lowered where they come closer to it than the gap. The shifts are constants for the gradient.
    """
    drawn = one_hot_best(heads, outputs + noise)
    top = head_sum(heads, one_hot_best(heads, outputs) * outputs)
    shift = jnp.where(drawn > 0, top - outputs, -jax.nn.relu(outputs + gap - top))
    moved = outputs + jax.lax.stop_gradient(shift)
    return _merge(heads, _with_gradient_of(drawn, softmax(heads, moved / temperature)), outputs)


def _with_gradient_of(value: Float[Array, "*b A"], surrogate: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns `value`, whose gradient is that of `surrogate`."""
    return surrogate + jax.lax.stop_gradient(value - surrogate)


def _log_sum_exp(heads: Heads, outputs: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns at each entry the logarithm of the sum of exponentials over its head."""
    if heads.same is None:
        return jnp.broadcast_to(jax.nn.logsumexp(outputs, axis=-1, keepdims=True), outputs.shape)
    top = jax.lax.stop_gradient(head_sum(heads, one_hot_best(heads, outputs) * outputs))
    inside = jnp.where(_over(heads, outputs).discrete, outputs - top, 0.0)
    return top + jnp.log(jnp.maximum(head_sum(heads, jnp.exp(inside)), 1e-30))


# --- Estimators: what a loss differentiates.

Estimator = Literal["soft", "straight-through", "st-temperature", "annealed", "gumbel-rao", "gapped"]
"""How a discrete action passes a gradient on (compared by Tilbury et al. 2023, arXiv:2302.11793). All but "soft" are hard."""


class Draw(NamedTuple):
    """The randomness of actions in a loss, and what else an estimator needs."""

    noise: Float[Array, "..."]
    """In columns [A, B], or in rows […, A]."""
    more: Float[Array, "K ..."] | None = None
    """Further Gumbel noise of "gumbel-rao"."""
    temperature: Float[Array, ""] | None = None
    """The present temperature of "annealed"."""


@dataclass(frozen=True)
class EstimatorSettings:
    """How gradients pass through discrete actions."""

    temperature: float = 1.0
    """Gumbel-softmax temperature."""
    estimator: Estimator = "soft"
    """Gradient estimator of discrete actions in losses: soft (Gumbel-softmax), straight-through, st-temperature
    (straight-through with --estimator-temperature), annealed (straight-through, from --temperature to
    --estimator-temperature), gumbel-rao or gapped. Targets use soft or one-hot actions accordingly."""
    estimator_temperature: float = 0.5
    """Softmax temperature of the estimators st-temperature, gumbel-rao and gapped, and the last one of annealed."""
    estimator_steps: int = 10_000
    """Updates over which the temperature of the estimator annealed falls geometrically."""
    estimator_samples: int = 10
    """Samples that the estimator gumbel-rao averages over."""
    estimator_gap: float = 1.0
    """Lead of the drawn action over the others in the estimator gapped."""
    infer_policies: bool = False
    """Approximate the other agents' policies from what they do instead of knowing them; critics read log-probabilities."""
    infer_entropy: float = 0.001
    """Weight of the entropy of the inferred policies."""
    infer_lr: float = 0.001
    """Step size of the inferred policies."""
    log_actions: bool = False
    """Critics read log-probabilities of discrete actions instead of samples, as they always do with --infer-policies."""

    @property
    def reads_logs(self) -> bool:
        """Whether critics read log-probabilities."""
        return self.infer_policies or self.log_actions

    def __post_init__(self) -> None:
        above(self, 0, "temperature", "estimator_temperature", "infer_lr")
        at_least(self, 1, "estimator_steps", "estimator_samples")
        at_least(self, 0, "estimator_gap", "infer_entropy")
        at_most(self, 10_000, "estimator_samples")


def draw(settings: EstimatorSettings, key: Key, shape: tuple[int, ...], updates: Any) -> Draw:
    """Returns the randomness of actions of a shape after so many updates."""
    noise = gumbel(key, shape)
    if settings.estimator == "gumbel-rao":
        return Draw(noise, more=gumbel(jax.random.fold_in(key, 1), (settings.estimator_samples, *shape)))
    if settings.estimator == "annealed":
        ratio = settings.estimator_temperature / settings.temperature
        share = jnp.minimum(updates / settings.estimator_steps, 1.0)
        return Draw(noise, temperature=jnp.asarray(settings.temperature * ratio**share, noise.dtype))
    return Draw(noise)


def estimated(settings: EstimatorSettings, heads: Heads, outputs: Float[Array, "A B"], drawn: Draw) -> Float[Array, "A B"]:
    """Returns one agent's differentiable actions in columns, by the estimator that the settings name."""
    if settings.estimator == "soft" and not settings.reads_logs:
        return relaxed_columns(heads, outputs, drawn.noise, settings.temperature)
    more = None if drawn.more is None else jnp.moveaxis(drawn.more, -1, -2)
    return estimated_rows(settings, heads, outputs.T, drawn._replace(noise=drawn.noise.T, more=more)).T


def estimated_rows(
    settings: EstimatorSettings, heads: Heads, outputs: Float[Array, "*b A"], drawn: Draw
) -> Float[Array, "*b A"]:
    """Returns differentiable actions in rows, by the estimator that the settings name."""
    own, noise = settings.estimator_temperature, drawn.noise
    if settings.reads_logs:
        return log_action(heads, outputs)
    if settings.estimator == "soft":
        return relaxed(heads, outputs, noise, settings.temperature)
    if settings.estimator == "gumbel-rao":
        assert drawn.more is not None
        return gumbel_rao(heads, outputs, noise, drawn.more, own)
    if settings.estimator == "gapped":
        return gapped(heads, outputs, noise, own, settings.estimator_gap)
    temperature = {"straight-through": settings.temperature, "st-temperature": own}.get(settings.estimator, drawn.temperature)
    return straight_through(heads, outputs, noise, temperature)


def target_action(
    settings: EstimatorSettings, heads: Heads, outputs: Float[Array, "A B"], noise: Float[Array, "A B"]
) -> Float[Array, "A B"]:
    """Returns one agent's actions in columns as `estimated` shows them to a critic, without their gradient."""
    if settings.reads_logs:
        return log_action(heads, outputs.T).T
    if settings.estimator == "soft":
        return relaxed_columns(heads, outputs, noise, settings.temperature)
    return sampled(heads, outputs.T, noise.T).T


LOG_FLOOR = -6.9
"""The smallest logarithm of a probability that a critic reads: about log 0.001."""


def shown_log(log: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns logarithms as a critic reads them, from 0 (the smallest) to 1 (certain): a one-hot vector is itself."""
    return 1 - jnp.maximum(log, LOG_FLOOR) / LOG_FLOOR


def log_probabilities(heads: Heads, logits: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns the logarithms of `softmax` in discrete heads, zero elsewhere."""
    log = logits - _log_sum_exp(heads, logits)
    return log if heads.same is None else jnp.where(_over(heads, logits).discrete, log, 0.0)


def log_action(heads: Heads, outputs: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns actions as critics with inferred policies read them: log-probabilities in discrete heads, else tanh."""
    return _merge(heads, shown_log(log_probabilities(heads, outputs)), outputs)


def critic_view(settings: EstimatorSettings, heads: Heads, action: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns replayed actions as the critic reads them: their logarithms in discrete heads if it reads logarithms."""
    if not settings.reads_logs:
        return action
    log = shown_log(jnp.log(jnp.maximum(action, 1e-9)))
    return log if heads.same is None else jnp.where(_over(heads, action).discrete, log, action)


def relaxed_columns(
    heads: Heads, outputs: Float[Array, "A B"], noise: Float[Array, "A B"], temperature: float
) -> Float[Array, "A B"]:
    """Returns `relaxed` for one agent's minibatch in columns."""
    logits = (outputs + noise) / temperature
    if heads.same is None:
        return jax.nn.softmax(logits, axis=0)
    discrete, real = (_over_columns(table, outputs) for table in (heads.discrete, heads.mask))
    _, weight, total = _weights_in_columns(heads, logits)
    return jnp.where(discrete, weight / total, jnp.where(real, jnp.tanh(outputs), 0.0))


def log_softmax_columns(heads: Heads, logits: Float[Array, "*t A B"]) -> Float[Array, "*t A B"]:
    """Returns `log_probabilities` for one agent's minibatch in columns."""
    if heads.same is None:
        return jax.nn.log_softmax(logits, axis=-2)
    top, _, total = _weights_in_columns(heads, logits)
    return jnp.where(_over_columns(heads.discrete, logits), logits - top - jnp.log(total), 0.0)


def _weights_in_columns(heads: Heads, logits: Float[Array, "*t A B"]) -> tuple[Array, Array, Array]:
    """Returns, for each entry of a discrete head, the largest logit of the head, exp(logit − largest) and their sum.

    Reductions over a few entries are slow on CPUs where these lie side by side, so this takes columns, and sums are a product.
    """
    discrete = _over_columns(heads.discrete, logits)
    *before, entries, samples = logits.shape
    same = jnp.broadcast_to(jnp.asarray(heads.same)[..., None], (*before, entries, entries, samples))
    peers = jnp.where(same, jnp.broadcast_to(logits[..., None, :, :], same.shape), LOWEST)
    top = jax.lax.stop_gradient(jnp.max(peers, axis=-2))
    weight = jnp.where(discrete, jnp.exp(jnp.where(discrete, logits - top, 0.0)), 0.0)
    sums = jnp.matmul(jnp.broadcast_to(heads.same, same.shape[:-1]).astype(weight.dtype), weight, precision="highest")
    return top, weight, jnp.where(discrete, sums, 1.0)


def _over_columns(table: Table, columns: Float[Array, "*t A B"]) -> Bool[Array, "*t A B"]:
    """Returns one agent's table [A] broadcast to the shape of columns."""
    return jnp.broadcast_to(jnp.asarray(table)[:, None], columns.shape)


def sampled(heads: Heads, outputs: Float[Array, "*b A"], noise: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Returns actions drawn from the policy as one-hot vectors (Gumbel-max); tanh for continuous agents."""
    return _merge(heads, one_hot_best(heads, outputs + noise), outputs)


def _merge(heads: Heads, discrete: Float[Array, "*b A"], outputs: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
    if heads.same is None:
        return discrete
    mask, is_discrete, _ = _over(heads, outputs)
    return jnp.where(is_discrete, discrete, jnp.where(mask, jnp.tanh(outputs), 0.0))


def _over(heads: Heads, vectors: Float[Array, "*b A"]) -> Heads:
    """Returns the tables broadcast to the shape of action vectors."""
    shape = vectors.shape
    return Heads(
        mask=jnp.broadcast_to(heads.mask, shape),
        discrete=jnp.broadcast_to(heads.discrete, shape),
        same=jnp.broadcast_to(heads.same, (*shape, shape[-1])),
    )


def to_world(spec: Spec, action: Float[Array, "*b N A"]) -> Float[Array, "*b N A"]:
    """Returns actions in the environment's range: continuous ones scaled from [−1, 1], discrete ones unchanged."""
    scale, shift = np.ones(spec.act_mask.shape), np.zeros(spec.act_mask.shape)
    for i, space in enumerate(spec.action_spaces):
        if isinstance(space, Box):
            scale[i, : space.size], shift[i, : space.size] = space.half_width, space.middle
    if (scale == 1).all() and (shift == 0).all():
        return action
    scale, shift = (jnp.broadcast_to(table.astype(action.dtype), action.shape) for table in (scale, shift))
    return action * scale + shift
