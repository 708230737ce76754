"""Delay models: how slow, paused or crashed learners behave, and how to parse them from text.

A delay model is written as on the command line: `k=2,delay=0.25` (two learners, chosen at random in each iteration, start a
quarter of a second late, as in the paper), `exponential=0.5`, `pareto=1.5`, `pauses=0.1,pause=1`, `slow=2,factor=4` (always
the same two), `crash=0.03,recovery=10`, or several of these. `plan --delays` and `train --straggle` share this syntax.
Axis letters: S trials · J learners.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from counterpoint.core.errors import UsageError


class Availability(NamedTuple):
    """Says when and how fast each learner works in each trial, in seconds since the work was assigned."""

    start: Float[np.ndarray, "S J"]
    """Time at which the learner starts; infinite for a dead learner."""
    pace: Float[np.ndarray, "S J"]
    """Time per update relative to a normal learner."""
    pause_at: Float[np.ndarray, "S J"]
    pause_for: Float[np.ndarray, "S J"]

    def finish(self, work: np.ndarray) -> np.ndarray:
        """Returns when the learners complete `work` seconds of normal work."""
        time = self.start + work * self.pace
        return np.where(time > self.pause_at, time + self.pause_for, time)

    def done(self, time: np.ndarray) -> np.ndarray:
        """Returns the seconds of normal work completed by `time`; negative before the start."""
        time = np.minimum(time, 1e300)  # ∞ − ∞ is undefined
        return (time - self.start - np.clip(time - self.pause_at, 0, self.pause_for)) / self.pace


@runtime_checkable
class DelayModel(Protocol):
    """Samples the availability of learners."""

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Availability: ...


def availability(
    trials: int,
    num_learners: int,
    start: np.ndarray | float = 0.0,
    pace: np.ndarray | float = 1.0,
    pause_at: np.ndarray | float = np.inf,
    pause_for: np.ndarray | float = 0.0,
) -> Availability:
    """Returns an availability with defaults for missing fields; a pause before the start only delays the start."""
    start, pace, pause_at, pause_for = (
        np.broadcast_to(np.asarray(field, float), (trials, num_learners)) for field in (start, pace, pause_at, pause_for)
    )
    early = pause_at <= start
    start = np.where(early, np.maximum(start, np.where(early, pause_at, 0) + pause_for), start)
    pause_at, pause_for = np.where(early, np.inf, pause_at), np.where(early, 0, pause_for)
    return Availability(start=start, pace=pace, pause_at=pause_at, pause_for=pause_for)


def _check(model: object, name: str, low: float, high: float = math.inf) -> None:
    """Raises UsageError unless the field lies within its bounds."""
    value = getattr(model, name)
    if not low <= value <= high:
        bound = f"between {low:g} and {high:g}" if math.isfinite(high) else f"at least {low:g}"
        raise UsageError(f"{name} of {type(model).__name__} must be {bound}, got {value}.")


@dataclass(frozen=True)
class Stragglers:
    """Delays some learners, chosen at random in each iteration, as in the paper."""

    count: int = 1
    delay: float = 0.25
    """Seconds."""

    def __post_init__(self) -> None:
        _check(self, "count", 0.0)
        _check(self, "delay", 0.0)

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Availability:
        if self.count > num_learners:
            raise UsageError(f"{self.count} stragglers among {num_learners} learners: choose at most {num_learners}.")
        late = rng.random((trials, num_learners)).argsort(axis=1) < self.count
        return availability(trials, num_learners, start=np.where(late, self.delay, 0.0))


@dataclass(frozen=True)
class ShiftedExponential:
    """Draws each learner's pace in each iteration as 1 plus an exponential."""

    scale: float = 0.5
    """Mean of the exponential."""

    def __post_init__(self) -> None:
        _check(self, "scale", 0.0)

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Availability:
        return availability(trials, num_learners, pace=1 + rng.exponential(self.scale, (trials, num_learners)))


@dataclass(frozen=True)
class Pareto:
    """Draws each learner's pace in each iteration from a Pareto distribution, so some are very slow."""

    shape: float = 1.5
    """Tail exponent; smaller is heavier, and the mean is infinite up to 1."""

    def __post_init__(self) -> None:
        _check(self, "shape", 1e-3)

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Availability:
        return availability(trials, num_learners, pace=1 + rng.pareto(self.shape, (trials, num_learners)))


@dataclass(frozen=True)
class Pauses:
    """Pauses each learner at most once per iteration, like garbage collection or preemption."""

    rate: float = 0.1
    """Pauses per second and learner."""
    duration: float = 1.0
    """Seconds."""

    def __post_init__(self) -> None:
        _check(self, "rate", 1e-12)
        _check(self, "duration", 0.0)

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Availability:
        at = rng.exponential(1 / self.rate, (trials, num_learners))
        return availability(trials, num_learners, pause_at=at, pause_for=self.duration)


@dataclass(frozen=True)
class SlowMachines:
    """Slows the same learners down in every iteration."""

    count: int = 1
    factor: float = 4.0
    """Time per update relative to the other learners."""

    def __post_init__(self) -> None:
        _check(self, "count", 0.0)
        _check(self, "factor", 1.0)

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Availability:
        slow = rng.permutation(num_learners) < self.count
        return availability(trials, num_learners, pace=np.where(slow, self.factor, 1.0))


@dataclass(frozen=True)
class Crashes:
    """Crashes each learner with this probability when an iteration begins."""

    probability: float = 0.03
    recovery: float = 10.0
    """Seconds until it works again; infinite if it stays down for the whole iteration."""

    def __post_init__(self) -> None:
        _check(self, "probability", 0.0, 1.0)
        _check(self, "recovery", 0.0)

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Availability:
        dead = rng.random((trials, num_learners)) < self.probability
        return availability(trials, num_learners, start=np.where(dead, self.recovery, 0.0))


@dataclass(frozen=True)
class Mixed:
    """Combines delay models: delays add, paces multiply, and the earliest pause applies."""

    parts: tuple[DelayModel, ...]

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Availability:
        drawn = [part.sample(rng, trials, num_learners) for part in self.parts]
        pauses = np.stack([part.pause_at for part in drawn])
        first = pauses.argmin(axis=0)[None]
        return availability(
            trials,
            num_learners,
            start=np.sum([part.start for part in drawn], axis=0),
            pace=np.prod([part.pace for part in drawn], axis=0),
            pause_at=np.take_along_axis(pauses, first, axis=0)[0],
            pause_for=np.take_along_axis(np.stack([part.pause_for for part in drawn]), first, axis=0)[0],
        )


@dataclass(frozen=True, eq=False)
class Recorded:
    """Replays measured delays and paces of every learner, iteration by iteration, in a loop."""

    start: np.ndarray
    """Seconds, [iterations, learners]."""
    pace: np.ndarray
    """Time per update relative to a normal learner, same shape."""

    def __post_init__(self) -> None:
        if self.start.ndim != 2 or self.start.shape != self.pace.shape or 0 in self.start.shape:
            raise UsageError(
                f"a recording needs start and pace of one shape [iterations, learners], "
                f"got {list(self.start.shape)} and {list(self.pace.shape)}."
            )

    def sample(self, rng: np.random.Generator, trials: int, num_learners: int) -> Availability:
        """Samples an availability; extra learners replay recorded learners from other iterations."""
        length, width = self.start.shape
        learner = np.arange(num_learners)
        iteration = (np.arange(trials)[:, None] + learner // width * 7919) % length
        chosen = (iteration, learner % width)
        return availability(trials, num_learners, start=self.start[chosen], pace=self.pace[chosen])


DELAY_FIELDS: dict[str, tuple[type, str, type]] = {
    "k": (Stragglers, "count", int),
    "delay": (Stragglers, "delay", float),
    "exponential": (ShiftedExponential, "scale", float),
    "pareto": (Pareto, "shape", float),
    "pauses": (Pauses, "rate", float),
    "pause": (Pauses, "duration", float),
    "slow": (SlowMachines, "count", int),
    "factor": (SlowMachines, "factor", float),
    "crash": (Crashes, "probability", float),
    "recovery": (Crashes, "recovery", float),
}
"""Maps each name to its delay model, the model's field and the field's type."""

NO_DELAY = Stragglers(0, 0.0)


def delay_models(text: str) -> tuple[DelayModel, ...]:
    """Parses delay models such as `k=2,delay=0.25`, in order; returns none for an empty text."""
    fields: dict[type, dict[str, Any]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = part.partition("=")
        if not sign or name not in DELAY_FIELDS:
            raise UsageError(
                f"cannot parse {part!r} in the delays {text!r}: write name=value, such as k=2,delay=0.25, with the names "
                f"{', '.join(DELAY_FIELDS)}."
            )
        model, field, convert = DELAY_FIELDS[name]
        try:
            fields.setdefault(model, {})[field] = convert(value)
        except ValueError:
            expected = "a whole number" if convert is int else "a number"
            raise UsageError(f"{name} in the delays {text!r} must be {expected}, not {value!r}.") from None
    return tuple(model(**values) for model, values in fields.items())


def delay_model(text: str) -> DelayModel:
    """Parses a text into a single delay model that combines all those it names."""
    models = delay_models(text)
    return Mixed(models) if len(models) > 1 else models[0] if models else NO_DELAY
