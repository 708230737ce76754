"""The command line prints and writes what it should, and refuses wrong usage in one sentence."""

import inspect
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import counterpoint
from counterpoint import config as configs
from counterpoint import presets
from counterpoint.cli import commands, main, registry
from counterpoint.core.errors import UsageError
from tiny import HOME, tiny_words, trained_run


class Result:
    """The exit code and the output of a command."""

    def __init__(self, code: Any, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Returns a function that runs a command line in an empty folder: call("train --lr 0.1") → Result."""
    monkeypatch.chdir(tmp_path)

    def run(line: str | list[str]) -> Result:
        words = line.split() if isinstance(line, str) else line
        monkeypatch.setattr(sys, "argv", ["counterpoint", *words])
        try:
            code: Any = main.main() or 0
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return Result(code, said.out, said.err)

    return run


REFUSED = {
    "trian": "unknown command 'trian'; perhaps train?",
    "train --preset dmo": "unknown preset 'dmo' (perhaps demo?); known are demo",
    "train --scenario simple_sprad": "unknown scenario 'simple_sprad' (perhaps simple_spread?)",
    "train --lr 0": "--lr must be above 0, not 0.",
    "train --lr nan": "--lr must be above 0, not nan.",
    "train --clip nan": "--clip must be at least 0, not nan.",
    "train --gamma 1.5": "--gamma must be from 0 to 1, not 1.5.",
    "train --num-episodes 0": "--num-episodes must be at least 1, not 0.",
    "train --buffer-size 100": "--buffer-size must be at least 1024, not 100.",
    "train --num-envs 3": "--num-envs 3 does not divide --update-every 100: choose --update-every 3 or a multiple of it.",
    "train --num-agents 3": "simple always has 1 agent: leave out --num-agents 3.",
    "train --num-adversaries 1": "simple always has 0 adversaries: leave out --num-adversaries 1.",
    "train --scenario simple_crypto --num-adversaries 2": "simple_crypto always has 1 adversary: leave out --num-adv",
    "train --scenario simple_tag --num-agents 3": "--num-adversaries 3 leaves no good agent among 3: choose fewer.",
    "train --scenario-args N": "scenario argument 'N' must have the form name=value, such as N=5.",
    "train --scenario-args size=3": "simple has no argument 'size'",
    "train --scenario simple_spread --scenario-args N=zero": "N must be a whole number of at least 1, not 'zero'.",
    "train --scenario simple_spread --scenario-args N=-1": "N must be a whole number of at least 1, not -1.",
    "train --restore --display": "--restore, --display and --benchmark exclude each other: choose one of them.",
    "train --restore --save-dir nowhere": "nowhere/simple-maddpg-seed0 is not a run, it has no config.json: check the path",
    "train --display --load-dir nowhere": "nowhere is not a run, it has no config.json: check the path",
    "train --exp-name a/b --plots-dir=": "exp_name must be the name of a folder, without slashes, not 'a/b'",
    "train --devices 64": "--devices 64 is more than there are: start a new process or choose --devices 2.",
    "resume nowhere": "nowhere is not a run, it has no config.json: check the path",
    "resume . --num-episodes -1": "--num-episodes must be at least 0, not -1.",
    "play nowhere": "nowhere is not a run, it has no config.json: check the path",
    "play simple --episodes 0": "--episodes must be at least 1, not 0.",
    "play simple --args n=3": "simple has no argument 'n'",
    "benchmark nowhere": "nowhere is not a run, it has no config.json: check the path",
    "benchmark . --benchmark-iters 0": "--benchmark-iters must be at least 1, not 0.",
    "export nowhere": "nowhere is not a run, it has no config.json: check the path",
    "plot": "name at least one run to plot; `counterpoint runs` lists them.",
    "plot nowhere": "nowhere is not a run, it has no config.json: check the path",
}


@pytest.mark.parametrize("line", REFUSED)
def test_wrong_usage_is_one_sentence_and_exit_code_2(line: str, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.training.train._train", lambda job: pytest.fail("this should not have trained"))
    result = call(line)
    assert result.code == 2
    assert result.err.startswith(f"counterpoint: {REFUSED[line]}")
    assert result.err.count("\n") == 1, "one line, no traceback"
    assert list(Path().iterdir()) == []


PARSER = {
    "train --scenari simple_tag": ("Unrecognized options", "perhaps you meant --scenario;"),
    "train --lr fast": ("--lr", "fast"),
    "train --lr": ("--lr", "expected"),
    "train --flavour atari": ("--flavour", "mpe2", "openai"),
    "resume": ("the run's folder", "counterpoint resume --help"),
    "play simple --policy best": ("--policy", "trained", "random"),
    "envs now": ("Unrecognized", "now"),
}


@pytest.mark.parametrize(("line", "words"), PARSER.items())
def test_what_the_parser_refuses_is_one_sentence_too(line: str, words: tuple[str, ...], call: Any) -> None:
    result = call(line)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("counterpoint: ")
    assert result.err.count("\n") == 1
    for word in words:
        assert word.lower() in result.err.lower()


@pytest.mark.parametrize("line", PARSER)
def test_sentences_do_not_depend_on_how_the_parser_draws(line: str, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sentence comes out of a narrow terminal, and of a parser whose boxes look different or cannot be drawn."""
    expected = call(line).err
    monkeypatch.setenv("COLUMNS", "40")
    assert call(line).err == expected
    for name in ("box", "hr", "rows", "cols"):
        monkeypatch.setattr(f"tyro._fmtlib.{name}", None)
    result = call(line)
    assert (result.code, result.err) == (2, expected)


def test_a_refusal_that_the_parser_words_itself_keeps_its_exit_code(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event of a future tyro, or a tyro without events: its own text is better than none."""
    monkeypatch.setattr("counterpoint.cli.parsing._sentence", lambda *_: "")
    unknown_event = call("resume")
    monkeypatch.setattr("counterpoint.cli.parsing.events", None)
    no_events = call("resume")
    for result in (unknown_event, no_events):
        assert result.code == 2
        assert "The run's folder" in result.err
        assert "Traceback" not in result.err


def test_options_of_every_group_are_suggested(call: Any) -> None:
    for wrong, right in {
        "batch-sise": "batch-size",
        "gama": "gamma",
        "save-rat=3": "save-rate",
        "plots-dri": "plots-dir",
    }.items():
        assert f"; perhaps you meant --{right};" in call(f"train --{wrong}").err
    for option in ("critic attention", "agents-per-sample 2"):
        other = call(f"train --algorithm masac --{option}").err
        name = option.split()[0]
        assert f"; --{name} is an option of maddpg, matd3, not of masac;" in other, "it exists elsewhere, and ddpg refuses it"
    assert "; --noise is an option of maddpg, ddpg, matd3, not of mappo;" in call("train --algorithm mappo --noise ou").err
    assert "perhaps you meant --run" not in call("resume somewhere --run x").err, "the run is given by position, not as --run"


def test_settings_that_refuse_themselves_come_out_as_one_sentence(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A settings class raises while the parser constructs it."""

    def refuse(self: Any) -> None:
        if self.seed == 13:
            raise UsageError("seed 13 is unlucky: choose another.")

    monkeypatch.setattr(configs.Training, "__post_init__", refuse, raising=False)
    monkeypatch.setattr(configs.Training, "__init__", _calling(configs.Training.__init__, refuse))
    result = call("train --seed 13")
    assert result.code == 2
    assert result.err == "counterpoint: seed 13 is unlucky: choose another.\n"


def _calling(init: Any, after: Any) -> Any:
    def both(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        after(self)

    return both


def test_a_newer_format_and_a_strange_config_are_refused(call: Any, tmp_path: Path) -> None:
    for change, words in [
        ({"format": 99}, "in format 99"),
        ({"colour": "red"}, "config.json does not fit this version of counterpoint: there is no setting 'colour'"),
        ({"algorithm": "dqn"}, "unknown algorithm 'dqn'; known are "),
    ]:
        folder = tmp_path / "other"
        shutil.copytree(trained_run().path, folder)
        settings = json.loads((folder / "config.json").read_text())
        del settings["sha256"]  # as somebody who edits the file on purpose
        (folder / "config.json").write_text(json.dumps(settings | change))
        result = call("resume other")
        assert result.code == 2
        assert words in result.err
        assert result.err.count("\n") == 1
        shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_an_unwritable_folder_is_one_sentence(call: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    result = call("train --save-dir runs")
    assert result.code == 2
    assert "cannot be written (Permission denied)" in result.err


def test_a_file_where_a_folder_should_be_is_one_sentence(call: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for line in ("train --plots-dir file/x", "train --save-dir file/x --plots-dir="):
        result = call(line)
        assert result.code == 2
        assert result.err.count("\n") == 1
        assert "Not a directory" in result.err


def test_help_is_in_groups_with_every_option_of_the_authors(call: Any) -> None:
    text = call("train --help").out
    for group in ("world", "training", "learning", "checkpoints", "evaluation"):
        assert f" {group} options " in text
    for option in (
        "scenario", "max-episode-len", "num-episodes", "num-adversaries", "good-policy", "adv-policy", "lr", "gamma",
        "batch-size", "num-units", "exp-name", "save-dir", "save-rate", "load-dir", "restore", "display", "benchmark",
        "benchmark-iters", "benchmark-dir", "plots-dir", "preset", "num-agents",
    ):  # fmt: skip
        assert f" --{option} " in text, option
    assert "--no-restore" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_defaults_are_the_authors() -> None:
    config = configs.Config()
    assert (config.world.scenario, config.training.num_episodes, config.training.batch_size) == ("simple", 60_000, 1024)
    assert (config.learning.lr, config.learning.gamma, config.learning.num_units) == (1e-2, 0.95, 64)
    assert (config.checkpoints.save_rate, config.evaluation.benchmark_iters) == (1000, 100_000)
    assert (config.evaluation.benchmark_dir, config.evaluation.plots_dir) == ("./benchmark_files/", "./learning_curves/")
    assert config.world.build().max_steps == 25


def test_usage_version_and_lists(call: Any) -> None:
    empty, asked = call(""), call("--help")
    assert (empty.code, asked.code) == (2, 0)
    assert empty.out == asked.out
    assert all(f"  {name} " in asked.out for name in main.COMMANDS)
    assert call("--version").out == f"counterpoint {counterpoint.__version__}\n"
    worlds = call("envs").out
    assert "| simple_tag | 3 adversary, agent | 16, 14 | 5, 5 |" in worlds
    listed = call("presets").out
    for name, config in presets.PRESETS.items():
        kind = f"--algorithm {config.algorithm} " * (config.algorithm != "maddpg")
        assert f"{name}\n    {kind}--scenario {config.world.scenario}" in listed
    assert call("runs").out == "there are no runs in ./runs yet; start one with: counterpoint train\n"


def test_other_options_override_the_preset(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[configs.Config] = []
    monkeypatch.setattr("counterpoint.training.train.train", lambda config, console: seen.append(config))
    assert call("train --preset authors-spread --lr 0.5").code == 0
    assert seen[0].world.flavour == "openai"
    assert seen[0].world.scenario == "simple_spread"
    assert seen[0].learning.lr == 0.5
    assert seen[0].preset == "authors-spread"


def test_an_environment_with_its_own_defaults_starts_from_them(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[configs.Config] = []
    monkeypatch.setattr("counterpoint.training.train.train", lambda config, console: seen.append(config))
    assert call("train --scenario tennis --updates 1").code == 0
    assert call("train --scenario simple").code == 0
    assert call("train --scenario tennis --preset authors-spread").code == 0
    assert [config.learning.noise for config in seen] == ["ou", "gaussian", "gaussian"]
    assert [config.training.updates for config in seen] == [1, 1, 1]
    assert call("train --scenario tennis --algorithm coma").code == 0
    with pytest.raises(UsageError, match="coma needs discrete actions"):
        seen[-1].check(seen[-1].world.build())


def test_numbers_of_agents_become_arguments_of_the_environment() -> None:
    def sizes(**settings: Any) -> tuple[int, int]:
        teams = configs.EnvSettings(**settings).build().spec.teams
        return teams.count("good"), teams.count("adversary")

    assert sizes(scenario="simple_spread", num_agents=5) == (5, 0)
    assert sizes(scenario="simple_tag", num_adversaries=5) == (1, 5)
    assert sizes(scenario="simple_tag", num_agents=6, num_adversaries=4) == (2, 4)
    assert sizes(scenario="simple_adversary", num_agents=4) == (3, 1)


def test_team_policies_determine_which_agents_a_critic_sees() -> None:
    config = configs.override(configs.Config(), scenario="simple_tag", adv_policy="ddpg")
    sees = config.sees(config.world.build().spec)
    assert sees.tolist() == [[True, False, False, False], [False, True, False, False], [False, False, True, False], [True] * 4]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lrr": 1.0}, "there is no setting 'lrr'; perhaps lr?"),
        ({"num_episodes": 10.5}, "num_episodes must be a whole number, not 10.5."),
        ({"num_episodes": True}, "num_episodes must be a whole number, not True."),
        ({"lr": "fast"}, "lr must be a number, not 'fast'."),
        ({"scenario_args": "N=5"}, r"scenario_args must be a list of words such as \['N=5'\], not 'N=5'."),
        ({"flavour": "atari"}, "flavour must be one of mpe2, openai, not 'atari'."),
        ({"world": 3}, "there is no setting 'world'"),
    ],
)
def test_settings_from_python_are_checked_too(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        counterpoint.train(**settings)


def test_settings_round_trip_through_json() -> None:
    config = configs.override(presets.preset("demo"), scenario_args=["N=5"], lr=1, good_policy="ddpg")
    assert configs.from_dict(json.loads(json.dumps(configs.to_dict(config)))) == config
    assert config.world.scenario_args == ("N=5",)


def test_train_restore_display_and_benchmark(call: Any, tmp_path: Path) -> None:
    """The authors use `train` for everything, with the name of the first training."""
    name = ["--exp-name", "first", "--save-dir", str(HOME / "runs")]
    path = trained_run().path
    result = call(["train", *name, "--restore"])
    assert (result.code, result.err) == (0, "")
    assert "is finished" in result.out
    result = call(["train", *name, "--display"])
    assert result.code == 0
    assert (path / "play.gif").read_bytes()[:3] == b"GIF"
    (path / "play.gif").unlink()
    result = call(["train", *name, "--benchmark", "--benchmark-iters", "500"])
    assert result.code == 0
    assert "| return of agent_0 |" in result.out
    assert "500 steps, greedy → benchmark_files/first.json" in result.out
    facts = json.loads((tmp_path / "benchmark_files" / "first.json").read_text())
    summary = facts["metrics"]["return of agent_0"]
    assert summary["count"] == 20
    assert summary["low"] <= summary["mean"] <= summary["high"] < 0


def test_play_runs_and_plot(call: Any, tmp_path: Path) -> None:
    path = trained_run().path
    result = call(f"play {path} --episodes 1 --out team.gif")
    assert result.out == "1 episode of simple → team.gif\n"
    result = call("play simple_tag --policy random --episodes 3 --out tag.gif")
    assert result.out == "3 episodes of simple_tag → tag.gif\n"
    assert all((tmp_path / name).read_bytes()[:3] == b"GIF" for name in ("team.gif", "tag.gif"))
    assert "| first | simple | maddpg | 48 |" in call(f"runs --save-dir {HOME / 'runs'}").out
    assert call(f"plot {path} --out curves.png").out == "1 run → curves.png\n"
    assert (tmp_path / "curves.png").stat().st_size > 5000
    result = call(f"play {path} --args N=3")
    assert (result.code, result.err.count("\n")) == (2, 1)


def test_divergence_is_exit_code_3(call: Any) -> None:
    result = call(["train", *tiny_words(scenario="simple", num_episodes=48, exp_name="wild", lr=1e9)])
    assert result.code == 3
    assert result.err.startswith("counterpoint: the ")
    assert " of agent_0 became infinite or NaN by step " in result.err
    assert result.err.count("\n") == 1


NEW_COMMAND = """
from counterpoint.cli.registry import command

@command("Trained runs")
def say_hello(name: str = "you") -> None:
    '''Greet somebody.

    Args:
        name: Name to greet.
    '''
    print(f"hello {name}")
"""


def test_a_new_command_is_one_file(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "say_hello.py").write_text(NEW_COMMAND)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(folder)])
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.delitem(sys.modules, "counterpoint.cli.commands.say_hello", raising=False)
    monkeypatch.setattr(main, "COMMANDS", registry.discover())
    assert call("say-hello --name Ada").out == "hello Ada\n"
    assert "Name to greet." in call("say-hello --help").out
    assert "perhaps you meant --name" in call("say-hello --nam Ada").err
    usage = call("--help").out
    assert re.search(r"^  say-hello +Greet somebody\.$", usage, re.MULTILINE)
    assert usage.index("Trained runs:") < usage.index("  say-hello") < usage.index("Distributed learning")


def test_every_command_has_its_own_module_and_a_full_help(call: Any) -> None:
    modules = {module.name for module in pkgutil.iter_modules(commands.__path__)}
    assert modules == set(main.COMMANDS)
    for name, command in main.COMMANDS.items():
        assert command.summary.endswith("."), name
        parameters = set(inspect.signature(command.function).parameters) - {"words"}
        documented = set(re.findall(r"^ {8}(\w+): [A-Z]", command.function.__doc__ or "", re.MULTILINE))
        assert documented == parameters, name


@pytest.mark.parametrize("line", ["--help", "runs", "runs --help", "play --help", "plot", "resume"])
def test_commands_that_need_no_jax_do_not_import_it(line: str, tmp_path: Path) -> None:
    program = (
        "import sys, counterpoint.cli.main as cli\n"
        f"sys.argv = ['counterpoint', *{line.split()!r}]\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'jax', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "[]"


def test_importing_the_package_does_not_wait_for_jax() -> None:
    program = "import sys, counterpoint, counterpoint.cli; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert {"train", "resume", "load", "make", "to_pettingzoo"} <= set(dir(counterpoint))
