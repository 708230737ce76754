"""A run's last report as a table, and a run as HTML for notebooks."""

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.runs import stats
from counterpoint.runs.tables import html_table

if TYPE_CHECKING:
    from counterpoint.runs.folder import Run

WIDTH = 420
"""Largest width of a picture in a notebook, in pixels."""


def last_report(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Returns header and rows of a table: success and mean returns of the last report.

    With several seeds they are the seeds' mean, IQM and 95 % interval.
    """
    last = list({row["seed"]: row for row in rows}.values())
    success = [name for name in last[0] if name.endswith("success") and name.startswith("eval/")]
    names = [*success, *(name for name in last[0] if name.startswith(("eval/team/", "team/")))]
    values = [[float(cell) for row in last if isinstance(cell := row[name], int | float)] for name in names]
    if len(last) == 1:
        return ["last report", "mean"], [[_label(name), *(seed or [None])] for name, seed in zip(names, values, strict=True)]
    table: list[list[Any]] = []
    for name, seeds in zip(names, values, strict=True):
        if not seeds:
            table.append([_label(name), None, None, "–", 0])
            continue
        s = stats.summary(seeds)
        table.append([_label(name), s.mean, s.iqm, f"{s.low:.2f} … {s.high:.2f}", s.count])
    return ["last report", "mean", "IQM", "95 % interval", "seeds"], table


def _label(column: str) -> str:
    """Returns a column of the metrics in words."""
    kind, name = "greedy" if column.startswith("eval/") else "training", column.rpartition("/")[2]
    return f"{kind} {name.removeprefix('is_').replace('_', ' ')}" if "team/" not in column else f"{kind} return of {name}"


def run_html(run: "Run") -> str:
    """Returns a run as HTML: what it is, its last report, its learning curve and its film, as far as they exist."""
    config, rows = run.config, run.rows()
    training, world = config.get("training", {}), config.get("world", {})
    episodes, planned = max((int(row["episode"] or 0) for row in rows), default=0), training.get("num_episodes", 0)
    about = [world.get("env") or world.get("scenario", ""), config.get("algorithm", ""), f"{episodes} of {planned} episodes"]
    if training.get("num_seeds", 1) > 1:
        about.append(f"{training['num_seeds']} seeds")
    parts = [html_table(*last_report(rows))] if rows else ["<p>There is no report yet.</p>"]
    pictures = [image(run.curve_path, "learning curve"), image(run.gif_path, "film of the trained team")]
    return panel(run.name, about, [*parts, *filter(None, pictures)], note=str(run.path))


def panel(title: str, about: Sequence[str], parts: Sequence[str], note: str = "") -> str:
    """Returns a heading with the parts below it, side by side where there is room."""
    text = " · ".join(html.escape(str(words)) for words in about if words)
    place = f"<div><code>{html.escape(note)}</code></div>" if note else ""
    cells = "".join(f"<div>{part}</div>" for part in parts)
    row = f'<div style="display: flex; flex-wrap: wrap; gap: 1em; align-items: center">{cells}</div>'
    return f'<div class="counterpoint"><div><b>{html.escape(title)}</b> {text}</div>{row}{place}</div>'


def image(path: Path, words: str) -> str:
    """Returns a picture or film as HTML that needs no file, or nothing if the file does not exist."""
    if not path.exists():
        return ""
    kind, data = path.suffix.removeprefix("."), base64.b64encode(path.read_bytes()).decode()
    style = f"max-width: min({WIDTH}px, 100%); height: auto"
    return f'<img alt="{html.escape(words)}" style="{style}" src="data:image/{kind};base64,{data}">'
