"""The tasks of distributed learners over time, read from a run's `learners.csv`."""

from pathlib import Path
from typing import Any

from counterpoint.core.errors import UsageError
from counterpoint.runs import metrics
from counterpoint.viz.plots import GREY_HEX, hex_of, save_figure
from counterpoint.viz.render import BLUE, GOLD, RED, STONE

OUTCOMES = {"used": BLUE, "unused": STONE, "stopped": GOLD, "lost": RED}


def timeline_figure(path: str | Path, out: str | Path, updates: int = 12) -> None:
    """Plots the last updates of a run's `learners.csv`: a row per learner and a bar per task, coloured by its outcome."""
    columns, cells = metrics.read_cells(Path(path))
    rows = [dict(zip(columns, row, strict=True)) for row in cells]
    rows = [row for row in rows if row.get("outcome") in OUTCOMES]
    if not rows:
        raise UsageError(f"{path} lists no tasks yet: let the run train longer.")
    numbers = sorted({int(row["update"]) for row in rows})[-updates:]
    begins: dict[int, float] = {}
    end = 0.0
    for number in numbers:
        begins[number] = end
        end += max(float(row["arrived"]) for row in rows if int(row["update"]) == number) * 1.04
    learners = max(int(row["learner"]) for row in rows) + 1

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for row in rows:
            number, learner = int(row["update"]), int(row["learner"])
            if number not in begins:
                continue
            sent, arrived = begins[number] + float(row["sent"]), begins[number] + float(row["arrived"])
            waited, computed = float(row["waited"]), float(row["computed"])
            colour = hex_of(OUTCOMES[row["outcome"]])
            axes.barh(learner, arrived - sent, left=sent, height=0.7, color=colour, alpha=0.3, linewidth=0)
            axes.barh(learner, computed, left=sent + waited, height=0.7, color=colour, linewidth=0)
        for number in numbers:
            axes.axvline(begins[number], color=GREY_HEX, linewidth=0.5)
        axes.set(xlabel="seconds", ylabel="learner", xlim=(0, end), ylim=(learners - 0.4, -0.6))
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set_title(f"updates {numbers[0]} to {numbers[-1]}: computing (solid), waiting and transfer (faint)")
        axes.grid(visible=False)
        handles = [axes.barh(0, 0, color=hex_of(colour), label=name) for name, colour in OUTCOMES.items()]
        figure.legend(handles=handles, loc="outside right upper")

    save_figure((7.0, 1.2 + 0.16 * learners), out, 200, draw)
