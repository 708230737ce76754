"""Particle physics: forces, contacts, integration. No rewards, no observations, no randomness."""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

DT = 0.1
DAMPING = 0.25
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 0.001
UNROLLED = 10
"""Up to this many bodies, sums over them are written out: on a CPU, reductions of so few numbers cost ten times as much."""


class Bodies(NamedTuple):
    """Static tables of a scenario, agents first, then landmarks. NumPy, computed once from a scenario's fields."""

    radius: np.ndarray
    """[N + L]."""
    collides: np.ndarray
    """[N + L]: pushes, and if an agent, is pushed."""
    movable: np.ndarray
    """[N]."""
    talks: np.ndarray
    """[N]."""
    accel: np.ndarray
    """[N]: force of a full action."""
    max_speed: np.ndarray
    """[N]: infinite where there is no limit."""
    num_words: int


def length(vector: Float[Array, "*b 2"]) -> Float[Array, "*b"]:
    """Returns the Euclidean norm of 2-D vectors."""
    return jnp.sqrt(vector[..., 0] ** 2 + vector[..., 1] ** 2)


def between(a: Float[Array, "P 2"], b: Float[Array, "Q 2"]) -> Float[Array, "P Q 2"]:
    """Returns the vectors from each of a to each of b."""
    return b[None, :, :] - a[:, None, :]


def off_diagonal(matrix: Float[Array, "N N *d"]) -> Float[Array, "N M *d"]:
    """Returns row i without column i, in index order. Reshapes instead of a gather, which is much cheaper on CPUs."""
    n, tail = matrix.shape[0], matrix.shape[2:]
    flat = matrix.reshape(n * n, *tail)[1:].reshape(n - 1, n + 1, *tail)
    return flat[:, :-1].reshape(n, n - 1, *tail)


def nearest(distance: Float[Array, "P Q"], count: int) -> Int[Array, "P K"]:
    """Returns the columns with the smallest distances of each row, nearest first: `count` of them, or all if fewer."""
    return jax.lax.top_k(-distance, min(count, distance.shape[1]))[1]


def nearest_others(position: Float[Array, "N 2"], count: int) -> Int[Array, "N K"]:
    """Returns the other agents nearest to each agent, nearest first: `count` of them, or all if there are fewer."""
    n = position.shape[0]
    distance = jnp.where(np.eye(n, dtype=bool), jnp.inf, length(between(position, position)))
    return nearest(distance, min(count, n - 1))


def slots(rows: Float[Array, "P K 2"], count: int) -> Float[Array, "P _s"]:
    """Returns rows side by side, with zeros where there are fewer than `count`."""
    return jnp.pad(rows, ((0, 0), (0, count - rows.shape[1]), (0, 0))).reshape(rows.shape[0], 2 * count)


def seen_landmarks(position: Float[Array, "N 2"], landmarks: Float[Array, "L 2"], count: int | None) -> Float[Array, "N _s"]:
    """Returns the relative positions of all landmarks, or of the nearest `count`, nearest first and padded with zeros."""
    relative = between(position, landmarks)
    if count is None:
        return relative.reshape(position.shape[0], -1)
    order = nearest(length(relative), count)
    return slots(jnp.take_along_axis(relative, order[:, :, None], axis=1), count)


def seen_others(position: Float[Array, "N 2"], count: int | None) -> Float[Array, "N _s"]:
    """Returns the relative positions of all other agents, or of the nearest `count`, nearest first and padded with zeros."""
    n = position.shape[0]
    relative = between(position, position)
    if count is None:
        return off_diagonal(relative).reshape(n, 2 * (n - 1))
    return slots(jnp.take_along_axis(relative, nearest_others(position, count)[:, :, None], axis=1), count)


def seen_in_crowd(
    velocity: Float[Array, "N 2"], position: Float[Array, "N 2"], landmarks: Float[Array, "L 2"], num_silent: int
) -> Float[Array, "N _s"]:
    """Returns velocity, position, the relative positions of all landmarks and of all others, and zeros, for many agents.

    The same numbers as `seen_landmarks` and `seen_others` side by side, as one sum of rows and columns: on a CPU that is a pass
    of vector operations, where pairs of coordinates and a row without its diagonal are moved number by number.
    """
    n, places = position.shape[0], position.reshape(-1)
    own, silent = jnp.zeros(4, position.dtype), jnp.zeros(num_silent, position.dtype)
    # Agent i sees others 0 … i − 1, then i + 1 …: of the row of all, first the part before its own place, then what follows it.
    before, after = (jnp.concatenate([own, landmarks.reshape(-1), part, silent]) for part in (places[:-2], places[2:]))
    column, first = np.arange(before.size), 4 + landmarks.size
    earlier = column[None] - first < 2 * np.arange(n)[:, None]
    relative = (column >= 4) & (column < first + 2 * (n - 1))
    rows = jnp.where(earlier, before[None], after[None])
    for source, at, sign in ((velocity, 0, 0.0), (position, 2, -1.0)):
        for axis in range(2):
            share = np.where(column == at + axis, 1.0, sign * (relative & (column % 2 == axis)))
            rows = rows + share.astype(position.dtype)[None] * source[:, axis, None]
    return rows


def fold(combine: Callable[[Array, Array], Array], matrix: Float[Array, "P Q"], axis: int) -> Float[Array, " _r"]:
    """Returns jnp.sum or jnp.min along an axis, for `combine` jnp.add or jnp.minimum; see UNROLLED."""
    count = matrix.shape[axis]
    if not 0 < count <= UNROLLED:
        return jnp.min(matrix, axis=axis) if combine is jnp.minimum else jnp.sum(matrix, axis=axis)
    return reduce(combine, [jax.lax.index_in_dim(matrix, i, axis, keepdims=False) for i in range(count)])


LANES = 8
"""Numbers that a vector operation of a CPU takes at once: rows of many bodies are padded to a multiple of it."""


def in_lanes(vectors: Float[Array, "N 2"]) -> Float[Array, "M 2"]:
    """Returns 2-D vectors, padded with zeros to whole vector operations."""
    return jnp.pad(vectors, ((0, -vectors.shape[0] % LANES), (0, 0)))


def squared_distances(a: Float[Array, "P 2"], b: Float[Array, "Q 2"]) -> Float[Array, "P Q"]:
    """Returns the squared distance from each of a to each of b: for many bodies, cheaper than vectors between them."""
    dx, dy = (b[None, :, c] - a[:, None, c] for c in range(2))
    return dx**2 + dy**2


def touching(a: Float[Array, "P 2"], b: Float[Array, "Q 2"], radius_a: np.ndarray, radius_b: np.ndarray) -> Bool[Array, "P Q"]:
    """Returns which bodies overlap: the test behind rewards, forests and metrics (the contact force has its own)."""
    return length(between(a, b)) < radius_a[:, None] + radius_b[None, :]


def contact_force(position: Float[Array, "N 2"], landmarks: Float[Array, "L 2"], bodies: Bodies) -> Float[Array, "N 2"]:
    """Returns the repulsion of each agent: contact_force · k·softplus((r_a + r_b − d)/k) along the line of centres."""
    n = position.shape[0]
    pushing = np.flatnonzero(bodies.collides[n:])
    others = jnp.concatenate([position, landmarks[pushing]]) if pushing.size else position
    index = np.concatenate([np.arange(n), n + pushing])
    pair = bodies.collides[:n, None] & bodies.collides[None, index] & (np.arange(n)[:, None] != index[None, :])
    reach = bodies.radius[:n, None] + bodies.radius[None, index]

    if index.size > UNROLLED:
        # A plane for each coordinate, others × agents: sums then run over rows of whole vector operations.
        wide = in_lanes(position)
        dx, dy = (wide[None, :, c] - others[:, None, c] for c in range(2))
        reach, pair = (np.pad(table.T, ((0, 0), (0, wide.shape[0] - n))) for table in (reach, pair))
        strength = _strength(dx**2 + dy**2, reach, pair, many=True)
        return jnp.stack([jnp.sum(strength * dx, axis=0), jnp.sum(strength * dy, axis=0)], axis=1)[:n]
    return reduce(jnp.add, [_repulsion(position - others[None, j], reach[:, j], pair[:, j]) for j in range(index.size)])


def _repulsion(delta: Float[Array, "*b 2"], reach: np.ndarray, pair: np.ndarray) -> Float[Array, "*b 2"]:
    """Returns the force along `delta`, for bodies that touch at distance `reach`; none where `pair` is false."""
    return _strength(delta[..., 0] ** 2 + delta[..., 1] ** 2, reach, pair)[..., None] * delta


def _strength(squared: Float[Array, "*b"], reach: np.ndarray, pair: np.ndarray, many: bool = False) -> Float[Array, "*b"]:
    """Returns the force of a contact per distance between the bodies, given the square of that distance.

    Of many pairs the logarithm is the largest part, and log(1 + x) is cheaper than log1p(x). It differs by less than a rounding
    error of 1, which makes forces of 10⁻⁸.
    """
    distance = jnp.sqrt(jnp.where(squared > 0, squared, 1.0))  # coincident bodies: no direction, so no force
    overlap = (reach - distance) / CONTACT_MARGIN
    tail = jnp.exp(-jnp.abs(overlap))
    depth = CONTACT_MARGIN * (jnp.maximum(overlap, 0.0) + (jnp.log(1.0 + tail) if many else jnp.log1p(tail)))
    return jnp.where(pair, CONTACT_FORCE * depth / distance, 0.0)


def integrate(
    position: Float[Array, "N 2"],
    velocity: Float[Array, "N 2"],
    force: Float[Array, "N 2"],
    bodies: Bodies,
    velocity_first: bool,
) -> tuple[Float[Array, "N 2"], Float[Array, "N 2"]]:
    """Returns positions and velocities one step later: mpe2 moves with the old velocity, openai with the new one."""
    moved = velocity * (1 - DAMPING) + force * DT
    if np.isfinite(bodies.max_speed).any():
        speed = length(moved)
        limit = jnp.asarray(bodies.max_speed, speed.dtype)
        moved = jnp.where((speed > limit)[:, None], moved * (limit / jnp.maximum(speed, limit))[:, None], moved)
    if not bodies.movable.all():
        moved = jnp.where(bodies.movable[:, None], moved, 0.0)
    return position + (moved if velocity_first else velocity) * DT, moved
