"""Measures whether a league lowers exploitability: plain training against --league in simple_push and simple_tag.

    python benchmarks/league.py [train|exploit|report] [ALGORITHM|WORLD …]

Trains five seeds (0 to 4) of each world with MADDPG as it is by default and with MAPPO, plainly and in a league, in
results/league/, and a best response against each team of each seed. The opponents that the other training of the same algorithm
produced are candidates too. The table has what the best response earns, which is comparable because the game is the same, and
its gain over the run's own opponents: means over seeds with 95 % intervals. What exists is not computed again. The tables go to
docs/results/league.md and league.csv.
"""

import csv
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

import counterpoint
from counterpoint import presets
from counterpoint.runs import open_run, stats
from counterpoint.runs.tables import markdown_table, write_csv
from counterpoint.training.train import is_finished

SEEDS, RESPONSE, PLAYED = 5, 50_000, 2000
"""Of the table: seeds, episodes of a best response's training, and of its measurement."""
WORLDS, TEAMS, KINDS = ("simple_push", "simple_tag"), ("adversary", "good"), ("plain", "league")
ON_POLICY: dict[str, Any] = presets.PPO_SHARED | {
    **{"algorithm": "mappo", "flavour": "mpe2", "gamma": 0.9, "lr_steps": 3_000_000, "entropy_steps": 2_000_000}
}
HALF = {"num_episodes": 60_000, "save_rate": 30_000, "lr_steps": 1_500_000, "entropy_steps": 1_000_000}
"""Four agents take long enough with half of it."""
DEFAULTS: dict[str, Any] = {"num_episodes": 25_000, "save_rate": 5000}
PLAIN: dict[tuple[str, str], dict[str, Any]] = {
    ("maddpg", "simple_push"): DEFAULTS,
    ("maddpg", "simple_tag"): DEFAULTS,
    ("mappo", "simple_push"): ON_POLICY | {"num_episodes": 120_000, "save_rate": 60_000},
    ("mappo", "simple_tag"): ON_POLICY | HALF,
}
"""The settings of plain training."""
LEAGUE: dict[str, dict[str, Any]] = {"maddpg": {"league": 10}, "mappo": {"league": 20, "league_share": 0.8}}
"""What a league adds to them."""
FOLDER, PAGE, TABLE = Path("results/league"), Path("docs/results/league.md"), Path("docs/results/league.csv")
COLUMNS = (
    *("algorithm", "world", "frozen team", "training", "seed"),
    *("own opponents", "best response", "gain", "found in"),
)
Cell = tuple[str, str, str, str, str]
"""Algorithm, world, frozen team, training and seed."""


def trained(algorithm: str, world: str, kind: str) -> counterpoint.Run:
    """Returns the finished run of a world, with all seeds."""
    path, settings = FOLDER / f"{algorithm}-{world}-{kind}", PLAIN[algorithm, world]
    if (path / "config.json").exists():
        run = open_run(path)
        return run if is_finished(run, settings["num_episodes"]) else counterpoint.resume(path)
    places = {"save_dir": str(FOLDER), "exp_name": path.name, "plots_dir": ""}
    settings = settings | (LEAGUE[algorithm] if kind == "league" else {})
    return counterpoint.train(scenario=world, num_seeds=SEEDS, devices=1, **places, **settings)


def known() -> dict[Cell, list[str]]:
    """Returns the rest of each row measured so far."""
    if not TABLE.exists():
        return {}
    with TABLE.open() as file:
        lines = list(csv.reader(file))[1:]
    return {(algorithm, world, team, kind, seed): rest for algorithm, world, team, kind, seed, *rest in lines}


def exploit(algorithm: str, world: str) -> None:
    """Adds a row for each team of each seed of a world, unless it is there."""
    runs = {kind: trained(algorithm, world, kind) for kind in KINDS}
    for k, team, kind in itertools.product(range(SEEDS), TEAMS, KINDS):
        cell = (algorithm, world, team, kind, str(k))
        if cell in known():
            continue
        others = [str(run.path) for name, run in runs.items() if name != kind]
        places = {"out": FOLDER / "responses", "rivals": others, "devices": 1, "progress": False}
        found = counterpoint.exploit(runs[kind], team, RESPONSE, seed_index=k, episodes=PLAYED, **places)
        assert found.incumbent is not None
        assert found.gain is not None
        numbers = (found.incumbent.mean, found.response.mean, found.gain.mean)
        place = "training" if found.found_in == str(found.run.path) else Path(found.found_in).name.partition("@")[0]
        rows = known() | {cell: [*(f"{number:.3f}" for number in numbers), place]}
        ordered = sorted(rows.items(), key=lambda row: (list(LEAGUE).index(row[0][0]), WORLDS.index(row[0][1]), row[0]))
        write_csv(TABLE, COLUMNS, [[*cell, *rest] for cell, rest in ordered])


def report() -> None:
    """Writes the page of all rows measured so far."""
    rows, tables = known(), {algorithm: [] for algorithm in LEAGUE}
    for algorithm, world, team in itertools.product(LEAGUE, WORLDS, TEAMS):
        seeds = [k for k in map(str, range(SEEDS)) if all((algorithm, world, team, kind, k) in rows for kind in KINDS)]
        if len(seeds) < SEEDS:
            continue
        numbers = {kind: np.array([rows[algorithm, world, team, kind, k][:3] for k in seeds], float) for kind in KINDS}
        lines = tables[algorithm]
        for kind, table in numbers.items():
            lines.append([world, team, kind, *(shown(column) for column in table.T), ""])
        less = [difference(first, second) for first, second in zip(*(numbers[k].T for k in ("league", "plain")), strict=True)]
        lines.append([world, team, "league − plain", *(text for text, _ in less), less[1][1]])
    header = ["world", "frozen team", "training", "its own opponents earn", "a best response earns", "gain", "in a league"]
    PAGE.write_text(ABOUT.format(**{name: markdown_table(header, lines) for name, lines in tables.items()}))
    print(PAGE.read_text())


def shown(values: np.ndarray) -> str:
    """Returns a mean with its interval over seeds as text."""
    low, high = stats.bootstrap_interval(values)
    return f"{values.mean():.2f} [{low:.2f}, {high:.2f}]"


def difference(league: np.ndarray, plain: np.ndarray) -> tuple[str, str]:
    """Returns the difference of two means with its interval over the seeds of both, and what it says of exploitability."""
    low, high = stats.stratified_interval([league, plain], lambda a, b, axis: a.mean(axis=axis) - b.mean(axis=axis))
    verdict = "less exploitable" if high < 0 else "more exploitable" if low > 0 else "not told apart"
    return f"{league.mean() - plain.mean():+.2f} [{low:+.2f}, {high:+.2f}]", verdict


ABOUT = """# Leagues and exploitability

`python benchmarks/league.py` trains five seeds (0 to 4) of `simple_push` and `simple_tag`, plainly and in a league. It then
freezes each team of each seed in turn and trains a best response against it, as
[`counterpoint exploit`](../how-to/opponents.md#measure-exploitability) does, for 50,000 episodes. The response starts from the
best of ten opponents: those of all five seeds of both trainings. All play the same 2000 episodes.

A best response plays the same game against plain teams and against those of a league. So what it earns is comparable, and a
team against which it earns less is less exploitable. Its gain over the team's own opponents is not comparable in this way,
because these opponents differ too: it also grows where they are weaker. Numbers are returns of one agent per episode, means
over seeds with 95 % intervals. The last column compares what the best responses earn: where the interval of the difference
includes 0, leagues and plain training are not told apart. All best responses are lower bounds: another search may find more.
`docs/results/league.csv` has every seed.

## MAPPO

120,000 episodes of simple_push and 60,000 of simple_tag; agents of a role share parameters, step sizes and entropy fall to
zero. The league has twenty versions, which play in four of five episodes (`--league 20 --league-share 0.8`). Neither was tuned.

{mappo}
## MADDPG

The authors' settings, which are the defaults of MADDPG, 25,000 episodes. The league is that of the defaults: ten versions,
spread evenly over the training, drawn uniformly, in half of the episodes (`--league 10`).

{maddpg}
The settings of the best response were chosen on seeds 100 and 101.
"""


def main(part: str = "", *chosen: str) -> None:
    pairs = [pair for pair in itertools.product(LEAGUE, WORLDS) if all(name in pair for name in chosen)]
    for pair, kind in itertools.product(pairs, KINDS) if part in ("", "train") else ():
        trained(*pair, kind)
    for pair in pairs if part in ("", "exploit") else ():
        exploit(*pair)
    if part in ("", "exploit", "report"):
        report()


if __name__ == "__main__":
    main(*sys.argv[1:])
