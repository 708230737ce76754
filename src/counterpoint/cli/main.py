"""The command line: one function per command; heavy imports wait until a command needs them."""

import difflib
import sys
from typing import Literal

import tyro

from counterpoint import __version__
from counterpoint.cli import parsing
from counterpoint.core.errors import UsageError

Positional = tyro.conf.Positional


def train() -> None:
    """Train a team. Options are in groups; `--preset NAME` starts from known settings."""
    from counterpoint.cli import commands

    commands.train(sys.argv[2:])


def resume(run: Positional[str], num_episodes: int = 0) -> None:
    """Go on with a run where its last checkpoint left off.

    Args:
        run: The run's folder.
        num_episodes: Train to this many episodes in all (0: as the run was set).
    """
    from counterpoint.cli import commands

    commands.resume(run, num_episodes)


def play(
    what: Positional[str],
    policy: Literal["trained", "random"] = "trained",
    episodes: int = 3,
    out: str = "",
    seed: int = 0,
    explore: bool = False,
    args: tuple[str, ...] = (),
) -> None:
    """Film a trained run, or a world under a random policy.

    Args:
        what: A run's folder, or the name of a world.
        policy: Whose actions (a world by name has only the random one).
        episodes: How many episodes.
        out: Where the film goes: .gif, .png, .svg or .mp4 (empty: beside the run, or the world's name with .gif here).
        seed: Of the episodes.
        explore: Act with training's noise instead of greedily.
        args: Arguments of a world, as name=value.
    """
    from counterpoint.cli import commands

    commands.play(what, policy, episodes, out, seed, explore, args)


def benchmark(
    run: Positional[str], benchmark_iters: int = 100_000, benchmark_dir: str = "./benchmark_files/", explore: bool = False
) -> None:
    """Measure a run's policy by the world's figures, with confidence intervals, as a table and a file.

    Args:
        run: The run's folder.
        benchmark_iters: World steps to measure over.
        benchmark_dir: Where the table goes.
        explore: Act with training's noise instead of greedily.
    """
    from counterpoint.cli import commands

    commands.benchmark(run, benchmark_iters, benchmark_dir, explore)


def export(
    run: Positional[str], format: Literal["onnx", "numpy", "safetensors"] = "onnx", out: str = "", seed_index: int = 0
) -> None:
    """Write a run's policy for use elsewhere: a file per agent and one for the team, checked by running them.

    Args:
        run: The run's folder.
        format: For onnxruntime and its relatives, for NumPy alone, or as bare arrays.
        out: The folder to write (empty: export/FORMAT inside the run's).
        seed_index: Which seed's policy, if the run has several.
    """
    from counterpoint.cli import commands

    commands.export(run, format, out, seed_index)


def plot(runs: Positional[tuple[str, ...]], out: str = "comparison.png", column: str = "") -> None:
    """Draw the learning curves of runs in one figure.

    Args:
        runs: Run folders.
        out: Where the figure goes: .png, .svg or .pdf.
        column: Which column of the metrics (empty: the good team's mean return).
    """
    from counterpoint.cli import listings

    listings.plot_runs(runs, out, column)


def runs(save_dir: str = "./runs") -> None:
    """List the runs in a folder.

    Args:
        save_dir: Where the runs are kept.
    """
    from counterpoint.cli import listings

    print(listings.runs_table(save_dir))


def envs() -> None:
    """List all worlds: agents, roles, sizes, arguments."""
    from counterpoint.cli import listings

    print(listings.worlds())


def presets() -> None:
    """List the presets that `train --preset` knows."""
    from counterpoint.cli import commands

    commands.list_presets()


def plan(
    agents: int = 8,
    learners: int = 15,
    delays: str = "",
    recording: str = "",
    unit: float = 0.0,
    overhead: float = 0.0,
    agent_bytes: int = 600_000,
    trials: int = 0,
    seed: int = 0,
    out: str = "plan.png",
) -> None:
    """Predict what every scheme of distributed learning would cost on a cluster, and recommend one.

    Args:
        agents: How many agents learn.
        learners: How many machines compute their updates.
        delays: What goes wrong: k=2,delay=0.25 (so many late by so many seconds), exponential=0.5, pareto=1.5,
            pauses=0.1,pause=1 (per second; seconds), slow=2,factor=4 (always the same), crash=0.03,recovery=10, or several.
        recording: Instead, the delays that a distributed run recorded: its folder or its learners.csv.
        unit: Seconds of one agent's update on an ordinary learner (0: the recording's, or 0.05).
        overhead: Seconds that an iteration spends besides (0: the recording's, or none).
        agent_bytes: Size of one agent's networks and optimiser.
        trials: Simulated iterations (0: 100 to 2000, by size).
        seed: Of the simulation.
        out: Where the figure goes: .png, .svg or .pdf (empty: none).
    """
    from counterpoint.studies import plan

    plan.plan(agents, learners, delays, recording, unit, overhead, agent_bytes, trials, seed, out)


def reproduce(result: Positional[str] = "", quick: bool = False, out: str = "./reproduced") -> None:
    """Rerun a published result and print ours beside it (without a name: list them).

    Args:
        result: Which one.
        quick: A small part, in a minute or two, to see that everything works.
        out: Where tables and figures go; what was measured there is not measured again.
    """
    from counterpoint.studies import reproduce as published

    published.reproduce(result, quick, out)


COMMANDS = {
    command.__name__: command
    for command in (train, resume, play, benchmark, export, plot, runs, envs, presets, plan, reproduce)
}


def usage() -> str:
    """What `counterpoint --help` prints."""
    lines = [f"  {name:<10} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: counterpoint COMMAND …   (counterpoint COMMAND --help says more)",
            "",
            "Multi-agent actor-critic learning: MADDPG, DDPG and their relatives, compiled with JAX.",
            "",
            *lines,
            "",
            "  --version  print the version        --help  print this",
        ]
    )


def main() -> None:
    """Entry point: exit code 0 if done, 2 for wrong usage, 3 if learning diverged, 4 without learners, 130 if interrupted."""
    words = sys.argv[1:]
    if not words or words[0] in ("--help", "-h", "help"):
        print(usage())
        sys.exit(0 if words else 2)
    if words[0] in ("--version", "-V"):
        print(f"counterpoint {__version__}")
        return
    name = words[0]
    try:
        if name not in COMMANDS:
            close = difflib.get_close_matches(name, list(COMMANDS), 1)
            hint = f"perhaps {close[0]}?" if close else f"known are {', '.join(COMMANDS)}."
            raise UsageError(f"unknown command {name!r}; {hint}")
        if name == "train":
            train()
        else:
            parsing.call(COMMANDS[name], words[1:], f"counterpoint {name}")
    except UsageError as error:
        print(f"counterpoint: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\ncounterpoint: interrupted", file=sys.stderr)
        sys.exit(130)
