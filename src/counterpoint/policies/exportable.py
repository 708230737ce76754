"""What of a policy can be written for other programs: its actors in NumPy, facts about them, and answers to compare with."""

import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint import __version__
from counterpoint import config as configs
from counterpoint.algos import coma, maddpg
from counterpoint.core import numpy_policy
from counterpoint.core.actions import to_world
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import Layer, Params
from counterpoint.core.numpy_policy import Rules, Space
from counterpoint.core.types import Box
from counterpoint.policies.policy import Policy
from counterpoint.runs.folder import Run
from counterpoint.training.hosted import Hosted

PER_AGENT = ("agents", "obs_sizes", "spaces", "integers", "joined")
"""The facts that have an entry for each agent."""


class Parts(NamedTuple):
    """What is exported: the actors, the facts beside them, and where each agent's file is."""

    team: numpy_policy.Team
    about: dict[str, Any]
    stems: list[str]
    """File names of the agents, without ending."""

    def agent(self, i: int) -> tuple[numpy_policy.Team, dict[str, Any]]:
        """One agent and the facts about it, in the form of a team of one."""
        about = self.about | {name: self.about[name][i : i + 1] for name in PER_AGENT}
        return numpy_policy.only(self.team, i, self.about["obs_sizes"][i]), about


class Answers(NamedTuple):
    """What a policy says to each agent's trial observations: raw outputs, and actions in the world's units, [B, size] each."""

    outputs: list[np.ndarray]
    actions: list[np.ndarray]


def parts_of(run: Run, policy: Policy, seed_index: int) -> Parts:
    """What there is to export of a run's policy."""
    spec, config = policy.env.spec, configs.from_dict(run.config)
    actor, rules = _actor(run, policy, config.learning)
    each = range(spec.num_agents)
    spaces = tuple(_space(policy, i) for i in each)
    team = numpy_policy.make_team(numpy_policy.layers_of(actor), spaces, rules)
    _, saved = run.load_policy()
    about = {
        "counterpoint": __version__,
        "run": run.name,
        "scenario": policy.env.name,
        "seed": config.training.seed + seed_index,
        "step": saved.get("step"),
        "episodes": saved.get("episodes"),
        "agents": list(spec.agents),
        "obs_sizes": list(spec.obs_sizes),
        "spaces": [space._asdict() for space in spaces],
        "integers": [_integers(policy, i) for i in each],
        "joined": [not isinstance(policy.env, Hosted) or len(space.heads) == 1 for space in spaces],
        "rules": rules._asdict(),
    }
    return Parts(team, about, stems_of(spec.agents))


def _actor(run: Run, policy: Policy, learning: Any) -> tuple[Params, Rules]:
    """The actors of all agents stacked, and how their outputs become actions."""
    actor = jax.device_get(policy.agents.actor)
    if isinstance(learning, maddpg.Config) and all(isinstance(layer, Layer) for layer in actor):
        return actor, numpy_policy.rules_of(learning)
    if isinstance(learning, coma.Config) and not learning.recurrent:
        rules = Rules(world_action="one-hot", floor=learning.epsilon_end)
        return _unshared(policy, actor.body) if learning.share_parameters else actor.body, rules
    raise UsageError(f"the actors of {run.path} are no plain feed-forward networks: such a policy cannot be exported yet.")


def _unshared(policy: Policy, body: Params) -> Params:
    """An actor for each agent out of the one that all share: whose turn it is becomes a part of the first bias."""
    spec = policy.env.spec
    first, *rest = [
        layer._replace(
            weight=np.repeat(layer.weight, spec.num_agents, axis=0), bias=np.repeat(layer.bias, spec.num_agents, axis=0)
        )
        for layer in body
    ]
    seen, turn = np.split(np.asarray(first.weight), [spec.obs_size], axis=1)
    return (first._replace(weight=seen, bias=first.bias + turn[0]), *rest)  # pyright: ignore[reportReturnType]


def _space(policy: Policy, i: int) -> Space:
    """Agent i's actions in the world's own units, entry by entry where the environment is not ours."""
    space = policy.env.spec.action_spaces[i]
    if not isinstance(space, Box) or not isinstance(policy.env, Hosted):
        return numpy_policy.space_of(space)
    low, high = (np.ravel(policy.env.native(i, np.full(space.size, end, np.float32))).tolist() for end in (-1.0, 1.0))
    return Space(space.size, (), tuple(map(float, low)), tuple(map(float, high)))


def _integers(policy: Policy, i: int) -> list[list[int]]:
    """The world's integer for each choice of each head: worlds may count in another order, or from another number."""
    space = policy.env.spec.action_spaces[i]
    if isinstance(space, Box):
        return []
    tables = []
    for head, width in enumerate(space.heads):
        choices = [[k * (other == head) for other in range(len(space.heads))] for k in range(width)]
        tables.append([int(_meaning(policy, i, space.heads, choice)[head]) for choice in choices])
    return tables


def _meaning(policy: Policy, i: int, heads: tuple[int, ...], choice: list[int]) -> Any:
    """The world's integers for the choice of each head."""
    if isinstance(policy.env, Hosted):
        return np.ravel(policy.env.native(i, np.concatenate([np.eye(n)[k] for n, k in zip(heads, choice, strict=True)])))
    meaning = getattr(policy.env, "integers_of_choice", None)
    return meaning(i, choice) if meaning else choice


def stems_of(agents: tuple[str, ...]) -> list[str]:
    """Names for files: the agents' own where a file system likes them, made distinct where it does not."""
    stems: list[str] = []
    for agent in agents:
        stem = plain = re.sub(r"[^\w.-]+", "_", agent).strip(".") or "agent"
        count = 1
        while stem in (*stems, "team", "policy", "export"):
            count += 1
            stem = f"{plain}-{count}"
        stems.append(stem)
    return stems


def trials_of(policy: Policy, count: int) -> tuple[np.ndarray, Answers]:
    """Random observations [B, N, O], some of them large, and what the policy says to them."""
    spec = policy.env.spec
    generator = np.random.default_rng(0)
    obs = generator.normal(size=(count, *spec.obs_mask.shape)) * spec.obs_mask
    obs[::2] *= 10.0
    obs = obs.astype(np.float32)
    begin = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (count, *leaf.shape)), policy.algo.begin())
    outputs = np.asarray(_outputs(policy, jnp.asarray(obs)))
    greedy = np.asarray(to_world(spec, policy.algo.greedy(policy.agents, begin, jnp.asarray(obs))[0]))
    actions = [_in_units(policy, i, greedy[:, i, :size]) for i, size in enumerate(spec.act_sizes)]
    return obs, Answers([outputs[:, i, :size] for i, size in enumerate(spec.act_sizes)], actions)


def _outputs(policy: Policy, obs: jax.Array) -> jax.Array:
    """Every actor's raw outputs [B, N, A], by the learner's own function."""
    if isinstance(policy.agents, maddpg.Agent):
        return maddpg.policy_outputs(policy.agents, obs)
    return coma.policy(policy.learning, policy.env.spec, policy.agents.actor, (), obs)[0]


def _in_units(policy: Policy, i: int, action: np.ndarray) -> np.ndarray:
    """One agent's actions [B, size] as its world takes them; an environment from elsewhere says so itself."""
    if not isinstance(policy.env, Hosted) or not isinstance(policy.env.spec.action_spaces[i], Box):
        return action
    return np.stack([np.ravel(policy.env.native(i, row)) for row in action])
