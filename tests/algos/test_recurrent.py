"""Recurrent off-policy learning: what memory is good for, what it leaves alone, and what it cannot be combined with."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint import config as configs
from counterpoint.algos import maddpg, masac, matd3, recurrent
from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.training import program
from ladders import climb, recalled
from probes import Recall

QUICK = {"num_units": 16, "num_layers": 1, "tau": 0.1, "recurrent": True, "sequence_length": 4, "burn_in": 2}
LEARNERS = {
    "maddpg": (maddpg.make, maddpg.Config(**QUICK, lr=1e-2, world_action="one-hot")),
    "matd3": (matd3.make, matd3.Config(**QUICK, lr=1e-2, world_action="one-hot")),
    "masac": (masac.make, masac.Config(**QUICK, lr=1e-2)),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_the_cue_is_remembered_until_it_pays(name):
    make, config = LEARNERS[name]
    env = Recall(max_steps=3)
    agents = climb(make, env, config, iterations=400)
    np.testing.assert_array_equal(recalled(make, env, config, agents)[-1, :, 0], [[0, 1], [1, 0]])


def test_without_memory_the_cue_is_lost():
    make, config = LEARNERS["masac"]
    forgetful = dataclasses.replace(config, recurrent=False)
    agents = climb(make, Recall(max_steps=3), forgetful, iterations=400)
    first, second = recalled(make, Recall(max_steps=3), forgetful, agents)[-1, :, 0]
    np.testing.assert_array_equal(first, second)


def test_following_a_sequence_is_acting_step_by_step():
    """What `run` says of a sequence is what the acting network says, which forgets where an episode begins."""
    config = LEARNERS["maddpg"][1]
    for layers in (1, 3):
        config = dataclasses.replace(config, num_layers=layers)
        net = recurrent.init_network(prng.key(0), jnp.ones(2), config.hidden, jnp.ones(3), "he")
        obs = np.random.default_rng(0).normal(size=(5, 4, 1, 2)).astype(np.float32)
        begins = np.zeros((5, 4), bool)
        begins[0], begins[3, 1] = True, True
        found = recurrent.run(net, jnp.asarray(obs.reshape(20, 2).T), jnp.asarray(begins.ravel()), 5)
        stacked, hidden = jax.tree.map(lambda leaf: leaf[None], net), jnp.zeros((4, 1, 16))
        for t in range(5):
            hidden = jnp.where(begins[t][:, None, None], 0.0, hidden)
            raw, hidden = recurrent.act(config, Recall().spec, stacked, hidden, jnp.asarray(obs[t]))
            np.testing.assert_allclose(found.outputs.T.reshape(5, 4, 3)[t], raw[:, 0], atol=1e-6)
            np.testing.assert_allclose(found.after.reshape(5, 4, 16)[t], hidden[:, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sequence_length": 0}, "--sequence-length must be at least 1, not 0"),
        ({"burn_in": -1}, "--burn-in must be at least 0, not -1"),
        ({"burn_in": 20_000}, "--burn-in must be at most 10000, not 20000"),
        ({"n_step": 5, "sequence_length": 4}, "--n-step 5 reaches beyond a sequence of --sequence-length 4"),
        ({"norm": "layer"}, "--recurrent and --norm layer exclude each other"),
        ({"replay": "prioritised"}, "--recurrent and --replay prioritised exclude each other"),
        ({"model": "model.py:model"}, "--recurrent and --model model.py:model exclude each other"),
        ({"critic": "attention", "share": "role"}, "--critic attention does not remember"),
        ({"learners": 2}, "--learners 2 compute updates from single steps: leave out --recurrent"),
        ({"num_envs": 10, "buffer_size": 200, "batch_size": 64}, "--buffer-size 200 does not hold sequences of 24 steps"),
        ({"num_envs": 5, "devices": 2}, "--devices 2 does not divide --num-envs 5 of a recurrent team"),
    ],
)
def test_what_cannot_be_combined_is_refused_in_one_sentence(settings, words):
    with pytest.raises(UsageError, match=words) as caught:
        program.prepare(configs.override(configs.Config(), recurrent=True, **settings))
    assert "\n" not in str(caught.value)
