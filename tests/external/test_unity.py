"""Unity builds in PettingZoo's words, played from scripts: by fakes, and by the real packages where they are installed."""

import inspect
import sys
import warnings
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import fake_unity
from counterpoint.core.errors import UsageError
from counterpoint.external import adapters, unity

with warnings.catch_warnings():  # PettingZoo's tests import one of its own games in a way it has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import parallel_api_test
from fake_unity import Endless, Kind, Says, Script, says


def world(kind: str, script: Script, monkeypatch: pytest.MonkeyPatch) -> unity.UnityWorld:
    """The adapter around a script: "mlagents" or "udacity", preceded by "real" for the packages themselves."""
    real, protocol = kind.startswith("real"), kind.removeprefix("real ")
    package = {"mlagents": "mlagents_envs", "udacity": "unityagents"}[protocol]
    if real and not fake_unity.installed(package):
        pytest.skip(f"{package} is not installed")
    if not real:
        fakes = {"mlagents": fake_unity.fake_mlagents, "udacity": fake_unity.fake_unityagents}[protocol]()
        for name, module in fakes.items():
            monkeypatch.setitem(sys.modules, name, module)
    makers: dict[str, Any] = {
        "mlagents": lambda: _fake(fake_unity.MLAgentsEnvironment, script),
        "udacity": lambda: _fake(fake_unity.UdacityEnvironment, script),
        "real mlagents": lambda: fake_unity.real_mlagents(script),
        "real udacity": lambda: fake_unity.real_unityagents(script),
    }
    return getattr(unity, protocol)(makers[kind]())


def _fake(environment: Any, script: Script) -> Any:
    environment.builds["a build"] = script
    return environment("a build")


mlagents = pytest.mark.parametrize("kind", ["mlagents", "real mlagents"])
udacity = pytest.mark.parametrize("kind", ["udacity", "real udacity"])
either = pytest.mark.parametrize("kind", ["mlagents", "real mlagents", "udacity", "real udacity"])


RACKET = Kind(continuous=2)
RALLY = [
    [says(7, 0.0), says(3, 0.5)],
    [says(3, 1.5, reward=0.25), says(7, 1.0, reward=-1.0)],
    [
        says(7, 2.0, reward=0.5, done=True),
        says(3, 2.5, reward=1.0, done=True, max_step_reached=True),
        says(7, 9.0),
        says(3, 9.5),
    ],
]
"""Numbers in no order; at the end one agent has lost and the other has run out of time, and both begin anew at once."""
PUSHES = {"Ball_0": np.array([0.1, 0.2]), "Ball_1": np.array([-3.0, 0.4])}


@mlagents
def test_an_episode_of_mlagents(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({"Ball": RACKET}, RALLY[:1], RALLY, [[says(12, 5.0), says(11, 6.0)]])
    env = world(kind, script, monkeypatch)
    assert env.possible_agents == ["Ball_0", "Ball_1"]
    assert env.action_space("Ball_0") == spaces.Box(-1, 1, (2,), np.float32)
    assert env.observation_space("Ball_1").shape == (2,)
    observations, infos = env.reset(seed=3)
    assert {name: seen.tolist() for name, seen in observations.items()} == {"Ball_0": [0.5, -0.5], "Ball_1": [0.0, 0.0]}
    assert infos == {"Ball_0": {}, "Ball_1": {}}
    observations, rewards, terminated, truncated, _ = env.step(PUSHES)
    assert observations["Ball_0"].tolist() == [1.5, -1.5]
    assert observations["Ball_0"].dtype == np.float32
    assert rewards == {"Ball_0": 0.25, "Ball_1": -1.0}
    assert not any(terminated.values()) and not any(truncated.values())  # noqa: PT018 — one fact
    np.testing.assert_allclose(
        script.received[0]["Ball"], [[-1.0, 0.4], [0.1, 0.2]], rtol=1e-6
    )  # in Unity's order, cut to range
    observations, rewards, terminated, truncated, _ = env.step(PUSHES)
    np.testing.assert_allclose(script.received[1]["Ball"], [[0.1, 0.2], [-1.0, 0.4]], rtol=1e-6)
    assert {name: seen.tolist() for name, seen in observations.items()} == {"Ball_0": [2.5, -2.5], "Ball_1": [2.0, -2.0]}
    assert rewards == {"Ball_0": 1.0, "Ball_1": 0.5}
    assert terminated == {"Ball_0": False, "Ball_1": True}
    assert truncated == {"Ball_0": True, "Ball_1": False}
    assert env.agents == []
    assert env.step({}) == ({}, {}, {}, {}, {})
    observations, _ = env.reset()  # other numbers, the same names
    assert {name: seen[0] for name, seen in observations.items()} == {"Ball_0": 6.0, "Ball_1": 5.0}
    env.close()


@udacity
def test_an_episode_of_udacity(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes with an end is seen after beginning anew: the last observation before stands in for it."""
    last = [says(3, 9.5, reward=1.0, done=True, max_step_reached=True), says(7, 9.0, reward=0.5, done=True)]
    script = Script({"Ball": RACKET}, RALLY[:1], [*RALLY[:2], last])
    env = world(kind, script, monkeypatch)
    assert env.possible_agents == ["Ball_0", "Ball_1"]
    assert env.action_space("Ball_0") == spaces.Box(-1, 1, (2,), np.float32)
    observations, _ = env.reset()
    assert observations["Ball_0"].tolist() == [0.5, -0.5]
    env.step(PUSHES)
    np.testing.assert_allclose(script.received[0]["Ball"], [[-1.0, 0.4], [0.1, 0.2]], rtol=1e-6)
    observations, rewards, terminated, truncated, _ = env.step(PUSHES)
    assert {name: seen.tolist() for name, seen in observations.items()} == {"Ball_0": [1.5, -1.5], "Ball_1": [1.0, -1.0]}
    assert rewards == {"Ball_0": 1.0, "Ball_1": 0.5}
    assert (terminated["Ball_1"], truncated["Ball_0"]) == (True, True)
    assert (terminated["Ball_0"], truncated["Ball_1"]) == (False, False)
    assert env.agents == []


@either
def test_who_has_ended_is_left_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agent 1 ends after a step and plays on by itself; its later rewards, ends and observations are nobody's."""
    anew = [says(1, 5.0)] if "mlagents" in kind else []
    script = Script(
        {"Ball": RACKET},
        [
            [says(0, 0.0), says(1, 0.1)],
            [says(0, 1.0), says(1, 1.1, done=True, reward=2.0), *anew],
            [says(0, 2.0, reward=3.0), says(1, 2.1, done=True, reward=8.0), *anew],
            [says(0, 3.0, reward=4.0, done=True), says(1, 3.1, reward=8.0)],
        ],
    )
    env = world(kind, script, monkeypatch)
    env.reset()
    _, rewards, terminated, _, _ = env.step(PUSHES)
    assert (rewards["Ball_1"], terminated, env.agents) == (2.0, {"Ball_0": False, "Ball_1": True}, ["Ball_0"])
    observations, rewards, *_ = env.step({"Ball_0": PUSHES["Ball_0"]})
    assert (list(observations), rewards) == (["Ball_0"], {"Ball_0": 3.0})
    np.testing.assert_allclose(script.received[1]["Ball"], [[0.1, 0.2], [0.0, 0.0]], rtol=1e-6)
    _, rewards, terminated, _, _ = env.step({"Ball_0": PUSHES["Ball_0"]})
    assert (rewards, terminated, env.agents) == ({"Ball_0": 4.0}, {"Ball_0": True}, [])


@either
def test_agents_that_ask_at_different_times(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agent 0 asks at every simulation step, agent 1 at every third: 0 repeats its action, rewards add up."""
    frames = [[says(0, k, reward=1.0), *([says(1, 10 + k, reward=5.0)] if k % 3 == 0 else [])] for k in range(7)]
    script = Script({"Ball": RACKET}, frames)
    env = world(kind, script, monkeypatch)
    env.reset()
    observations, rewards, *_ = env.step(PUSHES)
    assert rewards == {"Ball_0": 3.0, "Ball_1": 5.0}
    assert (observations["Ball_0"][0], observations["Ball_1"][0]) == (3.0, 13.0)
    assert [len(sent["Ball"]) for sent in script.received] == [2, 1, 1]
    np.testing.assert_allclose(script.received[2]["Ball"], [[0.1, 0.2]], rtol=1e-6)
    _, rewards, *_ = env.step(PUSHES)
    assert rewards == {"Ball_0": 3.0, "Ball_1": 5.0}


@mlagents
def test_an_action_waits_for_its_agent(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the second step begins agent 0 is not asking: the step lasts until it has been given its action, and answered."""
    frames = [[says(k, float(t)) for k in who] for t, who in enumerate(((0, 1), (0,), (1,), (0, 1), (0, 1), (0, 1), (0, 1)))]
    script = Script({"Ball": RACKET}, frames)
    env = world(kind, script, monkeypatch)
    env.reset()
    for value in (0.1, 0.2, 0.3):
        env.step({"Ball_0": [value, 0.0], "Ball_1": [0.0, value]})
    sent = [value for message in script.received for value in message["Ball"]]
    for value in (0.1, 0.2, 0.3):
        for action in ([value, 0.0], [0.0, value]):
            assert any(np.allclose(action, found) for found in sent), action


@mlagents
def test_branches_masks_sensors_and_groups(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"Walker": Kind(((2,), (1, 2, 2)), branches=(3, 2)), "Coin?team=1": Kind(branches=(4,))}
    seen = ([1, 2], [[[3, 4], [5, 6]]])
    frame = [
        Says("Walker", 0, seen, reward=1.0, group_reward=0.5, forbidden=(1, 3)),
        says(1, 0.0, "Coin?team=1", reward=2.0),
    ]
    script = Script(kinds, [frame] * 3)
    env = world(kind, script, monkeypatch)
    assert env.possible_agents == ["Coin_team_1_0", "Walker_0"]
    assert env.action_space("Walker_0") == spaces.MultiDiscrete([3, 2])
    assert env.action_space("Coin_team_1_0") == spaces.Discrete(4)
    observations, infos = env.reset()
    assert observations["Walker_0"].tolist() == [1, 2, 3, 4, 5, 6]
    assert infos["Walker_0"]["action_mask"].tolist() == [1, 0, 1, 0, 1]
    _, rewards, *_ = env.step({"Walker_0": np.array([2, 1]), "Coin_team_1_0": 3})
    assert rewards == {"Walker_0": 1.5, "Coin_team_1_0": 2.0}
    assert script.received[0] == {"Walker": [[2, 1]], "Coin?team=1": [[3]]}
    with pytest.raises(UsageError, match=r"Walker_0 cannot take action array\(\[3, 0\]\): give one of MultiDiscrete"):
        env.step({"Walker_0": np.array([3, 0]), "Coin_team_1_0": 3})
    with pytest.raises(UsageError, match="Coin_team_1_0 cannot take action 4: give one of Discrete"):
        env.step({"Walker_0": np.array([1, 0]), "Coin_team_1_0": 4})
    with pytest.raises(UsageError, match="Walker_0 has no action; step"):
        env.step({"Coin_team_1_0": 3})


@udacity
def test_brains_choices_and_the_academys_end(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"Goalie": Kind(branches=(4,)), "Striker": RACKET}
    frame = [says(0, 1.0, "Goalie"), says(1, 2.0, "Striker", reward=1.0)]
    script = Script(kinds, [frame] * 3, over_after=2)
    env = world(kind, script, monkeypatch)
    assert env.possible_agents == ["Goalie_0", "Striker_0"]
    assert env.action_space("Goalie_0") == spaces.Discrete(4)
    env.reset()
    actions = {"Goalie_0": 3, "Striker_0": np.array([0.5, 0.25])}
    *_, truncated, _ = env.step(actions)
    assert script.received[0] == {"Goalie": [[3]], "Striker": [[0.5, 0.25]]}
    assert not any(truncated.values())
    _, _, terminated, truncated, _ = env.step(actions)
    assert env.agents == []
    assert all(terminated.values())
    env.reset()
    assert env.agents == ["Goalie_0", "Striker_0"]


@either
def test_refusals(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    two = [says(0, 0.0), says(1, 1.0)]
    env = world(kind, Script({"Ball": RACKET}, [two], [two], [[*two, says(2, 2.0)]]), monkeypatch)
    with pytest.raises(UsageError, match=r"has not begun: call reset\(\) first"):
        env.step({})
    env.reset()
    with pytest.raises(UsageError, match="Ball_0 cannot take action"):
        env.step({"Ball_0": [0.0], "Ball_1": [0.0, 0.0]})
    with pytest.raises(UsageError, match="Ball has 3 agents where it began with 2: their number must not grow"):
        env.reset()
    frames = [[says(0, 0.0), says(1, 1.0)], *([says(0, 0.0)] for _ in range(unity.LONGEST_WAIT))]
    env = world(kind, Script({"Ball": RACKET}, frames), monkeypatch)
    env.reset()
    with pytest.raises(UsageError, match="Ball_1 has neither asked for a decision nor ended in 1000 simulation steps"):
        env.step({"Ball_0": [0.0, 0.0], "Ball_1": [0.0, 0.0]})


def test_builds_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Script({"Both": Kind(continuous=1, branches=(2,))}, [[says(0, 0.0, "Both")]])
    with pytest.raises(UsageError, match="Both has 1 continuous and 1 discrete actions at once: give it one kind only"):
        world("mlagents", both, monkeypatch)
    with pytest.raises(UsageError, match="Idle has no actions at all"):
        world("mlagents", Script({"Idle": Kind()}, [[says(0, 0.0, "Idle")]]), monkeypatch)
    with pytest.raises(UsageError, match="no agent of this Unity build asks for decisions"):
        world("mlagents", Script({"Ball": RACKET}, [[]]), monkeypatch)


@pytest.mark.parametrize("protocol", ["mlagents", "udacity"])
def test_a_file_is_started_on_a_port_of_its_own(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({"Ball": RACKET}, RALLY)
    world(protocol, script, monkeypatch)
    start = getattr(unity, protocol)
    first, second = (start("a build", seed=5)._backend.env.arguments for _ in range(2))
    assert first["seed"] == 5
    assert first["base_port"] > 1023
    assert first["base_port"] != second["base_port"]
    assert start("a build", base_port=6000)._backend.env.arguments["base_port"] == 6000
    if protocol == "mlagents":
        assert [channel.settings for channel in first["side_channels"]] == [{"time_scale": 20.0}]
    with pytest.raises(UsageError, match="seed can only be given with a file; this environment runs already"):
        start(start("a build")._backend.env, seed=5)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlagents_envs.base_env", None)
    monkeypatch.setitem(sys.modules, "unityagents.environment", None)
    with pytest.raises(UsageError, match=r"mlagents_envs cannot be imported \(.*\): docs/unity.md says how to install it"):
        unity.mlagents("a build")
    with pytest.raises(UsageError, match="unityagents cannot be imported"):
        unity.udacity("a build")
    monkeypatch.setattr(unity, "spaces", None)
    with pytest.raises(UsageError, match=r"need PettingZoo, which is not installed: pip install 'counterpoint\[unity\]'"):
        unity.mlagents("a build")


@either
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_pettingzoos_own_test(kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    parallel_api_test(world(kind, Endless(), monkeypatch), num_cycles=60)
    assert "Passed Parallel API test" in capsys.readouterr().out


def test_a_build_is_an_external_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `--env` sees it: three rackets in episodes of five steps, of which one ends by time."""
    for name, module in fake_unity.fake_mlagents().items():
        monkeypatch.setitem(sys.modules, name, module)
    address = f"{fake_unity.__file__}:endless_build"
    env = adapters.open_env(address, {})
    spec = adapters.spec_of(env, address, ())
    assert (spec.agents, spec.obs_sizes, [space.size for space in spec.action_spaces]) == (
        ("Ball_0", "Ball_1", "Ball_2"),
        (2,) * 3,
        [2] * 3,
    )
    copy = adapters.EnvCopy(env, spec, 100)
    copy.reset(seed=0)
    steps = [copy.step(np.full((3, 2), 0.5, np.float32)) for _ in range(5)]
    assert [done for *_, done in steps] == [False] * 4 + [True]
    next_obs, reward, terminated, _ = steps[-1]
    assert terminated.tolist() == [True, False, True]
    np.testing.assert_array_equal(next_obs, [[5.0, -5.0]] * 3)
    np.testing.assert_array_equal(reward, [1.0] * 3)
    copy.reset(seed=1)
    assert copy.alive.all()


@pytest.mark.parametrize("protocol", ["mlagents", "udacity"])
def test_the_fakes_have_the_signatures_of_the_real_ones(protocol: str) -> None:
    """Names and arguments are those of mlagents_envs 1.1.0 and unityagents 0.4.0, which no process can import both."""
    package = {"mlagents": "mlagents_envs", "udacity": "unityagents"}[protocol]
    if not fake_unity.installed(package):
        pytest.skip(f"{package} is not installed")
    if protocol == "mlagents":
        base, engine = (
            import_module(f"mlagents_envs.{name}") for name in ("base_env", "side_channel.engine_configuration_channel")
        )
        steps = ("DecisionStep", "TerminalStep", "DecisionSteps", "TerminalSteps")
        specs = ("ActionTuple", "ActionSpec", "ObservationSpec", "BehaviorSpec")
        pairs = [(getattr(fake_unity, name), getattr(base, name)) for name in (*steps, *specs)]
        pairs += [
            (fake_unity.MLAgentsEnvironment, import_module("mlagents_envs.environment").UnityEnvironment),
            (fake_unity.EngineConfigurationChannel, engine.EngineConfigurationChannel),
        ]
    else:
        pairs = [
            (fake_unity.UdacityEnvironment, import_module("unityagents").UnityEnvironment),
            (fake_unity.BrainInfo, import_module("unityagents.brain").BrainInfo),
        ]
    for fake, real in pairs:
        assert list(inspect.signature(fake).parameters) == list(inspect.signature(real).parameters), fake
        for name, method in vars(fake).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                wanted = [*inspect.signature(getattr(real, name)).parameters]
                assert wanted in ([*inspect.signature(method).parameters], ["args", "kwargs"]), name  # a decorator hides some
