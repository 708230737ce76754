"""Settings of distributed learning: which values are rejected, and when."""

import dataclasses

import pytest

from counterpoint.coded.settings import Distribution
from counterpoint.core.errors import UsageError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learners": -1}, "--learners must be at least 0, not -1"),
        ({"pad": float("nan")}, "--pad must be at least 0, not nan"),
        ({"patience": 0.0}, "--patience must be at least 1, not 0"),
        ({"patience": float("inf")}, "--patience must be at least 1, not inf"),
        ({"min_learners": 0}, "--min-learners must be at least 1, not 0"),
        ({"timeline": -1}, "--timeline must be at least 0, not -1"),
    ],
)
def test_values_out_of_bounds_are_rejected_at_construction(settings, message):
    with pytest.raises(UsageError, match=message):
        Distribution(**settings)
    with pytest.raises(UsageError, match=message):
        dataclasses.replace(Distribution(), **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"code": "mdss"}, "unknown scheme 'mdss'"),
        ({"code": "mds", "learners": 3}, "at least 4 learners"),
        ({"straggle": "k=9,delay=1"}, "9 stragglers among 7 learners"),
        ({"straggle": "late=1"}, "cannot parse 'late=1'"),
        ({"min_learners": 8}, "--min-learners 8 is more than --learners 7"),
    ],
)
def test_settings_that_do_not_fit_together_are_rejected_by_check(settings, message):
    """Construction accepts them, because settings may be changed one at a time."""
    distribution = Distribution(**({"learners": 7} | settings))
    with pytest.raises(UsageError, match=message):
        distribution.check(4)


def test_settings_of_learners_are_ignored_without_learners():
    Distribution(code="mdss", straggle="late=1", min_learners=8).check(4)
    assert Distribution().learners == 0
