"""What a scheme of distributed learning would cost: a simulator over machines that pause, crash, or are just slow.

An iteration hands agents to learners, waits until every agent's update is known, and stops the rest. Each learner's fate in
each trial is drawn from a delay model, the same for every scheme, so that differences between schemes are not luck.

Schemes are written `name`, `name:number` or either with `+fastest_first`:
- a code of `codes.py`: one answer per learner after all its agents; decoded as soon as the answers suffice. `cyclic:s`
- `stream:r`: each learner has a queue of r agents and returns each update at once; no codes
- `backup`: a learner that falls idle copies the agent handed out longest ago and still unfinished
- `hedge:t`: one learner per agent; idle ones copy an agent only when its latest copy has run for t agent updates
- `fastest_first`: uncoded, agents given to the learners that were quickest so far; as a suffix, any scheme in that order
Axis letters: S trials · J learners · N agents.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from counterpoint.coded.codes import CODES, Code, make_code, peelable_sets, recoverable_sets
from counterpoint.core.errors import UsageError

SCHEMES = (
    "uncoded",
    "replication",
    "mds",
    "random_sparse",
    "ldpc",
    "cyclic:2",
    "stream:3",
    "backup",
    "hedge:1.5",
    "fastest_first",
)
"""What `predict` compares unless told otherwise."""

COPIES = 3
"""Agents in a learner's queue, if `stream` names no number."""
HEDGE = 1.5
"""Agent updates after which a copy is begun, if `hedge` names no number."""

_EXACT_AGENTS = 32
"""Up to so many agents decodability is tested by condition number, beyond by structure: see `_decodable`."""


class Timeline(NamedTuple):
    """When and how fast each learner works in each trial; seconds since the work was handed out."""

    start: Float[np.ndarray, "S J"]
    """No work is done before; infinite for the dead."""
    pace: Float[np.ndarray, "S J"]
    """Time per update, as a multiple of the ordinary."""
    pause_at: Float[np.ndarray, "S J"]
    pause_for: Float[np.ndarray, "S J"]

    def finish(self, work: np.ndarray) -> np.ndarray:
        """When so many seconds of ordinary work are done."""
        time = self.start + work * self.pace
        return np.where(time > self.pause_at, time + self.pause_for, time)

    def done(self, time: np.ndarray) -> np.ndarray:
        """Seconds of ordinary work done by then; negative before the start."""
        time = np.minimum(time, 1e300)  # ∞ − ∞ is undefined, and there is no later time anyway
        return (time - self.start - np.clip(time - self.pause_at, 0, self.pause_for)) / self.pace


@runtime_checkable
class DelayModel(Protocol):
    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Timeline: ...


def _timeline(
    trials: int,
    num_learners: int,
    start: np.ndarray | float = 0.0,
    pace: np.ndarray | float = 1.0,
    pause_at: np.ndarray | float = np.inf,
    pause_for: np.ndarray | float = 0.0,
) -> Timeline:
    """The timeline with these fields and ordinary values elsewhere; pauses before the start only move the start."""
    start, pace, pause_at, pause_for = (
        np.broadcast_to(np.asarray(field, float), (trials, num_learners)) for field in (start, pace, pause_at, pause_for)
    )
    early = pause_at <= start
    start = np.where(early, np.maximum(start, np.where(early, pause_at, 0) + pause_for), start)
    pause_at, pause_for = np.where(early, np.inf, pause_at), np.where(early, 0, pause_for)
    return Timeline(start=start, pace=pace, pause_at=pause_at, pause_for=pause_for)


def _check(model: object, name: str, low: float, high: float = math.inf) -> None:
    value = getattr(model, name)
    if not low <= value <= high:
        bound = f"between {low:g} and {high:g}" if math.isfinite(high) else f"at least {low:g}"
        raise UsageError(f"{name} of {type(model).__name__} must be {bound}, got {value}.")


@dataclass(frozen=True)
class Stragglers:
    """The paper's: in each iteration some learners, chosen at random, are late."""

    count: int = 1
    delay: float = 0.25
    """Seconds."""

    def __post_init__(self) -> None:
        _check(self, "count", 0.0)
        _check(self, "delay", 0.0)

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Timeline:
        if self.count > num_learners:
            raise UsageError(f"{self.count} stragglers among {num_learners} learners: choose fewer.")
        late = rng.random((trials, num_learners)).argsort(axis=1) < self.count
        return _timeline(trials, num_learners, start=np.where(late, self.delay, 0.0))


@dataclass(frozen=True)
class ShiftedExponential:
    """Each learner's pace in each iteration is 1 + an exponential."""

    scale: float = 0.5
    """Mean of the exponential."""

    def __post_init__(self) -> None:
        _check(self, "scale", 0.0)

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Timeline:
        return _timeline(trials, num_learners, pace=1 + rng.exponential(self.scale, (trials, num_learners)))


@dataclass(frozen=True)
class Pareto:
    """Each learner's pace in each iteration is Pareto from 1 on: now and then very slow."""

    shape: float = 1.5
    """Tail exponent; the smaller, the heavier. Up to 1 the mean is infinite."""

    def __post_init__(self) -> None:
        _check(self, "shape", 1e-3)

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Timeline:
        return _timeline(trials, num_learners, pace=1 + rng.pareto(self.shape, (trials, num_learners)))


@dataclass(frozen=True)
class Pauses:
    """Learners stop now and then: garbage collection, preemption, a neighbour's job. At most once per iteration."""

    rate: float = 0.1
    """Pauses per second and learner."""
    duration: float = 1.0
    """Seconds."""

    def __post_init__(self) -> None:
        _check(self, "rate", 1e-12)
        _check(self, "duration", 0.0)

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Timeline:
        at = rng.exponential(1 / self.rate, (trials, num_learners))
        return _timeline(trials, num_learners, pause_at=at, pause_for=self.duration)


@dataclass(frozen=True)
class SlowMachines:
    """Some learners are slow in every iteration, always the same ones."""

    count: int = 1
    factor: float = 4.0
    """Their time per update over the others'."""

    def __post_init__(self) -> None:
        _check(self, "count", 0.0)
        _check(self, "factor", 1.0)

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Timeline:
        slow = rng.permutation(num_learners) < self.count
        return _timeline(trials, num_learners, pace=np.where(slow, self.factor, 1.0))


@dataclass(frozen=True)
class Crashes:
    """Each learner is dead with this probability when an iteration begins, and back after a while."""

    probability: float = 0.03
    recovery: float = 10.0
    """Seconds until it works again; infinite: never within the iteration."""

    def __post_init__(self) -> None:
        _check(self, "probability", 0.0, 1.0)
        _check(self, "recovery", 0.0)

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Timeline:
        dead = rng.random((trials, num_learners)) < self.probability
        return _timeline(trials, num_learners, start=np.where(dead, self.recovery, 0.0))


@dataclass(frozen=True)
class Mixed:
    """Several troubles at once: delays add, paces multiply, the earliest pause counts."""

    parts: tuple[DelayModel, ...]

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Timeline:
        drawn = [part.sample(rng, trials, num_learners) for part in self.parts]
        pauses = np.stack([part.pause_at for part in drawn])
        first = pauses.argmin(axis=0)[None]
        return _timeline(
            trials,
            num_learners,
            start=np.sum([part.start for part in drawn], axis=0),
            pace=np.prod([part.pace for part in drawn], axis=0),
            pause_at=np.take_along_axis(pauses, first, axis=0)[0],
            pause_for=np.take_along_axis(np.stack([part.pause_for for part in drawn]), first, axis=0)[0],
        )


@dataclass(frozen=True, eq=False)
class Recorded:
    """What was measured: delay and pace of every learner in every iteration, replayed in order and round and round."""

    start: np.ndarray
    """Seconds, [iterations, learners]."""
    pace: np.ndarray
    """Time per update over the ordinary, the same shape."""

    def __post_init__(self) -> None:
        if self.start.ndim != 2 or self.start.shape != self.pace.shape or 0 in self.start.shape:
            raise UsageError(
                f"a recording needs start and pace of one shape [iterations, learners], "
                f"got {list(self.start.shape)} and {list(self.pace.shape)}."
            )

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Timeline:
        """More learners than recorded behave like recorded ones at other times."""
        length, width = self.start.shape
        learner = np.arange(num_learners)
        iteration = (np.arange(trials)[:, None] + learner // width * 7919) % length
        chosen = (iteration, learner % width)
        return _timeline(trials, num_learners, start=self.start[chosen], pace=self.pace[chosen])


class Outcome(NamedTuple):
    """What a scheme did in each trial."""

    time: Float[np.ndarray, " S"]
    updates: Float[np.ndarray, " S"]
    """Agent updates begun before the end."""
    learners: Float[np.ndarray, " S"]
    """Learners that were sent the agents."""
    answers: Float[np.ndarray, " S"]
    """Vectors of one agent's size that were pulled."""


class Prediction(NamedTuple):
    scheme: str
    mean: float
    """Seconds per iteration; infinite if some trial never ends."""
    p99: float
    updates: float
    """Agent updates begun per iteration, wanted or not."""
    bytes_moved: float
    """Per iteration: all agents to each learner with work, and the answers back."""
    unfinished: float
    """Share of iterations that never end because too many learners died."""


def predict(
    num_agents: int,
    num_learners: int,
    delay_model: DelayModel,
    unit_time: float = 1.0,
    overhead: float = 0.0,
    param_bytes: int = 0,
    schemes: Sequence[str] = SCHEMES,
    trials: int = 200,
    seed: int = 0,
    dispatch: float = 0.0,
) -> list[Prediction]:
    """What each scheme would cost per iteration.

    `unit_time` is one agent's update on an ordinary learner, `overhead` what every iteration spends besides, `dispatch` what
    the controller needs per learner to hand out work (learner j starts j + 1 times that late); all in seconds.
    """
    for name, value, low in (("num_agents", num_agents, 1), ("num_learners", num_learners, 1), ("trials", trials, 1)):
        if value < low:
            raise UsageError(f"{name} must be at least {low}, got {value}.")
    if unit_time <= 0:
        raise UsageError(f"unit_time must be positive, got {unit_time}.")
    timeline = delay_model.sample(np.random.default_rng(seed), trials, num_learners)
    predictions = []
    for scheme in schemes:
        outcome = _run(scheme, timeline, num_agents, unit_time, dispatch)
        time = outcome.time + overhead
        moved = (outcome.learners * num_agents + outcome.answers) * param_bytes
        predictions.append(
            Prediction(
                scheme=scheme,
                mean=float(time.mean()),
                p99=float(np.quantile(time, 0.99, method="higher")),
                updates=float(outcome.updates.mean()),
                bytes_moved=float(moved.mean()),
                unfinished=float(np.isinf(time).mean()),
            )
        )
    return predictions


def recommend(predictions: Sequence[Prediction], slack: float = 0.03) -> Prediction:
    """The scheme with the least work among those within `slack` of the shortest mean time."""
    if not predictions:
        raise UsageError("nothing to recommend from: give at least one scheme.")
    fewest = min(prediction.unfinished for prediction in predictions)
    able = [prediction for prediction in predictions if prediction.unfinished == fewest]
    shortest = min(prediction.mean for prediction in able)
    near = [prediction for prediction in able if prediction.mean <= shortest * (1 + slack)]
    return min(near, key=lambda prediction: (prediction.updates, prediction.mean))


def _run(scheme: str, timeline: Timeline, num_agents: int, unit: float, dispatch: float) -> Outcome:
    """What the scheme written so does on this timeline."""
    name, number, fastest_first = parse_scheme(scheme)
    if fastest_first:
        timeline = _fastest_first(timeline, unit)
    num_learners = timeline.start.shape[1]
    if dispatch:
        later = timeline._replace(start=timeline.start + dispatch * np.arange(1, num_learners + 1))
        timeline = _timeline(len(later.start), num_learners, *later)
    match name:
        case "stream":
            return _stream(timeline, num_agents, unit, copies=int(number or COPIES))
        case "backup":
            return _hand_out(timeline, num_agents, unit, after=0.0)
        case "hedge":
            return _hand_out(timeline, num_agents, unit, after=unit * (HEDGE if number is None else number))
        case _:
            tolerance = None if number is None else int(number)
            vet = num_agents <= _EXACT_AGENTS
            return _coded(make_code(name, num_agents, num_learners, tolerance=tolerance, vet=vet), timeline, unit)


class Scheme(NamedTuple):
    """A scheme taken apart."""

    name: str
    number: float | None
    """Of losses, copies or updates; None where the usual number is meant."""
    fastest_first: bool


def parse_scheme(text: str) -> Scheme:
    """The scheme written so; dashes may stand for underscores."""
    base, _, suffix = text.replace("-", "_").partition("+")
    if base == "fastest_first" and not suffix:
        base, suffix = "uncoded", "fastest_first"
    if suffix not in ("", "fastest_first"):
        raise UsageError(f"unknown suffix {suffix!r} in scheme {text!r}; the only one is +fastest_first.")
    name, colon, digits = base.partition(":")
    numbered = {"stream", "hedge", "cyclic"}
    known = {*CODES, *numbered, "backup"}
    if name not in known:
        raise UsageError(f"unknown scheme {text!r}; known are {', '.join(sorted(known))} and fastest_first.")
    if not colon:
        return Scheme(name, None, bool(suffix))
    try:
        number = float(digits)
    except ValueError:
        number = -1.0
    whole = name != "hedge"
    if name not in numbered or number < (name == "stream") or (whole and number != int(number)):
        raise UsageError(f"cannot read scheme {text!r}; write cyclic:2, stream:3 or hedge:1.5, and others without a number.")
    return Scheme(name, number, bool(suffix))


def _fastest_first(timeline: Timeline, unit: float, memory: float = 0.8) -> Timeline:
    """The timeline with learners in order of a moving average of their times in the trials before."""
    # A dead learner counts as a thousand times too slow: the average must be able to forgive it.
    cost = np.minimum(timeline.finish(np.asarray(unit)), 1e3 * unit)
    average = np.zeros(cost.shape[1])
    order = np.empty(cost.shape, int)
    for trial, observed in enumerate(cost):
        order[trial] = average.argsort(kind="stable")
        average = observed if trial == 0 else memory * average + (1 - memory) * observed
    return Timeline(*(np.take_along_axis(field, order, axis=1) for field in timeline))


def _coded(code: Code, timeline: Timeline, unit: float) -> Outcome:
    """One answer per learner after all its agents; the end is the first moment at which the answers can be decoded."""
    loads = code.loads
    finish = np.where(loads > 0, timeline.finish(loads * unit), np.inf)
    rank = finish.argsort(axis=1, kind="stable").argsort(axis=1)
    test = _decodable(code)
    # The fewest answers that suffice, by bisection: more answers never hurt.
    low, high = np.full(len(finish), code.num_agents), np.full(len(finish), code.num_learners)
    while (low < high).any():
        middle = (low + high) // 2
        enough = test(rank < middle[:, None])
        low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
    time = np.take_along_axis(np.sort(finish, axis=1), high[:, None] - 1, axis=1)[:, 0]
    begun = np.clip(np.ceil(timeline.done(time[:, None]) / unit - 1e-9), 0, loads)
    return Outcome(
        time=time,
        updates=begun.sum(axis=1),
        learners=np.full(len(time), np.count_nonzero(loads), float),
        answers=high.astype(float),
    )


def _decodable(code: Code) -> Callable[[np.ndarray], np.ndarray]:
    """The test whether sets of learners suffice; for many agents a structural one, exact but for ill-conditioned luck."""
    if code.num_agents <= _EXACT_AGENTS:
        return lambda arrived: recoverable_sets(code, arrived)
    if code.name in ("mds", "systematic", "random_sparse"):
        return lambda arrived: arrived.sum(axis=1) >= code.num_agents
    if code.name in ("uncoded", "replication"):
        used = (code.matrix != 0).astype(np.float32)
        return lambda arrived: (arrived.astype(np.float32) @ used > 0).all(axis=1)
    if code.name == "cyclic":
        return lambda arrived: _cyclic_matching(code, arrived)
    return lambda arrived: peelable_sets(code, arrived)


def _cyclic_matching(code: Code, arrived: Bool[np.ndarray, "S J"]) -> Bool[np.ndarray, " S"]:
    """Whether every agent can be matched to an answer of its own, which generic coefficients turn into full rank.

    By Hall's theorem on a circle: agents i … l sit on learners start_i … start_l + s, where at least l − i + 1 must have
    answered. With A the running count of answers that is (A[end_l] − l) − (A[start_i] − i) ≥ 1 for all i ≤ l.
    """
    num_learners, num_agents = code.matrix.shape
    agents = np.arange(2 * num_agents)
    start = agents * num_learners // num_agents
    running = np.pad(np.cumsum(np.tile(arrived, 3), axis=1), ((0, 0), (1, 0)))
    end = running[:, start + code.tolerance + 1] - agents
    least = np.minimum.accumulate(end[:, ::-1], axis=1)[:, ::-1]
    slack = least - (running[:, start] - agents)
    return (slack[:, :num_agents].min(axis=1) >= 1) & (arrived.sum(axis=1) >= num_agents)


def _stream(timeline: Timeline, num_agents: int, unit: float, copies: int) -> Outcome:
    """Queues of `copies` agents, each update returned at once; the end is when every agent has come from somewhere."""
    trials, num_learners = timeline.start.shape
    length = min(num_agents, max(copies, math.ceil(num_agents / num_learners)))
    queue = queues(num_agents, num_learners, length)
    finish = np.stack([timeline.finish(np.asarray((slot + 1) * unit)) for slot in range(length)], axis=2)
    order = queue.ravel().argsort(kind="stable")
    first = np.searchsorted(queue.ravel()[order], np.arange(num_agents))
    by_agent = np.minimum.reduceat(finish.reshape(trials, -1)[:, order], first, axis=1)
    time = by_agent.max(axis=1)
    begun = np.clip(np.ceil(timeline.done(time[:, None]) / unit - 1e-9), 0, length)
    full = np.full(trials, float(num_agents))
    return Outcome(time=time, updates=begun.sum(axis=1), learners=np.full(trials, float(num_learners)), answers=full)


def queues(num_agents: int, num_learners: int, length: int) -> np.ndarray:
    """Each learner's agents in order of work [J, length]: dealt round robin, no learner the same agent twice."""
    offsets: list[int] = [0]
    while len(offsets) < length:
        following = (offsets[-1] + num_learners) % num_agents
        while following in offsets:
            following = (following + 1) % num_agents
        offsets.append(following)
    return (np.arange(num_learners)[:, None] + np.array(offsets)) % num_agents


def _hand_out(timeline: Timeline, num_agents: int, unit: float, after: float) -> Outcome:
    """Agents handed out one by one; idle learners copy the one handed out longest ago once that is `after` seconds past."""
    runs = [_hand_out_once(rows, num_agents, unit, after) for rows in zip(*(field.tolist() for field in timeline), strict=True)]
    time, updates, learners = np.array(runs, float).T
    return Outcome(time=time, updates=updates, learners=learners, answers=np.full(len(runs), float(num_agents)))


def _hand_out_once(rows: tuple[list[float], ...], num_agents: int, unit: float, after: float) -> tuple[float, int, int]:
    """End, updates begun and learners used in one trial, event by event."""
    start, pace, pause_at, pause_for = rows
    waiting = deque(range(num_agents))
    """Unfinished agents (and some finished since), the one handed out longest ago first."""
    handed, finished, left = [-math.inf] * num_agents, [False] * num_agents, num_agents
    idle = deque(range(len(start)))
    running: list[tuple[float, int, int]] = []
    begins: list[float] = []
    used: set[int] = set()
    now = 0.0
    while left:
        while waiting and finished[waiting[0]]:
            waiting.popleft()
        due = handed[waiting[0]] + after if idle else math.inf
        if due <= now:
            agent, learner = waiting[0], idle.popleft()
            waiting.rotate(-1)
            handed[agent] = now
            begin = max(now, start[learner])
            if pause_at[learner] < begin:
                begin = max(begin, pause_at[learner] + pause_for[learner])
            end = begin + unit * pace[learner]
            if begin <= pause_at[learner] < end:
                end += pause_for[learner]
            heapq.heappush(running, (end, learner, agent))
            begins.append(begin)
            used.add(learner)
        elif due < running[0][0]:
            now = due
        else:
            now, learner, agent = heapq.heappop(running)
            if now == math.inf:
                break
            # Whoever has just answered is trusted before those not heard of in this iteration.
            idle.appendleft(learner)
            left -= not finished[agent]
            finished[agent] = True
    return now, sum(begin < now for begin in begins), len(used)
