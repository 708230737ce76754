"""Tennis: two rackets keep a ball in the air (Unity ML-Agents 0.4, the build of Udacity's course), as a light 2-D port.

obs(24) = three frames of 8, oldest first, zeros before the first: [racket x, y, vx, vy, ball x, y, vx, vy]
The original shows the racket's velocity where the ball's should be (entries 6 and 7); so do we unless `ball_velocity_obs`.
Every agent sees the court mirrored so that it stands on the left (negative x). Metres, seconds, origin at the court's centre.
Actions, clipped to [−1, 1]: [drive towards the net (30 m/s at 1), jump if above 0.5].
Agent 0 is the right racket (B in the original), agent 1 the left (A).
reward = 0.1 to the racket that last touched a ball that has crossed the net; −0.01 to the one at fault

Differs from the original: contacts are an impulse and a push-out instead of PhysX's solver; every game starts with the ball
at y = 6 (theirs has been falling for 0–4 physics steps after a fault, so that untouched it mostly lands in step 14, here in
step 15); a fault freezes the court, so the last observation is the true one, not that of the next game.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from counterpoint.core.errors import UsageError
from counterpoint.core.picture import Circle, Line, Picture, Polygon, Shape
from counterpoint.core.spaces import Box, Spec
from counterpoint.core.types import Key, Metric, Step
from counterpoint.envs.base import World, check_count

DT = 0.02
SUBSTEPS = 5
GRAVITY = 9.81

FLOOR = -3.25
WALL = 12.27
NET_HALF = 0.05
NET_TOP = -1.0

BALL_RADIUS = 0.5
BALL_MASS = 0.75
BALL_MAX_SPEED = 9.0
"""Of each component."""
BALL_HEIGHT = 6.0
BOUNCE_SPEED = 2.0
"""Slower contacts do not bounce."""

RACKET_MASS = 4.0
RACKET_HALF_DEPTH, RACKET_HALF_WIDTH = 0.55, 0.9375
RACKET_CENTRE = -0.5
"""Of the box along its own axis, seen from the racket's point."""
COS, SIN = float(np.cos(np.deg2rad(55.0))), float(np.sin(np.deg2rad(55.0)))
"""The face's normal: towards the net and up."""
RACKET_LOWEST = FLOOR + SIN * (RACKET_HALF_DEPTH - RACKET_CENTRE) + COS * RACKET_HALF_WIDTH
RACKET_FARTHEST = -WALL + COS * (RACKET_HALF_DEPTH - RACKET_CENTRE) + SIN * RACKET_HALF_WIDTH
RACKET_HEIGHT = -1.5
SERVICE_LINE = -1.0
DRIVE_SPEED = 30.0
JUMP_SPEED = 7.0
JUMP_BELOW = -1.5

CROSSING_REWARD = 0.1
FAULT_REWARD = -0.01

RIGHT, LEFT = 0, 1
"""Racket B and racket A, in the order of the agents."""
MIRROR = np.array([-1.0, 1.0])
"""[2]: turns the court's x into the x an agent sees, and back."""
FRAME = 8


class Court(NamedTuple):
    """Everything that moves. A racket's x is as its agent sees it (negative), the ball's is the court's."""

    x: Float[Array, " 2"]
    y: Float[Array, " 2"]
    vx: Float[Array, " 2"]
    vy: Float[Array, " 2"]
    ball_x: Float[Array, ""]
    ball_y: Float[Array, ""]
    ball_vx: Float[Array, ""]
    ball_vy: Float[Array, ""]


class Game(NamedTuple):
    """What a physics step changes."""

    court: Court
    last_left: Bool[Array, ""]
    """Whether the left racket answers for the ball: it hit last, or the ball has crossed since (a quirk of the original)."""
    over_net: Bool[Array, ""]
    """Whether the ball touches the plane above the net; leaving it is a crossing, on whichever side."""
    fault: Bool[Array, ""]
    reward: Float[Array, " 2"]
    """Earned since the last observation."""
    rally: Int[Array, ""]
    """Crossings so far."""


class State(NamedTuple):
    game: Game
    returns: Float[Array, " 2"]
    frames: Float[Array, "2 24"]
    step: Int[Array, ""]


@dataclass(frozen=True)
class Tennis(World):
    """Two rackets play a ball to each other; both gain by a long rally."""

    ball_velocity_obs: bool = False
    """Show the ball's velocity in entries 6 and 7 of a frame, where the original repeats the racket's."""
    max_steps: int = 1000
    """Steps until truncation."""

    name: ClassVar[str] = "tennis"

    def __post_init__(self) -> None:
        if not isinstance(self.ball_velocity_obs, bool):
            raise UsageError(f"ball_velocity_obs must be True or False, not {self.ball_velocity_obs!r}.")
        check_count(self, "max_steps", 1)

    @cached_property
    def spec(self) -> Spec:
        return Spec(
            agents=("racket_0", "racket_1"),
            roles=("racket",) * 2,
            teams=("good",) * 2,
            obs_sizes=self.obs_sizes,
            action_spaces=(Box(2, -1.0, 1.0),) * 2,
        )

    def reset(self, key: Key) -> tuple[State, Float[Array, "2 24"]]:
        key_place, key_side = jax.random.split(key)
        place = jax.random.uniform(key_place, (3,), minval=6.0, maxval=8.0)
        zero, zeros = jnp.zeros_like(place[0]), jnp.zeros_like(place[:2])
        court = Court(
            x=-place[:2],
            y=jnp.full_like(zeros, RACKET_HEIGHT),
            vx=zeros,
            vy=zeros,
            ball_x=jnp.where(jax.random.bernoulli(key_side), place[2], -place[2]),
            ball_y=jnp.full_like(zero, BALL_HEIGHT),
            ball_vx=zero,
            ball_vy=zero,
        )
        no = jnp.zeros((), bool)
        count = jnp.zeros((), jnp.int32)
        game = Game(court=court, last_left=no, over_net=no, fault=no, reward=zeros, rally=count)
        frames = jnp.pad(self.frame(court), ((0, 0), (2 * FRAME, 0)))
        return State(game=game, returns=zeros, frames=frames, step=count), frames

    def step(self, key: Key, state: State, action: Float[Array, "2 2"]) -> tuple[State, Step]:
        action = jnp.clip(action, -1.0, 1.0)
        game = state.game._replace(reward=jnp.zeros_like(state.returns))
        drive, jump = action[:, 0], action[:, 1] > 0.5
        # A loop: unrolled, the same takes twice as long to compile and to run on CPU.
        game = jax.lax.fori_loop(0, SUBSTEPS, lambda _, game: physics_step(game, drive, jump), game)
        state = State(
            game=game,
            returns=state.returns + game.reward,
            frames=jnp.concatenate([state.frames[:, FRAME:], self.frame(game.court)], axis=1),
            step=state.step + 1,
        )
        return state, Step(
            obs=state.frames,
            reward=game.reward,
            terminated=jnp.broadcast_to(game.fault, (2,)),
            truncated=jnp.broadcast_to(~game.fault & (state.step >= self.max_steps), (2,)),
        )

    def frame(self, court: Court) -> Float[Array, "2 8"]:
        """Returns what each agent sees of this moment."""
        ball = [MIRROR * court.ball_x, jnp.broadcast_to(court.ball_y, (2,))]
        if self.ball_velocity_obs:
            shown = [MIRROR * court.ball_vx, jnp.broadcast_to(court.ball_vy, (2,))]
        else:
            shown = [court.vx, court.vy]
        return jnp.stack([court.x, court.y, court.vx, court.vy, *ball, *shown], axis=1)

    def metrics(self, state: State) -> dict[str, Metric]:
        return {
            "rally": Metric(state.game.rally * 1.0, "last"),
            "steps": Metric(state.step * 1.0, "last"),
            "score": Metric(jnp.max(state.returns), "last"),
        }

    def draw(self, state: State) -> Picture:
        court = jax.tree.map(np.asarray, state.game.court)
        wide, low, high = WALL + 0.5, FLOOR - 0.5, 8.0
        floor = ((-wide, low), (wide, low), (wide, FLOOR), (-wide, FLOOR))
        net = ((-NET_HALF, FLOOR), (NET_HALF, FLOOR), (NET_HALF, NET_TOP), (-NET_HALF, NET_TOP))
        shapes: list[Shape] = [Polygon(floor, "court"), Polygon(net, "net")]
        shapes += [Line(((x, FLOOR), (x, high)), "wall", 0.1) for x in (-WALL, WALL)]
        for i, name in enumerate(self.spec.agents):
            corners = racket_corners(float(court.x[i]), float(court.y[i]))
            shapes.append(Polygon(tuple((float(MIRROR[i]) * x, y) for x, y in corners), "racket", name))
        shapes.append(Circle(float(court.ball_x), float(court.ball_y), BALL_RADIUS, "ball", trail="ball"))
        score = float(np.max(state.returns))
        caption = f"{self.name}  step {int(state.step)}  rally {int(state.game.rally)}  score {score:.2f}"
        return Picture((-wide, low, wide, high), tuple(shapes), caption)


def physics_step(game: Game, drive: Float[Array, " 2"], jump: Bool[Array, " 2"]) -> Game:
    """Returns the game DT later: controls, gravity, motion, contacts, rewards. After a fault nothing changes."""
    court = game.court
    court = court._replace(
        # As in Unity, a racket beyond the line is put back before it moves, so one driven at the net is seen at up to −0.4.
        x=jnp.minimum(court.x, SERVICE_LINE),
        vx=DRIVE_SPEED * drive,
        vy=jnp.where(jump & (court.y < JUMP_BELOW), JUMP_SPEED, court.vy) - GRAVITY * DT,
        ball_vx=jnp.clip(court.ball_vx, -BALL_MAX_SPEED, BALL_MAX_SPEED),
        ball_vy=jnp.clip(court.ball_vy, -BALL_MAX_SPEED, BALL_MAX_SPEED) - GRAVITY * DT,
    )
    court, touched = hit(move(court))
    after = judge(game._replace(court=court), touched)
    return jax.tree.map(lambda old, new: jnp.where(game.fault, old, new), game, after)


def hit(court: Court) -> tuple[Court, Bool[Array, " 2"]]:
    """Returns the court after ball–racket contacts, and which rackets touched the ball.

    A frictionless impulse (1 + e)·v_n / (1/m_ball + 1/m_racket) along the line from the box's nearest point to the ball, and
    the ball put back to the surface. The racket's own give matters: with a heavy racket no rally is possible.
    """
    dx, dy = MIRROR * court.ball_x - court.x, court.ball_y - court.y
    along, across = COS * dx + SIN * dy - RACKET_CENTRE, COS * dy - SIN * dx  # from the box's centre, in its axes
    over_along, over_across = jnp.abs(along) - RACKET_HALF_DEPTH, jnp.abs(across) - RACKET_HALF_WIDTH
    out_along, out_across = jnp.maximum(over_along, 0.0), jnp.maximum(over_across, 0.0)
    squared = out_along**2 + out_across**2
    inside = squared == 0  # the ball's centre is in the box: leave by the nearest face
    distance = jnp.sqrt(jnp.where(inside, 1.0, squared))
    n_along = jnp.where(inside, over_along >= over_across, out_along / distance) * jnp.where(along < 0, -1.0, 1.0)
    n_across = jnp.where(inside, over_along < over_across, out_across / distance) * jnp.where(across < 0, -1.0, 1.0)
    nx, ny = COS * n_along - SIN * n_across, SIN * n_along + COS * n_across

    depth = BALL_RADIUS - jnp.where(inside, jnp.maximum(over_along, over_across), distance)
    touched = depth > 0
    approach = (court.vx - MIRROR * court.ball_vx) * nx + (court.vy - court.ball_vy) * ny
    bounce = jnp.where(approach > BOUNCE_SPEED, 2.0, 1.0)
    impulse = jnp.where(touched, bounce * jnp.maximum(approach, 0.0), 0.0) / (1 / BALL_MASS + 1 / RACKET_MASS)
    push = jnp.where(touched, depth, 0.0)
    court = court._replace(
        vx=court.vx - impulse * nx / RACKET_MASS,
        vy=court.vy - impulse * ny / RACKET_MASS,
        ball_x=court.ball_x + jnp.sum(MIRROR * push * nx),
        ball_y=court.ball_y + jnp.sum(push * ny),
        ball_vx=court.ball_vx + jnp.sum(MIRROR * impulse * nx) / BALL_MASS,
        ball_vy=court.ball_vy + jnp.sum(impulse * ny) / BALL_MASS,
    )
    return court, touched


def move(court: Court) -> Court:
    """Returns the court after all bodies moved; floor and far wall stop a racket."""
    x, y = court.x + DT * court.vx, court.y + DT * court.vy
    return court._replace(
        x=jnp.maximum(x, RACKET_FARTHEST),
        y=jnp.maximum(y, RACKET_LOWEST),
        vx=jnp.where(x < RACKET_FARTHEST, 0.0, court.vx),
        vy=jnp.where(y < RACKET_LOWEST, 0.0, court.vy),
        ball_x=court.ball_x + DT * court.ball_vx,
        ball_y=court.ball_y + DT * court.ball_vy,
    )


def judge(game: Game, touched: Bool[Array, " 2"]) -> Game:
    """Returns the game with this moment's crossing or fault counted."""
    ball_x, ball_y = game.court.ball_x, game.court.ball_y
    last_left = touched[LEFT] | (game.last_left & ~touched[RIGHT])
    over_net = jnp.abs(ball_x) < BALL_RADIUS
    crossed = game.over_net & ~over_net
    reward = game.reward + jnp.where(crossed & jnp.stack([~last_left, last_left]), CROSSING_REWARD, 0.0)
    last_left = last_left | crossed

    on_floor = ball_y < FLOOR + BALL_RADIUS
    at_wall = jnp.abs(ball_x) > WALL - BALL_RADIUS
    beside, above = jnp.maximum(jnp.abs(ball_x) - NET_HALF, 0.0), jnp.maximum(ball_y - NET_TOP, 0.0)
    in_net = beside**2 + above**2 < BALL_RADIUS**2
    fault = on_floor | at_wall | in_net
    left_pays = jnp.where(on_floor, ball_x < 0, last_left)
    # The other's reward is set to zero, not left alone: a crossing within the same step is lost with the fault.
    charged = jnp.where(jnp.stack([~left_pays, left_pays]), reward + FAULT_REWARD, 0.0)
    return game._replace(
        last_left=last_left,
        over_net=over_net,
        fault=fault,
        reward=jnp.where(fault, charged, reward),
        rally=game.rally + crossed,
    )


def racket_corners(x: float, y: float) -> list[tuple[float, float]]:
    """Returns the racket's box around its point (x, y), seen from its own side."""
    depth, width = RACKET_HALF_DEPTH, RACKET_HALF_WIDTH
    corners = []
    for along, across in ((-depth, -width), (depth, -width), (depth, width), (-depth, width)):
        along += RACKET_CENTRE
        corners.append((x + COS * along - SIN * across, y + SIN * along + COS * across))
    return corners
