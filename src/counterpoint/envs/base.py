"""What all worlds share: padding, the checks of their arguments, and figures per episode."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from counterpoint.core.errors import UsageError


def pad_stack(groups: Sequence[Float[Array, "_n _o"]]) -> Float[Array, "N O"]:
    """Observations of consecutive groups of agents, each at its true size, as one array padded with zeros."""
    width = max(group.shape[-1] for group in groups)
    return jnp.concatenate([jnp.pad(group, ((0, 0), (0, width - group.shape[-1]))) for group in groups])


def check_choice(settings: Any, field: str, choices: Sequence[str]) -> None:
    """Refuse a field that is none of the choices."""
    value = getattr(settings, field)
    if value not in choices:
        raise UsageError(f"{field} must be one of {', '.join(choices)}, not {value!r}.")


def check_count(settings: Any, field: str, least: int) -> None:
    """Refuse a field that is no whole number of at least `least`."""
    value = getattr(settings, field)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{field} must be a whole number of at least {least}, not {value!r}.")


def check_fraction(settings: Any, field: str) -> None:
    """Refuse a field that is no number between 0 and 1."""
    value = getattr(settings, field)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise UsageError(f"{field} must be a number from 0 to 1, not {value!r}.")
