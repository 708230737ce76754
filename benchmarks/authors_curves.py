"""Writes src/counterpoint/studies/reproduce/authors.csv from the public runs of the authors' code.

    git clone https://github.com/sihongho/Baseline_Project_MADDPG
    python benchmarks/authors_curves.py Baseline_Project_MADDPG/experiments/learning_curves

Each file holds the returns of the agents of one run, the mean of every 1000 episodes. A run counts only if its file of summed
returns is whole and agrees. The files are pickles of strangers: nothing but numbers is read from them.
"""

import pickle
import re
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from counterpoint.runs import stats
from counterpoint.runs.tables import write_csv
from counterpoint.studies.reproduce.authors import DATA, HEADER

WORLDS = {"simple_spread": 3, "simple_speaker_listener": 2, "simple_reference": 1, "simple_adversary": 4}
"""The number of each world in the names of the files."""
TEAMS = {"simple_adversary": {"good": [1, 2], "adversary": [0]}, "simple_spread": {"good": [0, 1, 2]}}
"""The agents of each team; by default the only team has two."""


class Numbers(pickle.Unpickler):
    """Reads lists of NumPy numbers and refuses everything else."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        known = {"scalar": _double, "dtype": _Kind, "encode": lambda text, how: text.encode(how)}
        if module_name not in ("numpy.core.multiarray", "numpy", "_codecs") or global_name not in known:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is no number.")
        return known[global_name]


class _Kind:
    def __init__(self, name: str, *_: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        del state


def _double(kind: _Kind, data: bytes) -> float:
    if kind.name != "f8":
        raise pickle.UnpicklingError(f"{kind.name} is no double.")
    return struct.unpack("<d", data)[0]


def numbers(path: Path) -> Float[np.ndarray, " X"]:
    """Returns the numbers of a file."""
    with path.open("rb") as file:
        return np.array(Numbers(file).load(), float)


def curves(folder: Path, world: str) -> Float[np.ndarray, "S X N"]:
    """Returns the returns of all agents in all whole runs of a world."""
    agents, found = sum(map(len, TEAMS.get(world, {"good": [0, 1]}).values())), []
    for path in sorted(folder.glob(f"ma_s{WORLDS[world]}_*_agrewards.pkl")):
        total = path.with_name(re.sub("_agrewards", "_rewards", path.name))
        if total.stat().st_size:
            own = numbers(path).reshape(-1, agents)
            if np.allclose(own.sum(axis=1), numbers(total)):
                found.append(own)
    return np.stack(found)


def main(folder: Path) -> None:
    """Writes the mean of the runs, its 95 % bootstrap interval and their range for every 1000 episodes."""
    rows = []
    for world in WORLDS:
        runs = curves(folder, world)
        for team, agents in TEAMS.get(world, {"good": [0, 1]}).items():
            own = runs[..., agents].mean(axis=-1)
            limits = stats.bootstrap_band(own)
            columns = (own.mean(axis=0), *limits, own.min(axis=0), own.max(axis=0))
            for at, values in enumerate(zip(*columns, strict=True), 1):
                rows.append([world, team, 1000 * at, *(round(float(value), 2) for value in values), len(own)])
    write_csv(DATA, HEADER, rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
