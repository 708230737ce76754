"""A critic over the set of agents, for many agents: its cost grows like N, that of N joint critics like N³.

One network reads each agent's observation and action, e_j = φ(o_j, a_j), and attention pools them:

    p = Σ_j w_j e_j / Σ_j w_j,  w_j = exp(s(e_j))          the same for all agents: computed once
    Q_i(o, a) = ψ(e_i, p)

With another action of agent i only e_i and its part of both sums change, so the values that all actors ascend cost as much as
the values themselves. Agents share parameters (`sharing`): each set has an actor and a critic, whose gradients are sums over
its agents. Where there are several roles, φ also reads the role of agent j. An algorithm's `update_set` (`maddpg`, `matd3`)
updates one set of parameters, of all its agents at once.

Arrays are rows, [B, N, …], and matrix products take B and N as one axis, because XLA computes the gradients of weights several
times slower over two. A minibatch is computed in parts that fit into a core's cache (`plan_of`). With `agents_per_sample` only
some agents of a set learn from each part, which are others in the next part.

`init_critic`, `update` and `make` choose between this critic and the joint critics of `offpolicy`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from counterpoint.algos import exploration, offpolicy, sharing
from counterpoint.algos.base import TD_ERRORS, Algorithm, Metrics
from counterpoint.algos.offpolicy import Problem
from counterpoint.algos.sharing import Sharing
from counterpoint.core.actions import Draw, Heads, draw, estimated_rows, gumbel, heads_of, masked, relaxed, sampled
from counterpoint.core.checks import at_least
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import Activation, Params, affine, init_mlp, mlp, mlp_from_first
from counterpoint.core.ops import Moments, Tree, td_target
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key, Transition

LARGEST_SCORE = 5.0
"""Scores stay within ±5, so that their exponentials need no maximum, and one agent's part can be exchanged in a sum."""
CACHED_NUMBERS = 2**17
"""Numbers in one array of a part of a minibatch, of all agents together: several such arrays stay in a core's cache of 2 MB."""


@dataclass(frozen=True)
class Settings(exploration.Settings):
    """Hyperparameters of off-policy algorithms with deterministic actors, whose critics may be one over the set of agents."""

    critic: Literal["joint", "attention"] = "joint"
    """One critic for each agent, which reads all observations and actions, or, for many agents that share parameters, one that
    pools them by attention."""
    agents_per_sample: int = 0
    """Agents of each set that learn from each transition of a minibatch, with --critic attention (0: all of them)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "agents_per_sample")
        if self.critic == "joint":
            if self.agents_per_sample:
                raise UsageError(
                    f"--agents-per-sample {self.agents_per_sample} belongs to --critic attention: add that, or leave it out."
                )
            return
        if self.share == "none":
            raise UsageError("--critic attention is one network for many agents: add --share role or --share all.")
        if self.recurrent:
            raise UsageError("--critic attention does not remember: leave out it or --recurrent.")
        for name, usual in (("minibatch", "shared"), ("norm", "none"), ("model", "")):
            if getattr(self, name) != usual:
                value = getattr(self, name)
                raise UsageError(f"--critic attention and --{name} {value} exclude each other: leave out one of them.")


class SetCritic(NamedTuple):
    """φ, s and ψ."""

    pair: Params
    """[O + A (+ roles), H]."""
    score: Params
    """[H, 1]."""
    pooled: Params
    """[H, H]: what the pool adds to the first layer of `value`; its bias is not used."""
    value: Params
    """[H, H], …, [H, 1]."""


Critics = tuple[SetCritic | Any, ...]
"""One critic, or twins."""
UpdateSet = Callable[..., tuple[Any, dict[str, Any]]]
"""(config, problem, roles, own, data, key) → (one set of parameters, the metrics of its agents [M, …])."""


class Pool(NamedTuple):
    """Embeddings of all agents, and the sums that pool them."""

    observed: Float[Array, "B N H"]
    """What observations contribute to the embeddings, whatever the actions are."""
    embedding: Float[Array, "B N H"]
    weight: Float[Array, "B N 1"]
    total: Float[Array, "B H"]
    norm: Float[Array, "B 1"]


# --- Which agents learn from which samples.


class Block(NamedTuple):
    """Some agents of a set, adjacent among its members."""

    members: np.ndarray
    """The agents of the set."""
    count: int
    first: int | Int[Array, ""] = 0

    def of(self, x: Shaped[Array, "B N *k"]) -> Shaped[Array, "B K *k"]:
        """Returns the part of these agents; XLA gathers slowly, and adjacent agents need no gathering."""
        return self.among(of_members(x, self.members), axis=1)

    def among(self, x: Shaped[Array, "*b"], axis: int = 0) -> Shaped[Array, "*c"]:
        """Returns the part of these agents, given that of all members."""
        return x if self.count == self.members.size else jax.lax.dynamic_slice_in_dim(x, self.first, self.count, axis)


def of_members(x: Shaped[Array, "B N *k"], members: np.ndarray) -> Shaped[Array, "B K *k"]:
    """Returns the part of the agents of a set."""
    first, last = int(members[0]), int(members[-1])
    return x[:, first : last + 1] if last - first + 1 == members.size else x[:, members]


class Plan(NamedTuple):
    """The parts of a minibatch that are computed one after another; the agents of a set that learn from a part."""

    size: int
    """Samples that a part reads; those from its stop on belong to the next part and do not count."""
    starts: np.ndarray
    stops: np.ndarray
    count: int
    """Agents that learn from a sample."""
    first: np.ndarray
    """The first of those agents, for each part."""

    @property
    def single(self) -> bool:
        """Whether there is one part, which is the whole minibatch."""
        return len(self.starts) == 1

    @property
    def agents(self) -> np.ndarray:
        """[P, K]: the agents that learn from each part."""
        return self.first[:, None] + np.arange(self.count)

    def taught(self, num_members: int) -> np.ndarray:
        """Returns [B, M]: 1 where an agent of the set learns from a sample."""
        found = np.zeros((int(self.stops[-1]), num_members), np.float32)
        for start, stop, first in zip(self.starts, self.stops, self.first, strict=True):
            found[start:stop, first : first + self.count] = 1
        return found

    def joined(self, parts: Shaped[Array, "P S *k"]) -> Array:
        """Returns the samples of the minibatch, given those of its parts."""
        rows = parts.reshape(-1, *parts.shape[2:])
        own = [
            k * self.size + np.arange(stop - start) for k, (start, stop) in enumerate(zip(self.starts, self.stops, strict=True))
        ]
        return rows if len(rows) == self.stops[-1] else rows[np.concatenate(own)]


def plan_of(config: Settings, batch: Transition, num_members: int) -> Plan:
    """Returns a division into as few parts as fit into a cache and give each block of agents equally many."""
    size, num_agents, width = batch.obs.shape
    count = min(max(config.agents_per_sample or num_members, -(-num_members // size)), num_members)
    blocks = -(-num_members // count)
    numbers = size * num_agents * max(width, config.num_units)
    parts = min(-(-numbers // (CACHED_NUMBERS * blocks)) * blocks, size)
    edges = np.arange(parts + 1) * size // parts
    first = np.minimum(np.arange(parts) % blocks * count, num_members - count)
    return Plan(-(-size // parts), edges[:-1], edges[1:], count, first)


# --- The critic.


def role_table(spec: Spec) -> np.ndarray:
    """Returns [N, R]: the role of each agent as a one-hot vector; R is 0 if all have the same."""
    names = sorted(set(spec.roles))
    if len(names) == 1:
        return np.zeros((spec.num_agents, 0), np.float32)
    return np.eye(len(names), dtype=np.float32)[[names.index(role) for role in spec.roles]]


def init_critic(config: Settings, problem: Problem, key: Key, seen: Float[Array, " I"]) -> Params | Any:
    """Returns a fresh critic of the kind that the settings name; `seen` is 1 where a joint critic reads an entry."""
    if config.critic == "attention":
        return init_set_critic(config, problem.spec, key)
    return offpolicy.init_net(config, problem, key, seen, jnp.ones(1))


def init_set_critic(config: Settings, spec: Spec, key: Key) -> SetCritic:
    """Returns a fresh critic over the set of agents."""
    keys, width = jax.random.split(key, 4), config.num_units
    real = np.concatenate([spec.obs_mask.max(axis=0), spec.act_mask.max(axis=0), np.ones(role_table(spec).shape[1])])
    inputs, ones = jnp.asarray(real, jnp.float32), jnp.ones(width)
    first, *_ = init_mlp(keys[0], inputs, (width,), jnp.ones(1), init=config.init)
    *_, rest = init_mlp(keys[2], ones, (), ones)
    return SetCritic(
        pair=(first,),
        score=init_mlp(keys[1], ones, (), jnp.ones(1)),
        pooled=(rest,),
        value=init_mlp(keys[3], ones, (width,) * max(config.num_layers - 1, 1), jnp.ones(1), init=config.init),
    )


def observed(critic: SetCritic, roles: np.ndarray, obs: Float[Array, "B N O"]) -> Float[Array, "B N H"]:
    """Returns what observations, roles and the bias contribute to the embeddings, whatever the actions are."""
    weight, bias = critic.pair[0].weight, critic.pair[0].bias
    product = (flat(obs) @ weight[: obs.shape[-1]]).reshape(*obs.shape[:-1], -1)
    shift = jnp.broadcast_to(bias, product.shape[1:])
    if roles.shape[-1]:
        shift = shift + jnp.asarray(roles, obs.dtype) @ weight[-roles.shape[-1] :]
    return product + jnp.broadcast_to(shift, product.shape)


def embedded(
    critic: SetCritic, activation: Activation, roles: np.ndarray, seen: Float[Array, "B K H"], action: Float[Array, "B K A"]
) -> tuple[Float[Array, "B K H"], Float[Array, "B K 1"]]:
    """Returns e_j and w_j of agents, given what is `observed`."""
    after = len(critic.pair[0].weight) - roles.shape[-1]
    product = flat(seen) + flat(action) @ critic.pair[0].weight[after - action.shape[-1] : after]
    embedding = getattr(jax.nn, activation)(product)
    score = affine(critic.score[0], embedding)
    weight = jnp.exp(LARGEST_SCORE * jnp.tanh(score / LARGEST_SCORE))
    return embedding.reshape(seen.shape), weight.reshape(*seen.shape[:-1], 1)


def flat(x: Float[Array, "B N K"]) -> Float[Array, "R K"]:
    """Returns the rows of all agents along one axis."""
    return x.reshape(-1, x.shape[-1])


def pool(critic: SetCritic, activation: Activation, roles: np.ndarray, obs: Array, action: Array) -> Pool:
    """Returns the pool of all agents."""
    seen = observed(critic, roles, obs)
    embedding, weight = embedded(critic, activation, roles, seen, action)
    return Pool(seen, embedding, weight, jnp.sum(weight * embedding, axis=1), jnp.sum(weight, axis=1))


def values(
    critic: SetCritic, activation: Activation, embedding: Float[Array, "B K H"], pooled: Float[Array, "B _k H"]
) -> Float[Array, "B K"]:
    """Returns Q of agents with these embeddings; `pooled` is that of each of them, or one for all."""
    common = (flat(pooled) @ critic.pooled[0].weight).reshape(*pooled.shape[:-1], -1)
    product = (flat(embedding) @ critic.value[0].weight).reshape(*embedding.shape[:-1], -1)
    found = mlp_from_first(critic.value, flat(product + jnp.broadcast_to(common, product.shape)), activation=activation)
    return found.reshape(embedding.shape[:-1])


def q(critic: SetCritic, activation: Activation, everyone: Pool, block: Block) -> Float[Array, "B K"]:
    """Returns Q_i of these agents."""
    return values(critic, activation, block.of(everyone.embedding), (everyone.total / everyone.norm)[:, None])


def q_with_own_actions(
    critic: SetCritic,
    activation: Activation,
    roles: np.ndarray,
    everyone: Pool,
    block: Block,
    action: Float[Array, "B K A"],
) -> Float[Array, "B K"]:
    """Returns Q_i of these agents, each with this action of its own and the others as replayed."""
    embedding, weight = embedded(critic, activation, roles, block.of(everyone.observed), action)
    old, was = block.of(everyone.embedding), block.of(everyone.weight)
    total = everyone.total[:, None] + weight * embedding - was * old
    return values(critic, activation, embedding, total / (everyone.norm[:, None] + weight - was))


# --- The update.


class Rows(NamedTuple):
    """What belongs to the agents of one set, [B, K, …]."""

    obs: Float[Array, "B K I"]
    """With the agent's index, if actors read it."""
    legal: Bool[Array, "B K A"] | None
    reward: Float[Array, "B K"]
    terminated: Bool[Array, "B K"]
    alive: Float[Array, "B K"]
    """1 where the agent still played and learns from the sample, otherwise 0."""
    weight: Float[Array, "B K"]
    """`alive` times the importance weight of the sample."""


class Data(NamedTuple):
    """A minibatch, or a part of it, as the losses of one set of parameters read it."""

    batch: Transition
    next_action: Float[Array, "B N A"]
    rows: Rows
    block: Block
    """The agents that learn."""
    heads: Heads
    living: Float[Array, " K"]
    """How many samples each of them learns from, on average over devices."""
    plan: Plan
    drawn: Draw | None = None
    """The randomness of the actions of those who learn."""


def data_of(
    config: Settings, problem: Problem, shared: Sharing, batch: Transition, next_action: Float[Array, "B N A"], m: int
) -> Data:
    """Returns a minibatch as the agents of set m read it."""
    members = np.flatnonzero(shared.sets == m)
    plan = plan_of(config, batch, members.size)
    alive = of_members(batch.alive, members).astype(batch.reward.dtype)
    taught = alive if plan.count == members.size else alive * plan.taught(members.size)
    weight = alive
    if batch.weight is not None:
        weight = alive * (batch.weight / offpolicy.max_over(problem.axis, batch.weight))[:, None]
    rows = Rows(
        obs=of_members(sharing.with_indices(shared, batch.obs), members),
        legal=None if batch.legal is None else of_members(batch.legal, members),
        reward=of_members(batch.reward, members),
        terminated=of_members(batch.terminated, members),
        alive=alive,
        weight=weight,
    )
    return Data(
        batch=batch,
        next_action=next_action,
        rows=rows,
        block=Block(members, members.size),
        heads=jax.tree.map(lambda table: table[members], problem.heads),
        living=offpolicy.mean_over(problem.axis)(jnp.sum(taught, axis=0)),
        plan=plan,
    )


def part_of(data: Data, start: Int[Array, ""], stop: Int[Array, ""], first: Int[Array, ""]) -> Data:
    """Returns the part of a minibatch from one sample to another, and of the agents that learn from it."""
    block, size = data.block._replace(first=first, count=data.plan.count), data.plan.size
    samples = partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=size)
    own = jnp.broadcast_to((start + jnp.arange(size) < stop)[:, None], (size, block.count))
    rows = jax.tree.map(lambda leaf: block.among(samples(leaf), axis=1), data.rows)
    drawn = data.drawn
    if drawn is not None:
        drawn = drawn._replace(noise=samples(drawn.noise), more=None if drawn.more is None else samples(drawn.more, axis=1))
    return data._replace(
        batch=jax.tree.map(samples, data.batch._replace(extras=(), carry=None)),
        next_action=samples(data.next_action),
        rows=rows._replace(alive=own * rows.alive, weight=own * rows.weight),
        block=block,
        heads=jax.tree.map(lambda table: block.among(jnp.asarray(table)), data.heads),
        living=block.among(data.living),
        drawn=drawn,
    )


def gradient(
    loss: Callable[[Any, Data], tuple[Float[Array, ""], tuple[dict[str, Array], Any]]], params: Tree, data: Data
) -> tuple[Tree, dict[str, Float[Array, " M"]], Any]:
    """Returns the gradient of a sum over all parts of a minibatch, the metrics of all members, and numbers of all samples."""
    plan = data.plan
    if plan.single:
        grads, (metrics, each) = jax.grad(loss, has_aux=True)(params, data)
        return grads, metrics, each

    def add(total: Any, at: tuple[Array, Array, Array]) -> tuple[Any, Any]:
        grads, found = jax.grad(loss, has_aux=True)(params, part_of(data, *at))
        return jax.tree.map(jnp.add, total, grads), found

    starts, stops, first = (jnp.asarray(table, jnp.int32) for table in (plan.starts, plan.stops, plan.first))
    grads, (metrics, each) = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (starts, stops, first))
    metrics = jax.tree.map(lambda parts: jnp.zeros(data.living.shape).at[plan.agents].add(parts), metrics)
    return grads, metrics, jax.tree.map(plan.joined, each)


def target_actions(config: Settings, problem: Problem, target_actor: Params | Any, batch: Transition, key: Key) -> Array:
    """Returns the next actions of all target actors, [B, N, A]."""
    plan, noise = plan_of(config, batch, problem.spec.num_agents), gumbel(key, batch.action.shape)

    def act(part: tuple[Array, Array | None, Array]) -> Array:
        next_obs, next_legal, noise = part
        raw = masked(problem.heads, offpolicy.acting_outputs(problem, target_actor, next_obs), next_legal)
        if config.estimator == "soft":
            return relaxed(problem.heads, raw, noise, config.temperature)
        return sampled(problem.heads, raw, noise)

    whole = (batch.next_obs, batch.next_legal, noise)
    if plan.single:
        return act(whole)

    def act_from(start: Int[Array, ""]) -> Array:
        return act(jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, plan.size), whole))

    return plan.joined(jax.lax.map(act_from, jnp.asarray(plan.starts, jnp.int32)))


def standardised(problem: Problem, moments: Moments | None, data: Data) -> tuple[Moments | None, Data]:
    """Returns the moments of the set's rewards after another minibatch, and the minibatch with standardised rewards."""
    rows = data.rows
    moments = offpolicy.add_rewards(offpolicy.mean_over(problem.axis), moments, rows.reward, rows.alive)
    return moments, data._replace(rows=rows._replace(reward=offpolicy.standardised(moments, rows.reward)))


def target(config: Settings, roles: np.ndarray, critics: Critics, data: Data) -> Float[Array, "B K"]:
    """Returns r + γ Q' of the agents that learn, with the smallest of the critics' values of what follows."""
    activation, batch, rows = config.critic_activation, data.batch, data.rows
    pools = [pool(critic, activation, roles, batch.next_obs, data.next_action) for critic in critics]
    found = [q(critic, activation, later, data.block) for critic, later in zip(critics, pools, strict=True)]
    next_q = reduce(jnp.minimum, found)
    discount = config.gamma if batch.discount is None else jnp.broadcast_to(batch.discount[:, None], next_q.shape)
    return td_target(rows.reward, rows.terminated, next_q, discount)


def critic_loss(
    config: Settings, roles: np.ndarray, targets: Critics, critics: Critics, data: Data
) -> tuple[Float[Array, ""], tuple[dict[str, Float[Array, " K"]], Any]]:
    """Returns the sum over critics and agents of the mean of (Q_i(o, a) − y_i)² over living samples; metrics; TD errors."""
    activation, batch, rows = config.critic_activation, data.batch, data.rows
    y = target(config, roles, targets, data)
    found = [q(critic, activation, pool(critic, activation, roles, batch.obs, batch.action), data.block) for critic in critics]
    losses = [_per_living(data, rows.weight * (each - y) ** 2) for each in found]
    metrics = {
        "critic_loss": sum(losses) / len(losses),
        "q": _per_living(data, rows.alive * sum(found) / len(found)),
        "td_target": _per_living(data, rows.alive * y),
    }
    errors = reduce(jnp.maximum, [rows.alive * jnp.abs(each - y) for each in found])
    return jnp.sum(sum(losses)), (metrics, (errors, rows.alive))


def actor_loss(
    config: Settings, roles: np.ndarray, critic: SetCritic, actor: Params, data: Data
) -> tuple[Float[Array, ""], tuple[dict[str, Float[Array, " K"]], Any]]:
    """Returns the sum over agents of −Q_i(o, a | a_i = μ_i(o_i)), plus the cost of large outputs; and each of them."""
    batch, rows, activation = data.batch, data.rows, config.critic_activation
    assert data.drawn is not None
    everyone = pool(critic, activation, roles, batch.obs, batch.action)
    raw = mlp(actor, flat(rows.obs)).reshape(*rows.obs.shape[:-1], -1)
    action = estimated_rows(config, data.heads, masked(data.heads, raw, rows.legal), data.drawn)
    found = q_with_own_actions(critic, activation, roles, everyone, data.block, action)
    losses = _per_living(data, rows.alive * (config.logit_cost * _squares(data, raw) - found))
    return jnp.sum(losses), ({"actor_loss": losses}, ())


def _squares(data: Data, raw: Float[Array, "B K A"]) -> Float[Array, "B K"]:
    """Returns the mean square of the real and legal outputs."""
    mask, legal = data.heads.mask, data.rows.legal
    counts = jnp.ones(raw.shape, bool) if mask is None else jnp.broadcast_to(mask, raw.shape)
    counts = counts if legal is None else counts & legal
    return jnp.sum(jnp.where(counts, raw**2, 0.0), axis=-1) / jnp.maximum(jnp.sum(counts, axis=-1), 1)


def _per_living(data: Data, weighted: Float[Array, "B K"]) -> Float[Array, " K"]:
    """Returns what a part adds to means over living samples, given numbers that are zero for the others."""
    return jnp.sum(weighted, axis=0) / jnp.maximum(data.living, 1e-6)


def make(
    init: Any,
    update_agent: offpolicy.UpdateAgent,
    update_set: UpdateSet,
    metrics: tuple[str, ...],
    config: Settings,
    spec: Spec,
    sees: np.ndarray,
    axis: str | None = None,
    ensemble: tuple[int, ...] = (),
) -> Algorithm:
    """Returns `exploration.make`'s algorithm, which learns by `update` of this module."""
    if config.critic == "attention" and not sees.all():
        raise UsageError("--critic attention sees all agents: leave it out beside ddpg.")
    algo = exploration.make(init, update_agent, metrics, config, spec, sees, axis, ensemble)
    if config.critic == "joint":
        return algo
    return algo._replace(update=partial(update, update_agent, update_set, config, Problem(spec, heads_of(spec), sees, axis)))


def update(
    update_agent: offpolicy.UpdateAgent,
    update_set: UpdateSet,
    config: Settings,
    problem: Problem,
    agents: Any,
    batch: Transition,
    key: Key,
) -> tuple[Any, Metrics]:
    """Returns all agents after one update: each by `update_agent`, or all sets at once if one critic reads all agents."""
    if config.critic == "attention":
        return update_sets(update_set, config, problem, agents, batch, key)
    return offpolicy.update(update_agent, config, problem, agents, batch, key)


def update_sets(
    update_set: UpdateSet, config: Settings, problem: Problem, agents: Any, batch: Transition, key: Key
) -> tuple[Any, Metrics]:
    """Returns all sets of parameters after one update, each by `update_set`."""
    problem = offpolicy.with_networks(config, problem)
    shared, roles = problem.sharing, role_table(problem.spec)
    assert shared is not None
    key_target, key_actor = jax.random.split(key)
    next_action = target_actions(config, problem, agents.target_actor, batch, key_target)
    moved, found = [], []
    for m in range(shared.num_sets):
        own = jax.tree.map(lambda leaf, m=m: leaf[m], agents)
        data = data_of(config, problem, shared, batch, next_action, m)
        agent, metrics = update_set(config, problem, roles, own, data, jax.random.fold_in(key_actor, m))
        moved.append(agent)
        found.append(metrics)
    order = np.argsort(np.concatenate(shared.members))
    metrics = {name: jnp.concatenate([one[name] for one in found])[order] for name in found[0]}
    agents = jax.tree.map(lambda *leaves: jnp.stack(leaves), *moved)
    return agents, offpolicy.gather(config, problem, batch, metrics)


def train_critics(
    config: Settings, problem: Problem, roles: np.ndarray, critics: Critics, targets: Critics, opts: tuple[Any, ...], data: Data
) -> tuple[Any, Any, dict[str, Array]]:
    """Returns a set's critics after one step towards the same targets, their optimisers, and metrics."""
    grads, metrics, each = gradient(partial(critic_loss, config, roles, targets), critics, data)
    grads, metrics = offpolicy.mean_over(problem.axis)((grads, metrics))
    lr = config.critic_lr or config.lr
    stepped = [offpolicy.descend(config, lr, *one) for one in zip(critics, grads, opts, strict=True)]
    critics, opts = zip(*stepped, strict=True)
    return critics, opts, metrics if data.batch.weight is None else metrics | {TD_ERRORS: _errors_of_all(data, *each)}


def _errors_of_all(data: Data, errors: Float[Array, "B K"], alive: Float[Array, "B K"]) -> Float[Array, "M B"]:
    """Returns the TD errors of all members; of those that did not learn from a sample, the mean of those that did."""
    if data.plan.count == data.block.members.size:
        return errors.T
    mean = jnp.sum(errors, axis=1, keepdims=True) / jnp.maximum(jnp.sum(alive, axis=1, keepdims=True), 1)
    return (data.rows.alive * mean).T


def actor_gradient(
    config: Settings, problem: Problem, roles: np.ndarray, own: Any, critic: SetCritic | Any, data: Data, key: Key
) -> tuple[Params, Float[Array, " M"]]:
    """Returns the gradient of a set's actor and the losses of its agents, both still those of this device's samples."""
    shape = (len(data.batch.obs), data.plan.count, problem.spec.act_size)
    data = data._replace(drawn=draw(config, key, shape, offpolicy.steps_of(own.actor_opt)))
    grads, metrics, _ = gradient(partial(actor_loss, config, roles, critic), own.actor, data)
    return grads, metrics["actor_loss"]
