"""The typed keywords of train, resume and grid follow the settings, and a type checker sees a wrong one."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from counterpoint.training import keywords

ROOT = Path(__file__).parents[2]


def test_the_keywords_follow_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    maker = importlib.import_module("make_keywords")
    assert maker.MODULE.read_text() == maker.module(), "run python docs/make_keywords.py"
    assert {"scenario", "lr", "num_episodes", "td_lambda"} <= set(keywords.TrainSettings.__annotations__)
    assert set(keywords.GridSettings.__annotations__) == set(keywords.TrainSettings.__annotations__)


PROGRAM = """
import counterpoint

counterpoint.train(scenario="simple", num_episodes=10, lr=1e-3, seed=1)
counterpoint.train(scenaro="simple")
counterpoint.train(num_episodes="many")
counterpoint.train(critic_activation="sigmoid")
counterpoint.grid(algorithm=["maddpg", "ddpg"], scenario="simple")
counterpoint.grid(algorithms=["maddpg", "ddpg"])
counterpoint.resume("runs/first", num_episodes=20, lr=1e-4)
counterpoint.resume("runs/first", gamma=0.9)
"""


def test_a_type_checker_sees_a_wrong_keyword(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT / "src")], "typeCheckingMode": "basic"}))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = [error["range"]["start"]["line"] for error in found if error["severity"] == "error"]
    wrong = ("scenaro", "many", "sigmoid", "algorithms=", "gamma")
    assert lines == [n for n, line in enumerate(PROGRAM.splitlines()) if any(word in line for word in wrong)], found
