"""Exports of every kind of team: what other programs read, and that nothing wrong is left behind."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime
import pytest
import safetensors.numpy

import counterpoint
import games
from counterpoint import config as configs
from counterpoint import runs
from counterpoint.cli import main
from counterpoint.core import numpy_policy, prng
from counterpoint.core.errors import UsageError
from counterpoint.core.trees import names_of
from counterpoint.policies import export, onnx_graph
from counterpoint.runs.folder import Run
from counterpoint.training.program import algorithm_of
from tiny import HOME


def untrained(folder: Path, **settings: Any) -> Run:
    """A run that has saved a policy of random numbers, of two seeds unless told otherwise."""
    config = configs.override(configs.Config(), **{"num_units": 8, "num_seeds": 2} | settings)
    env = config.world.build()
    algo = algorithm_of(config, env)
    shapes = jax.eval_shape(lambda: algo.policy(algo.init(prng.key(0))))
    rng = np.random.default_rng(0)
    tensors = {}
    for name, leaf, sign in zip(names_of(shapes), jax.tree.leaves(shapes), np.resize([1, 1, -1], 99), strict=False):
        numbers = np.abs(rng.normal(size=(config.training.num_seeds, *leaf.shape), scale=0.5)).astype(np.float32)
        tensors[name] = numbers if "variance" in name else numbers * np.float32(sign)
    run = runs.create(folder, "untrained", configs.to_dict(config))
    run.save_policy(tensors, {"step": 7, "episodes": 3})
    return run


@cache
def small() -> Run:
    """A run of one agent that several tests share."""
    return untrained(HOME / "exports", scenario="simple")


TEAMS: dict[str, dict[str, Any]] = {
    "heads": {"scenario": "simple_world_comm", "world_action": "one-hot", "norm": "batch", "flavour": "openai"},
    "continuous": {"scenario": "tennis", "norm": "layer"},
    "pushed": {"scenario": "simple_speaker_listener", "actions": "continuous", "temperature": 0.3},
    "by role": {"scenario": "simple_tag", "share": "role"},
    "twins": {"algorithm": "matd3", "scenario": "simple_speaker_listener"},
    "squashed": {"algorithm": "masac", "scenario": "simple_reference", "actions": "continuous", "norm": "layer"},
    "soft": {"algorithm": "masac", "scenario": "simple_world_comm"},
    "shared": {"algorithm": "coma", "scenario": "simple_speaker_listener", "share": "all"},
    "gaussian": {"algorithm": "mappo", "scenario": "tennis", "norm": "layer"},
    "clipped": {"algorithm": "mappo", "scenario": "simple_world_comm"},
    "independent": {"algorithm": "ippo", "scenario": "simple_tag", "share": "all"},
}
REMEMBERING: dict[str, dict[str, Any]] = {
    "shared": {"scenario": "simple_tag", "share": "all", "num_layers": 1},
    "squashed": {"algorithm": "masac", "scenario": "tennis", "num_layers": 3},
    "on-policy": {"algorithm": "coma", "scenario": "simple_speaker_listener"},
    "twins": {"algorithm": "matd3", "scenario": "simple_speaker_listener", "actions": "continuous"},
    "clipped": {"algorithm": "mappo", "scenario": "simple_speaker_listener"},
    "independent": {"algorithm": "ippo", "scenario": "tennis", "share": "role"},
}


def observations(team: Any, seed: int = 5) -> dict[str, np.ndarray]:
    spec, generator = team.env.spec, np.random.default_rng(seed)
    return {name: generator.normal(size=size) for name, size in zip(spec.agents, spec.obs_sizes, strict=True)}


@pytest.mark.parametrize("name", TEAMS)
def test_numpy_acts_as_the_policy_does(name: str, tmp_path: Path) -> None:
    run = untrained(tmp_path, **TEAMS[name])
    folder = counterpoint.export(run.path, format="numpy", seed_index=1)
    assert folder == run.path / "export" / "numpy"
    team, found = counterpoint.load(run, seed_index=1), numpy_policy.Policy.load(folder / "team.npz")
    assert {path.stem for path in folder.glob("*.npz")} == {*team.env.spec.agents, "team"}
    for seed in range(5):
        obs = observations(team, seed)
        for vectors in (False, True):
            wanted = team.act(obs, vectors=vectors)
            for agent, action in found.act(obs, vectors=vectors).items():
                np.testing.assert_allclose(action, wanted[agent], atol=1e-5)
            for agent in obs:
                alone = numpy_policy.Policy.load(folder / f"{agent}.npz").act({agent: obs[agent]}, vectors=vectors)
                np.testing.assert_allclose(alone[agent], wanted[agent], atol=1e-5)
    program = "import policy, numpy; t = policy.Policy.load('team.npz'); a, n = t.agents[0], t.obs_sizes[0]"
    said = subprocess.run(
        [sys.executable, "-c", f"{program}; print(*t.act({{a: numpy.zeros(n)}}, greedy=False))"],
        cwd=folder, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert said.stdout.split() == [team.env.spec.agents[0]]


@pytest.mark.parametrize(
    "name", ["heads", "pushed", "twins", "squashed", "soft", "shared", "gaussian", "clipped", "independent"]
)
def test_onnx_gives_the_worlds_actions_for_any_batch(name: str, tmp_path: Path) -> None:
    run = untrained(tmp_path, **TEAMS[name])
    folder = counterpoint.export(run, format="onnx", out=tmp_path / "out")
    team = counterpoint.load(run)
    spec = team.env.spec
    whole = onnxruntime.InferenceSession(folder / "team.onnx")
    obs = observations(team)
    feed = {f"{agent}.obs": seen[None].astype(np.float32) for agent, seen in obs.items()}
    said = dict(zip([out.name for out in whole.get_outputs()], whole.run(None, feed), strict=True))
    wanted = team.act(obs, vectors=True)
    for agent, space in zip(spec.agents, spec.action_spaces, strict=True):
        np.testing.assert_allclose(said[f"{agent}.action"][0], wanted[agent], atol=1e-5)
        alone = onnxruntime.InferenceSession(folder / f"{agent}.onnx")
        pair = np.repeat(feed[f"{agent}.obs"], 2, axis=0)
        action, outputs = alone.run(["action", "outputs"], {"obs": pair})
        np.testing.assert_allclose(action, np.stack([wanted[agent]] * 2), atol=1e-5)
        assert outputs.shape == (2, space.size)
        assert (f"{agent}.choice" in said) == hasattr(space, "heads")
    about = json.loads(whole.get_modelmeta().custom_metadata_map["about"])
    assert (about["agents"], about["step"], about["seed"]) == (list(spec.agents), 7, 0)


@pytest.mark.parametrize("name", REMEMBERING)
def test_recurrent_actors_remember_the_episode_elsewhere(name: str, tmp_path: Path) -> None:
    run = untrained(tmp_path, recurrent=True, **REMEMBERING[name])
    team, spec = counterpoint.load(run), counterpoint.load(run).env.spec
    plain = numpy_policy.Policy.load(counterpoint.export(run, format="numpy") / "team.npz")
    assert counterpoint.export(run, format="safetensors").is_dir()
    session = onnxruntime.InferenceSession(counterpoint.export(run, format="onnx") / "team.onnx")
    for _ in range(2):
        team.reset()
        plain.reset()
        feed = {f"{agent}.hidden": np.zeros((1, 8), np.float32) for agent in spec.agents}
        answers = []
        for _ in range(3):  # the same observation three times: only memory tells them apart
            obs = observations(team)
            wanted, found = team.act(obs, vectors=True), plain.act(obs, vectors=True)
            feed |= {f"{agent}.obs": seen[None].astype(np.float32) for agent, seen in obs.items()}
            said = dict(zip([out.name for out in session.get_outputs()], session.run(None, feed), strict=True))
            feed |= {f"{agent}.hidden": said[f"{agent}.next_hidden"] for agent in spec.agents}
            for agent in spec.agents:
                np.testing.assert_allclose(found[agent], wanted[agent], atol=1e-5)
                np.testing.assert_allclose(said[f"{agent}.action"][0], wanted[agent], atol=1e-5)
            answers.append(np.concatenate([said[f"{agent}.outputs"][0] for agent in spec.agents]))
        assert np.abs(answers[2] - answers[0]).max() > 1e-3


def test_an_environment_from_elsewhere_gets_what_its_spaces_say(tmp_path: Path) -> None:
    """A choice that counts from −1, two choices of which one counts from 1, and numbers with bounds of their own."""
    run = untrained(tmp_path, env=f"{games.__file__}:Zoo", num_seeds=1)
    team = counterpoint.load(run)
    found = numpy_policy.Policy.load(counterpoint.export(run, format="numpy") / "team.npz")
    env = games.Zoo()
    for seed in range(8):
        seen, _ = env.reset(seed=seed)
        wanted = team.act(seen)
        flat = {name: team.env.encode(i, seen[name]) for i, name in enumerate(env.agents)}
        actions = found.act(flat)
        assert [type(actions[name]) for name in env.agents] == [int, np.ndarray, np.ndarray]
        for name, action in actions.items():
            np.testing.assert_allclose(action, wanted[name], atol=1e-5)
    folder = counterpoint.export(run, format="onnx")
    (action,) = onnxruntime.InferenceSession(folder / "mixer.onnx").run(["action"], {"obs": flat["mixer"][None]})
    np.testing.assert_allclose(action[0], wanted["mixer"], atol=1e-5)
    assert action[0, 1] > 1 or action[0, 1] < -1


def test_safetensors_are_bare_arrays_of_true_sizes(tmp_path: Path) -> None:
    run = untrained(tmp_path, scenario="simple_speaker_listener", norm="batch")
    folder = counterpoint.export(run, format="safetensors")
    speaker = safetensors.numpy.load_file(folder / "speaker_0.safetensors")
    assert speaker["0.weight"].shape == (3, 8)
    assert speaker["2.weight"].shape == (8, 3)
    assert speaker["1.variance"].shape == (8,)
    team = safetensors.numpy.load_file(folder / "team.safetensors")
    assert len(team) == 2 * len(speaker)
    np.testing.assert_array_equal(team["speaker_0.0.weight"], speaker["0.weight"])
    assert team["listener_0.0.weight"].shape == (11, 8)


def test_deviations_are_exported_beside_the_means(tmp_path: Path) -> None:
    """A squashed actor of two numbers has four outputs; safetensors and NumPy keep them all."""
    run = untrained(tmp_path, algorithm="masac", scenario="simple", actions="continuous")
    folder = counterpoint.export(run, format="safetensors")
    size = counterpoint.load(run).env.spec.act_sizes[0]
    assert safetensors.numpy.load_file(folder / "agent_0.safetensors")["2.weight"].shape == (8, 2 * size)


def test_the_command_line_and_a_second_export_in_the_same_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", f"counterpoint export {small().path} --format onnx --out {tmp_path / 'out'}".split())
    main.main()
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["agent_0.onnx", "team.onnx"]
    assert said[2].startswith(f"→ {tmp_path / 'out'}; run on 128 observations, they differ from the policy by at most ")
    assert float(said[2].split()[-1]) < export.TOLERANCE
    (tmp_path / "out" / "__pycache__").mkdir()
    counterpoint.export(small(), format="numpy", out=tmp_path / "out")  # an export may replace another
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"agent_0.npz", "team.npz", "policy.py", "export.json"}


BREAKS: dict[str, Any] = {
    "numpy": (numpy_policy, "pack", lambda pack: lambda team: {k: v * 1.01 for k, v in pack(team).items()}),
    "safetensors": (numpy_policy, "to_world", lambda to_world: lambda team, action: to_world(team, action) + 1e-3),
    "onnx": (onnx_graph.Graph, "layer", lambda layer: lambda self, one, x: layer(self, one._replace(bias=one.bias + 1e-3), x)),
}  # fmt: skip


@pytest.mark.parametrize("format", BREAKS)
def test_a_wrong_export_is_noticed_and_leaves_nothing(format: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, name, wrong = BREAKS[format]
    monkeypatch.setattr(home, name, wrong(getattr(home, name)))
    with pytest.raises(
        UsageError, match=r"the exported agent_0 gives other (outputs|actions) for agent_0 than the policy does"
    ):
        counterpoint.export(small(), format=format, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_module_that_does_not_run_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("import jax")
    monkeypatch.setattr(numpy_policy, "__file__", str(tmp_path / "broken.py"))
    with pytest.raises(
        UsageError, match=r"the exported files do not run with NumPy alone: ModuleNotFoundError: import of jax halted"
    ):
        counterpoint.export(small(), format="numpy", out=tmp_path / "out")


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="format must be one of onnx, numpy, safetensors, not 'tflite'"):
        counterpoint.export(small(), format="tflite")
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(UsageError, match=r"holds thesis.txt, which is no part of an export: choose another --out"):
        counterpoint.export(small(), format="numpy", out=tmp_path)
    with pytest.raises(UsageError, match="choose another --out"):
        counterpoint.export(small(), format="numpy", out=tmp_path / "thesis.txt")
    with pytest.raises(UsageError, match=r"cannot write .*: choose another --out"):
        counterpoint.export(small(), format="numpy", out=tmp_path / "thesis.txt" / "below")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(
        UsageError, match=r"format onnx needs onnxruntime, which is not installed: pip install 'counterpoint\[export\]'"
    ):
        counterpoint.export(small(), format="onnx")


def test_networks_of_the_users_own_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("from counterpoint.core.nets import Model, init_mlp, mlp\n")
    with file.open("a") as more:
        more.write("model = Model(lambda key, inputs, outputs: init_mlp(key, inputs, (4,), outputs), mlp)\n")
    run = untrained(tmp_path, scenario="simple", model=f"{file}:model")
    with pytest.raises(UsageError, match="are not plain networks of ours: such a policy cannot be exported"):
        counterpoint.export(run, format="numpy")
    assert not (run.path / "export").exists()


def test_file_names_are_safe_and_distinct() -> None:
    names = ("a/b", "a?b", "team", "../x", "ok")
    assert export.stems_of(names) == ["a_b", "a_b-2", "team-2", "_x", "ok"]
