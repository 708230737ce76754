"""Updates of recurrent MADDPG, MATD3 and MASAC beside a restatement in float64 NumPy, with gradients by differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import maddpg, masac, matd3
from counterpoint.core import actions, prng
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Transition
from numpy_learner import differences, flat_arrays, remembered, slide
from probes import spec_of

SPEC = spec_of((2, 1), (Discrete((3,)), Discrete((3,))))
BOTH = spec_of((2, 1), (Discrete((3,)), Box(2, -1.0, 1.0)))
"""A chooser beside an agent whose actions are numbers."""
T, B, N, GAMMA = 4, 3, 2, 0.9
SIZES = {"num_units": 3, "num_layers": 2, "recurrent": True, "burn_in": 1, "sequence_length": 3, "gamma": GAMMA, "clip": 0.0}


def sequences(spec=SPEC) -> Transition:
    """Three sequences of four steps: one reaches into another episode, in one an agent dies, in one an agent's time is up."""
    rng = np.random.default_rng(0)
    shape = (T, B, N)
    done = np.zeros((T, B), bool)
    done[1, 0] = True
    alive, terminated = np.ones(shape, bool), np.zeros(shape, bool)
    terminated[1, 0] = True
    terminated[2, 1, 1], alive[3, 1, 1] = True, False
    alive[2:, 2, 0] = False
    warm = np.array([[False, False, True]] + [[True] * 3] * 3)
    obs, next_obs = (rng.normal(size=(*shape, 2)) * SPEC.obs_mask for _ in range(2))
    begins = np.concatenate([np.ones((1, B), bool), done[:-1]])
    action = np.eye(3, dtype=np.float32)[rng.integers(3, size=shape)]
    for i, space in enumerate(spec.action_spaces):
        if isinstance(space, Box):
            action[:, :, i] = rng.uniform(-1, 1, (T, B, 3)) * spec.act_mask[i]
    arrays = {
        "obs": obs.astype(np.float32),
        "action": action,
        "reward": rng.normal(size=shape).astype(np.float32),
        "next_obs": next_obs.astype(np.float32),
        "terminated": terminated,
        "alive": alive & warm[..., None],
        "done": done,
        "begins": begins,
    }
    return Transition(**{name: jnp.asarray(array.reshape(T * B, *array.shape[2:])) for name, array in arrays.items()})


def softmax(x):
    weight = np.exp(x - x.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)


def walk(net, x, begins):
    """Outputs, and hidden states before and after each step, of sequences [T, B, I]."""
    hidden, outs, befores, afters = np.zeros((B, 3)), [], [], []
    for t in range(T):
        befores.append(np.where(begins[t][:, None], 0.0, hidden))
        hidden = remembered(net, x[t], befores[-1])
        afters.append(hidden)
        outs.append(hidden @ net[6] + net[7])
    return np.array(outs), np.array(befores), np.array(afters)


def once(net, x, hidden):
    return np.array([remembered(net, x[t], hidden[t]) @ net[6] + net[7] for t in range(T)])


def in_time(batch):
    return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(T, B, *leaf.shape[1:]), batch)


def flat(x):
    return x.reshape(T, B, -1).astype(np.float64)


def restated_targets(steps, i, future, num_steps):
    """Sums of at most so many rewards, then the value; fewer where the episode or the sequence ends."""
    y = np.zeros((T, B))
    for b in range(B):
        for t in range(T):
            for m in range(num_steps):
                now = t + m
                y[t, b] += GAMMA**m * steps.reward[now, b, i]
                over = steps.terminated[now, b, i]
                plays, ended = steps.alive[:, b], steps.terminated[now, b]
                stop = now < T - 1 and (plays[now] & ~ended & ~plays[now + 1]).any()
                if over or stop or steps.done[now, b] or m == num_steps - 1 or now == T - 1:
                    y[t, b] += 0.0 if over else GAMMA ** (m + 1) * future[now, b]
                    break
    return y


def assert_gradient(opt, i, expected):
    """Adam's first average is a tenth of the first gradient."""
    for found, wanted in zip(flat_arrays(opt[0].mu, i), expected, strict=True):
        np.testing.assert_allclose(found, 0.1 * wanted, atol=2e-5)


@pytest.mark.parametrize("num_steps", [1, 2])
def test_recurrent_maddpg_is_what_the_equations_say(num_steps, monkeypatch):
    for module in (maddpg, actions):
        monkeypatch.setattr(module, "gumbel", lambda key, shape: jnp.zeros(shape))
    config = maddpg.Config(**SIZES, n_step=num_steps, lr=1e-2, logit_cost=0.1)
    algo, batch = maddpg.make(config, SPEC, np.ones((N, N), bool)), sequences()
    agents = jax.jit(algo.init)(prng.key(1))
    agents = agents._replace(target_actor=jax.tree.map(lambda leaf: 1.5 * leaf, agents.actor))
    after, metrics = jax.jit(algo.update)(agents, batch, prng.key(2))
    steps = in_time(batch)
    next_actions = []
    for j in range(N):
        target = flat_arrays(agents.target_actor, j)
        _, _, recalled = walk(target, steps.obs[:, :, j], steps.begins)
        next_actions.append(softmax(once(target, steps.next_obs[:, :, j], recalled)))
    inputs = np.concatenate([flat(steps.obs), flat(steps.action)], axis=-1)
    next_inputs = np.concatenate([flat(steps.next_obs), *next_actions], axis=-1)
    for i in range(N):
        counts = steps.alive[..., i]
        target = flat_arrays(agents.target_critic, i)
        future = once(target, next_inputs, walk(target, inputs, steps.begins)[2])[..., 0]
        y = restated_targets(steps, i, future, num_steps)

        def critic_loss(net, y=y, counts=counts):
            return np.mean((walk(net, inputs, steps.begins)[0][..., 0] - y)[counts] ** 2)

        critic = flat_arrays(agents.critic, i)
        np.testing.assert_allclose(metrics["critic_loss"][i], critic_loss(critic), rtol=1e-4)
        assert_gradient(after.critic_opt, i, differences(critic_loss, critic))
        critic = flat_arrays(after.critic, i)
        before = walk(critic, inputs, steps.begins)[1]

        def actor_loss(net, i=i, counts=counts, critic=critic, before=before):
            out = walk(net, steps.obs[:, :, i], steps.begins)[0]
            now = inputs.copy()
            now[..., 4 + 3 * i : 7 + 3 * i] = softmax(out)
            value = once(critic, now, before)[..., 0]
            return -np.mean(value[counts]) + 0.1 * np.mean(out[counts] ** 2)

        actor = flat_arrays(agents.actor, i)
        np.testing.assert_allclose(metrics["actor_loss"][i], actor_loss(actor), rtol=1e-4)
        assert_gradient(after.actor_opt, i, differences(actor_loss, actor))


def test_recurrent_matd3_is_what_the_equations_say(monkeypatch):
    """The smaller of two critics, each with a memory of its own, shaken targets, and an actor that waits one update."""
    for module in (matd3, actions):
        monkeypatch.setattr(module, "gumbel", lambda key, shape: jnp.zeros(shape))
    config = matd3.Config(**SIZES, n_step=2, lr=1e-2, logit_cost=0.1, target_noise=0.6, target_noise_clip=0.5, tau=0.3)
    algo, batch, key = matd3.make(config, BOTH, np.ones((N, N), bool)), sequences(BOTH), prng.key(2)
    start = jax.jit(algo.init)(prng.key(1))
    start = start._replace(
        target_actor=jax.tree.map(lambda leaf: 1.5 * leaf, start.actor),
        target_critics=jax.tree.map(lambda leaf: 1.2 * leaf, start.critics[::-1]),
    )
    update = jax.jit(algo.update)
    once_more, first_metrics = update(start, batch, key)
    after, metrics = update(once_more, batch, key)  # the same noise, and the targets have not moved
    steps = in_time(batch)
    shake = jax.random.normal(jax.random.fold_in(jax.random.split(key)[0], 1), (N, 3, T * B), jnp.float32)
    shake = np.clip(0.6 * np.moveaxis(np.asarray(shake[1, :2], np.float64), 0, -1), -0.5, 0.5).reshape(T, B, 2)

    def chosen(i, out):
        """Agent i's action: a softmax, or the tanh of two numbers beside a padded one."""
        return softmax(out) if i == 0 else np.tanh(out) * [1, 1, 0]

    next_actions = []
    for j in range(N):
        target = flat_arrays(start.target_actor, j)
        _, _, recalled = walk(target, steps.obs[:, :, j], steps.begins)
        next_actions.append(chosen(j, once(target, steps.next_obs[:, :, j], recalled)))
    next_actions[1][..., :2] = np.clip(next_actions[1][..., :2] + shake, -1, 1)
    inputs = np.concatenate([flat(steps.obs), flat(steps.action)], axis=-1)
    next_inputs = np.concatenate([flat(steps.next_obs), *next_actions], axis=-1)
    for i in range(N):
        counts, losses = steps.alive[..., i], []
        targets = [flat_arrays(critic, i) for critic in start.target_critics]
        future = np.minimum(*(once(net, next_inputs, walk(net, inputs, steps.begins)[2])[..., 0] for net in targets))
        y = restated_targets(steps, i, future, 2)

        def critic_loss(net, y=y, counts=counts):
            return np.mean((walk(net, inputs, steps.begins)[0][..., 0] - y)[counts] ** 2)

        for k in range(2):
            critic = flat_arrays(start.critics[k], i)
            losses.append(critic_loss(critic))
            assert_gradient(once_more.critic_opts[k], i, differences(critic_loss, critic))
        np.testing.assert_allclose(first_metrics["critic_loss"][i], np.mean(losses), rtol=1e-4)
        actor = flat_arrays(start.actor, i)
        for found, wanted in zip(flat_arrays(once_more.actor, i), actor, strict=True):
            np.testing.assert_array_equal(found, wanted, err_msg="it moves in every second update")
        critic = flat_arrays(after.critics[0], i)
        before = walk(critic, inputs, steps.begins)[1]

        def actor_loss(net, i=i, counts=counts, critic=critic, before=before):
            out = walk(net, steps.obs[:, :, i], steps.begins)[0]
            now = inputs.copy()
            now[..., 4 + 3 * i : 7 + 3 * i] = chosen(i, out)
            value = once(critic, now, before)[..., 0]
            return -np.mean(value[counts]) + 0.1 * np.mean(out[counts][:, : BOTH.act_sizes[i]] ** 2)

        np.testing.assert_allclose(metrics["actor_loss"][i], actor_loss(actor), rtol=1e-4)
        assert_gradient(after.actor_opt, i, differences(actor_loss, actor))
        pairs = [(start.target_actor, after.actor, after.target_actor)]
        pairs += list(zip(start.target_critics, after.critics, after.target_critics, strict=True))
        for slow, fast, moved in pairs:
            expected = slide([flat_arrays(slow, i)], [flat_arrays(fast, i)], 0.3)
            for found, wanted in zip(flat_arrays(moved, i), expected[0], strict=True):
                np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_recurrent_masac_is_what_the_equations_say(monkeypatch):
    """Choices are those with the largest logits, for there is no noise; critics do not read their own agent's."""
    monkeypatch.setattr(masac, "gumbel", lambda key, shape: jnp.zeros(shape))
    config = masac.Config(**SIZES, alpha=0.3)
    algo, batch = masac.make(config, SPEC, np.ones((N, N), bool)), sequences()
    agents = jax.jit(algo.init)(prng.key(3))
    after, metrics = jax.jit(algo.update)(agents, batch, prng.key(2))
    steps = in_time(batch)
    logits = []
    for j in range(N):
        actor = flat_arrays(agents.actor, j)
        logits.append(once(actor, steps.next_obs[:, :, j], walk(actor, steps.obs[:, :, j], steps.begins)[2]))
    chosen = [np.eye(3)[each.argmax(-1)] for each in logits]
    inputs = np.concatenate([flat(steps.obs), flat(steps.action)], axis=-1)
    next_inputs = np.concatenate([flat(steps.next_obs), *chosen], axis=-1)

    def soft(out, values):
        pi = softmax(out)
        return np.sum(pi * (values - 0.3 * np.log(pi)), axis=-1)

    for i in range(N):
        counts, action = steps.alive[..., i], steps.action[:, :, i]
        targets = [flat_arrays(critic, i) for critic in agents.target_critics]
        future = np.minimum(*(once(net, next_inputs, walk(net, inputs, steps.begins)[2]) for net in targets))
        y = restated_targets(steps, i, soft(logits[i], future), 1)
        critics = [flat_arrays(critic, i) for critic in agents.critics]
        seen = np.ones((10, 1))
        seen[4 + 3 * i : 7 + 3 * i] = 0.0
        for critic, opt in zip(critics, after.critic_opts, strict=True):

            def critic_loss(net, y=y, counts=counts, action=action):
                return np.mean((np.sum(action * walk(net, inputs, steps.begins)[0], axis=-1) - y)[counts] ** 2)

            grads = differences(critic_loss, critic)
            assert_gradient(opt, i, [grads[0] * seen, *grads[1:]])
        befores = [walk(net, inputs, steps.begins)[1] for net in critics]
        smaller = np.minimum(*(once(net, inputs, before) for net, before in zip(critics, befores, strict=True)))

        def actor_loss(net, i=i, counts=counts, smaller=smaller):
            return -np.mean(soft(walk(net, steps.obs[:, :, i], steps.begins)[0], smaller)[counts])

        actor = flat_arrays(agents.actor, i)
        np.testing.assert_allclose(metrics["actor_loss"][i], actor_loss(actor), rtol=1e-4)
        assert_gradient(after.actor_opt, i, differences(actor_loss, actor))
