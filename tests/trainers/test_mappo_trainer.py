"""The MAPPO trainer for a loop of your own: training as in a run, every kind of action, files, refusals."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import counterpoint
from counterpoint.algos import mappo
from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.types import Transition

KINDS = (spaces.MultiDiscrete([2, 3]), spaces.Box(0.0, 4.0, (2,)))
RECURRENT = mappo.Config(num_units=4, recurrent=True, epochs=1, minibatches=1)


def play(trainer, num_steps, last=2):
    """Plays episodes of `last` steps, which end by time."""
    for t in range(num_steps):
        time = t % last
        word, move = trainer.get_actions([[time, 1.0], [time]])
        assert len(word) == 2
        assert ((move >= 0) & (move <= 4)).all()
        reward = float(word[1] == 2) - float(np.abs(move - 3.0).sum())
        trainer.experience([reward] * 2, [[time + 1, 1.0], [time + 1]], [False, False], time == last - 1)


@pytest.mark.parametrize("local", [False, True], ids=["mappo", "ippo"])
def test_training_is_the_update_of_a_run_bit_for_bit(local, tmp_path: Path):
    trainer = counterpoint.MappoTrainer((2, 1), KINDS, RECURRENT, seed=3, local_critics=local)
    agents, began = trainer.agents, trainer._carry
    play(trainer, 4)
    s = trainer.memory.get()
    np.testing.assert_allclose(s.pi[:, 0].sum(axis=-1), 2, rtol=1e-6)
    assert not s.pi[:, 1].any()
    rows = (s.observations, s.actions, s.rewards, s.next_observations, s.terminated, s.playing, s.done)
    batch = Transition(*(jnp.asarray(row)[:, None] for row in rows), carry=jax.tree.map(lambda leaf: leaf[None], began))
    key = jax.random.fold_in(prng.key(3), trainer._draws + 1)
    sees = np.eye(2, dtype=bool) | (not local)
    expected, metrics = jax.jit(mappo.make(RECURRENT, trainer.spec, sees).update)(agents, batch, key)
    seen = trainer.train()
    jax.tree.map(np.testing.assert_array_equal, trainer.agents, expected)
    assert seen.keys() == metrics.keys()
    trainer.save(tmp_path, "game")
    other = counterpoint.MappoTrainer((2, 1), KINDS, RECURRENT, seed=4, local_critics=local)
    other.load(tmp_path, "game")
    jax.tree.map(np.testing.assert_array_equal, other.agents, trainer.agents)
    again = [t.get_actions([[0, 1.0], [0]], greedy=True) for t in (trainer, other)]
    assert again[0][0] == again[1][0]
    np.testing.assert_array_equal(again[0][1], again[1][1])


def test_a_team_learns_in_a_loop_of_your_own():
    config = mappo.Config(
        num_units=16, num_layers=1, lr=1e-2, critic_lr=1e-2, minibatches=2, entropy_end=0.0, entropy_steps=500
    )
    trainer = counterpoint.MappoTrainer((2, 1), KINDS, config)
    for _ in range(60):
        play(trainer, 32)
        trainer.train()
    word, move = trainer.get_actions([[0, 1.0], [0]], greedy=True)
    assert word[1] == 2
    np.testing.assert_allclose(move, 3.0, atol=0.4)


def test_mistakes_are_named():
    with pytest.raises(UsageError, match=r"the actions of agent 1, .* are of an unsupported kind"):
        counterpoint.MappoTrainer((1, 1), (spaces.Discrete(2), spaces.Text(3)))
    trainer = counterpoint.MappoTrainer((1,), (spaces.Discrete(2),), RECURRENT)
    with pytest.raises(UsageError, match="the memory is empty"):
        trainer.train()
