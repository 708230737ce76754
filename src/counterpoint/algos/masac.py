"""MASAC: soft actor-critic with joint critics, a temperature per agent, and exact sums over discrete choices.

The soft critics are those of Haarnoja et al. (2018, arXiv:1812.05905), centralised as in MADDPG; exact sums over choices are
from Christodoulou (2019, arXiv:1910.07207); the sequential order is that of HASAC (Liu et al. 2024, arXiv:2306.10715).

for each step:  a_i ~ π_i(o_i);  store (o, a, r, o')
for each agent: a'_j ~ π_j(o'_j) for all j
                V = Σ_c π_i(c | o'_i) (min_k Q'_ik(o', a'_−i, c) − α_i log π_i(c | o'_i))     k = 1, 2
                y = r_i + γ V
                descend (Q_ik(o, a) − y)² for both k                                          critics
                descend Σ_c π_i(c | o_i) (α_i log π_i(c | o_i) − min_k Q_ik(o, a_−i, c))      actor
                descend log α_i · (H(π_i) − target entropy)                                   temperature
                move the target critics: θ' ← τθ + (1 − τ)θ'

The critics of a discrete agent do not read its own action: they have one output for each choice c, so that the sums need no
sample. Several heads make one choice, every combination of them (at most 256). A continuous agent has a single c, of
probability 1; its action is tanh(mean + deviation · noise), critics read it, and −α_i log of its density joins V and the loss.
A mixed team is one program: the tables of `Choices` say which agent is which.

By default the other actions a_−i of the actor's loss are the replayed ones, as in MADDPG. With `--order sequential` agents
learn one after another and a_−i are drawn from the current policies, those of earlier agents already updated: HASAC's order.
The actor uses the critics as they were before their step, whose values are then known.

A continuous agent's entropy is that of actions in [−1, 1], whatever the environment's range.
"""

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos import offpolicy, recurrent
from counterpoint.algos.base import TD_ERRORS, Actors, Algorithm, Carry, Entry
from counterpoint.algos.offpolicy import Acting, Problem, View, joint
from counterpoint.core.actions import LOWEST, Heads, gumbel, heads_of, masked, sampled
from counterpoint.core.checks import above, at_least, fraction
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import COLUMNS, Params, mlp_from_first, times
from counterpoint.core.ops import Moments, polyak
from counterpoint.core.spaces import Box, Spec
from counterpoint.core.types import Key, Transition

LOG_STD = (-5.0, 2.0)
"""Bounds of the logarithm of a continuous action's deviation before tanh."""
MOST_CHOICES = 256
"""The most combinations of heads over which we sum."""


@dataclass(frozen=True)
class Config(offpolicy.Settings):
    """Hyperparameters of the off-policy family, with a smaller step, and those of the entropy."""

    lr: float = 3e-3
    """Adam step size of actors, critics and temperatures."""
    alpha: float = 0.1
    """Initial temperature: how much an agent's entropy counts beside its rewards."""
    tune_alpha: bool = True
    """Tune each agent's temperature so that its entropy approaches the target."""
    alpha_lr: float = 0.0
    """Adam step size of the temperatures (0: the same as --lr)."""
    discrete_entropy: float = 0.2
    """Target entropy of a discrete agent, as a fraction of the entropy of uniform choice among its legal actions."""
    continuous_entropy: float = -1.0
    """Target entropy of a continuous agent per number of its action (of actions in [−1, 1])."""

    def __post_init__(self) -> None:
        super().__post_init__()
        above(self, 0, "alpha")
        at_least(self, 0, "alpha_lr")
        fraction(self, "discrete_entropy")
        if not np.isfinite(self.continuous_entropy):
            raise UsageError(f"--continuous-entropy must be a finite number, not {self.continuous_entropy}.")


Twins = tuple[Params | Any, Params | Any]


class Agent(NamedTuple):
    """One agent's networks, temperature and optimisers; stacked over agents, every leaf is [N, …]."""

    actor: Params | Any
    """Outputs are logits or means [A]; if any agent is continuous, logarithms of deviations [A] follow."""
    critics: Twins
    """Outputs are the values of the agent's choices [C]."""
    target_critics: Twins
    log_alpha: Float[Array, "*n"]
    actor_opt: optax.OptState
    critic_opts: tuple[optax.OptState, optax.OptState]
    alpha_opt: optax.OptState
    rewards: Moments | None = None
    """Moments of the replayed rewards, if they are standardised."""


# --- What an agent chooses between.


class Choices(NamedTuple):
    """The choices of agents: static tables, [N, …] or one agent's. `entries` is None if every agent has one head of width A."""

    entries: Any
    """[N, C, A]: 1 at the entries of the action vector that a choice sets; a continuous agent's one choice sets none."""
    real: Any
    """[N, C]: whether a choice exists."""
    size: Any
    """[N]: how many numbers a continuous agent's action has; 0 for discrete agents."""


def choices_of(spec: Spec) -> Choices:
    """Returns the tables of a spec's action spaces."""
    sizes = np.array([space.size if isinstance(space, Box) else 0 for space in spec.action_spaces], np.float32)
    if heads_of(spec).same is None:
        return Choices(None, None, sizes)
    rows: list[list[np.ndarray]] = []
    for agent, space in zip(spec.agents, spec.action_spaces, strict=True):
        heads = () if isinstance(space, Box) else space.heads
        if (number := int(np.prod(heads, dtype=float))) > MOST_CHOICES:
            raise UsageError(
                f"masac sums over all combinations of an agent's choices, and {agent} has {number}: more than {MOST_CHOICES}"
                " are too many, choose --algorithm matd3."
            )
        rows.append([_entries_of(heads, choice, spec.act_size) for choice in product(*map(range, heads))])
    most = max(map(len, rows))
    blank = np.zeros(spec.act_size, np.float32)
    entries = np.stack([np.stack([*each, *[blank] * (most - len(each))]) for each in rows])
    return Choices(entries, np.arange(most) < np.array([len(each) for each in rows])[:, None], sizes)


def _entries_of(heads: tuple[int, ...], choice: tuple[int, ...], size: int) -> np.ndarray:
    """Returns the action vector of one index per head."""
    vector = np.zeros(size, np.float32)
    vector[[start + k for start, k in zip(np.cumsum((0, *heads)), choice, strict=False)]] = 1.0
    return vector


def has_continuous(problem: Problem) -> bool:
    """Returns whether some agent has continuous actions."""
    return any(isinstance(space, Box) for space in problem.spec.action_spaces)


class Decision(NamedTuple):
    """An agent's policy at the observations of a minibatch, and one draw from it."""

    log_pi: Float[Array, "*n C B"]
    """Log-probabilities of the choices; about −1e9 where a choice is illegal or does not exist."""
    action: Float[Array, "*n A B"]
    """A draw: one-hot vectors of a discrete agent, numbers in [−1, 1] of a continuous one."""
    log_density: Float[Array, "*n B"]
    """Of a continuous agent's draw; 0 for discrete agents."""

    @property
    def entropy(self) -> Float[Array, "*n B"]:
        """The entropy of a discrete agent; of a continuous one, an estimate from its draw."""
        return -jnp.sum(jnp.exp(self.log_pi) * self.log_pi, axis=-2) - self.log_density


class Noise(NamedTuple):
    """What a draw needs; None if no agent needs it."""

    gumbel: Float[Array, "*n A B"] | None
    normal: Float[Array, "*n A B"] | None


def noise_of(problem: Problem, key: Key, shape: tuple[int, ...]) -> Noise:
    """Returns noise for action vectors of that shape."""
    discrete = any(not isinstance(space, Box) for space in problem.spec.action_spaces)
    normal = jax.random.normal(jax.random.fold_in(key, 1), shape, jnp.float32) if has_continuous(problem) else None
    return Noise(gumbel(key, shape) if discrete else None, normal)


def decide(
    heads: Heads, choices: Choices, raw: Float[Array, "W B"], legal: Bool[Array, "A B"] | None, noise: Noise
) -> Decision:
    """Returns one agent's decision from its actor's outputs, in columns; a continuous draw is differentiable."""
    outputs, log_density = raw, jnp.zeros(raw.shape[-1], raw.dtype)
    if noise.normal is not None:
        means, log_std = jnp.split(raw, 2)
        continuous = jnp.broadcast_to((heads.mask & ~heads.discrete)[:, None], means.shape)
        log_std = jnp.clip(log_std, *LOG_STD)
        outputs = jnp.where(continuous, means + jnp.exp(log_std) * noise.normal, means)
        density = -(noise.normal**2) / 2 - log_std - np.log(2 * np.pi) / 2 - log_slope(outputs)
        log_density = jnp.sum(jnp.where(continuous, density, 0.0), axis=0)
    outputs = offpolicy.masked_columns(heads, outputs, legal)
    shaken = outputs if noise.gumbel is None else outputs + noise.gumbel
    if choices.entries is None:
        one_hot = jax.nn.one_hot(jnp.argmax(shaken, axis=0), outputs.shape[0], axis=0, dtype=outputs.dtype)
        return Decision(jax.nn.log_softmax(outputs, axis=0), one_hot, log_density)
    sums = jnp.asarray(choices.entries, outputs.dtype) @ outputs  # independent heads: the logit of a combination is a sum
    logits = jnp.where(jnp.broadcast_to(choices.real[:, None], sums.shape), sums, LOWEST)
    return Decision(jax.nn.log_softmax(logits, axis=0), sampled(heads, outputs.T, (shaken - outputs).T).T, log_density)


def log_slope(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Returns log(1 − tanh²(x)), also where tanh is 1 to rounding."""
    return 2 * (np.log(2.0) - x - jax.nn.softplus(-2 * x))


def decide_all(problem: Problem, raw: Float[Array, "N W B"], legal: Bool[Array, "N A B"] | None, noise: Noise) -> Decision:
    """Returns the decisions of all agents [N, …] from their actors' outputs."""
    return jax.vmap(decide)(problem.heads, choices_of(problem.spec), raw, legal, noise)


def chosen_of(choices: Choices, action: Float[Array, "A B"]) -> Float[Array, "C B"]:
    """Returns 1 at the choice that a replayed action was."""
    if choices.entries is None:
        return action
    entries = jnp.asarray(choices.entries, action.dtype)
    needed = jnp.where(choices.real, jnp.sum(entries, axis=1), jnp.inf)
    count = entries @ action
    return (count > jnp.broadcast_to(needed[:, None], count.shape) - 0.5).astype(action.dtype)


# --- Losses.


class Nets(NamedTuple):
    """What an agent learns."""

    actor: Params | Any
    critics: Twins
    log_alpha: Float[Array, ""]


class Known(NamedTuple):
    """What the losses of one agent read beside its view of the minibatch."""

    choices: Choices
    """The agent's row of the tables."""
    y: Float[Array, " B"]
    """The target of both critics."""
    others: Float[Array, "I B"] | None
    """The critics' input with the others' current actions; None if they are the replayed ones."""
    noise: Noise
    """For the agent's own draw."""


def values(
    problem: Problem,
    critic: Params | Any,
    inputs: Float[Array, "I B"],
    learning: bool = False,
    first: Int[Array, ""] | int = 0,
    change: Float[Array, "A B"] | None = None,
    past: tuple[Array, ...] = (),
) -> Float[Array, "C B"]:
    """Returns Q of each of the agent's choices; `change` is added to the part of the input that begins at `first`.

    A critic that remembers has read `past` in the steps before (`offpolicy.past_of`).
    """
    if past:
        read, begins = past
        before = recurrent.run(critic, read, begins, problem.length, problem.critic_activation).before
        return recurrent.step(critic, changed(inputs, first, change), before, problem.critic_activation)
    if problem.model is not None:
        return problem.model.apply(critic, changed(inputs, first, change).T).T
    product = times(critic[0].weight, inputs, COLUMNS)
    if change is not None:
        product = product + times(jax.lax.dynamic_slice_in_dim(critic[0].weight, first, change.shape[0]), change, COLUMNS)
    return mlp_from_first(critic, product, learning, COLUMNS, problem.critic_activation)


def replayed_values(problem: Problem, critic: Params | Any, view: View) -> Float[Array, "C B"]:
    """Returns Q of each of the agent's choices at the replayed steps, for learning."""
    if view.begins is None:
        return values(problem, critic, view.inputs, learning=True)
    return recurrent.run(critic, view.inputs, view.begins, problem.length, problem.critic_activation).outputs


def changed(
    inputs: Float[Array, "I B"], first: Int[Array, ""] | int, change: Float[Array, "A B"] | None
) -> Float[Array, "I B"]:
    """Returns the input with `change` added to the part that begins at `first`."""
    if change is None:
        return inputs
    own = jax.lax.dynamic_slice_in_dim(inputs, first, change.shape[0])
    return jax.lax.dynamic_update_slice_in_dim(inputs, own + change, first, axis=0)


def soft_value(decision: Decision, q: Float[Array, "C B"], alpha: Float[Array, ""]) -> Float[Array, " B"]:
    """Returns Σ_c π(c) (Q(c) − α log π(c)) − α log density: what a policy is worth, entropy included."""
    return jnp.sum(jnp.exp(decision.log_pi) * (q - alpha * decision.log_pi), axis=0) - alpha * decision.log_density


def target_value(
    problem: Problem,
    critics: Twins,
    inputs: Float[Array, "I B"],
    decision: Decision,
    log_alpha: Float[Array, ""],
    *past: Array,
) -> Float[Array, " B"]:
    """Returns the soft value of the next observations by the smaller of two critics."""

    def at_next(critic: Params | Any) -> Float[Array, "C B"]:
        return offpolicy.next_values(problem, critic, inputs, *past) if past else values(problem, critic, inputs)

    smaller = jnp.minimum(*map(at_next, critics))
    return soft_value(decision, smaller, jnp.exp(log_alpha))


def critic_loss(
    problem: Problem, critics: Twins, view: View, known: Known
) -> tuple[Float[Array, ""], tuple[Float[Array, " B"], Float[Array, " B"]]]:
    """Returns the mean of (Q_k(o, a) − y)², summed over both critics, and the values of both."""
    chosen = chosen_of(known.choices, view.action)
    both = tuple(jnp.sum(chosen * replayed_values(problem, critic, view), axis=0) for critic in critics)
    return sum(jnp.mean(view.weight * (each - known.y) ** 2) for each in both), both  # pyright: ignore[reportReturnType]


def actor_loss(
    problem: Problem, nets: Nets, view: View, known: Known
) -> tuple[Float[Array, ""], Float[Array, " B"], Float[Array, " B"]]:
    """Returns minus the mean soft value of the agent's policy, its entropy, and the entropy of uniform choice; critics and
    temperature are constants here."""
    critics, log_alpha = jax.lax.stop_gradient((nets.critics, nets.log_alpha))
    raw = offpolicy.outputs(problem, nets.actor, view.obs, learning=True, begins=view.begins)
    decision = decide(view.heads, known.choices, raw, view.legal, known.noise)
    inputs, first, change = view.inputs if known.others is None else known.others, 0, None
    if has_continuous(problem):
        continuous = jnp.broadcast_to((view.heads.mask & ~view.heads.discrete)[:, None], view.action.shape)
        first, change = view.first, jnp.where(continuous, decision.action - view.action, 0.0)
    past = offpolicy.past_of(view)
    smaller = jnp.minimum(*(values(problem, critic, inputs, True, first, change, past) for critic in critics))
    possible = jnp.sum(decision.log_pi > LOWEST / 2, axis=0)
    soft = soft_value(decision, smaller, jnp.exp(log_alpha))
    return -jnp.mean(view.alive * soft), decision.entropy, jnp.log(possible.astype(soft.dtype))


def losses(config: Config, problem: Problem, nets: Nets, view: View, known: Known) -> tuple[Float[Array, ""], Any]:
    """Returns the sum of all losses, and metrics and TD errors. No part of `nets` gets gradients from another's loss, and both
    critics and actor share the critics' first products."""
    of_critics, both = critic_loss(problem, nets.critics, view, known)
    of_actor, entropy, largest = actor_loss(problem, nets, view, known)
    target = config.discrete_entropy * largest + config.continuous_entropy * known.choices.size
    excess = jax.lax.stop_gradient(jnp.mean(view.alive * (entropy - target)))
    of_alpha = nets.log_alpha * excess if config.tune_alpha else jnp.zeros_like(excess)
    metrics = {
        "critic_loss": of_critics / 2,
        "actor_loss": of_actor,
        "q": jnp.mean(view.alive * (both[0] + both[1]) / 2),
        "td_target": jnp.mean(view.alive * known.y),
        "entropy": jnp.mean(view.alive * entropy),
    }
    errors = view.alive * jnp.maximum(*(jnp.abs(each - known.y) for each in both))
    return of_critics + of_actor + of_alpha, (metrics, errors)


METRICS = ("critic_loss", "actor_loss", "q", "td_target", "entropy", "alpha")


# --- One agent.


def update_agent(
    config: Config,
    problem: Problem,
    own: Agent,
    agents: Agent,
    mine: Transition,
    batch: Transition,
    i: Int[Array, ""],
    key: Key,
) -> tuple[Agent, dict[str, Float[Array, "*b"]]]:
    """Returns agent i after one step of its critics, actor and temperature and a move of its target critics.

    `own` is agent i of `agents`, `mine` its column of `batch`; of the other agents only the actors are read.
    """
    problem = offpolicy.with_networks(config, problem)
    key_target, key_actor = jax.random.split(key)
    mine, batch = offpolicy.in_columns(mine), offpolicy.in_columns(batch)
    view = offpolicy.view_of(problem, mine, batch, i)
    shape = batch.action.shape

    raw = offpolicy.next_outputs(problem, agents.actor, batch)
    later = decide_all(problem, raw, batch.next_legal, noise_of(problem, key_target, shape))
    next_inputs = offpolicy.seen_by(problem, joint(batch.next_obs, later.action), i)
    at_next = jax.tree.map(lambda leaf: leaf[i], later)
    next_value = offpolicy.one_by_one(partial(target_value, problem), problem)(
        own.target_critics, next_inputs, at_next, own.log_alpha, *offpolicy.past_of(view)
    )
    rewards = offpolicy.see_rewards(problem, own.rewards, mine.reward, view.alive)
    y = offpolicy.targets(config, problem, mine, batch, offpolicy.standardised(rewards, mine.reward), next_value)

    others = None
    if config.order == "sequential":
        raw = offpolicy.all_outputs(problem, agents.actor, batch.obs, batch.begins)
        now = decide_all(problem, raw, batch.legal, noise_of(problem, jax.random.fold_in(key_actor, i), shape))
        replayed = jnp.broadcast_to((jnp.arange(shape[0]) == i)[:, None, None], shape)
        others = offpolicy.seen_by(problem, joint(batch.obs, jnp.where(replayed, batch.action, now.action)), i)
    known = Known(
        choices=jax.tree.map(lambda table: jnp.asarray(table)[i], choices_of(problem.spec)),
        y=y,
        others=others,
        noise=noise_of(problem, jax.random.fold_in(key_actor, shape[0] + i), mine.action.shape)._replace(gumbel=None),
    )
    nets, opts, metrics, errors = learn(config, problem, own, view, known, i)
    agent = Agent(
        *nets[:2],
        target_critics=polyak(own.target_critics, nets.critics, config.tau),
        log_alpha=nets.log_alpha,
        **opts,
        rewards=rewards,
    )
    metrics = metrics | {"alpha": jnp.exp(own.log_alpha)}
    return agent, metrics if mine.weight is None else metrics | {TD_ERRORS: errors}


def learn(
    config: Config, problem: Problem, own: Agent, view: View, known: Known, i: Int[Array, ""]
) -> tuple[Nets, dict[str, Any], dict[str, Float[Array, ""]], Float[Array, " B"]]:
    """Returns the agent's networks after one step each, their optimisers, metrics, and the TD errors of the samples."""
    critics = tuple(offpolicy.with_averages(problem, critic, view.inputs, config.critic_activation) for critic in own.critics)
    nets = Nets(offpolicy.with_averages(problem, own.actor, view.obs), critics, own.log_alpha)  # pyright: ignore[reportArgumentType]
    (_, (metrics, errors)), grads = offpolicy.gradient(partial(losses, config, problem), problem, has_aux=True)(
        nets, view, known
    )
    grads = grads._replace(critics=tuple(offpolicy.only_visible(problem, grad, i) for grad in grads.critics))
    grads, metrics = offpolicy.per_living(problem, view, (grads, metrics))

    step = partial(offpolicy.descend, config)
    actor, actor_opt = step(config.lr, nets.actor, grads.actor, own.actor_opt)
    critic_lr, alpha_lr = config.critic_lr or config.lr, config.alpha_lr or config.lr
    first, first_opt = step(critic_lr, nets.critics[0], grads.critics[0], own.critic_opts[0])
    second, second_opt = step(critic_lr, nets.critics[1], grads.critics[1], own.critic_opts[1])
    log_alpha, alpha_opt = step(alpha_lr, nets.log_alpha, grads.log_alpha, own.alpha_opt)
    opts = {"actor_opt": actor_opt, "critic_opts": (first_opt, second_opt), "alpha_opt": alpha_opt}
    return Nets(actor, (first, second), log_alpha), opts, metrics, errors  # pyright: ignore[reportArgumentType]


def init_agent(
    config: Config,
    problem: Problem,
    key: Key,
    obs: Float[Array, " O"],
    act: Float[Array, " A"],
    seen: Float[Array, " I"],
    real: Float[Array, " C"],
    spread: Float[Array, " S"],
) -> Agent:
    """Returns one fresh agent; the arrays are 1 where entries are real (and, for the critics, visible)."""
    key_actor, *key_critics = jax.random.split(key, 3)
    actor = offpolicy.init_net(config, problem, key_actor, obs, jnp.concatenate([act, spread]))
    first, second = (offpolicy.init_net(config, problem, each, seen, real) for each in key_critics)
    log_alpha = jnp.full((), np.log(config.alpha), jnp.float32)
    start = offpolicy.adam(config, config.lr).init
    return Agent(
        actor=actor,
        critics=(first, second),
        target_critics=jax.tree.map(jnp.copy, (first, second)),
        log_alpha=log_alpha,
        actor_opt=start(actor),
        critic_opts=(start(first), start(second)),
        alpha_opt=start(log_alpha),
        rewards=offpolicy.fresh_moments(config),
    )


# --- Acting.


def act(
    config: Config,
    problem: Problem,
    policy: Acting,
    carry: Carry,
    obs: Float[Array, "E N O"],
    key: Key,
    step: Int[Array, ""],
    legal: Bool[Array, "E N A"] | None = None,
) -> tuple[Float[Array, "E N A"], Carry, tuple[()]]:
    """Returns actions drawn from the policy: one-hot vectors of discrete agents, squashed Gaussians of continuous ones."""
    outputs, log_std, carry = policy_outputs(config, problem, policy, carry, obs, legal)
    noise = noise_of(problem, key, outputs.shape)
    if noise.normal is not None:
        continuous = jnp.broadcast_to(problem.heads.mask & ~problem.heads.discrete, outputs.shape)
        outputs = jnp.where(continuous, outputs + jnp.exp(log_std) * noise.normal, outputs)
    shaken = jnp.zeros_like(outputs) if noise.gumbel is None else noise.gumbel
    return sampled(problem.heads, outputs, shaken), carry, ()


def greedy(
    config: Config,
    problem: Problem,
    policy: Acting,
    carry: Carry,
    obs: Float[Array, "E N O"],
    legal: Bool[Array, "E N A"] | None = None,
) -> tuple[Float[Array, "E N A"], Carry]:
    """Returns the most likely choices, and tanh of the means of continuous actions."""
    outputs, _, carry = policy_outputs(config, problem, policy, carry, obs, legal)
    return sampled(problem.heads, outputs, jnp.zeros_like(outputs)), carry


def begin(config: Config, problem: Problem, key: Key) -> Carry:
    """Returns what the agents of one environment remember at the start of an episode: nothing."""
    return recurrent.begin(problem.spec, config.num_units) if config.recurrent else ()


def policy_outputs(
    config: Config,
    problem: Problem,
    policy: Acting,
    carry: Carry,
    obs: Float[Array, "E N O"],
    legal: Bool[Array, "E N A"] | None,
) -> tuple[Float[Array, "E N A"], Float[Array, "E N A"], Carry]:
    """Returns logits or means, with illegal choices masked, the logarithms of the deviations of continuous actions, and the
    carry with what recurrent actors remember."""
    raw, carry = offpolicy.remembering_outputs(config, problem, policy.actor, carry, obs)
    outputs, log_std = jnp.split(raw, 2, axis=-1) if has_continuous(problem) else (raw, jnp.zeros_like(raw))
    return masked(problem.heads, outputs, legal), jnp.clip(log_std, *LOG_STD), carry


def actors(config: Config, spec: Spec, policy: Acting) -> Actors | None:
    """Returns the policy as plain networks, or None if the network is the user's own."""
    noise = "squashed" if any(isinstance(space, Box) for space in spec.action_spaces) else "gaussian"
    layers = offpolicy.plain_actors(config, spec, policy.actor)
    return None if layers is None else Actors(layers, {"world_action": "one-hot", "noise": noise})


# --- All agents.


def problem_of(spec: Spec, sees: np.ndarray, axis: str | None = None, model: Any = None) -> Problem:
    """Returns what is fixed for a run: critics do not read the discrete actions of their own agents."""
    heads = heads_of(spec)
    discrete = np.ones(spec.act_mask.shape, bool) if heads.discrete is None else heads.discrete
    return Problem(spec=spec, heads=heads, sees=sees, axis=axis, model=model, unread=discrete)


def init(config: Config, problem: Problem, key: Key) -> Agent:
    """Returns fresh agents; target critics start as copies of their networks."""
    spec, choices = problem.spec, choices_of(problem.spec)
    n = spec.num_agents
    real = np.ones((n, spec.act_size)) if choices.real is None else choices.real
    spread = spec.act_mask & (choices.size > 0)[:, None] if has_continuous(problem) else np.zeros((n, 0))
    return offpolicy.init_agents(init_agent, config, problem, key, real, spread)


update = partial(offpolicy.update, update_agent)
"""(config, problem, agents, batch, key) → (agents, metrics): all agents after one update."""


def make(config: Config, spec: Spec, sees: np.ndarray, axis: str | None = None) -> Algorithm:
    """Returns the algorithm for a spec; critics see what `sees` [N, N] allows."""
    problem = problem_of(spec, sees, axis)
    choices_of(spec)  # refuses too many combinations of heads, as the next line refuses an unusable --model
    offpolicy.with_networks(config, problem)
    return Algorithm(
        init=partial(init, config, problem),
        begin=partial(begin, config, problem),
        act=partial(act, config, problem),
        greedy=partial(greedy, config, problem),
        update=partial(update, config, problem),
        policy=lambda agents: Acting(agents.actor),
        metrics=METRICS,
        update_one=partial(offpolicy.update_one, update_agent, config, problem) if offpolicy.learn_apart(config) else None,
        gather=partial(offpolicy.gather, config, problem),
    )


ENTRIES = (
    Entry(
        name="masac",
        settings=Config,
        make=make,
        memory=offpolicy.memory_of,
        actors=actors,
        learners=True,
        splits_batch=True,
        recurrent=lambda config: config.recurrent,
    ),
)
