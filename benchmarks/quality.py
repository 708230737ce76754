"""Time to quality: wall seconds from a cold start until a team reaches its target, with our presets and the authors' settings.

Each case trains once, in a process of its own with an empty compilation cache, and is stopped when an evaluation reaches the
target or the budget is spent. Evaluation takes part of the time, as it does for a user.
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
    """A command and the target that its evaluations shall reach."""

    title: str
    words: tuple[str, ...]
    metric: str
    target: float


SPEAKER = ("--scenario", "simple_speaker_listener")
SPREAD = ("--scenario", "simple_spread", "--flavour", "openai")
CASES = (
    Case("speaker-listener, demo", ("--preset", "demo"), "eval/success", 0.9),
    Case("speaker-listener, authors' settings", (*SPEAKER, "--init", "glorot"), "eval/success", 0.9),
    Case("spread, tuned-simple_spread", ("--preset", "tuned-simple_spread"), "eval/team/good", -130.0),
    Case("spread, authors' settings", (*SPREAD, "--init", "glorot"), "eval/team/good", -130.0),
    Case("spread, tuned-simple_spread", ("--preset", "tuned-simple_spread"), "eval/success", 0.8),
    Case("spread, authors' settings", (*SPREAD, "--init", "glorot"), "eval/success", 0.8),
)


def measure(case: Case, seed: int, limit: float) -> tuple[float | None, float, int]:
    """Returns the seconds until the target (None: not reached), the best value seen, and its episode."""
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
        best, episode = -float("inf"), 0
        try:
            while time.perf_counter() - began < limit:
                done = training.poll() is not None
                for row in rows_of(Path(folder) / "run" / "metrics.csv"):
                    if row.get(case.metric) and float(row[case.metric]) > best:
                        best, episode = float(row[case.metric]), int(row["episode"])
                if best >= case.target:
                    return time.perf_counter() - began, best, episode
                if done:
                    break
                time.sleep(0.5)
            return None, best, episode
        finally:
            training.kill()
            training.wait()


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
            seconds, best, episode = measure(case, options.seed, options.limit)
            time_taken = "not reached" if seconds is None else f"{seconds:.0f} s"
            rows.append([case.title, f"{case.metric} ≥ {case.target:g}", time_taken, round(best, 3), episode])
            print(*rows[-1], flush=True)
    print(f"\nseed {options.seed}, at most {options.limit:.0f} s each\n")
    print(markdown_table(["settings", "target", "wall time from cold start", "best", "at episode"], rows))


if __name__ == "__main__":
    main()
