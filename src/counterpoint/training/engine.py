"""Who carries a run's program out: the compiled loop, or worker processes for a world that is not ours."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from counterpoint.config import Config
from counterpoint.training.hosted import Host, Hosted
from counterpoint.training.loop import Engine, Program, compiled


@contextmanager
def engine_of(config: Config, program: Program, say: Callable[[str], None]) -> Iterator[Engine]:
    """The engine that the settings ask for, with all its processes, until the end of the block; `say` tells of trouble."""
    t = config.training
    if not isinstance(program.env, Hosted):
        yield compiled(program)
        return
    workers = t.workers or min(t.num_envs, os.cpu_count() or 1)
    host = Host(program, program.env, config.learning, workers, t.worker_timeout, say)
    try:
        yield host.engine()
    finally:
        host.close()
