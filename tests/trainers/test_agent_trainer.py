"""Trainers: the bits of the compiled learner, the authors' interface, own networks, dead agents, threads, files, learning."""

import dataclasses
import importlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from counterpoint.algos import maddpg
from counterpoint.core import prng as random
from counterpoint.core.actions import heads_of
from counterpoint.core.distributions import Categorical, DiagGaussian, MultiCategorical, SoftCategorical
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import init_mlp, mlp
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Transition
from counterpoint.trainers import agent as trainers
from counterpoint.trainers.agent import AgentTrainer, Losses, Settings
from counterpoint.trainers.learner import Model, Sizes

SIZES = (4, 3, 5)
SPACES = (Discrete((5,)), Discrete((2, 3)), Box(2, -2.0, 6.0))
SMALL = Sizes(num_units=8, num_layers=1)


def settings(**learning: Any) -> Settings:
    """Learns from 16 of 32 transitions at every step from the 32nd on."""
    return Settings(maddpg.Config(**learning), batch_size=16, buffer_size=32, max_episode_len=2, update_every=1)


def team(chosen: Settings, model: Any = SMALL) -> list[AgentTrainer]:
    return [AgentTrainer(f"agent_{i}", model, SIZES, SPACES, i, chosen) for i in range(3)]


def play(agents: list[AgentTrainer], steps: int, seed: int = 0) -> None:
    """Random observations and rewards, the agents' own actions, every ninth step an end."""
    generator = np.random.default_rng(seed)
    for k in range(steps):
        obs, new_obs = ([generator.normal(size=size) for size in SIZES] for _ in range(2))
        act = [agent.action(seen) for agent, seen in zip(agents, obs, strict=True)]
        trainers.experience(agents, obs, act, generator.normal(size=3), new_obs, [k % 9 == 8] * 3, k % 5 == 4)


def stacked(agents: list[AgentTrainer]) -> maddpg.Agent:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(agent.agent for agent in agents))


def with_row(leaf: np.ndarray, i: int, row: Any) -> np.ndarray:
    """A copy with another row i."""
    leaf = leaf.copy()
    leaf[i] = row
    return leaf


LEARNERS = {
    "authors": {"order": "sequential", "minibatch": "per-agent"},
    "snapshot": {"order": "snapshot", "minibatch": "shared", "standardise_rewards": True, "critic_lr": 0.02},
}


@pytest.mark.parametrize("name", LEARNERS)
def test_the_same_batch_gives_the_same_bits(name: str) -> None:
    """Two rounds against `maddpg.update_agent` bit for bit, and against all agents' `maddpg.update` to rounding."""
    chosen = settings(**LEARNERS[name])
    agents = team(chosen)
    play(agents, 32)
    spec, config = agents[0].spec, agents[0].config
    problem = maddpg.Problem(spec=spec, heads=heads_of(spec), sees=np.ones((3, 3), bool), axis=None)
    one = jax.jit(lambda *args: maddpg.update_agent(config, problem, *args))
    everyone = jax.jit(lambda *args: maddpg.update(config, problem, *args))
    state = whole = stacked(agents)
    for round in range(2):
        losses = [agent.update(agents, 7) for agent in agents]
        key = jax.random.fold_in(jax.random.split(random.key(0))[1], round)
        batches = [
            agent._joint([a.replay_buffer.sample_index(agent.replay_sample_index) for a in agents], None) for agent in agents
        ]
        old = state
        for i, batch in enumerate(batches):
            own, others = jax.tree.map(lambda leaf: leaf[i], state), old if config.order == "snapshot" else state  # noqa: B023
            mine, figures = one(own, others, maddpg.column(batch, jnp.asarray(i)), batch, jnp.asarray(i), key)
            assert losses[i] == Losses(**{field: float(figures[field]) for field in Losses._fields})
            state = jax.tree.map(lambda leaf, row: with_row(leaf, i, row), state, mine)  # noqa: B023 — used at once
        jax.tree.map(np.testing.assert_array_equal, state, stacked(agents))
        if config.minibatch == "shared":
            whole, _ = everyone(whole, batches[0], key)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5), whole, stacked(agents))
    shared = [np.array_equal(agents[0].replay_sample_index, agent.replay_sample_index) for agent in agents]
    assert shared == ([True] * 3 if config.minibatch == "shared" else [True, False, False])


@pytest.mark.parametrize("init", ["he", "glorot"])
def test_a_team_starts_as_that_of_a_run_does(init: Any) -> None:
    agents = team(settings(norm="layer", init=init))
    assert agents[0].config.norm == "none"  # the sizes replace the norm of the learner's settings
    problem = maddpg.Problem(spec=agents[0].spec, heads=heads_of(agents[0].spec), sees=np.ones((3, 3), bool), axis=None)
    chosen = maddpg.Config(num_units=8, num_layers=1, init=init)
    start = jax.jit(lambda key: maddpg.init(chosen, problem, key))(jax.random.split(random.key(0))[0])
    jax.tree.map(np.testing.assert_array_equal, start, stacked(agents))


def test_the_authors_weights_stay_below_glorots_limit() -> None:
    """A layer of 4 inputs and 64 units: Glorot's limit is √(6/68) ≈ 0.30, He's is √(6/4) ≈ 1.22."""
    agent = AgentTrainer("a", Sizes(num_layers=1), (4,), (Discrete((5,)),), 0)
    largest = float(np.abs(agent.agent.actor[0].weight).max())
    assert 0.25 < largest <= np.sqrt(6 / 68)


def test_updates_come_when_due_and_only_the_learner_moves() -> None:
    chosen = Settings(trainers.AUTHORS, batch_size=16, max_episode_len=2, update_every=5)
    agents = team(chosen)
    play(agents, 31)
    assert [agent.update(agents, 10) for agent in agents] == [None] * 3
    assert [agent.missing for agent in agents] == [1] * 3
    play(agents, 1)
    assert agents[0].missing == 0
    assert agents[0].update(agents, 11) is None
    before = stacked(agents)
    losses = agents[1].update(agents, 10)
    assert isinstance(losses, Losses)
    assert np.isfinite(losses).all()
    pairs = list(zip(jax.tree.leaves(before), jax.tree.leaves(stacked(agents)), strict=True))
    moved = [any((np.asarray(old)[i] != np.asarray(new)[i]).any() for old, new in pairs) for i in range(3)]
    assert moved == [False, True, False]
    assert agents[1].replay_sample_index is not None
    assert agents[1].replay_sample_index.shape == (16,)
    agents[1].preupdate()
    assert agents[1].replay_sample_index is None
    assert agents[1].replay_buffer.prioritised is False


def test_actions_of_every_kind_and_what_is_stored() -> None:
    agents = team(settings())
    obs = [np.full(size, 0.3) for size in SIZES]
    soft, pair, real = (agent.action(seen) for agent, seen in zip(agents, obs, strict=True))
    assert soft.shape == (5,)
    assert soft.sum() == pytest.approx(1)
    assert (pair[:2].sum(), pair[2:].sum()) == (pytest.approx(1), pytest.approx(1))
    assert ((real >= -2) & (real <= 6)).all()
    assert agents[0].to_space(np.array([0.1, 0.2, 0.4, 0.2, 0.1])) == 2
    assert agents[1].to_space(np.array([0.9, 0.1, 0.2, 0.2, 0.6])).tolist() == [0, 2]
    assert agents[2].to_space(real) is real
    for agent, seen, act in zip(agents, obs, ([0, 0, 1, 0, 0], np.array([1, 2]), [-2.0, 4.0]), strict=True):
        agent.experience(seen, act, 1.5, seen, False, True)
    agents[0].experience(obs[0], 3, 0.0, obs[0], True, False)
    stored = agents[0].replay_buffer.collect()
    assert stored.action.tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]
    assert (stored.done.tolist(), stored.reward.tolist()) == ([False, True], [1.5, 0.0])  # a time limit is no end
    assert agents[1].replay_buffer.collect().action.tolist() == [[0, 1, 0, 0, 1]]
    assert agents[2].replay_buffer.collect().action.tolist() == [[-1.0, 0.5]]  # in units of max_action
    assert (agents[2].action(obs[2], greedy=True) == agents[2].action(obs[2], greedy=True)).all()
    assert (agents[2].action(obs[2]) != agents[2].action(obs[2])).any()


def test_noise_lasts_an_episode() -> None:
    agent = AgentTrainer("a", SMALL, (2,), (Box(1, -1.0, 1.0),), 0, settings(noise="ou", noise_start=0.1))
    agent.action([1, 2])
    assert agent._noise is not None
    assert agent._noise.any()
    agent.experience([1, 2], [0.5], 0.0, [1, 2], False, True)
    assert not agent._noise.any()


def test_the_distribution_is_that_of_the_actions() -> None:
    obs = [np.full(size, 0.7) for size in SIZES]
    agents = team(settings(world_action="one-hot", noise_start=0.1))
    soft = team(settings(temperature=0.5))[0].distribution(obs[0])
    assert isinstance(soft, SoftCategorical)
    assert soft.temperature == 0.5
    one, pair, real = (agent.distribution(seen) for agent, seen in zip(agents, obs, strict=True))
    drawn = [np.stack([agent.action(seen) for _ in range(3000)]) for agent, seen in zip(agents, obs, strict=True)]
    assert isinstance(one, Categorical)
    assert isinstance(pair, MultiCategorical)
    assert isinstance(real, DiagGaussian)
    np.testing.assert_allclose(drawn[0].mean(0), np.exp(one.log_probabilities), atol=0.04)
    chances = np.concatenate([np.exp(head.log_probabilities) for head in pair.heads])
    np.testing.assert_allclose(drawn[1].mean(0), chances, atol=0.04)
    np.testing.assert_allclose(drawn[2].mean(0), real.mean, atol=0.04)
    np.testing.assert_allclose(drawn[2].std(0), np.exp(real.log_std), rtol=0.06)
    assert float(np.exp(real.log_std[0])) == pytest.approx(0.4)  # a tenth of half the range


def test_priorities_follow_the_errors() -> None:
    agents = team(settings(replay="prioritised", minibatch="per-agent"))
    play(agents, 32)
    buffer = agents[0].replay_buffer
    agents[0].update(agents, 0)
    learnt = agents[0].replay_sample_index
    assert learnt is not None
    assert len(set(buffer.weights(np.unique(learnt)))) > 1
    rest = np.setdiff1d(np.arange(32), learnt)
    assert len(set(buffer.weights(rest))) == 1
    assert set(agents[1].replay_buffer.weights(np.arange(32))) == {1.0}


def test_threads_store_whole_steps() -> None:
    """Six threads store steps of all agents; afterwards the agents' memories hold the same steps in the same places."""
    chosen = Settings(trainers.AUTHORS, batch_size=16, buffer_size=400, overwrite="random")
    agents = team(chosen)

    def write(writer: int) -> None:
        for k in range(100):
            tag = 100 * writer + k
            obs = [np.full(size, tag) for size in SIZES]
            trainers.experience(agents, obs, (1, [0, 1], [0.0, 1.0]), (tag, tag, tag), obs, (False,) * 3, False)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    rewards = [agent.replay_buffer.collect().reward for agent in agents]
    np.testing.assert_array_equal(rewards[0], rewards[1])
    np.testing.assert_array_equal(rewards[0], rewards[2])
    assert len(set(rewards[0].tolist())) == 400
    assert agents[0].steps == 600


def test_saved_agents_go_on_as_they_would_have(tmp_path: Path) -> None:
    agents, fresh = team(settings()), team(settings())
    play(agents, 32)
    play(fresh, 32)
    for agent in agents:
        agent.update(agents, 0)
    paths = [agent.save(tmp_path, "simple_spread") for agent in agents]
    assert [path.parent.relative_to(tmp_path) for path in paths] == [Path(f"simple_spread/agent_{i}") for i in range(3)]
    for agent in fresh:
        agent.load(tmp_path, "simple_spread")
    assert [agent.steps for agent in fresh] == [32] * 3
    assert fresh[0].replay_buffer.added == 32
    later = team(settings())[0]
    later.load(tmp_path, "simple_spread")
    assert (later.steps, later.updates, len(later.replay_buffer)) == (32, 1, 0)
    obs = np.ones(4)
    np.testing.assert_array_equal(fresh[0].action(obs, greedy=True), agents[0].action(obs, greedy=True))
    for agent, again in zip(agents, fresh, strict=True):
        assert agent.update(agents, 0) == again.update(fresh, 0)
    jax.tree.map(np.testing.assert_array_equal, stacked(agents), stacked(fresh))
    with pytest.raises(UsageError, match="holds other networks than odd has"):
        AgentTrainer("odd", Sizes(9, 1), SIZES, SPACES, 0, settings()).load(tmp_path, "simple_spread")
    with pytest.raises(UsageError, match=r"simple_tag/agent_0/trainer.safetensors does not exist: save the agent first"):
        agents[0].load(tmp_path, "simple_tag")
    paths[0].write_bytes(paths[0].read_bytes()[:100])
    with pytest.raises(UsageError, match="is damaged"):
        agents[0].load(tmp_path, "simple_spread")


def test_the_warmup_may_be_chosen() -> None:
    assert Settings(batch_size=16, max_episode_len=2).first_update == 32
    assert Settings(batch_size=16, max_episode_len=2, buffer_size=20).first_update == 20
    agents = team(Settings(batch_size=16, max_episode_len=2, update_every=1, warmup=5))
    play(agents, 4)
    assert agents[0].missing == 1
    assert agents[0].update(agents, 0) is None
    play(agents, 1)
    assert isinstance(agents[0].update(agents, 0), Losses)


def test_every_entry_of_a_box_may_have_its_own_bounds() -> None:
    box = spaces.Box(np.array([0.0, -10.0], np.float32), np.array([1.0, 30.0], np.float32))
    chosen = Settings(maddpg.Config(), batch_size=4, warmup=4, update_every=1)
    agents = [AgentTrainer(f"agent_{i}", SMALL, (3, 3), (box, spaces.Discrete(4)), i, chosen) for i in range(2)]
    assert agents[0].space == Box(2, (0.0, -10.0), (1.0, 30.0))
    obs = np.ones(3)
    drawn = np.stack([agents[0].action(obs) for _ in range(200)])
    assert ((drawn >= [0, -10]) & (drawn <= [1, 30])).all()
    assert drawn[:, 1].max() > 1
    gaussian = agents[0].distribution(obs)
    assert isinstance(gaussian, DiagGaussian)
    np.testing.assert_allclose(gaussian.mean, agents[0].action(obs, greedy=True), rtol=1e-5)
    np.testing.assert_allclose(np.exp(gaussian.log_std), [0.2 * 0.5, 0.2 * 20], rtol=1e-5)
    for _ in range(4):
        trainers.experience(agents, [obs, obs], ([0.25, 20.0], 3), (1.0, 1.0), [obs, obs], (False, False), False)
    np.testing.assert_allclose(agents[0].replay_buffer.collect().action[0], [-0.5, 0.5], rtol=1e-6)
    losses = agents[0].update(agents, 0)
    assert losses is not None
    assert np.isfinite(losses).all()


PERCEPTRON = Model(
    init=lambda key, inputs, outputs: init_mlp(key, inputs, (8,), outputs, "none", "he"), apply=lambda params, x: mlp(params, x)
)
"""The perceptron of `SMALL` as a network of the user's own."""


@pytest.mark.parametrize(
    "learning",
    [
        {"order": "sequential", "minibatch": "per-agent", "replay": "prioritised", "estimator": "straight-through"},
        {"order": "snapshot", "minibatch": "shared", "standardise_rewards": True, "critic_lr": 0.02, "clip_by": "global"},
    ],
    ids=["sequential", "snapshot"],
)
@pytest.mark.parametrize("local_critic", [False, True], ids=["maddpg", "ddpg"])
def test_a_perceptron_as_a_model_acts_and_learns_as_the_built_in_one(learning: dict[str, Any], local_critic: bool) -> None:
    ours, own = (
        [AgentTrainer(f"agent_{i}", model, SIZES, SPACES, i, settings(**learning), local_critic) for i in range(3)]
        for model in (SMALL, PERCEPTRON)
    )
    jax.tree.map(np.testing.assert_array_equal, stacked(ours), stacked(own))
    for agents in (ours, own):
        play(agents, 24)
        for k in range(8):  # the second agent is dead in these
            obs = [np.full(size, 0.1 * k) for size in SIZES]
            trainers.experience(agents, obs, (1, None, [0.0, 4.0]), (1.0, None, 2.0), obs, (False, None, True), True)
    for row, again in zip(ours[2].replay_buffer.collect(), own[2].replay_buffer.collect(), strict=True):
        np.testing.assert_allclose(row, again, atol=1e-5)  # the same actions
    for _ in range(2):
        losses = [[agent.update(agents, 0) for agent in agents] for agents in (ours, own)]
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4, atol=1e-5)  # pyright: ignore[reportArgumentType]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), stacked(ours), stacked(own))
    obs = np.full(4, 0.3)
    np.testing.assert_allclose(own[0].action(obs, greedy=True), ours[0].action(obs, greedy=True), rtol=1e-3)
    np.testing.assert_allclose(own[0].distribution(obs).mode(), ours[0].distribution(obs).mode(), rtol=1e-3)


class Squares:
    """A network that is no perceptron: a linear map of the inputs and their squares, as an object that cannot be hashed."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def init(self, key: Any, inputs: Any, outputs: Any) -> dict[str, Any]:
        weight = jax.random.normal(key, (2 * inputs.size, outputs.size)) * 0.1
        return {"weight": weight * jnp.concatenate([inputs, inputs])[:, None] * outputs[None], "bias": jnp.zeros(outputs.size)}

    def apply(self, params: dict[str, Any], x: Any) -> Any:
        out = jnp.concatenate([x, x**2], axis=-1) @ params["weight"]
        return out + jnp.broadcast_to(params["bias"], out.shape)


def test_a_model_of_the_users_own_is_saved_and_refused_in_words(tmp_path: Path) -> None:
    agents, fresh = team(settings(), Squares()), team(settings(), Squares())
    play(agents, 32)
    for agent in agents:
        agent.update(agents, 0)
    agents[0].save(tmp_path, "own")
    fresh[0].load(tmp_path, "own")
    assert set(fresh[0].agent.actor) == {"weight", "bias"}
    np.testing.assert_array_equal(fresh[0].action(np.ones(4), greedy=True), agents[0].action(np.ones(4), greedy=True))
    with pytest.raises(UsageError, match=r"the model must be Sizes\(...\) or have functions init and apply, not 64"):
        team(settings(), 64)
    wrong = Model(Squares().init, lambda params, x: x)
    with pytest.raises(UsageError, match=r"return shape \(1, 1\) for one input of size 30, not \(1, 30\)"):
        team(settings(), wrong)


def test_a_dead_agent_is_masked_in_a_batch_made_by_hand() -> None:
    """Agent 0 dies after the first of four steps: its update sees one living row, that of agent 1 sees four."""
    chosen = Settings(maddpg.Config(), batch_size=4, warmup=4, update_every=1, seed=3)
    spaces, sizes = (Discrete((2,)), Discrete((2,))), (1, 2)
    agents, by_name = ([AgentTrainer(f"agent_{i}", SMALL, sizes, spaces, i, chosen) for i in range(2)] for _ in range(2))
    mate = [(np.array([k, 1.0]), [0.0, 1.0], float(k), np.array([k + 1.0, 1.0]), k == 3) for k in range(4)]
    agents[0].experience([5.0], [1.0, 0.0], 7.0, [6.0], True, False)
    for _ in range(3):
        agents[0].experience(alive=False)
    for step in mate:
        agents[1].experience(*step, False)
    first = ({"agent_0": [5.0]}, {"agent_0": [1.0, 0.0]}, {"agent_0": 7.0}, {"agent_0": [6.0]}, {"agent_0": True})
    for k, step in enumerate(mate):
        tables = [{"agent_1": part} | (first[j] if k == 0 else {}) for j, part in enumerate(step)]
        if k == 1:
            tables[0]["agent_0"] = [6.0]  # the last observation, which environments repeat; without an action it is dead
        trainers.experience(by_name, *tables, terminal=False)
    zeros = np.zeros((4, 2, 2), np.float32)
    obs, next_obs, action = zeros.copy(), zeros.copy(), zeros.copy()
    obs[0, 0], next_obs[0, 0], action[0, 0] = [5, 0], [6, 0], [1, 0]
    obs[:, 1], next_obs[:, 1], action[:, 1] = [s[0] for s in mate], [s[3] for s in mate], [0, 1]
    alive = np.array([[True, True], [False, True], [False, True], [False, True]])
    whole: Any = {
        "obs": obs,
        "action": action,
        "reward": np.array([[7, 0], [0, 1], [0, 2], [0, 3]], np.float32),
        "next_obs": next_obs,
        "terminated": np.array([[True, False], [True, False], [True, False], [True, True]]),
        "alive": alive,
        "done": np.zeros(4, bool),
    }
    spec = agents[0].spec
    problem = maddpg.Problem(spec=spec, heads=heads_of(spec), sees=np.ones((2, 2), bool), axis=None)
    start = stacked(agents)
    for trained in (agents, by_name):
        rows = [agent.replay_buffer.collect() for agent in trained]
        np.testing.assert_array_equal(np.stack([row.alive for row in rows], axis=1), alive)
        losses = [agent.update(trained, 0) for agent in trained]
        for i in range(2):
            index = trained[i].replay_sample_index
            batch = Transition(**{name: jnp.asarray(part[index]) for name, part in whole.items()})
            key = jax.random.fold_in(jax.random.split(random.key(3))[1], 0)
            own = jax.tree.map(lambda leaf: leaf[i], start)  # noqa: B023 — used at once
            column = maddpg.column(batch, jnp.asarray(i))
            expected, metrics = jax.jit(lambda *args: maddpg.update_agent(agents[0].config, problem, *args))(
                own, start, column, batch, jnp.asarray(i), key
            )
            jax.tree.map(np.testing.assert_array_equal, trained[i].agent, expected)
            assert losses[i] == Losses(**{field: float(metrics[field]) for field in Losses._fields})


def test_models_are_kept_under_numbers_and_loaded_at_the_start(tmp_path: Path) -> None:
    chosen = Settings(
        trainers.AUTHORS, batch_size=4, warmup=4, update_every=5, save_dir=str(tmp_path), scenario="tag", save_rate=10
    )
    fresh = team(dataclasses.replace(chosen, restore=True))  # nothing to restore: no complaint
    assert fresh[0].updates == 0
    agents = team(chosen)
    outputs = {}
    for t in range(1, 36):
        play(agents, 1, seed=t)
        for agent in agents:
            agent.update(agents, t)
        outputs[t] = agents[1].action(np.ones(3), greedy=True)
    folder = tmp_path / "tag/agent_1"
    assert sorted(path.name for path in folder.iterdir()) == [f"{n}_trainer.safetensors" for n in (1, 2, 3)]
    restored = team(dataclasses.replace(chosen, restore=True))
    assert [(agent.steps, agent.updates) for agent in restored] == [(30, 6)] * 3
    np.testing.assert_array_equal(restored[1].action(np.ones(3), greedy=True), outputs[30])
    restored[1].load(number=1)
    assert restored[1].steps == 10
    np.testing.assert_array_equal(restored[1].action(np.ones(3), greedy=True), outputs[10])
    agents[1].save()
    restored[1].load()  # the file without a number has seen more steps
    assert restored[1].steps == 35
    (folder / "12_trainer.safetensors").write_bytes((folder / "2_trainer.safetensors").read_bytes())
    (folder / "notes_trainer.safetensors").write_bytes(b"not ours")
    restored[1].load()
    assert restored[1].steps == 35
    with pytest.raises(UsageError, match=r"agent_1/9_trainer.safetensors does not exist"):
        restored[1].load(number=9)
    with pytest.raises(UsageError, match="there is no folder for the models: give save_dir"):
        team(settings())[0].save()


def test_discounting_takes_lists() -> None:
    """Backwards with γ = ½: 8; 4 + 4; 2, where the game ended; 1 + 1."""
    np.testing.assert_array_equal(trainers.discount_with_dones([1, 2, 4, 8], [0, 1, 0, 0], 0.5), [2, 2, 8, 8])
    np.testing.assert_array_equal(trainers.discount_with_dones(np.ones(2), (False, False), 0.5), [1.5, 1])
    assert trainers.discount_with_dones([], [], 0.5).shape == (0,)
    with pytest.raises(UsageError, match=r"one entry per step each, not shapes \(2,\) and \(1,\)"):
        trainers.discount_with_dones([1, 2], [True], 0.5)


def test_the_package_exports_its_names() -> None:
    package = importlib.import_module("counterpoint.trainers")
    for name in ("AgentTrainer", "ComaTrainer", "Memory", "ReplayBuffer", "Settings", "Sizes", "experience"):
        assert getattr(package, name).__name__ == name
        assert name in dir(package)
    assert not hasattr(package, "nothing")
    code = "import sys; from counterpoint.trainers import ReplayBuffer; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_refusals() -> None:
    with pytest.raises(UsageError, match="--lr must be above 0, not 0"):
        settings(lr=0.0)
    with pytest.raises(UsageError, match="--batch-size must be at least 1, not 0"):
        Settings(batch_size=0)
    with pytest.raises(UsageError, match="warmup 33 must be at most buffer_size 32"):
        Settings(batch_size=16, buffer_size=32, warmup=33)
    with pytest.raises(UsageError, match="save_rate and restore need a folder: set save_dir"):
        Settings(save_rate=100)
    with pytest.raises(UsageError, match="trainers draw by priority each for itself"):
        settings(replay="prioritised", minibatch="shared")
    with pytest.raises(UsageError, match="extra has index 3 among 3 observation shapes and 3 action spaces"):
        AgentTrainer("extra", SMALL, SIZES, SPACES, 3)
    agents = team(settings())
    play(agents, 32)
    with pytest.raises(UsageError, match="update needs all 3 agents in the order of their indices"):
        agents[0].update(agents[::-1], 0)
    with pytest.raises(UsageError, match="an observation of agent_0 has 4 numbers, not 3"):
        agents[0].action(np.zeros(3))
    with pytest.raises(UsageError, match="agent_0 cannot have done 5: give what action or to_space returned"):
        agents[0].experience(np.zeros(4), 5, 0.0, np.zeros(4), False, False)
    with pytest.raises(UsageError, match="agent_0 needs act, new_obs: give them, or alive=False if the agent is dead"):
        agents[0].experience(np.zeros(4))
    with pytest.raises(UsageError, match="a step needs one entry for each of 3 agents, not 2: give None to dead ones"):
        trainers.experience(agents, [np.zeros(4)] * 2, [0, 0], [0, 0], [np.zeros(4)] * 2, False, False)
    agents[2].experience(np.zeros(5), [0.0, 0.0], 0.0, np.zeros(5), False, False)
    with pytest.raises(UsageError, match="agent_0 has stored 32 transitions and agent_2 33: give every agent its experience"):
        agents[0].update(agents, 0)


@pytest.mark.slow
def test_a_team_learns_in_a_loop_of_its_own() -> None:
    """One agent must choose what its cue says, the other must steer to a number between 1 and 3 that its cue names."""
    learning = maddpg.Config(noise_start=0.3, minibatch="per-agent")
    chosen = Settings(learning, batch_size=64, buffer_size=4000, max_episode_len=1, update_every=4)
    model, spaces = Sizes(16, 2, "layer"), (Discrete((2,)), Box(1, 0.0, 4.0))
    agents = [AgentTrainer(f"agent_{i}", model, (1, 1), spaces, i, chosen, local_critic=True) for i in range(2)]
    assert [layer.bias.shape for layer in agents[1].agent.actor] == [(16,), (16,), (2,)]
    assert agents[1].agent.actor[0].norm is not None
    cues = np.random.default_rng(0).choice([-1.0, 1.0], size=(1200, 2))
    for t, cue in enumerate(cues):
        act = [agent.action(seen) for agent, seen in zip(agents, cue[:, None], strict=True)]
        reward = (cue[0] * (act[0][1] - act[0][0]), -((act[1][0] - 2 - cue[1]) ** 2))
        trainers.experience(agents, cue[:, None], act, reward, cue[:, None], (True, True), True)
        for agent in agents:
            agent.preupdate()
        for agent in agents:
            agent.update(agents, t)
    assert [agents[0].to_space(agents[0].action([cue], greedy=True)) for cue in (-1.0, 1.0)] == [0, 1]
    np.testing.assert_allclose([agents[1].action([cue], greedy=True)[0] for cue in (-1.0, 1.0)], [1, 3], atol=0.3)
    heard = [np.abs(agent.agent.critic[0].weight).max(1) > 0 for agent in agents]  # of o_0, o_1, and two entries of a_0, a_1
    assert [row.tolist() for row in heard] == [
        [True, False, True, True, False, False],
        [False, True, False, False, True, False],
    ]
