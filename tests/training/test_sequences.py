"""Sequences from replay: which steps are drawn together, where memory begins anew, and who counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.core import prng
from counterpoint.core.spaces import Discrete
from counterpoint.core.types import Transition
from counterpoint.training.replay import example, in_sequences, sequences
from probes import spec_of

PAIR = spec_of((1, 1), (Discrete((2,)), Discrete((2,))))
ENVS = 3


def steps_of(first: int, count: int, ends: set[tuple[int, int]]) -> Transition:
    """Steps [count, ENVS, …] from that time on; obs = 100 · environment + time, and `ends` are pairs (time, environment)."""
    time, env = np.meshgrid(first + np.arange(count), np.arange(ENVS), indexing="ij")
    seen = np.broadcast_to((100 * env + time)[..., None, None], (count, ENVS, 2, 1)).astype(np.float32)
    done = np.array([[(t, e) in ends for e in range(ENVS)] for t in range(first, first + count)])
    flags = np.ones((count, ENVS, 2), bool)
    return Transition(
        obs=jnp.asarray(seen),
        action=jnp.zeros((count, ENVS, 2, 2)),
        reward=jnp.zeros((count, ENVS, 2)),
        next_obs=jnp.asarray(seen + 0.5),
        terminated=jnp.asarray(~flags),
        alive=jnp.asarray(flags),
        done=jnp.asarray(done),
    )


def filled(adds: int, ends: set[tuple[int, int]], capacity: int = 8 * ENVS, num_batches: int = 1):
    memory = sequences(example(PAIR), capacity, 64, 2 * ENVS, ENVS, burn_in=2, length=3, num_batches=num_batches)
    state = memory.init()
    add = jax.jit(memory.add, compiler_options={"xla_backend_optimization_level": 0})
    for k in range(adds):
        state = add(state, steps_of(2 * k, 2, ends))
    return memory, state


def draw(memory):
    return jax.jit(memory.sample, compiler_options={"xla_backend_optimization_level": 0})


@pytest.mark.parametrize("adds", [3, 4, 7])
def test_a_sequence_is_five_successive_steps_of_one_environment(adds):
    """Eight steps fit: after fourteen the oldest six are gone, wherever the ring's end is."""
    memory, state = filled(adds, set())
    batch = draw(memory)(state, prng.key(0))
    seen = np.asarray(batch.obs)[:, 0, 0].reshape(5, 64)
    env, time = seen[0] // 100, seen % 100
    assert (seen // 100 == env).all()
    np.testing.assert_array_equal(time - time[0], np.broadcast_to(np.arange(5)[:, None], (5, 64)))
    held = min(2 * adds, 8)
    assert set(time[0]) == set(range(2 * adds - held, 2 * adds - 4)), "every start that leaves room is drawn"
    assert set(env) == {0, 1, 2}


def test_nobody_counts_until_memory_is_warm():
    """The first two steps refresh memory, unless the sequence starts with an episode or an episode starts among them."""
    memory, state = filled(7, {(9, 0), (7, 1)})
    batch = draw(memory)(state, prng.key(1))
    seen = np.asarray(batch.obs)[:, 0, 0].reshape(5, 64)
    begins, counts = (np.asarray(part).reshape(5, 64, -1) for part in (batch.begins, batch.alive))
    for b in range(64):
        env, start = divmod(int(seen[0, b]), 100)
        starts = {0: {10}, 1: {8}, 2: set()}[env] & set(range(start, start + 5))
        expected = [t >= start + 2 or any(s <= t for s in starts) for t in range(start, start + 5)]
        if start == 6:  # the oldest step: what was before it is forgotten
            assert env != 1 or expected == [False, False, True, True, True]
        np.testing.assert_array_equal(counts[:, b].all(-1), expected, err_msg=f"{env} {start}")
        np.testing.assert_array_equal(begins[:, b, 0], [t == start or t in starts for t in range(start, start + 5)])


def test_the_first_steps_of_a_run_start_an_episode():
    memory, state = filled(3, set())
    batch = draw(memory)(state, prng.key(0))
    first = np.asarray(batch.obs)[:64, 0, 0] % 100 == 0
    assert first.any()
    np.testing.assert_array_equal(np.asarray(batch.alive)[:64].all(-1), first)


def test_steps_that_are_not_there_yet_count_for_nobody():
    memory, state = filled(1, set())
    batch = draw(memory)(state, prng.key(0))
    np.testing.assert_array_equal(np.asarray(batch.alive).reshape(5, -1).any(1), [True, True, False, False, False])


def test_each_agent_may_have_sequences_of_its_own():
    memory, state = filled(4, {(2, 0)}, num_batches=2)
    batch = draw(memory)(state, prng.key(0))
    assert batch.obs.shape == (2, 5 * 64, 2, 1)
    seen = np.asarray(batch.obs)[:, :, 0, 0].reshape(2, 5, 64)
    assert (np.diff(seen, axis=1) == 1).all()
    assert not np.array_equal(seen[0], seen[1])
    alone = jax.tree.map(lambda leaf: leaf[1], batch)
    again = in_sequences(
        jax.tree.map(lambda leaf: leaf.reshape(5, 64, *leaf.shape[1:]), alone._replace(begins=None)),
        jnp.zeros(64, bool),
        0,
    )
    np.testing.assert_array_equal(again.begins, alone.begins)


def test_a_memory_too_small_for_a_sequence_is_refused():
    with pytest.raises(ValueError, match="do not hold sequences of 5 steps"):
        sequences(example(PAIR), 4 * ENVS, 8, 2 * ENVS, ENVS, 2, 3)
