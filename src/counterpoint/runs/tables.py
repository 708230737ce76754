"""Tables as Markdown, HTML and CSV, and aligned on a terminal."""

import csv
import html
import math
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from counterpoint.core.errors import UsageError
from counterpoint.runs.files import write_whole

_NUMBER = re.compile(r"[-−+]?\d+(\.\d+)?%?|–")
"""A cell that is aligned to the right on a terminal."""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a Markdown table: floats with two decimals, numeric columns aligned right, a dash for missing values."""
    body = _checked(header, rows)
    numeric = [bool(body) and all(_is_number(row[i]) for row in body) for i in range(len(header))]
    rule = ["--:" if right else ":--" for right in numeric]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in (header, rule, *body))


def html_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns an HTML table with the same cells as the Markdown table."""
    body = _checked(header, rows)
    numeric = [bool(body) and all(_is_number(row[i]) for row in body) for i in range(len(header))]
    sides = [f' style="text-align: {"right" if right else "left"}"' for right in numeric]

    def line(tag: str, cells: Sequence[Any]) -> str:
        return "".join(f"<{tag}{side}>{html.escape(_text(cell))}</{tag}>" for side, cell in zip(sides, cells, strict=True))

    lines = "".join(f"<tr>{line('td', row)}</tr>" for row in body)
    return f"<table><thead><tr>{line('th', header)}</tr></thead><tbody>{lines}</tbody></table>"


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]], optional: Sequence[str] = ()) -> None:
    """Prints a table: aligned on a terminal, in Markdown otherwise.

    On a terminal that is too narrow, the `optional` columns are left out, first things first, and the last line says which.
    """
    body = _checked(header, rows)
    if not sys.stdout.isatty():
        print(markdown_table(header, body), end="")
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    cells = [[_text(value) for value in row] for row in body]
    widths = [max(map(cell_len, column)) for column in zip(header, *cells, strict=True)]
    shown = list(range(len(header)))
    for name in optional:
        if sum(widths[i] + 2 for i in shown) > console.width:
            shown.remove(header.index(name))
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    for i in shown:
        numeric = bool(cells) and all(_NUMBER.fullmatch(row[i]) for row in cells)
        justify = "right" if numeric else "left"
        least = max((cell_len(row[i]) for row in cells), default=0) if numeric else None  # a number is never cut off
        table.add_column(Text(header[i]), justify=justify, overflow="fold", min_width=least)
    for row in cells:
        table.add_row(*(Text(row[i]) for i in shown))
    console.print(table)
    if gone := [name for i, name in enumerate(header) if i not in shown]:
        console.print(Text(f"not shown for lack of room: {', '.join(gone)}", style="dim"))


def write_csv(path: str | Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes a table for spreadsheets, with numbers in full precision."""
    body = _checked(header, rows)

    def write(draft: Path) -> None:
        with draft.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *body])

    write_whole(Path(path), write)


def _checked(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    body = list(rows)
    for row in body:
        if len(row) != len(header):
            raise UsageError(f"each row of this table needs {len(header)} cells ({', '.join(header)}), not {len(row)}: {row}.")
    return body


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _text(value: Any) -> str:
    """Returns a value as text on one line, without control characters."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    text = f"{value:.2f}" if isinstance(value, float) else str(value)
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _cell(value: Any) -> str:
    return _text(value).replace("|", "\\|")
