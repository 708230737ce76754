"""Whatever the command line or a settings file holds, the answer is one sentence, before anything large is allocated."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli import call as call

from counterpoint import config as configs
from counterpoint import runs
from counterpoint.core.errors import UsageError
from counterpoint.external import adapters
from counterpoint.runs import files
from hostile_lines import LINES
from tiny import trained_run


@pytest.mark.parametrize("line", LINES, ids=[line[:60] for line in LINES])
def test_a_value_that_no_run_can_hold_is_one_sentence(line: str, call: Any) -> None:
    result = call(line)
    assert result.code == 2, result.out
    assert result.err.startswith("counterpoint: ")
    assert result.err.count("\n") == 1
    assert len(result.err) < 1500


def refusal(act: Callable[[], object]) -> str:
    """Returns the sentence with which something is refused, or nothing if it is not."""
    try:
        act()
    except UsageError as error:
        return str(error)
    return ""


ODD = [
    *(None, True, -1, 5, 10**9, 10**400, 0.5, float("nan"), float("inf"), -1e300),
    *("", "x\x1b[2J", "a\0b", [], [1], ["a=b"], {}, {"a": 1}),
]


@pytest.mark.parametrize("name", [name for name in configs.homes_of(configs.Config()) if name not in configs.GROUPS])
def test_every_setting_of_a_file_with_an_odd_value_is_used_or_refused_in_one_sentence(name: str) -> None:
    config = configs.Config()
    home = configs.homes_of(config)[name]
    for value in ODD:
        data = json.loads(json.dumps(configs.to_dict(config)))
        (data[home] if home else data)[name] = value
        said = refusal(lambda data=data: configs.from_dict(data))
        assert "\n" not in said, value
        assert "\x1b" not in said, value
        assert len(said) < 600, value


@pytest.mark.parametrize("value", [None, 5, "x", [], [1], {"a": {"b": 1}}])
@pytest.mark.parametrize("group", configs.GROUPS)
def test_every_group_with_an_odd_value_is_refused_in_one_sentence(group: str, value: Any) -> None:
    data = json.loads(json.dumps(configs.to_dict(configs.Config())))
    data[group] = value
    with pytest.raises(UsageError, match=r"config.json does not fit"):
        configs.from_dict(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(["scenario_args", "teams", "env", "lr", "seed", "num_agents", "code", "algorithm", "flavour"]), json_values
)
def test_settings_of_any_kind_never_end_in_a_traceback(name: str, value: Any) -> None:
    data = json.loads(json.dumps(configs.to_dict(configs.Config())))
    home = configs.homes_of(configs.Config())[name]
    (data[home] if home else data)[name] = value
    if isinstance(value, str) and name == "algorithm":
        value = value.replace(":", "")  # an address would be imported: trust is asked for that elsewhere
        (data[home] if home else data)[name] = value
    assert "\n" not in refusal(lambda: configs.from_dict(data).world._arguments())


STRANGERS = ["play {}", "benchmark {}", "resume {}", "train --restore --load-dir {}", "train --display --load-dir {}"]


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A finished run that says its environment is a shell command."""
    path = tmp_path / "stranger"
    shutil.copytree(trained_run().path, path)
    facts = json.loads((path / "config.json").read_text())
    facts["world"] |= {"env": "subprocess:run", "scenario_args": [f"args=touch {tmp_path / 'proof'}", "shell=True"]}
    facts.pop(files.SEAL)
    (path / "config.json").write_text(json.dumps(files.sealed(facts)))
    return path


@pytest.mark.parametrize("line", STRANGERS)
def test_a_run_of_a_stranger_executes_nothing(line: str, stranger: Path, call: Any, tmp_path: Path) -> None:
    result = call(line.format(stranger))
    assert result.code == 2
    assert "would execute code (--env subprocess:run), and you did not make this run on this machine" in result.err
    assert result.err.count("\n") == 1
    trusted = call(f"{line.format(stranger)} --trust")
    assert trusted.code in (0, 2)
    if trusted.code:
        assert "--env subprocess:run is not called, because nothing says that it makes an environment" in trusted.err
    assert not (tmp_path / "proof").exists()


def test_a_run_of_a_stranger_can_be_read(stranger: Path, call: Any, tmp_path: Path) -> None:
    for line in ("plot {} --out a.png", "compare {} --out c", "export {} --format safetensors --out e", "verify {}"):
        result = call(line.format(stranger))
        assert result.code == 0, result.err
    assert "names code: env subprocess:run; made by you on this machine: no" in result.out
    assert "stranger" in call(f"runs --save-dir {tmp_path}").out
    assert not (tmp_path / "proof").exists()


CALLABLES = ["subprocess:run", "os:system", "builtins:exec", "subprocess:Popen", "numpy:fromfile", "pickle:loads"]


@pytest.mark.parametrize("name", CALLABLES)
def test_what_does_not_make_an_environment_is_never_called(name: str) -> None:
    with pytest.raises(UsageError, match="is not called, because nothing says that it makes an environment"):
        adapters.load_factory(name)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PettingZoo's games
def test_factories_of_environments_are_called(tmp_path: Path) -> None:
    import gymnasium
    import mpe2.simple_v3
    import pettingzoo.classic.rps_v2

    source = tmp_path / "lazily.py"
    source.write_text(
        "def make():\n    import gymnasium\n    return gymnasium.make('CartPole-v1')\nfrom subprocess import run\n"
    )
    assert adapters.makes_environment(gymnasium.make, "gymnasium:make")
    assert adapters.makes_environment(mpe2.simple_v3.parallel_env, "mpe2.simple_v3:parallel_env")
    assert adapters.makes_environment(pettingzoo.classic.rps_v2.env, "x:env")
    assert callable(adapters.load_factory(f"{source}:make"))
    with pytest.raises(UsageError, match="is not called"):
        adapters.load_factory(f"{source}:run")


@pytest.mark.parametrize("name", ['a,"b"\nc', "\x1b[31mred", "<script>", "|x|", "$\\frac$", "ü" * 200])
def test_names_of_agents_are_shown_escaped(name: str, call: Any, tmp_path: Path) -> None:
    config = {"algorithm": name, "world": {"scenario": name, "env": ""}, "training": {"num_episodes": 2, "num_seeds": 1}}
    run = runs.create(tmp_path, "odd", config)
    for episode in (1, 2):
        run.append_metrics({"step": 25 * episode, "episode": episode, "seed": 0, f"team/{name}": 1.5, "team/good": 2.0})
    for line in (f"runs --save-dir {tmp_path}", f"plot {run.path} --out a.png", f"compare {run.path} --out c"):
        result = call(line)
        assert result.code in (0, 2), result.err
        assert "\x1b" not in result.out + result.err
        assert result.err.count("\n") <= 1


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"episode,seed,team/good\n1,0,2\n",
        b"step,episode,seed,team/good\n\xff,\xfe,x,y\n",
        b"step,episode,seed,team/good\n1,1,0," + b"9" * 200_000 + b"\n25,1,0,2.5\n",
        b"step,episode,seed,team/good\n1,nan,inf,-inf\n",
        b"step,step,seed,team/good\n1,2,0,3\n",
    ],
)
def test_an_odd_table_of_metrics_ends_no_command_in_a_traceback(text: bytes, call: Any, tmp_path: Path) -> None:
    config = {
        "algorithm": "maddpg",
        "world": {"scenario": "simple", "env": ""},
        "training": {"num_episodes": 2, "num_seeds": 1},
    }
    run = runs.create(tmp_path, "odd", config)
    run.metrics_path.write_bytes(text)
    for line in (
        f"runs --save-dir {tmp_path}",
        f"plot {run.path} --out a.png",
        f"compare {run.path} --out c",
        f"verify {run.path}",
    ):
        result = call(line)
        assert result.code in (0, 2), line
        assert result.err.count("\n") <= 1, result.err
