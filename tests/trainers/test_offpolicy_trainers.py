"""Trainers of MATD3 and MASAC: the bits of the compiled learner, their distributions, own networks, files and refusals."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterpoint
from counterpoint import MASACTrainer, MATD3Trainer
from counterpoint.algos import maddpg, masac, matd3
from counterpoint.core import prng
from counterpoint.core.actions import heads_of
from counterpoint.core.distributions import Categorical, MultiCategorical, SoftCategorical, SquashedGaussian
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import init_mlp, mlp
from counterpoint.core.spaces import Box, Discrete
from counterpoint.trainers.agent import Losses, Settings, SoftLosses, experience
from counterpoint.trainers.learner import Model, Sizes

SIZES = (4, 3, 5)
SPACES = (Discrete((5,)), Discrete((2, 3)), Box(2, -2.0, 6.0))
SMALL = Sizes(num_units=8, num_layers=1)
METHODS: dict[str, Any] = {
    "matd3": (MATD3Trainer, matd3, matd3.Config(minibatch="per-agent", order="sequential"), Losses),
    "masac": (MASACTrainer, masac, masac.Config(minibatch="per-agent"), SoftLosses),
    "masac, one after another": (MASACTrainer, masac, masac.Config(minibatch="per-agent", order="sequential"), SoftLosses),
}


def team(name: str, model: Any = SMALL, **more: Any) -> list[Any]:
    kind, _, learning, _ = METHODS[name]
    chosen = Settings(learning, batch_size=16, buffer_size=32, max_episode_len=2, update_every=1, **more)
    return [kind(f"agent_{i}", model, SIZES, SPACES, i, chosen) for i in range(3)]


def play(agents: list[Any], steps: int) -> None:
    """Random observations and rewards, the agents' own actions, every ninth step an end."""
    generator = np.random.default_rng(0)
    for k in range(steps):
        obs, new_obs = ([generator.normal(size=size) for size in SIZES] for _ in range(2))
        act = [agent.action(seen) for agent, seen in zip(agents, obs, strict=True)]
        experience(agents, obs, act, generator.normal(size=3), new_obs, [k % 9 == 8] * 3, k % 5 == 4)


def stacked(agents: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(agent.agent for agent in agents))


@pytest.mark.parametrize("name", METHODS)
def test_the_same_batch_gives_the_same_bits(name: str) -> None:
    """Two rounds against the algorithm's own `update_agent`: MATD3 delays its actors by one of them."""
    _, module, _, kind = METHODS[name]
    agents = team(name)
    play(agents, 32)
    spec, config = agents[0].spec, agents[0].config
    everybody = np.ones((3, 3), bool)
    soft = masac.problem_of(spec, everybody)
    problem = soft if module is masac else maddpg.Problem(spec=spec, heads=heads_of(spec), sees=everybody)
    one = jax.jit(lambda *args: module.update_agent(config, problem, *args))
    state = stacked(agents)
    for round in range(2):
        losses = [agent.update(agents, 7) for agent in agents]
        key = jax.random.fold_in(jax.random.split(prng.key(0))[1], round)
        old = state
        for i, agent in enumerate(agents):
            batch = agent._joint([a.replay_buffer.sample_index(agent.replay_sample_index) for a in agents], None)
            own, others = jax.tree.map(lambda leaf: leaf[i], state), old if config.order == "snapshot" else state  # noqa: B023
            mine, metrics = one(own, others, maddpg.column(batch, jnp.asarray(i)), batch, jnp.asarray(i), key)
            assert losses[i] == kind(**{field: float(metrics[field]) for field in kind._fields})
            state = jax.tree.map(lambda leaf, row: leaf.at[i].set(row), state, mine)  # noqa: B023 — used at once
        jax.tree.map(np.testing.assert_array_equal, state, stacked(agents))


def test_masac_draws_from_the_distribution_that_it_names() -> None:
    agents, seen = team("masac"), [np.ones(size) for size in SIZES]
    one, several, real = (agent.distribution(obs) for agent, obs in zip(agents, seen, strict=True))
    assert isinstance(one, Categorical)
    assert isinstance(several, MultiCategorical)
    assert isinstance(real, SquashedGaussian)
    drawn = np.array([agents[2].action(seen[2]) for _ in range(4000)])
    assert -2.0 <= drawn.min() < drawn.max() <= 6.0
    samples = np.asarray(jax.vmap(real.sample)(jax.random.split(prng.key(0), 4000)))
    np.testing.assert_allclose(drawn.mean(axis=0), samples.mean(axis=0), atol=0.25)
    np.testing.assert_allclose(drawn.std(axis=0), samples.std(axis=0), atol=0.2)
    np.testing.assert_allclose(agents[2].action(seen[2], greedy=True), real.mode(), rtol=1e-4)
    inner = samples[np.all((samples > -1.9) & (samples < 5.9), axis=1)]
    assert np.isfinite(jax.vmap(real.logp)(jnp.asarray(inner))).all()
    np.testing.assert_allclose(-np.mean(jax.vmap(real.logp)(jnp.clip(samples, -1.9999, 5.9999))), real.entropy(), atol=0.15)
    assert set(agents[0].action(seen[0]).tolist()) == {0.0, 1.0}
    assert isinstance(team("matd3")[0].distribution(seen[0]), SoftCategorical)


def test_squashing_keeps_the_divergence_and_shifts_the_density() -> None:
    """tanh of N(½, 1) on [0, 4], at its mode: log N(½) − log(1 − tanh²(½)) − log 2."""
    one = SquashedGaussian(jnp.array([0.5]), jnp.zeros(1), jnp.array([2.0]), jnp.array([2.0]))
    expected = -0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(0.5) ** 2) - np.log(2.0)
    np.testing.assert_allclose(one.logp(one.mode()), expected, rtol=1e-5)
    other = one._replace(mean=jnp.array([1.5]))
    np.testing.assert_allclose(one.kl(other), 0.5, rtol=1e-6)


@pytest.mark.parametrize("name", ["matd3", "masac"])
def test_a_network_of_the_users_own_and_its_files(name: str, tmp_path: Path) -> None:
    model = Model(init=lambda key, inputs, outputs: init_mlp(key, inputs, (8,), outputs), apply=mlp)
    agents = team(name, model, save_dir=str(tmp_path))
    play(agents, 32)
    before = [agent.action(np.ones(size), greedy=True) for agent, size in zip(agents, SIZES, strict=True)]
    assert [action.shape for action in before] == [(5,), (5,), (2,)]
    for _ in range(2):
        assert all(np.isfinite(agent.update(agents, 1)).all() for agent in agents)
    for agent in agents:
        agent.save()
    again = team(name, model, save_dir=str(tmp_path))
    for agent in again:
        agent.load()
    jax.tree.map(np.testing.assert_array_equal, stacked(agents), stacked(again))


@pytest.mark.parametrize("kind", [MASACTrainer, MATD3Trainer])
def test_recurrent_agents_remember_an_episode_and_learn_from_sequences(kind: Any, tmp_path: Path) -> None:
    """Sequences of six steps in episodes of five: who learns is told by a batch of the compiled learner's form."""
    learning = kind.method.settings(recurrent=True, sequence_length=4, burn_in=2, n_step=2, minibatch="per-agent")
    chosen = Settings(learning, batch_size=16, buffer_size=32, max_episode_len=1, update_every=1, save_dir=str(tmp_path))
    agents = [kind(f"agent_{i}", SMALL, SIZES, SPACES, i, chosen) for i in range(3)]
    play(agents, 12)
    assert agents[0].missing == 4
    play(agents, 30)
    agent, seen = agents[2], np.ones(SIZES[2])
    agent.reset()
    first, second = (agent.action(seen, greedy=True) for _ in range(2))
    assert not np.allclose(first, second), "it remembers having seen it"
    asked = agent.distribution(seen)
    np.testing.assert_array_equal(jax.tree.leaves(asked)[0], jax.tree.leaves(agent.distribution(seen))[0])
    experience(
        agents,
        [np.ones(size) for size in SIZES],
        [a.action(np.ones(s)) for a, s in zip(agents, SIZES, strict=True)],
        np.zeros(3),
        [np.ones(size) for size in SIZES],
        False,
        True,
    )
    np.testing.assert_array_equal(agent.action(seen, greedy=True), first)
    index, batch = agent._sequences(agents)
    assert batch.obs.shape[:2] == (24, 3)
    ended = np.all([a.replay_buffer.collect().last for a in agents], axis=0)
    places = index.reshape(6, 4)
    np.testing.assert_array_equal(np.asarray(batch.begins).reshape(6, 4)[1:], ended[places[:-1]])
    np.testing.assert_array_equal((places[1:] - places[:-1]) % 32, 1)
    assert all(np.isfinite(each.update(agents, 1)).all() for each in agents)
    for each in agents:
        each.save()
        again = kind(each.name, SMALL, SIZES, SPACES, each.index, chosen)
        again.load()
        jax.tree.map(np.testing.assert_array_equal, each.agent, again.agent)


def test_what_recurrent_trainers_cannot_use_is_refused() -> None:
    learning = masac.Config(recurrent=True)
    with pytest.raises(UsageError, match="leave overwrite at 'oldest'"):
        Settings(learning, overwrite="random")
    with pytest.raises(UsageError, match="sequences of 24 steps need a buffer_size of at least as many"):
        Settings(learning, batch_size=4, buffer_size=20)
    own = Model(init=lambda key, inputs, outputs: init_mlp(key, inputs, (8,), outputs), apply=mlp)
    with pytest.raises(UsageError, match="the model of a does not remember"):
        MASACTrainer("a", own, (2,), (Discrete((2,)),), 0, Settings(learning))


def test_settings_of_another_algorithm_are_refused_and_the_default_is_the_trainers_own() -> None:
    with pytest.raises(UsageError, match=r"MASACTrainer needs learning settings of counterpoint\.algos\.masac\.Config"):
        MASACTrainer("a", SMALL, (2,), (Discrete((2,)),), 0, Settings(matd3.Config()))
    agent = counterpoint.MATD3Trainer("a", SMALL, (2,), (Discrete((2,)),), 0, Settings(batch_size=4, buffer_size=8))
    assert isinstance(agent.config, matd3.Config)
    with pytest.raises(UsageError, match="trainers store single steps"):
        Settings(masac.Config(n_step=2))
