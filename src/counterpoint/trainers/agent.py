"""One object per agent for a loop of your own: it acts, stores and learns, over the functions of `algos`.

    for each step:  a_i = trainer_i.action(o_i);  trainer_i.experience(o_i, a_i, r_i, o'_i, done, terminal)
                    for each trainer: preupdate();  for each trainer: update(trainers, t)

The interface is that of MADDPG's authors' trainers; an update computes the algorithm's `update_agent`, as in a compiled run.
`AgentTrainer` is MADDPG and DDPG, `MATD3Trainer` and `MASACTrainer` are theirs.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.algos import maddpg, masac, matd3, offpolicy
from counterpoint.algos.base import TD_ERRORS
from counterpoint.core import numpy_policy, prng
from counterpoint.core.checks import at_least
from counterpoint.core.distributions import (
    Categorical,
    DiagGaussian,
    Distribution,
    MultiCategorical,
    SoftCategorical,
    SquashedGaussian,
)
from counterpoint.core.errors import UsageError
from counterpoint.core.ops import discounted_returns
from counterpoint.core.spaces import ActionSpace, Box, Spec, action_space_of
from counterpoint.core.types import Transition
from counterpoint.trainers import files
from counterpoint.trainers.buffer import Batch, ReplayBuffer
from counterpoint.trainers.learner import (
    MADDPG,
    MASAC,
    MATD3,
    Method,
    Sizes,
    fold_in,
    gather,
    learner,
    networks_of,
    outputs,
    rules_of,
    starter,
)
from counterpoint.training.replay import in_sequences

sequences_of = jax.jit(in_sequences, static_argnums=2)

AUTHORS = maddpg.Config(minibatch="per-agent", order="sequential", init="glorot")
"""The authors' learner: agents learn one after another, each from its own minibatch, and weights start as Glorot's."""


@dataclass(frozen=True)
class Settings:
    """The settings that all trainers of a team share; the defaults are the authors'."""

    learning: offpolicy.Settings = AUTHORS
    """Settings of the learner; `Sizes` replace its width, depth and norm. The default stands for the trainer's own."""
    batch_size: int = 1024
    """Transitions per minibatch."""
    buffer_size: int = 1_000_000
    """Transitions kept for replay."""
    overwrite: Literal["oldest", "random"] = "oldest"
    """Which transition a full buffer overwrites."""
    max_episode_len: int = 25
    """Steps per episode, for the default of `warmup`."""
    warmup: int = 0
    """Transitions before the first update (0: batch_size × max_episode_len, at most buffer_size)."""
    update_every: int = 100
    """Steps between updates."""
    seed: int = 0
    """Seed of all randomness; give all agents of a team the same."""
    save_dir: str = ""
    """Folder of the saved models."""
    scenario: str = "default"
    """Name of the folder in save_dir."""
    save_rate: int = 0
    """Steps between the models that update keeps under numbers (0: it keeps none)."""
    restore: bool = False
    """Load the newest saved model at the start, if there is one."""

    def __post_init__(self) -> None:
        at_least(self, 1, "batch_size", "update_every")
        at_least(self, 0, "max_episode_len", "warmup", "seed", "save_rate")
        at_least(self, self.batch_size, "buffer_size")
        if self.warmup > self.buffer_size:
            raise UsageError(f"warmup {self.warmup} must be at most buffer_size {self.buffer_size}: choose a smaller one.")
        if (self.save_rate or self.restore) and not self.save_dir:
            raise UsageError("save_rate and restore need a folder: set save_dir too.")
        if self.learning.share != "none":
            raise UsageError(f"each trainer has parameters of its own: leave out share={self.learning.share!r}.")
        if self.learning.recurrent and self.overwrite == "random":
            raise UsageError("recurrent agents learn from sequences of successive steps: leave overwrite at 'oldest'.")
        if self.learning.recurrent and self.learning.window > self.buffer_size:
            raise UsageError(
                f"sequences of {self.learning.window} steps need a buffer_size of at least as many: choose a larger one."
            )
        if self.learning.n_step > 1 and not self.learning.recurrent:
            raise UsageError(
                f"trainers store single steps: leave n_step at 1 in the learning settings, not {self.learning.n_step}."
            )
        if self.learning.replay == "prioritised" and self.learning.minibatch == "shared":
            raise UsageError(
                "trainers draw by priority each for itself: choose minibatch='per-agent' in the learning settings."
            )

    @property
    def first_update(self) -> int:
        """Transitions that the buffer must hold before the first update."""
        first = self.warmup or min(self.batch_size * max(self.max_episode_len, 1), self.buffer_size)
        return max(first, self.learning.window) if self.learning.recurrent else first


class Losses(NamedTuple):
    """The metrics of an update, named as in a run."""

    critic_loss: float
    actor_loss: float
    q: float
    td_target: float


class SoftLosses(NamedTuple):
    """The metrics of MASAC's update, named as in a run."""

    critic_loss: float
    actor_loss: float
    q: float
    td_target: float
    entropy: float
    alpha: float


class AgentTrainer:
    """An agent of MADDPG or DDPG: its policy, its replay buffer and its learner.

    `model` is `Sizes` or an object with functions init and apply, such as `Model`. `obs_shapes` and `action_spaces` are those
    of all agents in order; `index` is this agent's place among them. With `local_critic` the critic sees the agent's own
    observation and action only: DDPG. A team shares model and settings.
    """

    method: ClassVar[Method] = MADDPG
    usual: ClassVar[offpolicy.Settings] = AUTHORS
    """The settings of the learner unless others are given."""
    losses: ClassVar[Any] = Losses

    def __init__(
        self,
        name: str,
        model: Any,
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
        self.networks = networks_of(model)
        sizes = vars(self.networks) if isinstance(self.networks, Sizes) else {}
        learning = self.usual if self.settings.learning == AUTHORS else self.settings.learning
        if not isinstance(learning, self.method.settings):
            kind, own = type(self).__name__, self.method.settings
            raise UsageError(
                f"{kind} needs learning settings of {own.__module__}.{own.__name__}, not of {type(learning).__module__}."
            )
        self.config: Any = dataclasses.replace(learning, **sizes)
        if getattr(self.config, "infer_policies", False):
            raise UsageError("infer_policies=True needs counterpoint.train: trainers are told the other agents' targets.")
        if getattr(self.config, "log_actions", False):
            raise UsageError("log_actions=True needs counterpoint.train: the critics of trainers read the actions themselves.")
        if self.config.recurrent and not isinstance(self.networks, Sizes):
            raise UsageError(f"the model of {name} does not remember: give Sizes, or leave out recurrent=True.")
        sees = np.eye(n, dtype=bool) | (not local_critic)  # only the agent's own row counts
        rows = tuple(map(tuple, sees.tolist()))
        self._learn = learner(self.method, self.networks, self.config, self.spec, rows)
        key_init, self._key_learn = jax.random.split(prng.key(self.settings.seed))
        self.agent: Any = starter(self.method, self.networks, self.config, self.spec, rows)(key_init, index)
        self.replay_buffer = ReplayBuffer(
            self.settings.buffer_size,
            overwrite=self.settings.overwrite,
            prioritised=self.config.replay == "prioritised",
            seed=(self.settings.seed, 1 + index),
            exponent=self.config.priority_exponent,
            beta=self.config.priority_beta,
        )
        self.replay_sample_index: np.ndarray | None = None
        """Places of the transitions that the last update learnt from, until `preupdate`."""
        self._rng = np.random.default_rng((self.settings.seed, 0, index))
        self._earlier_steps = 0
        self.updates = 0
        """Number of updates so far."""
        self._kept = 0
        self._before = self._read
        self._team = self._acting()
        self.reset()
        if self.settings.restore and files.newest(self._folder()):
            self.load()

    @property
    def _read(self) -> Any:
        """The network that other agents read when they learn: the target actor, or MASAC's actor."""
        return getattr(self.agent, self.method.reads)

    @property
    def space(self) -> ActionSpace:
        return self.spec.action_spaces[self.index]

    @property
    def steps(self) -> int:
        """Steps stored so far, including those before loading; the schedule of exploration counts them."""
        return self._earlier_steps + self.replay_buffer.added

    @property
    def missing(self) -> int:
        """Transitions that are still missing before the first update; 0 if enough are stored."""
        return max(self.settings.first_update - len(self.replay_buffer), 0)

    def reset(self) -> None:
        """Begins another episode: forgets what was remembered within the last one. `experience` does so where one ends."""
        self._noise, self._hidden = numpy_policy.begin(self._team), numpy_policy.begin_hidden(self._team)

    def action(self, obs: Any, greedy: bool = False) -> np.ndarray:
        """Returns the action for one observation, in the environment's units.

        It is a probability or one-hot vector per head, or real numbers. A recurrent agent remembers the observation: ask once
        per step, and `reset` it before and after episodes that are not stored.
        """
        raw, self._hidden = numpy_policy.remembering(self._team, self._hidden, self._inputs(obs))
        if greedy:
            action = numpy_policy.best(self._team, raw)
        else:
            action, self._noise = numpy_policy.drawn(self._team, self._noise, raw, self._rng, self.steps)
        return numpy_policy.to_world(self._team, action)[0]

    def to_space(self, action: np.ndarray) -> Any:
        """Returns the action as Gymnasium expects it: an integer for one head, integers for several, a real vector as it is."""
        if isinstance(self.space, Box):
            return action
        choices = numpy_policy.choices(self._team.spaces[0], action)
        return choices[0] if len(choices) == 1 else np.array(choices)

    def distribution(self, obs: Any) -> Distribution:
        """Returns the distribution that `action` draws from, in the environment's units and before clipping to the bounds.

        A recurrent agent does not remember having been asked.
        """
        logits = jnp.asarray(numpy_policy.remembering(self._team, self._hidden, self._inputs(obs))[0][0])
        space, config = self.space, self.config
        if self._team.rules.noise == "squashed" and isinstance(space, Box):
            mean, log_std = jnp.split(logits, 2)
            half, middle = (jnp.asarray(part, jnp.float32) for part in (space.half_width, space.middle))
            return SquashedGaussian(mean, jnp.clip(log_std, *numpy_policy.LOG_STD), half, middle)
        logits = logits[: space.size]
        if isinstance(space, Box):
            share = min(self.steps / config.noise_steps, 1.0)
            half = jnp.asarray(space.half_width, jnp.float32)
            noise = half * (config.noise_start + (config.noise_end - config.noise_start) * share)
            return DiagGaussian(half * jnp.tanh(logits) + jnp.asarray(space.middle, jnp.float32), jnp.log(noise))
        if len(space.heads) > 1:
            return MultiCategorical.split(logits, space.heads)
        soft = self._team.rules.world_action == "soft"
        return SoftCategorical(logits, config.temperature) if soft else Categorical(logits)

    def experience(
        self,
        obs: Any = None,
        act: Any = None,
        rew: Any = 0.0,
        new_obs: Any = None,
        done: Any = False,
        terminal: Any = False,
        alive: bool = True,
    ) -> None:
        """Stores a step. `act` is the result of `action` or `to_space`; `done` ends the game, `terminal` only the recording.

        For an agent that died before this step, `experience(alive=False)` is enough: nobody learns from its part of the step,
        and the agents' buffers stay aligned.
        """
        i = self.index
        if not alive:
            seen = np.zeros(self.spec.obs_sizes[i], np.float32)
            self.replay_buffer.add(seen, np.zeros(self.spec.act_sizes[i], np.float32), 0.0, seen, True, alive=False)
            return
        missing = [name for name, given in (("obs", obs), ("act", act), ("new_obs", new_obs)) if given is None]
        if missing:
            raise UsageError(f"{self.name} needs {', '.join(missing)}: give them, or alive=False if the agent is dead.")
        last = bool(done) or bool(terminal)
        self.replay_buffer.add(self._observation(obs), self._vector(act), rew, self._observation(new_obs), done, last=last)
        if last:
            self.reset()

    def preupdate(self) -> None:
        """Forgets the places of the last minibatch."""
        self.replay_sample_index = None

    def update(self, agents: Sequence["AgentTrainer"], t: int) -> Any:
        """Learns from a minibatch and returns its losses; reads the other agents and changes only itself.

        Returns None if t is no multiple of `update_every`, or while transitions are missing: `missing` says how many.
        """
        if t % self.settings.update_every or self.missing:
            return None
        self._check_team(agents)
        with together(agents):
            if self.config.recurrent:
                index, joint = self._sequences(agents)
            else:
                index = self._draw()
                batches = [agent.replay_buffer.sample_index(index) for agent in agents]
                joint = self._joint(batches, self.replay_buffer.weights(index) if self.replay_buffer.prioritised else None)
        self.replay_sample_index = index
        read = [agent.network_in(self.updates) for agent in agents]
        metrics = self.learn(read, joint, fold_in(self._key_learn, self.updates))
        errors = metrics.pop(TD_ERRORS, None)
        if errors is not None:
            self.replay_buffer.update_priorities(index, errors)
        self._keep()
        return self.losses(**{name: float(value) for name, value in metrics.items()})

    def learn(self, read: Sequence[Any], batch: Transition, key: jax.Array) -> dict[str, np.ndarray]:
        """Performs one update on a joint batch [B, …], given all agents' `network_in`, and returns its metrics."""
        self._before = self._read
        i = np.int32(self.index)
        self.agent, metrics = self._learn(self.agent, *gather(list(read), batch, i), batch, i, key)
        self.updates += 1
        self._team = self._acting()
        return jax.device_get(metrics)

    def network_in(self, update: int) -> Any:
        """Returns the network that others read in their update of that number, a target actor or MASAC's actor: of a snapshot,
        the one before it."""
        return self._before if self.config.order == "snapshot" and self.updates == update + 1 else self._read

    def save(self, save_dir: str | Path = "", scenario: str = "", number: int | None = None) -> Path:
        """Writes networks, targets and optimisers to <save_dir>/<scenario>/agent_<index>/ and returns the file's path.

        The file is trainer.safetensors, or <number>_trainer.safetensors. The folder is the settings' unless given here.
        The replay buffer is not saved.
        """
        path = files.path_of(self._folder(save_dir, scenario), number)
        about = {"name": self.name, "steps": self.steps, "updates": self.updates, "learning": dataclasses.asdict(self.config)}
        files.save(path, self.agent, self.spec, about)
        return path

    def load(self, save_dir: str | Path = "", scenario: str = "", number: int | None = None) -> None:
        """Restores what `save` wrote: the model with that number, or the one with the most steps."""
        folder = self._folder(save_dir, scenario)
        path = files.path_of(folder, number) if number is not None else files.newest(folder) or files.path_of(folder)
        self.agent, about = files.load(path, self.agent, self.spec, self.name)
        self._earlier_steps = about["steps"] - self.replay_buffer.added
        self.updates, self._before = about["updates"], self._read
        self._kept = self.steps // self.settings.save_rate if self.settings.save_rate else 0
        self._team = self._acting()

    def _keep(self) -> None:
        """Saves the model under the number steps // save_rate whenever that number has grown."""
        rate = self.settings.save_rate
        if rate and self.steps // rate > self._kept:
            self._kept = self.steps // rate
            self.save(number=self._kept)

    def _folder(self, save_dir: str | Path = "", scenario: str = "") -> Path:
        place = str(save_dir) or self.settings.save_dir
        if not place:
            raise UsageError("there is no folder for the models: give save_dir, or set it in Settings.")
        return Path(place).expanduser() / (scenario or self.settings.scenario) / f"agent_{self.index}"

    def _acting(self) -> numpy_policy.Team:
        """Returns the actor in NumPy, which is faster for one observation than a call of a compiled program.

        A network of the user's own has no NumPy form: its team takes the network's outputs in place of observations.
        """
        rules = numpy_policy.Rules(**rules_of(self.method, self.config, self.spec))
        spaces = (numpy_policy.space_of(self.space),)
        if not isinstance(self.networks, Sizes):
            size = self.space.size * (2 if rules.noise == "squashed" else 1)
            same = numpy_policy.Layer(np.eye(size, dtype=np.float32)[None], np.zeros((1, 1, size), np.float32))
            return numpy_policy.make_team((same,), spaces, rules)
        actor = jax.tree.map(lambda leaf: np.asarray(leaf)[None], self.agent.actor)
        padded = numpy_policy.make_team(numpy_policy.layers_of(actor), spaces, rules)
        return numpy_policy.only(padded, 0, self.spec.obs_sizes[self.index])

    def _inputs(self, obs: Any) -> np.ndarray:
        """Returns the input of the NumPy team, [1, …]: an observation, or the outputs of a network of the user's own."""
        seen = self._observation(obs)[None]
        if isinstance(self.networks, Sizes):
            return seen
        padded = np.pad(seen, ((0, 0), (0, self.spec.obs_size - seen.shape[1])))
        raw = np.asarray(outputs(self.networks)(self.agent.actor, padded))
        return raw[:, np.arange(raw.shape[1]) % self.spec.act_size < self.space.size]

    def _observation(self, obs: Any) -> np.ndarray:
        seen, size = np.asarray(obs, np.float32).ravel(), self.spec.obs_sizes[self.index]
        if seen.size != size:
            raise UsageError(f"an observation of {self.name} has {size} numbers, not {seen.size}.")
        return seen

    def _vector(self, act: Any) -> np.ndarray:
        """Returns an action as learners read it: the heads' vectors side by side, or real numbers in [−1, 1]."""
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
                "give every agent its experience of every step before the update, and alive=False to a dead one."
            )

    def _draw(self) -> np.ndarray:
        size = self.settings.batch_size
        if self.config.minibatch == "per-agent":
            return self.replay_buffer.make_index(size)
        common = np.random.default_rng((self.settings.seed, self.updates))  # the same numbers for every agent
        return common.integers(len(self.replay_buffer), size=size)

    def _sequences(self, agents: Sequence["AgentTrainer"]) -> tuple[np.ndarray, Transition]:
        """Returns the places of random sequences of steps, side by side, and the joint batch of them."""
        config, buffer = self.config, self.replay_buffer
        count = max(1, self.settings.batch_size // config.sequence_length)
        common = np.random.default_rng((self.settings.seed, self.updates)) if config.minibatch == "shared" else None
        index, before = buffer.make_sequences(count, config.window, common)
        joint = self._joint([agent.replay_buffer.sample_index(index.ravel()) for agent in agents], None)
        ended = [agent.replay_buffer.sample_index(np.maximum(before, 0)).last for agent in agents]
        fresh = np.where(before >= 0, np.all(ended, axis=0), before == -1)
        steps = jax.tree.map(lambda leaf: leaf.reshape(*index.shape, *leaf.shape[1:]), joint)
        return index.ravel(), sequences_of(steps, fresh, config.burn_in)

    def _joint(self, batches: Sequence[Batch], weight: np.ndarray | None) -> Transition:
        """Returns the agents' transitions as one padded batch [B, N, …]."""
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
            "alive": np.stack([batch.alive for batch in batches], axis=1),
            "done": np.all([batch.last for batch in batches], axis=0),
            "weight": weight,
        }
        return Transition(**arrays)


class MATD3Trainer(AgentTrainer):
    """An agent of MATD3: as `AgentTrainer`, with learning settings of `algos.matd3.Config`."""

    method = MATD3
    usual = matd3.Config(minibatch="per-agent", order="sequential", init="glorot")


class MASACTrainer(AgentTrainer):
    """An agent of MASAC: as `AgentTrainer`, with learning settings of `algos.masac.Config`."""

    method = MASAC
    usual = masac.Config(minibatch="per-agent")
    losses = SoftLosses


def experience(agents: Sequence[AgentTrainer], obs: Any, act: Any, rew: Any, new_obs: Any, done: Any, terminal: Any) -> None:
    """Stores one step of all agents at once, so that several threads cannot mix up their steps.

    Each argument is a dictionary by the agents' names or a sequence in their order; `done` and `terminal` may also be one
    truth value for all. An agent without an action, missing from the dictionary or None, is dead.
    """
    columns = [_entries(agents, table) for table in (obs, act, rew, new_obs, done, terminal)]
    with together(agents):
        for agent, *mine in zip(agents, *columns, strict=True):
            if mine[1] is None:
                agent.experience(alive=False)
            else:
                agent.experience(*mine)


def _entries(agents: Sequence[AgentTrainer], table: Any) -> list[Any]:
    """Returns one entry per agent; None for names that a dictionary leaves out."""
    if isinstance(table, Mapping):
        return [table.get(agent.name) for agent in agents]
    if isinstance(table, bool | np.bool_):
        return [table] * len(agents)
    if len(table) != len(agents):
        raise UsageError(f"a step needs one entry for each of {len(agents)} agents, not {len(table)}: give None to dead ones.")
    return list(table)


def discount_with_dones(rewards: Sequence[Any] | Any, dones: Sequence[Any] | Any, gamma: float) -> np.ndarray:
    """Returns the discounted return that follows each step; nothing follows a step that is done."""
    reward, done = np.asarray(rewards, np.float32), np.asarray(dones, bool)
    if reward.ndim != 1 or reward.shape != done.shape:
        raise UsageError(f"rewards and dones need one entry per step each, not shapes {reward.shape} and {done.shape}.")
    return np.asarray(discounted_returns(jnp.asarray(reward), jnp.asarray(done), gamma))


@contextmanager
def together(agents: Sequence[AgentTrainer]) -> Iterator[None]:
    """Locks the replay buffers of all agents: other threads neither store nor sample meanwhile."""
    with ExitStack() as held:
        for agent in sorted(agents, key=lambda agent: agent.index):  # always in one order, or two could wait for each other
            held.enter_context(agent.replay_buffer.lock)
        yield
