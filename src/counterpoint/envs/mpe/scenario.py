"""What the particle scenarios share: fields, actions, reset, one step, the time limit and the drawing.

A scenario says who and what is there (`bodies`, `roles`), what is hidden (`num_goals`), what is seen and what it is worth.
Actions are vectors [move(5)] [word(num_words)], whichever of the two an agent has: one-hot, relaxed or continuous alike.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from counterpoint.core.picture import Circle, Picture, Shape, Speech
from counterpoint.core.spaces import Box, Discrete, Spec
from counterpoint.core.types import Key, Metric, Step
from counterpoint.envs.base import Observations, World, check_choice, check_count, pad_stack
from counterpoint.envs.mpe.world import Bodies, contact_force, integrate

NUM_MOVES = 5
FLIPPED = np.array([0, 2, 1, 4, 3])
"""openai's move vectors have index 1 mean +x, its integers −x; this is the way from one to the other."""


class State(NamedTuple):
    position: Float[Array, "N 2"]
    velocity: Float[Array, "N 2"]
    comm: Float[Array, "N C"]
    """What each agent said last (zeros for silent agents)."""
    landmarks: Float[Array, "L 2"]
    goal: Int[Array, " G"]
    """Landmark indices drawn at reset; the scenario says whose."""
    step: Int[Array, ""]


@dataclass(frozen=True)
class Scenario(World):
    """A particle world; subclasses add sizes as fields."""

    flavour: Literal["mpe2", "openai"] = "mpe2"
    """mpe2: the maintained package; openai: the original of 2017, with its rewards, signs and integration."""
    actions: Literal["discrete", "continuous"] = "discrete"
    """discrete: one-hot or relaxed vectors; continuous: the same vectors as free numbers in [0, 1]."""
    max_steps: int = 25
    """Steps until truncation."""

    name: ClassVar[str]
    flavours: ClassVar[tuple[str, ...]] = ("mpe2", "openai")
    """The rules that the scenario has; the original of 2017 lacks some scenarios."""
    landmark_box: ClassVar[float] = 1.0
    num_goals: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check_choice(self, "flavour", self.flavours)
        check_choice(self, "actions", ("discrete", "continuous"))
        check_count(self, "max_steps", 1)

    @property
    def ends_at_limit(self) -> bool:
        """Whether every episode lasts until truncation."""
        return not getattr(self, "terminate_on_success", False)

    # --- What a scenario supplies.

    @cached_property
    def bodies(self) -> Bodies:
        raise NotImplementedError

    @property
    def roles(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def landmark_roles(self) -> tuple[str, ...]:
        return ("landmark",) * self.num_landmarks

    def observe(self, state: State) -> Observations:
        """Returns what the agents observe, each group at its own size; sizes and padding follow from it."""
        raise NotImplementedError

    def reward(self, state: State) -> Float[Array, " N"]:
        raise NotImplementedError

    def metrics(self, state: State) -> dict[str, Metric]:
        raise NotImplementedError

    def benchmark_data(self, state: State) -> tuple[Float[Array, " _k"], ...] | None:
        """Returns per agent what the original's `benchmark_data` returns, flattened; None where it has none."""
        return None

    def success(self, state: State) -> Bool[Array, ""]:
        """Returns whether the game is won and ends, in scenarios with `terminate_on_success`."""
        return jnp.zeros((), bool)

    # --- What they share.

    @property
    def num_agents(self) -> int:
        return len(self.bodies.movable)

    @property
    def num_landmarks(self) -> int:
        return len(self.bodies.radius) - self.num_agents

    @cached_property
    def adversary(self) -> np.ndarray:
        """Returns [N]: whether an agent plays against the good team."""
        return np.array([role in ("adversary", "leadadversary", "eve") for role in self.roles])

    @cached_property
    def spec(self) -> Spec:
        bodies = self.bodies
        heads = [
            (NUM_MOVES,) * bool(moves) + (bodies.num_words,) * bool(talks)
            for moves, talks in zip(bodies.movable, bodies.talks, strict=True)
        ]
        discrete = self.actions == "discrete"
        return Spec(
            agents=tuple(f"{role}_{self.roles[:i].count(role)}" for i, role in enumerate(self.roles)),
            roles=self.roles,
            teams=tuple("adversary" if adversary else "good" for adversary in self.adversary),
            obs_sizes=self.obs_sizes,
            action_spaces=tuple(Discrete(h) if discrete else Box(sum(h), 0.0, 1.0) for h in heads),
        )

    def reset(self, key: Key) -> tuple[State, Float[Array, "N O"]]:
        key_place, key_goal = jax.random.split(key)
        n, total = self.num_agents, len(self.bodies.radius)
        half_width = np.where(np.arange(total) < n, 1.0, self.landmark_box)[:, None]
        place = jax.random.uniform(key_place, (total, 2), minval=-1.0, maxval=1.0) * half_width
        state = State(
            position=place[:n],
            velocity=jnp.zeros_like(place[:n]),
            comm=jnp.zeros((n, self.bodies.num_words), place.dtype),
            landmarks=place[n:],
            goal=jax.random.randint(key_goal, (self.num_goals,), 0, self.num_landmarks, jnp.int32),
            step=jnp.zeros((), jnp.int32),
        )
        return state, pad_stack(self.observe(state))

    def step(self, key: Key, state: State, action: Float[Array, "N A"]) -> tuple[State, Step]:
        bodies, openai = self.bodies, self.flavour == "openai"
        force = self.move_force(action)
        if bodies.collides[: self.num_agents].any():
            force = force + contact_force(state.position, state.landmarks, bodies)
        position, velocity = integrate(state.position, state.velocity, force, bodies, velocity_first=openai)
        state = state._replace(position=position, velocity=velocity, comm=self.speech(action), step=state.step + 1)
        truncated = state.step >= self.max_steps
        terminated = self.success(state) & ~truncated  # truncation wins on the last step, as in mpe2
        return state, Step(
            obs=pad_stack(self.observe(state)),
            reward=self.reward(state),
            terminated=jnp.broadcast_to(terminated, (self.num_agents,)),
            truncated=jnp.broadcast_to(truncated, (self.num_agents,)),
        )

    def move_force(self, action: Float[Array, "N A"]) -> Float[Array, "N 2"]:
        """Returns the force of a move: index 1 is −x, 2 is +x, 3 is −y, 4 is +y (openai's vectors have opposite signs)."""
        bodies = self.bodies
        if not bodies.movable.any():
            return jnp.zeros((self.num_agents, 2), action.dtype)
        sign = -1.0 if self.flavour == "openai" else 1.0
        force = (action[:, 2:5:2] - action[:, 1:5:2]) * (sign * bodies.accel * bodies.movable)[:, None]
        return force.astype(action.dtype)

    def speech(self, action: Float[Array, "N A"]) -> Float[Array, "N C"]:
        """Returns the word part of an action, zeros for silent agents."""
        bodies, words = self.bodies, self.bodies.num_words
        said = [
            action[i, NUM_MOVES * moves :][:words] if talks else jnp.zeros(words, action.dtype)
            for i, (moves, talks) in enumerate(zip(bodies.movable.astype(int), bodies.talks, strict=True))
        ]
        return jnp.stack(said) if words else jnp.zeros((self.num_agents, 0), action.dtype)

    def action_of_integers(self, agent: int, choice: tuple[int, ...]) -> np.ndarray:
        """Returns the action vector of an agent's integer choices, one per head, as the flavour numbers them."""
        move_flips = self.flavour == "openai" and bool(self.bodies.movable[agent])
        parts = []
        for head, (size, index) in enumerate(zip(self.spec_heads(agent), choice, strict=True)):
            parts.append(np.eye(size, dtype=np.float32)[FLIPPED[index] if move_flips and head == 0 else index])
        return np.concatenate(parts)

    def integers_of_choice(self, agent: int, choice: list[int]) -> list[int]:
        """Returns the flavour's integers for the largest entry of each head: the inverse of `action_of_integers`."""
        move_flips = self.flavour == "openai" and bool(self.bodies.movable[agent])
        return [int(FLIPPED[index]) if move_flips and head == 0 else index for head, index in enumerate(choice)]

    def spec_heads(self, agent: int) -> tuple[int, ...]:
        bodies = self.bodies
        return (NUM_MOVES,) * bool(bodies.movable[agent]) + (bodies.num_words,) * bool(bodies.talks[agent])

    def goal_landmarks(self, state: State) -> list[int]:
        """Returns the landmarks that the drawing marks as goals."""
        return [int(goal) for goal in state.goal]

    def draw(self, state: State) -> Picture:
        names, n = self.spec.agents, self.num_agents
        position, velocity = np.asarray(state.position), np.asarray(state.velocity)
        landmarks, comm = np.asarray(state.landmarks), np.asarray(state.comm)
        goals = self.goal_landmarks(state)
        shapes: list[Shape] = []
        for i, (x, y) in enumerate(landmarks.tolist()):
            role = "goal" if i in goals else self.landmark_roles[i]
            shapes.append(Circle(x, y, float(self.bodies.radius[n + i]), role))
        for i, (x, y) in enumerate(position.tolist()):
            speed = float(np.hypot(*velocity[i]))
            heading = float(np.arctan2(velocity[i, 1], velocity[i, 0])) if speed > 1e-3 else None
            trail = names[i] if self.bodies.movable[i] else ""
            shapes.append(Circle(x, y, float(self.bodies.radius[i]), self.roles[i], names[i], heading, trail))
        for i in np.flatnonzero(self.bodies.talks):
            x, y = position[i].tolist()
            shapes.append(Speech(x, y, self.roles[i], tuple(comm[i].tolist())))
        return Picture((-1.3, -1.3, 1.3, 1.3), tuple(shapes), f"{self.name}  step {int(state.step)}")


def bodies_of(
    agent_radius: list[float],
    landmark_radius: list[float],
    *,
    collides: list[bool] | bool = False,
    movable: list[bool] | bool = True,
    talks: list[bool] | bool = False,
    accel: list[float] | float = 5.0,
    max_speed: list[float] | float = np.inf,
    num_words: int = 0,
) -> Bodies:
    """Returns tables with the usual defaults; one value of `collides` is for the agents, a list is for agents and landmarks."""
    n, total = len(agent_radius), len(agent_radius) + len(landmark_radius)
    touch = np.array(collides) if isinstance(collides, list) else (np.arange(total) < n) & collides
    return Bodies(
        radius=np.array(agent_radius + landmark_radius),
        collides=touch,
        movable=np.broadcast_to(movable, n),
        talks=np.broadcast_to(talks, n),
        accel=np.broadcast_to(accel, n).astype(float),
        max_speed=np.broadcast_to(max_speed, n).astype(float),
        num_words=num_words,
    )
