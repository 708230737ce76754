"""Whole updates beside a restatement in float64 NumPy, whose gradients are differences of its own losses.

Two updates follow each other: at the second one the value normaliser has seen returns, and PopArt rescales the critics.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr

from counterpoint.algos import mappo
from counterpoint.core import prng
from counterpoint.core.spaces import Box, Discrete
from numpy_learner import adam, at_rest, differences, flat_arrays, remembered
from probes import spec_of
from rollouts import random_rollout

TIMES, ENVS, N, UNITS = 3, 4, 3, 3
SPEC = dataclasses.replace(
    spec_of((2, 2, 3), (Box(2, -1.0, 1.0), Box(2, -1.0, 1.0), Discrete((2, 3)))), roles=("arm", "arm", "voice")
)
SIZES = {
    **{"num_units": UNITS, "num_layers": 1, "epochs": 2, "minibatches": 2, "lr": 0.02, "critic_lr": 0.03, "value_decay": 0.7},
    **{"clip_value": 0.05, "clip_ratio": 0.1, "huber": 0.7, "clip": 0.8},
    **{"entropy_start": 0.3, "entropy_end": 0.1, "entropy_steps": 30},
}
PLAIN = mappo.Config(**SIZES)
RUNNING = mappo.Config(**SIZES | {"clip_value": 0.0, "huber": 0.0}, value_norm="running", lr_steps=40)
RECURRENT = mappo.Config(**SIZES | {"num_layers": 2}, recurrent=True)
BY_ROLE = mappo.Config(**SIZES, share="role")
BY_ALL = mappo.Config(**SIZES, share="all", recurrent=True, value_norm="none", normalise_advantages=False)
ALONE, TOGETHER = [[0], [1], [2]], [[0, 1, 2]]
CASES = {  # settings, the agents of each set, whether critics see everybody, whether some choices are illegal
    "mappo": (PLAIN, ALONE, True, False),
    "ippo": (RUNNING, ALONE, False, False),
    "recurrent": (RECURRENT, ALONE, True, False),
    "shared by role": (BY_ROLE, [[0, 1], [2]], True, False),
    "recurrent ippo, shared by all": (BY_ALL, TOGETHER, False, False),
    "mappo with masks": (PLAIN, ALONE, True, True),
    "recurrent ippo with masks": (RECURRENT, ALONE, False, True),
    "mappo with masks, shared by all": (mappo.Config(**SIZES, share="all"), TOGETHER, True, True),
}
HEADS = (slice(0, 2), slice(2, 5))
"""Of the third agent."""


def log_softmax(x, legal):
    """Logarithms of the probabilities of choices, 0 instead of −∞ for the illegal ones; all are legal if none is."""
    legal = legal | ~legal.any(-1, keepdims=True)
    weight = np.where(legal, np.exp(x - x.max(-1, keepdims=True)), 0.0)
    return np.log(np.where(legal, weight / weight.sum(-1, keepdims=True), 1.0)), legal


def log_policy(i, out, log_std, action, legal):
    """log π and entropy of agent i, [T, E]: two heads, or two clipped Gaussians."""
    if i == 2:
        parts = [log_softmax(out[..., head], legal[..., head]) for head in HEADS]
        log_pi, possible = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
        return (action * log_pi).sum(-1), -(possible * np.exp(log_pi) * log_pi).sum(-1)
    mean, spread = np.tanh(out[..., :2]), np.broadcast_to(log_std[:2], (*out.shape[:-1], 2))
    a, std = action[..., :2], np.exp(spread)
    inside = -(((a - mean) / std) ** 2) / 2 - spread - np.log(2 * np.pi) / 2
    beyond = np.where(a >= 1, log_ndtr((mean - 1) / std), log_ndtr((-1 - mean) / std))
    return np.where(np.abs(a) >= 1, beyond, inside).sum(-1), (spread + 0.5 * np.log(2 * np.pi * np.e)).sum(-1)


def ramp(start, end, steps, now):
    return start + (end - start) * min(now / steps, 1.0)


def mean_of(values, counts):
    return values[counts].mean() if counts.any() else 0.0


class Learner:
    """The agents, restated: for each set an actor with its widths last, a critic, moments of the returns, and Adam's memory."""

    def __init__(self, config, sets, joint, agents):
        self.config, self.sets, self.joint, self.step = config, sets, joint, 0
        nets, each = agents.nets, range(len(sets))
        self.actors = [[*flat_arrays(nets.actor.network, m), np.asarray(nets.actor.log_std[m], np.float64)] for m in each]
        self.critics = [flat_arrays(nets.critic, m) for m in each]
        self.memories = [(at_rest(), at_rest()) for _ in each]
        self.moments = [(0.0, 0.0, 0.0) for _ in each]

    def follow(self, net, x, next_x, start, done):
        """Outputs over a rollout [T, E, …], and for what follows each step."""
        read = lambda hidden: hidden @ net[-2] + net[-1]  # noqa: E731
        if not self.config.recurrent:
            return tuple(read(np.maximum(part @ net[0] + net[1], 0.0)) for part in (x, next_x))
        hidden, outs, nexts = start, [], []
        for t in range(TIMES):
            hidden = remembered(net, x[t], hidden)
            outs.append(read(hidden))
            nexts.append(read(remembered(net, next_x[t], hidden)))
            hidden = np.where(done[t][:, None], 0.0, hidden)
        return np.array(outs), np.array(nexts)

    def indexed(self, i, x):
        """What a network reads: if all agents share it, their index too."""
        if self.config.share != "all":
            return x
        return np.concatenate([x, np.broadcast_to(np.eye(N)[i], (*x.shape[:-1], N))], axis=-1)

    def policy(self, actor, i, batch):
        """log π of the actions and its entropy, [T, E]."""
        seen, *rest = self.indexed(i, batch["obs"][:, :, i]), batch["start"][0][:, i], batch["done"]
        out, _ = self.follow(actor[:-1], seen, seen, *rest)
        return log_policy(i, out, actor[-1], batch["action"][:, :, i], batch["legal"][:, :, i])

    def values(self, critic, i, batch):
        """The critic's outputs now and next, [T, E]. One that remembers is not told who has died."""
        order = [i, *(j for j in range(N) if j != i)] if self.config.share != "none" else list(range(N))
        order = order if self.joint else [i]
        inputs = []
        for obs, present in ((batch["obs"], batch["alive"]), (batch["next_obs"], batch["playing"])):
            seen = obs if self.config.recurrent else obs * present[..., None]
            inputs.append(self.indexed(i, seen[:, :, order].reshape(TIMES, ENVS, -1)))
        now, later = self.follow(critic, *inputs, batch["start"][1][:, i], batch["done"])
        return now[..., 0], later[..., 0]

    def scale(self, m):
        count, mean, variance = self.moments[m]
        return (0.0, 1.0) if count == 0 else (mean, np.sqrt(max(variance, 1e-4)))

    def see(self, m, returns):
        """The moments of a set after returns of another rollout: a weighted mean of what the rollouts said."""
        count, mean, variance = self.moments[m]
        count *= self.config.value_decay
        parts = [(count, mean, variance), (1.0, returns.mean(), returns.var())]
        total = count + 1.0
        centre = sum(w * centre for w, centre, _ in parts) / total
        self.moments[m] = total, centre, sum(w * (v + (c - centre) ** 2) for w, c, v in parts) / total

    def targets(self, batch, worth):
        """Returns in units of the rewards [T, E, N], given what critics expect of what follows each step."""
        config, reward, playing = self.config, batch["reward"].mean(-1), batch["playing"]
        y = np.zeros_like(worth)
        for i in range(N):
            for e in range(ENVS):
                for t in reversed(range(TIMES)):
                    others = worth[t, e, playing[t, e]]
                    future = worth[t, e, i] if playing[t, e, i] else (others.mean() if len(others) else 0.0)
                    if t + 1 < TIMES and not batch["done"][t, e] and batch["alive"][t + 1, e].any():
                        future = (1 - config.gae_lambda) * future + config.gae_lambda * y[t + 1, e, i]
                    y[t, e, i] = reward[t, e] + config.gamma * future
        return y

    def huber(self, x):
        limit = self.config.huber
        return np.where(np.abs(x) <= limit, x**2 / 2, limit * (np.abs(x) - limit / 2)) if limit else x**2 / 2

    def update(self, batch, orders):
        """One update over minibatches of rows, and its metrics."""
        config, alive = self.config, batch["alive"]
        weight = ramp(config.entropy_start, config.entropy_end, config.entropy_steps, self.step)
        rate = ramp(1.0, 0.0, config.lr_steps, self.step) if config.lr_steps else 1.0
        set_of = {i: m for m, members in enumerate(self.sets) for i in members}
        value, worth = np.zeros((2, TIMES, ENVS, N))
        for i, m in set_of.items():
            mean, std = self.scale(m)
            now, later = self.values(self.critics[m], i, batch)
            value[..., i], worth[..., i] = now * std + mean, later * std + mean
        y = self.targets(batch, worth)
        old, goal, advantage, log_pi = np.zeros((4, TIMES, ENVS, N))
        for m, members in enumerate(self.sets):
            fresh, (old_mean, old_std) = self.moments[m][0] == 0, self.scale(m)
            normalised = (value - old_mean) / old_std
            if config.value_norm != "none":
                self.see(m, np.concatenate([y[..., i][alive[..., i]] for i in members]))
            mean, std = self.scale(m)
            if config.value_norm == "popart" and not fresh:
                *_, last, bias = self.critics[m]
                self.critics[m][-2:] = last * old_std / std, (bias * old_std + old_mean - mean) / std
                normalised = (value - mean) / std
            for i in members:
                old[..., i], goal[..., i] = normalised[..., i], (y[..., i] - mean) / std
                gap = y[..., i] - value[..., i]
                if config.normalise_advantages:
                    gap = (gap - gap[alive[..., i]].mean()) / gap[alive[..., i]].std()
                advantage[..., i], (log_pi[..., i], _) = gap, self.policy(self.actors[m], i, batch)

        def judged(actor, i, counts):
            """The actor's loss and the metrics beside it."""
            log_now, entropies = self.policy(actor, i, batch)
            ratio, adv = np.exp(log_now - log_pi[..., i]), advantage[..., i]
            gain = np.minimum(ratio * adv, np.clip(ratio, 1 - config.clip_ratio, 1 + config.clip_ratio) * adv)
            entropy = mean_of(entropies, counts)
            kl, outside = ratio - 1 - np.log(ratio), np.abs(ratio - 1) > config.clip_ratio
            return -mean_of(gain, counts) - weight * entropy, entropy, mean_of(kl, counts), mean_of(outside, counts)

        def valued(critic, i, counts):
            """The critic's loss."""
            v, before, aim = self.values(critic, i, batch)[0], old[..., i], goal[..., i]
            error = self.huber(v - aim)
            if config.clip_value:
                near = before + np.clip(v - before, -config.clip_value, config.clip_value)
                error = np.maximum(error, self.huber(near - aim))
            return mean_of(error, counts)

        seen = []
        for rows in orders:
            chosen = np.zeros((ENVS, TIMES) if config.recurrent else TIMES * ENVS, bool)
            chosen[rows] = True
            chosen = chosen.T if config.recurrent else chosen.reshape(TIMES, ENVS)
            counts = chosen[..., None] & alive
            metrics = np.zeros((5, N))
            for m, members in enumerate(self.sets):
                for i in members:
                    metrics[:, i] = valued(self.critics[m], i, counts[..., i]), *judged(self.actors[m], i, counts[..., i])
                actor_loss, critic_loss = (
                    lambda net, loss=loss, members=members, counts=counts: np.mean(
                        [loss(net, i, counts[..., i]) for i in members]
                    )
                    for loss in (lambda *args: judged(*args)[0], valued)
                )
                pair = self.actors[m], self.critics[m]
                grads = [differences(loss, net) for loss, net in zip((actor_loss, critic_loss), pair, strict=True)]
                self.actors[m], self.critics[m] = (
                    self.stepped(*parts)
                    for parts in zip(pair, grads, self.memories[m], (rate * config.lr, rate * config.critic_lr), strict=True)
                )
            seen.append(metrics)
        self.step += TIMES * ENVS
        names = ("critic_loss", "actor_loss", "entropy", "kl", "clipped")
        return dict(zip(names, np.mean(seen, axis=0), strict=True)) | {
            "td_target": [y[..., i][alive[..., i]].mean() for i in range(N)]
        }

    def stepped(self, net, grads, memory, lr):
        """A network after a clipped step of Adam."""
        norm = np.sqrt(sum(np.sum(grad**2) for grad in grads))
        grads = [grad * self.config.clip / max(self.config.clip, norm) for grad in grads]
        return list(adam([tuple(net)], [tuple(grads)], memory, lr, epsilon=1e-5)[0])


def with_masks(batch, rng):
    """The rollout with random masks of the third agent's choices, some heads without a legal one, and legal actions."""
    legal = np.ones(batch.action.shape, bool) & SPEC.act_mask
    legal[:, :, 2] = rng.random(legal[:, :, 2].shape) < 0.6
    legal[1, :, 2, HEADS[0]] = False
    action = np.array(batch.action)
    for head in HEADS:
        best = (rng.random(legal[:, :, 2, head].shape) + legal[:, :, 2, head]).argmax(-1)
        action[:, :, 2, head] = np.eye(head.stop - head.start)[best]
    legal = jnp.asarray(legal)
    return batch._replace(action=jnp.asarray(action), legal=legal, next_legal=legal)


def rollout_of(config, masks, seed):
    """A rollout in which some are dead, with what its networks remember at the start."""
    rng = np.random.default_rng(100 + seed)
    hidden = lambda: jnp.asarray(rng.normal(size=(1, ENVS, N, UNITS)), jnp.float32)  # noqa: E731
    carry = mappo.Hidden(hidden(), hidden()) if config.recurrent else ()
    batch = random_rollout(SPEC, TIMES, ENVS, seed, alive=0.8, carry=carry)
    return with_masks(batch, rng) if masks else batch


def as_arrays(batch):
    """The rollout as the restatement reads it."""
    fields = ("obs", "action", "reward", "next_obs", "terminated", "alive", "done")
    arrays = {name: np.asarray(getattr(batch, name)) for name in fields}
    arrays = {name: array if array.dtype == bool else array.astype(np.float64) for name, array in arrays.items()}
    arrays["action"] *= arrays["alive"][..., None]
    start = [np.asarray(leaf[0], np.float64) for leaf in batch.carry] or np.zeros((2, ENVS, N, 0))
    legal = np.ones(batch.action.shape, bool) if batch.legal is None else np.asarray(batch.legal)
    return arrays | {"playing": arrays["alive"] & ~arrays["terminated"], "start": start, "legal": legal}


@pytest.mark.parametrize("case", CASES)
def test_two_updates_are_what_the_equations_say(case):
    config, sets, joint, masks = CASES[case]
    sees = np.ones((N, N), bool) if joint else np.eye(N, dtype=bool)
    algo, rng, count = mappo.make(config, SPEC, sees), np.random.default_rng(7), ENVS if config.recurrent else TIMES * ENVS
    shaken = lambda leaf: leaf + jnp.asarray(0.5 * rng.normal(size=leaf.shape), jnp.float32)  # noqa: E731
    agents = jax.jit(algo.init)(prng.key(4))
    agents = agents._replace(nets=jax.tree.map(shaken, agents.nets))  # away from the uniform policy
    learner, update, clipped = Learner(config, sets, joint, agents), jax.jit(algo.update), 0.0
    for seed in range(2):
        batch, key = rollout_of(config, masks, seed), prng.key(5 + seed)
        agents, metrics = update(agents, batch, key)
        orders = [
            rows
            for own in jax.random.split(key, config.epochs)
            for rows in np.argsort(np.asarray(jax.random.bits(own, (count,)))).reshape(config.minibatches, -1)
        ]
        for name, values in learner.update(as_arrays(batch), orders).items():
            np.testing.assert_allclose(metrics[name], values, atol=2e-4, rtol=2e-4, err_msg=name)
        clipped += float(jnp.max(metrics["clipped"]))
    for m in range(len(sets)):
        actor = [*flat_arrays(agents.nets.actor.network, m), agents.nets.actor.log_std[m]]
        for found, wanted in zip(
            (actor, flat_arrays(agents.nets.critic, m)), (learner.actors[m], learner.critics[m]), strict=True
        ):
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one, other, atol=2e-4)
    assert clipped > 0, "the clip is part of what was compared"
