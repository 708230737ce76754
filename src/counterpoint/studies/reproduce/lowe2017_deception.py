"""Physical deception (Lowe et al. 2017, Table 4): how often good agents and adversary end at the target, N = 2 and 4."""

import time
from pathlib import Path

from counterpoint.studies.reproduce import PublishedResult
from counterpoint.studies.reproduce._lowe2017 import (
    PAIRS,
    Effort,
    Row,
    claims_of,
    evaluate,
    pair_name,
    paired_plans,
    train_all,
    write_up,
)

PUBLISHED = {
    2: ((94.4, 39.2), (92.2, 16.4), (68.9, 59.0), (74.7, 38.6)),
    4: ((81.5, 28.3), (69.6, 19.8), (35.7, 32.1), (18.4, 35.8)),
}
"""Success of the agents and of the adversary in percent by N, in the order of `PAIRS`."""
ABOUT = """`simple_adversary`, original rules. A team succeeds if its closest agent is within 0.16 of the target at the last
step: twice the landmark's radius, which the original's unshaped reward uses; the paper states no radius. Each pairing (agents
v adversary) is trained together, as the options of the authors' code do."""


def run(folder: Path, quick: bool, episodes: int = 0, seeds: int = 0) -> None:
    """Trains every pairing with both numbers of agents and compares them with the published table."""
    effort = Effort(quick, episodes, seeds)
    world = {"scenario": "simple_adversary"}
    plans = [plan for n in PUBLISHED for plan in paired_plans({**world, "scenario_args": (f"N={n}",)}, f"-{n}")]
    runs = train_all(folder, plans, effort)
    began, rows = time.perf_counter(), []
    for n, published in PUBLISHED.items():
        for (good, adversary), numbers in zip(PAIRS, published, strict=True):
            played = evaluate(runs[f"{good}-{adversary}-{n}"], effort)
            for who, number in zip(("good", "adversary"), numbers, strict=True):
                row = Row(f"{pair_name(good, adversary)}, N = {n}", f"success of {who}", "%", number)
                rows.append(row.measured([100 * seed[f"{who}_success"] for seed in played]))
    orders = [
        ("success of good", f"{pair_name('maddpg', adversary)}, N = {n}", f"{pair_name('ddpg', adversary)}, N = {n}")
        for n in PUBLISHED
        for adversary in ("maddpg", "ddpg")
    ]
    claims = claims_of(rows, *orders)
    write_up(folder, "Physical deception (Lowe et al. 2017, Table 4)", ABOUT, rows, effort, began, runs, claims)


RESULT = PublishedResult("lowe2017-deception", "Physical deception with 2 and 4 agents (Lowe et al. 2017, Table 4).", run)
