"""A program of another environment, .venv-bench or .venv-agile, asked line by line: JSON to its input, JSON from its output."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Probe:
    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def ask(self, **request: Any) -> dict[str, Any]:
        """The program's answer; lines that are no JSON are its libraries' greetings."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"{self._process.args} ended without an answer")


@contextmanager
def start(script: str, environment: str = ".venv-bench") -> Iterator[Probe]:
    """A running script of this folder."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([HERE.parent / environment / "bin/python", HERE / script], **pipes) as process:
        try:
            yield Probe(process)
        finally:
            process.terminate()
