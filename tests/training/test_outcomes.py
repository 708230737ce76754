"""What films say about an episode, once it is decided."""

import numpy as np
import pytest

from counterpoint.training.evaluate import outcome_texts

TEXTS = ("reached the goal", "missed the goal")


@pytest.mark.parametrize(
    ("reached", "expected"),
    [
        ([0, 0, 1, 1], ["", "", "reached the goal in 2 steps", "reached the goal in 2 steps"]),
        ([0, 1, 1], ["", "reached the goal in 1 step", "reached the goal in 1 step"]),
        ([0, 1, 0, 1], ["", "", "", "reached the goal in 3 steps"]),
        ([0, 1, 0], ["", "", "missed the goal"]),
        ([0, 0], ["", "missed the goal"]),
    ],
    ids=["stays", "one step", "leaves and returns", "leaves", "never"],
)
def test_an_episode_succeeds_when_it_stays_successful(reached: list[int], expected: list[str]) -> None:
    """The goal counts as reached at the step from which it is never left again."""
    assert outcome_texts(np.array(reached, bool), TEXTS) == expected
