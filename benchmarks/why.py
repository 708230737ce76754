"""Trains runs that fail in different ways, cures them as `counterpoint why` says, and trains healthy runs beside them.

The table is written to docs/results/why.md. Runs are kept in --folder: finished ones are not trained again.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import counterpoint
from counterpoint.runs import Run, open_run, trend
from counterpoint.runs.tables import markdown_table
from counterpoint.studies.why import examine

PAGE = Path("docs/results/why.md")
WORLDS = Path(__file__).parent / "why_worlds.py"
SMALL: dict[str, Any] = {
    **{"batch_size": 256, "buffer_size": 20_000, "num_envs": 10, "update_every": 10, "warmup": 500, "num_units": 32},
    **{"lr": 3e-3, "gamma": 0.75, "num_episodes": 2000, "report_every": 100, "save_rate": 500, "plots_dir": "", "devices": 1},
}
"""Settings that learn the small worlds in seconds."""
CUE: dict[str, Any] = {**SMALL, "env": f"{WORLDS}:Cue"}


class Failure(NamedTuple):
    """A run that fails on purpose, and the settings that cure it."""

    finding: str
    """What `why` should say."""
    about: str
    """What is wrong, as the person knows who did it."""
    settings: dict[str, Any]
    cure: dict[str, Any]
    said: str
    """What the cure that `why` suggests should contain."""


class Healthy(NamedTuple):
    """A run that learns."""

    about: str
    settings: dict[str, Any]


FAILURES: tuple[Failure, ...] = ()
HEALTHY: tuple[Healthy, ...] = ()

ABOUT = """# Runs that fail on purpose

`python benchmarks/why.py` trains runs that fail in different ways, asks `counterpoint why` for the reason, trains them again
with the cure that it names, and trains healthy runs beside them. Runs of `cue` and `levers` are in the small worlds of
`benchmarks/why_worlds.py`. The score is the success of the last greedy evaluations where the world reports it, otherwise
the return of the good team; of several seeds it is the share that succeeded.
"""


def trained(folder: Path, what: Failure | Healthy, cured: bool = False) -> Run:
    """Returns the run of a failure, of its cure or of a healthy setting; trains it if it is not there yet."""
    settings = what.settings | (what.cure if isinstance(what, Failure) and cured else {})
    title = what.finding if isinstance(what, Failure) else what.about
    name = "".join(letter if letter.isalnum() else "-" for letter in title) + "-cured" * cured
    if (folder / name / "config.json").exists():
        return counterpoint.resume(open_run(folder / name), progress=False)
    return counterpoint.train(**{"plots_dir": ""} | settings, save_dir=str(folder), exp_name=name, progress=False)


def score(run: Run) -> float:
    """Returns how well a run did: its success or its return, or the share of its seeds that succeeded."""
    rows = run.rows()
    seeds = dict.fromkeys(row["seed"] for row in rows)
    if len(seeds) > 1:
        return float(np.mean([(trend.success(trend.of_seed(rows, seed)) or 0) >= trend.SOLVED for seed in seeds]))
    for name in ("eval/success", "eval/team/good"):
        if (values := trend.finite(rows, name)).size:
            return float(values[-3:].mean())
    return float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/why"), help="folder for the runs")
    folder = parser.parse_args().folder
    failed, healthy = [], []
    for failure in FAILURES:
        sick, cured = (trained(folder, failure, cured) for cured in (False, True))
        found, left = examine(sick).findings, examine(cured).findings
        names, evidence, cure = (", ".join(getattr(f, part) for f in found) for part in ("name", "evidence", "cure"))
        scores = f"{score(sick):.2f} → {score(cured):.2f}"
        applied = " ".join(f"`{name}={value}`" for name, value in failure.cure.items())
        failed.append(
            [failure.about, names or "–", evidence, cure, applied, scores, ", ".join(f.name for f in left) or "nothing"]
        )
        print(failure.finding, "|", names, "|", scores, "|", failed[-1][-1], flush=True)
    for each in HEALTHY:
        run = trained(folder, each)
        found = ", ".join(f.name for f in examine(run).findings) or "nothing"
        healthy.append([each.about, f"{score(run):.2f}", found])
        print(each.about, "|", healthy[-1][1], "|", found, flush=True)
    header = ["what was done", "finding", "evidence", "cure it names", "cure applied", "score", "then found"]
    tables = markdown_table(header, _plain(failed)), markdown_table(["healthy run", "score", "found"], healthy)
    PAGE.write_text(
        f"{ABOUT}\n## Failures\n\n{tables[0]}\n## Healthy runs\n\n{tables[1]}".replace(str(WORLDS.parent), "benchmarks")
    )


def _plain(rows: list[list[str]]) -> list[list[str]]:
    """Returns rows without the folder of the runs on this machine and without what would end a cell."""
    return [[str(cell).replace("|", "/") for cell in row] for row in rows]


if __name__ == "__main__":
    main()
