"""Statistics over a few seeds: means, interquartile means, bootstrap intervals and averaged curves.

The interquartile mean drops the best and the worst quarter, so that one lucky seed does not decide a comparison, and still
uses half of the values, so that it varies less than a median (Agarwal et al. 2021, arXiv:2108.13264). Intervals are percentile
bootstraps by SciPy, which is imported only when an interval is computed: it takes longer to load than most commands to run.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from counterpoint.core.errors import UsageError

Reduced = np.ndarray | np.floating
Statistic = Callable[..., Reduced]
"""Maps (values, axis) to the statistic along that axis: `mean`, `iqm`, `np.median`."""

Curve = tuple[np.ndarray, np.ndarray]
"""Ascending x positions and the values at them; each curve has its own positions."""

MOST_POINTS = 1000
"""Points of aligned curves at most: more than a page can show."""
BLOCK = 4_000_000
"""Numbers resampled at a time: thirty megabytes, regardless of the number of values."""
MOST_SEEDS = 1000
"""The largest number of seeds that `seeds_needed` recommends."""


class Summary(NamedTuple):
    """A sample summarised in six numbers."""

    mean: float
    iqm: float
    low: float
    """Lower end of the 95 % bootstrap interval of the mean."""
    high: float
    count: int
    std: float
    """Standard deviation of the sample (divisor count − 1); 0 for a single value."""


def mean(values: ArrayLike, axis: int = -1) -> Reduced:
    """Returns the mean along an axis."""
    return np.mean(np.asarray(values, float), axis=axis)


def iqm(values: ArrayLike, axis: int = -1) -> Reduced:
    """Returns the mean without the lowest and the highest quarter; a quarter is rounded down, so three values all stay."""
    ordered = np.sort(np.asarray(values, float), axis=axis)
    count = ordered.shape[axis]
    return np.mean(np.take(ordered, np.arange(count // 4, count - count // 4), axis=axis), axis=axis)


def bootstrap_interval(
    values: ArrayLike, statistic: Statistic = mean, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Returns the percentile bootstrap interval of a statistic."""
    sample = _checked(values)
    low, high = _bootstrap(sample, statistic, confidence, resamples, seed)
    return float(low), float(high)


def bootstrap_band(
    curves: Float[np.ndarray, "S X"], confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[Float[np.ndarray, " X"], Float[np.ndarray, " X"]]:
    """Returns the interval of the mean of S curves at each point; resamples whole curves, because only they are independent."""
    _checked(curves.ravel())
    return _bootstrap(curves, mean, confidence, resamples, seed)


def _bootstrap(sample: np.ndarray, statistic: Statistic, confidence: float, resamples: int, seed: int) -> tuple[Any, Any]:
    """Returns the interval of a statistic along the first axis."""
    if not 0 < confidence < 1:
        raise UsageError(f"confidence must be a number between 0 and 1, not {confidence!r}.")
    if resamples < 2:
        raise UsageError(f"resamples must be at least 2, not {resamples!r}.")
    if len(sample) == 1:  # SciPy refuses a single observation
        return sample[0], sample[0]
    from scipy.stats import bootstrap

    interval = bootstrap(
        (sample,),
        statistic,
        n_resamples=resamples,
        batch=max(1, BLOCK // sample.size),
        vectorized=True,
        axis=0,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return np.minimum(interval.low, interval.high), np.maximum(interval.low, interval.high)  # equal ones may swap by rounding


def stratified_interval(
    strata: Sequence[ArrayLike], statistic: Statistic, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Returns the percentile bootstrap interval of `statistic(*strata, axis)`; each stratum is resampled on its own."""
    samples = [_checked(values) for values in strata]
    if all(sample.size == 1 for sample in samples):
        point = float(statistic(*samples, axis=-1))
        return point, point
    from scipy.stats import bootstrap

    def resampled(*found: np.ndarray, axis: int) -> Reduced:
        return statistic(*(x[..., :1] if s.size == 1 else x for x, s in zip(found, samples, strict=True)), axis=axis)

    interval = bootstrap(
        [np.repeat(sample, 2) if sample.size == 1 else sample for sample in samples],  # SciPy refuses a single value
        resampled,
        n_resamples=resamples,
        batch=max(1, BLOCK // sum(sample.size for sample in samples)),
        vectorized=True,
        axis=-1,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def mean_of_means(*strata: np.ndarray, axis: int = -1) -> Reduced:
    """Returns the mean over strata of their means: each counts the same, however many values it has."""
    return np.mean([np.mean(stratum, axis=axis) for stratum in strata], axis=0)


def exact_interval(successes: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Returns the Clopper-Pearson interval of a share."""
    if not 0 <= successes <= count or count < 1:
        raise UsageError(f"a share needs 0 to {count} successes of at least one trial, not {successes} of {count}.")
    from scipy.stats import binomtest

    interval = binomtest(successes, count).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


def probability_of_improvement(first: ArrayLike, second: ArrayLike) -> float:
    """Returns the probability that a seed of the first group is above one of the second; ties count half."""
    return float(_improvement(_checked(first), _checked(second)))


def improvement_interval(first: ArrayLike, second: ArrayLike, seed: int = 0) -> tuple[float, float]:
    """Returns the 95 % bootstrap interval of `probability_of_improvement`, with the seeds of each group resampled."""
    return stratified_interval([first, second], _improvement, seed=seed)


def _improvement(first: np.ndarray, second: np.ndarray, axis: int = -1) -> Reduced:
    from scipy.stats import mannwhitneyu

    pairs = first.shape[axis] * second.shape[axis]
    with np.errstate(all="ignore"):  # its p-value, which is not used, divides by zero if all values are the same
        return mannwhitneyu(first, second, axis=axis, method="asymptotic").statistic / pairs


def optimality_gap(values: ArrayLike, target: float, axis: int = -1) -> Reduced:
    """Returns by how much the values fall short of the target on average; a value above it makes up for no other."""
    return np.mean(np.maximum(target - np.asarray(values, float), 0.0), axis=axis)


def seeds_needed(first: ArrayLike, second: ArrayLike, power: float = 0.8, level: float = 0.05) -> int | None:
    """Returns how many seeds per group a t-test would need to detect the difference seen; None if it would take over 1000.

    The test is two-sided at `level` and finds a true difference of this size with probability `power`.
    """
    a, b = _checked(first), _checked(second)
    if min(a.size, b.size) < 2:
        return None
    difference = abs(a.mean() - b.mean())
    spread = np.sqrt((a.var(ddof=1) * (a.size - 1) + b.var(ddof=1) * (b.size - 1)) / (a.size + b.size - 2))
    if difference <= 1e-9 * max(abs(a.mean()), abs(b.mean()), spread):
        return None
    if spread <= 1e-9 * difference:
        return 2
    from scipy.stats import f, ncf

    count = np.arange(2, MOST_SEEDS + 1)
    noncentrality = count / 2 * (difference / spread) ** 2
    bound = f.isf(level, 1, 2 * count - 2)
    enough = ncf.sf(bound, 1, 2 * count - 2, np.minimum(noncentrality, 1000.0)) >= power
    return int(count[np.argmax(enough)]) if enough.any() else None


def split_of(groups: Sequence[ArrayLike]) -> float | None:
    """Returns the value that separates bimodal results into two clusters, or None if they are not bimodal.

    Results are bimodal if the widest gap between neighbours is at least half of their range, with two seeds or more on either
    side, and if one group alone has seeds on both sides: otherwise the groups differ, and not the seeds within them.
    """
    values = np.sort(np.concatenate([_checked(group) for group in groups]))
    if values.size < 4:
        return None
    gaps = np.diff(values)
    widest = int(np.argmax(gaps))
    middle = float((values[widest] + values[widest + 1]) / 2)
    mixed = any(np.min(group) < middle < np.max(group) for group in groups)
    wide = gaps[widest] >= (values[-1] - values[0]) / 2 and values[-1] > values[0]
    return middle if wide and mixed and 2 <= widest + 1 <= values.size - 2 else None


def summary(values: ArrayLike) -> Summary:
    """Returns the mean, interquartile mean, 95 % interval of the mean, count and standard deviation of a sample."""
    sample = _checked(values)
    low, high = bootstrap_interval(sample, mean)
    std = float(np.std(sample, ddof=1)) if sample.size > 1 else 0.0
    return Summary(mean=float(mean(sample)), iqm=float(iqm(sample)), low=low, high=high, count=sample.size, std=std)


def smoothed(values: Float[np.ndarray, " X"], window: int) -> Float[np.ndarray, " X"]:
    """Returns the mean of the last `window` entries at each entry (of fewer at the start), never of later ones."""
    if window < 1:
        raise UsageError(f"smoothing needs a window of at least 1, not {window}.")
    total, stop = np.concatenate([[0.0], np.cumsum(values)]), np.arange(1, len(values) + 1)
    start = np.maximum(stop - window, 0)
    return (total[stop] - total[start]) / (stop - start)


def aligned(curves: Sequence[Curve]) -> tuple[Float[np.ndarray, " X"], Float[np.ndarray, "S X"]]:
    """Returns the x positions that all curves reach and the value of each curve there, interpolated linearly."""
    positions = np.unique(np.concatenate([x for x, _ in curves]))
    positions = positions[(positions >= max(x[0] for x, _ in curves)) & (positions <= min(x[-1] for x, _ in curves))]
    if positions.size > MOST_POINTS:
        positions = np.linspace(positions[0], positions[-1], MOST_POINTS)
    return positions, np.stack([np.interp(positions, x, y) for x, y in curves])


def _checked(values: ArrayLike) -> np.ndarray:
    """Returns the values as one row of finite numbers, or raises UsageError."""
    sample = np.asarray(values, float)
    if sample.ndim != 1 or not sample.size:
        raise UsageError(f"statistics need a list of at least one number, not an array of shape {sample.shape}.")
    if not np.isfinite(sample).all():
        bad = int(np.flatnonzero(~np.isfinite(sample))[0])
        raise UsageError(f"value {bad} of {sample.size} is {sample[bad]}: leave out seeds or episodes that did not finish.")
    return sample
