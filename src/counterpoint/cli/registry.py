"""The table of commands: each module in commands/ adds its own with `@command`."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

Group = Literal["Training", "Trained runs", "Distributed learning and published results"]
"""The headings of `counterpoint --help`."""


class Command(NamedTuple):
    """A command and where `counterpoint --help` lists it."""

    function: Callable[..., None]
    """Its parameters are the options, its docstring is the help."""
    group: str
    parses_itself: bool
    """Whether the function takes the list of words instead of parsed options."""

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").partition("\n")[0]


_registered: dict[str, Command] = {}


def command(group: Group, parses_itself: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a function as the command of the same name."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _registered[function.__name__.replace("_", "-")] = Command(function, group, parses_itself)
        return function

    return register


def discover() -> dict[str, Command]:
    """Imports every module in commands/ and returns the commands by name, in the order of the groups and of the alphabet."""
    from counterpoint.cli import commands

    for module in pkgutil.iter_modules(commands.__path__):
        importlib.import_module(f"{commands.__name__}.{module.name}")
    groups = get_args(Group)
    return dict(sorted(_registered.items(), key=lambda item: (groups.index(item[1].group), item[0])))
