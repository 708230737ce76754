"""Many agents: an update of simple_spread with joint critics, and with one critic over the set of agents (--critic attention).

`many_agents.py speed [N …]` writes the table of seconds per update and training steps per second, for these numbers of agents
or for all: batch 1024, 2×64 networks, one update per 100 world steps, as in `training.py`.
`many_agents.py learning N EPISODES [SEED …]` trains N agents with shared parameters and the critic over the set, seeds 0 to 2
if none are named, and plays fresh greedy episodes. It keeps what it measures in docs/results/many-agents.csv, does not measure
it again, and writes docs/results/many-agents.md.
"""

import csv
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import counterpoint
from counterpoint.core import prng
from counterpoint.core.types import Key
from counterpoint.envs import make
from counterpoint.policies.random import random_algorithm
from counterpoint.runs.tables import markdown_table
from counterpoint.training.evaluate import Episodes, evaluate
from training import Trainer

JOINT: dict[str, Any] = {}
POOLED: dict[str, Any] = {"share": "role", "critic": "attention"}
FIVE: dict[str, Any] = POOLED | {"agents_per_sample": 5}
NEAR = ("num_agent_neighbors=3", "num_landmark_neighbors=3")
CASES = [
    ("joint critics", 10, JOINT, ()),
    ("one over the set", 10, POOLED, ()),
    ("one over the set, 3 neighbours", 10, POOLED, NEAR),
    ("one over the set, 3 neighbours, 5 agents per sample", 10, FIVE, NEAR),
    ("joint critics", 30, JOINT, ()),
    ("joint critics, 3 neighbours", 30, JOINT, NEAR),
    ("one over the set", 30, POOLED, ()),
    ("one over the set, 5 agents per sample", 30, FIVE, ()),
    ("one over the set, 3 neighbours", 30, POOLED, NEAR),
    ("one over the set, 3 neighbours, 5 agents per sample", 30, FIVE, NEAR),
    ("one over the set", 100, POOLED, ()),
    ("one over the set, 5 agents per sample", 100, FIVE, ()),
    ("one over the set, 3 neighbours", 100, POOLED, NEAR),
    ("one over the set, 3 neighbours, 5 agents per sample", 100, FIVE, NEAR),
]
"""Joint critics of 100 agents are left out: each would read 100 × 405 numbers, and an update take about a minute."""
LEARNING: dict[str, Any] = FIVE | {
    **{"lr": 1e-3, "gamma": 0.8, "logit_cost": 0.01, "critic_activation": "silu", "standardise_rewards": True},
    **{"num_envs": 16, "update_every": 80, "updates": 4, "batch_size": 256, "buffer_size": 100_000},
}
"""Chosen on seed 100 with 30 agents."""
SEEDS, PLAYED, STEPS = (0, 1, 2), 200, 25
PAGE, TABLE = Path("docs/results/many-agents.md"), Path("docs/results/many-agents.csv")
COLUMNS = ("agents", "team", "seed", "episodes", "reward", "distance", "covered", "collisions", "cpu_minutes")
TRAINED = "trained"


def speed(*wanted: int) -> None:
    """The table of updates."""
    rows, joint = [], {}
    for name, agents, settings, near in CASES:
        if wanted and agents not in wanted:
            continue
        trainer = Trainer(
            2_000, scenario_args=(f"N={agents}", *near), num_envs=20, buffer_size=4_000, batch_size=1024, **settings
        )
        found = trainer.speed(2 if settings is JOINT else 5, 4)
        if settings is JOINT and not near:
            joint[agents] = found
        beside = joint.get(agents)
        ratio = f"{beside.update / found.update:.1f}" if beside else ""
        rows.append([f"{agents}", name, f"{1e3 * found.update:.1f}", f"{found.steps_per_second:,.0f}", ratio])
        print(rows[-1], file=sys.stderr, flush=True)
        del trainer
    print("\nsimple_spread, batch 1024, 2×64 networks: one update of all agents\n")
    print(markdown_table(["agents", "critic", "ms per update", "training steps/s", "× joint"], rows))


def world_of(agents: int) -> dict[str, Any]:
    """Returns the arguments of the world in which agents learn: they see the three nearest landmarks and agents."""
    return {"N": agents, "num_agent_neighbors": 3, "num_landmark_neighbors": 3}


def still(obs: jax.Array, key: Key) -> jax.Array:
    """Returns actions that apply no force."""
    return jnp.zeros((*obs.shape[:2], 5)).at[..., 0].set(1.0)


def nearest(obs: jax.Array, key: Key) -> jax.Array:
    """Returns actions that take every agent to its nearest landmark, whoever else goes there, and let it stop there."""
    force = jnp.clip(3.0 * obs[..., 4:6] - 1.5 * obs[..., 0:2], -1.0, 1.0)
    pushes = [jnp.maximum(-force[..., 0], 0), jnp.maximum(force[..., 0], 0)]
    pushes += [jnp.maximum(-force[..., 1], 0), jnp.maximum(force[..., 1], 0)]
    return jnp.stack([jnp.zeros_like(pushes[0]), *pushes], axis=-1)


SCRIPTED: dict[str, Callable[[jax.Array, Key], jax.Array] | None] = {
    "random play": None,
    "standing still": still,
    "each to its nearest landmark": nearest,
}
"""Teams that do not learn; None stands for random play."""


def play(agents: int, team: str) -> Episodes:
    """Returns fresh episodes of a team that does not learn."""
    env, script = make("simple_spread", **world_of(agents)), SCRIPTED[team]
    algo = random_algorithm(env.spec)
    if script is not None:
        algo = algo._replace(greedy=lambda policy, carry, obs, legal=None: (script(obs, carry), carry))
    return jax.device_get(jax.jit(lambda key: evaluate(env, algo, (), key, PLAYED))(prng.key(1_000_000)))


def train(agents: int, episodes: int, seed: int) -> Episodes:
    """Returns fresh greedy episodes of a team after training."""
    with tempfile.TemporaryDirectory() as folder:
        run = counterpoint.train(
            scenario="simple_spread",
            scenario_args=tuple(f"{name}={value}" for name, value in world_of(agents).items()),
            num_episodes=episodes,
            report_every=max(1, episodes // 10),
            save_rate=episodes,
            save_dir=folder,
            plots_dir="",
            exp_name=f"many-agents-{agents}-{seed}",
            seed=seed,
            devices=1,
            **LEARNING,
        )
        rewards = [float(row["team/good"] or 0.0) / STEPS for row in run.rows()]
        print(agents, "agents, seed", seed, "reward while training", np.round(rewards, 2), flush=True)
        return counterpoint.load(run).evaluate(PLAYED, seed=1_000_000 + seed)


def measured() -> list[dict[str, Any]]:
    """Returns the rows that are known."""
    if not TABLE.exists():
        return []
    with TABLE.open() as file:
        return [row | {name: float(row[name]) for name in COLUMNS if name != "team"} for row in csv.DictReader(file)]


def add(agents: int, team: str, seed: int, episodes: int, found: Callable[[], Episodes]) -> None:
    """Measures a team and appends its row, if it is not known."""
    key = (agents, team, seed, episodes)
    if key in {tuple(row[name] for name in COLUMNS[:4]) for row in measured()}:
        return
    began = time.process_time()
    played = found()
    means = {name: float(np.mean(values)) for name, values in played.metrics.items()}
    numbers = (np.mean(played.returns) / STEPS, means["distance"] / agents, means["occupied"], means["collisions"])
    fresh = not TABLE.exists()
    with TABLE.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(COLUMNS)
        writer.writerow([*key, *(f"{number:.3f}" for number in numbers), f"{(time.process_time() - began) / 60:.1f}"])


def learning(agents: int, episodes: int, *seeds: int) -> None:
    """Measures teams that do not learn, trains seeds, and writes the page."""
    for team in SCRIPTED:
        add(agents, team, 0, 0, lambda team=team: play(agents, team))
    for seed in seeds or SEEDS:
        add(agents, TRAINED, seed, episodes, lambda seed=seed: train(agents, episodes, seed))
    PAGE.write_text(ABOUT.format(table=markdown_table(HEADER, lines()), settings=settings()))
    print(PAGE.read_text())


def settings() -> str:
    """Returns the settings as options of the command line."""
    return " ".join(f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in LEARNING.items())


HEADER = ["agents", "team", "seeds", "reward", "distance", "landmarks covered", "collisions", "minutes of a core"]
ABOUT = """# Many agents that learn

`python benchmarks/many_agents.py learning N EPISODES` trains N agents of simple_spread with one critic over the set of
agents, who observe their three nearest landmarks and agents, and plays 200 fresh greedy episodes with each seed. The settings
were chosen on seed 100 with 30 agents; these are other seeds. The reward is that of one agent per step. The distance is the
mean over steps and landmarks of the distance from a landmark to its nearest agent. Covered landmarks have an agent within
0.1 at the end of the episode. Collisions are those of an episode. Ranges are over seeds.

{table}
Settings: `{settings}`.

Teams that do not learn are random play, agents that never move, and a script by which every agent goes to the landmark that is
nearest to it, whoever else goes there. Agents that stand still do better than random play, because random play drifts apart.
"""


def lines() -> Iterator[list[Any]]:
    """Returns the rows of the page's table."""
    known = measured()
    for agents, team, episodes in dict.fromkeys(
        (row["agents"], row["team"], row["episodes"]) for row in sorted(known, key=order)
    ):
        same = [row for row in known if (row["agents"], row["team"], row["episodes"]) == (agents, team, episodes)]
        name = f"trained, {episodes:,.0f} episodes" if team == TRAINED else team
        seeds = f"{len(same)}" if team == TRAINED else "–"
        cells = [ranged([row[column] for row in same], digits) for column, digits in (("reward", 2), ("distance", 3))]
        cells += [ranged([row[column] for row in same], 1) for column in ("covered", "collisions")]
        minutes = ranged([row["cpu_minutes"] for row in same], 1) if team == TRAINED else "–"
        yield [f"{agents:.0f}", name, seeds, *cells, minutes]


def order(row: dict[str, Any]) -> tuple[float, bool, float]:
    """Returns the place of a row: by agents, those who do not learn first, in the order of `SCRIPTED`."""
    return row["agents"], row["team"] == TRAINED, row["episodes"]


def ranged(values: list[float], digits: int) -> str:
    """Returns the mean of several seeds with their range, or the only value."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.{digits}f} … {max(values):.{digits}f})"


if __name__ == "__main__":
    part, *rest = sys.argv[1:] or ["speed"]
    {"speed": speed, "learning": learning}[part](*map(int, rest))
