"""A run in a notebook, and its metrics as a table."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterpoint.runs import create, metrics
from counterpoint.runs.folder import Run

CONFIG: dict[str, Any] = {
    "algorithm": "maddpg",
    "world": {"scenario": "simple", "env": "<b>.py:World"},
    "training": {"num_episodes": 20, "num_seeds": 1},
}
ROWS: list[dict[str, Any]] = [
    {"step": 10, "episode": 5, "seed": 0, "team/good": -3.0, "eval/success": 0.25},
    {"step": 20, "episode": 10, "seed": 0, "team/good": -2.5},
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = create(tmp_path, "first", CONFIG)
    for row in ROWS:
        made.append_metrics(row)
    return made


def test_metrics_are_a_frame(run: Run) -> None:
    pandas = pytest.importorskip("pandas")
    table = run.metrics
    assert isinstance(table, pandas.DataFrame)
    assert list(table.columns) == list(ROWS[0])
    assert table["episode"].tolist() == [5, 10]
    assert np.isnan(table["eval/success"].iloc[1])


def test_metrics_are_arrays_without_pandas(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics.importlib.util, "find_spec", lambda name: None)
    table = run.metrics
    assert list(table) == list(ROWS[0])
    np.testing.assert_array_equal(table["episode"], [5, 10])
    assert table["episode"].dtype == int
    np.testing.assert_array_equal(table["eval/success"], [0.25, np.nan])


def test_metrics_of_a_run_that_just_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(create(tmp_path, "fresh", CONFIG).metrics) == 0
    monkeypatch.setattr(metrics.importlib.util, "find_spec", lambda name: None)
    assert create(tmp_path, "fresh", CONFIG).metrics == {}


def test_a_run_shows_table_curve_and_film(run: Run) -> None:
    run.curve_path.write_bytes(b"a curve")
    run.gif_path.write_bytes(b"a film")
    html = run._repr_html_()
    assert "10 of 20 episodes" in html
    assert "<td" in html
    assert "-2.50" in html
    assert "&lt;b&gt;.py:World" in html
    assert "<b>.py" not in html
    for kind, data in (("png", b"a curve"), ("gif", b"a film")):
        assert f"data:image/{kind};base64,{base64.b64encode(data).decode()}" in html


def test_a_run_that_just_began_shows_what_it_is(tmp_path: Path) -> None:
    html = create(tmp_path, "fresh", CONFIG)._repr_html_()
    assert "There is no report yet." in html
    assert "<img" not in html
