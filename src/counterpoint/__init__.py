"""Multi-agent actor-critic learning on JAX."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterpoint.envs import make as make
    from counterpoint.external.pettingzoo import to_pettingzoo as to_pettingzoo
    from counterpoint.policies.export import export as export
    from counterpoint.policies.policy import load as load
    from counterpoint.training.train import resume as resume
    from counterpoint.training.train import train as train

__version__ = "0.1.0"

_HOMES = {
    "train": "counterpoint.training.train",
    "resume": "counterpoint.training.train",
    "export": "counterpoint.policies.export",
    "load": "counterpoint.policies.policy",
    "make": "counterpoint.envs",
    "to_pettingzoo": "counterpoint.external.pettingzoo",
}


def __getattr__(name: str) -> Any:
    """The public functions, fetched when first asked for: importing the package alone must not wait for jax."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
