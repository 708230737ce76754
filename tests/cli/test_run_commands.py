"""The command line around runs: lists, bare names, resumed and restored runs, windows, completion, pipes, narrow terminals."""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import call as call

from counterpoint import config as configs
from counterpoint import presets, runs
from counterpoint.cli import main
from counterpoint.cli.parsing import whole
from counterpoint.runs.folder import Run
from counterpoint.training import progress
from tiny import tiny_words, trained_run


def test_the_list_shows_what_matters_and_differs(call: Any, tmp_path: Path) -> None:
    for name, lr, good in (("slow", 0.001, -8.0), ("fast", 0.1, -2.5)):
        world = {"scenario": "simple", "env": "/x/maze.py:Maze"}
        run = runs.create("runs", name, {"algorithm": "maddpg", "world": world, "training": {"num_episodes": 9, "lr": lr}})
        run.append_metrics({"step": 1, "episode": 9, "seed": 0, "team/good": -99.0, "eval/team/good": good})
    table = call("runs --sort return").out
    assert "| run | environment | algorithm | episodes | return | state | written | differs in |" in table
    assert "| slow | maze.py:Maze | maddpg | 9 | -8.00 | finished |" in table
    assert "| lr=0.001 |" in table
    assert table.index("slow") < table.index("fast")
    assert "slow" not in call("runs --filter lr=0.1").out
    assert call("runs --filter lr=7").out == "none of the 2 runs in ./runs meets lr=7.\n"
    assert call("runs --sort colour").code == 2


def test_commands_take_the_bare_name(call: Any, tmp_path: Path) -> None:
    shutil.copytree(trained_run().path, tmp_path / "runs" / "demo")
    assert call("play demo --episodes 1 --at best --out a.gif").code == 0
    assert call("plot demo --out curves.png").code == 0
    assert "is finished" in call("resume demo").out
    result = call("play demo --history --out history.gif")
    assert result.out == "3 policies of demo, after 16, 32, 48 episodes → history.gif\n"
    assert (tmp_path / "history.gif").read_bytes()[:3] == b"GIF"
    result = call("export demo --format safetensors --at 16 --out out")
    assert result.code == 0, result.err
    assert json.loads((tmp_path / "out" / "export.json").read_text())["about"]["episodes"] == 16
    assert call("train --display --load-dir demo").code == 0
    refused = {
        "--history": "--history is for runs, and simple is an environment: name a run.",
        "--seed-index 1": "--seed-index is for runs, and simple is an environment: name a run.",
        "--at best --member 0": "--at and --member are for runs, and simple is an environment: name a run.",
    }
    for options, sentence in refused.items():
        assert call(f"play simple {options}").err == f"counterpoint: {sentence}\n"


def test_a_run_comes_before_an_environment_of_its_name(call: Any, tmp_path: Path) -> None:
    shutil.copytree(trained_run().path, tmp_path / "runs" / "simple_spread")
    result = call("play simple_spread --episodes 1 --out film.gif")
    assert result.out == "1 episode of simple → film.gif\n", "the run was trained in simple"
    assert "a run has its own" in call("play simple_spread --args N=2").err


def test_restore_applies_what_may_change_and_refuses_the_rest(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs" / "first"
    shutil.copytree(trained_run().path, path)
    seen: list[Any] = []
    monkeypatch.setattr("counterpoint.training.train.resume", lambda *args, **changes: seen.append((args, changes)))
    words = ["train", "--restore", "--exp-name", "first", "--scenario", "simple", "--num-units", "16"]
    assert call([*words, "--num-episodes", "96", "--lr", "0.5"]).code == 0
    (run, _, num_episodes), changes = seen[0]
    assert (run.path.name, num_episodes, changes) == ("first", 96, {"lr": 0.5})
    result = call([*words, "--gamma", "0.5"])
    assert result.code == 2
    assert result.err == (
        "counterpoint: --gamma 0.5 cannot change in a run that goes on (it has 0.95): leave it out, or start a new run.\n"
    )
    assert len(seen) == 1


def test_restore_trains_a_finished_run_on(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "first"
    shutil.copytree(trained_run().path, path)
    result = call("train --restore --exp-name first --num-episodes 56 --plots-dir=")
    assert result.code == 0, result.err
    assert Run(path).rows()[-1]["episode"] == 56
    assert Run(path).changes == [{"episode": 48, "num_episodes": [48, 56]}]


def test_whole_numbers_in_float_notation(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, plain in {"1e4": "10000", "2.5e3": "2500", "1E+2": "100", "1.5e0": "1.5e0", "1e-2": "1e-2", "x": "x"}.items():
        assert whole(text) == plain
    seen: list[configs.Config] = []
    monkeypatch.setattr("counterpoint.training.train.train", lambda config, console: seen.append(config))
    assert call("train --num-episodes 1e4 --buffer-size=2.5e5 --lr 1e-3").code == 0
    assert (seen[0].training.num_episodes, seen[0].training.buffer_size, seen[0].learning.lr) == (10_000, 250_000, 1e-3)
    assert "1.5e0" in call("train --num-episodes 1.5e0").err


def test_env_and_scenario_are_refused_together(call: Any) -> None:
    result = call("train --env CartPole-v1 --scenario simple")
    assert (result.code, result.err) == (
        2,
        "counterpoint: --env CartPole-v1 and --scenario simple exclude each other: choose one of them.\n",
    )


def test_every_preset_can_be_pasted(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    seen: list[configs.Config] = []
    monkeypatch.setattr("counterpoint.training.train.train", lambda config, console: seen.append(config))
    lines = call("presets").out.splitlines()
    printed = dict(zip(lines[::2], lines[1::2], strict=True))
    assert printed.keys() == presets.PRESETS.keys()
    for name, words in printed.items():
        result = call(["train", *shlex.split(words)])
        assert result.code == 0, result.err
        assert configs.flat(seen[-1]) | {"preset": ""} == configs.flat(presets.PRESETS[name]), name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_options(call: Any, shell: str) -> None:
    result = call(f"completion {shell}")
    assert result.code == 0
    for word in (*main.COMMANDS, "--num-episodes", "--lr", "--history", "--sort"):
        assert word in result.out, word


def test_completion_completes_in_bash(call: Any, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(call("completion bash").out)
    ask = (
        "source ./script; complete -p counterpoint >/dev/null || exit 3; COMP_WORDS=(counterpoint res); COMP_CWORD=1;"
        "$(complete -p counterpoint | sed 's/.*-F \\([^ ]*\\).*/\\1/') counterpoint res counterpoint; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.split() == ["resume"], done.stderr


def test_output_into_head_is_no_traceback(tmp_path: Path) -> None:
    for line in ("presets", "--help"):
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m counterpoint {line} | true; echo ${{PIPESTATUS[0]}}"],
            capture_output=True, text=True, check=True, cwd=tmp_path,
        )  # fmt: skip
        assert done.stderr == ""
        assert done.stdout.strip() in ("0", "141")


class FakeWindow:
    """A window that remembers what it showed."""

    shown: list[np.ndarray]

    def __init__(self, title: str) -> None:
        FakeWindow.shown = []

    def show(self, rgb: np.ndarray) -> None:
        FakeWindow.shown.append(rgb)

    def close(self) -> None:
        FakeWindow.shown.append(np.zeros(0))


def test_display_opens_a_window_or_writes_a_film(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(trained_run().path, tmp_path / "runs" / "first")
    monkeypatch.setattr("counterpoint.viz.window.Window", FakeWindow)
    monkeypatch.setattr("counterpoint.cli.commands.play.FPS", 10_000)
    monkeypatch.setenv("DISPLAY", ":7")
    film = tmp_path / "runs" / "first" / "play.gif"
    assert call("train --display --exp-name first").code == 0
    assert len(FakeWindow.shown) == 3 * 26 + 1
    assert FakeWindow.shown[0].shape[2] == 3
    assert not film.exists()
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    result = call("train --display --exp-name first")
    assert result.out.startswith("there is no display here: writing a film instead\n")
    assert film.read_bytes()[:3] == b"GIF"


def on_terminal(line: str, columns: int, folder: Path) -> list[str]:
    """Returns the lines that a command writes to a terminal of that width, without control codes."""
    import re

    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "counterpoint", *line.split()],
        stdout=follower, stderr=follower, cwd=folder, env=os.environ | {"COLUMNS": str(columns), "TERM": "xterm"},
    )  # fmt: skip
    os.close(follower)
    output = b""
    try:
        while chunk := os.read(leader, 4096):
            output += chunk
    except OSError:
        pass  # the other end is closed
    os.close(leader)
    assert process.wait() == 0, output
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.decode()).replace("\r", "").splitlines()


def test_a_terminal_of_60_columns_is_readable(tmp_path: Path) -> None:
    for i in range(50):
        settings = {"algorithm": "maddpg", "world": {"scenario": "simple_speaker_listener"}}
        run = runs.create(tmp_path / "runs", f"speaker-{i}", settings | {"training": {"num_episodes": 9, "lr": 0.1 * i}})
        run.append_metrics({"step": 1, "episode": 9, "seed": 0, "team/good": -1.0 * i})
    lines = on_terminal("runs", 60, tmp_path)
    assert {line.split()[0] for line in lines[1:51]} == {f"speaker-{i}" for i in range(50)}, "a line for each run"
    assert max(map(len, lines)) <= 60
    assert lines[0].split()[0] == "run"
    note = " ".join(lines[51:])
    assert note.startswith("not shown for lack of room:")
    assert "differs in" in note
    assert "differs in" in on_terminal("runs", 160, tmp_path)[0]
    assert max(map(len, on_terminal("--help", 60, tmp_path))) <= 80
    assert max(map(len, on_terminal("presets", 60, tmp_path))) <= 60


def test_tensorboard_has_no_curve_of_the_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    run = runs.create(tmp_path, "one", {})
    with progress.sinks(run, configs.override(configs.Config(), tensorboard=True)) as send:
        send({"step": 1234, "episode": 3, "seed": 0, "team/good": -2.0})
    data = next((run.path / "tensorboard").glob("seed0/events*")).read_bytes()
    assert b"team/good" in data
    assert b"\x04step" not in data
    assert b"\x07episode" in data


def test_a_nan_reward_is_exit_code_3(call: Any, tmp_path: Path) -> None:
    (tmp_path / "nan_env.py").write_text(
        "import gymnasium\n\n\n"
        "class Nan(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,))\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n\n"
        "    def reset(self, seed=None, options=None):\n"
        "        self.t = 0\n        return self.observation_space.sample() * 0, {}\n\n"
        "    def step(self, action):\n"
        "        self.t += 1\n"
        "        return self.observation_space.sample() * 0, float('nan') if self.t == 4 else 1.0, False, self.t == 9, {}\n"
    )
    result = call(["train", *tiny_words(num_episodes=20, max_episode_len=9), "--env", "nan_env.py:Nan"])
    assert result.code == 3, result.err
    assert "the reward of agent_0 at step 4 is nan: every reward must be a finite number" in result.err
    assert result.err.count("\n") == 1
