"""Tennis against numbers printed by the real build, contacts and rules by hand, and rallies by a scripted policy."""

import functools
import json
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.picture import Circle, Polygon
from counterpoint.core.spaces import Box
from counterpoint.envs import make
from counterpoint.envs.tennis import LEFT, RIGHT, Court, Game, State, Tennis, hit, judge, physics_step

FACTS = json.loads((Path(__file__).parents[1] / "golden" / "tennis_known_facts.json").read_text())
NORMAL = np.array([np.cos(np.deg2rad(55)), np.sin(np.deg2rad(55))])
"""Of a racket's face, seen from its own side."""
FACE = np.array([-NORMAL[1], NORMAL[0]])
"""Along the face, upwards."""

jit_hit, jit_judge = jax.jit(hit), jax.jit(judge)


@functools.cache
def stepper(env: Tennis):
    return jax.jit(lambda state, action: env.step(prng.key(0), state, action))


def court_of(ball=(-7.0, 6.0), ball_velocity=(0.0, 0.0), x=(-7.0, -7.0), y=(-1.5, -1.5), vx=(0.0, 0.0), vy=(0.0, 0.0)) -> Court:
    """A court; rackets right, left, each seen from its own side."""
    values = (x, y, vx, vy, *ball, *ball_velocity)
    return Court(*(jnp.array(value, jnp.float32) for value in values))


def game_of(court: Court, last_left=False, over_net=False, reward=(0.0, 0.0)) -> Game:
    return Game(
        court=court,
        last_left=jnp.array(last_left),
        over_net=jnp.array(over_net),
        fault=jnp.array(False),
        reward=jnp.array(reward, jnp.float32),
        rally=jnp.array(0, jnp.int32),
    )


def state_of(env: Tennis, game: Game, step: int = 0) -> State:
    """A state whose only frame is the present one."""
    frames = jnp.pad(env.frame(game.court), ((0, 0), (16, 0)))
    return State(game=game, returns=jnp.zeros(2), frames=frames, step=jnp.array(step, jnp.int32))


def scripted(obs):
    """An action per racket: stand where the ball will come down, and jump at it. Sees only the frames, as a learner does."""
    before, now = obs[:, 8:16], obs[:, 16:]
    x, y, ball_x, ball_y = now[:, 0], now[:, 1], now[:, 4], now[:, 5]
    has_past = before[:, 5] != 0
    ball_vx = jnp.where(has_past, (ball_x - before[:, 4]) / 0.1, 0.0)
    ball_vy = jnp.where(has_past, (ball_y - before[:, 5]) / 0.1, 0.0) - 9.81 * 0.05
    fall = jnp.sqrt(jnp.maximum(ball_vy**2 + 2 * 9.81 * (ball_y + 0.3), 0.0))
    landing = ball_x + ball_vx * (ball_vy + fall) / 9.81
    aim = jnp.where(landing < -1.0, landing - 0.2, -8.0)
    jump = (ball_y - y < 2.4) & (ball_vy < 0) & (jnp.abs(ball_x - x) < 2.0)
    return jnp.stack([(aim - x) / 3.0, jnp.where(jump, 1.0, 0.0)], axis=1)


class Episode(NamedTuple):
    """Episodes [E] up to their end."""

    figures: dict
    terminated: jax.Array
    truncated: jax.Array
    sane: jax.Array
    last: State


@functools.cache
def played(policy: str, num_episodes: int, length: int) -> Episode:
    """Whole episodes under the scripted or the random policy."""
    env = Tennis()

    def episode(key):
        key_reset, key_act = jax.random.split(key)
        state, obs = env.reset(key_reset)
        nothing = jnp.zeros((), bool)

        def advance(carry, key):
            state, obs, terminated, truncated, sane = carry
            action = scripted(obs) if policy == "scripted" else jax.random.uniform(key, (2, 2), minval=-1.0, maxval=1.0)
            after, step = env.step(key, state, action)
            done = terminated | truncated
            state = jax.tree.map(lambda old, new: jnp.where(done, old, new), state, after)
            now = step.obs[:, 16:]
            inside = (now[:, 0] >= -10.9) & (now[:, 0] <= -0.4 + 1e-5) & (now[:, 1] >= -1.8525) & (jnp.abs(now[:, 4]) < 12.3)
            sane &= jnp.all(jnp.isfinite(step.obs)) & jnp.all(inside | done)
            flags = jnp.where(done, terminated, step.terminated[0]), jnp.where(done, truncated, step.truncated[1])
            return (state, step.obs, *flags, sane), None

        start = (state, obs, nothing, nothing, ~nothing)
        (state, _, terminated, truncated, sane), _ = jax.lax.scan(advance, start, jax.random.split(key_act, length))
        return Episode({name: metric.value for name, metric in env.metrics(state).items()}, terminated, truncated, sane, state)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(episode))(jax.random.split(prng.key(0), num_episodes)))


def test_one_transition_equals_the_real_build():
    fact, env = FACTS["one_transition"], Tennis()
    right, left = fact["agent0_prev_frame"], fact["agent1_prev_frame"]
    court = court_of(ball=(left[4], left[5]), ball_velocity=(0.0, -9.81 * 0.02), x=(right[0], left[0]))
    state = state_of(env, game_of(court))
    np.testing.assert_allclose(state.frames[:, 16:], [right, left], atol=1e-6)
    _, step = stepper(env)(state, jnp.array(fact["actions_before_clip"]))
    np.testing.assert_array_equal(step.obs[:, :8], 0.0)
    np.testing.assert_allclose(step.obs[:, 8:16], [right, left], atol=1e-6)
    np.testing.assert_allclose(step.obs[:, 16:], [fact["agent0_new_frame"], fact["agent1_new_frame"]], atol=3e-6)
    np.testing.assert_array_equal(step.reward, fact["rewards"])
    np.testing.assert_array_equal(step.terminated | step.truncated, fact["dones"])


def test_reset():
    env, fact = Tennis(), FACTS["first_reset_agent0_last_frame"]
    state, obs = jax.jit(jax.vmap(env.reset))(jax.random.split(prng.key(3), 2000))
    assert obs.shape == (2000, 2, FACTS["interface"]["obs_dim"])
    np.testing.assert_array_equal(obs[:, :, :16], 0.0)
    now = np.asarray(obs[:, :, 16:])
    for i in (1, 2, 3, 5, 6, 7):
        np.testing.assert_array_equal(now[:, :, i], fact[i])
    assert ((now[:, :, 0] >= -8) & (now[:, :, 0] <= -6)).all()
    assert ((np.abs(now[:, 0, 4]) >= 6) & (np.abs(now[:, 0, 4]) <= 8)).all()
    np.testing.assert_array_equal(now[:, 0, 4], -now[:, 1, 4])
    assert abs((now[:, 0, 4] > 0).mean() - 0.5) < 0.05
    assert len({float(v) for v in np.concatenate([now[0, :, 0], now[0, :1, 4]])}) == 3
    assert not state.game.fault.any()


@pytest.mark.parametrize(("side", "physics_steps_ahead", "length"), [(-1, 0, 15), (1, 0, 15), (-1, 1, 14), (1, 4, 14)])
def test_untouched_ball_lands_when_it_should(side, physics_steps_ahead, length):
    """The real build's usual 14 steps come from a ball that has been falling since the last fault; a fresh one needs 15."""
    env, k = Tennis(), physics_steps_ahead
    ball = (side * 6.8, 6.0 - 9.81 * 0.02**2 * k * (k + 1) / 2)
    state = state_of(env, game_of(court_of(ball=ball, ball_velocity=(0.0, -9.81 * 0.02 * k), x=(-10.0, -10.0))))
    for _ in range(length - 1):
        state, step = stepper(env)(state, jnp.zeros((2, 2)))
        assert not step.terminated.any()
    state, step = stepper(env)(state, jnp.zeros((2, 2)))
    assert step.terminated.all()
    assert not step.truncated.any()
    expected = np.zeros(2)
    expected[LEFT if side < 0 else RIGHT] = -0.01
    np.testing.assert_allclose(step.reward, expected)
    # The last observation is that of the fault: ball at the floor, two frames of its fall before.
    np.testing.assert_allclose(step.obs[:, 20], [-side * 6.8, side * 6.8], rtol=1e-6)
    assert np.all((step.obs[:, 21] < -2.75) & (step.obs[:, 21] > -2.95))
    assert np.all(step.obs[:, 13] > step.obs[:, 21])
    again, later = stepper(env)(state, jnp.ones((2, 2)))
    assert later.terminated.all()
    np.testing.assert_array_equal(later.reward, 0.0)
    np.testing.assert_array_equal(later.obs[:, 16:], step.obs[:, 16:])
    assert float(env.metrics(again)["score"].value) == 0.0


def test_random_policy_statistics():
    games = played("random", 4000, 150)
    assert games.terminated.mean() > 0.999
    assert games.sane.all()
    assert np.median(games.figures["steps"]) in (14, 15)
    score = games.figures["score"]
    assert 0.017 < score.mean() < 0.0225
    assert 0.175 < (score > 0).mean() < 0.215
    hundredths = score * 100  # sums of 0.1 and −0.01; the better of two never has less than zero
    assert set(np.round(hundredths).astype(int)) <= {0, 9, 10, 19, 20, 29, 30, 39, 40}
    np.testing.assert_allclose(hundredths, np.round(hundredths), atol=1e-3)


def test_scripted_rally_lasts_to_the_time_limit():
    """One crossing in 19 steps and 2.6–2.7 points is what trained agents reach in the real build."""
    games = played("scripted", 8, 1010)
    assert not games.terminated.any()
    assert games.truncated.all()
    assert games.sane.all()
    np.testing.assert_array_equal(games.figures["steps"], 1000)
    assert np.all((games.figures["score"] > 2.45) & (games.figures["score"] < 2.85))
    assert np.all((games.figures["rally"] >= 49) & (games.figures["rally"] <= 57))
    np.testing.assert_allclose(games.last.returns.sum(axis=1), 0.1 * games.figures["rally"], rtol=1e-4)


def test_both_sides_are_alike():
    """Mirroring the court and swapping the rackets swaps what they see."""
    env = Tennis()
    state, obs = jax.jit(env.reset)(prng.key(5))
    court = state.game.court
    swapped = Court(*(leaf[::-1] for leaf in court[:4]), -court.ball_x, court.ball_y, -court.ball_vx, court.ball_vy)

    @jax.jit
    def watch(state, obs):
        def advance(carry, _):
            state, step = env.step(prng.key(0), carry[0], scripted(carry[1]))
            return (state, step.obs), step.obs

        return jax.lax.scan(advance, (state, obs), None, length=120)[1]

    mirrored = state_of(env, game_of(swapped))
    here, there = watch(state, obs), watch(mirrored, mirrored.frames)
    np.testing.assert_array_equal(here, there[:, ::-1])
    assert here[:, :, 20].min() < -1  # the ball did come to both
    assert here[:, 0, 20].max() > 1


@pytest.mark.parametrize("agent", [LEFT, RIGHT])
def test_fast_contact_bounces_elastically(agent):
    """Ball at the middle of the face, 0.1 deep, 5 m/s into it: impulse 2·5 / (1/0.75 + 1/4) = 6.3158 along the normal."""
    mirror = np.array([1.0 if agent == LEFT else -1.0, 1.0])
    ball = (np.array([-7.0, 0.0]) + (0.05 + 0.5 - 0.1) * NORMAL) * mirror
    x, y = [-3.0, -3.0], [0.0, 0.0]
    x[agent] = -7.0
    after, touched = jit_hit(court_of(ball=ball, ball_velocity=-5 * NORMAL * mirror, x=x, y=y))
    assert touched.tolist() == [agent == RIGHT, agent == LEFT]
    impulse = 2 * 5 / (1 / 0.75 + 1 / 4)
    speed = np.array([after.ball_vx, after.ball_vy]) * mirror
    np.testing.assert_allclose(speed, (impulse / 0.75 - 5) * NORMAL, atol=1e-5)
    given = np.array([after.vx[agent], after.vy[agent]])
    np.testing.assert_allclose(given, -impulse / 4 * NORMAL, atol=1e-5)
    energy = 0.75 * np.sum(speed**2) + 4 * np.sum(given**2)
    np.testing.assert_allclose(energy, 0.75 * 5**2, rtol=1e-5)
    place = np.array([after.ball_x, after.ball_y]) * mirror - np.array([-7.0, 0.0])
    np.testing.assert_allclose(place, 0.55 * NORMAL, atol=1e-5)  # back on the surface
    assert after.vx[1 - agent] == after.vy[1 - agent] == 0.0


def test_slow_contact_does_not_bounce():
    ball = np.array([-7.0, 0.0]) + 0.5 * NORMAL
    after, touched = jit_hit(court_of(ball=ball, ball_velocity=-1.9 * NORMAL, x=(-7.0, -7.0), y=(0.0, 0.0)))
    assert touched[LEFT]
    relative = (after.ball_vx - after.vx[LEFT]) * NORMAL[0] + (after.ball_vy - after.vy[LEFT]) * NORMAL[1]
    np.testing.assert_allclose(relative, 0.0, atol=1e-5)


def test_contact_is_frictionless_and_only_for_approaching_balls():
    ball = np.array([-7.0, 0.0]) + 0.5 * NORMAL
    velocity = -4 * NORMAL + 3 * FACE
    after, _ = jit_hit(court_of(ball=ball, ball_velocity=velocity, y=(0.0, 0.0)))
    np.testing.assert_allclose(np.array([after.ball_vx, after.ball_vy]) @ FACE, 3.0, rtol=1e-5)
    after, touched = jit_hit(court_of(ball=ball, ball_velocity=4 * NORMAL, y=(0.0, 0.0)))
    assert touched[LEFT]
    np.testing.assert_allclose([after.ball_vx, after.ball_vy], 4 * NORMAL, rtol=1e-6)


def test_contact_at_a_corner_points_from_the_corner():
    corner = np.array([-7.0, 0.0]) + 0.05 * NORMAL + 0.9375 * FACE
    outwards = (NORMAL + FACE) / np.sqrt(2)
    after, touched = jit_hit(court_of(ball=corner + 0.49 * outwards, ball_velocity=-6 * outwards, y=(0.0, 0.0)))
    assert touched[LEFT]
    speed = np.array([after.ball_vx, after.ball_vy])
    np.testing.assert_allclose(speed / np.linalg.norm(speed), outwards, atol=1e-4)
    _, touched = jit_hit(court_of(ball=corner + 0.51 * outwards, y=(0.0, 0.0)))
    assert not touched.any()  # a box grown by the radius would have touched


@pytest.mark.parametrize("depth", [0.0, 0.2, 0.549])
def test_ball_inside_the_box_leaves_by_the_nearest_face(depth):
    ball = np.array([-7.0, 0.0]) + (0.05 - depth) * NORMAL
    after, touched = jit_hit(court_of(ball=ball, y=(0.0, 0.0)))
    assert touched[LEFT]
    np.testing.assert_allclose([after.ball_x, after.ball_y], np.array([-7.0, 0.0]) + 0.55 * NORMAL, atol=1e-5)


@pytest.mark.parametrize("last_left", [True, False])
@pytest.mark.parametrize("x", [-0.51, 0.51])
def test_leaving_the_plane_above_the_net_pays_the_last_hitter(last_left, x):
    game = game_of(court_of(ball=(x, 2.0)), last_left=last_left, over_net=True)
    after = jit_judge(game, jnp.array([False, False]))
    np.testing.assert_allclose(after.reward, [0.0, 0.1] if last_left else [0.1, 0.0])
    assert after.last_left  # whoever hit it
    assert not after.fault
    assert not after.over_net
    assert after.rally == 1
    assert not jit_judge(after, jnp.array([False, False])).reward.sum() > 0.11  # paid once


def test_touch_decides_who_answers():
    inside = game_of(court_of(ball=(0.2, 2.0)), over_net=True)
    nobody, right, left = (jnp.array(flags) for flags in ([False, False], [True, False], [False, True]))
    assert not jit_judge(inside, nobody).last_left
    assert jit_judge(inside, left).last_left
    assert not jit_judge(inside._replace(last_left=jnp.array(True)), right).last_left
    assert jit_judge(inside._replace(last_left=jnp.array(True)), nobody).last_left
    assert jit_judge(inside, nobody).over_net
    assert jit_judge(inside, nobody).reward.sum() == 0


@pytest.mark.parametrize(
    ("ball", "last_left", "payer"),
    [
        ((-5.0, -2.76), False, LEFT),  # floor: whose half it is
        ((5.0, -2.76), True, RIGHT),
        ((-11.8, 3.0), True, LEFT),  # wall: who answers for the ball
        ((-11.8, 3.0), False, RIGHT),
        ((11.8, 3.0), True, LEFT),
        ((0.54, -1.5), True, LEFT),  # side of the net
        ((-0.54, -1.5), False, RIGHT),
        ((0.0, -0.51), True, LEFT),  # top of the net
        ((0.3, -0.6), False, RIGHT),
    ],
)
def test_faults_end_the_game(ball, last_left, payer):
    after = jit_judge(game_of(court_of(ball=ball), last_left=last_left), jnp.array([False, False]))
    assert after.fault
    expected = np.zeros(2)
    expected[payer] = -0.01
    np.testing.assert_allclose(after.reward, expected)


@pytest.mark.parametrize("ball", [(-5.0, -2.74), (-11.76, 3.0), (11.76, 3.0), (0.56, -1.5), (0.0, -0.49), (0.4, -0.6)])
def test_a_near_miss_is_no_fault(ball):
    assert not jit_judge(game_of(court_of(ball=ball)), jnp.array([False, False])).fault


def test_a_fault_takes_the_others_points_of_the_step():
    earned = game_of(court_of(ball=(-5.0, -2.8)), reward=(0.1, 0.0))
    np.testing.assert_allclose(jit_judge(earned, jnp.array([False, False])).reward, [0.0, -0.01])
    earned = game_of(court_of(ball=(5.0, -2.8)), reward=(0.1, 0.0))
    np.testing.assert_allclose(jit_judge(earned, jnp.array([False, False])).reward, [0.09, 0.0], atol=1e-7)


def test_rest_of_a_step_after_a_fault_changes_nothing():
    """The same fault in the first or the last of five physics steps, and the court stands where it happened."""
    env = Tennis()
    state = state_of(env, game_of(court_of(ball=(-5.0, -2.74), ball_velocity=(0.0, -9.0), x=(-9.0, -9.0))))
    after, step = stepper(env)(state, jnp.array([[1.0, 1.0], [1.0, 1.0]]))
    one = jax.jit(physics_step)(state.game, jnp.ones(2), jnp.array([True, True]))
    assert one.fault
    np.testing.assert_allclose(np.array(after.game.court.x), [-8.4, -8.4], rtol=1e-6)
    for a, b in zip(jax.tree.leaves(after.game), jax.tree.leaves(one), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    np.testing.assert_allclose(step.reward, [0.0, -0.01])


def test_ball_speed_is_limited_per_component():
    after = jax.jit(physics_step)(
        game_of(court_of(ball=(-5.0, 3.0), ball_velocity=(20.0, -20.0))), jnp.zeros(2), jnp.zeros(2, bool)
    )
    np.testing.assert_allclose([after.court.ball_vx, after.court.ball_vy], [9.0, -9.0 - 9.81 * 0.02], rtol=1e-6)


def test_rackets_rest_jump_and_stop():
    env = Tennis()
    far = court_of(ball=(-5.0, 200.0), x=(-7.0, -7.0), y=(-1.8, -1.8))  # the ball stays out of the way
    state = state_of(env, game_of(far))
    for _ in range(3):
        state, step = stepper(env)(state, jnp.array([[0.0, 0.5], [-1.0, 0.0]]))
    np.testing.assert_allclose(step.obs[:, 17], -1.852, atol=5e-4)  # at rest on the floor: 0.5 is no jump
    np.testing.assert_array_equal(step.obs[:, 19], 0.0)
    np.testing.assert_allclose(step.obs[1, 16], -10.9, atol=5e-4)  # the far wall
    assert step.obs[1, 18] == 0.0
    assert step.obs[0, 16] == -7.0
    state, step = stepper(env)(state, jnp.array([[0.0, 0.51], [5.0, 0.0]]))
    assert step.obs[0, 17] > -1.4  # up by about 0.6 m
    assert step.obs[1, 17] == state.game.court.y[LEFT] < -1.85
    np.testing.assert_allclose(step.obs[1, 16], -10.9 + 3.0, atol=5e-4)  # 5 counts as 1
    for _ in range(3):
        state, step = stepper(env)(state, jnp.array([[0.0, 0.0], [1.0, 0.0]]))
    np.testing.assert_allclose(step.obs[1, 16], -0.4, atol=1e-5)
    state, step = stepper(env)(state, jnp.zeros((2, 2)))
    np.testing.assert_array_equal(step.obs[1, 16], -1.0)


def test_time_limit_is_truncation_and_a_fault_is_not():
    env = Tennis(max_steps=3)
    state, _ = jax.jit(env.reset)(prng.key(0))
    flags = []
    for _ in range(3):
        state, step = stepper(env)(state, jnp.zeros((2, 2)))
        flags.append((step.terminated.any().item(), step.truncated.all().item()))
    assert flags == [(False, False), (False, False), (False, True)]
    falling = state_of(env, game_of(court_of(ball=(-5.0, -2.7), ball_velocity=(0.0, -9.0), x=(-9.0, -9.0))), step=2)
    _, step = stepper(env)(falling, jnp.zeros((2, 2)))
    assert step.terminated.all()
    assert not step.truncated.any()


def test_ball_velocity_on_request():
    env = Tennis(ball_velocity_obs=True)
    court = court_of(ball=(-5.0, 3.0), ball_velocity=(4.0, 2.0), vx=(1.0, 2.0), vy=(3.0, 4.0))
    np.testing.assert_allclose(env.frame(court)[:, 6:], [[-4.0, 2.0], [4.0, 2.0]])
    np.testing.assert_allclose(Tennis().frame(court)[:, 6:], [[1.0, 3.0], [2.0, 4.0]])
    np.testing.assert_allclose(env.frame(court)[:, :6], Tennis().frame(court)[:, :6])


def test_jit_and_vmap_change_nothing():
    env = Tennis()
    keys = jax.random.split(prng.key(2), 3)
    states, _ = jax.jit(jax.vmap(env.reset))(keys)
    actions = jax.random.uniform(jax.random.key(1), (3, 2, 2), minval=-1.0, maxval=1.0)
    batch = jax.jit(jax.vmap(env.step))(keys, states, actions)
    for e in range(3):
        alone, _ = env.reset(keys[e]) if e == 0 else jax.jit(env.reset)(keys[e])
        one = env.step(keys[e], alone, actions[e]) if e == 0 else stepper(env)(alone, actions[e])
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(batch), strict=True):
            np.testing.assert_allclose(a, b[e], atol=1e-5)
    after, step = jax.eval_shape(env.step, keys[0], alone, actions[0])
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), alone) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), after
    )
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((after, step)))


def test_spec_and_registry():
    env = make("tennis", max_steps=7)
    assert env == Tennis(max_steps=7)
    assert env.spec.agents == ("racket_0", "racket_1")
    assert env.spec.roles == ("racket", "racket")
    assert env.spec.action_spaces == (Box(2, -1.0, 1.0),) * 2
    assert env.spec.obs_sizes == (24, 24)
    assert {metric.reduction for metric in jax.jit(lambda key: env.metrics(env.reset(key)[0]))(prng.key(0)).values()} == {
        "last"
    }


@pytest.mark.parametrize(("field", "value"), [("ball_velocity_obs", "yes"), ("max_steps", 0)])
def test_bad_arguments_are_named(field, value):
    env = Tennis()
    object.__setattr__(env, field, value)  # past the type checks that only tests have
    with pytest.raises(UsageError, match=f"{field} must .*{value!r}"):
        env.__post_init__()


def test_drawing():
    env = Tennis()
    state = state_of(env, game_of(court_of(ball=(-5.0, 3.0), x=(-7.0, -8.0))))
    picture = env.draw(state)
    rackets = [shape for shape in picture.shapes if isinstance(shape, Polygon) and shape.role == "racket"]
    (ball,) = [shape for shape in picture.shapes if isinstance(shape, Circle)]
    assert (ball.x, ball.y, ball.role, ball.trail) == (-5.0, 3.0, "ball", "ball")
    assert [racket.label for racket in rackets] == ["racket_0", "racket_1"]
    reach = [(min(x for x, _ in racket.points), max(x for x, _ in racket.points)) for racket in rackets]
    np.testing.assert_allclose(reach, [(7 - 0.797, 7 + 1.370), (-8 - 1.370, -8 + 0.797)], atol=1e-3)
    heights = [y for _, y in rackets[0].points]
    np.testing.assert_allclose([min(heights), max(heights)], [-1.5 - 1.398, -1.5 + 0.579], atol=1e-3)
    assert "score 0.00" in picture.caption
