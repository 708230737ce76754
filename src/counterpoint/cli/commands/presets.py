"""`counterpoint presets`."""

import dataclasses
import shlex
import sys
from typing import Any

from counterpoint.cli.registry import command


@command("Training")
def presets() -> None:
    """List the presets that `counterpoint train --preset` accepts, with the options that they set.

    The options are those of the command line: what is printed after a name can be pasted after `counterpoint train`.
    """
    from counterpoint.presets import PRESETS

    options = {name: _options(config) for name, config in PRESETS.items()}
    if not sys.stdout.isatty():
        for name, words in options.items():
            print(f"{name}\n    {' '.join(words)}")
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    for name, words in options.items():
        console.print(Text(name, style="bold"))
        # An option and its value stay on one line; a backslash lets the shell read several lines as one command.
        console.print(Padding(Text(_wrapped(words, console.width - 6)), (0, 0, 0, 4)))


def _options(config: Any) -> list[str]:
    """Returns the options, each with its value, that turn the defaults of an algorithm into these settings."""
    from counterpoint import config as configs

    plain = configs.Config()
    family = configs.override(plain, algorithm=config.algorithm)
    base = configs.flat(dataclasses.replace(family, algorithm=plain.algorithm))
    found = configs.flat(config)
    return [_option(name, value) for name, value in found.items() if value != base[name] or name == "scenario"]


def _option(name: str, value: Any) -> str:
    """Returns an option with its value as the shell reads it."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    words = value if isinstance(value, tuple) else (value,)
    return f"--{flag} {shlex.join(map(str, words))}"


def _wrapped(options: list[str], width: int) -> str:
    """Returns the options on lines of at most `width` columns, with a backslash at the end of each but the last."""
    lines = [""]
    for option in options:
        longer = f"{lines[-1]} {option}".lstrip()
        if lines[-1] and len(longer) > width:
            lines.append(option)
        else:
            lines[-1] = longer
    return " \\\n".join(lines)
