"""Options of `train` that name several values: they span a grid of runs."""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from counterpoint.core.errors import UsageError

if TYPE_CHECKING:
    from counterpoint.config import Config


def job(
    words: list[str], axes: dict[str, list[str]], parse_settings: Callable[[list[str]], "Config"], given: set[str]
) -> Callable[[Any, Any], None]:
    """Returns the job that trains every combination of the values with commas and prints their comparison."""
    from counterpoint.cli.commands.compare import show
    from counterpoint.studies import grid as study

    def make(values: Mapping[str, str]) -> "Config":
        config = parse_settings(with_values(words, values))
        evaluation = config.evaluation
        if evaluation.display or evaluation.benchmark or config.checkpoints.load_dir:
            raise UsageError("--display, --benchmark and --load-dir take one run, not a grid: name one value per option.")
        # A grid always goes on where it stopped.
        return dataclasses.replace(config, evaluation=dataclasses.replace(evaluation, restore=False))

    cells = study.cells_of(axes, make, given)

    def run(training: Any, console: Any) -> None:
        try:
            trained = study.train_cells(cells, axes, console)
        except training.Interrupted:
            print("stopped and saved; go on with the same command")
            sys.exit(130)
        if trained.comparison:
            print()
            show(trained.comparison)
        print(f"{len(trained.runs)} of {len(cells)} cells are finished → {trained.path}")
        if trained.failed:
            print(f"counterpoint: not compared, because they diverged: {', '.join(trained.failed)}", file=sys.stderr)
            sys.exit(3)

    return run


def axes_of(words: list[str]) -> dict[str, list[str]]:
    """Returns the options that name several values, with commas between them."""
    if not any("," in word for word in words):
        return {}
    from counterpoint.studies.grid import NOT_AXES

    named = {name: value for _, name, value in options(words)}
    return {
        name: [part.strip() for part in value.split(",")]
        for name, value in named.items()
        if "," in value and name not in NOT_AXES
    }


def with_values(words: list[str], values: Mapping[str, str]) -> list[str]:
    """Returns the words with other values of some options."""
    changed = list(words)
    for at, name, _ in options(words):
        if name in values and "=" in words[at]:
            changed[at] = f"{words[at].partition('=')[0]}={values[name]}"
        elif name in values:
            changed[at + 1] = values[name]
    return changed


def options(words: list[str]) -> Iterator[tuple[int, str, str]]:
    """Yields the position, the name and the value of each option."""
    for at, (word, following) in enumerate(zip(words, [*words[1:], ""], strict=False)):
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            yield at, name.replace("-", "_"), value if sign else following
