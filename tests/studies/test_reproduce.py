"""The published table, measured with learners as threads and delays of milliseconds."""

import csv
import sys
from typing import Any

import pytest

import counterpoint
from counterpoint.coded import learner as learners
from counterpoint.coded import ray_transport as rays
from counterpoint.core.errors import UsageError
from counterpoint.studies import reproduce
from counterpoint.studies.reproduce import wang2021
from fake_learners import ThreadTransport

QUICK = wang2021.EXPERIMENTS[0]._replace(
    delay=0.5,
    bars={"mds": (0.35, 0.35, 0.35), "uncoded": (0.05, 0.3, 0.3)},  # 8.6 ms per update, 1.4 ms overhead
)


@pytest.fixture
def threads(monkeypatch):
    started: list[Any] = []

    def transport(work, num_learners, address=""):
        started.append(ThreadTransport(work, compiled(work)))
        return started[-1]

    original, known = learners.compiled, []

    def compiled(work):
        known.append(known[0] if known else original(work))
        return known[0]

    monkeypatch.setattr(learners, "compiled", compiled)
    monkeypatch.setattr(rays, "RayTransport", transport)
    monkeypatch.setattr(wang2021, "EXPERIMENTS", (QUICK,))
    monkeypatch.setattr(wang2021, "_curves", lambda folder, episodes: None)
    return started


def test_every_scheme_is_measured_once_and_reported(threads, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(wang2021, "PAPER", ("uncoded", "replication"))
    monkeypatch.setattr(wang2021, "OURS", ("backup",))
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
    assert means["2", "uncoded"] > 5 * QUICK.delay, "both stragglers are among the eight learners in use"
    assert means["2", "backup"] < means["2", "uncoded"]
    assert "best of the paper's" in (folder / "table.md").read_text()
    assert (folder / "bars.png").stat().st_size > 5000
    reproduce.reproduce("wang2021", True, str(tmp_path))
    assert len(threads) == 1, "existing measurements are reused"


def test_results_are_listed_and_unknown_ones_raise_a_usage_error(capsys, tmp_path):
    reproduce.reproduce("", False, str(tmp_path))
    assert "| wang2021 |" in capsys.readouterr().out
    with pytest.raises(UsageError, match="perhaps wang2021"):
        reproduce.reproduce("wang2012", False, str(tmp_path))


def test_a_result_is_one_file(tmp_path, monkeypatch, capsys):
    """A module on the package's path is listed and runs without any other change."""
    (tmp_path / "smith2030.py").write_text(
        "from counterpoint.studies.reproduce import PublishedResult\n"
        "def run(folder, quick):\n"
        "    (folder / 'quick.txt').write_text(str(quick))\n"
        "RESULT = PublishedResult('smith2030', 'A future result.', run)\n"
    )
    (tmp_path / "_helpers.py").write_text("")
    monkeypatch.setattr(reproduce, "__path__", [*reproduce.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "counterpoint.studies.reproduce.smith2030", raising=False)
    reproduce.reproduce("", False, str(tmp_path))
    assert "A future result." in capsys.readouterr().out
    reproduce.reproduce("smith2030", True, str(tmp_path))
    assert (tmp_path / "smith2030-quick" / "quick.txt").read_text() == "True"


def test_python_gets_rows_and_files(tmp_path, capsys):
    result = counterpoint.reproduce("lowe2017-gradients", quick=True, out=tmp_path)
    folder = tmp_path / "lowe2017-gradients-quick"
    assert result.files == [folder / name for name in ("figure.png", "table.csv", "table.md")]
    assert result.rows[1]["what"] == "N = 2"
    assert result.rows[1]["published"] == 0.25
    assert result.rows[1]["low"] < result.rows[1]["ours"] < result.rows[1]["high"]
    names = counterpoint.reproduce()
    assert "lowe2017-covert" in {row["result"] for row in names.rows}
    assert not names.files


def test_costs_come_from_the_published_times_without_stragglers():
    spread = wang2021.EXPERIMENTS[0]
    assert spread.unit == pytest.approx(0.046)
    assert spread.unit + spread.overhead == pytest.approx(4.67 / 5)
