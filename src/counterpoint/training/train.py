"""Trains a run: starts or resumes it, reports, saves, and writes its policy, curve and film at the end."""

import ctypes
import gc
import math
import os
import shutil
import signal
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint import config as configs
from counterpoint import presets, runs
from counterpoint.algos.base import Algorithm
from counterpoint.algos.league import LeagueAgents
from counterpoint.algos.sharing import sharing_of
from counterpoint.config import Config
from counterpoint.core import prng
from counterpoint.core.checks import flag
from counterpoint.core.errors import Diverged, UsageError
from counterpoint.core.loading import refuse_nested, short_name
from counterpoint.core.trees import names_of
from counterpoint.runs import Run, Saver, history, lock
from counterpoint.runs.files import expanded, make_folder, write_whole
from counterpoint.training import checkpoint, opponents, recorded, report, sources
from counterpoint.training.engine import open_engine
from counterpoint.training.evaluate import evaluator, save_film
from counterpoint.training.external import bad_reward
from counterpoint.training.keywords import ResumeSettings, TrainSettings
from counterpoint.training.learners import require_ray
from counterpoint.training.loop import Engine, Loop, Program, compiled_pieces
from counterpoint.training.program import Prepared, prepare
from counterpoint.training.progress import Progress, display_of, require_sinks, sinks
from counterpoint.viz import plots

CALL_SECONDS = 0.5
"""How long one call of the compiled loop should take: progress and Ctrl-C are served between calls."""


RELEASE_SECONDS = 5.0
"""How often memory is given back at most: looking for garbage takes a moment, and many short runs may follow each other."""
_released: list[float] = []
"""When memory was last given back; empty before the first run of this process, which finds nothing to give back."""
CHANGEABLE = (
    *("num_episodes", "lr", *presets.SCHEDULES, "save_rate", "report_every", "eval_episodes"),
    *("plots_dir", "tensorboard", "wandb"),
)
"""Settings that may change when a run resumes."""


class Interrupted(Exception):
    """The user asked to stop; the run, whose folder this carries, is saved."""


class TooFewLearners(Exception):
    """Too few remote learners are left; the run is saved."""


class Job(NamedTuple):
    """A run in training: its folder, settings, program, engine and progress display."""

    run: Run
    config: Config
    program: Program
    engine: Engine
    progress: Progress
    best: history.Best


class Clock(NamedTuple):
    """Counters outside the compiled loop that are saved with it."""

    seconds: float
    """Wall time of training so far."""
    fresh: bool
    """The window was reported: empty it before going on."""


def train(
    config: Config | None = None,
    progress: Progress | bool | None = None,
    given: Collection[str] | None = None,
    starting: Callable[[Algorithm], Algorithm] | None = None,
    **settings: Unpack[TrainSettings],
) -> Run:
    """Trains a new run to its end; settings are named as on the command line: train(scenario="simple").

    Progress is shown as a bar on a terminal, as one updating line in a notebook, and as lines elsewhere; progress=False shows
    nothing. Settings that are left out are chosen for an external environment, and the falling step size of a preset stretches
    with `num_episodes`. A whole `config` is taken as it is, unless `given` names which of its settings were chosen on
    purpose. `starting` returns the algorithm with another beginning, such as with the actors of another run; a run that is
    resumed goes on from its checkpoint.
    """
    refuse_nested("counterpoint.train")
    if config is None:
        given = {name.replace("-", "_") for name in settings}
    if settings.get("env") and settings.get("scenario"):
        raise UsageError(f"env and scenario={settings.get('scenario')!r} exclude each other: choose one of them.")
    if config is None or settings.get("preset"):
        config = presets.start(settings)
    config = configs.override(config, **{name: value for name, value in settings.items() if name != "preset"})
    prepared = prepare(sources.absolute(config), given, trust=config.evaluation.trust)
    if starting is not None:
        prepared = prepared._replace(program=prepared.program._replace(algo=starting(prepared.program.algo)))
    config = prepared.config
    require_sinks(config)
    require_ray(config)
    make_folder(config.evaluation.plots_dir, "--plots-dir")  # better refused now than after hours of training
    run, progress = runs.create(config.checkpoints.save_dir, config.name, configs.to_dict(config)), display_of(progress)
    with lock.hold(run.path, progress.say):
        sources.keep(run, config)
        opponents.keep(run, config)
        recorded.record(run, prepared.program.env)
        _train(run, prepared, progress)
    compiled_pieces.cache_clear()
    return run


def resume(
    run: str | Path | Run,
    progress: Progress | bool | None = None,
    num_episodes: int = 0,
    env: str = "",
    trust: bool = False,
    **changes: Unpack[ResumeSettings],
) -> Run:
    """Trains a run (or the one in a folder) on to its end, or to `num_episodes` in all.

    Other settings of CHANGEABLE may change too, such as lr=1e-3: config.json records them with the episode at which they
    changed. A falling step size stretches with `num_episodes`, unless `lr_steps` says how long it falls. `env` is the
    new place of an environment of your own that has moved. A run that names code and was not made by you on this machine needs
    `trust`, or the environment again.
    """
    refuse_nested("counterpoint.resume")
    run, progress = run if isinstance(run, Run) else runs.open_run(run), display_of(progress)
    old = sources.settings_of(run, env, trust)
    planned = old.training.num_episodes
    config = _changed(old, {"num_episodes": num_episodes or planned, **changes})
    if is_finished(run, config.training.num_episodes):
        more = f"counterpoint resume {run.path} --num-episodes {2 * planned}"
        progress.say(f"{run.path} is finished: all of its {planned} episodes are trained; for more: {more}")
        return run
    with lock.hold(run.path, progress.say):
        if longer := _schedules_that_changed(old, config, changes):
            progress.say(longer)
        config = sources.located(config, run, env)
        require_sinks(config)
        require_ray(config)
        make_folder(config.evaluation.plots_dir, "--plots-dir")
        prepared = prepare(config, home=run.path, trust=trust)
        config = configs.override(config, report_every=prepared.config.evaluation.report_every)
        recorded.record(run, prepared.program.env)
        _train(run, prepared._replace(config=config), progress)
    compiled_pieces.cache_clear()
    return run


def _release() -> None:
    """Gives back the memory of the run before: its compiled programs, which refer to themselves, and what malloc keeps."""
    if not _released:
        _released.append(-math.inf)
        return
    if time.monotonic() - _released[0] < RELEASE_SECONDS:
        return
    gc.collect()
    with suppress(OSError, AttributeError):  # not the C library of GNU
        ctypes.CDLL(None).malloc_trim(0)
    _released[0] = time.monotonic()


def _changed(config: Config, changes: dict[str, Any]) -> Config:
    """Returns the settings of a run that goes on, or refuses a change that a run cannot make."""
    planned, wanted = config.training.num_episodes, changes["num_episodes"]
    for name in changes:
        if name.replace("-", "_") not in CHANGEABLE:
            raise UsageError(
                f"{flag(name)} cannot change in a run that goes on: leave it out, or start a new run; these can:"
                f" {', '.join(map(flag, CHANGEABLE))}."
            )
    if wanted < planned:
        raise UsageError(f"--num-episodes {wanted} is fewer than the {planned} the run is set to: choose more.")
    changed = configs.override(presets.stretched(config, wanted), **changes)
    before, after = (getattr(settings.learning, "lr_steps", 0) for settings in (config, changed))
    if bool(before) != bool(after):  # the optimisers of a constant step size do not count their steps
        state = "falls to zero" if before else "is constant"
        raise UsageError(
            f"--lr-steps {after} cannot be given to a run whose step size {state} (--lr-steps {before}): leave it out, or start"
            " a new run."
        )
    return changed


def _schedules_that_changed(old: Config, new: Config, chosen: Collection[str]) -> str:
    """Returns a sentence about the schedules that stretch with the number of episodes; empty if none does."""
    before, after = configs.flat(old), configs.flat(new)
    names = [name for name in presets.SCHEDULES if name not in chosen and before.get(name) != after.get(name)]
    parts = [f"{flag(name)} {after[name]} instead of {before[name]}" for name in names]
    return f"stretched with --num-episodes {after['num_episodes']}: {', '.join(parts)}." if parts else ""


def is_finished(run: Run, num_episodes: int) -> bool:
    """Returns whether the run was trained for that many episodes and wrote all its results."""
    try:
        about = run.policy_about()
    except UsageError:
        return False
    return about.get("episodes", 0) >= num_episodes and about.get("finished", False)


def _train(run: Run, prepared: Prepared, progress: Progress) -> Run:
    _release()
    config, program = prepared
    progress.start(run.path, config, program.env.spec)
    run.save_divergence("")
    with _stop_signals() as stop:
        with sinks(run, config) as log, open_engine(config, program, run, progress.say, stop.set) as engine:
            job = Job(run, config, program, engine, progress, history.Best(run, program.num_seeds))
            try:
                with Saver(run) as saver:
                    loop, clock = _start(job)
                    loop = _until_done(job, loop, clock, saver, log, stop)
            except Diverged as error:
                run.save_divergence(str(error))
                raise
            except Interrupted:
                if failure := engine.failure():
                    raise TooFewLearners(f"{failure}; saved, go on with: counterpoint resume {run.path}") from None
                raise
        _finish(job, loop, stop)
    return run


def _start(job: Job) -> tuple[Loop, Clock]:
    """Returns the loop of the newest whole checkpoint, or a new one."""
    training = job.config.training
    seeds = training.seed + np.arange(training.num_seeds)
    keys = jax.vmap(prng.key)(jnp.asarray(seeds, jnp.uint32))
    loop, clock = job.engine.begin(keys), Clock(seconds=0.0, fresh=True)
    saved = job.run.load()
    if problem := job.run.rewind(saved.step if saved else -1):  # rows reported after it will be reported again
        job.progress.say(problem)
    if saved is not None:
        for problem in saved.problems:
            job.progress.say(problem)
        loop, clock = checkpoint.restore(job.program, loop, saved), _clock(job.run, saved.counters)
    episodes = int(loop.episodes.min())
    history.remove_after(job.run, episodes)
    _record_changes(job, episodes)
    return loop, clock


def _clock(run: Run, counters: dict[str, Any]) -> Clock:
    seconds, fresh = counters.get("seconds"), counters.get("fresh")
    if not isinstance(seconds, int | float) or not math.isfinite(seconds) or not isinstance(fresh, bool):
        raise UsageError(f"the checkpoint of {run.path} does not hold the counters of a run: start a new run.")
    return Clock(float(seconds), fresh)


def _record_changes(job: Job, episodes: int) -> None:
    """Records in config.json which settings differ from those that it holds, and since when."""
    old, new = configs.flat(configs.from_dict(job.run.config)), configs.flat(job.config)
    changed = {name: [old.get(name), value] for name, value in new.items() if value != old.get(name)}
    if changed:
        job.run.rewrite_config(configs.to_dict(job.config), {"episode": episodes, **changed})
    elif not job.run.is_trusted():  # it names code that the user has just vouched for, and goes on here
        job.run.rewrite_config(configs.to_dict(job.config))


def _until_done(
    job: Job, loop: Loop, clock: Clock, saver: Saver, log: Callable[[dict[str, Any]], None], stop: threading.Event
) -> Loop:
    """Returns the loop trained to its end: advance, check, report, save, repeat."""
    run, config, program, engine, progress, best = job
    check = jax.jit(lambda agents, returns: (_finite(agents), _finite_returns(returns)))
    limit, safe_rows, safe_episodes = 1, checkpoint.rows_added(program, loop), int(loop.episodes.min())
    while (done := int(loop.episodes.min())) < config.training.num_episodes:
        learn = bool(program.schedule.warm(int(loop.step[0]), int(loop.episodes[0])))
        began, before = time.perf_counter(), int(loop.step[0])
        loop = engine.advance(loop, learn, limit, clock.fresh)
        returns = [loop.window.finished.returns, getattr(loop.envs, "returns", None)]
        finite, finite_returns = jax.device_get(check(loop.agents, returns))
        spent = time.perf_counter() - began
        _refuse_bad_rewards(job, finite_returns, loop)
        _refuse_divergence(job, finite, loop)
        clock = Clock(seconds=clock.seconds + spent, fresh=False)
        limit = _next_limit(limit, (int(loop.step[0]) - before) // config.training.update_every, spent)
        done = int(loop.episodes.min())
        finished = done >= config.training.num_episodes
        reached = np.asarray(loop.window.finished.episodes) >= program.schedule.report_every
        if (reached | (np.asarray(loop.episodes) >= config.training.num_episodes)).all():  # seeds may differ in length
            rows = list(report.rows(config, program, engine, loop, clock.seconds))
            for row in rows:
                run.append_metrics(row)
                progress.report(row)
                log(row)
            if config.evaluation.eval_episodes:
                best.offer(_tensors(_policy(job, loop)), rows)
            clock = clock._replace(fresh=True)
        stopping = stop.is_set() and not finished
        if finished or stopping or (clock.fresh and done - safe_episodes >= config.checkpoints.save_rate):
            safe_rows = checkpoint.save(program, loop, clock._asdict(), saver, safe_rows)
            safe_episodes = done
            if not finished:
                _save_policy(job, loop)
            if not stopping:
                history.keep(run, _tensors(_policy(job, loop)), _about(job, loop), config.checkpoints.save_rate)
            best.save(_about(job, loop))
        progress.update(done, int(loop.step[0]), clock.seconds)
        if stopping:
            raise Interrupted(run.path)
    return loop


def _next_limit(limit: int, iterations: int, spent: float) -> int:
    """Returns how many iterations the next call may take to stay near CALL_SECONDS."""
    if iterations == 0:
        return limit
    fitting = CALL_SECONDS * iterations / max(spent, 1e-6)
    return max(1, int(min(fitting, 4 * limit)))


def _finite(agents: Any) -> dict[str, jax.Array]:
    """Returns for each part of the agents' state whether all numbers are finite, by seed and agent [K, N].

    Of a league it is the learner's state: members are copies of its policies.
    """
    parts: dict[str, list[jax.Array]] = {}
    learner = agents.learner if isinstance(agents, LeagueAgents) else agents
    for path, leaf in jax.tree_util.tree_leaves_with_path(learner):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.ndim > 2:
            parts.setdefault(path[0].name, []).append(jnp.isfinite(leaf).all(axis=tuple(range(2, leaf.ndim))))
    return {name: jnp.stack(flags).all(axis=0) for name, flags in parts.items()}


def _finite_returns(returns: list[Any]) -> jax.Array:
    """Returns whether the sums of rewards [K, …, N] are finite, by seed and agent [K, N]."""
    flags = [jnp.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim - 1))) for leaf in returns if leaf is not None]
    return jnp.stack(flags).all(axis=0)


def _refuse_bad_rewards(job: Job, finite: np.ndarray, loop: Loop) -> None:
    """Raises if a reward was not finite, and says whose and when: no learning rate helps against that."""
    if finite.all():
        return
    env, (seed, agent) = job.program.env, np.argwhere(~finite)[0]
    found = checkpoint.first_bad_reward(job.program, loop, int(seed))
    if found is None:
        raise Diverged(
            f"a reward of {env.spec.agents[agent]} was infinite or NaN by step {int(loop.step[seed])}: every reward must be a"
            f" finite number, correct {env.name}."
        )
    step, agent, value = found
    raise Diverged(bad_reward(env.spec.agents[agent], step, value, env.name))


def _refuse_divergence(job: Job, finite: dict[str, np.ndarray], loop: Loop) -> None:
    """Raises if something is no longer finite, and says what, whose, and when."""
    bad = {part: flags for part, flags in finite.items() if not flags.all()}
    if not bad:
        return
    spec = job.program.env.spec
    names, shared = spec.agents, sharing_of(getattr(job.config.learning, "share", "none"), spec)
    each = np.arange(len(names)) if shared is None else shared.sets
    wide = {part: flags if flags.shape[1] == len(names) else flags[:, each % flags.shape[1]] for part, flags in bad.items()}
    seed, agent = np.argwhere(~np.logical_and.reduce(list(wide.values())))[0]
    parts = " and ".join(part.replace("_", " ") for part, flags in wide.items() if not flags[seed, agent])
    whose = names[agent]
    if job.program.num_seeds > 1:
        whose += f" (seed {job.config.training.seed + seed})"
    kept = "the last checkpoint is still good" if job.run.load() else "there is no checkpoint yet"
    raise Diverged(
        f"the {parts} of {whose} became infinite or NaN by step {int(loop.step[seed])}; {kept}. Try a smaller --lr or --clip."
    )


def _policy(job: Job, loop: Loop) -> Any:
    return jax.device_get(job.program.algo.policy(loop.agents))


def _tensors(policy: Any) -> dict[str, np.ndarray]:
    return dict(zip(names_of(policy), map(np.asarray, jax.tree.leaves(policy)), strict=True))


def _about(job: Job, loop: Loop, finished: bool = False) -> dict[str, Any]:
    """Returns the description that is stored with a policy."""
    about = {"scenario": job.program.env.name, "agents": job.program.env.spec.agents, "finished": finished}
    return about | {"step": int(loop.step[0]), "episodes": int(loop.episodes.min())}


def _save_policy(job: Job, loop: Loop, finished: bool = False) -> Any:
    """Writes the policy and returns it."""
    policy = _policy(job, loop)
    job.run.save_policy(_tensors(policy), _about(job, loop, finished))
    return policy


def _finish(job: Job, loop: Loop, stop: threading.Event) -> None:
    """Writes the policy, the curve and the film of a finished run; a request to stop leaves the drawing to a resume."""
    run, config, program, _, progress, _ = job
    policy = _save_policy(job, loop)

    def pause() -> None:
        if stop.is_set():
            raise Interrupted(run.path)

    pause()
    title = f"{config.world.title}, {short_name(config.algorithm)}"
    plots.learning_curve(run.rows(), run.curve_path, title=title)
    if config.evaluation.plots_dir:
        make_folder(config.evaluation.plots_dir, "--plots-dir")
        copy = expanded(config.evaluation.plots_dir) / f"{run.name}.png"
        write_whole(copy, lambda draft: shutil.copyfile(run.curve_path, draft))
    pause()
    evaluate = evaluator(program.env, program.algo, program.actors)
    first = jax.tree.map(lambda leaf: leaf[0], policy)
    try:
        drawn = save_film(program.env, evaluate(first, 3, config.training.seed, record=True), run.gif_path)
        missing = "" if drawn else f"{program.env.name} cannot draw itself without a window."
    except UsageError as error:
        if program.env.compiled is not None:
            raise
        missing = str(error)  # an environment that fails only when it draws has been trained in all the same
    if missing:
        progress.say(f"no film: {missing}")
    pause()
    _save_policy(job, loop, finished=True)
    if not program.schedule.warm(int(loop.step[0]) - 1, int(loop.episodes[0]) - 1):  # it ended on the last step of warming up
        progress.say(
            "the policy is untrained: the run ended with its warm-up; choose more --num-episodes or a smaller --warmup."
        )
    progress.finish(run)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C, a termination request or a lost terminal sets; a second Ctrl-C stops at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        if number == getattr(signal, "SIGHUP", None):
            _leave_terminal()
        with suppress(OSError):  # print may be what was interrupted
            os.write(2, b"\nstopping at the next safe moment; once more to stop at once\n")

    wanted = {signal.SIGINT, signal.SIGTERM}
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it on purpose
        wanted.add(signal.SIGHUP)
    old = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _leave_terminal() -> None:
    """Sends what is printed from now on nowhere, if it went to a terminal, because writing to a lost one fails."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode):
                os.dup2(nowhere, number)
    os.close(nowhere)
