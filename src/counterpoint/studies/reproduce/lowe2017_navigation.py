"""Cooperative navigation (Lowe et al. 2017, Table 2): distance to the landmarks and collisions, with 3 and 6 agents."""

import time
from pathlib import Path

from counterpoint.studies.reproduce import PublishedResult
from counterpoint.studies.reproduce._lowe2017 import Effort, Plan, Row, claims_of, evaluate, train_all, write_up

PUBLISHED = {
    ("maddpg", 3): (1.767, 0.209),
    ("ddpg", 3): (1.858, 0.375),
    ("maddpg", 6): (3.345, 1.366),
    ("ddpg", 6): (3.350, 1.585),
}
"""Average distance, and collisions per episode."""
ABOUT = """`simple_spread`, original rules, 2 × 128 units. The distance is the mean over steps of the sum, over landmarks, of
the distance to the nearest agent; a collision is a pair of agents that overlap at a step, summed over the episode. The
paper's definition of its distance is unpublished and is not this one, so only the order of the algorithms can be compared
there."""


def run(folder: Path, quick: bool, episodes: int = 0, seeds: int = 0) -> None:
    """Trains both algorithms with 3 and 6 agents and compares them with the published table."""
    effort = Effort(quick, episodes, seeds)
    plans = [
        Plan(f"{name}-{agents}", {"scenario": "simple_spread", "algorithm": name, "num_agents": agents, "num_units": 128})
        for name, agents in PUBLISHED
    ]
    runs = train_all(folder, plans, effort)
    began, rows = time.perf_counter(), []
    for (name, agents), (distance, collisions) in PUBLISHED.items():
        played, cell = evaluate(runs[f"{name}-{agents}"], effort), f"{name.upper()}, N = {agents}"
        rows.append(Row(cell, "distance", "length", distance).measured([seed["distance"] for seed in played]))
        rows.append(Row(cell, "collisions", "per episode", collisions).measured([seed["collisions"] for seed in played]))
    orders = [(metric, f"DDPG, N = {n}", f"MADDPG, N = {n}") for metric in ("distance", "collisions") for n in (3, 6)]
    claims = claims_of(rows, *orders)
    write_up(folder, "Cooperative navigation (Lowe et al. 2017, Table 2)", ABOUT, rows, effort, began, runs, claims)


RESULT = PublishedResult("lowe2017-navigation", "Cooperative navigation with 3 and 6 agents (Lowe et al. 2017, Table 2).", run)
