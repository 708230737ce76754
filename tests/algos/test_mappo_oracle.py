"""One whole update beside a restatement in float64 NumPy, whose gradients are differences of its own losses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr

from counterpoint.algos import mappo
from counterpoint.core import prng
from counterpoint.core.spaces import Box, Discrete
from probes import spec_of
from rollouts import random_rollout

SPEC = spec_of((3, 2), (Discrete((2, 3)), Box(2, -1.0, 1.0)))
CONFIG = mappo.Config(
    num_units=3, num_layers=1, epochs=2, minibatches=2, lr=0.02, critic_lr=0.03, clip_value=0.05, clip_ratio=0.1, huber=0.7
)
TIMES, ENVS, N = 3, 4, 2


def perceptron(params, x):
    """[B, I] → [B, H]."""
    (w1, b1), (w2, b2) = params
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def log_policy(i, actor, log_std, obs, action):
    """log π and entropy of agent i: two heads, or two clipped Gaussians."""
    out = perceptron(actor, obs)
    if i == 0:
        parts = [log_softmax(out[:, :2]), log_softmax(out[:, 2:5])]
        log_pi = np.concatenate(parts, axis=1)
        return (action * log_pi).sum(1), -(np.exp(log_pi) * log_pi).sum(1)
    mean, spread = np.tanh(out[:, :2]), np.broadcast_to(log_std[:2], (len(obs), 2))
    a, std = action[:, :2], np.exp(spread)
    inside = -(((a - mean) / std) ** 2) / 2 - spread - np.log(2 * np.pi) / 2
    beyond = np.where(a >= 1, log_ndtr((mean - 1) / std), log_ndtr((-1 - mean) / std))
    return np.where(np.abs(a) >= 1, beyond, inside).sum(1), (spread + 0.5 * np.log(2 * np.pi * np.e)).sum(1)


def huber(x):
    return np.where(np.abs(x) <= CONFIG.huber, x**2 / 2, CONFIG.huber * (np.abs(x) - CONFIG.huber / 2))


def restated(agents, batch, orders, joint):
    """Networks after the update, per agent: lists of arrays (actor with the widths last, critic)."""
    f = lambda leaf: np.asarray(leaf, np.float64)  # noqa: E731
    obs, nxt, action, reward = map(f, (batch.obs, batch.next_obs, batch.action, batch.reward))
    alive, over, done = map(np.asarray, (batch.alive, batch.terminated, batch.done))
    action = action * alive[..., None]
    playing = alive & ~over
    shared = reward.mean(-1)  # the team's
    flat = lambda x: x.reshape(TIMES * ENVS, -1)  # noqa: E731

    def seen(x, present, i):
        return flat(x * present[..., None]) if joint else flat((x * present[..., None])[:, :, i])

    result, news, judged = [], [], []
    for i in range(N):
        net, critic = agents.nets.actor.network.body, agents.nets.critic.body
        actor = [(f(layer.weight[i]), f(layer.bias[i])) for layer in net]
        critic = [(f(layer.weight[i]), f(layer.bias[i])) for layer in critic]
        log_std = f(agents.nets.actor.log_std[i])
        judged.append((actor, log_std, critic))
        value = perceptron(critic, seen(obs, alive, i)).reshape(TIMES, ENVS)
        following = perceptron(critic, seen(nxt, playing, i)).reshape(TIMES, ENVS)
        news.append((value, following))
    for i in range(N):
        actor, log_std, critic = judged[i]
        value, _ = news[i]
        target = np.zeros((TIMES, ENVS))
        for e in range(ENVS):
            for t in reversed(range(TIMES)):
                worth = [news[j][1][t, e] for j in range(N) if playing[t, e, j]]
                future = news[i][1][t, e] if playing[t, e, i] else (np.mean(worth) if worth else 0.0)
                goes_on = t + 1 < TIMES and not done[t, e] and alive[t + 1, e].any()
                if goes_on:
                    future = (1 - CONFIG.gae_lambda) * future + CONFIG.gae_lambda * target[t + 1, e]
                target[t, e] = shared[t, e] + CONFIG.gamma * future
        here = alive[..., i]
        advantage = target - value
        advantage = (advantage - advantage[here].mean()) / advantage[here].std()
        mean, std = target[here].mean(), target[here].std()
        goal, old = (target - mean) / std, value  # the first rollout: what the critic says is taken as normalised
        own_obs, own_action, inputs = flat(obs[:, :, i]), flat(action[:, :, i]), seen(obs, alive, i)
        old_log, _ = log_policy(i, actor, log_std, own_obs, own_action)
        columns = [x.ravel() for x in (advantage, old, goal, here)]

        def losses(numbers, rows, i=i, own=(own_obs, own_action, inputs, old_log, *columns), like=(actor, log_std, critic)):
            (w1, b1, w2, b2, log_std), (v1, c1, v2, c2) = split(numbers, like)
            o, a, x, before, adv, v_old, y, live = (part[rows] for part in own)
            log_pi, entropy = log_policy(i, [(w1, b1), (w2, b2)], log_std, o, a)
            ratio = np.exp(log_pi - before)
            low, high = 1 - CONFIG.clip_ratio, 1 + CONFIG.clip_ratio
            gain = np.minimum(ratio * adv, np.clip(ratio, low, high) * adv)
            v = perceptron([(v1, c1), (v2, c2)], x)[:, 0]
            near = v_old + np.clip(v - v_old, -CONFIG.clip_value, CONFIG.clip_value)
            error = np.maximum(huber(v - y), huber(near - y))
            live = live.astype(bool)
            if not live.any():
                return 0.0
            return -gain[live].mean() - CONFIG.entropy_start * entropy[live].mean() + error[live].mean()

        numbers = np.concatenate([p.ravel() for p in (*flatten(actor), log_std, *flatten(critic))])
        actor_size = sum(p.size for p in flatten(actor)) + log_std.size
        rate = np.where(np.arange(numbers.size) < actor_size, CONFIG.lr, CONFIG.critic_lr)
        first, second = np.zeros_like(numbers), np.zeros_like(numbers)
        for count, rows in enumerate(orders, start=1):
            slope = differences(lambda p, rows=rows: losses(p, rows), numbers)
            for part in (slice(None, actor_size), slice(actor_size, None)):
                slope[part] *= min(1.0, CONFIG.clip / max(np.linalg.norm(slope[part]), 1e-12))
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
            numbers = numbers - rate * (first / (1 - 0.9**count)) / (np.sqrt(second / (1 - 0.999**count)) + 1e-5)
        result.append(numbers)
    return result


def flatten(net):
    return [array for layer in net for array in layer]


def split(numbers, like):
    actor, log_std, critic = like
    shapes = [p.shape for p in (*flatten(actor), log_std, *flatten(critic))]
    parts = np.split(numbers, np.cumsum([int(np.prod(s)) for s in shapes])[:-1])
    arrays = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    return arrays[:5], arrays[5:]


def differences(function, numbers, step=1e-6):
    slope = np.zeros_like(numbers)
    for k in range(numbers.size):
        apart = np.zeros_like(numbers)
        apart[k] = step
        slope[k] = (function(numbers + apart) - function(numbers - apart)) / (2 * step)
    return slope


@pytest.mark.parametrize("joint", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["mappo", "ippo"])
def test_an_update_is_what_the_equations_say(joint):
    sees = np.ones((N, N), bool) if joint else np.eye(N, dtype=bool)
    algo, batch, key = mappo.make(CONFIG, SPEC, sees), random_rollout(SPEC, TIMES, ENVS, seed=3, alive=0.8), prng.key(5)
    agents = jax.jit(algo.init)(prng.key(4))
    body = agents.nets.actor.network.body
    louder = agents.nets.actor._replace(
        network=agents.nets.actor.network._replace(body=(body[0], body[1]._replace(weight=60 * body[1].weight)))
    )
    agents = agents._replace(nets=agents.nets._replace(actor=louder))  # away from the uniform policy
    after, metrics = jax.jit(algo.update)(agents, batch, key)
    orders = [
        rows
        for own in jax.random.split(key, CONFIG.epochs)
        for rows in np.argsort(np.asarray(jax.random.bits(own, (TIMES * ENVS,)))).reshape(CONFIG.minibatches, -1)
    ]
    for i, numbers in enumerate(restated(agents, batch, orders, joint)):
        nets = jax.tree.map(lambda leaf, i=i: leaf[i], after.nets)
        arrays = [*flatten((layer.weight, layer.bias) for layer in nets.actor.network.body), nets.actor.log_std]
        arrays += flatten((layer.weight, layer.bias) for layer in nets.critic.body)
        found = np.concatenate([np.ravel(array) for array in arrays])
        np.testing.assert_allclose(found, numbers, atol=2e-4)
    assert float(jnp.max(metrics["clipped"])) > 0, "the clip is part of what was compared"
