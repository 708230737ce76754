"""`make results`: the learning results of docs/results.md, trained from nothing, resumable at any moment.

Each job is one seed of one experiment, a run in results/<experiment>/; finished jobs are kept as small tables under
docs/results/. Two jobs run at a time, one core each. `--only NAME` limits, `--report` only redraws tables and figures.
"""

import argparse
import multiprocessing
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

RUNS, TABLES = Path("results"), Path("docs/results")


class Experiment(NamedTuple):
    """A configuration and its seeds."""

    name: str
    settings: dict[str, Any]
    seeds: int
    title: str


AUTHORS: dict[str, Any] = {"flavour": "openai", "num_episodes": 60_000}
EXPERIMENTS = [
    Experiment("speaker-maddpg", AUTHORS | {"scenario": "simple_speaker_listener"}, 10, "simple_speaker_listener, MADDPG"),
    Experiment("spread-maddpg", AUTHORS | {"scenario": "simple_spread"}, 10, "simple_spread, MADDPG"),
    Experiment(
        "speaker-ddpg",
        AUTHORS | {"scenario": "simple_speaker_listener", "algorithm": "ddpg"},
        10,
        "simple_speaker_listener, independent DDPG",
    ),
    *(
        Experiment(f"{scenario.removeprefix('simple_')}-curve", {"scenario": scenario, "num_episodes": 15_000}, 2, scenario)
        for scenario in (
            "simple", "simple_adversary", "simple_crypto", "simple_push", "simple_reference", "simple_tag", "simple_world_comm",
        )
    ),
]  # fmt: skip


def train_one(experiment: str, seed: int) -> None:
    """One seed, from its last checkpoint if there is one, on one core."""
    from counterpoint import config as configs
    from counterpoint.experiment import resume, train

    chosen = next(e for e in EXPERIMENTS if e.name == experiment)
    table = TABLES / experiment / f"seed{seed}.csv"
    folder = RUNS / experiment / f"seed{seed}"
    if table.exists():
        return
    if (folder / "config.json").exists():
        run = resume(folder)
    else:
        own = {"seed": seed, "devices": 1, "save_dir": str(RUNS / experiment), "exp_name": f"seed{seed}", "plots_dir": "", "save_rate": 5000}
        run = train(configs.override(configs.Config(), **(chosen.settings | own)))
    table.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(run.path / "metrics.csv", table)
    shutil.copyfile(run.gif_path, TABLES / experiment / "team.gif")
    shutil.rmtree(run.path / "checkpoints")
    print(f"{experiment} seed {seed} done", flush=True)


def jobs(only: str) -> Iterator[tuple[str, int]]:
    for experiment in EXPERIMENTS:
        if only in experiment.name:
            yield from ((experiment.name, seed) for seed in range(experiment.seeds))


def _limit_to_one_core() -> None:
    core = multiprocessing.current_process()._identity[-1] % (os.cpu_count() or 1)
    os.sched_setaffinity(0, {core})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="experiments whose name contains this")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, initializer=_limit_to_one_core, maxtasksperchild=None) as pool:
        pool.starmap(train_one, jobs(options.only), chunksize=1)


if __name__ == "__main__":
    main()
