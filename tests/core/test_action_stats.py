"""Statistics of actions, worked out by hand, are the same in JAX and in NumPy."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.core.action_stats import (
    AT_BOUND,
    ActionSums,
    action_statistics,
    action_sums,
    no_actions,
    stacked,
    words_of,
)
from counterpoint.core.spaces import Box, Discrete, Spec
from counterpoint.envs.registry import make


def spec_of(*spaces: Any) -> Spec:
    """Agents with these action spaces."""
    names = tuple(f"agent_{i}" for i in range(len(spaces)))
    return Spec(names, names, ("good",) * len(spaces), (1,) * len(spaces), spaces)


def statistics(
    spec: Spec, actions: Any, alive: Any = None, legal: Any = None, words: Any = None, numbers: Any = np
) -> dict[str, dict[str, float]]:
    """The statistics of actions [T, N, A], added up step by step."""
    sums = no_actions(spec)
    for t, action in enumerate(actions):
        present = np.ones(spec.num_agents, bool) if alive is None else np.array(alive[t])
        may = None if legal is None else numbers.asarray(np.array(legal[t], bool))
        sums = sums.plus(action_sums(spec, numbers.asarray(action, np.float32), numbers.asarray(present), may))
    return action_statistics(spec, ActionSums(*(None if each is None else np.asarray(each) for each in sums)), words or {})


EITHER = pytest.mark.parametrize("numbers", [np, jnp], ids=["NumPy", "JAX"])


@EITHER
def test_a_choice_that_is_always_the_same_does_not_vary_and_an_even_one_does(numbers: Any) -> None:
    constant, even = [[[0, 1, 0]]] * 4, [[[1, 0, 0]], [[0, 1, 0]]] * 2
    spec = spec_of(Discrete((3,)))
    assert statistics(spec, constant, numbers=numbers) == {"action_variation": {"agent_0": 0.0}}
    # Each of two entries is 1 in half of the steps: variances of 1/4 add up to 1/2.
    assert statistics(spec, even, numbers=numbers)["action_variation"]["agent_0"] == pytest.approx(0.5**0.5)


@EITHER
def test_probabilities_vary_although_the_likeliest_choice_does_not(numbers: Any) -> None:
    soft = [[[0.6, 0.4, 0.0]], [[0.6, 0.0, 0.4]]]
    # The last two entries are 0.2 ± 0.2: variances of 0.04 each.
    assert statistics(spec_of(Discrete((3,))), soft, numbers=numbers)["action_variation"]["agent_0"] == pytest.approx(0.08**0.5)


@EITHER
def test_the_head_that_varies_most_counts_and_words_are_counted_apart(numbers: Any) -> None:
    moves_and_says = [[[1, 0, 1, 0]], [[1, 0, 1, 0]], [[0, 1, 1, 0]], [[0, 1, 1, 0]]]
    found = statistics(spec_of(Discrete((2, 2))), moves_and_says, words={0: slice(2, 4)}, numbers=numbers)
    assert found["action_variation"]["agent_0"] == pytest.approx(0.5**0.5)
    assert found["message_variation"] == {"agent_0": 0.0}


@EITHER
def test_continuous_actions_are_counted_at_their_bounds_and_padding_is_not(numbers: Any) -> None:
    spec = spec_of(Box(2, 0.0, 5.0), Discrete((3,)))
    actions = [[[1.0, -0.5, 0.0], [1, 0, 0]], [[-AT_BOUND, 0.5, 0.0], [1, 0, 0]]]
    found = statistics(spec, actions, numbers=numbers)
    assert found["at_bound"] == {"agent_0": 0.5}  # both actions of the first entry, none of the second; agent_1 has no bounds
    assert found["action_variation"]["agent_0"] == pytest.approx(0.99)  # 1 and −0.98: 0.01 ± 0.99
    assert found["action_variation"]["agent_1"] == 0.0


@EITHER
def test_steps_after_an_agents_end_do_not_count(numbers: Any) -> None:
    spec = spec_of(Discrete((2,)), Discrete((2,)))
    actions, alive = [[[1, 0], [1, 0]], [[0, 1], [0, 1]]], [[True, True], [False, True]]
    found = statistics(spec, actions, alive, numbers=numbers)["action_variation"]
    assert found["agent_0"] == 0.0
    assert found["agent_1"] == pytest.approx(0.5**0.5)


@EITHER
def test_steps_without_a_choice_do_not_count(numbers: Any) -> None:
    spec = spec_of(Discrete((2,)), Discrete((2,)))
    actions, legal = [[[1, 0], [1, 0]], [[0, 1], [1, 0]]], [[[1, 1], [1, 0]], [[0, 1], [1, 0]]]
    found = statistics(spec, actions, legal=legal, numbers=numbers)["action_variation"]
    assert found["agent_0"] == 0.0, "only in the first step was anything else legal"
    assert np.isnan(found["agent_1"]), "it never had a choice"


def test_sums_of_episodes_are_stacked() -> None:
    spec = spec_of(Discrete((2,)))
    one = action_sums(spec, np.array([[1.0, 0.0]], np.float32), np.array([True]))
    both = stacked([one, one.plus(one)])
    assert both.total.tolist() == [[[1.0, 0.0]], [[2.0, 0.0]]]
    assert both.bound is None


def test_words_are_those_of_the_agents_that_speak() -> None:
    assert words_of(make("simple_speaker_listener")) == {0: slice(0, 3)}
    assert words_of(make("simple_reference")) == {0: slice(5, 15), 1: slice(5, 15)}
    assert words_of(make("simple_spread")) == {}


def test_environments_side_by_side_are_added_up_apart() -> None:
    spec = spec_of(Discrete((2,)), Box(1, -1.0, 1.0))
    action, alive = np.zeros((3, 2, 2), np.float32), np.array([[True, True], [False, True], [True, False]])
    action[:, 0, 0], action[:, 1, 0] = 1.0, [1.0, 0.5, 1.0]
    found = action_sums(spec, jnp.asarray(action), jnp.asarray(alive), jnp.ones(action.shape, bool))
    np.testing.assert_array_equal(found.total[..., 0], [[1.0, 1.0], [0.0, 0.5], [1.0, 0.0]])
    np.testing.assert_array_equal(found.bound[..., 0], [[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
