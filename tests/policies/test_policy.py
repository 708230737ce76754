"""A team as a thing to ask."""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import counterpoint
from counterpoint import config as configs
from counterpoint import runs
from counterpoint.algos import maddpg
from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Discrete
from counterpoint.policies.policy import Policy, load, random_team
from tiny import trained_run


def fresh(scenario: str, learning: maddpg.Config | None = None, **arguments: Any) -> Policy:
    """An untrained team."""
    env = counterpoint.make(scenario, **arguments)
    return Policy(env, *untrained(env, learning or maddpg.Config(num_units=16)))


@cache
def untrained(env: Any, learning: maddpg.Config) -> tuple[Any, Any]:
    """An algorithm and networks that have not learnt anything, which teams may share."""
    n = env.spec.num_agents
    algo = maddpg.make(learning, env.spec, np.ones((n, n), bool))
    return algo, jax.jit(lambda key: algo.policy(algo.init(key)))(prng.key(3))


def seen(policy: Policy, seed: int = 0) -> dict[str, np.ndarray]:
    """Some observation for each agent."""
    spec, generator = policy.env.spec, np.random.default_rng(seed)
    return {name: generator.normal(size=size) for name, size in zip(spec.agents, spec.obs_sizes, strict=True)}


def test_a_trained_run_acts_by_name() -> None:
    team = counterpoint.load(trained_run())
    obs = {"agent_0": np.array([0.0, 0.0, 0.5, -0.5])}
    action = team.act(obs, greedy=True)
    assert list(action) == ["agent_0"]
    assert action["agent_0"] in range(5)
    assert action == counterpoint.load(trained_run().path).act(obs)
    vector = team.act(obs, vectors=True)["agent_0"]
    assert vector.shape == (5,)
    assert vector.sum() == pytest.approx(1, abs=1e-5)
    assert int(np.argmax(vector)) == action["agent_0"]


def test_wrong_names_and_shapes_are_said() -> None:
    team = fresh("simple_tag")
    with pytest.raises(
        UsageError, match="there is no agent 'bob'; the agents are adversary_0, adversary_1, adversary_2, agent_0"
    ):
        team.act({"bob": np.zeros(3)})
    with pytest.raises(UsageError, match=r"the observation of agent_0 must have shape \(14,\), not \(16,\)"):
        team.act({"agent_0": np.zeros(16)})


def test_a_part_of_the_team_acts_as_it_does_among_all() -> None:
    team = fresh("simple_tag")
    obs = seen(team)
    whole = team.act(obs, vectors=True)
    part = team.act({"agent_0": obs["agent_0"]}, vectors=True)
    assert list(part) == ["agent_0"]
    np.testing.assert_array_equal(part["agent_0"], whole["agent_0"])


def test_exploring_varies_and_greedy_does_not() -> None:
    team = fresh("simple")
    obs = seen(team)
    assert len({team.act(obs)["agent_0"] for _ in range(10)}) == 1
    assert len({team.act(obs, greedy=False)["agent_0"] for _ in range(30)}) > 1


def test_several_heads_are_one_integer_as_in_mpe2() -> None:
    """move + 5·word: the integer, taken apart, names the largest entry of each head."""
    team = fresh("simple_reference")
    space = team.env.spec.action_spaces[0]
    assert isinstance(space, Discrete)
    assert space.heads == (5, 10)
    for seed in range(5):
        obs = seen(team, seed)
        integer, vector = team.act(obs)["agent_0"], team.act(obs, vectors=True)["agent_0"]
        assert (integer % 5, integer // 5) == (int(np.argmax(vector[:5])), int(np.argmax(vector[5:])))


def test_continuous_actions_are_in_the_worlds_range() -> None:
    team = fresh("simple_spread", actions="continuous")
    space = team.env.spec.action_spaces[0]
    assert not isinstance(space, Discrete)
    for greedy in (True, False):
        action = team.act(seen(team), greedy=greedy)["agent_1"]
        assert action.shape == (space.size,)
        assert ((space.low <= action) & (action <= space.high)).all()


def test_noise_is_forgotten_when_an_episode_begins() -> None:
    team = fresh("simple_spread", maddpg.Config(noise="ou", noise_end=0.3, num_units=16), actions="continuous")
    obs = seen(team)
    team.act(obs, greedy=False)
    assert np.abs(np.asarray(team._carry)).max() > 0
    team.reset()
    assert np.abs(np.asarray(team._carry)).max() == 0


def test_a_film_has_a_picture_for_the_start_and_every_step() -> None:
    films = fresh("simple", max_steps=7).film(episodes=2, seed=5)
    assert [len(film) for film in films] == [8, 8]
    assert films[0][0] != films[1][0]
    assert films[0][0] != films[0][7]


def test_a_random_team_tries_everything_equally() -> None:
    team = random_team(counterpoint.make("simple"))
    obs = {"agent_0": np.ones(4)}
    count = Counter(team.act(obs, greedy=False)["agent_0"] for _ in range(500))
    assert sorted(count) == [0, 1, 2, 3, 4]
    assert max(abs(n - 100) for n in count.values()) < 45


def test_seeds_and_files_that_do_not_fit_are_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has one seed: leave out --seed-index 1\."):
        load(trained_run(), seed_index=1)
    run = runs.create(tmp_path, "odd", trained_run().config)
    with pytest.raises(UsageError, match="the run has saved no policy yet"):
        load(run)
    tensors, about = trained_run().load_policy()
    run.save_policy({name: tensor[..., :-1] for name, tensor in tensors.items()}, about)
    with pytest.raises(UsageError, match=r"policy.safetensors of .*odd does not fit its config.json"):
        load(run)
    settings = configs.override(configs.from_dict(run.config), num_units=17)
    run.rewrite_config(configs.to_dict(settings))
    run.save_policy(tensors, about)
    with pytest.raises(UsageError, match="does not fit"):
        load(run)
