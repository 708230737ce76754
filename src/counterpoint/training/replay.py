"""Memories of the loop: what is added after a rollout and what an update is given.

`uniform` is a ring of packed rows, one float32 row per transition, so that adding is one slice and sampling one gather.
`prioritised` is the same ring, drawn from in proportion to priorities (Schaul et al. 2016, arXiv:1511.05952, Section 3.3).
`n_step` puts n-step transitions into either ring: it holds the last steps of a rollout back until the next one follows them.
`sequences` is the ring of `uniform`, from which successive steps of one environment are drawn together.
`on_policy` keeps the last rollout as it is, for learners that must learn from what they themselves just did.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos.ensemble import dealt
from counterpoint.algos.inference import Newest
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key, Transition


class Memory(NamedTuple):
    """A memory bound to its sizes: init() → state, add(state, Transition[T, E, …]) → state, sample(state, key) → batch."""

    init: Callable[[], Any]
    add: Callable[[Any, Transition], Any]
    sample: Callable[[Any, Key], Transition]
    split: Callable[[Any, Any], Any]
    """(keep, split) → for each field of the state, whether devices that share a run hold it all or a part each."""
    feedback: Callable[[Any, Int[Array, "..."], Float[Array, "..."]], Any] = lambda state, index, errors: state
    """(state, the batch's index, its absolute TD errors) → the state that has learnt what to draw more often."""
    rows: Callable[[Any], Any] | None = lambda state: state.rows
    """(state) → the large array of rows [C, D], which checkpoints save as it grows; None if the memory does not outlive an
    iteration and is not saved at all."""
    with_rows: Callable[[Any, Any], Any] = lambda state, rows: state._replace(rows=rows)
    """(state, rows) → the state with these rows."""
    added: Callable[[Any], Any] = lambda state: state.added
    """(state) → how many rows were ever added."""
    join: Callable[[Transition, Transition], tuple[Transition, Transition]] | None = None
    """(state.tail, a whole rollout [T, E, …]) → (the next tail, what is added instead); None if the rollout itself is added."""


class Ring(NamedTuple):
    """The last `capacity` transitions."""

    rows: Float[Array, "C D"]
    added: Int[Array, ""]
    """How many transitions were ever added."""


def example(spec: Spec, masks: bool = False, extras: Any = ()) -> Transition:
    """Returns the shapes of one transition; `extras` are the shapes of what acting leaves for learning."""
    n, o, a = spec.num_agents, spec.obs_size, spec.act_size
    obs, action, reward = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((n, o), (n, a), (n,)))
    flags, legal = jax.ShapeDtypeStruct((n,), bool), jax.ShapeDtypeStruct((n, a), bool) if masks else None
    done = jax.ShapeDtypeStruct((), bool)
    return Transition(obs, action, reward, obs, flags, flags, done, legal=legal, next_legal=legal, extras=extras)  # pyright: ignore[reportArgumentType]


STORED = ("obs", "action", "reward", "next_obs", "terminated", "alive", "legal", "next_legal", "discount", "extras")
"""The fields of a transition that a row holds. Learners from single steps have no use for `done`."""


SUCCESSIVE = ("done", *STORED)
"""The fields of a transition that a row of `sequences` holds: it must know where episodes end."""


def _stored(steps: Transition, names: tuple[str, ...] = STORED) -> list[Any]:
    return jax.tree.leaves([getattr(steps, name) for name in names])


def row_size(one: Transition, names: tuple[str, ...] = STORED) -> int:
    """Returns the floats per stored transition."""
    return sum(math.prod(leaf.shape) for leaf in _stored(one, names))


def pack(steps: Transition, names: tuple[str, ...] = STORED) -> Float[Array, "R D"]:
    """Returns transitions [T, E, …] as rows: the arrays of these fields side by side."""
    count = steps.done.size
    return jnp.concatenate([leaf.reshape(count, -1).astype(jnp.float32) for leaf in _stored(steps, names)], axis=1)


def unpack(one: Transition, rows: Float[Array, "*b D"], names: tuple[str, ...] = STORED) -> Transition:
    """Returns the transitions of packed rows, given the shapes of one."""
    lead, leaves = rows.shape[:-1], _stored(one, names)
    parts = jnp.split(rows, np.cumsum([math.prod(leaf.shape) for leaf in leaves])[:-1], axis=-1)
    arrays = [
        (part > 0 if leaf.dtype == bool else part.astype(leaf.dtype)).reshape(*lead, *leaf.shape)
        for part, leaf in zip(parts, leaves, strict=True)
    ]
    fields = jax.tree.unflatten(jax.tree.structure([getattr(one, name) for name in names]), arrays)
    return Transition(**({"done": jnp.zeros(lead, bool)} | dict(zip(names, fields, strict=True))))


def uniform(
    one: Transition,
    capacity: int,
    batch_size: int,
    per_add: int,
    num_batches: int = 1,
    names: tuple[str, ...] = STORED,
) -> Memory:
    """Returns a ring sampled uniformly with replacement; `per_add` transitions arrive at a time and must divide the capacity.

    With `num_batches` above 1 a sample is that many independent minibatches, [num_batches, B, …].
    """
    if capacity % per_add:
        raise ValueError(f"capacity {capacity} is no multiple of the {per_add} transitions added at a time")
    shape = (batch_size,) if num_batches == 1 else (num_batches, batch_size)

    def init() -> Ring:
        return Ring(rows=jnp.zeros((capacity, row_size(one, names)), jnp.float32), added=jnp.zeros((), jnp.int32))

    def add(ring: Ring, steps: Transition) -> Ring:
        if steps.done.size != per_add:  # a slice of another size would be moved to fit, over the wrong rows
            raise ValueError(f"this memory takes {per_add} transitions at a time, not {steps.done.size}")
        rows = jax.lax.dynamic_update_slice_in_dim(ring.rows, pack(steps, names), ring.added % capacity, axis=0)
        return Ring(rows=rows, added=ring.added + per_add)

    def sample(ring: Ring, key: Key) -> Transition:
        index = jax.random.randint(key, shape, 0, jnp.minimum(ring.added, capacity))
        return unpack(one, ring.rows.at[index].get(mode="promise_in_bounds"), names)

    return Memory(init=init, add=add, sample=sample, split=lambda keep, split: Ring(rows=split, added=keep))


def with_newest(memory: Memory, one: Transition, per_add: int, num_batches: int = 1) -> Memory:
    """Returns the memory whose samples carry, as extras, the observations and actions of the rollout that was added last."""

    def sample(state: Any, key: Key) -> Transition:
        capacity = state.rows.shape[0]
        start = (state.added - per_add) % capacity
        last = unpack(one, jax.lax.dynamic_slice_in_dim(state.rows, start, per_add, axis=0))
        newest = Newest(last.obs, last.action, last.alive, last.legal)
        if num_batches > 1:  # every agent's minibatch has its own
            newest = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (num_batches, *leaf.shape)), newest)
        return memory.sample(state, key)._replace(extras=newest)

    return memory._replace(sample=sample)


def of_members(memory: Memory, one: Transition, batch_size: int, sizes: tuple[int, ...], axis: str | None = None) -> Memory:
    """Returns a ring whose samples have K parts of equal size, each of the same sub-policies (see `ensemble.dealt`).

    The last leaf of the transitions' extras holds the index of each team. Many places are drawn and those kept at which the
    indices of a part played; if they are too few they repeat, and if there are none nobody is alive in the part, so that
    nothing is learned. Devices along `axis`, which share a minibatch, deal the same indices.
    """
    before = STORED.index("extras") + 1
    leaves = jax.tree.leaves([getattr(one, name) for name in STORED[:before]])
    stop = sum(math.prod(leaf.shape) for leaf in leaves)
    count, parts = len(sizes), max(sizes)
    each = max(1, batch_size // parts)
    tries = math.ceil(1.2 * each * math.prod(sizes)) + 64

    def sample(state: Ring, key: Key) -> Transition:
        key_member, key_index = jax.random.split(key)
        chance = jax.random.uniform(key_member, (count, parts))
        if axis is not None:  # the first device's draw
            chance = jax.lax.psum(jnp.where(jax.lax.axis_index(axis) == 0, chance, 0.0), axis)
        members = dealt(chance, sizes)
        index = jax.random.randint(key_index, (tries,), 0, jnp.minimum(state.added, state.rows.shape[0]))
        played = state.rows.at[index, stop - count : stop].get(mode="promise_in_bounds").astype(jnp.int32)

        def places(member: Int[Array, " T"]) -> tuple[Int[Array, " B"], Bool[Array, " B"]]:
            """Returns the rows of one part, and whether there are any."""
            fits = jnp.all(played == member[None], axis=1)
            found = jnp.sum(fits)
            place = jnp.arange(each) % jnp.clip(found, 1, each)
            return index[jnp.nonzero(fits, size=each, fill_value=0)[0][place]], jnp.broadcast_to(found > 0, (each,))

        chosen, real = jax.tree.map(lambda leaf: leaf.reshape(-1), jax.vmap(places)(members))
        batch = unpack(one, state.rows.at[chosen].get(mode="promise_in_bounds"))
        inner, _ = batch.extras
        return batch._replace(alive=batch.alive & real[:, None], extras=(inner, jnp.repeat(members, each, axis=0)))

    return memory._replace(sample=sample)


def sequences(
    one: Transition,
    capacity: int,
    num_sequences: int,
    per_add: int,
    num_envs: int,
    burn_in: int,
    length: int,
    num_batches: int = 1,
) -> Memory:
    """Returns a ring from which sequences of `burn_in + length` successive steps are drawn uniformly with replacement.

    A sample is laid out like one of single steps, [T·B, …], with the first steps of all sequences first; with `num_batches`
    above 1 it is that many of them. A sequence may reach into the next episode: `begins` says where memory begins anew. Nobody
    counts as alive, and so nobody learns, in the first `burn_in` steps of a sequence that starts in the middle of an episode,
    up to the start of the next one.
    """
    window, names = burn_in + length, SUCCESSIVE
    ring = uniform(one, capacity, num_sequences, per_add, num_batches, names)
    lead = (num_sequences,) if num_batches == 1 else (num_batches, num_sequences)
    most = capacity // num_envs
    if most < window or per_add % num_envs:
        raise ValueError(f"{capacity} rows of {num_envs} environments do not hold sequences of {window} steps")

    def sample(state: Ring, key: Key) -> Transition:
        key_time, key_env = jax.random.split(key)
        held = jnp.minimum(state.added // num_envs, most)
        oldest = state.added // num_envs - held
        start = jax.random.randint(key_time, lead, 0, jnp.maximum(held - window + 1, 1))
        env = jax.random.randint(key_env, lead, 0, num_envs)

        def rows(time: Int[Array, "..."]) -> Float[Array, "... D"]:
            """Returns the rows of these times, counted from the oldest, of the chosen environments [*t, …]."""
            place = ((oldest + time) % most) * num_envs + jnp.broadcast_to(env, time.shape)
            return state.rows.at[place].get(mode="promise_in_bounds")

        times = jnp.arange(window).reshape(-1, *(1,) * len(lead))
        steps = unpack(one, rows(jnp.broadcast_to(start, (window, *lead)) + jnp.broadcast_to(times, (window, *lead))), names)
        before = rows(start - 1)[..., 0] > 0  # the row of the step before, whose first entry says whether it was the last one
        return in_sequences(steps, jnp.where(start > 0, before, oldest == 0), burn_in)

    return ring._replace(sample=sample)


def in_sequences(steps: Transition, fresh: Bool[Array, "*b"], burn_in: int) -> Transition:
    """Returns successive steps [T, *b, …] as a batch of sequences; `fresh` says which of them start with an episode.

    The batch is [T·B, …], or [M, T·B, …] if *b is M, B. Nobody counts as alive before memory is what it was in the episode:
    from the start of an episode on, or after `burn_in` steps.
    """
    ended = steps.done[:-1]
    times = jnp.arange(len(steps.done)).reshape(-1, *(1,) * fresh.ndim)
    warm = jnp.cumsum(jnp.concatenate([fresh[None], ended]), axis=0) > 0
    warm = warm | jnp.broadcast_to(times >= burn_in, warm.shape)
    begins = jnp.concatenate([jnp.ones_like(fresh)[None], ended])
    steps = steps._replace(alive=steps.alive & warm[..., None], begins=begins)

    def flat(leaf: Array) -> Array:
        if fresh.ndim == 2:
            return leaf.swapaxes(0, 1).reshape(leaf.shape[1], -1, *leaf.shape[3:])
        return leaf.reshape(-1, *leaf.shape[2:])

    return jax.tree.map(flat, steps)


class Joined(NamedTuple):
    """A memory of n-step transitions."""

    ring: Any
    tail: Transition
    """The last n − 1 steps of each environment [n − 1, E, …]: their transitions are not complete yet."""


def n_step(memory: Memory, one: Transition, num_envs: int, num_steps: int, gamma: float) -> Memory:
    """Returns the memory with transitions that span `num_steps` steps, fewer where an episode ends; `one` is a single step.

    What is added lags n − 1 steps behind what is played. The first rows of a run come before its first step: nobody is alive
    in them, so nobody learns from them.
    """
    length = num_steps - 1

    def init() -> Joined:
        blank = jax.tree.map(lambda leaf: jnp.zeros((length, num_envs, *leaf.shape), leaf.dtype), _kept(one))
        return Joined(memory.init(), blank._replace(done=jnp.ones((length, num_envs), bool)))

    def join(tail: Transition, steps: Transition) -> tuple[Transition, Transition]:
        whole = jax.tree.map(lambda *parts: jnp.concatenate(parts), tail, _kept(steps))
        return jax.tree.map(lambda leaf: leaf[-length:], whole), n_step_transitions(whole, num_steps, gamma)

    return Memory(
        init=init,
        add=lambda state, steps: state._replace(ring=memory.add(state.ring, steps)),
        sample=lambda state, key: memory.sample(state.ring, key),
        split=lambda keep, split: Joined(ring=memory.split(keep, split), tail=keep),
        feedback=lambda state, index, errors: state._replace(ring=memory.feedback(state.ring, index, errors)),
        rows=lambda state: state.ring.rows,
        with_rows=lambda state, rows: state._replace(ring=memory.with_rows(state.ring, rows)),
        added=lambda state: memory.added(state.ring),
        join=join,
    )


def _kept(steps: Transition) -> Transition:
    """Returns the fields of single steps that their n-step transitions depend on."""
    return steps._replace(carry=None, weight=None, index=None, discount=None)


def n_step_transitions(steps: Transition, num_steps: int, gamma: float) -> Transition:
    """Returns the n-step transitions of all but the last n − 1 steps [T, E, …].

    The reward is Σ γᵏ r over the steps that an agent still plays; next observation and mask are those after the last step, and
    the discount is γ to the number of steps. A transition stops where the episode ends, and for all agents where one of them is
    truncated: its bootstrap must start from the joint observation at that moment.
    """
    count = steps.done.shape[0] - num_steps + 1
    at = [jax.tree.map(lambda leaf: leaf[k : k + count], steps) for k in range(num_steps)]  # noqa: B023 — used at once
    first = at[0]
    reward = jnp.where(first.alive, first.reward, 0.0)
    ended = first.alive & first.terminated
    last, discount = first, jnp.full(first.done.shape, gamma, jnp.float32)
    going = jnp.ones_like(first.done)
    for k in range(1, num_steps):
        before, now = at[k - 1], at[k]
        truncated = before.alive & ~before.terminated & ~now.alive
        going = going & ~before.done & ~jnp.any(truncated, axis=-1)
        plays = jnp.broadcast_to(going[..., None], now.alive.shape) & now.alive & first.alive
        reward = reward + jnp.where(plays, gamma**k * now.reward, 0.0)
        ended = ended | (plays & now.terminated)
        last = _where_going(going, now, last)
        discount = jnp.where(going, gamma ** (k + 1), discount)
    return first._replace(
        reward=reward, next_obs=last.next_obs, terminated=ended, next_legal=last.next_legal, discount=discount, done=last.done
    )


def _where_going(going: Any, now: Transition, last: Transition) -> Transition:
    """Returns what the end of a transition is: one step later where it goes on."""

    def select(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(jnp.broadcast_to(going.reshape(*going.shape, *(1,) * (a.ndim - going.ndim)), a.shape), a, b)

    return jax.tree.map(select, now, last)


def on_policy(steps: Transition) -> Memory:
    """The last rollout, whole: a sample is [T, E, …] in order; `steps` says its shapes. Of `carry` only the first is kept."""

    def add(state: Transition, steps: Transition) -> Transition:
        return steps._replace(carry=jax.tree.map(lambda leaf: leaf[:1], steps.carry))

    def init() -> Transition:
        kept = jax.eval_shape(add, steps, steps)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), kept)

    return Memory(init=init, add=add, sample=lambda state, key: state, split=lambda keep, split: split, rows=None)


SMALLEST_ERROR = 1e-6
"""Added to every TD error, so that no transition is lost for ever."""


class PriorityRing(NamedTuple):
    """The last transitions and how likely each is to be drawn."""

    rows: Float[Array, "C D"]
    added: Int[Array, ""]
    tree: Float[Array, " W"]
    """Node n is the sum of nodes 2n and 2n + 1, node 1 of all; the second half are the priorities, zero where nothing is."""
    largest: Float[Array, " 1"]
    """The largest priority ever given: what a new transition gets. An axis of one, which devices can share out."""


def prioritised(
    one: Transition,
    capacity: int,
    batch_size: int,
    per_add: int,
    num_batches: int = 1,
    exponent: float = 0.6,
    beta: float = 0.4,
    room: int = 0,
) -> Memory:
    """A ring sampled with chances P(i) = p_i / Σ p, where p_i = (|TD error| + ε)^exponent; samples weigh (count · P(i))^−beta.

    Draws are independent; the paper takes one from each of B equal parts of the sum. Scaling weights by their maximum is left
    to the learner, who knows all of a minibatch that devices share. `room` is the largest capacity with which the run may be
    taken up again: it decides the tree's size, and so the draws.
    """
    ring = uniform(one, capacity, batch_size, per_add, num_batches)
    shape = (batch_size,) if num_batches == 1 else (num_batches, batch_size)
    depth = max(capacity - 1, room - 1, 1).bit_length()
    first_leaf = 2**depth

    def init() -> PriorityRing:
        return PriorityRing(*ring.init(), tree=jnp.zeros(2 * first_leaf), largest=jnp.ones(1))

    def add(state: PriorityRing, steps: Transition) -> PriorityRing:
        rows, added = ring.add(Ring(state.rows, state.added), steps)
        index = state.added % capacity + jnp.arange(per_add)
        tree = _put(state.tree, depth, index, jnp.broadcast_to(state.largest, index.shape))
        return state._replace(rows=rows, added=added, tree=tree)

    def sample(state: PriorityRing, key: Key) -> Transition:
        index = _draw(state.tree, depth, shape, key)
        chance = state.tree[first_leaf + index] / state.tree[1]
        count = jnp.minimum(state.added, capacity)
        batch = unpack(one, state.rows.at[index].get(mode="promise_in_bounds"))
        return batch._replace(weight=(count * chance) ** -beta, index=index)

    def feedback(state: PriorityRing, index: Int[Array, "*b"], errors: Float[Array, "*b"]) -> PriorityRing:
        priority = ((errors + SMALLEST_ERROR) ** exponent).ravel()
        tree = _put(state.tree, depth, index.ravel(), priority)
        return state._replace(tree=tree, largest=jnp.maximum(state.largest, jnp.max(priority)))

    return Memory(
        init=init,
        add=add,
        sample=sample,
        split=lambda keep, split: PriorityRing(rows=split, added=keep, tree=split, largest=split),
        feedback=feedback,
    )


def _put(tree: Float[Array, " W"], depth: int, index: Int[Array, " B"], priority: Float[Array, " B"]) -> Float[Array, " W"]:
    """Returns the tree with new priorities; an index that occurs twice gets the larger one, whatever the order."""
    node = index + 2**depth
    tree = tree.at[node].set(0.0).at[node].max(priority)

    def climb(_: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        tree, node = carry
        node = node // 2
        return tree.at[node].set(jnp.sum(tree.reshape(-1, 2)[node], axis=1)), node  # summed anew: rounding cannot pile up

    return jax.lax.fori_loop(0, depth, climb, (tree, node))[0]


def _draw(tree: Float[Array, " W"], depth: int, shape: tuple[int, ...], key: Key) -> Int[Array, "*b"]:
    """Returns independent leaves, drawn in proportion to their priorities; never one of priority zero."""

    # A fresh number at each fork: one for the whole way down would have too few bits to tell a million leaves apart.
    def descend(level: jax.Array, node: jax.Array) -> jax.Array:
        left, right = jnp.moveaxis(tree.reshape(-1, 2)[node], -1, 0)
        chance = jax.random.uniform(jax.random.fold_in(key, level), shape)
        return 2 * node + ((right > 0) & (chance * (left + right) >= left))

    return jax.lax.fori_loop(0, depth, descend, jnp.ones(shape, jnp.int32)) - 2**depth
