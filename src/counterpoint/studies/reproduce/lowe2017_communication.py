"""Cooperative communication (Lowe et al. 2017, Table 1): how often the listener reaches its landmark, and how close it ends."""

import time
from pathlib import Path

import numpy as np
from jaxtyping import Float

from counterpoint.envs.mpe.scenario import State
from counterpoint.envs.mpe.speaker_listener import LISTENER
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
ABOUT = """`simple_speaker_listener`, original rules. The target counts as reached if, at the last step, the landmark nearest to
the listener is its target: a third by chance. The distance is that at the last step. The paper defines neither; these
definitions hold for every cell. That of the target was chosen after our first results: we first counted a target that the
listener touches at the last step, which is rare with either algorithm (`target touched`). The paper's own definition is
probably stricter, as four of its algorithms stay clearly below a third, so only the order of the algorithms is evidence.
Algorithms that this library does not have are listed with their published numbers."""


def nearest_is_target(states: State) -> Float[np.ndarray, " E"]:
    """Returns 1 for each state in which the landmark nearest to the listener is its target, otherwise 0."""
    apart = np.linalg.norm(states.landmarks - states.position[:, LISTENER, None], axis=-1)
    return (apart.argmin(axis=-1) == states.goal[:, 0]).astype(float)


def run(folder: Path, quick: bool, episodes: int = 0, seeds: int = 0) -> None:
    """Trains MADDPG and DDPG and compares both with the published table."""
    effort, ours = Effort(quick, episodes, seeds), {"MADDPG": "maddpg", "DDPG": "ddpg"}
    plans = [Plan(name, {"scenario": "simple_speaker_listener", "algorithm": name}) for name in ours.values()]
    runs = train_all(folder, plans, effort)
    began, rows = time.perf_counter(), []
    for title, (reached, distance) in PUBLISHED.items():
        first, second = Row(title, "target reached", "%", reached), Row(title, "distance", "length", distance)
        if title not in ours:
            rows += [first, second]
            continue
        played = evaluate(runs[ours[title]], effort, last={"reached": nearest_is_target})
        rows.append(first.measured([100 * seed["reached"] for seed in played]))
        rows.append(second.measured([seed["final_distance"] for seed in played]))
        rows.append(Row(title, "target touched", "%", None).measured([100 * seed["success"] for seed in played]))
    claims = claims_of(rows, ("target reached", "MADDPG", "DDPG"), ("distance", "DDPG", "MADDPG"))
    write_up(folder, "Cooperative communication (Lowe et al. 2017, Table 1)", ABOUT, rows, effort, began, runs, claims)


RESULT = PublishedResult("lowe2017-communication", "Cooperative communication (Lowe et al. 2017, Table 1).", run)
