"""The list of built-in worlds, found by importing every module of this package: a new world is one new file."""

import dataclasses
import difflib
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

from counterpoint import envs
from counterpoint.core.checks import shown
from counterpoint.core.errors import UsageError
from counterpoint.envs.base import World


def _classes() -> Iterator[type[World]]:
    """Yields every class in this package that gives itself a name; base classes and adapters do not."""
    for module in walk_packages(envs.__path__, f"{envs.__name__}."):
        for value in list(vars(import_module(module.name)).values()):
            if isinstance(value, type) and issubclass(value, World) and isinstance(vars(value).get("name"), str):
                yield value


WORLDS: dict[str, Any] = dict(sorted((str(world.name), world) for world in _classes()))
"""Every built-in world by name."""


def make(name: str, **arguments: Any) -> Any:
    """Returns the world of that name with these arguments."""
    if name not in WORLDS:
        raise UsageError(f"unknown scenario {shown(repr(name))}{_nearest(name, list(WORLDS))}; known are {', '.join(WORLDS)}.")
    return construct(WORLDS[name], name, arguments)


def construct(world: type, name: str, arguments: dict[str, Any]) -> Any:
    """Returns a world class called with these arguments; refuses, by name, those that are not its fields."""
    fields = [field.name for field in dataclasses.fields(world) if field.init]
    for argument in arguments:
        if argument not in fields:
            takes = f"it takes {', '.join(fields)}" if fields else "it takes none"
            raise UsageError(f"{name} has no argument {argument!r}{_nearest(argument, fields)}; {takes}.")
    missing = [
        f.name
        for f in dataclasses.fields(world)
        if f.init and f.name not in arguments and f.default is f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UsageError(f"{name} needs {', '.join(missing)}: give it by --scenario-args {missing[0]}=….")
    return world(**arguments)


def _nearest(word: str, known: list[str]) -> str:
    """Returns a hint for a misspelt word, or nothing."""
    close = difflib.get_close_matches(word, known, 1)
    return f" (perhaps {close[0]}?)" if close else ""
