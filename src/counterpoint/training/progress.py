"""Progress of a run: a bar on a terminal, one updating line in a notebook, plain lines in a pipe or a log, or nothing.

Other destinations of a run's rows are here too.
"""

import importlib.util
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from counterpoint.config import Config, same_settings
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Spec
from counterpoint.presets import PRESETS
from counterpoint.runs import trend
from counterpoint.runs.display import last_report
from counterpoint.runs.folder import Run
from counterpoint.runs.tables import print_table

Row = dict[str, Any]
"""One line of metrics: a report of one seed."""

NARROW = 100
"""Columns of a terminal below which there is no bar and no time elapsed: text comes first."""


class Progress:
    """Says nothing. Subclasses show what they are told."""

    def start(self, path: Path, config: Config, spec: Spec) -> None: ...
    def say(self, sentence: str) -> None: ...
    def update(self, episodes: int, step: int, seconds: float) -> None: ...
    def report(self, row: Row) -> None: ...
    def end(self) -> None: ...
    def finish(self, run: Run) -> None: ...


class Console(Progress):
    """A bar with time left, episodes, mean return per team and steps per second; lines if output is not a terminal."""

    LINE_EVERY = 5.0
    """Seconds between plain lines, at least."""
    prefix = ""
    """What precedes the episodes in the bar and in each line."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._teams: dict[str, float] = {}
        self._total, self._seeds = 0, 1
        self._last_line = -math.inf
        self._begun: tuple[int, int, float] | None = None
        self._room = 0
        """Columns for the text beside the bar; 0 if there is no terminal."""

    def start(self, path: Path, config: Config, spec: Spec) -> None:
        self._total, self._seeds = config.training.num_episodes, config.training.num_seeds
        self._open(_sentence(path, config, spec))

    def _open(self, sentence: str) -> None:
        """Shows what is trained, and that compiling comes first."""
        self.say(sentence)
        if sys.stdout.isatty():
            from rich import get_console, progress
            from rich.table import Column

            whole = Column(no_wrap=True)  # otherwise Rich cuts off the times before the text
            percent, text = progress.TextColumn("{task.percentage:>3.0f}%"), progress.TextColumn("{task.description}")
            left = progress.TextColumn("left"), progress.TimeRemainingColumn(table_column=whole)
            if (width := get_console().width) < NARROW:
                self._bar, self._room = progress.Progress(percent, text, *left), width - len("100%  left 0:00:00 ")
            else:
                size = min(40, width - 90)
                elapsed = progress.TimeElapsedColumn(table_column=whole)
                self._bar = progress.Progress(progress.BarColumn(bar_width=size), percent, text, elapsed, *left)
                self._room = width - size - len(" 100%  0:00:00 left 0:00:00 ")
            self._bar.add_task("compiling", total=self._total)
            self._bar.start()
        else:
            self.say("compiling …")

    def say(self, sentence: str) -> None:
        if self._bar:
            self._bar.console.print(sentence, highlight=False, markup=False, soft_wrap=True)
        else:
            print(sentence, flush=True)

    def update(self, episodes: int, step: int, seconds: float) -> None:
        first_episodes, first_step, first_seconds = self._begun = self._begun or (episodes, step, seconds)
        spent = seconds - first_seconds
        speed = f"{self._seeds * (step - first_step) / spent:,.0f} steps/s" if spent > 0 else ""
        parts = [f"{self.prefix}episode {episodes}/{self._total}"]
        parts += [*(f"{team} {value:.2f}" for team, value in self._teams.items()), speed]
        while self._room and len(parts) > 1 and len("  ".join(parts)) > self._room:
            parts.pop()
        text = "  ".join(parts)
        new = episodes - first_episodes
        left = f"  {(self._total - episodes) * spent / new:.0f} s left" if new > 0 and episodes < self._total else ""
        self._show(episodes, text, left)

    def _show(self, episodes: int, text: str, left: str) -> None:
        """Shows how far training is, and the time left."""
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=episodes, description=text)
        elif time.monotonic() - self._last_line >= self.LINE_EVERY or episodes >= self._total:
            self._last_line = time.monotonic()
            self.say(f"{100 * min(episodes / max(self._total, 1), 1):3.0f}%  {text}{left}")

    def report(self, row: Row) -> None:
        self._teams = {name.removeprefix("team/"): value for name, value in row.items() if name.startswith("team/")}

    def end(self) -> None:
        if self._bar:
            self._bar.stop()
            self._bar = None

    def finish(self, run: Run) -> None:
        self.end()
        print()
        print_table(*last_report(run.rows()))
        print()
        film = f"film    {run.gif_path}\n" * run.gif_path.exists()
        print(f"curve   {run.curve_path}\n{film}policy  {run.path / 'policy.safetensors'}")
        print(f"next    counterpoint benchmark {run.path}    counterpoint play {run.path} --out team.gif", flush=True)
        if trend.is_flat(run.rows()):
            print(f"why     its returns did not rise: counterpoint why {run.path}", flush=True)


class Notebook(Console):
    """One line below the cell that is updated in place; when training ends, it says where the run is."""

    def __init__(self) -> None:
        super().__init__()
        self._line: Any = None

    def _open(self, sentence: str) -> None:
        from IPython.display import display  # pyright: ignore[reportMissingImports] — a notebook has it

        self._title, self._began = sentence, time.monotonic()
        self._line = display({"text/plain": f"{sentence}  compiling …"}, raw=True, display_id=True)

    def _show(self, episodes: int, text: str, left: str) -> None:
        self._line.update({"text/plain": f"{100 * min(episodes / max(self._total, 1), 1):3.0f}%  {text}{left}"}, raw=True)

    def finish(self, run: Run) -> None:
        self._line.update({"text/plain": f"{self._title}  in {time.monotonic() - self._began:.0f} s"}, raw=True)


def display_of(progress: "Progress | bool | None") -> Progress:
    """Returns where progress goes: the given display, none for False, and otherwise the one that suits the place."""
    if isinstance(progress, Progress):
        return progress
    if progress is False:
        return Progress()
    return Notebook() if _in_notebook() else Console()


def _in_notebook() -> bool:
    """Returns whether a notebook's kernel runs this program."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


def _sentence(path: Path, config: Config, spec: Spec) -> str:
    """Returns what is trained and where, whether a tuned preset exists, and whether another algorithm left little of one."""
    policies = config.algorithm
    if config.good_policy or config.adv_policy:
        policies = f"good {config.good_policy or config.algorithm}, adversary {config.adv_policy or config.algorithm}"
    agents = f"{spec.num_agents} agent{'s' * (spec.num_agents > 1)}"
    seeds = f" × {config.training.num_seeds} seeds" * (config.training.num_seeds > 1)
    where = config.world.env or config.world.scenario
    tuned = f"tuned-{where}"
    usual = config.preset in ("", where)  # a preset of the world's own name is where settings start from if nobody names one
    hint = f" (tuned settings: --preset {tuned})" if tuned in PRESETS and usual else ""
    if config.preset in PRESETS and not same_settings(PRESETS[config.preset].algorithm, config.algorithm):
        hint = f" ({config.algorithm} learns with settings of its own, not with those of --preset {config.preset})"
    return f"{where}: {agents}, {policies}, {config.training.num_episodes} episodes{seeds} → {path}{hint}"


def require_sinks(config: Config) -> None:
    """Refuses a run whose rows should go where they cannot."""
    for option, package in (("tensorboard", "tensorboardX"), ("wandb", "wandb")):
        if getattr(config.evaluation, option) and importlib.util.find_spec(package) is None:
            raise UsageError(f"--{option} needs {package}, which is not installed: pip install 'counterpoint[{option}]'.")


@contextmanager
def sinks(run: Run, config: Config) -> Iterator[Callable[[Row], None]]:
    """Yields a function that sends a row to every other place that the settings name."""
    with ExitStack() as stack:
        wanted = []
        if config.evaluation.tensorboard:
            wanted.append(_tensorboard(run, stack))
        if config.evaluation.wandb:
            wanted.append(_wandb(run, config, stack))

        def send(row: Row) -> None:
            figures = {name: value for name, value in row.items() if name != "seed" and math.isfinite(value)}
            for sink in wanted:
                sink(row["seed"], figures)

        yield send


def _tensorboard(run: Run, stack: ExitStack) -> Callable[[int, Row], None]:
    """Returns a function that writes events to <run>/tensorboard/seed<k>; rows reported again replace the earlier ones."""
    from tensorboardX import SummaryWriter

    writers: dict[int, Any] = {}

    def write(seed: int, figures: Row) -> None:
        if seed not in writers:
            folder = str(run.path / "tensorboard" / f"seed{seed}")
            writers[seed] = stack.enter_context(SummaryWriter(folder, purge_step=figures["step"]))
        for name, value in figures.items():
            if name != "step":  # it is the x-axis of every other curve
                writers[seed].add_scalar(name, value, figures["step"])

    return write


def _wandb(run: Run, config: Config, stack: ExitStack) -> Callable[[int, Row], None]:
    """A Weights & Biases run in <run>/wandb, on this machine only unless WANDB_MODE says otherwise (`wandb sync` sends it)."""
    import wandb  # pyright: ignore[reportMissingImports] — an extra

    mode = os.environ.get("WANDB_MODE", "offline")
    logger = wandb.init(project="counterpoint", name=run.name, dir=run.path, config=run.config, mode=mode)
    stack.callback(logger.finish)
    several = config.training.num_seeds > 1

    def write(seed: int, figures: Row) -> None:
        # Steps of a run are W&B's only if they never fall: seeds come one after another, so the step is a column of its own.
        logger.log({f"seed{seed}/{name}" if several else name: value for name, value in figures.items()})

    return write
