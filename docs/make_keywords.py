"""Writes the typed keywords of `train`, `resume` and `grid`: `python docs/make_keywords.py`.

Editors complete them and type checkers refuse a wrong name. They follow the settings classes; a test compares them.
"""

import dataclasses
import inspect
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from make_reference import field_docs

from counterpoint import config as configs
from counterpoint.algos.base import entries
from counterpoint.studies.grid import NOT_AXES
from counterpoint.training import train

ROOT = Path(__file__).parents[1]
MODULE = Path(inspect.getfile(train)).with_name("keywords.py")
OWN_TYPES = {
    "env": "str | Callable[..., Any] | World",
    "algorithm": "str | Entry",
    "scenario_args": "Sequence[str]",
    "teams": "Sequence[str] | Mapping[str, str]",
}
"""Settings that Python may give in more ways than the command line."""
NEVER_IN_PYTHON = {"restore", "display", "benchmark", "benchmark_iters", "benchmark_dir", "load_dir"}
"""Settings that choose another command instead of training."""
HEAD = '''"""The keywords of `train`, `resume` and `grid`, typed. Written by docs/make_keywords.py from the settings classes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from counterpoint.algos.base import Entry
from counterpoint.envs.base import World
'''


def main() -> None:
    MODULE.write_text(module())


def module() -> str:
    """Returns the text of the module, formatted."""
    known = settings()
    parts = [HEAD, _class("TrainSettings", "Settings of a run, named as on the command line; all are optional.", known)]
    changes = {name: known[name] for name in train.CHANGEABLE if name != "num_episodes"}
    parts.append(_class("ResumeSettings", "Settings that may change when a run resumes.", changes))
    lists = {name: (_or_list(name, kind), text) for name, (kind, text) in known.items()}
    parts.append(_class("GridSettings", "Settings of a grid: a list spans it, with one run for each value.", lists))
    text = "\n\n".join(parts)
    ruff = Path(sys.executable).with_name("ruff")
    command = [ruff if ruff.exists() else "ruff", "format", "--config", str(ROOT / "pyproject.toml"), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def settings() -> dict[str, tuple[str, str]]:
    """Returns the type and the help of every setting, of all algorithms."""
    homes: list[type] = [configs.Config]
    for group in configs.GROUPS:
        kinds = [type(getattr(configs.Config(), group))]
        homes += list(dict.fromkeys(entry.settings for entry in entries().values())) if group == "learning" else kinds
    found: dict[str, tuple[str, str]] = {}
    for home in homes:
        hints, helps = get_type_hints(home), field_docs(home)
        for field in dataclasses.fields(home):
            if field.name in configs.GROUPS or field.name in NEVER_IN_PYTHON:
                continue
            kind, text = OWN_TYPES.get(field.name) or _name(hints[field.name]), helps.get(field.name, "")
            if field.name in found and kind not in found[field.name][0].split(" | "):
                kind = f"{found[field.name][0]} | {kind}"
            found[field.name] = (kind, found.get(field.name, ("", text))[1])
    return found


def _name(kind: Any) -> str:
    """Returns a type as it is written."""
    origin = get_origin(kind)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, get_args(kind)))}]"
    if origin in (Union, types.UnionType):
        return " | ".join(map(_name, get_args(kind)))
    if origin is tuple:
        return f"Sequence[{_name(get_args(kind)[0])}]"
    return "None" if kind is type(None) else kind.__name__


def _or_list(name: str, kind: str) -> str:
    """Returns the type of a setting that may be a list of values."""
    return kind if name in NOT_AXES else f"{kind} | Sequence[{kind}]"


def _class(name: str, about: str, fields: dict[str, tuple[str, str]]) -> str:
    lines = [f"class {name}(TypedDict, total=False):", f'    """{about}"""', ""]
    for field, (kind, text) in fields.items():
        lines.append(f"    {field}: {kind}")
        lines += textwrap.wrap(f'"""{text}"""', 120, initial_indent="    ", subsequent_indent="    ") if text else []
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
