"""Plots show the numbers of their runs, even if some values are missing."""

import math
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from counterpoint.core.errors import UsageError
from counterpoint.viz import plots

TEAMS = ("good", "adversary")


def rows_of(seeds=3, reports=8, teams=TEAMS, metrics=("touches", "caught"), every=2):
    """A made-up run: team k of seed s has return 10 k + s + report, the last metric is a share, both only at evaluations."""
    return [
        {"step": 2500 * (i + 1), "episode": 100 * (i + 1), "seed": seed, "note": "fine"}
        | {f"team/{team}": 10.0 * k + seed + i for k, team in enumerate(teams)}
        | {f"return/{team}_0": 0.0 for team in teams}
        | {"return_sum": 1.0, "eval/team/good": 2.0, "eval/return/good_0": 2.0, "eval/return_sum": 2.0, "eval/length": 25}
        | {f"eval/{metric}": "" if (i + 1) % every else i / (1 + 9 * k) for k, metric in enumerate(metrics)}
        for seed in range(seeds)
        for i in range(reports)
    ]


@pytest.fixture
def drawn(monkeypatch):
    """The matplotlib figures written so far."""
    figures, savefig = [], Figure.savefig

    def keep(figure, *args, **options):
        figures.append(figure)
        savefig(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def bold(axes):
    """The lines of the means, by label."""
    return {line.get_label(): line for line in axes.lines if line.get_linewidth() > 1}


def faint(axes):
    return [line for line in axes.lines if line.get_linewidth() < 1]


def test_learning_curve_shows_teams_and_the_metrics_of_the_environment(tmp_path, drawn):
    plots.learning_curve(rows_of(), tmp_path / "run.png", "simple_tag, 3 seeds")
    training, touches, caught = drawn[0].axes
    assert list(bold(training)) == ["good", "adversary"]
    np.testing.assert_allclose(bold(training)["good"].get_xydata(), [(100 * (i + 1), i + 1) for i in range(8)])
    np.testing.assert_allclose(bold(training)["adversary"].get_ydata(), [i + 11 for i in range(8)])
    assert bold(training)["good"].get_color() != bold(training)["adversary"].get_color()
    assert len(faint(training)) == 6
    assert len(training.collections) == 2  # bands
    assert "mean of a team's agents" in training.get_ylabel()
    assert training.get_xlabel() == "episodes"
    assert [text.get_text() for text in training.get_legend().get_texts()] == ["good", "adversary"]
    assert drawn[0].get_suptitle() == "simple_tag, 3 seeds"
    assert (touches.get_title("left"), caught.get_title("left")) == ("eval: touches", "eval: caught")
    (line,) = bold(touches).values()
    np.testing.assert_allclose(line.get_xydata(), [(200, 1), (400, 3), (600, 5), (800, 7)])
    assert caught.get_ylim() == (-0.03, 1.03)
    assert touches.get_ylim() != (-0.03, 1.03)


@pytest.mark.parametrize("scale", [1, 15, 40, 120, 750])
def test_labels_of_episodes_do_not_run_into_each_other(tmp_path, drawn, scale):
    rows = [row | {"episode": scale * row["episode"]} for row in rows_of(metrics=("distance", "final_distance", "success"))]
    plots.learning_curve(rows, tmp_path / "run.png")
    drawn[0].draw_without_rendering()  # positions at the figure's own resolution
    for axes in drawn[0].axes:
        low, high = axes.get_xlim()
        shown = [label.get_window_extent() for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high]
        assert len(shown) > 1
        assert all(a.x1 + 4 < b.x0 for a, b in pairwise(shown))
        assert shown[-1].x1 <= drawn[0].bbox.x1


def test_one_seed_has_no_band_and_one_report_is_a_dot(tmp_path, drawn):
    plots.learning_curve(rows_of(seeds=1, reports=1, teams=("good",)), tmp_path / "run.png")
    (training,) = drawn[0].axes  # no evaluation yet, so no panel for it
    assert not training.collections
    assert not faint(training)
    assert training.get_legend() is None
    assert bold(training)["good"].get_marker() == "o"
    np.testing.assert_allclose(bold(training)["good"].get_xydata(), [(100, 0)])


def test_seeds_are_averaged_over_the_episodes_that_all_reached(tmp_path, drawn):
    rows = rows_of(seeds=2)[:-3]
    rows[2]["team/good"] = math.nan  # a gap is bridged
    plots.learning_curve(rows, tmp_path / "run.png")
    training = drawn[0].axes[0]
    np.testing.assert_allclose(bold(training)["good"].get_xydata(), [(100 * (i + 1), i + 0.5) for i in range(5)])
    assert [len(line.get_xdata()) for line in faint(training)] == [7, 5, 8, 5]


def test_compare_draws_a_line_per_run(tmp_path, drawn):
    runs = {"MADDPG": rows_of(seeds=2), "DDPG": rows_of(seeds=1, reports=5)}
    plots.compare(runs, tmp_path / "runs.png", column="team/adversary", title="tag")
    (axes,) = drawn[0].axes
    np.testing.assert_allclose(bold(axes)["MADDPG"].get_ydata(), [i + 10.5 for i in range(8)])
    np.testing.assert_allclose(bold(axes)["DDPG"].get_xydata(), [(100 * (i + 1), i + 10) for i in range(5)])
    assert not faint(axes)
    assert axes.get_ylabel() == "return per episode\n(mean of team adversary)"
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["MADDPG", "DDPG"]
    frame, legend = axes.get_window_extent(), drawn[0].legends[0].get_window_extent()
    assert legend.x0 > frame.x1  # beside the curves, not over them


def test_compare_smooths_over_the_raw_curve(tmp_path, drawn):
    plots.compare({"a": rows_of(seeds=2)}, tmp_path / "runs.png", smooth=3)
    (axes,) = drawn[0].axes
    np.testing.assert_allclose(bold(axes)["a"].get_ydata(), [0.5, 1, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5])
    (raw,) = faint(axes)
    np.testing.assert_allclose(raw.get_ydata(), [i + 0.5 for i in range(8)])
    assert not drawn[0].legends


def test_seeds_without_a_common_episode_are_still_drawn(tmp_path, drawn):
    late = [{"episode": 50.0, "seed": 0, "team/good": 1.0}, {"episode": 60.0, "seed": 1, "team/good": 2.0}]
    plots.compare({"a": late}, tmp_path / "runs.png")
    assert [line.get_ydata().tolist() for line in faint(drawn[0].axes[0])] == [[1.0], [2.0]]


def test_many_runs_can_be_distinguished(tmp_path, drawn):
    plots.compare({f"run {i}": rows_of(seeds=1) for i in range(9)}, tmp_path / "runs.svg")
    looks = {(str(line.get_color()), line.get_linestyle()) for line in bold(drawn[0].axes[0]).values()}
    assert len(looks) == 9


@pytest.mark.parametrize(
    ("column", "label"),
    [
        ("return/good_0", "return per episode\n(good_0)"),
        ("return_sum", "return per episode\n(sum over agents)"),
        ("eval/team/good", "eval: return per episode\n(mean of team good)"),
        ("eval/caught", "eval: caught"),
        ("critic_loss/good_0", "critic loss good_0"),
    ],
)
def test_axis_says_what_is_measured(column, label):
    assert plots.axis_label(column) == label


def test_later_report_of_an_episode_counts():
    rows = [{"episode": 2, "team/good": 5.0}, {"episode": 1, "team/good": 4.0}, {"episode": 2, "team/good": 6.0}]
    ((episodes, values),) = plots.curves(rows, "team/good")
    assert (episodes.tolist(), values.tolist()) == ([1, 2], [4, 6])


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_suffix_chooses_the_format_and_same_rows_give_the_same_file(tmp_path, suffix, start):
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    for path in (first, second):
        plots.compare({"a": rows_of()}, path)
    assert first.read_bytes().startswith(start)
    assert first.read_bytes() == second.read_bytes()
    assert b"CreationDate" not in first.read_bytes()  # equal tomorrow too
    assert sorted(tmp_path.iterdir()) == [first, second]  # no drafts left


def test_dpi_scales_a_png(tmp_path):
    for dpi in (100, 300):
        plots.compare({"a": rows_of()}, tmp_path / f"{dpi}.png", dpi=dpi)
    small, large = (matplotlib.image.imread(tmp_path / f"{dpi}.png").shape for dpi in (100, 300))
    assert large[0] == pytest.approx(3 * small[0], abs=3)


def test_global_style_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "axes.linewidth", 7.0)
    before = dict(matplotlib.rcParams)
    plots.compare({"a": rows_of()}, tmp_path / "a.png")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda folder: plots.compare({"a": rows_of()}, folder / "a.jpg"), r"\.png, \.svg, \.pdf"),
        (lambda folder: plots.compare({"a": rows_of()}, folder / "none" / "a.png"), "existing folder"),
        (lambda folder: plots.compare({}, folder / "a.png"), "at least one run"),
        (
            lambda folder: plots.compare({"b": rows_of()}, folder / "a.png", "team/bad"),
            "'b' has no column 'team/bad'.*team/good",
        ),
        (lambda folder: plots.compare({"b": []}, folder / "a.png"), "no rows yet"),
        (lambda folder: plots.compare({"b": rows_of()}, folder / "a.png", "note"), "'note'"),
        (lambda folder: plots.compare({"b": rows_of()}, folder / "a.png", smooth=0), "at least 1"),
        (lambda folder: plots.learning_curve([], folder / "a.png"), "no rows yet"),
        (lambda folder: plots.learning_curve([{"episode": 1, "return_sum": 2.0}], folder / "a.png"), "episode, return_sum"),
    ],
)
def test_errors_name_the_fix_and_leave_no_file(tmp_path, call, words):
    with pytest.raises(UsageError, match=words):
        call(tmp_path)
    assert not list(tmp_path.iterdir())
