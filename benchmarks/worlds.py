"""`make bench`, first part: steps per second of simple_spread under a random policy, beside mpe2 and JaxMARL.

All three reset by themselves, draw uniform integer actions and compute every observation and reward (they are summed, so
that no compiler can leave them out). Repetitions are interleaved; the table shows the best and the median of each.
"""

import statistics
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import probe
from mpe2 import simple_spread_v3

from counterpoint import random
from counterpoint.algos.base import Algorithm
from counterpoint.envs import make
from counterpoint.rollout import Worlds, advance, start
from counterpoint.tables import markdown_table
from counterpoint.types import Env

REPEATS = 5
STEPS = {1: (100_000, 15_000), 16: (40_000, 4_000), 256: (4_000, 200), 4096: (250, 25)}
"""Width → steps per repetition of ours and of JaxMARL: a quarter of a second or so."""
AGENTS = {3: 4_000, 10: 1_000, 30: 150, 100: 10}
"""Agents → steps per repetition at width 256."""


def random_policy(env: Env) -> Algorithm:
    """Uniform actions."""
    size = env.spec.act_size

    def act(agents, carry, obs, key, step):
        return jax.nn.one_hot(jax.random.randint(key, obs.shape[:2], 0, size), size), carry

    nothing: Any = None
    return Algorithm(init=nothing, begin=lambda: (), act=act, greedy=nothing, update=nothing, acting=nothing, metrics=())


class Ours(NamedTuple):
    """A compiled scan over worlds and what it starts from."""

    run: Any
    worlds: Worlds
    compile_seconds: float

    def seconds(self) -> float:
        began = time.perf_counter()
        jax.block_until_ready(self.run(self.worlds, random.key(2)))
        return time.perf_counter() - began


def ours(agents: int, width: int, steps: int) -> Ours:
    env = make("simple_spread", N=agents)
    policy = random_policy(env)

    def proceed(carry, time):
        worlds, total, key = carry
        worlds, step, _, _ = advance(env, policy, None, worlds, jax.random.fold_in(key, time), time)
        return (worlds, total + jnp.sum(step.next_obs) + jnp.sum(step.reward), key), None

    def run(worlds, key):
        return jax.lax.scan(proceed, (worlds, jnp.zeros(()), key), jnp.arange(steps))[0][:2]

    worlds = start(env, policy, random.key(0), width)
    began = time.perf_counter()
    compiled = jax.jit(run).lower(worlds, random.key(1)).compile()
    return Ours(compiled, worlds, time.perf_counter() - began)


def mpe2_rate(steps: int = 1_000) -> float:
    """mpe2's steps per second in a plain loop."""
    env, rng, total = simple_spread_v3.parallel_env(N=3, max_cycles=25), np.random.default_rng(0), 0.0
    env.reset(seed=0)
    began = time.perf_counter()
    for _ in range(steps):
        if not env.agents:
            env.reset()
        obs, reward, _, _, _ = env.step({agent: int(rng.integers(5)) for agent in env.agents})
        total += sum(float(x.sum()) for x in obs.values()) + sum(reward.values())
    assert np.isfinite(total)
    return steps / (time.perf_counter() - began)


def best_median(rates: list[float]) -> str:
    return f"{max(rates):,.0f} ({statistics.median(rates):,.0f})"


def compare() -> None:
    """The table of widths."""
    programs = {width: ours(3, width, steps[0]) for width, steps in STEPS.items()}
    rates: dict[tuple[str, int], list[float]] = {(who, width): [] for who in ("ours", "theirs") for width in STEPS}
    plain: list[float] = []
    with probe.start("jaxmarl_probe.py") as jaxmarl:
        for repeat in range(REPEATS + 1):
            for width, (steps, their_steps) in STEPS.items():
                mine = programs[width].seconds()
                answer = jaxmarl.ask(agents=3, width=width, steps=their_steps)
                if repeat:  # the first round warms up
                    rates["ours", width].append(width * steps / mine)
                    rates["theirs", width].append(width * their_steps / answer["seconds"])
            plain.append(mpe2_rate())
    print("\nsimple_spread, 3 agents, random policy: world steps per second, best (median)\n")
    header = ["worlds", "counterpoint", "JaxMARL 0.2.0", "mpe2 1.1.1, one by one", "× JaxMARL", "× mpe2", "compile, s"]
    rows = []
    for width in STEPS:
        mine, theirs = rates["ours", width], rates["theirs", width]
        ratio = f"{max(mine) / max(theirs):.1f} ({statistics.median(mine) / statistics.median(theirs):.1f})"
        faster = f"{max(mine) / max(plain):,.0f}"
        seconds = f"{programs[width].compile_seconds:.2f}"
        rows.append([f"{width}", best_median(mine), best_median(theirs), best_median(plain), ratio, faster, seconds])
    print(markdown_table(header, rows))


def growth() -> None:
    """The table of agents."""
    print("\nsimple_spread at 256 worlds: how cost grows with agents\n")
    rows, first = [], 0.0
    for agents, steps in AGENTS.items():
        program = ours(agents, 256, steps)
        best = min(program.seconds() for _ in range(REPEATS))
        cost = 1e6 * best / (256 * steps)
        first = first or cost
        rows.append([f"{agents}", f"{1e6 / cost:,.0f}", f"{cost:.2f}", f"{cost / first:.1f}", f"{program.compile_seconds:.2f}"])
    print(markdown_table(["agents", "world steps/s", "µs per world step", "× 3 agents", "compile, s"], rows))


if __name__ == "__main__":
    compare()
    growth()
