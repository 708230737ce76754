"""One object per agent, for those who write the loop themselves: act, store, learn; over the functions of `algos.maddpg`.

    for each step:  a_i = trainer_i.action(o_i);  trainer_i.experience(o_i, a_i, r_i, o'_i, done, terminal)
                    for each trainer: preupdate();  for each trainer: update(trainers, t)

The interface is that of the authors' trainers; what an update computes is `maddpg.update_agent`, as in a compiled run.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from counterpoint import config as configs
from counterpoint.algos import maddpg
from counterpoint.algos.base import TD_ERRORS
from counterpoint.core import numpy_policy, prng
from counterpoint.core.actions import heads_of
from counterpoint.core.distributions import Categorical, DiagGaussian, Distribution, MultiCategorical, SoftCategorical
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import Normalise, Params
from counterpoint.core.spaces import ActionSpace, Box, Spec, action_space_of
from counterpoint.core.trees import names_of
from counterpoint.core.types import Transition
from counterpoint.runs.tables import write_whole
from counterpoint.trainers.buffer import Batch, ReplayBuffer


@dataclass(frozen=True)
class Model:
    """The networks: perceptrons with hidden layers of one width, for actor and critic alike."""

    num_units: int = 64
    """Width of the hidden layers."""
    num_layers: int = 2
    """Number of hidden layers."""
    norm: Normalise = "none"
    """Normalise the hidden layers, over their units or over the minibatch."""


AUTHORS = maddpg.Config(minibatch="per-agent", order="sequential")
"""The authors' learner, which takes agents one after another, each with its own minibatch."""


@dataclass(frozen=True)
class Settings:
    """What all trainers of a team share; the defaults are the authors'."""

    learning: maddpg.Config = AUTHORS
    """Of the learner; its networks' sizes come from the model instead."""
    batch_size: int = 1024
    """Transitions per minibatch."""
    buffer_size: int = 1_000_000
    """Transitions kept for replay."""
    overwrite: Literal["oldest", "random"] = "oldest"
    """Which of them a full buffer gives up."""
    max_episode_len: int = 25
    """Steps per episode: learning begins with batch_size episodes' worth of transitions, or with a full buffer."""
    update_every: int = 100
    """Steps between updates."""
    seed: int = 0
    """The one source of randomness; give all agents of a team the same."""

    def __post_init__(self) -> None:
        own = {name: value for name, value in vars(self).items() if name not in ("learning", "overwrite")}
        configs.override(configs.Config(), **vars(self.learning), **own)  # the checks of a run
        if self.learning.replay == "prioritised" and self.learning.minibatch == "shared":
            raise UsageError(
                "trainers draw by priority each for itself: choose minibatch='per-agent' in the learning settings."
            )

    @property
    def warmup(self) -> int:
        """Transitions before the first update."""
        return min(self.batch_size * max(self.max_episode_len, 1), self.buffer_size)


class Losses(NamedTuple):
    """What an update reports; the names are those of a run's metrics."""

    critic_loss: float
    actor_loss: float
    q: float
    td_target: float


class AgentTrainer:
    """An agent: its policy, its memory and its learner.

    `obs_shapes` and `action_spaces` are those of all agents in order; `index` says which of them this one is. With
    `local_critic` its critic sees the agent's own observation and action only: DDPG. A team shares model and settings.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        obs_shapes: Sequence[int | tuple[int, ...]],
        action_spaces: Sequence[Any],
        index: int,
        settings: Settings | None = None,
        local_critic: bool = False,
    ) -> None:
        self.name, self.index, self.settings = name, index, settings or Settings()
        n = len(obs_shapes)
        if not 0 <= index < n or len(action_spaces) != n:
            raise UsageError(f"{name} has index {index} among {n} observation shapes and {len(action_spaces)} action spaces.")
        names = tuple(f"agent_{j}" for j in range(n))
        self.spec = Spec(
            agents=names,
            roles=names,
            teams=("good",) * n,
            obs_sizes=tuple(int(np.prod(shape)) for shape in obs_shapes),
            action_spaces=tuple(map(action_space_of, action_spaces)),
        )
        self.config = dataclasses.replace(self.settings.learning, **vars(model))
        sees = np.eye(n, dtype=bool) | (not local_critic)  # only the agent's own row counts
        rows = tuple(map(tuple, sees.tolist()))
        self._learn = _learner(self.config, self.spec, rows)
        key_init, self._key_learn = jax.random.split(prng.key(self.settings.seed))
        self.agent: maddpg.Agent = _starter(model, self.config.standardise_rewards, self.spec, rows)(key_init, index)
        self.replay_buffer = ReplayBuffer(
            self.settings.buffer_size,
            overwrite=self.settings.overwrite,
            prioritised=self.config.replay == "prioritised",
            seed=(self.settings.seed, 1 + index),
            exponent=self.config.priority_exponent,
            beta=self.config.priority_beta,
        )
        self.replay_sample_index: np.ndarray | None = None
        """Which transitions the last update learnt from, until `preupdate`."""
        self._rng = np.random.default_rng((self.settings.seed, 0, index))
        self._earlier_steps = 0
        self.updates = 0
        """How often the agent has learnt."""
        self._before = self.agent.target_actor
        self._team = self._acting()
        self._noise = numpy_policy.begin(self._team)

    @property
    def space(self) -> ActionSpace:
        return self.spec.action_spaces[self.index]

    @property
    def steps(self) -> int:
        """Transitions ever stored, before loading too: what the schedule of exploration counts."""
        return self._earlier_steps + self.replay_buffer.added

    def action(self, obs: Any, greedy: bool = False) -> np.ndarray:
        """The action for one observation, in the world's units: a probability or one-hot vector per head, or real numbers."""
        seen = self._observation(obs)[None]
        if greedy:
            action = numpy_policy.greedy(self._team, seen)
        else:
            action, self._noise = numpy_policy.explore(self._team, self._noise, seen, self._rng, self.steps)
        return numpy_policy.to_world(self._team, action)[0]

    def to_space(self, action: np.ndarray) -> Any:
        """The action as Gymnasium writes it: an integer for one head, integers for several, a real vector as it is."""
        if isinstance(self.space, Box):
            return action
        choices = numpy_policy.choices(self._team.spaces[0], action)
        return choices[0] if len(choices) == 1 else np.array(choices)

    def distribution(self, obs: Any) -> Distribution:
        """From what `action` draws, in the world's units; of real numbers before they are cut to their range."""
        logits = jnp.asarray(numpy_policy.outputs(self._team, self._observation(obs)[None])[0])
        space, config = self.space, self.config
        if isinstance(space, Box):
            share = min(self.steps / config.noise_steps, 1.0)
            half = jnp.asarray(space.half_width, jnp.float32)
            noise = half * (config.noise_start + (config.noise_end - config.noise_start) * share)
            return DiagGaussian(half * jnp.tanh(logits) + jnp.asarray(space.middle, jnp.float32), jnp.log(noise))
        if len(space.heads) > 1:
            return MultiCategorical.split(logits, space.heads)
        return SoftCategorical(logits, config.temperature) if config.world_action == "soft" else Categorical(logits)

    def experience(self, obs: Any, act: Any, rew: Any, new_obs: Any, done: Any, terminal: Any) -> None:
        """Stores a step. `act` is what `action` or `to_space` gave; `done` ends the game, `terminal` only the recording."""
        self.replay_buffer.add(self._observation(obs), self._vector(act), rew, self._observation(new_obs), done)
        if done or terminal:
            self._noise = numpy_policy.begin(self._team)

    def preupdate(self) -> None:
        """Forgets which transitions the last update learnt from."""
        self.replay_sample_index = None

    def update(self, agents: Sequence["AgentTrainer"], t: int) -> Losses | None:
        """Learns, if t is a multiple of `update_every` and enough is stored; reads the other agents, changes only itself."""
        if t % self.settings.update_every or len(self.replay_buffer) < self.settings.warmup:
            return None
        self._check_team(agents)
        with together(agents):
            index = self._draw()
            batches = [agent.replay_buffer.sample_index(index) for agent in agents]
            weight = self.replay_buffer.weights(index) if self.replay_buffer.prioritised else None
        self.replay_sample_index = index
        targets = [agent.target_actor_in(self.updates) for agent in agents]
        figures = self.learn(targets, self._joint(batches, weight), _fold_in(self._key_learn, self.updates))
        errors = figures.pop(TD_ERRORS, None)
        if errors is not None:
            self.replay_buffer.update_priorities(index, errors)
        return Losses(**{name: float(value) for name, value in figures.items()})

    def learn(self, targets: Sequence[Params], batch: Transition, key: jax.Array) -> dict[str, np.ndarray]:
        """One `maddpg.update_agent` on a joint batch [B, …], given all agents' target actors; returns its figures."""
        self._before = self.agent.target_actor
        i = np.int32(self.index)
        self.agent, figures = self._learn(self.agent, *_gather(list(targets), batch, i), batch, i, key)
        self.updates += 1
        self._team = self._acting()
        return jax.device_get(figures)

    def target_actor_in(self, update: int) -> Params:
        """What an agent reads of this one in its update of that number: if all learn from a snapshot, not what that moved."""
        return self._before if self.config.order == "snapshot" and self.updates == update + 1 else self.agent.target_actor

    def save(self, save_dir: str | Path, scenario: str) -> Path:
        """Writes networks, targets and optimisers to <save_dir>/<scenario>/agent_<index>/; replay is not kept."""
        path = self._path(save_dir, scenario)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make {path.parent} ({error.strerror}): choose another save_dir.") from error
        leaves = map(np.asarray, jax.tree.leaves(self.agent))
        tensors = {name: np.asarray(leaf, order="C") for name, leaf in zip(names_of(self.agent), leaves, strict=True)}
        about = {"name": self.name, "steps": self.steps, "updates": self.updates, "learning": dataclasses.asdict(self.config)}
        write_whole(path, lambda draft: safetensors.numpy.save_file(tensors, draft, {"about": json.dumps(about)}))
        return path

    def load(self, save_dir: str | Path, scenario: str) -> None:
        """Takes up what `save` wrote."""
        path = self._path(save_dir, scenario)
        try:
            with safetensors.safe_open(path, "np") as file:
                names = file.keys()
                tensors = {name: file.get_tensor(name) for name in names}
                about = json.loads(file.metadata()["about"])
        except FileNotFoundError:
            raise UsageError(f"{path} does not exist: save the agent first, or check save_dir and scenario.") from None
        except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
            raise UsageError(f"{path} is damaged ({error}): restore it, or start without it.") from None
        wanted = dict(zip(names_of(self.agent), jax.tree.leaves(self.agent), strict=True))
        if {name: array.shape for name, array in tensors.items()} != {name: leaf.shape for name, leaf in wanted.items()}:
            raise UsageError(f"{path} holds other networks than {self.name} has: use the model and spaces it was saved with.")
        self.agent = jax.tree.unflatten(jax.tree.structure(self.agent), [jnp.asarray(tensors[name]) for name in wanted])
        self._earlier_steps = about["steps"] - self.replay_buffer.added
        self.updates, self._before = about["updates"], self.agent.target_actor
        self._team = self._acting()

    def _path(self, save_dir: str | Path, scenario: str) -> Path:
        return Path(save_dir).expanduser() / scenario / f"agent_{self.index}" / "trainer.safetensors"

    def _acting(self) -> numpy_policy.Team:
        """The actor in NumPy, which answers one observation far sooner than a compiled program would start."""
        i, actor = self.index, jax.tree.map(lambda leaf: np.asarray(leaf)[None], self.agent.actor)
        padded = numpy_policy.team_of(actor, (self.space,), self.config)
        return numpy_policy.only(padded, 0, self.spec.obs_sizes[i])

    def _observation(self, obs: Any) -> np.ndarray:
        seen, size = np.asarray(obs, np.float32).ravel(), self.spec.obs_sizes[self.index]
        if seen.size != size:
            raise UsageError(f"an observation of {self.name} has {size} numbers, not {seen.size}.")
        return seen

    def _vector(self, act: Any) -> np.ndarray:
        """An action as learners read it: heads' vectors side by side, or real numbers in [−1, 1]."""
        space, given = self.space, np.asarray(act).ravel()
        if isinstance(space, Box):
            if given.size == space.size:
                return ((given.astype(np.float32) - space.middle) / space.half_width).astype(np.float32)
        elif given.size == space.size and (given.dtype.kind == "f" or space.size != len(space.heads)):
            return given.astype(np.float32)
        elif given.size == len(space.heads) and given.dtype.kind in "iu" and ((given >= 0) & (given < space.heads)).all():
            return np.concatenate([np.eye(width, dtype=np.float32)[k] for width, k in zip(space.heads, given, strict=True)])
        raise UsageError(f"{self.name} cannot have done {act!r}: give what action or to_space returned.")

    def _check_team(self, agents: Sequence["AgentTrainer"]) -> None:
        if len(agents) != self.spec.num_agents or any(agent.index != j for j, agent in enumerate(agents)):
            raise UsageError(f"update needs all {self.spec.num_agents} agents in the order of their indices.")
        stored = {agent.name: agent.replay_buffer.added for agent in agents}
        if len(set(stored.values())) > 1:
            fewest, most = min(stored, key=stored.__getitem__), max(stored, key=stored.__getitem__)
            raise UsageError(
                f"{fewest} has stored {stored[fewest]} transitions and {most} {stored[most]}: "
                "give every agent its experience of every step before the update."
            )

    def _draw(self) -> np.ndarray:
        size = self.settings.batch_size
        if self.config.minibatch == "per-agent":
            return self.replay_buffer.make_index(size)
        common = np.random.default_rng((self.settings.seed, self.updates))  # the same numbers for every agent
        return common.integers(len(self.replay_buffer), size=size)

    def _joint(self, batches: Sequence[Batch], weight: np.ndarray | None) -> Transition:
        """The agents' transitions as one batch [B, N, …], padded."""
        spec, size = self.spec, len(batches[0].reward)
        obs, next_obs = (np.zeros((size, spec.num_agents, spec.obs_size), np.float32) for _ in range(2))
        action = np.zeros((size, spec.num_agents, spec.act_size), np.float32)
        for j, batch in enumerate(batches):
            obs[:, j, : spec.obs_sizes[j]] = batch.obs
            next_obs[:, j, : spec.obs_sizes[j]] = batch.next_obs
            action[:, j, : spec.act_sizes[j]] = batch.action
        arrays: dict[str, Any] = {
            "obs": obs,
            "action": action,
            "reward": np.stack([batch.reward for batch in batches], axis=1),
            "next_obs": next_obs,
            "terminated": np.stack([batch.done for batch in batches], axis=1),
            "alive": np.ones((size, spec.num_agents), bool),
            "done": np.zeros(size, bool),
            "weight": weight,
        }
        return Transition(**arrays)


def experience(agents: Sequence[AgentTrainer], obs: Any, act: Any, rew: Any, new_obs: Any, done: Any, terminal: Any) -> None:
    """Stores one step of all agents at once, in order, so that several threads may do so without mixing up their steps."""
    with together(agents):
        for agent, *mine in zip(agents, obs, act, rew, new_obs, done, strict=True):
            agent.experience(*mine, terminal)


@contextmanager
def together(agents: Sequence[AgentTrainer]) -> Iterator[None]:
    """Holds the memories of all agents still: nobody else stores or samples meanwhile."""
    with ExitStack() as held:
        for agent in sorted(agents, key=lambda agent: agent.index):  # always in one order, or two could wait for each other
            held.enter_context(agent.replay_buffer.lock)
        yield


Rows = tuple[tuple[bool, ...], ...]


def _problem(spec: Spec, sees: Rows) -> maddpg.Problem:
    return maddpg.Problem(spec=spec, heads=heads_of(spec), sees=np.array(sees), axis=None)


@lru_cache(maxsize=32)
def _starter(model: Model, standardise_rewards: bool, spec: Spec, sees: Rows) -> Any:
    """(key, i) → agent i as it starts; shared by all trainers of a team."""
    config = maddpg.Config(**vars(model), standardise_rewards=standardise_rewards)
    return jax.jit(lambda key, i: jax.tree.map(lambda leaf: leaf[i], maddpg.init(config, _problem(spec, sees), key)))


@lru_cache(maxsize=32)
def _learner(config: maddpg.Config, spec: Spec, sees: Rows) -> Any:
    """(own, target actors, column, batch, i, key) → (agent, figures); shared by all trainers of a team."""

    def learn(own: maddpg.Agent, targets: Params, *rest: Any) -> Any:
        team = maddpg.Agent(None, None, targets, None, None, None)  # pyright: ignore[reportArgumentType] — all that others are read for
        return maddpg.update_agent(config, _problem(spec, sees), own, team, *rest)

    return jax.jit(learn)


@jax.jit
def _gather(targets: list[Params], batch: Transition, i: jax.Array) -> tuple[Params, Transition]:
    """All agents' target actors stacked, and agent i's part of a batch. Within `learn` this would change how that rounds."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *targets), maddpg.column(batch, i)


_fold_in = jax.jit(jax.random.fold_in)
