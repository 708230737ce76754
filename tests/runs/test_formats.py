"""Runs of every format that was ever released load, or are refused in a sentence that says what to do.

Each folder of golden/runs is a run as that version wrote it, without its pictures. A new format adds a folder and removes none.
"""

import shutil
from pathlib import Path

import pytest

import counterpoint
from counterpoint import config as configs
from counterpoint.runs import integrity

RUNS = sorted((Path(__file__).parents[1] / "golden" / "runs").iterdir())


def test_a_switch_of_earlier_versions_is_now_an_estimator() -> None:
    for old, new in ((True, "straight-through"), (False, "soft")):
        config = configs.from_dict({"algorithm": "maddpg", "learning": {"straight_through": old}})
        assert config.learning.estimator == new


REFUSED = {"format-1-unsealed": "an earlier version of counterpoint wrote it; resume it with that one"}
"""Runs that play but cannot be trained on, and the sentence that says so."""


@pytest.mark.parametrize("path", RUNS, ids=[path.name for path in RUNS])
def test_a_run_of_an_older_format_plays_and_goes_on_or_is_refused(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    shutil.copytree(path, copy)
    assert not [finding for finding in integrity.check(copy) if finding.state == "damaged"]
    team = counterpoint.load(copy)
    assert set(team.act({"agent_0": [0.0] * 4})) == {"agent_0"}
    if path.name in REFUSED:
        with pytest.raises(counterpoint.UsageError, match=REFUSED[path.name]):
            counterpoint.resume(copy, num_episodes=12)
        return
    run = counterpoint.resume(copy, num_episodes=12)
    assert [row["episode"] for row in run.rows()][-1] == 12
    assert len(run.rows()) > len(counterpoint.runs.open_run(path).rows())
