"""Bounds that settings check for themselves, in `__post_init__`: one sentence with the flag, the bound and the value."""

import math
from typing import Any

from counterpoint.core.errors import UsageError


def flag(name: str) -> str:
    """Returns a setting's command-line option."""
    return "--" + name.replace("_", "-")


def at_least(settings: Any, bound: int | float, *names: str) -> None:
    """Refuses fields below a bound, and those that are not finite."""
    for name in names:
        if not bound <= getattr(settings, name) < math.inf:
            raise UsageError(f"{flag(name)} must be at least {bound:g}, not {getattr(settings, name):g}.")


def above(settings: Any, bound: int | float, *names: str) -> None:
    """Refuses fields that are not above a bound, and those that are not finite."""
    for name in names:
        if not bound < getattr(settings, name) < math.inf:
            raise UsageError(f"{flag(name)} must be above {bound:g}, not {getattr(settings, name):g}.")


def fraction(settings: Any, *names: str) -> None:
    """Refuses fields outside the interval from 0 to 1."""
    for name in names:
        if not 0 <= getattr(settings, name) <= 1:
            raise UsageError(f"{flag(name)} must be from 0 to 1, not {getattr(settings, name):g}.")
