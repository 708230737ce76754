"""A trained team as a thing to ask: observations by agent name in, actions by agent name out."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint import config as configs
from counterpoint.algos import maddpg
from counterpoint.algos.base import Agents, Algorithm
from counterpoint.core import prng
from counterpoint.core.actions import to_world
from counterpoint.core.errors import UsageError
from counterpoint.core.numpy_policy import Layer, layers_of
from counterpoint.core.picture import Picture
from counterpoint.core.types import Discrete, Env
from counterpoint.external.workers import Exam, Marks, examine
from counterpoint.runs.folder import Run, open_run
from counterpoint.training.hosted import Hosted, setting_of
from counterpoint.training.loop import LATE, Episodes, evaluate
from counterpoint.training.program import algorithm_of
from counterpoint.viz import render


class Policy:
    """A team of one seed. Stateful only in what acting remembers within an episode: call `reset` when one begins."""

    def __init__(self, env: Env, algo: Algorithm, agents: Agents, seed: int = 0, learning: Any = None) -> None:
        self.env, self.algo, self.agents, self.learning = env, algo, agents, learning
        self._key = prng.key(seed)
        self._calls = 0
        self._greedy = jax.jit(lambda agents, carry, obs: algo.greedy(agents, carry, obs))
        self._explore = jax.jit(lambda agents, carry, obs, key: algo.act(agents, carry, obs, key, jnp.asarray(LATE)))
        self._evaluate = jax.jit(
            lambda agents, key, episodes, explore: evaluate(env, algo, agents, key, episodes, explore), static_argnums=(2, 3)
        )
        self._carry = self._begin()

    def _begin(self) -> Any:
        return jax.tree.map(lambda leaf: leaf[None], self.algo.begin())

    def reset(self) -> None:
        """Forget the episode."""
        self._carry = self._begin()

    def act(self, obs: dict[str, Any], greedy: bool = True, vectors: bool = False) -> dict[str, Any]:
        """What each agent does: an integer if its actions are discrete, an array in the world's range if continuous.

        Several heads make one integer, the first head counting fastest (as in mpe2: move + 5·word). With `vectors`, what the
        world itself was given in training: one array per agent. An environment from elsewhere gets what its spaces say.
        """
        spec = self.env.spec
        stacked = np.zeros((1, spec.num_agents, spec.obs_size), np.float32)
        unknown = set(obs) - set(spec.agents)
        if unknown:
            raise UsageError(f"there is no agent {min(unknown)!r}; the agents are {', '.join(spec.agents)}.")
        for i, (name, size) in enumerate(zip(spec.agents, spec.obs_sizes, strict=True)):
            if name in obs:
                own = self.env.flattened(i, obs[name]) if isinstance(self.env, Hosted) else obs[name]
                seen = np.asarray(own, np.float32)
                if seen.shape != (size,):
                    raise UsageError(f"the observation of {name} must have shape ({size},), not {seen.shape}.")
                stacked[0, i, :size] = seen
        if greedy:
            action, self._carry = self._greedy(self.agents, self._carry, stacked)
        else:
            self._calls += 1
            key = jax.random.fold_in(self._key, self._calls)
            action, self._carry = self._explore(self.agents, self._carry, stacked, key)
        world = np.asarray(to_world(spec, action))[0]
        return {name: self._one(i, world[i], vectors) for i, name in enumerate(spec.agents) if name in obs}

    def _one(self, i: int, vector: np.ndarray, vectors: bool) -> Any:
        space = self.env.spec.action_spaces[i]
        own = vector[: space.size]
        if isinstance(self.env, Hosted) and not vectors:
            return self.env.native(i, own)
        if vectors or not isinstance(space, Discrete):
            return own
        edges = np.cumsum((0, *space.heads))
        choice = [int(np.argmax(own[a:b])) for a, b in pairwise(edges)]
        meaning = getattr(self.env, "integers_of_choice", None)
        if meaning:
            choice = meaning(i, choice)
        return int(sum(c * np.prod(space.heads[:h], dtype=int) for h, c in enumerate(choice)))

    def evaluate(self, episodes: int, seed: int = 0, explore: bool = False) -> Episodes:
        """That many whole episodes, under the greedy policy or as training acts."""
        if isinstance(self.env, Hosted):
            marks = self._examine(self.env, Exam(self._layers(), episodes, seed, explore))
            return Episodes(returns=marks.returns, length=marks.lengths, metrics={})  # pyright: ignore[reportArgumentType]
        return jax.device_get(self._evaluate(self.agents, prng.key(seed), episodes, explore))

    def _layers(self) -> tuple[Layer, ...]:
        return layers_of(jax.device_get(self.agents.actor))

    def _examine(self, env: Hosted, exam: Exam) -> Marks:
        return examine(setting_of(env, self.learning), exam)

    def film(self, episodes: int = 3, seed: int = 0, explore: bool = False) -> list[list[Picture]]:
        """Pictures of whole episodes of a world of ours."""
        trace = jax.jit(lambda key: _trace(self.env, self.algo, self.agents, key, explore))
        films = []
        for key in jax.random.split(prng.key(seed), episodes):
            states, length = jax.device_get(trace(key))
            moments = (jax.tree.map(lambda leaf: leaf[t], states) for t in range(int(length) + 1))  # noqa: B023 — used at once
            films.append([self.env.draw(state) for state in moments])
        return films

    def save_film(self, path: str | Path, episodes: int = 3, seed: int = 0, explore: bool = False) -> bool:
        """Writes a film of whole episodes; False, and no file, if the environment is not ours and cannot draw itself."""
        if not isinstance(self.env, Hosted):
            render.save(self.film(episodes, seed, explore), path)
            return True
        films = self._examine(self.env, Exam(self._layers(), episodes, seed, explore, film=True)).films
        if any(films):
            render.save_frames(films, path)
        return any(films)


def _trace(env: Env, algo: Algorithm, agents: Agents, key: jax.Array, explore: bool) -> tuple[Any, jax.Array]:
    """Every state of one episode [T + 1, …] and how many steps it had; states after the end repeat the last."""
    key_reset, key_run = jax.random.split(key)
    state, obs = env.reset(key_reset)
    carry = jax.tree.map(lambda leaf: leaf[None], algo.begin())

    def advance(now: Any, time: jax.Array) -> Any:
        state, obs, carry, over = now
        key_act, key_step = jax.random.split(jax.random.fold_in(key_run, time))
        if explore:
            action, carry = algo.act(agents, carry, obs[None], key_act, jnp.asarray(LATE))
        else:
            action, carry = algo.greedy(agents, carry, obs[None])
        moved, step = env.step(key_step, state, to_world(env.spec, action)[0])
        kept = jax.tree.map(lambda new, old: jnp.where(over, old, new), (moved, step.obs), (state, obs))
        return (*kept, carry, over | jnp.all(step.terminated | step.truncated)), (kept[0], ~over)

    _, (states, lived) = jax.lax.scan(advance, (state, obs, carry, jnp.zeros((), bool)), jnp.arange(env.max_steps))
    whole = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), state, states)
    return whole, jnp.sum(lived)


def names_of(tree: Any) -> list[str]:
    """The leaves of a state by name, as files know them: actor.0.weight."""
    return [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def load(run: str | Path | Run, seed_index: int = 0) -> Policy:
    """The policy that a run last saved (of its first seed, unless told otherwise)."""
    run = run if isinstance(run, Run) else open_run(run)
    config = configs.from_dict(run.config)
    if not 0 <= seed_index < config.training.num_seeds:
        raise UsageError(
            f"seed_index must be below {config.training.num_seeds}, the number of seeds in the run, not {seed_index}."
        )
    env = config.validate()
    algo = algorithm_of(config, env.spec)
    tensors, _ = run.load_policy()
    shapes = jax.eval_shape(lambda: algo.acting(algo.init(prng.key(0))))
    found = {name: tensors[name].shape[1:] for name in tensors}
    wanted = {name: leaf.shape for name, leaf in zip(names_of(shapes), jax.tree.leaves(shapes), strict=True)}
    if found != wanted:
        raise UsageError(f"policy.safetensors of {run.path} does not fit its config.json: restore both, or train anew.")
    agents = jax.tree.unflatten(jax.tree.structure(shapes), [jnp.asarray(tensors[name][seed_index]) for name in wanted])
    return Policy(env, algo, agents, learning=config.learning)


def random_team(env: Env) -> Policy:
    """A team whose actions are uniformly random, if asked to explore."""
    config = maddpg.Config(world_action="one-hot", noise_start=1.0, noise_end=1.0)
    algo = maddpg.make(config, env.spec, np.eye(env.spec.num_agents, dtype=bool))
    zero = jax.tree.map(jnp.zeros_like, algo.acting(algo.init(prng.key(0))))
    return Policy(env, algo, zero, learning=config)
