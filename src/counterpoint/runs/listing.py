"""The list of runs in a folder."""

import os
import time
from pathlib import Path
from typing import Literal, NamedTuple

from counterpoint.core.errors import UsageError
from counterpoint.runs.folder import Run


class Summary(NamedTuple):
    """One run in the list."""

    name: str
    scenario: str
    algorithm: str
    episodes: int
    """Episodes of the seed that has the fewest."""
    last_return: float | None
    """Sum over agents at the last report, averaged over seeds."""
    state: Literal["finished", "unfinished", "unreadable"]
    age: float
    """Seconds since the run last wrote a file."""


def list_runs(save_dir: str | os.PathLike[str]) -> list[Summary]:
    """Returns the runs in a folder, most recently written first."""
    summaries = (_summary(path.parent) for path in Path(save_dir).expanduser().glob("*/config.json"))
    return sorted(summaries, key=lambda summary: (summary.age, summary.name))


def _summary(path: Path) -> Summary:
    """Summarises a run by world.scenario, algorithm and training.num_episodes, and by seed, episode and return_sum."""
    names = ("config.json", "metrics.csv", "checkpoints")
    age = time.time() - max((path / name).stat().st_mtime for name in names if (path / name).exists())
    try:
        config, rows = Run(path).config, Run(path).rows()
        scenario, algorithm = config["world"]["scenario"], config["algorithm"]
        planned = int(config["training"]["num_episodes"])
    except (UsageError, OSError, KeyError, TypeError, ValueError):
        return Summary(name=path.name, scenario="", algorithm="", episodes=0, last_return=None, state="unreadable", age=age)
    last = {row.get("seed"): row for row in rows}.values()
    episodes = min((cell for row in last if isinstance(cell := row.get("episode"), int)), default=0)
    returns = [cell for row in last if isinstance(cell := row.get("return_sum"), int | float)]
    return Summary(
        name=path.name,
        scenario=scenario,
        algorithm=algorithm,
        episodes=episodes,
        last_return=sum(returns) / len(returns) if returns else None,
        state="finished" if episodes >= planned else "unfinished",
        age=age,
    )
