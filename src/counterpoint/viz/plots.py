"""Plots of runs. They need neither jax nor a display.

A run is given by its rows of metrics, one per report and seed: {"episode": 400, "seed": 0, "team/good": -31.5, …}. A value that
is empty, absent or not finite is a gap. Curves average the seeds over the episodes that all of them have reached, with a 95 %
bootstrap band.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.errors import UsageError
from counterpoint.runs.files import write_whole
from counterpoint.runs.stats import Curve, aligned, bootstrap_band, smoothed
from counterpoint.viz.render import BLUE, CYAN, GOLD, GREEN, GREY, INK, PURPLE, RED, STONE, Rgb

Rows = Sequence[Mapping[str, Any]]

METADATA: dict[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""By suffix, the metadata to leave out so that the same rows give the same file."""
PALETTE = (BLUE, RED, GREEN, GOLD, PURPLE, CYAN, STONE)
HUES = {"good": BLUE, "adversary": RED, "bob": BLUE, "eve": RED}
"""Teams and roles that keep the colour of their bodies in the renderer."""
COMMON = ("eval/length", "eval/return_sum")
"""Evaluation columns of every environment, which are not metrics of its own."""


def hex_of(colour: Rgb) -> str:
    """Returns the colour in the notation of matplotlib."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


INK_HEX, GREY_HEX = hex_of(INK), hex_of(GREY)
STYLE: Any = {
    "font.size": 8.5,
    **{"axes.titlesize": 8.5, "axes.titlelocation": "left", "axes.titlecolor": INK_HEX, "axes.labelcolor": INK_HEX},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "axes.edgecolor": GREY_HEX},
    **{"xtick.color": GREY_HEX, "ytick.color": GREY_HEX, "xtick.major.width": 0.6, "ytick.major.size": 0},
    **{"axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True, "grid.color": "#ebebe8", "grid.linewidth": 0.6},
    **{"legend.frameon": False, "legend.handlelength": 1.4, "legend.labelcolor": INK_HEX, "lines.solid_capstyle": "round"},
    **{"pdf.fonttype": 42, "svg.hashsalt": "counterpoint"},  # fonts that journals accept; stable names in every SVG
}


def learning_curve(rows: Rows, path: str | Path, title: str = "", smooth: int = 1, dpi: int = 200) -> None:
    """Plots one run: training returns by team and the environment's own metrics in evaluation; single seeds are faint."""
    known = columns(rows)
    teams = [name for name in known if name.startswith("team/")]
    if not teams:
        raise UsageError(f"no return to plot: no column holds a team's return ({', '.join(known) or 'there are no rows yet'}).")
    metrics = [name for name in known if name.startswith("eval/") and name.count("/") == 1 and name not in COMMON]
    down, across = min(max(len(metrics), 1), 2), math.ceil(len(metrics) / 2)

    def draw(figure: Any) -> None:
        grid = figure.add_gridspec(down, 2 + across, width_ratios=[1.8] * 2 + [2.2] * across)
        axes = figure.add_subplot(grid[:, :2])
        figure.suptitle(short_label(title, 80), x=0.01, ha="left", size=10, color=INK_HEX)
        for name, colour in zip(teams, _colours(teams), strict=True):
            _draw_run(axes, rows, name, colour, smooth, short_label(name.removeprefix("team/")), seeds=True)
        axes.set(title="training", xlabel="episodes", ylabel="return per episode\n(mean of a team's agents)")
        if len(teams) > 1:
            axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.1, ncols=len(teams), columnspacing=1)
        for i, name in enumerate(metrics):
            axes = figure.add_subplot(grid[i % down, 2 + i // down])
            _draw_run(axes, rows, name, _colours([name], default=INK)[0], seeds=True)
            axes.xaxis.get_major_locator().set_params(nbins=3)  # matplotlib underestimates the width of labels such as 12,500
            axes.set(title=axis_label(name), xlabel="episodes" if i % down == down - 1 or name == metrics[-1] else "")
            if axes.dataLim.y0 >= 0 and axes.dataLim.y1 <= 1:  # shares and rates: show the whole range
                axes.set_ylim(-0.03, 1.03)

    save_figure((3.6 + 2.2 * across, 2.6 if down == 1 else 3.4), path, dpi, draw)


def short_label(text: str, most: int = 40) -> str:
    """Returns a text that fits beside a curve."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def compare(
    runs: Mapping[str, Rows], path: str | Path, column: str = "team/good", smooth: int = 1, title: str = "", dpi: int = 200
) -> None:
    """Plots one column of several runs, one line each; `smooth` averages that many reports and draws the raw curve faintly."""
    if not runs:
        raise UsageError("there is nothing to compare: give at least one run.")

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for i, (label, rows) in enumerate(runs.items()):
            _draw_run(axes, rows, column, PALETTE[i % len(PALETTE)], smooth, label, line="--" if i >= len(PALETTE) else "-")
        axes.set(title=title, xlabel="episodes", ylabel=axis_label(column))
        if len(runs) > 1:
            figure.legend(loc="outside right upper")

    for label, rows in runs.items():
        if not curves(rows, column):
            raise UsageError(f"run {label!r} has no column {column!r}; it has {', '.join(columns(rows)) or 'no rows yet'}.")
    save_figure((4.6 + 0.065 * max(map(len, runs)), 2.9), path, dpi, draw)


def columns(rows: Rows) -> list[str]:
    """Returns the columns that contain a finite number, in order of appearance."""
    found: dict[str, None] = {}
    for row in rows:
        if len(found) < len(row) or not row.keys() <= found.keys():  # most rows add nothing
            found |= {name: None for name, value in row.items() if name not in found and math.isfinite(_number(value))}
    return list(found)


def curves(rows: Rows, column: str) -> list[Curve]:
    """Returns a column over episodes, one curve per seed; the later of two reports of the same episode counts."""
    seeds: dict[Any, dict[float, float]] = {}
    for row in rows:
        episode, value = _number(row.get("episode")), _number(row.get(column))
        if math.isfinite(episode + value):
            seeds.setdefault(row.get("seed"), {})[episode] = value
    return [tuple(np.array(sorted(points.items())).T) for points in seeds.values()]  # pyright: ignore[reportReturnType]


def _draw_run(
    axes: Any, rows: Rows, column: str, colour: Rgb, smooth: int = 1, label: str = "", seeds: bool = False, line: str = "-"
) -> None:
    """Draws the mean over seeds with its band, and faintly the seeds or the raw mean where they differ from it."""
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
    """Returns a colour for each column: that of the team or role it names, else the default or the next of the palette."""
    roles = [name.split("/")[-1].split("_")[0] for name in names]
    spare = iter([colour for colour in PALETTE if colour not in [HUES.get(role) for role in roles]] * len(names))
    return [HUES.get(role) or default or next(spare) for role in roles]


def axis_label(column: str) -> str:
    """Returns the axis label of a column."""
    kind, _, name = column.removeprefix("eval/").partition("/")
    returns = {"team": f"mean of team {name}", "return": name, "return_sum": "sum over agents"}
    text = f"return per episode\n({returns[kind]})" if kind in returns else f"{kind.replace('_', ' ')} {name}".strip()
    return f"eval: {text}" if column.startswith("eval/") else text


def save_figure(
    size: tuple[float, float], path: str | Path, dpi: int, draw: Callable[[Any], None], style: Mapping[str, Any] | None = None
) -> None:
    """Creates a figure of this size in inches, calls `draw` with it, and writes it in the format of the path's suffix."""
    path = Path(path)
    if path.suffix not in METADATA:
        raise UsageError(f"cannot write {path}: the name must end in {', '.join(METADATA)}.")
    import matplotlib  # imported late: it takes half a second, and most commands plot nothing
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE | dict(style or {})), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a name may have letters that the font lacks
        figure = Figure(figsize=size, layout="constrained")  # without pyplot there is no window and nothing to close
        draw(figure)
        _take_names_literally(figure)
        write_whole(path, lambda draft: figure.savefig(draft, dpi=dpi, metadata=METADATA[path.suffix]))


def _take_names_literally(figure: Any) -> None:
    """Lets titles, labels and legends show dollar signs as they are; only the numbers of logarithmic axes are formulas."""
    from matplotlib.axis import Tick
    from matplotlib.text import Text

    numbers = {id(text) for tick in figure.findobj(Tick) for text in tick.findobj(Text)}
    for text in figure.findobj(Text):
        if id(text) not in numbers:
            text.set_parse_math(False)


def _number(value: Any) -> float:
    """Returns a cell as a number, or NaN for a gap."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
