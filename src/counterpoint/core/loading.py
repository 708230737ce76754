"""Python objects by address: package.module:name or path/to/file.py:name.

The running main script is never executed again in its own process. Worker processes receive objects that live in it by
value; one that must import the script instead is marked, and `refuse_nested` then stops a script without a `__main__` guard.
"""

import importlib
import importlib.util
import os
import sys
from functools import reduce
from pathlib import Path
from typing import Any

from counterpoint.core.checks import shown
from counterpoint.core.errors import UsageError

WORKER = "COUNTERPOINT_WORKER"
"""The environment variable that marks worker processes."""
LIBRARIES = ("gymnax", "jaxmarl")
"""Prefixes of addresses that name an environment of a library, not a file."""
_executing: list[str] = []
"""The files that `load_object` is executing at this moment."""


def is_address(text: str) -> bool:
    """Returns whether a text has the form of an address."""
    return ":" in text


def short_name(address: str) -> str:
    """Returns one word for an address: its file or module; of gymnax:CartPole-v1, the environment; any other text as it is."""
    place, _, last = address.rpartition(":")
    return last if place in LIBRARIES else Path(place).name.removesuffix(".py").rpartition(".")[2] or address


def load_object(address: str, option: str) -> Any:
    """Returns the object at an address; `option` names the flag in error messages."""
    place, _, name = address.rpartition(":")
    address = shown(address, 200)
    if not place or not name:
        raise UsageError(f"{option} {address} must be package.module:name or path/to/file.py:name.")
    try:
        module = _load_file(Path(place), option) if place.endswith(".py") else _load_module(place)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"{option} {address} cannot be imported ({type(error).__name__}: {shown(first_line(error), 200)})."
        ) from error
    try:
        return reduce(getattr, name.split("."), module)
    except AttributeError:
        if place == "__main__":
            raise UsageError(
                f"{option} {address} was defined in an interactive session: define {name} here again, or move it to a file."
            ) from None
        raise UsageError(
            f"{option} {address}: {shown(place, 200)} has no {shown(name)}; check the name after the colon."
        ) from None


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
    if home != "__main__":
        return f"{home}:{name}"
    main = sys.modules["__main__"]
    file, module = getattr(main, "__file__", None), _main_module()
    if module:
        return f"{module}:{name}"
    return f"{Path(file).resolve()}:{name}" if file and Path(file).exists() else f"__main__:{name}"


def by_value(thing: Any, option: str) -> bytes:
    """Returns an object of the main script or of a notebook as bytes for `pickle.loads` in another process.

    Returns nothing if the other process can import the object by its address instead.
    """
    if getattr(thing, "__module__", None) != "__main__":
        return b""
    try:
        import cloudpickle

        return cloudpickle.dumps(thing)
    except Exception as error:  # it refers to something that cannot be pickled, or cloudpickle is not installed
        if getattr(sys.modules["__main__"], "__file__", None):
            return b""
        raise UsageError(
            f"{option}={getattr(thing, '__qualname__', thing)!s} cannot be sent to worker processes"
            f" ({type(error).__name__}: {first_line(error)}): move it to a file, or pip install cloudpickle."
        ) from error


def refuse_nested(call: str) -> None:
    """Refuses a call from a script that is only being imported, which would start the script again without end."""
    if not _executing and WORKER not in os.environ:
        return
    where = f"importing {_executing[-1]}" if _executing else "running in a worker process"
    raise UsageError(f'{call} was called while {where}: put the call under if __name__ == "__main__": in the script.')


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message."""
    return next(iter(str(error).splitlines()), "")


def _main_module() -> str:
    """Returns the name of the module that `python -m` runs, if any."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None) or ""


def _load_module(place: str) -> Any:
    if place == _main_module():
        return sys.modules["__main__"]
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # as `python -m` does: the user's module may be in the working directory
    if place in sys.modules:
        return sys.modules[place]
    _executing.append(place)
    try:
        return importlib.import_module(place)
    finally:
        _executing.pop()


def _load_file(path: Path, option: str) -> Any:
    """Returns the module of a file, executing it at most once per process, and never the running main script again."""
    try:
        found = path.expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # too long, a zero character, or the home of an unknown user
        found = False
    path = path.expanduser() if found else path
    if not found:
        raise UsageError(f"{option} {shown(str(path), 200)}: there is no such file.")
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
    _executing.append(path.name)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if sys.modules.get(path.stem) is module:
            del sys.modules[path.stem]
        raise
    finally:
        _executing.pop()
    return module
