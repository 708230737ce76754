"""The page of `counterpoint view` from Python: it is served by a thread while the program goes on."""

import os
import threading
import webbrowser
from importlib import import_module
from types import ModuleType
from typing import Any

from counterpoint.core.errors import UsageError


class RunsPage:
    """A page that is being served. It ends with `close`, with its `with` block, or with the program."""

    url: str
    """The link to the page. It holds the key, so whoever has it and uses this machine can read the runs."""

    def __init__(self, ready: Any) -> None:
        self.url = ready.link
        self._server = ready.server
        self._thread = threading.Thread(target=ready.run, name="counterpoint view", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits until the page is closed or the program is interrupted."""
        try:
            self._thread.join()
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """Ends the server; closing it again does nothing."""
        self._server.should_exit = True
        self._thread.join()

    def __enter__(self) -> "RunsPage":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RunsPage({self.url!r})"


def view_runs(
    runs: str | os.PathLike[str] = "./runs", port: int = 0, open_browser: bool = False, trust: bool = False
) -> RunsPage:
    """Serves the runs in a folder to the browser, as `counterpoint view` does, and returns at once.

    Args:
        runs: Folder that contains the runs, or one of them.
        port: Port of the page; 0 chooses a free one.
        open_browser: Open the page in the browser.
        trust: Let the stage execute code that runs name, such as their environment, even if you did not make them here.

    Returns:
        The page: `url` is its link, `close()` ends it, `wait()` keeps a script alive until Ctrl-C.
    """
    page = RunsPage(server_module().prepare(os.fspath(runs), port, trust))
    if open_browser:
        webbrowser.open(page.url)
    return page


def server_module() -> ModuleType:
    """Returns the module of the server; says which package is missing if the extra is not installed."""
    try:
        return import_module("counterpoint.view.server")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "counterpoint":
            raise
        raise UsageError(
            f"counterpoint view needs {error.name}, which is not installed: pip install 'counterpoint[view]'."
        ) from None
