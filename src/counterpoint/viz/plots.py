"""Runs as figures. Needs no jax and no display.

A run is its rows of metrics, one per report and seed: {"episode": 400, "seed": 0, "team/good": -31.5, …}. What is empty, absent
or not finite is a gap. Seeds are averaged over the episodes that all of them have reached, with a 95 % bootstrap band.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.errors import UsageError
from counterpoint.runs.stats import Curve, aligned, bootstrap_band, smoothed
from counterpoint.runs.tables import write_whole
from counterpoint.viz.render import BLUE, CYAN, GOLD, GREEN, GREY, INK, PURPLE, RED, STONE, Rgb

Rows = Sequence[Mapping[str, Any]]

METADATA: dict[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""By suffix, what to leave out so that the same rows give the same file."""
PALETTE = (BLUE, RED, GREEN, GOLD, PURPLE, CYAN, STONE)
HUES = {"good": BLUE, "adversary": RED, "bob": BLUE, "eve": RED}
"""Who has one colour in all figures: that of its bodies in the renderer."""
COMMON = ("eval/length", "eval/return_sum")
"""Of every world, so not what a world adds of its own."""
INK_HEX, GREY_HEX = ("#{:02x}{:02x}{:02x}".format(*colour) for colour in (INK, GREY))
STYLE: Any = {
    "font.size": 8.5,
    **{"axes.titlesize": 8.5, "axes.titlelocation": "left", "axes.titlecolor": INK_HEX, "axes.labelcolor": INK_HEX},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "axes.edgecolor": GREY_HEX},
    **{"xtick.color": GREY_HEX, "ytick.color": GREY_HEX, "xtick.major.width": 0.6, "ytick.major.size": 0},
    **{"axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True, "grid.color": "#ebebe8", "grid.linewidth": 0.6},
    **{"legend.frameon": False, "legend.handlelength": 1.4, "legend.labelcolor": INK_HEX, "lines.solid_capstyle": "round"},
    **{"pdf.fonttype": 42, "svg.hashsalt": "counterpoint"},  # fonts that journals take; the same names in every SVG
}


def learning_curve(rows: Rows, path: str | Path, title: str = "", smooth: int = 1, dpi: int = 200) -> None:
    """One run: training return by team, and the world's own figures in evaluation if there are any; single seeds are faint."""
    known = columns(rows)
    teams = [name for name in known if name.startswith("team/")]
    if not teams:
        raise UsageError(f"no return to draw: none of the columns is a team's ({', '.join(known) or 'there are no rows yet'}).")
    figures = [name for name in known if name.startswith("eval/") and name.count("/") == 1 and name not in COMMON]
    down, across = min(max(len(figures), 1), 2), math.ceil(len(figures) / 2)

    def draw(figure: Any) -> None:
        grid = figure.add_gridspec(down, 2 + across, width_ratios=[1.8] * 2 + [2.2] * across)
        axes = figure.add_subplot(grid[:, :2])
        figure.suptitle(title, x=0.01, ha="left", size=10, color=INK_HEX)
        for name, colour in zip(teams, _colours(teams), strict=True):
            _draw_run(axes, rows, name, colour, smooth, name.removeprefix("team/"), seeds=True)
        axes.set(title="training", xlabel="episodes", ylabel="return per episode\n(mean of a team's agents)")
        if len(teams) > 1:
            axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.1, ncols=len(teams), columnspacing=1)
        for i, name in enumerate(figures):
            axes = figure.add_subplot(grid[i % down, 2 + i // down])
            _draw_run(axes, rows, name, _colours([name], default=INK)[0], seeds=True)
            axes.xaxis.get_major_locator().set_params(nbins=3)  # by itself it takes labels for narrower than 12,500 is
            axes.set(title=_axis(name), xlabel="episodes" if i % down == down - 1 or name == figures[-1] else "")
            if axes.dataLim.y0 >= 0 and axes.dataLim.y1 <= 1:  # shares and rates: show how much of the whole they are
                axes.set_ylim(-0.03, 1.03)

    save_figure((3.6 + 2.2 * across, 2.6 if down == 1 else 3.4), path, dpi, draw)


def compare(
    runs: Mapping[str, Rows], path: str | Path, column: str = "team/good", smooth: int = 1, title: str = "", dpi: int = 200
) -> None:
    """One column of several runs, a line each; `smooth` averages that many reports and leaves the raw curve faint behind."""
    if not runs:
        raise UsageError("nothing to compare: give at least one run.")

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for i, (label, rows) in enumerate(runs.items()):
            _draw_run(axes, rows, column, PALETTE[i % len(PALETTE)], smooth, label, line="--" if i >= len(PALETTE) else "-")
        axes.set(title=title, xlabel="episodes", ylabel=_axis(column))
        if len(runs) > 1:
            figure.legend(loc="outside right upper")

    for label, rows in runs.items():
        if not curves(rows, column):
            raise UsageError(f"run {label!r} has no column {column!r}; it has {', '.join(columns(rows)) or 'no rows yet'}.")
    save_figure((4.6 + 0.065 * max(map(len, runs)), 2.9), path, dpi, draw)


def columns(rows: Rows) -> list[str]:
    """The columns that hold a number somewhere, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name, value in row.items() if math.isfinite(_number(value))))


def curves(rows: Rows, column: str) -> list[Curve]:
    """A column over episodes, one curve per seed; of two reports of one episode (a resumed run) the later counts."""
    seeds: dict[Any, dict[float, float]] = {}
    for row in rows:
        episode, value = _number(row.get("episode")), _number(row.get(column))
        if math.isfinite(episode + value):
            seeds.setdefault(row.get("seed"), {})[episode] = value
    return [tuple(np.array(sorted(points.items())).T) for points in seeds.values()]  # pyright: ignore[reportReturnType]


def _draw_run(
    axes: Any, rows: Rows, column: str, colour: Rgb, smooth: int = 1, label: str = "", seeds: bool = False, line: str = "-"
) -> None:
    """Bold, the mean over seeds with its band; faint, where they differ from it, the seeds or the mean before smoothing."""
    raw = curves(rows, column)
    episodes, values = aligned([(x, smoothed(y, smooth)) for x, y in raw])
    average, style = values.mean(axis=0), {"color": [c / 255 for c in colour]}
    if len(raw) > 1 or smooth > 1:
        rough = raw if seeds or not episodes.size else [(episodes, aligned(raw)[1].mean(axis=0))] * (smooth > 1)
        for x, y in rough:
            axes.plot(x, y, linewidth=0.6, alpha=0.3, **style)
    if len(raw) > 1 and episodes.size:
        axes.fill_between(episodes, *bootstrap_band(values), alpha=0.2, linewidth=0, **style)
    lone = "o" if average.size == 1 else ""
    axes.plot(episodes, average, line, marker=lone, markersize=3.5, linewidth=1.5, label=label, **style)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.get_major_locator().set_params(integer=True, nbins=4)


def _colours(names: Sequence[str], default: Rgb | None = None) -> list[Rgb]:
    """A colour for each column: that of whom it names, else the default or the palette's next."""
    whom = [name.split("/")[-1].split("_")[0] for name in names]
    spare = iter([colour for colour in PALETTE if colour not in [HUES.get(who) for who in whom]] * len(names))
    return [HUES.get(who) or default or next(spare) for who in whom]


def _axis(column: str) -> str:
    """What a column measures, for the axis."""
    kind, _, name = column.removeprefix("eval/").partition("/")
    returns = {"team": f"mean of team {name}", "return": name, "return_sum": "sum over agents"}
    text = f"return per episode\n({returns[kind]})" if kind in returns else f"{kind.replace('_', ' ')} {name}".strip()
    return f"eval: {text}" if column.startswith("eval/") else text


def save_figure(size: tuple[float, float], path: str | Path, dpi: int, draw: Callable[[Any], None]) -> None:
    """Draw on a page of so many inches and write it in the format that the path's suffix names."""
    path = Path(path)
    if path.suffix not in METADATA:
        raise UsageError(f"cannot draw to {path}: the name must end in {', '.join(METADATA)}.")
    import matplotlib  # late: it takes half a second, and most commands draw nothing
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")  # without pyplot there is no window and nothing to close
        draw(figure)
        write_whole(path, lambda draft: figure.savefig(draft, dpi=dpi, metadata=METADATA[path.suffix]))


def _number(value: Any) -> float:
    """A cell as a number; a gap is not one."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
