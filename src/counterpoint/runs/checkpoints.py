"""Checkpoints: a state file, the replay segments still in the ring, and a manifest that lists them.

A checkpoint counts once its manifest `ckpt-<step>.json` exists, and the manifest is written last. It records the size and the
SHA-256 of each file it needs. File names contain part of that checksum, so no save overwrites a file of an older checkpoint
with other content, even when a resumed run takes a different course.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy

from counterpoint.core.errors import UsageError
from counterpoint.runs import files


class Segment(NamedTuple):
    """Consecutive rows of the replay ring; row `first + i` is stored at index `(first + i) % capacity`."""

    first: int
    """How many rows each device had added before these."""
    rows: np.ndarray
    """[devices, n, D]; n may be 0 when nothing is new."""


class Checkpoint(NamedTuple):
    """Everything that resuming needs."""

    step: int
    state: dict[str, np.ndarray]
    counters: dict[str, Any]
    added: int
    """How many rows each device has added to its ring so far."""
    ring: np.ndarray | None
    """[devices, capacity, D], zero where no row was added yet; None if no row was ever added."""
    problems: tuple[str, ...]
    """One sentence for each newer checkpoint that was damaged and therefore skipped."""


def save(
    run: Path, step: int, state: Mapping[str, np.ndarray], counters: Mapping[str, Any], segments: Sequence[Segment],
    capacity: int, keep: int,
) -> None:  # fmt: skip
    """Writes checkpoint `step` of a run's folder, then removes all but the last `keep` and the files that none of them needs.

    `segments` are the rows added since the previous checkpoint, in order; older rows stay in its files. A run with a replay
    ring (capacity > 0) passes at least one segment, an empty one if nothing is new.
    """
    folder = run / "checkpoints"
    facts = json.loads(files.compact_json(counters))  # counters that JSON cannot hold fail here, before any file is written
    added, fresh = _added(segments), _inside_ring(segments, capacity)
    old = _inherited(folder, step, segments[0].first, added - capacity) if segments else []
    _check_chain(
        [(part.first, part.length) for part in old] + [(first, rows.shape[1]) for first, rows in fresh], added, capacity
    )
    new = [_write_tensors(folder, f"replay-{first:012d}", {"rows": rows}, first, rows.shape[1]) for first, rows in fresh]
    state_file = _write_tensors(folder, f"state-{step:012d}", state)
    files.sync(run / "metrics.csv")  # if the checkpoint survives a power failure, the rows before it must survive too
    manifest = _Manifest(step, facts, capacity, added, state_file, (*old, *new))
    files.write_durably(folder / f"ckpt-{step:012d}.json", manifest.render())
    _tidy(folder, step, keep)


def load(run: Path) -> Checkpoint | None:
    """Returns the newest checkpoint whose files are all intact, or None if there is none yet. Changes nothing on disk."""
    problems: list[str] = []
    for path in _manifest_paths(run / "checkpoints"):
        try:
            return _read_checkpoint(path, tuple(problems))
        except _Damaged as damage:
            problems.append(f"checkpoint {_step(path)} of {run} is skipped because {damage}")
    if problems:
        raise UsageError(f"{run} has no intact checkpoint left, restore its files or start a new run: {'; '.join(problems)}")
    return None


def problems(run: Path) -> list[tuple[Path, str]]:
    """Returns the manifest of each checkpoint, newest first, with a clause that says what is wrong with it, if anything is."""
    found = []
    for path in _manifest_paths(run / "checkpoints"):
        try:
            _read_checkpoint(path, ())
            found.append((path, ""))
        except _Damaged as damage:
            found.append((path, f"{damage}: resuming uses an older checkpoint."))
    return found


def remove_after(run: Path, step: int) -> None:
    """Removes the manifests of the checkpoints after `step`."""
    for path in _manifest_paths(run / "checkpoints"):
        if _step(path) > step:
            with files.explained(path):
                path.unlink()


class _Damaged(Exception):
    """A file of a checkpoint differs from what was written; the message is a clause that says which file and how."""


class _File(NamedTuple):
    """A file that a checkpoint needs."""

    name: str
    size: int
    sha256: str
    first: int = 0
    length: int = 0
    """The rows that a replay file holds."""


class _Manifest(NamedTuple):
    """The content of ckpt-<step>.json."""

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
        """Returns the file's text with its checksum. A manifest is intact if rendering its content gives the same bytes."""
        facts = self._asdict() | {"state": self.state._asdict(), "segments": [file._asdict() for file in self.segments]}
        digest = hashlib.sha256(files.compact_json(facts).encode()).hexdigest()
        return files.compact_json({"sha256": digest, "checkpoint": facts}).encode()


def _manifest_paths(folder: Path) -> list[Path]:
    """Returns the manifests, newest first."""
    paths = [path for path in folder.glob("ckpt-*.json") if path.stem[5:].isdecimal()]
    return sorted(paths, key=_step, reverse=True)


def _step(manifest_path: Path) -> int:
    return int(manifest_path.stem.removeprefix("ckpt-"))


def _inherited(folder: Path, step: int, first: int, oldest: int) -> list[_File]:
    """Returns the files of the previous checkpoint that hold rows from `oldest` up to `first`."""
    for path in _manifest_paths(folder):
        with suppress(_Damaged):
            manifest = _read_manifest(path)
            if manifest.step <= step and manifest.added == first:
                parts = [part for part in manifest.segments if part.first + part.length > oldest]
                for part in parts:
                    # Hashing every file at each save would be slow, but a new checkpoint never relies on a missing file.
                    if not _has_size(folder / part.name, part.size):
                        raise UsageError(
                            f"{folder / part.name} was removed or truncated while the run still needs it: restore it"
                        )
                return parts
    return []


def _tidy(folder: Path, step: int, keep: int) -> None:
    """Removes files that no kept checkpoint needs; manifests go first, so that none is left without its files."""
    paths = _manifest_paths(folder)
    # Checkpoints after `step` belong to a course that resuming from an older checkpoint abandoned.
    kept = [path for path in paths if _step(path) <= step][:keep]
    needed = {path.name for path in kept}
    for path in kept:
        with suppress(_Damaged):
            needed |= {file.name for file in _read_manifest(path).files}
    for path in [*paths, *folder.iterdir()]:
        if path.name not in needed and re.match(r"(ckpt|state|replay)-\d|\..*\.tmp$", path.name):
            with suppress(OSError):  # the next save tries again
                path.unlink()


def _read_manifest(path: Path) -> _Manifest:
    data = _read(path)
    try:
        facts = json.loads(data)["checkpoint"]
        segments = tuple(_File(**file) for file in facts["segments"])
        manifest = _Manifest(**facts | {"state": _File(**facts["state"]), "segments": segments})
        intact = manifest.render() == data and _is_sound(manifest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        manifest, intact = None, False
    if manifest is None or not intact:
        raise _Damaged(f"{path.name} is damaged (its content does not match its checksum)")
    return manifest


def _is_sound(manifest: _Manifest) -> bool:
    """Returns whether a manifest holds what ours do: a checksum says that it is unchanged, not who wrote it."""
    numbers = [manifest.step, manifest.capacity, manifest.added]
    numbers += [number for file in manifest.files for number in (file.size, file.first, file.length)]
    names = [file.name for file in manifest.files]
    return (
        all(isinstance(number, int) and 0 <= number < 2**62 for number in numbers)
        and all(isinstance(name, str) and re.fullmatch(r"(state|replay)-[0-9a-f-]+\.safetensors", name) for name in names)
        and all(file.length <= manifest.capacity for file in manifest.segments)
        and isinstance(manifest.counters, dict)
    )


def _ring(rows: np.ndarray, capacity: int, name: str) -> np.ndarray:
    """Returns an empty ring for such rows, if this machine can hold it."""
    if rows.ndim != 3:
        raise _Damaged(f"{name} does not hold rows of a replay")
    size = rows.shape[0] * capacity * rows.shape[2] * rows.itemsize
    if size > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise _Damaged(f"its replay of {size / 2**30:.1f} GiB does not fit into this machine's memory")
    return np.zeros((rows.shape[0], capacity, rows.shape[2]), rows.dtype)


def _read_checkpoint(path: Path, problems: tuple[str, ...]) -> Checkpoint:
    """Returns the checkpoint of a manifest; verifies every byte before parsing it."""
    manifest = _read_manifest(path)
    state = _read_tensors(path.parent, manifest.state)
    ring = None
    for file in manifest.segments:
        rows = _read_tensors(path.parent, file).get("rows", np.zeros(0))
        if ring is None:
            ring = _ring(rows, manifest.capacity, file.name)
        if rows.shape != (ring.shape[0], file.length, ring.shape[2]):
            raise _Damaged(f"{file.name} does not hold the rows that {path.name} lists")
        # Later rows overwrite those that the ring has dropped: segments come in order, and none is longer than the ring.
        ring[:, np.arange(file.first, file.first + file.length) % manifest.capacity] = rows
    return Checkpoint(manifest.step, state, manifest.counters, manifest.added, ring, problems)


def _read_tensors(folder: Path, file: _File) -> dict[str, np.ndarray]:
    path = folder / file.name
    if path.is_file() and path.stat().st_size != file.size:  # before reading it: it may be of any size
        raise _Damaged(f"{file.name} is truncated ({path.stat().st_size} bytes instead of {file.size})")
    data = _read(path)
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise _Damaged(f"{file.name} is damaged (its content does not match its checksum)")
    try:
        return safetensors.numpy.load(data)
    except (ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise _Damaged(f"{file.name} is not a file of tensors ({error})") from None


def _write_tensors(folder: Path, stem: str, tensors: Mapping[str, np.ndarray], first: int = 0, length: int = 0) -> _File:
    data = files.pack_tensors(tensors)
    digest = hashlib.sha256(data).hexdigest()
    file = _File(f"{stem}-{digest[:8]}.safetensors", len(data), digest, first, length)
    files.write_durably(folder / file.name, data)  # even if the file exists: its content may be damaged
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
    """Returns the segments without empty ones and without the rows that the ring has already overwritten."""
    if capacity > 0 and not segments:
        raise ValueError("a run with a replay ring must pass a segment at each save, an empty one if no row is new")
    oldest = _added(segments) - capacity
    cut = [(first, rows, max(oldest - first, 0)) for first, rows in segments]
    return [Segment(first + skip, rows[:, skip:]) for first, rows, skip in cut if rows.shape[1] > skip]


def _check_chain(spans: Sequence[tuple[int, int]], added: int, capacity: int) -> None:
    """Raises ValueError unless the spans (first, length) cover every row of the ring exactly once."""
    oldest, ends = max(0, added - capacity), [*(first for first, _ in spans), added]
    if ends[0] > oldest or any(first + length != end for (first, length), end in zip(spans, ends[1:], strict=True)):
        raise ValueError(f"the ring needs the rows {oldest} to {added}, but the segments (first, length) are {spans}")


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
