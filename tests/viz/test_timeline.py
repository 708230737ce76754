"""The timeline shows each task of the last updates, coloured by its outcome."""

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from counterpoint.core.errors import UsageError
from counterpoint.viz.plots import hex_of
from counterpoint.viz.timeline import OUTCOMES, timeline_figure

HEADER = "update,learner,sent,waited,computed,arrived,outcome\n"


def test_each_task_is_a_bar_of_its_learner(tmp_path, monkeypatch):
    drawn, savefig = [], Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **k: (drawn.append(figure), savefig(figure, *a, **k)))
    tasks = "0,0,0,0,1,1,used\n1,0,0.0,0.5,1.0,2.0,used\n1,2,0.0,0.0,1.5,3.0,lost\n"
    (tmp_path / "learners.csv").write_text(HEADER + tasks)
    timeline_figure(tmp_path / "learners.csv", tmp_path / "learners.png", updates=1)
    (axes,) = drawn[0].axes
    bars = [
        (round(bar.get_y() + bar.get_height() / 2), bar.get_x(), bar.get_width(), to_hex(bar.get_facecolor()))
        for bar in axes.patches
        if bar.get_width()
    ]
    used, lost = hex_of(OUTCOMES["used"]), hex_of(OUTCOMES["lost"])
    assert bars == [(0, 0.0, 2.0, used), (0, 0.5, 1.0, used), (2, 0.0, 3.0, lost), (2, 0.0, 1.5, lost)]
    assert axes.get_title("left").startswith("updates 1 to 1")
    assert (tmp_path / "learners.png").stat().st_size > 5000


def test_a_file_without_tasks_is_refused(tmp_path):
    (tmp_path / "learners.csv").write_text(HEADER)
    with pytest.raises(UsageError, match="lists no tasks yet"):
        timeline_figure(tmp_path / "learners.csv", tmp_path / "learners.png")
