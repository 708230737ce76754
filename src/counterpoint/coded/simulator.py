"""A simulator that predicts the cost of each scheme on learners that pause, crash or are slow.

An iteration assigns agents to learners, waits until every agent's update is known, and stops the rest. All schemes share the
learners' availability, sampled from a delay model, so that differences between schemes are not due to chance.
Axis letters: S trials · J learners · N agents.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from counterpoint.coded.codes import Code, peelable_sets, recoverable_sets
from counterpoint.coded.delays import Availability, DelayModel, availability
from counterpoint.coded.schemes import SCHEMES, code_of, parse_scheme, queue_length, queues
from counterpoint.core.errors import UsageError

_EXACT_AGENTS = 32
"""Largest number of agents for which decodability is tested by condition number; see `_decodable`."""


class SchemeCosts(NamedTuple):
    """Costs of a scheme in each trial."""

    time: Float[np.ndarray, " S"]
    updates: Float[np.ndarray, " S"]
    """Agent updates started before the end."""
    learners: Float[np.ndarray, " S"]
    """Learners that received the agents."""
    results: Float[np.ndarray, " S"]
    """Results fetched, each the size of one agent."""


class Prediction(NamedTuple):
    """Predicted costs of a scheme per iteration."""

    scheme: str
    mean: float
    """Mean seconds; infinite if some trial never ends."""
    p99: float
    updates: float
    """Agent updates started, needed or not."""
    bytes_moved: float
    """All agents sent to each learner that has work, plus the results."""
    unfinished: float
    """Fraction of iterations that never end because too many learners died."""


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
    """Predicts the cost of each scheme per iteration.

    All times are in seconds: `unit_time` for one agent's update on a normal learner, `overhead` for everything else in an
    iteration, and `dispatch` for the controller to assign work to one learner (learner j starts (j + 1) · `dispatch` late).
    """
    for name, value, low in (("num_agents", num_agents, 1), ("num_learners", num_learners, 1), ("trials", trials, 1)):
        if value < low:
            raise UsageError(f"{name} must be at least {low}, got {value}.")
    if unit_time <= 0:
        raise UsageError(f"unit_time must be positive, got {unit_time}.")
    available = delay_model.sample(np.random.default_rng(seed), trials, num_learners)
    predictions = []
    for scheme in schemes:
        costs = _run(scheme, available, num_agents, unit_time, dispatch)
        time = costs.time + overhead
        moved = (costs.learners * num_agents + costs.results) * param_bytes
        predictions.append(
            Prediction(
                scheme=scheme,
                mean=float(time.mean()),
                p99=float(np.quantile(time, 0.99, method="higher")),
                updates=float(costs.updates.mean()),
                bytes_moved=float(moved.mean()),
                unfinished=float(np.isinf(time).mean()),
            )
        )
    return predictions


def recommend(predictions: Sequence[Prediction], slack: float = 0.03) -> Prediction:
    """Returns the scheme with the least work among those within `slack` of the shortest mean time."""
    if not predictions:
        raise UsageError("cannot recommend a scheme from an empty list: give at least one scheme.")
    fewest = min(prediction.unfinished for prediction in predictions)
    able = [prediction for prediction in predictions if prediction.unfinished == fewest]
    shortest = min(prediction.mean for prediction in able)
    near = [prediction for prediction in able if prediction.mean <= shortest * (1 + slack)]
    return min(near, key=lambda prediction: (prediction.updates, prediction.mean))


def _run(scheme: str, available: Availability, num_agents: int, unit: float, dispatch: float) -> SchemeCosts:
    """Simulates a scheme under this availability."""
    parsed = parse_scheme(scheme)
    if parsed.fastest_first:
        available = _fastest_first(available, unit)
    num_learners = available.start.shape[1]
    if dispatch:
        later = available._replace(start=available.start + dispatch * np.arange(1, num_learners + 1))
        available = availability(len(later.start), num_learners, *later)
    match parsed.name:
        case "stream":
            return _stream(available, num_agents, unit, parsed.copies)
        case "backup":
            return _assign(available, num_agents, unit, after=0.0)
        case "hedge":
            return _assign(available, num_agents, unit, after=unit * parsed.hedge)
        case _:
            code = code_of(parsed, num_agents, num_learners, vet=num_agents <= _EXACT_AGENTS)
            return _coded(code, available, unit)


def _fastest_first(available: Availability, unit: float, memory: float = 0.8) -> Availability:
    """Orders learners by a moving average of their times in earlier trials."""
    # A dead learner counts as a thousand times too slow, so that the average can recover.
    cost = np.minimum(available.finish(np.asarray(unit)), 1e3 * unit)
    average = np.zeros(cost.shape[1])
    order = np.empty(cost.shape, int)
    for trial, observed in enumerate(cost):
        order[trial] = average.argsort(kind="stable")
        average = observed if trial == 0 else memory * average + (1 - memory) * observed
    return Availability(*(np.take_along_axis(field, order, axis=1) for field in available))


def _coded(code: Code, available: Availability, unit: float) -> SchemeCosts:
    """Simulates a code: each learner returns one result after all its agents, until the results can be decoded."""
    loads = code.loads
    finish = np.where(loads > 0, available.finish(loads * unit), np.inf)
    rank = finish.argsort(axis=1, kind="stable").argsort(axis=1)
    test = _decodable(code)
    # Bisect for the smallest sufficient number of results; more results never hurt.
    low, high = np.full(len(finish), code.num_agents), np.full(len(finish), code.num_learners)
    while (low < high).any():
        middle = (low + high) // 2
        enough = test(rank < middle[:, None])
        low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
    time = np.take_along_axis(np.sort(finish, axis=1), high[:, None] - 1, axis=1)[:, 0]
    started = np.clip(np.ceil(available.done(time[:, None]) / unit - 1e-9), 0, loads)
    return SchemeCosts(
        time=time,
        updates=started.sum(axis=1),
        learners=np.full(len(time), np.count_nonzero(loads), float),
        results=high.astype(float),
    )


def _decodable(code: Code) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a test whether sets of learners suffice; for many agents it is structural and ignores poor conditioning."""
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
    """Returns whether each agent can be matched to its own result, which gives full rank for generic coefficients.

    By Hall's theorem on a circle, at least l − i + 1 of the learners start_i … start_l + s of agents i … l must have returned
    a result. With A the running count of results, this is (A[end_l] − l) − (A[start_i] − i) ≥ 1 for all i ≤ l.
    """
    num_learners, num_agents = code.matrix.shape
    agents = np.arange(2 * num_agents)
    start = agents * num_learners // num_agents
    running = np.pad(np.cumsum(np.tile(arrived, 3), axis=1), ((0, 0), (1, 0)))
    end = running[:, start + code.tolerance + 1] - agents
    least = np.minimum.accumulate(end[:, ::-1], axis=1)[:, ::-1]
    slack = least - (running[:, start] - agents)
    return (slack[:, :num_agents].min(axis=1) >= 1) & (arrived.sum(axis=1) >= num_agents)


def _stream(available: Availability, num_agents: int, unit: float, copies: int) -> SchemeCosts:
    """Simulates queues of `copies` agents with each update returned at once, until every agent's update has arrived."""
    trials, num_learners = available.start.shape
    length = queue_length(num_agents, num_learners, copies)
    queue = queues(num_agents, num_learners, length)
    finish = np.stack([available.finish(np.asarray((slot + 1) * unit)) for slot in range(length)], axis=2)
    order = queue.ravel().argsort(kind="stable")
    first = np.searchsorted(queue.ravel()[order], np.arange(num_agents))
    by_agent = np.minimum.reduceat(finish.reshape(trials, -1)[:, order], first, axis=1)
    time = by_agent.max(axis=1)
    started = np.clip(np.ceil(available.done(time[:, None]) / unit - 1e-9), 0, length)
    full = np.full(trials, float(num_agents))
    return SchemeCosts(time=time, updates=started.sum(axis=1), learners=np.full(trials, float(num_learners)), results=full)


def _assign(available: Availability, num_agents: int, unit: float, after: float) -> SchemeCosts:
    """Simulates assigning agents one by one; idle learners copy the agent assigned longest ago after `after` seconds."""
    runs = [_assign_once(rows, num_agents, unit, after) for rows in zip(*(field.tolist() for field in available), strict=True)]
    time, updates, learners = np.array(runs, float).T
    return SchemeCosts(time=time, updates=updates, learners=learners, results=np.full(len(runs), float(num_agents)))


def _assign_once(rows: tuple[list[float], ...], num_agents: int, unit: float, after: float) -> tuple[float, int, int]:
    """Returns the end time, updates started and learners used in one trial, event by event."""
    start, pace, pause_at, pause_for = rows
    waiting = deque(range(num_agents))
    """Unfinished agents (and some finished meanwhile), longest assigned first."""
    handed, finished, left = [-math.inf] * num_agents, [False] * num_agents, num_agents
    idle = deque(range(len(start)))
    running: list[tuple[float, int, int]] = []
    starts: list[float] = []
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
            starts.append(begin)
            used.add(learner)
        elif due < running[0][0]:
            now = due
        else:
            now, learner, agent = heapq.heappop(running)
            if now == math.inf:
                break
            # Prefer the learner that just returned a result to learners that have not responded yet.
            idle.appendleft(learner)
            left -= not finished[agent]
            finished[agent] = True
    return now, sum(begin < now for begin in starts), len(used)
