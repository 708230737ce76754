"""The published table: rerun with learners as threads and waits of milliseconds."""

import csv
from typing import Any

import pytest

from counterpoint.coded import learner as learners
from counterpoint.coded import ray_transport as rays
from counterpoint.core.errors import UsageError
from counterpoint.studies import reproduce
from fake_learners import Threads

QUICK = reproduce.SETTINGS[0]._replace(
    delay=0.5,
    bars={"mds": (0.35, 0.35, 0.35), "uncoded": (0.05, 0.3, 0.3)},  # 8.6 ms per update, 1.4 ms besides
)


@pytest.fixture
def threads(monkeypatch):
    started: list[Any] = []

    def transport(work, num_learners, address=""):
        started.append(Threads(work, compiled(work)))
        return started[-1]

    original, known = learners.compiled, []

    def compiled(work):
        known.append(known[0] if known else original(work))
        return known[0]

    monkeypatch.setattr(learners, "compiled", compiled)
    monkeypatch.setattr(rays, "RayTransport", transport)
    monkeypatch.setattr(reproduce, "SETTINGS", (QUICK,))
    monkeypatch.setattr(reproduce, "_curves", lambda folder, episodes: None)
    return started


def test_every_scheme_is_measured_once_and_written_up(threads, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reproduce, "PAPER", ("uncoded", "replication"))
    monkeypatch.setattr(reproduce, "OURS", ("backup",))
    reproduce.reproduce("wang2021", True, str(tmp_path))
    folder = tmp_path / "wang2021-quick"
    table = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    assert [(row["late"], row["scheme"]) for row in table] == [
        (k, scheme) for k in ("0", "2") for scheme in ("uncoded", "replication", "backup")
    ]
    assert table[0]["published, s"] == "0.05"
    assert table[1]["published, s"] == ""
    assert float(table[3]["predicted, s"]) == pytest.approx(5 * (QUICK.unit + QUICK.overhead + QUICK.delay))
    means = {(row["late"], row["scheme"]): float(row["ours, s"]) for row in table}
    assert means["2", "uncoded"] > 5 * QUICK.delay, "both of the late are among the eight that count"
    assert means["2", "backup"] < means["2", "uncoded"]
    assert "best of the paper's" in (folder / "table.md").read_text()
    assert (folder / "bars.png").stat().st_size > 5000
    reproduce.reproduce("wang2021", True, str(tmp_path))
    assert len(threads) == 1, "what was measured is not measured again"


def test_results_are_listed_and_others_refused(capsys, tmp_path):
    reproduce.reproduce("", False, str(tmp_path))
    assert "| wang2021 |" in capsys.readouterr().out
    with pytest.raises(UsageError, match="perhaps wang2021"):
        reproduce.reproduce("wang2012", False, str(tmp_path))


def test_costs_are_read_off_the_bars_without_stragglers():
    spread = reproduce.SETTINGS[0]
    assert spread.unit == pytest.approx(0.046)
    assert spread.unit + spread.overhead == pytest.approx(4.67 / 5)
