"""From settings to a program: choose what was left open, bind world, algorithm and memory together."""

import math
import os
from contextlib import suppress
from pathlib import Path

import jax
import jax.numpy as jnp

from counterpoint import config as configs
from counterpoint.algos import coma, maddpg
from counterpoint.algos.base import Algorithm
from counterpoint.coded.controller import DECODE_ERROR, require_distributable
from counterpoint.config import Config, Training
from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.types import Env, Key, Spec, Transition
from counterpoint.training.hosted import Hosted
from counterpoint.training.loop import DEVICES, Program, Schedule
from counterpoint.training.replay import Memory, on_policy, prioritised, row_size, uniform
from counterpoint.training.rollout import rollout, start


def prepare_jax(num_devices: int, hosted: bool = False) -> int:
    """Makes JAX ready for that many devices (0: choose) and returns how many there are to use.

    Beside worker processes (`hosted`) XLA gets one thread: the cores are for them.
    """
    if hosted:
        os.environ.setdefault("NPROC", "1")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "counterpoint"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    wanted = num_devices or min(2, os.cpu_count() or 1)
    with suppress(RuntimeError):  # the caller has used JAX before: take what is there
        jax.config.update("jax_num_cpu_devices", wanted)
    present = len(jax.devices())
    if num_devices > present:
        raise UsageError(f"--devices {num_devices} is more than there are: start a new process or choose --devices {present}.")
    if num_devices == 0 and jax.default_backend() != "cpu":
        return 1
    return min(wanted, present)


def resolve(config: Config) -> Config:
    """The settings with every "choose for me" decided, as they are recorded."""
    env = config.validate()
    t, splits = config.training, isinstance(config.learning, maddpg.Config)
    hosted = isinstance(env, Hosted)
    if hosted:
        config = _for_hosted(config)
    devices = prepare_jax(1 if hosted or config.distribution.learners else t.devices, hosted)
    batch_fits = splits and t.update_every % devices == 0 and t.batch_size % devices == 0
    fits = t.num_seeds % devices == 0 if t.num_seeds > 1 else batch_fits or devices == 1
    if not fits and t.devices:
        batch = f"both --update-every {t.update_every} and --batch-size {t.batch_size}" if splits else "one seed of coma"
        what = f"--num-seeds {t.num_seeds}" if t.num_seeds > 1 else batch
        raise UsageError(f"--devices {devices} does not divide {what}: choose --devices 1.")
    total = t.num_episodes * env.max_steps
    warmup = t.warmup or (min(t.batch_size * env.max_steps, max(t.batch_size, total // 4)) if splits else 0)
    report = min(config.evaluation.report_every, config.checkpoints.save_rate, max(1, t.num_episodes // 10))
    return configs.override(
        config,
        devices=devices if fits else 1,
        warmup=warmup,
        report_every=report,
        max_episode_len=env.max_steps,
        exp_name=config.name,
    )


def _for_hosted(config: Config) -> Config:
    """The settings as an environment from elsewhere needs them: it takes choices, not soft vectors, and one device."""
    return configs.override(config, world_action="one-hot")


def build(config: Config) -> Program:
    """The program of resolved settings."""
    env, t = config.validate(), config.training
    split = t.devices if t.num_seeds == 1 else 1
    algo = algorithm_of(config, env.spec, axis=DEVICES if split > 1 else None)
    schedule = Schedule(
        num_envs=t.num_envs,
        rollout_length=t.update_every // t.num_envs,
        updates=t.updates,
        warmup=t.warmup,
        report_every=config.evaluation.report_every,
        num_episodes=t.num_episodes,
    )
    if isinstance(config.learning, maddpg.Config):
        memory = replay_of(config.learning, config.training, env, split)
    else:
        memory = on_policy(_recording(env, algo, schedule))
    return Program(env=env, algo=algo, memory=memory, schedule=schedule, num_seeds=t.num_seeds, num_devices=t.devices)


def algorithm_of(config: Config, spec: Spec, axis: str | None = None) -> Algorithm:
    """The algorithm that the settings ask for."""
    if isinstance(config.learning, coma.Config):
        algo = coma.make(config.learning, spec)
    else:
        algo = maddpg.make(config.learning, spec, config.sees(spec), axis)
    if config.distribution.learners:
        require_distributable(algo)
        algo = algo._replace(metrics=(*algo.metrics, DECODE_ERROR))
    return algo


def replay_of(learning: maddpg.Config, t: Training, env: Env, split: int) -> Memory:
    """The replay that the settings ask for, or each device's share of it."""
    per_add = t.update_every // split
    needed = min(t.buffer_size, t.num_episodes * env.max_steps + t.update_every) // split
    capacity = math.ceil(max(needed, t.batch_size) / per_add) * per_add
    size = 4 * capacity * split * t.num_seeds * row_size(env.spec)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > 0.8 * memory:
        raise UsageError(
            f"the replay of {capacity * split * t.num_seeds} transitions needs {size / 2**30:.1f} GiB, and this machine has"
            f" {memory / 2**30:.1f}: choose a smaller --buffer-size."
        )
    batches = env.spec.num_agents if learning.minibatch == "per-agent" else 1
    sizes = (env.spec, capacity, t.batch_size // split, per_add, batches)
    if learning.replay == "uniform":
        return uniform(*sizes)
    room = t.buffer_size // split + per_add
    return prioritised(*sizes, exponent=learning.priority_exponent, beta=learning.priority_beta, room=room)


def _recording(env: Env, algo: Algorithm, schedule: Schedule) -> Transition:
    """The shapes of a rollout."""

    def record(key: Key) -> Transition:
        worlds = start(env, algo, key, schedule.num_envs)
        return rollout(env, algo, algo.init(key), worlds, key, schedule.rollout_length, jnp.zeros((), jnp.int32))[1]

    return jax.eval_shape(record, prng.key(0))
