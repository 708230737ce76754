"""Policy ensembles (Lowe et al. 2017, Section 5.4): single policies and ensembles against each other, in three worlds."""

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from counterpoint.envs.base import World
from counterpoint.runs import Run, stats
from counterpoint.studies.reproduce import PublishedResult
from counterpoint.studies.reproduce._lowe2017 import (
    EPISODES,
    QUICK_EPISODES,
    Claim,
    Effort,
    Plan,
    Row,
    claims_of,
    gain_verdict,
    train_all,
    write_up,
)
from counterpoint.studies.reproduce._lowe2017_worlds import SCORE, Chase, Deception, KeepAway
from counterpoint.studies.strangers import cross, means, resampled

TEAMS = ("single", "ensemble")


class Contest(NamedTuple):
    """One of the three worlds, its number of sub-policies and the published score of the adversary."""

    title: str
    name: str
    world: type[World]
    members: int
    unit: str
    published: tuple[float, float, float, float]
    """Adversary single, ensemble (rows) against agents single, ensemble (columns). In predator-prey our adversaries are the
    predators; the paper calls the prey so."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a training."""
        return {"env": f"{self.world.__module__}:{self.world.__name__}", "scenario_args": ("flavour=openai",)}


CONTESTS = (
    Contest("keep-away", "push", KeepAway, 3, "steps at the target", (7.94, 7.74, 8.35, 8.11)),
    Contest("physical deception", "adversary", Deception, 3, "steps at the target", (4.25, 4.10, 5.55, 4.44)),
    Contest("predator-prey", "tag", Chase, 2, "steps in reach", (0.201, 0.125, 0.211, 0.17)),
)
ABOUT = """The worlds as the authors released them in August 2017, original rules: whoever is within 0.05 (keep-away) or 0.1
(physical deception) of the target earns 1 more, and predator-prey has four predators and a prey of twice their strength. Single
policies and ensembles are trained against their own kind, and then every adversary meets every team of agents except the one of
the same seed, so that all opponents are unseen, also those of one's own kind. The score is the adversary's, and agents are the
better the lower it is: the steps of an episode in which the adversary is at the target (within the radius above), or in which a
predator is within 0.135 of the prey. An ensemble of K sub-policies trains for K times as many episodes, with updates of K times
as many samples after K times as many steps: every sub-policy has as much data and as many updates as a single policy, as in the
release. There every sub-policy has a critic of its own; here the sub-policies of an agent share one, as in the paper's Eq. 9. A
gain is what an ensemble adds to the score of an adversary, or takes from it as agents, over both kinds of opponents. Intervals
resample the seeds of the adversaries and those of the agents."""
ADVERSARY_GAIN, AGENTS_GAIN = "gain of an ensemble adversary", "gain of ensemble agents"
Cells = Float[np.ndarray, "*draws 2 2"]
"""Mean scores of adversaries single, ensemble against agents single, ensemble."""


def run(folder: Path, quick: bool, episodes: int = 0, seeds: int = 0) -> None:
    """Trains both kinds in every world and plays all pairs of strangers."""
    effort = Effort(quick, episodes, seeds)
    plans = [
        Plan(f"{contest.name}-{kind}", contest.settings | {"ensemble": members}, times=members)
        for contest in CONTESTS
        for kind, members in zip(TEAMS, (1, contest.members), strict=True)
    ]
    runs = train_all(folder, plans, effort)
    began, rows = time.perf_counter(), []
    for contest in CONTESTS:
        players = [runs[f"{contest.name}-{kind}"] for kind in TEAMS]
        count = int(players[0].config["training"]["num_seeds"])
        tables = [[cross(match(adversary, good, effort), count) for good in players] for adversary in players]
        rows += rows_of(contest, np.array(tables))
    claims = [claim for contest in CONTESTS for claim in claims_about(contest, rows)]
    write_up(folder, "Policy ensembles (Lowe et al. 2017, Figure 3)", ABOUT, rows, effort, began, runs, claims)


def rows_of(contest: Contest, tables: Float[np.ndarray, "2 2 K K"]) -> list[Row]:
    """Returns the rows of a world: each cell, and what an ensemble gains on either side."""
    published, ours, drawn = np.reshape(contest.published, (2, 2)), means(tables), resampled(tables)
    measures: dict[str, Callable[[Cells], Any]] = {
        f"{adversary} adversary v {good} agents": lambda cells, a=a, g=g: cells[..., a, g]
        for a, adversary in enumerate(TEAMS)
        for g, good in enumerate(TEAMS)
    }
    measures |= {ADVERSARY_GAIN: adversary_gain, AGENTS_GAIN: agents_gain}
    rows = []
    for cell, measure in measures.items():
        low, high = np.percentile(measure(drawn), [2.5, 97.5])
        numbers = (float(measure(published)), float(measure(ours)), float(low), float(high))
        rows.append(Row(cell, metric_of(contest), "per episode", *numbers, seeds=tables.shape[-1]))
    return rows


def metric_of(contest: Contest) -> str:
    """Returns the name of a world's score in the table."""
    return f"{contest.title}: {contest.unit}"


def claims_about(contest: Contest, rows: list[Row]) -> list[Claim]:
    """Returns the claims for both sides of a world: against single policies, and against both kinds."""
    metric, single = metric_of(contest), "single adversary v single agents"
    known = {row.cell: row for row in rows if row.metric == metric}
    orders = ((metric, "ensemble adversary v single agents", single), (metric, single, "single adversary v ensemble agents"))
    gains = [
        Claim(f"{metric}: {cell} against unseen opponents", gain_verdict(known[cell])) for cell in (ADVERSARY_GAIN, AGENTS_GAIN)
    ]
    return [*claims_of(rows, *orders), *gains]


def adversary_gain(cells: Cells) -> stats.Reduced:
    """Returns how much more an ensemble scores as adversary, over both kinds of agents."""
    return (cells[..., 1, :] - cells[..., 0, :]).mean(axis=-1)


def agents_gain(cells: Cells) -> stats.Reduced:
    """Returns how much less both kinds of adversaries score against agents that are ensembles."""
    return (cells[..., 0] - cells[..., 1]).mean(axis=-1)


def match(adversary: Run, good: Run, effort: Effort) -> Callable[[int, int], float]:
    """Returns the function that plays a seed of the adversary against one of the agents and returns the adversary's score."""
    import jax

    from counterpoint import config as configs
    from counterpoint.core import prng
    from counterpoint.training.evaluate import evaluate
    from counterpoint.training.opponents import Source, joint, load_team

    env: Any = configs.from_dict(adversary.config).world.build().compiled
    episodes = QUICK_EPISODES if effort.quick else EPISODES
    load = cache(lambda run, team, k: load_team(Source(str(run.path), "last", k), env, team))
    algo = joint(env.spec, [load(adversary, "adversary", 0), load(good, "good", 0)])

    @jax.jit
    def total(parameters: Any, key: Any) -> Any:
        states = evaluate(env, algo, parameters, key, episodes, record=True).states
        after = jax.tree.map(lambda leaf: leaf[1:], states)
        return jax.vmap(jax.vmap(env.metrics))(after)[SCORE].value.sum(axis=0).mean()

    def play(k: int, j: int) -> float:
        teams = (load(adversary, "adversary", k), load(good, "good", j))
        return float(total(tuple(team.parameters for team in teams), prng.key(1000 + k)))

    return play


RESULT = PublishedResult("lowe2017-ensembles", "Policy ensembles against single policies (Lowe et al. 2017, Figure 3).", run)
