"""Tables as text, and files that are never half written."""

import contextlib
import csv
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from counterpoint.core.errors import UsageError


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table: floats with two decimals, columns of numbers to the right, a dash for what is missing."""
    body = _checked(header, rows)
    numeric = [bool(body) and all(_is_number(row[i]) for row in body) for i in range(len(header))]
    rule = ["--:" if right else ":--" for right in numeric]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in (header, rule, *body))


def write_csv(path: str | Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table for spreadsheets, numbers in full."""
    body = _checked(header, rows)

    def write(draft: Path) -> None:
        with draft.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *body])

    write_whole(Path(path), write)


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a draft beside the path and put it in place: a reader finds the old file or all of the new one."""
    draft = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        write(draft)
        os.replace(draft, path)
    except OSError as error:
        raise UsageError(
            f"cannot write {path} ({error.strerror or error}): choose a folder that exists and is yours."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _checked(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    body = list(rows)
    for row in body:
        if len(row) != len(header):
            raise UsageError(f"a row of this table needs {len(header)} cells ({', '.join(header)}), not {len(row)}: {row}.")
    return body


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    text = f"{value:.2f}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
