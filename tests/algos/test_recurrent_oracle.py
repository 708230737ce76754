"""Updates of recurrent MADDPG and MASAC beside a restatement in float64 NumPy, with gradients by differences of its losses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import maddpg, masac
from counterpoint.core import actions, prng
from counterpoint.core.spaces import Discrete
from counterpoint.core.types import Transition
from probes import spec_of

SPEC = spec_of((2, 1), (Discrete((3,)), Discrete((3,))))
T, B, N, GAMMA = 4, 3, 2, 0.9
SIZES = {"num_units": 3, "num_layers": 2, "recurrent": True, "burn_in": 1, "sequence_length": 3, "gamma": GAMMA, "clip": 0.0}


def sequences() -> Transition:
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
    arrays = {
        "obs": obs.astype(np.float32),
        "action": np.eye(3, dtype=np.float32)[rng.integers(3, size=shape)],
        "reward": rng.normal(size=shape).astype(np.float32),
        "next_obs": next_obs.astype(np.float32),
        "terminated": terminated,
        "alive": alive & warm[..., None],
        "done": done,
        "begins": begins,
    }
    return Transition(**{name: jnp.asarray(array.reshape(T * B, *array.shape[2:])) for name, array in arrays.items()})


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    weight = np.exp(x - x.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)


def moved(net, x, hidden):
    """The hidden states after one step of inputs [B, I]."""
    w1, b1, wx, bx, wh, bh, _, _ = net
    gates, own = np.maximum(x @ w1 + b1, 0) @ wx + bx, hidden @ wh + bh
    reset, keep = sigmoid(gates[:, :3] + own[:, :3]), sigmoid(gates[:, 3:6] + own[:, 3:6])
    return keep * hidden + (1 - keep) * np.tanh(gates[:, 6:] + reset * own[:, 6:])


def walk(net, x, begins):
    """Outputs, and hidden states before and after each step, of sequences [T, B, I]."""
    hidden, outs, befores, afters = np.zeros((B, 3)), [], [], []
    for t in range(T):
        befores.append(np.where(begins[t][:, None], 0.0, hidden))
        hidden = moved(net, x[t], befores[-1])
        afters.append(hidden)
        outs.append(hidden @ net[6] + net[7])
    return np.array(outs), np.array(befores), np.array(afters)


def once(net, x, hidden):
    return np.array([moved(net, x[t], hidden[t]) @ net[6] + net[7] for t in range(T)])


def arrays_of(network, i):
    """The arrays of agent i's network, as float64."""
    layers = (network.body[0], network.cell.inputs, network.cell.state, network.head[0])
    return [np.asarray(array[i], np.float64) for layer in layers for array in (layer.weight, layer.bias)]


def differences(loss, net, step=1e-6):
    """The gradient of a loss by central differences."""
    grads = []
    for k, array in enumerate(net):
        grad = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            sides = []
            for sign in (1, -1):
                other = [part.copy() for part in net]
                other[k][place] += sign * step
                sides.append(loss(other))
            grad[place] = (sides[0] - sides[1]) / (2 * step)
        grads.append(grad)
    return grads


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
    for found, wanted in zip(arrays_of(opt[0].mu, i), expected, strict=True):
        np.testing.assert_allclose(found, 0.1 * wanted, atol=2e-5)


@pytest.mark.parametrize("num_steps", [pytest.param(1, marks=pytest.mark.slow), 2])
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
        target = arrays_of(agents.target_actor, j)
        _, _, recalled = walk(target, steps.obs[:, :, j], steps.begins)
        next_actions.append(softmax(once(target, steps.next_obs[:, :, j], recalled)))
    inputs = np.concatenate([flat(steps.obs), flat(steps.action)], axis=-1)
    next_inputs = np.concatenate([flat(steps.next_obs), *next_actions], axis=-1)
    for i in range(N):
        counts = steps.alive[..., i]
        target = arrays_of(agents.target_critic, i)
        future = once(target, next_inputs, walk(target, inputs, steps.begins)[2])[..., 0]
        y = restated_targets(steps, i, future, num_steps)

        def critic_loss(net, y=y, counts=counts):
            return np.mean((walk(net, inputs, steps.begins)[0][..., 0] - y)[counts] ** 2)

        critic = arrays_of(agents.critic, i)
        np.testing.assert_allclose(metrics["critic_loss"][i], critic_loss(critic), rtol=1e-4)
        assert_gradient(after.critic_opt, i, differences(critic_loss, critic))
        critic = arrays_of(after.critic, i)
        before = walk(critic, inputs, steps.begins)[1]

        def actor_loss(net, i=i, counts=counts, critic=critic, before=before):
            out = walk(net, steps.obs[:, :, i], steps.begins)[0]
            now = inputs.copy()
            now[..., 4 + 3 * i : 7 + 3 * i] = softmax(out)
            value = once(critic, now, before)[..., 0]
            return -np.mean(value[counts]) + 0.1 * np.mean(out[counts] ** 2)

        actor = arrays_of(agents.actor, i)
        np.testing.assert_allclose(metrics["actor_loss"][i], actor_loss(actor), rtol=1e-4)
        assert_gradient(after.actor_opt, i, differences(actor_loss, actor))


@pytest.mark.slow
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
        actor = arrays_of(agents.actor, j)
        logits.append(once(actor, steps.next_obs[:, :, j], walk(actor, steps.obs[:, :, j], steps.begins)[2]))
    chosen = [np.eye(3)[each.argmax(-1)] for each in logits]
    inputs = np.concatenate([flat(steps.obs), flat(steps.action)], axis=-1)
    next_inputs = np.concatenate([flat(steps.next_obs), *chosen], axis=-1)

    def soft(out, values):
        pi = softmax(out)
        return np.sum(pi * (values - 0.3 * np.log(pi)), axis=-1)

    for i in range(N):
        counts, action = steps.alive[..., i], steps.action[:, :, i]
        targets = [arrays_of(critic, i) for critic in agents.target_critics]
        future = np.minimum(*(once(net, next_inputs, walk(net, inputs, steps.begins)[2]) for net in targets))
        y = restated_targets(steps, i, soft(logits[i], future), 1)
        critics = [arrays_of(critic, i) for critic in agents.critics]
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

        actor = arrays_of(agents.actor, i)
        np.testing.assert_allclose(metrics["actor_loss"][i], actor_loss(actor), rtol=1e-4)
        assert_gradient(after.actor_opt, i, differences(actor_loss, actor))
