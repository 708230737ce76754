"""Processes that play: each holds some copies of an environment and the actors in NumPy, and answers with whole rollouts.

A rollout is a function of its request (`RolloutRequest`: weights, random numbers, where each copy stands), so one whose process
died or hung is simply asked for again, and a run that is taken up again asks for the one it was waiting for. Where a copy
stands is the seed of its episode and the actions since: a new process plays them again.
"""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any, NamedTuple

import numpy as np

from counterpoint.core import numpy_policy
from counterpoint.core.errors import UsageError
from counterpoint.core.numpy_policy import Layer
from counterpoint.core.spaces import Spec
from counterpoint.external.adapters import EnvCopy, open_env

TRIES = 3
"""How often one rollout is asked for before the run gives up."""


class EnvSetup(NamedTuple):
    """What does not change while a run lasts."""

    env: str
    """The environment's address."""
    arguments: dict[str, Any]
    spec: Spec
    max_steps: int
    length: int = 1
    """Steps per rollout."""
    rules: numpy_policy.Rules = numpy_policy.Rules()
    """How the actors' outputs become actions."""

    def team(self, layers: tuple[Layer, ...]) -> numpy_policy.Team:
        """Returns the actors with these weights."""
        return numpy_policy.make_team(layers, tuple(map(numpy_policy.space_of, self.spec.action_spaces)), self.rules)


class EnvPosition(NamedTuple):
    """Where one copy stands."""

    seed: np.ndarray
    """[] of its episode."""
    length: np.ndarray
    """[]: steps since."""
    actions: np.ndarray
    """[max_steps, N, A]: what was done in them; the rest is zero."""
    obs: np.ndarray
    """[N, O]: what the agents see now, to notice an environment that does not repeat itself."""
    alive: np.ndarray
    """[N]: who is there."""
    noise: np.ndarray
    """[N, A]: what exploring remembers."""
    returns: np.ndarray
    """[N]: reward since the episode began."""


class RolloutRequest(NamedTuple):
    """All that one rollout of some copies depends on."""

    layers: tuple[Layer, ...]
    entropy: tuple[int, ...]
    """From which all its random numbers come, together with a copy's own number."""
    step: int
    """World steps of the run so far, for schedules."""
    stride: int
    """How many of them one step of every copy makes."""
    places: dict[int, EnvPosition]


class EvalRequest(NamedTuple):
    """Whole episodes to be played for a judgement, beside those of training."""

    layers: tuple[Layer, ...]
    episodes: int
    seed: int
    explore: bool = False
    record: bool = False


class EvalResult(NamedTuple):
    """What an exam gave: one row per episode."""

    returns: np.ndarray
    """[E, N]"""
    lengths: np.ndarray
    frames: list[list[np.ndarray]] | None
    """The images of each episode, if they were recorded."""


class RolloutResult(NamedTuple):
    """A rollout of one copy: [T, …], and where it stands after it."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray
    alive: np.ndarray
    done: np.ndarray
    returns: np.ndarray
    """[T, N]: of the episode so far, where it ended."""
    lengths: np.ndarray
    place: EnvPosition
    repeated: bool
    """False if the copy could not be put where it stood, and began a new episode instead."""


class Failure(NamedTuple):
    """What an environment raised."""

    kind: str
    text: str
    trace: str


def new_position(setting: EnvSetup, seed: int) -> EnvPosition:
    """A copy at the start of an episode (what it sees is not known yet)."""
    shape = setting.spec.act_mask.shape
    return EnvPosition(
        seed=np.array(seed, np.int32),
        length=np.array(0, np.int32),
        actions=np.zeros((setting.max_steps, *shape), np.float32),
        obs=np.zeros(setting.spec.obs_mask.shape, np.float32),
        alive=np.ones(shape[0], bool),
        noise=np.zeros(shape, np.float32),
        returns=np.zeros(shape[0], np.float32),
    )


class RolloutWorker:
    """What a worker process does: plays rollouts of its copies."""

    def __init__(self, setting: EnvSetup) -> None:
        self.setting = setting
        self._copies: dict[int, EnvCopy] = {}
        self._stands: dict[int, tuple[int, int]] = {}
        """Which episode (seed, length) each copy is really in."""

    def play(self, start: RolloutRequest) -> dict[int, RolloutResult]:
        """A rollout of each copy, one after another: how copies share processes must not change a bit."""
        team = self.setting.team(start.layers)
        return {number: self._play(team, start, number, place) for number, place in start.places.items()}

    def _play(self, team: numpy_policy.Team, start: RolloutRequest, number: int, place: EnvPosition) -> RolloutResult:
        copy, repeated = self._put(number, place)
        if not repeated:
            place = new_position(self.setting, int(place.seed))
        rng = np.random.default_rng((*start.entropy, number))
        shape = (self.setting.length, *place.noise.shape)
        gumbel, shock = rng.gumbel(size=shape).astype(np.float32), rng.standard_normal(shape, np.float32)
        seed, actions, returns = int(place.seed), place.actions.copy(), place.returns
        carry = place.noise if self.setting.rules.noise == "ou" else None
        rows: list[tuple[Any, ...]] = []
        for t in range(self.setting.length):
            obs, alive, at = copy.obs, copy.alive, copy.length
            raw = numpy_policy.outputs(team, obs)
            action, carry = numpy_policy.noisy(team, carry, raw, gumbel[t], shock[t], start.step + t * start.stride)
            next_obs, reward, terminated, done = copy.step(action)
            actions[at], returns = action, returns + reward
            rows.append((obs, action, reward, next_obs, terminated, alive, done, returns, copy.length))
            if done:
                seed, actions, returns = int(rng.integers(2**31)), np.zeros_like(actions), np.zeros_like(returns)
                carry = None if carry is None else np.zeros_like(carry)
                copy.reset(seed)
        self._stands[number] = (seed, copy.length)
        noise = place.noise if carry is None else carry
        after = EnvPosition(np.int32(seed), np.int32(copy.length), actions, copy.obs, copy.alive, noise, returns)  # pyright: ignore[reportArgumentType]
        return RolloutResult(*(np.stack(column) for column in zip(*rows, strict=True)), place=after, repeated=repeated)

    def _put(self, number: int, place: EnvPosition) -> tuple[EnvCopy, bool]:
        """The copy where it should stand, playing its episode again if it is not there; False if that leads elsewhere."""
        setting = self.setting
        if number not in self._copies:
            self._copies[number] = EnvCopy(open_env(setting.env, setting.arguments), setting.spec, setting.max_steps)
        copy, wanted = self._copies[number], (int(place.seed), int(place.length))
        if self._stands.get(number) == wanted:
            return copy, True
        self._stands.pop(number, None)
        copy.reset(wanted[0])
        for action in place.actions[: wanted[1]]:
            if copy.step(action)[3]:
                break
        if copy.length == wanted[1] and (wanted[1] == 0 or np.array_equal(copy.obs, place.obs)):
            return copy, True
        copy.reset(wanted[0])
        return copy, False

    def close(self) -> None:
        for copy in self._copies.values():
            copy.env.close()


def main() -> None:
    """The life of a worker process: read a request, answer, until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks; when it goes, so do we
    connection = Connection(int(sys.argv[1]))
    path, setting = connection.recv()
    sys.path[:] = path
    player = RolloutWorker(setting)
    try:
        while True:
            request = connection.recv()
            try:
                answer: Any = player.play(request) if isinstance(request, RolloutRequest) else evaluate(setting, request)
            except BaseException as error:
                connection.send(Failure(type(error).__name__, str(error), traceback.format_exc()))
                raise
            connection.send(answer)
    except (EOFError, OSError):
        pass


class Lost(Exception):
    """A worker could not answer; the text says why."""


class Worker:
    """One process, from outside."""

    def __init__(self, name: str, setting: EnvSetup) -> None:
        self.name, self._setting = name, setting
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Any = None

    def ask(self, request: RolloutRequest | EvalRequest) -> None:
        """Sends a request, to a new process if there is none."""
        try:
            if self._connection is None:
                self._connection = self._open()
            self._connection.send(request)
        except OSError:
            pass  # it is dead: `answer` will say so

    def _open(self) -> Any:
        ours, theirs = Pipe()
        words = [sys.executable, "-c", "from counterpoint.external.workers import main; main()", str(theirs.fileno())]
        paths = [os.path.abspath(path) for path in sys.path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(words, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, env=environment)
        theirs.close()
        ours.send((paths, self._setting))
        return ours

    def answer(self, seconds: float) -> Any:
        """What it played; `Lost` if it is dead, fails or needs longer than that. It is gone then, and `ask` starts another."""
        process, connection = self._process, self._connection
        if process is None or connection is None:
            raise Lost("could not be started")
        try:
            if not connection.poll(seconds):
                raise Lost(f"has not answered for {seconds:g} s")
            result = connection.recv()
        except (EOFError, OSError):
            with_code = process.wait(timeout=10) if process.poll() is None else process.returncode
            raise Lost(f"died ({_how(with_code)})") from None
        except Lost:
            self.close()
            raise
        if not isinstance(result, Failure):
            return result
        kind, text, trace = result
        self.close()
        lost = Lost(f"met an error in the environment ({kind}: {text})")
        lost.add_note(trace)
        raise lost

    def close(self) -> None:
        """Ends the process, if there is one; another request starts another."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class Pool:
    """Workers that share the copies among them; one rollout of all is on its way at a time."""

    def __init__(
        self, setting: EnvSetup, num_copies: int, num_workers: int, seconds: float, say: Callable[[str], None]
    ) -> None:
        self._setting, self._seconds, self._say = setting, seconds, say
        shares = np.array_split(np.arange(num_copies), min(num_workers, num_copies))
        self._shares: list[list[int]] = [list(map(int, share)) for share in shares]
        self._workers = [Worker(f"worker {i}", setting) for i in range(len(shares))]
        self._evaluator = Worker("the evaluater", setting)
        self._asked: RolloutRequest | None = None

    def ask(self, start: RolloutRequest) -> None:
        """Lets all workers begin a rollout."""
        self._asked = start
        for worker, share in zip(self._workers, self._shares, strict=True):
            worker.ask(_part(start, share))

    def answer(self) -> list[RolloutResult]:
        """The rollout that was asked for, one for each copy, whatever becomes of single processes."""
        start = self._asked
        if start is None:
            raise RuntimeError("no rollout was asked for")
        played: dict[int, RolloutResult] = {}
        for worker, share in zip(self._workers, self._shares, strict=True):
            played |= self._insist(worker, _part(start, share))
        self._asked = None
        if not all(copy.repeated for copy in played.values()):
            self._say("the environment does not repeat itself when it is seeded anew: interrupted episodes begin again.")
        return [played[number] for number in sorted(played)]

    def evaluate(self, request: EvalRequest) -> EvalResult:
        """Whole episodes, in a process of their own."""
        self._evaluator.ask(request)
        return self._insist(self._evaluator, request)

    def _insist(self, worker: Worker, request: RolloutRequest | EvalRequest) -> Any:
        """Its answer, from new processes if need be; the last try leaves the episodes in progress and begins others."""
        seconds = self._seconds * (request.episodes if isinstance(request, EvalRequest) else 1)
        for left in reversed(range(TRIES)):
            try:
                return worker.answer(seconds)
            except Lost as lost:
                copies = f", copies {', '.join(map(str, request.places))}" if isinstance(request, RolloutRequest) else ""
                where = f"{worker.name} ({self._setting.env}{copies}) {lost}"
                if left == 0:
                    notes = "".join(f"\n{note}" for note in getattr(lost, "__notes__", ()))
                    raise UsageError(
                        f"{where}, {TRIES} times in a row: mend the environment, then resume from the last checkpoint.{notes}"
                    ) from lost
                self._say(f"{where}; a new process takes its place{' and begins new episodes' * (left == 1)}.")
                request = _elsewhere(self._setting, request) if left == 1 else request
                worker.close()
                worker.ask(request)
        raise AssertionError("unreachable")

    def close(self) -> None:
        for worker in (*self._workers, self._evaluator):
            worker.close()


def _part(start: RolloutRequest, share: Sequence[int]) -> RolloutRequest:
    return start._replace(places={number: start.places[number] for number in share})


def _elsewhere(setting: EnvSetup, request: RolloutRequest | EvalRequest) -> RolloutRequest | EvalRequest:
    """The same request with other episodes."""
    if isinstance(request, EvalRequest):
        return request._replace(seed=request.seed + 1)
    seeds = {number: int(np.random.default_rng((*request.entropy, number, 1)).integers(2**31)) for number in request.places}
    return request._replace(places={number: new_position(setting, seed) for number, seed in seeds.items()})


def evaluate(setting: EnvSetup, request: EvalRequest) -> EvalResult:
    """Whole episodes, in this process."""
    team = setting.team(request.layers)
    env = open_env(setting.env, setting.arguments, request.record)
    if env is None:  # it cannot draw
        return EvalResult(np.zeros((0, setting.spec.num_agents)), np.zeros(0, int), [])
    copy, rng = EnvCopy(env, setting.spec, setting.max_steps), np.random.default_rng((request.seed, 0xE7A1))
    returns, lengths, films = [], [], []
    try:
        for _ in range(request.episodes):
            copy.reset(int(rng.integers(2**31)))
            total, carry, done = np.zeros(setting.spec.num_agents, np.float32), numpy_policy.begin(team), False
            film = [_frame(env)] if request.record else []
            while not done:
                if request.explore:
                    action, carry = numpy_policy.explore(team, carry, copy.obs, rng)
                else:
                    action = numpy_policy.greedy(team, copy.obs)
                _, reward, _, done = copy.step(action)
                total += reward
                film += [_frame(env)] if request.record else []
            returns.append(total)
            lengths.append(copy.length)
            films.append([frame for frame in film if frame is not None])
    finally:
        env.close()
    return EvalResult(np.stack(returns), np.array(lengths), films if request.record else None)


def _frame(env: Any) -> np.ndarray | None:
    try:
        frame = env.render()
    except Exception:  # a display it does not have, a package it misses: then there is no film
        return None
    return np.asarray(frame, np.uint8) if isinstance(frame, np.ndarray) and frame.ndim == 3 else None
