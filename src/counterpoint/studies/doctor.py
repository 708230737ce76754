"""Whether this machine can learn: versions, devices, a short training with a known outcome, speed, and optional packages."""

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

PROBE: dict[str, Any] = {
    **{"scenario": "simple", "num_episodes": 2000, "num_envs": 10, "update_every": 10, "batch_size": 256},
    **{"buffer_size": 60_000, "lr": 3e-3, "lr_steps": 4800, "gamma": 0.75, "critic_activation": "silu", "temperature": 0.5},
    **{"report_every": 2000, "save_rate": 2000, "plots_dir": ""},
}
"""A training of one agent in seconds; each of the seeds 0 to 19 ended with a success of 1.00 in 200 episodes.

With 1500 episodes, one of the seeds 0 to 9 ended with 0.72, so a machine that rounds differently could have failed.
"""
LEARNED = 0.8
"""The success that it must reach."""
PER_GFLOP = 30.0
"""Environment steps per second of the authors' setting that each GFLOP/s of matrix products should give."""
MEMORY = 2.0
"""Gigabytes that training a particle environment needs at most."""


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    value: str
    ok: bool
    advice: str = ""
    """What to do if it is not all right; for an optional package, how to get it."""


def doctor() -> list[Finding]:
    """Returns what `counterpoint doctor` prints. The machine can train if every finding is `ok`; it takes about a minute."""
    return list(examine())


def examine(train: Callable[..., Any] | None = None) -> Iterator[Finding]:
    """Yields findings as they are made, the quick ones first; `train` takes the place of `counterpoint.train`."""
    yield from versions()
    yield from machine()
    yield from learning(train)
    yield from speed()
    yield from extras()


def versions() -> Iterator[Finding]:
    """Yields the versions of Python and of the packages that numbers depend on."""
    yield Finding("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}", True)
    wanted = _requirements("")
    for name in ("counterpoint", "jax", "jaxlib", "optax", "numpy"):
        version = _version(name)
        yield Finding(name, version or "missing", bool(version), f"run: pip install '{wanted.get(name, name)}'")


def machine() -> Iterator[Finding]:
    """Yields the devices, the memory and the places where files are written."""
    import jax

    from counterpoint.training.program import prepare_jax

    prepare_jax(0)  # before JAX settles for one device
    devices = jax.devices()
    kind = f"{len(devices)} × {devices[0].device_kind} ({devices[0].platform})"
    yield Finding("JAX devices", kind, True)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("processor cores", str(cores), True)
    memory = _memory()
    if memory is not None:
        advice = f"training may need {MEMORY:g} GB: close other programs, or choose a smaller --buffer-size"
        yield Finding("free memory", f"{memory:.1f} GB", memory >= MEMORY, advice)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    for what, place in (("this folder", Path.cwd()), ("cache of compiled programs", cache)):
        nearest = next(folder for folder in (place, *place.parents) if folder.exists())
        free = shutil.disk_usage(nearest).free / 2**30
        writable = os.access(nearest, os.W_OK)
        advice = "change to a folder that you may write to" if not writable else "free some space: a run needs up to 1 GB"
        text = f"{'writable' if writable else 'not writable'}, {free:.0f} GB free"
        yield Finding(what, text, writable and free > 1, advice)


def learning(train: Callable[..., Any] | None = None) -> Iterator[Finding]:
    """Yields whether a short training ends as it must."""
    import counterpoint

    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        run = (train or counterpoint.train)(**PROBE, save_dir=folder, seed=0, progress=False)
        seconds = time.perf_counter() - began
        team = counterpoint.load(run)
        success = float(team.evaluate(200, seed=1).metrics["success"].mean())
    advice = "reinstall the pinned versions: pip install --force-reinstall counterpoint"
    how = f"after {PROBE['num_episodes']} episodes of simple, {seconds:.0f} s"
    text = f"success {success:.2f} {how} (expected: at least {LEARNED})"
    yield Finding("learning", text, success >= LEARNED, advice)


def speed() -> Iterator[Finding]:
    """Yields the speed of matrix products, and that of training, which should keep up with them."""
    products = gemm_rate()
    yield Finding("matrix products", f"{products / 1e9:.0f} GFLOP/s", True)
    rate = training_rate()
    expected = PER_GFLOP * products / 1e9
    advice = "other programs are using the processor, or it is throttled: compare `uptime` with the number of cores"
    text = f"{rate:,.0f} steps/s with the authors' settings (expected: at least {expected:,.0f})"
    yield Finding("training speed", text, rate >= expected, advice)


def gemm_rate(size: int = 1024, repeats: int = 5) -> float:
    """Returns the best rate of large float32 matrix products, in operations per second."""
    import jax
    import jax.numpy as jnp

    product, matrix = jax.jit(jnp.matmul), jnp.ones((size, size))
    product(matrix, matrix).block_until_ready()
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        product(matrix, matrix).block_until_ready()
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


def training_rate(episodes: int = 600) -> float:
    """Returns environment steps per second of training simple_spread with the authors' settings, without compiling."""
    import counterpoint

    settings: dict[str, Any] = {"scenario": "simple_spread", "warmup": 2500, "plots_dir": "", "eval_episodes": 0}
    with tempfile.TemporaryDirectory() as folder:
        run = counterpoint.train(
            **settings, num_episodes=episodes, report_every=100, save_rate=episodes, save_dir=folder, progress=False
        )
        rows = [(float(row["step"] or 0), float(row["seconds"] or 0)) for row in run.rows()]
    rates = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(rows[2:]) if b[1] > a[1]]
    return max(rates, default=0.0)


def extras() -> Iterator[Finding]:
    """Yields which optional packages are installed."""
    for name in EXTRAS:
        needed = _requirements(name)
        missing = [package for package in needed if _version(package) is None]
        advice = f"for {EXTRAS[name]}: pip install 'counterpoint[{name}]'"
        text = f"without {', '.join(missing)}" if missing else "installed"
        yield Finding(f"extra {name}", text, True, advice if missing else "")


EXTRAS = {
    "pettingzoo": "PettingZoo and Gymnasium environments",
    "jaxmarl": "--env jaxmarl:…",
    "gymnax": "--env gymnax:…",
    "unity": "Unity environments, which need two more packages (see the page on Unity)",
    "notebook": "notebooks, and metrics as a DataFrame",
    "export": "ONNX policies",
    "mp4": "films as MP4",
    "view": "counterpoint view",
    "ray": "distributed learners",
    "tensorboard": "--tensorboard",
    "wandb": "--wandb",
}
"""Every extra for users, and what it is for."""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _requirements(extra: str) -> dict[str, str]:
    """Returns the requirements of an extra, or those of the package itself, by the name of the required package."""
    found = {}
    for line in importlib.metadata.requires("counterpoint") or []:
        requirement, _, marker = line.partition(";")
        name = re.match(r"[\w.-]+", requirement)
        wanted = re.search(r"""extra\s*==\s*['"]([\w-]+)""", marker)
        if name and (wanted.group(1) if wanted else "") == extra and _concerns_this_python(marker):
            found[name.group()] = requirement.strip()
    return found


def _concerns_this_python(marker: str) -> bool:
    """Returns whether the marker of a requirement, such as `python_version >= '3.12'`, holds here."""
    least = re.search(r"""python_version\s*>=\s*['"](\d+)\.(\d+)""", marker)
    return least is None or sys.version_info[:2] >= (int(least[1]), int(least[2]))


def _memory() -> float | None:
    """Returns the gigabytes of memory that a program can still get, or None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) / 2**20 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
