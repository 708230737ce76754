"""Checkpoints written in the background."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from counterpoint.runs.folder import Run


class Saver:
    """Saves a run on one background thread while training continues; `with Saver(run) as saver: …`.

    Submit arrays that nobody else changes: the saver does not copy them. The next call raises the error of a failed save.
    """

    def __init__(self, run: Run) -> None:
        self._save: Callable[..., None] = run.save
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="counterpoint-saver")
        self._pending: Future[None] | None = None

    def submit(self, *args: Any, **kwargs: Any) -> None:
        """Waits for the previous save, then starts `Run.save` with these arguments."""
        self.wait()
        self._pending = self._thread.submit(self._save, *args, **kwargs)

    def wait(self) -> None:
        """Returns when everything that was submitted is on disk."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Finishes the pending save and ends the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
