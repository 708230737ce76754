"""Public runs of the authors' own code (openai/maddpg) beside ours with the authors' settings, in four worlds.

authors.csv holds the training curves of 19 to 21 public runs per world: the return of one agent with exploration, the mean of
every 1000 episodes, its mean over runs with a 95 % bootstrap interval, and its range. Source: the reward files in the
repository sihongho/Baseline_Project_MADDPG (MIT licence), from which benchmarks/authors_curves.py writes it.
"""

import csv
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.runs import Run, stats
from counterpoint.studies.reproduce import PublishedResult
from counterpoint.studies.reproduce._lowe2017 import Effort, Plan, Row, train_all, write_up
from counterpoint.viz.plots import curves, hex_of, save_figure
from counterpoint.viz.render import BLUE, RED, STONE, Rgb

DATA = Path(__file__).with_name("authors.csv")
HEADER = ["scenario", "team", "episodes", "mean", "low", "high", "lowest", "highest", "runs"]
AT = (25_000, 60_000)
"""Episodes at which the table compares."""
FIRST = 4
"""Thousands of episodes that the vertical axes need not show: random play, and the plunge after the first updates."""
AUTHORS = {"init": "glorot", "order": "sequential", "minibatch": "per-agent"}
KINDS: dict[str, dict[str, str]] = {"authors' settings": AUTHORS, "our defaults": {}}
COLOURS: dict[str, Rgb] = {"authors' settings": BLUE, "our defaults": RED}
SPEAKER, LISTENS, MUTE = "simple_speaker_listener", -20.0, -26.0
"""Where communication is learned or not: returns above the first number, and below the second, which a mute speaker earns."""
THEIR_RUNS, THEIR_LISTENING, THEIR_MUTE = 21, 6, 12
"""The authors' runs of that world, how many of them end above and how many below."""
ABOUT = """Original rules, return of one agent with exploration, at the report nearest to the published number of episodes.
Published: mean of 1000 episodes, over 19 to 21 runs of 60 000 episodes, with its 95 % interval over runs, and the range of the
runs at the end. `inside` says whether the two intervals meet. Of the authors' 21 runs of `simple_speaker_listener`, 6 end above
−20 and 12 stay mute, below −26: their initial weights are why, and our default weights are better. Shares of seeds have exact
binomial intervals. The figure shows their training curves and ours."""


def read() -> list[dict[str, str]]:
    """Returns the training curves of the authors' code."""
    with DATA.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run(folder: Path, quick: bool, episodes: int = 0, seeds: int = 0) -> None:
    """Trains the four worlds with the authors' settings and with ours and compares both with the public runs."""
    effort, data = Effort(quick, episodes, seeds), read()
    worlds = list(dict.fromkeys(line["scenario"] for line in data))
    plans = [
        Plan(run_name(world, kind), {"scenario": world, **settings}) for world in worlds for kind, settings in KINDS.items()
    ]
    runs = train_all(folder, plans, effort, episodes=60_000, seeds=10)
    began = time.perf_counter()
    rows = [row for line in data if int(line["episodes"]) in AT for row in rows_of(line, runs, quick)]
    rows += [row for kind in KINDS for row in shares(runs[run_name(SPEAKER, kind)], kind, quick)]

    def draw(path: Path) -> None:
        figure(data, runs, path)

    write_up(folder, "The authors' code and ours", ABOUT, rows, effort, began, runs, draw=draw)


def run_name(world: str, kind: str) -> str:
    """Returns the name of the run of a world with one kind of settings."""
    return f"{world}-{kind.split()[0].strip(chr(39))}"


def rows_of(line: Mapping[str, str], runs: Mapping[str, Run], quick: bool) -> list[Row]:
    """Returns our returns beside those of the authors' code at one moment, with either settings."""
    rows, at = [], int(line["episodes"])
    spread = f" (theirs: {line['lowest']} … {line['highest']})" if at == AT[-1] else ""
    for kind in KINDS:
        found = runs[run_name(line["scenario"], kind)]
        row = Row(
            f"{line['scenario']}, {line['team']}, {kind}{spread}",
            f"return at {at:,}",
            "openai, one agent",
            float(line["mean"]),
            published_low=float(line["low"]),
            published_high=float(line["high"]),
        )
        there = reaches(found, at, quick)
        rows.append(row.measured(returns_at(found, line["team"], at)) if there else row)
    return rows


def reaches(run: Run, episodes: int, quick: bool) -> bool:
    """Returns whether a run was trained for that many episodes; a quick one stands for any number."""
    return quick or int(run.policy_about()["episodes"]) >= episodes


def shares(run: Run, kind: str, quick: bool) -> list[Row]:
    """Returns the shares of our seeds that learned to communicate and that stayed mute, beside those of the authors' runs."""
    rows = []
    for title, theirs in ((f"above −{-LISTENS:.0f}", THEIR_LISTENING), (f"mute, below −{-MUTE:.0f}", THEIR_MUTE)):
        low, high = (100 * limit for limit in stats.exact_interval(theirs, THEIR_RUNS))
        row = Row(
            f"{SPEAKER}, {kind}",
            f"seeds {title} at {AT[-1]:,}",
            "%",
            100 * theirs / THEIR_RUNS,
            published_low=low,
            published_high=high,
        )
        rows.append(row)
    if not reaches(run, AT[-1], quick):
        return rows
    values = np.array(returns_at(run, "good", AT[-1]))
    counts = (int(np.sum(values > LISTENS)), int(np.sum(values < MUTE)))
    return [_counted(row, count, len(values)) for row, count in zip(rows, counts, strict=True)]


def _counted(row: Row, count: int, seeds: int) -> Row:
    """Returns a row with a share of seeds in percent and its exact interval."""
    low, high = (100 * limit for limit in stats.exact_interval(count, seeds))
    return row._replace(ours=100 * count / seeds, low=low, high=high, seeds=seeds)


def returns_at(run: Run, team: str, episodes: int) -> list[float]:
    """Returns each seed's mean return of a team's agents, with exploration, at the report nearest to a number of episodes."""
    seeds: dict[int, tuple[float, float]] = {}
    for row in run.rows():
        apart = abs(float(row["episode"] or 0) - episodes)
        seed = int(row["seed"] or 0)
        if seed not in seeds or apart < seeds[seed][0]:
            seeds[seed] = (apart, float(row[f"team/{team}"] or "nan"))
    return [value for _, value in seeds.values()]


def figure(data: Sequence[Mapping[str, str]], runs: Mapping[str, Run], path: Path) -> None:
    """Draws the authors' training curves and ours, a panel for each team of a world."""
    panels = list(dict.fromkeys((line["scenario"], line["team"]) for line in data))

    def draw(page: Any) -> None:
        grid = page.subplots(2, 3).ravel()
        for axes, (world, team) in zip(grid, panels, strict=False):
            _draw_theirs(axes, [line for line in data if (line["scenario"], line["team"]) == (world, team)])
            for kind in KINDS:
                _draw_ours(axes, runs[run_name(world, kind)], team, kind)
            axes.set(title=f"{world}, {team}", xlabel="episodes")
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.xaxis.get_major_locator().set_params(nbins=4)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        grid[-1].legend(*grid[0].get_legend_handles_labels(), loc="center left")
        page.suptitle("Return of one agent in training, with exploration (bands: 95 % over runs)", x=0.01, ha="left", size=9)

    save_figure((9.0, 4.6), path, 160, draw)


def _draw_theirs(axes: Any, lines: Sequence[Mapping[str, str]]) -> None:
    """Draws the mean of the authors' runs, its interval and, faintly, the range of the runs."""
    x, colour = [int(line["episodes"]) for line in lines], hex_of(STONE)
    column = {name: np.array([float(line[name]) for line in lines]) for name in ("mean", "low", "high", "lowest", "highest")}
    axes.fill_between(x, column["lowest"], column["highest"], color=colour, alpha=0.12, linewidth=0, label="their range")
    axes.fill_between(x, column["low"], column["high"], color=colour, alpha=0.4, linewidth=0)
    axes.plot(x, column["mean"], color=colour, linewidth=1.5, label="the authors' code, 19 to 21 runs")
    lowest, highest = column["lowest"][FIRST:].min(), column["highest"][FIRST:].max()
    axes.set_ylim(lowest - 0.2 * (highest - lowest), highest + 0.2 * (highest - lowest))


def _draw_ours(axes: Any, run: Run, team: str, kind: str) -> None:
    """Draws the mean of our seeds with its interval."""
    x, values = stats.aligned(curves(run.rows(), f"team/{team}"))
    colour = hex_of(COLOURS[kind])
    if len(values) > 1 and x.size:
        axes.fill_between(x, *stats.bootstrap_band(values), color=colour, alpha=0.2, linewidth=0)
    axes.plot(x, values.mean(axis=0), color=colour, linewidth=1.5, label=f"ours, {kind}, {len(values)} seeds")


RESULT = PublishedResult("authors", "Public runs of the authors' own code, and ours with their settings.", run)
