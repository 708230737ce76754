"""The trained team in a PettingZoo loop of one's own."""

import counterpoint

if __name__ == "__main__":
    team = counterpoint.load("runs/example")
    env = counterpoint.to_pettingzoo(team.env, seed=1)
    observations, _ = env.reset()
    total = 0.0
    while env.agents:
        observations, rewards, *_ = env.step(team.act(observations))
        total += sum(rewards.values())
    print(f"return of the team: {total:.1f}")
