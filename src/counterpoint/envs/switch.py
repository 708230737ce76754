"""Switch: agents change sides of a corridor too narrow for two (ma-gym 0.0.14, Switch2 and Switch4).

    b A # # # B a
    . . . . . . .
    d C # # # D c

A…D are where agents 0…3 start, a…d where they live; switch2 has only agents 0 and 1. Cells are (row, column), row 0 on top.
obs(2, with clock 3) = [row/2, column/6, steps/max_steps], places rounded to two digits; "full" shows everybody all of these.
reward = 5 for the step that leads home, step_cost (−0.1) for every other step, 0 from then on
Actions: 0 down, 1 left, 2 up, 3 right, 4 stay. Agents move in index order, each on the board the earlier ones left: a cell
freed by a lower index can be entered in the same step by a higher one, not the reverse. Who is home stays, and is in the way.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from counterpoint.core.errors import UsageError
from counterpoint.core.picture import Circle, Line, Picture, Polygon, Shape
from counterpoint.core.spaces import Discrete, Spec
from counterpoint.core.types import Key, Metric, Step
from counterpoint.envs.base import World, check_choice, check_count

NUM_ROWS, NUM_COLUMNS = 3, 7
CORRIDOR_ROW, CORRIDOR_COLUMNS = 1, (2, 3, 4)
STARTS = np.array([(0, 1), (0, 5), (2, 1), (2, 5)])
GOALS = np.array([(0, 6), (0, 0), (2, 6), (2, 0)])
NUM_MOVES = 5
DOWN, LEFT, UP, RIGHT = range(4)
HOME_REWARD = 5.0


class State(NamedTuple):
    position: Int[Array, "N 2"]
    """Row and column."""
    home: Bool[Array, " N"]
    step: Int[Array, ""]


@dataclass(frozen=True)
class Switch(World):
    """Agents on the two sides of a corridor; each wants to live on the other side."""

    observation: Literal["own", "full"] = "own"
    """own: an agent sees its own cell; full: everybody's."""
    clock: bool = True
    """Whether agents see how much of the episode is over."""
    step_cost: float = -0.1
    """Reward of a step that does not lead home."""
    max_steps: int = 50
    """Steps until truncation."""

    name: ClassVar[str]
    outcomes: ClassVar[tuple[str, str]] = ("everyone is home", "not everyone is home")
    num_agents: ClassVar[int]

    def __post_init__(self) -> None:
        check_choice(self, "observation", ("own", "full"))
        if not isinstance(self.clock, bool):
            raise UsageError(f"clock must be True or False, not {self.clock!r}.")
        if isinstance(self.step_cost, bool) or not isinstance(self.step_cost, (int, float)):
            raise UsageError(f"step_cost must be a number, such as -0.1, not {self.step_cost!r}.")
        check_count(self, "max_steps", 1)

    @cached_property
    def spec(self) -> Spec:
        n = self.num_agents
        agents = tuple(f"agent_{i}" for i in range(n))
        return Spec(
            agents=agents,
            roles=agents,  # each has its own start and goal: none can stand in for another
            teams=("good",) * n,
            obs_sizes=self.obs_sizes,
            action_spaces=(Discrete((NUM_MOVES,)),) * n,
        )

    def reset(self, key: Key) -> tuple[State, Float[Array, "N O"]]:
        """Returns the only initial state: nothing here is random."""
        state = State(
            position=jnp.array(STARTS[: self.num_agents], jnp.int32),
            home=jnp.zeros(self.num_agents, bool),
            step=jnp.zeros((), jnp.int32),
        )
        return state, self.observe(state)

    def step(self, key: Key, state: State, action: Float[Array, "N A"]) -> tuple[State, Step]:
        n, was_home = self.num_agents, state.home
        choice = jnp.argmax(action, axis=-1)
        rows, columns = list(state.position[:, 0]), list(state.position[:, 1])
        for i in range(n):
            row = rows[i] + (choice[i] == DOWN) - (choice[i] == UP)
            column = columns[i] + (choice[i] == RIGHT) - (choice[i] == LEFT)
            moves = is_floor(row, column) & ~was_home[i]
            for j in range(n):
                if j != i:
                    moves &= (row != rows[j]) | (column != columns[j])
            rows[i] = jnp.where(moves, row, rows[i])
            columns[i] = jnp.where(moves, column, columns[i])
        position = jnp.stack([jnp.stack(rows), jnp.stack(columns)], axis=1)
        home = was_home | jnp.all(position == GOALS[:n], axis=1)
        state = State(position=position, home=home, step=state.step + 1)
        obs = self.observe(state)
        reward = jnp.where(was_home, 0.0, jnp.where(home, HOME_REWARD, self.step_cost))
        return state, Step(
            obs=obs,
            reward=reward.astype(obs.dtype),
            terminated=home,
            truncated=~home & (state.step >= self.max_steps),
        )

    def observe(self, state: State) -> Float[Array, "N O"]:
        n = self.num_agents
        seen = jnp.round(state.position / np.array([[NUM_ROWS - 1, NUM_COLUMNS - 1]]), 2)
        if self.clock:
            seen = jnp.concatenate([seen, jnp.full((n, 1), state.step / self.max_steps)], axis=1)
        return jnp.broadcast_to(seen.reshape(1, -1), (n, seen.size)) if self.observation == "full" else seen

    def metrics(self, state: State) -> dict[str, Metric]:
        return {
            "home": Metric(jnp.sum(state.home * 1.0), "last"),
            "success": Metric(jnp.all(state.home) * 1.0, "last"),
            "steps": Metric(state.step * 1.0, "last"),
        }

    def draw(self, state: State) -> Picture:
        shapes: list[Shape] = [_cell(row, column, "wall") for row in (0, 2) for column in CORRIDOR_COLUMNS]
        left, top, right, bottom = -0.5, NUM_ROWS - 0.5, NUM_COLUMNS - 0.5, -0.5
        outline = ((left, bottom), (right, bottom), (right, top), (left, top), (left, bottom))
        shapes.append(Line(outline, "wall", 0.05))
        for i, (row, column) in enumerate(GOALS[: self.num_agents].tolist()):
            shapes.append(_cell(row, column, "goal", str(i)))
        for name, (row, column) in zip(self.spec.agents, np.asarray(state.position).tolist(), strict=True):
            shapes.append(Circle(column, NUM_ROWS - 1 - row, 0.35, name, name, trail=name))
        window = (left - 0.2, bottom - 0.2, right + 0.2, top + 0.2)
        caption = f"{self.name}  step {int(state.step)}  home {int(np.sum(state.home))}/{self.num_agents}"
        return Picture(window, tuple(shapes), caption)


def is_floor(row: Int[Array, ""], column: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether a cell lies inside and is no wall. Arithmetic instead of a table: an index outside would be clamped."""
    inside = (row >= 0) & (row < NUM_ROWS) & (column >= 0) & (column < NUM_COLUMNS)
    beside_corridor = (column >= CORRIDOR_COLUMNS[0]) & (column <= CORRIDOR_COLUMNS[-1])
    return inside & ((row == CORRIDOR_ROW) | ~beside_corridor)


def _cell(row: int, column: int, role: str, label: str = "") -> Polygon:
    """Returns one cell as a square, row 0 on top."""
    x, y, half = column, NUM_ROWS - 1 - row, 0.5
    return Polygon(((x - half, y - half), (x + half, y - half), (x + half, y + half), (x - half, y + half)), role, label)


@dataclass(frozen=True)
class Switch2(Switch):
    """Two agents, one corridor: one of them must wait."""

    name: ClassVar[str] = "switch2"
    num_agents: ClassVar[int] = 2


@dataclass(frozen=True)
class Switch4(Switch):
    """Two agents on either side: they must also not lock each other in."""

    name: ClassVar[str] = "switch4"
    num_agents: ClassVar[int] = 4
