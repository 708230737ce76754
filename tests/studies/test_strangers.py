"""Scores between teams that were not trained together."""

import numpy as np
import pytest

from counterpoint.studies.strangers import cross, means, resampled


def test_every_cell_meets_strangers() -> None:
    """Seeds k and j meet unless they are the same: a team of the same seed may have been the partner in training."""
    table = cross(lambda k, j: 10.0 * k + j, 3)
    np.testing.assert_array_equal(table, [[np.nan, 1.0, 2.0], [10.0, np.nan, 12.0], [20.0, 21.0, np.nan]])
    assert means(table) == pytest.approx(11.0)


def test_intervals_follow_the_seeds_of_both_sides() -> None:
    """Only one seed of the second team is weak: the interval spans what the draws can give, though the first do not differ."""
    table = np.where(np.eye(4, dtype=bool), np.nan, np.array([8.0, 0.0, 0.0, 0.0])[None, :])
    drawn = resampled(np.array([[table, table], [table, table]]))
    assert np.percentile(drawn[:, 0, 0], 2.5) == 0.0
    assert np.percentile(drawn[:, 0, 0], 97.5) > 4.0
    two_seeds = np.broadcast_to(np.array([[np.nan, 1.0], [1.0, np.nan]]), (2, 2, 2, 2))
    assert np.all(resampled(two_seeds) == 1.0), "draws in which nobody met are left out"
