"""Signals save first, also while a run draws; and environments that hang are ended."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import counterpoint
from counterpoint.core.errors import UsageError
from counterpoint.external import environment
from counterpoint.training import train as training
from tiny import TINY, trained_run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_asks_the_run_to_save(number: int) -> None:
    outside = signal.signal(number, signal.SIG_DFL)  # a shell may have started the tests with signals ignored
    try:
        with training._stop_signals() as stop:
            os.kill(os.getpid(), number)
            assert stop.wait(10)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, outside)


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with training._stop_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_drawing_saves_and_a_resume_draws(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, calls = training.plots.learning_curve, []

    def interrupted(*args: Any, **settings: Any) -> None:
        calls.append(args)
        if len(calls) == 1:
            os.kill(os.getpid(), number)
        draw(*args, **settings)

    monkeypatch.setattr(training.plots, "learning_curve", interrupted)
    settings = TINY | {"scenario": "simple", "num_episodes": 48, "save_dir": str(tmp_path), "exp_name": "drawn"}
    with pytest.raises(training.Interrupted):
        counterpoint.train(**settings)
    path = tmp_path / "drawn"
    assert not (path / "team.gif").exists()
    assert (path / "policy.safetensors").exists()
    run = counterpoint.resume(path)
    assert (path / "team.gif").exists()
    assert run.load_policy()[1]["finished"]
    assert run.policy_path.read_bytes() == trained_run().policy_path.read_bytes()


def test_an_environment_that_hangs_while_it_is_opened_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow.py").write_text(
        "import gymnasium, time\n"
        "class Slow(gymnasium.Env):\n"
        "    def __init__(self):\n"
        "        try:\n"
        "            time.sleep(1000)\n"
        "        except Exception:\n"
        "            pass\n"
        "    def reset(self): ...\n"
        "    def step(self, action): ...\n"
    )
    monkeypatch.setattr(environment, "OPEN_SECONDS", 0.2)
    with pytest.raises(UsageError, match=r"has not been made and reset within 0.2 s: it hangs, or is too slow"):
        environment.open_environment(f"{tmp_path / 'slow.py'}:Slow", {}, (), 0)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_checkpoint_that_does_not_fit_its_settings_is_refused_in_one_sentence(tmp_path: Path) -> None:
    import json

    path = tmp_path / "other"
    shutil.copytree(trained_run().path, path)
    facts = json.loads((path / "config.json").read_text())
    del facts["sha256"]
    facts["learning"]["num_units"] = 24
    (path / "config.json").write_text(json.dumps(facts))
    with pytest.raises(UsageError, match="in the checkpoint does not fit the settings"):
        counterpoint.resume(path, num_episodes=64)
