"""Selects how a run executes: compiled, with worker processes that step the environment, or with remote learners."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from counterpoint.config import Config
from counterpoint.runs import Run
from counterpoint.training.external import external_engine, info_columns
from counterpoint.training.learners import learners
from counterpoint.training.loop import Engine, Program, compiled, compiled_pieces, stepped


@contextmanager
def open_engine(
    config: Config, program: Program, run: Run, say: Callable[[str], None], stop: Callable[[], None]
) -> Iterator[Engine]:
    """Yields the engine of a run, with all its processes until the end of the block.

    `say` reports trouble in a sentence; `stop` asks the run to save and stop.
    """
    t = config.training
    if config.distribution.learners:
        with learners(config, program, run, say, stop) as update:
            pieces = compiled_pieces(program)._replace(update=update)
            yield stepped(program, pieces)._replace(failure=lambda: update.failed)
    elif program.env.compiled is None:
        workers = t.workers or min(t.num_envs, os.cpu_count() or 1)
        metrics = info_columns(run.metrics_path)
        with external_engine(program, workers, t.worker_timeout, say, run.path / "logs", metrics) as engine:
            yield engine
    else:
        yield compiled(program)
