"""The loop: act, remember, learn. Two engines run it: `compiled`, one program; `stepped`, piece by piece from Python.

Every leaf of `Loop` has a leading axis of seeds. Seeds are spread over devices if there are several; a single seed instead
spreads its minibatch and its replay, each device storing and sampling its share, with gradients averaged over devices.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int

from counterpoint.algos.base import TD_ERRORS, Actors, Agents, Algorithm, Metrics
from counterpoint.core.types import Environment, Key, Transition
from counterpoint.training.evaluate import Episodes, evaluate
from counterpoint.training.replay import Memory
from counterpoint.training.rollout import EnvStates, Finished, rollout, start

DEVICES = "devices"
"""The mesh axis over which seeds, or one seed's minibatch, are spread."""


class Schedule(NamedTuple):
    """How much of what one iteration does, and when it stops to report."""

    num_envs: int
    rollout_length: int
    updates: int
    """Updates per iteration."""
    warmup: int
    """Environment steps before the first update."""
    report_every: int
    """Episodes per report."""
    num_episodes: int
    """Episodes of the whole run."""
    warmup_episodes: int | None = None
    """Episodes after which updates begin even if fewer steps were played."""

    def warm(self, step: Any, episodes: Any) -> Any:
        """Returns whether the warm-up is over after so many environment steps and episodes."""
        played = step >= self.warmup
        return played if self.warmup_episodes is None else played | (episodes >= self.warmup_episodes)


class Window(NamedTuple):
    """Sums since the last report."""

    finished: Finished
    updates: Int[Array, ""]
    metrics: Metrics


class Loop(NamedTuple):
    """All that a run is; a checkpoint is this and nothing else."""

    agents: Agents
    envs: EnvStates
    replay: Any
    key: Key
    step: Int[Array, ""]
    """Environment steps so far."""
    episodes: Int[Array, ""]
    """Episodes ended so far."""
    window: Window


class Program(NamedTuple):
    """The parts of a run, bound together."""

    env: Environment
    algo: Algorithm
    memory: Memory
    schedule: Schedule
    num_seeds: int
    num_devices: int
    actors: Callable[[Any], Actors | None] = lambda policy: None
    """(policy) → the policy as plain networks, for processes without JAX."""

    @property
    def splits_batch(self) -> bool:
        """Whether devices share one seed's minibatch (else they hold different seeds)."""
        return self.num_devices > 1 and self.num_seeds == 1


class Pieces(NamedTuple):
    """What a run does, in the order in which it does it."""

    start: Callable[[Key], EnvStates]
    rollout: Callable[[Agents, EnvStates, Key, Int[Array, ""]], tuple[EnvStates, Transition, Finished]]
    add: Callable[[Any, Transition], Any]
    sample: Callable[[Any, Key], Transition]
    update: Callable[[Agents, Transition, Key], tuple[Agents, Metrics]]
    feedback: Callable[[Any, Array, Array], Any]
    """Only if the update returns TD errors."""
    join: Callable[[Transition, Transition], tuple[Transition, Transition]] | None = None
    """Only if the memory holds steps back."""


def pieces(program: Program) -> Pieces:
    """Returns the pieces of a program."""
    env: Any = program.env.compiled  # None if worker processes step it: start and rollout are then replaced
    algo, memory, schedule = program.algo, program.memory, program.schedule
    length = schedule.rollout_length
    return Pieces(
        start=lambda key: start(env, algo, key, schedule.num_envs),
        rollout=lambda agents, envs, key, step: rollout(env, algo, algo.policy(agents), envs, key, length, step),
        add=memory.add,
        sample=memory.sample,
        update=algo.update,
        feedback=memory.feedback,
        join=memory.join,
    )


@lru_cache(maxsize=4)
def compiled_pieces(program: Program) -> Pieces:
    """Returns the pieces of a program, each compiled by itself."""
    parts = pieces(program)
    return Pieces(
        start=jax.jit(parts.start),
        rollout=jax.jit(parts.rollout),
        add=jax.jit(parts.add, donate_argnums=0),
        sample=jax.jit(parts.sample),
        update=jax.jit(parts.update),
        feedback=jax.jit(parts.feedback, donate_argnums=0),
        join=parts.join and jax.jit(parts.join),
    )


Absorb = Callable[[Loop, Transition, Finished, Key, bool], Loop]
"""(loop without envs, steps, finished, key, learn) → the loop after what follows a rollout. The loop is donated."""


def iteration(parts: Pieces, absorb: Absorb, loop: Loop, learn: bool) -> Loop:
    """Returns the loop of one seed after one round: a rollout into memory, then the updates."""
    key, key_roll, key_learn = _split(loop.key, 3)
    envs, steps, finished = parts.rollout(loop.agents, loop.envs, key_roll, loop.step)
    return absorb(loop._replace(envs=None, key=key), steps, finished, key_learn, learn)._replace(envs=envs)


def absorbed(program: Program, parts: Pieces, loop: Loop, steps: Transition, finished: Finished, key: Key, learn: bool) -> Loop:
    """Returns the loop after everything that follows a rollout: remembering it, learning, counting."""
    schedule, replay = program.schedule, loop.replay
    if parts.join is not None:
        tail, steps = parts.join(replay.tail, steps)
        replay = replay._replace(tail=tail)
    if program.splits_batch:
        device = jax.lax.axis_index(DEVICES)
        steps, key = _share(steps, program.num_devices, device), jax.random.fold_in(key, device)
    replay = parts.add(replay, steps)
    agents, window = loop.agents, loop.window
    if learn:
        for key_update in _split(key, schedule.updates):
            key_sample, key_noise = _split(key_update, 2)
            batch = parts.sample(replay, key_sample)
            agents, metrics = parts.update(agents, batch, key_noise)
            errors = metrics.pop(TD_ERRORS, None)
            if errors is not None and batch.index is not None:
                replay = parts.feedback(replay, batch.index, errors)
            window = _add_update(window, metrics)
    return loop._replace(
        agents=agents,
        replay=replay,
        step=loop.step + schedule.num_envs * schedule.rollout_length,
        episodes=loop.episodes + finished.episodes,
        window=window._replace(finished=_add(window.finished, finished)),
    )


def compiled_absorb(program: Program) -> Absorb:
    """Returns everything that follows a rollout as one program, for rollouts of worker processes."""
    return jax.jit(partial(absorbed, program, pieces(program)), static_argnums=4, donate_argnums=0)


# Compiled by themselves because `stepped` calls them from Python; within a compiled program they are inlined.
_split = jax.jit(lambda key, count: tuple(jax.random.split(key, count)), static_argnums=1)
_add = jax.jit(partial(jax.tree.map, jnp.add))
_lead = jax.jit(partial(jax.tree.map, lambda leaf: leaf[None]))
# The axis of a lone seed; donated, so that of the replay, which is large, only the shape changes.
_drop_axis = jax.jit(partial(jax.tree.map, lambda leaf: leaf.reshape(leaf.shape[1:])), donate_argnums=0)
_give_axis = jax.jit(partial(jax.tree.map, lambda leaf: leaf.reshape(1, *leaf.shape)), donate_argnums=0)


@jax.jit
def _only(loop: Loop, fresh: Array) -> Loop:
    """Returns the single seed of a loop without its replay; if `fresh`, with an empty window."""
    seed: Loop = jax.tree.map(lambda leaf: leaf[0], loop)
    return seed._replace(window=_emptied(seed.window, fresh))


def _emptied(window: Window, fresh: Array) -> Window:
    return jax.tree.map(lambda leaf: jnp.where(fresh, jnp.zeros_like(leaf), leaf), window)


def _add_update(window: Window, metrics: Metrics) -> Window:
    return window._replace(updates=window.updates + 1, metrics=_add(window.metrics, metrics))


def _share(steps: Transition, num_devices: int, device: Int[Array, ""]) -> Transition:
    """Returns every num_devices-th transition of a rollout, flattened to [T·E / devices, 1, …]."""

    def take(leaf: jax.Array) -> jax.Array:
        rest = leaf.shape[2:]
        return leaf.reshape(-1, num_devices, *rest)[:, device][:, None]

    return jax.tree.map(take, steps)


def begin(program: Program, parts: Pieces, key: Key) -> Loop:
    """Returns one seed at its start, with an empty memory."""
    key_agents, key_worlds, key_loop = jax.random.split(key, 3)
    n, zero = program.env.spec.num_agents, jnp.zeros((), jnp.int32)
    return Loop(
        agents=program.algo.init(key_agents),
        envs=parts.start(key_worlds),
        replay=program.memory.init(),
        key=key_loop,
        step=zero,
        episodes=zero,
        window=Window(
            finished=Finished(episodes=zero, returns=jnp.zeros(n), length=jnp.zeros(())),
            updates=zero,
            metrics={name: jnp.zeros(n) for name in program.algo.metrics},
        ),
    )


def compile_begin(program: Program) -> Callable[[Key], Loop]:
    """Returns a function: (keys [K]) → the loop of all seeds at the start."""
    return jax.jit(_spread(program, jax.vmap(partial(begin, program, pieces(program))), (_spec_of_keys(program),)))


def compile_advance(program: Program, learn: bool) -> Callable[[Loop, int, bool], Loop]:
    """(loop, limit, fresh) → the loop after at most `limit` iterations, fewer if a report or the end of the phase is due.

    The limit is an argument, not a constant, so one program serves any length; results do not depend on how a run is cut
    into calls. `fresh` empties the window first. The loop is donated.
    """
    in_specs = (loop_spec(program), PartitionSpec(), PartitionSpec())
    return jax.jit(_spread(program, partial(_advance, program, learn), in_specs), donate_argnums=0)


class Engine(NamedTuple):
    """How a program executes: compiled, with worker processes, or with remote learners."""

    begin: Callable[[Key], Loop]
    """Returns a function: (keys [K]) → the loop of all seeds at the start."""
    advance: Callable[[Loop, bool, int, bool], Loop]
    """(loop, learn, limit, fresh) → as `compile_advance` says, learning or warming up. The loop is donated."""
    evaluate: Callable[[Agents, Key, int], Episodes]
    """(policies [K, …], keys [K], E) → that many greedy episodes of each seed, [K, E, …]."""
    failure: Callable[[], str] = lambda: ""
    """() → why the engine asked the run to stop, or nothing."""


def compiled(program: Program) -> Engine:
    """Returns the engine that runs the whole loop as one compiled program."""
    phases = {learn: compile_advance(program, learn) for learn in (False, True)}
    return Engine(
        begin=compile_begin(program),
        advance=lambda loop, learn, limit, fresh: phases[learn](loop, limit, fresh),
        evaluate=_evaluate_seeds(program),
    )


def stepped(program: Program, parts: Pieces | None = None, absorb: Absorb | None = None) -> Engine:
    """Returns the engine that runs the loop from Python, one piece at a time: for pieces that leave the process, and for tests.

    `absorb` takes the place of all pieces that follow a rollout.
    """
    if program.num_devices > 1 or program.num_seeds > 1:
        raise ValueError(f"stepping takes one seed on one device, not {program.num_seeds} on {program.num_devices}")
    chosen = parts or compiled_pieces(program)

    follow = absorb or partial(absorbed, program, chosen)
    due = jax.jit(partial(is_due, program), static_argnums=0)

    def advance(loop: Loop, learn: bool, limit: int, fresh: bool) -> Loop:
        seed = _only(loop._replace(replay=None), fresh)._replace(replay=_drop_axis(loop.replay))
        count = 0
        while count < limit and not due(learn, seed._replace(agents=None, envs=None, replay=None, key=None)):
            seed, count = iteration(chosen, follow, seed, learn), count + 1
        return _lead(seed._replace(replay=None))._replace(replay=_give_axis(seed.replay))

    def start_seed(keys: Key) -> Loop:
        return _lead(begin(program, chosen, keys[0]))

    return Engine(begin=start_seed, advance=advance, evaluate=_evaluate_seeds(program))


def _evaluate_seeds(program: Program) -> Callable[[Agents, Key, int], Episodes]:
    env: Any = program.env.compiled

    def each(agents: Agents, keys: Key, episodes: int) -> Episodes:
        one = partial(evaluate, env, program.algo, num_episodes=episodes, explore=False)
        return jax.vmap(one)(agents, keys)

    return jax.jit(each, static_argnums=2)


def _advance(program: Program, learn: bool, loop: Loop, limit: Int[Array, ""], fresh: Array) -> Loop:
    parts = pieces(program)
    one = partial(iteration, parts, partial(absorbed, program, parts), learn=learn)
    # A lone seed is not vmapped: that would turn rollout's reset branch into a select. Its axis is reshaped away outside the
    # while loop, because a slice inside it would copy the whole replay in every iteration.
    alone = loop.step.shape[0] == 1
    each = one if alone else jax.vmap(one)

    def proceed(carry: tuple[Int[Array, ""], Loop, Array]) -> Array:
        count, _, due = carry
        return (count < limit) & ~due

    def body(carry: tuple[Int[Array, ""], Loop, Array]) -> tuple[Int[Array, ""], Loop, Array]:
        count, loop, _ = carry
        loop = each(loop)
        return count + 1, loop, is_due(program, learn, loop)

    if alone:
        loop = _drop_axis(loop)
    loop = loop._replace(window=_emptied(loop.window, fresh))
    _, loop, _ = jax.lax.while_loop(proceed, body, (jnp.zeros((), jnp.int32), loop, is_due(program, learn, loop)))
    return _give_axis(loop) if alone else loop


def is_due(program: Program, learn: bool, loop: Loop) -> Array:
    """Whether the slowest seed has reached a report, the end of warming up, or the end of the run."""
    schedule = program.schedule
    due = (loop.window.finished.episodes >= schedule.report_every) | (loop.episodes >= schedule.num_episodes)
    if not learn:
        due = due | schedule.warm(loop.step, loop.episodes)
    all_due = jnp.all(due)
    if program.num_devices > 1 and not program.splits_batch:
        all_due = jax.lax.pmin(all_due.astype(jnp.int32), DEVICES) > 0
    return all_due


def loop_spec(program: Program) -> Any:
    """Returns how the leaves of a loop are placed on the devices."""
    if not program.splits_batch:
        return PartitionSpec(DEVICES)
    keep: Any = PartitionSpec()
    split = PartitionSpec(None, DEVICES)
    return Loop(
        agents=keep, envs=keep, replay=program.memory.split(keep, split), key=keep, step=keep, episodes=keep, window=keep
    )


def _spec_of_keys(program: Program) -> PartitionSpec:
    return PartitionSpec() if program.splits_batch else PartitionSpec(DEVICES)


def mesh(program: Program) -> Mesh:
    return Mesh(np.array(jax.devices()[: program.num_devices]), (DEVICES,))


def _spread(program: Program, function: Callable[..., Loop], in_specs: tuple[Any, ...]) -> Callable[..., Loop]:
    """Returns the function on every device with its share, or unchanged if there is one device."""
    if program.num_devices == 1:
        return function
    return jax.shard_map(function, mesh=mesh(program), in_specs=in_specs, out_specs=loop_spec(program), check_vma=False)
