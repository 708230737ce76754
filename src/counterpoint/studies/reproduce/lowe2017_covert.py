"""Covert communication (Lowe et al. 2017, Table 5): how often Bob and Eve recover Alice's message."""

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

PUBLISHED = ((96.5, 52.1), (96.8, 44.4), (65.3, 64.3), (92.7, 67.6))
"""Bob and Eve in percent, in the order of `PAIRS`."""
ABOUT = """`simple_crypto`, original rules. A message counts as recovered at a step if the largest entry of the answer is the
right one; the share is over all steps. The lead is Bob's share less Eve's, which is what Alice and Bob are rewarded for. Each
pairing (Alice and Bob v Eve) is trained together, as the options of the authors' code do."""


def run(folder: Path, quick: bool, episodes: int = 0, seeds: int = 0) -> None:
    """Trains every pairing and compares it with the published table."""
    effort = Effort(quick, episodes, seeds)
    runs = train_all(folder, paired_plans({"scenario": "simple_crypto"}), effort)
    began, rows = time.perf_counter(), []
    for (good, adversary), numbers in zip(PAIRS, PUBLISHED, strict=True):
        played = evaluate(runs[f"{good}-{adversary}"], effort)
        for who, number in zip(("bob", "eve"), numbers, strict=True):
            row = Row(pair_name(good, adversary), f"{who.title()} correct", "%", number)
            rows.append(row.measured([100 * seed[f"{who}_correct"] for seed in played]))
        lead = Row(pair_name(good, adversary), "lead of Bob", "points", round(numbers[0] - numbers[1], 1))
        rows.append(lead.measured([100 * (seed["bob_correct"] - seed["eve_correct"]) for seed in played]))
    strong, weak = pair_name("maddpg", "maddpg"), pair_name("ddpg", "maddpg")
    leads = [("lead of Bob", pair_name("maddpg", eve), pair_name("ddpg", eve)) for eve in ("maddpg", "ddpg")]
    claims = claims_of(rows, ("Bob correct", strong, weak), ("Eve correct", weak, strong), *leads)
    write_up(folder, "Covert communication (Lowe et al. 2017, Table 5)", ABOUT, rows, effort, began, runs, claims)


RESULT = PublishedResult("lowe2017-covert", "Covert communication (Lowe et al. 2017, Table 5).", run)
