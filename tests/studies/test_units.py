"""Conversions between published units against numbers worked by hand, and against the published references."""

import numpy as np
import pytest

from counterpoint.core.errors import UsageError
from counterpoint.studies import scripted, units


def fake(monkeypatch):
    known = {
        ("simple_spread", "openai", "random"): units.Reference(-230.0, -231.0, -229.0, 10),
        ("simple_spread", "openai", "scripted"): units.Reference(-110.0, -111.0, -109.0, 10),
        ("simple_spread", "mpe2", "random"): units.Reference(-26.0, -27.0, -25.0, 10),
        ("simple_spread", "mpe2", "scripted"): units.Reference(-8.0, -8.1, -7.9, 10),
    }
    monkeypatch.setattr(units, "references", lambda: known)


def test_a_value_in_every_unit_by_hand(monkeypatch):
    """−170 of one agent is half-way from −230 to −110, so half-way from −26 to −8; sums are three times as much."""
    fake(monkeypatch)
    scale = units.units("\N{MINUS SIGN}170", "simple_spread", "openai")
    assert scale.share == pytest.approx(0.5)
    found = {converted.unit.name: (converted.value, converted.exact) for converted in scale.converted}
    assert found == {
        "openai": (pytest.approx(-170.0), True),
        "openai-sum": (pytest.approx(-510.0), True),
        "mpe2": (pytest.approx(-17.0), False),
        "mpe2-sum": (pytest.approx(-51.0), False),
    }
    back = units.units(-51.0, "simple_spread", "mpe2-sum")
    assert back.share == pytest.approx(0.5)
    assert units.table(scale)[2][:4] == ["mpe2", "≈ -17.0", "-26.0", "-8.0"]


def test_mistakes_are_named(monkeypatch):
    fake(monkeypatch)
    with pytest.raises(UsageError, match="'many' is not a number"):
        units.units("many", "simple_spread")
    with pytest.raises(UsageError, match="unknown unit 'metres': choose one of openai, openai-sum, mpe2, mpe2-sum"):
        units.units(1.0, "simple_spread", "metres")
    with pytest.raises(UsageError, match=r"no scale for 'simple_tag'.*depends on the opponent"):
        units.units(1.0, "simple_tag")


def test_the_recorded_references_agree_with_the_published_ones():
    """Random play, communicating in simple_speaker_listener, and the best assignment in simple_spread."""
    known = units.references()
    for key, published, tolerance in (
        (("simple_spread", "openai", "random"), -232.0, 3.0),
        (("simple_spread", "mpe2", "random"), -26.1, 0.5),
        (("simple_spread", "openai", "scripted"), -113.0, 1.5),
        (("simple_spread", "mpe2", "scripted"), -7.6, 0.3),
        (("simple_speaker_listener", "openai", "random"), -81.0, 4.0),
        (("simple_speaker_listener", "openai", "scripted"), -14.4, 1.5),
    ):
        assert known[key].mean == pytest.approx(published, abs=tolerance), key
    assert set(units.scenarios()) == set(scripted.SCRIPTED)


def test_recording_measures_both_policies_of_every_world(tmp_path, monkeypatch):
    monkeypatch.setattr(scripted, "SCRIPTED", {"simple": scripted.simple})
    path = units.record(tmp_path / "references.csv", episodes=100)
    lines = path.read_text().splitlines()
    assert lines[0] == "scenario,flavour,policy,mean,low,high,episodes"
    assert len(lines) == 5
    means = {tuple(line.split(",")[1:3]): float(line.split(",")[3]) for line in lines[1:]}
    assert means["mpe2", "scripted"] > 0.3 * means["mpe2", "random"]
    assert means["openai", "scripted"] > 0.3 * means["openai", "random"]


def test_shares_are_for_worlds_of_the_recorded_size(monkeypatch):
    fake(monkeypatch)
    world = {"scenario": "simple_spread", "env": "", "num_agents": 0, "num_adversaries": 0, "scenario_args": []}
    world |= {"flavour": "mpe2", "max_episode_len": 25}
    assert units.share_in_world(-17.0, world) == pytest.approx(0.5)
    assert units.share_in_world(-17.0, world | {"num_agents": 6}) is None
    assert units.share_in_world(-17.0, world | {"actions": "continuous"}) is None
    assert units.share_in_world(-17.0, world | {"scenario": "simple_tag"}) is None
    assert np.isclose(units.share_in_world(-8.0, world), 1.0)
