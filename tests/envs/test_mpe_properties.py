"""What is true of every particle world in every state, whatever the reference says."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental import checkify

from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.types import Step
from counterpoint.envs import WORLDS, make
from counterpoint.envs.mpe.scenario import Scenario, State

QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""Compile options: nearly all the time here is compilation, and these make it a third."""

NAMES = [name for name, world in WORLDS.items() if issubclass(world, Scenario)]
CROWDS: list[Scenario] = [
    make("simple_adversary", N=3, num_adversaries=2),
    make("simple_push", num_good=2, num_adversaries=3),
    make("simple_reference"),
    make("simple_spread"),
    make("simple_tag", num_good=2),
    make("simple_world_comm"),
    make("simple_spread", flavour="openai"),
]
SEEDS = st.integers(0, 2**32 - 1)
SCALES = st.sampled_from([0.05, 0.3, 1.2])
KEY = prng.key(0)


@cache
def step_of(world: Scenario) -> Any:
    return jax.jit(partial(world.step, KEY), compiler_options=QUICK)


def random_state(world: Scenario, rng: np.random.Generator, scale: float = 1.0) -> State:
    n, landmarks, words = world.num_agents, world.num_landmarks, world.bodies.num_words
    movable, talks = world.bodies.movable[:, None], world.bodies.talks[:, None]
    state = State(
        position=rng.uniform(-scale, scale, (n, 2)),
        velocity=rng.uniform(-1, 1, (n, 2)) * movable,
        comm=rng.uniform(size=(n, words)) * talks,
        landmarks=rng.uniform(-scale, scale, (landmarks, 2)),
        goal=rng.integers(landmarks, size=world.num_goals),
        step=np.zeros((), int),
    )
    return jax.tree.map(lambda leaf: leaf.astype(np.float32 if leaf.dtype == float else np.int32), state)


def random_action(world: Scenario, rng: np.random.Generator) -> np.ndarray:
    return (rng.uniform(size=world.spec.act_mask.shape) * world.spec.act_mask).astype(np.float32)


def assert_close(ours: Any, theirs: Any, tolerance: float) -> None:
    jax.tree.map(partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance), ours, theirs)


@pytest.mark.parametrize("world", CROWDS, ids=lambda world: f"{world.name}-{world.flavour}")
@settings(max_examples=15)
@given(seed=SEEDS, scale=SCALES)
def test_agents_of_one_role_are_interchangeable(world, seed, scale):
    """Who is called agent_0 makes no difference: all that happens to agents follows them through a change of order."""
    rng = np.random.default_rng(seed)
    state, action = random_state(world, rng, scale), random_action(world, rng)
    order = np.arange(world.num_agents)
    for role in set(world.roles):
        members = np.flatnonzero(np.array(world.roles) == role)
        order[members] = rng.permutation(members)

    def reorder(state: State) -> State:
        goal = state.goal[order] if world.name == "simple_reference" else state.goal  # there a goal is an agent's own
        return state._replace(position=state.position[order], velocity=state.velocity[order], comm=state.comm[order], goal=goal)

    after, step = step_of(world)(state, action)
    after_reordered, step_reordered = step_of(world)(reorder(state), action[order])
    assert_close(after_reordered, reorder(after), 2e-5)
    assert_close(step_reordered.reward, step.reward[order], 2e-5)
    # An observation lists others in index order, so the same numbers stand in other places.
    assert_close(np.sort(step_reordered.obs, axis=1), np.sort(step.obs[order], axis=1), 2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_equals_a_loop(name):
    world, rng = make(name), np.random.default_rng(3)
    cases = [(random_state(world, rng, scale), random_action(world, rng)) for scale in (0.05, 0.3, 1.2)]
    loop = [step_of(world)(*case) for case in cases]
    states, actions = jax.tree.map(lambda *leaves: np.stack(leaves), *cases)
    batch = jax.jit(jax.vmap(partial(world.step, KEY)), compiler_options=QUICK)(states, actions)
    for i, expected in enumerate(loop):
        assert_close(jax.tree.map(lambda leaf, i=i: leaf[i], batch), expected, 2e-6)


@pytest.mark.parametrize("name", ["simple_crypto", "simple_spread"])  # op by op is slow
def test_jit_changes_nothing(name):
    world, rng = make(name), np.random.default_rng(4)
    state, action = random_state(world, rng, 0.3), random_action(world, rng)
    with jax.disable_jit():
        eager = world.step(KEY, jax.tree.map(jnp.asarray, state), jnp.asarray(action))
    assert_close(step_of(world)(state, action), eager, 2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_undefined_where_all_meet(name):
    """All agents and landmarks at one point, or closer than a square root can tell, or out of sight of each other."""
    world, rng = make(name), np.random.default_rng(5)
    state, action = random_state(world, rng), random_action(world, rng)
    for separation in (0.0, 1e-38, 1e-30, 1e-20, 1e-15, 1e-8, 1e4, 1e15):
        for centre in (0.0, 0.7):
            crowd = state._replace(position=state.position * np.float32(separation) + np.float32(centre))
            crowd = crowd._replace(landmarks=np.zeros_like(state.landmarks) + np.float32(centre))
            after, step = step_of(world)(crowd, action)
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, step))), separation


def test_bodies_at_one_point_leave_each_other_alone():
    world = make("simple_spread")
    state = random_state(world, np.random.default_rng(6))
    state = state._replace(position=np.zeros_like(state.position), velocity=np.zeros_like(state.velocity))
    after, _ = step_of(world)(state, np.zeros((3, 5), np.float32))
    assert not after.velocity.any()  # a push has no direction, and the reference would divide zero by zero
    np.testing.assert_array_equal(after.position, state.position)


CHECKED = ("simple_adversary", "simple_push", "simple_reference", "simple_speaker_listener")
"""Worlds that look landmarks up by goal."""


@pytest.mark.parametrize("name", NAMES)
def test_no_index_is_out_of_range(name):
    """JAX clamps an index beyond the end in silence; here every look-up is checked, and a bad goal is found by it."""
    world, rng = make(name), np.random.default_rng(7)

    def look(state: State, action: jax.Array) -> tuple[State, Step, Any, Any]:
        after, step = world.step(KEY, state, action)
        return after, step, world.metrics(after), world.benchmark_data(after)

    checked = jax.jit(checkify.checkify(look, errors=checkify.index_checks), compiler_options=QUICK)
    state, action = random_state(world, rng), random_action(world, rng)
    for goal in range(world.num_landmarks if world.num_goals else 1):
        error, (_, _, metrics, _) = checked(state._replace(goal=np.full_like(state.goal, goal)), action)
        assert error.get() is None
        assert metrics
        assert all(metric.value.shape == () and np.isfinite(metric.value) for metric in metrics.values())
    if name in CHECKED:
        error, _ = checked(state._replace(goal=np.full_like(state.goal, world.num_landmarks)), action)
        assert "out-of-bounds" in error.get()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "simple_line"])  # its landmarks depend on each other
def test_reset_draws_what_it_should(name):
    world, count = make(name), 2000
    keys = jax.random.split(prng.key(8), count)
    state, obs = jax.tree.map(np.asarray, jax.jit(jax.vmap(world.reset), compiler_options=QUICK)(keys))
    box = {"simple_formation": 0.5, "simple_tag": 0.9, "simple_world_comm": 0.9}.get(name, 1.0)
    places = np.concatenate([state.position, state.landmarks / box], axis=1).reshape(count, -1)
    assert np.max(np.abs(places)) <= 1
    assert np.all(places.min(axis=0) < -0.99)
    assert np.all(places.max(axis=0) > 0.99)
    # Uniform on [−1, 1]: mean 0, mean square 1/3, mean fourth power 1/5; and no two coordinates know of each other.
    assert np.max(np.abs(np.mean(places, axis=0))) < 5 / np.sqrt(3 * count)
    assert np.max(np.abs(np.mean(places**2, axis=0) - 1 / 3)) < 5 * np.sqrt((1 / 5 - 1 / 9) / count)
    if places.shape[1] > 1:
        correlation = np.corrcoef(places.T) - np.eye(places.shape[1])
        assert np.max(np.abs(correlation)) < 5 / np.sqrt(count)
    for zero in (state.velocity, state.comm, state.step):
        assert not zero.any()
    assert obs.shape == (count, world.num_agents, world.spec.obs_size)
    joint = state.goal @ world.num_landmarks ** np.arange(world.num_goals)
    cells = world.num_landmarks**world.num_goals
    frequency = np.bincount(joint, minlength=cells) / count
    assert frequency.shape == (cells,)
    assert np.max(np.abs(frequency - 1 / cells)) <= 5 * np.sqrt(1 / cells / count) * (cells > 1)


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("simple_spread", {"N": 0}, "N"),
        ("simple_spread", {"local_ratio": 1.5}, "local_ratio"),
        ("simple_tag", {"num_good": 0}, "num_good"),
        ("simple_tag", {"num_obstacles": -1}, "num_obstacles"),
        ("simple_world_comm", {"num_food": 0}, "num_food"),
        ("simple_push", {"num_targets": 0}, "num_targets"),
        ("simple_adversary", {"num_adversaries": 0}, "num_adversaries"),
        ("simple", {"flavour": "pettingzoo"}, "flavour"),
        ("simple", {"actions": "soft"}, "actions"),
        ("simple", {"max_steps": 0}, "max_steps"),
    ],
)
def test_bad_arguments_are_refused_by_name(name, arguments, named):
    with pytest.raises(UsageError, match=rf"{named} must be .* not {arguments[named]!r}"):
        make(name, **arguments)
