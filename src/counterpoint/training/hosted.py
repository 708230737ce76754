"""Worlds that are not ours inside our loop: the environment in worker processes, memory and learning compiled here.

While the learner updates, the workers already play the next rollout with the weights from before that update, so what an
iteration learns from is one update older than in the compiled loop. What is on its way is a function of `HostWorlds`, which
checkpoints hold.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int

from counterpoint.algos.base import Agents
from counterpoint.core.numpy_policy import Layer, layers_of, rules_of
from counterpoint.core.picture import Picture
from counterpoint.core.types import Box, Discrete, Key, Reduction, Spec, State, Step, Transition
from counterpoint.external.adapters import LONGEST, Facts, facts_of, flatteners, native_actions, open_env, teams_of
from counterpoint.external.workers import Exam, Place, Pool, Setting, Start, new_place
from counterpoint.training.loop import Engine, Episodes, Program, compiled_absorb, compiled_pieces, stepped
from counterpoint.training.rollout import Finished


@dataclass(frozen=True)
class Hosted:
    """An environment from elsewhere. Its fields are its address and what opening it once has told."""

    address: str
    arguments: tuple[tuple[str, Any], ...]
    facts: Facts
    teams: tuple[str, ...]
    max_steps: int

    @property
    def name(self) -> str:
        return self.address

    @property
    def spec(self) -> Spec:
        spaces = [Discrete(space.heads) if space.heads else Box(space.size, -1.0, 1.0) for space in self.facts.spaces]
        return Spec(self.facts.agents, self.teams, self.teams, self.facts.obs_sizes, tuple(spaces))

    @property
    def metric_reductions(self) -> dict[str, Reduction]:
        return {}

    def flattened(self, i: int, obs: Any) -> np.ndarray:
        """What agent i sees, as a vector."""
        return _converters(self)[0][i](obs)

    def native(self, i: int, vector: np.ndarray) -> Any:
        """An action vector as the environment takes it from agent i."""
        return _converters(self)[1][i](vector)

    def reset(self, key: Key) -> tuple[State, Array]:
        raise TypeError(f"{self.name} is stepped by worker processes, not by JAX")

    def step(self, key: Key, state: State, action: Array) -> tuple[State, Step]:
        raise TypeError(f"{self.name} is stepped by worker processes, not by JAX")

    def metrics(self, state: State) -> dict[str, Array]:
        return {}

    def draw(self, state: State) -> Picture:
        raise TypeError(f"{self.name} draws itself")


@lru_cache(maxsize=8)
def _converters(env: Hosted) -> tuple[list[Callable[[Any], np.ndarray]], list[Callable[[np.ndarray], Any]]]:
    opened = open_env(env.address, dict(env.arguments))
    try:
        return flatteners(opened, env.facts), native_actions(opened, env.facts)
    finally:
        opened.close()


def open_world(address: str, arguments: dict[str, Any], teams: tuple[str, ...], max_steps: int) -> Hosted:
    """The environment at an address, after looking at it once."""
    env = open_env(address, arguments)
    try:
        facts = facts_of(env, address)
    finally:
        env.close()
    limit = max_steps or facts.max_steps or LONGEST
    hashable = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in arguments.items())
    return Hosted(address, hashable, facts, teams_of(facts.agents, teams), limit)


class HostWorlds(NamedTuple):
    """The rollout that is on its way: all that it depends on."""

    places: Place
    """[E, …] each copy's."""
    layers: tuple[Layer, ...]
    entropy: Int[Array, " W"]
    step: Int[Array, ""]
    serial: Int[Array, ""]
    """Its number; before the first it is 0 and nothing is on its way."""


def setting_of(env: Hosted, learning: Any, length: int = 1) -> Setting:
    """What workers must know of a run."""
    rules = rules_of(learning)
    return Setting(env.address, dict(env.arguments), env.facts, env.max_steps, rules, length, env.spec.act_size)


class Host:
    """The pieces of a program that leave the process, and the workers behind them."""

    def __init__(
        self, program: Program, env: Hosted, learning: Any, workers: int, seconds: float, say: Callable[[str], None]
    ) -> None:
        schedule = program.schedule
        self._program = program
        self._setting = setting_of(env, learning, schedule.rollout_length)
        self._pool = Pool(self._setting, schedule.num_envs, workers, seconds, say)
        self._asked = 0

    def engine(self) -> Engine:
        """The stepped loop with our pieces in it."""
        parts = compiled_pieces(self._program)._replace(start=self._start, rollout=self._rollout)
        return stepped(self._program, parts, compiled_absorb(self._program))._replace(evaluate=self._evaluate)

    def close(self) -> None:
        """Ends the workers."""
        self._pool.close()

    def _layers(self, agents: Agents) -> tuple[Layer, ...]:
        return layers_of(jax.tree.map(np.array, agents.actor))  # copies: the learner writes over its arrays

    def _start(self, key: Key) -> HostWorlds:
        entropy = _words(key)
        seeds = np.random.default_rng(entropy).integers(2**31, size=self._program.schedule.num_envs)
        shapes = jax.eval_shape(lambda: self._program.algo.acting(self._program.algo.init(key)))
        empty = layers_of(jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes.actor))
        return self._worlds([new_place(self._setting, int(seed)) for seed in seeds], empty, entropy, 0, 0)

    def _worlds(self, places: list[Place], layers: tuple[Layer, ...], entropy: Any, step: int, serial: int) -> HostWorlds:
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *places)
        return HostWorlds(stacked, layers, np.asarray(entropy, np.uint32), np.int32(step), np.int32(serial))  # pyright: ignore[reportArgumentType]

    def _ask(self, worlds: HostWorlds) -> None:
        """Lets the workers begin the rollout that these worlds are waiting for, unless they are at it already."""
        serial = int(worlds.serial)
        if self._asked == serial:
            return
        places, layers, entropy, step = jax.device_get((worlds.places, worlds.layers, worlds.entropy, worlds.step))
        each = [jax.tree.map(lambda leaf: leaf[e], places) for e in range(self._program.schedule.num_envs)]  # noqa: B023
        self._send(each, layers, [int(word) for word in entropy], int(step), serial)

    def _send(self, places: list[Place], layers: tuple[Layer, ...], entropy: list[int], step: int, serial: int) -> None:
        self._pool.ask(Start(layers, (*entropy, serial), step, len(places), dict(enumerate(places))))
        self._asked = serial

    def _rollout(
        self, agents: Agents, worlds: HostWorlds, key: Key, step: Int[Array, ""]
    ) -> tuple[HostWorlds, Transition, Finished]:
        """Takes the rollout that is on its way, and sends the workers on the next one."""
        layers = self._layers(agents)
        if int(worlds.serial) == 0:
            worlds = worlds._replace(layers=layers, serial=np.int32(1))  # pyright: ignore[reportArgumentType]
        self._ask(worlds)
        played = self._pool.answer()
        schedule = self._program.schedule
        ahead = int(step) + schedule.num_envs * schedule.rollout_length
        next_one = [copy.place for copy in played], layers, _words(key), ahead, int(worlds.serial) + 1
        self._send(*next_one)  # before anything else: the workers are idle
        after = self._worlds(*next_one)
        columns = jax.tree.map(lambda *copies: np.stack(copies, axis=1), *(copy[:9] for copy in played))
        obs, action, reward, next_obs, terminated, alive, done, returns, lengths = columns
        steps = Transition(obs, action, reward, next_obs, terminated, alive, done)
        ended = np.int32(done.sum()), returns[done].sum(axis=0, dtype=np.float32), np.float32(lengths[done].sum())
        return after, steps, Finished(*ended)  # pyright: ignore[reportArgumentType]

    def _evaluate(self, acting: Agents, keys: Key, episodes: int) -> Episodes:
        """Greedy episodes in a process of their own; one seed."""
        layers = self._layers(jax.tree.map(lambda leaf: leaf[0], acting))
        marks = self._pool.examine(Exam(layers, episodes, seed=int(_words(keys[0])[0])))
        return Episodes(returns=marks.returns[None], length=marks.lengths[None], metrics={})  # pyright: ignore[reportArgumentType]


def _words(key: Key) -> list[int]:
    return [int(word) for word in np.ravel(jax.device_get(jax.random.key_data(key)))]
