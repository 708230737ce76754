"""Predator-prey (Lowe et al. 2017, Table 3): touches per episode, for prey that is 30 % and 100 % faster."""

import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from counterpoint.envs.mpe.tag import Tag
from counterpoint.envs.mpe.world import Bodies
from counterpoint.studies.reproduce import PublishedResult
from counterpoint.studies.reproduce._lowe2017 import (
    PAIRS,
    Effort,
    Row,
    claims_of,
    evaluate,
    pair_name,
    paired_plans,
    train_all,
    write_up,
)

PUBLISHED = {30: (11.0, 10.3, 16.1, 9.4), 100: (0.202, 0.298, 0.405, 0.321)}
"""Touches per episode by how much faster the prey is in percent, in the order of `PAIRS`: prey first, where the paper has
predators first."""
ABOUT = """`simple_tag`, original rules, 2 × 128 units. Touches are counted at every step and summed over the episode. Each
pairing (prey v predators) is trained together, as the options of the authors' code do. The prey's acceleration is the game's
own in both columns; only its largest speed changes."""


@dataclass(frozen=True)
class FastTag(Tag):
    """Tag in which the prey is faster than the predators by another share."""

    faster: int = 100
    """How much faster the prey is, in percent."""

    name: ClassVar[str] = "simple_tag_fast"

    @cached_property
    def bodies(self) -> Bodies:
        usual = super().bodies
        prey = np.arange(len(usual.max_speed)) >= self.num_adversaries
        return usual._replace(max_speed=np.where(prey, 1 + self.faster / 100, usual.max_speed))


def fast_tag(faster: int) -> dict[str, Any]:
    """Returns the settings of a training in the world with prey that is faster by so many percent."""
    address = f"{FastTag.__module__}:{FastTag.__name__}"
    return {"env": address, "scenario_args": (f"faster={faster}", "flavour=openai"), "num_units": 128}


def run(folder: Path, quick: bool, episodes: int = 0, seeds: int = 0) -> None:
    """Trains every pairing at both speeds and compares them with the published table."""
    effort = Effort(quick, episodes, seeds)
    plans = [plan for faster in PUBLISHED for plan in paired_plans(fast_tag(faster), f"-{faster}")]
    runs = train_all(folder, plans, effort)
    began, rows = time.perf_counter(), []
    for faster, published in PUBLISHED.items():
        for (good, adversary), number in zip(PAIRS, published, strict=True):
            played = evaluate(runs[f"{good}-{adversary}-{faster}"], effort)
            row = Row(pair_name(good, adversary), f"touches, prey {faster} % faster", "per episode", number)
            rows.append(row.measured([seed["touches"] for seed in played]))
    strong, weak = pair_name("ddpg", "maddpg"), pair_name("maddpg", "ddpg")
    claims = claims_of(rows, *((f"touches, prey {faster} % faster", strong, weak) for faster in PUBLISHED))
    write_up(folder, "Predator-prey (Lowe et al. 2017, Table 3)", ABOUT, rows, effort, began, runs, claims)


RESULT = PublishedResult("lowe2017-predator-prey", "Touches in predator-prey (Lowe et al. 2017, Table 3).", run)
