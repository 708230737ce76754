"""`counterpoint train`."""

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from counterpoint.cli import grids
from counterpoint.cli.parsing import parse, whole
from counterpoint.cli.registry import command
from counterpoint.cli.training import run_job
from counterpoint.core.checks import flag
from counterpoint.core.errors import UsageError

if TYPE_CHECKING:
    from counterpoint.config import Config


@command("Training", parses_itself=True)
def train(words: list[str]) -> None:
    """Train a team of agents, or a grid of runs if options name several values: --algorithm maddpg,coma."""
    given = _given(words)
    if {"env", "scenario"} <= given:
        env, scenario = _value(words, "--env"), _value(words, "--scenario")
        raise UsageError(f"--env {env} and --scenario {scenario} exclude each other: choose one of them.")
    if axes := grids.axes_of(words):
        run_job(grids.job(words, axes, parse_settings, given))
        return
    config = parse_settings(words)
    evaluation, checkpoints = config.evaluation, config.checkpoints
    saved = checkpoints.load_dir or str(Path(checkpoints.save_dir) / config.name)
    if sum((evaluation.restore, evaluation.display, evaluation.benchmark)) > 1:
        raise UsageError("--restore, --display and --benchmark exclude each other: choose one of them.")
    if evaluation.restore:
        _restore(saved, config, given)
    elif evaluation.display:
        from counterpoint.cli.commands.play import play

        play(saved, seed=config.training.seed, display=True, trust=evaluation.trust)
    elif evaluation.benchmark:
        from counterpoint.cli.commands.benchmark import benchmark

        benchmark((saved,), evaluation.benchmark_iters, evaluation.benchmark_dir, trust=evaluation.trust)
    else:
        named = {"given": given} if config.world.env else {}  # an external environment may change the other settings
        run_job(lambda training, console: training.train(config, console, **named))


def parse_settings(words: list[str]) -> "Config":
    """Returns the settings that the words specify."""
    from counterpoint import config as configs
    from counterpoint import presets

    named: dict[str, Any] = {name: value for _, name, value in grids.options(words)}
    episodes = whole(named.pop("num_episodes", ""))
    start = presets.start(named | ({"num_episodes": int(episodes)} if re.fullmatch(r"\d{1,10}", episodes) else {}))

    def hint(name: str) -> str:
        others = configs.owners(name)
        return f"{flag(name)} is an option of {', '.join(others)}, not of {start.algorithm}" if others else ""

    parsed = parse(
        settings_class(start),
        words,
        "counterpoint train",
        hint,
        default=start,
        description="Train a team of agents. The options override the settings of --preset, if one is given.\n\n"
        "Several values with commas between them train a grid, and the same command again goes on with it:\n\n"
        "  --num-seeds 5 --algorithm maddpg,coma --scenario simple_spread,simple_tag",
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    return configs.Config(**vars(parsed))


def settings_class(start: Any) -> type:
    """Returns the settings as a class whose options of `learning` are those of the selected algorithm."""
    from counterpoint import config as configs

    # tyro would turn a union of all algorithms' options into subcommands.
    own = (("learning", type(start.learning), dataclasses.field(default=start.learning)),)
    return dataclasses.make_dataclass("Config", own, bases=(configs.Config,), frozen=True)


PLACES = (
    *("restore", "trust", "load_dir", "save_dir", "exp_name", "preset"),
    *("display", "benchmark", "benchmark_iters", "benchmark_dir"),
)
"""Options of `train --restore` that say which run it is, or that do not concern training."""


def _restore(saved: str, config: Any, given: set[str]) -> None:
    """Continues a run: applies the given options that may change, and refuses others unless the run has the same values."""
    from counterpoint import config as configs
    from counterpoint.runs import open_run
    from counterpoint.runs.trust import named_code
    from counterpoint.training import sources
    from counterpoint.training.train import CHANGEABLE

    run, new = open_run(saved), configs.flat(sources.absolute(config))
    code = named_code(run.config)
    again = bool(code) and all(name in given and new.get(name) == text for name, text in code.items())
    trust = config.evaluation.trust or again
    old = configs.flat(sources.settings_of(run, trust=trust))
    changes = {name: new[name] for name in given if name in CHANGEABLE}
    for name in sorted(given & new.keys() - {*changes, *PLACES}):
        if new[name] != old.get(name):
            raise UsageError(
                f"{flag(name)} {new[name]} cannot change in a run that goes on (it has {old.get(name)}): leave it out, or start"
                " a new run."
            )
    num_episodes = changes.pop("num_episodes", 0)
    changes |= {"trust": True} if trust else {}
    run_job(lambda training, console: training.resume(run, console, num_episodes, **changes))


def _given(words: list[str]) -> set[str]:
    """Returns the names of the options among the words."""
    return {word[2:].partition("=")[0].replace("-", "_") for word in words if word.startswith("--")}


def _value(words: list[str], name: str) -> str:
    """Returns the value of an option that must be known before the others are parsed."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == name:
            return following
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return ""
