"""A run folder is data: the code that it names is executed only if the user made the run here, passes the code or trusts it."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import counterpoint
from counterpoint import runs
from counterpoint.core.errors import UsageError
from counterpoint.policies.export import export
from counterpoint.policies.policy import load_history
from counterpoint.runs import files, trust
from counterpoint.runs.folder import Run


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a key yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def made(folder: Path, env: str = "", **settings: Any) -> Run:
    world = {"scenario": "simple", "env": env, "scenario_args": []}
    return runs.create(folder, "run", {"algorithm": "maddpg", "world": world, "training": {"seed": 0}, **settings})


def forged(run: Run, **world: Any) -> None:
    """Changes the settings as an attacker would who knows how checksums are made, but has no key."""
    facts = json.loads((run.path / "config.json").read_text())
    facts["world"] |= world
    facts.pop(files.SEAL)
    (run.path / "config.json").write_text(json.dumps(files.sealed(facts)))


def test_a_run_without_code_needs_no_trust(tmp_path: Path, home: Path) -> None:
    run = made(tmp_path)
    run.require_trust()
    assert run.is_trusted()
    assert not home.exists(), "no key is made for it"


def test_the_own_run_is_trusted_and_that_of_another_user_is_not(tmp_path: Path, home: Path) -> None:
    run = made(tmp_path, env="pkg.module:Env")
    run.require_trust()
    assert trust.key_path().stat().st_mode & 0o777 == 0o600
    shutil.move(home, tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"run would execute code \(--env pkg.module:Env\), and you did not make this run"):
        run.require_trust()
    run.require_trust(given=("env",))
    run.require_trust(trusted=True)


def test_a_key_that_others_can_read_is_no_key(tmp_path: Path) -> None:
    run = made(tmp_path, env="pkg.module:Env")
    trust.key_path().chmod(0o644)
    assert not run.is_trusted()


@pytest.mark.parametrize(
    "change", [{"env": "subprocess:run"}, {"scenario_args": ["args=touch /tmp/x", "shell=True"]}, {"scenario": "simple_tag"}]
)
def test_a_changed_run_is_no_longer_signed(change: dict[str, Any], tmp_path: Path) -> None:
    run = made(tmp_path, env="pkg.module:Env")
    forged(run, **change)
    with pytest.raises(UsageError, match="add --trust if you trust whoever made it"):
        run.require_trust()


def test_every_setting_of_the_form_place_name_is_code(tmp_path: Path) -> None:
    found = trust.named_code(
        {
            "algorithm": "mine.py:entry",
            "good_policy": "maddpg",
            "learning": {"model": "nets:big", "lr": 0.1},
            "world": {"env": "CartPole-v1", "scenario_args": ["x=a:b"], "teams": ["a:b=good"]},
            "opponents": ["their.py:team"],
            "distribution": {"code": "hedge:1.5", "ray_address": "host:1"},
        }
    )
    assert found == {"algorithm": "mine.py:entry", "model": "nets:big", "env": "CartPole-v1", "opponents": "their.py:team"}


def test_frozen_opponents_are_code_if_they_are_functions_and_data_if_they_are_runs(tmp_path: Path, home: Path) -> None:
    files_ = [tmp_path / name for name in ("one.py", "two.py")]
    for file in files_:
        file.write_text("def play(obs): ...")
    words = [f"{team}={file}:play" for team, file in zip(("adversary", "good"), files_, strict=True)]
    run = made(tmp_path, opponents={"freeze": [words[0], "third=runs/tag-1@best#2", words[1]]})
    assert trust.named_code(run.config) == {"freeze": " ".join(words)}
    assert run.is_trusted()
    for file in files_:  # the signature covers the text of both
        file.chmod(0o666)
        assert run.is_trusted()
        file.write_text("def play(obs): print()")
        assert not run.is_trusted()
        file.write_text("def play(obs): ...")
    shutil.move(home, tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="--freeze adversary="):
        run.require_trust(given=("env",))
    made(tmp_path, opponents={"freeze": ["adversary=runs/tag-1@best#2"]}).require_trust()


@pytest.mark.parametrize("way", ["train", "tournament", "exploit"])
def test_a_strangers_run_executes_nothing_as_an_opponent(way: str, tmp_path: Path) -> None:
    run, proof = made(tmp_path), tmp_path / "proof"
    (tmp_path / "evil.py").write_text(f"open({str(proof)!r}, 'w').close()\ndef entry(): pass\n")
    forged(run, env=f"{tmp_path / 'evil.py'}:entry")
    ways = {
        "train": lambda: counterpoint.train(
            scenario="simple_tag", freeze=[f"adversary={run.path}"], save_dir=str(tmp_path / "new"), progress=False
        ),
        "tournament": lambda: counterpoint.tournament([run.path, run.path], out=tmp_path / "out"),
        "exploit": lambda: counterpoint.exploit(run.path),
    }
    with pytest.raises(UsageError, match="would execute code"):
        ways[way]()
    assert not proof.exists()


def test_a_file_that_its_owner_edits_stays_trusted_and_one_that_others_can_write_does_not(tmp_path: Path) -> None:
    source = tmp_path / "env.py"
    source.write_text("one = 1")
    run = made(tmp_path, env=f"{source}:Env")
    source.write_text("one = 2")
    assert run.is_trusted()
    source.chmod(0o666)
    assert not run.is_trusted()
    source.write_text("one = 1")
    assert run.is_trusted(), "its content is the one that was signed"


@pytest.mark.skipif(os.name != "posix", reason="files have no groups")
@pytest.mark.parametrize("members", [[], ["somebody"]])
def test_a_file_that_a_group_can_write_is_trusted_only_if_the_group_is_private(
    members: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import grp
    import pwd

    monkeypatch.setattr(pwd, "getpwall", lambda: [pwd.getpwuid(os.getuid())])
    monkeypatch.setattr(grp, "getgrgid", lambda group: SimpleNamespace(gr_mem=members))
    source = tmp_path / "env.py"
    source.write_text("one = 1")
    os.chown(source, -1, pwd.getpwuid(os.getuid()).pw_gid)
    run = made(tmp_path, env=f"{source}:Env")
    source.write_text("one = 2")
    source.chmod(0o660)
    assert run.is_trusted() is not bool(members)
    source.write_text("one = 1")
    assert run.is_trusted(), "its content is the one that was signed"


def test_names_from_outside_are_shown_escaped(tmp_path: Path) -> None:
    run = made(tmp_path)
    forged(run, env="evil\x1b[2J\n<b>:" + "x" * 5000)
    with pytest.raises(UsageError) as error:
        run.require_trust()
    assert "\x1b" not in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


ACTS = {"load": counterpoint.load, "load_history": load_history, "resume": counterpoint.resume, "export": export}


@pytest.mark.parametrize("act", ACTS)
def test_python_executes_nothing_that_a_stranger_names(act: str, tmp_path: Path) -> None:
    """The proven hole: an environment that is a shell command, and a module that is imported."""
    run, proof = made(tmp_path), tmp_path / "proof"
    (tmp_path / "evil.py").write_text(f"open({str(proof)!r}, 'w').close()\ndef entry(): pass\n")
    for address in ("subprocess:run", f"{tmp_path / 'evil.py'}:entry"):
        forged(run, env=address, scenario_args=[f"args=touch {proof}", "shell=True"])
        with pytest.raises(UsageError, match="would execute code"):
            ACTS[act](run.path)
        assert not proof.exists()
    facts = json.loads((run.path / "config.json").read_text())
    facts["world"]["env"], facts["algorithm"] = "", f"{tmp_path / 'evil.py'}:entry"
    facts.pop(files.SEAL)
    (run.path / "config.json").write_text(json.dumps(facts))
    with pytest.raises(UsageError, match="would execute code"):
        ACTS[act](run.path)
    assert not proof.exists()


@pytest.mark.skipif(os.name != "posix", reason="folders are locked by their mode")
def test_a_home_that_cannot_be_written_makes_unsigned_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    run = made(tmp_path, env="pkg.module:Env")
    assert not run.is_trusted()
