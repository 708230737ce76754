"""Where compiled programs are kept from one process to the next."""

import os

import jax

THRESHOLD = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def keep_programs(folder: str) -> None:
    """Keeps programs that take long to compile in a folder ("": nowhere); JAX's environment variable may say how long."""
    jax.config.update("jax_compilation_cache_dir", folder or None)
    if THRESHOLD not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
