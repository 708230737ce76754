"""`counterpoint resume`."""

from counterpoint.cli.parsing import RunFolder
from counterpoint.cli.registry import command
from counterpoint.cli.training import run_job
from counterpoint.core.errors import UsageError


@command("Training")
def resume(run: RunFolder, num_episodes: int = 0) -> None:
    """Continue a run from its last checkpoint.

    Args:
        run: The run's folder.
        num_episodes: Total number of episodes to train for (0: the number that the run was started with).
    """
    if num_episodes < 0:
        raise UsageError(f"--num-episodes must be at least 0, not {num_episodes}.")
    run_job(lambda training, console: training.resume(run, console, num_episodes))
