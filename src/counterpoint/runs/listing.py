"""The list of runs in a folder: what each one is, how far it is, how well it does, and how it differs from the others."""

import dataclasses
import difflib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from counterpoint.core.errors import UsageError
from counterpoint.runs import lock, metrics
from counterpoint.runs.files import expanded
from counterpoint.runs.folder import GRID, Run
from counterpoint.runs.history import SUCCESS

State = Literal["running", "stopped", "finished", "unreadable"]

DERIVED = (
    *("exp_name", "save_dir", "load_dir", "plots_dir", "benchmark_dir", "preset", "restore", "display", "benchmark", "trust"),
    *("report_every", "save_rate", "workers", "devices"),
)
"""Settings that say nothing about how a run learns."""
SHOWN = ("scenario", "env", "algorithm", "good_policy", "adv_policy", "num_episodes")
"""Settings that the list shows in columns of their own."""
COLUMNS = ("name", "env", "algorithm", "episodes", "return", "success", "state", "written")
"""What runs can be sorted and filtered by, besides their settings."""


@dataclass(frozen=True)
class Summary:
    """One run in the list."""

    name: str
    env: str = ""
    """The scenario, or the environment of --env without its folder."""
    algorithm: str = ""
    """One algorithm, or one for each team."""
    episodes: int = 0
    """Episodes of the seed that has the fewest."""
    planned: int = 0
    seeds: int = 1
    speed: float | None = None
    """Environment steps per second between the last two reports, all seeds together."""
    interval: float | None = None
    """Seconds between the last two reports."""
    returns: dict[str, float] = field(default_factory=dict)
    """Mean return of each team at the last report, averaged over seeds: what training prints at its end."""
    greedy: bool = False
    """Whether the returns are those of the evaluation; otherwise they are those of training."""
    success: float | None = None
    """Share of successful episodes in the last evaluation, if the environment reports it."""
    state: State = "unreadable"
    owner: str = ""
    """The process that trains the run now."""
    age: float = 0.0
    """Seconds since the run last wrote a file."""
    settings: dict[str, Any] = field(default_factory=dict)
    """All settings by name."""
    differs: dict[str, Any] = field(default_factory=dict)
    """The settings in which the run differs from the others in the list with its environment and algorithm."""


def list_runs(save_dir: str | os.PathLike[str]) -> list[Summary]:
    """Returns the runs in a folder and in its grids, newest last.

    Reads the settings and the last rows of each, never all its metrics.
    """
    root = expanded(save_dir)
    cells = (file for grid in root.glob(f"*/{GRID}") for file in grid.parent.glob("*/config.json"))
    folders = [file.parent for file in (*root.glob("*/config.json"), *cells)]
    found = (dataclasses.replace(summary(path), name=path.relative_to(root).as_posix()) for path in folders)
    return with_differences(sorted(found, key=lambda run: (-run.age, run.name)))


def with_differences(runs: Sequence[Summary]) -> list[Summary]:
    """Returns the runs with the settings that differ between those of the same environment and algorithm."""
    first: dict[tuple[str, str], dict[str, Any]] = {}
    differing: dict[tuple[str, str], set[str]] = {}
    for run in runs:  # once over all settings: a setting differs if some run's value is not that of the first run that has it
        known, names = first.setdefault((run.env, run.algorithm), {}), differing.setdefault((run.env, run.algorithm), set())
        names |= {name for name, value in run.settings.items() if known.setdefault(name, value) != value}

    def differences(run: Summary) -> dict[str, Any]:
        names = differing[run.env, run.algorithm].difference(DERIVED, SHOWN)
        return {name: value for name, value in run.settings.items() if name in names}

    return [dataclasses.replace(run, differs=differences(run)) for run in runs]


def sorted_by(runs: Sequence[Summary], key: str) -> list[Summary]:
    """Returns the runs sorted by a column or a setting, largest last; runs without a value come first."""
    _check_key(runs, key, "--sort")

    def rank(run: Summary) -> tuple[int, float, str]:
        value = -run.age if key == "written" else value_of(run, key)
        if isinstance(value, int | float) and not math.isnan(value):
            return 1, float(value), run.name
        return (0, 0.0, run.name) if value is None or isinstance(value, float) else (2, 0.0, str(value))

    return sorted(runs, key=rank)


def filtered(runs: Sequence[Summary], conditions: Sequence[str]) -> list[Summary]:
    """Returns the runs that meet every condition key=value; a value may contain * and ?."""
    kept = list(runs)
    for condition in conditions:
        key, sign, wanted = condition.partition("=")
        if not (key and sign):
            raise UsageError(f"--filter {condition} must have the form key=value, such as state=running or lr=0.01.")
        _check_key(runs, key, "--filter")
        kept = [run for run in kept if _matches(value_of(run, key), wanted)]
    return kept


def value_of(run: Summary, key: str) -> Any:
    """Returns a column or a setting of a run, or None."""
    columns: dict[str, Callable[[], Any]] = {
        "return": lambda: run.returns.get("good", next(iter(run.returns.values()), None)),
        "written": lambda: run.age,
    }
    name = key.replace("-", "_")
    if name in columns:
        return columns[name]()
    return getattr(run, name) if name in COLUMNS else run.settings.get(name)


def _check_key(runs: Sequence[Summary], key: str, option: str) -> None:
    known = {*COLUMNS, *(name for run in runs for name in run.settings)}
    if runs and key.replace("-", "_") not in known:
        close = difflib.get_close_matches(key.replace("-", "_"), sorted(known), 1)
        hint = f"perhaps {close[0]}?" if close else f"use {', '.join(COLUMNS)} or the name of a setting."
        raise UsageError(f"{option} {key}: no run has that; {hint}")


def _matches(value: Any, wanted: str) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(wanted) == value
        except ValueError:
            return False
    texts = value if isinstance(value, list | tuple) else ["" if value is None else value]
    return any(fnmatchcase(str(text).lower(), wanted.lower()) for text in texts)


def summary(path: Path) -> Summary:
    """Returns the run in a folder, from its settings and the last rows of its metrics."""
    age = time.time() - max((_mtime(path / name) for name in ("config.json", "metrics.csv", "checkpoints")), default=0.0)
    try:
        run, settings = Run(path), flat(Run(path).config)
        env, algorithm = _env(settings), _algorithm(settings)
        planned, seeds = int(settings["num_episodes"]), int(settings.get("num_seeds", 1))
        rows = metrics.last_rows(run.metrics_path, 2 * max(1, min(seeds, 5_000)))
    except (UsageError, OSError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return Summary(name=path.name, age=age)
    last = list({row.get("seed"): row for row in rows}.values())
    episodes = min((cell for row in last if isinstance(cell := row.get("episode"), int)), default=0)
    evaluated, trained = _means(last, "eval/team/"), _means(last, "team/")
    speed, interval = _pace(rows)
    found = Summary(
        name=path.name,
        env=env,
        algorithm=algorithm,
        episodes=episodes,
        planned=planned,
        seeds=seeds,
        speed=speed,
        interval=interval,
        returns=evaluated or trained,
        greedy=bool(evaluated),
        success=next((value for name in SUCCESS for value in _means(last, name).values()), None),
        state="stopped",
        age=age,
        settings=settings,
    )
    return with_state(found, lock.owner(path))


def with_state(run: Summary, owner: lock.Owner | None) -> Summary:
    """Returns a readable run as it is now, given the process that trains it, if there is one."""
    state = "running" if owner else "finished" if run.episodes >= run.planned else "stopped"
    return dataclasses.replace(run, state=state, owner=str(owner or ""))


def _pace(rows: Sequence[Mapping[str, Any]]) -> tuple[float | None, float | None]:
    """Returns the steps per second between the last two reports, all seeds together, and the seconds between them."""
    reports: dict[Any, list[tuple[float, float]]] = {}
    for row in rows:
        step, seconds = row.get("step"), row.get("seconds")
        if isinstance(step, int | float) and isinstance(seconds, int | float) and math.isfinite(step + seconds):
            reports.setdefault(row.get("seed"), []).append((step, seconds))
    last = [two[-2:] for two in reports.values() if len(two) > 1]
    passed = [(b[0] - a[0], b[1] - a[1]) for a, b in last if b[1] > a[1] and b[0] >= a[0]]
    return (sum(steps / seconds for steps, seconds in passed), passed[0][1]) if passed else (None, None)


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all settings by name, without their groups."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= value if isinstance(value, dict) else {name: value}
    return found


def _env(settings: Mapping[str, Any]) -> str:
    place, colon, name = str(settings.get("env") or "").rpartition(":")
    short = Path(place).name if place.endswith(".py") else place
    return f"{short}{colon}{name}" or str(settings["scenario"])


def _algorithm(settings: Mapping[str, Any]) -> str:
    """Returns one algorithm, or one for each team if they differ."""
    usual = str(settings["algorithm"])
    good, adversary = (str(settings.get(name) or usual) for name in ("good_policy", "adv_policy"))
    short = [Path(name).name if ".py:" in name else name for name in (good, adversary)]
    return short[0] if good == adversary else f"good {short[0]}, adversary {short[1]}"


def _means(rows: Sequence[Mapping[str, Any]], prefix: str) -> dict[str, float]:
    """Returns the mean over rows of the columns that begin with a prefix, by the rest of their name."""
    names = dict.fromkeys(name for row in rows for name in row if name.startswith(prefix))
    values = {name: [cell for row in rows if isinstance(cell := row.get(name), int | float)] for name in names}
    return {name.removeprefix(prefix): sum(cells) / len(cells) for name, cells in values.items() if cells}
