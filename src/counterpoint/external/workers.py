"""Worker processes: each holds copies of an environment and the actors in NumPy, and answers requests for whole rollouts.

A rollout is a function of its request (weights, random numbers, the position of each copy), so a rollout whose process died or
hung is requested again, and a resumed run requests the one it was waiting for. The position of a copy is the seed of its
episode and the actions since: a new process plays them again.

No wait is unbounded. A worker leads a process group of its own, which is killed as a whole; what it prints goes to a file of
bounded size; requests and results travel over a socket that its own child processes do not inherit.
"""

import os
import pickle
import secrets
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoint.core import marked, numpy_policy
from counterpoint.core.action_stats import ActionSums, action_sums, no_actions, stacked
from counterpoint.core.errors import UsageError
from counterpoint.core.loading import WORKER, first_line
from counterpoint.core.numpy_policy import Layer
from counterpoint.core.spaces import Spec
from counterpoint.external.adapters import EnvCopy, InfoMetrics, close_env, episode_metrics, load_factory, open_env

TRIES = 3
"""How often one request is sent before the run gives up."""
START_SECONDS = 120.0
"""The longest time that a process may take to start and to import the environment's module."""
GRACE_SECONDS = 5.0
"""How long workers may take to close their environments before they are killed."""
LOG_BYTES = 1_000_000
"""The largest size of a worker's log file; what it prints beyond that is dropped."""


class EnvSetup(NamedTuple):
    """What a worker needs to know once: it does not change during a run."""

    env: str
    """The environment's address."""
    arguments: dict[str, Any]
    spec: Spec
    max_steps: int
    has_masks: bool = False
    factory: bytes = b""
    """The pickled factory, if it lives in a script or notebook that workers should not import."""
    length: int = 1
    """Steps per rollout."""
    rules: numpy_policy.Rules = numpy_policy.Rules()
    """How the actors' outputs become actions."""
    num_hidden: int = 0
    """Units with which each actor remembers the episode; 0 if actors are not recurrent."""

    def team(self, layers: tuple[Layer, ...]) -> numpy_policy.Team:
        """Returns the actors with these weights."""
        return numpy_policy.make_team(layers, tuple(map(numpy_policy.space_of, self.spec.action_spaces)), self.rules)

    def load_factory(self) -> Any:
        """Returns the function or class that makes the environment."""
        return pickle.loads(self.factory) if self.factory else load_factory(self.env)

    def open(self, factory: Any = None, render: bool = False) -> EnvCopy | None:
        """Opens a copy of the environment; with `render`, one that draws images, or None if it cannot."""
        env = open_env(self.env, self.arguments, render, self.load_factory() if factory is None else factory)
        return None if env is None else EnvCopy(env, self.spec, self.max_steps, self.has_masks, self.env)


class EnvPosition(NamedTuple):
    """The position of one copy within its episode."""

    seed: np.ndarray
    """[]: the seed of its episode."""
    length: np.ndarray
    """[]: steps since the episode began."""
    actions: np.ndarray
    """[max_steps, N, A]: the actions of these steps; the rest is zero."""
    obs: np.ndarray
    """[N, O]: the current observations, to notice an environment that does not repeat itself."""
    alive: np.ndarray
    """[N]: which agents are present."""
    noise: np.ndarray
    """[N, A]: the carry of the exploration noise."""
    returns: np.ndarray
    """[N]: the sum of rewards since the episode began."""
    hidden: np.ndarray | None = None
    """[N, H]: what recurrent actors remember of the episode; None if they are not recurrent."""


class RolloutRequest(NamedTuple):
    """Everything that one rollout of some copies depends on."""

    layers: tuple[Layer, ...]
    entropy: tuple[int, ...]
    """The seed of all random numbers, together with a copy's own number."""
    step: int
    """Environment steps of the run so far, for schedules."""
    stride: int
    """How many of them one step of every copy makes."""
    positions: dict[int, EnvPosition]
    """By the number of the copy."""


class RolloutResult(NamedTuple):
    """A rollout of one copy, [T, …] each, and its position afterwards."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray
    alive: np.ndarray
    done: np.ndarray
    returns: np.ndarray
    """[T, N]: the sum of rewards of the episode so far."""
    lengths: np.ndarray
    """[T]: the steps of the episode so far."""
    legal: np.ndarray | None
    """[T, N, A]: which action entries were legal; None without action masks."""
    next_legal: np.ndarray | None
    position: EnvPosition
    repeated: bool
    """False if the copy could not be brought back to its position and began a new episode instead."""


class EvalRequest(NamedTuple):
    """Whole episodes to evaluate a policy on, independent of those of training."""

    layers: tuple[Layer, ...]
    episodes: int
    seed: int
    explore: bool = False
    record: bool = False


class EvalResult(NamedTuple):
    """The evaluated episodes, one row each."""

    returns: np.ndarray
    """[E, N]"""
    lengths: np.ndarray
    frames: list[list[np.ndarray]] | None
    """The images of each episode, if they were recorded."""
    metrics: dict[str, np.ndarray]
    """Numbers of the environment's infos by name, one per episode [E]; NaN in an episode that did not report them."""
    actions: ActionSums
    """Sums over the actions of each episode, [E, N, A]."""


class Failure(NamedTuple):
    """An error that an environment raised in a worker."""

    kind: str
    text: str
    trace: str


READY = "ready"
"""A worker's first message: it has started and imported the environment's module."""
ALIVE = "alive"
"""A worker's message between two episodes of an evaluation: the limit of time is that of one episode."""


def new_position(setup: EnvSetup, seed: int) -> EnvPosition:
    """Returns the position at the start of an episode; its observations are not known yet."""
    shape = setup.spec.act_mask.shape
    return EnvPosition(
        seed=np.array(seed, np.int32),
        length=np.array(0, np.int32),
        actions=np.zeros((setup.max_steps, *shape), np.float32),
        obs=np.zeros(setup.spec.obs_mask.shape, np.float32),
        alive=np.ones(shape[0], bool),
        noise=np.zeros(shape, np.float32),
        returns=np.zeros(shape[0], np.float32),
        hidden=np.zeros((shape[0], setup.num_hidden), np.float32) if setup.num_hidden else None,
    )


class RolloutWorker:
    """Plays rollouts of some copies of an environment, in this process."""

    def __init__(self, setup: EnvSetup, factory: Any = None) -> None:
        self.setup, self._factory = setup, factory
        self._copies: dict[int, EnvCopy] = {}
        self._positions: dict[int, tuple[int, int]] = {}
        """The episode (seed, length) that each copy is really in."""

    def play(self, request: RolloutRequest) -> dict[int, RolloutResult]:
        """Plays a rollout of each copy, one after another, so that how processes share copies does not change a bit."""
        team = self.setup.team(request.layers)
        return {number: self._play(team, request, number, position) for number, position in request.positions.items()}

    def _play(self, team: numpy_policy.Team, request: RolloutRequest, number: int, position: EnvPosition) -> RolloutResult:
        copy, repeated = self._restore(number, position)
        if not repeated:
            position = new_position(self.setup, int(position.seed))
        rng = np.random.default_rng((*request.entropy, number))
        shape = (self.setup.length, *position.noise.shape)
        gumbel, shock = rng.gumbel(size=shape).astype(np.float32), numpy_policy.shocks(team, rng, shape)
        seed, actions, returns = int(position.seed), position.actions.copy(), position.returns
        carry, hidden = position.noise if self.setup.rules.noise == "ou" else None, position.hidden
        rows: list[tuple[Any, ...]] = []
        for t in range(self.setup.length):
            obs, alive, legal, at = copy.obs, copy.alive, copy.legal, copy.length
            raw, hidden = numpy_policy.remembering(team, hidden, obs)
            step = request.step + t * request.stride
            action, carry = numpy_policy.noisy(team, carry, raw, gumbel[t], shock[t], step, legal)
            next_obs, reward, terminated, done = copy.step(action)
            actions[at], returns = action, returns + reward
            rows.append((obs, action, reward, next_obs, terminated, alive, done, returns, copy.length, legal, copy.legal))
            if done:
                seed, actions, returns = int(rng.integers(2**31)), np.zeros_like(actions), np.zeros_like(returns)
                carry, hidden = (None if state is None else np.zeros_like(state) for state in (carry, hidden))
                copy.reset(seed)
        self._positions[number] = (seed, copy.length)
        noise = position.noise if carry is None else carry
        where = np.int32(seed), np.int32(copy.length)
        after = EnvPosition(*where, actions, copy.obs, copy.alive, noise, returns, hidden)  # pyright: ignore[reportArgumentType]
        columns = [None if column[0] is None else np.stack(column) for column in zip(*rows, strict=True)]
        return RolloutResult(*columns, position=after, repeated=repeated)  # pyright: ignore[reportArgumentType]

    def _restore(self, number: int, position: EnvPosition) -> tuple[EnvCopy, bool]:
        """Brings a copy to its position, playing its episode again if needed; returns False if that leads elsewhere."""
        if number not in self._copies:
            opened = self.setup.open(self._factory)
            assert opened is not None
            self._copies[number] = opened
        copy, wanted = self._copies[number], (int(position.seed), int(position.length))
        if self._positions.get(number) == wanted:
            return copy, True
        self._positions.pop(number, None)
        copy.reset(wanted[0])
        for action in position.actions[: wanted[1]]:
            if copy.step(action)[3]:
                break
        if copy.length == wanted[1] and (wanted[1] == 0 or np.array_equal(copy.obs, position.obs)):
            return copy, True
        copy.reset(wanted[0])
        return copy, False

    def close(self) -> None:
        """Closes all copies."""
        for copy in self._copies.values():
            close_env(copy.env)


class EvalWorker:
    """Plays whole episodes, in this process, on an environment that stays open between requests."""

    def __init__(self, setup: EnvSetup, factory: Any = None) -> None:
        self.setup, self._factory = setup, factory
        self._copies: dict[bool, EnvCopy | None] = {}
        """By whether the copy draws; None if it cannot."""

    def play(self, request: EvalRequest, alive: Callable[[], object] = lambda: None) -> EvalResult:
        """Plays the requested episodes one after another, and calls `alive` after each."""
        setup = self.setup
        if request.record not in self._copies:
            self._copies[request.record] = setup.open(self._factory, request.record)
        copy = self._copies[request.record]
        if copy is None:
            return EvalResult(np.zeros((0, setup.spec.num_agents)), np.zeros(0, int), [], {}, no_actions(setup.spec, 0))
        team, rng = setup.team(request.layers), np.random.default_rng((request.seed, 0xE7A1))
        played = []
        for _ in range(request.episodes):
            played.append(self._episode(copy, team, rng, request))
            alive()
        returns, lengths, frames, infos, actions = zip(*played, strict=True)
        shown = list(frames) if request.record else None
        return EvalResult(np.stack(returns), np.array(lengths), shown, episode_metrics(infos), stacked(actions))

    def _episode(
        self, copy: EnvCopy, team: numpy_policy.Team, rng: np.random.Generator, request: EvalRequest
    ) -> tuple[np.ndarray, int, list[np.ndarray], dict[str, float], ActionSums]:
        copy.reset(int(rng.integers(2**31)))
        total, done = np.zeros(self.setup.spec.num_agents, np.float32), False
        carry, hidden = numpy_policy.begin(team), numpy_policy.begin_hidden(team)
        infos, actions = InfoMetrics(), no_actions(self.setup.spec)
        frames = [_frame(copy.env)] if request.record else []
        while not done:
            raw, hidden = numpy_policy.remembering(team, hidden, copy.obs)
            if request.explore or team.rules.noise == "uniform":  # a random team has no greedy actions
                action, carry = numpy_policy.drawn(team, carry, raw, rng, legal=copy.legal)
            else:
                action = numpy_policy.best(team, raw, copy.legal)
            actions = actions.plus(action_sums(self.setup.spec, action, copy.alive, copy.legal))
            _, reward, _, done = copy.step(action)
            total += reward
            infos.add(copy.infos)
            frames += [_frame(copy.env)] if request.record else []
        return total, copy.length, [frame for frame in frames if frame is not None], infos.result(), actions

    def close(self) -> None:
        """Closes the environments."""
        for copy in self._copies.values():
            if copy is not None:
                close_env(copy.env)


def evaluate(setup: EnvSetup, request: EvalRequest) -> EvalResult:
    """Plays whole episodes in this process, on an environment that is opened for them."""
    worker = EvalWorker(setup)
    try:
        return worker.play(request)
    finally:
        worker.close()


def _frame(env: Any) -> np.ndarray | None:
    try:
        frame = env.render()
    except Exception:  # it lacks a display or a package: then there is no film
        return None
    return np.asarray(frame, np.uint8) if isinstance(frame, np.ndarray) and frame.ndim == 3 else None


def main() -> None:
    """Runs a worker process: reads requests and sends results until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process; its end ends this one
    number, parent = map(int, sys.argv[1:3])
    connection = Connection(number)
    os.set_inheritable(number, False)  # processes that the environment starts must not hold or write to it
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with suppress(EOFError, OSError):
        path, setup = connection.recv()
        sys.path[:] = path
        with _reported(connection):
            factory = setup.load_factory()
            players = {RolloutRequest: RolloutWorker(setup, factory), EvalRequest: EvalWorker(setup, factory)}
        connection.send(READY)
        try:
            while True:
                request = connection.recv()
                with _reported(connection):
                    player = players[type(request)]
                    told = (lambda: connection.send(ALIVE),) if isinstance(player, EvalWorker) else ()
                    result = player.play(request, *told)
                connection.send(result)
        finally:
            for player in players.values():
                player.close()
    if os.getppid() != parent:
        marked.end(WORKER, os.environ.get(WORKER, ""))
        _kill_group(os.getpid())


@contextmanager
def _reported(connection: Any) -> Iterator[None]:
    """Sends an error of the block to the main process before it ends this one."""
    try:
        yield
    except BaseException as error:
        connection.send(Failure(type(error).__name__, str(error), traceback.format_exc()))
        raise


def _end_with(parent: int) -> None:
    """Kills this process and its children once the main process is gone, even if the environment hangs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    marked.end(WORKER, os.environ.get(WORKER, ""))
    _kill_group(os.getpid())


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


class WorkerLost(Exception):
    """A worker could not answer; the text says why."""


class Worker:
    """One worker process, seen from the main process."""

    def __init__(self, name: str, setup: EnvSetup, logs: Path | None = None) -> None:
        self.name, self._setup = name, setup
        self._log = logs / f"{name.replace(' ', '-')}.log" if logs else None
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Any = None
        self._ready = False
        self._mark = ""

    def start(self) -> None:
        """Starts the process, if there is none."""
        if self._process is not None:
            return
        ours, theirs = Pipe()
        code = "from counterpoint.external.workers import main; main()"
        words = [sys.executable, "-c", code, str(theirs.fileno()), str(os.getpid())]
        paths = [os.path.abspath(path) for path in sys.path]
        self._mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        settings = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        settings[WORKER] = self._mark  # inherited by all that the environment starts
        self._process = subprocess.Popen(
            words,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self._log else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            env={**os.environ, **settings},
            start_new_session=True,  # a process group of its own, to be killed with all that the environment starts
        )
        theirs.close()
        if self._log:
            threading.Thread(target=_keep_output, args=(self._process.stdout, self._log), daemon=True).start()
        self._connection, self._ready = ours, False
        with suppress(OSError), self._limit(START_SECONDS):
            ours.send((paths, self._setup))

    def ask(self, request: RolloutRequest | EvalRequest) -> None:
        """Sends a request, to a new process if there is none."""
        self.start()
        with suppress(OSError), self._limit(START_SECONDS):  # if the process is dead, `answer` says so
            self._connection.send(request)

    def answer(self, seconds: float) -> Any:
        """Returns the result of the last request.

        Raises `WorkerLost`, and ends the process, if it is dead, raises an error or takes longer than that; the time of
        starting the process does not count. An error that is the user's to mend is raised as it is.
        """
        if self._process is None:
            raise WorkerLost("could not be started")
        try:
            if not self._ready:
                self._receive(START_SECONDS)
                self._ready = True
            return self._receive(seconds)
        except (EOFError, OSError):
            raise WorkerLost(f"died ({_how(self._exit_code())})") from None
        except (pickle.UnpicklingError, ValueError, AttributeError, ImportError) as error:
            if isinstance(error, UsageError):
                raise
            raise WorkerLost(f"sent an unreadable result ({type(error).__name__}: {first_line(error)})") from None
        except BaseException:
            self.kill()
            raise

    def _receive(self, seconds: float) -> Any:
        result: Any = ALIVE
        while isinstance(result, str) and result == ALIVE:
            if not self._connection.poll(seconds):
                self.kill()
                raise WorkerLost(f"has not answered for {seconds:g} s")
            with self._limit(seconds):
                result = self._connection.recv()
        if not isinstance(result, Failure):
            return result
        self.kill()
        if result.kind == UsageError.__name__:
            raise UsageError(result.text)
        lost = WorkerLost(f"met an error in the environment ({result.kind}: {result.text})")
        lost.add_note(result.trace)
        raise lost

    @contextmanager
    def _limit(self, seconds: float) -> Iterator[None]:
        """Kills the process if the block takes longer, which ends a blocked read or write."""
        process = self._process
        timer = threading.Timer(seconds, lambda: process and _kill_group(process.pid))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _exit_code(self) -> int:
        process = self._process
        assert process is not None
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_SECONDS)
        self.kill()
        return process.returncode

    def leave(self) -> None:
        """Tells the process that it is no longer needed."""
        if self._connection is not None:
            self._connection.close()

    def kill(self, grace: float = 0.0) -> None:
        """Ends the process and all that it started, after some time to close its environments."""
        process, self._process = self._process, None
        self.leave()
        self._connection = None
        if process is None:
            return
        if grace > 0:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=grace)
        _kill_group(process.pid)
        process.wait()
        marked.end(WORKER, self._mark)  # children that left the process group


def _keep_output(stream: Any, path: Path) -> None:
    """Copies what a worker prints to a file until the file is full, and drops the rest."""
    with stream:
        while block := stream.read1(65536):
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("ab") as file:
                    file.write(block[: max(0, LOG_BYTES - file.tell())])


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class WorkerPool:
    """Workers that share the copies among them. One rollout of all copies is in progress at a time."""

    def __init__(
        self,
        setup: EnvSetup,
        num_copies: int,
        num_workers: int,
        seconds: float,
        say: Callable[[str], None],
        logs: Path | None = None,
    ) -> None:
        self._setup, self._seconds, self._say = setup, seconds, say
        shares = np.array_split(np.arange(num_copies), min(num_workers, num_copies))
        self._shares: list[list[int]] = [list(map(int, share)) for share in shares]
        self.workers = [Worker(f"worker {i}", setup, logs) for i in range(len(shares))]
        self._request: RolloutRequest | None = None

    def ask(self, request: RolloutRequest) -> None:
        """Lets all workers begin a rollout."""
        self._request = request
        for worker in self.workers:
            worker.start()
        for worker, share in zip(self.workers, self._shares, strict=True):
            worker.ask(_part(request, share))

    def answer(self) -> list[RolloutResult]:
        """Returns the requested rollout of each copy, whatever happens to single processes."""
        request = self._request
        if request is None:
            raise RuntimeError("no rollout was requested")
        played: dict[int, RolloutResult] = {}
        for worker, share in zip(self.workers, self._shares, strict=True):
            played |= insist(worker, _part(request, share), self._setup, self._seconds, self._say)
        self._request = None
        if not all(copy.repeated for copy in played.values()):
            self._say("the environment does not repeat itself under the same seed: interrupted episodes begin again.")
        return [played[number] for number in sorted(played)]

    def close(self) -> None:
        """Ends the workers."""
        end(self.workers)


def end(workers: Sequence[Worker]) -> None:
    """Ends workers together: all have the same time to close their environments."""
    for worker in workers:
        worker.leave()
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        worker.kill(grace=max(0.0, deadline - time.monotonic()))


def insist(
    worker: Worker, request: RolloutRequest | EvalRequest, setup: EnvSetup, seconds: float, say: Callable[[str], None]
) -> Any:
    """Returns a worker's result, from new processes if need be; the last try abandons the episodes and begins others."""
    for left in reversed(range(TRIES)):
        try:
            return worker.answer(seconds)
        except WorkerLost as lost:
            copies = f", copies {', '.join(map(str, request.positions))}" if isinstance(request, RolloutRequest) else ""
            where = f"{worker.name} ({setup.env}{copies}) {lost}"
            if left == 0:
                notes = "".join(f"\n{note}" for note in getattr(lost, "__notes__", ()))
                raise UsageError(
                    f"{where}, {TRIES} times in a row: fix the environment, then resume from the last checkpoint.{notes}"
                ) from lost
            say(f"{where}; a new process takes its place{' and begins new episodes' * (left == 1)}.")
            request = _elsewhere(setup, request) if left == 1 else request
            worker.kill()
            worker.ask(request)
    raise AssertionError("unreachable")


def _part(request: RolloutRequest, share: Sequence[int]) -> RolloutRequest:
    return request._replace(positions={number: request.positions[number] for number in share})


def _elsewhere(setup: EnvSetup, request: RolloutRequest | EvalRequest) -> RolloutRequest | EvalRequest:
    """Returns the same request with other episodes."""
    if isinstance(request, EvalRequest):
        return request._replace(seed=request.seed + 1)
    seeds = {number: int(np.random.default_rng((*request.entropy, number, 1)).integers(2**31)) for number in request.positions}
    return request._replace(positions={number: new_position(setup, seed) for number, seed in seeds.items()})
