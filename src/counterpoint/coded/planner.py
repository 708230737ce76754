"""The planner: reads delays from recordings of real runs and compares the predicted costs of all schemes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoint.coded.delays import DelayModel, Recorded
from counterpoint.coded.schemes import SCHEMES, possible_schemes
from counterpoint.coded.simulator import Prediction, predict
from counterpoint.core.errors import UsageError
from counterpoint.runs import metrics

COLUMNS = ("update", "learner", "scheme", "agents", "sent", "waited", "computed", "arrived", "outcome")
"""Columns of a recorded timeline, which has one row per task. `agents` is written like 0+3; `sent` and `arrived` are seconds
since the update began, `waited` and `computed` are measured by the learner; `outcome` is used, unused, stopped or lost."""


class Recording(NamedTuple):
    """Delays and costs extracted from a timeline."""

    delays: DelayModel
    unit: float
    """Seconds of one agent's update on a normal learner."""
    overhead: float
    """Seconds between sending a task and its result, without waiting and computing."""


def read_recording(path: str | Path) -> Recording:
    """Reads the delays from a run's timeline (its folder or its `learners.csv`)."""
    path = Path(path)
    path = path / "learners.csv" if path.is_dir() else path
    try:
        path.open("rb").close()
        columns, cells = metrics.read_cells(path)
        rows = [dict(zip(columns, row, strict=True)) for row in cells]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the timeline {path} ({error}): name a distributed run or its learners.csv.") from None
    try:
        return recording_of(rows)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path} is not a timeline of learners ({error}): it needs the columns {', '.join(COLUMNS)}."
        ) from None


def recording_of(rows: Sequence[Mapping[str, Any]]) -> Recording:
    """Returns the delay and pace of every learner in every update; a learner without a task counts as normal.

    A stopped or lost task only gives a lower bound on the learner's slowness.
    """
    whole = [row for row in rows if row["outcome"] in ("used", "unused")]
    if not whole:
        raise ValueError("no task finished")
    unit = float(np.median([float(row["computed"]) / _count(row) for row in whole]))
    between = [float(r["arrived"]) - float(r["sent"]) - float(r["waited"]) - float(r["computed"]) for r in whole]
    updates = {number: i for i, number in enumerate(sorted({int(row["update"]) for row in rows}))}
    shape = (len(updates), max(int(row["learner"]) for row in rows) + 1)
    start, work, done = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for row in rows:
        at = updates[int(row["update"])], int(row["learner"])
        if row["outcome"] == "lost":
            start[at] += float(row["arrived"]) - float(row["sent"])
            continue
        start[at] += float(row["waited"])
        if row["outcome"] != "stopped" or float(row["computed"]) > unit * _count(row):
            work[at] += float(row["computed"])
            done[at] += unit * _count(row)
    pace = np.where(done > 0, work / np.where(done > 0, done, 1.0), 1.0)
    return Recording(Recorded(start, np.maximum(pace, 1e-3)), max(unit, 1e-6), max(0.0, float(np.median(between))))


def _count(row: Mapping[str, Any]) -> int:
    return str(row["agents"]).count("+") + 1


def usual_trials(num_agents: int, num_learners: int) -> int:
    """Returns a number of trials, from 2000 for the paper's cluster down to 100, that keeps simulations short."""
    return int(np.clip(2e7 / (num_agents * num_learners), 100, 2000))


def compare(
    num_agents: int,
    num_learners: int,
    delays: DelayModel,
    unit: float,
    overhead: float,
    agent_bytes: int,
    trials: int = 0,
    seed: int = 0,
    say: Callable[[str], None] = lambda sentence: None,
    schemes: Sequence[str] = SCHEMES,
) -> list[Prediction]:
    """Predicts all schemes that these learners can run and reports the others through `say`."""
    possible = possible_schemes(num_agents, num_learners, schemes)
    if left_out := [scheme for scheme in schemes if scheme not in possible]:
        say(f"left out because they need more learners: {', '.join(left_out)}")
    trials = trials or usual_trials(num_agents, num_learners)
    return predict(num_agents, num_learners, delays, unit, overhead, agent_bytes, possible, trials, seed)
