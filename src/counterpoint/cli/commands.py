"""What the commands that need JAX do."""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from counterpoint import config as configs
from counterpoint import presets
from counterpoint.cli.parsing import parse
from counterpoint.config import Config
from counterpoint.core.errors import UsageError


def train(words: list[str]) -> None:
    """`counterpoint train`, and what its --restore, --display and --benchmark stand for."""
    start = presets.start(*(_option(words, f"--{name}") for name in ("preset", "algorithm", "scenario")))
    # The options of `learning` are those of the chosen algorithm alone: a union would become subcommands.
    own = (("learning", type(start.learning), dataclasses.field(default=start.learning)),)
    parsed = parse(
        dataclasses.make_dataclass("Config", own, bases=(Config,), frozen=True),
        words,
        "counterpoint train",
        default=start,
        description="Train a team. Options given here override the preset's.",
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    config = Config(**vars(parsed))
    e, c = config.evaluation, config.checkpoints
    saved = c.load_dir or str(Path(c.save_dir) / config.name)
    if sum((e.restore, e.display, e.benchmark)) > 1:
        raise UsageError("--restore, --display and --benchmark exclude each other: choose one of them.")
    if e.restore:
        resume(saved, 0)
    elif e.display:
        play(saved, "trained", 3, "", config.training.seed, False, ())
    elif e.benchmark:
        benchmark(saved, e.benchmark_iters, e.benchmark_dir, False)
    else:
        _guarded(lambda experiment, console: experiment.train(config, console))


def _option(words: list[str], name: str) -> str:
    """The value of an option that must be known before the others are parsed."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == name:
            return following
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return ""


def resume(run: str, num_episodes: int) -> None:
    """`counterpoint resume`."""
    if num_episodes < 0:
        raise UsageError(f"--num-episodes must be at least 0, not {num_episodes}.")
    _guarded(lambda experiment, console: experiment.resume(run, console, num_episodes))


def _guarded(job: Callable[[Any, Any], object]) -> None:
    """Runs a training job and turns its ways to end early into a sentence and an exit code."""
    from counterpoint.training import train as experiment
    from counterpoint.training.progress import Console

    console = Console()
    try:
        job(experiment, console)
    except experiment.Interrupted as stopped:
        console.end()
        print(f"stopped and saved; go on with: counterpoint resume {stopped}")
        sys.exit(130)
    except experiment.Diverged as error:
        console.end()
        print(f"counterpoint: {error}", file=sys.stderr)
        sys.exit(3)
    except experiment.TooFewLearners as error:
        console.end()
        print(f"counterpoint: {error}", file=sys.stderr)
        sys.exit(4)
    finally:
        console.end()


def play(what: str, policy: str, episodes: int, out: str, seed: int, explore: bool, args: tuple[str, ...]) -> None:
    """`counterpoint play`."""
    from counterpoint.envs import WORLDS
    from counterpoint.policies.policy import load, random_team

    if episodes < 1:
        raise UsageError(f"--episodes must be at least 1, not {episodes}.")
    if what in WORLDS and not (Path(what) / "config.json").exists():
        team, explore, beside = random_team(configs.EnvSettings(scenario=what, scenario_args=args).build()), True, f"{what}.gif"
    elif args:
        raise UsageError("--args are for a world by name; a run has its own: leave them out.")
    else:
        team, beside = load(what), str(Path(what) / "play.gif")
        if policy == "random":
            team, explore = random_team(team.env), True
    if not team.save_film(out or beside, episodes, seed, explore):
        raise UsageError(f"{team.env.name} cannot draw itself: its factory must take render_mode='rgb_array'.")
    print(f"{episodes} episode{'s' * (episodes > 1)} of {team.env.name} → {out or beside}")


def benchmark(run: str, iters: int, folder: str, explore: bool) -> None:
    """`counterpoint benchmark`."""
    import jax

    from counterpoint.policies.policy import load
    from counterpoint.runs import stats, tables
    from counterpoint.training.train import make_folder

    if iters < 1:
        raise UsageError(f"--benchmark-iters must be at least 1, not {iters}.")
    team = load(run)
    batch = max(1, min(1000, iters // team.env.max_steps))
    steps, parts = 0, []
    while steps < iters:
        parts.append(team.evaluate(batch, len(parts), explore))
        steps += int(parts[-1].length.sum())
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    values = {f"return of {agent}": whole.returns[:, i] for i, agent in enumerate(team.env.spec.agents)}
    rows = [(name, stats.summary(value)) for name, value in (values | {"length": whole.length} | whole.metrics).items()]
    table = tables.markdown_table(
        ["per episode", "mean", "95 % interval", "episodes"],
        [[name, f"{s.mean:.3f}", f"{s.low:.3f} … {s.high:.3f}", s.count] for name, s in rows],
    )
    facts = {"run": run, "steps": steps, "greedy": not explore, "figures": {name: s._asdict() for name, s in rows}}
    file = Path(folder) / f"{Path(run).resolve().name}.json"
    make_folder(file.parent, "--benchmark-dir")
    tables.write_whole(file, lambda draft: draft.write_text(json.dumps(facts, indent=2)))
    print(f"{table}\n{steps} steps, {'as in training' if explore else 'greedy'} → {file}")


def export(run: str, format: Any, out: str, seed_index: int) -> None:
    """`counterpoint export`."""
    from counterpoint.policies import export as exports

    folder = exports.export(run, format, out, seed_index)
    facts = json.loads((folder / exports.MANIFEST).read_text())
    print("\n".join(facts["files"]))
    apart = f"{facts['largest_difference']:.1e}"
    print(f"→ {folder}; run on {exports.NUM_TRIALS} observations, they differ from the policy by at most {apart}")


def list_presets() -> None:
    """`counterpoint presets`."""
    for name, config in presets.PRESETS.items():
        family = configs.override(Config(), algorithm=config.algorithm)
        base = _flat(dataclasses.replace(family, algorithm=Config().algorithm))
        changes = [f"--{key.replace('_', '-')} {value}" for key, value in _flat(config).items() if value != base[key]]
        print(f"{name}\n    {' '.join(changes)}")


def _flat(config: Config) -> dict[str, Any]:
    """All settings by name, without their groups."""
    flat: dict[str, Any] = {}
    for name, value in configs.to_dict(config).items():
        flat |= value if isinstance(value, dict) else {name: value}
    return flat
