"""Proposition 1 of Lowe et al. (2017): the chance that a policy-gradient sample points the right way falls as 2^−N.

N agents choose 0 or 1 with P(1) = θ_i = ½ and are paid 1 if all choose 1. The gradient of the expected reward with respect to
every θ_i is ½^(N−1), and one sample estimates it by R ∂ log P(a) / ∂θ, which is zero unless all choose 1.
"""

import time
from pathlib import Path

import numpy as np

from counterpoint.runs import stats
from counterpoint.studies.reproduce import PublishedResult
from counterpoint.studies.reproduce._lowe2017 import Effort, Row, write_up

AGENTS = (1, 2, 3, 4, 5, 6, 8, 10)
SAMPLES, QUICK_SAMPLES = 1_000_000, 20_000
ABOUT = """The share of single-sample policy gradients whose inner product with the true gradient is positive; the published
number is ½^N. The interval is the exact binomial one."""


def right_way(num_agents: int, samples: int, seed: int = 0) -> int:
    """Returns how many of the sampled gradients point along the true one."""
    rng = np.random.default_rng([seed, num_agents])
    choice = rng.integers(0, 2, (samples, num_agents))
    reward = choice.all(axis=1).astype(float)
    score = np.where(choice == 1, 2.0, -2.0)  # ∂ log P(a_i) / ∂θ_i at θ = ½
    true = np.full(num_agents, 0.5 ** (num_agents - 1))
    return int(np.count_nonzero((reward[:, None] * score) @ true > 0))


def run(folder: Path, quick: bool) -> None:
    """Samples gradients for several numbers of agents and compares the shares with the proposition."""
    began, samples, rows = time.perf_counter(), QUICK_SAMPLES if quick else SAMPLES, []
    for n in AGENTS:
        count = right_way(n, samples)
        low, high = stats.exact_interval(count, samples)
        rows.append(Row(f"N = {n}", "right way", "share", 0.5**n, count / samples, low, high))
    write_up(folder, "Policy gradients of N agents (Lowe et al. 2017, Proposition 1)", ABOUT, rows, Effort(quick), began)


RESULT = PublishedResult(
    "lowe2017-gradients", "Policy gradients that point the right way (Lowe et al. 2017, Proposition 1).", run
)
