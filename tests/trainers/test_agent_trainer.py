"""Trainers: the same bits as the compiled learner's function, the authors' interface, threads, files, and learning."""

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
from counterpoint.core.spaces import Box, Discrete
from counterpoint.trainers import agent as trainers
from counterpoint.trainers.agent import AgentTrainer, Losses, Model, Settings

SIZES = (4, 3, 5)
SPACES = (Discrete((5,)), Discrete((2, 3)), Box(2, -2.0, 6.0))
SMALL = Model(num_units=8, num_layers=1)


def settings(**learning: Any) -> Settings:
    """Learns from 16 of 32 transitions at every step from the 32nd on."""
    return Settings(maddpg.Config(**learning), batch_size=16, buffer_size=32, max_episode_len=2, update_every=1)


def team(chosen: Settings) -> list[AgentTrainer]:
    return [AgentTrainer(f"agent_{i}", SMALL, SIZES, SPACES, i, chosen) for i in range(3)]


def play(agents: list[AgentTrainer], steps: int, seed: int = 0) -> None:
    """Random observations and rewards, the agents' own actions, every ninth step an end."""
    generator = np.random.default_rng(seed)
    for k in range(steps):
        obs, new_obs = ([generator.normal(size=size) for size in SIZES] for _ in range(2))
        act = [agent.action(seen) for agent, seen in zip(agents, obs, strict=True)]
        trainers.experience(agents, obs, act, generator.normal(size=3), new_obs, [k % 9 == 8] * 3, k % 5 == 4)


def stacked(agents: list[AgentTrainer]) -> maddpg.Agent:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(agent.agent for agent in agents))


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
            state = jax.tree.map(lambda leaf, row: leaf.at[i].set(row), state, mine)  # noqa: B023 — used at once
        jax.tree.map(np.testing.assert_array_equal, state, stacked(agents))
        if config.minibatch == "shared":
            whole, _ = everyone(whole, batches[0], key)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5), whole, stacked(agents))
    shared = [np.array_equal(agents[0].replay_sample_index, agent.replay_sample_index) for agent in agents]
    assert shared == ([True] * 3 if config.minibatch == "shared" else [True, False, False])


def test_a_team_starts_as_that_of_a_run_does() -> None:
    agents = team(settings(norm="layer"))
    assert agents[0].config.norm == "none"  # the model decides, not the learner's settings
    problem = maddpg.Problem(spec=agents[0].spec, heads=heads_of(agents[0].spec), sees=np.ones((3, 3), bool), axis=None)
    start = jax.jit(lambda key: maddpg.init(agents[0].config, problem, key))(jax.random.split(random.key(0))[0])
    jax.tree.map(np.testing.assert_array_equal, start, stacked(agents))


def test_updates_come_when_due_and_only_the_learner_moves() -> None:
    chosen = Settings(trainers.AUTHORS, batch_size=16, max_episode_len=2, update_every=5)
    agents = team(chosen)
    play(agents, 31)
    assert [agent.update(agents, 10) for agent in agents] == [None] * 3  # one transition is missing
    play(agents, 1)
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
        AgentTrainer("odd", Model(9, 1), SIZES, SPACES, 0, settings()).load(tmp_path, "simple_spread")
    with pytest.raises(UsageError, match=r"simple_tag/agent_0/trainer.safetensors does not exist: save the agent first"):
        agents[0].load(tmp_path, "simple_tag")
    paths[0].write_bytes(paths[0].read_bytes()[:100])
    with pytest.raises(UsageError, match="is damaged"):
        agents[0].load(tmp_path, "simple_spread")


def test_gymnasiums_spaces() -> None:
    assert trainers.space_of(spaces.Discrete(4)) == Discrete((4,))
    assert trainers.space_of(spaces.MultiDiscrete([5, 3])) == Discrete((5, 3))
    assert trainers.space_of(spaces.MultiBinary(3)) == Discrete((2, 2, 2))
    assert trainers.space_of(spaces.Box(-1, 3, (2,))) == Box(2, -1.0, 3.0)
    with pytest.raises(UsageError, match="one finite pair of bounds"):
        trainers.space_of(spaces.Box(np.array([0, -1]), np.array([1, 1])))
    with pytest.raises(UsageError, match="actions must be Discrete"):
        trainers.space_of(spaces.Text(3))


def test_refusals() -> None:
    with pytest.raises(UsageError, match="--lr must be above 0, not 0"):
        settings(lr=0.0)
    with pytest.raises(UsageError, match="--batch-size must be at least 1, not 0"):
        Settings(batch_size=0)
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
    agents[2].experience(np.zeros(5), [0.0, 0.0], 0.0, np.zeros(5), False, False)
    with pytest.raises(UsageError, match="agent_0 has stored 32 transitions and agent_2 33: give every agent its experience"):
        agents[0].update(agents, 0)


@pytest.mark.slow
def test_a_team_learns_in_a_loop_of_its_own() -> None:
    """One agent must choose what its cue says, the other must steer to a number between 1 and 3 that its cue names."""
    learning = maddpg.Config(noise_start=0.3, minibatch="per-agent")
    chosen = Settings(learning, batch_size=64, buffer_size=4000, max_episode_len=1, update_every=4)
    model, spaces = Model(16, 2, "layer"), (Discrete((2,)), Box(1, 0.0, 4.0))
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
