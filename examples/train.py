"""Train three agents to spread over three landmarks; the run's folder then holds policy, curve and film."""

import counterpoint

if __name__ == "__main__":
    run = counterpoint.train(scenario="simple_spread", num_episodes=5_000, exp_name="example")
    print(f"learning curve: {run.curve_path}")
