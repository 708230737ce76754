"""n-step transitions by hand: sums, bootstraps, ends of episodes, agents that leave, rollouts that meet, and resumed runs."""

import os
import signal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterpoint
from counterpoint import config as configs
from counterpoint.algos import maddpg, offpolicy
from counterpoint.core import prng
from counterpoint.core.actions import heads_of
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Discrete
from counterpoint.core.types import Transition
from counterpoint.training import program as programs
from counterpoint.training import train as experiment
from counterpoint.training.loop import compile_advance, compile_begin
from counterpoint.training.replay import example, n_step, n_step_transitions, uniform
from counterpoint.training.rollout import rollout, start
from ladders import NUM_ENVS, NUM_STEPS
from probes import Delayed, spec_of
from processes import assert_same_run
from tiny import TINY

PAIR = spec_of((1, 1), (Discrete((2,)), Discrete((2,))))
HALF = 0.5
QUICKLY = {"xla_backend_optimization_level": 0}


def steps_of(reward, done, terminated=None, alive=None):
    """One environment with two agents: the observation at time t is t, the next one t + ½."""
    reward = np.asarray(reward, np.float32)[:, None]
    length = len(reward)
    time = np.arange(length, dtype=np.float32)[:, None, None, None] * np.ones((1, 1, 2, 1), np.float32)
    flags = lambda given, usual: np.asarray(np.full((length, 2), usual) if given is None else given, bool)[:, None]  # noqa: E731
    arrays = {
        "obs": time,
        "action": np.zeros((length, 1, 2, 2), np.float32),
        "reward": reward,
        "next_obs": time + HALF,
        "terminated": flags(terminated, False),
        "alive": flags(alive, True),
        "done": np.asarray(done, bool)[:, None],
    }
    return Transition(**jax.tree.map(jnp.asarray, arrays))


def test_three_rewards_are_discounted_and_the_bootstrap_by_gamma_cubed():
    """Rewards 1, 2, 4, 8 and γ = ½: 1 + 1 + 1, then 2 + 2 + 2; the last two steps wait for what follows."""
    steps = steps_of([[1, 10], [2, 20], [4, 40], [8, 80]], [False] * 4)
    found = n_step_transitions(steps, 3, HALF)
    np.testing.assert_allclose(found.reward[:, 0], [[3, 30], [6, 60]])
    np.testing.assert_allclose(found.discount[:, 0], [1 / 8, 1 / 8])
    np.testing.assert_allclose(found.obs[:, 0, 0, 0], [0, 1])
    np.testing.assert_allclose(found.next_obs[:, 0, 0, 0], [2.5, 3.5])
    assert not found.terminated.any()


def test_an_episode_that_ends_cuts_the_sum_whatever_ended_it():
    """The second step ends the episode: nothing of the next one is counted, and only `terminated` cuts the bootstrap."""
    for ends in (True, False):
        terminated = [[False] * 2, [ends] * 2, [False] * 2, [False] * 2]
        steps = steps_of([[1, 1], [2, 2], [4, 4], [8, 8]], [False, True, False, False], terminated)
        found = n_step_transitions(steps, 3, HALF)
        np.testing.assert_allclose(found.reward[:, 0], [[2, 2], [2, 2]])
        np.testing.assert_allclose(found.discount[:, 0], [1 / 4, 1 / 2])
        np.testing.assert_allclose(found.next_obs[:, 0, 0, 0], [1.5, 1.5])
        np.testing.assert_array_equal(found.terminated[:, 0], [[ends] * 2] * 2)


def test_an_agent_that_is_terminated_earns_no_more_and_the_other_plays_on():
    """The first agent's game is over after its first step; what a dead agent is paid later does not count."""
    terminated = [[True, False]] * 3
    alive = [[True, True], [False, True], [False, True]]
    found = n_step_transitions(steps_of([[1, 1], [9, 2], [9, 4]], [False] * 3, terminated, alive), 3, HALF)
    np.testing.assert_allclose(found.reward[0, 0], [1, 3])
    np.testing.assert_array_equal(found.terminated[0, 0], [True, False])
    np.testing.assert_allclose(found.discount[0, 0], 1 / 8)


def test_an_agent_whose_time_is_up_bootstraps_from_that_moment():
    """The first agent is truncated after the first step, so all stop there: its value is that of the observation it left."""
    alive = [[True, True], [False, True], [False, True]]
    found = n_step_transitions(steps_of([[1, 1], [9, 2], [9, 4]], [False] * 3, None, alive), 3, HALF)
    np.testing.assert_allclose(found.reward[0, 0], [1, 1])
    np.testing.assert_allclose(found.discount[0, 0], 1 / 2)
    np.testing.assert_allclose(found.next_obs[0, 0, 0, 0], 0.5)
    assert not found.terminated.any()


@pytest.mark.parametrize("length", [1, 2, 4])
def test_what_is_stored_does_not_depend_on_how_steps_are_cut_into_rollouts(length):
    """Four steps at once, two and two, or one by one: the rows are the same, and the first ones are nobody's."""
    steps = steps_of([[1, 1], [2, 2], [4, 4], [8, 8]], [False, False, True, False])
    single = example(PAIR)
    one = single._replace(discount=jax.ShapeDtypeStruct((), jnp.float32))
    memory = n_step(uniform(one, 8, 4, length), single, 1, 3, HALF)
    state = memory.init()
    for first in range(0, 4, length):
        part = jax.tree.map(lambda leaf: leaf[first : first + length], steps)  # noqa: B023 — used at once
        tail, joined = memory.join(state.tail, part)
        state = memory.add(state._replace(tail=tail), joined)
    assert int(memory.added(state)) == 4
    rows = np.asarray(memory.rows(state))[:4]
    alive, reward, discount = rows[:, 12:14], rows[:, 6:8], rows[:, -1]
    np.testing.assert_array_equal(alive, [[0, 0], [0, 0], [1, 1], [1, 1]])
    np.testing.assert_allclose(reward[2:], [[3, 3], [4, 4]])
    np.testing.assert_allclose(discount[2:], [1 / 8, 1 / 4])
    np.testing.assert_array_equal(state.tail.obs[:, 0, 0, 0], [2, 3])


def test_the_target_bootstraps_by_each_samples_own_discount():
    """Q' is 4 everywhere: y = 1 + ⅛ · 4 and 1 + ½ · 4; γ itself, 0.9, is not used again."""
    config = maddpg.Config(num_units=4, num_layers=1, gamma=0.9, lr=1e-9, n_step=3)
    algo = maddpg.make(config, PAIR, np.ones((2, 2), bool))
    agents = jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(0))
    flat = jax.tree.map(jnp.zeros_like, agents.target_critic)
    critic = (*flat[:-1], flat[-1]._replace(bias=jnp.full((2, 1), 4.0)))
    batch = jax.tree.map(lambda leaf: leaf[:2, 0], steps_of([[1, 1]] * 2, [False] * 2))
    batch = batch._replace(discount=jnp.array([1 / 8, 1 / 2]))
    update = jax.jit(algo.update, compiler_options=QUICKLY)
    _, metrics = update(agents._replace(target_critic=critic), batch, prng.key(0))
    np.testing.assert_allclose(metrics["td_target"], ((1 + 0.5) + (1 + 2.0)) / 2, rtol=1e-6)


def program(**settings):
    own = {"scenario": "simple_spread", "scenario_args": ("N=2",), "num_episodes": 400, "buffer_size": 2000}
    return programs.prepare(configs.override(configs.Config(), **(TINY | own | settings))).program


@pytest.mark.parametrize("num_envs", [1, 5])
def test_two_devices_hold_together_what_one_holds(num_envs):
    loops = []
    for devices in (1, 2):
        made = program(n_step=3, devices=devices, num_envs=num_envs)
        loop = compile_begin(made)(jax.vmap(prng.key)(jnp.zeros(1, jnp.uint32)))
        loops.append(compile_advance(made, False)(loop, 2, False))
    one, two = loops
    rows = np.asarray(one.replay.ring.rows)[0]
    halves = np.asarray(two.replay.ring.rows)[0].reshape(2, -1, rows.shape[-1])
    assert int(one.replay.ring.added[0]) == 200
    for device in (0, 1):
        np.testing.assert_array_equal(halves[device, :100], rows[:200][device::2])
    jax.tree.map(np.testing.assert_array_equal, one.replay.tail, jax.device_get(two.replay.tail))
    assert one.replay.tail.reward.shape == (1, 2, num_envs, 2)


class Stop(experiment.Progress):
    """Interrupts the run after its second report, as Ctrl-C does."""

    def __init__(self) -> None:
        super().__init__()
        self.reports = 0

    def report(self, row: dict[str, Any]) -> None:
        self.reports += 1
        if self.reports == 2:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["maddpg", "matd3", "masac"])
def test_a_run_with_n_steps_resumes_to_the_same_bits(algorithm: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"algorithm": algorithm, "scenario": "simple", "n_step": 3, "num_episodes": 40, "num_envs": 4}
    settings |= {"update_every": 20, "replay": "prioritised", **TINY, "save_dir": str(tmp_path)}
    whole = counterpoint.train(**settings, exp_name="whole")
    with pytest.raises(experiment.Interrupted):
        counterpoint.train(progress=Stop(), **settings, exp_name="cut")
    counterpoint.resume(tmp_path / "cut")
    assert_same_run(tmp_path / "cut", whole.path)


def test_single_steps_have_the_program_and_the_rows_of_before():
    made = program()
    assert made.memory.join is None
    assert made.memory.init().rows.shape[1] == 2 * (2 * 12 + 5 + 3)  # D = N·(2O+A+3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"n_step": 0}, "--n-step must be at least 1"), ({"n_step": 2, "standardise_rewards": True}, "leave out one of the two")],
)
def test_senseless_settings_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        configs.override(configs.Config(), **settings)


def test_a_late_reward_reaches_the_first_step_at_once():
    """The clock runs for 3 steps and only the last pays 1: with three steps, Q(0) is γ² though the targets never move."""
    env, config = Delayed(max_steps=3), maddpg.Config(num_units=32, num_layers=1, tau=0.0, gamma=0.9, n_step=3)
    spec = env.spec
    algo = maddpg.make(config, spec, np.ones((1, 1), bool))
    one = example(spec)._replace(discount=jax.ShapeDtypeStruct((), jnp.float32))
    memory = n_step(uniform(one, 64 * 64, 64, NUM_ENVS * NUM_STEPS), example(spec), NUM_ENVS, 3, 0.9)

    def iteration(loop, key):
        agents, worlds, state = loop
        key_roll, key_sample, key_learn = jax.random.split(key, 3)
        worlds, steps, _ = rollout(env, algo, algo.policy(agents), worlds, key_roll, NUM_STEPS, jnp.zeros((), jnp.int32))
        tail, steps = memory.join(state.tail, steps)
        state = memory.add(state._replace(tail=tail), steps)
        agents, _ = algo.update(agents, memory.sample(state, key_sample), key_learn)
        return (agents, worlds, state), None

    def run(key):
        key_init, key_start, key_loop = jax.random.split(key, 3)
        agents = algo.init(key_init)
        agents = agents._replace(target_critic=jax.tree.map(jnp.zeros_like, agents.target_critic))
        loop = agents, start(env, algo, key_start, NUM_ENVS), memory.init()
        return jax.lax.scan(iteration, loop, jax.random.split(key_loop, 300))[0][0]

    agents = jax.jit(run, compiler_options=QUICKLY)(prng.key(0))
    critic = jax.tree.map(lambda leaf: leaf[0], agents.critic)
    problem = maddpg.Problem(spec, heads_of(spec), np.ones((1, 1), bool))
    inputs = jnp.array([[0.0, 1.0, 2.0], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]])
    np.testing.assert_allclose(offpolicy.q(problem, critic, inputs), [0.81, 0.9, 1.0], atol=0.06)
