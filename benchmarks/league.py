"""Measures whether a league lowers exploitability: plain training against --league in simple_tag and simple_push.

    python benchmarks/league.py [FOLDER] [EPISODES]

Trains five seeds each (25 000 episodes unless told otherwise), trains a best response against each team of each seed, and
writes a table with the mean gain over seeds and its 95 % interval. What exists in the folder is not trained again.
"""

import csv
import itertools
import sys
from pathlib import Path

import counterpoint
from counterpoint.runs import open_run, stats
from counterpoint.runs.tables import markdown_table
from counterpoint.training.train import is_finished

SEEDS, SCENARIOS, TEAMS = 5, ("simple_push", "simple_tag"), ("adversary", "good")
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


def gain(folder: Path, run: counterpoint.Run, cell: tuple[str, str, str, int]) -> float:
    """Returns what a best response gains against a frozen team of one seed, from the table of earlier calls if it is there."""
    table, words = folder / "gains.csv", list(map(str, cell))
    if table.exists():
        for *known, number in csv.reader(table.open()):
            if known == words:
                return float(number)
    found = counterpoint.exploit(run, cell[2], seed_index=cell[3], out=folder / "responses").gain.mean
    with table.open("a", newline="") as file:
        csv.writer(file).writerow([*words, found])
    return found


def main(folder: Path, episodes: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    gains: dict[tuple[str, str, str], list[float]] = {}
    for kind, settings in KINDS.items():
        for scenario in SCENARIOS:
            run = trained(folder, f"{scenario}-{kind.replace(' ', '-')}", episodes, scenario=scenario, **settings)
            for team in TEAMS:
                gains[scenario, team, kind] = [gain(folder, run, (scenario, kind, team, k)) for k in range(SEEDS)]
    rows = []
    for scenario, team, kind in itertools.product(SCENARIOS, TEAMS, KINDS):
        found = gains[scenario, team, kind]
        low, high = stats.bootstrap_interval(found)
        rows.append([scenario, team, kind, sum(found) / SEEDS, f"{low:.2f} … {high:.2f}"])
    table = markdown_table(["world", "frozen team", "training", "gain of the best response", "95 % over seeds"], rows)
    (folder / "league.md").write_text(table)
    print(table)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "league"), int(sys.argv[2]) if len(sys.argv) > 2 else 25_000)
