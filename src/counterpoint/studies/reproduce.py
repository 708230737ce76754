"""Published results, run again: a table with their numbers and ours, as Markdown, CSV and figure.

`wang2021` is Wang, Xie, Atanasov, "Coding for Distributed Multi-Agent Reinforcement Learning" (ICRA 2021, arXiv:2101.02308):
seconds per five iterations of MADDPG with 15 learners, k of which are late by t_s. Each agent's update is padded by waiting to
what it took on their machines, so that 15 processes on few cores behave like 15 machines; what an iteration of theirs spent
besides (acting, broadcasting) is added, not waited for. Both are read off two of their bars, those without stragglers.
"""

import csv
import dataclasses
import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoint.coded.simulator import Stragglers, predict
from counterpoint.core.errors import UsageError
from counterpoint.runs import stats
from counterpoint.runs.tables import markdown_table, write_csv, write_whole
from counterpoint.viz.plots import INK_HEX, hex_of, save_figure
from counterpoint.viz.render import BLUE, STONE

PAPER = ("uncoded", "mds", "random_sparse", "replication", "ldpc")
OURS = ("cyclic:2", "stream:3", "backup", "hedge:1.5", "auto")
LEARNERS = 15


class Setting(NamedTuple):
    """A world of the paper, its delays, and its bars with 8 agents."""

    scenario: str
    delay: float
    counts: tuple[int, ...]
    bars: dict[str, tuple[float, ...]]
    """Seconds per five iterations at each number of stragglers; none were published for some worlds."""

    @property
    def unit(self) -> float:
        """Seconds of one agent's update: dense MDS computes eight where uncoded computes one."""
        return (self.bars["mds"][0] - self.bars["uncoded"][0]) / 5 / 7

    @property
    def overhead(self) -> float:
        """Seconds that an iteration spends besides."""
        return self.bars["uncoded"][0] / 5 - self.unit


SETTINGS = (
    Setting(
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
    Setting(
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
    Setting(
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
PUSH = SETTINGS[2]._replace(scenario="simple_push")
"""Its bars are not among those we have: the costs of simple_adversary stand in, and no published number is shown."""

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
"""What the planner predicts from the paper's costs alone stands beside what was measured."""


def reproduce(result: str, quick: bool, out: str) -> None:
    """`counterpoint reproduce`."""
    if not result:
        print(
            markdown_table(
                ["result", "what"], [[name, (about.__doc__ or "").splitlines()[0]] for name, about in RESULTS.items()]
            )
        )
        return
    if result not in RESULTS:
        close = difflib.get_close_matches(result, RESULTS, 1)
        hint = f"; perhaps {close[0]}?" if close else f"; known are {', '.join(RESULTS)}."
        raise UsageError(f"unknown result {result!r}{hint}")
    folder = Path(out) / (result + "-quick" * quick)
    folder.mkdir(parents=True, exist_ok=True)
    RESULTS[result](folder, quick)


def wang2021(folder: Path, quick: bool) -> None:
    """Seconds per five iterations of MADDPG with coded learners (Wang et al. 2021, Fig. 3-5)."""
    cells = folder / "cells.csv"
    rounds = 4 if quick else 25
    for setting in SETTINGS[:1] if quick else (*SETTINGS, PUSH):
        for agents in (8,) if quick else (8, 10):
            counts = (0, setting.counts[-1]) if quick else setting.counts
            wanted = [(k, scheme) for k in counts for scheme in (*PAPER, *OURS)]
            done = {(int(row["late"]), row["scheme"]) for row in _read(cells) if _is(row, setting, agents)}
            if left := [cell for cell in wanted if cell not in done]:
                _measure(setting, agents, left, rounds, cells)
    _curves(folder, episodes=200 if quick else 4000)
    _write_up(folder, _read(cells))


def _is(row: dict[str, str], setting: Setting, agents: int) -> bool:
    return (row["world"], int(row["agents"])) == (setting.scenario, agents)


def _measure(setting: Setting, agents: int, cells: list[tuple[int, str]], rounds: int, path: Path) -> None:
    """Times the cells of one world and number of agents; each is written when it is known."""
    import jax
    import jax.numpy as jnp

    from counterpoint import config as configs
    from counterpoint.coded import learner, ray_transport
    from counterpoint.coded.controller import Controller, work_of
    from counterpoint.core import prng
    from counterpoint.training.program import prepare

    ray_transport.require_ray()
    # Small networks and batches: waiting, not computing, fills the time.
    sizes = {"num_agents": agents, "batch_size": 16, "num_units": 16, "num_layers": 1, "num_episodes": 100}
    config = configs.override(
        configs.Config(), scenario=setting.scenario, learners=LEARNERS, pad=setting.unit, code="backup", **sizes
    )
    program = prepare(config).program
    work = work_of(program.algo, program.memory, setting.unit)
    learner.compiled(work)
    print(f"{setting.scenario}, {agents} agents: starting {LEARNERS} learners …", flush=True)
    transport = ray_transport.RayTransport(work, LEARNERS)
    update = Controller(program.algo, work, dataclasses.replace(config.distribution, patience=120.0), transport)
    state = jax.jit(program.algo.init)(prng.key(0))
    batch = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), work.example.batch)
    try:
        for k, scheme in cells:
            # Uncoded has one learner per agent, and the late ones are among those.
            among = agents if scheme == "uncoded" else LEARNERS
            update.change(scheme, f"k={min(k, among)},delay={setting.delay}", among)
            warm = 25 if scheme == "auto" else 1  # auto must have looked around
            seconds = []
            for _ in range(warm + rounds):
                update(state, batch, prng.key(1))
                assert update.times is not None
                seconds.append(update.times.total)
            for value in seconds[warm:]:
                _append(path, setting, agents, k, scheme, value)
            print(f"  {k} late, {scheme}: {np.mean(seconds[warm:]) + setting.overhead:.3f} s per iteration", flush=True)
    finally:
        update.close()


def _append(path: Path, setting: Setting, agents: int, k: int, scheme: str, seconds: float) -> None:
    fresh = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(["world", "agents", "late", "delay", "scheme", "seconds"])
        writer.writerow([setting.scenario, agents, k, setting.delay, scheme, round(seconds, 5)])


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _by_world() -> dict[str, Setting]:
    return {setting.scenario: setting for setting in (*SETTINGS, PUSH)}


def _write_up(folder: Path, rows: list[dict[str, str]]) -> None:
    """Table and figure of all that was measured."""
    groups: dict[tuple[str, int, int, str], list[float]] = {}
    settings = _by_world()
    for row in rows:
        overhead = settings[row["world"]].overhead
        key = (row["world"], int(row["agents"]), int(row["late"]), row["scheme"])
        groups.setdefault(key, []).append(5 * (float(row["seconds"]) + overhead))
    table = []
    for (world, agents, k, scheme), values in groups.items():
        setting, summary = settings[world], stats.summary(values)
        known = setting.bars.get(scheme) if agents == 8 and world != "simple_push" else None
        published = known[setting.counts.index(k)] if known else None
        interval = f"{summary.low:.2f} … {summary.high:.2f}"
        measured = [published, float(summary.mean), interval, summary.count]
        table.append([world, agents, k, setting.delay, scheme, *measured, _predicted(setting, agents, k, scheme)])
    text = f"Seconds per five iterations, {LEARNERS} learners.\n\n{markdown_table(HEADER, table)}\n{_verdict(table)}\n"
    write_whole(folder / "table.md", lambda draft: draft.write_text(text, encoding="utf-8"))
    write_csv(folder / "table.csv", HEADER, table)
    _figure(table, folder / "bars.png")
    print(f"\n{text}\n→ {folder}/table.md, table.csv, bars.png, cells.csv, curve.png")


def _predicted(setting: Setting, agents: int, k: int, scheme: str) -> float | None:
    """The planner's seconds per five iterations; it knows no `auto`."""
    if scheme == "auto":
        return None
    learners = agents if scheme == "uncoded" else LEARNERS
    delays = Stragglers(min(k, learners), setting.delay)
    (prediction,) = predict(agents, learners, delays, setting.unit, setting.overhead, schemes=(scheme,), trials=2000)
    return 5 * prediction.mean


def _verdict(table: list[list[Any]]) -> str:
    """How our schemes fare against the paper's, column by column."""
    settings = _by_world()
    lines = []
    for column in dict.fromkeys((row[0], row[1], row[2]) for row in table):
        means = {row[4]: row[6] for row in table if (row[0], row[1], row[2]) == column}
        theirs = min((means[name], name) for name in PAPER if name in means)
        ours = min((means[name], name) for name in ("backup", "auto") if name in means)
        setting = settings[column[0]]
        fixed, least = 5 * setting.overhead, 5 * (setting.overhead + setting.unit)
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
    """The learning curve of a coded run on that of the central one, with the same seed; few agents, who learn soon."""
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
            print(f"the curve of a {name} run, {episodes} episodes …", flush=True)
            more: dict[str, Any] = {"learners": learners, "code": "mds"} if learners else {"devices": 1}
            train.train(**common, **more, save_dir=str(folder / "runs"), exp_name=name, timeline=20)
        elif not (path / "team.gif").exists():
            train.resume(path)
        curves[name] = runs.open_run(path).rows()
    plots.compare(curves, folder / "curve.png", title="3 agents: a coded run and the central one")


RESULTS: dict[str, Callable[[Path, bool], None]] = {"wang2021": wang2021}
