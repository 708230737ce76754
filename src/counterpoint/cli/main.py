"""The entry point of the command line."""

import difflib
import os
import shutil
import sys
import textwrap

from counterpoint import __version__
from counterpoint.cli import parsing, registry
from counterpoint.core.errors import UsageError

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
            "Multi-agent actor-critic learning (MADDPG, DDPG, MATD3, MASAC, COMA), compiled with JAX.",
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
    try:
        run(words[0], words[1:])
    except UsageError as error:
        print(f"counterpoint: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\ncounterpoint: interrupted", file=sys.stderr)
        sys.exit(130)


def run(name: str, words: list[str]) -> None:
    """Calls the command of this name with the words that follow it."""
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, list(COMMANDS), 1)
        hint = f"perhaps {close[0]}?" if close else f"known are {', '.join(COMMANDS)}."
        raise UsageError(f"unknown command {name!r}; {hint}")
    command = COMMANDS[name]
    if command.parses_itself:
        command.function(words)
    else:
        parsing.call(command.function, words, f"counterpoint {name}")
