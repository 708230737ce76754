"""How MADDPG and MATD3 act: relaxed or sampled choices, and additive noise on continuous actions that decays.

The actors are deterministic; Gumbel noise on discrete outputs and Gaussian or Ornstein-Uhlenbeck noise on continuous actions
are the exploration.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from counterpoint.algos import inference, offpolicy, recurrent
from counterpoint.algos.base import Actors, Algorithm, Carry
from counterpoint.algos.offpolicy import Acting, Problem
from counterpoint.core.actions import EstimatorSettings, critic_view, gumbel, heads_of, masked, relaxed, sampled, target_action
from counterpoint.core.checks import at_least
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Key, Transition


@dataclass(frozen=True)
class Settings(EstimatorSettings, offpolicy.Settings):
    """Hyperparameters of off-policy algorithms with deterministic actors."""

    logit_cost: float = 1e-3
    """Weight of the mean squared policy output in the actor's loss."""
    world_action: Literal["soft", "one-hot"] = "soft"
    """Give the environment relaxed action vectors, as the authors' code does, or sampled one-hot vectors."""
    noise: Literal["gaussian", "ou"] = "gaussian"
    """Exploration noise of continuous agents: independent, or Ornstein-Uhlenbeck."""
    noise_start: float = 0.2
    """Initial standard deviation of the exploration noise (of actions in [−1, 1])."""
    noise_end: float = 0.05
    """Final standard deviation of the exploration noise."""
    noise_steps: int = 500_000
    """Environment steps over which the noise decays linearly."""

    def __post_init__(self) -> None:
        offpolicy.Settings.__post_init__(self)
        EstimatorSettings.__post_init__(self)
        at_least(self, 1, "noise_steps")
        at_least(self, 0, "logit_cost", "noise_start", "noise_end")
        others = {
            f"--share {self.share}": self.share != "none",
            "--recurrent": self.recurrent,
            "--norm batch": self.norm == "batch",
            f"--estimator {self.estimator}": self.estimator != "soft",  # critics read log-probabilities, not samples
        }
        reason = "--infer-policies" if self.infer_policies else "--log-actions"
        for option, chosen in others.items():
            if self.reads_logs and chosen:
                raise UsageError(f"{reason} and {option} exclude each other: leave out one of them.")

    @property
    def relax(self) -> offpolicy.Relax:
        """The actions of targets."""
        return partial(target_action, self)


def begin(config: Settings, problem: Problem, key: Key) -> Carry:
    """Returns the Ornstein-Uhlenbeck noise of one environment at rest, if it is used, and an empty memory if there is one."""
    noise = jnp.zeros(problem.spec.act_mask.shape) if config.noise == "ou" else ()
    return recurrent.begin(problem.spec, config.num_units, noise) if config.recurrent else noise


def act(
    config: Settings,
    problem: Problem,
    policy: Acting,
    carry: Carry,
    obs: Float[Array, "E N O"],
    key: Key,
    step: Int[Array, ""],
    legal: Bool[Array, "E N A"] | None = None,
) -> tuple[Float[Array, "E N A"], Carry, tuple[()]]:
    """Returns exploring actions: sampled for discrete agents, with additive noise for continuous ones."""
    heads = problem.heads
    key_gumbel, key_noise = jax.random.split(key)
    outputs, carry = policy_outputs(config, problem, policy, carry, obs, legal)
    action = world_action(config, problem, outputs, gumbel(key_gumbel, outputs.shape))
    if heads.mask is None or not (heads.mask & ~heads.discrete).any():
        return action, carry, ()
    shock = jax.random.normal(key_noise, outputs.shape)
    if config.noise == "ou":
        rest = carry.noise if config.recurrent else carry
        shock = 0.85 * rest + np.sqrt(1 - 0.85**2) * shock  # stationary with unit variance
        carry = carry._replace(noise=shock) if config.recurrent else shock
    scale = optax.linear_schedule(config.noise_start, config.noise_end, config.noise_steps)(step)
    continuous = jnp.broadcast_to(heads.mask & ~heads.discrete, action.shape)
    return jnp.where(continuous, jnp.clip(action + scale * shock, -1.0, 1.0), action), carry, ()


def greedy(
    config: Settings,
    problem: Problem,
    policy: Acting,
    carry: Carry,
    obs: Float[Array, "E N O"],
    legal: Bool[Array, "E N A"] | None = None,
) -> tuple[Float[Array, "E N A"], Carry]:
    """Returns actions without noise, in the form in which training gives them to the environment."""
    outputs, carry = policy_outputs(config, problem, policy, carry, obs, legal)
    return world_action(config, problem, outputs, jnp.zeros_like(outputs)), carry


def policy_outputs(
    config: Settings,
    problem: Problem,
    policy: Acting,
    carry: Carry,
    obs: Float[Array, "E N O"],
    legal: Bool[Array, "E N A"] | None = None,
) -> tuple[Float[Array, "E N A"], Carry]:
    """Returns the outputs of every actor for its own observation, with illegal choices masked, and the carry."""
    outputs, carry = offpolicy.remembering_outputs(config, problem, policy.actor, carry, obs)
    return masked(problem.heads, outputs, legal), carry


def world_action(
    config: Settings, problem: Problem, outputs: Float[Array, "E N A"], noise: Float[Array, "E N A"]
) -> Float[Array, "E N A"]:
    """Returns actions in the form that the environment gets: relaxed or one-hot."""
    if config.world_action == "soft":
        return relaxed(problem.heads, outputs, noise, config.temperature)
    return sampled(problem.heads, outputs, noise)


def reading_logs(
    update_agent: offpolicy.UpdateAgent,
    config: Settings,
    problem: Problem,
    own: Any,
    agents: Any,
    mine: Transition,
    batch: Transition,
    i: Int[Array, ""],
    key: Key,
) -> tuple[Any, dict[str, Array]]:
    """Returns agent i after one update in which critics read logarithms of replayed discrete actions."""
    row = jax.tree.map(lambda table: jnp.asarray(table)[i], problem.heads)
    mine = mine._replace(action=critic_view(config, row, mine.action))
    batch = batch._replace(action=critic_view(config, problem.heads, batch.action))
    return update_agent(config, problem, own, agents, mine, batch, i, key)


def make(
    init: Any,
    update_agent: offpolicy.UpdateAgent,
    metrics: tuple[str, ...],
    config: Settings,
    spec: Spec,
    sees: np.ndarray,
    axis: str | None = None,
    ensemble: tuple[int, ...] = (),
) -> Algorithm:
    """Returns the algorithm that starts by `init` and learns by `update_agent`; critics see what `sees` [N, N] allows."""
    problem = Problem(spec=spec, heads=heads_of(spec), sees=sees, axis=axis, ensemble=ensemble)
    offpolicy.with_networks(config, problem)  # refuses an unusable --model before anything is computed
    _check_effect(config, problem)
    distributable = offpolicy.learn_apart(config) and not config.infer_policies
    if config.reads_logs:
        update_agent = partial(reading_logs, update_agent)
    if config.infer_policies:
        init, update_agent = inference.wrapped(init, update_agent)
        metrics = (*metrics, *inference.metrics_of(spec))
    return Algorithm(
        init=partial(init, config, problem),
        begin=partial(begin, config, problem),
        act=partial(act, config, problem),
        greedy=partial(greedy, config, problem),
        update=partial(offpolicy.update, update_agent, config, problem),
        policy=lambda agents: Acting(agents.actor),
        metrics=metrics,
        # It travels to learners in other processes, so it must not hold a lambda.
        update_one=partial(offpolicy.update_one, update_agent, config, problem) if distributable else None,
        gather=partial(offpolicy.gather, config, problem),
    )


def _check_effect(config: Settings, problem: Problem) -> None:
    """Refuses options that change nothing in this environment with these critics."""
    if config.infer_policies and not (problem.sees & ~np.eye(len(problem.sees), dtype=bool)).any():
        raise UsageError(
            "--infer-policies has no effect where no critic reads another agent: leave it out, or choose --algorithm maddpg."
        )
    discrete = problem.heads.discrete
    if config.estimator != "soft" and discrete is not None and not (problem.heads.mask & discrete).any():
        raise UsageError(f"--estimator {config.estimator} has no effect on continuous actions: leave it out.")


def actors(config: Settings, spec: Spec, policy: Acting) -> Actors | None:
    """Returns the policy as plain networks, or None if the network is the user's own."""
    names = ("world_action", "temperature", "noise", "noise_start", "noise_end", "noise_steps")
    layers = offpolicy.plain_actors(config, spec, policy.actor)
    return None if layers is None else Actors(layers, {name: getattr(config, name) for name in names})
