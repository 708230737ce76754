"""The files of trainers: trainer.safetensors, and <n>_trainer.safetensors for the models kept during training."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Spec
from counterpoint.core.trees import names_of
from counterpoint.runs.tables import write_whole

NAME = "trainer.safetensors"


def path_of(folder: Path, number: int | None = None) -> Path:
    """Returns the file of a model: the one with that number, or the one without a number."""
    return folder / (NAME if number is None else f"{number}_{NAME}")


def newest(folder: Path) -> Path | None:
    """Returns the file whose model has seen the most steps, or None if the folder holds no model."""
    numbered = [path for path in folder.glob(f"*_{NAME}") if path.name.removesuffix(f"_{NAME}").isdecimal()]
    found = sorted(numbered, key=lambda path: int(path.name.partition("_")[0]))
    if path_of(folder).exists():
        found.append(path_of(folder))
    return max(reversed(found), key=lambda path: _read(path, tensors=False)[1]["steps"]) if found else None


def save(path: Path, state: Any, spec: Spec, about: dict[str, Any]) -> None:
    """Writes a state's arrays and the facts about it, whole or not at all."""
    about = about | {"sizes": _sizes(spec)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {path.parent} ({error.strerror}): choose another save_dir.") from error
    leaves = map(np.asarray, jax.tree.leaves(state))
    tensors = {name: np.asarray(leaf, order="C") for name, leaf in zip(names_of(state), leaves, strict=True)}
    write_whole(path, lambda draft: safetensors.numpy.save_file(tensors, draft, {"about": json.dumps(about)}))


def load(path: Path, like: Any, spec: Spec, owner: str) -> tuple[Any, dict[str, Any]]:
    """Returns the state in a file, which must have the arrays of `like` and fit the spec, and the facts about it."""
    tensors, about = _read(path)
    wanted = dict(zip(names_of(like), jax.tree.leaves(like), strict=True))
    shapes = {name: array.shape for name, array in tensors.items()}
    fits = about.get("sizes", _sizes(spec)) == _sizes(spec)  # padding can hide other sizes from the shapes
    if not fits or shapes != {name: leaf.shape for name, leaf in wanted.items()}:
        raise UsageError(f"{path} holds other networks than {owner} has: use the model and spaces it was saved with.")
    return jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(tensors[name]) for name in wanted]), about


def _sizes(spec: Spec) -> list[list[int]]:
    return [list(spec.obs_sizes), list(spec.act_sizes)]


def _read(path: Path, tensors: bool = True) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        with safetensors.safe_open(path, "np") as file:
            arrays = {name: file.get_tensor(name) for name in (file.keys() if tensors else ())}
            about = json.loads(file.metadata()["about"])
            int(about["steps"])
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist: save the agent first, or check save_dir and scenario.") from None
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise UsageError(f"{path} is damaged ({error}): restore it, delete it, or load another by its number.") from None
    return arrays, about
