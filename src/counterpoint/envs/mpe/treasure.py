"""collect_treasure: collectors bring treasures to the deposits of their kind (MPE2 collect_treasure_v1).

obs = [position 2, velocity 2, (collectors) what it holds T, others, treasures]   T kinds, one per deposit; all kinds one-hot
  others, nearest first     = [relative position 2, velocity 2, kind of the deposit T, what it holds T] each
  treasures, nearest first  = [relative position 2, kind T] each; zeros for one that was just picked up
reward, everybody  = 5 · treasures picked up + 5 · treasures delivered in this step
reward, collector  = … − 5 · other collectors that it overlaps − 0.1 · distance to the nearest treasure, or to its deposit if
                     it holds one
reward, deposit    = … − 0.1 · distance to the nearest collector that holds its kind, or to the centre of the collectors
A collector picks up a treasure by touching it, holds one at most, and delivers it by touching the deposit of its kind. A
treasure that was picked up comes back one step later, at a random place and of a random kind. Nobody pushes anybody.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from counterpoint.core.errors import UsageError
from counterpoint.core.picture import Circle, Picture, Shape
from counterpoint.core.spaces import Box, Discrete, Spec
from counterpoint.core.types import Key, Metric, Step
from counterpoint.envs.base import Observations, World, check_choice, check_count, pad_stack
from counterpoint.envs.mpe.scenario import NUM_MOVES, bodies_of
from counterpoint.envs.mpe.world import UNROLLED, Bodies, between, integrate, length, nearest_others, touching

TREASURE_BOX = 0.95
GONE = -999.0
"""Where a treasure is while it is nowhere, as in mpe2."""
MOST_KINDS = 6
DEPOSIT_MASS = 2.25
NOTHING = -1
REWARD = 5.0
PULL = 0.1


class TreasureState(NamedTuple):
    """Positions and who holds what; C collectors come first among the N agents, and L treasures lie about."""

    position: Float[Array, "N 2"]
    velocity: Float[Array, "N 2"]
    holding: Int[Array, " C"]
    """The kind of treasure that a collector holds, or −1."""
    treasure: Float[Array, "L 2"]
    kind: Int[Array, " L"]
    present: Bool[Array, " L"]
    """Whether a treasure can be picked up; not in the step in which it was."""
    collected: Int[Array, ""]
    """Treasures picked up in the last step."""
    delivered: Int[Array, ""]
    """Treasures delivered in the last step."""
    step: Int[Array, ""]


@dataclass(frozen=True)
class Treasure(World):
    """Collectors pick up treasures and deliver them to moving deposits, which come to meet them."""

    num_collectors: int = 6
    """Collectors."""
    num_deposits: int = 2
    """Deposits, and kinds of treasures: at most 6."""
    num_treasures: int = 6
    """Treasures."""
    actions: Literal["discrete", "continuous"] = "discrete"  # pyright: ignore[reportIncompatibleVariableOverride]
    """discrete: one-hot or relaxed vectors; continuous: the same vectors as free numbers in [0, 1]."""
    max_steps: int = 25
    """Steps until truncation."""

    name: ClassVar[str] = "collect_treasure"

    def __post_init__(self) -> None:
        check_choice(self, "actions", ("discrete", "continuous"))
        for field in ("num_collectors", "num_deposits", "num_treasures", "max_steps"):
            check_count(self, field, 1)
        if self.num_deposits > MOST_KINDS:
            raise UsageError(f"num_deposits must be at most {MOST_KINDS}, not {self.num_deposits!r}.")

    # --- Who and what is there.

    @property
    def num_agents(self) -> int:
        return self.num_collectors + self.num_deposits

    @cached_property
    def bodies(self) -> Bodies:
        c, d = self.num_collectors, self.num_deposits
        return bodies_of(
            [0.05] * c + [0.075] * d,
            [0.025] * self.num_treasures,
            accel=[1.5] * c + [1.5 / DEPOSIT_MASS] * d,
            max_speed=1.0,
        )

    @property
    def roles(self) -> tuple[str, ...]:
        return ("collector",) * self.num_collectors + ("deposit",) * self.num_deposits

    @cached_property
    def spec(self) -> Spec:
        space = Discrete((NUM_MOVES,)) if self.actions == "discrete" else Box(NUM_MOVES, 0.0, 1.0)
        return Spec(
            agents=tuple(f"{role}_{self.roles[:i].count(role)}" for i, role in enumerate(self.roles)),
            roles=self.roles,
            teams=("good",) * self.num_agents,
            obs_sizes=self.obs_sizes,
            action_spaces=(space,) * self.num_agents,
        )

    # --- One step.

    def reset(self, key: Key) -> tuple[TreasureState, Float[Array, "N O"]]:
        key_agents, key_treasures = jax.random.split(key)
        position = jax.random.uniform(key_agents, (self.num_agents, 2), minval=-1.0, maxval=1.0)
        treasure, kind = self.spawn(key_treasures)
        zero = jnp.zeros((), jnp.int32)
        state = TreasureState(
            position=position,
            velocity=jnp.zeros_like(position),
            holding=jnp.full(self.num_collectors, NOTHING, jnp.int32),
            treasure=treasure,
            kind=kind,
            present=jnp.ones(self.num_treasures, bool),
            collected=zero,
            delivered=zero,
            step=zero,
        )
        return state, pad_stack(self.observe(state))

    def spawn(self, key: Key) -> tuple[Float[Array, "L 2"], Int[Array, " L"]]:
        """Returns new places and kinds for all treasures."""
        key_place, key_kind = jax.random.split(key)
        place = jax.random.uniform(key_place, (self.num_treasures, 2), minval=-TREASURE_BOX, maxval=TREASURE_BOX)
        return place, jax.random.randint(key_kind, (self.num_treasures,), 0, self.num_deposits, jnp.int32)

    def step(self, key: Key, state: TreasureState, action: Float[Array, "N A"]) -> tuple[TreasureState, Step]:
        return self.proceed(state, action, *self.spawn(key))

    def proceed(
        self, state: TreasureState, action: Float[Array, "N A"], place: Float[Array, "L 2"], kind: Int[Array, " L"]
    ) -> tuple[TreasureState, Step]:
        """Returns what `step` returns; treasures that come back do so at `place`, of that `kind`."""
        force = ((action[:, 2:5:2] - action[:, 1:5:2]) * self.bodies.accel[:, None]).astype(action.dtype)
        position, velocity = integrate(state.position, state.velocity, force, self.bodies, velocity_first=False)
        state = state._replace(position=position, velocity=velocity, step=state.step + 1)
        state = self.deliver(self.pick_up(state, place, kind))
        truncated = state.step >= self.max_steps
        return state, Step(
            obs=pad_stack(self.observe(state)),
            reward=self.reward(state),
            terminated=jnp.zeros(self.num_agents, bool),
            truncated=jnp.broadcast_to(truncated, (self.num_agents,)),
        )

    def pick_up(self, state: TreasureState, place: Float[Array, "L 2"], kind: Int[Array, " L"]) -> TreasureState:
        """Returns the state after collectors have picked up what they touch and the treasures picked up before came back.

        One treasure after another goes to the first collector that touches it and holds nothing.
        """
        c, radius = self.num_collectors, self.bodies.radius
        touch = touching(state.position[:c], state.treasure, radius[:c], radius[self.num_agents :])

        def one(holding: Array, treasure: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            touched, present, kind = treasure
            may = touched & (holding == NOTHING) & present
            takes = may & (jnp.cumsum(may) == 1)
            return jnp.where(takes, kind, holding), jnp.any(takes)

        unroll = min(self.num_treasures, UNROLLED)
        holding, taken = jax.lax.scan(one, state.holding, (touch.T, state.present, state.kind), unroll=unroll)
        back = ~state.present
        where = jnp.where(back[:, None], place, state.treasure)
        return state._replace(
            holding=holding,
            treasure=jnp.where(taken[:, None], GONE, where).astype(state.treasure.dtype),
            kind=jnp.where(back, kind, state.kind),
            present=~taken,
            collected=jnp.sum(taken, dtype=jnp.int32),
        )

    def deliver(self, state: TreasureState) -> TreasureState:
        """Returns the state after collectors have delivered what they hold to the deposits that they touch."""
        c, radius = self.num_collectors, self.bodies.radius
        touch = touching(state.position[:c], state.position[c:], radius[:c], radius[c : self.num_agents])
        done = jnp.any(touch & self.holds(state), axis=1)
        return state._replace(holding=jnp.where(done, NOTHING, state.holding), delivered=jnp.sum(done, dtype=jnp.int32))

    # --- What is seen and what it is worth.

    def holds(self, state: TreasureState) -> Bool[Array, "C T"]:
        """Returns which collector holds a treasure of which kind."""
        return state.holding[:, None] == np.arange(self.num_deposits)[None]

    def observe(self, state: TreasureState) -> Observations:
        c, n, kinds, dtype = self.num_collectors, self.num_agents, self.num_deposits, state.position.dtype
        holding = self.holds(state).astype(dtype)
        who = jnp.zeros((n, 2 * kinds), dtype).at[c:, :kinds].set(jnp.eye(kinds, dtype=dtype)).at[:c, kinds:].set(holding)
        relative = between(state.position, state.position)
        order = nearest_others(state.position, n - 1)
        others = jnp.concatenate(
            [jnp.take_along_axis(relative, order[:, :, None], axis=1), state.velocity[order], who[order]], axis=2
        )

        relative = between(state.position, state.treasure)
        away = jnp.where(state.present[None], length(relative), 1e6)
        order = jnp.argsort(away, axis=1)
        what = jax.nn.one_hot(state.kind, kinds, dtype=dtype)
        treasures = jnp.concatenate([jnp.take_along_axis(relative, order[:, :, None], axis=1), what[order]], axis=2)
        treasures = jnp.where(state.present[order][:, :, None], treasures, 0.0)

        first = jnp.concatenate([state.position, state.velocity], axis=1)
        last = jnp.concatenate([others.reshape(n, -1), treasures.reshape(n, -1)], axis=1)
        return [
            jnp.concatenate([first[:c], holding, last[:c]], axis=1),
            jnp.concatenate([first[c:], last[c:]], axis=1),
        ]

    def overlaps(self, state: TreasureState) -> Float[Array, " C"]:
        """Returns how many other collectors each collector overlaps."""
        c, radius = self.num_collectors, self.bodies.radius
        touch = touching(state.position[:c], state.position[:c], radius[:c], radius[:c]) & ~np.eye(c, dtype=bool)
        return jnp.sum(touch, axis=0, dtype=state.position.dtype)

    def reward(self, state: TreasureState) -> Float[Array, " N"]:
        c = self.num_collectors
        collectors, deposits = state.position[:c], state.position[c:]
        team = REWARD * (state.collected + state.delivered).astype(state.position.dtype)

        away = jnp.where(state.present[None], length(between(collectors, state.treasure)), jnp.inf)
        nearest = jnp.min(away, axis=1)
        to_treasure = jnp.where(jnp.any(state.present), nearest, 0.0)
        apart, holds = length(between(collectors, deposits)), self.holds(state)
        to_deposit = jnp.sum(jnp.where(holds, apart, 0.0), axis=1)
        pull = jnp.where(state.holding == NOTHING, to_treasure, to_deposit)
        collector = team - REWARD * self.overlaps(state) - PULL * pull

        carriers = jnp.min(jnp.where(holds, apart, jnp.inf), axis=0)
        centre = length(jnp.mean(collectors, axis=0)[None] - deposits)
        deposit = team - PULL * jnp.where(jnp.any(holds, axis=0), carriers, centre)
        return jnp.concatenate([collector, deposit])

    def metrics(self, state: TreasureState) -> dict[str, Metric]:
        return {
            "collected": Metric(state.collected * 1.0, "sum"),
            "delivered": Metric(state.delivered * 1.0, "sum"),
            "collisions": Metric(jnp.sum(self.overlaps(state)) / 2, "sum"),
        }

    def benchmark_data(self, state: TreasureState) -> tuple[Float[Array, " _k"], ...]:
        """Returns per agent what mpe2's `benchmark_data` returns: what a collector holds (−1: nothing), or how many collectors
        hold a deposit's kind; and the treasures that are present."""
        dtype = state.position.dtype
        first = jnp.concatenate([state.holding.astype(dtype), jnp.sum(self.holds(state), axis=0, dtype=dtype)])
        present = jnp.broadcast_to(jnp.sum(state.present, dtype=dtype), first.shape)
        return tuple(jnp.stack([first, present], axis=1))

    # --- Pictures.

    def draw(self, state: TreasureState) -> Picture:
        names, radius, n = self.spec.agents, self.bodies.radius, self.num_agents
        velocity, kind, holding = np.asarray(state.velocity), np.asarray(state.kind), np.asarray(state.holding)
        shapes: list[Shape] = []
        for i in np.flatnonzero(np.asarray(state.present)):
            x, y = np.asarray(state.treasure)[i].tolist()
            shapes.append(Circle(x, y, float(radius[n + i]), f"kind_{kind[i]}"))
        for i, (x, y) in enumerate(np.asarray(state.position).tolist()):
            heading = float(np.arctan2(velocity[i, 1], velocity[i, 0])) if np.hypot(*velocity[i]) > 1e-3 else None
            if i >= self.num_collectors:
                colour = f"kind_{i - self.num_collectors}"
            else:
                colour = "collector" if holding[i] == NOTHING else f"kind_{holding[i]}"
            shapes.append(Circle(x, y, float(radius[i]), colour, names[i], heading, names[i]))
        return Picture((-1.3, -1.3, 1.3, 1.3), tuple(shapes), f"{self.name}  step {int(state.step)}")
