"""Remote learners of a run: starts them, records what they do in the run's folder, and ends them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from counterpoint.coded import learner, ray_transport
from counterpoint.coded.controller import Controller, work_of
from counterpoint.coded.planner import COLUMNS
from counterpoint.config import Config
from counterpoint.runs import metrics
from counterpoint.runs.folder import Run
from counterpoint.training.loop import Program
from counterpoint.viz.timeline import timeline_figure


def require_ray(config: Config) -> None:
    """Refuses a run whose learners cannot be started."""
    if config.distribution.learners:
        ray_transport.require_ray()


@contextmanager
def learners(
    config: Config, program: Program, run: Run, say: Callable[[str], None], fail: Callable[[], None]
) -> Iterator[Controller]:
    """Yields the update of a distributed run, computed by its learners."""
    settings = config.distribution
    say(f"starting {settings.learners} learners …")
    work = work_of(program.algo, program.memory, settings.pad)
    learner.compiled(work)  # leaves the program in the cache, where every learner of this machine finds it
    transport = ray_transport.RayTransport(work, settings.learners, settings.ray_address)
    controller = Controller(
        program.algo,
        work,
        settings,
        transport,
        seed=config.training.seed,
        say=say,
        record=lambda rows: run.append_learners(COLUMNS, rows),
        fail=fail,
        first=_updates_recorded(run),
    )
    try:
        yield controller
    finally:
        controller.close()
        if run.learners_path.exists():
            timeline_figure(run.learners_path, run.path / "learners.png")


def _updates_recorded(run: Run) -> int:
    """Returns how many updates the timeline already holds: a resumed run adds to it."""
    if not run.learners_path.exists():
        return 0
    updates = [row.get("update") for row in metrics.read_rows(run.learners_path)]
    return 1 + max((number for number in updates if isinstance(number, int)), default=-1)
