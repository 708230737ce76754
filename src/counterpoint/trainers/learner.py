"""The networks of a trainer and the compiled functions that train them: all calls to algorithms are in this file.

A trainer has perceptrons (`Sizes`) or networks of the user's own (`nets.Model`); both learn by the `update_agent` of their
algorithm (`Method`), as in a compiled run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.algos import exploration, maddpg, masac, matd3
from counterpoint.algos.base import Actors
from counterpoint.algos.offpolicy import Acting, Problem, column
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


class Method(NamedTuple):
    """An off-policy algorithm as its trainers use it."""

    settings: Any
    """The class of its settings."""
    agent: Any
    """The class of one agent's networks and optimisers."""
    reads: Literal["actor", "target_actor"]
    """The field of the other agents that an update reads."""
    init: Callable[..., Any]
    """(settings, problem, key) → all agents."""
    update_agent: Callable[..., Any]
    problem: Callable[..., Problem]
    """(spec, sees, model) → what is fixed for the learner of a team."""
    actors: Callable[[Any, Spec, Any], Actors | None]
    """(settings, spec, policy) → the rules by which outputs become actions, among others."""


def _problem(spec: Spec, sees: np.ndarray, model: Model | None) -> Problem:
    return Problem(spec=spec, heads=heads_of(spec), sees=sees, axis=None, model=model)


def _soft_problem(spec: Spec, sees: np.ndarray, model: Model | None) -> Problem:
    return masac.problem_of(spec, sees, model=model)


MADDPG = Method(maddpg.Config, maddpg.Agent, "target_actor", maddpg.init, maddpg.update_agent, _problem, exploration.actors)
MATD3 = Method(matd3.Config, matd3.Agent, "target_actor", matd3.init, matd3.update_agent, _problem, exploration.actors)
MASAC = Method(masac.Config, masac.Agent, "actor", masac.init, masac.update_agent, _soft_problem, masac.actors)

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


def problem_of(method: Method, networks: Networks, spec: Spec, sees: Rows) -> Problem:
    """Returns what is fixed for the learner of a team."""
    return method.problem(spec, np.array(sees), networks if isinstance(networks, Model) else None)


def rules_of(method: Method, config: Any, spec: Spec) -> dict[str, Any]:
    """Returns how outputs become actions: fields of `numpy_policy.Rules`."""
    plain = method.actors(config, spec, Acting(()))  # the rules do not depend on the networks
    assert plain is not None, "settings of a trainer have no model: its networks are an argument"
    return dict(plain.rules)


@lru_cache(maxsize=32)
def starter(method: Method, networks: Networks, config: Any, spec: Spec, sees: Rows) -> Any:
    """Returns (key, i) → agent i at the start of training; all trainers of a team share it."""
    problem = problem_of(method, networks, spec, sees)
    if isinstance(networks, Model):
        masks = jax.eval_shape(lambda key: method.init(config, problem._replace(model=_SIZES), key), prng.key(0))
        _check_outputs(networks, spec.obs_size, _width(masks.actor))
        critic = masks.critics[0] if hasattr(masks, "critics") else masks.critic
        _check_outputs(networks, spec.num_agents * (spec.obs_size + spec.act_size), _width(critic))

    def start(key: Key, i: jax.Array) -> Any:
        return jax.tree.map(lambda leaf: leaf[i], method.init(config, problem, key))

    return jax.jit(start)


_SIZES = Model(init=lambda key, inputs, outputs: outputs, apply=lambda params, x: x)
"""A network that is nothing but the mask of its outputs."""


def _width(outputs: Any) -> int:
    return outputs.shape[-1]


def _check_outputs(model: Model, num_inputs: int, num_outputs: int) -> None:
    def answer(key: Key) -> Any:
        return model.apply(model.init(key, jnp.ones(num_inputs), jnp.ones(num_outputs)), jnp.zeros((1, num_inputs)))

    shape = jax.eval_shape(answer, prng.key(0)).shape
    if shape != (1, num_outputs):
        raise UsageError(
            f"the model's apply must return shape (1, {num_outputs}) for one input of size {num_inputs}, not {shape}."
        )


@lru_cache(maxsize=32)
def learner(method: Method, networks: Networks, config: Any, spec: Spec, sees: Rows) -> Any:
    """Returns (own, what it reads of all agents, column, batch, i, key) → (agent, metrics); all trainers of a team share it."""
    problem = problem_of(method, networks, spec, sees)
    nobody = method.agent(**dict.fromkeys(method.agent._fields))

    def learn(own: Any, read: Any, mine: Transition, batch: Transition, i: jax.Array, key: Key) -> Any:
        team = nobody._replace(**{method.reads: read})
        return method.update_agent(config, problem, own, team, mine, batch, i, key)

    return jax.jit(learn)


@jax.jit
def gather(targets: list[Any], batch: Transition, i: jax.Array) -> tuple[Any, Transition]:
    """Returns what is read of all agents, stacked, and agent i's part of a batch. Inside `learn` it would change rounding."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *targets), column(batch, i)


@lru_cache(maxsize=32)
def outputs(model: Model) -> Any:
    """Returns (parameters, x[1, O]) → outputs[1, A], compiled."""
    return jax.jit(model.apply)


fold_in = jax.jit(jax.random.fold_in)
