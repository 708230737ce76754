"""What a person sees while a run trains: a bar on a terminal, plain lines in a pipe or a log."""

import sys
import time
from pathlib import Path
from typing import Any


class Progress:
    """Says nothing: for use from Python."""

    def start(self, path: Path, config: Any, spec: Any) -> None: ...
    def say(self, sentence: str) -> None: ...
    def update(self, episodes: int, step: int, seconds: float) -> None: ...
    def report(self, row: dict[str, Any]) -> None: ...
    def end(self) -> None: ...
    def finish(self, run: Any) -> None: ...


class Console(Progress):
    """A bar with time left, episodes, mean return per team and steps per second; lines if output is not a terminal."""

    LINE_EVERY = 5.0
    """Seconds between plain lines, at least."""

    def __init__(self) -> None:
        self._bar = self._task = None
        self._last = 0.0
        self._first_step: tuple[int, float] | None = None

    def start(self, path: Path, config: Any, spec: Any) -> None:
        self._total, self._seeds = config.training.num_episodes, config.training.num_seeds
        self._teams: dict[str, float] = {}
        policies = config.algorithm if not (config.good_policy or config.adv_policy) else (
            f"good {config.good_policy or config.algorithm}, adversary {config.adv_policy or config.algorithm}"
        )
        self.say(f"{config.world.scenario}: {spec.num_agents} agents, {policies}, {self._total} episodes → {path}")
        if sys.stdout.isatty():
            from rich.progress import BarColumn, Progress as Bar, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            columns = (BarColumn(bar_width=None), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.description}"))
            self._bar = Bar(*columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
            self._task = self._bar.add_task("compiling", total=self._total)
            self._bar.start()
        else:
            self.say("compiling …")

    def say(self, sentence: str) -> None:
        (self._bar.console.print if self._bar else print)(sentence, **({} if self._bar else {"flush": True}))

    def update(self, episodes: int, step: int, seconds: float) -> None:
        if self._first_step is None:
            self._first_step = (step, seconds)
        steps, spent = step - self._first_step[0], seconds - self._first_step[1]
        speed = self._seeds * steps / spent if spent > 0 else 0.0
        left = (self._total - episodes) * spent * step / max(steps, 1) / max(episodes, 1) if spent > 0 else float("nan")
        text = f"episode {episodes}/{self._total}  {self._returns()}{speed:,.0f} steps/s"
        if self._bar:
            self._bar.update(self._task, completed=episodes, description=text)
        elif time.monotonic() - self._last >= self.LINE_EVERY or episodes >= self._total:
            self._last = time.monotonic()
            self.say(f"{100 * min(episodes / self._total, 1):3.0f}%  {text}" + (f"  {left:.0f} s left" if left == left else ""))

    def report(self, row: dict[str, Any]) -> None:
        self._teams = {name[5:]: value for name, value in row.items() if name.startswith("team/")}

    def _returns(self) -> str:
        return "".join(f"{team} {value:.2f}  " for team, value in self._teams.items())

    def end(self) -> None:
        if self._bar:
            self._bar.stop()
            self._bar = None

    def finish(self, run: Any) -> None:
        self.end()
        print(f"\ncurve   {run.curve_path}\nfilm    {run.gif_path}\npolicy  {run.path / 'policy.safetensors'}")
        print(f"next    counterpoint benchmark {run.path}    counterpoint play {run.path} --out team.gif")
