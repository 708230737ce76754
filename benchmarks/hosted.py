"""`make bench`, the part on worlds that are not ours: training on mpe2's simple_spread in Python, beside stepping it bare.

The paper's setting: 3 agents, batch 1024, 2×64 networks, one update of all agents per 100 steps. The limit is the number of
steps that the same number of processes make with actions drawn at random and nothing else; measured before and after, the
better counts. AgileRL's MADDPG does the same beside it (agile.py), interleaved.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import probe

import counterpoint
from counterpoint import config as configs
from counterpoint.runs.tables import markdown_table

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
    settings = configs.override(  # the authors' settings, as in the other tables, not those chosen for the environment
        configs.Config(),
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
    run = counterpoint.train(settings, progress=False)
    rows = [row for row in run.rows() if row["step"] >= 12_500]  # the first reports see warming up and compiling
    return (rows[-1]["step"] - rows[0]["step"]) / (rows[-1]["seconds"] - rows[0]["seconds"])


def main() -> None:
    lines = []
    with tempfile.TemporaryDirectory() as folder, probe.start("agile.py", ".venv-agile") as agile:
        for copies in (1, 2):
            rates = [bare(copies)]
            theirs = [_agile(agile, copies)]
            ours = training(copies, Path(folder))
            theirs.append(_agile(agile, copies))
            rates.append(bare(copies))
            figures = (max(rates), ours, max(theirs))
            lines.append([copies, *(f"{x:,.0f}" for x in figures), f"{ours / max(rates):.0%}", f"{ours / max(theirs):.1f}"])
    print("\nmpe2's simple_spread in Python, through the adapter\n")
    header = ["processes", "bare steps/s", "training steps/s", "AgileRL, steps/s", "share of bare", "× AgileRL"]
    print(markdown_table(header, lines))


def _agile(agile: probe.Probe, copies: int, steps: int = 4000) -> float:
    return steps / agile.ask(copies=copies, steps=steps)["seconds"]


if __name__ == "__main__":
    main()
