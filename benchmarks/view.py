"""Measures the list of `counterpoint view`: 300 runs of 60 000 episodes. `python benchmarks/view.py [RUNS] [EPISODES]`.

The runs report every 100 episodes in the first line and every episode in the second. Prints a table: `counterpoint runs`, the
first list of the page, the processor's share of that time (on a busy machine the rest is waiting), the first list as a browser
gets it from a server that has just started, the same list again, the list after one run has grown, and a chart of ten runs. All
runs but the first share one file of metrics on the disk, which is read for each of them.
"""

import os
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from counterpoint import runs, view_runs
from counterpoint.runs import metrics
from counterpoint.runs.listing import list_runs
from counterpoint.runs.tables import print_table
from counterpoint.view import catalogue, charts
from counterpoint.view.catalogue import Catalogue, id_of

HEADER = ["reports", "counterpoint runs", "first list", "its processor time", "first list by HTTP"]
HEADER += ["unchanged", "one run grew", "chart of ten runs"]


def main(count: int = 300, episodes: int = 60_000) -> None:
    rows = []
    for every in (100, 1):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            make(folder, count, episodes, every)
            rows.append([f"every {every}" if every > 1 else "every one", *measured(folder)])
    print_table(
        HEADER,
        [[name, *(f"{seconds:.3f} s" for seconds in times)] for name, *times in rows],
    )


def make(folder: Path, count: int, episodes: int, every: int) -> None:
    """Makes runs that differ in their learning rate and their seed, all with the same reports."""
    columns = ["step", "episode", "seed", "seconds", "steps_per_second", "length", "return_sum", "team/good"]
    columns += [f"{kind}/agent_{k}" for kind in ("return", "eval/return", "critic_loss", "actor_loss") for k in range(3)]
    columns += ["eval/team/good", "eval/success", "eval/collisions", "eval/length"]
    moments = range(every, episodes + 1, every)
    reports = [[25 * e, e, 0, e / 500, 12500.0, 25.0, *(-e / 7 for _ in columns[6:])] for e in moments]
    (folder / "shared").mkdir()
    shared = folder / "shared" / "metrics.csv"
    metrics.append(shared, columns, reports)
    for k in range(count):
        run = run_of(folder, k, episodes)
        for path in (shared, metrics.sums_path(shared)):
            (os.link if k else shutil.copy)(path, run.path / path.name)


def run_of(folder: Path, k: int, episodes: int) -> runs.Run:
    training = {"num_episodes": episodes, "num_seeds": 1, "seed": k}
    learning = {"lr": 0.01 * (1 + k % 3)} | {f"setting_{i}": i for i in range(60)}
    world = {"scenario": "simple_spread", "env": ""}
    return runs.create(folder, f"run-{k}", {"algorithm": "maddpg", "world": world, "training": training, "learning": learning})


def measured(folder: Path) -> list[float]:
    catalogue.REST = 0.0
    names = [f"run-{k}" for k in range(10)]
    found = Catalogue(folder)
    times = [timed(lambda: list_runs(folder))]
    began = time.process_time()
    times.append(timed(lambda: found.changes(-1)))
    times += [time.process_time() - began, asked(folder), timed(lambda: found.changes(-1))]
    with (folder / "run-0" / "metrics.csv").open("ab") as file:
        file.write((folder / "run-0" / "metrics.csv").read_bytes().splitlines(keepends=True)[-1])
    times.append(timed(lambda: found.changes(1)))
    chosen = [run for name in names if (run := found.run(id_of(name)))]
    return [*times, timed(lambda: charts.drawn(charts.Wish(chosen)))]


def asked(folder: Path) -> float:
    """Returns the seconds that a new server takes to answer the request with which the page fills its list."""
    with view_runs(folder) as page:
        return timed(lambda: urllib.request.urlopen(page.url.replace("?", "api/runs?")).read())


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
