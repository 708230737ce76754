"""Files that are never half written, that carry a checksum, and errors of the file system as sentences."""

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from counterpoint.core.checks import shown
from counterpoint.core.errors import UsageError


def write_durably(path: Path, data: bytes) -> None:
    """Replaces a file completely or not at all, even if the power fails."""
    temp = path.with_name(f".{path.name}.tmp")
    with explained(path):
        try:
            with open(temp, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temp, path)
        finally:
            temp.unlink(missing_ok=True)
        sync(path.parent)


def sync(path: Path) -> None:
    """Waits until a file, or the entries of a folder, are on disk."""
    if os.name == "posix" and path.exists():  # other systems cannot open a folder
        with explained(path):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns an `OSError` into a sentence that names the file and the fix."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UsageError(
                f"{shown(str(path), 300)} cannot be written because the disk is full: free some space, then resume the run"
            ) from error
        name = shown(str(path), 300)
        raise UsageError(
            f"{name} cannot be written ({error.strerror}): make its folder writable or choose another --save-dir"
        ) from error


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a draft beside the path, then renames it: readers find the old file or the complete new one."""
    draft = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        write(draft)
        os.replace(draft, path)
    except OSError as error:
        raise UsageError(
            f"cannot write {shown(str(path), 300)} ({error.strerror or error}): choose a folder that you may write to."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def make_folder(folder: str | Path, option: str) -> None:
    """Creates the folder that an option names, unless the name is empty or the folder exists."""
    try:
        if folder:
            expanded(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{option} {shown(str(folder), 300)} cannot be made ({error.strerror}): choose a folder that you may write to."
        ) from error


def compact_json(value: Mapping[str, Any]) -> str:
    """Returns JSON without spaces, NumPy scalars as plain numbers. Keys keep their order, so parsing and dumping is stable."""
    return json.dumps(value, separators=(",", ":"), default=lambda scalar: scalar.item())


SEAL = "sha256"
"""The key under which a JSON file, or the header of a policy, holds the checksum of everything else in it."""


def sealed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts with their checksum."""
    return {**facts, SEAL: _digest(facts)}


def is_intact(facts: Mapping[str, Any]) -> bool:
    """Returns whether facts are those that were sealed; older files have no seal, and none under another name."""
    plain = {name: value for name, value in facts.items() if name != SEAL}
    return facts[SEAL] == _digest(plain) if SEAL in facts else not has_stray_seal(plain)


def has_stray_seal(facts: Mapping[str, Any]) -> bool:
    """Returns whether something that looks like a seal has another name: then it is the name that is damaged."""
    return any(isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) for value in facts.values())


def _digest(facts: Mapping[str, Any]) -> str:
    text = json.dumps(facts, separators=(",", ":"), sort_keys=True, default=lambda scalar: scalar.item())
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_file(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pack_policy(tensors: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> bytes:
    """Returns the bytes of a safetensors file whose header describes the tensors and holds the checksum of everything."""
    # One entry only: safetensors writes several in random order, and the same policy must be the same file.
    return pack_tensors(tensors, {"about": compact_json({**about, SEAL: policy_digest(tensors, about)})})


def policy_digest(tensors: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> str:
    """Returns the checksum of a policy: names, types, shapes and numbers of its tensors, and their description."""
    digest = hashlib.sha256(_digest(about).encode())
    for name in sorted(tensors):
        tensor = np.asarray(tensors[name], order="C")
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def expanded(path: str | os.PathLike[str]) -> Path:
    """Returns a path with ~ replaced by the home folder; refuses one that no file system accepts."""
    text = os.fspath(path)
    if "\0" in text:
        raise UsageError(f"the path {shown(text)} holds a zero character: choose another.")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(f"{shown(text)} names the home folder of an unknown user: write the whole path.") from None


def pack_tensors(tensors: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None) -> bytes:
    """Returns the bytes of a safetensors file."""
    # safetensors copies raw memory, so an array in another order (a transpose) would be stored scrambled.
    return safetensors.numpy.save({name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}, metadata)
