"""Trains environments of others with no option but `--env` and a budget, and writes the table of docs/external-learning.md.

Each is trained on seeds 0, 1 and 2; the last policy is measured over 100 fresh episodes, beside a uniformly random one.
`--only walker` selects some. Rows go to docs/results/external.csv as they are measured, so it can be stopped and started again.
multiwalker needs `pip install box2d pymunk`, the others come with the dev extra.
"""

import argparse
import csv
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import counterpoint
from counterpoint.runs.tables import markdown_table

ROOT = Path(__file__).parents[1]
CSV, PAGE = ROOT / "docs/results/external.csv", ROOT / "docs/external-learning.md"
COLUMNS = ("environment", "seed", "episodes", "steps", "random", "learned", "seconds")
SEEDS, FRESH = range(3), 100
BEGIN, END = "<!-- table: benchmarks/external_learning.py -->", "<!-- end of table -->"


class Task(NamedTuple):
    """An environment, its budget, and the return that counts as learned."""

    title: str
    env: str
    episodes: int
    wanted: float | None = None
    arguments: tuple[str, ...] = ()
    team: str = "good"
    """The team whose return is measured."""

    @property
    def command(self) -> str:
        """The command line that does the same."""
        words = f" --scenario-args {' '.join(self.arguments)}" if self.arguments else ""
        return f"--env {self.env}{words} --num-episodes {self.episodes}"


TASKS = {
    "cartpole": Task("CartPole-v1", "CartPole-v1", 1000, wanted=450.0),
    "pendulum": Task("Pendulum-v1", "Pendulum-v1", 200, wanted=-200.0),
    "speaker": Task("simple_speaker_listener_v4", "mpe2.simple_speaker_listener_v4:parallel_env", 4000),
    "spread": Task("simple_spread_v3", "mpe2.simple_spread_v3:parallel_env", 4000),
    "walker": Task("multiwalker_v9", "pettingzoo.sisl.multiwalker_v9:parallel_env", 1000),
    "pursuit": Task(
        "adversarial_pursuit_v4", "magent2.environments.adversarial_pursuit_v4:parallel_env", 100, arguments=("map_size=10",)
    ),
}


def measure(task: Task, seed: int) -> dict[str, Any]:
    """Trains one seed and returns its row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        arguments: dict[str, Any] = {"scenario_args": task.arguments} if task.arguments else {}
        run = counterpoint.train(
            env=task.env, num_episodes=task.episodes, seed=seed, save_dir=folder, plots_dir="", progress=False, **arguments
        )
        seconds, last = time.perf_counter() - began, run.rows()[-1]
        team = counterpoint.load(run)
        learned = _score(task, team, seed)
        random = _score(task, counterpoint.random_team(team.env), seed)
    return dict(zip(COLUMNS, (task.title, seed, task.episodes, last["step"], random, learned, round(seconds)), strict=True))


def _score(task: Task, team: counterpoint.Policy, seed: int) -> float:
    """Returns the mean return of an agent of the measured team over fresh episodes."""
    spec = team.env.spec
    own = [i for i, name in enumerate(spec.teams) if name == task.team]
    returns = np.asarray(team.evaluate(FRESH, seed=1_000_000 + seed).returns)
    return round(float(returns[:, own].mean()), 2)


def rows() -> list[dict[str, Any]]:
    """Returns the rows measured so far."""
    if not CSV.exists():
        return []
    with CSV.open() as file:
        read = list(csv.DictReader(file))
    return [{name: cell if name == "environment" else float(cell) for name, cell in row.items()} for row in read]


def table() -> str:
    """Returns the table of all measured environments."""
    lines = []
    for task in TASKS.values():
        own = [row for row in rows() if row["environment"] == task.title]
        if not own:
            continue
        learned = [row["learned"] for row in own]
        lines.append(
            [
                f"`{task.command}`",
                f"{np.mean([row['steps'] for row in own]):,.0f}",
                f"{np.mean([row['random'] for row in own]):.1f}",
                ", ".join(f"{value:.1f}" for value in learned),
                "–" if task.wanted is None else f"{task.wanted:.0f}",
                f"{np.mean([row['seconds'] for row in own]):.0f}",
            ]
        )
    return markdown_table(["`counterpoint train`", "steps", "random", "learned, by seed", "wanted", "wall seconds"], lines)


def write_page() -> None:
    """Puts the table into its page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n{END}{rest.partition(END)[2]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="measure only environments whose short name contains this")
    only = parser.parse_args().only
    for name, task in TASKS.items():
        done = {int(row["seed"]) for row in rows() if row["environment"] == task.title}
        for seed in SEEDS:
            if only in name and seed not in done:
                row, fresh = measure(task, seed), not CSV.exists()
                with CSV.open("a", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                    if fresh:
                        writer.writeheader()
                    writer.writerow(row)
                print(row, flush=True)
    write_page()
    print(table())


if __name__ == "__main__":
    main()
