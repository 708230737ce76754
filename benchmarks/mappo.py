"""`make bench`: speed of MAPPO training from end to end on simple_spread, beside COMA's and a conventional MAPPO's.

All have 2×64 networks and the same number of worlds. The conventional learner is `torch_mappo.py`: PyTorch and mpe2 with the
same settings, with one or two threads, whichever is faster. `mappo.py WORD …` measures only the rows that contain a word.
"""

import sys
from typing import Any

import probe
from coma import steps_per_second

from counterpoint.runs.tables import markdown_table
from counterpoint.training.program import prepare_jax

WORLDS, TIMES, EPOCHS, MINIBATCHES = 128, 25, 5, 4
SPREAD: dict[str, Any] = {"scenario": "simple_spread", "num_units": 64, "num_envs": WORLDS, "update_every": WORLDS * TIMES}
PASSES: dict[str, Any] = {"epochs": EPOCHS, "minibatches": MINIBATCHES}
CASES: dict[str, dict[str, Any]] = {
    "MAPPO": SPREAD | {"algorithm": "mappo"} | PASSES,
    "IPPO": SPREAD | {"algorithm": "ippo"} | PASSES,
    "MAPPO, one epoch": SPREAD | {"algorithm": "mappo"} | PASSES | {"epochs": 1},
    "MAPPO, recurrent": SPREAD | {"algorithm": "mappo", "recurrent": True} | PASSES,
    "MAPPO, 2 seeds in one program": SPREAD | {"algorithm": "mappo", "num_seeds": 2} | PASSES,
    "COMA": SPREAD | {"algorithm": "coma"},
}
CONVENTIONAL = "conventional MAPPO (PyTorch, mpe2)"


def conventional(rollouts: int = 3) -> dict[str, Any]:
    """Returns the answer of the conventional learner, the fastest of one and two threads."""
    request = {"copies": WORLDS, "times": TIMES} | PASSES
    with probe.start("torch_mappo.py") as learner:
        learner.ask(rollouts=1, threads=1, **request)
        return min(
            (learner.ask(rollouts=rollouts, threads=threads, **request) for threads in (2, 1)),
            key=lambda answer: answer["seconds"],
        )


def main() -> None:
    prepare_jax(0)
    chosen = [name for name in (*CASES, CONVENTIONAL) if not sys.argv[1:] or any(word in name for word in sys.argv[1:])]
    speeds = {name: steps_per_second(CASES[name]) for name in chosen if name in CASES}
    note = ""
    if CONVENTIONAL in chosen:
        answer = conventional()
        speeds[CONVENTIONAL] = answer["steps"] / answer["seconds"]
        note = f"An update takes {answer['update_seconds'] / answer['seconds']:.0%} of the conventional learner's time."
    slow = speeds.get(CONVENTIONAL)
    rows = [[name, f"{speed:,.0f}", f"{speed / slow:.1f}" if slow else None] for name, speed in speeds.items()]
    print(f"\nTraining with MAPPO, simple_spread, {WORLDS} worlds, rollouts of {TIMES} steps, {EPOCHS} epochs of", end="")
    print(f" {MINIBATCHES} minibatches\n")
    print(markdown_table(["", "world steps/s", "× conventional"], rows))
    if note:
        print(note)


if __name__ == "__main__":
    main()
