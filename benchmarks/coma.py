"""`make bench`, third part: speed of COMA training from end to end, on Switch2 and on simple_spread.

EPyMARL's COMA did 1060 world steps per second on simple_spread with ten environments on two quiet cores.
"""

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp

from counterpoint import config as configs
from counterpoint import presets
from counterpoint.core import prng
from counterpoint.runs.tables import markdown_table
from counterpoint.training.loop import compile_advance, compile_begin
from counterpoint.training.program import prepare, prepare_jax

EPYMARL = 1060
NEVER = 10**7
"""Episodes: more than any measurement reaches, so that nothing is reported or saved."""

SPREAD: dict[str, Any] = {"preset": "coma-spread", "num_envs": 10, "update_every": 250, "critic_steps": 1}
CASES: dict[str, dict[str, Any]] = {
    "switch2, default settings": {"algorithm": "coma", "scenario": "switch2"},
    "switch2, 10 seeds in one program": {"algorithm": "coma", "scenario": "switch2", "num_seeds": 10},
    "simple_spread, 10 worlds, 2×64 networks": SPREAD | {"num_units": 64},
    "simple_spread, 10 worlds, 2×128 networks": SPREAD,
}


def steps_per_second(settings: dict[str, Any], seconds: float = 2.0, repeats: int = 5) -> float:
    """World steps of all seeds per second: the best of several repetitions, since disturbance only ever slows down."""
    start = presets.preset(settings["preset"]) if "preset" in settings else configs.Config()
    own = {name: value for name, value in settings.items() if name != "preset"}
    forever = {"num_episodes": NEVER, "report_every": NEVER, "save_rate": NEVER}
    program = prepare(configs.override(start, **(own | forever))).program
    schedule = program.schedule
    loop = compile_begin(program)(jax.vmap(prng.key)(jnp.arange(program.num_seeds, dtype=jnp.uint32)))
    advance = compile_advance(program, learn=True)
    loop = jax.block_until_ready(advance(loop, 2, False))
    iterations, best = 4, 0.0
    for _ in range(repeats):
        began = time.perf_counter()
        loop = jax.block_until_ready(advance(loop, iterations, False))
        spent = time.perf_counter() - began
        best = max(best, program.num_seeds * iterations * schedule.num_envs * schedule.rollout_length / spent)
        iterations = max(4, int(iterations * seconds / repeats / spent))
    return best


def main() -> None:
    prepare_jax(0)
    rows = []
    for name, settings in CASES.items():
        if not sys.argv[1:] or any(word in name for word in sys.argv[1:]):
            speed = steps_per_second(settings)
            ratio = f"{speed / EPYMARL:.0f}" if "spread" in name else None
            rows.append([name, f"{speed:,.0f}", ratio])
    print("\nTraining with COMA\n")
    print(markdown_table(["", "world steps/s", "× EPyMARL's COMA"], rows))


if __name__ == "__main__":
    main()
