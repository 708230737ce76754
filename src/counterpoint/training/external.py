"""The engine for external environments: worker processes step them, memory and learning are compiled in this process.

With a replay memory, the workers play the next rollout while the learner updates, so an iteration learns from data that are one
update older than in the compiled loop. With a memory of the last rollout alone (on-policy learning), the learner waits for a
rollout of its current policy. In both cases what the workers do is a function of `ExternalStates`, which checkpoints hold.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos.base import Agents, Algorithm, Carry
from counterpoint.core import prng
from counterpoint.core.action_stats import stacked
from counterpoint.core.errors import Diverged, UsageError
from counterpoint.core.numpy_policy import Layer, Rules, num_hidden
from counterpoint.core.ops import tree_select
from counterpoint.core.types import Key, Transition
from counterpoint.external.adapters import LAST
from counterpoint.external.environment import setup_of
from counterpoint.external.workers import (
    EnvPosition,
    EnvSetup,
    EvalRequest,
    EvalResult,
    RolloutRequest,
    Worker,
    WorkerPool,
    end,
    insist,
    new_position,
)
from counterpoint.runs.metrics import header_of
from counterpoint.training.evaluate import Episodes, numpy_actors
from counterpoint.training.loop import Absorb, Engine, Loop, Program, compiled_absorb, compiled_pieces, stepped
from counterpoint.training.rollout import Finished


class ExternalStates(NamedTuple):
    """The environments, and with a replay memory the rollout in progress: everything that it depends on."""

    positions: EnvPosition
    """[E, …]: the position of each copy before the rollout."""
    layers: tuple[Layer, ...]
    entropy: Int[Array, " W"]
    step: Int[Array, ""]
    serial: Int[Array, ""]
    """The rollout's number; 0 before the first, when none is in progress."""
    carry: Any = ()
    """[E, …]: what recurrent networks remember before the rollout, if learning starts from there (on-policy)."""


def check_external(program: Program) -> None:
    """Refuses an algorithm whose policy or whose memory needs more than worker processes without JAX can provide."""
    layers, _ = _empty_actors(program)
    env, algo = program.env, program.algo

    def act(key: Key) -> Any:
        obs, legal = jnp.zeros((1, *env.spec.obs_mask.shape)), jnp.ones((1, *env.spec.act_mask.shape), bool)
        carry = jax.tree.map(lambda leaf: leaf[None], algo.begin(key))
        return algo.act(algo.policy(algo.init(key)), carry, obs, key, jnp.int32(0), legal if env.has_masks else None)[2]

    recorded = jax.tree.leaves(jax.eval_shape(act, prng.key(0)))
    carried = [] if _plays_ahead(program) or num_hidden(layers) else jax.tree.leaves(_carry_shapes(program))
    if recorded or carried:  # what recurrent networks remember can be computed again, see `followed`
        raise UsageError(
            f"--env {env.name} is stepped by worker processes without JAX, which cannot record what this algorithm's acting"
            " leaves for learning: choose another --algorithm or a compiled environment."
        )


def _empty_actors(program: Program) -> tuple[tuple[Layer, ...], Rules]:
    """Returns layers of zeros in the shapes of the program's actors, and their rules."""
    shapes = jax.eval_shape(lambda key: program.algo.policy(program.algo.init(key)), prng.key(0))
    empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    return numpy_actors(program.env, program.actors, empty)


def _carry_shapes(program: Program) -> Any:
    return jax.eval_shape(program.algo.begin, prng.key(0))


def followed(
    algo: Algorithm,
    policy: Any,
    carry: Carry,
    obs: Float[Array, "T E N O"],
    legal: Bool[Array, "T E N A"] | None,
    done: Bool[Array, "T E"],
) -> Carry:
    """Returns what recurrent networks remember after a rollout, given what they remembered before it."""

    def follow(carry: Carry, seen: Any) -> tuple[Carry, None]:
        obs, legal, done = seen
        carry = algo.act(policy, carry, obs, prng.key(0), jnp.int32(0), legal)[1]
        return tree_select(done, _begun(algo, len(done)), carry), None

    return jax.lax.scan(follow, carry, (obs, legal, done))[0]


def _begun(algo: Algorithm, num_envs: int) -> Carry:
    """Returns the carry of E environments at the start of an episode."""
    return jax.vmap(lambda _: algo.begin(prng.key(0)))(jnp.arange(num_envs))


def _plays_ahead(program: Program) -> bool:
    """Returns whether workers may play while the learner updates: only a memory that outlives the rollout allows it."""
    return program.memory.rows is not None


@contextmanager
def external_engine(
    program: Program,
    num_workers: int,
    seconds: float,
    say: Callable[[str], None],
    logs: Path | None = None,
    metrics: tuple[str, ...] | None = None,
) -> Iterator[Engine]:
    """Yields the engine of a program whose environment is external, with its worker processes until the end of the block.

    Each of several seeds has workers of its own; all share one evaluation worker. `logs` is the folder for what they print.
    `metrics` names the infos that evaluations report; without it, the first evaluation decides.
    """
    single = program._replace(num_seeds=1)
    empty, rules = _empty_actors(single)
    setup = setup_of(program.env, length=program.schedule.rollout_length, rules=rules, num_hidden=num_hidden(empty))
    evaluator = Worker("evaluation worker", setup, logs)
    hosts = []
    for seed in range(program.num_seeds):
        folder = logs / f"seed{seed}" if logs and program.num_seeds > 1 else logs
        hosts.append(
            Host(single, setup, empty, WorkerPool(setup, program.schedule.num_envs, num_workers, seconds, say, folder))
        )
    absorb = compiled_absorb(single)
    names = list(metrics) if metrics is not None else None
    engines = [host.engine(absorb) for host in hosts]

    def evaluate(policies: Any, keys: Key, episodes: int) -> Episodes:
        """Plays greedy episodes of each seed in the evaluation worker."""
        nonlocal names
        results: list[EvalResult] = []
        for seed in range(program.num_seeds):
            layers = hosts[seed].layers(jax.tree.map(lambda leaf: leaf[seed], policies))  # noqa: B023 — used at once
            request = EvalRequest(layers, episodes, seed=_words(keys[seed])[0])
            evaluator.ask(request)
            results.append(insist(evaluator, request, setup, seconds, say))
        returns, lengths = (np.stack([getattr(result, name) for result in results]) for name in ("returns", "lengths"))
        if names is None:
            names = sorted({name for result in results for name in result.metrics})
        found = {name: np.stack([_reported(result, name) for result in results]) for name in names}
        actions = stacked([result.actions for result in results])
        return Episodes(returns=returns, length=lengths, metrics=found, actions=actions)  # pyright: ignore[reportArgumentType]

    try:
        yield (engines[0] if program.num_seeds == 1 else _in_turn(program, engines))._replace(evaluate=evaluate)
    finally:
        end([evaluator, *(worker for host in hosts for worker in host.workers)])


def _reported(result: EvalResult, name: str) -> np.ndarray:
    """Returns a metric of each episode [E]; an episode that lacks it counts as the mean of those that have it."""
    values = result.metrics.get(name, np.full(len(result.lengths), 0.0 if name in LAST else np.nan))
    present = np.isfinite(values)
    return np.where(present, values, values[present].mean()) if present.any() else values


def info_columns(path: Path) -> tuple[str, ...] | None:
    """Returns the infos that a run's metrics table has columns for; None if it has no evaluation yet."""
    header = header_of(path)
    if "eval/length" not in header:
        return None
    own = [name.removeprefix("eval/") for name in header if name.startswith("eval/") and name.count("/") == 1]
    return tuple(name for name in own if name != "length")


def _in_turn(program: Program, engines: list[Engine]) -> Engine:
    """Returns the engine that advances several seeds one after another, each as it would advance alone."""
    schedule = program.schedule

    def begin(keys: Key) -> Loop:
        loops = [engine.begin(keys[seed : seed + 1]) for seed, engine in enumerate(engines)]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *loops)

    def advance(loop: Loop, learn: bool, limit: int, fresh: bool) -> Loop:
        for seed, engine in enumerate(engines):
            episodes, step, reported = (int(count[seed]) for count in (loop.episodes, loop.step, loop.window.finished.episodes))
            if episodes >= schedule.num_episodes or (reported >= schedule.report_every and not fresh):
                continue  # it waits for the others; the window of a finished seed stays for the last reports
            own = engine.advance(_take(loop, seed), bool(schedule.warm(step, episodes)), limit, fresh)
            loop = _put(loop, own, seed)
        return loop

    return Engine(begin=begin, advance=advance, evaluate=engines[0].evaluate)


@partial(jax.jit, static_argnums=1)
def _take(loop: Loop, seed: int) -> Loop:
    return jax.tree.map(lambda leaf: leaf[seed : seed + 1], loop)


@partial(jax.jit, static_argnums=2, donate_argnums=0)
def _put(loop: Loop, own: Loop, seed: int) -> Loop:
    return jax.tree.map(lambda all_seeds, leaf: all_seeds.at[seed : seed + 1].set(leaf), loop, own)


class Host:
    """The parts of one seed's loop that leave the process."""

    def __init__(self, program: Program, setup: EnvSetup, empty: tuple[Layer, ...], pool: WorkerPool) -> None:
        self._program, self._setup, self._empty, self._pool = program, setup, empty, pool
        self._ahead = _plays_ahead(program)
        shapes = _carry_shapes(program)
        self._carry = None if jax.tree.leaves(shapes) else shapes
        """The carry that transitions record: the empty one, or none at all, because a replay memory does not store it."""
        self._follows = self._carry is None and not self._ahead
        """Whether the carry is computed here: that of recurrent networks, from whose memory on-policy learning starts."""
        self._follow = jax.jit(partial(followed, program.algo))
        self._asked = 0

    @property
    def workers(self) -> list[Worker]:
        return self._pool.workers

    def engine(self, absorb: Absorb) -> Engine:
        """Returns the stepped loop with our parts in it."""
        parts = compiled_pieces(self._program)._replace(start=self._start, rollout=self._rollout)
        return stepped(self._program, parts, absorb)

    def layers(self, policy: Any) -> tuple[Layer, ...]:
        """Returns a policy's actors as NumPy layers."""
        return numpy_actors(self._program.env, self._program.actors, policy)[0]

    def _start(self, key: Key) -> ExternalStates:
        entropy = _words(key)
        seeds = np.random.default_rng(entropy).integers(2**31, size=self._program.schedule.num_envs)
        states = self._states([new_position(self._setup, int(seed)) for seed in seeds], self._empty, entropy, 0, 0)
        return states._replace(carry=_begun(self._program.algo, len(seeds))) if self._follows else states

    def _states(
        self, positions: list[EnvPosition], layers: tuple[Layer, ...], entropy: Any, step: int, serial: int
    ) -> ExternalStates:
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *positions)
        return ExternalStates(stacked, layers, np.asarray(entropy, np.uint32), np.int32(step), np.int32(serial))  # pyright: ignore[reportArgumentType]

    def _ask(self, states: ExternalStates) -> None:
        """Lets the workers begin the rollout that these states describe, unless they play it already."""
        serial = int(states.serial)
        if self._asked == serial:
            return
        positions, layers, entropy, step = jax.device_get((states.positions, states.layers, states.entropy, states.step))
        each = [jax.tree.map(lambda leaf: leaf[e], positions) for e in range(self._program.schedule.num_envs)]  # noqa: B023
        self._send(each, layers, [int(word) for word in entropy], int(step), serial)

    def _send(self, positions: list[EnvPosition], layers: tuple[Layer, ...], entropy: Any, step: int, serial: int) -> None:
        self._pool.ask(RolloutRequest(layers, (*entropy, serial), step, len(positions), dict(enumerate(positions))))
        self._asked = serial

    def _rollout(
        self, agents: Agents, states: ExternalStates, key: Key, step: Int[Array, ""]
    ) -> tuple[ExternalStates, Transition, Finished]:
        """Returns a rollout: the one in progress, after which the workers begin the next, or one of the current policy."""
        policy, schedule = self._program.algo.policy(agents), self._program.schedule
        layers, serial = self.layers(policy), int(states.serial)
        if serial == 0 or not self._ahead:
            serial += 1
            words = states.entropy if self._ahead else np.asarray(_words(key), np.uint32)
            states = states._replace(layers=layers, entropy=words, step=step, serial=np.int32(serial))  # pyright: ignore[reportArgumentType]
        self._ask(states)
        played = self._pool.answer()
        positions = [copy.position for copy in played]
        if self._ahead:
            later = int(step) + schedule.num_envs * schedule.rollout_length
            following = positions, layers, _words(key), later, serial + 1
            self._send(*following)  # before anything else: the workers are idle
            after = self._states(*following)
        else:
            after = self._states(positions, self._empty, np.zeros_like(states.entropy), 0, serial)
        columns = [_side_by_side(column) for column in zip(*(copy[:11] for copy in played), strict=True)]
        obs, action, reward, next_obs, terminated, alive, done, returns, lengths, legal, next_legal = columns
        self._refuse_bad_rewards(reward, int(states.step))
        carry = self._carry
        if self._follows:
            carry = jax.tree.map(lambda leaf: leaf[None], states.carry)
            after = after._replace(carry=self._follow(policy, states.carry, obs, legal, done))
        masks = {"legal": legal, "next_legal": next_legal}
        steps = Transition(obs, action, reward, next_obs, terminated, alive, done, carry=carry, **masks)
        ended = np.int32(done.sum()), returns[done].sum(axis=0, dtype=np.float32), np.float32(lengths[done].sum())
        return after, steps, Finished(*ended)  # pyright: ignore[reportArgumentType]

    def _refuse_bad_rewards(self, reward: np.ndarray, step: int) -> None:
        """Raises if a reward [T, E, N] of the rollout that began at `step` is not finite, and says whose and when."""
        if np.isfinite(reward).all():
            return
        env, (t, e, i) = self._program.env, np.argwhere(~np.isfinite(reward))[0]
        raise Diverged(
            bad_reward(env.spec.agents[i], int(step + t * reward.shape[1] + e + 1), float(reward[t, e, i]), env.name)
        )


def bad_reward(agent: str, step: int, value: float, name: str) -> str:
    """Returns the sentence about a reward that is not a finite number."""
    return f"the reward of {agent} at step {step} is {value}: every reward must be a finite number, correct {name}."


def _side_by_side(arrays: tuple[Any, ...]) -> Any:
    """Returns the arrays [T, …] of all copies as one [T, E, …]; None without action masks."""
    return None if arrays[0] is None else np.stack(arrays, axis=1)


def _words(key: Key) -> list[int]:
    return [int(word) for word in np.ravel(jax.device_get(jax.random.key_data(key)))]
