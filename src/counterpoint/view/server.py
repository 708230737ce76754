"""The server of `counterpoint view`: one page on this machine that shows the runs in a folder, also while they train."""

import secrets
import socket
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import plotly  # pyright: ignore[reportMissingImports] — an extra
import uvicorn  # pyright: ignore[reportMissingImports]
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from counterpoint import __version__
from counterpoint.core.errors import UsageError
from counterpoint.runs import history
from counterpoint.runs.folder import RUNS, find
from counterpoint.view import charts
from counterpoint.view.advice import advice
from counterpoint.view.catalogue import Catalogue, Remembered, WatchedRun, cleaned, damage_as_text, id_of, text_of
from counterpoint.view.curves import plain
from counterpoint.view.guard import App, Guard, styles_of
from counterpoint.viz.plots import hex_of
from counterpoint.viz.timeline import OUTCOMES, timeline

LOOPBACK = "127.0.0.1"
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
"""Plotly's script, as its Python package ships it."""
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
LARGEST_FILM = 64_000_000
"""Bytes of a film that is shown."""
MOST_RUNS = 400
"""Runs of one request at most."""


class Unknown(Exception):
    """A run that is not in the folder."""


def serve(folder: str | Path = RUNS, port: int = 0, open_browser: bool = False, trust: bool = False) -> None:
    """Serves the runs in a folder until it is interrupted, and prints the link to its page.

    A single run stands for the folder that it is in. Port 0 is any free one.
    """
    ready = prepare(folder, port, trust)
    print(f"the runs in {ready.root} → {ready.link}", flush=True)
    print("The page is only for you: it is served on this machine, and the link holds the key. Ctrl-C ends it.", flush=True)
    if open_browser:
        webbrowser.open(ready.link)
    with suppress(KeyboardInterrupt):
        ready.run()


class Ready(NamedTuple):
    """A server whose port is open, and which answers as soon as it runs."""

    root: Path
    link: str
    listener: socket.socket
    server: uvicorn.Server

    def run(self) -> None:
        """Answers requests until the server is told to exit."""
        with self.listener:
            self.server.run(sockets=[self.listener])


def prepare(folder: str | Path, port: int, trust: bool) -> Ready:
    """Opens a port of this machine for the runs in a folder; refuses a port that is taken."""
    root, chosen = place_of(folder)
    try:
        listener = socket.create_server((LOOPBACK, port))
    except (OSError, OverflowError) as error:
        raise UsageError(f"--port {port} cannot be used ({error}): leave it out to get a free one.") from None
    port, token = listener.getsockname()[1], secrets.token_urlsafe(24)
    app = application(root, token, port, trust)
    link = f"http://{LOOPBACK}:{port}/?token={token}" + (f"#run={id_of(chosen)}" if chosen else "")
    settings = uvicorn.Config(app, log_level="error", access_log=False, server_header=False, ws="none", lifespan="off")
    return Ready(root, link, listener, uvicorn.Server(settings))


def place_of(folder: str | Path) -> tuple[Path, str]:
    """Returns the folder to serve, and the name of the run to open first if a run was given."""
    path = find(folder)
    if not path.is_dir() and (RUNS / path).is_dir():  # the bare name of a grid
        path = RUNS / path
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder: name the folder that contains the runs, such as ./runs.")
    if (path / "config.json").exists():
        whole = path.resolve()
        return whole.parent, whole.name
    return path, ""


def application(root: Path, token: str, port: int, trust: bool = False) -> App:
    """Returns the guarded application."""
    pages = Pages(root, trust)
    routes = [
        Route("/", pages.index),
        Route("/app/{name}", pages.own_file),
        Route("/plotly.js", pages.plotly),
        Route("/film", answered(pages.film)),
        Route("/stage", answered(pages.stage)),
        Route("/api/runs", answered(pages.runs)),
        Route("/api/run", answered(pages.run)),
        Route("/api/metrics", answered(pages.metrics)),
        Route("/api/curves", answered(pages.curves)),
        Route("/api/curves.csv", answered(pages.table)),
        Route("/api/statistics", answered(pages.statistics)),
        Route("/api/learners", answered(pages.learners)),
        Route("/api/stage", answered(pages.ready)),
        Route("/api/policy", answered(pages.policy)),
    ]
    guard = Guard(Starlette(routes=routes), token, port, styles_of(PLOTLY.read_text(encoding="utf-8")))
    pages.cookie = (guard.cookie, token)
    return guard


def answered(handle: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Returns a handler whose refusals are sentences: 404 for a run that is not in the folder, 422 for what cannot be shown."""

    def answer(request: Request) -> Response:
        try:
            return handle(request)
        except Unknown:
            return json_of({"error": "There is no such run in this folder."}, 404)
        except UsageError as error:
            return json_of({"error": str(error)}, 422)
        except OSError as error:
            return json_of({"error": f"A file of the run cannot be read ({error.strerror})."}, 422)
        except Exception as error:  # whatever a folder from somewhere else provokes, the other runs are still shown
            return json_of({"error": f"This run cannot be shown ({type(error).__name__}: {str(error)[:200]})."}, 500)

    return answer


def json_of(data: Any, status: int = 200) -> Response:
    return JSONResponse(cleaned(data), status)


class Pages:
    """What each address answers."""

    def __init__(self, root: Path, trust: bool) -> None:
        self.catalogue = Catalogue(root)
        self.cookie: tuple[str, str] = ("", "")
        self._trust = trust
        self._stages: Any = None
        self._drawn, self._judged, self._advice = Remembered(16), Remembered(16), Remembered(64)
        self._files = {file.name: file for file in (resources.files("counterpoint.view") / "app").iterdir()}

    # --- The page itself.

    def index(self, request: Request) -> Response:
        text = self._files["index.html"].read_text(encoding="utf-8").replace("{{version}}", __version__)
        answer = Response(text, media_type="text/html")
        name, token = self.cookie
        answer.set_cookie(name, token, httponly=True, samesite="strict", path="/")
        return answer

    def own_file(self, request: Request) -> Response:
        name = request.path_params["name"]
        kind = KINDS.get(Path(name).suffix)
        if name not in self._files or kind is None:
            return PlainTextResponse("There is no such file.\n", 404)
        return Response(self._files[name].read_bytes(), media_type=kind)

    def plotly(self, request: Request) -> Response:
        return FileResponse(PLOTLY, media_type="text/javascript", headers={"cache-control": "private, max-age=86400"})

    # --- Runs.

    def runs(self, request: Request) -> Response:
        return JSONResponse(self.catalogue.changes(number(request, "since", -1)))

    def run(self, request: Request) -> Response:
        run, key = self._run(request), request.query_params["run"]
        item = self.catalogue.item(key)
        if item is None:
            raise Unknown
        found = self._advice.get((key, item.files, item.now), lambda: advice(run, item))
        return json_of(
            {
                "advice": found,
                "settings": [[name, text_of(value)] for name, value in item.summary.settings.items()],
                "changes": [", ".join(f"{name}: {text_of(value)}" for name, value in one.items()) for one in run.changes],
                "policies": sorted(history.kept(run)),
                "film": run.gif_path.is_file(),
                "trusted": self._trust or run.is_trusted(),
            }
        )

    def metrics(self, request: Request) -> Response:
        return json_of({"families": charts.offered(self._runs(request))})

    # --- Curves and statistics.

    def curves(self, request: Request) -> Response:
        wish = self._wish(request)
        return json_of(self._drawn.get(self._state(request), lambda: charts.drawn(wish)))

    def statistics(self, request: Request) -> Response:
        wish = self._wish(request)
        return json_of(self._judged.get(self._state(request), lambda: charts.judged(wish)))

    def table(self, request: Request) -> Response:
        headers = {"content-disposition": 'attachment; filename="curves.csv"'}
        return Response(charts.table(self._wish(request)), media_type="text/csv", headers=headers)

    # --- Learners.

    def learners(self, request: Request) -> Response:
        run = self._run(request)
        if not run.learners_path.is_file():
            raise UsageError("The run was not distributed, so it has no learners.")
        with damage_as_text():
            found = timeline(run.learners_path, min(max(number(request, "updates", 12), 1), 200))
        return json_of(
            {
                "tasks": [task._asdict() for task in found.tasks],
                "begins": list(found.begins.items()),
                "end": found.end,
                "learners": [{"learner": learner, **counts} for learner, counts in found.counts.items()],
                "colours": {name: hex_of(colour) for name, colour in OUTCOMES.items()},
            }
        )

    # --- The stage.

    def ready(self, request: Request) -> Response:
        """Builds the stage, which then is at hand, or says why there is none."""
        return json_of({"note": self._stage(request).note})

    def stage(self, request: Request) -> Response:
        stage = self._stage(request)
        return Response(stage.html, media_type="text/html", headers={"content-security-policy": stage.allowed})

    def policy(self, request: Request) -> Response:
        run = self._run(request)
        return json_of(self.stages.newest(run, number(request, "seed", 0)))

    def film(self, request: Request) -> Response:
        path = self._run(request).gif_path
        if not path.is_file() or path.stat().st_size > LARGEST_FILM:
            raise Unknown
        data = path.read_bytes()
        if not data.startswith((b"GIF87a", b"GIF89a")):
            raise UsageError("The film of the run is damaged.")
        return Response(data, media_type="image/gif")

    @property
    def stages(self) -> Any:
        """The stages; JAX is imported for the first one."""
        if self._stages is None:
            from counterpoint.view.stages import Stages

            self._stages = Stages(self._trust)
        return self._stages

    # --- Fields of a request.

    def _run(self, request: Request) -> WatchedRun:
        run = self.catalogue.run(request.query_params.get("run", ""))
        if run is None:
            raise Unknown
        return run

    def _runs(self, request: Request) -> list[WatchedRun]:
        keys = list(dict.fromkeys(request.query_params.getlist("run")))
        if len(keys) > MOST_RUNS:
            raise UsageError(f"{len(keys)} runs are too many for one chart: choose at most {MOST_RUNS}.")
        found = [self.catalogue.run(key) for key in keys]
        if not found or None in found:
            raise Unknown
        return [run for run in found if run is not None]

    def _others(self, request: Request) -> list[WatchedRun]:
        found = map(self.catalogue.run, request.query_params.getlist("with"))
        return [run for run in found if run is not None]

    def _stage(self, request: Request) -> Any:
        run, others = self._run(request), self._others(request)
        return self.stages.stage(run, number(request, "seed", 0), others)

    def _wish(self, request: Request) -> charts.Wish:
        return charts.wish_of(self._runs(request), request.query_params)

    def _state(self, request: Request) -> Any:
        """Returns what an answer about runs depends on."""
        items = [self.catalogue.item(key) for key in request.query_params.getlist("run")]
        return str(request.query_params), tuple(item.files[:2] for item in items if item)


def number(request: Request, name: str, default: int) -> int:
    """Returns a field of a request as a whole number, or the default."""
    try:
        return int(request.query_params.get(name, default))
    except ValueError:
        raise UsageError(f"{name} must be a whole number, not {plain(request.query_params[name])[:40]}.") from None
