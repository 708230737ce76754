"""The runs in a folder as the page lists them. Files are read again only where they have changed.

Pages never name a path: a run is asked for by its id, which is a hash of its name, and only folders directly in the served one
and the cells of its grids (GRID/CELL) have an id. A run whose files lead out of its folder by links is not read, nor is a grid
that is a link to the outside.
"""

import hashlib
import math
import os
import stat
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from counterpoint.core.errors import Damage
from counterpoint.runs import Run, lock
from counterpoint.runs.folder import GRID
from counterpoint.runs.listing import Summary, summary, with_differences, with_state
from counterpoint.runs.metrics import Cell, Growing
from counterpoint.view.curves import plain

FILES = ("config.json", "metrics.csv", "policy.safetensors", "learners.csv", "diverged.txt")
"""Files whose change is a change of the run."""
REST = 0.2
"""Seconds for which a look at the folder counts as fresh."""
MOST_TABLES = 64
"""Runs whose parsed metrics stay in memory."""
INNER = (
    "metrics.sums",
    "learners.sums",
    "spec.json",
    "lock",
    "team.gif",
    "policies",
    "checkpoints",
    "opponents",
)
"""What else the page reads of a run."""
LONGEST = 300
"""Characters of a setting at most."""
LARGEST = 2**53
"""The largest whole number that the page counts exactly."""
SILENT = 120.0
"""Seconds without a new file after which a running run counts as silent, or ten times the usual interval if that is longer."""

_Value = TypeVar("_Value")
_quiet = threading.Lock()


@contextmanager
def damage_as_text() -> Iterator[list[str]]:
    """Collects the sentences about damaged files, which the page shows; one thread at a time, as `warnings` demands."""
    sentences: list[str] = []
    with _quiet, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", Damage)
        yield sentences
        sentences += [str(warning.message) for warning in caught if issubclass(warning.category, Damage)]


def id_of(name: str) -> str:
    """Returns the id of a run or a column: letters and digits, whatever its name."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:20]


@dataclass(frozen=True)
class WatchedRun(Run):
    """A run whose metrics are parsed once, line by line as they appear. The cell of a grid is named with its grid."""

    table: Growing
    full_name: str

    @property
    def name(self) -> str:
        return self.full_name

    def rows(self) -> list[dict[str, Cell]]:
        with damage_as_text():  # the list of runs says it
            return self.table.rows()


class Item(NamedTuple):
    """A run of the list, as it was when its files were last read."""

    path: Path
    files: tuple[Any, ...]
    """What tells whether its files have changed."""
    summary: Summary
    problem: str
    """A sentence about damaged files, or nothing."""
    diverged: bool
    """Whether training gave up because numbers became infinite or NaN."""
    now: tuple[Any, ...]
    """What changes without a new report: the owner, and whether it is silent."""
    revision: int
    """The look at the folder in which it last changed."""


class Catalogue:
    """The runs directly in a folder and in its grids."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._real = os.path.realpath(root)
        self._items: dict[str, Item] = {}
        self._gone: dict[str, int] = {}
        self._tables: dict[str, Growing] = {}
        self._revision = 0
        self._looked = -math.inf
        self._lock = threading.Lock()

    def changes(self, since: int) -> dict[str, Any]:
        """Returns the runs that changed after a revision, and the ids of those that are gone."""
        with self._lock:
            self._look()
            changed = {key: item for key, item in self._items.items() if item.revision > since}
            return {
                "revision": self._revision,
                "folder": plain(self.root),
                "runs": [listed(key, item) for key, item in changed.items()],
                "gone": [key for key, revision in self._gone.items() if revision > since],
            }

    def run(self, key: str) -> WatchedRun | None:
        """Returns a run by its id, or None."""
        with self._lock:
            if key not in self._items:
                self._look()
            item = self._items.get(key)
            if item is None or item.summary.state == "unreadable" or not self._is_inside(item.path):
                return None
            table = self._tables.pop(key, None) or Growing(item.path / "metrics.csv")
            self._tables[key] = table
            while len(self._tables) > MOST_TABLES:
                del self._tables[next(iter(self._tables))]
            return WatchedRun(item.path, table, self._name(item.path))

    def item(self, key: str) -> Item | None:
        """Returns what the list knows of a run."""
        with self._lock:
            self._look()
            return self._items.get(key)

    def _look(self) -> None:
        """Reads what has changed since the last look."""
        if time.monotonic() - self._looked < REST:
            return
        revision, found = self._revision + 1, {}
        for path in self._folders():
            files = self._signature(path)
            if files is not None:
                key = id_of(self._name(path))
                found[key] = self._item(path, files, self._items.get(key), revision)
        differing = with_differences([item.summary for item in found.values()])
        for (key, item), whole in zip(list(found.items()), differing, strict=True):
            if whole.differs != item.summary.differs:
                found[key] = item._replace(summary=whole, revision=revision)
        gone = self._items.keys() - found.keys()
        if gone or any(item.revision == revision for item in found.values()):
            self._gone = {key: at for key, at in (self._gone | dict.fromkeys(gone, revision)).items() if key not in found}
            self._items, self._revision = found, revision
        self._looked = time.monotonic()

    def _folders(self) -> list[Path]:
        """Returns the folders that may be runs: those directly in the root, and those in its grids."""
        found = _subfolders(self.root)
        return [*found, *(cell for path in found if self._is_grid(path) for cell in _subfolders(path))]

    def _is_grid(self, path: Path) -> bool:
        return os.path.isfile(path / GRID) and os.path.dirname(os.path.realpath(path)) == self._real

    def _name(self, path: Path) -> str:
        """Returns the name of a run: that of its folder, or GRID/CELL."""
        return path.relative_to(self.root).as_posix()

    def _signature(self, path: Path) -> tuple[Any, ...] | None:
        """Returns what changes when a file of a run does; None if the folder is no run."""
        found = []
        for name in FILES:
            try:
                facts = os.stat(path / name)
                if name == "config.json" and not stat.S_ISREG(facts.st_mode):
                    return None
                found.append((facts.st_mtime_ns, facts.st_size, facts.st_ino))
            except OSError:
                if name == "config.json":
                    return None
                found.append(None)
        return tuple(found)

    def _item(self, path: Path, files: tuple[Any, ...], old: Item | None, revision: int) -> Item:
        """Returns a run as it is now; what has not changed is not read."""
        if old is None or old.files != files:
            read, problem, diverged = self._read(path)
        else:
            read, problem, diverged = old.summary, old.problem, old.diverged
        owner = lock.owner(path) if read.state != "unreadable" else None
        written = max((one[0] for one in files[:2] if one), default=0) / 1e9
        silent = bool(owner) and time.time() - written > max(SILENT, 10 * (read.interval or 0.0))
        now = (str(owner or ""), silent)
        if read.state != "unreadable":
            read = with_state(read, owner)
        if old is not None and old.files == files and old.now == now:
            return old
        return Item(path, files, read, problem, diverged, now, revision)

    def _read(self, path: Path) -> tuple[Summary, str, bool]:
        """Returns a run, a sentence about what is damaged, and whether it diverged.

        A run that cannot be read must not hide the others.
        """
        if not self._is_inside(path):
            problem = "Its files are links that lead out of the folder of runs, or no files, so it is not read."
            return Summary(name=self._name(path)), problem, False
        try:
            with damage_as_text() as sentences:
                read = replace(summary(path), name=self._name(path))
            return read, " ".join(sentences), bool(Run(path).divergence())
        except Exception as error:
            return Summary(name=self._name(path)), f"It cannot be read ({type(error).__name__}).", False

    def _is_inside(self, path: Path) -> bool:
        """Returns whether what is read of a run is in its folder, links resolved, and consists of files and folders."""
        inner, folder = os.path.realpath(path), os.path.realpath(path.parent)
        outer = folder if path.parent == self.root else os.path.dirname(folder)
        if os.path.dirname(inner) != folder or outer != self._real:
            return False
        return all(_is_plain(place, inner) for place in _places(path))


def _subfolders(path: Path) -> list[Path]:
    """Returns the folders in a folder; none if it cannot be read."""
    try:
        with os.scandir(path) as entries:
            return [path / entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return []


def _places(path: Path) -> Iterator[str]:
    """Yields the files and folders that the page reads of a run, whether they exist or not."""
    for name in (*FILES, *INNER):
        place = os.path.join(path, name)
        yield place
        if not os.path.islink(place):
            for folder, folders, files in os.walk(place):
                yield from (os.path.join(folder, inner) for inner in (*folders, *files))


def _is_plain(place: str, inner: str) -> bool:
    """Returns whether a place is a file or folder within another, or does not exist: reading a pipe would never end."""
    if os.path.islink(place) and not os.path.realpath(place).startswith(inner + os.sep):
        return False
    try:
        kind = os.stat(place).st_mode
    except OSError:
        return True
    return stat.S_ISREG(kind) or stat.S_ISDIR(kind)


def listed(key: str, item: Item) -> dict[str, Any]:
    """Returns a run for the page, as an unreadable one if its settings cannot be shown."""
    try:
        return described(key, item)
    except Exception as error:
        problem = f"It cannot be shown ({type(error).__name__})."
        return described(key, item._replace(summary=Summary(name=item.summary.name), problem=problem))


def described(key: str, item: Item) -> dict[str, Any]:
    """Returns a run for the page: texts without control characters, numbers or None."""
    run = item.summary
    return {
        "id": key,
        "name": plain(run.name),
        "env": plain(run.env),
        "algorithm": plain(run.algorithm),
        "episodes": run.episodes,
        "planned": min(run.planned, LARGEST),
        "seeds": min(run.seeds, LARGEST),
        "speed": finite(run.speed),
        "returns": {plain(team): finite(value) for team, value in run.returns.items()},
        "greedy": run.greedy,
        "success": finite(run.success),
        "state": run.state,
        "owner": plain(run.owner),
        "written": max((one[0] for one in item.files[:2] if one), default=0) / 1e9,
        "started": item.files[0][0] / 1e9,
        "policy": "-".join(map(str, item.files[2] or ())),
        "distributed": item.files[3] is not None,
        "settings": {plain(name): text_of(value) for name, value in run.settings.items()},
        "differs": {plain(name): text_of(value) for name, value in run.differs.items()},
        "problem": plain(item.problem),
        "trouble": trouble(item),
    }


def trouble(item: Item) -> list[str]:
    """Returns in single words what is wrong with a run at first sight; `advice` looks closer."""
    words = ["damaged"] if item.problem else []
    if item.now[1]:
        words.append("silent")
    if item.diverged or any(not math.isfinite(value) for value in item.summary.returns.values()):
        words.append("diverged")
    return words


def finite(value: Any) -> float | None:
    """Returns a number that JSON can hold, or None."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def text_of(value: Any) -> str:
    """Returns a setting as text."""
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    text = plain(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def cleaned(value: Any) -> Any:
    """Returns data for JSON: texts without control characters, None for numbers that are not finite."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {plain(name): cleaned(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(inner) for inner in value]
    return value


class Remembered:
    """The last results of a slow function, by what they depend on."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], _Value]) -> _Value:
        """Returns the result for a key; makes it if it is not among the last ones."""
        with self._lock:
            if key in self._found:
                return self._found[key]
        made = make()
        with self._lock:
            self._found[key] = made
            while len(self._found) > self._most:
                del self._found[next(iter(self._found))]
        return made
