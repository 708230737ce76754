"""An extension is one file: a copy of the package gets one new file of each kind, and the commands find it without an edit.

docs/architecture.md lists these files in its table "What an extension touches".
"""

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import counterpoint

ROOT = Path(__file__).parents[1]
ALGORITHM = """
import dataclasses

ENTRIES = (dataclasses.replace(entry, name="new"),)
"""
WORLD = '''
"""Agents are paid for choosing the side that they see."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from counterpoint.core.spaces import Discrete
from counterpoint.core.types import Metric, Step
from counterpoint.envs.base import World


class State(NamedTuple):
    side: jax.Array
    right: jax.Array
    step: jax.Array


@dataclass(frozen=True)
class NewWorld(World):
    name = "new_world"
    max_steps: int = 5
    agents = 2
    actions = Discrete((2,))

    def reset(self, key):
        side = jax.random.randint(key, (2,), 0, 2)
        return State(side, jnp.zeros(2), jnp.zeros((), jnp.int32)), jax.nn.one_hot(side, 2)

    def step(self, key, state, action):
        right = action[jnp.arange(2), state.side]
        late = jnp.full(2, state.step + 1 >= self.max_steps)
        step = Step(jax.nn.one_hot(state.side, 2), right, jnp.zeros(2, bool), late)
        return State(state.side, right, state.step + 1), step

    def metrics(self, state):
        return {"new_metric": Metric(jnp.mean(state.right), "mean")}
'''
COMMAND = '''
"""`counterpoint new`."""

from counterpoint.cli.registry import command


@command("Training")
def new(times: int = 1) -> None:
    """Greet the reader of the test.

    Args:
        times: How often.
    """
    print("hello " * times)
'''
RESULT = '''
"""A published result."""

from counterpoint.studies.reproduce import PublishedResult

RESULT = PublishedResult("new2026", "A new result.", lambda folder, quick: (folder / "table.md").write_text("| new |"))
'''
FILES = {
    "algos/new.py": (ROOT / "examples/own_algorithm.py").read_text() + ALGORITHM,
    "envs/new.py": WORLD,
    "cli/commands/new.py": COMMAND,
    "studies/reproduce/new.py": RESULT,
}


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder that holds a copy of the package and one new file of each kind."""
    folder = tmp_path_factory.mktemp("extended")
    package = folder / "counterpoint"
    shutil.copytree(Path(counterpoint.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in FILES.items():
        assert not (package / name).exists()
        (package / name).write_text(text)
    return folder


def run(extended: Path, *words: str) -> str:
    """Returns what a command of the extended package prints."""
    done = subprocess.run(
        [sys.executable, "-m", "counterpoint", *words],
        cwd=extended,
        env=os.environ | {"PYTHONPATH": str(extended)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_new_command_is_listed_and_runs(extended: Path) -> None:
    assert re.search(r"^  new +Greet the reader of the test\.$", run(extended, "--help"), re.MULTILINE)
    assert run(extended, "new", "--times", "2").split() == ["hello", "hello"]


def test_a_new_world_is_listed_with_its_sizes(extended: Path) -> None:
    (row,) = (line for line in run(extended, "envs").splitlines() if "new_world" in line)
    assert [cell.strip() for cell in row.strip("| ").split("|")] == ["new_world", "2 agent", "2", "2", "max_steps=5"]


def test_a_new_published_result_is_listed_and_runs(extended: Path) -> None:
    assert re.search(r"new2026 *\| A new result\.", run(extended, "reproduce"))
    run(extended, "reproduce", "new2026", "--out", "reproduced")
    assert (extended / "reproduced/new2026/table.md").read_text() == "| new |"


def test_a_new_algorithm_trains_in_a_new_world_and_reports_a_new_metric(extended: Path) -> None:
    sizes = ["--num-envs", "2", "--update-every", "10", "--devices", "1", "--entropy", "0.02"]
    reports = ["--report-every", "4", "--save-rate", "8", "--eval-episodes", "2", "--plots-dir", ""]
    goal = ["--algorithm", "new", "--scenario", "new_world", "--num-episodes", "8", "--exp-name", "first"]
    run(extended, "train", *goal, *sizes, *reports)
    with (extended / "runs/first/metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert int(float(rows[-1]["episode"])) >= 8
    assert any("new_metric" in name and 0 <= float(value) <= 1 for name, value in rows[-1].items())
    assert any("actor_loss" in name and value for name, value in rows[-1].items())


def test_the_architecture_page_names_these_files() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    table = page.split("## What an extension touches")[1].split("\n## ")[0]
    assert {re.sub(r"new\.py$", "", name) for name in FILES} <= set(re.findall(r"`([\w/]+/)NAME\.py`", table))
