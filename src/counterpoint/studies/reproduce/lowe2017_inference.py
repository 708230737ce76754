"""Inferring other agents' policies (Lowe et al. 2017, Section 5.3): what it costs, and how close the approximations come."""

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from counterpoint.runs import Run
from counterpoint.studies.reproduce import PublishedResult
from counterpoint.studies.reproduce._lowe2017 import Claim, Effort, Plan, Row, cost_verdict, evaluate, train_all, write_up

PUBLISHED_RETURN = -14.0
"""Of one agent, read off the figure, with true and with inferred policies."""


class Approximated(NamedTuple):
    """The approximation of one agent, and its divergence as read off the figure."""

    keeper: str
    """The agent that keeps the approximation."""
    last: float
    peak: float | None


PUBLISHED_KL = {"listener": Approximated("speaker_0", 0.9, 1.45), "speaker": Approximated("listener_0", 0.01, None)}
ABOUT = """`simple_speaker_listener`, original rules. The return is one agent's, without exploration noise. With inferred
policies critics read log-probabilities instead of sampled actions, so inferring is compared with true policies whose critics
read log-probabilities too (`--log-actions`), and with true policies as usual. Differences are those of the means over seeds.
The divergence is that of the other agent's approximation from the true policy, KL(approximation ‖ policy), at the last report
and at the report where it is largest; a report averages all updates since the one before. Published numbers are read off a
figure."""


def run(folder: Path, quick: bool, episodes: int = 0, seeds: int = 0) -> None:
    """Trains with true and with inferred policies and compares returns and divergences with the figure."""
    effort, scenario = Effort(quick, episodes, seeds), {"scenario": "simple_speaker_listener"}
    plans = [
        Plan("true", scenario),
        Plan("logarithms", scenario | {"log_actions": True}),
        Plan("inferred", scenario | {"infer_policies": True}),
    ]
    runs = train_all(folder, plans, effort)
    began, unit = time.perf_counter(), "openai, one agent"
    found = {name: [seed["return/listener_0"] for seed in evaluate(run, effort)] for name, run in runs.items()}
    titles = {"true": "true policies", "logarithms": "true policies, log-probabilities", "inferred": "inferred policies"}
    rows = [Row(titles[name], "return", unit, PUBLISHED_RETURN).measured(values) for name, values in found.items()]
    costs = [
        Row(f"inferred less {titles[name]}", "return", unit, 0.0).difference(found["inferred"], found[name])
        for name in ("logarithms", "true")
    ]
    rows += costs
    for about, known in PUBLISHED_KL.items():
        last, peak = divergences(runs["inferred"], known.keeper)
        rows.append(Row(f"approximation of the {about}", "KL, last", "nats", known.last).measured(last))
        rows.append(Row(f"approximation of the {about}", "KL, peak", "nats", known.peak).measured(peak))
    texts = ("inferring costs nothing in return", "inferring and reading log-probabilities together cost nothing in return")
    claims = [Claim(text, cost_verdict(cost)) for text, cost in zip(texts, costs, strict=True)]
    write_up(folder, "Inferred policies (Lowe et al. 2017, Figure 7)", ABOUT, rows, effort, began, runs, claims)


def divergences(run: Run, agent: str) -> tuple[list[float], list[float]]:
    """Returns the divergence of the approximation that an agent keeps, for each seed: at the last report, and the largest."""
    seeds: dict[int, list[float]] = {}
    for row in run.rows():
        value = row[f"inference_kl/{agent}"]
        if isinstance(value, int | float) and np.isfinite(value):  # there is none before the first update
            seeds.setdefault(int(row["seed"] or 0), []).append(float(value))
    found = list(seeds.values()) or [[np.nan]]
    return [values[-1] for values in found], [max(values) for values in found]


RESULT = PublishedResult("lowe2017-inference", "Inferred policies of other agents (Lowe et al. 2017, Figure 7).", run)
