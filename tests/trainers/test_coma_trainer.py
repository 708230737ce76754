"""The team for a loop of one's own: it remembers what happened, learns as a run does, and says what is missing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import coma
from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.types import Transition
from counterpoint.trainers.coma import ComaTrainer, Episodes

QUICK = coma.Config(num_units=16, num_layers=1, lr=2e-2, critic_lr=2e-2, epsilon_start=0.2, epsilon_end=0.2)
RECURRENT = coma.Config(num_units=8, num_layers=2, recurrent=True)


def play(trainer, num_steps, reward=lambda actions: 1.0, last=3):
    """Episodes of `last` steps in which the first agent finishes one step early."""
    for t in range(num_steps):
        time = t % last
        actions = trainer.get_actions([[time, 1.0], [time]])
        over = time == last - 1
        trainer.experience([reward(actions)] * 2, [[time + 1, 1.0], [time + 1]], [time >= last - 2, False], over)


def test_the_memory_holds_whole_episodes_until_cleared():
    trainer = ComaTrainer((2, 1), (3, 2), QUICK)
    play(trainer, 7)
    memory = trainer.memory
    steps = memory.get()
    assert isinstance(steps, Episodes)
    assert len(memory) == 7 == len(steps.done)
    np.testing.assert_array_equal(steps.done, [0, 0, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(steps.playing[:, 0], [1, 1, 0, 1, 1, 0, 1])
    assert steps.playing[:, 1].all()
    np.testing.assert_allclose(steps.pi.sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(steps.pi[:, 1, 2], 0, err_msg="padding is never chosen")
    assert (steps.actions.sum(axis=-1) == 1).all()
    np.testing.assert_array_equal(steps.observations[:, 1], [[0, 0], [1, 0], [2, 0], [0, 0], [1, 0], [2, 0], [0, 0]])
    memory.clear()
    assert len(memory) == 0
    with pytest.raises(UsageError, match="the memory is empty"):
        trainer.train()


def test_training_is_the_update_of_a_run_bit_for_bit():
    trainer = ComaTrainer((2, 1), (3, 2), RECURRENT, seed=3)
    play(trainer, 2)
    trainer.train()  # what follows begins in the middle of an episode, with something remembered
    began, agents = trainer._carry, trainer.agents
    play_on = trainer.get_actions([[2, 1.0], [2]])
    assert len(play_on) == 2
    trainer.experience([1.0, 1.0], [[3, 1.0], [3]], [True, False], True)
    play(trainer, 3)
    s = trainer.memory.get()
    rows = (s.observations, s.actions, s.rewards, s.next_observations, s.terminated, s.playing, s.done)
    batch = Transition(*(jnp.asarray(row)[:, None] for row in rows), carry=began[None])
    key = jax.random.fold_in(prng.key(3), trainer._draws + 1)
    expected, figures = jax.jit(coma.make(RECURRENT, trainer.spec).update)(agents, batch, key)
    seen = trainer.train()
    jax.tree.map(np.testing.assert_array_equal, trainer.agents, expected)
    assert seen.keys() == figures.keys()
    assert int(trainer.agents.step) == 6


@pytest.mark.slow
def test_a_team_learns_in_a_loop_of_ones_own():
    """Twelve steps become sixteen for the compiler: four that nobody played; what is learnt is what the twelve alone teach."""
    trainer = ComaTrainer((2, 1), (3, 2), QUICK)
    play(trainer, 12)
    s = trainer.memory.get()
    rows = (s.observations, s.actions, s.rewards, s.next_observations, s.terminated, s.playing, s.done)
    batch = Transition(*(jnp.asarray(row)[:, None] for row in rows), carry=())
    expected, figures = jax.jit(coma.make(QUICK, trainer.spec).update)(trainer.agents, batch, prng.key(9))
    seen = trainer.train()
    assert int(trainer.agents.step) == 12 == int(expected.step)
    for name, value in figures.items():  # an episode ends with the last step: no next action is drawn that anybody hears
        np.testing.assert_allclose(seen[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    for _ in range(60):
        play(trainer, 12, reward=lambda actions: float(actions[0] == 2) + float(actions[1] == 0))
        trainer.train()
    trainer.reset()
    assert trainer.get_actions([[0, 1.0], [0]], greedy=True) == [2, 0]


def test_what_is_wrong_is_one_sentence():
    trainer = ComaTrainer((2, 1), (3, 2), QUICK)
    with pytest.raises(UsageError, match="experience follows get_actions"):
        trainer.experience([0, 0], [[0, 0], [0]], [False, False])
    with pytest.raises(UsageError, match="there are 2 agents, not 1"):
        trainer.get_actions([[0, 0]])
    with pytest.raises(UsageError, match=r"agent 1 must have shape \(1,\), not \(2,\)"):
        trainer.get_actions([[0, 0], [0, 0]])
    trainer.get_actions([[0, 0], [0]])
    with pytest.raises(UsageError, match="one entry for each of 2 agents"):
        trainer.experience([0], [[0, 0], [0]], [False, False])
