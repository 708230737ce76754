"""The example programs, run as they stand but for the length of training."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

import counterpoint
from counterpoint.trainers import agent as trainers
from counterpoint.training import train as experiment
from tiny import TINY

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_train_play_and_step_through_pettingzoo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    real = counterpoint.train

    def short(**settings: Any) -> Any:
        return real(**settings | TINY | {"num_episodes": 24}, progress=False)

    monkeypatch.setattr(experiment, "train", short)
    for name in ("train", "play", "pettingzoo_loop"):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert Path("example.gif").read_bytes()[:3] == b"GIF"
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "learning curve: runs/example/curve.png"
    assert Path("runs/example/curve.png").exists()
    assert said[1].startswith("return of the team: -")
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        "train",
        "play",
        "pettingzoo_loop",
        "own_loop",
        "own_algorithm",
        "own_world",
    }


def test_a_loop_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["own_loop.py", "3"])
    real = trainers.Settings
    monkeypatch.setattr(trainers, "Settings", lambda learning, **settings: real(learning, **settings | {"batch_size": 2}))
    runpy.run_path(str(EXAMPLES / "own_loop.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert said.startswith("3 episodes, return of the team -")
    assert "Losses(critic_loss=" in said
    assert {path.parent.name for path in Path("runs/own/simple_spread").glob("*/trainer.safetensors")} == {
        "agent_0",
        "agent_1",
        "agent_2",
    }
