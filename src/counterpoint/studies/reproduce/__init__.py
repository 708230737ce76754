"""Published results, measured again: tables and figures that show the published numbers beside ours.

One published result is one module of this package that defines `RESULT`; `reproduce` finds it there. Its files are:
- wang2021.py: coded distributed learning (Wang, Xie and Atanasov 2021)
- lowe2017_communication.py, lowe2017_navigation.py, lowe2017_predator_prey.py, lowe2017_deception.py, lowe2017_covert.py:
  the tables of MADDPG against DDPG (Lowe et al. 2017)
- lowe2017_ensembles.py, lowe2017_inference.py: policy ensembles and inferred policies (Lowe et al. 2017)
- lowe2017_gradients.py: Proposition 1 (Lowe et al. 2017)
- authors.py: public runs of the authors' code, whose numbers are in authors.csv
- _lowe2017.py: what these share; _lowe2017_worlds.py: the worlds of the ensembles
"""

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from counterpoint.core.errors import UsageError
from counterpoint.runs import lock
from counterpoint.runs.files import expanded, make_folder
from counterpoint.runs.metrics import Cell, read_rows
from counterpoint.runs.tables import markdown_table


class PublishedResult(NamedTuple):
    """An entry for one published result."""

    name: str
    """Name on the command line."""
    title: str
    """One sentence that says what was measured and where it was published."""
    run: Callable[..., None]
    """Writes tables and figures to a folder, its first argument; measures only a small part if the second, `quick`, is set.

    A result that trains may have the parameters `episodes` and `seeds` as well; 0 stands for its own default."""


class Reproduction(NamedTuple):
    """What `reproduce` measured, and the files that it wrote."""

    rows: list[dict[str, Cell]]
    """The rows of table.csv by column; those of the list of results if none was named."""
    files: list[Path]


def published_results() -> dict[str, PublishedResult]:
    """Returns the entries of all modules in this package by name; modules whose name starts with an underscore are helpers."""
    names = [found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_")]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return {module.RESULT.name: module.RESULT for module in modules}


def reproduce(
    result: str = "", quick: bool = False, out: str | Path = "./reproduced", episodes: int = 0, seeds: int = 0
) -> Reproduction:
    """Measures a published result again, or prints all their names if the name is empty; writes to a folder in `out`.

    `quick` measures only a small part, to check that everything works. `episodes` and `seeds` are those of each run that is
    trained (0: as published). What `out` already contains is not measured again.
    """
    results = published_results()
    if not result:
        header, names = ["result", "title"], [[entry.name, entry.title] for entry in results.values()]
        print(markdown_table(header, names))
        return Reproduction([dict(zip(header, row, strict=True)) for row in names], [])
    if result not in results:
        close = difflib.get_close_matches(result, results, 1)
        hint = f"; perhaps {close[0]}?" if close else f"; choose one of {', '.join(results)}."
        raise UsageError(f"unknown result {result!r}{hint}")
    if episodes < 0:
        raise UsageError(f"--episodes must be at least 1, not {episodes}.")
    if seeds < 0 or seeds == 1:
        raise UsageError(f"--seeds must be at least 2, not {seeds}: an interval over seeds needs two.")
    options = {name: value for name, value in (("episodes", episodes), ("seeds", seeds)) if value}
    for name in options.keys() - inspect.signature(results[result].run).parameters.keys():
        raise UsageError(f"{result} has no number of {name} to choose: leave out --{name}.")
    folder = expanded(out) / (result + "-quick" * quick)
    make_folder(folder, "--out")
    with lock.hold(folder, print):  # two processes would measure, and write, the same things
        results[result].run(folder, quick, **options)
    return found_in(folder)


def found_in(folder: Path) -> Reproduction:
    """Returns the rows of a reproduction's table, if it has one, and its files, without those of the runs."""
    table = folder / "table.csv"
    return Reproduction(read_rows(table) if table.exists() else [], sorted(path for path in folder.iterdir() if path.is_file()))
