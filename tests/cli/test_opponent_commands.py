"""The commands around opponents and units, from the command line."""

from pathlib import Path
from typing import Any

import pytest
from test_cli import call as call

import counterpoint
from counterpoint.studies import units
from tiny import TINY


@pytest.fixture(scope="module")
def tag(tmp_path_factory: pytest.TempPathFactory) -> str:
    settings = TINY | {"scenario": "simple_tag", "num_episodes": 24, "warmup": 100}
    return str(counterpoint.train(save_dir=str(tmp_path_factory.mktemp("runs")), exp_name="tag", **settings).path)


@pytest.mark.slow
def test_a_tournament_prints_tables_and_writes_files(call: Any, tag: str, tmp_path: Path) -> None:
    result = call(f"tournament {tag} {tag}@16 --episodes 4 --out games")
    assert result.code == 0, result.err
    assert "return of one agent of adversary" in result.out
    assert "touches" in result.out
    assert "| run | team | Elo | 95 % |" in result.out
    assert (tmp_path / "games" / "heatmap.png").exists()
    assert "at least two runs, not 1" in call(f"tournament {tag}").err


@pytest.mark.slow
def test_exploit_prints_the_gain(call: Any, tag: str) -> None:
    result = call(f"exploit {tag} --team good --num-episodes 60 --episodes 20 --out found")
    assert result.code == 0, result.err
    assert "| best response |" in result.out
    assert "against-good" in result.out
    assert "choose --team adversary or --team good" in call(f"exploit {tag} --team wolves").err


@pytest.mark.slow
def test_benchmark_mentions_exploitability_where_two_teams_play(call: Any, tag: str) -> None:
    result = call(f"benchmark {tag} --benchmark-iters 50")
    assert f"counterpoint exploit {tag}" in result.out


def test_units_of_a_value(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    result = call("units -14.4 --scenario simple_speaker_listener --from openai")
    assert result.code == 0, result.err
    assert "of the way from random play to the scripted team" in result.out
    assert "| openai-sum | -28.8 |" in result.out
    assert "| simple_spread | openai | random |" in call("units").out
    assert "invalid choice" in call("units 3 --from metres").err
    monkeypatch.setattr(units, "record", lambda path, episodes: Path(path))
    assert call("units --record new.csv").out == "→ new.csv\n"


@pytest.mark.slow
def test_the_scale_of_a_benchmark(call: Any, tmp_path: Path) -> None:
    settings = TINY | {"scenario": "simple", "num_episodes": 24, "warmup": 100}
    run = counterpoint.train(save_dir=str(tmp_path), exp_name="simple", **settings)
    result = call(f"benchmark {run.path} --benchmark-iters 50 --scale")
    assert "share of agent_0" in result.out
    assert "exploit" not in result.out
    assert "share between random play and scripted" in call(f"compare {run.path} --scale").out
