"""COMA's part of `make results`: which experiments, and what docs/results.md says about them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.runs import stats, tables
from counterpoint.viz import plots

Rows = list[dict[str, Any]]

ONCE: dict[str, Any] = {"eval_episodes": 1}
"""Greedy play in Switch is always the same."""
EXPERIMENTS: list[tuple[str, dict[str, Any], int, str]] = [
    ("switch2-coma", {"algorithm": "coma", "scenario": "switch2"} | ONCE, 10, "switch2, COMA"),
    ("switch2-coma-notes", {"preset": "coma-notes"} | ONCE, 10, "switch2, COMA with the notes' settings"),
    ("switch2-v0-coma", {"preset": "coma-switch2-v0"} | ONCE, 10, "Switch2-v0 proper, recurrent COMA"),
    ("switch4-coma", {"preset": "coma-switch4"} | ONCE, 5, "switch4, COMA"),
    ("spread-coma", {"preset": "coma-spread"}, 5, "simple_spread, COMA"),
    ("speaker-coma", {"preset": "coma-speaker"}, 5, "simple_speaker_listener, COMA"),
]
"""Name, settings, seeds, title."""

SOLVED = 7.0


def greedy_sum(rows: Rows) -> Rows:
    """The rows with the greedy return summed over agents as a column."""
    agents = [name for name in rows[0] if name.startswith("eval/return/")] if rows else []
    return [row | {"eval/sum": sum(row[name] for name in agents)} for row in rows]


def last(rows: Rows, column: str) -> np.ndarray:
    """Every seed's value at its last report."""
    return np.array(list({row["seed"]: row[column] for row in rows}.values()))


def switch_line(name: str, rows: Rows, optimum: str) -> list[Any] | None:
    """A row of the table of Switch, or nothing if nothing was measured."""
    if not rows:
        return None
    values = last(greedy_sum(rows), "eval/sum")
    s, steps, seconds = stats.summary(values), last(rows, "step"), last(rows, "seconds")
    solved = f"{int(np.sum(values >= SOLVED))} of {len(values)}"
    interval = f"{s.low:.2f} … {s.high:.2f}"
    return [name, f"{s.mean:.2f}", interval, solved, optimum, f"{steps.mean() / 1e6:.1f}", f"{seconds.sum() / 60:.1f}"]


def particle_line(name: str, rows: Rows, published: str) -> list[Any] | None:
    """A row of the table of particle worlds, or nothing if nothing was measured."""
    if not rows:
        return None
    training, greedy = stats.summary(last(rows, "team/good")), stats.summary(last(rows, "eval/team/good"))
    steps = f"{last(rows, 'step').mean() / 1e6:.1f}"
    interval = f"{training.low:.1f} … {training.high:.1f}"
    return [name, str(training.count), steps, f"{training.mean:.1f}", interval, f"{greedy.mean:.1f}", published]


def section(rows_of: Callable[[str], Rows], folder: Path) -> str:
    """What the page of results says about COMA."""
    found = {name: rows_of(name) for name, *_ in EXPERIMENTS}
    curves = {
        "switch2": {
            "default settings": found["switch2-coma"],
            "the notes' settings": found["switch2-coma-notes"],
            "Switch2-v0, recurrent": found["switch2-v0-coma"],
        },
        "switch4": {"switch4": found["switch4-coma"]},
        "coma-spread": {"simple_spread": found["spread-coma"]},
        "coma-speaker": {"simple_speaker_listener": found["speaker-coma"]},
    }
    for name, runs in curves.items():
        measured = {label: greedy_sum(rows) for label, rows in runs.items() if rows}
        if measured:
            column = "eval/sum" if name.startswith("switch") else "team/good"
            plots.compare(measured, folder / f"{name}.png", column=column)
    switch = [
        switch_line("switch2 (own cell and clock)", found["switch2-coma"], "8.3"),
        switch_line("switch2, the notes' settings (`coma-notes`)", found["switch2-coma-notes"], "8.3"),
        switch_line("Switch2-v0 (own cell only; `coma-switch2-v0`)", found["switch2-v0-coma"], "8.3"),
        switch_line("switch4 (`coma-switch4`)", found["switch4-coma"], "not known"),
    ]
    particles = [
        particle_line("simple_spread (`coma-spread`)", found["spread-coma"], "−169 ± 2.7"),
        particle_line("simple_speaker_listener (`coma-speaker`)", found["speaker-coma"], "≈ −30: does not learn to talk"),
    ]
    header = ["world", "mean", "95 % interval", "seeds ≥ 7", "optimum", "million steps", "core minutes"]
    header_particles = [
        "world",
        "seeds",
        "million steps",
        "training",
        "95 % interval",
        "greedy",
        "published (EPyMARL, 20 million)",
    ]
    return TEXT.format(
        switch=tables.markdown_table(header, [row for row in switch if row]),
        particles=tables.markdown_table(header_particles, [row for row in particles if row]),
        figures="\n".join(f"![{name}](results/{name}.png)\n" for name in curves if (folder / f"{name}.png").exists()),
    )


TEXT = """
## COMA

Switch, `--algorithm coma`: the greedy return summed over agents at the end, every seed on one core; the minutes are those of
all seeds of a row added up, so two cores need half of them. In switch2 one agent home gives about −0.6, nobody −10.

{switch}
Particle worlds, openai flavour, the return of one agent (as above): mean of the last report's training episodes, and greedy.

{particles}
{figures}"""
