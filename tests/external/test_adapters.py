"""Environments of other libraries become arrays: spaces, rewards, ends, turns and action masks."""

from typing import Any

import numpy as np
import pytest

import games
from counterpoint import config as configs
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Box, Discrete
from counterpoint.external import adapters
from counterpoint.external.adapters import EnvCopy, describe, legal_entries, open_env, teams_of
from counterpoint.external.environment import open_environment
from counterpoint.training.program import prepare

HERE = games.__file__


def opened(name: str, max_steps: int = 100, **arguments: Any) -> tuple[Any, EnvCopy]:
    env = open_env(f"{HERE}:{name}", arguments)
    found = describe(env, name, (), max_steps)
    return env, EnvCopy(env, found.spec, max_steps, found.has_masks, name)


def test_spaces_are_flattened_and_named() -> None:
    spec = opened("Zoo")[1].spec
    assert spec.agents == ("walker", "adversary_0", "mixer")
    assert spec.obs_sizes == (3 + 4, 2 + 1, 3)
    assert spec.action_spaces == (Discrete((3,)), Discrete((2, 4)), Box(2, (0.0, -2.0), (1.0, 6.0)))
    assert spec.teams == ("good", "adversary", "good")
    assert teams_of(spec.agents, ("m*=adversary", "adversary_0=good")) == ("good", "good", "adversary")


def test_actions_arrive_in_the_environments_own_form() -> None:
    env, copy = opened("Zoo")
    copy.reset(3)
    copy.step(np.array([[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1], [1.0, -0.5, 0, 0, 0, 0]], np.float32))
    told = env.told[0]
    assert told["walker"] == 1  # the third of -1, 0, 1
    np.testing.assert_array_equal(told["adversary_0"], [1, 4])
    np.testing.assert_allclose(told["mixer"], [1.0, 0.0])


def test_an_agent_that_finishes_early_observes_and_earns_nothing() -> None:
    _, copy = opened("Zoo", last=4)
    copy.reset(0)
    np.testing.assert_array_equal(copy.obs[0, :3], [1, 0, 0])  # where it is, one-hot, before what is there
    action, rows = np.zeros((3, 6), np.float32), []
    for _ in range(4):
        alive = copy.alive
        rows.append((alive, *copy.step(action)))
    alive, next_obs, reward, terminated, done = (np.array([row[i] for row in rows]) for i in range(5))
    np.testing.assert_array_equal(alive[:, 0], [True, True, False, False])
    np.testing.assert_array_equal(terminated[:, 0], [False, True, True, True])
    np.testing.assert_array_equal(terminated[:, 1:], np.zeros((4, 2)))  # truncation terminates nothing
    np.testing.assert_array_equal(reward[:, 0], [1, 2, 0, 0])
    assert not next_obs[2:, 0].any()
    assert next_obs[1, 0].any()
    np.testing.assert_array_equal(done, [False, False, False, True])
    assert copy.legal is None


def test_our_own_limit_truncates_an_episode() -> None:
    _, copy = opened("Zoo", max_steps=3, last=50)
    copy.reset(0)
    ends = [copy.step(np.zeros((3, 6), np.float32))[2:] for _ in range(3)]
    assert [done for _, done in ends] == [False, False, True]
    np.testing.assert_array_equal(ends[-1][0], [True, False, False])


def test_a_game_that_pettingzoo_can_make_parallel_has_one_step_per_round() -> None:
    turns = open_environment(f"{HERE}:Turns", {}, (), 0)
    assert turns.spec.agents == ("left", "right")
    assert turns.max_steps == adapters.LONGEST
    assert not turns.has_masks
    _, copy = opened("Turns")
    copy.reset(0)
    outcomes = [copy.step(np.array([[0, 1], [1, 0]], np.float32)) for _ in range(3)]
    np.testing.assert_array_equal([reward for _, reward, _, _ in outcomes], [[1, 0]] * 3)
    assert [done for *_, done in outcomes] == [False, False, True]


def test_a_turn_based_game_has_one_step_per_turn() -> None:
    """Rewards of an agent arrive when it is its turn again, and at the end; who waits has only a placeholder action."""
    assert open_environment(f"{HERE}:StrictTurns", {}, (), 0).has_masks
    env, copy = opened("StrictTurns")
    copy.reset(0)
    outcomes, legal = [], [copy.legal]
    for t in range(6):
        assert env.env.agent_selection == ("left", "right")[t % 2]
        outcomes.append((copy.alive, *copy.step(np.array([[0, 1], [0, 1]], np.float32))))
        legal.append(copy.legal)
    alive, next_obs, reward, terminated, done = (np.array([row[i] for row in outcomes]) for i in range(5))
    assert alive.all()
    np.testing.assert_array_equal(np.array(legal[:6])[:, 0].all(axis=1), [True, False] * 3)
    np.testing.assert_array_equal(np.array(legal[:6])[:, 1].all(axis=1), [False, True] * 3)
    np.testing.assert_array_equal(np.array(legal)[..., 0], np.ones((7, 2)))
    np.testing.assert_array_equal(reward, [[0, 0], [1, 0], [0, 1], [1, 0], [0, 1], [1, 1]])
    np.testing.assert_array_equal(next_obs[:, :, 0], [[0, 0], [1, 1], [1, 1], [2, 2], [2, 2], [3, 3]])
    np.testing.assert_array_equal(terminated.any(axis=1), [False] * 5 + [True])
    assert done.tolist() == [False] * 5 + [True]
    assert terminated[-1].all()


def test_a_lone_gymnasium_agent_is_a_team_of_one() -> None:
    _, copy = opened("Count")
    assert copy.spec.agents == ("agent_0",)
    copy.reset(0)
    _, reward, terminated, done = copy.step(np.array([[0.5]], np.float32))
    assert (reward[0], terminated[0], done) == (1.5, False, False)


def test_a_tuple_of_gymnasium_agents_is_a_team() -> None:
    _, copy = opened("Foragers")
    assert copy.spec.agents == ("agent_0", "agent_1")
    assert copy.spec.obs_sizes == (2, 3)
    assert copy.spec.action_spaces == (Discrete((2,)), Discrete((3,)))
    copy.reset(0)
    np.testing.assert_array_equal(copy.obs, [[0, 0, 0], [1, 1, 1]])
    outcomes = [copy.step(np.array([[0, 1, 0], [0, 0, 1]], np.float32)) for _ in range(3)]
    np.testing.assert_array_equal(outcomes[0][1], [1, 2])
    assert [done for *_, done in outcomes] == [False, False, True]
    np.testing.assert_array_equal(outcomes[-1][2], [True, True])


def test_masks_come_from_observations_and_from_infos() -> None:
    env, copy = opened("Masked")
    assert copy.spec.obs_sizes == (3, 5)  # without the mask
    assert copy.has_masks
    copy.reset(1)
    for _ in range(6):
        left, *right = env.masks
        assert copy.legal is not None
        np.testing.assert_array_equal(copy.legal[0, :3], left)
        np.testing.assert_array_equal(copy.legal[1], np.concatenate(right))
        assert copy.legal[0, 3:].all()  # padding
        np.testing.assert_array_equal(copy.obs[0, :3], left)
        action = np.zeros((2, 5), np.float32)
        action[0, np.flatnonzero(left)[0]] = 1
        action[1, np.flatnonzero(right[0])[0]] = action[1, 2 + np.flatnonzero(right[1])[0]] = 1
        copy.step(action)
    world = open_environment(f"{HERE}:Masked", {}, (), 0)
    seen, _ = games.Masked().reset(seed=0)
    np.testing.assert_array_equal(world.encode(0, seen["left"]), seen["left"]["observation"])
    np.testing.assert_array_equal(world.legal(0, seen["left"]), seen["left"]["action_mask"])  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        ([0, 1, 1, 0, 0], [False, True, True, False, False]),
        (([0, 1], [1, 0, 1]), [False, True, True, False, True]),
        ([0, 0, 0, 0, 1], [True, False, False, False, True]),  # nothing legal in a head: the first is a placeholder
        (adapters.NOTHING_LEGAL, [True, False, True, False, False]),
    ],
)
def test_native_masks_become_entries(mask: Any, wanted: list[bool]) -> None:
    assert legal_entries(Discrete((2, 3)), mask).tolist() == wanted
    assert legal_entries(Box(2, -1.0, 1.0), mask).all()


def test_a_mask_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(UsageError, match="the action mask of bob has 3 entries, and its actions have 2"):
        legal_entries(Discrete((2,)), [1, 1, 1], "bob")


def test_rewards_of_several_numbers_are_refused_in_the_step_that_gives_them() -> None:
    _, copy = opened("Objectives")
    copy.reset(0)
    with pytest.raises(UsageError, match="gives walker a reward of 2 numbers, and learning needs one: wrap"):
        copy.step(np.zeros((3, 6), np.float32))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"env": "nowhere"}, "--env nowhere must be package.module:name or path/to/file.py:name."),
        ({"env": "no_such_module:env"}, r"--env no_such_module:env cannot be imported \(ModuleNotFoundError"),
        ({"env": "missing.py:env"}, "--env missing.py: there is no such file."),
        ({"env": "games:Bears"}, "--env games:Bears: games has no Bears; check the name after the colon."),
        ({"env": "games:NOT_AN_ENV"}, "--env games:NOT_AN_ENV is not a function or class that makes an environment."),
        ({"env": "__main__:Gone"}, "--env __main__:Gone was defined in an interactive session: define Gone here again"),
        ({"env": "builtins:dict"}, "--env builtins:dict is not called, because nothing says that it makes an environment"),
        ({"env": "games:Zoo", "scenario_args": ("size=3",)}, r"could not be made with \(size=3\): TypeError"),
        ({"env": "games:Endless"}, "the actions of walker in --env games:Endless need finite bounds"),
        ({"env": "games:Wordy"}, "are of an unsupported kind: use Discrete"),
        ({"env": "games:DeclaredObjectives"}, "gives walker a reward of 2 numbers, and learning needs one"),
        (
            {"env": "games:Cameras", "buffer_size": 1024},
            r"20 agents for observations of up to 164520 numbers \(camera_0 in games:Cameras\) need at least \d+.\d GiB",
        ),
        (
            {"env": "games:Zoo", "teams": ("bear=good",)},
            "--teams bear=good matches none of the agents walker, adversary_0, ",
        ),
        ({"env": "games:Zoo", "teams": ("bear",)}, "--teams bear must have the form NAME=TEAM"),
        ({"env": "games:Zoo", "num_agents": 2}, "give the size of --env by --scenario-args"),
        ({"teams": ("a=b",)}, "--teams a=b is for --env; simple has its own teams: leave it out."),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        prepare(configs.override(configs.Config(), **settings))


def test_a_factory_that_cannot_be_found_again_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be found again"):
        configs.override(configs.Config(), env=lambda: games.Zoo())
