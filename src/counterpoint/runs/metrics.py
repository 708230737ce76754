"""The metrics table `metrics.csv`: appended row by row, readable even if a kill tore its last line.

Beside it, `metrics.sums` holds one record per line, offset and checksum in hexadecimal and of fixed width, written after the
line. A line that differs from its record, or that begins where no record says so, is damaged and left out, with a warning.
Lines after the last record are accepted: a kill may come between a line and its record. `learners.csv` is kept in the same way.
"""

import csv
import importlib.util
import io
import os
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoint.core.errors import Damage, UsageError
from counterpoint.runs import files

BLOCK = 1 << 14
"""Bytes to read from a file's end at first."""
RECORD = 22
"""Bytes of one record of the sums."""
ENTRY = re.compile(rb"([0-9a-f]{12}) ([0-9a-f]{8})\n")
"""One record of the sums; a damaged one is passed over."""
Cell = int | float | str | None
"""One value of the metrics table; None where a row left it out."""


def append_row(path: Path, row: Mapping[str, int | float | str | np.generic]) -> None:
    """Appends a row at once. It may leave columns out, and a new column is empty in the rows before."""
    row = {_on_one_line(name): value for name, value in row.items()}
    old = header_of(path)
    columns = list(dict.fromkeys([*old, *row]))
    if old and columns != old:
        _widen(path, columns)
    append(path, columns, [[row.get(column, "") for column in columns]])


def _widen(path: Path, columns: Sequence[str]) -> None:
    """Gives a table more columns, which are empty in its rows; damaged rows are left out, with a warning."""
    header, rows, problem = check(path)
    if problem:
        warnings.warn(Damage(problem), stacklevel=3)
    empty = b"," * (len(columns) - len(_cells(header)))
    _replace(path, [line(columns), *(text[:-1] + empty + b"\n" for text in rows)])


def append(path: Path, columns: Sequence[object], rows: Sequence[Sequence[object]]) -> None:
    """Appends rows, after the columns if the file is new, and their checksums."""
    with files.explained(path), open(path, "a+b") as file:
        end = _end_of_lines(file)
        file.truncate(end)  # drop a last line that a kill tore, so that the new row starts on its own line
        texts = [*([] if end else [line(columns)]), *map(line, rows)]
        file.write(b"".join(texts))
    if end and not sums_path(path).exists():
        return  # an older run without sums: resuming it writes them
    with files.explained(path), open(sums_path(path), "ab" if end else "wb") as file:
        file.truncate(file.tell() // RECORD * RECORD)
        file.write(_records(texts, end))


def sums_path(path: Path) -> Path:
    return path.with_suffix(".sums")


class Line(NamedTuple):
    """A complete line of a table."""

    offset: int
    text: bytes


class Checked(NamedTuple):
    """The lines of a table that are as they were written, the first one apart, and what is wrong with the others."""

    header: bytes
    rows: list[bytes]
    problem: str


def check(path: Path) -> Checked:
    """Returns the intact lines of a table; raises UsageError if the names of its columns are damaged."""
    return _checked(path, _read(path))


def _checked(path: Path, data: bytes) -> Checked:
    first, *lines = [*_lines(data, 0)] or [Line(0, b"")]
    sums = _sums(path)
    _refuse_damaged_header(path, first.text, sums)
    good, problem = _intact(path, lines, sums, first.text)
    return Checked(first.text, [text for _, text in good], problem)


def _refuse_damaged_header(path: Path, header: bytes, sums: Mapping[int, int]) -> None:
    if sums.get(0, zlib.crc32(header)) != zlib.crc32(header):
        raise UsageError(f"{path} is damaged in its first line, the names of the columns: restore it, or remove it and resume.")


def read_cells(path: Path) -> tuple[list[str], list[list[str]]]:
    """Returns the columns and the intact rows as text; warns of damage."""
    header, rows, problem = check(path)
    if problem:
        warnings.warn(Damage(problem), stacklevel=2)
    columns = _cells(header)
    return columns, [row for row in map(_cells, rows) if len(row) == len(columns)]


def read_rows(path: Path) -> list[dict[str, Cell]]:
    """Returns the rows with numbers as numbers, without lines that are torn or damaged; warns of damage."""
    columns, rows = read_cells(path)
    return [dict(zip(columns, map(_number, row), strict=True)) for row in rows]


def columns_of(path: Path) -> Any:
    """Returns the rows as a pandas DataFrame, or without pandas as a dictionary of arrays: table["episode"] works with both."""
    names, cells = read_cells(path)
    rows = [dict(zip(names, map(_number, row), strict=True)) for row in cells]
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
    """Returns the last `count` rows, or fewer if there are fewer, without reading the whole file; warns of damage."""
    try:
        with open(path, "rb") as file:
            header, size = file.readline(), file.seek(0, os.SEEK_END)
            columns, block = _cells(header), BLOCK
            while True:
                start = max(len(header), size - block)
                file.seek(start)
                lines = [*_lines(file.read(size - start), start)]
                lines = lines if start == len(header) else lines[1:]  # the block may begin within a line
                sums = _sums(path, most=2 * len(lines) + 64)  # of these lines, and some more if damage joined lines
                _refuse_damaged_header(path, header, sums)
                good, problem = _intact(path, lines, sums, header)
                rows = [row for row in (_cells(text) for _, text in good[-2 * count :]) if len(row) == len(columns)][-count:]
                if len(rows) == count or start == len(header):
                    if problem:
                        warnings.warn(Damage(problem), stacklevel=2)
                    return [dict(zip(columns, map(_number, row), strict=True)) for row in rows]
                block *= 4
    except FileNotFoundError:
        return []


class Growing:
    """The rows of a table that another process appends to: each line is parsed once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget()

    def _forget(self) -> None:
        self._file: tuple[int, int] | None = None
        self._size, self._time, self._end = 0, 0, 0
        self._columns: list[str] = []
        self._rows: list[dict[str, Cell]] = []

    def rows(self) -> list[dict[str, Cell]]:
        """Returns the rows so far, without those that are torn or damaged; a table that was replaced is read anew.

        Warns of damage when it reads the table as a whole. The caller must not change the list.
        """
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                same = self._columns and self._file == (found.st_dev, found.st_ino)
                if same and (found.st_size, found.st_mtime_ns) == (self._size, self._time):
                    return self._rows
                if not same or found.st_size <= self._size:
                    self._forget()
                file.seek(self._end)
                data = file.read()
        except FileNotFoundError:
            self._forget()
            return []
        self._file, self._size, self._time = (found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns
        if self._columns:
            lines = [text for _, text in _lines(data, self._end)]
        else:
            header, lines, problem = _checked(self._path, data)
            self._columns = _cells(header)
            if problem:
                warnings.warn(Damage(problem), stacklevel=2)
        self._end += data.rfind(b"\n") + 1
        cells = (row for row in map(_cells, lines) if len(row) == len(self._columns))
        self._rows = [*self._rows, *(dict(zip(self._columns, map(_number, row), strict=True)) for row in cells)]
        return self._rows


def truncate(path: Path, step: int) -> str:
    """Drops the rows beyond `step` and the damaged ones; returns a sentence about those, if there are any.

    A table whose columns are damaged, or that has no steps, is moved aside.
    """
    if not path.exists():
        return ""
    try:
        header, lines, problem = check(path)
        at = _cells(header).index("step") if header else 0
    except (UsageError, ValueError):
        aside = path.with_name(f"{path.stem}.damaged{path.suffix}")
        with files.explained(aside):
            os.replace(path, aside)
            sums_path(path).unlink(missing_ok=True)
        return f"{path} is damaged in the names of its columns: it is now {aside.name}, and a new table begins."
    steps = [_number("".join(_cells(text)[at : at + 1])) for text in lines]
    kept = [text for text, here in zip(lines, steps, strict=True) if isinstance(here, int | float) and here <= step]
    _replace(path, [header, *kept] if header else [])
    return problem


def _replace(path: Path, texts: Sequence[bytes]) -> None:
    """Replaces a table and its sums; a kill in between leaves a table without sums, which is accepted as it is."""
    with files.explained(path):
        sums_path(path).unlink(missing_ok=True)
    files.write_durably(path, b"".join(texts))
    files.write_durably(sums_path(path), _records(texts, 0))


def line(cells: Sequence[object]) -> bytes:
    """Returns one line of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(map(_on_one_line, cells))
    return text.getvalue().encode(errors="replace")


def _on_one_line(cell: object) -> str:
    return str(cell).replace("\n", " ").replace("\r", " ")


def _intact(path: Path, lines: Sequence[Line], sums: Mapping[int, int], header: bytes) -> tuple[list[Line], str]:
    """Returns the lines that are as they were written, and a sentence about the others and those that are gone."""
    if not sums:
        return list(lines), ""
    low, high = min((key for key in sums if key), default=0), max(sums)
    begin = lines[0].offset if lines else len(header)
    good = [each for each in lines if not low <= each[0] <= high or sums.get(each[0]) == zlib.crc32(each[1])]
    lost = sum(offset >= begin for offset in sums.keys() - {offset for offset, _ in lines} if offset)
    damaged = len(lines) - len(good)
    if not damaged and not lost:
        return good, ""
    total = len(lines) + lost
    what = f"{max(damaged, lost)} of {total} rows of {path} are damaged or missing and left out"
    return good, f"{what}: the other rows, the checkpoints and the policies of the run can be used."


def _sums(path: Path, most: int = 0) -> dict[int, int]:
    """Returns the checksum of each line by its offset, or of the first and the last `most`; nothing for an older run."""
    try:
        with sums_path(path).open("rb") as file:
            data, size = file.read(RECORD), file.seek(0, os.SEEK_END) // RECORD * RECORD
            file.seek(max(RECORD, size - most * RECORD) if most else RECORD)
            data += file.read(max(0, size - file.tell()))
    except OSError:
        return {}
    return {int(offset, 16): int(checksum, 16) for offset, checksum in ENTRY.findall(data)}


def _records(texts: Sequence[bytes], offset: int) -> bytes:
    records = []
    for text in texts:
        records.append(b"%012x %08x\n" % (offset, zlib.crc32(text)))
        offset += len(text)
    return b"".join(records)


def header_of(path: Path) -> list[str]:
    """Returns the columns of a table; none if there is no table yet, or a kill tore its first line."""
    try:
        with path.open("rb") as file:
            first = file.readline()
    except FileNotFoundError:
        return []
    return _cells(first) if first.endswith(b"\n") else []


def _end_of_lines(file: io.BufferedRandom) -> int:
    """Returns the position after the last line of a file that is complete."""
    size = file.seek(0, os.SEEK_END)
    block = BLOCK
    while True:
        start = max(0, size - block)
        file.seek(start)
        at = file.read(size - start).rfind(b"\n")
        if at >= 0 or start == 0:
            return start + at + 1
        block *= 4


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _lines(data: bytes, offset: int) -> Iterator[Line]:
    """Yields the complete lines of a file from some offset on."""
    start = 0
    while (end := data.find(b"\n", start) + 1) > 0:
        yield Line(offset + start, data[start:end])
        start = end


def _cells(text: bytes) -> list[str]:
    try:
        return next(csv.reader([text.decode(errors="replace")]), [])
    except csv.Error:  # a field that is longer than any of ours
        return []


def _number(cell: str) -> Cell:
    """Returns a number as a number; a whole one that NumPy cannot hold is a float, which may be infinite."""
    for kind in (int, float):
        try:  # not `suppress`, which takes longer than the number
            number = kind(cell)
        except ValueError:
            continue
        return number if kind is float or -(2**63) < number < 2**63 else float(cell)
    return cell or None
