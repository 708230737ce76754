"""The entry point of the command line."""

import difflib
import os
import shutil
import signal
import sys
import textwrap
import warnings
from typing import Any

from counterpoint import __version__
from counterpoint.cli import parsing, registry
from counterpoint.core.checks import shown
from counterpoint.core.errors import Damage, UsageError

COMMANDS = registry.discover()


def usage() -> str:
    """Returns the text of `counterpoint --help`."""
    width = max(map(len, COMMANDS))
    lines = []
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        members = {name: command for name, command in COMMANDS.items() if command.group == group}
        lines += [f"{group}:", *(_entry(name, command.summary, width) for name, command in members.items()), ""]
    return "\n".join(
        [
            "usage: counterpoint COMMAND [OPTIONS]",
            "",
            "Multi-agent actor-critic learning, compiled with JAX.",
            "",
            *lines,
            "Options:",
            _entry("--help", "Print this help; `counterpoint COMMAND --help` describes a command and its options.", width),
            _entry("--version", "Print the version.", width),
        ]
    )


def _entry(name: str, summary: str, width: int) -> str:
    """Returns a line of the help, or several on a narrow terminal."""
    room = max(40, shutil.get_terminal_size((120, 24)).columns)
    return textwrap.fill(f"  {name:<{width}}  {summary}", room, subsequent_indent=" " * (width + 4), break_on_hyphens=False)


def main() -> None:
    """Runs a command; exits with 2 for wrong usage, 3 if learning diverged, 4 without enough learners, 130 if interrupted."""
    try:
        _main()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more at exit
        sys.exit(141)


def _main() -> None:
    words = sys.argv[1:]
    if not words or words[0] in ("--help", "-h", "help"):
        print(usage())
        sys.exit(0 if words else 2)
    if words[0] in ("--version", "-V"):
        print(f"counterpoint {__version__}")
        return
    with warnings.catch_warnings():
        _show_damage_as_sentences()
        _run(words)


def _show_damage_as_sentences() -> None:
    """Lets warnings of damaged files appear as sentences, like errors."""
    show = warnings.showwarning

    def sentence(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, Damage):
            print(f"counterpoint: {message}", file=sys.stderr)
        else:
            show(message, category, *rest, **more)

    warnings.simplefilter("always", Damage)
    warnings.showwarning = sentence


def _run(words: list[str]) -> None:
    """Runs a command; ends the process with a sentence if that fails."""
    try:
        run(words[0], words[1:])
    except UsageError as error:
        _refuse(error)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more must not interrupt the end of the process with a traceback
        print("\ncounterpoint: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{shown(str(error.filename))}: " if error.filename else ""
        _refuse(f"{where}{error.strerror or error}; check the path, its permissions and the space on its disk.")
    except MemoryError:
        _refuse("there is not enough memory for this: choose smaller sizes.")
    except Exception as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        _refuse("there is not enough memory for this: choose a smaller --batch-size, --num-units or --eval-episodes.")


def _refuse(reason: object) -> None:
    print(f"counterpoint: {reason}", file=sys.stderr)
    sys.exit(2)


def run(name: str, words: list[str]) -> None:
    """Calls the command of this name with the words that follow it."""
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, list(COMMANDS), 1)
        hint = f"perhaps {close[0]}?" if close else f"known are {', '.join(COMMANDS)}."
        raise UsageError(f"unknown command {shown(repr(name))}; {hint}")
    command = COMMANDS[name]
    if command.parses_itself:
        command.function(words)
    else:
        parsing.call(command.function, words, f"counterpoint {name}")
