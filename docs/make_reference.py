"""Writes the reference of all commands: `python docs/make_reference.py`. The texts are those of `--help`."""

import ast
import dataclasses
import inspect
import re
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from counterpoint import config as configs
from counterpoint.algos.base import entries
from counterpoint.cli.main import COMMANDS
from counterpoint.runs.tables import markdown_table

PAGE = Path(__file__).parent / "reference" / "commands.md"


def main() -> None:
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())


def page() -> str:
    """Returns the page of all commands."""
    parts = [
        "<!-- Written by docs/make_reference.py. -->",
        "# Commands",
        "`counterpoint COMMAND --help` prints these texts too. Exit codes: 0 for success, 2 for wrong usage, 3 if learning"
        " diverged, 4 if a distributed run lost its learners, 130 if interrupted.",
    ]
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        for name, command in sorted(COMMANDS.items(), key=lambda item: not item[1].parses_itself):
            if command.group == group:
                parts += [f"## {name}", *(_train() if command.parses_itself else _command(command.function))]
    return "\n\n".join(parts) + "\n"


def _train() -> list[str]:
    """Returns the options of `counterpoint train` by group."""
    config = configs.Config()
    parts = ["Train a team of agents. The options override the settings of `--preset`, if one is given."]
    own = [field for field in dataclasses.fields(config) if field.name not in configs.GROUPS]
    parts.append(_options(type(config), [(field.name, getattr(config, field.name)) for field in own]))
    for group in configs.GROUPS:
        if group != "learning":
            parts += _group({"world": "environment"}.get(group, group), getattr(config, group))
    kinds: dict[type, list[str]] = {}
    for entry in entries().values():
        kinds.setdefault(entry.settings, []).append(entry.name)
    for kind, names in kinds.items():
        parts += _group(f"learning, with `--algorithm {'` or `'.join(names)}`", kind())
    return parts


def _group(title: str, settings: Any) -> list[str]:
    """Returns a heading, a sentence and the options of a settings class."""
    values = [(field.name, getattr(settings, field.name)) for field in dataclasses.fields(settings)]
    return [f"### train: {title}", inspect.getdoc(settings) or "", _options(type(settings), values)]


def _options(kind: type, values: list[tuple[str, Any]]) -> str:
    docs, types = field_docs(kind), get_type_hints(kind)
    return _table(
        [[f"`--{name.replace('_', '-')}`", _shown(value), docs.get(name, "") + _choices(types[name])] for name, value in values]
    )


def _table(rows: list[list[str]]) -> str:
    """Returns a table of options, in a frame in which the style sheet keeps flags on one line."""
    table = markdown_table(["option", "default", "meaning"], rows).strip()
    return f'<div class="options" markdown>\n\n{table}\n\n</div>'


def _command(function: Any) -> list[str]:
    """Returns the description and the options of a command."""
    text, _, arguments = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    meanings = dict(re.findall(r"^(\w+): (.*)$", re.sub(r"\n\s{4,}", " ", textwrap.dedent(arguments)), re.MULTILINE))
    rows = []
    for name, parameter in inspect.signature(function).parameters.items():
        positional = "Positional" in str(parameter.annotation) or "RUN" in str(parameter.annotation)
        shown = "" if parameter.default is parameter.empty else _shown(parameter.default)
        rows.append(
            [f"`{name.upper()}`" if positional else f"`--{name.rstrip('_').replace('_', '-')}`", shown, meanings.get(name, "")]
        )
    return [text.strip(), *([_table(rows)] if rows else [])]


def _choices(kind: Any) -> str:
    """Returns the choices of an option as a sentence."""
    if get_origin(kind) is not Literal:
        return ""
    return f" Choices: {', '.join(f'`{choice}`' for choice in get_args(kind) if choice)}."


def _shown(value: Any) -> str:
    return "" if value in ("", ()) and not isinstance(value, bool) else f"`{value}`"


def field_docs(kind: type) -> dict[str, str]:
    """Returns the docstring below each field of a dataclass and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError):
            continue
        for field, text in pairwise(getattr(body, "body", [])):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    docs[name] = " ".join(words.split())
    return docs


if __name__ == "__main__":
    main()
