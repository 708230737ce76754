"""Worker processes play rollouts that are functions of their requests, and may die, hang or fail while they do."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import games
from counterpoint.core import numpy_policy
from counterpoint.core.errors import UsageError
from counterpoint.external import workers
from counterpoint.external.environment import open_environment, setup_of
from counterpoint.external.workers import EvalRequest, EvalWorker, RolloutRequest, RolloutWorker, Worker, WorkerPool, insist

ZOO = f"{games.__file__}:Zoo"
RULES = numpy_policy.Rules(world_action="one-hot")
LONG = 120.0
"""Seconds that no healthy worker needs, however busy the machine is."""


def setup(env: str = ZOO, length: int = 7, rules: numpy_policy.Rules = RULES, **arguments: Any) -> workers.EnvSetup:
    return setup_of(open_environment(env, arguments, (), 0), length=length, rules=rules)


def layers(chosen: workers.EnvSetup) -> tuple[numpy_policy.Layer, ...]:
    rng, spec = np.random.default_rng(0), chosen.spec
    sizes = ((spec.obs_size, 8), (8, spec.act_size))
    shapes = [(spec.num_agents, i, o) for i, o in sizes]
    return tuple(
        numpy_policy.Layer(rng.standard_normal(shape).astype(np.float32), np.zeros((shape[0], 1, shape[2]), np.float32))
        for shape in shapes
    )


def request_of(chosen: workers.EnvSetup, copies: int = 2) -> RolloutRequest:
    positions = {number: workers.new_position(chosen, 10 + number) for number in range(copies)}
    return RolloutRequest(layers(chosen), (1, 2), 0, copies, positions)


def equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one[:11], other[:11], strict=True))


@pytest.mark.parametrize("env", ["Zoo", "Masked", "StrictTurns"])
def test_a_rollout_can_be_played_again_from_its_position(env: str) -> None:
    chosen = setup(f"{games.__file__}:{env}")
    worker = RolloutWorker(chosen)
    first = worker.play(request_of(chosen))
    request = request_of(chosen)._replace(entropy=(3, 4), positions={n: p.position for n, p in first.items()})
    second = worker.play(request)
    assert int(request.positions[0].length) in (1, 2)  # in the middle of its second episode
    fresh = RolloutWorker(chosen).play(request)
    for number in second:
        assert fresh[number].repeated
        assert equal(fresh[number], second[number])
    assert not equal(first[0], first[1])


def test_a_rollout_is_what_acting_and_stepping_give() -> None:
    """Rows follow one another, rewards add up, and a new episode starts where one ends."""
    chosen = setup(length=12)
    played = RolloutWorker(chosen).play(request_of(chosen, copies=1))[0]
    assert played.done.tolist() == [False] * 4 + [True] + [False] * 4 + [True] + [False] * 2
    np.testing.assert_array_equal(played.obs[1:5], played.next_obs[:4])
    assert not np.array_equal(played.obs[5], played.next_obs[4])
    np.testing.assert_array_equal(played.returns[4], [1 + 2, 15, 15])
    np.testing.assert_array_equal(played.lengths[played.done], [5, 5])
    assert played.alive[5].all()
    assert played.legal is None


@pytest.mark.parametrize("rules", [RULES, numpy_policy.Rules(world_action="one-hot", floor_start=1.0, floor_end=1.0)])
def test_workers_act_under_masks(rules: numpy_policy.Rules) -> None:
    """The environment itself asserts that no action is illegal."""
    chosen = setup(f"{games.__file__}:Masked", length=40, rules=rules)
    played = RolloutWorker(chosen).play(request_of(chosen, copies=1))[0]
    assert played.legal is not None
    assert played.next_legal is not None
    assert not played.legal[..., :3].all()
    np.testing.assert_array_equal(played.legal[1:6], played.next_legal[:5])
    np.testing.assert_array_equal(played.obs[:, 1], played.legal[:, 1])  # what "right" sees is its mask
    for explore in (False, True):
        result = EvalWorker(chosen).play(EvalRequest(layers(chosen), 5, 0, explore))
        np.testing.assert_array_equal(result.lengths, [6] * 5)


def test_exploration_follows_its_schedule_within_a_rollout() -> None:
    """A floor of 1 makes every choice uniform; once it has fallen to 0, large outputs decide."""
    rules = numpy_policy.Rules(world_action="one-hot", floor_start=1.0, floor_end=0.0, floor_steps=1000)
    chosen = setup(f"{games.__file__}:Match", length=200, rules=rules)
    sure = (numpy_policy.Layer(np.zeros((2, 2, 2), np.float32), np.array([[[0, 50]]] * 2, np.float32)),)
    request = request_of(chosen, copies=1)._replace(layers=sure, stride=10)
    chances = RolloutWorker(chosen).play(request)[0].action[..., 1].mean(axis=1)
    assert 0.35 < chances[:10].mean() < 0.75
    assert chances[100:].all()


def test_a_random_team_is_uniform_in_evaluation() -> None:
    """Greedy or not: bounds of each entry are reached alike, none of the choices is preferred."""
    rules = numpy_policy.Rules(world_action="one-hot", noise="uniform")
    told: list[dict[str, Any]] = []

    class Recording(games.Zoo):
        def step(self, actions: dict[str, Any]) -> Any:
            told.append(actions)
            return super().step(actions)

    chosen = setup(rules=rules)
    zeros = (numpy_policy.Layer(np.zeros((3, 7, 6), np.float32), np.zeros((3, 1, 6), np.float32)),)
    EvalWorker(chosen, Recording).play(EvalRequest(zeros, 400, 0))
    mixer = np.array([actions["mixer"] for actions in told])
    for entry, low, high in ((0, 0.0, 1.0), (1, -2.0, 6.0)):
        share = (mixer[:, entry] - low) / (high - low)
        np.testing.assert_allclose(np.quantile(share, (0, 0.25, 0.5, 0.75, 1)), (0, 0.25, 0.5, 0.75, 1), atol=0.05)
    walker = np.array([actions["walker"] for actions in told if "walker" in actions])
    np.testing.assert_allclose([(walker == choice).mean() for choice in (-1, 0, 1)], [1 / 3] * 3, atol=0.06)


def test_an_environment_that_does_not_repeat_itself_is_noticed() -> None:
    chosen = setup()._replace(env=f"{games.__file__}:Forgetful")
    first = RolloutWorker(chosen).play(request_of(chosen))
    again = RolloutWorker(chosen).play(request_of(chosen)._replace(positions={n: p.position for n, p in first.items()}))
    assert not any(copy.repeated for copy in again.values())
    assert all(copy.lengths[0] == 1 for copy in again.values())


@pytest.mark.parametrize(
    ("kind", "seconds", "words"),
    [
        ("die", LONG, "died (signal 9)"),
        ("hang", 10.0, "has not answered for 10 s"),  # the start of the process does not count
        ("fail", LONG, "met an error in the environment (ValueError"),
    ],
)
def test_a_process_that_dies_hangs_or_fails_is_replaced(kind: str, seconds: float, words: str, tmp_path: Path) -> None:
    """The rollout is what it would have been without the trouble."""
    said: list[str] = []
    chosen = setup(trouble=f"{kind}:{tmp_path / 'once'}")
    pool = WorkerPool(chosen, num_copies=2, num_workers=2, seconds=seconds, say=said.append)
    try:
        pool.ask(request_of(chosen))
        played = pool.answer()
    finally:
        pool.close()
    quiet = RolloutWorker(setup()).play(request_of(setup()))
    assert all(equal(played[number], quiet[number]) for number in (0, 1))
    assert len(said) == 1
    assert words in said[0]
    assert "worker" in said[0]
    assert "a new process takes its place" in said[0]


def test_a_hanging_worker_is_killed_with_its_children_and_its_output_is_bounded(tmp_path: Path) -> None:
    chosen = setup(trouble=f"fork:{tmp_path / 'child'}")
    worker = Worker("worker 0", chosen, tmp_path / "logs")
    worker.ask(request_of(chosen, copies=1))
    wait_until(lambda: (tmp_path / "child").exists() and bool((tmp_path / "child").read_text()))
    child = int((tmp_path / "child").read_text())
    log = tmp_path / "logs" / "worker-0.log"
    wait_until(lambda: log.exists() and log.stat().st_size == workers.LOG_BYTES)
    assert is_running(child)
    worker.kill()
    wait_until(lambda: not is_running(child))
    assert log.stat().st_size == workers.LOG_BYTES


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Any) -> None:
    """Waits for a condition that must come true; the limit only ends a test that fails."""
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_workers_are_killed_when_the_main_process_is(tmp_path: Path) -> None:
    """A process that starts a worker, whose environment hangs, and then is killed leaves nothing behind."""
    child = tmp_path / "child"
    code = (
        "import sys, time; sys.path[:] = sys.argv[2:]; import test_workers as t;"
        "chosen = t.setup(trouble='fork:' + sys.argv[1]); w = t.Worker('worker 0', chosen); w.ask(t.request_of(chosen));"
        "time.sleep(1000)"
    )
    main = subprocess.Popen([sys.executable, "-c", code, str(child), str(Path(__file__).parent), *sys.path])
    try:
        wait_until(lambda: child.exists() and bool(child.read_text()))
    finally:
        main.kill()
        main.wait()
    wait_until(lambda: not is_running(int(child.read_text())))


def test_an_environment_that_always_fails_ends_the_run_in_words() -> None:
    said: list[str] = []
    chosen = setup(trouble="fail")
    pool = WorkerPool(chosen, num_copies=1, num_workers=1, seconds=LONG, say=said.append)
    try:
        pool.ask(request_of(chosen, copies=1))
        with pytest.raises(UsageError, match="ValueError: the walls fell down\\), 3 times in a row: fix the environment"):
            pool.answer()
    finally:
        pool.close()
    assert len(said) == 2


def test_a_mistake_of_the_user_is_reported_once_and_as_it_is() -> None:
    said: list[str] = []
    chosen = setup()._replace(env=f"{games.__file__}:Objectives")
    worker, request = Worker("worker 0", chosen), request_of(chosen, copies=1)
    worker.ask(request)
    with pytest.raises(UsageError, match=r"^--env .*:Objectives gives walker a reward of 2 numbers"):
        insist(worker, request, chosen, LONG, said.append)
    assert not said


def test_the_evaluation_environment_stays_open(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    chosen = setup(opened=str(opened))
    before = len(opened.read_text().splitlines())
    worker = EvalWorker(chosen)
    results = [worker.play(EvalRequest(layers(chosen), 2, seed)) for seed in (0, 0, 1)]
    assert len(opened.read_text().splitlines()) == before + 1
    np.testing.assert_array_equal(results[0].returns, results[1].returns)
    film = worker.play(EvalRequest(layers(chosen), 1, 0, record=True))
    assert film.frames is not None
    assert len(film.frames[0]) == 6
    assert opened.read_text().splitlines()[-1].endswith("rgb_array")


def test_workers_end_when_the_connection_does() -> None:
    chosen = setup()
    pool = WorkerPool(chosen, num_copies=1, num_workers=1, seconds=LONG, say=print)
    pool.ask(request_of(chosen, copies=1))
    process = pool.workers[0]._process
    assert process is not None
    pool.answer()
    pool.workers[0].leave()
    waiter = threading.Thread(target=process.wait, daemon=True)
    waiter.start()
    waiter.join(LONG)
    assert process.returncode == 0


OTHERS = {
    "mpe2.simple_world_comm_v3:env": 6,  # in turns, six agents of three kinds
    "pettingzoo.butterfly.knights_archers_zombies_v11:parallel_env": 4,  # agents fall in the middle of an episode
    "pettingzoo.classic.rps_v2:env": 2,
    "pettingzoo.classic.tictactoe_v3:env": 2,  # turn-based, with action masks
    "pettingzoo.classic.connect_four_v3:env": 2,
    "magent2.environments.tiger_deer_v4:parallel_env": 121,
    "gymnasium.envs.classic_control.pendulum:PendulumEnv": 1,
    "gymnasium.envs.toy_text.taxi:TaxiEnv": 1,  # action masks in its infos
}


@pytest.mark.filterwarnings("ignore")  # theirs, not ours
@pytest.mark.parametrize(("env", "count"), OTHERS.items())
def test_environments_of_other_people(env: str, count: int) -> None:
    """A rollout over the end of an episode is finite, with an agent present in every step."""
    world = open_environment(env, {}, (), 30)
    assert world.spec.num_agents == count
    chosen = setup_of(world, length=35, rules=RULES)
    request = RolloutRequest(layers(chosen), (5,), 0, 1, {0: workers.new_position(chosen, 3)})
    played = RolloutWorker(chosen).play(request)[0]
    assert played.done.any()
    assert all(np.isfinite(column).all() for column in played[:9])
    assert played.alive.any(axis=1).all()
    assert played.obs.any()
    np.testing.assert_array_equal(played.lengths[played.done][0], np.argmax(played.done) + 1)
    assert world.has_masks == (played.legal is not None) == any(name in env for name in ("tictactoe", "connect_four", "taxi"))
    if played.legal is not None:
        assert not (played.action > 0)[~played.legal].any()
        assert not played.legal.all()
