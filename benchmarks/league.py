"""Measures whether a league lowers exploitability: plain training against --league in simple_tag and simple_push.

    python benchmarks/league.py [FOLDER] [EPISODES]

Trains five seeds each (25 000 episodes unless told otherwise), trains a best response against each team of each seed, and
writes a table with the mean gain over seeds and its 95 % interval. What exists in the folder is not trained again.
"""

import csv
import sys
from pathlib import Path

import counterpoint
from counterpoint.runs import open_run, stats
from counterpoint.runs.tables import markdown_table
from counterpoint.training.train import is_finished

SEEDS = 5
KINDS = {"plain": {}, "league": {"league": 10}, "prioritised league": {"league": 10, "league_draw": "prioritised"}}


def trained(folder: Path, name: str, episodes: int, **settings: object) -> counterpoint.Run:
    """Returns a finished run."""
    path = folder / name
    if not (path / "config.json").exists():
        return counterpoint.train(
            save_dir=str(folder), exp_name=name, num_episodes=episodes, num_seeds=SEEDS, plots_dir="", **settings
        )
    run = open_run(path)
    return run if is_finished(run, episodes) else counterpoint.resume(path)


def main(folder: Path, episodes: int) -> None:
    cells, rows = folder / "gains.csv", []
    folder.mkdir(parents=True, exist_ok=True)
    known = {tuple(row[:4]): float(row[4]) for row in csv.reader(cells.open())} if cells.exists() else {}
    for scenario in ("simple_tag", "simple_push"):
        for kind, settings in KINDS.items():
            run = trained(folder, f"{scenario}-{kind.replace(' ', '-')}", episodes, scenario=scenario, **settings)
            for team in ("adversary", "good"):
                gains = []
                for k in range(SEEDS):
                    cell = (scenario, kind, team, str(k))
                    if cell not in known:
                        found = counterpoint.exploit(run, team, seed_index=k, out=folder / "responses").gain
                        known[cell] = found.mean
                        with cells.open("a", newline="") as file:
                            csv.writer(file).writerow([*cell, known[cell]])
                    gains.append(known[cell])
                low, high = stats.bootstrap_interval(gains)
                rows.append([scenario, team, kind, sum(gains) / SEEDS, f"{low:.2f} … {high:.2f}"])
    table = markdown_table(["world", "frozen team", "training", "gain of the best response", "95 % over seeds"], rows)
    (folder / "league.md").write_text(table)
    print(table)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "league"), int(sys.argv[2]) if len(sys.argv) > 2 else 25_000)
