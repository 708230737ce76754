"""Whole trainings with a known outcome: minutes each, run by `make test-slow`.

Thresholds lie well below what ten seeds reach in docs/results
and well above what a team reaches that has not learnt the thing in question.
"""

import pytest

from counterpoint.experiment import train
from counterpoint.runs import Run

pytestmark = pytest.mark.slow


def last(run: Run, column: str) -> float:
    value = run.rows()[-1][column]
    assert isinstance(value, float)
    return value


@pytest.fixture
def quiet(tmp_path) -> dict:
    return {"save_dir": str(tmp_path), "plots_dir": "", "flavour": "openai", "devices": 1, "save_rate": 100_000}


@pytest.mark.parametrize("seed", [0, 1])
def test_a_speaker_learns_to_be_understood(quiet, seed):
    run = train(preset="tuned-speaker", num_episodes=12_000, seed=seed, **quiet)
    assert last(run, "team/good") > -22, "going to the centroid without a word gives −28.6"
    assert last(run, "eval/final_distance") < 0.45


def test_independent_critics_do_not_learn_to_talk(quiet):
    run = train(preset="tuned-speaker", algorithm="ddpg", num_episodes=12_000, **quiet)
    assert -40 < last(run, "team/good") < -24, "near the centroid, and no nearer"


def test_navigators_follow_the_published_curve(quiet):
    run = train(scenario="simple_spread", num_episodes=6_000, report_every=500, **quiet)
    assert last(run, "team/good") > -185, "the authors' code is at −175 by then, random play at −232"
