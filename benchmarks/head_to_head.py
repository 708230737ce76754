"""Cross-plays MAPPO's presets of the competitive worlds with the authors' settings.

    python benchmarks/head_to_head.py [train|report] [WORLD …]

Trains five seeds (0 to 4) of each world with `--preset mappo-…` and with the authors' settings (25 000 episodes, as in the
paper), in results/head-to-head/; finished runs are not trained again. `counterpoint.tournament` then lets both kinds of teams
meet both kinds of opponents, and the table goes to docs/results/head-to-head.md.
"""

import csv
import sys
from pathlib import Path

import counterpoint
from counterpoint.runs import open_run
from counterpoint.runs.tables import markdown_table
from counterpoint.training.train import is_finished

WORLDS = ("simple_adversary", "simple_push", "simple_tag", "simple_crypto", "simple_world_comm")
KINDS = ("authors", "mappo")
SEEDS, EPISODES = 5, 25_000
FOLDER, PAGE, TABLE = Path("results/head-to-head"), Path("docs/results/head-to-head.md"), Path("docs/results/head-to-head.csv")
COLUMNS = ("world", "team", "opponents", *(f"{kind}{end}" for kind in KINDS for end in ("", " low", " high")), "minutes")
ABOUT = """# Head to head with the authors' settings

`python benchmarks/head_to_head.py` trains five seeds of competitive worlds with MAPPO's presets (`--preset mappo-push`, …)
and with the authors' settings (25,000 episodes), and lets them meet. Each row is one side of a world: what its agents earn per
episode against the same opponents if the authors' settings trained them, and if the preset did, with 95 % intervals over seeds.
A preset is better where the second number is higher. Minutes are those of training all five seeds on one core. The presets
were chosen on seed 100 of simple_tag, these are seeds 0 to 4. Worlds that are missing have not been measured.

"""


def trained(world: str, kind: str) -> counterpoint.Run:
    """Returns the finished run of a world, with all seeds."""
    path = FOLDER / f"{world}-{kind}"
    if (path / "config.json").exists():
        run = open_run(path)
        return run if is_finished(run, int(run.config["training"]["num_episodes"])) else counterpoint.resume(path)
    places = {"save_dir": str(FOLDER), "exp_name": path.name, "plots_dir": "", "num_seeds": SEEDS, "devices": 1}
    if kind == "mappo":
        return counterpoint.train(preset=f"mappo-{world.removeprefix('simple_')}", **places)
    return counterpoint.train(scenario=world, num_episodes=EPISODES, save_rate=5000, **places)


def minutes(run: counterpoint.Run) -> float:
    """Returns how long a run took, as it recorded it."""
    return max(float(row["seconds"] or 0.0) for row in run.rows()) / 60


def met(world: str) -> list[list[str]]:
    """Returns the rows of a world: each team against each kind of opponents."""
    runs = {kind: trained(world, kind) for kind in KINDS}
    found = counterpoint.tournament([run.path for run in runs.values()], out=FOLDER / f"{world}-tournament")
    cells = {(Path(cell.row).name, Path(cell.column).name): cell.returns for cell in found.cells}
    took = " and ".join(f"{minutes(runs[kind]):.1f}" for kind in ("mappo", "authors"))
    rows = []
    for side, team in enumerate(found.teams):
        for opponents in KINDS:
            pairs = [(kind, opponents) if side == 0 else (opponents, kind) for kind in KINDS]
            values = [cells[f"{world}-{row}", f"{world}-{column}"][team] for row, column in pairs]
            numbers = [f"{number:.2f}" for value in values for number in value]
            rows.append([world, team, opponents, *numbers, took])
    return rows


def known() -> list[list[str]]:
    """Returns the rows measured so far."""
    if not TABLE.exists():
        return []
    with TABLE.open() as file:
        return [list(row.values()) for row in csv.DictReader(file)]


def report(worlds: list[str]) -> None:
    """Plays the worlds, and writes the table of all that were played."""
    rows = {world: [row for row in known() if row[0] == world] for world in WORLDS}
    rows |= {world: met(world) for world in worlds}
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(row for own in rows.values() for row in own)
    header = [
        "world",
        "team",
        "opponents trained by",
        "authors' settings",
        "MAPPO's preset",
        "better",
        "minutes, preset and authors'",
    ]
    lines = []
    for world, team, opponents, *numbers, took in (row for own in rows.values() for row in own):
        theirs, low, high, ours, our_low, our_high = map(float, numbers)
        apart = our_low > high or low > our_high
        better = ("the preset" if ours > theirs else "authors'") + ("" if apart else ", intervals overlap")
        cells = [f"{theirs:.2f} [{low:.2f}, {high:.2f}]", f"{ours:.2f} [{our_low:.2f}, {our_high:.2f}]"]
        lines.append(
            [world, team, {"authors": "the authors' settings", "mappo": "the preset"}[opponents], *cells, better, took]
        )
    PAGE.write_text(ABOUT + markdown_table(header, lines))
    print(markdown_table(header, lines))


def main(part: str = "", *chosen: str) -> None:
    worlds = [world for world in WORLDS if not chosen or world in chosen]
    for kind in KINDS if part in ("", "train", *KINDS) else ():
        for world in worlds if part not in KINDS or part == kind else ():
            trained(world, kind)
    if part in ("", "report"):
        report(worlds)


if __name__ == "__main__":
    main(*sys.argv[1:])
