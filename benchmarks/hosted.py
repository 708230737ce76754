"""`make bench`, the part on worlds that are not ours: training on mpe2's simple_spread in Python, beside stepping it bare.

The paper's setting: 3 agents, batch 1024, 2×64 networks, one update of all agents per 100 steps. The limit is the number of
steps that the same number of processes make with actions drawn at random and nothing else; measured before and after, the
better counts.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import counterpoint
from counterpoint.tables import markdown_table

ENV = "mpe2.simple_spread_v3:parallel_env"
BARE = """
import sys, time
from mpe2 import simple_spread_v3
env = simple_spread_v3.parallel_env()
spaces = {agent: env.action_space(agent) for agent in env.possible_agents}
actions = [{agent: int(space.sample()) for agent, space in spaces.items()} for _ in range(1000)]
env.reset(seed=0)
began, steps = time.perf_counter(), 0
while time.perf_counter() - began < float(sys.argv[1]):
    env.step(actions[steps % 1000])
    steps += 1
    if not env.agents:
        env.reset()
print(steps / (time.perf_counter() - began))
"""


def bare(processes: int, seconds: float = 5.0) -> float:
    """Steps per second of that many processes together."""
    words = [sys.executable, "-c", BARE, str(seconds)]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return sum(float(process.communicate()[0]) for process in running)


def training(copies: int, folder: Path, episodes: int = 3000) -> float:
    """Steps per second of training, from when it learns to the end."""
    run = counterpoint.train(
        env=ENV,
        num_envs=copies,
        workers=copies,
        num_episodes=episodes,
        warmup=5000,
        report_every=500,
        save_rate=10**6,
        eval_episodes=0,
        plots_dir="",
        save_dir=str(folder),
        exp_name=f"{copies}",
    )
    rows = [row for row in run.rows() if row["step"] >= 12_500]  # the first reports see warming up and compiling
    return (rows[-1]["step"] - rows[0]["step"]) / (rows[-1]["seconds"] - rows[0]["seconds"])


def main() -> None:
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for copies in (1, 2):
            rates = [bare(copies)]
            ours = training(copies, Path(folder))
            rates.append(bare(copies))
            lines.append([copies, f"{max(rates):,.0f}", f"{ours:,.0f}", f"{ours / max(rates):.0%}"])
    print("\nmpe2's simple_spread in Python, through the adapter\n")
    print(markdown_table(["processes", "bare steps/s", "training steps/s", "share"], lines))


if __name__ == "__main__":
    main()
