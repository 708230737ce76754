"""The planner: parsed delays, recordings of real runs and recommendations."""

import math
import sys

import numpy as np
import pytest

from counterpoint.cli import main
from counterpoint.coded import planner
from counterpoint.coded.delays import (
    Crashes,
    Mixed,
    Pauses,
    Recorded,
    SlowMachines,
    Stragglers,
    delay_model,
    delay_models,
)
from counterpoint.coded.planner import COLUMNS, compare, read_recording, recording_of
from counterpoint.coded.schemes import SCHEMES, possible_schemes
from counterpoint.coded.simulator import recommend
from counterpoint.core.errors import UsageError
from counterpoint.runs.tables import write_csv


def row(update: int, learner: int, agents: str, waited: float, computed: float, outcome: str = "used") -> dict[str, str]:
    cells = (update, learner, "backup", agents, 0.001, waited, computed, 0.001 + waited + computed + 0.004, outcome)
    return dict(zip(COLUMNS, map(str, cells), strict=True))


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["counterpoint", *words])
    try:
        main.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_delays_are_parsed():
    assert delay_model("k=2,delay=0.25") == Stragglers(2, 0.25)
    assert delay_models("pauses=0.1, pause=2,slow=3,factor=8,crash=0.5,recovery=inf") == (
        Pauses(0.1, 2.0),
        SlowMachines(3, 8.0),
        Crashes(0.5, math.inf),
    )
    assert isinstance(delay_model("pareto=1.5,exponential=1"), Mixed)
    assert delay_model("") == Stragglers(0, 0.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lateness=3", "cannot parse 'lateness=3'.* such as k=2,delay=0.25"),
        ("k", "cannot parse 'k'"),
        ("k=two", "k in the delays 'k=two' must be a whole number, not 'two'"),
        ("k=-1", "count of Stragglers must be at least 0"),
    ],
)
def test_invalid_delays_raise_a_usage_error(text, message):
    with pytest.raises(UsageError, match=message):
        delay_model(text)


def test_a_recording_yields_delays_paces_and_overhead():
    """Learner 1 waits a second in update 7 and takes twice as long in update 9; learner 2 is stopped, then lost."""
    rows = [
        *(row(7, 0, "0", 0.0, 0.1), row(7, 1, "1", 1.0, 0.1), row(7, 2, "2+0", 0.5, 0.0, "stopped")),
        *(row(9, 0, "0+1", 0.0, 0.2), row(9, 1, "1", 0.0, 0.2, "unused"), row(9, 2, "2", 0.0, 3.0, "lost")),
    ]
    found = recording_of(rows)
    assert (found.unit, found.overhead) == (pytest.approx(0.1), pytest.approx(0.004))
    assert isinstance(found.delays, Recorded)
    np.testing.assert_allclose(found.delays.start, [[0, 1, 0.5], [0, 0, 3.004]])
    np.testing.assert_allclose(found.delays.pace, [[1, 1, 1], [1, 2, 1]])


def test_a_recording_is_read_from_a_run_or_its_file(tmp_path):
    rows = [row(0, learner, str(learner), 0.25 * (learner == 1), 0.05) for learner in range(3)]
    write_csv(tmp_path / "learners.csv", COLUMNS, [list(line.values()) for line in rows])
    assert read_recording(tmp_path).unit == read_recording(tmp_path / "learners.csv").unit == pytest.approx(0.05)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="not a timeline of learners"):
        read_recording(tmp_path / "other.csv")
    with pytest.raises(UsageError, match="name a distributed run"):
        read_recording(tmp_path / "nothing.csv")


def test_only_schemes_that_the_learners_can_run_are_compared():
    assert possible_schemes(8, 15) == SCHEMES
    assert possible_schemes(8, 5) == ("stream:3", "backup", "hedge:1.5")
    assert "cyclic:2" not in possible_schemes(8, 9)
    said: list[str] = []
    found = compare(8, 5, Stragglers(1, 1.0), 0.1, 0.0, 100, trials=20, say=said.append)
    assert [prediction.scheme for prediction in found] == ["stream:3", "backup", "hedge:1.5"]
    assert "uncoded" in said[0]


def test_the_recommendation_depends_on_the_delays():
    def best(delays: str) -> str:
        return recommend(compare(8, 15, delay_model(delays), 0.05, 0.0, 1, trials=300)).scheme

    assert best("") == "uncoded"
    assert best("slow=6,factor=20") == "fastest_first"
    assert best("k=2,delay=0.25") in ("backup", "stream:3")


def test_the_command_prints_a_table_draws_a_figure_and_recommends_a_scheme(monkeypatch, capsys, tmp_path):
    figure = tmp_path / "plan.svg"
    words = ("plan", "--agents", "4", "--learners", "7", "--delays", "k=1,delay=1", "--trials", "200", "--out", str(figure))
    assert command(monkeypatch, *words) == 0
    out = capsys.readouterr().out
    assert [line.split("|")[1].strip() for line in out.splitlines() if line.startswith("| ")][2:] == list(SCHEMES)
    assert "use stream:3: " in out or "use backup: " in out
    assert "× as fast as uncoded" in out
    assert figure.read_text().count("seconds per iteration") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--agents", "0"), "--agents must be at least 1"),
        (("--unit", "-1"), "--unit must be from 0 to 1e9, not -1"),
        (("--delays", "k=1", "--recording", "x"), "exclude each other"),
        (("--delays", "k=30"), "30 stragglers among 15 learners"),
        (("--out", "plan.doc", "--agents", "2"), "must end in"),
    ],
)
def test_invalid_arguments_exit_with_a_message(words, message, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "plan", *words) == 2
    assert message in capsys.readouterr().err


def test_large_clusters_use_fewer_trials():
    assert planner.usual_trials(8, 15) == 2000
    assert planner.usual_trials(1000, 2000) == 100
