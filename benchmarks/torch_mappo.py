"""Conventional MAPPO, step by step on mpe2 with PyTorch: what a user would write without this library.

The settings of `mappo.py` beside it: 2×64 networks of each agent's own, values of all observations, copies of simple_spread
stepped in turn, GAE, clipped losses, several epochs of shuffled minibatches. Runs in .venv-bench: each line read is a
request {"rollouts", "threads", "copies", "times", "epochs", "minibatches"}; each line written answers {"seconds",
"update_seconds", "steps"}.
"""

import json
import sys
import time

import numpy as np
import torch
from mpe2 import simple_spread_v3
from torch.nn import functional

GAMMA, LAMBDA, EPSILON, ENTROPY, LR, CLIP, HUBER = 0.99, 0.95, 0.2, 0.01, 7e-4, 10.0, 10.0


def network(inputs: int, outputs: int) -> torch.nn.Sequential:
    relu, linear = torch.nn.ReLU, torch.nn.Linear
    return torch.nn.Sequential(linear(inputs, 64), relu(), linear(64, 64), relu(), linear(64, outputs))


class Learner:
    """One agent: actor, critic, optimisers, and the moments of its returns."""

    def __init__(self, obs: int, joint: int) -> None:
        self.actor, self.critic = network(obs, 5), network(joint, 1)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), LR, eps=1e-5)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), LR, eps=1e-5)
        self.mean, self.std = 0.0, 1.0


def descend(loss: torch.Tensor, net: torch.nn.Module, opt: torch.optim.Optimizer) -> None:
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
    opt.step()


def log_policy(net: torch.nn.Module, obs: torch.Tensor) -> torch.Tensor:
    return functional.log_softmax(net(obs), -1)


class Copies:
    """Copies of the world that are stepped one after another."""

    def __init__(self, count: int) -> None:
        self.envs = [simple_spread_v3.parallel_env(N=3, max_cycles=25) for _ in range(count)]
        self.obs = np.stack([list(env.reset(seed=e)[0].values()) for e, env in enumerate(self.envs)])
        self.names = self.envs[0].possible_agents

    def step(self, choices: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns next observations [E, N, O], rewards [E, N] and ends [E]; every end is a time limit."""
        rows = []
        for e, env in enumerate(self.envs):
            obs, reward, _, truncated, _ = env.step(dict(zip(self.names, choices[e].tolist(), strict=True)))
            ended = any(truncated.values())
            rows.append((np.stack(list(obs.values())), np.array(list(reward.values()), np.float32), ended))
            self.obs[e] = np.stack(list(env.reset()[0].values())) if ended else rows[-1][0]
        following, reward, done = (np.stack(column) for column in zip(*rows, strict=True))
        return following, reward, done


def play(copies: Copies, learners: list[Learner], times: int) -> list[torch.Tensor]:
    """Returns observations, choices, log-probabilities, rewards, next observations and ends, [T, E, …]."""
    steps = []
    for _ in range(times):
        obs = torch.from_numpy(copies.obs.astype(np.float32))
        with torch.no_grad():
            logs = torch.stack([log_policy(own.actor, obs[:, i]) for i, own in enumerate(learners)], 1)
        choice = torch.distributions.Categorical(logits=logs).sample()
        taken = logs.gather(-1, choice[..., None])[..., 0]
        following, reward, done = copies.step(choice.numpy())
        steps.append((obs, choice, taken, *map(torch.from_numpy, (reward, following.astype(np.float32), done))))
    return [torch.stack(column) for column in zip(*steps, strict=True)]


def update(learners: list[Learner], rollout: list[torch.Tensor], epochs: int, minibatches: int) -> None:
    """Every agent, one after another."""
    obs, choice, taken, reward, following, done = rollout
    times, copies = done.shape
    joint, later = obs.flatten(2), following.flatten(2)
    for i, own in enumerate(learners):
        with torch.no_grad():
            old = own.critic(joint)[..., 0]
            value, after = old * own.std + own.mean, own.critic(later)[..., 0] * own.std + own.mean
            advantage, running = torch.zeros_like(value), torch.zeros(copies)
            for t in reversed(range(times)):
                goes_on = torch.zeros(copies) if t + 1 == times else (~done[t]).float()
                running = reward[t, :, i] + GAMMA * after[t] - value[t] + GAMMA * LAMBDA * goes_on * running
                advantage[t] = running
            target = advantage + value
            own.mean, own.std = target.mean().item(), max(target.std().item(), 1e-2)
            target = (target - own.mean) / own.std
            advantage = (advantage - advantage.mean()) / advantage.std()
        rows = [x.flatten(0, 1) for x in (obs[:, :, i], joint, choice[..., i], taken[..., i], advantage, old, target)]
        for _ in range(epochs):
            for index in torch.randperm(times * copies).chunk(minibatches):
                o, x, a, before, adv, v_old, y = (part[index] for part in rows)
                logs = log_policy(own.actor, o)
                ratio = (logs.gather(-1, a[:, None])[:, 0] - before).exp()
                gain = torch.minimum(ratio * adv, ratio.clamp(1 - EPSILON, 1 + EPSILON) * adv).mean()
                entropy = -(logs.exp() * logs).sum(-1).mean()
                descend(-gain - ENTROPY * entropy, own.actor, own.actor_opt)
                v = own.critic(x)[:, 0]
                near = v_old + (v - v_old).clamp(-EPSILON, EPSILON)
                errors = [functional.huber_loss(guess, y, reduction="none", delta=HUBER) for guess in (v, near)]
                descend(torch.maximum(*errors).mean(), own.critic, own.critic_opt)


def main() -> None:
    made: dict[int, Copies] = {}
    learners = [Learner(18, 54) for _ in range(3)]
    for line in sys.stdin:
        request = json.loads(line)
        torch.set_num_threads(request["threads"])
        copies = made.setdefault(request["copies"], Copies(request["copies"]))
        began, spent = time.perf_counter(), 0.0
        for _ in range(request["rollouts"]):
            rollout = play(copies, learners, request["times"])
            start = time.perf_counter()
            update(learners, rollout, request["epochs"], request["minibatches"])
            spent += time.perf_counter() - start
        steps = request["rollouts"] * request["copies"] * request["times"]
        print(json.dumps({"seconds": time.perf_counter() - began, "update_seconds": spent, "steps": steps}), flush=True)


if __name__ == "__main__":
    main()
