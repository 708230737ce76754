"""MAPPO (Yu et al. 2022, arXiv:2103.01955, Algorithm 1) and IPPO (de Witt et al. 2020, arXiv:2011.09533).

for each step:      a_i ~ π_i(o_i);  keep the rollout
once per rollout:   Â_i = GAE(λ) with V_i,  R_i = Â_i + V_i;  the normaliser of V_i sees R_i
epochs × minibatches, for each agent:
    ρ = π_i(a_i | o_i) / π_i,old(a_i | o_i)
    ascend min(ρ Â, clip(ρ, 1 ± ε) Â) + entropy                                           actor
    descend max(h(V_i − R_i), h(clip(V_i, V_i,old ± ε) − R_i)),  h Huber's loss           critic

V_i reads the observations of the agents that critic i sees: of all (MAPPO) or its own alone (IPPO). Nothing else differs.
Differences from the authors' code: log π_old and V_old are computed once before the first epoch, by the networks that acted,
instead of recorded while acting; the normaliser counts rollouts, not minibatches, and rescales the last layer of the critic
(PopArt, Hessel et al. 2019) so that its values stay what they were; the value of a time limit's last state is bootstrapped;
an agent that has died is left out of all losses, and while its team plays on its future is what its teammates expect.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos import onpolicy, sharing
from counterpoint.algos.base import Actors, Algorithm, Carry, Entry, Metrics, Rollout
from counterpoint.algos.offpolicy import one_by_one
from counterpoint.algos.onpolicy import (
    Network,
    Problem,
    agent_means,
    as_rows,
    columns,
    learning,
    next_columns,
    run_columns,
    sharing_of,
)
from counterpoint.algos.sharing import Share, Sharing
from counterpoint.core.actions import Heads, gumbel, heads_of, masked, sampled
from counterpoint.core.checks import above, at_least, fraction
from counterpoint.core.nets import Params
from counterpoint.core.ops import Moments, clip_by_norm, masked_mean
from counterpoint.core.spaces import Box, Spec
from counterpoint.core.types import Key, Transition

LOWEST_LOG_STD, HIGHEST_LOG_STD = -5.0, 2.0
"""Bounds of the Gaussian heads' learnt widths."""


@dataclass(frozen=True)
class Config(onpolicy.Settings):
    """Hyperparameters; the defaults solve `switch2` and learn the particle worlds."""

    lr: float = 7e-4
    """Adam step size of the actors."""
    critic_lr: float = 7e-4
    """Adam step size of the critics."""
    lr_steps: int = 0
    """Environment steps over which the step sizes fall linearly to zero (0: they stay constant)."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.95
    """λ of the advantages (0: one reward and the next value; 1: all rewards of the rollout)."""
    epochs: int = 5
    """Passes over each rollout."""
    minibatches: int = 8
    """Parts into which each pass divides the rollout; every part is one gradient step."""
    clip_ratio: float = 0.2
    """ε of the clipped policy loss: how far the probability of an action may move per rollout and still gain."""
    clip_value: float = 0.2
    """ε of the clipped value loss, in units of the normalised value (0: no clipping)."""
    huber: float = 10.0
    """Error at which the value loss changes from quadratic to linear (0: always quadratic)."""
    value_norm: Literal["popart", "running", "none"] = "popart"
    """Normalise the critics' targets by their running moments, with the last layer rescaled (popart) or not (running)."""
    value_decay: float = 0.999
    """Share of the running moments that remains after each rollout."""
    norm: Literal["none", "layer"] = "none"
    """Normalise the hidden layers of actors and critics over their units."""
    policy_gain: float = 0.01
    """Gain of the orthogonal initial weights of the actors' last layers."""
    std_start: float = 0.5
    """Initial standard deviation of continuous actions, whose range is −1 to 1; it is learnt from there."""
    share: Share = "none"
    """Give every agent an actor and a critic of its own, or let the agents of a role, or all agents, share them."""
    recurrent: bool = False
    """Make the last hidden layer of actors and critics a gated recurrent unit, which remembers the episode."""
    normalise_advantages: bool = True
    """Shift and scale the advantages of each agent to mean 0 and variance 1 in each rollout."""
    clip: float = 10.0
    """Largest gradient norm of a network (0: no limit)."""
    entropy_start: float = 0.01
    """Initial weight of the policy's entropy in the actor's loss."""
    entropy_end: float = 0.01
    """Final weight of the policy's entropy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "epochs", "minibatches")
        at_least(self, 0, "lr_steps", "clip_value", "huber", "policy_gain")
        above(self, 0, "clip_ratio", "std_start")
        fraction(self, "gae_lambda", "value_decay")

    def rate(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Returns what the step sizes are multiplied by at an environment step."""
        return jnp.asarray(optax.linear_schedule(1.0, 0.0, self.lr_steps)(step)) if self.lr_steps else jnp.ones(())

    def entropy_cost(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Returns the weight of the entropy at an environment step."""
        return jnp.asarray(optax.linear_schedule(self.entropy_start, self.entropy_end, self.entropy_steps)(step))


class Actor(NamedTuple):
    """The policies of all agents."""

    network: Network
    log_std: Float[Array, "N A"] | None
    """The logarithms of continuous actions' standard deviations; None if all actions are discrete."""


class Nets(NamedTuple):
    """What learns; leaves are [N, …], or [M, …] where agents share M sets."""

    actor: Actor
    critic: Network


class Agents(NamedTuple):
    """The state of the learner."""

    nets: Nets
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    returns: Moments
    """[N], or [M] if shared: what the value normaliser has seen. `count` is the weight that decay leaves to it."""
    rewards: Moments | None
    """[N]: moments of the rewards so far, if they are standardised."""
    step: Int[Array, ""]
    """Environment steps so far: the position in the schedules."""


class Acting(NamedTuple):
    """The part of the agents that acting needs: the critics too if they have something to remember."""

    actor: Actor
    critic: Network | None


class Hidden(NamedTuple):
    """What recurrent actors and critics remember: [*b, N, H]."""

    actor: Float[Array, "*b N H"]
    critic: Float[Array, "*b N H"]


# --- What critics see.


def is_joint(problem: Problem) -> bool:
    """Returns whether some critic sees more than its own agent."""
    return problem.sees is not None and not np.array_equal(problem.sees, np.eye(len(problem.sees), dtype=bool))


def visible(problem: Problem, sharers: Sharing | None) -> np.ndarray:
    """Returns [N, I]: 1 where an entry of a critic's input is real and the critic sees it."""
    spec, sees = problem.spec, problem.sees
    if sees is None or not is_joint(problem):
        return spec.obs_mask.astype(np.float32)
    seen = sees[:, :, None] & spec.obs_mask[None]
    seen = seen if sharers is None else sharing.listed_own_first(seen)
    return seen.reshape(spec.num_agents, -1).astype(np.float32)


class View(NamedTuple):
    """One agent's view of a minibatch in columns, [*t, …, B]: `t` is time if networks are recurrent, otherwise nothing."""

    obs: Float[Array, "*t O B"]
    inputs: Float[Array, "*t I B"]
    """What the critics see of all agents, or the agent's own observation."""
    action: Float[Array, "*t A B"]
    legal: Bool[Array, "*t A B"] | None
    done: Bool[Array, "*t B"] | None
    start: Any
    """`Hidden` at the start of the rollout, [B, H] each; empty without recurrence."""
    heads: Heads
    """The agent's row of the tables."""
    index: Float[Array, " N"] | None
    """The agent's index as a one-hot vector, if networks read it."""
    order: Int[Array, " N"] | None
    """The agents in the order in which a shared joint critic lists them: itself first. None if critics are not shared."""
    visible: Float[Array, " I"] | None
    """1 where the critic sees an input; None if it sees all."""


def axes(view: View) -> View:
    """Returns which axis of each array belongs to agents, for `vmap`: the first, but joint inputs and endings have none."""
    shared_inputs = view.inputs.ndim < view.obs.ndim
    every = jax.tree.map(lambda _: 0, view)
    return every._replace(inputs=None if shared_inputs else 0, done=None)


def view_of(
    config: Config, problem: Problem, obs: Array, seen: Array, action: Array, legal: Any, done: Any, start: Any
) -> View:
    """Returns the view of all agents, [N, …], of rows: [B, N, …], or [B, T, N, …] if recurrent; `seen` is for the critics."""
    turn, n = partial(columns, config.recurrent), problem.spec.num_agents
    own, joint = turn(obs), is_joint(problem)
    inputs = turn(seen)
    if joint:  # agents side by side
        inputs = jnp.moveaxis(inputs, 0, -3)
        inputs = inputs.reshape(*inputs.shape[:-3], -1, inputs.shape[-1])
    sees_all = not joint or (problem.sees is not None and problem.sees.all())
    sharers = sharing_of(config, problem.spec)
    return View(
        obs=own,
        inputs=inputs,
        action=turn(action),
        legal=None if legal is None else turn(legal),
        done=done.T if config.recurrent else None,
        start=jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), start),
        heads=problem.heads,
        index=jnp.eye(n) if sharers is not None and sharers.ids else None,
        order=jnp.asarray(sharing.own_first(n)) if sharers is not None and joint else None,
        visible=None if sees_all else jnp.asarray(visible(problem, sharers)),
    )


def with_index(index: Float[Array, " N"] | None, x: Float[Array, "*t I B"]) -> Float[Array, "*t J B"]:
    """Returns the inputs of a network, followed by the agent's index if it reads that."""
    if index is None:
        return x
    return jnp.concatenate([x, jnp.broadcast_to(index[:, None], (*x.shape[:-2], index.size, x.shape[-1]))], axis=-2)


def log_policy(actor: Actor, view: View) -> tuple[Float[Array, "*t B"], Float[Array, "*t B"]]:
    """Returns log π of one agent's actions and the entropy of π."""
    start = view.start.actor if view.start else ()
    raw, _ = run_columns(actor.network, with_index(view.index, view.obs), start, view.done)
    return onpolicy.log_policy(view.heads, raw, within_bounds(actor.log_std), view.action, view.legal)


def within_bounds(log_std: Any) -> Any:
    """Returns the logarithms of the widths of continuous actions [*n, A], of JAX or NumPy; None if there are none."""
    return None if log_std is None else jnp.clip(log_std, LOWEST_LOG_STD, HIGHEST_LOG_STD)


def widths(config: Config, spec: Spec, actor: Actor) -> Float[Array, "N A"] | None:
    """Returns `within_bounds` of every agent."""
    sharers, log_std = sharing_of(config, spec), within_bounds(actor.log_std)
    return log_std if sharers is None or log_std is None else sharing.expanded(sharers, log_std)


def critic_inputs(view: View, inputs: Float[Array, "*t I B"]) -> Float[Array, "*t J B"]:
    """Returns what one agent's critic reads."""
    if view.order is not None:
        agents = inputs.reshape(*inputs.shape[:-2], view.order.size, -1, inputs.shape[-1])
        inputs = jnp.take(agents, view.order, axis=-3).reshape(inputs.shape)
    if view.visible is not None:
        inputs = inputs * jnp.broadcast_to(view.visible[:, None], inputs.shape)
    return with_index(view.index, inputs)


def critic_values(critic: Network, view: View) -> tuple[Float[Array, "*t B"], Any]:
    """Returns the normalised values of one agent, and its hidden states after each step."""
    start = view.start.critic if view.start else ()
    values, after = run_columns(critic, critic_inputs(view, view.inputs), start, view.done)
    return values[..., 0, :], after


# --- Losses.


class Sample(NamedTuple):
    """What the losses compare with: arrays in rows [R, N], or [E, T, N] if recurrent; [*t, B] for one agent's minibatch."""

    log_pi: Float[Array, "*b"]
    """log π of the actions under the policy that took them."""
    advantage: Float[Array, "*b"]
    value: Float[Array, "*b"]
    """The normalised value before the first gradient step."""
    target: Float[Array, "*b"]
    """The normalised return."""
    counts: Bool[Array, "*b"]
    """Where there is something to learn."""


def policy_gain(
    clip_ratio: float, log_pi: Float[Array, "*b"], old: Float[Array, "*b"], advantage: Float[Array, "*b"]
) -> Float[Array, "*b"]:
    """Returns min(ρ Â, clip(ρ, 1 ± ε) Â): nothing is gained by moving a probability further than ε."""
    ratio = jnp.exp(log_pi - old)
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip_ratio, 1 + clip_ratio) * advantage)


def value_error(
    config: Config, value: Float[Array, "*b"], old: Float[Array, "*b"], target: Float[Array, "*b"]
) -> Float[Array, "*b"]:
    """Returns Huber's loss of the value, or of the value clipped to the old one ± ε if that is larger."""
    error = huber(config.huber, value - target)
    if not config.clip_value:
        return error
    near = old + jnp.clip(value - old, -config.clip_value, config.clip_value)
    return jnp.maximum(error, huber(config.huber, near - target))


def huber(limit: float, error: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Returns e²/2, and beyond the limit δ the line δ (|e| − δ/2) that continues it; always e²/2 if the limit is 0."""
    if not limit:
        return error**2 / 2
    size = jnp.abs(error)
    return jnp.where(size <= limit, error**2 / 2, limit * (size - limit / 2))


LOSSES = ("critic_loss", "actor_loss", "entropy", "kl", "clipped")


def loss(
    config: Config, nets: Nets, view: View, sample: Sample, entropy_cost: Float[Array, ""]
) -> tuple[Float[Array, ""], tuple[Float[Array, ""], ...]]:
    """Returns the sum of one agent's two losses, which have no weight in common, and its metrics `LOSSES`."""
    log_pi, entropies = log_policy(nets.actor, view)
    value, _ = critic_values(nets.critic, view)
    mean = partial(masked_mean, mask=sample.counts)
    entropy = mean(entropies)
    actor_loss = -mean(policy_gain(config.clip_ratio, log_pi, sample.log_pi, sample.advantage)) - entropy_cost * entropy
    critic_loss = mean(value_error(config, value, sample.value, sample.target))
    moved = log_pi - sample.log_pi
    kl = mean(jnp.exp(moved) - 1 - moved)
    clipped = mean((jnp.abs(jnp.exp(moved) - 1) > config.clip_ratio).astype(jnp.float32))
    return actor_loss + critic_loss, (critic_loss, actor_loss, entropy, kl, clipped)


# --- The value normaliser.


def scale_of(moments: Moments) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """Returns the mean and standard deviation of the returns so far; 0 and 1 before the first."""
    fresh = moments.count == 0
    return jnp.where(fresh, 0.0, moments.mean), jnp.where(fresh, 1.0, jnp.sqrt(jnp.maximum(moments.variance, 1e-4)))


def see_returns(
    config: Config,
    moments: Moments,
    target: Float[Array, "T E N"],
    alive: Bool[Array, "T E N"],
    sharers: Sharing | None = None,
) -> Moments:
    """Returns the moments after another rollout: every earlier rollout weighs `value_decay` times what it weighed."""
    if sharers is None:
        some, mean, variance = moments_of(target, alive)
    else:
        pooled = [moments_of(*(x[..., own].reshape(-1, 1, 1) for x in (target, alive))) for own in sharers.members]
        some, mean, variance = (jnp.concatenate(parts) for parts in zip(*pooled, strict=True))
    count = config.value_decay * moments.count
    share, gap = some / jnp.maximum(count + some, 1e-6), mean - moments.mean
    return Moments(
        count=count + some,
        mean=moments.mean + share * gap,
        variance=(1 - share) * moments.variance + share * variance + share * (1 - share) * gap**2,
    )


def moments_of(target: Float[Array, "T E N"], alive: Bool[Array, "T E N"]) -> tuple[Array, Array, Array]:
    """Returns whether anybody lived, and mean and variance over the living, of each agent."""
    mean = agent_means(target, alive)
    variance = agent_means((target - jnp.broadcast_to(mean, target.shape)) ** 2, alive)
    return jnp.any(alive, axis=(0, 1)).astype(jnp.float32), mean, variance


def rescaled(critic: Network, before: Moments, after: Moments) -> Network:
    """Returns critics whose values, in units of the rewards, are the same under the new moments (PopArt)."""
    (old_mean, old_std), (mean, std) = scale_of(before), scale_of(after)
    fresh = before.count == 0  # nothing is known yet: values start near the mean of the returns
    factor = jnp.where(fresh, 1.0, old_std / std)
    shift = jnp.where(fresh, 0.0, (old_mean - mean) / std)
    *rest, last = critic.body if critic.head is None else critic.head
    last = last._replace(
        weight=last.weight * jnp.broadcast_to(factor[:, None, None], last.weight.shape),
        bias=last.bias * jnp.broadcast_to(factor[:, None], last.bias.shape) + jnp.broadcast_to(shift[:, None], last.bias.shape),
    )
    return critic._replace(body=(*rest, last)) if critic.head is None else critic._replace(head=(*rest, last))


# --- One rollout.

METRICS = (*LOSSES, "value", "td_target")


class Judged(NamedTuple):
    """What the networks that acted say about a rollout: [T, E, N]."""

    log_pi: Float[Array, "T E N"]
    value: Float[Array, "T E N"]
    """Normalised, like the next one."""
    next_value: Float[Array, "T E N"]


class Targets(NamedTuple):
    """What a rollout teaches."""

    advantage: Float[Array, "T E N"]
    """In units of the rewards."""
    value: Float[Array, "T E N"]
    """What the critic says now, normalised."""
    target: Float[Array, "T E N"]
    """What it should say, normalised."""
    nets: Nets
    returns: Moments


def per_agent(sharers: Sharing | None, function: Any, nets: Any, view: View, *rest: Any) -> Any:
    """Returns the function of all agents: (network or networks of the agent, its view, its part of the rest)."""
    nets, own = sharing.by_agent(sharers, nets)
    return jax.vmap(one_by_one(function), in_axes=(own, axes(view), *(0 for _ in rest)))(nets, view, *rest)


def seen_now(config: Config, batch: Transition) -> Float[Array, "T E N O"]:
    """Returns observations as critics read them: zero for those who have died, unless critics remember.

    Recurrent critics follow the episode while acting, where nobody tells them who has died.
    """
    return batch.obs if config.recurrent else jnp.where(batch.alive[..., None], batch.obs, 0.0)


def judge(config: Config, problem: Problem, nets: Nets, batch: Transition) -> Judged:
    """Returns log-probabilities and values of a rollout [T, E, …] before learning changes the networks."""
    row = partial(as_rows, config.recurrent)
    playing = onpolicy.playing_on(batch)
    next_seen = batch.next_obs if config.recurrent else jnp.where(playing[..., None], batch.next_obs, 0.0)
    start = jax.tree.map(lambda leaf: leaf[0], batch.carry) if config.recurrent else ()
    legal = None if batch.legal is None else row(batch.legal)
    view = view_of(
        config, problem, row(batch.obs), row(seen_now(config, batch)), row(batch.action), legal, row(batch.done), start
    )
    later = view_of(config, problem, row(batch.obs), row(next_seen), row(batch.action), legal, row(batch.done), start)

    def one(nets: Nets, view: View, next_inputs: Any) -> tuple[Any, Any, Any]:
        log_pi, _ = log_policy(nets.actor, view)
        value, after = critic_values(nets.critic, view)
        following = next_columns(nets.critic, critic_inputs(view, next_inputs), after)[..., 0, :]
        return log_pi, value, following

    every, own = sharing.by_agent(sharing_of(config, problem.spec), nets)
    judged = jax.vmap(one_by_one(one), in_axes=(own, axes(view), axes(later).inputs))(every, view, later.inputs)
    shape = batch.alive.shape
    return Judged(*(jnp.moveaxis(part, 0, -1).reshape(shape) for part in judged))


def update(config: Config, problem: Problem, agents: Agents, batch: Transition, key: Key) -> tuple[Agents, Metrics]:
    """Returns the agents after one rollout [T, E, …]: several passes over its minibatches in random order."""
    batch = batch._replace(action=jnp.where(batch.alive[..., None], batch.action, 0.0))  # finished agents do not act
    rewards, reward = onpolicy.see_rewards(problem, agents.rewards, batch)
    judged = judge(config, problem, agents.nets, batch)
    advantage, value, target, nets, returns = targets(config, problem, agents, batch, reward, judged)
    if config.normalise_advantages:
        advantage = standardised(advantage, learning(batch))

    row = partial(as_rows, config.recurrent)
    sample = Sample(*(row(part) for part in (judged.log_pi, advantage, value, target, learning(batch))))
    start = jax.tree.map(lambda leaf: leaf[0], batch.carry) if config.recurrent else ()
    legal = None if batch.legal is None else row(batch.legal)
    whole = (row(batch.obs), row(seen_now(config, batch)), row(batch.action), legal, row(batch.done), start, sample)
    rate, entropy_cost = config.rate(agents.step), config.entropy_cost(agents.step)
    n, sharers = problem.spec.num_agents, sharing_of(config, problem.spec)

    def step(state: tuple[Nets, Any, Any], rows: Array) -> tuple[tuple[Nets, Any, Any], tuple[Array, ...]]:
        nets, actor_opt, critic_opt = state
        *seen, part = onpolicy.unpack(whole, rows)
        mine = jax.tree.map(partial(columns, config.recurrent), part)
        gradient = jax.grad(partial(loss, config), has_aux=True)
        costs = jnp.broadcast_to(entropy_cost, (n,))
        grads, metrics = per_agent(sharers, gradient, nets, view_of(config, problem, *seen), mine, costs)
        if sharers is not None:
            grads = sharing.averaged(sharers, grads)
        actor, actor_opt = descend(config, rate * config.lr, nets.actor, grads.actor, actor_opt)
        critic, critic_opt = descend(config, rate * config.critic_lr, nets.critic, grads.critic, critic_opt)
        return (Nets(actor, critic), actor_opt, critic_opt), metrics

    packed = onpolicy.pack(whole)

    def epoch(state: tuple[Nets, Any, Any], key: Key) -> tuple[tuple[Nets, Any, Any], tuple[Array, ...]]:
        return jax.lax.scan(step, state, onpolicy.shuffled(packed, config.minibatches, key))

    state = (nets, agents.actor_opt, agents.critic_opt)
    (nets, actor_opt, critic_opt), metrics = jax.lax.scan(epoch, state, jax.random.split(key, config.epochs))
    moved = Agents(nets, actor_opt, critic_opt, returns, rewards, agents.step + batch.done.size)
    means = [jnp.mean(part, axis=(0, 1)) for part in metrics]
    mean, std = over(target, scale_of(returns), sharers)
    means += [agent_means(part * std + mean, learning(batch)) for part in (value, target)]
    return moved, dict(zip(METRICS, means, strict=True))


def targets(
    config: Config, problem: Problem, agents: Agents, batch: Transition, reward: Float[Array, "T E N"], judged: Judged
) -> Targets:
    """Returns advantages and returns of a rollout, and the networks and their normaliser after it has seen the returns."""
    sharers = sharing_of(config, problem.spec)
    mean, std = over(reward, scale_of(agents.returns), sharers)
    kind = onpolicy.Returns(config.gamma, config.gae_lambda)
    value = judged.value * std + mean
    target = onpolicy.own_returns(kind, problem, batch, reward, judged.next_value * std + mean)
    advantage, returns, nets, old = target - value, agents.returns, agents.nets, judged.value
    if config.value_norm != "none":
        returns = see_returns(config, agents.returns, target, learning(batch), sharers)
        mean, std = over(reward, scale_of(returns), sharers)
    if config.value_norm == "popart":
        nets = nets._replace(critic=rescaled(nets.critic, agents.returns, returns))
        (fresh,) = over(reward, (agents.returns.count == 0,), sharers)
        old = jnp.where(fresh, old, (value - mean) / std)
    return Targets(advantage, old, (target - mean) / std, nets, returns)


def over(like: Float[Array, "T E N"], numbers: tuple[Array, ...], sharers: Sharing | None) -> tuple[Array, ...]:
    """Returns numbers [N], or [M] if agents share them, for every step of a rollout."""
    numbers = numbers if sharers is None else sharing.expanded(sharers, numbers)
    return tuple(jnp.broadcast_to(number, like.shape) for number in numbers)


def standardised(advantage: Float[Array, "T E N"], alive: Bool[Array, "T E N"]) -> Float[Array, "T E N"]:
    """Returns advantages whose mean is 0 and whose variance is 1 for each agent."""
    centred = advantage - jnp.broadcast_to(agent_means(advantage, alive), advantage.shape)
    return onpolicy.normalised(centred, alive)


def descend(config: Config, lr: Float[Array, ""], params: Any, grads: Any, opt: optax.OptState) -> tuple[Any, optax.OptState]:
    """Returns stacked networks after one step of Adam, with the gradient of each network clipped by its own norm."""
    grads = jax.vmap(lambda grads: clip_by_norm(grads, config.clip, per_variable=False))(grads)
    updates, opt = adam().update(grads, opt)
    return jax.tree.map(lambda leaf, move: leaf - lr * move, params, updates), opt


def adam() -> Any:
    """Returns Adam without a step size, loosely typed: optax's annotations do not admit our parameters."""
    return optax.scale_by_adam(eps=1e-5)


# --- All agents.


def init(config: Config, problem: Problem, key: Key) -> Agents:
    """Returns fresh agents: orthogonal weights, policies close to uniform or centred."""
    spec = problem.spec
    sharers = sharing_of(config, spec)
    inputs = (spec.obs_mask, visible(problem, sharers))
    obs_mask, seen_mask, act_mask = (np.asarray(mask, np.float32) for mask in (*inputs, spec.act_mask))
    if sharers is not None:
        obs_mask, seen_mask = (sharing.union(sharers, mask) for mask in (obs_mask, seen_mask))
        act_mask = sharing.union(sharers._replace(ids=False), act_mask)

    def one(keys: Key, obs: Array, seen: Array, outputs: Array) -> tuple[Network, Network]:
        actor = onpolicy.init_network(config, keys[0], obs, outputs, config.norm)
        critic = onpolicy.init_network(config, keys[1], seen, jnp.ones(1), config.norm)
        return onpolicy.orthogonal(actor, config.policy_gain), onpolicy.orthogonal(critic, 1.0)

    keys = jax.random.split(key, (obs_mask.shape[0], 2))
    actor, critic = jax.vmap(one)(keys, *map(jnp.asarray, (obs_mask, seen_mask, act_mask)))
    boxes = any(isinstance(space, Box) for space in spec.action_spaces)
    log_std = jnp.full(act_mask.shape, jnp.log(config.std_start)) if boxes else None
    nets = Nets(Actor(actor, log_std), critic)
    none_seen = jnp.zeros(obs_mask.shape[0])
    return Agents(
        nets=nets,
        actor_opt=adam().init(nets.actor),
        critic_opt=adam().init(nets.critic),
        returns=Moments(none_seen, none_seen, none_seen),
        rewards=onpolicy.fresh_moments(config, spec),
        step=jnp.zeros((), jnp.int32),
    )


def begin(config: Config, spec: Spec) -> Carry:
    """Returns what one environment's agents remember at the start of an episode: nothing."""
    hidden = onpolicy.begin(config, spec)
    return Hidden(hidden, hidden) if config.recurrent else ()


def outputs(
    config: Config, problem: Problem, acting: Acting, carry: Carry, obs: Float[Array, "E N O"], follow: bool
) -> tuple[Float[Array, "E N A"], Carry]:
    """Returns the outputs of all actors and the carry; if told to `follow`, recurrent critics read the observations too."""
    spec = problem.spec
    if not config.recurrent:
        return onpolicy.policy(config, spec, acting.actor.network, (), obs)
    raw, hidden = onpolicy.policy(config, spec, acting.actor.network, carry.actor, obs)
    carry = carry._replace(actor=hidden)
    if follow and acting.critic is not None:
        seen = obs
        if is_joint(problem):
            sharers, shape = sharing_of(config, spec), (*obs.shape[:2], obs.shape[1] * obs.shape[2])
            everything = jnp.broadcast_to(obs.reshape(obs.shape[0], 1, -1), shape)
            if sharers is not None:
                everything = obs[:, sharing.own_first(spec.num_agents)].reshape(shape)
            seen = everything * jnp.broadcast_to(jnp.asarray(visible(problem, sharers)), shape)
        carry = carry._replace(critic=onpolicy.policy(config, spec, acting.critic, carry.critic, seen)[1])
    return raw, carry


def act(
    config: Config,
    problem: Problem,
    acting: Acting,
    carry: Carry,
    obs: Float[Array, "E N O"],
    key: Key,
    step: Int[Array, ""],
    legal: Bool[Array, "E N A"] | None = None,
) -> tuple[Float[Array, "E N A"], Carry, tuple[()]]:
    """Returns actions drawn from π: one-hot vectors, or numbers clipped to [−1, 1]."""
    raw, carry = outputs(config, problem, acting, carry, obs, follow=True)
    heads = problem.heads
    key_choice, key_box = jax.random.split(key)
    action = sampled(heads, masked(heads, raw, legal), gumbel(key_choice, raw.shape))
    log_std = widths(config, problem.spec, acting.actor)
    if log_std is not None:
        shaken = jnp.clip(
            action + jnp.broadcast_to(jnp.exp(log_std), raw.shape) * jax.random.normal(key_box, raw.shape), -1.0, 1.0
        )
        action = jnp.where(jnp.broadcast_to(heads.mask & ~heads.discrete, raw.shape), shaken, action)
    return action, carry, ()


def greedy(
    config: Config,
    problem: Problem,
    acting: Acting,
    carry: Carry,
    obs: Float[Array, "E N O"],
    legal: Bool[Array, "E N A"] | None = None,
) -> tuple[Float[Array, "E N A"], Carry]:
    """Returns the likeliest choices and the centres of continuous actions."""
    raw, carry = outputs(config, problem, acting, carry, obs, follow=False)
    return sampled(problem.heads, masked(problem.heads, raw, legal), jnp.zeros_like(raw)), carry


def make(config: Config, spec: Spec, sees: np.ndarray | None = None, axis: str | None = None) -> Algorithm:
    """Returns the algorithm for a spec; `sees` [N, N] says which agents each critic sees, all if it is None."""
    sees = np.ones((spec.num_agents,) * 2, bool) if sees is None else sees
    sharers = sharing_of(config, spec)
    if sharers is not None:
        sharing.require_like_critics(sharers, sees)
    problem = Problem(spec=spec, heads=heads_of(spec), side=onpolicy.side_of(config, spec), sees=sees)
    return Algorithm(
        init=partial(init, config, problem),
        begin=lambda key: begin(config, spec),
        act=partial(act, config, problem),
        greedy=partial(greedy, config, problem),
        update=partial(update, config, problem),
        policy=lambda agents: Acting(agents.nets.actor, agents.nets.critic if config.recurrent else None),
        metrics=METRICS,
    )


def starting_from(layers: Params, algo: Algorithm) -> Algorithm:
    """Returns the algorithm with agents that begin with these perceptrons [N, …] as actors; without recurrence and sharing."""

    def init(key: Key) -> Agents:
        agents = algo.init(key)
        actor = agents.nets.actor
        shapes, wanted = (jax.tree.map(jnp.shape, found) for found in (layers, actor.network.body))
        if shapes != wanted:
            raise ValueError(f"actors of shapes {shapes} cannot start as {wanted}")
        return agents._replace(nets=agents.nets._replace(actor=actor._replace(network=Network(layers))))

    return algo._replace(init=init)


def actors(config: Config, spec: Spec, acting: Acting) -> Actors | None:
    """Returns the policy as plain networks with the widths of continuous actions, or None if that is impossible."""
    body = onpolicy.plain_actors(config, spec, acting.actor.network)
    if body is None:
        return None
    log_std = widths(config, spec, acting.actor)
    std = None if log_std is None else jnp.broadcast_to(jnp.exp(log_std), spec.act_mask.shape)
    return Actors(body, {"world_action": "one-hot"}, std)


MAPPO = Entry(
    name="mappo",
    settings=Config,
    make=make,
    memory=lambda config: Rollout(),
    training={"num_episodes": 60_000, "num_envs": 128, "update_every": 3200},
    actors=actors,
    recurrent=lambda config: config.recurrent,
)
IPPO = Entry(**{**vars(MAPPO), "name": "ippo", "critic": "own"})
ENTRIES = (MAPPO, IPPO)
