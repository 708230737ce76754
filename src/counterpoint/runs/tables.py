"""Tables as Markdown and CSV."""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from counterpoint.core.errors import UsageError
from counterpoint.runs.files import write_whole


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a Markdown table: floats with two decimals, numeric columns aligned right, a dash for missing values."""
    body = _checked(header, rows)
    numeric = [bool(body) and all(_is_number(row[i]) for row in body) for i in range(len(header))]
    rule = ["--:" if right else ":--" for right in numeric]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in (header, rule, *body))


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


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    text = f"{value:.2f}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
