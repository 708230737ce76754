"""Wang, Xie, Atanasov, "Coding for Distributed Multi-Agent Reinforcement Learning" (ICRA 2021, arXiv:2101.02308).

The paper measures seconds per five iterations of MADDPG with 15 learners, k of which are late by t_s. We pad each agent's
update by waiting until it takes as long as on the authors' machines, so that 15 processes on a few cores behave like 15
machines. The rest of their iteration (acting, broadcasting) is added to our times without waiting. Both costs come from two
published bars, those without stragglers. The output is a table (Markdown and CSV), a figure and a learning curve.
"""

import csv
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoint.coded.delays import Stragglers
from counterpoint.coded.simulator import predict
from counterpoint.runs import stats
from counterpoint.runs.tables import markdown_table, write_csv, write_whole
from counterpoint.studies.reproduce import PublishedResult
from counterpoint.viz.plots import INK_HEX, hex_of, save_figure
from counterpoint.viz.render import BLUE, STONE

PAPER = ("uncoded", "mds", "random_sparse", "replication", "ldpc")
OURS = ("cyclic:2", "stream:3", "backup", "hedge:1.5", "auto")
LEARNERS = 15


class Experiment(NamedTuple):
    """An environment of the paper with its delays and its published times for 8 agents."""

    scenario: str
    delay: float
    counts: tuple[int, ...]
    bars: dict[str, tuple[float, ...]]
    """Published seconds per five iterations of each scheme, one per number of stragglers."""

    @property
    def unit(self) -> float:
        """Returns the seconds of one agent's update: dense MDS computes eight updates where uncoded computes one."""
        return (self.bars["mds"][0] - self.bars["uncoded"][0]) / 5 / 7

    @property
    def overhead(self) -> float:
        """Returns the seconds that an iteration spends on everything else."""
        return self.bars["uncoded"][0] / 5 - self.unit


EXPERIMENTS = (
    Experiment(
        "simple_spread",
        0.25,
        (0, 1, 2),
        {
            "uncoded": (4.67, 5.73, 5.74),
            "mds": (6.28, 6.29, 6.28),
            "random_sparse": (6.09, 6.10, 6.10),
            "replication": (5.17, 5.20, 5.80),
            "ldpc": (4.92, 4.95, 5.30),
        },
    ),
    Experiment(
        "simple_tag",
        1.0,
        (0, 2, 4),
        {
            "uncoded": (3.07, 7.98, 8.01),
            "mds": (4.35, 4.40, 4.38),
            "random_sparse": (4.21, 4.18, 4.20),
            "replication": (3.51, 4.64, 6.68),
            "ldpc": (3.18, 3.71, 5.53),
        },
    ),
    Experiment(
        "simple_adversary",
        1.0,
        (0, 5, 8),
        {
            "uncoded": (2.52, 7.52, 7.54),
            "mds": (3.82, 3.80, 9.04),
            "random_sparse": (3.66, 3.73, 8.84),
            "replication": (2.91, 6.75, 8.16),
            "ldpc": (2.65, 6.37, 7.90),
        },
    ),
)
PUSH = EXPERIMENTS[2]._replace(scenario="simple_push")
"""We lack its published times, so it uses the costs of simple_adversary and shows no published number."""

HEADER = [
    "world",
    "agents",
    "late",
    "by, s",
    "scheme",
    "published, s",
    "ours, s",
    "95 % interval",
    "iterations",
    "predicted, s",
]
"""Columns of the table; the planner predicts the last from the paper's costs alone."""


def run(folder: Path, quick: bool) -> None:
    """Measures all missing cells and writes the table, the figure and the learning curve."""
    cells = folder / "cells.csv"
    rounds = 4 if quick else 25
    for experiment in EXPERIMENTS[:1] if quick else (*EXPERIMENTS, PUSH):
        for agents in (8,) if quick else (8, 10):
            counts = (0, experiment.counts[-1]) if quick else experiment.counts
            wanted = [(k, scheme) for k in counts for scheme in (*PAPER, *OURS)]
            done = {(int(row["late"]), row["scheme"]) for row in _read(cells) if _belongs(row, experiment, agents)}
            if left := [cell for cell in wanted if cell not in done]:
                _measure(experiment, agents, left, rounds, cells)
    _curves(folder, episodes=200 if quick else 4000)
    _write_up(folder, _read(cells))


def _belongs(row: dict[str, str], experiment: Experiment, agents: int) -> bool:
    return (row["world"], int(row["agents"])) == (experiment.scenario, agents)


def _measure(experiment: Experiment, agents: int, cells: list[tuple[int, str]], rounds: int, path: Path) -> None:
    """Measures the cells of one environment and number of agents, and saves each as soon as it is known."""
    import jax
    import jax.numpy as jnp

    from counterpoint import config as configs
    from counterpoint.coded import learner, ray_transport
    from counterpoint.coded.controller import Controller, work_of
    from counterpoint.core import prng
    from counterpoint.training.program import prepare

    ray_transport.require_ray()
    # With small networks and batches, learners mostly wait instead of computing.
    sizes = {"num_agents": agents, "batch_size": 16, "num_units": 16, "num_layers": 1, "num_episodes": 100}
    config = configs.override(
        configs.Config(), scenario=experiment.scenario, learners=LEARNERS, pad=experiment.unit, code="backup", **sizes
    )
    program = prepare(config).program
    work = work_of(program.algo, program.memory, experiment.unit)
    learner.compiled(work)
    print(f"{experiment.scenario}, {agents} agents: starting {LEARNERS} learners …", flush=True)
    transport = ray_transport.RayTransport(work, LEARNERS)
    update = Controller(program.algo, work, dataclasses.replace(config.distribution, patience=120.0), transport)
    state = jax.jit(program.algo.init)(prng.key(0))
    batch = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), work.example.batch)
    try:
        for k, scheme in cells:
            # Uncoded uses one learner per agent, and the stragglers are among them.
            among = agents if scheme == "uncoded" else LEARNERS
            update.change(scheme, f"k={min(k, among)},delay={experiment.delay}", among)
            warm = 25 if scheme == "auto" else 1  # auto needs measurements to choose from
            seconds = []
            for _ in range(warm + rounds):
                update(state, batch, prng.key(1))
                assert update.times is not None
                seconds.append(update.times.total)
            for value in seconds[warm:]:
                _append(path, experiment, agents, k, scheme, value)
            print(f"  {k} late, {scheme}: {np.mean(seconds[warm:]) + experiment.overhead:.3f} s per iteration", flush=True)
    finally:
        update.close()


def _append(path: Path, experiment: Experiment, agents: int, k: int, scheme: str, seconds: float) -> None:
    fresh = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(["world", "agents", "late", "delay", "scheme", "seconds"])
        writer.writerow([experiment.scenario, agents, k, experiment.delay, scheme, round(seconds, 5)])


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _by_scenario() -> dict[str, Experiment]:
    return {experiment.scenario: experiment for experiment in (*EXPERIMENTS, PUSH)}


def _write_up(folder: Path, rows: list[dict[str, str]]) -> None:
    """Writes the table and the figure of all measurements."""
    groups: dict[tuple[str, int, int, str], list[float]] = {}
    experiments = _by_scenario()
    for row in rows:
        overhead = experiments[row["world"]].overhead
        key = (row["world"], int(row["agents"]), int(row["late"]), row["scheme"])
        groups.setdefault(key, []).append(5 * (float(row["seconds"]) + overhead))
    table = []
    for (world, agents, k, scheme), values in groups.items():
        experiment, summary = experiments[world], stats.summary(values)
        known = experiment.bars.get(scheme) if agents == 8 and world != "simple_push" else None
        published = known[experiment.counts.index(k)] if known else None
        interval = f"{summary.low:.2f} … {summary.high:.2f}"
        measured = [published, float(summary.mean), interval, summary.count]
        table.append([world, agents, k, experiment.delay, scheme, *measured, _predicted(experiment, agents, k, scheme)])
    text = f"Seconds per five iterations, {LEARNERS} learners.\n\n{markdown_table(HEADER, table)}\n{_verdict(table)}\n"
    write_whole(folder / "table.md", lambda draft: draft.write_text(text, encoding="utf-8"))
    write_csv(folder / "table.csv", HEADER, table)
    _figure(table, folder / "bars.png")
    print(f"\n{text}\n→ {folder}/table.md, table.csv, bars.png, cells.csv, curve.png")


def _predicted(experiment: Experiment, agents: int, k: int, scheme: str) -> float | None:
    """Returns the seconds per five iterations that the planner predicts; None for `auto`, which it does not model."""
    if scheme == "auto":
        return None
    learners = agents if scheme == "uncoded" else LEARNERS
    delays = Stragglers(min(k, learners), experiment.delay)
    (prediction,) = predict(agents, learners, delays, experiment.unit, experiment.overhead, schemes=(scheme,), trials=2000)
    return 5 * prediction.mean


def _verdict(table: list[list[Any]]) -> str:
    """Compares our schemes with the paper's for each environment, number of agents and number of stragglers."""
    experiments = _by_scenario()
    lines = []
    for column in dict.fromkeys((row[0], row[1], row[2]) for row in table):
        means = {row[4]: row[6] for row in table if (row[0], row[1], row[2]) == column}
        theirs = min((means[name], name) for name in PAPER if name in means)
        ours = min((means[name], name) for name in ("backup", "auto") if name in means)
        experiment = experiments[column[0]]
        fixed, least = 5 * experiment.overhead, 5 * (experiment.overhead + experiment.unit)
        ratios = (theirs[0] / ours[0], (theirs[0] - fixed) / (ours[0] - fixed), theirs[0] / least)
        above = f"{100 * (ours[0] / min(means.values()) - 1):.1f} %"
        named = (f"{name} {seconds:.2f}" for seconds, name in (theirs, ours))
        lines.append([*column, *named, above, *(f"{ratio:.2f}" for ratio in ratios)])
    return f"{VERDICT}\n\n{markdown_table(VERDICT_HEADER, lines)}"


VERDICT_HEADER = [
    *("world", "agents", "late", "best of the paper's, s", "ours, s", "ours above the fastest of all"),
    *("× faster", "× without the fixed part", "× possible"),
]
VERDICT = """The better of `backup` and `auto` against the best of the paper's codes. The fixed part is what an iteration of
theirs spends besides updating, which no scheme can change; possible is an iteration in which every agent's update is computed
once, all at the same time, and nobody is late."""


def _figure(table: list[list[Any]], path: Path) -> None:
    columns = list(dict.fromkeys((row[0], row[1], row[2]) for row in table))
    schemes = list(dict.fromkeys(row[4] for row in table))
    across = min(3, len(columns))
    down = -(-len(columns) // across)

    def draw(figure: Any) -> None:
        for i, column in enumerate(columns):
            axes = figure.add_subplot(down, across, i + 1)
            rows = {row[4]: row for row in table if (row[0], row[1], row[2]) == column}
            ours = [rows[name][6] if name in rows else 0.0 for name in schemes]
            published = [rows[name][5] if name in rows else None for name in schemes]
            axes.barh(schemes, ours, color=[hex_of(BLUE if name in OURS else STONE) for name in schemes], height=0.6)
            for name, value in zip(schemes, published, strict=True):
                if value is not None:
                    axes.plot([value], [name], "|", color=INK_HEX, markersize=9, markeredgewidth=1.5)
            axes.invert_yaxis()
            axes.set_title(f"{column[0]}, {column[1]} agents, {column[2]} late")
            axes.grid(axis="y", visible=False)
            axes.grid(axis="x", visible=True)
            if i % across:
                axes.set_yticklabels([])
        figure.suptitle("seconds per five iterations (tick: published)", x=0.01, ha="left", size=10, color=INK_HEX)

    save_figure((2.6 * across + 1, 0.4 + 2.2 * down), path, 160, draw)


def _curves(folder: Path, episodes: int) -> None:
    """Draws the learning curves of a coded and a central run with the same seed and 3 agents, which learn quickly."""
    from counterpoint import runs
    from counterpoint.training import train
    from counterpoint.viz import plots

    curves = {}
    common: dict[str, Any] = {
        "scenario": "simple_spread",
        "num_agents": 3,
        "num_episodes": episodes,
        "batch_size": 256,
        "plots_dir": "",
    }
    for name, learners in (("central", 0), ("mds", 5)):
        path = folder / "runs" / name
        if not (path / "config.json").exists():
            print(f"training the {name} run for the learning curve, {episodes} episodes …", flush=True)
            more: dict[str, Any] = {"learners": learners, "code": "mds"} if learners else {"devices": 1}
            train.train(progress=False, **common, **more, save_dir=str(folder / "runs"), exp_name=name, timeline=20)
        elif not (path / "team.gif").exists():
            train.resume(path, progress=False)
        curves[name] = runs.open_run(path).rows()
    plots.compare(curves, folder / "curve.png", title="3 agents: coded and central run")


RESULT = PublishedResult(
    "wang2021", "Seconds per five iterations of MADDPG with coded learners (Wang et al. 2021, Fig. 3-5).", run
)
