"""Whether the reports of a run improve: its score by seed and team, from metrics.csv alone."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterpoint.runs.history import SUCCESS

SOLVED = 0.8
"""The share of successful episodes from which on a run counts as solved."""
Rows = Sequence[Mapping[str, Any]]


def of_seed(rows: Rows, seed: Any) -> list[Mapping[str, Any]]:
    """Returns the reports of one seed."""
    return [row for row in rows if row.get("seed") == seed]


def column(rows: Rows, name: str) -> np.ndarray:
    """Returns a column of metrics as numbers, NaN where a report has none."""
    cells = (row.get(name) for row in rows)
    return np.array([float(cell) if isinstance(cell, int | float) else math.nan for cell in cells])


def finite(rows: Rows, name: str) -> np.ndarray:
    """Returns the finite numbers of a column of metrics."""
    values = column(rows, name)
    return values[np.isfinite(values)]


def success(rows: Rows) -> float | None:
    """Returns the share of successful episodes in the last evaluation, or None if the environment reports none."""
    for name in SUCCESS:
        if (values := finite(rows, name)).size:
            return float(values[-1])
    return None


def returns(rows: Rows, prefix: str = "team/") -> dict[str, np.ndarray]:
    """Returns the mean return of each team, report by report: in training, or with "eval/team/" of greedy play."""
    names = dict.fromkeys(name for row in rows for name in row if name.startswith(prefix))
    found = {name.removeprefix(prefix): finite(rows, name) for name in names}
    return {team: values for team, values in found.items() if values.size}


def improved(rows: Rows) -> bool | None:
    """Returns whether one seed's returns in training rose above those of its first report; None if nobody can tell.

    The first report covers the warm-up, or else the time when the team knew least. With several teams one may rise because
    another falls, so only a rise tells something.
    """
    share = success(rows)
    if share is not None and share >= SOLVED:
        return True
    teams = returns(rows)
    if not teams or min(map(len, teams.values())) < 3:
        return None
    if any(rise(values) > 0 for values in teams.values()):
        return True
    return False if len(teams) == 1 else None


def rise(values: np.ndarray) -> float:
    """Returns by how much the last third of the reports is above the first one, beyond twice its own noise."""
    last = values[-max(2, len(values) // 3) :]
    noise = float(np.std(last, ddof=1)) / math.sqrt(len(last))
    return float(np.mean(last) - values[0] - 2 * noise - 1e-6 * abs(values[0]))


def is_flat(rows: Rows) -> bool:
    """Returns whether no seed of a run improved over its start, as far as its reports tell."""
    seeds = dict.fromkeys(row.get("seed") for row in rows)
    return bool(seeds) and all(improved(of_seed(rows, seed)) is False for seed in seeds)
