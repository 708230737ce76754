"""What mpe2 1.1.1 added, against recordings of it (tests/golden/record_mpe2.py): neighbours, curricula and three worlds.

Teacher forced: one step from every recorded state, in float64. The random places of treasures that come back are the recorded
ones. Many bodies are here too, because beyond ten their forces are summed in another way.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.envs import make
from counterpoint.envs.mpe.matching import assignment, matched
from counterpoint.envs.mpe.scenario import State
from counterpoint.envs.mpe.treasure import TreasureState
from counterpoint.envs.mpe.world import contact_force

QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
FILES = {path.stem: path for path in sorted((Path(__file__).parent.parent / "golden" / "mpe2_further").glob("*.npz"))}
BOUND = 1e-13


def load(name: str) -> tuple[Any, dict[str, np.ndarray]]:
    """The world of a recording, and its arrays [E, T, …]."""
    with np.load(FILES[name]) as file:
        data = dict(file)
    meta = json.loads(str(data.pop("meta")))
    world = make(meta["module"].rpartition("_v")[0], max_steps=data["reward"].shape[1], **meta["arguments"])
    return world, data


def states_of(world: Any, data: dict[str, np.ndarray]) -> Any:
    """The recorded states as ours, [E, T + 1, …]."""
    episodes, moments = data["position"].shape[:2]
    step = np.tile(np.arange(moments, dtype=np.int32), (episodes, 1))
    if world.name == "collect_treasure":
        zero = np.zeros((episodes, moments), np.int32)
        kinds = (data[name].astype(np.int32) for name in ("holding", "kind"))
        holding, kind = kinds
        return TreasureState(
            data["position"], data["velocity"], holding, data["landmarks"], kind, data["present"], zero, zero, step
        )
    return State(
        position=data["position"],
        velocity=data["velocity"],
        comm=np.zeros((episodes, moments, world.num_agents, 0)),
        landmarks=data["landmarks"],
        goal=np.repeat(data["goal"][:, None], moments, axis=1),
        step=step,
    )


def one_step(world: Any, state: Any, action: Any, after: Any) -> Any:
    if world.name == "collect_treasure":
        return world.proceed(state, action, after.treasure, after.kind)
    return world.step(prng.key(0), state, action)


@pytest.mark.parametrize("name", FILES)
def test_steps_equal_the_recorded_ones(name):
    world, data = load(name)
    states = states_of(world, data)
    running = data["running"]  # an episode that ended early is repeated to the end of its file
    before, after = (jax.tree.map(lambda leaf, cut=cut: leaf[:, cut][running], states) for cut in (slice(-1), slice(1, None)))
    with jax.enable_x64(True):
        play = jax.jit(jax.vmap(partial(one_step, world)), compiler_options=QUICK)
        ours, step = jax.tree.map(np.asarray, play(before, data["action"][running], after))

    close = partial(np.testing.assert_allclose, rtol=BOUND, atol=BOUND)
    close(ours.position, after.position)
    close(ours.velocity, after.velocity)
    close(step.reward, data["reward"][running])
    np.testing.assert_array_equal(step.terminated, data["terminated"][running])
    np.testing.assert_array_equal(step.truncated, data["truncated"][running])
    seen = data["obs"][:, 1:][running]
    np.testing.assert_allclose(step.obs, seen, rtol=2e-7, atol=2e-7)  # mpe2 returns float32
    assert seen.shape[-1] == world.spec.obs_size
    assert not seen[:, ~world.spec.obs_mask].any()
    if world.name == "collect_treasure":
        for field in ("holding", "kind", "present", "treasure"):
            np.testing.assert_array_equal(getattr(ours, field), getattr(after, field))
        assert ours.collected.sum() > 5
        assert ours.delivered.sum() > 1
        with jax.enable_x64(True):
            benchmark = jax.vmap(world.benchmark_data)(ours)
        np.testing.assert_array_equal(np.stack(benchmark, axis=1), data["benchmark"][running])


def test_recordings_have_what_they_are_for():
    worlds = {name: load(name) for name in FILES}
    assert {world.name for world, _ in worlds.values()} >= {"simple_formation", "simple_line", "collect_treasure"}
    assert all(worlds[name][1]["terminated"].any() for name in ("formation_success", "line_success"))
    assert (worlds["spread_stage0"][1]["position"] != worlds["spread_stage1"][1]["position"]).any()
    assert worlds["tag_stage0"][0].bodies.max_speed[-1] == 1.3 * 0.5


@pytest.mark.parametrize("n", [1, 2, 5, 6, 17])
def test_matching_is_that_of_scipy(n):
    cost = np.random.default_rng(n).uniform(size=(8, n, n)).astype(np.float32)
    columns = jax.jit(jax.vmap(assignment), compiler_options=QUICK)(cost)
    paid = jax.jit(jax.vmap(matched), compiler_options=QUICK)(cost)
    for i in range(len(cost)):
        rows, theirs = linear_sum_assignment(cost[i])
        np.testing.assert_array_equal(columns[i], theirs)
        np.testing.assert_array_equal(paid[i], cost[i][rows, theirs])


def test_many_bodies_push_like_few():
    """The sums over many bodies give the forces that pairs give one by one."""
    world, rng = make("simple_tag", num_good=6, num_adversaries=9, num_obstacles=4), np.random.default_rng(0)
    position, landmarks = rng.uniform(-0.6, 0.6, (15, 2)), rng.uniform(-0.6, 0.6, (4, 2))
    with jax.enable_x64(True):
        force = np.asarray(contact_force(jax.numpy.asarray(position), jax.numpy.asarray(landmarks), world.bodies))
    places, radius = np.concatenate([position, landmarks]), world.bodies.radius
    for i in range(15):
        expected = np.zeros(2)
        for j in range(19):
            if i != j:
                delta = places[i] - places[j]
                distance = np.linalg.norm(delta)
                depth = np.logaddexp(0, (radius[i] + radius[j] - distance) / 0.001) * 0.001
                expected += 100 * depth * delta / distance
        np.testing.assert_allclose(force[i], expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["simple_line", "collect_treasure", "simple_formation"])
def test_a_reset_draws_what_mpe2_draws(name):
    world = make(name)
    states, _ = jax.jit(jax.vmap(world.reset), compiler_options=QUICK)(jax.random.split(prng.key(3), 1000))
    if name == "collect_treasure":
        treasure = np.asarray(states.treasure)
        assert 0.94 < np.abs(treasure).max() <= 0.95
        assert np.asarray(states.kind).mean() == pytest.approx(0.5, abs=0.05)
        return
    landmarks = np.asarray(states.landmarks)
    box = 0.25 if name == "simple_line" else 0.5
    assert 0.97 * box < np.abs(landmarks[:, 0]).max() <= box
    if name == "simple_line":
        assert np.abs(landmarks[:, 1]).max() < 1
        np.testing.assert_allclose(np.linalg.norm(landmarks[:, 1] - landmarks[:, 0], axis=1), 1.25, rtol=1e-5)
        angle = np.arctan2(*(landmarks[:, 1] - landmarks[:, 0]).T)
        assert all(((angle > low) & (angle < low + np.pi / 2)).any() for low in (-np.pi, -np.pi / 2, 0, np.pi / 2))


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("simple_spread", {"num_agent_neighbors": 0}, "num_agent_neighbors must be .* not 0"),
        ("simple_adversary", {"num_landmark_neighbors": 1.5}, "num_landmark_neighbors must be .* not 1.5"),
        ("simple_tag", {"curriculum": True, "curriculum_stage": 3}, "from 0 to 2, not 3"),
        ("simple_spread", {"curriculum_stage": 1}, "curriculum=True"),
        ("simple_line", {"flavour": "openai"}, "flavour must be one of mpe2, not 'openai'"),
        ("collect_treasure", {"num_deposits": 7}, "at most 6, not 7"),
    ],
)
def test_bad_arguments_of_the_new_are_refused(name, arguments, sentence):
    with pytest.raises(UsageError, match=sentence):
        make(name, **arguments)


def test_observations_of_neighbours_do_not_grow_with_agents():
    sizes = {make("simple_spread", N=n, num_agent_neighbors=3, num_landmark_neighbors=3).spec.obs_size for n in (3, 10, 100)}
    assert sizes == {4 + 6 + 6 + 6}
