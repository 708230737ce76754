"""`counterpoint resume`."""

from typing import Any

from counterpoint.cli.parsing import RunFolder
from counterpoint.cli.registry import command
from counterpoint.cli.training import run_job
from counterpoint.core.errors import UsageError


@command("Training")
def resume(
    run: RunFolder,
    num_episodes: int = 0,
    lr: float = 0.0,
    lr_steps: int = 0,
    entropy_steps: int = 0,
    save_rate: int = 0,
    report_every: int = 0,
    eval_episodes: int = -1,
    env: str = "",
    trust: bool = False,
) -> None:
    """Continue a run from its last checkpoint.

    What you change is recorded in the run's config.json, with the episode at which it changed.

    Args:
        run: The run's folder, or its name in ./runs.
        num_episodes: Total number of episodes to train for (0: the number that the run was started with).
        lr: Learning rate from here on (0: unchanged).
        lr_steps: Length of the fall of the step size to zero, counted from the start of the run (0: in proportion to
            --num-episodes).
        entropy_steps: Length of the change of the entropy's weight, counted from the start of the run (0: in proportion to
            --num-episodes, unless it is the algorithm's default).
        save_rate: Episodes between checkpoints from here on (0: unchanged).
        report_every: Episodes between reports from here on (0: unchanged).
        eval_episodes: Greedy episodes per evaluation from here on (-1: unchanged; 0: none).
        env: New place of the run's own environment, if it has moved (empty: where it was).
        trust: Execute the code that the run names even though you did not make the run on this machine.
    """
    if num_episodes < 0:
        raise UsageError(f"--num-episodes must be at least 0, not {num_episodes}.")
    changes: dict[str, Any] = {"lr": lr, "lr_steps": lr_steps, "entropy_steps": entropy_steps}
    changes |= {"save_rate": save_rate, "report_every": report_every}
    changes = {name: value for name, value in changes.items() if value}
    if eval_episodes != -1:
        changes["eval_episodes"] = eval_episodes
    run_job(lambda training, console: training.resume(run, console, num_episodes, env, trust, **changes))
