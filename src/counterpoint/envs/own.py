"""Worlds of the user's own: recognises them, and completes those that do not inherit from `World`.

A world is a frozen dataclass with `reset(key)` and `step(key, state, action)`; the methods `observe`, `metrics`, `legal` and
`draw` are optional, as are the attributes `name`, `max_steps`, `roles`, `teams` and `obs_sizes`.
"""

import dataclasses
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, get_type_hints

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key, State, Step
from counterpoint.envs.base import World, derive_spec

LONGEST = 1000
"""Steps after which an episode is truncated if neither the user nor the world sets a limit."""


def is_world(thing: Any) -> bool:
    """Returns whether a class or an object is a compiled environment. Calls nothing.

    It is one if it inherits from `World`, or if it is a dataclass whose `step` takes a key, a state and an action (that of
    PettingZoo and Gymnasium takes the action only).
    """
    kind = thing if isinstance(thing, type) else type(thing)
    if issubclass(kind, World):
        return True
    if not dataclasses.is_dataclass(kind) or not callable(getattr(kind, "reset", None)):
        return False
    try:
        parameters = inspect.signature(kind.step).parameters.values()  # pyright: ignore[reportAttributeAccessIssue]
    except (AttributeError, TypeError, ValueError):
        return False
    needed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    return len(needed) == 4  # with self


def makes_world(thing: Any) -> bool:
    """Returns whether a thing is a compiled environment or makes one: a class, an object, or a factory that says so.

    A factory says so by its return annotation, because calling it would start whatever it makes.
    """
    if isinstance(thing, partial):
        return makes_world(thing.func)
    if is_world(thing):
        return True
    if not inspect.isroutine(thing):
        return False
    try:
        returned = get_type_hints(thing).get("return")
    except Exception:  # an annotation that cannot be resolved here
        return False
    return isinstance(returned, type) and is_world(returned)


def as_world(thing: Any, teams: Sequence[str] = (), max_steps: int = 0) -> Any:
    """Returns a compiled environment, or a class without required arguments, as a `World`.

    `teams` replaces the team of each agent; `max_steps` replaces the world's own limit, or sets one.
    """
    if not is_world(thing):
        raise UsageError(f"{thing!r} is not a compiled environment: it needs reset(key) and step(key, state, action).")
    world = thing() if isinstance(thing, type) else thing
    if problem := not_frozen(world):
        raise UsageError(problem)
    own = getattr(world, "max_steps", 0)
    if max_steps and max_steps != own and any(field.name == "max_steps" for field in dataclasses.fields(world)):
        world = dataclasses.replace(world, max_steps=max_steps)
    elif max_steps != own if max_steps else not own:  # a resumed run passes the limit that it found here
        return TimeLimit(world, tuple(teams), min(filter(None, (max_steps, own)), default=LONGEST))
    return world if isinstance(world, World) and not teams else Adopted(world, tuple(teams))


def not_frozen(world: Any) -> str:
    """Returns what is wrong if a world can change or cannot be hashed; empty if nothing is."""
    kind = type(world).__name__
    if not getattr(vars(type(world)).get("__dataclass_params__"), "frozen", False):  # a subclass needs the decorator too
        return f"{kind} can change after it is made: write @dataclass(frozen=True) above the class."
    for field in dataclasses.fields(world):
        value = getattr(world, field.name)
        try:
            hash(value)
        except TypeError:
            what = type(value).__name__
            return f"the field {field.name} of {kind} is a {what}, which has no hash: use a tuple, a number or a text."
    try:
        hash(world)
    except TypeError:
        return f"{kind} has no hash: leave out eq=False and __eq__, or define __hash__."
    return ""


@dataclass(frozen=True)
class Adopted(World):
    """A world of the user's own, with defaults for what it leaves out.

    Results have no types here: `check` describes what is wrong with them.
    """

    world: Any
    team_names: tuple[str, ...] = ()
    """The team of each agent, if not the world's own."""

    @property
    def name(self) -> str:
        return str(getattr(self.world, "name", type(self.world).__name__))

    @property
    def max_steps(self) -> int:
        return self.world.max_steps

    @cached_property
    def spec(self) -> Spec:
        own = getattr(self.world, "spec", None) or derive_spec(self.world)
        return dataclasses.replace(own, teams=self.team_names) if self.team_names else own

    @property
    def obs_sizes(self) -> tuple[int, ...]:
        return self.spec.obs_sizes

    def reset(self, key: Key) -> Any:
        return self.world.reset(key)

    def step(self, key: Key, state: State, action: Float[Array, "N A"]) -> tuple[Any, Any]:
        state, result = self.world.step(key, state, action)
        return state, Step(*result) if isinstance(result, tuple) and len(result) == 4 else result

    def metrics(self, state: State) -> Any:
        return self.world.metrics(state) if hasattr(self.world, "metrics") else {}

    def legal(self, state: State) -> Any:
        return self.world.legal(state) if hasattr(self.world, "legal") else None

    def draw(self, state: State) -> Any:
        return self.world.draw(state) if hasattr(self.world, "draw") else None

    def encode(self, agent: int, observation: Any) -> np.ndarray:
        return self.world.encode(agent, observation) if hasattr(self.world, "encode") else super().encode(agent, observation)

    def decode(self, agent: int, vector: np.ndarray) -> Any:
        return self.world.decode(agent, vector) if hasattr(self.world, "decode") else super().decode(agent, vector)


class Timed(NamedTuple):
    """A world's state and how many steps its episode has taken."""

    state: Any
    step: Int[Array, ""]


@dataclass(frozen=True)
class TimeLimit(Adopted):
    """A world whose episodes are truncated after `max_steps` steps."""

    max_steps: int = LONGEST

    def reset(self, key: Key) -> tuple[Timed, Any]:
        state, obs = super().reset(key)
        return Timed(state, jnp.zeros((), jnp.int32)), obs

    def step(self, key: Key, state: Timed, action: Float[Array, "N A"]) -> tuple[Timed, Any]:
        after, result = super().step(key, state.state, action)
        timed = Timed(after, state.step + 1)
        late = ~result.terminated & (timed.step >= self.max_steps)
        return timed, result._replace(truncated=result.truncated | late)

    def metrics(self, state: Timed) -> Any:
        return super().metrics(state.state)

    def legal(self, state: Timed) -> Any:
        return super().legal(state.state)

    def draw(self, state: Timed) -> Any:
        return super().draw(state.state)
