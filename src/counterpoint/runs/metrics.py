"""The metrics table `metrics.csv`: appended row by row, readable even if a kill tore its last line."""

import csv
import importlib.util
import io
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.runs import files

BLOCK = 1 << 14
"""Bytes to read from a file's end at first."""
Cell = int | float | str | None
"""One value of the metrics table; None where a row left it out."""


def append_row(path: Path, row: Mapping[str, int | float | str | np.generic]) -> None:
    """Appends a row at once. The first row fixes the columns; a later row may leave some out."""
    with files.explained(path), open(path, "a+b") as file:
        file.seek(0)
        lines = _complete_lines(file.read())
        file.truncate(sum(map(len, lines)))  # drop a last line that a kill tore, so that the new row starts on its own line
        columns = _cells(lines[0]) if lines else list(row)
        if unknown := row.keys() - set(columns):
            raise ValueError(f"metrics.csv has the columns {columns}, not {sorted(unknown)}")
        file.write((b"" if lines else line(columns)) + line([row.get(column, "") for column in columns]))


def read_rows(path: Path) -> list[dict[str, Cell]]:
    """Returns the rows with numbers as numbers, without lines that are torn or mangled."""
    columns, *rows = map(_cells, _read_lines(path) or [b""])
    return [dict(zip(columns, map(_number, row), strict=True)) for row in rows if len(row) == len(columns)]


def columns_of(path: Path) -> Any:
    """Returns the rows as a pandas DataFrame, or without pandas as a dictionary of arrays: table["episode"] works with both."""
    names, rows = next(map(_cells, _read_lines(path)), []), read_rows(path)
    if importlib.util.find_spec("pandas") is not None:
        import pandas  # pyright: ignore[reportMissingImports] — an extra

        return pandas.DataFrame(rows, columns=names)
    return {name: _array([row[name] for row in rows]) for name in names}


def _array(cells: list[Cell]) -> np.ndarray:
    """Returns a column as an array, with NaN where a cell is missing among numbers."""
    if all(isinstance(cell, int) for cell in cells):
        return np.array(cells, int)
    if any(isinstance(cell, str) for cell in cells):
        return np.array(cells, object)
    return np.array([np.nan if cell is None else cell for cell in cells], float)


def last_rows(path: Path, count: int) -> list[dict[str, Cell]]:
    """Returns the last `count` rows, or fewer if there are fewer, without reading the whole file."""
    try:
        with open(path, "rb") as file:
            header, size = file.readline(), file.seek(0, os.SEEK_END)
            block = BLOCK
            while True:
                start = max(len(header), size - block)
                file.seek(start)
                lines = _complete_lines(file.read(size - start))
                lines = lines if start == len(header) else lines[1:]  # the block may begin within a line
                columns = _cells(header)
                rows = [row for row in map(_cells, lines[-2 * count :]) if len(row) == len(columns)][-count:]
                if len(rows) == count or start == len(header):
                    return [dict(zip(columns, map(_number, row), strict=True)) for row in rows]
                block *= 4
    except FileNotFoundError:
        return []


def truncate(path: Path, step: int) -> None:
    """Drops the rows beyond `step`."""
    header, *lines = _read_lines(path) or [b""]
    if lines:
        at = _cells(header).index("step")
        cells = [[*_cells(text), ""] for text in lines]
        steps = [_number(row[min(at, len(row) - 1)]) for row in cells]
        kept = [text for text, here in zip(lines, steps, strict=True) if isinstance(here, int | float) and here <= step]
        files.write_durably(path, b"".join([header, *kept]))


def line(cells: Sequence[object]) -> bytes:
    """Returns one line of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([str(cell).replace("\n", " ") for cell in cells])
    return text.getvalue().encode()


def _read_lines(path: Path) -> list[bytes]:
    return _complete_lines(path.read_bytes()) if path.exists() else []


def _complete_lines(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n", data)


def _cells(text: bytes) -> list[str]:
    return next(csv.reader([text.decode(errors="replace")]), [])


def _number(cell: str) -> Cell:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(cell)
    return cell or None
