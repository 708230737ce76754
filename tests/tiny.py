"""Runs small enough for tests, and one that is trained and shared. Workers share compiled programs for the session."""

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

SESSION = Path(os.environ.get("COUNTERPOINT_TESTS") or tempfile.mkdtemp(prefix="counterpoint-tests-"))
HOME = SESSION / os.environ.get("PYTEST_XDIST_WORKER", "alone")
os.environ.setdefault("XDG_CACHE_HOME", str(SESSION / "cache"))

import jax  # noqa: E402 — the cache comes first

import counterpoint  # noqa: E402
from counterpoint.runs.folder import Run  # noqa: E402

jax.devices()  # both of them, before a run of one device settles for one

TINY: dict[str, Any] = {
    **{"batch_size": 64, "num_units": 16, "warmup": 200, "devices": 1},
    **{"report_every": 8, "save_rate": 16, "eval_episodes": 2, "plots_dir": ""},
}
"""Settings under which an episode of a particle world takes a millisecond, with a report every 8 and a checkpoint every 16."""


def tiny_words(**settings: Any) -> list[str]:
    """Those settings, and more, as on the command line."""
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in (TINY | settings).items()]
    return [word for pair in pairs for word in pair]


@cache
def trained_run() -> Run:
    """A finished run of `simple` (one seed, 48 episodes)."""
    return counterpoint.train(
        scenario="simple", num_episodes=48, save_dir=str(HOME / "runs"), exp_name="first", progress=False, **TINY
    )
