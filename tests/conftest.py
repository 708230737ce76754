"""Session settings: what JAX forgives silently, the tests forbid loudly."""

import gc
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, runtime_checkable

if "COUNTERPOINT_TESTS" not in os.environ:  # workers inherit it
    os.environ["COUNTERPOINT_TESTS"] = tempfile.mkdtemp(prefix="counterpoint-tests-")
os.environ["XDG_CACHE_HOME"] = f"{os.environ['COUNTERPOINT_TESTS']}/cache"
os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{os.environ['XDG_CACHE_HOME']}/counterpoint"  # the folder that runs use, too
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"  # tests compile little things again and again
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XDG_CONFIG_HOME"] = os.path.join(os.environ["COUNTERPOINT_TESTS"], "config")  # the key that signs runs
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2".strip()

import jax
from beartype import beartype
from hypothesis import settings
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, types and shapes checked; but settings (a dataclass's __init__) refuse bad values in their own words."""
    return function if function.__name__ == "__init__" else beartype(function)


install_import_hook("counterpoint", "conftest.check")

from counterpoint.core.types import Env, Environment  # noqa: E402 — the hook comes first

for protocol in (Env, Environment):
    runtime_checkable(protocol)  # beartype asks isinstance; the package itself never does

gc.freeze()  # what the libraries made is never garbage
gc.set_threshold(50_000, 20, 100)  # tracing makes many objects, most of which live

settings.register_profile("counterpoint", deadline=None, derandomize=True, database=None)
settings.load_profile("counterpoint")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Marks the tests of thorough.txt, which `make test` leaves to `make test-thorough`."""
    listed = set((Path(__file__).parent / "thorough.txt").read_text().splitlines())
    for item in items:
        if item.nodeid in listed:
            item.add_marker("thorough")


def pytest_unconfigure() -> None:
    """The session leaves nothing behind."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["COUNTERPOINT_TESTS"], ignore_errors=True)
