"""Checkpoints: the whole `Loop` as named arrays, its memory's rows saved as they come."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.trees import names_of
from counterpoint.runs import Checkpoint, Saver, Segment
from counterpoint.training.loop import Loop, Program


def save(program: Program, loop: Loop, counters: dict[str, Any], saver: Saver, safe_rows: int) -> int:
    """Hands a checkpoint to the saver and returns how many rows of the memory are now safe."""
    small = _without_rows(program, loop)._replace(key=jax.random.key_data(loop.key))
    state = dict(zip(names_of(small), map(np.array, jax.tree.leaves(jax.device_get(small))), strict=True))
    memory, step = program.memory, int(loop.step[0])
    if memory.rows is None:
        saver.submit(step, state, counters)
        return 0
    rows = memory.rows(loop.replay)
    added, capacity = rows_added(program, loop), _capacity(program, rows)
    first = max(safe_rows, added - capacity)
    index = np.arange(first, added) % capacity
    new = np.concatenate([view[:, index] for view in _views(rows, capacity)])
    saver.submit(step, state, counters, [Segment(first=first, rows=new)], capacity)
    return added


def restore(program: Program, fresh: Loop, saved: Checkpoint) -> Loop:
    """Returns the loop of a checkpoint, laid out on devices as `fresh` is."""
    shell = _without_rows(program, fresh)
    leaves, tree = jax.tree.flatten(shell)
    restored = []
    for name, leaf in zip(names_of(shell), leaves, strict=True):
        if name not in saved.state:
            raise UsageError(
                f"the checkpoint lacks {name}: an earlier version of counterpoint wrote it; resume it with that one."
            )
        value = saved.state[name]
        key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        if key and (value.dtype != np.uint32 or value.shape[:-1] != leaf.shape):
            raise _misfit(name)
        if not key and (value.shape != leaf.shape or value.dtype != leaf.dtype):
            raise _misfit(name)
        value = prng.wrap(jnp.asarray(value)) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else value
        restored.append(jax.device_put(value, leaf.sharding))
    loop: Loop = jax.tree.unflatten(tree, restored)
    memory = program.memory
    if memory.rows is None:
        return loop._replace(replay=fresh.replay)
    rows = memory.rows(fresh.replay)
    capacity = _capacity(program, rows)
    ring = np.zeros((rows.size // rows.shape[-1] // capacity, capacity, rows.shape[-1]), np.float32)
    if saved.ring is not None:
        if saved.ring.shape[::2] != ring.shape[::2] or saved.ring.shape[1] > capacity:
            raise _misfit("the replay")
        ring[:, : saved.ring.shape[1]] = saved.ring  # a run that was made longer has a longer ring, not yet filled
    return loop._replace(replay=memory.with_rows(loop.replay, jax.device_put(ring.reshape(rows.shape), rows.sharding)))


def _misfit(name: str) -> UsageError:
    return UsageError(
        f"{name} in the checkpoint does not fit the settings: restore config.json, or resume with the version that wrote them."
    )


def rows_added(program: Program, loop: Loop) -> int:
    """Returns how many rows were ever added to each device's memory; 0 if it is not saved."""
    return int(program.memory.added(loop.replay)[0]) if program.memory.rows else 0


def first_bad_reward(program: Program, loop: Loop, seed: int) -> tuple[int, int, float] | None:
    """Returns the step, the agent and the value of the first reward of a seed in the memory that is not finite, if any."""
    memory, spec = program.memory, program.env.spec
    if memory.rows is None:  # the last rollout [K, T, E, …], which may lack a reward of an earlier one in the same call
        steps = np.asarray(loop.replay.reward[seed]).reshape(-1, spec.num_agents)
        bad = np.argwhere(~np.isfinite(steps))[:1].tolist()
        return next(((int(loop.step[seed]) - len(steps) + at + 1, n, float(steps[at, n])) for at, n in bad), None)
    rows = memory.rows(loop.replay)
    capacity, added = _capacity(program, rows), rows_added(program, loop)
    parts = np.concatenate(list(_views(rows, capacity)))
    parts = parts if program.splits_batch else parts[seed : seed + 1]
    at = spec.num_agents * (spec.obs_size + spec.act_size)  # a row begins with observations and actions; rewards follow
    bad = np.argwhere(~np.isfinite(parts[..., at : at + spec.num_agents]))
    found = []
    for device, slot, agent in bad.tolist():
        row = added - 1 - (added - 1 - slot) % capacity
        if row >= 0:
            step = row * len(parts) + device + 1  # devices take every other transition in turn
            found.append((step, agent, float(parts[device, slot, at + agent])))
    return min(found, default=None)


def _without_rows(program: Program, loop: Loop) -> Loop:
    """Returns the loop without its memory's rows, or without the memory if that is not saved."""
    memory = program.memory
    return loop._replace(replay=memory.with_rows(loop.replay, jnp.zeros(0)) if memory.rows else ())


def _capacity(program: Program, rows: jax.Array) -> int:
    return rows.shape[1] // (program.num_devices if program.splits_batch else 1)


def _views(rows: jax.Array, capacity: int) -> Iterator[np.ndarray]:
    """Yields each device's part of the rows as [·, capacity, D], without copying."""
    for shard in sorted(rows.addressable_shards, key=lambda shard: shard.device.id):
        yield np.asarray(shard.data).reshape(-1, capacity, rows.shape[-1])
