"""Run folders with made-up metrics, for tests that need runs and no training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counterpoint import runs
from counterpoint.runs.folder import Run


def made_run(
    folder: Path,
    name: str,
    scores: Sequence[float],
    algorithm: str = "maddpg",
    scenario: str = "simple_spread",
    reports: int = 4,
    first_seed: int = 0,
    world: dict[str, Any] | None = None,
    **training: Any,
) -> Run:
    """Creates a run whose seed k reaches scores[k] at its last report, one below it at the report before, and so on."""
    config = {
        "preset": "",
        "algorithm": algorithm,
        "world": {"scenario": scenario, "env": "", "scenario_args": []} | (world or {}),
        "training": {"num_episodes": 100 * reports, "lr": 0.01, "seed": first_seed, "num_seeds": len(scores)} | training,
        "checkpoints": {"exp_name": name, "save_dir": str(folder)},
    }
    run = runs.create(folder, name, config)
    for report in range(reports):
        for k, score in enumerate(scores):
            value = score - (reports - 1 - report)
            run.append_metrics(
                {
                    "step": 2500 * (report + 1),
                    "episode": 100 * (report + 1),
                    "seed": first_seed + k,
                    "seconds": 1.5 * (report + 1),
                }
                | {"team/good": value - 1, "team/adversary": -value, "eval/team/good": value, "eval/team/adversary": -value}
                | {"eval/length": 25.0, "eval/success": min(1.0, max(0.0, score / 10))}
            )
    return run
