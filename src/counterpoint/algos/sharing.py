"""Parameter sharing: an index from agents to sets of parameters.

With M sets, the leaves of networks and optimisers are [M, …] instead of [N, …]; `Sharing.sets` names the set of each agent.
Gradients are summed over the agents of a set (MAPPO: averaged, like its authors' loss over all samples), and each set makes one
optimiser step. Where agents of different roles share a set, networks also read the agent's index as a one-hot vector.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from counterpoint.core.errors import UsageError
from counterpoint.core.nets import Params
from counterpoint.core.ops import Tree
from counterpoint.core.spaces import Spec

Share = Literal["none", "role", "all"]

AGENTS = "agents"
"""The name of the axis over which `offpolicy.update` maps agents that share parameters."""


class Sharing(NamedTuple):
    """Which agents share which parameters."""

    sets: np.ndarray
    """[N]: the set of each agent, numbered in the order of their first agents."""
    ids: bool
    """Whether networks read the agent's index, because agents of different roles share them."""

    @property
    def first(self) -> np.ndarray:
        """[M]: the first agent of each set."""
        return np.unique(self.sets, return_index=True)[1]

    @property
    def num_sets(self) -> int:
        return int(self.sets.max()) + 1

    @property
    def members(self) -> list[np.ndarray]:
        """The agents of each set."""
        return [np.flatnonzero(self.sets == m) for m in range(self.num_sets)]

    @property
    def num_ids(self) -> int:
        """How many entries the agent's index adds to an input."""
        return len(self.sets) if self.ids else 0


def sharing_of(share: Share, spec: Spec) -> Sharing | None:
    """Returns who shares with whom, or None if every agent has parameters of its own."""
    if share == "none":
        return None
    numbers: dict[Any, int] = {}
    sets = np.array([numbers.setdefault(role if share == "role" else "all", len(numbers)) for role in spec.roles])
    return Sharing(sets, ids=share == "all" and len(set(spec.roles)) > 1)


# --- From sets to agents and back.


def expanded(sharing: Sharing, params: Tree) -> Tree:
    """Returns parameters [M, …] as those of every agent, [N, …]."""
    return jax.tree.map(lambda leaf: leaf[sharing.sets], params)


def by_agent(sharing: Sharing | None, params: Any) -> tuple[Any, int | None]:
    """Returns parameters as `vmap` over agents takes them, and their axis: None if all agents share one set."""
    if sharing is None:
        return params, 0
    if sharing.num_sets == 1:
        return jax.tree.map(lambda leaf: leaf[0], params), None
    return expanded(sharing, params), 0


def merged(sharing: Sharing, params: Tree) -> Tree:
    """Returns the parameters of each set, given those of every agent, which are equal within a set."""
    return jax.tree.map(lambda leaf: leaf[sharing.first], params)


def averaged(sharing: Sharing, tree: Tree) -> Tree:
    """Returns the means [M, …] over the agents of each set, given numbers [N, …]."""
    return jax.tree.map(lambda leaf: jnp.stack([jnp.mean(leaf[own], axis=0) for own in sharing.members]), tree)


def union(sharing: Sharing, masks: np.ndarray) -> np.ndarray:
    """Returns [M, K]: 1 where an entry is real for some agent of the set, followed by the entries of the agent's index."""
    found = np.stack([masks[sharing.sets == m].max(axis=0) for m in range(sharing.num_sets)]).astype(np.float32)
    return np.concatenate([found, np.ones((len(found), sharing.num_ids), np.float32)], axis=1)


def summed(sharing: Sharing, tree: Tree) -> Tree:
    """Returns the sum over the agents of this agent's set, inside a `vmap` over the axis AGENTS."""
    if sharing.num_sets == 1:
        return jax.lax.psum(tree, AGENTS)
    mine = jnp.asarray(sharing.sets)[jax.lax.axis_index(AGENTS)]

    def one(leaf: Array) -> Array:
        parts = [jax.lax.psum(jnp.where(mine == m, leaf, 0.0), AGENTS) for m in range(sharing.num_sets)]
        return sum((jnp.where(mine == m, part, 0.0) for m, part in enumerate(parts)), jnp.zeros_like(leaf))

    return jax.tree.map(one, tree)


# --- The agent's index.


def with_index(sharing: Sharing | None, columns: Float[Array, "K B"], i: Int[Array, ""]) -> Float[Array, "J B"]:
    """Returns agent i's inputs in columns, followed by its index if networks read it."""
    if sharing is None or not sharing.ids:
        return columns
    index = jax.nn.one_hot(i, sharing.num_ids, dtype=columns.dtype)
    return jnp.concatenate([columns, jnp.broadcast_to(index[:, None], (sharing.num_ids, columns.shape[-1]))])


def with_indices(sharing: Sharing | None, rows: Float[Array, "*b N K"]) -> Float[Array, "*b N J"]:
    """Returns the inputs of all agents in rows, followed by their indices if networks read them."""
    if sharing is None or not sharing.ids:
        return rows
    n = sharing.num_ids
    return jnp.concatenate([rows, jnp.broadcast_to(jnp.eye(n, dtype=rows.dtype), (*rows.shape[:-1], n))], axis=-1)


def plain(sharing: Sharing | None, layers: Params) -> Params | None:
    """Returns one perceptron per agent that acts like the shared ones; the agent's index becomes a part of its first bias.

    None if that is impossible, because the first layer is normalised.
    """
    if sharing is None:
        return layers
    first, *rest = expanded(sharing, layers)
    if not sharing.ids:
        return (first, *rest)
    if first.norm is not None:
        return None
    n = sharing.num_ids
    seen, index = first.weight[:, :-n], first.weight[:, -n:]
    return (first._replace(weight=seen, bias=first.bias + index[np.arange(n), np.arange(n)]), *rest)


# --- Critics that see several agents.


def own_first(n: int) -> np.ndarray:
    """Returns [N, N]: for each agent, itself and then the others in their order, as a shared critic lists them."""
    return np.array([[i, *(j for j in range(n) if j != i)] for i in range(n)])


def listed_own_first(seen: np.ndarray) -> np.ndarray:
    """Returns [N, N, …] with each row in the order of `own_first`."""
    return np.stack([row[order] for row, order in zip(seen, own_first(len(seen)), strict=True)])


def require_like_critics(sharing: Sharing, sees: np.ndarray) -> None:
    """Refuses sets of which one critic sees other agents and another does not; `sees` [N, N] says who sees whom."""
    patterns = listed_own_first(sees)
    if not (patterns == patterns[sharing.first[sharing.sets]]).all():
        raise UsageError(
            "agents with joint critics cannot share parameters with agents that see only themselves: choose --share role."
        )
