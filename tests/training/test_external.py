"""Environments from elsewhere: read rightly, played by processes that may die, trained and taken up again to the same bits."""

import csv
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counterpoint.training.hosted import open_world, setting_of

import counterpoint
import games
from counterpoint import config as configs
from counterpoint.core import numpy_policy
from counterpoint.core.errors import UsageError
from counterpoint.core.numpy_policy import Space
from counterpoint.external import adapters as foreign
from counterpoint.external import workers
from counterpoint.external.adapters import Copy, facts_of, open_env, teams_of
from counterpoint.training import program
from counterpoint.training import train as experiment
from tiny import TINY

ZOO = f"{games.__file__}:Zoo"
SMALL: dict[str, Any] = TINY | {"env": ZOO, "num_episodes": 40, "update_every": 20, "batch_size": 16, "num_envs": 2}


def zoo(**arguments: Any) -> tuple[Any, Copy]:
    env = open_env(ZOO, arguments)
    return env, Copy(env, facts_of(env, ZOO), 100)


def test_spaces_are_flattened_and_named() -> None:
    facts = zoo()[1].facts
    assert facts.agents == ("walker", "adversary_0", "mixer")
    assert facts.obs_sizes == (3 + 4, 2 + 1, 3)
    assert facts.spaces == (Space(3, (3,)), Space(6, (2, 4)), Space(2))
    assert teams_of(facts.agents, ()) == ("good", "adversary", "good")
    assert teams_of(facts.agents, ("m*=adversary", "adversary_0=good")) == ("good", "good", "adversary")


def test_actions_arrive_in_the_environments_own_words() -> None:
    env, copy = zoo()
    copy.reset(3)
    copy.step(np.array([[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1], [1.0, -0.5, 0, 0, 0, 0]], np.float32))
    told = env.told[0]
    assert told["walker"] == 1  # the third of -1, 0, 1
    np.testing.assert_array_equal(told["adversary_0"], [1, 4])
    np.testing.assert_allclose(told["mixer"], [1.0, 0.0])


def test_an_agent_that_finishes_early_sees_nothing_and_earns_nothing() -> None:
    _, copy = zoo(last=4)
    copy.reset(0)
    np.testing.assert_array_equal(copy.obs[0, :3], [1, 0, 0])  # where it is, one-hot, before what is there
    action, rows = np.zeros((3, 6), np.float32), []
    for _ in range(4):
        alive = copy.alive
        rows.append((alive, *copy.step(action)))
    alive, next_obs, reward, terminated, done = (np.array([row[i] for row in rows]) for i in range(5))
    np.testing.assert_array_equal(alive[:, 0], [True, True, False, False])
    np.testing.assert_array_equal(terminated[:, 0], [False, True, True, True])
    np.testing.assert_array_equal(terminated[:, 1:], np.zeros((4, 2)))  # time ran out, which ends nothing
    np.testing.assert_array_equal(reward[:, 0], [1, 2, 0, 0])
    assert not next_obs[2:, 0].any()
    assert next_obs[1, 0].any()
    np.testing.assert_array_equal(done, [False, False, False, True])


def test_our_own_limit_cuts_an_episode_without_ending_it() -> None:
    env = open_env(ZOO, {"last": 50})
    copy = Copy(env, facts_of(env, ZOO), 3)
    copy.reset(0)
    ends = [copy.step(np.zeros((3, 6), np.float32))[2:] for _ in range(3)]
    assert [done for _, done in ends] == [False, False, True]
    np.testing.assert_array_equal(ends[-1][0], [True, False, False])


def test_turns_and_lone_agents_are_teams_too() -> None:
    turns = open_world(f"{games.__file__}:Turns", {}, (), 0)
    assert turns.spec.agents == ("left", "right")
    assert turns.max_steps == foreign.LONGEST
    env = open_env(f"{games.__file__}:Turns", {})
    copy = Copy(env, turns.facts, 10)
    copy.reset(0)
    outcomes = [copy.step(np.array([[0, 1], [1, 0]], np.float32)) for _ in range(3)]
    np.testing.assert_array_equal([reward for _, reward, _, _ in outcomes], [[1, 0]] * 3)
    assert [done for *_, done in outcomes] == [False, False, True]
    alone = open_env(f"{games.__file__}:Count", {})
    copy = Copy(alone, facts_of(alone, "count"), 10)
    copy.reset(0)
    _, reward, terminated, done = copy.step(np.array([[0.5]], np.float32))
    assert (reward[0], terminated[0], done) == (1.5, False, False)


def setting(length: int = 7, **arguments: Any) -> workers.Setting:
    return setting_of(
        open_world(ZOO, arguments, (), 0), configs.override(configs.Config(), world_action="one-hot").learning, length
    )


def start_of(chosen: workers.Setting, copies: int = 2) -> workers.Start:
    rng = np.random.default_rng(0)
    layers = tuple(
        numpy_policy.Layer(rng.standard_normal((3, i, o)).astype(np.float32), np.zeros((3, 1, o), np.float32))
        for i, o in ((7, 8), (8, 6))
    )
    places = {number: workers.new_place(chosen, 10 + number) for number in range(copies)}
    return workers.Start(layers, (1, 2), 0, copies, places)


def equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one[:9], other[:9], strict=True))


def test_a_rollout_can_be_played_again_from_where_it_stood() -> None:
    chosen = setting()
    player = workers.Player(chosen)
    first = player.play(start_of(chosen))
    request = start_of(chosen)._replace(entropy=(3, 4), places={n: p.place for n, p in first.items()})
    second = player.play(request)
    assert int(request.places[0].length) == 2  # in the middle of its second episode
    fresh = workers.Player(chosen).play(request)
    for number in second:
        assert fresh[number].repeated
        assert equal(fresh[number], second[number])
    assert not equal(first[0], first[1])


def test_a_rollout_is_what_acting_and_stepping_give() -> None:
    """Rows follow one another, rewards add up, and a new episode starts where one ends."""
    chosen = setting(length=12)
    played = workers.Player(chosen).play(start_of(chosen, copies=1))[0]
    assert played.done.tolist() == [False] * 4 + [True] + [False] * 4 + [True] + [False] * 2
    np.testing.assert_array_equal(played.obs[1:5], played.next_obs[:4])
    assert not np.array_equal(played.obs[5], played.next_obs[4])
    np.testing.assert_array_equal(played.returns[4], [1 + 2, 15, 15])
    np.testing.assert_array_equal(played.lengths[played.done], [5, 5])
    assert played.alive[5].all()


def test_an_environment_that_does_not_repeat_itself_is_noticed() -> None:
    chosen = setting()._replace(env=f"{games.__file__}:Forgetful")
    first = workers.Player(chosen).play(start_of(chosen))
    again = workers.Player(chosen).play(start_of(chosen)._replace(places={n: p.place for n, p in first.items()}))
    assert not any(copy.repeated for copy in again.values())
    assert all(copy.lengths[0] == 1 for copy in again.values())


@pytest.mark.parametrize(
    ("kind", "words"),
    [("die", "died (signal 9)"), ("hang", "has not answered for 3 s"), ("fail", "met an error in the environment (ValueError")],
)
def test_a_process_that_dies_hangs_or_fails_is_replaced(kind: str, words: str, tmp_path: Path) -> None:
    """The rollout is what it would have been without the trouble."""
    said: list[str] = []
    chosen = setting(trouble=f"{kind}:{tmp_path / 'once'}")
    pool = workers.Pool(chosen, num_copies=2, num_workers=2, seconds=3.0, say=said.append)
    try:
        pool.ask(start_of(chosen))
        played = pool.answer()
    finally:
        pool.close()
    quiet = workers.Player(setting()).play(start_of(setting()))
    assert all(equal(played[number], quiet[number]) for number in (0, 1))
    assert len(said) == 1
    assert words in said[0]
    assert "worker" in said[0]
    assert "a new process takes its place" in said[0]


def test_an_environment_that_always_fails_ends_the_run_in_words() -> None:
    said: list[str] = []
    chosen = setting(trouble="fail")
    pool = workers.Pool(chosen, num_copies=1, num_workers=1, seconds=30.0, say=said.append)
    try:
        pool.ask(start_of(chosen, copies=1))
        with pytest.raises(UsageError, match="ValueError: the walls fell down\\), 3 times in a row: mend the environment"):
            pool.answer()
    finally:
        pool.close()
    assert len(said) == 2


def rows_of(run: Any) -> list[dict[str, str]]:
    with (run.path / "metrics.csv").open() as file:
        return [{k: v for k, v in row.items() if k not in ("seconds", "steps_per_second")} for row in csv.DictReader(file)]


def bits(run: Any) -> dict[str, np.ndarray]:
    return run.load_policy()[0]


def test_a_run_is_the_same_after_an_interruption_and_a_lost_process(tmp_path: Path) -> None:
    """Stopped in the middle of episodes and taken up again, and with a process killed on the way."""
    whole = counterpoint.train(**SMALL, save_dir=str(tmp_path), exp_name="whole")
    stopped: list[int] = []

    class Impatient(experiment.Progress):
        def report(self, row: dict[str, Any]) -> None:
            if row["episode"] >= 16 and not stopped:
                stopped.append(row["episode"])
                os.kill(os.getpid(), signal.SIGINT)

    once = tmp_path / "once"
    troubled: dict[str, Any] = SMALL | {"scenario_args": (f"trouble=die:{once}",)}
    with pytest.raises(experiment.Interrupted):
        counterpoint.train(progress=Impatient(), **troubled, save_dir=str(tmp_path), exp_name="cut")
    cut = counterpoint.resume(tmp_path / "cut")
    assert once.exists()
    assert rows_of(cut) == rows_of(whole)
    assert rows_of(whole)[-1]["length"] == "5.0"
    for name, value in bits(whole).items():
        np.testing.assert_array_equal(bits(cut)[name], value)


def test_a_trained_policy_speaks_to_the_environment_itself(tmp_path: Path) -> None:
    settings: dict[str, Any] = SMALL | {"num_episodes": 20}
    run = counterpoint.train(**settings, save_dir=str(tmp_path), exp_name="zoo")
    policy = counterpoint.load(run)
    env = games.Zoo()
    seen, _ = env.reset(seed=1)
    env.step(policy.act(seen))  # the environment itself asserts that its spaces contain the actions
    assert run.gif_path.stat().st_size > 100
    returns = policy.evaluate(3).returns
    np.testing.assert_array_equal(returns, [[3, 15, 15]] * 3)


def test_a_factory_may_be_given_as_it_is_and_teams_as_a_mapping(tmp_path: Path) -> None:
    settings: dict[str, Any] = SMALL | {"env": games.Zoo, "teams": {"mixer": "adversary"}, "num_episodes": 10}
    run = counterpoint.train(**settings, save_dir=str(tmp_path), exp_name="zoo")
    assert run.config["world"]["env"] == "games:Zoo"
    assert "team/adversary" in rows_of(run)[-1]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"env": "nowhere"}, "--env nowhere must be package.module:factory or path/to/file.py:factory."),
        ({"env": "no_such_module:env"}, r"--env no_such_module:env cannot be imported \(ModuleNotFoundError"),
        ({"env": "missing.py:env"}, "--env missing.py: there is no such file."),
        ({"env": "games:Bears"}, "--env games:Bears: games has no Bears; check the name after the colon."),
        ({"env": "games:NOT_AN_ENV"}, "--env games:NOT_AN_ENV is no function or class that makes an environment."),
        ({"env": "builtins:dict"}, "--env builtins:dict made a dict, which is no PettingZoo or Gymnasium environment."),
        ({"env": "games:Zoo", "scenario_args": ("size=3",)}, r"making it with \(size=3\) failed \(TypeError"),
        ({"env": "games:Endless"}, "the actions of walker have no bounds"),
        ({"env": "games:Wordy"}, "are of a kind that no learner here knows"),
        (
            {"env": "games:Zoo", "teams": ("bear=good",)},
            "--teams bear=good fits none of the agents walker, adversary_0, ",
        ),
        ({"env": "games:Zoo", "teams": ("bear",)}, "--teams bear must have the form NAME=TEAM"),
        ({"env": "games:Zoo", "num_seeds": 2}, "--env trains one seed at a time, not --num-seeds 2"),
        ({"env": "games:Zoo", "num_agents": 2}, "give the size of --env by --scenario-args"),
        ({"teams": ("a=b",)}, "--teams a=b is for --env; simple has its own teams: leave it out."),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        program.prepare(configs.override(configs.Config(), **settings))


def test_a_factory_that_cannot_be_found_again_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be found again"):
        configs.override(configs.Config(), env=lambda: games.Zoo())


def test_workers_end_with_the_one_who_asked() -> None:
    chosen = setting()
    pool = workers.Pool(chosen, num_copies=1, num_workers=1, seconds=30.0, say=print)
    pool.ask(start_of(chosen, copies=1))
    process = pool._workers[0]._process
    assert process is not None
    pool.answer()
    pool._workers[0]._connection.close()  # as if we had died
    waiter = threading.Thread(target=process.wait, daemon=True)
    waiter.start()
    waiter.join(10)
    assert process.returncode == 0


OTHERS = {
    "mpe2.simple_world_comm_v3:env": 6,  # in turns, six agents of three kinds
    "pettingzoo.butterfly.knights_archers_zombies_v11:parallel_env": 4,  # agents fall in the middle of an episode
    "pettingzoo.classic.rps_v2:env": 2,
    "magent2.environments.tiger_deer_v4:parallel_env": 121,
    "gymnasium.envs.classic_control.pendulum:PendulumEnv": 1,
}


@pytest.mark.filterwarnings("ignore")  # theirs, not ours
@pytest.mark.parametrize(("env", "count"), OTHERS.items())
def test_environments_of_other_people(env: str, count: int) -> None:
    """A rollout over the end of an episode: the same in a second process, finite, with somebody there in every step."""
    world = open_world(env, {}, (), 30)
    assert world.spec.num_agents == count
    learning = configs.override(configs.Config(), world_action="one-hot", num_units=8).learning
    chosen = setting_of(world, learning, 35)
    sizes = ((world.spec.obs_size, 8), (8, world.spec.act_size))
    rng = np.random.default_rng(0)
    layers = tuple(
        numpy_policy.Layer(rng.standard_normal((count, i, o)).astype(np.float32), np.zeros((count, 1, o), np.float32))
        for i, o in sizes
    )
    request = workers.Start(layers, (5,), 0, 1, {0: workers.new_place(chosen, 3)})
    played = workers.Player(chosen).play(request)[0]
    assert played.done.any()
    assert all(np.isfinite(column).all() for column in played[:9])
    assert played.alive.any(axis=1).all()
    assert played.obs.any()
    np.testing.assert_array_equal(played.lengths[played.done][0], np.argmax(played.done) + 1)
