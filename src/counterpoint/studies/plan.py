"""`counterpoint plan`: predicts the cost of each scheme as a table and a figure."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counterpoint.coded.delays import delay_model
from counterpoint.coded.planner import Recording, compare, read_recording
from counterpoint.coded.simulator import Prediction, recommend
from counterpoint.core.checks import shown
from counterpoint.core.errors import UsageError
from counterpoint.runs.tables import markdown_table
from counterpoint.viz.plots import INK_HEX, hex_of, save_figure
from counterpoint.viz.render import BLUE, STONE

MOST = 10_000
"""The most agents or learners that a plan can have."""
MOST_PAIRS = 200_000
"""The most agents times learners, so that a plan takes minutes at most."""


def plan(
    agents: int,
    learners: int,
    delays: str,
    recording: str,
    unit: float,
    overhead: float,
    agent_bytes: int,
    trials: int,
    seed: int,
    out: str,
) -> None:
    """Runs `counterpoint plan`: prints the predictions and the recommended scheme, and draws a figure."""
    least_and_most = (
        ("agents", agents, 1, MOST), ("learners", learners, 1, MOST), ("agent-bytes", agent_bytes, 0, 10**15),
        ("trials", trials, 0, 10**6), ("seed", seed, 0, 2**63),
    )  # fmt: skip
    for flag, value, least, most in least_and_most:
        if value < least:
            raise UsageError(f"--{flag} must be at least {least}, not {shown(value, 30)}.")
        if value > most:
            raise UsageError(f"--{flag} must be at most {most}, not {shown(value, 30)}.")
    for flag, value in (("unit", unit), ("overhead", overhead)):
        if not 0 <= value < 1e9:
            raise UsageError(f"--{flag} must be from 0 to 1e9, not {value:g}.")
    if agents * learners > MOST_PAIRS:
        raise UsageError(f"--agents {agents} and --learners {learners} make {agents * learners} pairs: at most {MOST_PAIRS}.")
    if delays and recording:
        raise UsageError(f"--delays {delays} and --recording {recording} exclude each other: choose one of them.")
    known = read_recording(recording) if recording else Recording(delay_model(delays), unit=0.05, overhead=0.0)
    unit, overhead = unit or known.unit, overhead or known.overhead
    predictions = compare(agents, learners, known.delays, unit, overhead, agent_bytes, trials, seed, print)
    best = recommend(predictions)
    print(plan_table(predictions))
    print(f"one agent's update {unit:.4g} s, overhead {overhead:.4g} s, {recording or delays or 'no delays'}")
    print(f"use {best.scheme}: {_why(best, predictions)}")
    if out:
        title = f"{agents} agents, {learners} learners, {Path(recording).name if recording else delays or 'no delays'}"
        plan_figure(predictions, best, out, title)
        print(f"figure → {out}")


def plan_table(predictions: Sequence[Prediction]) -> str:
    """Returns a Markdown table with a row per scheme."""
    header = ["scheme", "mean, ms", "p99, ms", "updates started", "MB moved", "never ends, %"]
    return markdown_table(
        header,
        [
            [p.scheme, 1e3 * p.mean, 1e3 * p.p99, round(p.updates, 1), p.bytes_moved / 1e6, 100 * p.unfinished]
            for p in predictions
        ],
    )


def _why(best: Prediction, predictions: Sequence[Prediction]) -> str:
    """Explains the recommendation in one sentence."""
    shortest = min(p.mean for p in predictions if p.unfinished == best.unfinished)
    plain = next((p for p in predictions if p.scheme == "uncoded"), None)
    reason = f"{best.mean:.4g} s per iteration"
    if plain and math.isfinite(plain.mean) and plain is not best:
        reason += f", {plain.mean / best.mean:.1f} × as fast as uncoded"
    if best.mean > shortest:
        reason += f"; the fastest scheme takes {shortest:.4g} s and starts more updates"
    if best.unfinished:
        reason += f"; but {100 * best.unfinished:.1f} % of iterations never end: add learners"
    return reason + "."


def plan_figure(predictions: Sequence[Prediction], best: Prediction, path: str | Path, title: str) -> None:
    """Draws time per iteration (bar: mean, tick: 99th percentile) and updates started; colours the recommended scheme."""
    shown = [p for p in predictions if math.isfinite(p.mean)]
    if not shown:
        raise UsageError("cannot draw a figure, because under these delays every scheme may fail to end: add learners.")

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2, 1])
        figure.suptitle(title, x=0.01, ha="left", size=10, color=INK_HEX)
        names = [p.scheme.replace("_", " ") for p in shown]
        colours = [hex_of(BLUE if p is best else STONE) for p in shown]
        left.barh(names, [p.mean for p in shown], color=colours, height=0.62)
        left.plot([p.p99 for p in shown], names, "|", color=INK_HEX, markersize=9, markeredgewidth=1.4)
        far = max(max(p.p99 for p in shown), 1e-9)
        if far > 30 * min(p.mean for p in shown):
            left.set_xscale("log")
        left.set(title="seconds per iteration (bar: mean, tick: 99 %)")
        left.invert_yaxis()
        right.barh(names, [p.updates for p in shown], color=colours, height=0.62)
        right.set(title="agent updates started")
        for axes in (left, right):
            axes.grid(axis="y", visible=False)
            axes.grid(axis="x", visible=True)

    save_figure((6.4, 1.1 + 0.24 * len(shown)), path, 200, draw)
