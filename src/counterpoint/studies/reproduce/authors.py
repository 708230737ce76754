"""Public runs of the authors' own code (openai/maddpg) beside ours with the authors' settings, in four worlds.

authors.csv holds what 19 to 21 public runs per world reached: the return of one agent with exploration, the mean of 1000
episodes, its mean over runs with a 95 % bootstrap interval, and its range. Source: the reward files in the repository
sihongho/Baseline_Project_MADDPG (MIT licence).
"""

import csv
import time
from pathlib import Path

from counterpoint.runs import Run
from counterpoint.studies.reproduce import PublishedResult
from counterpoint.studies.reproduce._lowe2017 import Effort, Plan, Row, train_all, write_up

DATA = Path(__file__).with_name("authors.csv")
AUTHORS = {"init": "glorot", "order": "sequential", "minibatch": "per-agent"}
KINDS: dict[str, dict[str, str]] = {"authors' settings": AUTHORS, "our defaults": {}}
ABOUT = """Original rules, return of one agent with exploration, at the report nearest to the published number of episodes.
Published: mean of 1000 episodes, over 19 to 21 runs of 60 000 episodes. Of the authors' 21 runs of
`simple_speaker_listener`, 6 end above −20 and 12 stay mute, below −26: their initial weights are why, and our default weights
are better."""


def read() -> list[dict[str, str]]:
    """Returns what the authors' code reached."""
    with DATA.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run(folder: Path, quick: bool, episodes: int = 0, seeds: int = 0) -> None:
    """Trains the four worlds with the authors' settings and with ours and compares both with the public runs."""
    began, effort, data = time.perf_counter(), Effort(quick, episodes, seeds), read()
    worlds = list(dict.fromkeys(line["scenario"] for line in data))
    plans = [
        Plan(f"{world}-{kind.split()[0].strip(chr(39))}", {"scenario": world, **settings})
        for world in worlds
        for kind, settings in KINDS.items()
    ]
    runs = train_all(folder, plans, effort, episodes=60_000, seeds=10)
    rows = []
    for line in data:
        spread = f" (theirs: {line['lowest']} … {line['highest']})" if line["lowest"] else ""
        for kind in KINDS:
            found = runs[f"{line['scenario']}-{kind.split()[0].strip(chr(39))}"]
            row = Row(
                f"{line['scenario']}, {line['team']}, {kind}{spread}",
                f"return at {int(line['episodes']):,}",
                "openai, one agent",
                float(line["mean"]),
            )
            there = quick or int(found.policy_about()["episodes"]) >= int(line["episodes"])
            rows.append(row.measured(returns_at(found, line["team"], int(line["episodes"]))) if there else row)
    write_up(folder, "The authors' code and ours", ABOUT, rows, effort, began, runs)


def returns_at(run: Run, team: str, episodes: int) -> list[float]:
    """Returns each seed's mean return of a team's agents, with exploration, at the report nearest to a number of episodes."""
    seeds: dict[int, tuple[float, float]] = {}
    for row in run.rows():
        apart = abs(float(row["episode"] or 0) - episodes)
        seed = int(row["seed"] or 0)
        if seed not in seeds or apart < seeds[seed][0]:
            seeds[seed] = (apart, float(row[f"team/{team}"] or "nan"))
    return [value for _, value in seeds.values()]


RESULT = PublishedResult("authors", "Public runs of the authors' own code, and ours with their settings.", run)
