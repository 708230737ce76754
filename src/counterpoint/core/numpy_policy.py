"""A team's actors in NumPy alone, for places without JAX: exported policies and processes that only act.

The formulas are those of `nets.mlp`, `actions` and `algos.maddpg` (`greedy`, `act`). A team's arrays have a leading axis of
agents, padded to the largest; one agent is a team of one. This file imports NumPy and the standard library only, because an
export carries a copy of it: beside a .npz file,

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
"""A step at which every schedule of noise has ended."""
OU_KEEP = 0.85
"""How much of the Ornstein-Uhlenbeck noise is left after a step; its variance stays 1."""


class Layer(NamedTuple):
    """An affine map for each agent, perhaps with its product normalised: over units, or by averages if there are any."""

    weight: np.ndarray
    """[N, I, H]"""
    bias: np.ndarray
    """[N, 1, H], as the others: the second axis is that of worlds."""
    scale: np.ndarray | None = None
    mean: np.ndarray | None = None
    variance: np.ndarray | None = None


class Space(NamedTuple):
    """One agent's actions: a choice per head, or, without heads, `size` numbers between low and high."""

    size: int
    heads: tuple[int, ...] = ()
    low: float | tuple[float, ...] = -1.0
    """Of all entries, or of each."""
    high: float | tuple[float, ...] = 1.0


class Rules(NamedTuple):
    """How outputs become actions; the names and meanings are those of the learner's settings."""

    world_action: str = "soft"
    temperature: float = 1.0
    noise: str = "gaussian"
    noise_start: float = 0.2
    noise_end: float = 0.05
    noise_steps: int = 500_000
    floor: float = 0.0
    """Share of uniform choice in what is drawn, as COMA has it."""


class Tables(NamedTuple):
    """What follows from the spaces of a team. Entries of all agents in a row, N·A of them, fall into groups: a head is one."""

    plain: bool
    """Whether every agent has one head of full width, so that groups are rows."""
    has_heads: bool
    has_boxes: bool
    starts: np.ndarray
    """Where each group begins."""
    group: np.ndarray
    """[N·A]: the group of an entry."""
    discrete: np.ndarray
    """[N, A]: entries of a head."""
    continuous: np.ndarray
    """[N, A]: entries of a box; what is in neither is padding."""
    scale: np.ndarray
    """[N, A]: from [−1, 1] to the world's range, and `shift`."""
    shift: np.ndarray


class Team(NamedTuple):
    """Actors that act together; `make_team` builds it."""

    layers: tuple[Layer, ...]
    spaces: tuple[Space, ...]
    rules: Rules
    tables: Tables


def space_of(space: Any) -> Space:
    """A `Space` from anything that has a size and heads or bounds, such as `types.Discrete` and `types.Box`."""
    heads = tuple(int(width) for width in getattr(space, "heads", ()))
    return Space(int(space.size), heads, getattr(space, "low", -1.0), getattr(space, "high", 1.0))


def layers_of(actor: Any) -> tuple[Layer, ...]:
    """Layers from a learner's stacked actor (`nets.Params`, leaves [N, …]).

    A team gets new weights by `team._replace(layers=layers_of(actor))`.
    """

    def row(array: Any) -> Any:
        return None if array is None else np.asarray(array, np.float32)[:, None]

    return tuple(
        Layer(np.ascontiguousarray(layer.weight, np.float32), row(layer.bias), *map(row, layer.norm or ())) for layer in actor
    )


def rules_of(settings: Any) -> Rules:
    """The rules that a learner's settings (`maddpg.Config`) name."""
    return Rules(**{name: getattr(settings, name) for name in Rules._fields if hasattr(settings, name)})


def team_of(actor: Any, action_spaces: Any, settings: Any) -> Team:
    """A team from a learner's stacked actor, the action spaces of its spec and its settings (`maddpg.Config`)."""
    return make_team(layers_of(actor), tuple(map(space_of, action_spaces)), rules_of(settings))


def make_team(layers: tuple[Layer, ...], spaces: tuple[Space, ...], rules: Rules) -> Team:
    """A team of actors, with the tables that its spaces need."""
    n, width = len(spaces), layers[-1].weight.shape[-1]
    discrete, continuous = np.zeros((n, width), bool), np.zeros((n, width), bool)
    scale, shift = np.ones((n, width), np.float32), np.zeros((n, width), np.float32)
    starts: list[int] = []
    for i, space in enumerate(spaces):
        edges = np.cumsum((0, *(space.heads or (space.size,))))
        starts += [i * width + int(edge) for edge in edges if edge < width]  # what is left at the end is a group of padding
        (discrete if space.heads else continuous)[i, : space.size] = True
        if not space.heads:
            low, high = np.asarray(space.low), np.asarray(space.high)
            scale[i, : space.size], shift[i, : space.size] = (high - low) / 2, (high + low) / 2
    group = np.searchsorted(starts, np.arange(n * width), side="right") - 1
    plain = all(space.heads == (width,) for space in spaces)
    kinds = (plain, bool(discrete.any()), bool(continuous.any()))
    return Team(layers, spaces, rules, Tables(*kinds, np.array(starts), group, discrete, continuous, scale, shift))


def only(team: Team, i: int, obs_size: int) -> Team:
    """Agent i as a team of one, without padding."""
    size, last = team.spaces[i].size, len(team.layers) - 1

    def cut(array: np.ndarray | None, depth: int) -> np.ndarray | None:
        return None if array is None else array[i : i + 1, :, : size if depth == last else None]

    layers = [Layer(*(cut(array, depth) for array in layer)) for depth, layer in enumerate(team.layers)]  # pyright: ignore[reportArgumentType]
    layers[0] = layers[0]._replace(weight=layers[0].weight[:, :obs_size])
    layers = [layer._replace(weight=np.ascontiguousarray(layer.weight)) for layer in layers]
    return make_team(tuple(layers), (team.spaces[i],), team.rules)


def outputs(team: Team, obs: np.ndarray) -> np.ndarray:
    """What every actor's network says [..., N, A] about its own observation, obs [N, O] or [E, N, O]."""
    x = obs[:, None] if obs.ndim == 2 else obs.swapaxes(0, 1)  # [N, E, O]: one matrix product per agent, for all worlds
    first, *rest = team.layers
    x = _affine(first, x)
    for layer in rest:
        x = _affine(layer, np.maximum(x, 0.0, out=x))
    return x[:, 0] if obs.ndim == 2 else x.swapaxes(0, 1)


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


def greedy(team: Team, obs: np.ndarray) -> np.ndarray:
    """Actions without noise, in the form in which training gives them to the learner: continuous ones in [−1, 1]."""
    return _actions(team, outputs(team, obs), None)


def begin(team: Team, num_worlds: int = 0) -> np.ndarray | None:
    """The noise of an episode's start, for that many worlds side by side (0: one world, without an axis for it)."""
    shape = team.tables.discrete.shape
    return np.zeros((num_worlds, *shape) if num_worlds else shape, np.float32) if team.rules.noise == "ou" else None


def explore(
    team: Team, carry: np.ndarray | None, obs: np.ndarray, rng: np.random.Generator, step: int = LATE
) -> tuple[np.ndarray, np.ndarray | None]:
    """Actions as training explores after `step` world steps, like `greedy`'s, and the carry for the next step."""
    raw = outputs(team, obs)
    gumbel = -np.log(np.maximum(rng.standard_exponential(raw.shape, np.float32), np.float32(1e-38)))
    shock = gumbel
    if team.tables.has_boxes:
        uniform = team.rules.noise == "uniform"
        shock = rng.uniform(-1, 1, raw.shape).astype(np.float32) if uniform else rng.standard_normal(raw.shape, np.float32)
    return noisy(team, carry, raw, gumbel, shock, step)


def noisy(
    team: Team, carry: np.ndarray | None, raw: np.ndarray, gumbel: np.ndarray, shock: np.ndarray, step: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Actions given outputs, standard Gumbel noise for choices and standard normal noise for real numbers."""
    rules = team.rules
    action = _actions(team, raw, gumbel)
    if not team.tables.has_boxes:
        return action, carry
    if rules.noise == "uniform":
        return np.where(team.tables.continuous, shock, action), carry
    if carry is not None:
        shock = carry = OU_KEEP * carry + np.float32(np.sqrt(1 - OU_KEEP**2)) * shock
    scale = rules.noise_start + (rules.noise_end - rules.noise_start) * min(step / rules.noise_steps, 1.0)
    shaken = np.clip(action + np.float32(scale) * shock, -1.0, 1.0)
    return np.where(team.tables.continuous, shaken, action), carry


def _actions(team: Team, raw: np.ndarray, gumbel: np.ndarray | None) -> np.ndarray:
    """Soft or one-hot vectors in discrete heads, tanh in boxes, zero in padding."""
    tables, rules = team.tables, team.rules
    scores = raw if gumbel is None else (_floored(team, raw) if rules.floor else raw) + gumbel
    soft = rules.world_action == "soft"
    if tables.plain:
        return _softmax(scores / np.float32(rules.temperature)) if soft else _one_hot(scores)
    boxes = np.tanh(raw) * tables.continuous
    if not tables.has_heads:
        return boxes
    flat = scores.reshape(*scores.shape[:-2], -1)
    flat = _grouped_softmax(tables, flat / np.float32(rules.temperature)) if soft else _grouped_one_hot(tables, flat)
    return np.where(tables.discrete, flat.reshape(raw.shape), boxes)


def _floored(team: Team, raw: np.ndarray) -> np.ndarray:
    """The logarithms of the policy's chances after mixing them with uniform ones."""
    tables, floor = team.tables, np.float32(team.rules.floor)
    chance = _grouped_softmax(tables, raw.reshape(*raw.shape[:-2], -1))
    even = 1 / np.bincount(tables.group)[tables.group].astype(np.float32)
    return np.log(np.maximum((1 - floor) * chance + floor * even, np.float32(1e-8))).reshape(raw.shape)


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
    """A one at the largest entry of each group, the first if several are equal."""
    here = np.arange(flat.shape[-1])
    best = flat == np.maximum.reduceat(flat, tables.starts, axis=-1)[..., tables.group]
    first = np.minimum.reduceat(np.where(best, here, here.size), tables.starts, axis=-1)
    return (here == first[..., tables.group]).astype(np.float32)


def to_world(team: Team, action: np.ndarray) -> np.ndarray:
    """Continuous agents' actions from [−1, 1] to the world's range; discrete ones as they are."""
    return action * team.tables.scale + team.tables.shift


def choices(space: Space, vector: np.ndarray) -> list[int]:
    """The largest entry of each head of one agent's action vector."""
    edges = np.cumsum((0, *space.heads)).tolist()
    return [int(vector[start:stop].argmax()) for start, stop in pairwise(edges)]


class Policy:
    """A saved team, or one agent of it, as a thing to ask. Stateful only in the noise of an episode: `reset` forgets it."""

    def __init__(self, team: Team, about: dict[str, Any], seed: int = 0) -> None:
        self.team, self.about = team, about
        self.agents: list[str] = about["agents"]
        self.obs_sizes: list[int] = about["obs_sizes"]
        self.integers: list[list[list[int]]] = about["integers"]
        """The world's integer for each choice, per agent and head."""
        self.joined: list[bool] = about["joined"]
        """Whether several heads make one integer; otherwise they stay apart."""
        self._rng = np.random.default_rng(seed)
        self._carry = begin(team)

    @classmethod
    def load(cls, path: str | Path, seed: int = 0) -> "Policy":
        """The policy in a .npz file of an export."""
        with np.load(path, allow_pickle=False) as file:
            return unpack({name: file[name] for name in file.files if name != "about"}, json.loads(str(file["about"])), seed)

    def reset(self) -> None:
        """Forget the episode."""
        self._carry = begin(self.team)

    def stack(self, obs: dict[str, Any]) -> np.ndarray:
        """Observations by name as one padded array [N, O]; zeros for agents that are left out."""
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

    def act(self, obs: dict[str, Any], greedy: bool = True, vectors: bool = False) -> dict[str, Any]:
        """What each agent does: an integer if its actions are discrete, an array in the world's range if continuous.

        Several heads make one integer, the first head counting fastest, in worlds that number pairs; elsewhere an array of
        integers. With `vectors`, one array per agent: what the world itself was given in training.
        """
        stacked = self.stack(obs)
        if greedy:
            action = _actions(self.team, outputs(self.team, stacked), None)
        else:
            action, self._carry = explore(self.team, self._carry, stacked, self._rng)
        world = to_world(self.team, action)
        return {name: self._one(i, world[i], vectors) for i, name in enumerate(self.agents) if name in obs}

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
    """A team's arrays by name: 0.weight, 0.bias, …"""
    named = [(f"{depth}.{name}", array) for depth, layer in enumerate(team.layers) for name, array in layer._asdict().items()]
    return {name: array for name, array in named if array is not None}


def unpack(arrays: dict[str, np.ndarray], about: dict[str, Any], seed: int = 0) -> Policy:
    """The policy of arrays that `pack` named, and of the facts beside them."""
    depth = 1 + max(int(name.partition(".")[0]) for name in arrays)
    layers = [Layer(**{name: arrays.get(f"{d}.{name}") for name in Layer._fields}) for d in range(depth)]  # pyright: ignore[reportArgumentType]
    spaces = [Space(**space | {"heads": tuple(space["heads"])}) for space in about["spaces"]]
    return Policy(make_team(tuple(layers), tuple(spaces), Rules(**about["rules"])), about, seed)
