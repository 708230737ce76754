"""Statistics agree with results computed by hand and hold for every sample."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from counterpoint.core.errors import UsageError
from counterpoint.runs import stats

SAMPLES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([4.0], 4.0),
        ([1.0, 2.0, 6.0], 3.0),  # a quarter of three values, rounded down, is none
        ([100.0, 2.0, 4.0, -50.0], 3.0),
        ([9, 1, 2, 3, 4, 5, 6], 4.0),  # of seven, 1 and 9 are dropped
        ([0, 0, 1, 2, 3, 4, 90, 90], 2.5),  # of eight, two are dropped at each end
    ],
)
def test_iqm_drops_a_quarter_at_each_end(values, expected):
    assert stats.iqm(values) == pytest.approx(expected)


def test_statistics_work_along_an_axis():
    table = np.array([[1.0, 2.0, 3.0, 100.0], [5.0, -7.0, 5.0, 9.0]])
    np.testing.assert_allclose(stats.iqm(table), [2.5, 5.0])
    np.testing.assert_allclose(stats.iqm(table.T, axis=0), [2.5, 5.0])
    np.testing.assert_allclose(stats.mean(table, axis=0), [3.0, -2.5, 4.0, 54.5])


def test_interval_of_two_values_is_known():
    """The mean of two resampled coin flips is 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4."""
    assert stats.bootstrap_interval([0.0, 1.0], stats.mean, confidence=0.95) == (0.0, 1.0)
    assert stats.bootstrap_interval([0.0, 1.0], stats.mean, confidence=0.4) == (0.5, 0.5)


def test_interval_matches_the_normal_one_for_many_values():
    values = np.random.default_rng(1).normal(10.0, 2.0, size=400)
    low, high = stats.bootstrap_interval(values, stats.mean)
    half = 1.96 * values.std() / np.sqrt(400)
    assert low == pytest.approx(values.mean() - half, abs=0.03)
    assert high == pytest.approx(values.mean() + half, abs=0.03)


def test_interval_is_deterministic_by_seed_and_takes_any_statistic():
    values = np.random.default_rng(2).normal(size=11)
    assert stats.bootstrap_interval(values, stats.iqm) == stats.bootstrap_interval(values, stats.iqm)
    assert stats.bootstrap_interval(values, stats.iqm) != stats.bootstrap_interval(values, stats.iqm, seed=1)
    low, high = stats.bootstrap_interval(values, np.median)
    assert {low, high} <= set(values)


def test_batches_cover_all_resamples(monkeypatch):
    values, seen = np.arange(5.0), []

    def count(sample, axis):
        seen.append(len(sample))
        return stats.mean(sample, axis)

    monkeypatch.setattr(stats, "BLOCK", 60)
    stats.bootstrap_interval(values, count, resamples=50)
    assert seen == [12, 12, 12, 12, 2]


@given(SAMPLES)
@example([1.3687617154257521e-300] * 2)  # its percentiles differ by rounding
def test_interval_lies_within_the_values(values):
    low, high = stats.bootstrap_interval(values, stats.mean, resamples=50)
    slack = 1e-9 * max(map(abs, values))
    assert min(values) - slack <= low <= high <= max(values) + slack


def test_band_resamples_whole_curves():
    """The band of two curves spans the gap between them at every point."""
    low, high = stats.bootstrap_band(np.array([[0.0, 5.0, 2.0], [1.0, 4.0, 2.0]]))
    np.testing.assert_allclose(low, [0.0, 4.0, 2.0], atol=1e-12)
    np.testing.assert_allclose(high, [1.0, 5.0, 2.0], atol=1e-12)


def test_band_agrees_with_intervals():
    curves = np.random.default_rng(3).normal(size=(6, 4))
    low, high = stats.bootstrap_band(curves, seed=5)
    for x in range(4):
        assert (low[x], high[x]) == pytest.approx(stats.bootstrap_interval(curves[:, x], seed=5))


def test_summary_by_hand():
    found = stats.summary([2.0, 4.0, 4.0, 10.0])
    assert found.mean == 5.0
    assert found.iqm == 4.0
    assert found.count == 4
    assert found.std == pytest.approx(np.sqrt(12.0))  # (9 + 1 + 1 + 25) / 3
    assert 2.0 <= found.low < 5.0 < found.high <= 10.0


def test_one_value_is_its_own_interval():
    low, high = stats.bootstrap_band(np.array([[1.0, 2.0]]))
    assert (low.tolist(), high.tolist()) == ([1.0, 2.0], [1.0, 2.0])
    assert stats.summary([7.5]) == stats.Summary(mean=7.5, iqm=7.5, low=7.5, high=7.5, count=1, std=0.0)


@pytest.mark.parametrize(
    ("values", "word"),
    [([], "at least one"), ([[1.0, 2.0]], r"shape \(1, 2\)"), ([1.0, np.nan], "value 1 of 2"), ([np.inf], "inf")],
)
def test_bad_values_raise_usage_errors(values, word):
    with pytest.raises(UsageError, match=word):
        stats.summary(values)


@pytest.mark.parametrize("options", [{"confidence": 95.0}, {"confidence": 0.0}, {"resamples": 1}])
def test_bad_options_raise_usage_errors(options):
    with pytest.raises(UsageError, match=next(iter(options))):
        stats.bootstrap_interval([1.0], **options)


def test_modules_load_without_jax_ray_matplotlib_or_scipy():
    code = (
        "import sys, counterpoint.runs.stats, counterpoint.viz.plots;"
        "print(sorted({'jax', 'ray', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_smoothing_uses_past_values_only():
    np.testing.assert_allclose(stats.smoothed(np.array([2.0, 4.0, 6.0, 0.0]), 3), [2.0, 3.0, 4.0, 10 / 3])
    np.testing.assert_allclose(stats.smoothed(np.array([2.0, 4.0]), 1), [2.0, 4.0])
    with pytest.raises(UsageError, match="at least 1"):
        stats.smoothed(np.array([1.0]), 0)


def test_aligned_curves_share_the_positions_that_all_reach():
    first = (np.array([0.0, 10.0, 20.0]), np.array([0.0, 1.0, 3.0]))
    second = (np.array([5.0, 15.0, 30.0]), np.array([7.0, 9.0, 9.0]))
    positions, values = stats.aligned([first, second])
    np.testing.assert_allclose(positions, [5.0, 10.0, 15.0, 20.0])
    np.testing.assert_allclose(values, [[0.5, 1.0, 2.0, 3.0], [7.0, 8.0, 9.0, 9.0]])


def test_long_curves_are_thinned_to_their_ends():
    x = np.arange(5000.0)
    positions, values = stats.aligned([(x, 2 * x)])
    assert positions.size == stats.MOST_POINTS
    assert (positions[0], positions[-1]) == (0.0, 4999.0)
    np.testing.assert_allclose(values[0], 2 * positions)


def test_exact_interval_is_clopper_and_pearsons():
    assert stats.exact_interval(0, 5) == pytest.approx((0.0, 0.5218), abs=1e-4)
    assert stats.exact_interval(3, 5) == pytest.approx((0.1466, 0.9473), abs=1e-4)
    assert stats.exact_interval(5, 5)[1] == 1.0
    with pytest.raises(UsageError, match="6 of 5"):
        stats.exact_interval(6, 5)


def test_probability_of_improvement_counts_pairs_and_half_of_ties():
    assert stats.probability_of_improvement([3, 4], [1, 2]) == 1.0
    assert stats.probability_of_improvement([1, 2, 3], [2, 0]) == 4.5 / 6
    assert stats.probability_of_improvement([1, 1], [1, 1]) == 0.5
    low, high = stats.improvement_interval([1, 2, 3, 4, 5], [2, 3, 4, 5, 6])
    assert 0 < low < stats.probability_of_improvement([1, 2, 3, 4, 5], [2, 3, 4, 5, 6]) < high < 1
    assert stats.improvement_interval([2.0], [1.0]) == (1.0, 1.0)


def test_optimality_gap_is_not_made_up_for_by_values_above_the_target():
    assert stats.optimality_gap([0.5, 1.5], 1.0) == 0.25


@pytest.mark.parametrize(("effect", "seeds"), [(1.0, 17), (0.8, 26), (0.5, 64)])
def test_seeds_needed_agree_with_published_tables(effect, seeds):
    """Cohen's table: two-sided, 5 % level, power 0.8."""
    spread = np.array([-1.0, 0.0, 1.0])  # standard deviation 1
    assert stats.seeds_needed(spread, spread + effect) == seeds


def test_seeds_needed_has_limits():
    assert stats.seeds_needed([0.0, 0.0], [1.0, 1.0]) == 2
    assert stats.seeds_needed([0.0, 1.0], [0.0, 1.0]) is None
    assert stats.seeds_needed([0.0, 1.0], [0.001, 1.001]) is None
    assert stats.seeds_needed([0.0], [1.0, 2.0]) is None
    assert stats.seeds_needed([0.0, 0.1], [1e6, 1e6 + 0.1]) == 2


def test_split_separates_two_clusters_within_a_group():
    assert stats.split_of([[0.0, 0.2, 9.0, 9.4]]) == pytest.approx(4.6)
    assert stats.split_of([[0.0, 0.2], [9.0, 9.4]]) is None  # the groups differ, and not their seeds
    assert stats.split_of([[0.0, 0.1, 0.2, 9.0]]) is None  # one outlier is no cluster
    assert stats.split_of([[1.0, 2.0, 3.0, 4.0, 5.0]]) is None
    assert stats.split_of([[1.0, 1.0, 1.0, 1.0]]) is None
    assert stats.split_of([[0.0, 9.0]]) is None


def test_stratified_interval_resamples_within_strata():
    low, high = stats.stratified_interval([[0.0, 0.0], [10.0, 10.0, 10.0]], stats.mean_of_means)
    assert (low, high) == (5.0, 5.0)  # no stratum varies
    low, high = stats.stratified_interval([[0.0, 2.0, 4.0], [10.0]], stats.mean_of_means)
    assert (low, high) == (5.0, 7.0)
    assert stats.stratified_interval([[1.0], [3.0]], stats.mean_of_means) == (2.0, 2.0)
