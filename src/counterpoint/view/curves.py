"""Learning curves as small SVG pictures inside a page: no style attributes, colours of the films, text in the page's colour."""

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from counterpoint.runs.stats import aligned
from counterpoint.viz.plots import COMMON, Rows, columns, curves, hex_of
from counterpoint.viz.render import BLUE, GREEN, RED

WIDTH, HEIGHT = 300, 150
LEFT, RIGHT, TOP, BOTTOM = 42, 6, 8, 20
MOST = 8
"""Curves of one page at most."""
POINTS = 120
"""Points of one line at most: a page is small."""


def plain(text: Any) -> str:
    """Returns a text without control characters: escape sequences, and marks that reorder or hide what follows.

    Halves of characters, which UTF-8 cannot hold, become replacement characters.
    """
    text = str(text)
    if text.isascii() and text.isprintable():  # nearly every text: a list of runs has tens of thousands
        return text
    text = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?", "", text)
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    return re.sub("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]", "", text)


def hashed(text: str) -> str:
    """Returns the content security policy's name of a script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def figures(rows: Rows) -> str:
    """Returns the training return of every team and the evaluated metrics of a run as figures."""
    known = columns(rows)
    teams = [name for name in known if name.startswith("team/")]
    metrics = [name for name in known if name.startswith("eval/") and name.count("/") == 1 and name not in COMMON]
    parts = [figure(rows, name, plain(title_of(name))) for name in [*teams, *metrics][:MOST]]
    parts = [part for part in parts if part]
    return f'<h2>Training</h2><div class="curves">{"".join(parts)}</div>' if parts else ""


def title_of(column: str) -> str:
    """Returns what a column of metrics.csv holds, in words."""
    if column.startswith("team/"):
        return f"return per episode, team {column.removeprefix('team/')}"
    return f"evaluation: {column.removeprefix('eval/').replace('_', ' ')}"


def figure(rows: Rows, column: str, title: str) -> str:
    """Returns one column over episodes: every seed faintly, their mean on top."""
    seeds = [(x, y) for x, y in curves(rows, column) if len(x) > 1]
    if not seeds:
        return ""
    episodes, values = aligned(seeds)
    mean = values.mean(axis=0) if episodes.size else np.zeros(0)
    most = max(float(x[-1]) for x, _ in seeds)
    low, high = min(float(y.min()) for _, y in seeds), max(float(y.max()) for _, y in seeds)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    colour = hex_of(RED if "adversary" in column else BLUE if column.startswith("team/") else GREEN)

    def line(x: np.ndarray, y: np.ndarray, width: float, opacity: float) -> str:
        thin = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).round().astype(int))
        across = LEFT + (WIDTH - LEFT - RIGHT) * x[thin] / max(most, 1)
        down = TOP + (HEIGHT - TOP - BOTTOM) * (high - y[thin]) / (high - low)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, down, strict=True))
        return (
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-opacity="{opacity}"'
            ' stroke-linejoin="round"/>'
        )

    lines = [line(x, y, 1.0, 0.35) for x, y in seeds] if len(seeds) > 1 else []
    if mean.size > 1:
        lines.append(line(episodes, mean, 2.0, 1.0))
    foot = HEIGHT - BOTTOM
    texts = [
        f'<text x="{LEFT - 5}" y="{TOP + 8}" text-anchor="end">{number(high)}</text>',
        f'<text x="{LEFT - 5}" y="{foot}" text-anchor="end">{number(low)}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 5}">0</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 5}" text-anchor="end">{most:,.0f} episodes</text>',
    ]
    last = number(float(mean[-1])) if mean.size else ""
    label = f"{title}: from {number(float(mean[0]))} to {last} over {most:,.0f} episodes" if mean.size else title
    axis = f'<path class="axis" d="M{LEFT} {TOP}V{foot}H{WIDTH - RIGHT}" fill="none"/>'
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{axis}{"".join(lines)}'
        f"{''.join(texts)}</svg><figcaption>{escape(title)}</figcaption></figure>"
    )


def number(value: float) -> str:
    """Returns a number with about three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table; every text is escaped, columns but the first are numbers."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(text)}</td>" for text in rest)}</tr>'
        for first, *rest in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
