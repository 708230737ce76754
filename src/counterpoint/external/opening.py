"""Opens what `--env` names: a compiled world, an environment of JaxMARL or gymnax, or one that Python steps."""

import dataclasses
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from typing import Any

from counterpoint.core.errors import UsageError
from counterpoint.core.loading import first_line, is_address, load_object
from counterpoint.core.types import Environment
from counterpoint.envs.own import as_world, makes_world
from counterpoint.envs.registry import construct
from counterpoint.external import environment
from counterpoint.external.adapters import teams_of

ADAPTERS = {"jaxmarl": "counterpoint.envs.jaxmarl", "gymnax": "counterpoint.envs.gymnax"}
"""Prefixes of --env, and the modules whose `make` opens what follows the colon."""


def open_environment(address: str, arguments: Mapping[str, Any], teams: Sequence[str], max_steps: int) -> Environment:
    """Returns the environment at an address; only one that Python steps is started for it."""
    prefix, _, name = address.partition(":")
    if prefix in ADAPTERS:
        return _limited(import_module(ADAPTERS[prefix]).make(name, **arguments), teams, max_steps)
    if not is_address(address):  # a Gymnasium id
        return environment.open_environment(address, arguments, teams, max_steps)
    thing = load_object(address, "--env")
    if not makes_world(thing):
        return environment.open_environment(address, arguments, teams, max_steps)
    return _limited(_made(thing, address, dict(arguments)), teams, max_steps)


def _made(thing: Any, address: str, arguments: dict[str, Any]) -> Any:
    """Returns the compiled world that a class, a factory or an object gives with these arguments."""
    name = address.rpartition(":")[2]
    try:
        if isinstance(thing, type):
            return construct(thing, name, arguments)
        if isinstance(thing, partial) or not dataclasses.is_dataclass(thing):
            return thing(**arguments)
        return construct(type(thing), name, {**_fields(thing), **arguments})
    except UsageError:
        raise
    except Exception as error:
        given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise UsageError(
            f"--env {address}: making it with ({given}) failed ({type(error).__name__}: {first_line(error)})."
        ) from error


def _fields(world: Any) -> dict[str, Any]:
    return {field.name: getattr(world, field.name) for field in dataclasses.fields(world) if field.init}


def _limited(made: Any, rules: Sequence[str], max_steps: int) -> Any:
    """Returns a compiled world with the teams and the time limit that the user gives."""
    world = as_world(made, max_steps=max_steps)
    if not rules:
        return world
    agents, own = world.spec.agents, world.spec.teams
    given = teams_of(agents, rules)
    patterns = [rule.partition("=")[0] for rule in rules]
    chosen = [any(fnmatchcase(agent, pattern) for pattern in patterns) for agent in agents]
    teams = tuple(new if ours else old for new, old, ours in zip(given, own, chosen, strict=True))
    return as_world(made, teams, max_steps)
