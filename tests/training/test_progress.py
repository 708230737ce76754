"""What a person sees of a run: lines in a pipe, one updating line in a notebook, nothing on request."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest

import counterpoint
from counterpoint.training import progress
from counterpoint.training.progress import Console, Notebook, Progress, shown
from tiny import TINY

SHORT: dict[str, Any] = TINY | {"scenario": "simple", "num_episodes": 16, "warmup": 100}


def test_a_pipe_gets_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counterpoint.train(**SHORT, save_dir=str(tmp_path))
    said = capsys.readouterr().out
    assert said.startswith("simple: 1 agent, maddpg, 16 episodes")
    assert "100%  episode 16/16" in said


class Handle:
    """A line of a notebook, with everything that it has shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, data: dict[str, str], raw: bool) -> None:
        assert raw
        self.shown.append(data["text/plain"])


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[Handle]:
    """Makes this process look like a notebook's kernel; returns the lines that it displays."""
    lines: list[Handle] = []

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        assert display_id
        lines.append(Handle())
        lines[-1].update(data, raw)
        return lines[-1]

    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return lines


def test_a_notebook_gets_one_line(notebook: list[Handle], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = counterpoint.train(**SHORT, save_dir=str(tmp_path))
    (line,) = notebook
    first, *middle, last = line.shown
    assert first.endswith("compiling …")
    assert any("episode 16/16" in text for text in middle)
    assert str(run.path) in last
    assert capsys.readouterr().out == ""


def test_the_display_suits_the_place(notebook: list[Handle], monkeypatch: pytest.MonkeyPatch) -> None:
    own = Progress()
    assert shown(own) is own
    assert type(shown(False)) is Progress
    assert isinstance(shown(None), Notebook)
    assert isinstance(shown(True), Notebook)
    sys.modules["IPython"].get_ipython = lambda: None  # imported, but not a kernel
    assert type(shown(None)) is Console
    monkeypatch.delitem(sys.modules, "IPython")
    assert not progress._in_notebook()
