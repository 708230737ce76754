"""The networks of a trainer and the compiled functions that train them: all calls to `algos.maddpg` are in this file.

A trainer has perceptrons (`Sizes`) or networks of the user's own (`nets.Model`); both learn by `maddpg.update_agent`, as in a
compiled run.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.algos import maddpg
from counterpoint.core import prng
from counterpoint.core.actions import heads_of
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import Model, Normalise
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key, Transition


@dataclass(frozen=True)
class Sizes:
    """Perceptrons with hidden layers of one width, for actor and critic alike."""

    num_units: int = 64
    """Width of the hidden layers."""
    num_layers: int = 2
    """Number of hidden layers."""
    norm: Normalise = "none"
    """Normalisation of the hidden layers: over their units, or over the minibatch."""


Networks = Sizes | Model
Rows = tuple[tuple[bool, ...], ...]
"""[N, N]: whether critic i (row) sees agent j; hashable."""


def networks_of(model: Any) -> Networks:
    """Returns the networks that the user chose: sizes, or any object with init and apply functions."""
    if isinstance(model, Sizes):
        return model
    if callable(getattr(model, "init", None)) and callable(getattr(model, "apply", None)):
        return Model(model.init, model.apply)
    raise UsageError(f"the model must be Sizes(...) or have functions init and apply, not {model!r}.")


def problem_of(networks: Networks, spec: Spec, sees: Rows) -> maddpg.Problem:
    """Returns what is fixed for the learner of a team."""
    model = networks if isinstance(networks, Model) else None
    return maddpg.Problem(spec=spec, heads=heads_of(spec), sees=np.array(sees), axis=None, model=model)


@lru_cache(maxsize=32)
def starter(networks: Networks, config: maddpg.Config, spec: Spec, sees: Rows) -> Any:
    """Returns (key, i) → agent i at the start of training; all trainers of a team share it."""
    problem = problem_of(networks, spec, sees)
    if isinstance(networks, Model):
        _check_outputs(networks, spec.obs_size, spec.act_size)
        _check_outputs(networks, spec.num_agents * (spec.obs_size + spec.act_size), 1)

    def start(key: Key, i: jax.Array) -> maddpg.Agent:
        return jax.tree.map(lambda leaf: leaf[i], maddpg.init(config, problem, key))

    return jax.jit(start)


def _check_outputs(model: Model, num_inputs: int, num_outputs: int) -> None:
    def answer(key: Key) -> Any:
        return model.apply(model.init(key, jnp.ones(num_inputs), jnp.ones(num_outputs)), jnp.zeros((1, num_inputs)))

    shape = jax.eval_shape(answer, prng.key(0)).shape
    if shape != (1, num_outputs):
        raise UsageError(
            f"the model's apply must return shape (1, {num_outputs}) for one input of size {num_inputs}, not {shape}."
        )


@lru_cache(maxsize=32)
def learner(networks: Networks, config: maddpg.Config, spec: Spec, sees: Rows) -> Any:
    """Returns (own, target actors, column, batch, i, key) → (agent, metrics); all trainers of a team share it."""
    problem = problem_of(networks, spec, sees)

    def learn(own: maddpg.Agent, targets: Any, mine: Transition, batch: Transition, i: jax.Array, key: Key) -> Any:
        team = maddpg.Agent(None, None, targets, None, None, None)  # pyright: ignore[reportArgumentType] — an update reads no more
        return maddpg.update_agent(config, problem, own, team, mine, batch, i, key)

    return jax.jit(learn)


@jax.jit
def gather(targets: list[Any], batch: Transition, i: jax.Array) -> tuple[Any, Transition]:
    """Returns all target actors stacked, and agent i's part of a batch. Inside `learn` this would change its rounding."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *targets), maddpg.column(batch, i)


@lru_cache(maxsize=32)
def outputs(model: Model) -> Any:
    """Returns (parameters, x[1, O]) → outputs[1, A], compiled."""
    return jax.jit(model.apply)


fold_in = jax.jit(jax.random.fold_in)
