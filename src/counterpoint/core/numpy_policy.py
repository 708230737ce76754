"""A team's actors in NumPy alone, for exported policies and for worker processes, which run without JAX.

The formulas are those of `nets.mlp`, `actions` and the algorithms' `greedy` and `act`. A team's arrays have a leading axis of
agents, padded to the largest; a single agent is a team of one. This file imports only NumPy and the standard library because
an export ships a copy of it. Beside a .npz file:

    import policy
    team = policy.Policy.load("team.npz")
    team.act({"agent_0": observation, "agent_1": observation})
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

EPSILON = np.float32(1e-5)
"""Added to variances, as in `nets`."""
LATE = 2**31 - 1
"""A step count at which every exploration schedule has ended."""
LOWEST = np.float32(-1e9)
"""The score of an illegal action, as in `actions`."""
LOG_STD = (-5.0, 2.0)
"""Bounds of the logarithms of deviations, as in `masac`."""
OU_KEEP = 0.85
"""The share of the Ornstein-Uhlenbeck noise that remains after a step; its variance stays 1."""


class Layer(NamedTuple):
    """An affine map for each agent; with a scale, its product is normalised over units, or by stored averages if present.

    With `state_weight` and `state_bias` it is a gated recurrent unit, as in `nets`: its columns belong to the reset gate, the
    update gate and the candidate.
    """

    weight: np.ndarray
    """[N, I, H]"""
    bias: np.ndarray
    """[N, 1, H], like the other fields: the second axis is that of parallel environments."""
    scale: np.ndarray | None = None
    mean: np.ndarray | None = None
    variance: np.ndarray | None = None
    std: np.ndarray | None = None
    """Of the last layer: learnt standard deviations of continuous actions, which then replace the rules' schedule."""
    state_weight: np.ndarray | None = None
    """[N, H, 3H]"""
    state_bias: np.ndarray | None = None


class Space(NamedTuple):
    """One agent's actions: one choice per head, or, without heads, `size` numbers between low and high."""

    size: int
    heads: tuple[int, ...] = ()
    low: float | tuple[float, ...] = -1.0
    """One bound for all entries, or one per entry."""
    high: float | tuple[float, ...] = 1.0


class Rules(NamedTuple):
    """How a network's outputs become actions; names and meanings are those of the algorithm's settings."""

    world_action: str = "soft"
    temperature: float = 1.0
    noise: str = "gaussian"
    """Exploration of continuous actions: "gaussian", "ou", "uniform", which ignores the outputs, or "squashed": the second half
    of the outputs are logarithms of deviations, and the noise is added before tanh."""
    noise_start: float = 0.2
    noise_end: float = 0.05
    noise_steps: int = 500_000
    floor_start: float = 0.0
    """Share of uniform choice among legal actions when actions are drawn, at the start of training."""
    floor_end: float = 0.0
    """The share after `floor_steps` environment steps."""
    floor_steps: int = 1


class Tables(NamedTuple):
    """Tables derived from a team's spaces. The N·A entries of all agents fall into groups; each head is one group."""

    plain: bool
    """Whether every agent has one head of full width, so that groups are rows."""
    has_heads: bool
    has_boxes: bool
    starts: np.ndarray
    """The first entry of each group."""
    group: np.ndarray
    """[N·A]: the group of an entry."""
    discrete: np.ndarray
    """[N, A]: entries of a head."""
    continuous: np.ndarray
    """[N, A]: entries of a box; entries in neither table are padding."""
    scale: np.ndarray
    """[N, A]: with `shift`, maps [−1, 1] to the environment's range."""
    shift: np.ndarray


class Team(NamedTuple):
    """Actors that act together. Build one with `make_team`."""

    layers: tuple[Layer, ...]
    spaces: tuple[Space, ...]
    rules: Rules
    tables: Tables


def space_of(space: Any) -> Space:
    """Returns the `Space` of anything that has a size and heads or bounds, such as `spaces.Discrete` and `spaces.Box`."""
    heads = tuple(int(width) for width in getattr(space, "heads", ()))
    return Space(int(space.size), heads, getattr(space, "low", -1.0), getattr(space, "high", 1.0))


def layers_of(actor: Any, std: Any = None) -> tuple[Layer, ...]:
    """Returns the layers of stacked actors (leaves [N, …]): `nets.Params`, or a body, a recurrent cell and a head of them.

    `std` [N, A] is for the last.
    """

    def row(array: Any) -> Any:
        return None if array is None else np.asarray(array, np.float32)[:, None]

    def plain(layer: Any) -> Layer:
        return Layer(np.ascontiguousarray(layer.weight, np.float32), row(layer.bias), *map(row, layer.norm or ()))

    if cell := getattr(actor, "cell", None):
        weight = np.ascontiguousarray(cell.state.weight, np.float32)
        unit = plain(cell.inputs)._replace(state_weight=weight, state_bias=row(cell.state.bias))
        layers = [*map(plain, actor.body), unit, *map(plain, actor.head)]
    else:
        layers = list(map(plain, actor))
    return (*layers[:-1], layers[-1]._replace(std=row(std)))


def rules_of(settings: Any) -> Rules:
    """Returns the rules that an algorithm's settings contain."""
    return Rules(**{name: getattr(settings, name) for name in Rules._fields if hasattr(settings, name)})


def team_of(actor: Any, action_spaces: Any, settings: Any) -> Team:
    """Returns the team of stacked actors, the action spaces of a spec and an algorithm's settings."""
    return make_team(layers_of(actor), tuple(map(space_of, action_spaces)), rules_of(settings))


def make_team(layers: tuple[Layer, ...], spaces: tuple[Space, ...], rules: Rules) -> Team:
    """Returns a team with the tables that its spaces need."""
    n, width = len(spaces), layers[-1].weight.shape[-1] // (2 if rules.noise == "squashed" else 1)
    discrete, continuous = np.zeros((n, width), bool), np.zeros((n, width), bool)
    scale, shift = np.ones((n, width), np.float32), np.zeros((n, width), np.float32)
    starts: list[int] = []
    for i, space in enumerate(spaces):
        edges = np.cumsum((0, *(space.heads or (space.size,))))
        starts += [i * width + int(edge) for edge in edges if edge < width]  # the rest is a group of padding
        (discrete if space.heads else continuous)[i, : space.size] = True
        if not space.heads:
            low, high = np.asarray(space.low), np.asarray(space.high)
            scale[i, : space.size], shift[i, : space.size] = (high - low) / 2, (high + low) / 2
    group = np.searchsorted(starts, np.arange(n * width), side="right") - 1
    plain = all(space.heads == (width,) for space in spaces)
    kinds = (plain, bool(discrete.any()), bool(continuous.any()))
    return Team(layers, spaces, rules, Tables(*kinds, np.array(starts), group, discrete, continuous, scale, shift))


def only(team: Team, i: int, obs_size: int) -> Team:
    """Returns agent i as a team of one, without padding."""
    size, width, last = team.spaces[i].size, team.tables.discrete.shape[1], len(team.layers) - 1
    kept = np.arange(team.layers[-1].weight.shape[-1]) % width < size

    def cut(array: np.ndarray | None, depth: int) -> np.ndarray | None:
        return None if array is None else array[i : i + 1, :, kept if depth == last else slice(None)]

    layers = [Layer(*(cut(array, depth) for array in layer)) for depth, layer in enumerate(team.layers)]  # pyright: ignore[reportArgumentType]
    layers[0] = layers[0]._replace(weight=layers[0].weight[:, :obs_size])
    layers = [layer._replace(weight=np.ascontiguousarray(layer.weight)) for layer in layers]
    return make_team(tuple(layers), (team.spaces[i],), team.rules)


def outputs(team: Team, obs: np.ndarray) -> np.ndarray:
    """Returns every actor's outputs [..., N, A] for its own observation; obs is [N, O] or [E, N, O].

    Squashed actors have [..., N, 2A]. Recurrent actors remember nothing here: see `remembering`.
    """
    if num_hidden(team.layers):
        return remembering(team, begin_hidden(team, 0 if obs.ndim == 2 else len(obs)), obs)[0]
    x = obs[:, None] if obs.ndim == 2 else obs.swapaxes(0, 1)  # [N, E, O]: one matrix product per agent
    first, *rest = team.layers
    x = _affine(first, x)
    for layer in rest:
        x = _affine(layer, np.maximum(x, 0.0, out=x))
    return x[:, 0] if obs.ndim == 2 else x.swapaxes(0, 1)


def num_hidden(layers: tuple[Layer, ...]) -> int:
    """Returns with how many units each actor remembers the episode; 0 if actors are not recurrent."""
    return next((layer.state_weight.shape[1] for layer in layers if layer.state_weight is not None), 0)


def begin_hidden(team: Team, num_envs: int = 0) -> np.ndarray | None:
    """Returns what recurrent actors remember at the start of an episode, nothing: [N, H] or [E, N, H]; None for others."""
    shape = (len(team.spaces), num_hidden(team.layers))
    return np.zeros((num_envs, *shape) if num_envs else shape, np.float32) if shape[1] else None


def remembering(team: Team, hidden: np.ndarray | None, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns every actor's outputs, see `outputs`, given what it remembers, and what it remembers afterwards."""
    if hidden is None:
        return outputs(team, obs), None
    single = obs.ndim == 2
    x, before = (part[:, None] if single else part.swapaxes(0, 1) for part in (obs, hidden))
    active = False  # whether an activation precedes the layer: not at the inputs, nor behind the recurrent unit
    for layer in team.layers:
        x = _affine(layer, np.maximum(x, 0.0) if active else x)
        active = layer.state_weight is None
        if layer.state_weight is not None:
            x = before = _unit(layer, x, before)
    return (x[:, 0], before[:, 0]) if single else (x.swapaxes(0, 1), before.swapaxes(0, 1))


def _unit(layer: Layer, gates: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """Returns the next hidden states [N, E, H] of a gated recurrent unit, as `nets.gru_from_first`."""
    reset, update, candidate = np.split(gates, 3, axis=-1)
    reset_by, update_by, candidate_by = np.split(hidden @ np.asarray(layer.state_weight) + layer.state_bias, 3, axis=-1)
    keep = _sigmoid(update + update_by)
    return keep * hidden + (1 - keep) * np.tanh(candidate + _sigmoid(reset + reset_by) * candidate_by)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return (0.5 * np.tanh(0.5 * x) + 0.5).astype(np.float32)


def _affine(layer: Layer, x: np.ndarray) -> np.ndarray:
    product = np.matmul(x, layer.weight)
    if layer.scale is not None:
        mean, variance = layer.mean, layer.variance
        if mean is None or variance is None:
            mean = product.mean(-1, keepdims=True)
            variance = np.square(product - mean).mean(-1, keepdims=True)
        product = (product - mean) / np.sqrt(variance + EPSILON) * layer.scale
    product += layer.bias
    return product


def without_deviations(team: Team) -> tuple[Layer, ...]:
    """Returns the layers that greedy actions depend on: without the outputs for deviations, if there are any."""
    *rest, last = team.layers
    width = team.tables.discrete.shape[1]
    return (*rest, last._replace(weight=np.ascontiguousarray(last.weight[..., :width]), bias=last.bias[..., :width]))


def greedy(team: Team, obs: np.ndarray, legal: np.ndarray | None = None) -> np.ndarray:
    """Returns actions without noise, as training gives them to the learner: continuous ones are in [−1, 1].

    `legal` [..., N, A] is True where an action entry is legal; None means that all are.
    """
    return best(team, outputs(team, obs), legal)


def best(team: Team, raw: np.ndarray, legal: np.ndarray | None = None) -> np.ndarray:
    """Returns `greedy` actions for given outputs."""
    raw = masked(_means(team, raw), legal)
    return _actions(team, raw, raw)


def _means(team: Team, raw: np.ndarray) -> np.ndarray:
    """Returns outputs without those for deviations."""
    return raw[..., : team.tables.discrete.shape[1]]


def masked(raw: np.ndarray, legal: np.ndarray | None) -> np.ndarray:
    """Returns outputs under which illegal actions are never chosen."""
    return raw if legal is None else np.where(legal, raw, LOWEST)


def begin(team: Team, num_envs: int = 0) -> np.ndarray | None:
    """Returns the noise at the start of an episode, for that many environments (0: one, without an axis for it)."""
    shape = team.tables.discrete.shape
    return np.zeros((num_envs, *shape) if num_envs else shape, np.float32) if team.rules.noise == "ou" else None


def explore(
    team: Team,
    carry: np.ndarray | None,
    obs: np.ndarray,
    rng: np.random.Generator,
    step: int = LATE,
    legal: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns actions as training explores after `step` environment steps, and the carry for the next step."""
    return drawn(team, carry, outputs(team, obs), rng, step, legal)


def drawn(
    team: Team,
    carry: np.ndarray | None,
    raw: np.ndarray,
    rng: np.random.Generator,
    step: int = LATE,
    legal: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the result of `explore` for given outputs."""
    shape = (*raw.shape[:-1], team.tables.discrete.shape[1])
    gumbel = -np.log(np.maximum(rng.standard_exponential(shape, np.float32), np.float32(1e-38)))
    return noisy(team, carry, raw, gumbel, shocks(team, rng, shape) if team.tables.has_boxes else gumbel, step, legal)


def shocks(team: Team, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the noise of continuous actions: standard normal, or uniform in [−1, 1] if the rules say so."""
    if team.rules.noise == "uniform":
        return rng.uniform(-1, 1, shape).astype(np.float32)
    return rng.standard_normal(shape, np.float32)


def noisy(
    team: Team,
    carry: np.ndarray | None,
    raw: np.ndarray,
    gumbel: np.ndarray,
    shock: np.ndarray,
    step: int,
    legal: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns actions for given outputs, standard Gumbel noise for choices and `shocks` for continuous actions."""
    rules = team.rules
    if rules.noise == "squashed":
        means, log_std = np.split(raw, 2, axis=-1)
        raw = np.where(team.tables.continuous, means + np.exp(np.clip(log_std, *LOG_STD)) * shock, means)
    floor = _linear(rules.floor_start, rules.floor_end, rules.floor_steps, step)
    raw = masked(raw, legal)
    action = _actions(team, raw, (_floored(team, raw, floor, legal) if floor else raw) + gumbel)
    if not team.tables.has_boxes or rules.noise == "squashed":
        return action, carry
    if rules.noise == "uniform":
        return np.where(team.tables.continuous, shock, action), carry
    if carry is not None:
        shock = carry = OU_KEEP * carry + np.float32(np.sqrt(1 - OU_KEEP**2)) * shock
    std = team.layers[-1].std
    scale = np.float32(_linear(rules.noise_start, rules.noise_end, rules.noise_steps, step)) if std is None else std[:, 0]
    shaken = np.clip(action + scale * shock, -1.0, 1.0)
    return np.where(team.tables.continuous, shaken, action), carry


def _linear(start: float, end: float, steps: int, step: int) -> float:
    return start + (end - start) * min(step / steps, 1.0)


def _actions(team: Team, raw: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Returns soft or one-hot vectors of the scores in discrete heads, tanh of the outputs in boxes, zero in padding."""
    tables, rules = team.tables, team.rules
    soft = rules.world_action == "soft"
    if tables.plain:
        return _softmax(scores / np.float32(rules.temperature)) if soft else _one_hot(scores)
    boxes = np.tanh(raw) * tables.continuous
    if not tables.has_heads:
        return boxes
    flat = scores.reshape(*scores.shape[:-2], -1)
    flat = _grouped_softmax(tables, flat / np.float32(rules.temperature)) if soft else _grouped_one_hot(tables, flat)
    return np.where(tables.discrete, flat.reshape(raw.shape), boxes)


def _floored(team: Team, raw: np.ndarray, floor: float, legal: np.ndarray | None) -> np.ndarray:
    """Returns the logarithms of the policy's probabilities mixed with a share of uniform choice among legal actions."""
    tables, share = team.tables, np.float32(floor)
    flat = raw.reshape(*raw.shape[:-2], -1)
    allowed = np.ones_like(flat) if legal is None else legal.reshape(flat.shape).astype(np.float32)
    even = allowed / np.maximum(np.add.reduceat(allowed, tables.starts, axis=-1), 1)[..., tables.group]
    mixed = np.log(np.maximum((1 - share) * _grouped_softmax(tables, flat) + share * even, np.float32(1e-8)))
    return masked(mixed.reshape(raw.shape), legal)


def _softmax(scores: np.ndarray) -> np.ndarray:
    weight = np.exp(scores - scores.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)


def _one_hot(scores: np.ndarray) -> np.ndarray:
    return (np.arange(scores.shape[-1]) == scores.argmax(-1)[..., None]).astype(np.float32)


def _grouped_softmax(tables: Tables, flat: np.ndarray) -> np.ndarray:
    top = np.maximum.reduceat(flat, tables.starts, axis=-1)
    weight = np.exp(flat - top[..., tables.group])
    return weight / np.add.reduceat(weight, tables.starts, axis=-1)[..., tables.group]


def _grouped_one_hot(tables: Tables, flat: np.ndarray) -> np.ndarray:
    """Returns a one at the largest entry of each group (the first, if several are equal), zero elsewhere."""
    here = np.arange(flat.shape[-1])
    best = flat == np.maximum.reduceat(flat, tables.starts, axis=-1)[..., tables.group]
    first = np.minimum.reduceat(np.where(best, here, here.size), tables.starts, axis=-1)
    return (here == first[..., tables.group]).astype(np.float32)


def to_world(team: Team, action: np.ndarray) -> np.ndarray:
    """Maps continuous agents' actions from [−1, 1] to the environment's range; discrete ones stay as they are."""
    return action * team.tables.scale + team.tables.shift


def choices(space: Space, vector: np.ndarray) -> list[int]:
    """Returns the index of the largest entry of each head of one agent's action vector."""
    edges = np.cumsum((0, *space.heads)).tolist()
    return [int(vector[start:stop].argmax()) for start, stop in pairwise(edges)]


class Policy:
    """Maps observations by agent name to actions, for a saved team or one agent of it.

    Its only state is that of an episode, exploration noise and what recurrent actors remember: call `reset` when one begins.
    """

    def __init__(self, team: Team, about: dict[str, Any], seed: int = 0) -> None:
        self.team, self.about = team, about
        self.agents: list[str] = about["agents"]
        self.obs_sizes: list[int] = about["obs_sizes"]
        self.integers: list[list[list[int]]] = about["integers"]
        """The environment's integer for each choice, per agent and head."""
        self.joined: list[bool] = about["joined"]
        """Whether several heads make one integer; otherwise they stay separate."""
        self._rng = np.random.default_rng(seed)
        self.reset()

    @classmethod
    def load(cls, path: str | Path, seed: int = 0) -> "Policy":
        """Returns the policy in a .npz file of an export."""
        with np.load(path, allow_pickle=False) as file:
            return unpack({name: file[name] for name in file.files if name != "about"}, json.loads(str(file["about"])), seed)

    def reset(self) -> None:
        """Forgets the episode."""
        self._carry, self._hidden = begin(self.team), begin_hidden(self.team)

    def stack(self, obs: dict[str, Any]) -> np.ndarray:
        """Returns observations by name as one padded array [N, O]; agents that are left out have zeros."""
        stacked = np.zeros((len(self.agents), max(self.obs_sizes)), np.float32)
        for name, seen in obs.items():
            if name not in self.agents:
                raise ValueError(f"there is no agent {name!r}; the agents are {', '.join(self.agents)}.")
            i = self.agents.index(name)
            row = np.asarray(seen, np.float32)
            if row.shape != (self.obs_sizes[i],):
                raise ValueError(f"the observation of {name} must have shape ({self.obs_sizes[i]},), not {row.shape}.")
            stacked[i, : row.size] = row
        return stacked

    def act(
        self, obs: dict[str, Any], greedy: bool = True, vectors: bool = False, legal: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Returns each agent's action: an integer if its actions are discrete, an array in the environment's range otherwise.

        Several heads make one integer, the first head counting fastest, in environments that number pairs; elsewhere they
        make an array of integers. With `vectors`, each action is the array that the environment was given in training.
        `legal` holds action masks by agent: true where an action is legal.
        """
        masks = self._masks(legal)
        raw, self._hidden = remembering(self.team, self._hidden, self.stack(obs))
        if greedy:
            action = best(self.team, raw, masks)
        else:
            action, self._carry = drawn(self.team, self._carry, raw, self._rng, legal=masks)
        scaled = to_world(self.team, action)
        return {name: self._one(i, scaled[i], vectors) for i, name in enumerate(self.agents) if name in obs}

    def _masks(self, legal: dict[str, Any] | None) -> np.ndarray | None:
        if not legal:
            return None
        masks = np.ones(self.team.tables.discrete.shape, bool)
        for name, mask in legal.items():
            i = self.agents.index(name)
            masks[i, : self.team.spaces[i].size] = np.asarray(mask, bool)
        return masks

    def _one(self, i: int, vector: np.ndarray, vectors: bool) -> Any:
        space = self.team.spaces[i]
        own = vector[: space.size]
        if vectors or not space.heads:
            return own
        meant = [table[choice] for table, choice in zip(self.integers[i], choices(space, own), strict=True)]
        if not self.joined[i]:
            return np.array(meant)
        place, integer = 1, 0
        for width, digit in zip(space.heads, meant, strict=True):
            integer, place = integer + digit * place, place * width
        return integer


def pack(team: Team) -> dict[str, np.ndarray]:
    """Returns a team's arrays by name: 0.weight, 0.bias, …"""
    named = [(f"{depth}.{name}", array) for depth, layer in enumerate(team.layers) for name, array in layer._asdict().items()]
    return {name: array for name, array in named if array is not None}


def unpack(arrays: dict[str, np.ndarray], about: dict[str, Any], seed: int = 0) -> Policy:
    """Returns the policy of arrays that `pack` named and of the facts stored beside them."""
    depth = 1 + max(int(name.partition(".")[0]) for name in arrays)
    layers = [Layer(**{name: arrays.get(f"{d}.{name}") for name in Layer._fields}) for d in range(depth)]  # pyright: ignore[reportArgumentType]
    spaces = [Space(**space | {"heads": tuple(space["heads"])}) for space in about["spaces"]]
    return Policy(make_team(tuple(layers), tuple(spaces), Rules(**about["rules"])), about, seed)
