"""A network of the user's own in MADDPG and DDPG: it learns, reads only what its critic may see, and is refused in words."""

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_maddpg import random_batch

from counterpoint.algos import maddpg, offpolicy
from counterpoint.core import prng
from counterpoint.core.actions import heads_of
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import Model
from counterpoint.core.spaces import Box, Discrete
from counterpoint.training.replay import example, uniform
from counterpoint.training.rollout import rollout, start
from probes import Matching, spec_of

FAST = {"xla_backend_optimization_level": 0}


def init(key, inputs, outputs):
    """A hidden layer of tanh units beside a direct path, as a dictionary."""
    keys = jax.random.split(key, 3)
    sizes = {"into": (inputs.size, 16), "out": (16, outputs.size), "direct": (inputs.size, outputs.size)}
    return {name: 0.5 * jax.random.normal(k, size) for k, (name, size) in zip(keys, sizes.items(), strict=True)}


def apply(params, x):
    return jnp.tanh(x @ params["into"]) @ params["out"] + x @ params["direct"]


MODEL = Model(init, apply)
CONFIG = maddpg.Config(model=f"{__file__}:MODEL", tau=0.1, lr=3e-3, world_action="one-hot")


def test_a_team_with_its_own_network_learns():
    env, ones = Matching(), np.ones((1, 1), bool)
    algo = maddpg.make(CONFIG, env.spec, ones)
    memory = uniform(example(env.spec), 64 * 256, 64, 64)

    def iteration(loop, key):
        agents, envs, ring = loop
        key_roll, key_sample, key_learn = jax.random.split(key, 3)
        envs, steps, _ = rollout(env, algo, algo.policy(agents), envs, key_roll, 4, jnp.int32(0))
        ring = memory.add(ring, steps)
        return (algo.update(agents, memory.sample(ring, key_sample), key_learn)[0], envs, ring), None

    def run(key):
        loop = algo.init(key), start(env, algo, key, 16), memory.init()
        return jax.lax.scan(iteration, loop, jax.random.split(key, 400))[0][0]

    agents = jax.jit(run, compiler_options=FAST)(prng.key(0))
    assert set(agents.actor) == {"into", "out", "direct"}, "the networks are the user's"
    action, _ = algo.greedy(algo.policy(agents), (), jnp.array([[[1.0]], [[-1.0]]]))
    np.testing.assert_array_equal(action[:, 0], [[0.0, 1.0], [1.0, 0.0]])


UNEQUAL = spec_of((4, 2), (Discrete((3, 2)), Box(2, 0.0, 1.0)))


@pytest.mark.parametrize("joint", [True, False], ids=["maddpg", "ddpg"])
def test_a_critic_of_ones_own_reads_those_it_sees_and_no_padding(joint):
    """The network has no masked weights, so the learner hides the rest from it, and padded outputs cost nothing."""
    sees = np.eye(2, dtype=bool) | joint
    algo = maddpg.make(dataclasses.replace(CONFIG, logit_cost=0.5), UNEQUAL, sees)
    agents = jax.jit(algo.init)(prng.key(0))
    update = jax.jit(algo.update, compiler_options=FAST)
    batch, other = random_batch(UNEQUAL, 0), random_batch(UNEQUAL, 1)
    changed = batch._replace(
        **{name: np.stack([getattr(batch, name)[:, 0], getattr(other, name)[:, 1]], 1) for name in ("obs", "action")}
    )
    (one, _), (two, _) = (update(agents, b, prng.key(1)) for b in (batch, changed))
    moved = [not np.array_equal(a[0], b[0]) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)]
    assert any(moved) == joint
    untouched = np.asarray(one.actor["out"] - agents.actor["out"])[1]
    assert not untouched[:, 2:].any(), "outputs beyond an agent's own get no gradient"
    assert untouched[:, :2].any()
    action, _ = jax.jit(algo.greedy)(algo.policy(one), (), jnp.asarray(batch.obs))
    assert not np.any(np.asarray(action)[:, ~UNEQUAL.act_mask])


def test_q_with_own_action_is_q_of_the_changed_joint_vector():
    problem = maddpg.Problem(UNEQUAL, heads_of(UNEQUAL), np.ones((2, 2), bool), model=MODEL)
    batch = offpolicy.in_columns(jax.tree.map(jnp.asarray, random_batch(UNEQUAL, 0)))
    critic = init(prng.key(0), jnp.ones(18), jnp.ones(1))
    view = offpolicy.view_of(
        problem, jax.tree.map(lambda leaf: leaf if leaf.ndim == 1 else leaf[1], batch), batch, jnp.int32(1)
    )
    new = jnp.full((5, 16), 0.25)
    expected = offpolicy.q(problem, critic, offpolicy.joint(batch.obs, batch.action.at[1].set(new)))
    np.testing.assert_allclose(offpolicy.q_with_own_action(problem, critic, view, new), expected, rtol=1e-5)


def test_learners_elsewhere_get_the_address_and_not_the_functions():
    algo = maddpg.make(CONFIG, UNEQUAL, np.ones((2, 2), bool))
    assert b"MODEL" in pickle.dumps(algo.update_one)
    assert b"apply" not in pickle.dumps(algo.update_one)
    assert maddpg.MADDPG.actors(CONFIG, UNEQUAL, maddpg.Acting(())) is None, "no plain networks to export"


NOT_A_MODEL = 3


def test_what_is_no_model_is_refused():
    with pytest.raises(UsageError, match=r"test_model.py:NOT_A_MODEL is a int, not a counterpoint.Model\(init, apply\)"):
        maddpg.make(dataclasses.replace(CONFIG, model=f"{__file__}:NOT_A_MODEL"), UNEQUAL, np.ones((2, 2), bool))
    with pytest.raises(UsageError, match="--norm layer belongs to the built-in networks"):
        dataclasses.replace(CONFIG, norm="layer")
