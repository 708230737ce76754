"""Folders of runs made of data alone, and the server of `counterpoint view` for tests."""

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from counterpoint import runs
from counterpoint.runs import Run

TOKEN = "the-token-of-the-tests"
HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>${alert(3)}%{y}\x1b[31m"\u202e'
"""A name that is markup, a script, a template, an escape sequence and a mark that reorders text."""


def made_run(
    folder: Path, name: str, reports: int = 20, seeds: int = 1, planned: int = 0, columns: Sequence[str] = (), **settings: Any
) -> Run:
    """Makes a run of `reports` reports, 100 episodes apart; `settings` are those of learning, or of the world and training."""
    world = {"scenario": settings.pop("scenario", "simple_spread"), "env": ""}
    first = settings.pop("seed", 0)
    training = {"num_episodes": planned or 100 * reports, "num_seeds": seeds, "seed": first}
    algorithm = settings.pop("algorithm", "maddpg")
    config = {"algorithm": algorithm, "world": world, "training": training, "learning": {"lr": 0.01} | settings}
    run = runs.create(folder, name, config)
    for report in range(1, reports + 1):
        for seed in range(first, first + seeds):
            run.append_metrics(row_of(report, seed, columns))
    return run


def row_of(report: int, seed: int = 0, columns: Sequence[str] = ()) -> dict[str, Any]:
    """Returns a report, as training writes it."""
    value = -50 + 2 * report + seed
    return {
        **{"step": 2500 * report, "episode": 100 * report, "seed": seed, "seconds": 1.5 * report, "steps_per_second": 1666.7},
        **{
            "length": 25.0,
            "return_sum": 3.0 * value,
            "team/good": value,
            "return/agent_0": value - 1,
            "return/agent_1": value + 1,
        },
        **{"eval/team/good": value + 2.0, "eval/success": min(1.0, report / 40), "critic_loss/agent_0": 1 / report},
        **dict.fromkeys(columns, float(report)),
    }


class Server(NamedTuple):
    """A server that answers."""

    origin: str
    link: str


@contextmanager
def served(root: Path, **options: Any) -> Iterator[Server]:
    """Serves a folder of runs in a thread, on a free port."""
    import uvicorn

    from counterpoint.view.server import application

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app = application(root, TOKEN, port, **options)
    settings = uvicorn.Config(app, log_level="error", access_log=False, server_header=False, ws="none", lifespan="off")
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        origin = f"http://127.0.0.1:{port}"
        yield Server(origin, f"{origin}/?token={TOKEN}")
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def learners_table(run: Run, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes tasks of learners beside a run's metrics."""
    run.append_learners(list(rows[0]), rows)
