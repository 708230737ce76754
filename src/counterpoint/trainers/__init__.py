"""Trainers for a loop of your own: objects that act, store and learn while your program steps the environment.

- agent.py: `AgentTrainer`, one object per agent (MADDPG and DDPG), `MATD3Trainer` and `MASACTrainer`, with their `Settings`,
  `experience` for a whole team and `discount_with_dones`.
- learner.py: `Sizes` and `Model`, the networks of a trainer, and the compiled functions of each algorithm that train them.
- team.py: `TeamTrainer`, one object for a team that learns on-policy, with its `Memory` of episodes.
- coma.py: `ComaTrainer`.
- mappo.py: `MappoTrainer`, for MAPPO and IPPO.
- buffer.py: `ReplayBuffer`, one agent's transitions (no jax).
- files.py: the files that `save` writes and `load` reads.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterpoint.trainers.agent import AUTHORS as AUTHORS
    from counterpoint.trainers.agent import AgentTrainer as AgentTrainer
    from counterpoint.trainers.agent import Losses as Losses
    from counterpoint.trainers.agent import MASACTrainer as MASACTrainer
    from counterpoint.trainers.agent import MATD3Trainer as MATD3Trainer
    from counterpoint.trainers.agent import Settings as Settings
    from counterpoint.trainers.agent import SoftLosses as SoftLosses
    from counterpoint.trainers.agent import discount_with_dones as discount_with_dones
    from counterpoint.trainers.agent import experience as experience
    from counterpoint.trainers.buffer import Batch as Batch
    from counterpoint.trainers.buffer import ReplayBuffer as ReplayBuffer
    from counterpoint.trainers.coma import ComaTrainer as ComaTrainer
    from counterpoint.trainers.learner import Model as Model
    from counterpoint.trainers.learner import Sizes as Sizes
    from counterpoint.trainers.mappo import MappoTrainer as MappoTrainer
    from counterpoint.trainers.team import Episodes as Episodes
    from counterpoint.trainers.team import Memory as Memory

_HOMES = {
    "agent": (
        *("AUTHORS", "AgentTrainer", "Losses", "MASACTrainer", "MATD3Trainer", "Settings", "SoftLosses"),
        *("discount_with_dones", "experience"),
    ),
    "buffer": ("Batch", "ReplayBuffer"),
    "coma": ("ComaTrainer",),
    "learner": ("Model", "Sizes"),
    "mappo": ("MappoTrainer",),
    "team": ("Episodes", "Memory"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that the replay buffer alone does not import jax."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
