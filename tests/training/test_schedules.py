"""Falling step sizes: how long they last in proportion to the episodes, in new runs, runs that go on and grids."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint
from counterpoint import config as configs
from counterpoint import presets
from counterpoint.cli.commands.resume import resume
from counterpoint.cli.commands.train import parse_settings
from counterpoint.core.errors import UsageError
from counterpoint.runs import Run
from counterpoint.training import train as experiment
from counterpoint.training.progress import Progress
from tiny import TINY, trained_run

CASES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "twice": ({"preset": "demo", "num_episodes": 30_000}, {"lr_steps": 24_600}),
    "half": ({"preset": "demo", "num_episodes": 7_500}, {"lr_steps": 6_150}),
    "the preset's own": ({"preset": "demo", "num_episodes": 15_000}, {"lr_steps": 12_300}),
    "not chosen": ({"preset": "demo"}, {"lr_steps": 12_300, "num_episodes": 15_000}),
    "never zero, which means constant": ({"preset": "demo", "num_episodes": 1}, {"lr_steps": 1}),
    "chosen": ({"preset": "demo", "num_episodes": 30_000, "lr_steps": 100}, {"lr_steps": 100}),
    "chosen constant": ({"preset": "demo", "num_episodes": 30_000, "lr_steps": 0}, {"lr_steps": 0}),
    "entropy": ({"preset": "ippo-spread", "num_episodes": 100_000}, {"lr_steps": 2_500_000, "entropy_steps": 2_000_000}),
    "one of two chosen": (
        {"preset": "tuned-simple_spread", "num_episodes": 480_000, "entropy_steps": 9},
        {"lr_steps": 12_000_000, "entropy_steps": 9},
    ),
    "defaults stay": ({"preset": "coma-switch4", "num_episodes": 1000}, {"entropy_steps": 1_000_000, "epsilon_steps": 400_000}),
    "noise stays": ({"scenario": "tennis", "num_episodes": 2400}, {"noise_steps": 20_000, "lr_steps": 0}),
    "another family has its own": ({"preset": "demo", "algorithm": "mappo", "num_episodes": 100}, {"lr_steps": 0}),
    "without a preset": ({"num_episodes": 30_000, "lr_steps": 100}, {"lr_steps": 100}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_schedules_of_a_preset_stretch_with_its_episodes(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, expected = CASES[case]
    seen: list[configs.Config] = []

    def prepare(config: configs.Config, *_: Any, **__: Any) -> None:
        seen.append(config)
        raise InterruptedError

    monkeypatch.setattr(experiment, "prepare", prepare)
    with pytest.raises(InterruptedError):
        counterpoint.train(**chosen, progress=False)
    seen.append(parse_settings([f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]))
    expected = {"num_episodes": chosen.get("num_episodes"), **expected}
    for config in seen:
        assert {name: configs.flat(config)[name] for name in expected} == expected
    assert configs.flat(seen[0]) == configs.flat(seen[1]), "Python and the command line agree"


def test_the_command_line_reads_the_number_of_episodes_in_every_notation() -> None:
    for words in (["--num-episodes", "3e4"], ["--num_episodes", "30000"], ["--num-episodes=1", "--num-episodes=30000"]):
        assert parse_settings(["--preset", "demo", *words]).learning.lr_steps == 24_600, words
    for wrong, sentence in {"many": "invalid", "-3": "at least 1", "1e99": "up to 2147483647", "0": "at least 1"}.items():
        with pytest.raises(UsageError, match=sentence):
            parse_settings(["--preset", "demo", "--num-episodes", wrong])
    endless = parse_settings(["--preset", "tuned-tennis", "--num-episodes", "2e9"])
    assert endless.learning.lr_steps == 2**31 - 1, "the largest number there is, not a refusal of what nobody chose"


def test_the_lower_layer_changes_only_what_it_is_told() -> None:
    assert configs.override(presets.preset("demo"), num_episodes=30_000).learning.lr_steps == 12_300


class Said(Progress):
    """Remembers the sentences."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


def actors(run: Run) -> np.ndarray:
    return np.concatenate([leaf.ravel() for leaf in run.load_policy()[0].values()])


def test_a_longer_run_goes_on_learning(tmp_path: Path) -> None:
    """Its step size has fallen to zero at the end, where it would stay if the schedule did."""
    run = counterpoint.train(
        scenario="simple", num_episodes=24, lr_steps=4, save_dir=str(tmp_path), exp_name="run", progress=False, **TINY
    )
    first, said = actors(run), Said()
    counterpoint.resume(run, said, num_episodes=32, lr_steps=4)
    assert (actors(run) == first).all(), "nothing is learned by steps of size zero"
    assert not [sentence for sentence in said.sentences if "stretched" in sentence], "the user chose it"
    counterpoint.resume(run, said, num_episodes=64)
    assert "stretched with --num-episodes 64: --lr-steps 8 instead of 4." in said.sentences
    assert (actors(run) != first).any()
    assert run.changes == [
        {"episode": 24, "num_episodes": [24, 32]},
        {"episode": 32, "num_episodes": [32, 64], "lr_steps": [4, 8]},
    ]
    with pytest.raises(
        UsageError, match=r"--lr-steps 0 cannot be given to a run whose step size falls to zero \(--lr-steps 8\)"
    ):
        counterpoint.resume(run, said, num_episodes=96, lr_steps=0)


def test_a_constant_step_size_stays_constant() -> None:
    sentence = r"--lr-steps 50 cannot be given to a run whose step size is constant \(--lr-steps 0\): leave it out"
    with pytest.raises(UsageError, match=sentence):
        counterpoint.resume(trained_run(), num_episodes=96, lr_steps=50)


def test_the_command_line_hands_on_the_schedules_that_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(experiment, "resume", lambda run, console, *args, **changes: seen.append((args, changes)))
    resume("run", num_episodes=64, lr_steps=9, entropy_steps=8)
    resume("run", num_episodes=64)
    assert seen == [((64, "", False), {"lr_steps": 9, "entropy_steps": 8}), ((64, "", False), {})]
