"""Files that a run's settings refer to: recorded by their absolute place, and looked for before they are used."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from counterpoint import config as configs
from counterpoint.config import Config
from counterpoint.core.errors import UsageError
from counterpoint.runs import Run
from counterpoint.training.opponents import absolute as absolute_opponents

ADDRESSES = ("env", "algorithm", "good_policy", "adv_policy")
"""Settings that may name a file as path/to/file.py:name."""


def absolute(config: Config) -> Config:
    """Returns the settings with every file by its absolute place, so that a run resumes from any folder."""
    found = {name: _absolute(value) for name, value in _addresses(config).items()}
    changed: dict[str, Any] = {name: value for name, value in found.items() if value != _addresses(config)[name]}
    return configs.override(config, freeze=absolute_opponents(config.opponents.freeze), **changed)


def keep(run: Run, config: Config) -> None:
    """Copies the text of the file of --env into the run's folder. Nothing ever executes the copy."""
    if file := _file(config.world.env):
        run.keep_source(file)


def settings_of(run: Run, env: str = "", trust: bool = False, given: Collection[str] = ()) -> Config:
    """Returns the settings of a run; refuses one that names code unless the user passes it again, trusts it or made the run."""
    run.require_trust({*given, "env"} if env else given, trust)  # before the settings, which load an algorithm of one's own
    return configs.from_dict(run.config)


def located(config: Config, run: Run, env: str = "") -> Config:
    """Returns the settings with the environment at another address, if one is given; refuses a file that is missing."""
    if env and not config.world.env:
        raise UsageError(f"--env {env} is for runs of an environment of your own, and {run.path} has {config.world.scenario}.")
    if env:
        return configs.override(config, env=_absolute(env))
    file = _file(config.world.env)
    if file and not file.exists():
        copy = run.path / "env" / file.name
        name = config.world.env.rpartition(":")[2]
        hint = f"; a copy of its text is {copy}" if copy.exists() else ""
        raise UsageError(f"{run.path} was trained in {file}, which does not exist here: pass --env FILE.py:{name}{hint}.")
    return config


def _addresses(config: Config) -> dict[str, str]:
    return {name: config.world.env if name == "env" else getattr(config, name) for name in ADDRESSES}


def _absolute(address: str) -> str:
    place, colon, name = address.rpartition(":")
    return f"{os.path.abspath(os.path.expanduser(place))}{colon}{name}" if place.endswith(".py") else address


def _file(address: str) -> Path | None:
    place = address.rpartition(":")[0]
    return Path(place).expanduser() if place.endswith(".py") else None
