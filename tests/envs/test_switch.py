"""Switch against recordings of ma-gym 0.0.14, against its optimum by dynamic programming, and rule by rule."""

import functools
import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.picture import Circle, Polygon
from counterpoint.core.spaces import Discrete
from counterpoint.envs import make
from counterpoint.envs.switch import State, Switch, Switch2, Switch4

GOLDEN = Path(__file__).parents[1] / "golden" / "magym"
VARIANTS = {0: ("own", False), 1: ("full", False), 2: ("own", True), 3: ("full", True)}
DOWN, LEFT, UP, RIGHT, STAY = range(5)
CELLS = [(r, c) for r in range(3) for c in range(7) if r == 1 or c in (0, 1, 5, 6)]


@functools.cache
def player(env: Switch):
    """Plays choices [T, N] from the start: the first observation, then states and steps stacked over time."""

    def play(choices):
        state, obs = env.reset(prng.key(0))

        def advance(state, choice):
            state, step = env.step(prng.key(0), state, jax.nn.one_hot(choice, 5))
            return state, (state, step)

        return obs, jax.lax.scan(advance, state, choices)[1]

    return jax.jit(play)


@functools.cache
def stepper(env: Switch):
    return jax.jit(lambda state, choice: env.step(prng.key(0), state, jax.nn.one_hot(choice, 5)))


def place(*cells: tuple[int, int], home: tuple[bool, ...] | None = None, step: int = 0) -> State:
    """A board with the agents on these cells."""
    return State(
        position=jnp.array(cells, jnp.int32),
        home=jnp.array(home or (False,) * len(cells)),
        step=jnp.array(step, jnp.int32),
    )


def positions(env: Switch, state: State, *choice: int) -> list[tuple[int, int]]:
    """Where everybody stands one step later."""
    after, _ = stepper(env)(state, jnp.array(choice))
    return [tuple(cell) for cell in after.position.tolist()]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_equals_magym(version):
    golden = np.load(GOLDEN / f"switch2_v{version}.npz")
    observation, clock = VARIANTS[version]
    env = Switch2(observation=observation, clock=clock)
    assert len(golden["length"]) == len(json.loads(str(golden["meta_json"]))["kinds"]) == 7
    for episode, length in enumerate(golden["length"]):
        choices = np.where(golden["act"][episode] < 0, STAY, golden["act"][episode])
        first, (states, steps) = player(env)(choices)
        obs = np.concatenate([first[None], steps.obs])
        np.testing.assert_allclose(obs[: length + 1], golden["obs"][episode, : length + 1], atol=1e-6)
        np.testing.assert_array_equal(states.position[:length], golden["pos"][episode, 1 : length + 1])
        np.testing.assert_allclose(steps.reward[:length], golden["rew"][episode, :length], atol=1e-6)
        done = np.asarray(steps.terminated | steps.truncated)
        np.testing.assert_array_equal(done[:length], golden["done"][episode, :length])
        assert done[length - 1].all()


def test_best_return_is_known():
    """8.3 in 12 steps (ma-gym's own script needs 13), by dynamic programming over all boards of two agents."""
    env = Switch2()
    boards = [(a, b, home) for a in CELLS for b in CELLS if a != b for home in itertools.product((False, True), repeat=2)]
    number = {board: i for i, board in enumerate(boards)}
    pairs = jnp.array(list(itertools.product(range(5), repeat=2)))
    states = State(
        position=jnp.array([board[:2] for board in boards], jnp.int32),
        home=jnp.array([board[2] for board in boards]),
        step=jnp.zeros(len(boards), jnp.int32),
    )
    every = jax.jit(jax.vmap(jax.vmap(stepper(env), (None, 0)), (0, None)))
    after, steps = every(states, pairs)
    following = np.array(
        [
            number[(tuple(a), tuple(b), tuple(home))]
            for (a, b), home in zip(
                np.asarray(after.position).reshape(-1, 2, 2).tolist(),
                np.asarray(after.home).reshape(-1, 2).tolist(),
                strict=True,
            )
        ]
    ).reshape(len(boards), len(pairs))
    reward = np.asarray(steps.reward, np.float64).sum(-1)
    start = number[((0, 1), (0, 5), (False, False))]
    value, best = np.zeros(len(boards)), []
    for _ in range(env.max_steps):
        value = (reward + value[following]).max(axis=1)
        best.append(value[start])
    assert best[-1] == pytest.approx(8.3, abs=1e-5)
    assert best[11] == pytest.approx(8.3, abs=1e-5)
    assert best[10] < 8.3 - 0.01


def test_all_stay_costs_five_each():
    _, (states, steps) = player(Switch2())(np.full((50, 2), STAY))
    np.testing.assert_allclose(steps.reward.sum(0), [-5.0, -5.0], atol=1e-5)
    assert not steps.terminated.any()
    assert steps.truncated[-1].all()
    assert not steps.truncated[:-1].any()
    metrics = Switch2().metrics(jax.tree.map(lambda leaf: leaf[-1], states))
    assert {name: float(metric.value) for name, metric in metrics.items()} == {"home": 0.0, "success": 0.0, "steps": 50.0}


def test_home_is_terminated_for_good_and_never_truncated():
    go = [DOWN, RIGHT, RIGHT, RIGHT, RIGHT, RIGHT, UP]  # agent 0 ends in (0, 6); agent 1 has stepped out of the way
    out = [RIGHT, DOWN, DOWN, STAY, STAY, STAY, STAY]
    choices = np.full((50, 2), STAY)
    choices[: len(go), 0], choices[: len(out), 1] = go, out
    choices[7:, 0] = DOWN  # ignored: it is home
    _, (states, steps) = player(Switch2())(choices)
    np.testing.assert_array_equal(steps.terminated[:, 0], np.arange(50) >= 6)
    np.testing.assert_array_equal(states.position[6:, 0], np.tile([0, 6], (44, 1)))
    np.testing.assert_allclose(steps.reward[:, 0], [-0.1] * 6 + [5.0] + [0.0] * 43, atol=1e-6)
    np.testing.assert_array_equal(steps.truncated[-1], [False, True])
    assert not steps.terminated[:, 1].any()
    metrics = Switch2().metrics(jax.tree.map(lambda leaf: leaf[-1], states))
    assert {name: float(metric.value) for name, metric in metrics.items()} == {"home": 1.0, "success": 0.0, "steps": 50.0}


def test_reaching_home_in_the_last_step_is_success_not_truncation():
    state = place((1, 6), (0, 0), home=(False, True), step=49)
    after, step = stepper(Switch2())(state, jnp.array([UP, STAY]))
    assert step.terminated.all()
    assert not step.truncated.any()
    np.testing.assert_allclose(step.reward, [5.0, 0.0])
    assert float(Switch2().metrics(after)["success"].value) == 1.0


@pytest.mark.parametrize(("choice", "target"), [(DOWN, (2, 1)), (LEFT, (1, 0)), (UP, (0, 1)), (RIGHT, (1, 2)), (STAY, (1, 1))])
def test_moves(choice, target):
    assert positions(Switch2(), place((1, 1), (0, 5)), choice, STAY)[0] == target


@pytest.mark.parametrize(
    ("cell", "choice"),
    [
        ((0, 0), UP),
        ((0, 0), LEFT),
        ((2, 6), DOWN),
        ((2, 6), RIGHT),
        ((0, 1), RIGHT),
        ((2, 5), LEFT),
        ((1, 2), UP),
        ((1, 3), DOWN),
        ((1, 4), UP),
    ],
)
def test_walls_and_borders_stop(cell, choice):
    assert positions(Switch2(), place(cell, (1, 5)), choice, STAY)[0] == cell


def test_lower_index_moves_first():
    two, four = Switch2(), Switch4()
    # Facing each other nobody passes; a follower of higher index follows at once, one of lower index does not.
    assert positions(two, place((1, 2), (1, 3)), RIGHT, LEFT) == [(1, 2), (1, 3)]
    assert positions(two, place((1, 3), (1, 2)), RIGHT, RIGHT) == [(1, 4), (1, 3)]
    assert positions(two, place((1, 2), (1, 3)), RIGHT, RIGHT) == [(1, 2), (1, 4)]
    # Both want one cell: the lower index has it.
    assert positions(two, place((1, 2), (1, 4)), RIGHT, LEFT) == [(1, 3), (1, 4)]
    train = place((1, 5), (1, 4), (1, 3), (1, 2))
    assert positions(four, train, RIGHT, RIGHT, RIGHT, RIGHT) == [(1, 6), (1, 5), (1, 4), (1, 3)]
    assert positions(four, place((1, 2), (1, 3), (1, 4), (1, 5)), *[RIGHT] * 4) == [(1, 2), (1, 3), (1, 4), (1, 6)]


def test_an_agent_at_home_is_in_the_way():
    state = place((0, 6), (1, 6), (2, 1), (2, 5), home=(True, False, False, False))
    assert positions(Switch4(), state, DOWN, UP, STAY, STAY) == [(0, 6), (1, 6), (2, 1), (2, 5)]


def test_only_the_own_goal_counts():
    state = place((1, 0), (1, 6), (1, 5), (1, 1))
    after, step = stepper(Switch4())(state, jnp.array([UP, UP, STAY, STAY]))
    assert after.position[:2].tolist() == [[0, 0], [0, 6]]
    assert not step.terminated.any()
    np.testing.assert_allclose(step.reward, [-0.1] * 4, atol=1e-6)


def test_switch4_starts_and_goals():
    state, obs = Switch4(clock=False).reset(prng.key(0))
    assert state.position.tolist() == [[0, 1], [0, 5], [2, 1], [2, 5]]
    np.testing.assert_allclose(obs, [[0, 0.17], [0, 0.83], [1, 0.17], [1, 0.83]], atol=1e-6)
    before = place((1, 6), (1, 0), (2, 5), (2, 1))
    _, step = stepper(Switch4())(before, jnp.array([UP, UP, RIGHT, LEFT]))
    assert step.terminated.all()
    np.testing.assert_allclose(step.reward, [5.0] * 4)


@pytest.mark.parametrize("world", [Switch2, Switch4])
def test_observation_variants(world):
    n = world.num_agents
    state = place(*CELLS[3 : 3 + n], step=25)
    own = world(clock=False).observe(state)
    timed = np.concatenate([own, np.full((n, 1), 0.5)], axis=1)
    np.testing.assert_allclose(world().observe(state), timed, atol=1e-6)  # own cell and clock are the default
    for observation, clock in VARIANTS.values():
        env = world(observation=observation, clock=clock)
        seen = np.asarray(env.observe(state))
        expected = timed if clock else np.asarray(own)
        expected = np.tile(expected.reshape(1, -1), (n, 1)) if observation == "full" else expected
        np.testing.assert_allclose(seen, expected, atol=1e-6)
        assert env.spec.obs_sizes == (seen.shape[1],) * n


def test_a_longer_game_has_a_slower_clock():
    first, (_, steps) = player(Switch2(max_steps=100))(np.full((100, 2), STAY))
    np.testing.assert_allclose(first[:, 2], 0.0)
    np.testing.assert_allclose(steps.obs[:, 0, 2], np.arange(1, 101) / 100, atol=1e-6)
    assert steps.truncated.sum() == 2
    assert steps.truncated[-1].all()


def test_jit_and_vmap_change_nothing():
    env = Switch2(observation="full")
    choices = jax.random.randint(jax.random.key(1), (12, 4, env.num_agents), 0, 5)
    first, batch = jax.vmap(player(env), in_axes=1)(choices)
    for e in range(4):
        alone = player(env)(choices[:, e])
        there = jax.tree.map(lambda leaf, e=e: leaf[e], (first, batch))
        for one, many in zip(jax.tree.leaves(alone), jax.tree.leaves(there), strict=True):
            np.testing.assert_allclose(one, many, atol=1e-6)
    state, obs = env.reset(prng.key(0))
    np.testing.assert_array_equal(first[0], obs)
    for t in range(2):
        relaxed = jax.nn.softmax(jax.nn.one_hot(choices[t, 0], 5))  # the largest entry decides: the same choice
        state, step = env.step(prng.key(0), state, relaxed)
        there = jax.tree.map(lambda leaf, t=t: leaf[0, t], batch)
        for one, many in zip(jax.tree.leaves((state, step)), jax.tree.leaves(there), strict=True):
            np.testing.assert_allclose(one, many, atol=1e-6)


def test_state_keeps_its_types():
    env = Switch2()
    state, _ = env.reset(prng.key(0))
    after, step = jax.eval_shape(env.step, prng.key(0), state, jnp.zeros((2, 5)))
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), after
    )
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((after, step)))


def test_spec_and_registry():
    for name, world in (("switch2", Switch2), ("switch4", Switch4)):
        env = make(name, max_steps=7)
        assert env == world(max_steps=7)
        assert env.name == name
        assert env.spec.agents == env.spec.roles == tuple(f"agent_{i}" for i in range(world.num_agents))
        assert env.spec.action_spaces == (Discrete((5,)),) * world.num_agents
        assert set(env.spec.teams) == {"good"}
        assert {metric.reduction for metric in env.metrics(env.reset(prng.key(0))[0]).values()} == {"last"}


@pytest.mark.parametrize(
    ("field", "value"), [("observation", "all"), ("clock", "yes"), ("max_steps", 0), ("step_cost", "little")]
)
def test_bad_arguments_are_named(field, value):
    env = Switch2()
    object.__setattr__(env, field, value)  # past the type checks that only tests have
    with pytest.raises(UsageError, match=f"{field} must .*{value!r}"):
        env.__post_init__()


def test_misspelt_argument_gets_a_hint():
    with pytest.raises(UsageError, match="perhaps max_steps"):
        make("switch2", max_step=5)


def test_drawing():
    env = Switch4()
    picture = env.draw(env.reset(prng.key(0))[0])
    walls = [shape for shape in picture.shapes if isinstance(shape, Polygon) and shape.role == "wall"]
    goals = [shape for shape in picture.shapes if isinstance(shape, Polygon) and shape.role == "goal"]
    agents = [shape for shape in picture.shapes if isinstance(shape, Circle)]
    assert len(walls) == 6
    assert [goal.label for goal in goals] == ["0", "1", "2", "3"]
    assert np.mean(goals[0].points, axis=0).tolist() == [6.0, 2.0]  # row 0 is on top
    assert [(agent.x, agent.y) for agent in agents] == [(1, 2), (5, 2), (1, 0), (5, 0)]
    assert "home 0/4" in picture.caption
