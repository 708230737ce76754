"""Whole updates of COMA beside a restatement in float64 NumPy: loops over steps and agents, gradients by differences of losses.

Two updates follow each other, so that Adam, the schedules, the moments of the rewards and the target are compared too.
"""

import dataclasses
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import coma
from counterpoint.core import prng
from counterpoint.core.spaces import Discrete
from numpy_learner import adam, at_rest, differences, flat_arrays, remembered
from probes import spec_of
from rollouts import random_rollout

TIMES, ENVS, N, UNITS = 4, 3, 3, 3
SPEC = dataclasses.replace(
    spec_of((2, 2, 3), (Discrete((2, 3)), Discrete((2, 3)), Discrete((4,)))),
    roles=("scout", "scout", "guard"),
    teams=("good", "good", "bad"),
)
HEADS = ([(0, 2), (2, 5)], [(0, 2), (2, 5)], [(0, 4)])
"""Where the heads of each agent begin and end."""
SIDES = ([0, 1], [0, 1], [2])
"""Those whose rewards count for each agent."""
SIZES = {
    **{"num_units": UNITS, "num_layers": 1, "lr": 0.02, "critic_lr": 0.03, "clip": 0.4, "gamma": 0.9},
    **{"epsilon_start": 0.6, "epsilon_end": 0.2, "epsilon_steps": 20},
    **{"entropy_start": 0.3, "entropy_end": 0.1, "entropy_steps": 30},
}
PLAIN = coma.Config(**SIZES, critic_steps=2, tau=0.3)
MANY = coma.Config(
    **SIZES, share="all", n_steps=2, target_every=2, normalise_advantages=True, standardise_rewards=True, learn_from="own"
)
MEMORY = coma.Config(**SIZES | {"num_layers": 2}, share="role", recurrent=True, tau=0.3)
CASES = {  # settings, the agents of each actor, whether some actions are illegal and some not the policy's own
    "actors of their own": (PLAIN, [[0], [1], [2]], False),
    "one actor for all, two rewards, masks and a league": (MANY, [[0, 1, 2]], True),
    "recurrent actors of the roles": (MEMORY, [[0, 1], [2]], False),
}


def ramp(start, end, steps, now):
    return start + (end - start) * min(now / steps, 1.0)


def log_of(pi):
    return np.log(np.maximum(pi, 1e-8))


def chances(i, logits, epsilon, legal):
    """π of agent i: in each head a softmax over the legal choices, mixed with a share of uniform choice among them."""
    pi = np.zeros(5)
    for a, b in HEADS[i]:
        allowed = legal[a:b]
        weight = np.where(allowed, np.exp(logits[a:b] - logits[a:b].max()), 0.0)
        pi[a:b] = (1 - epsilon) * weight / weight.sum() + epsilon * allowed / allowed.sum()
    return pi


def drawn(i, pi, legal, noise):
    """One choice per head, by the largest of log π plus Gumbel noise."""
    action = np.zeros(5)
    for a, b in HEADS[i]:
        action[a + np.argmax(np.where(legal[a:b], log_of(pi[a:b]) + noise[a:b], -np.inf))] = 1
    return action


def critic_input(i, obs, action):
    """All observations, the others' actions, who asks, and what it sees."""
    others = action.copy()
    others[i] = 0
    return np.concatenate([obs.ravel(), others.ravel(), np.eye(N)[i], obs[i]])


def perceptron(net, x):
    for weight, bias in zip(net[:-2:2], net[1:-2:2], strict=True):
        x = np.maximum(x @ weight + bias, 0.0)
    return x @ net[-2] + net[-1]


def logits_of(config, net, i, batch):
    """Agent i's outputs over a rollout, and those for what follows each step."""
    index = np.eye(N)[i] if config.share == "all" else np.zeros(0)
    now, later = np.zeros((TIMES, ENVS, 5)), np.zeros((TIMES, ENVS, 5))
    for e in range(ENVS):
        hidden = batch["carry"][e, i] if config.recurrent else None
        for t in range(TIMES):
            x, following = (np.concatenate([part[t, e, i], index]) for part in (batch["obs"], batch["next_obs"]))
            if not config.recurrent:
                now[t, e], later[t, e] = perceptron(net, x), perceptron(net, following)
                continue
            hidden = remembered(net, x, hidden)
            now[t, e] = hidden @ net[-2] + net[-1]
            later[t, e] = remembered(net, following, hidden) @ net[-2] + net[-1]
            hidden = np.zeros(UNITS) if batch["done"][t, e] else hidden
    return now, later


def restated_targets(config, batch, reward, value, i):
    """y of agent i: rewards until the recording of its side is cut, then the mean value of those on its side who play on."""
    y, side = np.zeros((TIMES, ENVS)), SIDES[i] if config.learn_from == "team" else [i]
    for e in range(ENVS):
        future, cut = np.zeros(TIMES), np.zeros(TIMES, bool)
        for t in range(TIMES):
            members = [j for j in side if batch["alive"][t, e, j] and not batch["terminated"][t, e, j]]
            future[t] = np.mean([value[t, e, j] for j in members]) if members else 0.0
            cut[t] = t == TIMES - 1 or batch["done"][t, e] or not batch["alive"][t + 1, e, side].any()
        for t in reversed(range(TIMES)):
            if config.n_steps:
                for m in range(config.n_steps):
                    y[t, e] += config.gamma**m * reward[t + m, e, i]
                    if cut[t + m] or m == config.n_steps - 1:
                        y[t, e] += config.gamma ** (m + 1) * future[t + m]
                        break
            else:
                worth = future[t] if cut[t] else (1 - config.td_lambda) * future[t] + config.td_lambda * y[t + 1, e]
                y[t, e] = reward[t, e, i] + config.gamma * worth
    return y


def clipped(config, grads):
    norm = np.sqrt(sum(np.sum(grad**2) for grad in grads))
    return [grad * min(1.0, config.clip / norm) for grad in grads]


def stepped(config, net, grads, memory, lr):
    """A network after a clipped step of Adam."""
    ((*after,),) = adam([tuple(net)], [tuple(clipped(config, grads))], memory, lr)
    return after


class Learner:
    """The agents, restated: a network for each set of agents, one critic and its target, and what Adam has seen."""

    def __init__(self, config, sets, agents):
        self.config, self.sets, self.step, self.updates, self.rewards = config, sets, 0, 0, [[] for _ in range(N)]
        self.actors = [flat_arrays(agents.actor, m) for m in range(len(sets))]
        self.critic, self.target = (
            [np.asarray(array[0], np.float64) for layer in net for array in layer[:2]]
            for net in (agents.critic, agents.target_critic)
        )
        self.actor_memory, self.critic_memory = [at_rest() for _ in sets], at_rest()

    def see(self, batch):
        """The rewards to learn from, [T, E, N]."""
        config = self.config
        sides = SIDES if config.learn_from == "team" else [[i] for i in range(N)]
        reward = np.stack([batch["reward"][..., side].mean(-1) for side in sides], axis=-1)
        if config.standardise_rewards:
            for i in range(N):
                self.rewards[i] = [*self.rewards[i], *reward[..., i][batch["learning"][..., i]]]
            reward = (reward - [np.mean(seen) for seen in self.rewards]) / [np.std(seen) for seen in self.rewards]
        return reward

    def update(self, batch, noise):
        """One update, and its metrics."""
        config = self.config
        places = list(product(range(TIMES), range(ENVS), range(N)))
        alive, own, obs, next_obs = (batch[name] for name in ("alive", "learning", "obs", "next_obs"))
        action = batch["action"] * alive[..., None]
        reward, heads = self.see(batch), [len(each) for each in HEADS]
        ramps = (config.epsilon_start, config.epsilon_end, config.epsilon_steps)
        epsilon = [ramp(*ramps, self.step + ENVS * t) for t in range(TIMES)]
        weight = ramp(config.entropy_start, config.entropy_end, config.entropy_steps, self.step)

        later = np.zeros((TIMES, ENVS, N, 5))
        for m, members in enumerate(self.sets):
            for i in members:
                _, later[:, :, i] = logits_of(config, self.actors[m], i, batch)
        next_pi, next_action = np.zeros_like(later), np.zeros_like(later)
        for t, e, i in places:
            legal = batch["next_legal"][t, e, i]
            next_pi[t, e, i] = chances(i, later[t, e, i], epsilon[t], legal)
            if alive[t, e, i] and not batch["terminated"][t, e, i]:
                recorded = t + 1 < TIMES and not batch["done"][t, e]
                next_action[t, e, i] = action[t + 1, e, i] if recorded else drawn(i, next_pi[t, e, i], legal, noise[t, e, i])
        value = np.zeros((TIMES, ENVS, N))
        for t, e, i in places:
            q = perceptron(self.target, critic_input(i, next_obs[t, e], next_action[t, e]))
            value[t, e, i] = next_pi[t, e, i] @ q / heads[i]
        y = np.stack([restated_targets(config, batch, reward, value, i) for i in range(N)], axis=-1)

        inputs = np.array([critic_input(i, obs[t, e], action[t, e]) for t, e, i in places])
        taken, goal = action.reshape(-1, 5), y.reshape(-1, 1)
        errors_of = lambda net: (taken * (perceptron(net, inputs) - goal) ** 2).sum(1).reshape(y.shape) / heads  # noqa: E731
        for _ in range(config.critic_steps):
            errors = errors_of(self.critic)
            grads = differences(lambda net: errors_of(net)[own].mean(), self.critic)
            self.critic = stepped(config, self.critic, grads, self.critic_memory, config.critic_lr)
        q = perceptron(self.critic, inputs).reshape(*y.shape, 5)

        def judged(net, i):
            """What agent i's actor thinks of a rollout: π, log π of the actions taken, and the entropy."""
            logits, _ = logits_of(config, net, i, batch)
            pi = np.zeros_like(logits)
            for t, e in np.ndindex(TIMES, ENVS):
                pi[t, e] = chances(i, logits[t, e], epsilon[t], batch["legal"][t, e, i])
            return pi, (action[:, :, i] * log_of(pi)).sum(-1), -(pi * log_of(pi)).sum(-1)

        def loss_of(net, i, advantage):
            _, log_pi, entropy = judged(net, i)
            counts = own[..., i]
            return -(advantage * log_pi)[counts].mean() - weight * entropy[counts].mean(), entropy[counts].mean()

        losses, entropies = np.zeros(N), np.zeros(N)
        for m, members in enumerate(self.sets):
            advantages = {}
            for i in members:
                pi, _, _ = judged(self.actors[m], i)
                baseline = np.zeros_like(pi)
                for a, b in HEADS[i]:
                    baseline[..., a:b] = (pi * q[:, :, i])[..., a:b].sum(-1, keepdims=True)
                advantages[i] = (action[:, :, i] * (q[:, :, i] - baseline)).sum(-1)
                if config.normalise_advantages:
                    advantages[i] /= np.sqrt(np.mean(advantages[i][own[..., i]] ** 2))
                losses[i], entropies[i] = loss_of(self.actors[m], i, advantages[i])
            total = lambda net, advantages=advantages: sum(loss_of(net, *each)[0] for each in advantages.items())  # noqa: E731
            grads = differences(total, self.actors[m])
            self.actors[m] = stepped(config, self.actors[m], grads, self.actor_memory[m], config.lr)

        self.updates, self.step = self.updates + 1, self.step + TIMES * ENVS
        if not config.target_every:
            self.target = [slow + config.tau * (fast - slow) for slow, fast in zip(self.target, self.critic, strict=True)]
        elif self.updates % config.target_every == 0:
            self.target = self.critic
        mean = lambda x: [x[..., i][own[..., i]].mean() for i in range(N)]  # noqa: E731
        chosen = (action * q).sum(-1) / heads
        means = {"critic_loss": mean(errors), "q": mean(chosen), "td_target": mean(y)}
        return means | {"actor_loss": losses, "entropy": entropies}


def rollout_of(config, seed, restricted):
    """A rollout in which some are dead; if it is restricted, with illegal choices and with steps of an earlier policy."""
    rng = np.random.default_rng(100 + seed)
    carry = jnp.asarray(rng.normal(size=(1, ENVS, N, UNITS))) if config.recurrent else ()
    batch = random_rollout(SPEC, TIMES, ENVS, seed, alive=0.8, carry=carry)
    if not restricted:
        return batch
    legal, next_legal = (rng.random(batch.action.shape) < 0.6 for _ in range(2))
    for i, heads in enumerate(HEADS):
        for a, b in heads:
            next_legal[:, :, i, a + rng.integers(b - a)] = True
    legal |= np.asarray(batch.action) > 0
    own = jnp.asarray(rng.random(batch.alive.shape) < 0.8)
    return batch._replace(legal=jnp.asarray(legal), next_legal=jnp.asarray(next_legal), own=own)


def as_arrays(batch):
    """The rollout as the restatement reads it."""
    fields = ("obs", "action", "reward", "next_obs", "terminated", "alive", "done")
    arrays = {name: np.asarray(getattr(batch, name)) for name in fields}
    everything = np.ones(batch.action.shape, bool)
    for name in ("legal", "next_legal"):
        mask = getattr(batch, name)
        arrays[name] = everything if mask is None else np.asarray(mask)
    arrays["learning"] = arrays["alive"] & (True if batch.own is None else np.asarray(batch.own))
    return arrays | {"carry": np.asarray(batch.carry[0]) if len(batch.carry) else None}


@pytest.mark.parametrize("case", CASES)
def test_two_updates_are_what_the_equations_say(case):
    config, sets, restricted = CASES[case]
    with jax.enable_x64(True):
        algo, rng = coma.make(config, SPEC), np.random.default_rng(7)
        wide = lambda leaf: jnp.asarray(leaf, np.float64 if leaf.dtype.kind == "f" else leaf.dtype)  # noqa: E731
        shaken = lambda leaf: leaf + 0.5 * rng.normal(size=leaf.shape)  # noqa: E731
        agents = jax.tree.map(wide, jax.jit(algo.init)(prng.key(1)))
        nets = {name: jax.tree.map(shaken, getattr(agents, name)) for name in ("actor", "critic", "target_critic")}
        agents = agents._replace(**nets)
        learner, update = Learner(config, sets, agents), jax.jit(algo.update)
        for seed in range(2):
            batch, key = jax.tree.map(wide, rollout_of(config, seed, restricted)), prng.key(40 + seed)
            agents, metrics = update(agents, batch, key)
            noise = np.asarray(jax.random.gumbel(key, batch.action.shape, jnp.float32), np.float64)
            expected = learner.update(as_arrays(batch), noise)
            for name, values in expected.items():
                np.testing.assert_allclose(metrics[name], values, atol=1e-6, err_msg=name)
        found = {"actor": [flat_arrays(agents.actor, m) for m in range(len(sets))]}
        for name in ("critic", "target_critic"):
            found[name] = [[array[0] for layer in getattr(agents, name) for array in layer[:2]]]
        restated = {"actor": learner.actors, "critic": [learner.critic], "target_critic": [learner.target]}
        for name, nets in restated.items():
            for ours, theirs in zip(found[name], nets, strict=True):
                for one, other in zip(ours, theirs, strict=True):
                    np.testing.assert_allclose(one, other, atol=1e-6, err_msg=name)
