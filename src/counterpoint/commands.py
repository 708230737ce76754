"""What the commands that need JAX do."""

import json
import sys
from pathlib import Path

import numpy as np
import tyro

from counterpoint import config as configs
from counterpoint.config import Config
from counterpoint.errors import UsageError


def train(words: list[str]) -> None:
    """`counterpoint train`, and what its --restore, --display and --benchmark stand for."""
    default = configs.preset(_option(words, "--preset")) if _option(words, "--preset") else Config()
    config = tyro.cli(
        Config,
        args=words,
        default=default,
        prog="counterpoint train",
        description="Train a team. Options given here override the preset's.",
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagConversionOff) if False else (tyro.conf.OmitArgPrefixes,),
    )
    e, c = config.evaluation, config.checkpoints
    saved = c.load_dir or str(Path(c.save_dir) / config.name)
    if sum((e.restore, e.display, e.benchmark)) > 1:
        raise UsageError("choose one of --restore, --display and --benchmark.")
    if e.restore:
        resume(saved, 0)
    elif e.display:
        play(saved, "trained", 3, "", config.training.seed, False, ())
    elif e.benchmark:
        benchmark(saved, e.benchmark_iters, e.benchmark_dir, False)
    else:
        config.validate()
        _guarded(lambda experiment, console: experiment.train(config, console))


def _option(words: list[str], name: str) -> str:
    """The value of an option that must be known before the others are parsed."""
    for i, word in enumerate(words):
        if word == name and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return ""


def resume(run: str, num_episodes: int) -> None:
    """`counterpoint resume`."""
    _guarded(lambda experiment, console: experiment.resume(run, console, num_episodes))


def _guarded(job) -> None:
    """Runs a training job and turns its ways to end early into a sentence and an exit code."""
    from counterpoint import experiment
    from counterpoint.progress import Console

    console = Console()
    try:
        job(experiment, console)
    except experiment.Interrupted as stopped:
        print(f"\nstopped and saved; go on with: counterpoint resume {stopped}")
        sys.exit(130)
    except experiment.Diverged as error:
        console.end()
        print(f"counterpoint: {error}", file=sys.stderr)
        sys.exit(3)
    finally:
        console.end()


def play(what: str, policy: str, episodes: int, out: str, seed: int, explore: bool, args: tuple[str, ...]) -> None:
    """`counterpoint play`."""
    from counterpoint import render
    from counterpoint.envs import WORLDS
    from counterpoint.policy import Policy, load

    if episodes < 1:
        raise UsageError(f"--episodes must be at least 1, not {episodes}.")
    if what in WORLDS and not (Path(what) / "config.json").exists():
        env = configs.World(scenario=what, scenario_args=args).build()
        team, out = random_team(env), out or f"{what}.gif"
        explore = True
    else:
        team = load(what)
        if policy == "random":
            team, explore = random_team(team.env), True
        out = out or str(Path(what) / "play.gif")
    films = team.film(episodes, seed, explore)
    render.save(films, out)
    print(f"{episodes} episodes of {team.env.name} → {out}")


def random_team(env):
    """A team whose actions are uniformly random."""
    import jax.numpy as jnp

    from counterpoint import random
    from counterpoint.algos import maddpg
    from counterpoint.policy import Policy

    import jax

    n = env.spec.num_agents
    algo = maddpg.make(maddpg.Config(world_action="one-hot", noise_end=1.0), env.spec, np.eye(n, dtype=bool))
    zero = jax.tree.map(jnp.zeros_like, algo.acting(algo.init(random.key(0))))
    return Policy(env, algo, zero)


def benchmark(run: str, iters: int, folder: str, explore: bool) -> None:
    """`counterpoint benchmark`."""
    import jax

    from counterpoint import random, stats, tables
    from counterpoint.policy import load
    from counterpoint.train import evaluate

    if iters < 1:
        raise UsageError(f"--benchmark-iters must be at least 1, not {iters}.")
    team = load(run)
    batch = max(1, min(1000, iters // team.env.max_steps))
    play_batch = jax.jit(lambda key: evaluate(team.env, team.algo, team.agents, key, batch, explore))
    steps, parts = 0, []
    while steps < iters:
        parts.append(jax.device_get(play_batch(jax.random.fold_in(random.key(0), len(parts)))))
        steps += int(parts[-1].length.sum())
    values = {f"return of {a}": np.concatenate([p.returns[:, i] for p in parts]) for i, a in enumerate(team.env.spec.agents)}
    values["length"] = np.concatenate([p.length for p in parts]).astype(float)
    values |= {name: np.concatenate([p.metrics[name] for p in parts]) for name in team.env.metric_reductions}
    rows = [(name, stats.summary(value)) for name, value in values.items()]
    table = tables.markdown_table(
        ["per episode", "mean", "95 % interval", "episodes"],
        [[name, f"{s.mean:.3f}", f"{s.low:.3f} … {s.high:.3f}", str(s.count)] for name, s in rows],
    )
    print(table)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    file = path / f"{Path(run).name}.json"
    file.write_text(json.dumps({name: s._asdict() for name, s in rows}, indent=2))
    print(f"\n{steps} steps, {'as in training' if explore else 'greedy'} → {file}")


def presets() -> None:
    """`counterpoint presets`."""
    base = configs.to_dict(Config())
    for name, config in configs.PRESETS.items():
        changes = []
        for group, values in configs.to_dict(config).items():
            if isinstance(values, dict):
                changes += [f"--{key.replace('_', '-')} {value}" for key, value in values.items() if value != base[group][key]]
            elif values != base[group]:
                changes.append(f"--{group.replace('_', '-')} {values}")
        print(f"{name}\n    {' '.join(changes)}")
