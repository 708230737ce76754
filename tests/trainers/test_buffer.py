"""The replay buffer for a loop of your own: against a Python list, under threads, and by its probabilities."""

import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.core.errors import UsageError
from counterpoint.trainers.buffer import Batch, ReplayBuffer


def put(buffer, tag):
    """Adds a transition that carries its number in every field."""
    buffer.add([tag, -tag], [tag], 10 * tag, [tag + 1, -tag - 1], tag % 2 == 1, tag % 3 > 0)


def tags(batch: Batch) -> list[int]:
    """Returns the numbers of the transitions, after checking that all fields belong together."""
    tag = batch.obs[:, 0]
    np.testing.assert_array_equal(batch.obs, np.stack([tag, -tag], axis=1))
    np.testing.assert_array_equal(batch.action[:, 0], tag)
    np.testing.assert_array_equal(batch.reward, 10 * tag)
    np.testing.assert_array_equal(batch.next_obs, np.stack([tag + 1, -tag - 1], axis=1))
    np.testing.assert_array_equal(batch.done, tag % 2 == 1)
    np.testing.assert_array_equal(batch.alive, tag % 3 > 0)
    return [int(t) for t in tag]


@given(capacity=st.integers(1, 9), count=st.integers(1, 40), latest=st.integers(1, 12), prioritised=st.booleans())
def test_a_ring_is_the_end_of_a_list(capacity, count, latest, prioritised):
    buffer = ReplayBuffer(capacity, prioritised=prioritised)
    for tag in range(count):
        put(buffer, tag)
    kept = list(range(count))[-capacity:]
    assert len(buffer) == len(kept)
    assert sorted(tags(buffer.collect())) == kept
    assert sorted(tags(buffer.sample_index(buffer.make_latest_index(latest)))) == kept[-latest:]
    assert set(tags(buffer.sample(50))) <= set(kept)
    assert buffer.sample(50).obs.dtype == np.float32
    buffer.clear()
    assert len(buffer) == 0
    put(buffer, 7)
    assert tags(buffer.collect()) == [7]


def test_random_overwriting_keeps_a_choice_of_the_past_in_the_same_places_for_all_agents():
    one, other = (ReplayBuffer(50, overwrite="random", seed=seed) for seed in range(2))
    for tag in range(400):
        put(one, tag)
        put(other, tag)
        one.sample(3)  # drawing must not change what is overwritten
    kept = tags(one.collect())
    assert kept == tags(other.collect())
    assert len(set(kept)) == len(kept) == 50
    assert min(kept) < 300 < max(kept)
    assert 399 in kept
    assert sorted(tags(one.sample_index(one.make_latest_index(5)))) == sorted(kept)[-5:]


def test_uniform_draws_are_even_and_repeat_by_seed():
    buffers = [ReplayBuffer(8, seed=seed) for seed in (1, 1, 2)]
    for buffer in buffers:
        for tag in range(8):
            put(buffer, tag)
    first, again, other = (buffer.make_index(8000) for buffer in buffers)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert np.abs(np.bincount(first) - 1000).max() < 150
    assert (buffers[0].weights(first) == 1).all()


def test_priorities_by_hand():
    """Errors 1, 2, 3 and 4 with exponent 1: chances of a tenth to four; weights with beta 1 are 1, ½, ⅓, ¼."""
    buffer = ReplayBuffer(5, prioritised=True, exponent=1.0, beta=1.0)
    for tag in range(4):
        put(buffer, tag)
    np.testing.assert_allclose(np.bincount(buffer.make_index(8000), minlength=4) / 8000, 0.25, atol=0.03)
    buffer.update_priorities([3, 0, 1, 2, 2], [4.0, 1.0, -2.0, 3.0, 0.1])
    share = np.bincount(buffer.make_index(20_000), minlength=5) / 20_000
    np.testing.assert_allclose(share, [0.1, 0.2, 0.3, 0.4, 0.0], atol=0.02)
    np.testing.assert_allclose(buffer.weights([0, 1, 2, 3]), [1, 1 / 2, 1 / 3, 1 / 4], rtol=1e-4)
    np.testing.assert_allclose(buffer.weights([3, 2]), [3 / 4, 1.0], rtol=1e-4)
    put(buffer, 4)  # as likely as the largest
    share = np.bincount(buffer.make_index(20_000), minlength=5) / 20_000
    np.testing.assert_allclose(share, np.array([1, 2, 3, 4, 4]) / 14, atol=0.02)


@pytest.mark.parametrize("settings", [{}, {"prioritised": True}], ids=["uniform", "prioritised"])
def test_many_writers_lose_nothing_and_readers_see_whole_rows(settings):
    sys.setswitchinterval(1e-5)  # threads change places in the middle of everything
    writers, each = 8, 250
    buffer = ReplayBuffer(writers * each, **settings)
    start, done = threading.Barrier(writers + 2), threading.Event()
    seen: list[int] = []
    failures: list[BaseException] = []

    def guarded(work, *args):
        try:
            start.wait(10)
            work(*args)
        except BaseException as error:
            failures.append(error)

    def write(writer):
        for k in range(each):
            put(buffer, writer * each + k)

    def read():
        while not done.is_set():
            if len(buffer):
                seen.extend(tags(buffer.sample(16)))

    threads = [threading.Thread(target=guarded, args=(write, writer)) for writer in range(writers)]
    readers = [threading.Thread(target=guarded, args=(read,)) for _ in range(2)]
    for thread in threads + readers:
        thread.start()
    for thread in threads:
        thread.join(60)
    done.set()
    for thread in readers:
        thread.join(60)
    sys.setswitchinterval(0.005)
    assert failures == []
    assert sorted(tags(buffer.collect())) == list(range(writers * each))
    assert seen


def test_refusals():
    with pytest.raises(UsageError, match="capacity must be at least 1, not 0"):
        ReplayBuffer(0)
    buffer = ReplayBuffer(3)
    with pytest.raises(UsageError, match="the replay buffer is empty: add transitions before sampling"):
        buffer.sample(2)
    with pytest.raises(UsageError, match="places must be from 0 to -1: the buffer holds 0 transitions"):
        buffer.sample_index([0])
    put(buffer, 1)
    with pytest.raises(UsageError, match="batch_size must be at least 1, not 0"):
        buffer.make_latest_index(0)
    with pytest.raises(UsageError, match="places must be from 0 to 0"):
        buffer.sample_index([0, 1])
    with pytest.raises(UsageError, match=r"action must have shape \(1,\) like the first one stored, not \(2,\)"):
        buffer.add([1, 2], [1, 2], 0.0, [1, 2], False)
    with pytest.raises(UsageError, match="make it with prioritised=True"):
        buffer.update_priorities([0], [1.0])
