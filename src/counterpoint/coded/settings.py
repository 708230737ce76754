"""Settings of distributed learning."""

import math
from dataclasses import dataclass

import numpy as np

from counterpoint.coded.delays import delay_models
from counterpoint.coded.schemes import code_of, parse_scheme
from counterpoint.core.checks import LARGEST, at_most
from counterpoint.core.errors import UsageError

MOST_LEARNERS = 10_000
_LEAST = {"learners": 0, "pad": 0, "patience": 1, "min_learners": 1, "timeline": 0}


@dataclass(frozen=True)
class Distribution:
    """Distributed learning over processes or machines."""

    learners: int = 0
    """Number of learner processes that compute the agents' updates (0: compile everything into one program)."""
    code: str = "auto"
    """Scheme: uncoded, replication, mds, random-sparse, ldpc, cyclic:2, stream:3, backup, hedge:1.5, fastest-first or auto."""
    ray_address: str = ""
    """Address of the Ray cluster: auto or host:port (empty: start Ray on this machine, reachable only from here)."""
    straggle: str = ""
    """Faults to inject into learners, such as k=2,delay=0.25, slow=1,factor=4 or crash=0.01 (see `counterpoint plan`)."""
    pad: float = 0.0
    """Minimum seconds per agent update; learners wait, so that a few cores behave like many machines."""
    patience: float = 60.0
    """Seconds without a result after which a learner is replaced."""
    min_learners: int = 1
    """Minimum number of live learners; with fewer for longer than the patience, the run saves and stops."""
    timeline: int = 1000
    """Number of updates whose tasks are recorded in the run's `learners.csv` (0: none)."""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if not least <= getattr(self, name) < math.inf:
                raise UsageError(f"--{name.replace('_', '-')} must be at least {least}, not {getattr(self, name):g}.")
        at_most(self, MOST_LEARNERS, "learners", "min_learners")
        at_most(self, 1e6, "pad", "patience")
        at_most(self, LARGEST, "timeline")

    def check(self, num_agents: int) -> None:
        """Raises UsageError if these settings cannot work together or with this many agents."""
        if not self.learners:
            return
        if self.min_learners > self.learners:
            raise UsageError(
                f"--min-learners {self.min_learners} is more than --learners {self.learners}: choose at most {self.learners}."
            )
        if self.code != "auto":
            scheme = parse_scheme(self.code)
            if scheme.is_linear:
                code_of(scheme, num_agents, self.learners)
        for model in delay_models(self.straggle):
            model.sample(np.random.default_rng(0), 1, self.learners)
