"""`counterpoint doctor` says what is wrong with a machine, and nothing if nothing is."""

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import counterpoint
from counterpoint import config as configs
from counterpoint.cli import main
from counterpoint.studies import doctor
from tiny import TINY, trained_run


def test_an_untrained_policy_is_a_problem_and_a_trained_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    (bad,) = doctor.learning(lambda **settings: trained_run())  # 48 episodes teach nothing
    assert not bad.ok
    assert bad.advice.startswith("reinstall")
    monkeypatch.setattr(doctor, "LEARNED", -1.0)
    (good,) = doctor.learning(lambda **settings: trained_run())
    assert good.ok


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_short_training_learns_what_it_must(seed: int) -> None:
    (found,) = doctor.learning(lambda **settings: counterpoint.train(**settings | {"seed": seed}))
    assert found.ok, found.value


def test_the_short_training_has_settings_that_exist() -> None:
    assert configs.override(configs.Config(), **doctor.PROBE).training.num_episodes == 2000


def test_slow_training_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "gemm_rate", lambda: 100e9)
    for rate, fine in ((100 * doctor.PER_GFLOP - 1, False), (100 * doctor.PER_GFLOP, True)):
        monkeypatch.setattr(doctor, "training_rate", lambda rate=rate: rate)
        products, training = doctor.speed()
        assert products.ok
        assert training.ok is fine


def test_missing_packages_are_named_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    known = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("onnx", "optax") else known(name))
    extras = {finding.what: finding for finding in doctor.extras()}
    assert extras["extra export"].value == "without onnx"
    assert extras["extra export"].advice.endswith("pip install 'counterpoint[export]'")
    assert extras["extra pettingzoo"] == doctor.Finding("extra pettingzoo", "installed", True)
    optax = next(finding for finding in doctor.versions() if finding.what == "optax")
    assert not optax.ok
    assert optax.advice.startswith("run: pip install 'optax>=")


def test_every_extra_for_users_is_looked_for() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    extras = set(tomllib.loads(text)["project"]["optional-dependencies"])
    assert set(doctor.EXTRAS) == extras - {"dev", "docs"}, "those two are for developers"


def test_packages_that_only_another_python_needs_are_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["grpcio>=1.48; extra == 'unity'", "setuptools; python_version >= '3.99' and extra == 'unity'"]
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda package: lines)
    assert list(doctor._requirements("unity")) == ["grpcio"]


def test_a_folder_that_cannot_be_written_and_little_memory_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    monkeypatch.setattr(doctor, "_memory", lambda: 0.5)
    findings = {finding.what: finding for finding in doctor.machine()}
    assert not findings["free memory"].ok
    assert findings["this folder"].value.startswith("not writable")
    assert findings["JAX devices"].ok


@pytest.mark.parametrize("fine", [True, False])
def test_the_command_prints_findings_and_fails_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fine: bool
) -> None:
    findings: list[Any] = [doctor.Finding("Python", "3", True), doctor.Finding("free memory", "1 GB", fine, "close programs")]
    monkeypatch.setattr(doctor, "examine", lambda: iter(findings))
    monkeypatch.setattr(sys, "argv", ["counterpoint", "doctor"])
    if fine:
        main.main()
    else:
        with pytest.raises(SystemExit) as ended:
            main.main()
        assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert ("this machine can train" in out) is fine
    assert ("1 problem found: free memory: close programs." in err) is not fine
    assert counterpoint.doctor() == findings


def test_training_speed_is_measured_in_steps_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    real = counterpoint.train
    monkeypatch.setattr(counterpoint, "train", lambda **settings: real(**(settings | TINY | {"report_every": 4, "warmup": 25})))
    assert doctor.training_rate(episodes=24) > 0
