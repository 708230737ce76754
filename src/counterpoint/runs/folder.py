"""A run is a folder, read and written here and nowhere else (no jax: plots and listings start at once).

    config.json           the settings, written when the run is created and when it is made longer
    metrics.csv           a row per report
    checkpoints/          ckpt-<step>.json and the files it lists: one state-…, and the replay-… segments still in the ring
    policy.safetensors    the networks that act
    learners.csv          who computed what and when, if learning was distributed
    curve.png, team.gif   pictures

A checkpoint counts once its manifest `ckpt-<step>.json` is there, and the manifest is written last. It knows size and SHA-256
of each file it needs. File names carry part of that checksum, so that no file of an older checkpoint is overwritten with other
content, even when a resumed run takes another course.
"""

import csv
import errno
import hashlib
import io
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from counterpoint import __version__
from counterpoint.core.errors import UsageError

FORMAT = 1
"""Raised whenever an older counterpoint could no longer read what this one writes."""

Cell = int | float | str | None
"""One value of the metrics table; None where a row left it out."""


class Segment(NamedTuple):
    """Rows added to the replay ring one after another; row `first + i` lives at index `(first + i) % capacity`."""

    first: int
    """How many rows each device had ever added before these."""
    rows: np.ndarray
    """[devices, n, D]; n may be 0 when nothing is new."""


class Checkpoint(NamedTuple):
    """All that resuming needs."""

    step: int
    state: dict[str, np.ndarray]
    counters: dict[str, Any]
    added: int
    """Rows ever added to each device's ring."""
    ring: np.ndarray | None
    """[devices, capacity, D], zero where no row was yet; None if no row was ever added."""
    problems: tuple[str, ...]
    """One sentence for each newer checkpoint that was damaged and had to be passed over."""


class Summary(NamedTuple):
    """A line of the list of runs."""

    name: str
    scenario: str
    algorithm: str
    episodes: int
    """Of the seed that has the fewest."""
    last_return: float | None
    """Sum over agents at the last report, mean over seeds."""
    state: Literal["finished", "unfinished", "unreadable"]
    age: float
    """Seconds since the run last wrote something."""


@dataclass(frozen=True)
class Run:
    """A run's folder; `create` and `open_run` make it."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def curve_path(self) -> Path:
        return self.path / "curve.png"

    @property
    def gif_path(self) -> Path:
        return self.path / "team.gif"

    @property
    def learners_path(self) -> Path:
        return self.path / "learners.csv"

    def append_learners(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds rows to the timeline of learners, seconds to a tenth of a millisecond."""
        path = self.learners_path
        cells = [[round(row[c], 4) if isinstance(row[c], float) else row[c] for c in columns] for row in rows]
        with _writing(path), open(path, "ab") as file:
            file.write((b"" if file.tell() else _line(list(columns))) + b"".join(map(_line, cells)))

    @property
    def config(self) -> dict[str, Any]:
        """The settings `create` was given."""
        return {key: value for key, value in _read_config(self.path).items() if key not in ("format", "counterpoint")}

    def rewrite_config(self, config: Mapping[str, Any]) -> None:
        """Changes the settings, for a run that is to be longer than planned."""
        _write(self.path / "config.json", _render_config(config))

    def append_metrics(self, row: Mapping[str, int | float | str | np.generic]) -> None:
        """Adds a row to the table, at once. The first row fixes the columns; a later one may leave some out."""
        path = self.path / "metrics.csv"
        with _writing(path), open(path, "a+b") as file:
            file.seek(0)
            lines = _whole_lines(file.read())
            file.truncate(sum(map(len, lines)))  # a kill may have torn the last line: what follows must not grow onto it
            columns = _cells(lines[0]) if lines else list(row)
            if unknown := row.keys() - set(columns):
                raise ValueError(f"metrics.csv has the columns {columns}, not {sorted(unknown)}")
            file.write((b"" if lines else _line(columns)) + _line([row.get(column, "") for column in columns]))

    def rows(self) -> list[dict[str, Cell]]:
        """The table row by row, numbers as numbers; a torn or mangled line is left out."""
        columns, *rows = map(_cells, self._metrics_lines() or [b""])
        return [dict(zip(columns, map(_number, row), strict=True)) for row in rows if len(row) == len(columns)]

    def truncate_metrics(self, step: int) -> None:
        """Drops the rows beyond `step`, so that a resumed run writes each row once."""
        header, *lines = self._metrics_lines() or [b""]
        if lines:
            at = _cells(header).index("step")
            cells = [[*_cells(line), ""] for line in lines]
            steps = [_number(row[min(at, len(row) - 1)]) for row in cells]
            kept = [line for line, here in zip(lines, steps, strict=True) if isinstance(here, int | float) and here <= step]
            _write(self.path / "metrics.csv", b"".join([header, *kept]))

    def _metrics_lines(self) -> list[bytes]:
        path = self.path / "metrics.csv"
        return _whole_lines(path.read_bytes()) if path.exists() else []

    def save_policy(self, tensors: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
        """Replaces policy.safetensors: tensors, and JSON-able facts about them."""
        _write(self.path / "policy.safetensors", _pack(tensors, {"about": _json(about)}))

    def load_policy(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The tensors of policy.safetensors and the facts about them."""
        path = self.path / "policy.safetensors"
        try:
            with safetensors.safe_open(path, "np") as file:
                names = file.keys()
                return {name: file.get_tensor(name) for name in names}, json.loads(file.metadata()["about"])
        except FileNotFoundError:
            raise UsageError(f"{path} does not exist: the run has saved no policy yet, let it train longer") from None
        except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
            raise UsageError(f"{path} is damaged ({error}): resume the run to write it anew") from None

    def save(
        self, step: int, state: Mapping[str, np.ndarray], counters: Mapping[str, Any], segments: Sequence[Segment] = (),
        capacity: int = 0, keep: int = 2,
    ) -> None:  # fmt: skip
        """Writes checkpoint `step`, then removes all but the last `keep` and the files none of those needs.

        `segments` are the rows added since the previous checkpoint, in order; older rows stay in its files. A run with a replay
        ring (capacity > 0) passes at least one, empty if nothing is new.
        """
        folder = self.path / "checkpoints"
        facts = json.loads(_json(counters))  # what cannot be written fails here, before anything is
        added, fresh = _added(segments), _inside_ring(segments, capacity)
        old = self._inherited(step, segments[0].first, added - capacity) if segments else []
        _check_chain(
            [(part.first, part.length) for part in old] + [(first, rows.shape[1]) for first, rows in fresh], added, capacity
        )
        new = [_write_tensors(folder, f"replay-{first:012d}", {"rows": rows}, first, rows.shape[1]) for first, rows in fresh]
        state_file = _write_tensors(folder, f"state-{step:012d}", state)
        _sync(self.path / "metrics.csv")  # if the checkpoint survives a power failure, so must the rows before it
        _write(folder / f"ckpt-{step:012d}.json", _Manifest(step, facts, capacity, added, state_file, (*old, *new)).render())
        self._tidy(step, keep)

    def load(self) -> Checkpoint | None:
        """The newest checkpoint whose files are all whole; None if there is none yet. Changes nothing in the folder."""
        problems: list[str] = []
        for path in self._manifest_paths():
            try:
                return _read_checkpoint(path, tuple(problems))
            except _Damaged as damage:
                problems.append(f"checkpoint {_step(path)} of {self.path} is passed over because {damage}")
        if problems:
            raise UsageError(
                f"{self.path} has no whole checkpoint left, restore its files or start a new run: {'; '.join(problems)}"
            )
        return None

    def rewind(self, step: int) -> None:
        """Makes the folder what it was at checkpoint `step`: no newer metrics, no newer (that is, damaged) checkpoints."""
        self.truncate_metrics(step)
        for path in self._manifest_paths():
            if _step(path) > step:
                with _writing(path):
                    path.unlink()

    def _manifest_paths(self) -> list[Path]:
        """Newest first."""
        paths = [path for path in (self.path / "checkpoints").glob("ckpt-*.json") if path.stem[5:].isdecimal()]
        return sorted(paths, key=_step, reverse=True)

    def _inherited(self, step: int, first: int, oldest: int) -> list["_File"]:
        """The files of the previous checkpoint that hold rows from `oldest` up to `first`."""
        for path in self._manifest_paths():
            with suppress(_Damaged):
                manifest = _read_manifest(path)
                if manifest.step <= step and manifest.added == first:
                    parts = [part for part in manifest.segments if part.first + part.length > oldest]
                    for part in parts:
                        # Hashing everything at each save would be dear; at least never build on a file that is not there.
                        if not _has_size(path.with_name(part.name), part.size):
                            raise UsageError(
                                f"{path.with_name(part.name)} was removed or cut while the run needs it: restore it"
                            )
                    return parts
        return []

    def _tidy(self, step: int, keep: int) -> None:
        """Removes what no kept checkpoint needs; manifests go first, so that none is left without its files."""
        paths = self._manifest_paths()
        # Newer ones are of a future that resuming from an older checkpoint undid.
        kept = [path for path in paths if _step(path) <= step][:keep]
        needed = {path.name for path in kept}
        for path in kept:
            with suppress(_Damaged):
                needed |= {file.name for file in _read_manifest(path).files}
        for path in [*paths, *(self.path / "checkpoints").iterdir()]:
            if path.name not in needed and re.match(r"(ckpt|state|replay)-\d|\..*\.tmp$", path.name):
                with suppress(OSError):  # the next save tries again
                    path.unlink()


class Saver:
    """Saves a run on one background thread while training goes on; `with Saver(run) as saver: …`.

    What is submitted must be the caller's own copies: nothing is copied here. A failed save is raised by the next call.
    """

    def __init__(self, run: Run) -> None:
        self._save: Callable[..., None] = run.save
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="counterpoint-saver")
        self._pending: Future[None] | None = None

    def submit(self, *args: Any, **kwargs: Any) -> None:
        """Begins `Run.save` with these arguments, after waiting for the previous one."""
        self.wait()
        self._pending = self._thread.submit(self._save, *args, **kwargs)

    def wait(self) -> None:
        """Returns when all that was submitted is on disk."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Finishes the pending save and ends the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def create(save_dir: str | os.PathLike[str], exp_name: str, config: Mapping[str, Any]) -> Run:
    """A new run in <save_dir>/<exp_name>, or in <exp_name>-2, -3, … if that is taken."""
    if not exp_name or exp_name in (".", "..") or re.search(r"[/\\\0]", exp_name):
        raise UsageError(f"exp_name must be the name of a folder, without slashes, not {exp_name!r}: choose one like 'tag-1'")
    text = _render_config(config)
    parent = Path(save_dir).expanduser()
    path = parent / exp_name
    with _writing(path):
        parent.mkdir(parents=True, exist_ok=True)
        count = 1
        while True:
            try:
                path.mkdir()  # not a look beforehand: of two programs that start at once, one must get the next name
                break
            except FileExistsError:
                count += 1
                path = parent / f"{exp_name}-{count}"
        (path / "checkpoints").mkdir()
        _sync(parent)
        _write(path / "config.json", text)
    return Run(path)


def _render_config(config: Mapping[str, Any]) -> bytes:
    if taken := config.keys() & {"format", "counterpoint"}:
        raise ValueError(f"the settings {sorted(taken)} are written by runs.create itself")
    return json.dumps({"format": FORMAT, "counterpoint": __version__, **config}, indent=2).encode()


def open_run(path: str | os.PathLike[str]) -> Run:
    """The run in a folder that `create` made."""
    folder = Path(path).expanduser()
    _read_config(folder)
    return Run(folder)


def list_runs(save_dir: str | os.PathLike[str]) -> list[Summary]:
    """The runs in a folder, the one written last first."""
    summaries = (_summary(path.parent) for path in Path(save_dir).expanduser().glob("*/config.json"))
    return sorted(summaries, key=lambda summary: (summary.age, summary.name))


def _summary(path: Path) -> Summary:
    """Reads of the settings world.scenario, algorithm, training.num_episodes; of the metrics seed, episode, return_sum."""
    files = ("config.json", "metrics.csv", "checkpoints")
    age = time.time() - max((path / file).stat().st_mtime for file in files if (path / file).exists())
    try:
        config, rows = Run(path).config, Run(path).rows()
        scenario, algorithm = config["world"]["scenario"], config["algorithm"]
        planned = int(config["training"]["num_episodes"])
    except (UsageError, OSError, KeyError, TypeError, ValueError):
        return Summary(name=path.name, scenario="", algorithm="", episodes=0, last_return=None, state="unreadable", age=age)
    last = {row.get("seed"): row for row in rows}.values()
    episodes = min((cell for row in last if isinstance(cell := row.get("episode"), int)), default=0)
    returns = [cell for row in last if isinstance(cell := row.get("return_sum"), int | float)]
    return Summary(
        name=path.name,
        scenario=scenario,
        algorithm=algorithm,
        episodes=episodes,
        last_return=sum(returns) / len(returns) if returns else None,
        state="finished" if episodes >= planned else "unfinished",
        age=age,
    )


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
        version = int(config["format"])
    except (FileNotFoundError, NotADirectoryError):
        inside = sorted(found.parent.name for found in folder.glob("*/config.json"))
        more = ", …" if inside[5:] else ""
        hint = f"choose one of the runs in it ({', '.join(inside[:5])}{more})" if inside else "check the path"
        raise UsageError(f"{folder} is no run, it has no config.json: {hint}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} cannot be read ({error!r}): restore it or start a new run") from None
    if version > FORMAT:
        raise UsageError(
            f"{folder} was written by counterpoint {config.get('counterpoint')} in format {version}, and this is {__version__} "
            f"which reads up to {FORMAT}: upgrade counterpoint"
        )
    return config


class _Damaged(Exception):
    """A file of a checkpoint is not what was written: the clause that says which and how."""


class _File(NamedTuple):
    """A file a checkpoint needs."""

    name: str
    size: int
    sha256: str
    first: int = 0
    length: int = 0
    """For replay: the rows it holds."""


class _Manifest(NamedTuple):
    """What ckpt-<step>.json says."""

    step: int
    counters: dict[str, Any]
    capacity: int
    added: int
    state: _File
    segments: tuple[_File, ...]

    @property
    def files(self) -> tuple[_File, ...]:
        return (self.state, *self.segments)

    def render(self) -> bytes:
        """The file's text: the facts and their checksum. A manifest is whole if rendering what it says gives its very bytes."""
        facts = self._asdict() | {"state": self.state._asdict(), "segments": [file._asdict() for file in self.segments]}
        digest = hashlib.sha256(_json(facts).encode()).hexdigest()
        return _json({"sha256": digest, "checkpoint": facts}).encode()


def _read_manifest(path: Path) -> _Manifest:
    data = _read(path)
    try:
        facts = json.loads(data)["checkpoint"]
        segments = tuple(_File(**file) for file in facts["segments"])
        manifest = _Manifest(**facts | {"state": _File(**facts["state"]), "segments": segments})
    except (ValueError, KeyError, TypeError):
        manifest = None
    if manifest is None or manifest.render() != data:
        raise _Damaged(f"{path.name} is damaged (its content does not match its checksum)")
    return manifest


def _read_checkpoint(path: Path, problems: tuple[str, ...]) -> Checkpoint:
    """The checkpoint of a manifest, every byte of it verified before it is parsed."""
    manifest = _read_manifest(path)
    state = _read_tensors(path.parent, manifest.state)
    ring = None
    for file in manifest.segments:
        rows = _read_tensors(path.parent, file)["rows"]
        if ring is None:
            ring = np.zeros((rows.shape[0], manifest.capacity, rows.shape[2]), rows.dtype)
        # Rows the ring has lost are overwritten by their successors: segments come in order, none longer than the ring.
        ring[:, np.arange(file.first, file.first + file.length) % manifest.capacity] = rows
    return Checkpoint(manifest.step, state, manifest.counters, manifest.added, ring, problems)


def _read_tensors(folder: Path, file: _File) -> dict[str, np.ndarray]:
    data = _read(folder / file.name)
    if len(data) != file.size:
        raise _Damaged(f"{file.name} is truncated ({len(data)} bytes instead of {file.size})")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise _Damaged(f"{file.name} is damaged (its content does not match its checksum)")
    return safetensors.numpy.load(data)


def _write_tensors(folder: Path, stem: str, tensors: Mapping[str, np.ndarray], first: int = 0, length: int = 0) -> _File:
    data = _pack(tensors)
    digest = hashlib.sha256(data).hexdigest()
    file = _File(f"{stem}-{digest[:8]}.safetensors", len(data), digest, first, length)
    _write(folder / file.name, data)  # even if the name is there: the file behind it may be damaged
    return file


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise _Damaged(f"{path.name} is missing") from None
    except OSError as error:
        raise _Damaged(f"{path.name} cannot be read ({error.strerror})") from None


def _added(segments: Sequence[Segment]) -> int:
    return segments[-1].first + segments[-1].rows.shape[1] if segments else 0


def _inside_ring(segments: Sequence[Segment], capacity: int) -> list[Segment]:
    """The segments without the rows that the ring has already overwritten, and without empty ones."""
    if capacity > 0 and not segments:
        raise ValueError("a run with a replay ring must pass a segment at each save, an empty one if no row is new")
    oldest = _added(segments) - capacity
    cut = [(first, rows, max(oldest - first, 0)) for first, rows in segments]
    return [Segment(first + skip, rows[:, skip:]) for first, rows, skip in cut if rows.shape[1] > skip]


def _check_chain(spans: Sequence[tuple[int, int]], added: int, capacity: int) -> None:
    """The spans (first, length) must hold every row of the ring, once."""
    oldest, ends = max(0, added - capacity), [*(first for first, _ in spans), added]
    if ends[0] > oldest or any(first + length != end for (first, length), end in zip(spans, ends[1:], strict=True)):
        raise ValueError(f"the ring needs the rows {oldest} to {added}, but the segments (first, length) are {spans}")


def _step(manifest_path: Path) -> int:
    return int(manifest_path.stem.removeprefix("ckpt-"))


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _json(value: Mapping[str, Any]) -> str:
    """Compact JSON, NumPy's scalars as plain numbers. Parsed and dumped again it is the same text: keys keep their order."""
    return json.dumps(value, separators=(",", ":"), default=lambda scalar: scalar.item())


def _pack(tensors: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None) -> bytes:
    # safetensors copies raw memory, so an array in another order (a transpose) would be stored scrambled.
    return safetensors.numpy.save({name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}, metadata)


def _whole_lines(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n", data)


def _line(cells: Sequence[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([str(cell).replace("\n", " ") for cell in cells])
    return text.getvalue().encode()


def _cells(line: bytes) -> list[str]:
    return next(csv.reader([line.decode(errors="replace")]), [])


def _number(cell: str) -> Cell:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(cell)
    return cell or None


def _write(path: Path, data: bytes) -> None:
    """Replaces a file whole or not at all, even if the power fails."""
    temp = path.with_name(f".{path.name}.tmp")
    with _writing(path):
        try:
            with open(temp, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temp, path)
        finally:
            temp.unlink(missing_ok=True)
        _sync(path.parent)


def _sync(path: Path) -> None:
    """Waits until a folder's entries, or a file, are on disk."""
    if os.name == "posix" and path.exists():  # elsewhere a folder cannot be opened
        with _writing(path):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turns the system's refusals into a sentence that names the file and the fix."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UsageError(
                f"{path} cannot be written because the disk is full: free some space, then resume the run"
            ) from error
        raise UsageError(
            f"{path} cannot be written ({error.strerror}): make its folder writable or choose another --save-dir"
        ) from error
