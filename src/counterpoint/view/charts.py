"""Curves and statistics of chosen runs for the page: the data of `counterpoint compare`, by its own functions."""

import csv
import io
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import numpy as np

from counterpoint.core.errors import UsageError
from counterpoint.runs import Run
from counterpoint.runs.stats import aligned, smoothed
from counterpoint.studies import compare
from counterpoint.studies.compare import X_COLUMNS, X_LABELS, Axis, Grouped
from counterpoint.view.catalogue import id_of
from counterpoint.view.curves import plain
from counterpoint.viz.comparison import FEW_SEEDS, band_of, colours_of
from counterpoint.viz.plots import axis_label, columns

MOST_METRICS = 24
"""Metrics drawn at once at most."""
MOST_GROUPS = 12
"""Groups whose pairs are judged at most: each pair takes a bootstrap."""
MOST_LINES = 12
"""Seeds of a group that are drawn one by one at most."""
NO_METRICS = ("step", "episode", "seed", "seconds")
"""Columns that are an axis or a name."""
DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}


class Wish(NamedTuple):
    """What the page asks for."""

    runs: Sequence[Run]
    metrics: Sequence[str] = ()
    """Ids of columns; none is compare's default."""
    x: Axis = "episodes"
    smooth: int = 1
    by: str = ""
    seeds: bool = False
    """Whether to draw every seed."""


def wish_of(runs: Sequence[Run], query: Any) -> Wish:
    """Returns a checked wish from the fields of a request."""
    x = query.get("x") or "episodes"
    if x not in get_args(Axis):
        raise UsageError(f"x must be one of {', '.join(get_args(Axis))}, not {plain(x)[:40]}.")
    try:
        smooth = int(query.get("smooth") or 1)
    except ValueError:
        smooth = 0
    if not 1 <= smooth <= 1000:
        raise UsageError("smooth must be a whole number from 1 to 1000.")
    return Wish(runs, query.getlist("metric")[:MOST_METRICS], x, smooth, query.get("by") or "", query.get("seeds") == "1")


def offered(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Returns the metrics of runs by family: returns of teams, returns of agents, evaluation, and what algorithms report."""
    names = list(dict.fromkeys(name for run in runs for name in columns(run.rows()) if name not in NO_METRICS))
    agents = {name.removeprefix("return/") for name in names if name.startswith("return/")}
    families: dict[str, list[dict[str, str]]] = {}
    for name in names:
        family, short = family_of(name, agents)
        families.setdefault(family, []).append({"id": id_of(name), "label": plain(short)})
    order = ["evaluation: return of teams", "evaluation", "training: return of teams", "evaluation: return of agents"]
    rank = {family: k for k, family in enumerate(order)}
    return [
        {"family": plain(family), "metrics": members}
        for family, members in sorted(families.items(), key=lambda item: rank.get(item[0], len(rank)))
    ]


def family_of(name: str, agents: set[str]) -> tuple[str, str]:
    """Returns the family of a column and its name within it."""
    kind, rest = ("evaluation", name.removeprefix("eval/")) if name.startswith("eval/") else ("training", name)
    for prefix, what in (("team/", "return of teams"), ("return/", "return of agents")):
        if rest.startswith(prefix):
            return f"{kind}: {what}", rest.removeprefix(prefix)
    first, _, agent = rest.partition("/")
    if agent in agents:
        return f"{first.replace('_', ' ')} of agents", agent
    return kind, rest.replace("_", " ")


def drawn(wish: Wish) -> dict[str, Any]:
    """Returns the curves of each metric and environment with their bands, and sentences about what is left out."""
    notes: list[str] = []
    panels = []
    found = _grouped(wish, notes)
    for grouped in found:
        looks = colours_of(grouped.curves)
        for title, groups in grouped.curves.items():
            lines = [_line(label, seeds, wish, looks[label]) for label, seeds in groups.items()]
            seen = [y for line in lines for ys in (line["low"], line["high"], *(ys for _, ys in line["lines"])) for y in ys]
            panels.append(
                {
                    "title": title,
                    "metric": grouped.metric,
                    "x": X_LABELS[wish.x],
                    "y": axis_label(grouped.metric).split("\n"),
                    "share": all(0 <= y <= 1 for y in seen),
                    "groups": lines,
                }
            )
        notes += [note for note in grouped.notes if note not in notes]
    return {"panels": panels, "notes": notes, "by": list(dict.fromkeys(name for grouped in found for name in grouped.by))}


def _line(label: str, seeds: Sequence[Any], wish: Wish, look: dict[str, str]) -> dict[str, Any]:
    """Returns one group of a panel."""
    smooth = [(x, smoothed(y, wish.smooth)) for x, y in seeds]
    line: dict[str, Any] = {
        "label": label,
        "seeds": len(seeds),
        "colour": look["color"],
        "dash": DASHES[look["linestyle"]],
        "band": "range of the seeds" if len(seeds) <= FEW_SEEDS else "95 % interval of the mean",
        "lines": [],
    }
    try:
        x, mean, low, high = (part.tolist() for part in band_of(smooth))
    except UsageError:  # the seeds have no common part: an early end, or a run that goes on alone
        x, mean, low, high = [], [], [], []
    if (wish.seeds and len(seeds) > 1) or not x:
        line["lines"] = [[part.tolist() for part in _thin(curve)] for curve in smooth[:MOST_LINES]]
    return line | {"x": x, "mean": mean, "low": low, "high": high}


def _thin(curve: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns a curve with at most as many points as a page can show."""
    x, values = aligned([curve])
    return x, values[0]


def judged(wish: Wish) -> dict[str, Any]:
    """Returns the tables and notes that `counterpoint compare` prints, of each metric."""
    notes: list[str] = []
    tables = []
    for grouped in _grouped(wish, notes):
        most = max(len(groups) for groups in grouped.curves.values())
        if most > MOST_GROUPS:
            raise UsageError(
                f"there are {most} groups, and every pair of them is compared: choose fewer runs, or group them by a setting"
                f" with at most {MOST_GROUPS} values."
            )
        result, _ = compare.judge(grouped, wish.smooth)
        tables += [{"title": title, "header": header, "rows": rows} for title, header, rows in compare.tables(result)]
        notes += [note for note in result.notes if note not in notes]
    return {"tables": tables, "notes": notes}


def table(wish: Wish) -> str:
    """Returns every point of every seed as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["environment", "group", "run", "seed", X_COLUMNS[wish.x], "metric", "value"])
    for grouped in _grouped(wish, []):
        _, rows = compare.curve_table(grouped, wish.x)
        for title, label, run, seed, x, value in rows:
            writer.writerow([*map(inert, (title, label, run)), seed, x, inert(grouped.metric), value])
    return text.getvalue()


def inert(text: str) -> str:
    """Returns a text that a spreadsheet shows and does not compute."""
    text = plain(text)
    return f"'{text}" if text[:1] in "=+-@" and text else text


def _grouped(wish: Wish, notes: list[str]) -> list[Grouped]:
    """Returns the groups of each wanted metric; runs that lack it are left out, with a note."""
    known = {run.path: columns(run.rows()) for run in wish.runs}
    silent = [run.name for run in wish.runs if not known[run.path]]
    if silent:
        notes.append(f"{_names(silent)} {_has(silent)} no reports yet and {_is(silent)} left out.")
    runs = [run for run in wish.runs if known[run.path]]
    if not runs:
        raise UsageError("the chosen runs have no reports yet: they appear with their first report.")
    by_id = {id_of(name): name for names in known.values() for name in names}
    wanted = [by_id[key] for key in wish.metrics if key in by_id]
    if wish.metrics and not wanted:
        raise UsageError("none of the chosen runs has this metric: choose another one.")
    found = []
    for metric in wanted or [""]:
        having = [run for run in runs if not metric or metric in known[run.path]]
        without = [run.name for run in runs if run not in having]
        if without:
            notes.append(f"{_names(without)} {_has(without)} no {metric} and {_is(without)} left out.")
        found.append(compare.group(having, wish.by, metric, wish.x))
    return found


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _has(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
