"""`make bench`, distributed part: what one update costs when learners compute it and nobody is late.

The central update is the compiled program of a run without learners. Everything is measured on this machine, where learners
share the cores: what grows with learners is the controller's work, the rest is computing done more than once.
`distributed.py AGENTS LEARNERS …` measures other sizes.
"""

import statistics
import sys
import time

import jax
import jax.numpy as jnp

from counterpoint import config as configs
from counterpoint.coded import learner, ray_transport
from counterpoint.coded.controller import Controller, work_of
from counterpoint.coded.settings import Distribution
from counterpoint.core import prng
from counterpoint.runs.tables import markdown_table
from counterpoint.training.program import prepare

SIZES = ((2, 2), (4, 4), (8, 8), (8, 15))
SCHEMES = ("uncoded", "backup", "mds")
ROUNDS = 20


def measure(agents: int, learners: int) -> list[list[object]]:
    """A row per scheme."""
    settings = {"scenario": "simple_spread", "num_agents": agents, "num_episodes": 1000, "learners": learners, "code": "backup"}
    program = prepare(configs.override(configs.Config(), **settings)).program
    work = work_of(program.algo, program.memory, 0.0)
    learner.compiled(work)
    state, key = jax.jit(program.algo.init)(prng.key(0)), prng.key(1)
    batch = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), work.example.batch)
    central = jax.jit(program.algo.update)
    jax.block_until_ready(central(state, batch, key))
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        jax.block_until_ready(central(state, batch, key))
        times.append(time.perf_counter() - began)
    alone = statistics.median(times)
    update = Controller(
        program.algo, work, Distribution(learners=learners, patience=300.0), ray_transport.RayTransport(work, learners)
    )
    rows: list[list[object]] = []
    for scheme in SCHEMES:
        update.change(scheme, "", learners)
        seen = []
        for _ in range(ROUNDS + 2):
            update(state, batch, key)
            assert update.times is not None
            seen.append(update.times)
        parts = ("total", "publishing", "fetching", "encoding", "decoding")
        figures = [1e3 * statistics.median(getattr(times, part) for times in seen[2:]) for part in parts]
        rows.append([agents, learners, scheme, 1e3 * alone, *figures])
    update.close()
    return rows


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    sizes = list(zip(numbers[::2], numbers[1::2], strict=True)) or SIZES
    header = [
        "agents",
        "learners",
        "scheme",
        "central, ms",
        "distributed, ms",
        "publishing",
        "fetching",
        "encoding",
        "decoding",
    ]
    rows = []
    for agents, learners in sizes:
        print(f"{agents} agents, {learners} learners …", flush=True)
        rows += measure(agents, learners)
    print("\nOne update of simple_spread, minibatch 1024, nobody late; medians\n")
    print(markdown_table(header, rows))
