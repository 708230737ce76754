"""Tables on the console: aligned by Rich on a terminal, Markdown in a pipe."""

import sys
from collections.abc import Sequence

from counterpoint.runs.tables import markdown_table


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table of texts."""
    if not sys.stdout.isatty():
        print(markdown_table(header, rows))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for i, name in enumerate(header):
        numeric = all(row[i].replace(".", "").lstrip("-").isdigit() or row[i] == "–" for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    Console(highlight=False).print(table)
