"""Every registered world obeys PettingZoo, and the particle worlds answer as mpe2 does, value by value and type by type."""

import importlib
import pickle
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.utils.conversions import parallel_to_aec

import counterpoint
from counterpoint import to_pettingzoo
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Discrete
from counterpoint.core.types import Step
from counterpoint.envs import WORLDS
from counterpoint.envs.mpe.scenario import Scenario
from counterpoint.envs.switch import Switch2

with warnings.catch_warnings():  # PettingZoo's tests import one of its own games in a way it has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import api_test, parallel_api_test

SCENARIOS = [name for name, world in WORLDS.items() if issubclass(world, Scenario)]
VARIANTS = [(name, {}) for name in WORLDS] + [(name, {"actions": "continuous"}) for name in SCENARIOS]
variants = pytest.mark.parametrize(("name", "arguments"), VARIANTS, ids=[" ".join([n, *a.values()]) for n, a in VARIANTS])


def mpe2_env(name, **arguments):
    version = {"simple_speaker_listener": 4, "simple_formation": 1, "simple_line": 1, "collect_treasure": 1}.get(name, 3)
    return importlib.import_module(f"mpe2.{name}_v{version}").parallel_env(**arguments)


def sampler(env, seed):
    """Random actions for the living, the same sequence for the same seed."""
    spaces_of = {agent: pickle.loads(pickle.dumps(env.action_space(agent))) for agent in env.possible_agents}
    for i, space in enumerate(spaces_of.values()):
        space.seed(seed + i)
    return lambda: {agent: spaces_of[agent].sample() for agent in env.agents}


def episode(env, seed=None, actions_seed=0):
    """All that one episode under random actions returned, the reset first."""
    record, sample = [env.reset(seed=seed)], sampler(env, actions_seed)
    while env.agents:
        record.append((*env.step(sample()), env.state()))
    return record


def equal(a, b):
    """Equal to the last bit and of equal type, through dicts and tuples."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return np.array_equal(a, b)


@variants
def test_pettingzoo_accepts_the_world(name, arguments):
    parallel_api_test(to_pettingzoo(name, **arguments), num_cycles=120)


# Opinions, not rules: PettingZoo lists by name the games that it excuses from them, mpe2's among these.
@pytest.mark.filterwarnings("ignore:Agent's (minimum|maximum) observation space value is:UserWarning")
@pytest.mark.filterwarnings("ignore:Agents have different observation space sizes:UserWarning")
@pytest.mark.filterwarnings("ignore:Observations are different shapes:UserWarning")
@pytest.mark.filterwarnings("ignore:Observation numpy array is all zeros:UserWarning")
@variants
def test_pettingzoo_accepts_the_world_turn_by_turn(name, arguments):
    api_test(parallel_to_aec(to_pettingzoo(name, **arguments)), num_cycles=120)


@variants
def test_seed_fixes_whole_episodes(name, arguments):
    one, other = to_pettingzoo(name, **arguments), to_pettingzoo(name, seed=99, **arguments)
    first, second = episode(one, seed=3), episode(one)
    assert equal(first, episode(other, seed=3))
    assert equal(second, episode(other)), "a reset without seed continues the stream"
    assert equal(first, episode(one, seed=3))
    if not name.startswith("switch"):  # whose start is always the same
        assert not equal(first[0], second[0])
        assert not equal(first[0], episode(one, seed=4)[0])


def test_constructor_seed_begins_the_stream_and_none_is_fresh():
    seeded = [to_pettingzoo("simple", seed=5).reset()[0] for _ in range(2)]
    fresh = [to_pettingzoo("simple").reset()[0] for _ in range(2)]
    assert equal(*seeded)
    assert not equal(*fresh)


@variants
def test_returned_values_have_the_promised_types(name, arguments):
    env = to_pettingzoo(name, **arguments)
    assert env.max_cycles == env.env.max_steps
    assert env.metadata["name"] == name
    steps = episode(env, seed=0)
    assert not env.agents
    assert set(steps[0][1]) == set(env.possible_agents)
    for obs, rewards, terminated, truncated, infos, state in steps[1:]:
        assert env.state_space.contains(state)
        assert list(obs) == list(rewards) == list(terminated) == list(truncated) == list(infos)
        for agent in obs:
            assert env.observation_space(agent).contains(obs[agent])
            assert obs[agent].dtype == np.float32
            assert type(rewards[agent]) is float
            assert type(terminated[agent]) is bool
            assert type(truncated[agent]) is bool
            assert infos[agent] == {}
    assert np.array_equal(state, np.concatenate(list(obs.values()))) or len(obs) < len(env.possible_agents)
    assert env.step({}) == ({}, {}, {}, {}, {})


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("name", SCENARIOS)
def test_names_and_spaces_are_those_of_mpe2(name, continuous):
    theirs = mpe2_env(name, continuous_actions=continuous)
    ours = to_pettingzoo(name, actions="continuous" if continuous else "discrete")
    assert ours.possible_agents == theirs.possible_agents
    assert ours.state_space == theirs.state_space
    assert ours.max_cycles == theirs.unwrapped.max_cycles
    for agent in ours.possible_agents:
        assert ours.observation_space(agent) == theirs.observation_space(agent)
        assert ours.action_space(agent) == theirs.action_space(agent)
    for entry in ("render_modes", "is_parallelizable", "render_fps"):
        assert ours.metadata[entry] == theirs.metadata[entry]


def goals_of(name, world):
    """The hidden landmark indices of an mpe2 world, in the order of our State.goal."""
    index, agents = world.landmarks.index, world.agents
    match name:
        case "simple_adversary" | "simple_push":
            return [index(agents[0].goal_a)]
        case "simple_crypto":
            return [index(agents[0].goal_a), int(np.argmax(agents[2].key))]
        case "simple_reference":
            return [index(agent.goal_b) for agent in agents]
        case "simple_speaker_listener":
            return [index(agents[0].goal_b)]
    return []


def inject(ours, world, goals=None):
    """Put our world where theirs is. Words and clock stay our own, except that goals are given at the start."""
    state = ours.unwrapped.world_state
    ours.unwrapped.world_state = state._replace(
        position=np.array([agent.state.p_pos for agent in world.agents], np.float32),
        velocity=np.array([agent.state.p_vel for agent in world.agents], np.float32),
        landmarks=np.array([landmark.state.p_pos for landmark in world.landmarks], np.float32),
        goal=state.goal if goals is None else np.array(goals, np.int32),
    )


def assert_alike(ours, theirs):
    """The same nesting and the same numbers within 1e-5; whole numbers are whole numbers on both sides."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for k in theirs:
            assert_alike(ours[k], theirs[k])
    elif isinstance(theirs, tuple):
        assert isinstance(ours, tuple)
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert_alike(a, b)
    else:
        kind = next(kind for kind in (np.ndarray, bool, int, float) if isinstance(theirs, kind))
        assert isinstance(ours, kind)
        assert isinstance(ours, bool) == isinstance(theirs, bool)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_episode_is_the_one_mpe2_plays(name):
    ours, theirs = to_pettingzoo(name, benchmark_data=True), mpe2_env(name, benchmark_data=True)
    _, infos = ours.reset(seed=0)
    assert infos == theirs.reset(seed=8)[1]
    world, sample = theirs.unwrapped.world, sampler(theirs, 1)
    goals = goals_of(name, world)
    for _ in range(25):
        inject(ours, world, goals)  # at each step: contact makes a float32 and a float64 world drift apart
        actions = sample()
        mine, reference = ours.step(actions), theirs.step(dict(actions))
        for a, b in zip(mine, reference, strict=True):
            assert_alike(a, dict(b))
        assert_alike(ours.state(), theirs.state())
        assert ours.agents == theirs.agents
    assert ours.agents == []


def test_continuous_actions_are_clipped_as_in_mpe2(caplog):
    ours, theirs = (
        to_pettingzoo("simple_reference", actions="continuous"),
        mpe2_env("simple_reference", continuous_actions=True),
    )
    ours.reset(seed=0)
    theirs.reset(seed=0)
    inject(ours, theirs.unwrapped.world, goals_of("simple_reference", theirs.unwrapped.world))
    generator = np.random.default_rng(0)
    for _ in range(5):
        actions = {agent: generator.uniform(-1, 2, 15).astype(np.float32) for agent in ours.agents}
        caplog.clear()
        mine = ours.step(actions)
        said = [record.message for record in caplog.records]
        caplog.clear()
        reference = theirs.step(actions)
        assert said == [record.message for record in caplog.records]
        assert len(said) == 2
        for a, b in zip(mine, reference, strict=True):
            assert_alike(a, dict(b))
    caplog.clear()
    ours.step(dict.fromkeys(ours.agents, [0.5] * 15))
    assert not caplog.records, "a legal action is no reason to warn, whatever its dtype"


def test_multi_discrete_says_the_same_as_the_single_integer():
    single, double = to_pettingzoo("simple_world_comm"), to_pettingzoo("simple_world_comm", multi_discrete=True)
    assert double.action_space("leadadversary_0") == spaces.MultiDiscrete([5, 4])
    assert double.action_space("adversary_0") == spaces.Discrete(5)
    single.reset(seed=1)
    double.reset(seed=1)
    still = dict.fromkeys(single.agents[1:], 0)
    for integer in (0, 3, 4, 5, 19):
        split = np.array([integer % 5, integer // 5])
        a = single.step({**still, "leadadversary_0": np.int64(integer)})
        b = double.step({**still, "leadadversary_0": split})
        assert equal(a, b)
        assert a[0]["leadadversary_0"][-4:].argmax() == integer // 5


def test_integers_mean_the_same_direction_in_both_flavours():
    for flavour in ("mpe2", "openai"):
        env = to_pettingzoo("simple", flavour=flavour)
        for integer, velocity in enumerate([(0, 0), (-0.5, 0), (0.5, 0), (0, -0.5), (0, 0.5)]):
            env.reset(seed=0)
            obs = env.step({"agent_0": integer})[0]["agent_0"]
            np.testing.assert_allclose(obs[:2], velocity, atol=1e-6)


def test_who_is_home_leaves_and_the_others_play_on():
    down, up, right, stay = 0, 2, 3, 4
    env = to_pettingzoo(Switch2())
    env.reset()
    for move in (down, *[right] * 5):
        env.step({"agent_0": move, "agent_1": stay})
        assert env.agents == ["agent_0", "agent_1"]
    _, rewards, terminated, truncated, _ = env.step({"agent_0": up, "agent_1": stay})
    assert rewards["agent_0"] == 5.0
    assert terminated == {"agent_0": True, "agent_1": False}
    assert truncated == {"agent_0": False, "agent_1": False}
    assert env.agents == ["agent_1"]
    length = 7
    while env.agents:
        outputs = env.step({"agent_1": stay})
        assert all(list(output) == ["agent_1"] for output in outputs)
        length += 1
    assert length == 50
    assert outputs[2:4] == ({"agent_1": False}, {"agent_1": True})


@pytest.mark.parametrize(
    ("arguments", "action", "message"),
    [
        ({}, 50, "agent_1 cannot take action 50: give an integer from 0 to 49"),
        ({}, -1, "agent_1 cannot take action -1: give an integer"),
        ({}, 1.0, "agent_1 cannot take action 1.0: give an action of Discrete"),
        ({}, None, "agent_1 cannot take action None"),
        ({"multi_discrete": True}, [5, 0], r"agent_1 cannot take action \[5, 0\]: give 2 integers below 5, 10"),
        ({"multi_discrete": True}, 7, "agent_1 cannot take action 7: give an action of MultiDiscrete"),
        ({"actions": "continuous"}, [0.5] * 14, "agent_1 cannot take action .*: give 15 numbers"),
        ({"actions": "continuous"}, [float("nan")] * 15, "agent_1 cannot take action .* none of them NaN"),
        ({"actions": "continuous"}, "left", "agent_1 cannot take action 'left'"),
    ],
)
def test_an_illegal_action_is_named(arguments, action, message):
    env = to_pettingzoo("simple_reference", **arguments)
    env.reset(seed=0)
    legal = {agent: env.action_space(agent).sample() for agent in env.agents}
    with pytest.raises(UsageError, match=message):
        env.step({**legal, "agent_1": action})
    env.step(legal)  # a refused action leaves the world as it was


def test_misuse_is_answered_with_a_sentence():
    env = to_pettingzoo("simple_reference")
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        env.step({})
    env.reset()
    with pytest.raises(UsageError, match="agent_1 has no action"):
        env.step({"agent_0": 0})
    with pytest.raises(UsageError, match="no agent 'agent_7'; its agents are agent_0, agent_1"):
        env.step({"agent_0": 0, "agent_1": 0, "agent_7": 0})
    with pytest.raises(UsageError, match="seed must be a whole number of at least 0, not -1"):
        env.reset(seed=-1)
    with pytest.raises(UsageError, match="render_mode must be one of human, rgb_array or None, not 'ascii'"):
        to_pettingzoo("simple", render_mode="ascii")
    with pytest.raises(UsageError, match="N can only be given with a world's name"):
        to_pettingzoo(counterpoint.make("simple_spread"), N=4)
    with pytest.warns(UserWarning, match="draws nothing without a render_mode"):
        assert env.render() is None


def test_a_made_world_is_taken_as_it_is():
    world = counterpoint.make("simple_spread", N=4, max_steps=3)
    env = to_pettingzoo(world, seed=0)
    assert env.env is world
    assert len(episode(env)) == 1 + 3
    assert env.max_num_agents == 4


def test_observations_belong_to_the_caller():
    env = to_pettingzoo("simple")
    obs, _ = env.reset(seed=0)
    before = env.state()
    obs["agent_0"] += 1.0
    obs["agent_0"] += env.step({"agent_0": 0})[0]["agent_0"]
    assert np.array_equal(env.reset(seed=0)[0]["agent_0"], before)


def test_a_pickled_world_plays_on_where_it_was():
    env = to_pettingzoo("simple_tag", seed=2)
    env.reset()
    env.step(sampler(env, 0)())
    copy = pickle.loads(pickle.dumps(env))
    actions = sampler(env, 1)()
    assert equal(env.step(actions), copy.step(actions))
    assert equal(env.reset()[0], copy.reset()[0])


def test_one_compilation_serves_all_instances():
    from counterpoint.external.pettingzoo import _compiled

    for _ in range(3):
        env = to_pettingzoo("simple_push", max_steps=7)
        env.reset()
        env.step({"adversary_0": 1, "agent_0": np.int64(2)})
        env.step({"adversary_0": 3, "agent_0": 4})
    assert [function._cache_size() for function in _compiled(env.env, False)] == [1, 1]


def test_rgb_array_shows_the_world():
    env = to_pettingzoo("simple_reference", render_mode="rgb_array", seed=0)
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        env.render()
    env.reset()
    before = env.render()
    assert before.dtype == np.uint8
    assert before.ndim == 3
    assert before.shape[-1] == 3
    for _ in range(3):
        env.step({"agent_0": 2, "agent_1": 4})
    after = env.render()
    assert after.shape == before.shape
    assert not np.array_equal(before, after)
    after[:] = 0  # belongs to the caller


def test_human_mode_shows_each_state_in_one_window(monkeypatch):
    shown, closed = [], []
    window = SimpleNamespace(show=lambda image: shown.append(image.shape), close=lambda: closed.append(True))
    monkeypatch.setattr("counterpoint.viz.window.Window", lambda *_, **__: window)
    env = to_pettingzoo("simple", render_mode="human")
    began = time.monotonic()
    env.reset()
    env.step({"agent_0": 1})
    assert env.render() is None
    assert time.monotonic() - began >= 2 / env.metadata["render_fps"]
    env.close()
    env.close()
    assert len(shown) == 3
    assert shown[0][-1] == 3
    assert closed == [True]


def test_import_is_instant_and_a_missing_extra_is_named():
    program = """
import sys
import counterpoint
assert "jax" not in sys.modules and "numpy" not in sys.modules, "the bare import is not instant"
assert counterpoint.__version__ and {"make", "to_pettingzoo"} <= set(dir(counterpoint))
assert not hasattr(counterpoint, "to_gym")
sys.modules["pettingzoo"] = None
assert counterpoint.make("simple").name == "simple"
try:
    counterpoint.to_pettingzoo("simple")
except counterpoint.core.errors.UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "pip install counterpoint[pettingzoo]" in done.stdout


@dataclass(frozen=True)
class Masked:
    """One agent that moves and talks; its second word and last move are illegal at odd steps."""

    max_steps: int = 4
    agents = 1
    actions = Discrete((3, 2))

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros((1, 1))

    def step(self, key, state, action):
        late = jnp.full(1, state + 1 >= self.max_steps)
        return state + 1, Step(jnp.zeros((1, 1)), jnp.zeros(1), jnp.zeros(1, bool), late)

    def legal(self, state):
        odd = state % 2 == 1
        return jnp.stack([True, True, ~odd, True, ~odd])[None]


def test_legal_actions_are_in_the_infos():
    env = to_pettingzoo(Masked())
    _, infos = env.reset()
    assert infos["agent_0"]["action_mask"].tolist() == [1, 1, 1, 1, 1, 1]
    infos = env.step({"agent_0": 0})[-1]
    assert infos["agent_0"]["action_mask"].tolist() == [1, 1, 0, 0, 0, 0]  # move + 3 · word
    env.action_space("agent_0").sample(infos["agent_0"]["action_mask"])
    split = to_pettingzoo(Masked(), multi_discrete=True)
    split.reset()
    mask = split.step({"agent_0": [0, 0]})[-1]["agent_0"]["action_mask"]
    assert [part.tolist() for part in mask] == [[1, 1, 0], [1, 0]]
