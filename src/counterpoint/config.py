"""All settings of a run: one frozen dataclass of groups. Each field is one flag, with its help beside it.

`config.json` holds this as plain data and rebuilds the run exactly. Presets are values of it.
"""

import ast
import dataclasses
import difflib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import tyro

from counterpoint.algos import offpolicy
from counterpoint.algos.base import Entry, Replay, Rollout, entries, find, visibility
from counterpoint.coded.settings import Distribution
from counterpoint.core.checks import GREATEST, LARGEST, above, at_least, at_most, flag, fraction, shown
from counterpoint.core.errors import UsageError
from counterpoint.core.loading import address_of, short_name
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Environment
from counterpoint.envs import WORLDS, make

TeamAlgorithm = Annotated[str, tyro.conf.arg(help_behavior_hint="(default: same as --algorithm)")]
Words = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE …", help_behavior_hint="(default: none)")]


DEFAULT = "maddpg"
"""The algorithm of a run that names none."""


def _fields(scenario: str) -> set[str]:
    """Returns the arguments of a built-in environment."""
    return {f.name for f in dataclasses.fields(WORLDS[scenario])} if scenario in WORLDS else set()


@dataclass(frozen=True)
class EnvSettings:
    """The environment and its agents."""

    scenario: str = "simple"
    """Built-in environment (listed by `counterpoint envs`)."""
    env: str = ""
    """Your own environment instead of a scenario: PettingZoo, Gymnasium or compiled, as package.module:name or file.py:name, or
    a Gymnasium id such as CartPole-v1."""
    max_episode_len: int = 0
    """Steps per episode (0: the environment's own limit; 25 in particle environments)."""
    num_agents: int = 0
    """Number of agents (0: the scenario's own)."""
    num_adversaries: int = 0
    """Number of adversaries among them (0: the scenario's own)."""
    flavour: Literal["mpe2", "openai"] = "mpe2"
    """Rules of the particle environments: those of the maintained package or of the original of 2017."""
    actions: Literal["discrete", "continuous"] = "discrete"
    """Kind of actions in particle environments (see also --world-action)."""
    scenario_args: Words = ()
    """Further arguments of the scenario or of --env, such as N=5."""
    teams: Words = ()
    """Teams of the agents of --env, such as wolf_*=adversary (default: agents named adversary… are adversaries)."""

    def __post_init__(self) -> None:
        at_least(self, 0, "max_episode_len", "num_agents")
        at_most(self, MOST_AGENTS, "num_agents", "num_adversaries")
        at_most(self, 10_000_000, "max_episode_len")

    @property
    def title(self) -> str:
        """The environment in words."""
        if self.env:
            return self.env
        return f"{self.scenario} ({self.flavour})" if "flavour" in _fields(self.scenario) else self.scenario

    @property
    def short(self) -> str:
        """The environment in one word, for the names of folders."""
        return short_name(self.env).replace("/", "-") or self.scenario  # a Gymnasium id may be ALE/Pong-v5

    def build(self) -> Environment:
        """Opens or makes the environment."""
        if self.env:
            return self._open()
        if self.teams:
            raise UsageError(f"--teams {' '.join(self.teams)} is for --env; {self.scenario} has its own teams: leave it out.")
        if self.scenario not in WORLDS:
            make(self.scenario)  # for its sentence
        known = _fields(self.scenario)
        arguments = self._arguments()
        if self.max_episode_len:
            arguments["max_steps"] = self.max_episode_len
        if "flavour" in known:
            arguments["flavour"] = self.flavour
        if "actions" in known:
            arguments["actions"] = self.actions
        if self.num_agents or self.num_adversaries > 0:
            arguments |= self._sizes(known)
        _refuse_huge(self.scenario, arguments)
        return make(self.scenario, **arguments)

    def _open(self) -> Environment:
        """Opens the environment at the address of --env."""
        from counterpoint.external.opening import open_environment

        if self.num_agents or self.num_adversaries > 0:
            raise UsageError("--num-agents and --num-adversaries are for scenarios: give the size of --env by --scenario-args.")
        return open_environment(self.env, self._arguments(), self.teams, self.max_episode_len)

    def _arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for text in self.scenario_args:
            name, sign, value = text.partition("=")
            if not sign:
                raise UsageError(f"scenario argument {shown(repr(text))} must have the form name=value, such as N=5.")
            arguments[name.replace("-", "_")] = _literal(value)
        return arguments

    def _sizes(self, known: set[str]) -> dict[str, int]:
        """Returns the scenario's size arguments for the given number of agents and adversaries."""
        own = [team == "adversary" for team in make(self.scenario).spec.teams]
        total, adversaries = len(own), sum(own)
        if self.num_adversaries > 0 and self.num_adversaries != adversaries:
            if "num_adversaries" not in known:
                plural = "adversary" if adversaries == 1 else "adversaries"
                raise UsageError(
                    f"{self.scenario} always has {adversaries} {plural}: leave out --num-adversaries {self.num_adversaries}."
                )
            total += self.num_adversaries - adversaries
            adversaries = self.num_adversaries
        if self.num_agents and self.num_agents != total:
            if not known & {"N", "num_good"}:
                plural = "agent" if total == 1 else "agents"
                raise UsageError(f"{self.scenario} always has {total} {plural}: leave out --num-agents {self.num_agents}.")
            total = self.num_agents
        good = total - adversaries
        if good < 1:
            raise UsageError(f"--num-adversaries {adversaries} leaves no good agent among {total}: choose fewer.")
        wanted = {"num_adversaries": adversaries, "num_good": good, "N": good}
        return {name: value for name, value in wanted.items() if name in known}


@dataclass(frozen=True)
class Training:
    """Length of the training and size of its steps."""

    num_episodes: int = 60_000
    """Episodes to train for. A preset's --lr-steps and --entropy-steps stretch in proportion, unless you choose them."""
    batch_size: int = 1024
    """Transitions per minibatch (off-policy algorithms)."""
    buffer_size: int = 1_000_000
    """Transitions kept for replay (off-policy algorithms)."""
    update_every: int = 100
    """Environment steps, summed over parallel environments, between updates."""
    updates: int = 1
    """Updates of all agents each time (off-policy algorithms)."""
    warmup: int = 0
    """Environment steps before the first update (0: batch size × episode length, but never more than a tenth of the run)."""
    num_envs: int = 1
    """Parallel environments."""
    seed: int = 0
    """Seed of all randomness."""
    num_seeds: int = 1
    """Seeds trained in one run: seed, seed + 1, …"""
    workers: int = 0
    """Processes that step an external --env (0: one per environment, at most one per core)."""
    worker_timeout: float = 60.0
    """Seconds without an answer after which a worker process is replaced."""
    devices: int = 0
    """Devices to use (0: two on a CPU with at least two cores, otherwise one)."""

    def __post_init__(self) -> None:
        at_least(self, 1, "num_episodes", "batch_size", "update_every", "updates", "num_envs", "num_seeds")
        at_least(self, 0, "seed", "warmup", "devices", "workers")
        above(self, 0, "worker_timeout")
        at_least(self, self.batch_size, "buffer_size")
        at_most(self, 10_000, "num_seeds", "workers", "devices")
        if self.seed + self.num_seeds > LARGEST:
            raise UsageError(
                f"--seed {self.seed} leaves no room for --num-seeds {self.num_seeds} below 2147483647: choose a smaller one."
            )
        if self.update_every % self.num_envs:
            raise UsageError(
                f"--num-envs {self.num_envs} does not divide --update-every {self.update_every}: choose --update-every"
                f" {self.num_envs} or a multiple of it."
            )


@dataclass(frozen=True)
class Checkpoints:
    """The run's folder and how often it is saved."""

    exp_name: str = ""
    """Name of the run's folder (empty: environment, algorithm and seed)."""
    save_dir: str = "./runs"
    """Folder that holds the runs."""
    save_rate: int = 1000
    """Episodes between checkpoints."""
    load_dir: str = ""
    """Run to read with --restore, --display or --benchmark (empty: the one named by save-dir and exp-name)."""

    def __post_init__(self) -> None:
        at_least(self, 1, "save_rate")


@dataclass(frozen=True)
class Evaluation:
    """Reports, evaluation and what to do instead of training."""

    restore: bool = False
    """Continue the run in load-dir, or the one named by save-dir and exp-name."""
    display: bool = False
    """Show the trained policy instead of training: in a window if there is a display, otherwise as a film."""
    benchmark: bool = False
    """Measure a saved policy by the environment's metrics instead of training."""
    trust: bool = False
    """With the three options above and with --freeze: execute the code that the run names even though you did not make it on
    this machine."""
    benchmark_iters: int = 100_000
    """Environment steps of a benchmark."""
    benchmark_dir: str = "./benchmark_files/"
    """Folder for benchmark tables."""
    plots_dir: str = "./learning_curves/"
    """Folder for a copy of the learning curve (empty: none)."""
    report_every: int = 1000
    """Episodes between reports: a row of metrics, an evaluation, a line of progress."""
    eval_episodes: int = 100
    """Greedy episodes per evaluation (0: none)."""
    tensorboard: bool = False
    """Also write TensorBoard events to the run's folder."""
    wandb: bool = False
    """Also log to Weights & Biases (needs the wandb extra)."""

    def __post_init__(self) -> None:
        at_least(self, 1, "benchmark_iters", "report_every")
        at_least(self, 0, "eval_episodes")


@dataclass(frozen=True)
class Opponents:
    """Opponents that do not learn, and ensembles of policies."""

    freeze: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEAM=RUN …", help_behavior_hint="(default: none)")] = ()
    """Teams that do not learn, such as adversary=runs/tag-1, adversary=tag-1@best, adversary=tag-1@12000 (episodes),
    adversary=export/team.npz or adversary=my_policy.py:function. The other teams learn against them."""
    league: int = 0
    """Earlier versions of the run's own policies to keep as opponents (0: no league)."""
    league_every: int = 0
    """Updates between the versions that the league keeps (0: spread evenly over the run)."""
    league_share: float = 0.5
    """Share of the episodes in which a member of the league plays one of the teams."""
    league_draw: Literal["uniform", "prioritised"] = "uniform"
    """Draw members of the league uniformly, or more often those against whom the other team earns little."""

    ensemble: int = 1
    """Sub-policies per agent, one of which plays a whole episode (1: no ensemble)."""
    ensemble_teams: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEAM …", help_behavior_hint="(default: all)")] = ()
    """Teams that have an ensemble."""

    def __post_init__(self) -> None:
        at_least(self, 0, "league", "league_every")
        at_least(self, 1, "ensemble")
        at_most(self, 1000, "league")
        at_most(self, 32, "ensemble")
        fraction(self, "league_share")


@dataclass(frozen=True)
class Config:
    """All settings."""

    preset: str = ""
    """Preset to start from (listed by `counterpoint presets`); other options override it."""
    algorithm: str = DEFAULT
    """Algorithm: maddpg (critics see all agents), ddpg (critics see their own agent), matd3 (twin critics, delayed actors),
    masac (soft critics, tuned entropy), coma (one counterfactual critic), mappo and ippo (proximal policy optimisation with
    critics that see all agents or their own), or your own as my_algorithm.py:entry. Each family has its own defaults and
    options. External environments start from masac unless you choose."""
    good_policy: TeamAlgorithm = ""
    """Algorithm of the good team."""
    adv_policy: TeamAlgorithm = ""
    """Algorithm of the adversaries."""
    world: EnvSettings = field(default_factory=EnvSettings)
    training: Training = field(default_factory=Training)
    learning: Any = field(default_factory=lambda: find(DEFAULT).settings())
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    evaluation: Evaluation = field(default_factory=Evaluation)
    distribution: Distribution = field(default_factory=Distribution)
    opponents: Opponents = field(default_factory=Opponents)

    @property
    def name(self) -> str:
        """The name of the run's folder if the user gives none."""
        algorithm = short_name(self.algorithm)
        return self.checkpoints.exp_name or f"{self.world.short}-{algorithm}-seed{self.training.seed}"

    @property
    def entry(self) -> Entry:
        """The algorithm's registry entry."""
        return find(self.algorithm)

    def sees(self, spec: Spec) -> np.ndarray:
        """Returns [N, N]: which agents each agent's critic sees."""
        chosen = {"good": self.good_policy, "adversary": self.adv_policy}
        joint = {team: find(chosen.get(team) or self.algorithm).critic == "joint" for team in spec.teams}
        return visibility(spec, joint)

    def check(self, env: Environment) -> None:
        """Refuses combinations of settings that cannot work, before anything is computed."""
        t, entry, learners = self.training, self.entry, self.distribution.learners
        if not isinstance(self.learning, entry.settings):
            raise UsageError(f"algorithm {self.algorithm} has other learning settings: choose it with override or --algorithm.")
        for name in ("good_policy", "adv_policy"):
            team, whose = getattr(self, name), "good" if name == "good_policy" else "adversary"
            if team and whose not in env.spec.teams:
                raise UsageError(f"{flag(name)} {team} needs a team {whose}, and {env.name} has none: leave it out.")
            if team and isinstance(entry.memory(self.learning), Rollout) and find(team).settings is not entry.settings:
                raise UsageError(f"--algorithm {self.algorithm} is for all teams: leave out --good-policy and --adv-policy.")
            if team and find(team).settings is not entry.settings:
                raise UsageError(f"{flag(name)} {team} cannot train beside --algorithm {self.algorithm}: leave it out.")
        entry.check(env.spec, env.name)
        if isinstance(entry.memory(self.learning), Rollout):
            usual = training_of(entry)
            for name in ("batch_size", "buffer_size", "updates", "warmup"):
                if getattr(t, name) != getattr(usual, name):
                    raise UsageError(
                        f"{entry.name} learns once from each rollout as a whole: leave out {flag(name)} {getattr(t, name)}."
                    )
        self.distribution.check(env.spec.num_agents)
        if learners and not entry.learners:
            raise UsageError(f"the updates of {entry.name} cannot be shared out: leave out --learners {learners}.")
        if learners and entry.recurrent(self.learning):
            raise UsageError(f"--learners {learners} compute updates from single steps: leave out --recurrent or --learners.")
        if learners and (t.num_seeds > 1 or t.devices > 1):
            raise UsageError("--learners take one seed and one device: leave out --num-seeds and --devices, or --learners.")
        if learners and env.compiled is None:
            raise UsageError("--learners and an external --env exclude each other: choose one of them.")


def _refuse_huge(scenario: str, arguments: dict[str, Any]) -> None:
    """Refuses sizes of a built-in environment that would take forever to build; only the episode may be long."""
    for name, value in arguments.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        most = LARGEST if any(word in name for word in ("step", "seed", "cycle")) else MOST_AGENTS
        if whole and abs(value) > most:
            raise UsageError(f"{scenario} takes {shown(name)} up to {most}, not {shown(value, 30)}: choose fewer.")
        if isinstance(value, float) and not abs(value) <= GREATEST:
            raise UsageError(f"{scenario} takes numbers up to {GREATEST:g} for {name}, not {value:g}.")


def _literal(text: str) -> Any:
    """Returns a number, boolean or word as written on the command line."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if len(text) > LONGEST_WORD:
        raise UsageError(f"the argument {shown(text, 30)} has {len(text)} characters: give at most {LONGEST_WORD}.")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # Python's parser has limits of its own
        return text


LONGEST_WORD = 1000
"""Characters of the longest value of an argument of an environment."""
MOST_AGENTS = 1000
"""The most agents, landmarks and so on of a built-in environment: what agents see of each other grows with the square."""
GROUPS = ("world", "training", "learning", "checkpoints", "evaluation", "distribution", "opponents")


def training_of(entry: Entry) -> Training:
    """Returns the training defaults of an algorithm."""
    return Training(**entry.training)


def same_settings(first: str, second: str) -> bool:
    """Returns whether two algorithms have the same settings; an empty name is the default algorithm."""
    usual = Config().algorithm
    return find(first or usual).settings is find(second or usual).settings


def external_defaults(spec: Spec, max_steps: int) -> dict[str, Any]:
    """Returns the settings that an external environment starts from.

    The authors' settings suit particle worlds that step by the million: few large steps from many samples. A Python environment
    is slow, so each of its steps is used more often; long episodes need a longer horizon, and rewards of several steps carry
    values over it sooner; and actors come to rest more precisely on smooth critics.
    """
    long = max_steps >= LONG_EPISODE
    return {
        **{"update_every": 10, "updates": 2, "batch_size": 256, "buffer_size": 100_000, "noise_steps": 100_000},
        **{"lr": 1e-3, "tau": 0.005, "gamma": min(0.99, max(0.9, 1 - 2 / max_steps)), "n_step": 5 if long else 1},
        **{"critic_activation": "silu"},
    }


LONG_EPISODE = 100
"""Steps from which an external environment learns from the rewards of several steps."""


EXTERNAL = "masac"
"""The algorithm of external environments: it explores by itself, where MADDPG's discrete policies may settle too early."""


def fitted(config: Config, env: Environment, given: Collection[str] | None) -> Config:
    """Returns the settings with those that were not given, and the algorithm if it was not, chosen for an external environment.

    Compiled worlds keep their settings, and so does a configuration whose settings all count as given (None). An algorithm of
    the user's that has defaults of its own keeps those too: only the ones it shares with the authors' off-policy settings
    change.
    """
    if given is None or config.preset or env.compiled is not None:
        return config
    config = _with_external_algorithm(config, env, given)
    entry = config.entry
    if not isinstance(entry.memory(config.learning), Replay):
        return config
    ours, usual = {**vars(training_of(entry)), **vars(entry.settings())}, {**vars(Training()), **vars(offpolicy.Settings())}
    chosen = {
        name: value
        for name, value in external_defaults(env.spec, env.max_steps).items()
        if name in ours and name not in given and (not entry.address or ours[name] == usual.get(name, ours[name]))
    }
    t = config.training
    if "update_every" in chosen:  # each copy plays whole steps
        chosen["update_every"] = -(-chosen["update_every"] // t.num_envs) * t.num_envs
    if "buffer_size" in chosen:
        chosen["buffer_size"] = max(chosen["buffer_size"], chosen.get("batch_size", t.batch_size))
    elif "batch_size" in chosen:
        chosen["batch_size"] = min(chosen["batch_size"], t.buffer_size)
    if "n_step" in chosen and isinstance(learning := config.learning, offpolicy.Settings):
        chosen["n_step"] = 1 if learning.standardise_rewards else min(chosen["n_step"], learning.sequence_length)
    return override(config, **chosen)


def _with_external_algorithm(config: Config, env: Environment, given: Collection[str]) -> Config:
    """Returns the settings with the algorithm of external environments, unless another was chosen or is needed.

    Another is needed if a given option is not among that algorithm's, or if it cannot play there.
    """
    chosen = override(config, algorithm=EXTERNAL)
    lost = set(given) & homes_of(config).keys() - homes_of(chosen).keys()
    if lost or {"algorithm", "good_policy", "adv_policy"} & set(given):
        return config
    try:
        chosen.entry.check(env.spec, env.name)
        chosen.entry.make(chosen.learning, env.spec, chosen.sees(env.spec), None)
    except UsageError:
        return config
    own = vars(config.learning)
    return override(dataclasses.replace(chosen, training=config.training), **{name: own[name] for name in given if name in own})


def to_dict(config: Config) -> dict[str, Any]:
    """Returns the settings as plain data."""
    return dataclasses.asdict(config)


def flat(config: Config) -> dict[str, Any]:
    """Returns all settings by name, without their groups."""
    homes = homes_of(config)
    return {
        name: getattr(getattr(config, homes[name]) if homes[name] else config, name) for name in homes if name not in GROUPS
    }


def from_dict(data: dict[str, Any]) -> Config:
    """Returns the settings of plain data."""
    flat: dict[str, Any] = {}
    for name, value in data.items():
        flat |= value if name in GROUPS and isinstance(value, dict) else {name: value}
    if "straight_through" in flat:  # a switch of earlier versions, where there are several estimators now
        flat.setdefault("estimator", "straight-through" if flat.pop("straight_through") else "soft")
    if not isinstance(flat.get("teams", []), list | tuple) or not isinstance(flat.get("env", ""), str):
        raise UsageError("config.json does not fit this version of counterpoint: env must be a text and teams a list of words.")
    try:
        return override(Config(), **flat)
    except UsageError as error:
        raise UsageError(f"config.json does not fit this version of counterpoint: {error}") from None


def override(config: Config, **changes: Any) -> Config:
    """Returns the settings with some changed, named as on the command line (dashes or underscores).

    Another algorithm brings its own training and learning settings before anything else changes; only seeds and devices stay.
    `env` may be an environment's class, factory or compiled instance, `algorithm` an entry, `teams` a mapping from agents to
    teams.
    """
    changes = _from_python({name.replace("-", "_"): value for name, value in changes.items()})
    if "algorithm" in changes:
        config = _choose(config, changes.pop("algorithm"))
    homes, by_group = homes_of(config), {}
    for name, value in changes.items():
        if name in GROUPS or name not in homes:
            close = difflib.get_close_matches(name, homes, 1)
            hint = f"; perhaps {close[0]}?" if close else "."
            raise UsageError(f"there is no setting {shown(repr(name))}{hint}" + _owner(config, name))
        part = getattr(config, homes[name]) if homes[name] else config
        by_group.setdefault(homes[name], {})[name] = _fitting(name, get_type_hints(type(part))[name], value)
    own = by_group.pop("", {})
    parts = {group: dataclasses.replace(getattr(config, group), **values) for group, values in by_group.items()}
    return dataclasses.replace(config, **own, **parts)


def _from_python(changes: dict[str, Any]) -> dict[str, Any]:
    """Returns settings that Python gives as objects as the words of the command line."""
    plain = dict(changes)
    env, algorithm = plain.get("env"), plain.get("algorithm")
    if env is not None and not isinstance(env, str):
        if dataclasses.is_dataclass(env) and not isinstance(env, type):
            fields = {f.name: getattr(env, f.name) for f in dataclasses.fields(env) if getattr(env, f.name) != f.default}
            plain["scenario_args"] = tuple(f"{name}={value!r}" for name, value in fields.items())
            env = type(env)
        plain["env"] = address_of(env, "env")
    if isinstance(algorithm, Entry):
        plain["algorithm"] = (
            algorithm.name if entries().get(algorithm.name) is algorithm else address_of(algorithm, "algorithm")
        )
    if isinstance(plain.get("teams"), dict):
        plain["teams"] = tuple(f"{agent}={team}" for agent, team in plain["teams"].items())
    return plain


def _choose(config: Config, algorithm: Any) -> Config:
    """Returns the settings with that algorithm."""
    entry = find(_fitting("algorithm", str, algorithm))
    old = config.entry.settings
    config = dataclasses.replace(config, algorithm=algorithm)
    if entry.settings is old:
        return config
    t = config.training
    training = dataclasses.replace(training_of(entry), seed=t.seed, num_seeds=t.num_seeds, devices=t.devices)
    return dataclasses.replace(config, training=training, learning=entry.settings())


def homes_of(config: Config) -> dict[str, str]:
    """Returns the group of each setting; empty if it has none."""
    own = dict.fromkeys(vars(config), "")
    return own | {name: group for group in GROUPS for name in vars(getattr(config, group))}


def _owner(config: Config, name: str) -> str:
    """Returns a hint if another algorithm has the setting."""
    others = owners(name)
    return f" It is one of {others[0]}'s, and this is {config.algorithm}." if others else ""


def owners(name: str) -> list[str]:
    """Returns the algorithms of ours that have a learning setting and do not refuse it."""
    known = [entry for entry in entries().values() if name not in entry.refuses]
    return [entry.name for entry in known if name in {f.name for f in dataclasses.fields(entry.settings)}]


def _fitting(name: str, kind: Any, value: Any) -> Any:
    """Returns the value if it fits the field's type."""
    origin = get_origin(kind) or kind
    if origin is Literal:
        choices = [choice for choice in get_args(kind) if choice]
        if not isinstance(value, str) or value not in get_args(kind):
            raise UsageError(f"{name} must be one of {', '.join(choices)}, not {shown(repr(value))}.")
    elif origin is tuple:
        if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
            raise UsageError(f"{name} must be a list of words such as ['N=5'], not {shown(repr(value))}.")
        return tuple(value)
    else:
        if origin is int and isinstance(value, float) and value.is_integer():
            value = int(value)  # such as 1e4
        allowed = (int, float) if origin is float else origin
        if not isinstance(value, allowed) or (isinstance(value, bool) and origin is not bool):
            what = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}[origin]
            raise UsageError(f"{name} must be {what}, not {shown(repr(value))}.")
        if isinstance(value, str) and "\0" in value:
            raise UsageError(f"{name} must not hold a zero character, and {shown(repr(value))} does: correct it.")
        if origin is float and isinstance(value, int) and abs(value) > GREATEST:
            raise UsageError(f"{name} must be a number up to {GREATEST:g}, not {shown(value, 30)}.")
    return value
