"""Trains JaxMARL's simple_spread through `--env jaxmarl:…` and our own twin of it, and prints both learning curves.

Runs where the jaxmarl extra is installed: python benchmarks/twin_jaxmarl.py [EPISODES] [SEEDS]
"""

import sys
import tempfile

import numpy as np

import counterpoint

TWINS = {"ours": {"scenario": "simple_spread"}, "JaxMARL's": {"env": "jaxmarl:MPE_simple_spread_v3"}}


def curve(world: dict, episodes: int, seed: int, folder: str) -> list[float]:
    """Returns the greedy return of the team at each report of a run."""
    run = counterpoint.train(
        **world,
        progress=False,
        num_episodes=episodes,
        report_every=episodes // 10,
        seed=seed,
        num_envs=25,
        batch_size=256,
        eval_episodes=200,
        save_dir=folder,
        plots_dir="",
    )
    return [float(row["eval/team/good"]) for row in run.rows()]


def main() -> None:
    episodes, seeds = (int(word) for word in (*sys.argv[1:], "2000", "2")[:2])
    with tempfile.TemporaryDirectory() as folder:
        curves = {
            name: np.array([curve(world, episodes, seed, f"{folder}/{i}") for seed in range(seeds)])
            for i, (name, world) in enumerate(TWINS.items())
        }
    ours, theirs = curves.values()
    print("| episode | ours | JaxMARL's | difference |\n| --: | --: | --: | --: |")
    for i, (a, b) in enumerate(zip(ours.mean(0), theirs.mean(0), strict=True)):
        print(f"| {(i + 1) * (episodes // 10)} | {a:.2f} | {b:.2f} | {b - a:+.2f} |")
    print(f"\nmean over {seeds} seeds; the seeds of one world differ by {np.ptp(ours[:, -1]):.2f} at the end")


if __name__ == "__main__":
    main()
