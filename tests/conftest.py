"""Session settings: what JAX forgives silently, the tests forbid loudly."""

import os
from typing import runtime_checkable

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2".strip()

import jax
from hypothesis import settings
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")

# Every annotated function of the package checks its arguments and result, shapes included, while tests run.
install_import_hook("counterpoint", "beartype.beartype")

from counterpoint.types import Env  # noqa: E402 — the hook comes first

runtime_checkable(Env)  # beartype asks isinstance; the package itself never does

settings.register_profile("counterpoint", deadline=None, derandomize=True, database=None)
settings.load_profile("counterpoint")
