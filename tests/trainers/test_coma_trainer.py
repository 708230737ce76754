"""The COMA trainer for a loop of your own: its memory, training as in a run, action masks, dead agents, files, refusals."""

from pathlib import Path

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
    """Plays episodes of `last` steps in which the first agent finishes one step early."""
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
    trainer.train()  # the next steps begin in the middle of an episode, with a recurrent state
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


def test_a_team_learns_in_a_loop_of_your_own():
    """The compiler sees sixteen steps, four of which nobody played; the update is that of the twelve real steps alone."""
    trainer = ComaTrainer((2, 1), (3, 2), QUICK)
    play(trainer, 12)
    s = trainer.memory.get()
    rows = (s.observations, s.actions, s.rewards, s.next_observations, s.terminated, s.playing, s.done)
    batch = Transition(*(jnp.asarray(row)[:, None] for row in rows), carry=())
    expected, figures = jax.jit(coma.make(QUICK, trainer.spec).update)(trainer.agents, batch, prng.key(9))
    seen = trainer.train()
    assert int(trainer.agents.step) == 12 == int(expected.step)
    for name, value in figures.items():  # an episode ends with the last step: no drawn next action counts
        np.testing.assert_allclose(seen[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    for _ in range(60):
        play(trainer, 12, reward=lambda actions: float(actions[0] == 2) + float(actions[1] == 0))
        trainer.train()
    trainer.reset()
    assert trainer.get_actions([[0, 1.0], [0]], greedy=True) == [2, 0]


def masked_play(trainer, num_steps, odd=(False, True, True), even=(True, False, True)):
    """Plays episodes of four steps; the first agent's mask changes with the step, the second dies after two steps."""
    chosen = []
    for t in range(num_steps):
        time = t % 4
        now, after = (odd, even) if time % 2 else (even, odd)
        gone, dying = time > 1, time >= 1
        actions = trainer.get_actions([[time, 1.0], None if gone else [time]], legal=[now, None if gone else [True, True]])
        chosen.append((now, actions[0]))
        rewards, seen = [1.0, None if gone else 1.0], [[time + 1, 1.0], None if dying else [time + 1]]
        end = [time == 3, False]
        trainer.experience(rewards, seen, [False, None if gone else dying], end, [after, None if dying else [True, True]])
    return chosen


def test_illegal_actions_are_never_drawn_and_the_floor_covers_legal_ones_only():
    """With ε = 1 the policy is uniform over legal actions: two of three."""
    trainer = ComaTrainer((2, 1), (3, 2), coma.Config(num_units=8, num_layers=1, epsilon_start=1.0, epsilon_end=1.0))
    chosen = masked_play(trainer, 60)
    assert all(mask[action] for mask, action in chosen)
    assert {action for _, action in chosen} == {0, 1, 2}
    steps = trainer.memory.get()
    np.testing.assert_allclose(steps.pi[0, 0], [0.5, 0, 0.5], rtol=1e-6)
    np.testing.assert_allclose(steps.pi[1, 0], [0, 0.5, 0.5], rtol=1e-6)
    np.testing.assert_array_equal(steps.legal[:2, 0], [[1, 0, 1], [0, 1, 1]])
    np.testing.assert_array_equal(steps.next_legal[:2, 0], [[0, 1, 1], [1, 0, 1]])
    np.testing.assert_array_equal(steps.legal[:, 1], [[1, 1, 0]] * 60)
    trainer.reset()
    likeliest = trainer.get_actions([[0, 1.0], [0]], greedy=True)[0]
    others = [k != likeliest for k in range(3)]
    assert trainer.get_actions([[0, 1.0], [0]], greedy=True, legal=[others, [True, True]])[0] != likeliest


def test_episodes_with_dead_agents_and_masks_train_as_a_batch_made_by_hand():
    """The second agent dies with its second step and gives None from then on: zeros that the update does not count."""
    trainer = ComaTrainer((2, 1), (3, 2), QUICK)
    masked_play(trainer, 8)
    s = trainer.memory.get()
    np.testing.assert_array_equal(s.playing, [[1, t % 4 < 2] for t in range(8)])
    np.testing.assert_array_equal(s.terminated[:, 1], [0, 1, 0, 0] * 2)
    np.testing.assert_array_equal(s.rewards[:, 1], [1, 1, 0, 0] * 2)
    np.testing.assert_array_equal(s.observations[:, 1, 0], [0, 1, 0, 0] * 2)
    np.testing.assert_array_equal(s.next_observations[:, 1, 0], [1, 0, 0, 0] * 2)
    np.testing.assert_array_equal(s.done, [0, 0, 0, 1] * 2)
    rows = (s.observations, s.actions, s.rewards, s.next_observations, s.terminated, s.playing, s.done)
    batch = Transition(*(jnp.asarray(row)[:, None] for row in rows), carry=())
    batch = batch._replace(legal=jnp.asarray(s.legal)[:, None], next_legal=jnp.asarray(s.next_legal)[:, None])
    seen: list[Transition] = []
    update = trainer._update
    trainer._update = lambda agents, batch, key: (seen.append(batch), update(agents, batch, key))[1]
    key = jax.random.fold_in(prng.key(0), trainer._draws + 1)
    expected, _ = jax.jit(coma.make(QUICK, trainer.spec).update)(trainer.agents, batch, key)
    trainer.train()
    jax.tree.map(np.testing.assert_array_equal, trainer.agents, expected)
    jax.tree.map(np.testing.assert_array_equal, seen[0]._replace(carry=()), batch)
    play(trainer, 3)
    trainer.train()
    assert seen[1].legal is None  # without masks, the program without masks


@pytest.mark.parametrize("config", [QUICK, RECURRENT], ids=["quick", "recurrent"])
def test_a_saved_team_continues_as_if_it_had_not_stopped(config, tmp_path: Path):
    trainer, again = ComaTrainer((2, 1), (3, 2), config, seed=5), ComaTrainer((2, 1), (3, 2), config, seed=6)
    play(trainer, 6)
    trainer.train()
    path = trainer.save(tmp_path, "switch2")
    assert path == tmp_path / "switch2/team/trainer.safetensors"
    play(again, 2)
    again.load(tmp_path, "switch2")
    assert len(again.memory) == 0
    for team in (trainer, again):
        play(team, 6)
    np.testing.assert_array_equal(trainer.memory.get().pi, again.memory.get().pi)
    np.testing.assert_array_equal(trainer.memory.get().actions, again.memory.get().actions)
    trainer.train()
    again.train()
    jax.tree.map(np.testing.assert_array_equal, trainer.agents, again.agents)
    assert trainer.save(tmp_path, "switch2", number=2).name == "2_trainer.safetensors"
    fresh = ComaTrainer((2, 1), (3, 2), config)
    fresh.load(tmp_path, "switch2")
    assert int(fresh.agents.step) == 12
    with pytest.raises(UsageError, match="holds other networks than this team has"):
        ComaTrainer((2, 2), (3, 2), config).load(tmp_path, "switch2")
    with pytest.raises(UsageError, match=r"other/team/trainer.safetensors does not exist"):
        fresh.load(tmp_path, "other")


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
    with pytest.raises(UsageError, match=r"agent 0 must have shape \(2,\), not None"):
        trainer.get_actions([None, [0]])
    with pytest.raises(UsageError, match="give legal to get_actions and next_legal to experience, or neither"):
        trainer.experience([0, 0], [[0, 0], [0]], [False, False], next_legal=[[True] * 3, [True] * 2])
    with pytest.raises(UsageError, match="agent 1 still plays and needs a reward"):
        trainer.experience([0, None], [[0, 0], [0]], [False, False])
    with pytest.raises(UsageError, match="the action mask of agent 1 allows nothing"):
        trainer.get_actions([[0, 0], [0]], legal=[[True] * 3, [False, False]])
    with pytest.raises(UsageError, match=r"the action mask of agent 0 must have shape \(3,\), not \(2,\)"):
        trainer.get_actions([[0, 0], [0]], legal=[[True] * 2, [True, False]])
