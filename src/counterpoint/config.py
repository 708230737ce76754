"""All settings of a run: one frozen dataclass of groups, each flag named once, with its help beside it.

`config.json` is this as plain data and rebuilds the run exactly. Presets are values of it.
"""

import ast
import dataclasses
import difflib
import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import tyro

from counterpoint.algos import maddpg
from counterpoint.coded.engine import Distribution
from counterpoint.envs import WORLDS, make
from counterpoint.errors import UsageError
from counterpoint.types import Env, Spec

Policy = Annotated[
    Literal["maddpg", "ddpg", ""], tyro.conf.arg(metavar="{maddpg,ddpg}", help_behavior_hint="(default: as --algorithm)")
]
"""Of a team, if it is to differ from --algorithm."""
Words = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE …", help_behavior_hint="(default: none)")]


@dataclass(frozen=True)
class World:
    """The world and who plays in it."""

    scenario: str = "simple"
    """Which world (see `counterpoint envs`)."""
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
    """Further arguments of the world, such as N=5."""

    def build(self) -> Env:
        """The world itself."""
        if self.scenario not in WORLDS:
            make(self.scenario)  # for its sentence
        known = {f.name for f in dataclasses.fields(WORLDS[self.scenario])}
        arguments: dict[str, Any] = {}
        for text in self.scenario_args:
            name, sign, value = text.partition("=")
            if not sign:
                raise UsageError(f"scenario argument {text!r} must have the form name=value, such as N=5.")
            arguments[name.replace("-", "_")] = _literal(value)
        if self.max_episode_len:
            arguments["max_steps"] = self.max_episode_len
        if "flavour" in known:
            arguments["flavour"] = self.flavour
        if "actions" in known:
            arguments["actions"] = self.actions
        if self.num_agents or self.num_adversaries >= 0:
            arguments |= self._sizes(known)
        return make(self.scenario, **arguments)

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
    """Transitions per minibatch."""
    buffer_size: int = 1_000_000
    """Transitions kept for replay."""
    update_every: int = 100
    """World steps (of all parallel worlds together) between updates."""
    updates: int = 1
    """Updates of all agents each time."""
    warmup: int = 0
    """World steps before the first update (0: batch size × episode length, but at most a quarter of the run)."""
    num_envs: int = 1
    """Worlds that run in parallel."""
    seed: int = 0
    """The one source of randomness."""
    num_seeds: int = 1
    """Seeds trained in one program: seed, seed + 1, …"""
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
    algorithm: Literal["maddpg", "ddpg"] = "maddpg"
    """Whose critics see whom: everybody (maddpg) or only itself (ddpg), unless a team says otherwise."""
    good_policy: Policy = ""
    """Algorithm of the good agents."""
    adv_policy: Policy = ""
    """Algorithm of the adversaries."""
    world: World = field(default_factory=World)
    training: Training = field(default_factory=Training)
    learning: maddpg.Config = field(default_factory=maddpg.Config)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    evaluation: Evaluation = field(default_factory=Evaluation)
    distribution: Distribution = field(default_factory=Distribution)

    @property
    def name(self) -> str:
        """The run's folder if the user names none."""
        return self.checkpoints.exp_name or f"{self.world.scenario}-{self.algorithm}-seed{self.training.seed}"

    def sees(self, spec: Spec) -> np.ndarray:
        """[N, N]: whom each agent's critic sees."""
        policy = {"good": self.good_policy or self.algorithm, "adversary": self.adv_policy or self.algorithm}
        central = np.array([policy.get(team, self.algorithm) == "maddpg" for team in spec.teams])
        return central[:, None] | np.eye(spec.num_agents, dtype=bool)

    def validate(self) -> Env:
        """The world, after every setting was found to make sense."""
        values = {name: value for group in GROUPS for name, value in vars(getattr(self, group)).items()}
        t = self.training
        for name, smallest in (LEAST | {"buffer_size": t.batch_size}).items():
            if not smallest <= values[name] < math.inf:
                raise UsageError(f"{_flag(name)} must be at least {smallest:g}, not {values[name]:g}.")
        for name in ("lr", "temperature"):
            if not 0 < values[name] < math.inf:
                raise UsageError(f"{_flag(name)} must be above 0, not {values[name]:g}.")
        for name in ("gamma", "tau", "priority_exponent", "priority_beta"):
            if not 0 <= values[name] <= 1:
                raise UsageError(f"{_flag(name)} must be from 0 to 1, not {values[name]:g}.")
        if t.update_every % t.num_envs:
            raise UsageError(
                f"--num-envs {t.num_envs} does not divide --update-every {t.update_every}: choose --update-every {t.num_envs}"
                " or a multiple of it."
            )
        env = self.world.build()
        self.distribution.check(env.spec.num_agents)
        if self.distribution.learners and (t.num_seeds > 1 or t.devices > 1):
            raise UsageError("--learners take one seed and one device: leave out --num-seeds and --devices, or --learners.")
        return env


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


GROUPS: dict[str, type] = {
    "world": World,
    "training": Training,
    "learning": maddpg.Config,
    "checkpoints": Checkpoints,
    "evaluation": Evaluation,
    "distribution": Distribution,
}


LEAST: dict[str, int] = {
    **dict.fromkeys(("num_episodes", "batch_size", "update_every", "updates", "num_envs", "num_seeds", "save_rate"), 1),
    **dict.fromkeys(("benchmark_iters", "report_every", "num_units", "num_layers", "noise_steps"), 1),
    **dict.fromkeys(("seed", "warmup", "devices", "eval_episodes", "max_episode_len", "num_agents", "clip", "critic_lr"), 0),
    **dict.fromkeys(("logit_cost", "noise_start", "noise_end"), 0),
}
"""The smallest value each of these settings may have."""


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
    """The settings with some changed, by the names that the command line uses (dashes or underscores)."""
    for name, value in changes.items():
        name = name.replace("-", "_")
        if name in GROUPS or name not in HOMES:
            close = difflib.get_close_matches(name, HOMES, 1)
            hint = f"; perhaps {close[0]}?" if close else "."
            raise UsageError(f"there is no setting {name!r}{hint}")
        kind = HOMES[name]
        value = _fitting(name, get_type_hints(kind)[name], value)
        group = next((group for group, its_kind in GROUPS.items() if its_kind is kind), None)
        if group:
            config = dataclasses.replace(config, **{group: dataclasses.replace(getattr(config, group), **{name: value})})
        else:
            config = dataclasses.replace(config, **{name: value})
    return config


HOMES: dict[str, type] = {field.name: kind for kind in (*GROUPS.values(), Config) for field in dataclasses.fields(kind)}
"""Which dataclass each setting lives in."""


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


GENTLE = {"lr": 1e-3, "update_every": 25, "batch_size": 256}
"""Four small steps where the authors take one large one, for the same arithmetic: early, large steps freeze a speaker."""

PRESETS: dict[str, Config] = {
    "demo": override(Config(), scenario="simple_speaker_listener", num_episodes=20_000, exp_name="demo", **GENTLE),
    "authors-spread": override(Config(), scenario="simple_spread", flavour="openai"),
    "authors-speaker": override(Config(), scenario="simple_speaker_listener", flavour="openai"),
    "tuned-speaker": override(Config(), scenario="simple_speaker_listener", flavour="openai", num_episodes=25_000, **GENTLE),
    "tuned-spread": override(
        Config(),
        scenario="simple_spread",
        flavour="openai",
        num_episodes=25_000,
        lr=1e-3,
        num_units=128,
        update_every=50,
        batch_size=512,
    ),
}
