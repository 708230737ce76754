"""The tasks of distributed learners over time, read from a run's `learners.csv`."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from counterpoint.core.errors import UsageError
from counterpoint.runs import metrics
from counterpoint.viz.plots import GREY_HEX, hex_of, save_figure
from counterpoint.viz.render import BLUE, GOLD, RED, STONE

OUTCOMES = {"used": BLUE, "unused": STONE, "stopped": GOLD, "lost": RED}
MOST_LEARNERS = 10_000
"""Learners of a timeline at most: more are damage."""


class Task(NamedTuple):
    """One task of a learner, as a bar of the timeline."""

    update: int
    learner: int
    agents: str
    """Whose updates it computes, such as 0+3."""
    sent: float
    """Seconds since the first of the updates shown began."""
    waited: float
    """Seconds before the learner began."""
    computed: float
    arrived: float
    outcome: str


class Timeline(NamedTuple):
    """The tasks of some updates, one update after the other."""

    tasks: list[Task]
    """Those of the updates shown."""
    begins: dict[int, float]
    """When each update began, in seconds since the first."""
    end: float
    learners: int
    counts: dict[int, dict[str, int]]
    """Of each learner, how many tasks had each outcome in all recorded updates."""


def timeline(path: str | Path, updates: int = 12) -> Timeline:
    """Returns the last updates of a run's `learners.csv`; rows that are no tasks are left out."""
    columns, cells = metrics.read_cells(Path(path))
    tasks = [task for row in cells if (task := _task(dict(zip(columns, row, strict=True))))]
    if not tasks:
        raise UsageError(f"{path} lists no tasks yet: let the run train longer.")
    numbers = sorted({task.update for task in tasks})[-updates:]
    longest: dict[int, float] = dict.fromkeys(numbers, 0.0)
    counts: dict[int, dict[str, int]] = {}
    for task in tasks:
        if task.update in longest:
            longest[task.update] = max(longest[task.update], task.arrived)
        outcomes = counts.setdefault(task.learner, dict.fromkeys(OUTCOMES, 0))
        outcomes[task.outcome] += 1
    begins: dict[int, float] = {}
    end = 0.0
    for number, seconds in longest.items():
        begins[number] = end
        end += seconds * 1.04
    shown = [
        task._replace(sent=begins[task.update] + task.sent, arrived=begins[task.update] + task.arrived)
        for task in tasks
        if task.update in begins
    ]
    return Timeline(shown, begins, end, max(task.learner for task in tasks) + 1, dict(sorted(counts.items())))


def _task(row: Mapping[str, str]) -> Task | None:
    """Returns a row as a task with seconds since its own update began, or None."""
    try:
        times = {name: float(row[name]) for name in ("sent", "waited", "computed", "arrived")}
        task = Task(int(row["update"]), int(row["learner"]), row.get("agents", ""), outcome=row["outcome"], **times)
    except (KeyError, ValueError):
        return None
    fine = task.outcome in OUTCOMES and all(map(math.isfinite, times.values())) and 0 <= task.learner < MOST_LEARNERS
    return task if fine else None


def timeline_figure(path: str | Path, out: str | Path, updates: int = 12) -> None:
    """Plots the last updates of a run's `learners.csv`: a row per learner and a bar per task, coloured by its outcome."""
    found = timeline(path, updates)
    numbers, learners = list(found.begins), found.learners

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for task in found.tasks:
            colour = hex_of(OUTCOMES[task.outcome])
            axes.barh(task.learner, task.arrived - task.sent, left=task.sent, height=0.7, color=colour, alpha=0.3, linewidth=0)
            axes.barh(task.learner, task.computed, left=task.sent + task.waited, height=0.7, color=colour, linewidth=0)
        for begin in found.begins.values():
            axes.axvline(begin, color=GREY_HEX, linewidth=0.5)
        axes.set(xlabel="seconds", ylabel="learner", xlim=(0, found.end), ylim=(learners - 0.4, -0.6))
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set_title(f"updates {numbers[0]} to {numbers[-1]}: computing (solid), waiting and transfer (faint)")
        axes.grid(visible=False)
        handles = [axes.barh(0, 0, color=hex_of(colour), label=name) for name, colour in OUTCOMES.items()]
        figure.legend(handles=handles, loc="outside right upper")

    save_figure((7.0, 1.2 + 0.16 * learners), out, 200, draw)
