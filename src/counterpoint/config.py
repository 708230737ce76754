"""All settings of a run: one frozen dataclass of groups, each flag named once, with its help beside it.

`config.json` is this as plain data and rebuilds the run exactly. Presets are values of it.
"""

import ast
import dataclasses
import difflib
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from counterpoint.algos import maddpg
from counterpoint.envs import WORLDS, make
from counterpoint.errors import UsageError
from counterpoint.types import Env, Spec

Policy = Literal["maddpg", "ddpg"]


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
    scenario_args: tuple[str, ...] = ()
    """Further arguments of the world, as name=value."""

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
        total = self.num_agents or len(own)
        adversaries = self.num_adversaries if self.num_adversaries >= 0 else sum(own)
        good = total - adversaries
        wanted = {"num_adversaries": adversaries, "num_good": good, "N": good}
        sizes = {name: value for name, value in wanted.items() if name in known}
        free_good = "N" in known or "num_good" in known
        if (total, adversaries) == (len(own), sum(own)):
            return {}
        if not free_good and total != len(own):
            raise UsageError(f"{self.scenario} has always {len(own)} agents: leave out --num-agents {total}.")
        if "num_adversaries" not in known and adversaries != sum(own):
            raise UsageError(
                f"{self.scenario} has always {sum(own)} adversaries: leave out --num-adversaries {adversaries}."
            )
        if good < 1:
            raise UsageError(f"--num-adversaries {adversaries} leaves no good agent among {total}: choose fewer.")
        return sizes


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
    good_policy: Policy | Literal[""] = ""
    """Algorithm of the good agents (empty: --algorithm)."""
    adv_policy: Policy | Literal[""] = ""
    """Algorithm of the adversaries (empty: --algorithm)."""
    world: World = field(default_factory=World)
    training: Training = field(default_factory=Training)
    learning: maddpg.Config = field(default_factory=maddpg.Config)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    evaluation: Evaluation = field(default_factory=Evaluation)

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
        t, e, c, a = self.training, self.evaluation, self.checkpoints, self.learning
        least: dict[str, tuple[float, float]] = {
            "num_episodes": (t.num_episodes, 1), "batch_size": (t.batch_size, 1), "update_every": (t.update_every, 1),
            "updates": (t.updates, 1), "warmup": (t.warmup, 0), "num_envs": (t.num_envs, 1), "num_seeds": (t.num_seeds, 1),
            "seed": (t.seed, 0), "devices": (t.devices, 0), "save_rate": (c.save_rate, 1), "benchmark_iters": (e.benchmark_iters, 1),
            "report_every": (e.report_every, 1), "eval_episodes": (e.eval_episodes, 0), "buffer_size": (t.buffer_size, t.batch_size),
            "max_episode_len": (self.world.max_episode_len, 0), "num_agents": (self.world.num_agents, 0),
            "num_units": (a.num_units, 1), "num_layers": (a.num_layers, 1), "clip": (a.clip, 0), "noise_steps": (a.noise_steps, 1),
        }  # fmt: skip
        for name, (value, smallest) in least.items():
            if value < smallest:
                raise UsageError(f"--{name.replace('_', '-')} must be at least {smallest:g}, not {value:g}.")
        for name in ("lr", "temperature"):
            if not getattr(a, name) > 0:
                raise UsageError(f"--{name} must be above 0, not {getattr(a, name):g}.")
        for name in ("gamma", "tau"):
            if not 0 <= getattr(a, name) <= 1:
                raise UsageError(f"--{name} must be from 0 to 1, not {getattr(a, name):g}.")
        if t.update_every % t.num_envs:
            raise UsageError(
                f"--num-envs {t.num_envs} does not divide --update-every {t.update_every}: choose --update-every {t.num_envs}"
                " or a multiple of it."
            )
        return self.world.build()


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
}


def to_dict(config: Config) -> dict[str, Any]:
    """The settings as plain data."""
    return dataclasses.asdict(config)


def from_dict(data: dict[str, Any]) -> Config:
    """The settings that `to_dict` made plain."""
    values = dict(data)
    for name, group in GROUPS.items():
        given = {key: tuple(value) if isinstance(value, list) else value for key, value in values.get(name, {}).items()}
        unknown = set(given) - {f.name for f in dataclasses.fields(group)}
        if unknown:
            raise UsageError(f"config.json has the unknown setting {min(unknown)!r}: it was written by another version.")
        values[name] = group(**given)
    unknown = set(values) - {f.name for f in dataclasses.fields(Config)}
    if unknown:
        raise UsageError(f"config.json has the unknown setting {min(unknown)!r}: it was written by another version.")
    return Config(**values)


def override(config: Config, **changes: Any) -> Config:
    """The settings with some changed, by the names that the command line uses (dashes or underscores)."""
    homes = {f.name: group for group, kind in GROUPS.items() for f in dataclasses.fields(kind)}
    top = {f.name for f in dataclasses.fields(Config)} - set(GROUPS)
    for name, value in changes.items():
        name = name.replace("-", "_")
        if name in top:
            config = dataclasses.replace(config, **{name: value})
        elif name in homes:
            group = dataclasses.replace(getattr(config, homes[name]), **{name: value})
            config = dataclasses.replace(config, **{homes[name]: group})
        else:
            close = difflib.get_close_matches(name, [*homes, *top], 1)
            hint = f"; perhaps {close[0]}?" if close else "."
            raise UsageError(f"there is no setting {name!r}{hint}")
    return config


def preset(name: str) -> Config:
    """The settings of that name."""
    if name not in PRESETS:
        close = difflib.get_close_matches(name, list(PRESETS), 1)
        hint = f" (perhaps {close[0]}?)" if close else ""
        raise UsageError(f"unknown preset {name!r}{hint}; known are {', '.join(PRESETS)}.")
    return dataclasses.replace(PRESETS[name], preset=name)


PRESETS: dict[str, Config] = {
    "demo": override(
        Config(), scenario="simple_spread", num_episodes=25_000, exp_name="demo"
    ),
    "authors-spread": override(Config(), scenario="simple_spread", flavour="openai"),
    "authors-speaker": override(Config(), scenario="simple_speaker_listener", flavour="openai"),
}
