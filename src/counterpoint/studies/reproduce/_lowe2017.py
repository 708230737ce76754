"""What the reproductions of Lowe et al. (2017) share: training that resumes, evaluation over seeds, and the table.

Settings are the paper's: Adam 0.01, τ 0.01, γ 0.95, an update of 1024 samples every 100 steps, 25 000 episodes of the original
game. Everything else is our default, which differs from the authors' code in the initial weights and in the order of updates.
Policies are evaluated without exploration noise. Intervals are bootstraps over seeds.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoint.runs import Run, open_run, stats
from counterpoint.runs.files import write_whole
from counterpoint.runs.tables import markdown_table, write_csv
from counterpoint.viz.plots import hex_of, save_figure
from counterpoint.viz.render import BLUE, STONE

PAPER: dict[str, Any] = {"flavour": "openai", "num_episodes": 25_000, "plots_dir": "", "eval_episodes": 50}
QUICK: dict[str, Any] = {
    **{"num_episodes": 60, "batch_size": 64, "warmup": 200, "num_units": 16, "report_every": 20, "save_rate": 60},
    **{"eval_episodes": 2, "devices": 1},
}
SEEDS, QUICK_SEEDS = 6, 2
EPISODES, QUICK_EPISODES = 1000, 20
PAIRS = (("maddpg", "maddpg"), ("maddpg", "ddpg"), ("ddpg", "maddpg"), ("ddpg", "ddpg"))
"""Algorithms of the good team and of the adversaries, in the order of the paper's tables."""


class Row(NamedTuple):
    """One number of a published table, and ours."""

    cell: str
    """What was trained."""
    metric: str
    unit: str
    published: float | None
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 0

    def measured(self, values: Sequence[float]) -> "Row":
        """Returns the row with the mean of our seeds and its interval."""
        low, high = stats.bootstrap_interval(list(values))
        return self._replace(ours=float(np.mean(values)), low=low, high=high, seeds=len(values))


class Plan(NamedTuple):
    """A run of a reproduction."""

    name: str
    settings: Mapping[str, Any]


def train_all(folder: Path, plans: Sequence[Plan], quick: bool, seeds: int = SEEDS) -> dict[str, Run]:
    """Returns the finished runs of a reproduction: trains what is missing and resumes what was interrupted."""
    from counterpoint.training.train import is_finished, resume, train

    began, found = time.perf_counter(), {}
    for number, (name, settings) in enumerate(plans, 1):
        path = folder / "runs" / name
        wanted: dict[str, Any] = PAPER | dict(settings) | (QUICK if quick else {})
        wanted["num_seeds"] = QUICK_SEEDS if quick else seeds
        spent = f"{(time.perf_counter() - began) / 60:.1f} min so far"
        if not (path / "config.json").exists():
            print(f"[{number}/{len(plans)}] training {name}, {wanted['num_seeds']} seeds, {spent} …", flush=True)
            train(**wanted, save_dir=str(folder / "runs"), exp_name=name)
        elif not is_finished(open_run(path), int(open_run(path).config["training"]["num_episodes"])):
            print(f"[{number}/{len(plans)}] resuming {name}, {spent} …", flush=True)
            resume(path)
        found[name] = open_run(path)
    return found


def evaluate(run: Run, quick: bool, explore: bool = False) -> list[dict[str, float]]:
    """Returns the mean metrics of each seed over whole episodes; `return/AGENT` are returns."""
    from counterpoint.policies.policy import load

    episodes, results, team = (QUICK_EPISODES if quick else EPISODES), [], None
    for k in range(int(run.config["training"]["num_seeds"])):
        policy = load(run, k)
        if team is None:
            team = policy
        team.parameters = policy.parameters  # one program for all seeds
        played = team.evaluate(episodes, seed=1000 + k, explore=explore)
        means = {name: float(np.mean(values)) for name, values in played.metrics.items()}
        returns = np.asarray(played.returns).mean(axis=0)
        results.append(means | {f"return/{agent}": float(r) for agent, r in zip(team.env.spec.agents, returns, strict=True)})
    return results


HEADER = ["what", "metric", "unit", "published", "ours", "95 % over seeds", "seeds", "inside"]


def write_up(folder: Path, title: str, about: str, rows: Sequence[Row], quick: bool, began: float) -> None:
    """Writes a reproduction as Markdown, CSV and a figure, and prints it."""
    body = [[r.cell, r.metric, r.unit, r.published, r.ours, _interval(r), r.seeds or None, _verdict(r)] for r in rows]
    minutes = (time.perf_counter() - began) / 60
    warning = "\nA quick run: these numbers prove that the pipeline works, and nothing else.\n" if quick else ""
    text = f"{title}\n\n{about}\n{warning}\n{markdown_table(HEADER, body)}\nThis call took {minutes:.1f} minutes.\n"
    write_whole(folder / "table.md", lambda draft: draft.write_text(text, encoding="utf-8"))
    names = ["what", "metric", "unit", "published", "ours", "low", "high", "seeds"]
    write_csv(folder / "table.csv", names, [list(row) for row in rows])
    figure(rows, folder / "figure.png", title)
    print(f"\n{text}\n→ {folder}/table.md, table.csv, figure.png, runs/")


def _interval(row: Row) -> str:
    return "–" if row.low is None or row.high is None else f"{row.low:.3g} … {row.high:.3g}"


def _verdict(row: Row) -> str:
    """Returns whether our interval contains the published number, or on which side of it ours is."""
    if row.published is None or row.low is None or row.high is None:
        return "–"
    return "yes" if row.low <= row.published <= row.high else "ours higher" if row.low > row.published else "ours lower"


def figure(rows: Sequence[Row], path: Path, title: str) -> None:
    """Draws our numbers with their intervals beside the published ones, a panel for each metric."""
    metrics = list(dict.fromkeys(row.metric for row in rows))

    def draw(page: Any) -> None:
        for i, metric in enumerate(metrics):
            axes = page.add_subplot(1, len(metrics), i + 1)
            own = [row for row in rows if row.metric == metric]
            for at, row in enumerate(own):
                if row.ours is not None and row.low is not None and row.high is not None:
                    around = [[row.ours - row.low], [row.high - row.ours]]
                    axes.errorbar([row.ours], [at], xerr=around, fmt="o", color=hex_of(BLUE), markersize=4)
                if row.published is not None:
                    axes.plot([row.published], [at], "|", color=hex_of(STONE), markersize=12, markeredgewidth=2)
            axes.set_yticks(range(len(own)), [row.cell for row in own] if i == 0 else [])
            axes.invert_yaxis()
            axes.set_title(metric, size=8)
        page.suptitle(f"{title} (dot: ours with 95 %, tick: published)", x=0.01, ha="left", size=9)

    longest = max(sum(row.metric == metric for row in rows) for metric in metrics)
    save_figure((2.2 + 2.0 * len(metrics), 1.2 + 0.3 * longest), path, 160, draw)


def pair_name(good: str, adversary: str) -> str:
    """Returns a pairing as the paper writes it."""
    return f"{good.upper()} v {adversary.upper()}"
