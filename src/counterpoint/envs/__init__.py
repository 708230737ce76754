"""Every world by name."""

import dataclasses
import difflib
from typing import Any

from counterpoint.core.errors import UsageError
from counterpoint.core.types import Env
from counterpoint.envs.mpe.adversary import Adversary
from counterpoint.envs.mpe.crypto import Crypto
from counterpoint.envs.mpe.push import Push
from counterpoint.envs.mpe.reference import Reference
from counterpoint.envs.mpe.simple import Simple
from counterpoint.envs.mpe.speaker_listener import SpeakerListener
from counterpoint.envs.mpe.spread import Spread
from counterpoint.envs.mpe.tag import Tag
from counterpoint.envs.mpe.world_comm import WorldComm
from counterpoint.envs.switch import Switch2, Switch4
from counterpoint.envs.tennis import Tennis

WORLDS: dict[str, type] = {
    world.name: world
    for world in (Simple, Adversary, Crypto, Push, Reference, SpeakerListener, Spread, Tag, WorldComm, Switch2, Switch4, Tennis)
}


def make(name: str, **arguments: Any) -> Env:
    """The world of that name with these arguments."""
    if name not in WORLDS:
        raise UsageError(f"unknown scenario {name!r}{_nearest(name, list(WORLDS))}; known are {', '.join(WORLDS)}.")
    fields = [field.name for field in dataclasses.fields(WORLDS[name])]
    for argument in arguments:
        if argument not in fields:
            hint = _nearest(argument, fields)
            raise UsageError(f"{name} has no argument {argument!r}{hint}; it takes {', '.join(fields)}.")
    return WORLDS[name](**arguments)


def _nearest(word: str, known: list[str]) -> str:
    """A hint for a misspelt word, or nothing."""
    close = difflib.get_close_matches(word, known, 1)
    return f" (perhaps {close[0]}?)" if close else ""
