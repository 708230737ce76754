"""Measures whether a league lowers exploitability: plain training against --league in simple_tag and simple_push.

    python benchmarks/league.py [FOLDER] [EPISODES]

Trains five seeds each (25 000 episodes unless told otherwise). Against each team of each seed it trains a best response; the
opponents of all other runs in the same world are candidates too. The table has what the best response earns, which is
comparable because the game is the same, and its gain over the run's own opponents: means over seeds with 95 % intervals. What
exists in the folder is not computed again.
"""

import csv
import itertools
import sys
from pathlib import Path

import numpy as np

import counterpoint
from counterpoint.runs import open_run, stats
from counterpoint.runs.tables import markdown_table
from counterpoint.training.train import is_finished

SEEDS, SCENARIOS, TEAMS = 5, ("simple_push", "simple_tag"), ("adversary", "good")
KINDS = {"plain": {}, "league": {"league": 10}}


def trained(folder: Path, name: str, episodes: int, **settings: object) -> counterpoint.Run:
    """Returns a finished run."""
    path = folder / name
    if not (path / "config.json").exists():
        return counterpoint.train(
            save_dir=str(folder), exp_name=name, num_episodes=episodes, num_seeds=SEEDS, plots_dir="", **settings
        )
    run = open_run(path)
    return run if is_finished(run, episodes) else counterpoint.resume(path)


def exploited(folder: Path, runs: dict[str, counterpoint.Run], cell: tuple[str, str, str, int]) -> tuple[float, float]:
    """Returns what a best response against a team of one seed earns, and its gain, from earlier calls if they are there."""
    table, words = folder / "exploited.csv", list(map(str, cell))
    if table.exists():
        for *known, earned, gained in csv.reader(table.open()):
            if known == words:
                return float(earned), float(gained)
    _, kind, team, seed = cell
    rivals = [str(run.path) for name, run in runs.items() if name != kind]
    found = counterpoint.exploit(runs[kind], team, seed_index=seed, out=folder / "responses", rivals=rivals)
    numbers = found.response.mean, found.gain.mean if found.gain else 0.0
    with table.open("a", newline="") as file:
        csv.writer(file).writerow([*words, *numbers])
    return numbers


def main(folder: Path, episodes: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    numbers: dict[tuple[str, str, str], np.ndarray] = {}
    for scenario in SCENARIOS:
        runs = {
            kind: trained(folder, f"{scenario}-{kind}", episodes, scenario=scenario, **settings)
            for kind, settings in KINDS.items()
        }
        for team, kind in itertools.product(TEAMS, KINDS):
            found = [exploited(folder, runs, (scenario, kind, team, k)) for k in range(SEEDS)]
            numbers[scenario, team, kind] = np.array(found).T
    rows = []
    for scenario, team in itertools.product(SCENARIOS, TEAMS):
        for kind in KINDS:
            cells = [_shown(values, stats.bootstrap_interval(values)) for values in numbers[scenario, team, kind]]
            rows.append([scenario, team, kind, *cells])
        plain, league = (numbers[scenario, team, kind][0] for kind in KINDS)
        low, high = stats.stratified_interval([league, plain], lambda a, b, axis: a.mean(axis=axis) - b.mean(axis=axis))
        rows.append([scenario, team, "league less plain", f"{league.mean() - plain.mean():.2f} [{low:.2f}, {high:.2f}]", ""])
    table = markdown_table(["world", "frozen team", "training", "earned by the best response", "gain over its own"], rows)
    (folder / "league.md").write_text(table)
    print(table)


def _shown(values: np.ndarray, interval: tuple[float, float]) -> str:
    return f"{values.mean():.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "league"), int(sys.argv[2]) if len(sys.argv) > 2 else 25_000)
