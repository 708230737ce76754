"""The policies that a run keeps: the best one by evaluation, and some along the way.

Rule of `policies/policy-<episodes>.safetensors`: the run is divided into at most MOST stretches, each of 1, 2, 4, 8, … times
`--save-rate` episodes, and the first policy that a checkpoint saves in each stretch is kept. So at most MOST files exist,
evenly spaced over the run.

Rule of `policies/best.safetensors`: for each seed, the policy with the highest evaluation so far. Success counts if the
environment reports it, then the good team's greedy return, which also decides between equal successes.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.errors import UsageError
from counterpoint.runs import files
from counterpoint.runs.folder import Run, read_policy

MOST = 20
"""Kept policies at most, without the best and the last."""
SUCCESS = ("eval/success", "eval/is_success")
"""Columns of metrics.csv that hold the share of successful episodes."""

Score = tuple[float, ...]
"""What policies are ranked by: success, if the environment has it, and the good team's greedy return."""


def folder(run: Run) -> Path:
    return run.path / "policies"


def kept(run: Run) -> dict[int, Path]:
    """Returns the policies kept along the way by their number of episodes, in ascending order."""
    found = {path.stem.removeprefix("policy-"): path for path in folder(run).glob("policy-*.safetensors")}
    return dict(sorted((int(episodes), path) for episodes, path in found.items() if episodes.isdecimal()))


def keep(run: Run, tensors: Mapping[str, np.ndarray], about: Mapping[str, Any], spacing: int) -> None:
    """Keeps a policy if it is the first of its stretch, and thins out the others; checkpoints are `spacing` episodes apart."""
    path = folder(run) / f"policy-{about['episodes']:09d}.safetensors"
    present = kept(run)
    wanted = thinned(sorted({*present, about["episodes"]}), spacing)
    if about["episodes"] in wanted:
        with files.explained(path):
            path.parent.mkdir(exist_ok=True)
        files.write_durably(path, files.pack_policy(tensors, about))
    for episodes in present.keys() - set(wanted):
        with suppress(OSError):  # the next call tries again
            present[episodes].unlink()


def thinned(episodes: Sequence[int], spacing: int, most: int = MOST) -> list[int]:
    """Returns which of these ascending numbers of episodes to keep: at most `most`, the first of each stretch."""
    width = max(spacing, 1)
    while episodes and episodes[-1] // width >= most:
        width *= 2
    first: dict[int, int] = {}
    for count in episodes:
        first.setdefault(count // width, count)
    return list(first.values())


def remove_after(run: Run, episodes: int) -> None:
    """Removes the policies of a course that resuming from an older checkpoint abandons."""
    for count, path in kept(run).items():
        if count > episodes:
            with files.explained(path):
                path.unlink()


def score(row: Mapping[str, Any]) -> Score | None:
    """Returns the score of a row of metrics, or None if it has no evaluation."""
    teams = {name: cell for name, cell in row.items() if name.startswith("eval/team/") and isinstance(cell, int | float)}
    if not teams:  # without evaluation the cells are empty
        return None
    success = [row[name] for name in SUCCESS if isinstance(row.get(name), int | float)][:1]
    found = (*success, teams.get("eval/team/good", sum(teams.values())))
    return tuple(map(float, found)) if all(map(math.isfinite, found)) else None


class Best:
    """The best policy of each seed so far: in memory, and in a file whenever `save` is called."""

    def __init__(self, run: Run, num_seeds: int) -> None:
        self._path = folder(run) / "best.safetensors"
        self._tensors: dict[str, np.ndarray] = {}
        self._seeds: list[dict[str, Any]] = [{} for _ in range(num_seeds)]
        self._changed = False
        with suppress(UsageError):  # there is none yet, or it is damaged: then the next evaluation counts as the best
            tensors, about = read_policy(self._path)
            if len(about.get("seeds", ())) == num_seeds:
                self._tensors, self._seeds = tensors, about["seeds"]

    def offer(self, tensors: Mapping[str, np.ndarray], rows: Sequence[Mapping[str, Any]]) -> None:
        """Takes over the policies of the seeds whose row of metrics beats their best; tensors are [K, …], one row per seed."""
        better = []
        for k, row in enumerate(rows):
            new, old = score(row), self._seeds[k].get("score")
            # Metrics change when an environment does; then nothing can be compared, and the new policy counts.
            if new is not None and (old is None or len(old) != len(new) or new > tuple(old)):
                better.append(k)
                self._seeds[k] = {"episodes": int(row["episode"]), "step": int(row["step"]), "score": list(new)}
        if not better:
            return
        if self._tensors.keys() != tensors.keys():
            self._tensors = {name: np.array(value) for name, value in tensors.items()}
        for name, value in tensors.items():
            self._tensors[name][better] = np.asarray(value)[better]
        self._changed = True

    def save(self, about: Mapping[str, Any]) -> None:
        """Writes the file if something changed."""
        if not self._changed:
            return
        with files.explained(self._path):
            self._path.parent.mkdir(exist_ok=True)
        facts = {**about, "seeds": self._seeds}
        files.write_durably(self._path, files.pack_policy(self._tensors, facts))
        self._changed = False


def load_at(run: Run, at: str | int = "last", seed_index: int = 0) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Returns the tensors [K, …] of a kept policy and its description; `episodes` is that of the seed.

    `at` is "last", "best" or a number of episodes, which means the nearest policy that was kept.
    """
    if at == "last":
        return run.load_policy()
    if at == "best":
        path = folder(run) / "best.safetensors"
        if not path.exists():
            raise UsageError(f"{run.path} has no best policy, because it has saved no evaluation yet: use --at last.")
        tensors, about = read_policy(path)
        try:
            return tensors, about | about["seeds"][seed_index]
        except (KeyError, IndexError, TypeError):
            raise UsageError(f"{path} does not fit its run: use --at last.") from None
    try:
        wanted = int(at)
    except ValueError:
        raise UsageError(f"--at must be best, last or a number of episodes, not {at!r}.") from None
    along = kept(run)
    last = run.policy_about().get("episodes", 0)
    nearest = min([*along, last], key=lambda count: abs(count - wanted))
    if not 0 <= wanted <= last:
        raise UsageError(f"--at {wanted} is outside the run, which has {last} episodes: choose from 0 to {last}.")
    return read_policy(along[nearest]) if nearest in along else run.load_policy()


def episodes_of(run: Run) -> list[int]:
    """Returns the numbers of episodes at which `load_at` finds a policy, the last one included."""
    return sorted({*kept(run), int(run.policy_about().get("episodes", 0))})
