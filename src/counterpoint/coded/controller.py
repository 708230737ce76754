"""The controller: replaces an algorithm's `update` and lets learners compute it.

In each update it publishes all agents and the minibatch once, assigns tasks according to the scheme (`rounds.py`), waits until
the results determine every agent, stops the other learners, and decodes. Learners may be slow, hang, die or start late: every
wait has a limit, and the task of a lost learner is reassigned if it is still needed.

Schemes that return plain updates (uncoded, replication, stream, backup, hedge) give the same bits regardless of which learner
computed what. Sums of a linear code are exact up to a rounding error, which the metric `decode_error` reports.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.algos.base import Algorithm, Metrics
from counterpoint.coded import learner as learners
from counterpoint.coded.codes import decode, signed_sqrt, signed_square
from counterpoint.coded.delays import Availability, Crashes, Mixed, delay_models
from counterpoint.coded.learner import InjectedFault, TaskReport, TaskRequest, UpdateInputs, Vector, Work
from counterpoint.coded.planner import compare, recording_of
from counterpoint.coded.rounds import Round, Task, fastest_first, make_round
from counterpoint.coded.schemes import code_of, parse_scheme, possible_schemes
from counterpoint.coded.settings import Distribution
from counterpoint.coded.simulator import recommend
from counterpoint.coded.transport import Event, LearnerLost, LearnerReady, ResultUnavailable, TaskResult, Transport
from counterpoint.core.errors import UsageError
from counterpoint.core.types import Key, Transition

DECODE_ERROR = "decode_error"
"""Name of the metric for the expected relative error of each agent's update."""

START_LIMIT = 180.0
"""Maximum seconds for learners to start; many learners on few cores start slowly."""

AUTO_SCHEMES = ("uncoded", "replication", "stream:3", "backup", "hedge:1.5", "fastest_first", "backup+fastest_first")
"""Schemes that `auto` chooses from; all give the same bits, so the choice cannot change the run."""
AUTO_EVERY = 20
"""Number of updates between choices of `auto`, which considers the last five times as many."""


class _Pending(NamedTuple):
    """A request that a learner has not completed yet."""

    request: TaskRequest
    row: "Row"
    began: float
    """When the update began."""
    sent: float


class UpdateTimes(NamedTuple):
    """Seconds that the controller spent on one update."""

    total: float
    publishing: float
    fetching: float
    decoding: float
    encoding: float
    """Longest encoding time among the learners whose results were used."""


Row = dict[str, Any]
"""One task in the timeline; see `planner.COLUMNS`."""


def work_of(algo: Algorithm, memory: Any, pad: float) -> Work:
    """Returns what learners compute for this algorithm on minibatches of this memory."""
    require_distributable(algo)
    assert algo.update_one is not None
    key = jax.eval_shape(lambda: jax.random.split(_some_key())[0])
    agents = jax.eval_shape(algo.init, key)
    batch = jax.eval_shape(memory.sample, jax.eval_shape(memory.init), key)
    floats, integers = jax.eval_shape(learners.pack, agents)
    example = UpdateInputs(floats, integers, batch, jax.eval_shape(jax.random.key_data, key))
    return Work(algo.update_one, learners.layout_of(algo.update_one, agents, batch, key), example, pad)


def require_distributable(algo: Algorithm) -> None:
    """Raises UsageError if the algorithm cannot update agents independently."""
    if algo.update_one is None:
        raise UsageError(
            "agents that learn one after another or share parameters cannot be distributed: choose --order snapshot and"
            " --share none, or leave out --learners."
        )


def _some_key() -> Key:
    from counterpoint.core import prng

    return prng.key(0)


class Controller:
    """The `update` of a distributed run: (agents, batch, key) → (agents, metrics). It starts learners; `close` ends them."""

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
        """Why the run must stop, if it must. The controller then calls `fail` and computes further updates itself."""
        self.times: UpdateTimes | None = None
        """Times of the last update."""
        self.rows: deque[Row] = deque(maxlen=5 * AUTO_EVERY * max(settings.learners, 1) * 4)
        """Latest rows of the timeline."""
        self._settings, self._work, self._transport, self._say, self._record = settings, work, transport, say, record
        self._scheme = parse_scheme("backup" if settings.code == "auto" else settings.code)
        self._faults = _FaultInjector(settings.straggle, settings.learners, seed)
        self._update = first - 1
        self._fail_run, self._compute = fail, lru_cache(lambda: learners.compiled(work))
        self._alive: set[int] = set()
        self._busy: dict[int, _Pending] = {}
        self._starting: dict[int, float] = {}
        """Start times of learners that are not ready yet."""
        self._failures = dict.fromkeys(range(settings.learners), 0)
        self._speeds: dict[int, float] = {}
        """Moving average of each learner's seconds per agent."""
        self._unit = 0.0
        self._done: list[Row] = []
        self._pack = jax.jit(learners.pack)
        self._unpack = jax.jit(lambda floats, integers, tail: _unpack(work, floats, integers, tail))
        self._gather = jax.jit(algo.gather) if algo.gather else lambda batch, metrics: metrics
        for learner in range(settings.learners):
            self._spawn(learner)
        self._wait_for_learners()

    def __call__(self, agents: Any, batch: Transition, key: Key) -> tuple[Any, Metrics]:
        began = time.monotonic()
        self._update += 1
        if self._settings.code == "auto" and self._update % AUTO_EVERY == AUTO_EVERY - 1:
            self._choose()
        floats, integers = self._pack(agents)
        inputs = UpdateInputs(*jax.device_get((floats, integers, batch, jax.random.key_data(key))))
        handle = self._transport.publish(inputs)
        publishing = time.monotonic() - began
        results, fetching, encoding = (
            (self._compute_here(inputs), 0.0, 0.0) if self.failed else self._collect(handle, inputs, began)
        )
        decoding = time.monotonic()
        vectors, error = self._decode(inputs, results)
        agents, metrics = self._unpack(*_parts(self._work, vectors, inputs))
        metrics = self._gather(batch, metrics) | {DECODE_ERROR: jnp.asarray(error, jnp.float32)}
        now = time.monotonic()
        self.times = UpdateTimes(now - began, publishing, fetching, now - decoding, encoding)
        return agents, metrics

    def change(self, code: str, straggle: str, among: int) -> None:
        """Switches to another scheme and other injected faults, which affect only the first `among` learners."""
        self._settings = replace(self._settings, code=code, straggle=straggle)
        self._scheme = parse_scheme("backup" if code == "auto" else code)
        self._faults = _FaultInjector(straggle, among, seed=0)
        self._speeds.clear()
        self.rows.clear()
        self._update = AUTO_EVERY * (self._update // AUTO_EVERY + 1) - 1

    def _collect(self, handle: Any, inputs: UpdateInputs, began: float) -> tuple[list[tuple[Task, Vector]], float, float]:
        """Returns results that determine every agent, the seconds spent fetching and the longest encoding time."""
        round_ = self._new_round()
        for event in self._transport.poll(0.0):
            self._handle(event, round_)
        results: list[tuple[Task, Vector]] = []
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
                return self._compute_here(inputs), fetching, encoding
            for event in self._transport.poll(max(0.0, min(round_.timer(now), self._nearest_limit(now), 1.0))):
                if isinstance(event, TaskResult) and event.request.update == self._update and not event.report.stopped:
                    before = time.monotonic()
                    vector = self._fetch(round_, event)
                    fetching += time.monotonic() - before
                    if vector is not None:
                        results.append((event.request.task, vector))
                        encoding = max(encoding, event.report.encoding)
                else:
                    self._handle(event, round_)
            self._replace_hung(round_)
        for learner in round_.running:
            self._transport.stop(learner, self._update)
        return results, fetching, encoding

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
        request = TaskRequest(self._update, task, self._faults.fault(self._update, learner, now - began))
        row = {
            **{"update": self._update, "learner": learner, "scheme": str(self._scheme)},
            **{"agents": "+".join(map(str, task.agents)), "sent": now - began},
        }
        self._busy[learner] = _Pending(request, row, began, now)
        self._transport.send(learner, handle, request)

    def _fetch(self, round_: Round, result: TaskResult) -> Vector | None:
        """Fetches a result, if it is still needed and available."""
        if round_.done or not round_.needed(result.learner):
            round_.completed(result.learner)
            self._close_row(result.learner, result.report, "unused")
            return None
        try:
            vector = self._transport.fetch(result.handle)
        except ResultUnavailable as error:
            self._handle(LearnerLost(result.learner, str(error)), round_)
            return None
        round_.completed(result.learner)
        self._close_row(result.learner, result.report, "used")
        return vector

    def _handle(self, event: Event, round_: Round | None) -> None:
        """Handles all events except results of the current update."""
        learner = event.learner
        if isinstance(event, TaskResult):
            self._close_row(learner, event.report, "stopped" if event.report.stopped else "unused")
        elif isinstance(event, LearnerReady):
            self._starting.pop(learner, None)
            self._alive.add(learner)
            self._failures[learner] = 0
        else:
            self._replace_lost(learner, event.reason)
            if round_:
                round_.lost(learner)
            return
        if round_:
            round_.free(learner)

    def _replace_lost(self, learner: int, reason: str) -> None:
        """Records a lost learner and replaces it, unless it has failed to start three times in a row."""
        self._alive.discard(learner)
        self._speeds.pop(learner, None)
        if self._starting.pop(learner, None) is not None:
            self._failures[learner] += 1
        if learner in self._busy:
            self._close_row(learner, None, "lost")
        give_up = self._failures[learner] >= 3
        self._say(f"learner {learner} is lost ({reason}); {'giving it up' if give_up else 'starting a replacement'}")
        if not give_up:
            self._spawn(learner)

    def _spawn(self, learner: int) -> None:
        self._starting[learner] = time.monotonic()
        self._transport.spawn(learner)

    def _replace_hung(self, round_: Round | None) -> None:
        """Replaces learners that have not responded within the patience."""
        now, patience = time.monotonic(), self._settings.patience
        since = {learner: pending.sent for learner, pending in self._busy.items()}
        slow_start = {learner: at + START_LIMIT - patience for learner, at in self._starting.items()}
        for learner, at in (since | slow_start).items():
            if now - at > patience:
                self._transport.kill(learner)
                self._handle(LearnerLost(learner, f"no response for {patience:g} s"), round_)

    def _nearest_limit(self, now: float) -> float:
        patience = self._settings.patience
        return min([pending.sent + patience - now for pending in self._busy.values()], default=patience) + 1e-3

    def _close_row(self, learner: int, report: TaskReport | None, outcome: str) -> None:
        """Completes the timeline row of a learner's task and updates the estimate of the learner's speed."""
        request, row, began, _ = self._busy.pop(learner)
        arrived = time.monotonic() - began
        waited, computed = (report.waited, report.computed) if report else (0.0, 0.0)
        row |= {"waited": waited, "computed": computed, "arrived": arrived, "outcome": outcome}
        self.rows.append(row)
        self._done.append(row)
        if report:
            count = len(request.task.agents)
            seen = (arrived - row["sent"]) / count if report.stopped else (waited + computed) / count
            known = self._speeds.get(learner, seen)
            # A stopped learner would have taken even longer.
            self._speeds[learner] = max(known, seen) if report.stopped else 0.8 * known + 0.2 * seen
            if not report.stopped:
                self._unit = 0.9 * self._unit + 0.1 * computed / count if self._unit else computed / count
        if len(self._done) >= 200:
            self.flush()

    def flush(self) -> None:
        """Passes the finished rows of the timeline to `record`."""
        keep = [row for row in self._done if row["update"] < self._settings.timeline]
        self._done = []
        if keep:
            self._record(keep)

    def _decode(self, inputs: UpdateInputs, results: list[tuple[Task, Vector]]) -> tuple[np.ndarray, np.ndarray]:
        """Returns every agent's vector [N, D] and the expected relative error of its update."""
        num_agents = len(inputs.floats)
        plain = {task.agents[0]: vector for task, vector in results if not task.row}
        if len(plain) == num_agents:
            return np.stack([plain[agent] for agent in range(num_agents)]), np.zeros(num_agents)
        code = code_of(self._scheme, num_agents, self._settings.learners)
        encoded = np.stack([vector if task.row else signed_sqrt(vector) for task, vector in results])
        found = decode(code, [task.index for task, _ in results], encoded)
        vectors = signed_square(found.updates)
        for agent, vector in plain.items():
            vectors[agent] = vector
        error = np.where(np.isin(np.arange(num_agents), list(plain)), 0.0, np.maximum(found.error, found.residual))
        return vectors, error

    def _compute_here(self, inputs: UpdateInputs) -> list[tuple[Task, Vector]]:
        """Computes all results in this process, so that an update ends correctly even with too few learners."""
        compute = self._compute()
        agents = range(len(inputs.floats))
        return [(Task((agent,)), np.asarray(compute(inputs, np.int32(agent)))) for agent in agents]

    def _fail(self) -> None:
        least, alive = self._settings.min_learners, len(self._alive)
        lost = getattr(self._transport, "lost", "")
        self.failed = (
            f"{lost}, and with it all learners are gone"
            if lost
            else (
                f"only {alive} of {self._settings.learners} learners are alive, fewer than {least}, and no replacement started"
                f" within {self._settings.patience:g} s"
            )
        )
        self._fail_run()

    def _wait_for_learners(self) -> None:
        """Waits until all learners are ready, or up to START_LIMIT for at least `min_learners`."""
        began = time.monotonic()
        while self._starting and time.monotonic() - began < START_LIMIT:
            for event in self._transport.poll(0.5):
                self._handle(event, None)
        if len(self._alive) < self._settings.min_learners:
            self._transport.close()
            raise UsageError(
                f"only {len(self._alive)} of {self._settings.learners} learners started within"
                f" {START_LIMIT:g} s: choose fewer --learners."
            )
        if missing := self._settings.learners - len(self._alive):
            self._say(f"{missing} of {self._settings.learners} learners are not ready yet; training starts without them")

    def _choose(self) -> None:
        """Selects the scheme that the simulator recommends for recent delays."""
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
            self._say(f"code auto: {best} replaces {self._scheme} from update {self._update} on")
            self._scheme = best

    def close(self) -> None:
        """Ends the learners and records the rest of the timeline."""
        self.flush()
        self._transport.close()


def _parts(work: Work, vectors: np.ndarray, inputs: UpdateInputs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Splits vectors into rows of new floats, new integers and metrics."""
    floats, integers, _ = work.layout.sizes
    # Decoded changes are close to integers, so rounding makes them exact.
    moved = np.rint(vectors[:, floats : floats + integers]).astype(np.int32)
    return vectors[:, :floats], inputs.integers + moved, vectors[:, floats + integers :]


def _unpack(work: Work, floats: Any, integers: Any, tail: Any) -> tuple[Any, dict[str, Any]]:
    """Returns agents and metrics from their rows."""
    metrics, first = {}, 0
    for name, shape in work.layout.metrics.items():
        metrics[name] = tail[:, first : first + shape.size].reshape(-1, *shape.shape)
        first += shape.size
    return learners.unpack(work.layout, floats, integers), metrics


class _FaultInjector:
    """Samples faults from delay models, reproducibly for a given seed."""

    BLOCK = 1024

    def __init__(self, straggle: str, num_learners: int, seed: int) -> None:
        models = delay_models(straggle)
        crashes = [model for model in models if isinstance(model, Crashes)]
        others = tuple(model for model in models if not isinstance(model, Crashes))
        rng = np.random.default_rng([seed, 0x57A6])
        self._sampled: Availability | None = Mixed(others).sample(rng, self.BLOCK, num_learners) if others else None
        self._crashes = rng.random((self.BLOCK, num_learners)) < (crashes[0].probability if crashes else 0.0)
        self._crashed: set[tuple[int, int]] = set()

    def fault(self, update: int, learner: int, elapsed: float) -> InjectedFault:
        """Returns the fault of a learner that receives work `elapsed` seconds into the update; it crashes at most once."""
        at = update % self.BLOCK, learner
        if learner >= self._crashes.shape[1]:
            return InjectedFault()
        crash = bool(self._crashes[at]) and (update, learner) not in self._crashed
        if crash:
            self._crashed.add((update, learner))
        if self._sampled is None:
            return InjectedFault(crash=crash)
        delay, pace, pause_at, pause_for = (float(field[at]) for field in self._sampled)
        if pause_at < elapsed:
            delay = max(delay, pause_at + pause_for)
        return InjectedFault(max(0.0, delay - elapsed), pace, pause_at - elapsed, pause_for, crash)
