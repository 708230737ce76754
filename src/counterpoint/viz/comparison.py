"""Figures that compare groups of runs: learning curves with bands over seeds, and performance profiles.

A group is all seeds of all runs that share the compared settings. The band is the 95 % bootstrap interval of the mean; two or
three seeds are too few for one, so their band is the range from the lowest to the highest seed.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from counterpoint.core.errors import UsageError
from counterpoint.runs.stats import Curve, aligned, bootstrap_band, smoothed
from counterpoint.viz.plots import INK_HEX, PALETTE, hex_of, save_figure, short_label

Style = Literal["paper", "slide"]
FEW_SEEDS = 3
"""Up to this many seeds, a band is their range."""
SUFFIXES = (".png", ".pdf", ".svg")
DPI = 200
WIDTHS: dict[Style, float] = {"paper": 5.5, "slide": 12.0}
"""Width of a figure in inches: the text width of a conference paper, and a slide."""
_PAPER = {"font.size": 8, "axes.titlesize": 8, "lines.linewidth": 1.3}
_SLIDE = {"font.size": 17, "axes.titlesize": 17, "lines.linewidth": 3.0, "axes.linewidth": 1.2, "grid.linewidth": 1.0}
STYLES: dict[Style, dict[str, Any]] = {"paper": _PAPER, "slide": _SLIDE}


class Look(NamedTuple):
    """How a figure is drawn."""

    style: Style = "paper"
    width: float = 0.0
    """Width in inches; 0 is that of the style."""
    log: bool = False
    """Whether the vertical axis is logarithmic (symmetrically around zero if there are values of 0 and below)."""

    @property
    def inches(self) -> float:
        return self.width or WIDTHS[self.style]


Groups = Mapping[str, Sequence[Curve]]
"""The curves of each group's seeds, by the group's label."""


def curves(
    panels: Mapping[str, Groups], folder: Path, xlabel: str, ylabel: str, smooth: int = 1, look: Look | None = None
) -> list[Path]:
    """Writes curves.png, .pdf and .svg with one panel per environment; returns their paths."""
    look = look or Look()
    across = min(len(panels), 3)
    down = math.ceil(len(panels) / across)
    colours = colours_of(panels)

    def draw(figure: Any) -> None:
        axes = list(figure.subplots(down, across, squeeze=False).ravel())
        for i, (title, groups) in enumerate(panels.items()):
            for label, seeds in groups.items():
                _draw_group(axes[i], seeds, smooth, label, **colours[label])
            axes[i].set(title=short_label(title), ylabel=ylabel if i % across == 0 else "")
            axes[i].set_xlabel(xlabel if i + across >= len(panels) else "")
            _scale(axes[i], groups, look)
        for spare in axes[len(panels) :]:
            spare.set_visible(False)
        _legend(figure, axes, colours, look)

    return _save("curves", folder, look, (across, down), draw)


def profiles(
    thresholds: np.ndarray,
    bands: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]],
    folder: Path,
    look: Look | None = None,
) -> list[Path]:
    """Writes profiles.png, .pdf and .svg: the share of seeds above each normalised score, with its interval, by group."""
    look = look or Look()
    colours = colours_of({"": bands})

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for label, (share, low, high) in bands.items():
            axes.plot(thresholds, share, label=short_label(label, 60), **colours[label])
            axes.fill_between(thresholds, low, high, alpha=0.2, linewidth=0, color=colours[label]["color"])
        axes.set(xlabel="normalised score τ", ylabel="share of seeds with a score above τ", xlim=(0, 1), ylim=(-0.03, 1.03))
        _legend(figure, [axes], colours, look)

    return _save("profiles", folder, look, (1, 1), draw)


def band_of(seeds: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the x positions that all seeds reach, and the mean and the lower and upper end of the band there."""
    x, values = aligned(seeds)
    if not x.size:
        raise UsageError("the seeds of a group share no part of the axis: leave out those that ended early.")
    if len(values) <= FEW_SEEDS:
        return x, values.mean(axis=0), values.min(axis=0), values.max(axis=0)
    return x, values.mean(axis=0), *bootstrap_band(values)


def colours_of(panels: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Returns the colour and the line style of each label; they are the same in all panels."""
    labels = list(dict.fromkeys(label for groups in panels.values() for label in groups))
    lines = ("-", "--", ":", "-.")
    return {
        label: {"color": hex_of(PALETTE[i % len(PALETTE)]), "linestyle": lines[i // len(PALETTE) % len(lines)]}
        for i, label in enumerate(labels)
    }


def _draw_group(axes: Any, seeds: Sequence[Curve], smooth: int, label: str, color: str, linestyle: str) -> None:
    x, average, low, high = band_of([(x, smoothed(y, smooth)) for x, y in seeds])
    if len(seeds) > 1:
        axes.fill_between(x, low, high, alpha=0.2, linewidth=0, color=color)
    lone = "o" if x.size == 1 else ""
    axes.plot(x, average, label=short_label(label, 60), color=color, linestyle=linestyle, marker=lone)


def _scale(axes: Any, groups: Groups, look: Look) -> None:
    lowest = min(float(np.min(y)) for seeds in groups.values() for _, y in seeds)
    if look.log:
        axes.set_yscale("log" if lowest > 0 else "symlog")
    elif axes.dataLim.y0 >= 0 and axes.dataLim.y1 <= 1:  # shares and rates: show the whole range
        axes.set_ylim(-0.03, 1.03)
    axes.xaxis.set_major_formatter(_short_number)
    axes.xaxis.get_major_locator().set_params(nbins=4)


def _short_number(value: float, _: int | None = None) -> str:
    """Returns a number of an axis in few characters: 20k, 1.5M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _legend(figure: Any, axes: Sequence[Any], colours: Mapping[str, Any], look: Look) -> None:
    """Puts one legend for all panels below them."""
    handles = {label: line for panel in axes for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    size = STYLES[look.style]["font.size"]
    longest = 0.6 * size / 72 * (4 + max(map(len, colours)))
    columns = max(1, min(len(handles), int(look.inches / longest)))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns, labelcolor=INK_HEX)


def _save(name: str, folder: Path, look: Look, grid: tuple[int, int], draw: Any) -> list[Path]:
    across, down = grid
    panel = min(look.inches / across, look.inches * 0.75)
    size = (look.inches, 0.75 * panel * down + 4 * STYLES[look.style]["font.size"] / 72)
    paths = [folder / f"{name}{suffix}" for suffix in SUFFIXES]
    for path in paths:
        save_figure(size, path, DPI, draw, STYLES[look.style])
    return paths
