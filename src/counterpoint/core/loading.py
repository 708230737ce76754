"""Python objects by address: package.module:name or path/to/file.py:name."""

import importlib
import importlib.util
import sys
from functools import reduce
from pathlib import Path
from typing import Any

from counterpoint.core.errors import UsageError


def is_address(text: str) -> bool:
    """Returns whether a text has the form of an address."""
    return ":" in text


def load_object(address: str, option: str) -> Any:
    """Returns the object at an address; `option` names the flag in error messages."""
    place, _, name = address.rpartition(":")
    if not place or not name:
        raise UsageError(f"{option} {address} must be package.module:name or path/to/file.py:name.")
    try:
        module = _load_file(Path(place), option) if place.endswith(".py") else _load_module(place)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{option} {address} cannot be imported ({type(error).__name__}: {first_line(error)}).") from error
    try:
        return reduce(getattr, name.split("."), module)
    except AttributeError:
        raise UsageError(f"{option} {address}: {place} has no {name}; check the name after the colon.") from None


def address_of(thing: Any, option: str) -> str:
    """Returns the address under which a run that resumes finds a function, a class or a module-level object again."""
    name, home = getattr(thing, "__qualname__", ""), getattr(thing, "__module__", None)
    if not name:
        home, name = next(
            (
                (module.__name__, key)
                for module in list(sys.modules.values())
                for key, value in list(getattr(module, "__dict__", {}).items())
                if value is thing
            ),
            (None, ""),
        )
    if not home or not name or "<" in name:
        raise UsageError(
            f"{option}={name or thing!r} cannot be found again by a run that resumes: define it at the top level of a file."
        )
    file = getattr(sys.modules.get(home), "__file__", None)
    return f"{Path(file).resolve()}:{name}" if home == "__main__" and file else f"{home}:{name}"


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message."""
    return next(iter(str(error).splitlines()), "")


def _load_module(place: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # as `python -m` does: the user's module lies in the working directory
    return importlib.import_module(place)


def _load_file(path: Path, option: str) -> Any:
    """Returns the module of a file, executing it at most once per process, and never the running main script again."""
    path = path.expanduser()
    if not path.exists():
        raise UsageError(f"{option} {path}: there is no such file.")
    path = path.resolve()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.endswith(".py") and Path(file).resolve() == path:
            return module
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{option} {path} cannot be loaded as Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module
