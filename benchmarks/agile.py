"""AgileRL's MADDPG on mpe2's simple_spread, step by step through its own classes, as its documentation trains it.

Batch 1024, 2×64 networks, one update of all agents per 100 steps. Runs in .venv-agile: each line read is a request
{"copies", "steps"}; each line written answers {"seconds"}, without what came before the first update.
"""

import json
import sys
import time
from typing import Any

import numpy as np
import torch
from agilerl.algorithms import MADDPG
from agilerl.components.data import MultiAgentTransition, transition_to_tensordict
from agilerl.components.replay_buffer import ReplayBuffer
from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv
from mpe2 import simple_spread_v3

BATCH, EVERY = 1024, 100
LAYERS = {"hidden_size": [64]}
"""One hidden layer in the encoder and one in the head."""


def train(copies: int, steps: int) -> float:
    """Seconds of that many world steps."""
    worlds = AsyncPettingZooVecEnv([simple_spread_v3.parallel_env for _ in range(copies)])
    names = list(worlds.possible_agents)
    agent = MADDPG(
        observation_spaces=[worlds.single_observation_space(name) for name in names],
        action_spaces=[worlds.single_action_space(name) for name in names],
        agent_ids=names,
        vect_noise_dim=copies,
        net_config={"latent_dim": 64, "encoder_config": LAYERS, "head_config": LAYERS},
        batch_size=BATCH,
        learn_step=EVERY,
    )
    agent.set_training_mode(True)
    replay = ReplayBuffer(max_size=100_000)
    obs, info = worlds.reset()
    began, taken, warm = 0.0, 0, BATCH + EVERY
    while taken < warm + steps:
        if taken >= warm and not began:
            began = time.perf_counter()
        action, raw = agent.get_action(obs=obs, infos=info)
        next_obs, reward, terminated, truncated, info = worlds.step(action)
        row: Any = transition_to_tensordict(
            MultiAgentTransition(obs=obs, action=raw, reward=reward, next_obs=next_obs, done=terminated)
        )
        row.batch_size = torch.Size([copies])
        replay.add(row)
        obs, taken = next_obs, taken + copies
        if taken >= BATCH and taken % EVERY < copies:
            agent.learn(replay.sample(BATCH))
        ended = np.flatnonzero(next(iter(terminated.values())) | next(iter(truncated.values())))
        agent.reset_action_noise(list(ended))
    seconds = time.perf_counter() - began
    worlds.close()
    return seconds


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps({"seconds": train(**json.loads(line))}), flush=True)
