"""A replay buffer for a loop of your own: NumPy arrays behind a lock.

It holds one agent's transitions. Any number of threads may add and sample at once; a transition is written whole or not yet.
Buffers of the same capacity store the n-th transition in the same place, so one index fits the buffers of all agents.
"""

import operator
import threading
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from counterpoint.core.errors import UsageError

SMALLEST_ERROR = 1e-6
"""Added to every TD error, so that every transition can be drawn again."""

Index = np.ndarray | Sequence[int]


class Batch(NamedTuple):
    """Transitions side by side, [B, …] each."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    done: np.ndarray
    alive: np.ndarray
    """False where the agent had died before the step: nothing to learn from."""
    last: np.ndarray
    """True where the agent's episode ended with the step, for whatever reason."""


class ReplayBuffer:
    """Holds the last `capacity` transitions or, with random overwriting, a random selection of the past.

    If it is prioritised, the probability of a transition is proportional to (|TD error| + 10⁻⁶)^exponent, and `weights` returns
    the importance weights. New transitions are as likely as the one with the largest error so far.
    """

    def __init__(
        self,
        capacity: int,
        overwrite: Literal["oldest", "random"] = "oldest",
        prioritised: bool = False,
        seed: int | Sequence[int] = 0,
        exponent: float = 0.6,
        beta: float = 0.4,
    ) -> None:
        if capacity < 1:
            raise UsageError(f"a replay buffer's capacity must be at least 1, not {capacity}.")
        self.capacity, self.overwrite, self.prioritised = capacity, overwrite, prioritised
        self.exponent, self.beta = exponent, beta
        self.lock = threading.RLock()
        """Every method holds it; hold it yourself to combine several calls."""
        # The places to overwrite have their own random stream, the same in every buffer; minibatches have another.
        self._places, self._draws = np.random.default_rng(capacity), np.random.default_rng(seed)
        self._rows: Batch | None = None
        self._first_leaf = 2 ** max(capacity - 1, 1).bit_length()
        self.clear()

    def clear(self) -> None:
        """Forgets everything."""
        with self.lock:
            self.added = 0
            """Number of transitions added since the buffer was made or cleared."""
            self._stamps = np.zeros(self.capacity, np.int64) if self.overwrite == "random" else None
            self._tree = np.zeros(2 * self._first_leaf) if self.prioritised else None
            self._largest = 1.0

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(
        self, obs_t: Any, action: Any, reward: Any, obs_tp1: Any, done: Any, alive: bool = True, last: bool = False
    ) -> None:
        """Stores a transition; `done` means that the game ended, `alive` that the agent took part in the step, `last` that its
        episode ended with the step, which an ended game implies."""
        parts = (np.asarray(part, np.float32) for part in (obs_t, action, reward, obs_tp1))
        flags = (np.asarray(flag, bool) for flag in (done, alive, last or done or not alive))
        new = Batch(*parts, *flags)
        with self.lock:
            if self._rows is None:
                self._rows = Batch(*(np.zeros((self.capacity, *part.shape), part.dtype) for part in new))
            for name, part, rows in zip(Batch._fields, new, self._rows, strict=True):
                if part.shape != rows.shape[1:]:
                    raise UsageError(f"{name} must have shape {rows.shape[1:]} like the first one stored, not {part.shape}.")
            full = self.added >= self.capacity
            place = (
                int(self._places.integers(self.capacity)) if full and self._stamps is not None else self.added % self.capacity
            )
            for part, rows in zip(new, self._rows, strict=True):
                rows[place] = part
            if self._stamps is not None:
                self._stamps[place] = self.added
            if self._tree is not None:
                self._prioritise(self._tree, np.array([place]), np.array([self._largest]))
            self.added += 1

    def make_index(self, batch_size: int) -> np.ndarray:
        """Returns the places of a random minibatch, drawn with replacement."""
        with self.lock:
            self._check(batch_size)
            if self._tree is not None:
                return self._draw(self._tree, batch_size)
            return self._draws.integers(len(self), size=batch_size)

    def make_sequences(self, count: int, length: int, rng: np.random.Generator | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Returns the places [length, count] of random sequences of successive transitions, drawn with replacement.

        And the place [count] before each of them, which is −1 before the first transition of all and −2 if it was overwritten.

        `rng` draws them instead of the buffer itself.
        """
        with self.lock:
            self._check(count)
            if self._stamps is not None or length > len(self):
                raise UsageError(f"sequences of {length} need as many transitions, oldest overwritten first: store more.")
            oldest = self.added - len(self)
            start = oldest + (rng or self._draws).integers(len(self) - length + 1, size=count)
            before = np.where(start > oldest, (start - 1) % self.capacity, -1 if oldest == 0 else -2)
            return (start + np.arange(length)[:, None]) % self.capacity, before

    def make_latest_index(self, batch_size: int) -> np.ndarray:
        """Returns the places of the newest transitions in random order; all places if there are fewer."""
        with self.lock:
            self._check(batch_size)
            size = min(batch_size, len(self))
            if self._stamps is not None:
                latest = np.argsort(self._stamps[: len(self)])[-size:]
            else:
                latest = np.arange(self.added - size, self.added) % self.capacity
            return self._draws.permutation(latest)

    def sample_index(self, idxes: Index) -> Batch:
        """Returns copies of the transitions in these places."""
        with self.lock:
            index = np.asarray(idxes, np.int64)
            if self._rows is None or (index.size and not 0 <= index.min() <= index.max() < len(self)):
                raise UsageError(f"places must be from 0 to {len(self) - 1}: the buffer holds {len(self)} transitions.")
            return Batch(*(rows[index] for rows in self._rows))

    def sample(self, batch_size: int) -> Batch:
        """Returns a random minibatch, drawn with replacement."""
        with self.lock:
            return self.sample_index(self.make_index(batch_size))

    def collect(self) -> Batch:
        """Returns all transitions in the order of their places."""
        with self.lock:
            self._check(1)
            return self.sample_index(np.arange(len(self)))

    def weights(self, idxes: Index) -> np.ndarray:
        """Returns importance weights, (count · probability)^−beta over the largest of them; ones if the buffer is uniform."""
        with self.lock:
            index = np.asarray(idxes, np.int64)
            if self._tree is None:
                return np.ones(index.size, np.float32)
            weight = (len(self) * self._tree[self._first_leaf + index] / self._tree[1]) ** -self.beta
            return (weight / weight.max()).astype(np.float32)

    def update_priorities(self, idxes: Index, errors: Any) -> None:
        """Sets priorities from TD errors; if a place occurs twice, the larger error counts."""
        with self.lock:
            if self._tree is None:
                raise UsageError("this replay buffer draws uniformly: make it with prioritised=True to give priorities.")
            priority = (np.abs(np.asarray(errors, np.float64)) + SMALLEST_ERROR) ** self.exponent
            self._prioritise(self._tree, np.asarray(idxes, np.int64), priority)
            self._largest = max(self._largest, float(priority.max(initial=0.0)))

    def _check(self, batch_size: int) -> None:
        if operator.index(batch_size) < 1:
            raise UsageError(f"batch_size must be at least 1, not {batch_size}.")
        if not self.added:
            raise UsageError("the replay buffer is empty: add transitions before sampling.")

    def _prioritise(self, tree: np.ndarray, index: np.ndarray, priority: np.ndarray) -> None:
        """Writes priorities into the tree: node n is the sum of nodes 2n and 2n + 1, and the second half are the leaves."""
        node = index + self._first_leaf
        tree[node] = 0.0
        np.maximum.at(tree, node, priority)
        while node.size and node[0] > 1:
            node = np.unique(node // 2)
            tree[node] = tree[2 * node] + tree[2 * node + 1]  # recomputed, so that rounding errors cannot accumulate

    def _draw(self, tree: np.ndarray, count: int) -> np.ndarray:
        node, rest = np.ones(count, np.int64), self._draws.random(count) * tree[1]
        while node[0] < self._first_leaf:
            left, right = tree[2 * node], tree[2 * node + 1]
            goes_right = (right > 0) & (rest >= left)
            rest, node = rest - left * goes_right, 2 * node + goes_right
        return node - self._first_leaf
