"""Schemes: they decide which learner computes which agents, and when the results suffice.

A scheme is written `name` or `name:number`, and `+fastest_first` may follow:
- a code of `codes.py`, such as `mds` or `cyclic:2`: each learner returns one sum after computing all its agents
- `stream:r`: each learner works through a queue of r agents and returns each update at once
- `backup`: an idle learner copies the unfinished agent that was assigned longest ago
- `hedge:t`: like `backup`, but a copy starts only after the latest one has run for t times the duration of an update
- `fastest_first`: uncoded, with the fastest learners first; as a suffix, it orders the learners of any scheme
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from counterpoint.coded.codes import CODES, Code, make_code
from counterpoint.core.checks import shown
from counterpoint.core.errors import UsageError

SCHEMES = (
    "uncoded",
    "replication",
    "mds",
    "random_sparse",
    "ldpc",
    "cyclic:2",
    "stream:3",
    "backup",
    "hedge:1.5",
    "fastest_first",
)
"""Schemes that `predict` compares by default."""

COPIES = 3
"""Default number of agents in a learner's queue under `stream`."""
HEDGE = 1.5
"""Default delay before `hedge` starts a copy, in agent updates."""

_UNCODED = ("uncoded", "replication", "stream", "backup", "hedge")
_NUMBERED = ("stream", "hedge", "cyclic")


class Scheme(NamedTuple):
    """A parsed scheme."""

    name: str
    number: float | None
    """Losses, copies or updates, depending on the scheme; None selects the default."""
    fastest_first: bool

    def __str__(self) -> str:
        number = "" if self.number is None else f":{self.number:g}"
        return f"{self.name}{number}{'+fastest_first' if self.fastest_first else ''}"

    @property
    def copies(self) -> int:
        """Returns the number of agents in a learner's queue under `stream`."""
        return int(self.number or COPIES)

    @property
    def hedge(self) -> float:
        """Returns the delay before `hedge` starts a copy, in agent updates."""
        return HEDGE if self.number is None else self.number

    @property
    def is_linear(self) -> bool:
        """Returns whether results are sums that must be decoded."""
        return self.name not in _UNCODED


def parse_scheme(text: str) -> Scheme:
    """Parses a scheme; dashes and underscores are interchangeable."""
    base, _, suffix = text.replace("-", "_").partition("+")
    if base == "fastest_first" and not suffix:
        base, suffix = "uncoded", "fastest_first"
    if suffix not in ("", "fastest_first"):
        raise UsageError(
            f"unknown suffix {shown(repr(suffix))} in scheme {shown(repr(text))}; the only suffix is +fastest_first."
        )
    name, colon, digits = base.partition(":")
    known = {*CODES, *_NUMBERED, "backup"}
    if name not in known:
        raise UsageError(f"unknown scheme {shown(repr(text))}; choose one of {', '.join(sorted(known))} and fastest_first.")
    if not colon:
        return Scheme(name, None, bool(suffix))
    try:
        number = float(digits)
    except ValueError:
        number = -1.0
    whole = name != "hedge"
    sound = (name == "stream") <= number <= 1e6 and (not whole or number == int(number))
    if name not in _NUMBERED or not sound:
        raise UsageError(f"cannot parse scheme {shown(repr(text))}; only cyclic:2, stream:3 and hedge:1.5 take a number.")
    return Scheme(name, number, bool(suffix))


def code_of(scheme: Scheme, num_agents: int, num_learners: int, vet: bool = True) -> Code:
    """Returns the code that a scheme names."""
    tolerance = None if scheme.number is None else int(scheme.number)
    return make_code(scheme.name, num_agents, num_learners, tolerance=tolerance, vet=vet)


def possible_schemes(num_agents: int, num_learners: int, schemes: Sequence[str] = SCHEMES) -> tuple[str, ...]:
    """Returns the schemes that this many learners can run: a code needs one learner per agent, `cyclic:s` s more."""
    spare = num_learners - num_agents

    def possible(scheme: str) -> bool:
        name, _, number = scheme.partition("+")[0].partition(":")
        if name in ("stream", "backup", "hedge"):
            return True
        needed = int(number) if name == "cyclic" and number.isdecimal() else 0
        return spare >= needed or name not in (*CODES, "fastest_first")

    return tuple(filter(possible, schemes))


def queue_length(num_agents: int, num_learners: int, copies: int) -> int:
    """Returns the length of each learner's queue: `copies`, or more if some agent would be left out."""
    return min(num_agents, max(copies, math.ceil(num_agents / num_learners)))


def queues(num_agents: int, num_learners: int, length: int) -> np.ndarray:
    """Returns each learner's agents in order of work [J, length]: round robin, without repeating an agent."""
    offsets: list[int] = [0]
    while len(offsets) < length:
        following = (offsets[-1] + num_learners) % num_agents
        while following in offsets:
            following = (following + 1) % num_agents
        offsets.append(following)
    return (np.arange(num_learners)[:, None] + np.array(offsets)) % num_agents
