"""Worlds that are not ours inside our loop: the environment in worker processes, memory and learning compiled here.

While the learner updates, the workers already play the next rollout with the weights from before that update, so what an
iteration learns from is one update older than in the compiled loop. What is on its way is a function of `ExternalStates`, which
checkpoints hold.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int

from counterpoint.algos.base import Agents
from counterpoint.core import prng
from counterpoint.core.numpy_policy import Layer
from counterpoint.core.types import Key, Transition
from counterpoint.external.environment import setup_of
from counterpoint.external.workers import EnvPosition, EvalRequest, Pool, RolloutRequest, new_position
from counterpoint.training.evaluate import Episodes, numpy_actors
from counterpoint.training.loop import Engine, Program, compiled_absorb, compiled_pieces, stepped
from counterpoint.training.rollout import Finished


class ExternalStates(NamedTuple):
    """The rollout that is on its way: all that it depends on."""

    places: EnvPosition
    """[E, …] each copy's."""
    layers: tuple[Layer, ...]
    entropy: Int[Array, " W"]
    step: Int[Array, ""]
    serial: Int[Array, ""]
    """Its number; before the first it is 0 and nothing is on its way."""


class Host:
    """The pieces of a program that leave the process, and the workers behind them."""

    def __init__(self, program: Program, workers: int, seconds: float, say: Callable[[str], None]) -> None:
        schedule = program.schedule
        self._program = program
        shapes = jax.eval_shape(lambda key: program.algo.policy(program.algo.init(key)), prng.key(0))
        empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        self._empty, rules = numpy_actors(program.env, program.actors, empty)
        self._setting = setup_of(program.env, length=schedule.rollout_length, rules=rules)
        self._pool = Pool(self._setting, schedule.num_envs, workers, seconds, say)
        self._asked = 0

    def engine(self) -> Engine:
        """The stepped loop with our pieces in it."""
        parts = compiled_pieces(self._program)._replace(start=self._start, rollout=self._rollout)
        return stepped(self._program, parts, compiled_absorb(self._program))._replace(evaluate=self._evaluate)

    def close(self) -> None:
        """Ends the workers."""
        self._pool.close()

    def _layers(self, policy: Any) -> tuple[Layer, ...]:
        return numpy_actors(self._program.env, self._program.actors, policy)[0]

    def _start(self, key: Key) -> ExternalStates:
        entropy = _words(key)
        seeds = np.random.default_rng(entropy).integers(2**31, size=self._program.schedule.num_envs)
        return self._states([new_position(self._setting, int(seed)) for seed in seeds], self._empty, entropy, 0, 0)

    def _states(
        self, places: list[EnvPosition], layers: tuple[Layer, ...], entropy: Any, step: int, serial: int
    ) -> ExternalStates:
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *places)
        return ExternalStates(stacked, layers, np.asarray(entropy, np.uint32), np.int32(step), np.int32(serial))  # pyright: ignore[reportArgumentType]

    def _ask(self, worlds: ExternalStates) -> None:
        """Lets the workers begin the rollout that these worlds are waiting for, unless they are at it already."""
        serial = int(worlds.serial)
        if self._asked == serial:
            return
        places, layers, entropy, step = jax.device_get((worlds.places, worlds.layers, worlds.entropy, worlds.step))
        each = [jax.tree.map(lambda leaf: leaf[e], places) for e in range(self._program.schedule.num_envs)]  # noqa: B023
        self._send(each, layers, [int(word) for word in entropy], int(step), serial)

    def _send(self, places: list[EnvPosition], layers: tuple[Layer, ...], entropy: list[int], step: int, serial: int) -> None:
        self._pool.ask(RolloutRequest(layers, (*entropy, serial), step, len(places), dict(enumerate(places))))
        self._asked = serial

    def _rollout(
        self, agents: Agents, worlds: ExternalStates, key: Key, step: Int[Array, ""]
    ) -> tuple[ExternalStates, Transition, Finished]:
        """Takes the rollout that is on its way, and sends the workers on the next one."""
        layers = self._layers(self._program.algo.policy(agents))
        if int(worlds.serial) == 0:
            worlds = worlds._replace(layers=layers, serial=np.int32(1))  # pyright: ignore[reportArgumentType]
        self._ask(worlds)
        played = self._pool.answer()
        schedule = self._program.schedule
        ahead = int(step) + schedule.num_envs * schedule.rollout_length
        next_one = [copy.place for copy in played], layers, _words(key), ahead, int(worlds.serial) + 1
        self._send(*next_one)  # before anything else: the workers are idle
        after = self._states(*next_one)
        columns = jax.tree.map(lambda *copies: np.stack(copies, axis=1), *(copy[:9] for copy in played))
        obs, action, reward, next_obs, terminated, alive, done, returns, lengths = columns
        steps = Transition(obs, action, reward, next_obs, terminated, alive, done)
        ended = np.int32(done.sum()), returns[done].sum(axis=0, dtype=np.float32), np.float32(lengths[done].sum())
        return after, steps, Finished(*ended)  # pyright: ignore[reportArgumentType]

    def _evaluate(self, policies: Any, keys: Key, episodes: int) -> Episodes:
        """Greedy episodes in a process of their own; one seed."""
        layers = self._layers(jax.tree.map(lambda leaf: leaf[0], policies))
        result = self._pool.evaluate(EvalRequest(layers, episodes, seed=int(_words(keys[0])[0])))
        return Episodes(returns=result.returns[None], length=result.lengths[None], metrics={})  # pyright: ignore[reportArgumentType]


def _words(key: Key) -> list[int]:
    return [int(word) for word in np.ravel(jax.device_get(jax.random.key_data(key)))]
