"""Episode ends, in the only place that decides about them; checked against a plain Python replay of what happened."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import maddpg
from counterpoint.core import prng
from counterpoint.training.evaluate import evaluate
from counterpoint.training.rollout import rollout, start
from probes import Relay

NUM_ENVS, NUM_STEPS = 5, 24


def act(policy, carry, obs, key, step, legal=None):
    """Noise that depends on the key, and the clock in the second entry."""
    noise = jax.random.uniform(key, obs.shape[:2])
    return jnp.stack([noise, jnp.full(noise.shape, step, jnp.float32)], axis=-1), carry + 1, ()


STUB = maddpg.make(maddpg.Config(), Relay().spec, np.ones((3, 3), bool))._replace(
    begin=lambda key: jnp.zeros((), jnp.int32), act=act
)


@functools.partial(jax.jit, static_argnames="env")
def _played(env, key):
    worlds = start(env, STUB, key, NUM_ENVS)
    return worlds, *rollout(env, STUB, (), worlds, jax.random.fold_in(key, 1), NUM_STEPS, jnp.int32(1000))


def played(ends, seed=0):
    """Worlds at the start, worlds afterwards, the transitions between and the episodes that ended."""
    return jax.tree.map(np.asarray, _played(Relay(ends=ends), prng.key(seed)))


@pytest.fixture(scope="module", params=["terminated", "truncated"])
def ends(request):
    return request.param


@pytest.fixture(scope="module")
def run(ends):
    return played(ends)


def episodes(steps):
    """(world, first step, last step) of every episode, the unfinished ones too."""
    for e in range(NUM_ENVS):
        first = 0
        for t in range(NUM_STEPS):
            if steps.done[t, e] or t == NUM_STEPS - 1:
                yield e, first, t
                first = t + 1


def test_every_episode_follows_the_rules(run, ends):
    """Time runs from 0, agents finish after 1, 2 and 3 or 4 steps, and the third is the one cut by the clock, if any."""
    _, _, steps, _ = run
    lengths = set()
    for e, first, last in episodes(steps):
        ticket = steps.obs[first, e, 0, 1]
        full = 3 if ticket < 0.5 else 4
        for time, t in enumerate(range(first, last + 1)):
            np.testing.assert_array_equal(steps.obs[t, e, :, 0], time)
            np.testing.assert_array_equal(steps.obs[t, e, :, 1], ticket)
            np.testing.assert_array_equal(steps.next_obs[t, e, :, 0], time + 1)  # of this episode, even at its end
            np.testing.assert_array_equal(steps.next_obs[t, e, :, 1], ticket)
            np.testing.assert_array_equal(steps.alive[t, e], [time < 1, time < 2, True])
            third = time + 1 >= full and ends == "terminated"
            np.testing.assert_array_equal(steps.terminated[t, e], [True, time >= 1, third])
            assert steps.done[t, e] == (time + 1 == full)
        if steps.done[last, e]:
            lengths.add(last - first + 1)
            assert last - first + 1 == full
    assert lengths == {3, 4}  # worlds do part ways


def test_a_time_limit_is_never_an_end(run, ends):
    _, _, steps, _ = run
    at_the_end = steps.terminated[steps.done]
    assert len(at_the_end) > 20
    np.testing.assert_array_equal(at_the_end[:, 2], ends == "terminated")


def test_the_next_step_continues_or_starts_afresh(run):
    _, after, steps, _ = run
    final = np.concatenate([steps.obs[1:], after.obs[None]])
    going_on = ~steps.done
    np.testing.assert_array_equal(final[going_on], steps.next_obs[going_on])
    np.testing.assert_array_equal(final[steps.done][:, :, 0], 0.0)
    tickets = final[steps.done][:, 0, 1]
    assert len(np.unique(tickets)) == len(tickets)
    assert (tickets != steps.obs[steps.done][:, 0, 1]).all()


def test_finished_sums_returns_and_lengths(run):
    """An episode of L steps pays 1, then 11 + 12, then 21 + … + (20 + L)."""
    _, _, steps, finished = run
    ended = [last - first + 1 for e, first, last in episodes(steps) if steps.done[last, e]]
    assert finished.episodes == len(ended)
    assert finished.length == sum(ended)
    third = sum(20 * length + length * (length + 1) // 2 for length in ended)
    np.testing.assert_allclose(finished.returns, [1 * len(ended), 23 * len(ended), third])


def test_worlds_carry_on_where_they_were(run):
    _, after, steps, _ = run
    for e, first, last in episodes(steps):
        if last == NUM_STEPS - 1:
            length = 0 if steps.done[last, e] else last - first + 1
            assert after.length[e] == length
            assert after.carry[e] == length
            assert after.state.time[e] == length
            np.testing.assert_allclose(after.returns[e], steps.reward[first : last + 1, e].sum(0) if length else 0.0)
            np.testing.assert_array_equal(after.alive[e], [length < 1, length < 2, True])


def test_the_policy_is_told_the_number_of_world_steps(run):
    _, _, steps, _ = run
    expected = np.broadcast_to((1000 + NUM_ENVS * np.arange(NUM_STEPS))[:, None, None], steps.action.shape[:3])
    np.testing.assert_array_equal(steps.action[..., 1], expected)
    assert len(np.unique(steps.action[..., 0])) == steps.action[..., 0].size  # fresh noise for everyone, every step


def test_the_key_decides_everything(run, ends):
    again, other = played(ends), played(ends, seed=1)
    jax.tree.map(np.testing.assert_array_equal, run, again)
    assert not np.array_equal(run[2].obs, other[2].obs)
    assert not np.array_equal(run[2].action, other[2].action)


def test_the_world_is_traced_once_per_rollout():
    calls = []

    class Counted(Relay):
        def step(self, key, state, action):
            calls.append(1)
            return super().step(key, state, action)

    env = Counted()
    run = jax.jit(lambda worlds, key: rollout(env, STUB, (), worlds, key, NUM_STEPS, jnp.int32(0)))
    worlds = jax.jit(lambda key: start(env, STUB, key, NUM_ENVS))(prng.key(0))
    for seed in range(3):
        worlds, _, _ = run(worlds, prng.key(seed))
    assert len(calls) == 1


def test_an_evaluation_adds_up_the_actions_of_agents_while_they_play():
    """Agents choose the first coin side at the start and the second later: 1, 2 and 3 or 4 steps until each finishes."""

    def greedy(policy, carry, obs, legal=None):
        first = (obs[..., 0] == 0).astype(jnp.float32)
        return jnp.stack([first, 1 - first], axis=-1), carry

    stub = STUB._replace(greedy=greedy)
    played = jax.jit(lambda key: evaluate(Relay(max_steps=4), stub, (), key, NUM_ENVS))(prng.key(0))
    lengths = np.asarray(played.length)
    steps = np.stack([np.ones(NUM_ENVS), np.full(NUM_ENVS, 2), lengths], axis=1)
    np.testing.assert_array_equal(played.actions.count, np.repeat(steps[..., None], 2, axis=2))
    np.testing.assert_array_equal(played.actions.total[..., 0], np.ones((NUM_ENVS, 3)))
    np.testing.assert_array_equal(played.actions.total[..., 1], steps - 1)
    assert played.actions.bound is None
    assert {3, 4} == set(lengths.tolist())
