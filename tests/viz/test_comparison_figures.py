"""Figures of comparisons draw the mean and the band of each group, in all formats and styles."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from counterpoint.core.errors import UsageError
from counterpoint.runs.stats import bootstrap_band
from counterpoint.viz import comparison

X = np.array([100.0, 200.0, 300.0])


def seeds(*levels: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """One straight curve per level."""
    return [(X, level + X / 100) for level in levels]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures written so far, as SVG alone."""
    figures: list[Figure] = []
    savefig = Figure.savefig

    def keep(figure: Figure, *args: Any, **options: Any) -> None:
        figures.append(figure)
        savefig(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    monkeypatch.setattr(comparison, "SUFFIXES", (".svg",))
    return figures


def test_three_formats_are_written_and_repeat_to_the_byte(tmp_path: Path) -> None:
    paths = comparison.curves({"spread": {"maddpg": seeds(1.0)}}, tmp_path, "episodes", "return")
    assert [path.name for path in paths] == ["curves.png", "curves.pdf", "curves.svg"]
    first = [path.read_bytes() for path in paths]
    assert [text[:4] for text in first[:2]] == [b"\x89PNG", b"%PDF"]
    comparison.curves({"spread": {"maddpg": seeds(1.0)}}, tmp_path, "episodes", "return")
    assert [path.read_bytes() for path in paths] == first


def test_each_environment_has_a_panel_with_the_mean_of_each_group(tmp_path: Path, drawn: list[Figure]) -> None:
    panels = {"spread": {"maddpg": seeds(0.0, 1.0), "ddpg": seeds(5.0)}, "tag": {"ddpg": seeds(7.0)}}
    comparison.curves(panels, tmp_path, "episodes", "return")
    spread, tag = drawn[0].axes
    assert (spread.get_title(loc="left"), tag.get_title(loc="left")) == ("spread", "tag")
    lines = {line.get_label(): line for line in spread.lines}
    np.testing.assert_allclose(np.asarray(lines["maddpg"].get_ydata()), [1.5, 2.5, 3.5])
    assert len(spread.collections) == 1  # a single seed has no band
    assert tag.lines[0].get_color() == lines["ddpg"].get_color() != lines["maddpg"].get_color()
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["maddpg", "ddpg"]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_bands_of_few_seeds_are_their_range(count: int) -> None:
    group = seeds(*np.arange(count, dtype=float))
    _, average, low, high = comparison.band_of(group)
    np.testing.assert_allclose(average, (count - 1) / 2 + X / 100)
    if count <= 3:
        np.testing.assert_allclose([low, high], [X / 100, count - 1 + X / 100])
    else:
        np.testing.assert_allclose([low, high], bootstrap_band(np.stack([y for _, y in group])))
        assert (low > X / 100).all()


def test_seeds_that_never_overlap_are_refused() -> None:
    with pytest.raises(UsageError, match="share no part of the axis"):
        comparison.band_of([(X, X), (X + 1000, X)])


def test_smoothing_scale_width_and_style(tmp_path: Path, drawn: list[Figure]) -> None:
    panels = {"spread": {"maddpg": seeds(0.0)}}
    comparison.curves(panels, tmp_path, "episodes", "return", smooth=2, look=comparison.Look(width=4.0, log=True))
    paper = drawn[0].axes[0]
    np.testing.assert_allclose(np.asarray(paper.lines[0].get_ydata()), [1.0, 1.5, 2.5])
    assert paper.get_yscale() == "log"
    assert drawn[0].get_figwidth() == 4
    comparison.curves({"spread": {"m": seeds(-9.0)}}, tmp_path, "x", "y", look=comparison.Look("slide", log=True))
    slide = drawn[1].axes[0]
    assert slide.get_yscale() == "symlog"
    assert drawn[1].get_figwidth() == 12
    assert slide.lines[0].get_linewidth() > 2 * paper.lines[0].get_linewidth()
    assert slide.xaxis.label.get_fontsize() > 2 * paper.xaxis.label.get_fontsize()


def test_shares_show_their_whole_range(tmp_path: Path, drawn: list[Figure]) -> None:
    comparison.curves({"spread": {"maddpg": [(X, X / 1000)]}}, tmp_path, "episodes", "success")
    assert drawn[0].axes[0].get_ylim() == (-0.03, 1.03)


def test_many_groups_differ_in_colour_or_line() -> None:
    looks = comparison.colours_of({"": {f"group {i}": [] for i in range(20)}})
    assert len({tuple(look.values()) for look in looks.values()}) == 20


def test_four_panels_take_two_rows_and_hide_the_rest(tmp_path: Path, drawn: list[Figure]) -> None:
    comparison.curves({f"env {i}": {"maddpg": seeds(i)} for i in range(4)}, tmp_path, "episodes", "return")
    assert [axes.get_visible() for axes in drawn[0].axes] == [True] * 4 + [False] * 2
    assert [axes.get_xlabel() for axes in drawn[0].axes[:4]] == ["", "episodes", "episodes", "episodes"]


def test_profiles_show_shares_with_bands(tmp_path: Path, drawn: list[Figure]) -> None:
    share = np.array([1.0, 0.5, 0.0])
    comparison.profiles(np.array([0.0, 0.5, 1.0]), {"maddpg": (share, share - 0.1, share + 0.1)}, tmp_path)
    (axes,) = drawn[0].axes
    np.testing.assert_allclose(np.asarray(axes.lines[0].get_ydata()), share)
    assert len(axes.collections) == 1
    assert (tmp_path / "profiles.svg").exists()


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (500.0, "500"), (2e4, "20k"), (1.5e6, "1.5M")])
def test_axis_numbers_are_short(value: float, text: str) -> None:
    assert comparison._short_number(value) == text
