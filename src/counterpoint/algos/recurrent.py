"""Networks that remember, for off-policy learning from sequences: a perceptron, a gated recurrent unit and a last layer.

A minibatch of sequences is laid out like one of single steps, in columns [features, T·B]: the first B columns are the first
steps of B sequences, the next B the second steps, and so on. `begins` is true where memory begins anew: at the first step of a
sequence and of each episode in it. `run` follows the sequences; `step` asks a network once more, at each step about another
input, or about what follows it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from counterpoint.algos import onpolicy
from counterpoint.algos.onpolicy import Network
from counterpoint.core.nets import COLUMNS, Activation, Init, gru_from_first, init_gru, init_mlp, mlp, mlp_from_first, times
from counterpoint.core.ops import n_step_returns
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key


class Carried(NamedTuple):
    """What recurrent actors carry from step to step."""

    hidden: Float[Array, "*b N H"]
    noise: Any = ()
    """The carry of the exploration noise, if there is one."""


class Run(NamedTuple):
    """A network that has followed a minibatch of sequences."""

    outputs: Float[Array, "H C"]
    before: Float[Array, "C U"]
    """The hidden states with which the steps began."""
    after: Float[Array, "C U"]
    """The hidden states with which they ended."""


def init_network(
    key: Key, inputs: Float[Array, " I"], hidden: tuple[int, ...], outputs: Float[Array, " H"], init: Init
) -> Network:
    """Returns a fresh network whose last hidden layer is recurrent; `inputs` and `outputs` are 1 where entries are real."""
    key_body, key_cell, key_head = jax.random.split(key, 3)
    *before, width = hidden
    first, ones = inputs, jnp.ones(width)
    body: Any = ()
    if before:  # the last layer of a perceptron has no activation: another one behind it makes it a hidden layer
        *body, _ = init_mlp(key_body, inputs, tuple(before), jnp.ones(1), init=init)
        first = jnp.ones(before[-1])
    return Network(body=tuple(body), cell=init_gru(key_cell, first, width), head=init_mlp(key_head, ones, (), outputs))


def masked_inputs(network: Network, seen: Float[Array, " I"]) -> Network:
    """Returns a gradient without the weights of what the network does not see."""
    if network.body:
        first = network.body[0]
        return network._replace(body=(first._replace(weight=first.weight * seen[:, None]), *network.body[1:]))
    assert network.cell is not None
    gates = network.cell.inputs
    return network._replace(cell=network.cell._replace(inputs=gates._replace(weight=gates.weight * seen[:, None])))


def run(
    network: Network | Any, x: Float[Array, "I C"], begins: Bool[Array, " C"], length: int, activation: Activation = "relu"
) -> Run:
    """Returns what a network makes of sequences of that length, each from nothing remembered."""
    cell = network.cell
    assert cell is not None
    gates = _gates(network, x, activation).reshape(length, -1, cell.state.bias.size)

    def proceed(hidden: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        gates, begins = now
        before = jnp.where(begins[:, None], 0.0, hidden)
        after = gru_from_first(cell, before, gates)
        return after, (before, after)

    nothing = jnp.zeros((gates.shape[1], cell.state.weight.shape[0]), gates.dtype)
    _, (before, after) = jax.lax.scan(proceed, nothing, (gates, begins.reshape(length, -1)))
    before, after = (states.reshape(-1, states.shape[-1]) for states in (before, after))
    return Run(_head(network, after), before, after)


def step(
    network: Network | Any, x: Float[Array, "I C"], hidden: Float[Array, "C U"], activation: Activation = "relu"
) -> Float[Array, "H C"]:
    """Returns the outputs for one step each that begins with these hidden states: those `before` a step for another input at
    that step, those `after` it for the step that follows."""
    assert network.cell is not None
    return _head(network, gru_from_first(network.cell, hidden, _gates(network, x, activation)))


def _gates(network: Network, x: Float[Array, "I C"], activation: Activation) -> Float[Array, "C G"]:
    """Returns the inputs' part of the recurrent gates, in rows."""
    assert network.cell is not None
    if network.body:
        x = getattr(jax.nn, activation)(
            mlp_from_first(network.body, times(network.body[0].weight, x, COLUMNS), units=COLUMNS, activation=activation)
        )
    product = times(network.cell.inputs.weight, x, COLUMNS).T
    return product + jnp.broadcast_to(network.cell.inputs.bias, product.shape)


def _head(network: Network, hidden: Float[Array, "C U"]) -> Float[Array, "H C"]:
    assert network.head is not None
    return mlp(network.head, hidden.T, units=COLUMNS)


def targets(
    reward: Float[Array, " C"],
    next_value: Float[Array, " C"],
    terminated: Bool[Array, " C"],
    stops: Bool[Array, " C"],
    length: int,
    gamma: float,
    num_steps: int,
) -> Float[Array, " C"]:
    """Returns n-step targets within sequences: fewer rewards where the episode or the sequence ends."""

    def in_time(leaf: Array) -> Array:
        return leaf.reshape(length, -1)

    future = jnp.where(terminated, 0.0, next_value)
    return n_step_returns(in_time(reward), in_time(future), in_time(stops | terminated), gamma, num_steps).reshape(-1)


def stops(alive: Bool[Array, "N C"], terminated: Bool[Array, "N C"], done: Bool[Array, " C"], length: int) -> Bool[Array, " C"]:
    """Returns after which steps of sequences a return must not go on: where the episode ends, and where an agent is truncated,
    for its bootstrap must start from the joint observation at that moment."""
    n = alive.shape[0]
    plays, over = (part.reshape(n, length, -1) for part in (alive, terminated))
    truncated = jnp.any(plays[:, :-1] & ~over[:, :-1] & ~plays[:, 1:], axis=0)
    return done | jnp.concatenate([truncated, jnp.zeros_like(truncated[:1])]).reshape(-1) if length > 1 else done


def begin(spec: Spec, num_units: int, noise: Any = ()) -> Carried:
    """Returns what the actors of one environment carry at the start of an episode: nothing remembered."""
    return Carried(jnp.zeros((spec.num_agents, num_units)), noise)


act = onpolicy.policy
"""(settings, spec, actors, hidden, obs[*b, N, O]) → the outputs of every agent and its hidden state after the step."""
