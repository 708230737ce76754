"""`counterpoint train`."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from counterpoint.cli import grids
from counterpoint.cli.parsing import parse
from counterpoint.cli.registry import command
from counterpoint.cli.training import run_job
from counterpoint.core.errors import UsageError

if TYPE_CHECKING:
    from counterpoint.config import Config


@command("Training", parses_itself=True)
def train(words: list[str]) -> None:
    """Train a team of agents, or a grid of runs if options name several values: --algorithm maddpg,coma."""
    if axes := grids.axes_of(words):
        run_job(grids.job(words, axes, parse_settings))
        return
    config = parse_settings(words)
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


def parse_settings(words: list[str]) -> "Config":
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


def _value(words: list[str], name: str) -> str:
    """Returns the value of an option that must be known before the others are parsed."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == name:
            return following
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return ""
