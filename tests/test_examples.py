"""The example programs, run as they stand but for the length of training."""

import runpy
from pathlib import Path
from typing import Any

import pytest

import counterpoint
from counterpoint import experiment
from tiny import TINY

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_train_play_and_step_through_pettingzoo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    real = counterpoint.train

    def short(**settings: Any) -> Any:
        return real(**settings | TINY | {"num_episodes": 24})

    monkeypatch.setattr(experiment, "train", short)
    for name in ("train", "play", "pettingzoo_loop"):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert Path("example.gif").read_bytes()[:3] == b"GIF"
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "learning curve: runs/example/curve.png"
    assert Path("runs/example/curve.png").exists()
    assert said[1].startswith("return of the team: -")
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"train", "play", "pettingzoo_loop"}
