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
    return interval.low, interval.high


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
