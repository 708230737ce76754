"""One result in every published unit, and as a share between random play (0) and a scripted team (1).

A unit is a flavour of the rules and an aggregate: one agent's return, or the sum over agents. Within a flavour a conversion is
exact where the reward is shared; between flavours, whose rewards differ, a result keeps its share of the way from random play
to the scripted team. These references are data: references.csv beside this file, recorded by `counterpoint units --record`.
"""

import csv
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from counterpoint.core.errors import UsageError
from counterpoint.runs.tables import write_csv

REFERENCES = Path(__file__).with_name("references.csv")
HEADER = ["scenario", "flavour", "policy", "mean", "low", "high", "episodes"]
FLAVOURS = ("openai", "mpe2")
NO_SCALE = "A scale needs returns in a world of the usual size; `counterpoint units` lists those with references."
"""What is said of a run that has none."""


class Unit(NamedTuple):
    """A unit in which results are published."""

    name: str
    flavour: str
    summed: bool
    who: str
    """Who publishes in it."""


UNITS = (
    Unit("openai", "openai", False, "one agent, game of 2017: EPyMARL, and the curves of Lowe et al."),
    Unit("openai-sum", "openai", True, "summed over agents: what the script openai/maddpg prints"),
    Unit("mpe2", "mpe2", False, "one agent, PettingZoo and mpe2: our default"),
    Unit("mpe2-sum", "mpe2", True, "summed over agents, PettingZoo and mpe2: HARL, JaxMARL"),
)


class Reference(NamedTuple):
    """The return of one agent under random play or a scripted team, with its 95 % interval."""

    mean: float
    low: float
    high: float
    episodes: int


class Converted(NamedTuple):
    """A result in one unit."""

    unit: Unit
    value: float
    random: float
    scripted: float
    exact: bool
    """Whether no share had to be used: the flavour is the one that the result was measured in."""


class Scale(NamedTuple):
    """A result in every unit."""

    share: float
    """0 for random play, 1 for the scripted team."""
    converted: list[Converted]


@cache
def references(path: Path = REFERENCES) -> dict[tuple[str, str, str], Reference]:
    """Returns the recorded references by scenario, flavour and policy."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {
        (row["scenario"], row["flavour"], row["policy"]): Reference(
            float(row["mean"]), float(row["low"]), float(row["high"]), int(row["episodes"])
        )
        for row in rows
    }


def scenarios() -> list[str]:
    """Returns the worlds that have references."""
    return list(dict.fromkeys(scenario for scenario, _, _ in references()))


def require_scale(scenario: str) -> None:
    """Refuses a world without references."""
    if scenario not in scenarios():
        raise UsageError(
            f"there is no scale for {scenario!r}: choose one of {', '.join(scenarios())}; a return in a competitive world"
            " depends on the opponent (see `counterpoint tournament`)."
        )


def references_of(scenario: str = "") -> dict[tuple[str, str, str], Reference]:
    """Returns the recorded references of a world (empty: of all worlds)."""
    if not scenario:
        return references()
    require_scale(scenario)
    return {key: reference for key, reference in references().items() if key[0] == scenario}


def unit_of(name: str) -> Unit:
    """Returns the unit of a name."""
    for unit in UNITS:
        if unit.name == name:
            return unit
    raise UsageError(f"unknown unit {name!r}: choose one of {', '.join(unit.name for unit in UNITS)}.")


def units(value: float | str, scenario: str, from_unit: str = "mpe2") -> Scale:
    """Returns a result in every published unit, and as a share between random play and the scripted team."""
    number, unit = number_of(value), unit_of(from_unit)
    require_scale(scenario)
    agents = count_of(scenario)
    own = number / agents if unit.summed else number
    share = share_of(own, scenario, unit.flavour)
    converted = []
    for target in UNITS:
        low, high = (references()[scenario, target.flavour, policy].mean for policy in ("random", "scripted"))
        exact = target.flavour == unit.flavour
        one = own if exact else low + share * (high - low)
        times = agents if target.summed else 1
        converted.append(Converted(target, times * one, times * low, times * high, exact))
    return Scale(share, converted)


def share_of(value: float, scenario: str, flavour: str) -> float:
    """Returns one agent's return as a share between random play (0) and the scripted team (1)."""
    low, high = (references()[scenario, flavour, policy].mean for policy in ("random", "scripted"))
    return (value - low) / (high - low)


def share_in_world(value: float, world: dict[str, Any]) -> float | None:
    """Returns the share of one agent's return in the world of a run's settings; None if it has no references.

    The references are those of discrete actions and of the default numbers of agents and steps: others have none.
    """
    usual = {"env": "", "num_agents": 0, "num_adversaries": 0, "scenario_args": (), "actions": "discrete"}
    chosen = {name: world.get(name, default) for name, default in usual.items()} | {
        "scenario_args": tuple(world["scenario_args"])
    }
    if chosen != usual:
        return None
    if world["scenario"] not in scenarios() or world["max_episode_len"] not in (0, 25):
        return None
    return share_of(value, world["scenario"], world["flavour"])


def number_of(value: float | str) -> float:
    """Returns a number that may be written with a typographic minus."""
    try:
        return float(str(value).replace("\N{MINUS SIGN}", "-"))
    except ValueError:
        raise UsageError(f"{value!r} is not a number: give a return such as -18.2.") from None


def count_of(scenario: str) -> int:
    """Returns the number of agents of a world."""
    from counterpoint.envs import make

    return make(scenario).spec.num_agents


def record(path: str | Path = REFERENCES, episodes: int = 20_000, seed: int = 0) -> Path:
    """Measures random play and the scripted teams, writes them as a table and returns its path."""
    import numpy as np

    from counterpoint.envs import make
    from counterpoint.policies.policy import random_team
    from counterpoint.runs import stats
    from counterpoint.studies import scripted
    from counterpoint.studies.tournament import Arena
    from counterpoint.training import opponents

    rows = []
    for scenario in scripted.SCRIPTED:
        for flavour in FLAVOURS:
            world = make(scenario, flavour=flavour)
            policy = opponents.scripted(scripted.team(scenario, flavour), world.spec, world.spec.agents, scenario)
            batch = min(episodes, 2000)
            for name, play in (
                ("random", random_team(world).evaluate),
                ("scripted", lambda count, seed, world=world, policy=policy: Arena(world).play((policy,), count, seed)),
            ):
                parts = [play(batch, seed + k).returns for k in range(max(1, episodes // batch))]
                returns = np.concatenate([np.asarray(part).mean(axis=1) for part in parts])
                interval = stats.bootstrap_interval(returns, resamples=500)
                numbers = [round(float(number), 3) for number in (returns.mean(), *interval)]
                rows.append([scenario, flavour, name, *numbers, len(returns)])
    write_csv(path, HEADER, rows)
    references.cache_clear()
    return Path(path)


TABLE_HEADER = ["unit", "value", "random play", "scripted", ""]


def table(scale: Scale) -> list[list[str]]:
    """Returns a result in every unit as rows of text."""
    return [
        [c.unit.name, f"{'' if c.exact else '≈ '}{c.value:.1f}", f"{c.random:.1f}", f"{c.scripted:.1f}", c.unit.who]
        for c in scale.converted
    ]
