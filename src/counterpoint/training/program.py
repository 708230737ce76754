"""From settings to a program: opens the environment once, decides what was left open, and binds the parts of a run together."""

import math
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from counterpoint import config as configs
from counterpoint.algos.base import Algorithm, Replay
from counterpoint.algos.ensemble import sizes_of
from counterpoint.config import Config
from counterpoint.core import prng
from counterpoint.core.compilation import keep_programs
from counterpoint.core.errors import UsageError
from counterpoint.core.types import Environment, Transition
from counterpoint.training.external import check_external
from counterpoint.training.loop import DEVICES, Program, Schedule
from counterpoint.training.opponents import actors_of, algorithm_of, check_ensemble, check_league, open_env
from counterpoint.training.replay import (
    STORED,
    SUCCESSIVE,
    Memory,
    example,
    n_step,
    of_members,
    on_policy,
    prioritised,
    row_size,
    sequences,
    uniform,
    with_newest,
)
from counterpoint.training.size import check_evaluation, check_size


class Prepared(NamedTuple):
    """Settings with every choice made, as they are recorded, and the program that they describe."""

    config: Config
    program: Program


SCHEDULER = "xla_cpu_enable_concurrency_optimized_scheduler"
"""A schedule for concurrency of XLA, with which large programs of MAPPO (recurrent, or several seeds) never end on CPUs."""


def prepare_jax(num_devices: int, external: bool = False) -> int:
    """Configures JAX for that many devices (0: choose) and returns how many to use.

    Beside worker processes of an external environment XLA gets one thread: the cores are theirs.
    """
    if external:
        os.environ.setdefault("NPROC", "1")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "counterpoint"
    keep_programs(str(cache))
    wanted = num_devices or min(2, os.cpu_count() or 1)
    with suppress(RuntimeError):  # the caller has used JAX before: take what is there
        jax.config.update("jax_num_cpu_devices", wanted)
        if SCHEDULER not in (flags := os.environ.get("XLA_FLAGS", "")):  # learners inherit it: they compute the same bits
            os.environ["XLA_FLAGS"] = f"{flags} --{SCHEDULER}=false".strip()
    present = len(jax.devices())
    if num_devices > present:
        raise UsageError(f"--devices {num_devices} is more than there are: start a new process or choose --devices {present}.")
    if num_devices == 0 and jax.default_backend() != "cpu":
        return 1
    return min(wanted, present)


def prepare(config: Config, given: Collection[str] | None = None, home: Path | None = None, trust: bool = False) -> Prepared:
    """Opens the environment, checks the settings against it, decides what they leave open and builds the program.

    `given` names the settings that the user chose: others may be fitted to the environment. None stands for all. `home` is the
    folder of a run that exists already; `trust` permits the code that frozen runs name.
    """
    env = open_env(config, home, trust)
    config = configs.fitted(config, env, given)
    config.check(env)
    check_league(config, env)
    check_ensemble(config, env)
    config = _resolve(config, env, resumed=home is not None)
    program = build(config, env)
    if env.compiled is None:
        check_external(program)
    return Prepared(config, program)


def _resolve(config: Config, env: Environment, resumed: bool) -> Config:
    """Returns the settings with every choice made; a resumed run keeps its warm-up, even if that had no step."""
    t, entry, external = config.training, config.entry, env.compiled is None
    if external and "world_action" in vars(config.learning):
        config = configs.override(config, world_action="one-hot")  # an external environment takes choices, not soft vectors
    devices = prepare_jax(1 if external or config.distribution.learners else t.devices, external)
    batch_fits = entry.splits_batch and t.update_every % devices == 0 and t.batch_size % devices == 0
    recurrent = entry.recurrent(config.learning)
    batch_fits = batch_fits and not (recurrent and t.num_envs % devices)  # the steps of one environment stay together
    fits = t.num_seeds % devices == 0 if t.num_seeds > 1 else batch_fits or devices == 1
    if not fits and t.devices:
        if t.num_seeds == 1 and not entry.splits_batch:
            raise UsageError(
                f"{entry.name} trains one seed on one device, not on {devices}: choose --devices 1 or --num-seeds {devices}."
            )
        batch = f"both --update-every {t.update_every} and --batch-size {t.batch_size}"
        batch = f"--num-envs {t.num_envs} of a recurrent team" if recurrent and t.num_envs % devices else batch
        what = f"--num-seeds {t.num_seeds}" if t.num_seeds > 1 else batch
        raise UsageError(f"--devices {devices} does not divide {what}: choose --devices 1.")
    warmup = t.warmup if resumed else t.warmup or usual_warmup(config, env)
    report = min(config.evaluation.report_every, config.checkpoints.save_rate, max(1, t.num_episodes // 10))
    if (league := config.opponents.league) and not config.opponents.league_every:
        expected = max(0, t.num_episodes * env.max_steps - warmup) * t.updates // t.update_every
        config = configs.override(config, league_every=max(1, expected // (league + 1)))
    return configs.override(
        config,
        devices=devices if fits else 1,
        warmup=warmup,
        report_every=report,
        max_episode_len=env.max_steps,
        exp_name=config.name,
    )


def usual_warmup(config: Config, env: Environment) -> int:
    """Returns the steps of the warm-up if the settings name none and every episode lasts until the limit.

    That is never more than a tenth of the run, in whole rollouts. In a short run the memory may then hold fewer steps than a
    minibatch, which repeats them: every memory draws with replacement, and steps that it does not hold yet count for nobody.
    """
    t = config.training
    if not isinstance(config.entry.memory(config.learning), Replay):
        return 0
    tenth = t.num_episodes * env.max_steps // 10
    return min(t.batch_size * env.max_steps, tenth // t.update_every * t.update_every)


def warmup_episodes(config: Config, env: Environment) -> int | None:
    """Returns the episodes after which the warm-up ends in any case: a tenth of the run, where episodes may end early.

    They may then be far shorter than their limit, so that the steps of the warm-up would last much longer, or for ever.
    """
    if getattr(env.compiled, "ends_at_limit", False) or config.training.warmup != usual_warmup(config, env):
        return None
    return config.training.num_episodes // 10


def build(config: Config, env: Environment) -> Program:
    """Returns the program of resolved settings."""
    t = config.training
    split = t.devices if t.num_seeds == 1 else 1
    algo = algorithm_of(config, env, axis=DEVICES if split > 1 else None)
    check_size(env, algo, config.learning, t.num_seeds)
    check_evaluation(env, config.evaluation.eval_episodes, t.num_seeds)
    schedule = Schedule(
        num_envs=t.num_envs,
        rollout_length=t.update_every // t.num_envs,
        updates=t.updates,
        warmup=t.warmup,
        report_every=config.evaluation.report_every,
        num_episodes=t.num_episodes,
        warmup_episodes=warmup_episodes(config, env),
    )
    memory = memory_of(config, env, algo, schedule, split)
    return Program(
        env=env,
        algo=algo,
        memory=memory,
        schedule=schedule,
        num_seeds=t.num_seeds,
        num_devices=t.devices,
        actors=actors_of(config, env.spec),
    )


def memory_of(config: Config, env: Environment, algo: Algorithm, schedule: Schedule, split: int) -> Memory:
    """Returns the memory that the algorithm learns from, or each device's share of it."""
    kind = config.entry.memory(config.learning)
    single, carry = _shapes(env, algo)
    one = single
    if not isinstance(kind, Replay):
        lead = (schedule.rollout_length, schedule.num_envs)
        steps = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*lead, *leaf.shape), leaf.dtype), one._replace(carry=carry))
        return on_policy(steps)
    t = config.training
    if kind.n_step:
        one = one._replace(discount=jax.ShapeDtypeStruct((), jnp.float32))  # pyright: ignore[reportArgumentType]
    per_add = t.update_every // split
    needed = min(t.buffer_size, t.num_episodes * env.max_steps + t.update_every) // split
    least, width, drawn = t.batch_size, row_size(one, SUCCESSIVE if kind.sequence else STORED), t.batch_size
    if kind.sequence:
        window = sum(kind.sequence)
        least = max(least, window * t.num_envs // split)
        num_sequences = max(1, t.batch_size // split // kind.sequence[1])
        drawn = num_sequences * split * window
        if window * t.num_envs > t.buffer_size:
            raise UsageError(
                f"--buffer-size {t.buffer_size} does not hold sequences of {window} steps of --num-envs {t.num_envs}: choose at"
                f" least {window * t.num_envs}."
            )
    capacity = math.ceil(max(needed, least) / per_add) * per_add
    size = 4 * capacity * split * t.num_seeds * width
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    batch = 4 * drawn * t.num_seeds * width
    if batch * (env.spec.num_agents if kind.per_agent else 1) > 0.4 * present:
        raise UsageError(
            f"minibatches of {drawn} transitions need {batch / 2**30:.1f} GiB, and this machine has"
            f" {present / 2**30:.1f}: choose a smaller --batch-size."
        )
    if size > 0.8 * present:
        raise UsageError(
            f"the replay of {capacity * split * t.num_seeds} transitions needs {size / 2**30:.1f} GiB, and this machine has"
            f" {present / 2**30:.1f}: choose a smaller --buffer-size."
        )
    batches = env.spec.num_agents if kind.per_agent else 1
    if kind.sequence:
        return sequences(one, capacity, num_sequences, per_add, t.num_envs // split, *kind.sequence, num_batches=batches)  # pyright: ignore[reportPossiblyUnboundVariable]
    sizes = (one, capacity, t.batch_size // split, per_add, batches)
    if (members := config.opponents.ensemble) > 1:
        numbers = sizes_of(env.spec, members, config.opponents.ensemble_teams)
        ring = of_members(uniform(*sizes), one, t.batch_size // split, numbers, axis=DEVICES if split > 1 else None)
    elif kind.priority is None:
        ring = uniform(*sizes)
    else:
        exponent, beta = kind.priority
        ring = prioritised(*sizes, exponent=exponent, beta=beta, room=t.buffer_size // split + per_add)
    if kind.newest:
        ring = with_newest(ring, one, per_add, batches)
    return n_step(ring, single, t.num_envs, *kind.n_step) if kind.n_step else ring


def _shapes(env: Environment, algo: Algorithm) -> tuple[Transition, Any]:
    """Returns the shapes of one environment's transition and of its carry."""
    spec, masks = env.spec, env.has_masks

    def act(key: Any) -> tuple[Any, Any]:
        obs, legal = jnp.zeros((1, *spec.obs_mask.shape)), jnp.ones((1, *spec.act_mask.shape), bool) if masks else None
        carry = algo.begin(key)
        lead = jax.tree.map(lambda leaf: leaf[None], carry)
        extras = algo.act(algo.policy(algo.init(key)), lead, obs, key, jnp.zeros((), jnp.int32), legal)[2]
        return jax.tree.map(lambda leaf: leaf[0], extras), carry

    extras, carry = jax.eval_shape(act, prng.key(0))
    return example(spec, masks, extras), carry
