"""Runs that survive anything: killed, stopped, damaged, made longer, diverged, out of disk."""

import errno
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import counterpoint
from counterpoint import config as configs
from counterpoint import runs
from counterpoint.algos import coma
from counterpoint.algos.league import League, with_league
from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.envs import make
from counterpoint.runs import stats
from counterpoint.runs.display import last_report
from counterpoint.runs.folder import Run
from counterpoint.runs.tables import markdown_table
from counterpoint.training import program, progress
from counterpoint.training import train as experiment
from processes import assert_same_run, finish, interrupted, newest, spawn
from tiny import HOME, TINY, tiny_words, trained_run

SPREAD: dict[str, Any] = {"scenario": "simple_spread", "num_agents": 2, "num_episodes": 240}


def test_a_run_killed_stopped_and_damaged_ends_as_if_left_alone(tmp_path: Path) -> None:
    """SIGKILL before the first checkpoint, Ctrl-C, SIGTERM and then a damaged checkpoint, SIGKILL; and resumed to the end."""
    words = tiny_words(**SPREAD, save_dir=tmp_path)
    code, output = finish(spawn("train", *words, "--exp-name", "calm"))
    assert code == 0, output
    path = tmp_path / "rough"
    interrupted(path, spawn("train", *words, "--exp-name", "rough"), 2, signal.SIGKILL)
    interrupted(path, spawn("resume", str(path)), 8, signal.SIGINT)
    interrupted(path, spawn("resume", str(path)), 14, signal.SIGTERM)
    state = newest(path, "state")
    state.write_bytes(state.read_bytes()[:-100])
    output = interrupted(path, spawn("resume", str(path)), 20, signal.SIGKILL)
    assert f"{state.name} is truncated" in output
    code, output = finish(spawn("resume", str(path)))
    assert code == 0, output
    assert "100%  episode 240/240" in output
    assert "\x1b" not in output, "plain lines in a pipe"
    assert_same_run(path, tmp_path / "calm")
    assert len(Run(path).rows()) == 30


@pytest.mark.slow
def test_two_seeds_killed_end_as_if_left_alone(tmp_path: Path) -> None:
    settings: dict[str, Any] = SPREAD | {"num_seeds": 2, "num_episodes": 96}
    words = tiny_words(**settings, save_dir=tmp_path)
    path = tmp_path / "rough"
    interrupted(path, spawn("train", *words, "--exp-name", "rough"), 8, signal.SIGKILL)
    code, output = finish(spawn("resume", str(path)))
    assert code == 0, output
    assert "95 % interval" in output
    assert "IQM" in output
    counterpoint.train(**TINY | settings, save_dir=str(tmp_path), exp_name="calm")
    assert_same_run(path, tmp_path / "calm")
    assert {row["seed"] for row in Run(path).rows()} == {0, 1}


class Listener(progress.Progress):
    """Remembers what it was told, and acts after so many reports."""

    def __init__(self, after: int = 0, act: Callable[[], object] = lambda: None) -> None:
        self.said: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.after, self.act = after, act

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def report(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if len(self.rows) == self.after:
            self.act()


def test_resuming_a_finished_run_changes_nothing_and_says_so() -> None:
    run, listener = trained_run(), Listener()
    before = {file: file.stat().st_mtime_ns for file in run.path.rglob("*")}
    assert experiment.resume(run.path, listener) == run
    assert {file: file.stat().st_mtime_ns for file in run.path.rglob("*")} == before
    assert len(listener.said) == 1
    assert "is finished" in listener.said[0]
    assert "--num-episodes 96" in listener.said[0]


@pytest.mark.slow
def test_a_run_made_longer_is_the_run_that_was_longer_from_the_start(tmp_path: Path) -> None:
    settings: dict[str, Any] = TINY | {"scenario": "simple", "save_dir": str(tmp_path), "report_every": 4}
    short = counterpoint.train(num_episodes=40, exp_name="short", **settings)
    with pytest.raises(UsageError, match=r"--num-episodes 20 is fewer than the 40"):
        counterpoint.resume(short.path, num_episodes=20)
    stopped = Listener(after=2, act=lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(experiment.Interrupted):
        counterpoint.resume(short.path, stopped, num_episodes=72)
    counterpoint.resume(short.path)  # it remembers that it is to be longer
    assert_same_run(short.path, counterpoint.train(num_episodes=72, exp_name="long", **settings).path)


def test_divergence_names_agent_quantity_and_step_and_leaves_a_good_checkpoint(tmp_path: Path) -> None:
    run = counterpoint.train(scenario="simple", num_episodes=48, save_dir=str(tmp_path), exp_name="once", **TINY)
    before = run.load()
    settings = configs.override(configs.from_dict(run.config), lr=1e9, num_episodes=96)
    run.rewrite_config(configs.to_dict(settings))
    with pytest.raises(experiment.Diverged) as caught:
        experiment.resume(run.path)
    message = str(caught.value)
    assert message.startswith("the actor")
    assert "of agent_0 became infinite or NaN by step 1" in message
    assert "the last checkpoint is still good" in message
    assert run.divergence() == message
    after = run.load()
    assert before
    assert after
    assert after.step == before.step
    assert all(np.isfinite(value).all() for value in after.state.values() if value.dtype == np.float32)


def test_divergence_finds_the_one_bad_agent() -> None:
    good = {"actor": np.ones((2, 3), bool), "critic": np.ones((2, 3), bool)}
    program = SimpleNamespace(env=SimpleNamespace(spec=make("simple_spread").spec), num_seeds=2)
    config = configs.override(configs.Config(), seed=7)
    job = SimpleNamespace(program=program, config=config, run=SimpleNamespace(load=lambda: None))
    loop = SimpleNamespace(step=np.array([500, 600]))
    refuse: Callable[..., None] = getattr(experiment._refuse_divergence, "__wrapped__", experiment._refuse_divergence)
    refuse(job, good, loop)
    good["critic"][1, 2] = False
    with pytest.raises(
        experiment.Diverged, match=r"the critic of agent_2 \(seed 8\) .* by step 600; there is no checkpoint yet"
    ):
        refuse(job, good, loop)


def test_divergence_of_shared_parameters_names_an_agent_that_has_them() -> None:
    spec = make("simple_tag").spec
    program = SimpleNamespace(env=SimpleNamespace(spec=spec), num_seeds=1)
    config = configs.override(configs.Config(), share="role")
    job = SimpleNamespace(program=program, config=config, run=SimpleNamespace(load=lambda: None))
    refuse: Callable[..., None] = getattr(experiment._refuse_divergence, "__wrapped__", experiment._refuse_divergence)
    flags = {"actor": np.array([[True, False]]), "critic": np.ones((1, 1), bool)}
    with pytest.raises(experiment.Diverged, match="the actor of agent_0 became infinite"):
        refuse(job, flags, SimpleNamespace(step=np.array([500])))


def test_finite_flags_each_part_and_agent() -> None:
    from counterpoint.algos.maddpg import Agent

    leaf = np.zeros((1, 2, 3), np.float32)
    bad = leaf.copy()
    bad[0, 1, 2] = np.nan
    agents = Agent(actor=leaf, critic=bad, target_actor=leaf, target_critic=leaf, actor_opt=leaf, critic_opt=leaf)  # pyright: ignore
    flags = jax.device_get(experiment._finite(agents))
    assert flags["actor"].all()
    np.testing.assert_array_equal(flags["critic"], [[True, False]])


def test_finite_flags_the_learner_of_a_league_where_agents_share_one_critic() -> None:
    env = make("simple_tag")
    algo = with_league(coma.make(coma.Config(num_units=4), env.spec), env.spec, League(2, 1, 0.5, "uniform"))
    agents = jax.tree.map(lambda leaf: np.zeros((1, *leaf.shape), leaf.dtype), jax.eval_shape(algo.init, prng.key(0)))
    bad = agents.learner._replace(critic=jax.tree.map(lambda leaf: leaf * np.nan, agents.learner.critic))
    flags = jax.device_get(experiment._finite(agents._replace(learner=bad)))
    assert flags["actor"].shape == (1, 4)
    assert flags["actor"].all()
    np.testing.assert_array_equal(flags["critic"], [[False]])


def test_a_full_disk_is_one_sentence_and_the_run_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = TINY | {"scenario": "simple", "num_episodes": 48, "save_dir": str(tmp_path), "exp_name": "full"}
    real, calls = os.replace, itertools.count()

    def refuse(source: Any, target: Any) -> None:
        if str(tmp_path) in str(target) and next(calls) >= 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(UsageError, match="the disk is full: free some space, then resume the run") as caught:
        counterpoint.train(**settings)
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    counterpoint.resume(tmp_path / "full")
    assert_same_run(tmp_path / "full", trained_run().path)


def test_training_outside_the_main_thread_works() -> None:
    """Where signals cannot be had."""
    with_stop = []

    def look() -> None:
        with experiment._stop_signals() as stop:
            with_stop.append(stop.is_set())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert with_stop == [False]


def test_settings_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for settings, words in [
        ({"save_dir": str(file / "runs")}, r"file/runs/simple-maddpg-seed0 cannot be written \(Not a directory\)"),
        ({"plots_dir": str(file / "plots")}, r"--plots-dir .*file/plots cannot be made \(Not a directory\)"),
        ({"devices": 2, "batch_size": 65}, r"--devices 2 does not divide both .* --batch-size 65: choose --devices 1"),
        ({"devices": 64}, r"--devices 64 is more than there are: start a new process or choose --devices 2"),
        ({"buffer_size": 2 * 10**9, "num_episodes": 10**9}, r"GiB, and this machine has .*: choose a smaller --buffer-size"),
    ]:
        with pytest.raises(UsageError, match=words):
            counterpoint.train(**TINY | {"save_dir": str(tmp_path / "never")} | settings)
    assert not (tmp_path / "never").exists()


def test_resolved_settings_are_complete_and_resolve_to_themselves() -> None:
    config = configs.from_dict(trained_run().config)
    assert program.prepare(config).config == config
    assert config.training.devices == 1
    assert config.world.max_episode_len == 25
    quick = configs.override(configs.Config(), num_episodes=100, num_seeds=2)
    resolved = program.prepare(quick).config
    assert resolved.training.warmup == 200, "a tenth of 2500 steps, in whole rollouts of 100"
    assert resolved.evaluation.report_every == 10
    assert resolved.training.devices == 2


def test_rows_report_every_agent_team_and_figure() -> None:
    rows = trained_run().rows()
    assert [row["episode"] for row in rows] == list(range(4, 49, 4)), "a short run reports ten times at least"
    last = rows[-1]
    for name in ("team/good", "return/agent_0", "eval/team/good", "eval/return/agent_0", "critic_loss/agent_0", "q/agent_0"):
        assert isinstance(last[name], float), name
        assert np.isfinite(last[name]), name
    assert last["team/good"] == last["return/agent_0"] == last["return_sum"]
    assert last["length"] == 25
    assert 0 <= last["eval/action_variation/agent_0"] <= 1
    assert not any(name.startswith(("eval/at_bound", "eval/message_variation")) for name in last), "it has no such actions"
    assert np.isnan(rows[0]["critic_loss/agent_0"]), "nothing was learnt while warming up"


@pytest.fixture
def two_seeds(tmp_path: Path) -> Run:
    run = runs.create(tmp_path, "two", {})
    for episode, seed in itertools.product((10, 20), range(5)):
        run.append_metrics({"step": 25 * episode, "episode": episode, "seed": seed, "team/good": -(seed**2) - 100.0 / episode})
    return run


def test_several_seeds_end_in_mean_iqm_and_interval(two_seeds: Run) -> None:
    values = [-(seed**2) - 5.0 for seed in range(5)]
    expected = stats.summary(values)
    table = markdown_table(*last_report(two_seeds.rows()))
    assert (
        f"| training return of good | {expected.mean:.2f} | {expected.iqm:.2f} | {expected.low:.2f} … {expected.high:.2f} | 5 |"
        in table
    )
    assert expected.iqm == pytest.approx(-(1 + 4 + 9) / 3 - 5)
    assert "IQM" in table
    assert "95 % interval" in table


def test_tensorboard_gets_every_row(two_seeds: Run) -> None:
    pytest.importorskip("tensorboardX")
    config = configs.override(configs.Config(), tensorboard=True)
    with progress.sinks(two_seeds, config) as send:
        for row in two_seeds.rows():
            send({**row, "critic_loss/agent_0": float("nan")})
    events = sorted((two_seeds.path / "tensorboard").glob("seed*/events*"))
    assert len(events) == 5
    data = events[0].read_bytes()
    assert data.count(b"team/good") == 2
    assert b"critic_loss" not in data, "what is not a number is left out"


def test_wandb_is_offline_unless_told(two_seeds: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[dict[str, Any]] = []
    logged: list[Any] = []

    def init(**settings: Any) -> Any:
        begun.append(settings)
        return SimpleNamespace(log=logged.append, finish=lambda: logged.append("finished"))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))  # pyright: ignore[reportArgumentType]
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with progress.sinks(two_seeds, configs.override(configs.Config(), wandb=True, num_seeds=2)) as send:
        send({"step": 5, "seed": 1, "team/good": -2.0})
    assert begun[0]["mode"] == "offline"
    assert begun[0]["name"] == "two"
    assert logged == [{"seed1/step": 5, "seed1/team/good": -2.0}, "finished"]


@pytest.mark.parametrize(("option", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_missing_extra_is_said_before_training(option: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=rf"--{option} needs {package}.*pip install 'counterpoint\[{option}\]'"):
        counterpoint.train(**TINY | {option: True, "save_dir": str(HOME / "never")})
    assert not (HOME / "never").exists()


@pytest.mark.parametrize("columns", [60, 120])
def test_a_terminal_gets_a_bar(columns: int) -> None:
    """On a pseudo-terminal: `Console` draws with control codes and still says its sentences."""
    import pty

    program = "\n".join(
        [
            "from pathlib import Path",
            "from counterpoint import config, envs",
            "from counterpoint.training import progress",
            "console = progress.Console()",
            "settings = config.override(config.Config(), num_episodes=10)",
            "console.start(Path('runs/x'), settings, envs.make('simple').spec)",
            "console.report({'team/good': -3.25})",
            "console.update(2, 40, 1.0)",
            "console.update(5, 123456, 2.0)",
            "console.say('a [b] sentence')",
            "console.end()",
        ]
    )
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=follower, stderr=follower, env=os.environ | {"COLUMNS": str(columns)}
    )
    os.close(follower)
    output = b""
    try:
        while chunk := os.read(leader, 4096):
            output += chunk
    except OSError:
        pass  # the other end is closed
    assert process.wait() == 0, output
    text = output.decode()
    assert "simple: 1 agent, maddpg, 10 episodes → runs/x" in text
    assert "\x1b[" in text
    assert "50%" in text
    assert "episode 5/10  good -3.25" in text
    assert "a [b] sentence" in text
    assert "…" not in text, "the times are whole"


def test_a_run_that_ends_with_its_warmup_says_that_it_learned_nothing(tmp_path: Path) -> None:
    said: list[str] = []

    class Ear(progress.Progress):
        def say(self, sentence: str) -> None:
            said.append(sentence)

    settings = TINY | {"scenario": "simple", "num_episodes": 4, "warmup": 10_000, "save_dir": str(tmp_path)}
    counterpoint.train(progress=Ear(), **settings)
    assert any("the policy is untrained" in sentence for sentence in said)


def test_the_first_line_names_the_tuned_preset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Enough(Exception):
        pass

    class Opening(progress.Console):
        """Stops the run where it would begin to compile."""

        def start(self, *about: Any) -> None:
            super().start(*about)
            raise Enough

    def first_line(**settings: Any) -> str:
        with pytest.raises(Enough):
            counterpoint.train(progress=Opening(), save_dir=str(tmp_path), **TINY | settings)
        return capsys.readouterr().out.splitlines()[0]

    assert "--preset tuned-simple)" in first_line(scenario="simple")
    assert "--preset tuned-tennis)" in first_line(scenario="tennis"), "its own preset is where training starts, not a choice"
    assert "--preset" not in first_line(preset="tuned-simple", warmup=60)
    other = first_line(preset="tuned-simple", algorithm="masac")
    assert "(masac learns with settings of its own, not with those of --preset tuned-simple)" in other
