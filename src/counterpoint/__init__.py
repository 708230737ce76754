"""Multi-agent actor-critic learning on JAX."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterpoint.algos.base import Actors as Actors
    from counterpoint.algos.base import Algorithm as Algorithm
    from counterpoint.algos.base import Entry as Entry
    from counterpoint.algos.base import Replay as Replay
    from counterpoint.algos.base import Rollout as Rollout
    from counterpoint.core.errors import UsageError as UsageError
    from counterpoint.core.nets import Model as Model
    from counterpoint.core.spaces import Box as Box
    from counterpoint.core.spaces import Discrete as Discrete
    from counterpoint.core.spaces import Spec as Spec
    from counterpoint.core.types import Metric as Metric
    from counterpoint.core.types import Step as Step
    from counterpoint.core.types import Transition as Transition
    from counterpoint.envs import make as make
    from counterpoint.envs.base import World as World
    from counterpoint.external.check import check_env as check_env
    from counterpoint.external.pettingzoo import to_pettingzoo as to_pettingzoo
    from counterpoint.policies.export import export as export
    from counterpoint.policies.policy import Policy as Policy
    from counterpoint.policies.policy import load as load
    from counterpoint.policies.policy import random_team as random_team
    from counterpoint.runs.folder import Run as Run
    from counterpoint.runs.folder import open_run as open_run
    from counterpoint.studies.compare import compare as compare
    from counterpoint.studies.doctor import doctor as doctor
    from counterpoint.studies.exploit import exploit as exploit
    from counterpoint.studies.grid import grid as grid
    from counterpoint.studies.reproduce import reproduce as reproduce
    from counterpoint.studies.tournament import tournament as tournament
    from counterpoint.studies.units import units as units
    from counterpoint.studies.why import why as why
    from counterpoint.trainers.agent import AgentTrainer as AgentTrainer
    from counterpoint.trainers.agent import MASACTrainer as MASACTrainer
    from counterpoint.trainers.agent import MATD3Trainer as MATD3Trainer
    from counterpoint.trainers.agent import Settings as Settings
    from counterpoint.trainers.buffer import ReplayBuffer as ReplayBuffer
    from counterpoint.trainers.coma import ComaTrainer as ComaTrainer
    from counterpoint.trainers.learner import Sizes as Sizes
    from counterpoint.trainers.mappo import MappoTrainer as MappoTrainer
    from counterpoint.trainers.team import Memory as Memory
    from counterpoint.training.keywords import TrainSettings as TrainSettings
    from counterpoint.training.train import resume as resume
    from counterpoint.training.train import train as train
    from counterpoint.view.opened import view_runs as view_runs
    from counterpoint.view.share import share as share

__version__ = "0.1.0"

_HOMES = {
    "counterpoint.algos.base": ("Actors", "Algorithm", "Entry", "Replay", "Rollout"),
    "counterpoint.core.errors": ("UsageError",),
    "counterpoint.core.nets": ("Model",),
    "counterpoint.core.spaces": ("Box", "Discrete", "Spec"),
    "counterpoint.core.types": ("Metric", "Step", "Transition"),
    "counterpoint.envs": ("make",),
    "counterpoint.envs.base": ("World",),
    "counterpoint.external.check": ("check_env",),
    "counterpoint.external.pettingzoo": ("to_pettingzoo",),
    "counterpoint.policies.export": ("export",),
    "counterpoint.policies.policy": ("Policy", "load", "random_team"),
    "counterpoint.runs.folder": ("Run", "open_run"),
    "counterpoint.studies.compare": ("compare",),
    "counterpoint.studies.doctor": ("doctor",),
    "counterpoint.studies.exploit": ("exploit",),
    "counterpoint.studies.grid": ("grid",),
    "counterpoint.studies.reproduce": ("reproduce",),
    "counterpoint.studies.tournament": ("tournament",),
    "counterpoint.studies.units": ("units",),
    "counterpoint.studies.why": ("why",),
    "counterpoint.trainers.agent": ("AgentTrainer", "MASACTrainer", "MATD3Trainer", "Settings"),
    "counterpoint.trainers.buffer": ("ReplayBuffer",),
    "counterpoint.trainers.coma": ("ComaTrainer",),
    "counterpoint.trainers.learner": ("Sizes",),
    "counterpoint.trainers.mappo": ("MappoTrainer",),
    "counterpoint.trainers.team": ("Memory",),
    "counterpoint.training.keywords": ("TrainSettings",),
    "counterpoint.training.train": ("resume", "train"),
    "counterpoint.view.opened": ("view_runs",),
    "counterpoint.view.share": ("share",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used: importing the package alone must not wait for jax."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
