"""Cooperative communication (Lowe et al. 2017, Table 1): how often the listener reaches its landmark, and how close it ends."""

import time
from pathlib import Path

from counterpoint.studies.reproduce import PublishedResult
from counterpoint.studies.reproduce._lowe2017 import Effort, Plan, Row, claims_of, evaluate, train_all, write_up

PUBLISHED = {
    "MADDPG": (84.0, 0.133),
    "DDPG": (32.0, 0.456),
    "DQN": (24.8, 0.754),
    "actor-critic": (17.2, 2.071),
    "TRPO": (20.6, 1.573),
    "REINFORCE": (13.6, 3.333),
}
"""Target reached in percent, and average distance."""
ABOUT = """`simple_speaker_listener`, original rules. The target counts as reached if the listener touches the landmark at the
last step; the distance is that at the last step. The paper defines neither; these definitions hold for every cell. Algorithms
that this library does not have are listed with their published numbers."""


def run(folder: Path, quick: bool, episodes: int = 0, seeds: int = 0) -> None:
    """Trains MADDPG and DDPG and compares both with the published table."""
    began, effort = time.perf_counter(), Effort(quick, episodes, seeds)
    ours = {"MADDPG": "maddpg", "DDPG": "ddpg"}
    plans = [Plan(name, {"scenario": "simple_speaker_listener", "algorithm": name}) for name in ours.values()]
    runs = train_all(folder, plans, effort)
    rows = []
    for title, (reached, distance) in PUBLISHED.items():
        first, second = Row(title, "target reached", "%", reached), Row(title, "distance", "length", distance)
        if title in ours:
            played = evaluate(runs[ours[title]], effort)
            first = first.measured([100 * seed["success"] for seed in played])
            second = second.measured([seed["final_distance"] for seed in played])
        rows += [first, second]
    claims = claims_of(rows, ("target reached", "MADDPG", "DDPG"), ("distance", "DDPG", "MADDPG"))
    write_up(folder, "Cooperative communication (Lowe et al. 2017, Table 1)", ABOUT, rows, effort, began, runs, claims)


RESULT = PublishedResult("lowe2017-communication", "Cooperative communication (Lowe et al. 2017, Table 1).", run)
