"""Time to quality: wall seconds from a cold start until a team reaches its target, with our presets and the authors' settings.

Each case trains once, in a process of its own with an empty compilation cache, and is stopped when evaluations have reached
all targets or the budget is spent. Evaluation takes part of the time, as it does for a user.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from counterpoint.runs.tables import markdown_table


class Case(NamedTuple):
    """A command and the metrics whose targets its evaluations shall reach."""

    title: str
    words: tuple[str, ...]
    targets: dict[str, float]


class Reached(NamedTuple):
    """What a training achieved in one metric."""

    seconds: float | None
    """From the start until the target; None if it was not reached."""
    best: float
    episode: int
    """That of the best evaluation so far."""


SPEAKER = ("--scenario", "simple_speaker_listener")
SPREAD = ("--scenario", "simple_spread", "--flavour", "openai")
SUCCESS, COVERED = {"eval/success": 0.9}, {"eval/team/good": -130.0, "eval/success": 0.8}
CASES = (
    Case("speaker-listener, demo", ("--preset", "demo"), SUCCESS),
    Case("speaker-listener, authors' settings", (*SPEAKER, "--init", "glorot"), SUCCESS),
    Case("spread, tuned-simple_spread", ("--preset", "tuned-simple_spread"), COVERED),
    Case("spread, authors' settings", (*SPREAD, "--init", "glorot"), COVERED),
)


def measure(case: Case, seed: int, limit: float) -> dict[str, Reached]:
    """Returns what one training achieved in each metric."""
    found = {metric: Reached(None, -float("inf"), 0) for metric in case.targets}
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", *case.words, "--seed", str(seed), "--save-dir", folder, "--exp-name", "run", "--plots-dir", ""]
        words += ["--report-every", "500", "--eval-episodes", "300"]
        began = time.perf_counter()
        training = subprocess.Popen(
            [sys.executable, "-m", "counterpoint", *words],
            env=os.environ | {"XDG_CACHE_HOME": f"{folder}/cache"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while (spent := time.perf_counter() - began) < limit:
                done = training.poll() is not None
                rows = rows_of(Path(folder) / "run" / "metrics.csv")
                for metric, target in case.targets.items():
                    if found[metric].seconds is None:
                        found[metric] = after(rows, metric, target, spent)
                if done or all(reached.seconds is not None for reached in found.values()):
                    break
                time.sleep(0.5)
        finally:
            training.kill()
            training.wait()
    return found


def after(rows: list[dict[str, str]], metric: str, target: float, spent: float) -> Reached:
    """Returns what these evaluations achieved, now that so many seconds are spent."""
    values = [(float(row[metric]), int(row["episode"])) for row in rows if row.get(metric)]
    best, episode = max(values, default=(-float("inf"), 0))
    return Reached(spent if best >= target else None, best, episode)


def rows_of(table: Path) -> list[dict[str, str]]:
    """Returns the rows that a training process has written so far."""
    if not table.exists():
        return []
    with table.open() as file:
        return [row for row in csv.DictReader(file) if None not in row.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a case counts as not reached")
    parser.add_argument("--only", default="", help="measure only cases whose title contains this")
    options = parser.parse_args()
    rows = []
    for case in CASES:
        if options.only in case.title:
            for metric, reached in measure(case, options.seed, options.limit).items():
                spent = "not reached" if reached.seconds is None else f"{reached.seconds:.0f} s"
                target = f"{metric} ≥ {case.targets[metric]:g}"
                rows.append([case.title, target, spent, round(reached.best, 3), reached.episode])
                print(*rows[-1], flush=True)
    print(f"\nseed {options.seed}, at most {options.limit:.0f} s each\n")
    print(markdown_table(["settings", "target", "wall time from cold start", "best", "at episode"], rows))


if __name__ == "__main__":
    main()
