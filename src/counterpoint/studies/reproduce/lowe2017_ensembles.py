"""Policy ensembles (Lowe et al. 2017, Section 5.4): single policies and ensembles against each other, in three worlds."""

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoint.studies.reproduce import PublishedResult
from counterpoint.studies.reproduce._lowe2017 import EPISODES, QUICK_EPISODES, Effort, Plan, Row, claims_of, train_all, write_up
from counterpoint.studies.reproduce.lowe2017_predator_prey import fast_tag

TEAMS = ("single", "ensemble")


class World(NamedTuple):
    """One of the three worlds, its number of sub-policies and the published score of the adversary."""

    title: str
    name: str
    settings: dict[str, Any]
    members: int
    metric: str
    """The metric of a state that is summed over the steps of an episode."""
    unit: str
    published: tuple[float, float, float, float]
    """Adversary single, ensemble (rows) against agents single, ensemble (columns). In predator-prey our adversaries are the
    predators; the paper calls the prey so."""


WORLDS = (
    World(
        *("keep-away", "push", {"scenario": "simple_push"}, 3),
        *("adversary_success", "steps at the target", (7.94, 7.74, 8.35, 8.11)),
    ),
    World(
        *("physical deception", "adversary", {"scenario": "simple_adversary"}, 3),
        *("adversary_success", "steps at the target", (4.25, 4.10, 5.55, 4.44)),
    ),
    World("predator-prey", "tag", fast_tag(100), 2, "touches", "touches", (0.201, 0.125, 0.211, 0.17)),
)
ABOUT = """Original rules. Single policies and ensembles are trained against their own kind, and then every adversary meets
every team of agents, seed by seed. The score is the adversary's: the steps of an episode in which it is at the target (0.1 in
keep-away, 0.16 in physical deception; the paper states no radius), or touches of prey that is 100 % faster."""


def run(folder: Path, quick: bool, episodes: int = 0, seeds: int = 0) -> None:
    """Trains both kinds in every world and plays all pairs."""
    began, effort, rows = time.perf_counter(), Effort(quick, episodes, seeds), []
    plans = [
        Plan(f"{world.name}-{kind}", {**world.settings, "ensemble": world.members if kind == "ensemble" else 1})
        for world in WORLDS
        for kind in TEAMS
    ]
    runs = train_all(folder, plans, effort)
    for world in WORLDS:
        players = {kind: runs[f"{world.name}-{kind}"] for kind in TEAMS}
        cells = [(adversary, good) for adversary in TEAMS for good in TEAMS]
        for (adversary, good), published in zip(cells, world.published, strict=True):
            values = scores(world, players[adversary], players[good], effort)
            row = Row(f"{adversary} adversary v {good} agents", f"{world.title}: {world.unit}", "per episode", published)
            rows.append(row.measured(values))
    orders = [
        (f"{world.title}: {world.unit}", "ensemble adversary v single agents", "single adversary v single agents")
        for world in WORLDS
    ]
    claims = claims_of(rows, *orders)
    write_up(folder, "Policy ensembles (Lowe et al. 2017, Figure 3)", ABOUT, rows, effort, began, runs, claims)


def scores(world: World, adversary: Any, good: Any, effort: Effort) -> list[float]:
    """Returns the adversary's score for each pair of seeds."""
    import jax

    from counterpoint import config as configs
    from counterpoint.core import prng
    from counterpoint.training.evaluate import evaluate
    from counterpoint.training.opponents import Source, joint, load_team

    env: Any = configs.from_dict(adversary.config).world.build().compiled
    episodes = QUICK_EPISODES if effort.quick else EPISODES
    seeds = int(adversary.config["training"]["num_seeds"])
    found: list[Any] = []
    play: Any = None
    for k in range(seeds):
        teams = [
            load_team(Source(str(run.path), "last", k), env, team) for run, team in ((adversary, "adversary"), (good, "good"))
        ]
        if play is None:
            algo = joint(env.spec, teams)

            def counted(parameters: Any, key: Any, algo: Any = algo) -> Any:
                states = evaluate(env, algo, parameters, key, episodes, record=True).states
                after = jax.tree.map(lambda leaf: leaf[1:], states)
                return jax.vmap(jax.vmap(env.metrics))(after)[world.metric].value.sum(axis=0)

            play = jax.jit(counted)
        found.append(float(np.mean(play(tuple(team.parameters for team in teams), prng.key(1000 + k)))))
    return found


RESULT = PublishedResult("lowe2017-ensembles", "Policy ensembles against single policies (Lowe et al. 2017, Figure 3).", run)
