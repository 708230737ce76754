"""Bounds that settings check for themselves, in `__post_init__`: one sentence with the flag, the bound and the value."""

from typing import Any

from counterpoint.core.errors import UsageError


def flag(name: str) -> str:
    """Returns a setting's command-line option."""
    return "--" + name.replace("_", "-")


def shown(value: Any, longest: int = 80) -> str:
    """Returns a value from outside for a message: on one line, control characters escaped, cut to a bearable length."""
    text = value if isinstance(value, str) else repr(value)
    plain = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


LARGEST = 2**31 - 1
"""The largest whole number that a setting may have: counters of compiled programs are 32-bit integers."""
GREATEST = 1e9
"""The largest other number: its square still fits into the 32-bit floats of compiled programs."""


def at_least(settings: Any, bound: int | float, *names: str) -> None:
    """Refuses fields below a bound, and those that no compiled program can hold."""
    for name in names:
        value = _number(name, getattr(settings, name))
        if not bound <= value:
            raise UsageError(f"{flag(name)} must be at least {bound:g}, not {value:g}.")


def above(settings: Any, bound: int | float, *names: str) -> None:
    """Refuses fields that are not above a bound, and those that no compiled program can hold."""
    for name in names:
        value = _number(name, getattr(settings, name))
        if not bound < value:
            raise UsageError(f"{flag(name)} must be above {bound:g}, not {value:g}.")


def at_most(settings: Any, bound: int | float, *names: str) -> None:
    """Refuses fields above a bound."""
    for name in names:
        if not getattr(settings, name) <= bound:
            raise UsageError(f"{flag(name)} must be at most {bound:g}, not {shown(getattr(settings, name), 30)}.")


def fraction(settings: Any, *names: str) -> None:
    """Refuses fields outside the interval from 0 to 1."""
    for name in names:
        value = getattr(settings, name)
        if not 0 <= value <= 1:
            raise UsageError(f"{flag(name)} must be from 0 to 1, not {shown(value, 30)}.")


def _number(name: str, value: int | float) -> int | float:
    """Returns a number that compiled programs can hold, or refuses it."""
    greatest = LARGEST if isinstance(value, int) else GREATEST
    if value > greatest:
        raise UsageError(f"{flag(name)} must be a number up to {greatest:.10g}, not {shown(value, 30)}.")
    return value
