"""Files that are never half written, and errors of the file system as sentences."""

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

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
                f"{path} cannot be written because the disk is full: free some space, then resume the run"
            ) from error
        raise UsageError(
            f"{path} cannot be written ({error.strerror}): make its folder writable or choose another --save-dir"
        ) from error


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a draft beside the path, then renames it: readers find the old file or the complete new one."""
    draft = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        write(draft)
        os.replace(draft, path)
    except OSError as error:
        raise UsageError(
            f"cannot write {path} ({error.strerror or error}): choose an existing folder that you may write to."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def make_folder(folder: str | Path, option: str) -> None:
    """Creates the folder that an option names, unless the name is empty or the folder exists."""
    try:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{option} {folder} cannot be made ({error.strerror}): choose a folder that you may write to."
        ) from error


def compact_json(value: Mapping[str, Any]) -> str:
    """Returns JSON without spaces, NumPy scalars as plain numbers. Keys keep their order, so parsing and dumping is stable."""
    return json.dumps(value, separators=(",", ":"), default=lambda scalar: scalar.item())


def pack_tensors(tensors: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None) -> bytes:
    """Returns the bytes of a safetensors file."""
    # safetensors copies raw memory, so an array in another order (a transpose) would be stored scrambled.
    return safetensors.numpy.save({name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}, metadata)
