"""Many agents: an update of simple_spread with joint critics, and with one critic over the set of agents (--critic attention).

`many_agents.py speed` writes the table of seconds per update and training steps per second: batch 1024, 2×64 networks, one
update per 100 world steps, as in `training.py`. `many_agents.py learning N EPISODES` trains N agents with shared parameters and
the critic over the set, and writes rewards along the way, beside that of random play.
"""

import statistics
import sys
from typing import Any

import jax
import jax.numpy as jnp

import counterpoint
from counterpoint.core import prng
from counterpoint.envs import make
from counterpoint.policies.random import random_algorithm
from counterpoint.runs.tables import markdown_table
from counterpoint.training.rollout import rollout, start
from training import Trainer

JOINT: dict[str, Any] = {}
POOLED: dict[str, Any] = {"share": "role", "critic": "attention"}
NEAR = ("num_agent_neighbors=3", "num_landmark_neighbors=3")
CASES = [
    ("joint critics", 10, JOINT, ()),
    ("one over the set", 10, POOLED, ()),
    ("one over the set, 3 neighbours", 10, POOLED, NEAR),
    ("joint critics", 30, JOINT, ()),
    ("joint critics, 3 neighbours", 30, JOINT, NEAR),
    ("one over the set", 30, POOLED, ()),
    ("one over the set, 3 neighbours", 30, POOLED, NEAR),
    ("one over the set", 100, POOLED, ()),
    ("one over the set, 3 neighbours", 100, POOLED, NEAR),
]
"""Joint critics of 100 agents are left out: each would read 100 × 405 numbers, and an update take about a minute."""
LEARNING: dict[str, Any] = {
    **POOLED,
    **{"lr": 1e-3, "gamma": 0.95, "num_envs": 16, "update_every": 400, "updates": 4, "batch_size": 256},
    **{"critic_activation": "silu", "standardise_rewards": True, "buffer_size": 100_000},
}


def speed() -> None:
    """The table of updates."""
    rows, joint = [], {}
    for name, agents, settings, near in CASES:
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


def random_reward(arguments: dict[str, Any], num_envs: int = 64) -> float:
    """The mean reward per agent and step under random play."""
    env = make("simple_spread", **arguments)
    algo = random_algorithm(env.spec)
    envs = start(env, algo, prng.key(0), num_envs)
    _, steps, _ = jax.jit(lambda envs: rollout(env, algo, (), envs, prng.key(1), 25, jnp.zeros((), jnp.int32)))(envs)
    return float(steps.reward.mean())


def learning(agents: int, episodes: int) -> None:
    """Trains, and writes the table of rewards."""
    arguments = {"N": agents, "num_agent_neighbors": 3, "num_landmark_neighbors": 3}
    run = counterpoint.train(
        scenario="simple_spread",
        scenario_args=tuple(f"{name}={value}" for name, value in arguments.items()),
        num_episodes=episodes,
        report_every=max(1, episodes // 10),
        save_rate=episodes,
        plots_dir="",
        exp_name=f"many-agents-{agents}",
        **LEARNING,
    )
    rows = [[f"{row['episode']:,.0f}", f"{row['seconds']:.0f}", f"{row['team/good'] / (25):.3f}"] for row in run.rows()]
    print(f"\n{agents} agents, random play {random_reward(arguments):.3f} per agent and step\n")
    print(markdown_table(["episodes", "seconds", "reward of the team per step"], rows))
    print(f"median of the last three: {statistics.median(row['team/good'] / 25 for row in run.rows()[-3:]):.3f}")


if __name__ == "__main__":
    part, *rest = sys.argv[1:] or ["speed"]
    if part == "speed":
        speed()
    else:
        learning(*map(int, rest))
