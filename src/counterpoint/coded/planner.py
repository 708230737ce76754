"""Which scheme should a cluster use? Delay models in words, recordings of real runs, and predictions for every scheme.

A delay model is written as on the command line: `k=2,delay=0.25` (the paper's: two learners, chosen anew in each iteration,
are a quarter of a second late), `exponential=0.5`, `pareto=1.5`, `pauses=0.1,pause=1`, `slow=2,factor=4` (always the same
two), `crash=0.03,recovery=10`, or several of these at once. The straggler laboratory of `engine.py` understands the same words.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoint.coded.codes import CODES
from counterpoint.coded.simulator import (
    SCHEMES,
    Crashes,
    DelayModel,
    Mixed,
    Pareto,
    Pauses,
    Prediction,
    Recorded,
    ShiftedExponential,
    SlowMachines,
    Stragglers,
    predict,
)
from counterpoint.core.errors import UsageError

WORDS: dict[str, tuple[type, str, type]] = {
    "k": (Stragglers, "count", int),
    "delay": (Stragglers, "delay", float),
    "exponential": (ShiftedExponential, "scale", float),
    "pareto": (Pareto, "shape", float),
    "pauses": (Pauses, "rate", float),
    "pause": (Pauses, "duration", float),
    "slow": (SlowMachines, "count", int),
    "factor": (SlowMachines, "factor", float),
    "crash": (Crashes, "probability", float),
    "recovery": (Crashes, "recovery", float),
}
"""Word → delay model, its field, and that field's type."""

NO_DELAY = Stragglers(0, 0.0)


def delay_models(text: str) -> tuple[DelayModel, ...]:
    """The delay models that the words name, in order; none for an empty text."""
    fields: dict[type, dict[str, Any]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        word, sign, value = part.partition("=")
        if not sign or word not in WORDS:
            raise UsageError(
                f"cannot read {part!r} in the delays {text!r}: write name=value with the names {', '.join(WORDS)}, "
                "such as k=2,delay=0.25."
            )
        model, field, kind = WORDS[word]
        try:
            fields.setdefault(model, {})[field] = kind(value)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise UsageError(f"{word} in the delays {text!r} must be {what}, not {value!r}.") from None
    return tuple(model(**values) for model, values in fields.items())


def delay_model(text: str) -> DelayModel:
    """All those models at once."""
    models = delay_models(text)
    return Mixed(models) if len(models) > 1 else models[0] if models else NO_DELAY


COLUMNS = ("update", "learner", "scheme", "agents", "sent", "waited", "computed", "arrived", "outcome")
"""Of a recorded timeline, one row per task: `agents` such as 0+3; seconds `sent` and `arrived` count from the beginning of the
update, `waited` and `computed` are the learner's own; `outcome` is used, unused, stopped or lost."""


class Recording(NamedTuple):
    """A timeline as the planner needs it."""

    delays: DelayModel
    unit: float
    """Seconds of one agent's update on an ordinary learner."""
    overhead: float
    """Seconds between handing out and arrival that were neither waiting nor computing."""


def read_recording(path: str | Path) -> Recording:
    """The delays in the timeline of a real run (a run's folder, or its `learners.csv`)."""
    path = Path(path)
    path = path / "learners.csv" if path.is_dir() else path
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the timeline {path} ({error}): name a distributed run or its learners.csv.") from None
    try:
        return recording_of(rows)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is no timeline of learners ({error}): it needs the columns {', '.join(COLUMNS)}.") from None


def recording_of(rows: Sequence[Mapping[str, Any]]) -> Recording:
    """Delay and pace of every learner in every update; where a learner had no task it counts as ordinary.

    A task that was stopped or lost says only that the learner was at least so slow.
    """
    whole = [row for row in rows if row["outcome"] in ("used", "unused")]
    if not whole:
        raise ValueError("no task was finished")
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


def possible_schemes(num_agents: int, num_learners: int, schemes: Sequence[str] = SCHEMES) -> tuple[str, ...]:
    """Those of the schemes that so few learners can carry: a code needs one learner per agent, and `cyclic:s` s more."""
    spare = num_learners - num_agents

    def possible(scheme: str) -> bool:
        name, _, number = scheme.partition("+")[0].partition(":")
        if name in ("stream", "backup", "hedge"):
            return True
        needed = int(number) if name == "cyclic" and number.isdecimal() else 0
        return spare >= needed or name not in (*CODES, "fastest_first")

    return tuple(filter(possible, schemes))


def usual_trials(num_agents: int, num_learners: int) -> int:
    """So many that the largest cluster still takes seconds: 2000 for the paper's, at least 100."""
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
    """Predictions for all the schemes that are possible; the others are named through `say`."""
    possible = possible_schemes(num_agents, num_learners, schemes)
    if left_out := [scheme for scheme in schemes if scheme not in possible]:
        say(f"left out, for want of learners: {', '.join(left_out)}")
    trials = trials or usual_trials(num_agents, num_learners)
    return predict(num_agents, num_learners, delays, unit, overhead, agent_bytes, possible, trials, seed)
