"""How sure a few seeds make us: means, interquartile means, bootstrap intervals, averaged curves. NumPy only.

The interquartile mean drops the best and the worst quarter, so that one lucky seed decides nothing, and still uses half of
the values, so that it is steadier than a median (Agarwal et al. 2021, arXiv:2108.13264). Intervals are percentile bootstraps:
the spread of a statistic over samples redrawn with replacement from the values themselves.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from counterpoint.core.errors import UsageError

Reduced = np.ndarray | np.floating
Statistic = Callable[..., Reduced]
"""(values, axis) → the statistic along that axis: `mean`, `iqm`, `np.median`."""

Curve = tuple[np.ndarray, np.ndarray]
"""Places, ascending, and the values there; each curve has its own."""

MOST_POINTS = 1000
"""Of aligned curves: more than a page can show."""
BLOCK = 4_000_000
"""Numbers redrawn at a time: thirty megabytes, whatever the number of values."""


class Summary(NamedTuple):
    """A sample in six numbers."""

    mean: float
    iqm: float
    low: float
    """Lower end of the 95 % bootstrap interval of the mean."""
    high: float
    count: int
    std: float
    """Of the sample (divisor count − 1); 0 for a single value."""


def mean(values: ArrayLike, axis: int = -1) -> Reduced:
    """The mean along an axis."""
    return np.mean(np.asarray(values, float), axis=axis)


def iqm(values: ArrayLike, axis: int = -1) -> Reduced:
    """The mean without the lowest and the highest quarter; a quarter is rounded down, so three values all stay."""
    ordered = np.sort(np.asarray(values, float), axis=axis)
    count = ordered.shape[axis]
    return np.mean(np.take(ordered, np.arange(count // 4, count - count // 4), axis=axis), axis=axis)


def bootstrap_interval(
    values: ArrayLike, statistic: Statistic = mean, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """The bounds between which the statistic lies with this confidence, as far as the values can tell."""
    sample, tails = _checked(values), _tails(confidence, resamples)
    random, rows = np.random.default_rng(seed), max(1, BLOCK // sample.size)
    blocks = [min(rows, resamples - done) for done in range(0, resamples, rows)]
    redrawn = [statistic(sample[random.integers(sample.size, size=(block, sample.size))], axis=-1) for block in blocks]
    low, high = np.quantile(np.concatenate(redrawn), tails)
    return float(low), float(high)


def bootstrap_band(
    curves: Float[np.ndarray, "S X"], confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[Float[np.ndarray, " X"], Float[np.ndarray, " X"]]:
    """The interval of the mean of S curves at each point; whole curves are redrawn, since they are what is independent."""
    tails, count = _tails(confidence, resamples), len(curves)
    _checked(curves.ravel())
    drawn = np.random.default_rng(seed).integers(count, size=(resamples, count))
    weight = (drawn[:, :, None] == np.arange(count)).mean(axis=1)  # [R, S]: how often each curve was drawn
    low, high = np.quantile(weight @ curves, tails, axis=0)
    return low, high


def summary(values: ArrayLike) -> Summary:
    """A sample's mean, interquartile mean, 95 % interval of the mean, count and standard deviation."""
    sample = _checked(values)
    low, high = bootstrap_interval(sample, mean)
    std = float(np.std(sample, ddof=1)) if sample.size > 1 else 0.0
    return Summary(mean=float(mean(sample)), iqm=float(iqm(sample)), low=low, high=high, count=sample.size, std=std)


def smoothed(values: Float[np.ndarray, " X"], window: int) -> Float[np.ndarray, " X"]:
    """At each entry the mean of the last `window` entries, of fewer at the start: never of the future."""
    if window < 1:
        raise UsageError(f"smoothing needs a window of at least 1, not {window}.")
    total, stop = np.concatenate([[0.0], np.cumsum(values)]), np.arange(1, len(values) + 1)
    start = np.maximum(stop - window, 0)
    return (total[stop] - total[start]) / (stop - start)


def aligned(curves: Sequence[Curve]) -> tuple[Float[np.ndarray, " X"], Float[np.ndarray, "S X"]]:
    """The places that all curves reach, and every curve's values there, linear between its own points."""
    places = np.unique(np.concatenate([x for x, _ in curves]))
    places = places[(places >= max(x[0] for x, _ in curves)) & (places <= min(x[-1] for x, _ in curves))]
    if places.size > MOST_POINTS:
        places = np.linspace(places[0], places[-1], MOST_POINTS)
    return places, np.stack([np.interp(places, x, y) for x, y in curves])


def _checked(values: ArrayLike) -> np.ndarray:
    """The values as one row of numbers, or the user's error."""
    sample = np.asarray(values, float)
    if sample.ndim != 1 or not sample.size:
        raise UsageError(f"statistics need a list of at least one number, not one of shape {sample.shape}.")
    if not np.isfinite(sample).all():
        bad = int(np.flatnonzero(~np.isfinite(sample))[0])
        raise UsageError(f"value {bad} of {sample.size} is {sample[bad]}: leave out seeds or episodes that did not finish.")
    return sample


def _tails(confidence: float, resamples: int) -> tuple[float, float]:
    if not 0 < confidence < 1:
        raise UsageError(f"confidence must be a number between 0 and 1, not {confidence!r}.")
    if resamples < 1:
        raise UsageError(f"resamples must be at least 1, not {resamples!r}.")
    return (1 - confidence) / 2, (1 + confidence) / 2
