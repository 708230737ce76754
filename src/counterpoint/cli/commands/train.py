"""`counterpoint train`."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from counterpoint.cli.parsing import parse
from counterpoint.cli.registry import command
from counterpoint.cli.training import run_job
from counterpoint.core.errors import UsageError

if TYPE_CHECKING:
    from counterpoint.config import Config


@command("Training", parses_itself=True)
def train(words: list[str]) -> None:
    """Train a team of agents, or a grid of runs if options name several values: --algorithm maddpg,coma."""
    if axes := _axes(words):
        _train_grid(words, axes)
        return
    config = _parsed(words)
    evaluation, checkpoints = config.evaluation, config.checkpoints
    saved = checkpoints.load_dir or str(Path(checkpoints.save_dir) / config.name)
    if sum((evaluation.restore, evaluation.display, evaluation.benchmark)) > 1:
        raise UsageError("--restore, --display and --benchmark exclude each other: choose one of them.")
    if evaluation.restore:
        from counterpoint.cli.commands.resume import resume

        resume(saved)
    elif evaluation.display:
        from counterpoint.cli.commands.play import play

        play(saved, seed=config.training.seed)
    elif evaluation.benchmark:
        from counterpoint.cli.commands.benchmark import benchmark

        benchmark((saved,), evaluation.benchmark_iters, evaluation.benchmark_dir)
    else:
        run_job(lambda training, console: training.train(config, console))


def _parsed(words: list[str]) -> "Config":
    """Returns the settings that the words specify."""
    from counterpoint import config as configs
    from counterpoint import presets

    start = presets.start(*(_value(words, f"--{name}") for name in ("preset", "algorithm", "scenario")))
    # The options of `learning` are those of the selected algorithm only: tyro would turn a union into subcommands.
    own = (("learning", type(start.learning), dataclasses.field(default=start.learning)),)
    parsed = parse(
        dataclasses.make_dataclass("Config", own, bases=(configs.Config,), frozen=True),
        words,
        "counterpoint train",
        default=start,
        description="Train a team of agents. The options override the settings of --preset, if one is given.\n\n"
        "Several values with commas between them train a grid, and the same command again goes on with it:\n\n"
        "  --num-seeds 5 --algorithm maddpg,coma --scenario simple_spread,simple_tag",
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    return configs.Config(**vars(parsed))


def _train_grid(words: list[str], axes: dict[str, list[str]]) -> None:
    """Trains every combination of the values with commas, and prints their comparison."""
    from counterpoint.cli.commands.compare import show
    from counterpoint.studies import grid as study

    def make(values: Mapping[str, str]) -> "Config":
        config = _parsed(_with_values(words, values))
        evaluation = config.evaluation
        if evaluation.display or evaluation.benchmark or config.checkpoints.load_dir:
            raise UsageError("--display, --benchmark and --load-dir take one run, not a grid: name one value per option.")
        # A grid always goes on where it stopped.
        return dataclasses.replace(config, evaluation=dataclasses.replace(evaluation, restore=False))

    cells = study.cells_of(axes, make)

    def job(training: Any, console: Any) -> None:
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

    run_job(job)


def _axes(words: list[str]) -> dict[str, list[str]]:
    """Returns the options that name several values, with commas between them."""
    if not any("," in word for word in words):
        return {}
    from counterpoint.studies.grid import NOT_AXES

    named = {name: value for _, name, value in _options(words)}
    return {
        name: [part.strip() for part in value.split(",")]
        for name, value in named.items()
        if "," in value and name not in NOT_AXES
    }


def _with_values(words: list[str], values: Mapping[str, str]) -> list[str]:
    """Returns the words with other values of some options."""
    changed = list(words)
    for at, name, _ in _options(words):
        if name in values and "=" in words[at]:
            changed[at] = f"{words[at].partition('=')[0]}={values[name]}"
        elif name in values:
            changed[at + 1] = values[name]
    return changed


def _options(words: list[str]) -> Iterator[tuple[int, str, str]]:
    """Yields the position, the name and the value of each option."""
    for at, (word, following) in enumerate(zip(words, [*words[1:], ""], strict=True)):
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            yield at, name.replace("-", "_"), value if sign else following


def _value(words: list[str], name: str) -> str:
    """Returns the value of an option that must be known before the others are parsed."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == name:
            return following
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return ""
