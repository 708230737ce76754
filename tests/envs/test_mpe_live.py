"""The particle worlds against the installed mpe2, step by step from injected states; sizes beyond mpe2's by formula.

All comparisons are in float64, where only the order of roundings differs (bound below).
"""

import importlib
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from counterpoint.core import prng
from counterpoint.core.spaces import Box
from counterpoint.envs import WORLDS, make
from counterpoint.envs.mpe.scenario import NUM_MOVES, Scenario, State

BOUND = 1e-12
STEPS = 6
"""The time limit of every live episode."""

QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""Compile options: nearly all the time here is compilation, and these make it a third."""

DEFAULTS = [name for name, world in WORLDS.items() if issubclass(world, Scenario) and "openai" in world.flavours]
CONFIGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in DEFAULTS),
    ("simple_spread", {"N": 1}),
    ("simple_spread", {"N": 2, "local_ratio": 0.0}),
    ("simple_spread", {"N": 6, "local_ratio": 1.0}),
    ("simple_spread", {"N": 12, "num_agent_neighbors": 4, "num_landmark_neighbors": 4}),
    ("simple_reference", {"local_ratio": 0.2}),
    ("simple_adversary", {"N": 4}),
    ("simple_tag", {"num_good": 2, "num_adversaries": 4, "num_obstacles": 3}),
    ("simple_tag", {"num_good": 3, "num_adversaries": 1, "num_obstacles": 0}),
    ("simple_world_comm", {"num_good": 3, "num_adversaries": 2, "num_obstacles": 2, "num_food": 1, "num_forests": 1}),
    ("simple_world_comm", {"num_good": 1, "num_adversaries": 5, "num_obstacles": 0, "num_food": 3, "num_forests": 0}),
    ("simple_world_comm", {"num_good": 2, "num_adversaries": 1, "num_obstacles": 1, "num_food": 1, "num_forests": 3}),
]
IDS = ["-".join([name, *(f"{value}" for value in arguments.values())]) for name, arguments in CONFIGS]

STARTS = {
    "drawn": lambda rng, shape: None,
    "squeezed": lambda rng, shape: rng.uniform(-0.25, 0.25, shape),
    "heaped": lambda rng, shape: rng.uniform(-0.03, 0.03, shape),
    "edge": lambda rng, shape: rng.choice([-1, 1], shape) * rng.uniform(0.85, 1.15, shape),
    "far": lambda rng, shape: rng.uniform(-4, 4, shape),
}


def reference(name: str, arguments: dict[str, Any], **options: Any) -> Any:
    """mpe2's parallel environment of that name."""
    version = "v4" if name == "simple_speaker_listener" else "v3"
    module = importlib.import_module(f"mpe2.{name}_{version}")
    return module.parallel_env(**arguments, **options)


class Moment(NamedTuple):
    """One step of the reference: what was, what was done, and what came of it."""

    state: State
    action: np.ndarray
    after: State
    obs: list[np.ndarray]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    benchmark: list[np.ndarray]


def state_of(env: Any, world: Scenario, step: int) -> State:
    """The state of mpe2's environment as one of ours."""
    inner = env.unwrapped.world
    index = {id(landmark): i for i, landmark in enumerate(inner.landmarks)}
    if world.name == "simple_crypto":
        goal = [index[id(inner.agents[0].goal_a)], int(np.argmax(inner.agents[2].key))]
    elif world.name == "simple_reference":
        goal = [index[id(agent.goal_b)] for agent in inner.agents]
    elif world.name == "simple_speaker_listener":
        goal = [index[id(inner.agents[0].goal_b)]]
    else:
        goal = [index[id(inner.agents[0].goal_a)]] if world.num_goals else []
    words = world.bodies.num_words
    return State(
        position=np.array([agent.state.p_pos for agent in inner.agents]),
        velocity=np.array([agent.state.p_vel for agent in inner.agents]),
        comm=np.array([agent.state.c[:words] for agent in inner.agents], float),
        landmarks=np.array([landmark.state.p_pos for landmark in inner.landmarks]).reshape(-1, 2),
        goal=np.array(goal, np.int32),
        step=np.int32(step),
    )


def place(env: Any, world: Scenario, start: str, rng: np.random.Generator) -> None:
    """Move everything where the start says, and set the movable in motion."""
    inner = env.unwrapped.world
    for entity in inner.entities:
        where = STARTS[start](rng, 2)
        if where is not None:
            entity.state.p_pos = where
    for agent, moves in zip(inner.agents, world.bodies.movable, strict=True):
        if start != "drawn" and moves:
            agent.state.p_vel = rng.uniform(-1.5, 1.5, 2)


def observations(env: Any) -> list[np.ndarray]:
    """What mpe2's agents see before it is cast to float32."""
    raw = env.unwrapped
    return [raw.scenario.observation(agent, raw.world) for agent in raw.world.agents]


def draw_action(world: Scenario, agent: int, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """An action as mpe2 takes it, and as our vector padded to A."""
    heads, size = world.spec_heads(agent), world.spec.act_size
    if isinstance(world.spec.action_spaces[agent], Box):
        theirs = (rng.integers(1025, size=sum(heads)) / 1024).astype(np.float32)  # mpe2 subtracts in float32: here without loss
        theirs *= rng.uniform() > 0.1  # now and then all zero: silence is special in crypto
        return theirs, np.pad(theirs, (0, size - len(theirs)))
    choice = tuple(int(rng.integers(head)) for head in heads)
    theirs = choice[0] + NUM_MOVES * choice[1] if len(heads) == 2 else choice[0]
    return theirs, np.pad(world.action_of_integers(agent, choice), (0, size - sum(heads)))


def flat(benchmark: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in benchmark]) if isinstance(benchmark, tuple) else np.ravel(benchmark)


def play(name: str, arguments: dict[str, Any], actions: str, seed: int) -> tuple[Scenario, list[list[Moment]]]:
    """One episode of the reference per kind of start, and our world of the same settings."""
    world = make(name, actions=actions, max_steps=STEPS, **arguments)
    options = {"max_cycles": STEPS, "continuous_actions": actions == "continuous", "benchmark_data": True}
    has_benchmark = world.name not in ("simple", "simple_push", "simple_reference")
    env = reference(name, arguments, **options)
    rng, agents, episodes = np.random.default_rng(seed), world.spec.agents, []
    assert tuple(env.possible_agents) == agents
    for number, start in enumerate(STARTS):
        env.reset(seed=seed + number)
        place(env, world, start, rng)
        episode = []
        for step in range(STEPS):
            state = jax.tree.map(np.copy, state_of(env, world, step))
            theirs, ours = zip(*(draw_action(world, i, rng) for i in range(len(agents))), strict=True)
            _, reward, terminated, truncated, infos = env.step(dict(zip(agents, theirs, strict=True)))
            moment = Moment(
                state=state,
                action=np.stack(ours).astype(float),
                after=jax.tree.map(np.copy, state_of(env, world, step + 1)),
                obs=observations(env),
                reward=np.array([reward[agent] for agent in agents]),
                terminated=np.array([terminated[agent] for agent in agents]),
                truncated=np.array([truncated[agent] for agent in agents]),
                benchmark=[flat(infos[agent]["benchmark_data"]) for agent in agents] if has_benchmark else [],
            )
            episode.append(moment)
        assert env.agents == []
        episodes.append(episode)
    env.close()
    return world, episodes


@partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def advance(world: Scenario, states: State, actions: jax.Array) -> Any:
    def one(state, action):
        after, step = world.step(prng.key(0), state, action)
        return after, step, world.benchmark_data(after)

    return jax.vmap(one)(states, actions)


def stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def assert_same(world: Scenario, ours: Any, moments: list[Moment]) -> None:
    """Everything of a batch of our steps is what the reference had."""
    after, step, benchmark = jax.tree.map(np.asarray, ours)
    close = partial(np.testing.assert_allclose, rtol=BOUND, atol=BOUND)
    jax.tree.map(close, after, stack([moment.after for moment in moments]))
    close(step.reward, np.stack([moment.reward for moment in moments]))
    np.testing.assert_array_equal(step.terminated, [moment.terminated for moment in moments])
    np.testing.assert_array_equal(step.truncated, [moment.truncated for moment in moments])
    for i, size in enumerate(world.spec.obs_sizes):
        close(step.obs[:, i, :size], np.stack([moment.obs[i] for moment in moments]))
        assert not step.obs[:, i, size:].any()
    for i, data in enumerate(benchmark or ()):
        close(data, np.stack([moment.benchmark[i] for moment in moments]))
    assert (benchmark is None) == (not moments[0].benchmark)


@pytest.mark.parametrize(("name", "arguments"), CONFIGS, ids=IDS)
def test_steps_equal_those_of_mpe2(name, arguments):
    """Teacher forced and free, discrete and continuous, up to and with the last step before the time limit."""
    played = {actions: play(name, arguments, actions, seed=17) for actions in ("discrete", "continuous")}
    world = played["discrete"][0]
    episodes = [episode for _, episodes in played.values() for episode in episodes]
    with jax.enable_x64(True):
        moments = [moment for episode in episodes for moment in episode]
        actions = np.stack([moment.action for moment in moments])
        assert_same(world, advance(world, stack([moment.state for moment in moments]), actions), moments)

        # The free run starts where the episodes do; each is there STEPS times, so that the batch keeps its size.
        state = stack([episode[0].state for episode in episodes for _ in range(STEPS)])
        for step in range(STEPS):
            now = [episode[step] for episode in episodes for _ in range(STEPS)]
            ours = advance(world, state, np.stack([moment.action for moment in now]))
            assert_same(world, ours, now)
            state = ours[0]


@pytest.mark.parametrize(("name", "arguments"), CONFIGS, ids=IDS)
def test_names_and_spaces_are_those_of_mpe2(name, arguments):
    for actions in ("discrete", "continuous"):
        spec = make(name, actions=actions, **arguments).spec
        env = reference(name, arguments, continuous_actions=actions == "continuous")
        assert spec.agents == tuple(env.possible_agents)
        assert spec.obs_sizes == tuple(env.observation_space(agent).shape[0] for agent in spec.agents)
        for agent, space in zip(spec.agents, spec.action_spaces, strict=True):
            theirs = env.action_space(agent)
            if isinstance(space, Box):
                assert theirs.shape == (space.size,)
                assert (theirs.low.min(), theirs.high.max()) == (space.low, space.high)
            else:
                assert theirs.n == np.prod(space.heads)
        env.close()


@pytest.mark.parametrize(
    ("name", "obs_sizes", "heads"),
    [
        ("simple", [4], [(5,)]),
        ("simple_adversary", [8, 10, 10], [(5,)] * 3),
        ("simple_crypto", [4, 8, 8], [(4,)] * 3),
        ("simple_push", [8, 19], [(5,)] * 2),
        ("simple_reference", [21, 21], [(5, 10)] * 2),
        ("simple_speaker_listener", [3, 11], [(3,), (5,)]),
        ("simple_spread", [18] * 3, [(5,)] * 3),
        ("simple_tag", [16, 16, 16, 14], [(5,)] * 4),
        ("simple_world_comm", [34] * 4 + [28] * 2, [(5, 4)] + [(5,)] * 5),
    ],
)
def test_default_sizes_are_the_published_ones(name, obs_sizes, heads):
    for flavour in ("mpe2", "openai"):
        spec = make(name, flavour=flavour).spec
        assert list(spec.obs_sizes) == obs_sizes
        assert [space.heads for space in spec.action_spaces] == heads


@pytest.mark.parametrize("name", DEFAULTS)
def test_reset_observations_are_those_of_mpe2(name):
    """Our draw, put into mpe2, is seen there as we say it is."""
    world, env = make(name), reference(name, {})
    with jax.enable_x64(True):
        keys = jax.random.split(prng.key(5), 4)
        states, obs = jax.tree.map(np.asarray, jax.jit(jax.vmap(world.reset), compiler_options=QUICK)(keys))
    for i in range(len(keys)):
        state = jax.tree.map(lambda leaf, i=i: leaf[i], states)
        seed = 0
        env.reset(seed=seed)
        while not np.array_equal(state_of(env, world, 0).goal, state.goal):  # goals cannot be set, but drawn until they agree
            seed += 1
            env.reset(seed=seed)
        for entity, where in zip(env.unwrapped.world.entities, [*state.position, *state.landmarks], strict=True):
            entity.state.p_pos = where
        jax.tree.map(np.testing.assert_array_equal, state, state_of(env, world, 0))
        for agent, theirs in enumerate(observations(env)):
            np.testing.assert_allclose(obs[i, agent, : len(theirs)], theirs, rtol=BOUND, atol=BOUND)
    env.close()


def success_states(name: str) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray]:
    """Arguments, agents' places when the game is won and when it is missed by a little, and where the landmarks are."""
    if name == "simple_spread":
        landmarks = np.array([[0.0, 0.0], [0.8, 0.0], [0.0, 0.8]])
        won = np.array([[0.0, 0.7001], [0.87, 0.07], [0.0, 0.0]])
        missed = won.copy()
        missed[1, 1] += 0.002
        return {"N": 3}, won, missed, landmarks
    won = np.array([[0.0, 0.0], [2.0, 2.0], [0.12, 0.0], [-0.12, 0.0]])  # one predator touches both prey, within 0.125
    missed = won.copy()
    missed[3, 0] -= 0.006
    return {"num_good": 2, "num_adversaries": 2, "num_obstacles": 0}, won, missed, np.zeros((0, 2))


@pytest.mark.parametrize("name", ["simple_spread", "simple_tag"])
def test_success_ends_the_game_as_in_mpe2(name):
    arguments, won, missed, landmarks = success_states(name)
    arguments = {**arguments, "terminate_on_success": True}
    world = make(name, max_steps=2, **arguments)
    agents, still = world.spec.agents, np.tile(np.eye(world.spec.act_size)[0], (world.num_agents, 1))
    env = reference(name, arguments, max_cycles=2)
    before, theirs = [], []
    for step, positions in ((0, won), (0, missed), (1, won), (1, missed)):
        env.reset(seed=0)
        if step:  # a first step far from success
            env.unwrapped.world.agents[-1].state.p_pos = np.array([9.0, 9.0])
            env.step(dict.fromkeys(agents, 0))
        for entity, where in zip(env.unwrapped.world.entities, [*positions, *landmarks], strict=True):
            entity.state.p_pos, entity.state.p_vel = where.copy(), np.zeros(2)
        before.append(state_of(env, world, step))
        _, _, terminated, truncated, _ = env.step(dict.fromkeys(agents, 0))
        theirs.append(([terminated[agent] for agent in agents], [truncated[agent] for agent in agents]))
    env.close()
    with jax.enable_x64(True):
        _, ours, _ = advance(world, stack(before), np.stack([still] * 4))
    np.testing.assert_array_equal(ours.terminated, [terminated for terminated, _ in theirs])
    np.testing.assert_array_equal(ours.truncated, [truncated for _, truncated in theirs])
    np.testing.assert_array_equal(ours.terminated[:, 0], [True, False, False, False])  # the time limit wins on the last step
    np.testing.assert_array_equal(ours.truncated[:, 0], [False, False, True, True])


@pytest.mark.parametrize("total", [8, 10, 100])
@pytest.mark.parametrize("name", ["simple_spread", "simple_tag", "simple_adversary", "simple_push"])
def test_any_number_of_agents_can_play(name, total):
    few = total // 4
    arguments = {
        "simple_spread": {"N": total},
        "simple_tag": {"num_good": few, "num_adversaries": total - few},
        "simple_adversary": {"N": total - few, "num_adversaries": few},
        "simple_push": {"num_good": total - few, "num_adversaries": few, "num_targets": 4},
    }[name]
    world, rng = make(name, **arguments), np.random.default_rng(1)

    @partial(jax.jit, compiler_options=QUICK)
    def step(state, action):
        return world.step(prng.key(0), state, action)

    state = State(
        position=rng.uniform(-1, 1, (total, 2)).astype(np.float32),
        velocity=np.zeros((total, 2), np.float32),
        comm=np.zeros((total, 0), np.float32),
        landmarks=rng.uniform(-1, 1, (world.num_landmarks, 2)).astype(np.float32),
        goal=np.ones(world.num_goals, np.int32),
        step=np.int32(0),
    )
    for _ in range(3):
        state, result = step(state, rng.uniform(size=(total, NUM_MOVES)).astype(np.float32))
        assert result.obs.shape == (total, world.spec.obs_size)
        assert result.reward.shape == result.terminated.shape == result.truncated.shape == (total,)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state, result)))
        assert not result.obs[~world.spec.obs_mask].any()
    assert len(world.spec.agents) == len(set(world.spec.agents)) == total
    assert np.any(np.asarray(state.velocity) != 0, axis=1).all()


def still(world: Scenario, agents: list[tuple[float, float]], landmarks: list[tuple[float, float]], words: int = 0) -> Any:
    """The step after which everybody is where they were, far enough apart to leave each other in peace."""
    n = len(agents)
    state = State(
        position=np.array([agents], float),
        velocity=np.zeros((1, n, 2)),
        comm=np.zeros((1, n, words)),
        landmarks=np.array([landmarks], float),
        goal=np.ones((1, world.num_goals), np.int32),
        step=np.zeros(1, np.int32),
    )
    with jax.enable_x64(True):
        _, step, _ = advance(world, state, np.zeros((1, n, world.spec.act_size)))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], step)


@pytest.mark.parametrize("flavour", ["mpe2", "openai"])
def test_push_with_more_agents_by_hand(flavour):
    """Distances to the goal (1, 1) are 1, 13, 5, 2, 10: each of two adversaries against the nearest of three agents."""
    world = make("simple_push", flavour=flavour, num_adversaries=2, num_good=3, num_targets=3)
    agents = [(1, 0), (6, 13), (4, 5), (1, 3), (7, 9)]
    landmarks = [(-5, -5), (1, 1), (20, 0)]
    step = still(world, agents, landmarks)
    np.testing.assert_allclose(step.reward, [2 - 1, 2 - 13, -5, -2, -10], atol=1e-9)

    place, marks = np.array(agents, float), np.array(landmarks, float)
    for i in range(5):
        others = np.delete(place, i, axis=0) - place[i]
        if i < 2:
            expected = np.concatenate([[0, 0], (marks - place[i]).ravel(), others.ravel()])
        else:
            blue, green, red = [0.1, 0.1, 0.9], [0.1, 0.9, 0.1], [0.9, 0.1, 0.1]
            own = [0.25, 0.25, 0.75]  # the hue of landmark 1
            relative = [(marks - place[i]).ravel(), [*green, *blue, *red], others.ravel()]
            expected = np.concatenate([[0, 0], marks[1] - place[i], own, *relative])
        assert world.spec.obs_sizes[i] == len(expected)
        np.testing.assert_allclose(step.obs[i, : len(expected)], expected, atol=1e-9)


@pytest.mark.parametrize(("flavour", "hunt"), [("mpe2", [-1, -13]), ("openai", [-1, -169])])
def test_adversary_with_two_adversaries_by_hand(flavour, hunt):
    """Good agents at 5, 2 and 10 from the goal earn both adversaries' distances less the least of their own."""
    world = make("simple_adversary", flavour=flavour, num_adversaries=2, N=3)
    step = still(world, [(1, 0), (6, 13), (4, 5), (1, 3), (7, 9)], [(-5, -5), (1, 1), (20, 0)])
    np.testing.assert_allclose(step.reward, [*hunt, *[1 + 13 - 2] * 3], atol=1e-9)


@pytest.mark.parametrize(("flavour", "hunger"), [("mpe2", -1), ("openai", 1)])
def test_world_comm_hunger_by_hand(flavour, hunger):
    """Prey at 0.5 and 0.13 from the nearest food; the original has the sign wrong, and that is its game."""
    world = make("simple_world_comm", flavour=flavour, num_adversaries=1, num_obstacles=0, num_forests=0)
    food = [(0.0, 0.0), (0.8, 0.0)]
    step = still(world, [(-0.8, -0.8), (0.3, -0.4), (0.85, 0.12)], food, words=4)
    near = np.hypot(1.1, 0.4)
    np.testing.assert_allclose(step.reward, [-0.1 * near, hunger * 0.05 * 0.5, hunger * 0.05 * 0.13], atol=1e-9)
