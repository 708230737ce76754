"""MADDPG in a loop of one's own: one trainer per agent, any environment with PettingZoo's interface."""

import sys

import counterpoint
from counterpoint.algos import maddpg
from counterpoint.trainers.agent import AgentTrainer, Model, Settings

if __name__ == "__main__":
    num_episodes, save_rate = int(sys.argv[1]) if sys.argv[1:] else 5_000, 500
    env = counterpoint.to_pettingzoo("simple_spread", seed=0)
    names = env.possible_agents
    shapes, spaces = [env.observation_space(name).shape for name in names], [env.action_space(name) for name in names]
    learning = maddpg.Config(world_action="one-hot", minibatch="per-agent", order="sequential")
    settings = Settings(learning, batch_size=256, update_every=25)
    trainers = [AgentTrainer(name, Model(), shapes, spaces, i, settings) for i, name in enumerate(names)]
    t, total = 0, 0.0
    for episode in range(1, num_episodes + 1):
        observations, _ = env.reset()
        while env.agents:
            actions = {trainer.name: trainer.action(observations[trainer.name]) for trainer in trainers}
            after, rewards, terminated, truncated, _ = env.step({a.name: a.to_space(actions[a.name]) for a in trainers})
            for trainer in trainers:
                step = (table[trainer.name] for table in (observations, actions, rewards, after, terminated, truncated))
                trainer.experience(*step)
                trainer.preupdate()
            observations, t, total = after, t + 1, total + sum(rewards.values())
            losses = [trainer.update(trainers, t) for trainer in trainers]
        if episode % save_rate == 0 or episode == num_episodes:
            print(f"{episode} episodes, return of the team {total / (episode % save_rate or save_rate):.1f}, {losses[0]}")
            total = 0.0
            for trainer in trainers:
                trainer.save("runs/own", "simple_spread")
