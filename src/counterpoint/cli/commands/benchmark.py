"""`counterpoint benchmark`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from tyro.conf import Positional, arg

from counterpoint.cli.registry import command
from counterpoint.core.errors import UsageError

SUCCESS = ("success", "is_success")
"""Metrics that lead the table."""


class SeedResult(NamedTuple):
    """The measured episodes of one seed."""

    seed: int
    steps: int
    values: dict[str, Any]
    """One number per episode, by the metric's name; episodes that did not report the metric are left out."""


@command("Trained runs")
def benchmark(
    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="RUN …", help_behavior_hint="(at least one)")],
    benchmark_iters: int = 100_000,
    benchmark_dir: str = "./benchmark_files/",
    explore: bool = False,
    seed_index: Annotated[int | None, arg(metavar="INDEX", help_behavior_hint="(default: all seeds)")] = None,
    at: str = "last",
    env: str = "",
    trust: bool = False,
    member: Annotated[int | None, arg(metavar="INDEX", help_behavior_hint="(default: drawn for each episode)")] = None,
    scale: bool = False,
) -> None:
    """Measure the returns and metrics of trained policies, with confidence intervals over seeds and over episodes.

    The results are printed as a table and written to a JSON file for each run.

    Args:
        runs: The folders of the runs.
        benchmark_iters: Number of environment steps to measure each seed over.
        benchmark_dir: Folder for the files with the results.
        explore: Act with the exploration noise of training instead of greedily.
        seed_index: Measure only this seed of each run, counted from 0.
        at: Policy to measure: last, best (by evaluation), or a number of episodes (the nearest policy that was kept).
        env: New place of the runs' own environment, if it has moved (empty: where it was in training).
        trust: Execute the code that the run names even though you did not make the run on this machine.
        member: Sub-policy of an ensemble, counted from 0.
        scale: Also print returns as shares between random play (0) and a scripted team (1), where these are known.
    """
    from counterpoint.runs import files, open_run
    from counterpoint.runs.tables import print_table

    if benchmark_iters < 1:
        raise UsageError(f"--benchmark-iters must be at least 1, not {benchmark_iters}.")
    if not runs:
        raise UsageError("name at least one run to measure; `counterpoint runs` lists them.")
    opened = {str(run): open_run(run) for run in runs}
    names = _file_names(opened)
    asked = (("at", at, "last"), ("env", env, ""), ("trust", trust, False), ("member", member, None))
    which = {name: value for name, value, usual in asked if value != usual}
    several, rows, lines, unscaled = len(opened) > 1, [], [], False
    files.make_folder(benchmark_dir, "--benchmark-dir")
    for given, run in opened.items():
        seeds = _measure(run, benchmark_iters, explore, seed_index, which)
        metrics = {name: summary_of([seed.values[name] for seed in seeds if len(seed.values[name])]) for name in _names(seeds)}
        rows += [[given] * several + [name, *_cells(summary)] for name, summary in metrics.items()]
        if scale:
            shares = _shares(run, metrics)
            rows += [[given] * several + [name, *_cells(summary)] for name, summary in shares.items()]
            unscaled |= not shares
        steps = sum(seed.steps for seed in seeds)
        facts = {"run": given, "at": at, "steps": steps, "greedy": not explore, "metrics": metrics}
        facts["seeds"] = [
            {"seed": s.seed, "steps": s.steps, "metrics": {n: summary_of([v]) for n, v in s.values.items() if len(v)}}
            for s in seeds
        ]
        file = Path(benchmark_dir) / names[given]
        files.write_whole(file, lambda draft, facts=facts: draft.write_text(json.dumps(facts, indent=2)))
        if len(seeds) > 1:
            lines.append(_by_seed(facts, next(iter(metrics)), given if several else ""))
        lines.append(f"{steps} steps, {'with exploration' if explore else 'greedy'} → {file}")
    header = ["per episode", "mean", "95 % over seeds", "95 % over episodes", "seeds", "episodes"]
    print_table(["run"] * several + header, rows, ["seeds", "episodes", "95 % over episodes"])
    if unscaled:
        from counterpoint.studies.units import NO_SCALE

        print(f"note: {NO_SCALE}")
    print("\n".join(lines))
    for given, run in opened.items():
        if teams := _exploitable(run):
            hint = f"counterpoint exploit {given} --team {teams[0]}"
            print(f"returns of {given} depend on the opponents; to see how exploitable a team is: {hint}")


def _shares(run: Any, metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the returns of agents as shares between random play and a scripted team; none if these are not known."""
    from counterpoint.studies.units import share_in_world

    numbers = ("mean", "low", "high", "seed_low", "seed_high")
    found = {}
    for name, summary in metrics.items():
        if name.startswith("return of ") and share_in_world(summary["mean"], run.config["world"]) is not None:
            shares = {n: None if summary[n] is None else share_in_world(summary[n], run.config["world"]) for n in numbers}
            found[name.replace("return", "share", 1)] = {**summary, **shares}
    return found


def _exploitable(run: Any) -> list[str]:
    """Returns the teams that a run trained against another team, by the names of its columns; none if it has no opponents."""
    try:
        columns = run.rows()[-1]
    except (IndexError, UsageError, OSError):
        return []
    teams = [name.removeprefix("team/") for name in columns if name.startswith("team/")]
    return teams if len(teams) > 1 or run.config.get("opponents", {}).get("freeze") else []


def _file_names(opened: Mapping[str, Any]) -> dict[str, str]:
    """Returns the file of each run: its name, with its folder's before it if two runs have the same."""
    paths = {given: run.path.resolve() for given, run in opened.items()}
    names = [path.name for path in paths.values()]
    return {
        given: f"{path.parent.name}-{path.name}.json" if names.count(path.name) > 1 else f"{path.name}.json"
        for given, path in paths.items()
    }


def _measure(run: Any, iterations: int, explore: bool, seed_index: int | None, which: dict[str, Any]) -> list[SeedResult]:
    """Plays whole episodes with the policy of each seed, or of one, for at least that many steps each."""
    import jax
    import numpy as np

    from counterpoint import config as configs
    from counterpoint.policies.policy import load

    team, results = load(run, seed_index or 0, **which), []
    training = configs.from_dict(run.config).training
    first, chosen = training.seed, range(training.num_seeds) if seed_index is None else [seed_index]
    batch = max(1, min(1000, iterations // team.env.max_steps))
    for index in chosen:
        if results:
            team.parameters = load(run, index, **which).parameters  # the first team's program is already compiled
        steps, parts = 0, []
        while steps < iterations:
            parts.append(team.evaluate(batch, len(parts), explore))
            steps += int(parts[-1].length.sum())
        # An external environment may report a number in some of the parts only.
        metrics = {name: [part.metrics.get(name, np.zeros(0)) for part in parts] for part in parts for name in part.metrics}
        whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(part._replace(metrics={}) for part in parts))
        values = {f"return of {agent}": whole.returns[:, i] for i, agent in enumerate(team.env.spec.agents)}
        values |= {"length": whole.length} | {name: np.concatenate(numbers) for name, numbers in metrics.items()}
        results.append(SeedResult(first + index, steps, {name: _reported(numbers) for name, numbers in values.items()}))
    return results


def _reported(numbers: Any) -> Any:
    import numpy as np

    values = np.asarray(numbers, float)
    return values[~np.isnan(values)]


def _names(seeds: list[SeedResult]) -> list[str]:
    """Returns the metrics that every seed has, success first."""
    shared = [name for name in seeds[0].values if all(len(seed.values.get(name, ())) for seed in seeds)]
    return sorted(shared, key=lambda name: name not in SUCCESS)


def summary_of(seeds: list[Any]) -> dict[str, float | int | None]:
    """Returns the mean over seeds with its interval over episodes (low, high), and over seeds if there are several."""
    import numpy as np

    from counterpoint.runs import stats

    pooled = stats.summary(np.concatenate(seeds))
    low, high = (pooled.low, pooled.high) if len(seeds) == 1 else stats.stratified_interval(seeds, stats.mean_of_means)
    means = [float(np.mean(seed)) for seed in seeds]
    over_seeds = stats.bootstrap_interval(means) if len(seeds) > 1 else (None, None)
    own = {"mean": float(np.mean(means)), "low": low, "high": high, "seeds": len(seeds)}
    return pooled._asdict() | own | dict(zip(("seed_low", "seed_high"), over_seeds, strict=True))


def _cells(s: Mapping[str, Any]) -> list[str]:
    over_seeds = "–" if s["seed_low"] is None else f"{s['seed_low']:.3f} … {s['seed_high']:.3f}"
    return [f"{s['mean']:.3f}", over_seeds, f"{s['low']:.3f} … {s['high']:.3f}", str(s["seeds"]), str(s["count"])]


def _by_seed(facts: Mapping[str, Any], name: str, run: str) -> str:
    means = ", ".join(f"{seed['metrics'][name]['mean']:.3f} (seed {seed['seed']})" for seed in facts["seeds"])
    return f"{f'{run}: ' if run else ''}{name} by seed: {means}"
