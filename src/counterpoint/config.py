"""All settings of a run: one frozen dataclass of groups, each flag named once, with its help beside it.

`config.json` is this as plain data and rebuilds the run exactly. Presets are values of it.
"""

import ast
import dataclasses
import difflib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
import tyro

from counterpoint.algos import coma, maddpg
from counterpoint.coded.settings import Distribution
from counterpoint.core.errors import UsageError
from counterpoint.core.types import Box, Env, Spec
from counterpoint.envs import WORLDS, make

Policy = Annotated[
    Literal["maddpg", "ddpg", ""], tyro.conf.arg(metavar="{maddpg,ddpg}", help_behavior_hint="(default: as --algorithm)")
]
"""Of a team, if it is to differ from --algorithm."""
Words = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE …", help_behavior_hint="(default: none)")]


def _fields(scenario: str) -> set[str]:
    """The arguments of a world of ours."""
    return {f.name for f in dataclasses.fields(WORLDS[scenario])} if scenario in WORLDS else set()


@dataclass(frozen=True)
class World:
    """The world and who plays in it."""

    scenario: str = "simple"
    """Which world (see `counterpoint envs`)."""
    env: str = ""
    """Instead of a scenario: your own PettingZoo or Gymnasium environment, as package.module:factory or file.py:factory."""
    max_episode_len: int = 0
    """Steps per episode (0: the world's own; 25 in particle worlds)."""
    num_agents: int = 0
    """Agents in total (0: the scenario's own number)."""
    num_adversaries: int = -1
    """How many of them are adversaries (-1: the scenario's own number)."""
    flavour: Literal["mpe2", "openai"] = "mpe2"
    """Rules of the particle worlds: the maintained package, or the original of 2017."""
    actions: Literal["discrete", "continuous"] = "discrete"
    """Kind of actions in particle worlds (how discrete ones reach the world: --world-action)."""
    scenario_args: Words = ()
    """Further arguments of the world, or of the factory of --env, such as N=5."""
    teams: Words = ()
    """Teams of the agents of --env, such as wolf_*=adversary (default: those called adversary… are, the others are good)."""

    @property
    def title(self) -> str:
        """The world in words."""
        if self.env:
            return self.env
        return f"{self.scenario} ({self.flavour})" if "flavour" in _fields(self.scenario) else self.scenario

    @property
    def short(self) -> str:
        """The world in one word, for the names of folders."""
        place = self.env.rpartition(":")[0]
        return Path(place).name.removesuffix(".py").rpartition(".")[2] or self.scenario

    def build(self) -> Env:
        """The world itself."""
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
        if self.num_agents or self.num_adversaries >= 0:
            arguments |= self._sizes(known)
        return make(self.scenario, **arguments)

    def _open(self) -> Env:
        """The environment from elsewhere."""
        from counterpoint.training.hosted import open_world

        if self.num_agents or self.num_adversaries > 0:
            raise UsageError("--num-agents and --num-adversaries are for scenarios: give the size of --env by --scenario-args.")
        return open_world(self.env, self._arguments(), self.teams, self.max_episode_len)

    def _arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for text in self.scenario_args:
            name, sign, value = text.partition("=")
            if not sign:
                raise UsageError(f"scenario argument {text!r} must have the form name=value, such as N=5.")
            arguments[name.replace("-", "_")] = _literal(value)
        return arguments

    def _sizes(self, known: set[str]) -> dict[str, int]:
        """The scenario's own size arguments for the number of agents and adversaries asked for."""
        own = [team == "adversary" for team in make(self.scenario).spec.teams]
        total, adversaries = len(own), sum(own)
        if self.num_adversaries >= 0 and self.num_adversaries != adversaries:
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
    """How long and how much at a time."""

    num_episodes: int = 60_000
    """Episodes to train for."""
    batch_size: int = 1024
    """Transitions per minibatch (not with coma, which learns from whole rollouts)."""
    buffer_size: int = 1_000_000
    """Transitions kept for replay (not with coma)."""
    update_every: int = 100
    """World steps (of all parallel worlds together) between updates."""
    updates: int = 1
    """Updates of all agents each time (not with coma)."""
    warmup: int = 0
    """World steps before the first update (0: batch size × episode length, but at most a quarter of the run; coma: none)."""
    num_envs: int = 1
    """Worlds that run in parallel."""
    seed: int = 0
    """The one source of randomness."""
    num_seeds: int = 1
    """Seeds trained in one program: seed, seed + 1, …"""
    workers: int = 0
    """Processes that step --env (0: one per copy, at most one per core)."""
    worker_timeout: float = 60.0
    """Seconds without an answer after which such a process is replaced."""
    devices: int = 0
    """Devices to use (0: two on a CPU with two cores or more, otherwise one)."""


@dataclass(frozen=True)
class Checkpoints:
    """Where a run lives and how it is saved."""

    exp_name: str = ""
    """Name of the run's folder (empty: scenario, algorithm and seed)."""
    save_dir: str = "./runs"
    """Where runs are kept."""
    save_rate: int = 1000
    """Episodes between checkpoints."""
    load_dir: str = ""
    """The run to read with --restore, --display or --benchmark (empty: the one that save-dir and exp-name give)."""


@dataclass(frozen=True)
class Evaluation:
    """Watching and measuring."""

    restore: bool = False
    """Continue the run in load-dir, or else the one that save-dir and exp-name give."""
    display: bool = False
    """Show the trained policy (a GIF), do not train."""
    benchmark: bool = False
    """Measure a saved policy by the world's figures, do not train."""
    benchmark_iters: int = 100_000
    """World steps of a benchmark."""
    benchmark_dir: str = "./benchmark_files/"
    """Where benchmark tables go."""
    plots_dir: str = "./learning_curves/"
    """Where a copy of the learning curve goes."""
    report_every: int = 1000
    """Episodes between reports: a row of metrics, an evaluation, a line of progress."""
    eval_episodes: int = 100
    """Greedy episodes per evaluation (0: none)."""
    tensorboard: bool = False
    """Also write TensorBoard events into the run's folder."""
    wandb: bool = False
    """Also log to Weights & Biases (needs the wandb extra)."""


@dataclass(frozen=True)
class Config:
    """Everything that can be set."""

    preset: str = ""
    """Start from a preset (see `counterpoint presets`); other options then change it."""
    algorithm: Literal["maddpg", "ddpg", "coma"] = "maddpg"
    """Critics that see everybody (maddpg) or only themselves (ddpg), unless a team says otherwise; or one counterfactual
    critic for all (coma), with its own defaults and options."""
    good_policy: Policy = ""
    """Algorithm of the good agents."""
    adv_policy: Policy = ""
    """Algorithm of the adversaries."""
    world: World = field(default_factory=World)
    training: Training = field(default_factory=Training)
    learning: maddpg.Config | coma.Config = field(default_factory=maddpg.Config)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    evaluation: Evaluation = field(default_factory=Evaluation)
    distribution: Distribution = field(default_factory=Distribution)

    @property
    def name(self) -> str:
        """The run's folder if the user names none."""
        return self.checkpoints.exp_name or f"{self.world.short}-{self.algorithm}-seed{self.training.seed}"

    def sees(self, spec: Spec) -> np.ndarray:
        """[N, N]: whom each agent's critic sees."""
        policy = {"good": self.good_policy or self.algorithm, "adversary": self.adv_policy or self.algorithm}
        central = np.array([policy.get(team, self.algorithm) == "maddpg" for team in spec.teams])
        return central[:, None] | np.eye(spec.num_agents, dtype=bool)

    def validate(self) -> Env:
        """The world, after every setting was found to make sense."""
        if type(self.learning) is not type(family_of(self.algorithm).learning):
            raise UsageError(f"algorithm {self.algorithm} has other learning settings: choose it with override or --algorithm.")
        values = {name: value for group in GROUPS for name, value in vars(getattr(self, group)).items()}
        t = self.training
        for name, smallest in (LEAST | {"buffer_size": t.batch_size}).items():
            if name in values and not smallest <= values[name] < math.inf:
                raise UsageError(f"{_flag(name)} must be at least {smallest:g}, not {values[name]:g}.")
        for name in [*ABOVE_ZERO & values.keys(), *("critic_lr",) * (self.algorithm == "coma")]:
            if not 0 < values[name] < math.inf:
                raise UsageError(f"{_flag(name)} must be above 0, not {values[name]:g}.")
        for name in SHARES & values.keys():
            if not 0 <= values[name] <= 1:
                raise UsageError(f"{_flag(name)} must be from 0 to 1, not {values[name]:g}.")
        if t.update_every % t.num_envs:
            raise UsageError(
                f"--num-envs {t.num_envs} does not divide --update-every {t.update_every}: choose --update-every {t.num_envs}"
                " or a multiple of it."
            )
        if self.world.env and t.num_seeds > 1:
            raise UsageError(f"--env trains one seed at a time, not --num-seeds {t.num_seeds}: start one run for each --seed.")
        env = self.world.build()
        if isinstance(self.learning, coma.Config):
            self._validate_coma(env)
        self.distribution.check(env.spec.num_agents)
        if self.distribution.learners and (t.num_seeds > 1 or t.devices > 1):
            raise UsageError("--learners take one seed and one device: leave out --num-seeds and --devices, or --learners.")
        if self.distribution.learners and self.world.env:
            raise UsageError("--learners and --env exclude each other: choose one of them.")
        return env

    def _validate_coma(self, env: Env) -> None:
        """Refuses what only other algorithms have a use for."""
        if self.world.env:
            raise UsageError(
                "--env plays one update ahead, and coma learns from what its own policy did: choose --algorithm maddpg."
            )
        if learners := self.distribution.learners:
            raise UsageError(f"coma has one critic for all, which cannot be shared out: leave out --learners {learners}.")
        if self.good_policy or self.adv_policy:
            raise UsageError("--algorithm coma is for all teams: leave out --good-policy and --adv-policy.")
        for name in ("batch_size", "buffer_size", "updates", "warmup"):
            given, usual = getattr(self.training, name), getattr(FAMILIES["coma"].training, name)
            if given != usual:
                raise UsageError(f"coma learns once from each rollout as a whole: leave out {_flag(name)} {given}.")
        for agent, space in zip(env.spec.agents, env.spec.action_spaces, strict=True):
            if isinstance(space, Box):
                raise UsageError(
                    f"coma needs discrete actions, and those of {agent} in {env.name} are continuous: choose --algorithm maddpg"
                    f"{' or --actions discrete' * (self.world.actions == 'continuous')}."
                )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _literal(text: str) -> Any:
    """A number, boolean or word as written on the command line."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


GROUPS = ("world", "training", "learning", "checkpoints", "evaluation", "distribution")


class Family(NamedTuple):
    """What the settings of related algorithms are before anybody changes them."""

    training: Training
    learning: maddpg.Config | coma.Config


FAMILIES = {
    "maddpg": Family(Training(), maddpg.Config()),
    "coma": Family(Training(num_episodes=60_000, num_envs=32, update_every=800), coma.Config()),
}


def family_of(algorithm: str) -> Family:
    """The family that an algorithm belongs to."""
    return FAMILIES["coma" if algorithm == "coma" else "maddpg"]


LEAST: dict[str, int] = {
    **dict.fromkeys(("num_episodes", "batch_size", "update_every", "updates", "num_envs", "num_seeds", "save_rate"), 1),
    **dict.fromkeys(("benchmark_iters", "report_every", "num_units", "num_layers", "noise_steps"), 1),
    **dict.fromkeys(("seed", "warmup", "devices", "eval_episodes", "max_episode_len", "num_agents", "clip", "critic_lr"), 0),
    "workers": 0,
    **dict.fromkeys(("logit_cost", "noise_start", "noise_end"), 0),
    **dict.fromkeys(("epsilon_steps", "entropy_steps", "critic_steps"), 1),
    **dict.fromkeys(("n_steps", "target_every", "entropy_start", "entropy_end"), 0),
}
"""The smallest value each of these settings may have."""

ABOVE_ZERO = {"lr", "temperature", "worker_timeout"}
SHARES = {"gamma", "tau", "priority_exponent", "priority_beta", "td_lambda", "epsilon_start", "epsilon_end"}


def to_dict(config: Config) -> dict[str, Any]:
    """The settings as plain data."""
    return dataclasses.asdict(config)


def from_dict(data: dict[str, Any]) -> Config:
    """The settings that `to_dict` made plain."""
    flat: dict[str, Any] = {}
    for name, value in data.items():
        flat |= value if name in GROUPS and isinstance(value, dict) else {name: value}
    try:
        return override(Config(), **flat)
    except UsageError as error:
        raise UsageError(f"config.json does not fit this version of counterpoint: {error}") from None


def override(config: Config, **changes: Any) -> Config:
    """The settings with some changed, by the names that the command line uses (dashes or underscores).

    An algorithm of another family brings its own training and learning settings, whatever they were, before anything else
    changes; only seeds and devices stay. `env` may be a factory itself, and `teams` a mapping from agents to teams.
    """
    changes = _from_python({name.replace("-", "_"): value for name, value in changes.items()})
    if "algorithm" in changes:
        config = _choose(config, changes.pop("algorithm"))
    homes = homes_of(config)
    for name, value in changes.items():
        if name in GROUPS or name not in homes:
            close = difflib.get_close_matches(name, homes, 1)
            hint = f"; perhaps {close[0]}?" if close else "."
            raise UsageError(f"there is no setting {name!r}{hint}" + _whose(config, name))
        part = getattr(config, homes[name]) if homes[name] else config
        part = dataclasses.replace(part, **{name: _fitting(name, get_type_hints(type(part))[name], value)})
        config = dataclasses.replace(config, **{homes[name]: part}) if homes[name] else part
    return config


def _from_python(changes: dict[str, Any]) -> dict[str, Any]:
    """Settings that Python gives as objects, in the words of the command line."""
    plain = dict(changes)
    if callable(plain.get("env")):
        from counterpoint.external.adapters import address

        plain["env"] = address(plain["env"])
    if isinstance(plain.get("teams"), dict):
        plain["teams"] = tuple(f"{agent}={team}" for agent, team in plain["teams"].items())
    return plain


def _choose(config: Config, algorithm: Any) -> Config:
    """The settings with that algorithm."""
    algorithm = _fitting("algorithm", get_type_hints(Config)["algorithm"], algorithm)
    old, new = family_of(config.algorithm), family_of(algorithm)
    config = dataclasses.replace(config, algorithm=algorithm)
    if new is old:
        return config
    t = config.training
    training = dataclasses.replace(new.training, seed=t.seed, num_seeds=t.num_seeds, devices=t.devices)
    return dataclasses.replace(config, training=training, learning=new.learning)


def homes_of(config: Config) -> dict[str, str]:
    """Which group each setting lives in; empty if in none."""
    own = dict.fromkeys(vars(config), "")
    return own | {name: group for group in GROUPS for name in vars(getattr(config, group))}


def _whose(config: Config, name: str) -> str:
    """A hint if another family has the setting."""
    others = [algorithm for algorithm, family in FAMILIES.items() if name in vars(family.learning)]
    return f" It is one of {others[0]}'s, and this is {config.algorithm}." if others else ""


def _fitting(name: str, kind: Any, value: Any) -> Any:
    """The value as the field's type, or the user's error."""
    origin = get_origin(kind) or kind
    if origin is Literal:
        choices = [choice for choice in get_args(kind) if choice]
        if value not in get_args(kind):
            raise UsageError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")
    elif origin is tuple:
        if isinstance(value, str) or not all(isinstance(word, str) for word in value):
            raise UsageError(f"{name} must be a list of words such as ['N=5'], not {value!r}.")
        return tuple(value)
    else:
        allowed = (int, float) if origin is float else origin
        if not isinstance(value, allowed) or (isinstance(value, bool) and origin is not bool):
            what = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}[origin]
            raise UsageError(f"{name} must be {what}, not {value!r}.")
    return value


def preset(name: str) -> Config:
    """The settings of that name."""
    if name not in PRESETS:
        close = difflib.get_close_matches(name, list(PRESETS), 1)
        hint = f" (perhaps {close[0]}?)" if close else ""
        raise UsageError(f"unknown preset {name!r}{hint}; known are {', '.join(PRESETS)}.")
    return dataclasses.replace(PRESETS[name], preset=name)


def start(name: str = "", algorithm: str = "", scenario: str = "") -> Config:
    """Where settings start from: the preset of that name, else the one that the world is known to need, else the defaults."""
    if not name and scenario in OWN_PRESETS and family_of(algorithm or "maddpg") is FAMILIES["maddpg"]:
        name = scenario
    config = preset(name) if name else Config()
    return override(config, algorithm=algorithm) if algorithm else config


OWN_PRESETS = ("tennis",)
"""Worlds with a preset of their own name, which training there starts from: the authors' settings do not learn them."""

GENTLE = {"lr": 1e-3, "update_every": 25, "batch_size": 256}
"""Four small steps where the authors take one large one, for the same arithmetic."""

COMA_PARTICLES: dict[str, Any] = {
    **{"flavour": "openai", "num_episodes": 100_000, "num_envs": 32, "update_every": 800, "standardise_rewards": True},
    **{"lr": 1e-3, "gamma": 0.99, "clip": 10.0, "num_units": 128, "critic_steps": 4, "epsilon_start": 0.1, "epsilon_end": 0.0},
    **{"entropy_start": 0.02, "entropy_end": 0.002, "entropy_steps": 1_500_000},
}
"""Random play meets everything there is in a particle world: little more is needed to explore."""

COMA_PATIENT: dict[str, Any] = {"num_episodes": 400_000, "lr": 5e-4, "critic_steps": 2, "entropy_steps": 4_000_000}
"""Three who share one reward take long to find out who goes where."""

PRESETS: dict[str, Config] = {
    "demo": override(Config(), scenario="simple_speaker_listener", num_episodes=20_000, exp_name="demo", **GENTLE),
    "authors-spread": override(Config(), scenario="simple_spread", flavour="openai", init="glorot"),
    "authors-speaker": override(Config(), scenario="simple_speaker_listener", flavour="openai", init="glorot"),
    "tuned-speaker": override(Config(), scenario="simple_speaker_listener", flavour="openai", num_episodes=25_000, **GENTLE),
    "tuned-spread": override(
        Config(),
        scenario="simple_spread",
        flavour="openai",
        num_episodes=25_000,
        lr=1e-3,
        gamma=0.75,
        init="glorot",
        num_units=128,
        update_every=10,
        batch_size=256,
    ),
    "tennis": override(
        Config(),
        scenario="tennis",
        num_episodes=1200,
        report_every=100,
        save_rate=200,
        update_every=1,
        updates=2,
        batch_size=128,
        buffer_size=200_000,
        warmup=1000,
        lr=1e-3,
        gamma=0.99,
        tau=0.005,
        clip=1.0,
        init="glorot",
        noise="ou",
        noise_start=0.5,
        noise_end=0.1,
        noise_steps=20_000,
    ),
    "coma-notes": override(
        Config(),
        algorithm="coma",
        scenario="switch2",
        num_episodes=10_000,
        num_envs=10,
        update_every=500,
        lr=1e-4,
        critic_lr=5e-3,
        gamma=0.99,
        clip=10.0,
        td_lambda=0.0,
        target_every=10,
        epsilon_start=0.0,
        epsilon_end=0.0,
        entropy_start=0.0,
        entropy_end=0.0,
    ),
    "coma-switch2-v0": override(Config(), algorithm="coma", scenario="switch2", scenario_args=("clock=False",), recurrent=True),
    "coma-switch4": override(Config(), algorithm="coma", scenario="switch4", num_episodes=100_000),
    "coma-spread": override(
        Config(), algorithm="coma", scenario="simple_spread", **(COMA_PARTICLES | COMA_PATIENT), report_every=5000
    ),
    "coma-speaker": override(Config(), algorithm="coma", scenario="simple_speaker_listener", **COMA_PARTICLES),
}
