"""The nine particle worlds against trajectories recorded from mpe2 and from the original code (tests/golden).

Teacher forced: one step from every recorded state. Free run: the recorded actions from the first state to the last.
In float64 we still differ in the last bits: XLA may contract a·b + c into one rounding where NumPy rounds twice.
"""

import dataclasses
import json
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.core import prng
from counterpoint.core.types import Step
from counterpoint.envs import WORLDS, make
from counterpoint.envs.mpe.scenario import NUM_MOVES, Scenario, State

PARTICLE = [name for name, world in WORLDS.items() if issubclass(world, Scenario) and "openai" in world.flavours]
GOLDEN = Path(__file__).parent.parent / "golden"
FILES = {str(path.relative_to(GOLDEN).with_suffix("")): path for path in sorted(GOLDEN.glob("*/simple*.npz"))}
ARGUMENTS = {"simple_spread_N5": {"N": 5}, "simple_spread_lr0": {"local_ratio": 0.0}}
STEPS = 25
EPISODES = 1000
"""Every batch is this long, recordings repeated to fill it, so one compilation serves recordings and random policies."""

QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""Compile options: nearly all the time here is compilation, and these make it a third."""

RETURNS = json.loads((GOLDEN / "random_policy_returns.json").read_text())


class Recording(NamedTuple):
    """Leading axes T (T + 1 for states and observations: the first is that of the reset) and E."""

    world: Scenario
    state: State
    action: np.ndarray
    obs: list[np.ndarray]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    benchmark: list[np.ndarray] | None


class Outcome(NamedTuple):
    """What our world says of one step."""

    state: State
    step: Step
    benchmark: tuple[jax.Array, ...] | None


def one_step(world: Scenario, state: State, action: jax.Array) -> Outcome:
    after, step = world.step(prng.key(0), state, action)
    return Outcome(after, step, world.benchmark_data(after))


@partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def replay(world: Scenario, states: State, actions: jax.Array, forced: bool) -> Outcome:
    """The outcome of each action, from the recorded state before it if forced, else from where our world is by then."""

    def advance(state: State, now: tuple[State, jax.Array]) -> tuple[State, Outcome]:
        recorded, action = now
        state = jax.tree.map(lambda ours, theirs: jnp.where(forced, theirs, ours), state, recorded)
        outcome = jax.vmap(partial(one_step, world))(state, action)
        return outcome.state, outcome

    return jax.lax.scan(advance, jax.tree.map(lambda leaf: leaf[0], states), (states, actions))[1]


@cache
def load(name: str) -> Recording:
    with np.load(FILES[name]) as file:
        data = dict(file)
    flavour, config, mode = name.replace("__", "/").split("/")
    scenario = config.removesuffix("_N5").removesuffix("_lr0")
    world = make(scenario, flavour=flavour, actions="continuous" if mode == "cont" else "discrete", **ARGUMENTS.get(config, {}))
    meta = json.loads(str(data["meta_json"]))
    agents = meta["agents"] if flavour == "mpe2" else [str(i) for i in range(meta["n_agents"])]
    reward = data["rew"].swapaxes(0, 1)
    last = np.broadcast_to((np.arange(STEPS) == STEPS - 1)[:, None, None], reward.shape)
    return Recording(
        world=world,
        state=recorded_state(world, data),
        action=np.stack(
            [recorded_action(world, i, data[f"act_{agent}"].swapaxes(0, 1)) for i, agent in enumerate(agents)], axis=2
        ),
        obs=[data[f"obs_{agent}"].swapaxes(0, 1) for agent in agents],
        reward=reward,
        terminated=data["term" if flavour == "mpe2" else "done"].swapaxes(0, 1),
        truncated=data["trunc"].swapaxes(0, 1) if flavour == "mpe2" else last,  # the original has no time limit
        benchmark=[data[f"bench_{agent}"].swapaxes(0, 1) for agent in agents] if f"bench_{agents[0]}" in data else None,
    )


def recorded_state(world: Scenario, data: dict[str, np.ndarray]) -> State:
    hidden = np.concatenate([data["goal"][:, :1], data["key_idx"][:, None]], axis=1)  # crypto: goal, then key
    goal = (data["goal"] if world.name == "simple_reference" else hidden)[:, : world.num_goals]
    if not world.bodies.num_words:
        assert not data["comm"].any()  # silent worlds: the reference carries zeros, we carry nothing
    state = State(
        position=data["pos"],
        velocity=data["vel"],
        comm=data["comm"][..., : world.bodies.num_words],
        landmarks=np.repeat(data["lm_pos"][:, None], STEPS + 1, axis=1),
        goal=np.repeat(goal[:, None], STEPS + 1, axis=1).astype(np.int32),
        step=np.tile(np.arange(STEPS + 1, dtype=np.int32), (len(goal), 1)),
    )
    return jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), state)


def recorded_action(world: Scenario, agent: int, action: np.ndarray) -> np.ndarray:
    """What the reference was given, as vectors padded to A."""
    if np.issubdtype(action.dtype, np.integer):
        two_heads = len(world.spec_heads(agent)) == 2
        choices = [(a % NUM_MOVES, a // NUM_MOVES) if two_heads else (a,) for a in action.ravel().tolist()]
        action = np.stack([world.action_of_integers(agent, choice) for choice in choices]).reshape(*action.shape, -1)
    return np.pad(action, ((0, 0), (0, 0), (0, world.spec.act_size - action.shape[-1])))


def subtracted(world: Scenario, action: np.ndarray) -> np.ndarray:
    """The same moves with one number per axis: mpe2 subtracts its float32 actions in float32, whatever follows."""
    action = action.copy()
    for i in np.flatnonzero(world.bodies.movable):
        action[:, :, i, 2:5:2] -= action[:, :, i, 1:5:2]
        action[:, :, i, 1:5:2] = 0.0
    return action


def outcome_of(recording: Recording, dtype: type, forced: bool) -> Outcome:
    episodes = recording.reward.shape[1]
    order = np.arange(EPISODES if dtype is np.float32 else episodes) % episodes

    def fill(leaf: np.ndarray) -> np.ndarray:
        return leaf[:, order].astype(dtype if np.issubdtype(leaf.dtype, np.floating) else leaf.dtype)

    world = dataclasses.replace(recording.world, actions="discrete")  # which vectors are legal does not change a step
    states = jax.tree.map(lambda leaf: fill(leaf[:-1]), recording.state)
    action = recording.action if dtype is np.float32 else subtracted(recording.world, recording.action)
    outcome = replay(world, states, fill(action), forced)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:, :episodes], outcome)


def gaps(recording: Recording, outcome: Outcome) -> dict[str, float]:
    """The largest difference of each field, relative to 1 + its size. Flags and collision counts must be equal."""
    np.testing.assert_array_equal(outcome.step.terminated, recording.terminated)
    np.testing.assert_array_equal(outcome.step.truncated, recording.truncated)
    assert (outcome.benchmark is None) == (recording.benchmark is None)
    after = jax.tree.map(lambda leaf: leaf[1:], recording.state)
    np.testing.assert_array_equal(outcome.state.landmarks, after.landmarks.astype(outcome.state.landmarks.dtype))
    np.testing.assert_array_equal(outcome.state.goal, after.goal)
    np.testing.assert_array_equal(outcome.state.step, after.step)
    if recording.world.name in ("simple_tag", "simple_world_comm"):
        for ours, theirs in zip(outcome.benchmark, recording.benchmark, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    if recording.world.name == "simple_spread":
        for ours, theirs in zip(outcome.benchmark, recording.benchmark, strict=True):
            np.testing.assert_array_equal(ours[..., 1::2], theirs[..., 1::2])

    def gap(ours: np.ndarray, theirs: np.ndarray) -> float:
        assert ours.shape == theirs.shape
        ours = ours.astype(theirs.dtype)  # mpe2's observations were cast to float32 when they were recorded
        return float(np.max(np.abs(ours - theirs) / (1 + np.abs(theirs)), initial=0.0))

    found = {field: gap(getattr(outcome.state, field), getattr(after, field)) for field in ("position", "velocity", "comm")}
    found["reward"] = gap(outcome.step.reward, recording.reward)
    for i, obs in enumerate(recording.obs):
        size = obs.shape[-1]
        found[f"obs {i}"] = gap(outcome.step.obs[:, :, i, :size], obs[1:])
        assert not outcome.step.obs[:, :, i, size:].any()  # padding
    for i, (ours, theirs) in enumerate(zip(outcome.benchmark or (), recording.benchmark or (), strict=True)):
        found[f"benchmark {i}"] = gap(ours, theirs)
    return found


CONTACT = ("simple_push", "simple_spread", "simple_tag", "simple_world_comm")


def assert_close(name: str, dtype: type, forced: bool, bounds: dict[str, float]) -> None:
    recording = load(name)
    for field, gap in gaps(recording, outcome_of(recording, dtype, forced)).items():
        rounded = field.startswith("obs") and recording.obs[0].dtype == np.float32
        bound = max(bounds.get(field, bounds["default"]), 1e-7 * rounded)
        assert gap <= bound, f"{field} is off by {gap:.1e}"


def test_every_recording_is_there():
    assert len(FILES) == 34
    configs = {name.split("__")[0].split("/")[1] for name in FILES}
    assert configs == {*PARTICLE, *ARGUMENTS}


@pytest.mark.parametrize("name", FILES)
def test_float32_teacher_forced(name):
    assert_close(name, np.float32, True, {"default": 5e-6})


@pytest.mark.parametrize("name", FILES)
def test_float32_free_run(name):
    # A contact is a spring of stiffness 100 over 0.001: it multiplies a rounding error by ten per step, in velocity first.
    contact = load(name).world.name in CONTACT
    assert_close(name, np.float32, False, {"default": 1.5e-3, "position": 2.5e-4} if contact else {"default": 1e-6})


@pytest.mark.parametrize("name", FILES)
def test_float64_teacher_forced(name):
    with jax.enable_x64(True):
        assert_close(name, np.float64, True, {"default": 5e-15})


@pytest.mark.parametrize("name", FILES)
def test_float64_free_run(name):
    with jax.enable_x64(True):
        assert_close(name, np.float64, False, {"default": 1e-12})


def random_actions(world: Scenario, mode: str, seed: int) -> np.ndarray:
    """[T, E, N, A]: uniform choices as one-hot vectors per head, or uniform numbers."""
    rng, spec = np.random.default_rng(seed), world.spec
    actions = np.zeros((STEPS, EPISODES, spec.num_agents, spec.act_size), np.float32)
    for i in range(spec.num_agents):
        heads = world.spec_heads(i)
        if mode == "mpe2_cont":
            actions[:, :, i, : sum(heads)] = rng.uniform(size=(STEPS, EPISODES, sum(heads)))
        else:
            draws = [np.eye(size)[rng.integers(size, size=(STEPS, EPISODES))] for size in heads]
            actions[:, :, i, : sum(heads)] = np.concatenate(draws, axis=-1)
    return actions


@cache
def starts(world: Scenario) -> State:
    states, _ = jax.jit(jax.vmap(world.reset), compiler_options=QUICK)(jax.random.split(prng.key(7), EPISODES))
    return jax.tree.map(np.asarray, states)


@pytest.mark.parametrize("scenario", PARTICLE)
@pytest.mark.parametrize("mode", RETURNS)
def test_random_policy_returns(mode, scenario):
    """Mean returns of uniformly random play, ours and the reference's, within four standard errors of their difference."""
    world = make(scenario, flavour=mode.split("_")[0])
    if mode.startswith("mpe2"):
        (expected,) = (table for name, table in RETURNS[mode].items() if name.rsplit("_v", 1)[0] == scenario)
        assert tuple(expected) == world.spec.agents
        expected = list(expected.values())
    else:
        expected = RETURNS[mode][scenario]
    states = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (STEPS, *leaf.shape)), starts(make(scenario)))
    outcome = replay(world, states, random_actions(world, mode, seed=7), False)
    returns = np.sum(outcome.step.reward, axis=0)
    mean, error = returns.mean(axis=0), returns.std(axis=0) / np.sqrt(EPISODES)
    reference, reference_error = np.array(expected).T
    np.testing.assert_array_less(np.abs(mean - reference), 4 * np.hypot(error, reference_error))
