"""`make bench`, first part: steps per second of simple_spread under a random policy, beside mpe2 and JaxMARL.

All three reset by themselves, draw uniform integer actions and compute every observation and reward (they are summed, so
that no compiler can leave them out). Repetitions are interleaved; the table shows the best and the median of each.
`worlds.py PART …` runs only those parts: numbers of worlds, and `agents`.
"""

import statistics
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import probe

from counterpoint.algos.base import Algorithm
from counterpoint.core import prng
from counterpoint.core.types import Env
from counterpoint.envs import make
from counterpoint.runs.tables import markdown_table
from counterpoint.training.rollout import EnvStates, advance, start

REPEATS = 5
STEPS = {1: (100_000, 15_000), 16: (40_000, 4_000), 256: (4_000, 200), 4096: (250, 25)}
"""Width → steps per repetition of ours and of JaxMARL: a quarter of a second or so."""
AGENTS = {3: 20_000, 10: 1_500, 30: 100, 100: 5}
"""Agents → steps per repetition."""
WIDTHS = (16, 100)
"""Worlds while agents grow."""


def random_policy(env: Env) -> Algorithm:
    """Uniform actions."""
    size = env.spec.act_size

    def act(policy, carry, obs, key, step, legal):
        return jax.nn.one_hot(jax.random.randint(key, obs.shape[:2], 0, size), size), carry, ()

    nothing: Any = None
    return Algorithm(init=nothing, policy=nothing, begin=lambda key: (), act=act, greedy=nothing, update=nothing, metrics=())


class Ours(NamedTuple):
    """A compiled scan over worlds and what it starts from."""

    run: Any
    worlds: EnvStates
    compile_seconds: float

    def seconds(self) -> float:
        began = time.perf_counter()
        jax.block_until_ready(self.run(self.worlds, prng.key(2)))
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

    worlds = start(env, policy, prng.key(0), width)
    began = time.perf_counter()
    compiled = jax.jit(run).lower(worlds, prng.key(1)).compile()
    return Ours(compiled, worlds, time.perf_counter() - began)


def mpe2_rate(steps: int = 500) -> float:
    """mpe2's steps per second in a plain loop."""
    from mpe2 import simple_spread_v3

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


def compare(widths: list[int]) -> None:
    """The table of widths."""
    rows = []
    with probe.start("jaxmarl_probe.py") as jaxmarl:
        for width in widths:
            steps, their_steps = STEPS[width]
            program = ours(3, width, steps)
            mine, theirs, plain = [], [], []
            for repeat in range(REPEATS + 1):
                seconds = program.seconds()
                answer = jaxmarl.ask(agents=3, width=width, steps=their_steps)
                if repeat:  # the first round warms up
                    mine.append(width * steps / seconds)
                    theirs.append(width * their_steps / answer["seconds"])
                    plain.append(mpe2_rate())
            ratio = f"{max(mine) / max(theirs):.1f} ({statistics.median(mine) / statistics.median(theirs):.1f})"
            compiling = (f"{program.compile_seconds:.2f}", f"{answer['compile_seconds']:.2f}")
            faster = f"{max(mine) / max(plain):,.0f}"
            rows.append([f"{width}", *map(best_median, (mine, theirs, plain)), ratio, faster, *compiling])
    print("\nsimple_spread, 3 agents, random policy: world steps per second, best (median)\n")
    header = ["worlds", "counterpoint", "JaxMARL 0.2.0", "mpe2 1.1.1, one by one", "× JaxMARL", "× mpe2"]
    print(markdown_table([*header, "compile, s", "JaxMARL's, s"], rows))


def growth(width: int) -> None:
    """The table of agents. Repetitions are interleaved, so that a busy moment of the machine does not change ratios."""
    print(f"\nsimple_spread at {width} worlds: how cost grows with agents\n")
    steps = {agents: max(2, count * WIDTHS[0] // width) for agents, count in AGENTS.items()}
    programs = {agents: ours(agents, width, steps[agents]) for agents in AGENTS}
    best = dict.fromkeys(programs, float("inf"))
    for _ in range(REPEATS):
        for agents, program in programs.items():
            best[agents] = min(best[agents], 1e6 * program.seconds() / (width * steps[agents]))
    rows = []
    for n, cost in best.items():
        compiling = f"{programs[n].compile_seconds:.2f}"
        rows.append([f"{n}", f"{1e6 / cost:,.0f}", f"{cost:.2f}", f"{cost / best[3]:.1f}", f"{(n / 3) ** 2:.1f}", compiling])
    print(markdown_table(["agents", "world steps/s", "µs per world step", "× 3 agents", "pairs", "compile, s"], rows))


if __name__ == "__main__":
    parts = sys.argv[1:] or [*map(str, STEPS), "agents"]
    widths = [int(part) for part in parts if part != "agents"]
    if widths:
        compare(widths)
    if "agents" in parts:
        for width in WIDTHS:
            growth(width)
