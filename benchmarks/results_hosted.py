"""Of `make results`: tennis, and mpe2's own spread through the adapter beside our compiled twin."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.runs import tables
from counterpoint.viz import plots

Rows = list[dict[str, Any]]

TWIN: dict[str, Any] = {"num_episodes": 6000, "world_action": "one-hot"}
EXPERIMENTS: list[tuple[str, dict[str, Any], int, str]] = [
    ("tennis", {"preset": "tennis"}, 10, "MADDPG (`tennis`)"),
    ("tennis-tuned", {"preset": "tuned-tennis"}, 10, "MAPPO (`tuned-tennis`)"),
    ("spread-hosted", TWIN | {"env": "mpe2.simple_spread_v3:parallel_env"}, 2, "mpe2's simple_spread, through the adapter"),
    ("spread-twin", TWIN | {"scenario": "simple_spread"}, 2, "our simple_spread, compiled"),
]
"""Name, settings, seeds, title."""

SOLVED = 0.5


def solved_at(rows: Rows, column: str) -> dict[int, float]:
    """Per seed, the episode of the first report at which the column is high enough; infinite if at none."""
    first = {int(row["seed"]): np.inf for row in rows}
    for row in sorted(rows, key=lambda row: row["episode"]):
        if row[column] >= SOLVED and first[int(row["seed"])] == np.inf:
            first[int(row["seed"])] = row["episode"]
    return first


def section(rows_of: Callable[[str], Rows], folder: Path) -> str:
    """What docs/results.md says about these experiments, with its figures; nothing about what is not measured."""
    text = ""
    played = {title: rows for name, _, _, title in EXPERIMENTS[:2] if (rows := rows_of(name))}
    if played:
        text += TENNIS.format(table=_tennis_table(played))
        plots.compare(
            {title.replace("`", ""): rows for title, rows in played.items()}, folder / "tennis.png", column="eval/score"
        )
    runs = {title: rows_of(name) for name, _, _, title in EXPERIMENTS[2:]}
    if all(runs.values()):
        plots.compare(runs, folder / "twins.png", column="team/good")
        text += TWINS.format(
            table=tables.markdown_table(
                ["", "seeds", "last 1000 training episodes"], map(_last, *zip(*runs.items(), strict=True))
            )
        )
    return text


JUDGED = {"greedy, better agent, mean of 100 episodes": "eval/score", "training, mean of both agents": "team/good"}


def _tennis_table(played: dict[str, Rows]) -> str:
    lines = []
    for (title, rows), (name, column) in itertools.product(played.items(), JUDGED.items()):
        at = np.array(list(solved_at(rows, column).values()))
        last = [row[column] for row in {row["seed"]: row for row in rows}.values()]
        lines.append(
            [
                title,
                name,
                f"{np.isfinite(at).sum()} of {len(at)}",
                f"{np.median(at):.0f}",
                f"{at.min():.0f} … {at.max():.0f}",
                f"{np.mean(last):.2f}",
                _minutes(rows),
            ]
        )
    header = [
        "algorithm",
        "score ≥ 0.5",
        "seeds",
        "median episodes until then",
        "first … last",
        "mean at the end",
        "minutes of a seed",
    ]
    return tables.markdown_table(header, lines)


def _minutes(rows: Rows) -> str:
    last = [row["seconds"] / 60 for row in {row["seed"]: row for row in rows}.values()]
    return f"{min(last):.0f} … {max(last):.0f}"


def _last(title: str, rows: Rows) -> list[Any]:
    values = np.array([row["team/good"] for row in {row["seed"]: row for row in rows}.values()])
    return [title, len(values), " ".join(f"{value:.1f}" for value in values)]


TENNIS = """
## Tennis

Two rackets keep a ball in the air. `counterpoint train --scenario tennis` starts from the preset `tennis` (MADDPG,
Ornstein-Uhlenbeck noise, two updates per step, 1200 episodes). `tuned-tennis` is MAPPO whose players share all parameters, with
normalised layers and 128 copies of the game; its episodes end after 300 steps, which leave room for a score of 0.8. It was
chosen on seeds 100 and 101, which were solved within 40 seconds of training on one core. Solved is a mean of 100 episodes of
at least 0.5 for the better agent. The first row of each judges the greedy policy at every report of training; the second,
which is stricter, the training episodes themselves, with noise and the mean of both agents. Minutes are those of wall time on
one core.

{table}
![tennis](results/tennis.png)

![a rally](results/tennis/team.gif)
"""

TWINS = """
## Somebody else's world and its compiled twin

mpe2's `simple_spread` stepped in Python by workers (`--env mpe2.simple_spread_v3:parallel_env`), and our own, compiled:
the same learner, one-hot actions, 6000 episodes, one agent's return.

{table}
![twins](results/twins.png)
"""
