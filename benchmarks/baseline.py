"""Conventional MADDPG, step by step on mpe2 with PyTorch: what a user would write without this library.

The authors' settings: 2×64 networks, batch 1024, learning rate 0.01, discount 0.95, τ 0.01, one update of every agent per
100 steps, each agent its own minibatch, agents one after another. Runs in .venv-bench: each line read is a request
{"steps", "threads"}; each line written answers {"seconds", "update_seconds", "updates"}.
"""

import json
import sys
import time

import numpy as np
import torch
from mpe2 import simple_spread_v3
from torch.nn import functional

BATCH, EVERY, GAMMA, TAU, LR, CLIP = 1024, 100, 0.95, 0.01, 1e-2, 0.5
CAPACITY = 1_000_000


def network(inputs: int, outputs: int) -> torch.nn.Sequential:
    relu, linear = torch.nn.ReLU, torch.nn.Linear
    return torch.nn.Sequential(linear(inputs, 64), relu(), linear(64, 64), relu(), linear(64, outputs))


class Learner:
    """One agent: networks, slow copies, optimisers."""

    def __init__(self, obs: int, joint: int) -> None:
        self.actor, self.critic = network(obs, 5), network(joint, 1)
        self.slow_actor, self.slow_critic = network(obs, 5), network(joint, 1)
        self.slow_actor.load_state_dict(self.actor.state_dict())
        self.slow_critic.load_state_dict(self.critic.state_dict())
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), LR)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), LR)


class Replay:
    """A ring of arrays."""

    def __init__(self, n: int, obs: int) -> None:
        self.obs, self.next_obs = (np.zeros((CAPACITY, n, obs), np.float32) for _ in range(2))
        self.action, self.reward = np.zeros((CAPACITY, n, 5), np.float32), np.zeros((CAPACITY, n), np.float32)
        self.added, self.rng = 0, np.random.default_rng(0)

    def add(self, *fields: np.ndarray) -> None:
        row = self.added % CAPACITY
        for array, value in zip((self.obs, self.action, self.reward, self.next_obs), fields, strict=True):
            array[row] = value
        self.added += 1

    def sample(self) -> list[torch.Tensor]:
        index = self.rng.integers(min(self.added, CAPACITY), size=BATCH)
        return [torch.from_numpy(array[index]) for array in (self.obs, self.action, self.reward, self.next_obs)]


def descend(loss: torch.Tensor, net: torch.nn.Module, opt: torch.optim.Optimizer) -> None:
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
    opt.step()


def joint(obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    return torch.cat([obs.flatten(1), action.flatten(1)], 1)


def update(learners: list[Learner], replay: Replay) -> None:
    """Every agent once, one after another."""
    for i, own in enumerate(learners):
        obs, action, reward, next_obs = replay.sample()
        with torch.no_grad():
            next_action = [functional.gumbel_softmax(o.slow_actor(next_obs[:, j])) for j, o in enumerate(learners)]
            y = reward[:, i : i + 1] + GAMMA * own.slow_critic(joint(next_obs, torch.stack(next_action, 1)))
        descend(functional.mse_loss(own.critic(joint(obs, action)), y), own.critic, own.critic_opt)
        logits = own.actor(obs[:, i])
        acting = torch.cat([action[:, :i], functional.gumbel_softmax(logits)[:, None], action[:, i + 1 :]], 1)
        descend(-own.critic(joint(obs, acting)).mean() + 1e-3 * (logits**2).mean(), own.actor, own.actor_opt)
        with torch.no_grad():
            for slow, fast in ((own.slow_actor, own.actor), (own.slow_critic, own.critic)):
                for a, b in zip(slow.parameters(), fast.parameters(), strict=True):
                    a.lerp_(b, TAU)


def main() -> None:
    env = simple_spread_v3.parallel_env(N=3, max_cycles=25, continuous_actions=True)
    obs, _ = env.reset(seed=0)
    names, size = env.agents, next(iter(obs.values())).size
    learners = [Learner(size, len(names) * (size + 5)) for _ in names]
    replay = Replay(len(names), size)
    total = 0
    for line in sys.stdin:
        request = json.loads(line)
        torch.set_num_threads(request["threads"])
        began, spent, updates = time.perf_counter(), 0.0, 0
        for _ in range(request["steps"]):
            if not env.agents:
                obs, _ = env.reset()
            with torch.no_grad():
                logits = [own.actor(torch.from_numpy(obs[name])) for own, name in zip(learners, names, strict=True)]
                action = {name: functional.gumbel_softmax(x, dim=-1).numpy() for name, x in zip(names, logits, strict=True)}
            after, reward, _, _, _ = env.step(action)
            replay.add(*(np.stack([x[name] for name in names]) for x in (obs, action, reward, after)))
            obs, total = after, total + 1
            if total % EVERY == 0 and total >= BATCH:
                start = time.perf_counter()
                update(learners, replay)
                spent, updates = spent + time.perf_counter() - start, updates + 1
        answer = {"seconds": time.perf_counter() - began, "update_seconds": spent, "updates": updates}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
