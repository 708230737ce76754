"""From settings to a run: build the program, go on where a checkpoint left off, report, save, and leave pictures behind."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint import config as configs
from counterpoint import runs
from counterpoint.config import Config
from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.types import Spec
from counterpoint.policies.policy import Policy, names_of
from counterpoint.runs import Run, Saver, Segment
from counterpoint.runs.tables import write_whole
from counterpoint.training.engine import engine_of
from counterpoint.training.learners import learners, require_ray
from counterpoint.training.loop import Engine, Loop, Program, compiled_pieces, stepped
from counterpoint.training.program import build, prepare_jax, resolve
from counterpoint.training.progress import Progress, require_sinks, sinks
from counterpoint.viz import plots

CALL_SECONDS = 0.5
"""How long one call of the compiled loop should take: progress and Ctrl-C are served between calls."""


class Interrupted(Exception):
    """The user asked to stop; the run, whose folder this carries, is saved."""


class TooFewLearners(Exception):
    """Learning was distributed, and those it was distributed to are gone; the run is saved."""


class Diverged(Exception):
    """A parameter is no longer a finite number; what is saved still is."""


class Job(NamedTuple):
    """A run in training: its folder, its settings, the program they make, who carries it out and who is told of it."""

    run: Run
    config: Config
    program: Program
    engine: Engine
    progress: Progress


class Clock(NamedTuple):
    """What is counted outside the compiled loop and saved with it."""

    seconds: float
    """Wall time spent training so far."""
    fresh: bool
    """The window was reported: empty it before going on."""


def train(config: Config | None = None, progress: Progress | None = None, **settings: Any) -> Run:
    """A new run of these settings, trained to its end; they may be given as on the command line: train(scenario="simple")."""
    if config is None or settings.get("preset"):
        config = configs.start(*(settings.get(name, "") for name in ("preset", "algorithm", "scenario")))
    config = resolve(configs.override(config, **{name: value for name, value in settings.items() if name != "preset"}))
    program = build(config)
    require_sinks(config)
    require_ray(config)
    make_folder(config.evaluation.plots_dir, "--plots-dir")  # better refused now than after hours of training
    run = runs.create(config.checkpoints.save_dir, config.name, configs.to_dict(config))
    return _train(run, config, program, progress or Progress())


def resume(path: str | Path, progress: Progress | None = None, num_episodes: int = 0) -> Run:
    """The run in that folder, trained on to its end (or to `num_episodes` in all)."""
    run, progress = runs.open_run(path), progress or Progress()
    config = configs.from_dict(run.config)
    planned = config.training.num_episodes
    if 0 < num_episodes < planned:
        raise UsageError(f"--num-episodes {num_episodes} is fewer than the {planned} the run is set to: choose more.")
    if is_finished(run, max(num_episodes, planned)):
        more = f"counterpoint resume {run.path} --num-episodes {2 * planned}"
        progress.say(f"{run.path} is finished, all its {planned} episodes are trained; for more: {more}")
        return run
    if num_episodes > planned:
        config = configs.override(config, num_episodes=num_episodes)
        run.rewrite_config(configs.to_dict(config))
    require_sinks(config)
    require_ray(config)
    prepare_jax(config.training.devices, hosted=bool(config.world.env))
    return _train(run, config, build(config), progress)


def is_finished(run: Run, num_episodes: int) -> bool:
    """Whether the run was trained for that many episodes and has left everything behind."""
    try:
        _, about = run.load_policy()
    except UsageError:
        return False
    return about.get("episodes", 0) >= num_episodes and about.get("finished", False)


def make_folder(folder: str | Path, option: str) -> None:
    """Makes sure of a folder that an option names; an empty name is none."""
    try:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option} {folder} cannot be made ({error.strerror}): choose a folder that is yours.") from error


def _train(run: Run, config: Config, program: Program, progress: Progress) -> Run:
    progress.start(run.path, config, program.env.spec)
    with (
        _stop_signals() as stop,
        sinks(run, config) as log,
        engine_of(config, program, progress.say) as engine,
        learners(config, program, run, progress.say, stop.set) as update,
    ):
        if update:
            engine = stepped(program, compiled_pieces(program)._replace(update=update))
        job = Job(run, config, program, engine, progress)
        try:
            with Saver(run) as saver:
                loop, clock = _start(job)
                loop = _until_done(job, loop, clock, saver, log, stop)
        except Interrupted:
            if update and update.failed:
                raise TooFewLearners(f"{update.failed}; saved, go on with: counterpoint resume {run.path}") from None
            raise
    _leave(job, loop)
    return run


def _start(job: Job) -> tuple[Loop, Clock]:
    """The loop of the newest whole checkpoint, or a new one."""
    training = job.config.training
    seeds = training.seed + np.arange(training.num_seeds)
    keys = jax.vmap(prng.key)(jnp.asarray(seeds, jnp.uint32))
    loop, clock = job.engine.begin(keys), Clock(seconds=0.0, fresh=True)
    saved = job.run.load()
    job.run.rewind(saved.step if saved else -1)  # rows reported after it will be reported again
    if saved is None:
        return loop, clock
    for problem in saved.problems:
        job.progress.say(problem)
    return _restore(job.program, loop, saved), Clock(**saved.counters)


def _until_done(
    job: Job, loop: Loop, clock: Clock, saver: Saver, log: Callable[[dict[str, Any]], None], stop: threading.Event
) -> Loop:
    """The loop trained to its end: call the program, look after it, report, save, and again."""
    run, config, program, engine, progress = job
    check = jax.jit(_finite)
    limit, safe_rows, safe_episodes = 1, _added(program, loop), int(loop.episodes.min())
    while (done := int(loop.episodes.min())) < config.training.num_episodes:
        learn = int(loop.step[0]) >= program.schedule.warmup
        began, before = time.perf_counter(), int(loop.step[0])
        loop = engine.advance(loop, learn, limit, clock.fresh)
        finite = jax.device_get(check(loop.agents))
        spent = time.perf_counter() - began
        _refuse_divergence(job, finite, loop)
        clock = Clock(seconds=clock.seconds + spent, fresh=False)
        limit = _next_limit(limit, (int(loop.step[0]) - before) // config.training.update_every, spent)
        done = int(loop.episodes.min())
        finished = done >= config.training.num_episodes
        if int(loop.window.finished.episodes.min()) >= program.schedule.report_every or finished:
            for row in _report(job, loop, clock):
                run.append_metrics(row)
                progress.report(row)
                log(row)
            clock = clock._replace(fresh=True)
        stopping = stop.is_set() and not finished
        if finished or stopping or (clock.fresh and done - safe_episodes >= config.checkpoints.save_rate):
            safe_rows, safe_episodes = _save(program, loop, clock, saver, safe_rows), done
            if not finished:
                _save_policy(job, loop)
        progress.update(done, int(loop.step[0]), clock.seconds)
        if stopping:
            raise Interrupted(run.path)
    return loop


def _next_limit(limit: int, iterations: int, spent: float) -> int:
    """How many iterations the next call may take to stay near CALL_SECONDS."""
    if iterations == 0:
        return limit
    fitting = CALL_SECONDS * iterations / max(spent, 1e-6)
    return max(1, int(min(fitting, 4 * limit)))


def _finite(agents: Any) -> dict[str, jax.Array]:
    """Per part of the agents' state, whether all numbers are finite, for each seed and agent [K, N]."""
    parts: dict[str, list[jax.Array]] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(agents):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.ndim > 2:
            parts.setdefault(path[0].name, []).append(jnp.isfinite(leaf).all(axis=tuple(range(2, leaf.ndim))))
    return {name: jnp.stack(flags).all(axis=0) for name, flags in parts.items()}


def _refuse_divergence(job: Job, finite: dict[str, np.ndarray], loop: Loop) -> None:
    """Raises if something is no longer finite, and says what, whose, and when."""
    bad = {part: flags for part, flags in finite.items() if not flags.all()}
    if not bad:
        return
    names = job.program.env.spec.agents
    wide = {part: np.broadcast_to(flags, (len(flags), len(names))) for part, flags in bad.items()}  # some networks are shared
    seed, agent = np.argwhere(~np.logical_and.reduce(list(wide.values())))[0]
    parts = " and ".join(part.replace("_", " ") for part, flags in wide.items() if not flags[seed, agent])
    whose = names[agent]
    if job.program.num_seeds > 1:
        whose += f" (seed {job.config.training.seed + seed})"
    kept = "the last checkpoint is still good" if job.run.load() else "there is no checkpoint yet"
    raise Diverged(
        f"the {parts} of {whose} became infinite or NaN by step {int(loop.step[seed])}; {kept}. Try a smaller --lr or --clip."
    )


def _report(job: Job, loop: Loop, clock: Clock) -> Iterator[dict[str, Any]]:
    """A row of the metrics table for each seed."""
    _, config, program, engine, _ = job
    spec, window = program.env.spec, jax.device_get(loop.window)
    teams = sorted(set(spec.teams))
    evaluation = None
    if config.evaluation.eval_episodes:
        acting = jax.device_get(program.algo.acting(loop.agents))
        seeds = jnp.asarray(config.training.seed + np.arange(program.num_seeds), jnp.uint32)
        keys = jax.vmap(lambda seed, step: jax.random.fold_in(jax.random.fold_in(prng.key(seed), 0xE7A1), step))(
            seeds, jnp.asarray(jax.device_get(loop.step))
        )
        episodes = jax.device_get(engine.evaluate(acting, keys, config.evaluation.eval_episodes))
        evaluation = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32).mean(axis=1), episodes)
    for k in range(program.num_seeds):
        count = max(int(window.finished.episodes[k]), 1)
        returns = window.finished.returns[k] / count
        row: dict[str, Any] = {
            "step": int(loop.step[k]),
            "episode": int(loop.episodes[k]),
            "seed": config.training.seed + k,
            "seconds": round(clock.seconds, 3),
            "steps_per_second": round(int(loop.step[k]) / max(clock.seconds, 1e-9), 1),
            "length": float(window.finished.length[k]) / count,
            "return_sum": float(returns.sum()),
        }
        row |= _by_team("team", spec, teams, returns) | _by_agent("return", spec, returns)
        if evaluation is not None:
            row |= _by_team("eval/team", spec, teams, evaluation.returns[k])
            row |= _by_agent("eval/return", spec, evaluation.returns[k])
            row |= {"eval/length": float(evaluation.length[k])}
            row |= {f"eval/{name}": float(value[k]) for name, value in evaluation.metrics.items()}
        updates = int(window.updates[k])
        for name, sums in window.metrics.items():
            row |= _by_agent(name, spec, sums[k] / updates if updates else np.full(spec.num_agents, np.nan))
        yield row


def _by_agent(name: str, spec: Spec, values: np.ndarray) -> dict[str, float]:
    return {f"{name}/{agent}": float(value) for agent, value in zip(spec.agents, values, strict=True)}


def _by_team(name: str, spec: Spec, teams: list[str], values: np.ndarray) -> dict[str, float]:
    """The mean over each team's agents."""
    return {
        f"{name}/{team}": float(np.mean([v for v, t in zip(values, spec.teams, strict=True) if t == team])) for team in teams
    }


def _save(program: Program, loop: Loop, clock: Clock, saver: Saver, safe_rows: int) -> int:
    """Hands a checkpoint to the saver; returns how many replay rows are now safe."""
    small = _without_rows(program, loop)._replace(key=jax.random.key_data(loop.key))
    state = dict(zip(names_of(small), map(np.array, jax.tree.leaves(jax.device_get(small))), strict=True))
    if not program.memory.lasting:
        saver.submit(int(loop.step[0]), state, clock._asdict())
        return 0
    added, capacity = _added(program, loop), _capacity(program, loop)
    first = max(safe_rows, added - capacity)
    index = np.arange(first, added) % capacity
    rows = np.concatenate([view[:, index] for view in _ring_views(loop, capacity)])
    saver.submit(int(loop.step[0]), state, clock._asdict(), [Segment(first=first, rows=rows)], capacity)
    return added


def _without_rows(program: Program, loop: Loop) -> Loop:
    """The loop without its replay's rows, which are saved as they come; or without any memory, if that does not last."""
    return loop._replace(replay=loop.replay._replace(rows=jnp.zeros(0)) if program.memory.lasting else ())


def _added(program: Program, loop: Loop) -> int:
    """How many rows were ever added to each device's replay."""
    return int(loop.replay.added[0]) if program.memory.lasting else 0


def _capacity(program: Program, loop: Loop) -> int:
    return loop.replay.rows.shape[1] // (program.num_devices if program.splits_batch else 1)


def _ring_views(loop: Loop, capacity: int) -> Iterator[np.ndarray]:
    """Each device's part of the ring as [·, capacity, D], without copying."""
    rows = loop.replay.rows
    for shard in sorted(rows.addressable_shards, key=lambda shard: shard.device.id):
        yield np.asarray(shard.data).reshape(-1, capacity, rows.shape[-1])


def _restore(program: Program, fresh: Loop, saved: runs.Checkpoint) -> Loop:
    """The loop of a checkpoint, laid out on devices as `fresh` is."""
    shell = _without_rows(program, fresh)
    leaves, tree = jax.tree.flatten(shell)
    restored = []
    for name, leaf in zip(names_of(shell), leaves, strict=True):
        value = saved.state[name]
        value = prng.wrap(jnp.asarray(value)) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else value
        restored.append(jax.device_put(value, leaf.sharding))
    loop: Loop = jax.tree.unflatten(tree, restored)
    if not program.memory.lasting:
        return loop._replace(replay=fresh.replay)
    rows, capacity = fresh.replay.rows, _capacity(program, fresh)
    ring = np.zeros((rows.size // rows.shape[-1] // capacity, capacity, rows.shape[-1]), np.float32)
    if saved.ring is not None:
        ring[:, : saved.ring.shape[1]] = saved.ring  # a run that was made longer has a longer ring, and has not gone round yet
    return loop._replace(replay=loop.replay._replace(rows=jax.device_put(ring.reshape(rows.shape), rows.sharding)))


def _save_policy(job: Job, loop: Loop, finished: bool = False) -> Any:
    """Writes the networks that act, and returns them."""
    acting = jax.device_get(job.program.algo.acting(loop.agents))
    tensors = dict(zip(names_of(acting), map(np.asarray, jax.tree.leaves(acting)), strict=True))
    facts = {"scenario": job.program.env.name, "agents": job.program.env.spec.agents, "finished": finished}
    job.run.save_policy(tensors, facts | {"step": int(loop.step[0]), "episodes": int(loop.episodes.min())})
    return acting


def _leave(job: Job, loop: Loop) -> None:
    """Leaves the policy, the curve and the film of a finished run behind."""
    run, config, program, _, progress = job
    acting = _save_policy(job, loop)
    title = f"{config.world.title}, {config.algorithm}"
    plots.learning_curve(run.rows(), run.curve_path, title=title)
    if config.evaluation.plots_dir:
        make_folder(config.evaluation.plots_dir, "--plots-dir")
        copy = Path(config.evaluation.plots_dir) / f"{run.name}.png"
        write_whole(copy, lambda draft: shutil.copyfile(run.curve_path, draft))
    policy = Policy(program.env, program.algo, jax.tree.map(lambda leaf: leaf[0], acting), learning=config.learning)
    if not policy.save_film(run.gif_path, episodes=3, seed=config.training.seed):
        progress.say(f"no film: {program.env.name} cannot draw itself without a window.")
    _save_policy(job, loop, finished=True)
    progress.finish(run)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C or a termination request sets; a second Ctrl-C stops at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        os.write(2, b"\nstopping at the next safe moment; once more to stop at once\n")  # print may be what was interrupted

    old = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
