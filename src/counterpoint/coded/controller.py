"""Distributed learning: a controller that takes the place of an algorithm's `update` and has learners compute it.

One update: publish all agents and the minibatch once, hand out tasks as the scheme says (`rounds.py`), wait for answers until
they determine every agent, tell the others to stop, decode. Learners may be slow, hang, die or come late: nothing waits
without a limit, and what a lost learner was to compute goes to another if it is needed.

Schemes whose answers are the updates themselves (uncoded, replication, stream, backup, hedge) give the same bits whoever
computed what; sums of a linear code give them up to a rounding error, which is the metric `decode_error`.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.algos.base import Algorithm, Metrics
from counterpoint.coded import learner as learners
from counterpoint.coded.codes import decode, fold, unfold
from counterpoint.coded.learner import Order, Published, Report, Trouble, Vector, Work
from counterpoint.coded.planner import compare, delay_models, possible_schemes, recording_of
from counterpoint.coded.rounds import Round, Task, code_of, fastest_first, is_linear, make_round
from counterpoint.coded.simulator import Crashes, Mixed, Scheme, Timeline, parse_scheme, recommend
from counterpoint.core.errors import UsageError
from counterpoint.core.types import Key, Transition

DECODE_ERROR = "decode_error"
"""The metric: relative error to expect in each agent's update."""

START_LIMIT = 180.0
"""Seconds that learners may take to start: many on few cores take their time."""

AUTO_SCHEMES = ("uncoded", "replication", "stream:3", "backup", "hedge:1.5", "fastest_first", "backup+fastest_first")
"""What `auto` chooses from: schemes that give the same bits, so that its choice cannot change the run."""
AUTO_EVERY = 20
"""Updates after which it chooses anew, from the last five times as many."""


@dataclass(frozen=True)
class Distribution:
    """Learning spread over processes or machines."""

    learners: int = 0
    """Learners that compute the agents' updates, each a process (0: everything in one program)."""
    code: str = "auto"
    """uncoded, replication, mds, random-sparse, ldpc, cyclic:2, stream:3, backup, hedge:1.5, fastest-first, or auto."""
    ray_address: str = ""
    """The Ray cluster with the learners: auto, or host:port (empty: on this machine, reachable from nowhere else)."""
    straggle: str = ""
    """Trouble to make for learners, such as k=2,delay=0.25 or slow=1,factor=4 or crash=0.01 (as in `counterpoint plan`)."""
    pad: float = 0.0
    """Seconds that a learner takes at least for one agent, by waiting: few cores then behave like many machines."""
    patience: float = 60.0
    """Seconds after which a learner that does not answer is replaced."""
    min_learners: int = 1
    """Save and stop when fewer live for longer than the patience."""
    timeline: int = 1000
    """Updates whose tasks are recorded in the run's `learners.csv` (0: none)."""

    def check(self, num_agents: int) -> None:
        """Refuses what cannot work."""
        for name, least in (("learners", 0), ("pad", 0), ("patience", 1), ("min_learners", 1), ("timeline", 0)):
            if not least <= getattr(self, name) < math.inf:
                raise UsageError(f"--{name.replace('_', '-')} must be at least {least}, not {getattr(self, name):g}.")
        if not self.learners:
            return
        if self.min_learners > self.learners:
            raise UsageError(f"--min-learners {self.min_learners} is more than --learners {self.learners}: choose fewer.")
        if self.code != "auto":
            scheme = parse_scheme(self.code)
            if is_linear(scheme):
                code_of(scheme, num_agents, self.learners)
        for model in delay_models(self.straggle):
            model.sample(np.random.default_rng(0), 1, self.learners)


class Answer(NamedTuple):
    """A learner has done, or been stopped in, what it was ordered."""

    learner: int
    order: Order
    report: Report
    message: Any
    """What `Transport.fetch` takes."""


class Lost(NamedTuple):
    """A learner is gone."""

    learner: int
    reason: str


class Joined(NamedTuple):
    """A learner is ready for work."""

    learner: int


class Unreachable(Exception):
    """A message cannot be had any more: whoever kept it is gone."""


@runtime_checkable
class Transport(Protocol):
    """How orders reach learners and answers come back. A learner that is lost is not replaced until `spawn` is called."""

    def spawn(self, learner: int) -> None: ...
    def kill(self, learner: int) -> None: ...
    def publish(self, published: Published) -> Any: ...
    def send(self, learner: int, handle: Any, order: Order) -> None: ...
    def stop(self, learner: int, update: int) -> None: ...
    def poll(self, timeout: float) -> list[Answer | Lost | Joined]: ...
    def fetch(self, message: Any) -> Vector: ...
    def close(self) -> None: ...


class _Pending(NamedTuple):
    """What a learner was ordered and has not answered yet."""

    order: Order
    row: "Row"
    began: float
    """When the update began."""
    sent: float


class Times(NamedTuple):
    """Seconds that the controller spent in one update."""

    total: float
    publishing: float
    fetching: float
    decoding: float
    encoding: float
    """By the slowest learner whose answer was used."""


Row = dict[str, Any]
"""Of the timeline: see `plan.COLUMNS`."""


def work_of(algo: Algorithm, memory: Any, pad: float) -> Work:
    """What learners compute for this algorithm on minibatches of this memory."""
    require_distributable(algo)
    assert algo.update_one is not None
    key = jax.eval_shape(lambda: jax.random.split(_some_key())[0])
    agents = jax.eval_shape(algo.init, key)
    batch = jax.eval_shape(memory.sample, jax.eval_shape(memory.init), key)
    floats, integers = jax.eval_shape(learners.pack, agents)
    example = Published(floats, integers, batch, jax.eval_shape(jax.random.key_data, key))
    return Work(algo.update_one, learners.layout_of(algo.update_one, agents, batch, key), example, pad)


def require_distributable(algo: Algorithm) -> None:
    """Refuses algorithms whose agents cannot learn apart from each other."""
    if algo.update_one is None:
        raise UsageError(
            "agents that learn from each other's updates cannot be distributed: choose --order snapshot, or no --learners."
        )


def _some_key() -> Key:
    from counterpoint.core import prng

    return prng.key(0)


class Controller:
    """`update` of a distributed run: (agents, batch, key) → (agents, metrics). Learners start with it, and end with `close`."""

    def __init__(
        self,
        algo: Algorithm,
        work: Work,
        settings: Distribution,
        transport: Transport,
        seed: int = 0,
        say: Callable[[str], None] = lambda sentence: None,
        record: Callable[[Sequence[Row]], None] = lambda rows: None,
        fail: Callable[[], None] = lambda: None,
        first: int = 0,
    ) -> None:
        self.failed = ""
        """Why the run must stop, once it must; `fail` is called then, and further updates are computed here."""
        self.times: Times | None = None
        """Of the last update."""
        self.rows: deque[Row] = deque(maxlen=5 * AUTO_EVERY * max(settings.learners, 1) * 4)
        """The latest of the timeline."""
        self._settings, self._work, self._transport, self._say, self._record = settings, work, transport, say, record
        self._scheme = parse_scheme("backup" if settings.code == "auto" else settings.code)
        self._lab = _Laboratory(settings.straggle, settings.learners, seed)
        self._update = first - 1
        self._fail_run, self._compute = fail, lru_cache(lambda: learners.compiled(work))
        self._alive: set[int] = set()
        self._busy: dict[int, _Pending] = {}
        self._starting: dict[int, float] = {}
        """Learners not ready yet, and since when."""
        self._failures = dict.fromkeys(range(settings.learners), 0)
        self._speeds: dict[int, float] = {}
        """A moving average of each learner's seconds per agent."""
        self._unit = 0.0
        self._done: list[Row] = []
        self._pack = jax.jit(learners.pack)
        self._accept = jax.jit(lambda floats, integers, tail: _accept(work, floats, integers, tail))
        self._gather = jax.jit(algo.gather) if algo.gather else lambda batch, figures: figures
        for learner in range(settings.learners):
            self._spawn(learner)
        self._wait_for_learners()

    def __call__(self, agents: Any, batch: Transition, key: Key) -> tuple[Any, Metrics]:
        began = time.monotonic()
        self._update += 1
        if self._settings.code == "auto" and self._update % AUTO_EVERY == AUTO_EVERY - 1:
            self._choose()
        floats, integers = self._pack(agents)
        published = Published(*jax.device_get((floats, integers, batch, jax.random.key_data(key))))
        handle = self._transport.publish(published)
        publishing = time.monotonic() - began
        answers, fetching, encoding = (
            (self._alone(published), 0.0, 0.0) if self.failed else self._collect(handle, published, began)
        )
        decoding = time.monotonic()
        vectors, error = self._decode(published, answers)
        agents, figures = self._accept(*_parts(self._work, vectors, published))
        metrics = self._gather(batch, figures) | {DECODE_ERROR: jnp.asarray(error, jnp.float32)}
        now = time.monotonic()
        self.times = Times(now - began, publishing, fetching, now - decoding, encoding)
        return agents, metrics

    def change(self, code: str, straggle: str, among: int) -> None:
        """Goes on under another scheme and other trouble, which befalls only the first `among` learners."""
        self._settings = replace(self._settings, code=code, straggle=straggle)
        self._scheme = parse_scheme("backup" if code == "auto" else code)
        self._lab = _Laboratory(straggle, among, seed=0)
        self._speeds.clear()
        self.rows.clear()
        self._update = AUTO_EVERY * (self._update // AUTO_EVERY + 1) - 1

    def _collect(self, handle: Any, published: Published, began: float) -> tuple[list[tuple[Task, Vector]], float, float]:
        """Answers that determine every agent, the seconds spent fetching, and the longest a learner spent encoding."""
        round_ = self._new_round()
        for event in self._transport.poll(0.0):
            self._notice(event, round_)
        answers: list[tuple[Task, Vector]] = []
        fetching = encoding = 0.0
        short_since: float | None = None
        while not round_.done:
            now = time.monotonic()
            for learner, task in round_.assign(now):
                self._send(learner, handle, task, began)
            short = len(self._alive) < self._settings.min_learners
            short_since = (short_since or now) if short else None
            if short_since is not None and (now - short_since > self._settings.patience or not self._starting):
                self._fail()
                return self._alone(published), fetching, encoding
            for event in self._transport.poll(max(0.0, min(round_.timer(now), self._nearest_limit(now), 1.0))):
                if isinstance(event, Answer) and event.order.update == self._update and not event.report.stopped:
                    before = time.monotonic()
                    message = self._take(round_, event)
                    fetching += time.monotonic() - before
                    if message is not None:
                        answers.append((event.order.task, message))
                        encoding = max(encoding, event.report.encoding)
                else:
                    self._notice(event, round_)
            self._replace_hung(round_)
        for learner in round_.running:
            self._transport.stop(learner, self._update)
        return answers, fetching, encoding

    def _new_round(self) -> Round:
        everyone = range(self._settings.learners)
        order = fastest_first(everyone, self._speeds) if self._scheme.fastest_first else list(everyone)
        num_agents = self._work.example.floats.shape[0]
        round_ = make_round(self._scheme, num_agents, order, lambda: self._unit or math.inf)
        for learner in self._alive - self._busy.keys():
            round_.free(learner)
        return round_

    def _send(self, learner: int, handle: Any, task: Task, began: float) -> None:
        now = time.monotonic()
        order = Order(self._update, task, self._lab.trouble(self._update, learner, now - began))
        row = {
            **{"update": self._update, "learner": learner, "scheme": _written(self._scheme)},
            **{"agents": "+".join(map(str, task.agents)), "sent": now - began},
        }
        self._busy[learner] = _Pending(order, row, began, now)
        self._transport.send(learner, handle, order)

    def _take(self, round_: Round, answer: Answer) -> Vector | None:
        """The message of an answer, if it is of use and still to be had."""
        if round_.done or not round_.wanted(answer.learner):
            round_.answered(answer.learner)
            self._close_row(answer.learner, answer.report, "unused")
            return None
        try:
            message = self._transport.fetch(answer.message)
        except Unreachable as error:
            self._notice(Lost(answer.learner, str(error)), round_)
            return None
        round_.answered(answer.learner)
        self._close_row(answer.learner, answer.report, "used")
        return message

    def _notice(self, event: Answer | Lost | Joined, round_: Round | None) -> None:
        """Keeps account of whatever is no answer to the present update."""
        learner = event.learner
        if isinstance(event, Answer):
            self._close_row(learner, event.report, "stopped" if event.report.stopped else "unused")
        elif isinstance(event, Joined):
            self._starting.pop(learner, None)
            self._alive.add(learner)
            self._failures[learner] = 0
        else:
            self._forget(learner, event.reason)
            if round_:
                round_.lost(learner)
            return
        if round_:
            round_.free(learner)

    def _forget(self, learner: int, reason: str) -> None:
        """Accounts for a lost learner and replaces it, unless it has failed to start three times in a row."""
        self._alive.discard(learner)
        self._speeds.pop(learner, None)
        if self._starting.pop(learner, None) is not None:
            self._failures[learner] += 1
        if learner in self._busy:
            self._close_row(learner, None, "lost")
        given_up = self._failures[learner] >= 3
        self._say(f"learner {learner} is lost ({reason}); {'it is given up' if given_up else 'another takes its place'}")
        if not given_up:
            self._spawn(learner)

    def _spawn(self, learner: int) -> None:
        self._starting[learner] = time.monotonic()
        self._transport.spawn(learner)

    def _replace_hung(self, round_: Round | None) -> None:
        """Gives up learners that have been silent for longer than the patience."""
        now, patience = time.monotonic(), self._settings.patience
        since = {learner: pending.sent for learner, pending in self._busy.items()}
        slow_start = {learner: at + START_LIMIT - patience for learner, at in self._starting.items()}
        for learner, at in (since | slow_start).items():
            if now - at > patience:
                self._transport.kill(learner)
                self._notice(Lost(learner, f"silent for {patience:g} s"), round_)

    def _nearest_limit(self, now: float) -> float:
        patience = self._settings.patience
        return min([pending.sent + patience - now for pending in self._busy.values()], default=patience) + 1e-3

    def _close_row(self, learner: int, report: Report | None, outcome: str) -> None:
        """Completes the row of a learner's task, and learns from it how fast the learner is."""
        order, row, began, _ = self._busy.pop(learner)
        arrived = time.monotonic() - began
        waited, computed = (report.waited, report.computed) if report else (0.0, 0.0)
        row |= {"waited": waited, "computed": computed, "arrived": arrived, "outcome": outcome}
        self.rows.append(row)
        self._done.append(row)
        if report:
            count = len(order.task.agents)
            seen = (arrived - row["sent"]) / count if report.stopped else (waited + computed) / count
            known = self._speeds.get(learner, seen)
            # One who was stopped would have taken longer still.
            self._speeds[learner] = max(known, seen) if report.stopped else 0.8 * known + 0.2 * seen
            if not report.stopped:
                self._unit = 0.9 * self._unit + 0.1 * computed / count if self._unit else computed / count
        if len(self._done) >= 200:
            self.flush()

    def flush(self) -> None:
        """Hands the finished rows of the timeline over."""
        keep = [row for row in self._done if row["update"] < self._settings.timeline]
        self._done = []
        if keep:
            self._record(keep)

    def _decode(self, published: Published, answers: list[tuple[Task, Vector]]) -> tuple[np.ndarray, np.ndarray]:
        """Every agent's vector [N, D], and the relative error to expect in its update."""
        num_agents = len(published.floats)
        plain = {task.agents[0]: vector for task, vector in answers if not task.row}
        if len(plain) == num_agents:
            return np.stack([plain[agent] for agent in range(num_agents)]), np.zeros(num_agents)
        code = code_of(self._scheme, num_agents, self._settings.learners)
        messages = np.stack([vector if task.row else fold(vector) for task, vector in answers])
        found = decode(code, [task.index for task, _ in answers], messages)
        vectors = unfold(found.updates)
        for agent, vector in plain.items():
            vectors[agent] = vector
        error = np.where(np.isin(np.arange(num_agents), list(plain)), 0.0, np.maximum(found.error, found.residual))
        return vectors, error

    def _alone(self, published: Published) -> list[tuple[Task, Vector]]:
        """All answers, computed here: so an update under way when too few learners are left ends as it would have."""
        compute = self._compute()
        agents = range(len(published.floats))
        return [(Task((agent,)), np.asarray(compute(published, np.int32(agent)))) for agent in agents]

    def _fail(self) -> None:
        wanted, alive = self._settings.min_learners, len(self._alive)
        self.failed = (
            f"only {alive} of {self._settings.learners} learners live, fewer than {wanted}, and no other came back within"
            f" {self._settings.patience:g} s"
        )
        self._fail_run()

    def _wait_for_learners(self) -> None:
        """Returns when all learners are ready, or enough of them after the patience."""
        began = time.monotonic()
        while self._starting and time.monotonic() - began < START_LIMIT:
            for event in self._transport.poll(0.5):
                self._notice(event, None)
        if len(self._alive) < self._settings.min_learners:
            self._transport.close()
            raise UsageError(
                f"only {len(self._alive)} of {self._settings.learners} learners started within"
                f" {START_LIMIT:g} s: choose fewer --learners."
            )
        if missing := self._settings.learners - len(self._alive):
            self._say(f"{missing} of {self._settings.learners} learners are not ready yet; training begins without them")

    def _choose(self) -> None:
        """Takes the scheme that the simulator recommends for what was seen lately."""
        recent = [row for row in self.rows if row["update"] > self._update - 5 * AUTO_EVERY]
        if not any(row["outcome"] == "used" for row in recent):
            return
        seen = recording_of(recent)
        num_agents, count = self._work.example.floats.shape[0], self._settings.learners
        schemes = possible_schemes(num_agents, count, AUTO_SCHEMES)
        updates = len({row["update"] for row in recent})
        found = compare(num_agents, count, seen.delays, seen.unit, seen.overhead, 0, trials=updates, schemes=schemes)
        best = parse_scheme(recommend(found).scheme)
        if best != self._scheme:
            self._say(f"code auto: {_written(best)} instead of {_written(self._scheme)} from update {self._update} on")
            self._scheme = best

    def close(self) -> None:
        """Ends the learners and hands over what is left of the timeline."""
        self.flush()
        self._transport.close()


def _written(scheme: Scheme) -> str:
    number = "" if scheme.number is None else f":{scheme.number:g}"
    return f"{scheme.name}{number}{'+fastest_first' if scheme.fastest_first else ''}"


def _parts(work: Work, vectors: np.ndarray, published: Published) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of new floats, new integers and figures."""
    floats, integers, _ = work.layout.sizes
    # What was decoded is near an integer; rounded, it is exact.
    moved = np.rint(vectors[:, floats : floats + integers]).astype(np.int32)
    return vectors[:, :floats], published.integers + moved, vectors[:, floats + integers :]


def _accept(work: Work, floats: Any, integers: Any, tail: Any) -> tuple[Any, dict[str, Any]]:
    """Agents and figures from the rows of all."""
    figures, first = {}, 0
    for name, shape in work.layout.figures.items():
        figures[name] = tail[:, first : first + shape.size].reshape(-1, *shape.shape)
        first += shape.size
    return learners.unpack(work.layout, floats, integers), figures


class _Laboratory:
    """Injected trouble: drawn from the delay models of the planner, the same for the same seed."""

    BLOCK = 1024

    def __init__(self, straggle: str, num_learners: int, seed: int) -> None:
        models = delay_models(straggle)
        crashes = [model for model in models if isinstance(model, Crashes)]
        others = tuple(model for model in models if not isinstance(model, Crashes))
        rng = np.random.default_rng([seed, 0x57A6])
        self._drawn: Timeline | None = Mixed(others).sample(rng, self.BLOCK, num_learners) if others else None
        self._dies = rng.random((self.BLOCK, num_learners)) < (crashes[0].probability if crashes else 0.0)
        self._dead: set[tuple[int, int]] = set()

    def trouble(self, update: int, learner: int, elapsed: float) -> Trouble:
        """What happens to a learner that is sent work so many seconds after the update began; it dies once at most."""
        at = update % self.BLOCK, learner
        if learner >= self._dies.shape[1]:
            return Trouble()
        dies = bool(self._dies[at]) and (update, learner) not in self._dead
        if dies:
            self._dead.add((update, learner))
        if self._drawn is None:
            return Trouble(dies=dies)
        delay, pace, pause_at, pause_for = (float(field[at]) for field in self._drawn)
        if pause_at < elapsed:
            delay = max(delay, pause_at + pause_for)
        return Trouble(max(0.0, delay - elapsed), pace, pause_at - elapsed, pause_for, dies)
