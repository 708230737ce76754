"""Multi-agent actor-critic learning on JAX."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterpoint.envs import make as make
    from counterpoint.experiment import resume as resume
    from counterpoint.experiment import train as train
    from counterpoint.exports import export as export
    from counterpoint.policy import load as load
    from counterpoint.zoo import to_pettingzoo as to_pettingzoo

__version__ = "0.1.0"

_HOMES = {
    "train": "counterpoint.experiment",
    "resume": "counterpoint.experiment",
    "export": "counterpoint.exports",
    "load": "counterpoint.policy",
    "make": "counterpoint.envs",
    "to_pettingzoo": "counterpoint.zoo",
}


def __getattr__(name: str) -> Any:
    """The public functions, fetched when first asked for: importing the package alone must not wait for jax."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
