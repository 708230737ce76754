"""Trains every combination of some settings, one run each, and compares the runs at the end.

The cells of a grid are runs in one folder, <save_dir>/<grid name>/<cell>. grid.json there records their settings, so that the
same grid started again goes on where it stopped: finished cells are skipped, unfinished ones are resumed.
"""

import hashlib
import itertools
import json
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from counterpoint import config as configs
from counterpoint import presets
from counterpoint.config import Config
from counterpoint.core.errors import UsageError
from counterpoint.core.loading import short_name
from counterpoint.core.spaces import Spec
from counterpoint.runs import Run, lock, open_run
from counterpoint.runs.files import expanded, is_intact, make_folder, sealed, write_durably
from counterpoint.runs.folder import GRID, read_json
from counterpoint.runs.listing import flat
from counterpoint.studies.compare import SEEDS, Comparison, compare
from counterpoint.training import train as training
from counterpoint.training.keywords import GridSettings
from counterpoint.training.opponents import check_ensemble, check_league
from counterpoint.training.progress import Console, Progress, display_of

NOT_AXES = {
    *("scenario_args", "teams", "freeze", "ensemble_teams", "exp_name"),
    *("save_dir", "load_dir", "plots_dir", "benchmark_dir"),
}
"""Settings whose values may contain commas or be lists; they never span a grid."""
LONGEST_NAME = 80
"""Longest name of a grid's folder that is made of its values."""


class Cell(NamedTuple):
    """One combination of a grid's settings."""

    name: str
    config: Config
    given: Collection[str] | None = None
    """The settings that the user chose: others may be fitted to an external environment. None stands for all."""


class Grid(NamedTuple):
    """A trained grid."""

    path: Path
    runs: dict[str, Run]
    """The runs that finished, by cell."""
    failed: dict[str, str]
    """Why the other cells have no finished run, by cell."""
    comparison: Comparison | None
    """None if no cell finished."""


def grid(progress: Progress | bool | None = None, **settings: Unpack[GridSettings]) -> Grid:
    """Trains every combination of the settings that are lists, and compares the runs.

    grid(algorithm=["maddpg", "ddpg"], scenario=["simple_spread", "simple_tag"], num_seeds=5) trains four runs of five seeds.
    Settings are named as for `train`; `exp_name` is the name of the grid's folder. The same call again goes on.
    """
    named = {name.replace("-", "_"): value for name, value in settings.items()}
    if named.get("env") and named.get("scenario"):
        raise UsageError(f"env and scenario={named['scenario']!r} exclude each other: choose one of them.")
    axes = {k: list(v) for k, v in named.items() if k not in NOT_AXES and isinstance(v, list | tuple)}
    fixed = {name: value for name, value in named.items() if name not in axes}

    def make(values: Mapping[str, Any]) -> Config:
        chosen = {**fixed, **values}
        return configs.override(presets.start(chosen), **{name: value for name, value in chosen.items() if name != "preset"})

    return train_cells(cells_of(axes, make, set(named)), axes, progress)


def cells_of(
    axes: Mapping[str, Sequence[Any]], make: Callable[[Mapping[str, Any]], Config], given: Collection[str] | None = None
) -> list[Cell]:
    """Returns one cell per combination of the axes' values, the last axis changing fastest; `make` builds its settings.

    `given` names the settings that the user chose.
    """
    for name, values in axes.items():
        if not values or "" in values:
            raise UsageError(f"--{name.replace('_', '-')} {','.join(map(str, values))} has an empty value: name every value.")
        if len(set(map(str, values))) < len(values):
            raise UsageError(f"--{name.replace('_', '-')} {','.join(map(str, values))} repeats a value: name each one once.")
    cells = []
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        cells.append(Cell("-".join(_word(name, value) for name, value in chosen.items()), make(chosen), given))
    names = [cell.name for cell in cells]
    if repeated := next((name for name in names if names.count(name) > 1), ""):
        raise UsageError(f"two cells of the grid would be called {repeated}: give their environments different file names.")
    return cells


def _word(name: str, value: Any) -> str:
    """Returns a setting's value for the name of a folder."""
    text = str(value)
    if name in ("algorithm", "env"):
        text = short_name(text)
    plain = re.sub(r"[^\w.+-]+", "_", text)
    return plain if name in ("algorithm", "env", "scenario", "preset") else f"{name}={plain}"


def grid_path(cells: Sequence[Cell], axes: Mapping[str, Sequence[Any]]) -> Path:
    """Returns the folder of a grid: named by exp_name, or by the values that span it."""
    checkpoints = cells[0].config.checkpoints
    given = "" if checkpoints.exp_name == _preset_name(cells[0].config) else checkpoints.exp_name
    name = given or "-".join("+".join(_word(axis, value) for value in values) for axis, values in axes.items())
    if len(name) > LONGEST_NAME and not given:
        name = f"{name[: LONGEST_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    if name in (".", "..") or re.search(r"[/\\\0]", name):
        raise UsageError(f"--exp-name must be the name of a folder, without slashes, not {name!r}: choose one like 'grid-1'.")
    return expanded(checkpoints.save_dir) / name


def _preset_name(config: Config) -> str:
    """Returns the run's name that a preset brings, which is not a name for a grid."""
    return presets.preset(config.preset).checkpoints.exp_name if config.preset else ""


def train_cells(cells: Sequence[Cell], axes: Mapping[str, Sequence[Any]], progress: Progress | bool | None = None) -> Grid:
    """Trains the cells one after another, skips those that are finished, and compares all of them."""
    path, progress = grid_path(cells, axes), display_of(progress)
    cells = [_fitted(cell._replace(config=_in_grid(cell, path))) for cell in cells]
    make_folder(path, "--save-dir")
    with lock.hold(path, progress.say):  # a second process would start the same cells
        return _train_all(path, cells, axes, progress)


def _train_all(path: Path, cells: Sequence[Cell], axes: Mapping[str, Sequence[Any]], progress: Progress) -> Grid:
    """Trains the cells that are not finished, and compares all of them."""
    _record(path, cells)
    whole = Whole(progress, cells)
    runs: dict[str, Run] = {}
    failed: dict[str, str] = {}
    for number, cell in enumerate(cells):
        whole.enter(number)
        try:
            runs[cell.name] = _train_cell(path / cell.name, cell, whole)
        except training.Diverged as error:  # the other cells can still be compared
            failed[cell.name] = str(error)
            whole.say(f"{cell.name} failed: {error}")
        finally:
            whole.end()
    result = None
    if runs:
        names = [name for name in axes if name not in vars(configs.EnvSettings()) and name not in SEEDS]
        result = compare(list(runs.values()), by=",".join(names) or "algorithm", out=path / "comparison")
    return Grid(path, runs, failed, result)


def _fitted(cell: Cell) -> Cell:
    """Returns the cell with its settings fitted to its environment and checked: better now than in hours."""
    env = cell.config.world.build()
    config = configs.fitted(cell.config, env, cell.given)
    config.check(env)
    check_league(config, env)
    check_ensemble(config, env)
    return cell._replace(config=config)


def _in_grid(cell: Cell, path: Path) -> Config:
    """Returns a cell's settings with its own folder, which holds its curve: a copy elsewhere only if the user asks for it."""
    usual = configs.Evaluation().plots_dir
    plots = cell.config.evaluation.plots_dir
    return configs.override(cell.config, save_dir=str(path), exp_name=cell.name, plots_dir="" if plots == usual else plots)


def _record(path: Path, cells: Sequence[Cell]) -> None:
    """Writes the cells' settings to grid.json, unless it records other settings for one of them."""
    file = path / GRID
    known: dict[str, Any] = {}
    if file.exists():
        try:
            facts = read_json(file)
            known = facts["cells"]
            if not is_intact(facts):
                raise ValueError("its content does not match its checksum")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{file} cannot be read ({error!r}): restore it or choose another --exp-name.") from None
    for cell in cells:
        new = json.loads(json.dumps(configs.to_dict(cell.config)))
        old = known.get(cell.name, new)
        for name, value in flat(new).items():
            before = flat(old).get(name)
            longer = name == "num_episodes" and isinstance(before, int) and value >= before
            stretched = name in presets.SCHEDULES and flat(new)["num_episodes"] != flat(old).get("num_episodes")
            if before != value and not (longer or stretched) and name != "save_dir":  # the grid's folder may have moved
                raise UsageError(
                    f"{path / cell.name} was started with {name} {before!r}, not {value!r}: choose another --exp-name for this"
                    " grid, or repeat the settings of the first."
                )
        known[cell.name] = new
    write_durably(file, json.dumps(sealed({"cells": known}), indent=1).encode())


def _train_cell(path: Path, cell: Cell, progress: Progress) -> Run:
    """Starts, resumes or skips a cell."""
    planned = cell.config.training.num_episodes
    if not (path / "config.json").exists():
        if path.exists():
            if {found.name for found in path.iterdir()} - {"checkpoints", ".config.json.tmp"}:
                raise UsageError(f"{path} is in the way, and is not a run: move it, or choose another --exp-name.")
            shutil.rmtree(path)  # left by a kill at the very start
        return training.train(cell.config, progress)
    run = open_run(path)
    if training.is_finished(run, planned):
        progress.say(f"{cell.name} is finished.")
        return run
    schedules = {name: value for name, value in vars(cell.config.learning).items() if name in presets.SCHEDULES}
    return training.resume(run, progress, num_episodes=planned, **schedules)  # pyright: ignore[reportArgumentType]


class Whole(Progress):
    """Shows the progress of a cell, and how far the whole grid is."""

    def __init__(self, inner: Progress, cells: Sequence[Cell]) -> None:
        self._inner, self._cells = inner, cells
        self._number, self._began = 0, time.monotonic()
        self._trained = 0
        """Episodes that this process has trained, in cells before this one."""
        self._first: int | None = None
        """Episodes of this cell when it was started or resumed."""
        self._current = 0

    def enter(self, number: int) -> None:
        """Begins with a cell."""
        if self._first is not None:
            self._trained += self._current - self._first
        self._number, self._first, self._current = number, None, 0

    def start(self, path: Path, config: Config, spec: Spec) -> None:
        if isinstance(self._inner, Console):
            self._inner = type(self._inner)()  # its speed and its bar are those of one run
        self._inner.say(f"cell {self._number + 1} of {len(self._cells)}, {self.share:.0%} of the grid{self._left()}")
        self._inner.start(path, config, spec)

    @property
    def share(self) -> float:
        """The share of all episodes in cells that are done, and in this one."""
        planned = [cell.config.training.num_episodes for cell in self._cells]
        return (sum(planned[: self._number]) + min(self._current, planned[self._number])) / sum(planned)

    def _left(self) -> str:
        done = self._trained + (self._current - self._first if self._first is not None else 0)
        if not done or self.share >= 1:
            return ""
        total = sum(cell.config.training.num_episodes for cell in self._cells)
        seconds = (time.monotonic() - self._began) * total * (1 - self.share) / done
        return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"

    def say(self, sentence: str) -> None:
        self._inner.say(f"[{self._number + 1}/{len(self._cells)}] {sentence}")

    def update(self, episodes: int, step: int, seconds: float) -> None:
        self._first = episodes if self._first is None else self._first
        self._current = episodes
        if isinstance(self._inner, Console):
            self._inner.prefix = f"cell {self._number + 1}/{len(self._cells)} ({self.share:.0%} of the grid)  "
        self._inner.update(episodes, step, seconds)

    def report(self, row: dict[str, Any]) -> None:
        self._inner.report(row)

    def end(self) -> None:
        self._inner.end()

    def finish(self, run: Run) -> None:
        self._inner.end()
        self.say(f"{run.name} is finished, {self.share:.0%} of the grid{self._left()}")
