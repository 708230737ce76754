"""MADDPG in a loop of your own: one trainer per agent, any environment with PettingZoo's interface."""

import sys

import counterpoint
from counterpoint.algos import maddpg
from counterpoint.trainers import AgentTrainer, Settings, Sizes, experience

if __name__ == "__main__":
    num_episodes, report_every = int(sys.argv[1]) if sys.argv[1:] else 5_000, 500
    env = counterpoint.to_pettingzoo("simple_spread", seed=0)
    names = env.possible_agents
    shapes, spaces = [env.observation_space(name).shape for name in names], [env.action_space(name) for name in names]
    learning = maddpg.Config(world_action="one-hot", minibatch="per-agent", order="sequential", init="glorot")
    settings = Settings(
        learning, batch_size=256, update_every=25, save_dir="runs/own", scenario="simple_spread", save_rate=25_000
    )
    trainers = [AgentTrainer(name, Sizes(), shapes, spaces, i, settings) for i, name in enumerate(names)]
    t, total = 0, 0.0
    for episode in range(1, num_episodes + 1):
        observations, _ = env.reset()
        while env.agents:
            actions = {a.name: a.action(observations[a.name]) for a in trainers if a.name in env.agents}
            chosen = {a.name: a.to_space(actions[a.name]) for a in trainers if a.name in env.agents}
            after, rewards, terminated, truncated, _ = env.step(chosen)
            experience(trainers, observations, actions, rewards, after, terminated, truncated)
            observations, t, total = after, t + 1, total + sum(rewards.values())
            for trainer in trainers:
                trainer.preupdate()
            losses = [trainer.update(trainers, t) for trainer in trainers]
        if episode % report_every == 0 or episode == num_episodes:
            learnt = losses[0] or f"{trainers[0].missing} transitions are missing before the first update"
            print(f"{episode} episodes, return of the team {total / (episode % report_every or report_every):.1f}, {learnt}")
            total = 0.0
    for trainer in trainers:
        trainer.save()
