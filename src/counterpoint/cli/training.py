"""Training jobs of the command line: progress on the console, and a sentence and an exit code when one ends early."""

import sys
from collections.abc import Callable
from typing import Any


def run_job(job: Callable[[Any, Any], object]) -> None:
    """Calls `job(counterpoint.training.train, console)`; exits with 130 if interrupted, 3 if diverged, 4 without learners."""
    from counterpoint.training import train
    from counterpoint.training.progress import Console

    console = Console()
    try:
        job(train, console)
    except train.Interrupted as stopped:
        console.end()
        print(f"stopped and saved; continue with: counterpoint resume {stopped}")
        sys.exit(130)
    except train.Diverged as error:
        _fail(console, error, 3)
    except train.TooFewLearners as error:
        _fail(console, error, 4)
    finally:
        console.end()


def _fail(console: Any, error: Exception, code: int) -> None:
    from counterpoint.coded.ray_transport import exit_safely

    console.end()
    print(f"counterpoint: {error}", file=sys.stderr)
    exit_safely(code)
    sys.exit(code)
