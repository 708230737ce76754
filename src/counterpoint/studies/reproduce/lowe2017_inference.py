"""Inferring other agents' policies (Lowe et al. 2017, Section 5.3): what it costs, and how close the approximations come."""

import time
from pathlib import Path

import numpy as np

from counterpoint.runs import Run
from counterpoint.studies.reproduce import PublishedResult
from counterpoint.studies.reproduce._lowe2017 import Effort, Plan, Row, evaluate, train_all, write_up

PUBLISHED_RETURN = -14.0
"""Of one agent, read off the figure, with true and with inferred policies."""
PUBLISHED_KL = {"listener": ("speaker_0", 0.9), "speaker": ("listener_0", 0.01)}
"""Of the approximation of each agent: who keeps it, and its divergence at the end, read off the figure; that of the listener
peaks at about 1.45."""
ABOUT = """`simple_speaker_listener`, original rules. The return is one agent's, without exploration noise. The divergence is
that of the other agent's approximation from the true policy, KL(approximation ‖ policy), at the last report. Published
numbers are read off a figure."""


def run(folder: Path, quick: bool, episodes: int = 0, seeds: int = 0) -> None:
    """Trains with true and with inferred policies and compares returns and divergences with the figure."""
    began, effort = time.perf_counter(), Effort(quick, episodes, seeds)
    scenario = {"scenario": "simple_speaker_listener"}
    plans = [Plan("true", scenario), Plan("inferred", scenario | {"infer_policies": True})]
    runs = train_all(folder, plans, effort)
    rows = []
    for name in ("true", "inferred"):
        played = evaluate(runs[name], effort)
        row = Row(f"{name} policies", "return", "openai, one agent", PUBLISHED_RETURN)
        rows.append(row.measured([seed["return/listener_0"] for seed in played]))
    for about, (keeper, published) in PUBLISHED_KL.items():
        row = Row(f"approximation of the {about}", "KL", "nats", published)
        rows.append(row.measured(divergences(runs["inferred"], keeper)))
    write_up(folder, "Inferred policies (Lowe et al. 2017, Figure 7)", ABOUT, rows, effort, began, runs)


def divergences(run: Run, agent: str) -> list[float]:
    """Returns the divergence of the approximation that an agent keeps, at the last report of each seed."""
    last = {row["seed"]: float(row[f"inference_kl/{agent}"] or "nan") for row in run.rows()}
    return [value for value in last.values() if np.isfinite(value)] or [np.nan]


RESULT = PublishedResult("lowe2017-inference", "Inferred policies of other agents (Lowe et al. 2017, Figure 7).", run)
