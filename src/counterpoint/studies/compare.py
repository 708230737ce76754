"""Compares runs: groups them by what differs, averages over seeds, and writes a figure, tables and data. Needs no jax.

A group is all seeds of all runs with the same value of the compared settings; runs in different environments are different
panels. The score of a seed is the metric at its last report (the mean of the last reports if curves are smoothed). Statistics
follow Agarwal et al. 2021 (arXiv:2108.13264) and are computed by SciPy.
"""

import difflib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from counterpoint.core.errors import UsageError
from counterpoint.core.loading import short_name
from counterpoint.runs import Run, lock, open_run, stats
from counterpoint.runs.files import expanded, make_folder, write_whole
from counterpoint.runs.folder import GRID, RUNS
from counterpoint.runs.stats import Curve
from counterpoint.runs.tables import markdown_table, write_csv
from counterpoint.studies.units import NO_SCALE, share_in_world
from counterpoint.viz import comparison as figures
from counterpoint.viz.comparison import FEW_SEEDS, Look
from counterpoint.viz.plots import axis_label, columns

Axis = Literal["episodes", "steps", "seconds"]
X_COLUMNS: dict[Axis, str] = {"episodes": "episode", "steps": "step", "seconds": "seconds"}
X_LABELS: dict[Axis, str] = {"episodes": "episodes", "steps": "environment steps", "seconds": "seconds of training"}
SEEDS = ("seed", "num_seeds")
"""Settings that never make a group."""
NOT_COMPARED = {
    *("preset", "exp_name", "save_dir", "load_dir", "save_rate", "restore", "display", "benchmark", "benchmark_iters"),
    *("benchmark_dir", "plots_dir", "report_every", "eval_episodes", "tensorboard", "wandb", "devices", "workers"),
    *("worker_timeout", "trust", *SEEDS),
}
"""Settings that do not change what is learned: groups are never made of them unless the user names one."""
FIRST = ("algorithm", "good_policy", "adv_policy")
"""Settings that explain a difference before all others."""
THRESHOLDS = np.linspace(0.0, 1.0, 51)
REPORT = "comparison.md"


class Seed(NamedTuple):
    """One seed of one run."""

    run: Run
    number: int
    world: dict[str, Any]
    """The settings of the environment."""
    settings: dict[str, Any]
    """All settings, without their groups."""
    rows: list[dict[str, Any]]


class Scores(NamedTuple):
    """A group in one environment: a line of the table."""

    environment: str
    group: str
    seeds: int
    mean: float
    iqm: float
    low: float
    """Lower end of the 95 % interval of the mean over seeds; the lowest seed if there are at most three."""
    high: float
    solved: int | None
    """Seeds that solved the task; None if nothing says what solving it means."""
    solved_low: float | None
    """Lower end of the exact 95 % interval of the share solved."""
    solved_high: float | None
    gap: float
    """Optimality gap: mean shortfall from the target."""


class Pair(NamedTuple):
    """Two groups in one environment, the better one first."""

    environment: str
    better: str
    other: str
    difference: float
    """Of the means, in the unit of the metric."""
    probability: float
    """Probability that a seed of the first group scores higher."""
    low: float | None
    """Lower end of its 95 % interval; None if a group has at most three seeds, whose resampling says too little."""
    high: float | None
    seeds_needed: int | None
    """Seeds per group that would detect the difference; None if over a thousand, or if there is no spread to judge by."""


class Overall(NamedTuple):
    """A group over all environments, by scores normalised to [0, 1] in each."""

    group: str
    seeds: int
    mean: float
    iqm: float
    low: float
    """Lower end of the 95 % interval of the interquartile mean, with seeds resampled within environments."""
    high: float
    gap: float


class Share(NamedTuple):
    """The score of a group on the scale from random play (0) to the scripted team (1)."""

    environment: str
    group: str
    mean: float
    low: float
    """Lower end of the interval of `Scores`."""
    high: float


class Comparison(NamedTuple):
    """What `compare` found, and the files it wrote."""

    metric: str
    by: tuple[str, ...]
    scores: list[Scores]
    pairs: list[Pair]
    overall: list[Overall]
    """Empty unless there are several environments."""
    notes: list[str]
    """Sentences about what the numbers can and cannot show."""
    files: list[Path]
    shares: Sequence[Share] = ()
    """Empty unless they were asked for, and for environments without references."""


def compare(
    runs: Sequence[str | Path | Run],
    by: str = "",
    metric: str = "",
    x: Axis = "episodes",
    smooth: int = 1,
    solved: float | None = None,
    lower_is_better: bool = False,
    out: str | Path = "comparison",
    look: Look | None = None,
    scale: bool = False,
) -> Comparison:
    """Compares runs, or all runs in a folder, and writes figures, tables and data to the folder `out`.

    `by` names the settings that make groups, separated by commas (default: what differs), or is `run`. `solved` is the score
    from which a seed counts as having solved its task. `scale` adds scores as shares between random play (0) and a scripted
    team (1), where these are known.
    """
    look = look or Look()
    if smooth < 1:
        raise UsageError(f"--smooth must be at least 1, not {smooth}.")
    if look.width < 0 or not math.isfinite(look.width):
        raise UsageError(f"--width must be a number of inches, not {look.width:g}.")
    grouped = group(runs, by, metric, x)
    result, normalised = judge(grouped, smooth, solved, lower_is_better)
    result = on_scale(result, grouped) if scale else result
    make_folder(folder := expanded(out), "--out")
    with lock.hold(folder):  # two comparisons would mix their files
        files = figures.curves(grouped.curves, folder, X_LABELS[x], axis_label(result.metric), smooth, look)
        if result.overall:
            files += figures.profiles(THRESHOLDS, {g: _profile(strata) for g, strata in normalised.items()}, folder, look)
        return result._replace(files=files + _write(result, grouped, folder, x, smooth))


class Grouped(NamedTuple):
    """The curves of runs, by environment and group."""

    metric: str
    by: tuple[str, ...]
    panels: dict[str, dict[str, list[Seed]]]
    """The seeds by environment and group."""
    curves: dict[str, dict[str, list[Curve]]]
    """The metric of each of these seeds."""
    notes: list[str]


def group(runs: Sequence[str | Path | Run], by: str = "", metric: str = "", x: Axis = "episodes") -> Grouped:
    """Returns the curves that `compare` draws, with the seeds that they belong to."""
    notes: list[str] = []
    seeds = _without_copies(_load(runs), notes)
    chosen = _settings(by, seeds) if by else _differing(seeds)
    metric = _metric(metric, seeds)
    panels = _panels(seeds, chosen, notes)
    curves = {
        title: {label: [_curve(seed, x, metric) for seed in members] for label, members in groups.items()}
        for title, groups in panels.items()
    }
    _note_ends(panels, curves, x, notes)
    return Grouped(metric, chosen, panels, curves, notes)


def judge(
    grouped: Grouped, smooth: int = 1, solved: float | None = None, lower_is_better: bool = False
) -> tuple[Comparison, dict[str, list[np.ndarray]]]:
    """Returns the statistics of groups, without files, and each group's scores in each environment normalised to [0, 1]."""
    notes = list(grouped.notes)
    values = {
        title: {label: np.array([float(np.mean(y[-smooth:])) for _, y in group]) for label, group in groups.items()}
        for title, groups in grouped.curves.items()
    }
    sign = -1.0 if lower_is_better else 1.0
    scores = [row for title, groups in values.items() for row in _scores(title, groups, sign, solved, notes)]
    pairs = [pair for title, groups in values.items() for pair in _pairs(title, groups, sign)]
    notes += _seed_notes(values, pairs)
    normalised = _normalised(values, sign)
    notes += _missing_notes(values, normalised)
    overall = [_overall(label, strata) for label, strata in normalised.items()]
    return Comparison(grouped.metric, grouped.by, scores, pairs, overall, notes, []), normalised


def on_scale(result: Comparison, grouped: Grouped) -> Comparison:
    """Returns the comparison with the shares of groups whose world has references, and a note if some have none."""
    returns = result.metric.startswith(("eval/team/", "eval/return/", "team/", "return/"))
    shares = [_share_of(row, grouped.panels[row.environment][row.group]) if returns else None for row in result.scores]
    found = [share for share in shares if share is not None]
    return result._replace(shares=found, notes=[*result.notes, *([NO_SCALE] if len(found) < len(shares) else [])])


def _share_of(row: Scores, seeds: Sequence[Seed]) -> Share | None:
    """Returns a group's score on the scale; None if its seeds are in several worlds or in one without references."""
    worlds = {_text(seed.world): seed.world for seed in seeds}
    mean, low, high = (share_in_world(value, seeds[0].world) for value in (row.mean, row.low, row.high))
    if len(worlds) > 1 or mean is None or low is None or high is None:
        return None
    return Share(row.environment, row.group, mean, low, high)


def _load(runs: Sequence[str | Path | Run]) -> list[Seed]:
    """Returns the seeds of all runs; a folder of runs stands for the runs in it."""
    found: dict[Path, Run] = {}
    for item in runs:
        for run in [item] if isinstance(item, Run) else _runs_in(expanded(item)):
            found.setdefault(run.path.resolve(), run)
    if not found:
        raise UsageError("there is nothing to compare: name at least one run; `counterpoint runs` lists them.")
    seeds = []
    for run in found.values():
        config, by_seed = run.config, {}
        for row in run.rows():
            if isinstance(row.get("seed"), int):
                by_seed.setdefault(row["seed"], []).append(row)
        if not by_seed:
            raise UsageError(f"{run.path} has no reports yet: let it train longer, or leave it out.")
        groups = {name: value for name, value in config.items() if isinstance(value, dict)}
        flat = {name: value for name, value in config.items() if name not in groups}
        for group in groups.values():
            flat |= group
        seeds += [Seed(run, int(number), groups.get("world", {}), flat, rows) for number, rows in by_seed.items()]
    return seeds


def _runs_in(path: Path) -> list[Run]:
    if not path.exists() and (RUNS / path / GRID).exists():  # the bare name of a grid
        path = RUNS / path
    if not (path / "config.json").exists():
        if inside := sorted(found.parent for found in path.glob("*/config.json")):
            return [open_run(folder) for folder in inside]
        if (path / REPORT).exists():  # what an earlier comparison wrote
            return []
    return [open_run(path)]


def _without_copies(seeds: list[Seed], notes: list[str]) -> list[Seed]:
    """Drops seeds that repeat another run with the same settings: the same seed again is not a second observation."""
    kept: dict[str, Seed] = {}
    for seed in seeds:
        settings = {name: value for name, value in seed.settings.items() if name not in NOT_COMPARED}
        key = _text([seed.number, settings])
        if other := kept.get(key):
            longer, shorter = sorted((seed, other), key=lambda s: len(s.rows), reverse=True)
            notes.append(f"Seed {seed.number} of {shorter.run.name} repeats that of {longer.run.name} and is left out.")
            kept[key] = longer
        else:
            kept[key] = seed
    return list(kept.values())


def _settings(by: str, seeds: Sequence[Seed]) -> tuple[str, ...]:
    """Returns the settings that the user named, or raises UsageError with the nearest ones."""
    known = list(dict.fromkeys(["run", *(name for seed in seeds for name in seed.settings)]))
    chosen = tuple(word.strip().replace("-", "_") for word in by.split(",") if word.strip())
    for name in chosen:
        if name in SEEDS:
            raise UsageError(f"--by {name} would make a group of each seed, and groups are averages over seeds: leave it out.")
        if name not in known:
            raise UsageError(f"--by {name}: the runs have no such setting{_nearest(name, known)}")
    return chosen


def _differing(seeds: Sequence[Seed]) -> tuple[str, ...]:
    """Returns the fewest settings that tell runs in the same environment apart."""
    names = dict.fromkeys(name for seed in seeds for name in seed.settings if name not in (*NOT_COMPARED, *seed.world))
    chosen: list[str] = []
    for name in sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        classes: dict[str, set[str]] = {}
        for seed in seeds:
            key = _text([seed.world, *(seed.settings.get(other) for other in chosen)])
            classes.setdefault(key, set()).add(_text(seed.settings.get(name)))
        if any(len(values) > 1 for values in classes.values()):
            chosen.append(name)
    several = len({_text(seed.settings.get("algorithm")) for seed in seeds}) > 1
    if "algorithm" not in chosen and (several or not chosen):
        chosen.insert(0, "algorithm")
    return tuple(chosen)


def _metric(wanted: str, seeds: Sequence[Seed]) -> str:
    """Returns the column that the user named, with or without `eval/`; by default the evaluation's return of a team."""
    known = {seed.run.path: columns(seed.rows) for seed in seeds}
    every = list(dict.fromkeys(name for names in known.values() for name in names))
    shared = [name for name in every if all(name in names for names in known.values())]
    if not wanted:
        for prefix in ("eval/team/", "team/"):
            teams = [name for name in shared if name.startswith(prefix)]
            if teams:
                return f"{prefix}good" if f"{prefix}good" in teams else teams[0]
        raise UsageError("the runs share no team's return: choose a column that all of them have by --metric.")
    metric = next((name for name in (wanted, f"eval/{wanted}") if name in every), "")
    if not metric:
        raise UsageError(f"--metric {wanted}: the runs have no such column{_nearest(wanted, every)}")
    without = [path.name for path, names in known.items() if metric not in names]
    if without:
        raise UsageError(f"{', '.join(without)} has no column {metric}: leave it out or choose another --metric.")
    return metric


def _nearest(word: str, known: Sequence[str]) -> str:
    """Returns the end of a sentence: the name the user may have meant, or all names."""
    by_last = {name.rpartition("/")[2]: name for name in reversed(known)}
    close = difflib.get_close_matches(word, known, 1) or [
        by_last[name] for name in difflib.get_close_matches(word.rpartition("/")[2], by_last, 1)
    ]
    return f"; perhaps {close[0]}?" if close else f"; they have {', '.join(known)}."


def _panels(seeds: Sequence[Seed], by: tuple[str, ...], notes: list[str]) -> dict[str, dict[str, list[Seed]]]:
    """Returns the seeds by environment and group."""
    worlds: dict[str, list[Seed]] = {}
    for seed in seeds:
        worlds.setdefault(_text({k: v for k, v in seed.world.items() if k not in by}), []).append(seed)
    panels: dict[str, dict[str, list[Seed]]] = {}
    for members in worlds.values():
        groups: dict[str, list[Seed]] = {}
        for seed in sorted(members, key=lambda seed: _order(seed, by)):
            groups.setdefault(_label(seed, by), []).append(seed)
        panels[_title(members[0], list(worlds.values()), by)] = groups
        for label, group in groups.items():
            mixed = [name for name in _differing(group) if len({_text(seed.settings.get(name)) for seed in group}) > 1]
            if mixed and "run" not in by:
                notes.append(f"The runs of {label} also differ in {', '.join(mixed)}; all of their seeds are averaged.")
    return panels


def _order(seed: Seed, by: tuple[str, ...]) -> tuple[Any, ...]:
    """Returns a key that sorts the groups of a numeric setting by its value and leaves others as the user gave them."""
    values = [seed.settings.get(name) for name in by]
    return tuple(float(v) if isinstance(v, int | float) and not isinstance(v, bool) else 0.0 for v in values)


def _label(seed: Seed, by: tuple[str, ...]) -> str:
    words = []
    for name in by:
        value = seed.run.name if name == "run" else seed.settings.get(name)
        if isinstance(value, list | tuple):
            value = " ".join(map(str, value))
        if name == "algorithm":
            value = short_name(str(value))
        words.append(
            str(value) if name in ("algorithm", "run", "scenario") else f"{name}={'–' if value in (None, '') else value}"
        )
    return ", ".join(words)


def _title(seed: Seed, worlds: Sequence[Sequence[Seed]], by: tuple[str, ...]) -> str:
    """Returns the environment's name, with the settings by which it differs from others of that name."""

    def name_of(one: Seed) -> str:
        ids = [word.removeprefix("id=") for word in one.world.get("scenario_args") or () if word.startswith("id=")]
        env = str(one.world.get("env") or "")
        return ids[0] if ids and env == "gymnasium:make" else short_name(env) or str(one.world.get("scenario", "?"))

    name = name_of(seed)
    namesakes = [other[0].world for other in worlds if name_of(other[0]) == name]
    apart = [k for k in seed.world if k not in by and len({_text(other.get(k)) for other in namesakes}) > 1]
    details = [" ".join(v) if isinstance(v := seed.world[k], list) else f"{k}={v}" for k in apart]
    return f"{name} ({', '.join(details)})" if details else name


def _curve(seed: Seed, x: Axis, metric: str) -> Curve:
    """Returns a seed's metric along the axis, without gaps; the later of two reports of the same moment counts."""
    points = {}
    for row in seed.rows:
        position, value = (row.get(name) for name in (X_COLUMNS[x], metric))
        if all(isinstance(n, int | float) and math.isfinite(n) for n in (position, value)):
            points[position] = value
    if not points:
        raise UsageError(f"seed {seed.number} of {seed.run.path} has no value of {metric} yet: leave the run out.")
    positions, values = np.array(sorted(points.items()), float).T
    return positions, values


def _note_ends(panels: Any, curves: Mapping[str, Mapping[str, list[Curve]]], x: Axis, notes: list[str]) -> None:
    """Notes that seeds ended at different moments: the scores then compare different amounts of training."""
    for title, groups in curves.items():
        ends = {
            float(along[-1]): seed
            for label, group in groups.items()
            for (along, _), seed in zip(group, panels[title][label], strict=True)
        }
        if x != "seconds" and min(ends) < 0.95 * max(ends):
            first, last = ends[min(ends)].run.name, ends[max(ends)].run.name
            notes.append(
                f"In {title}, {first} ends at {min(ends):,.0f} {x} and {last} at {max(ends):,.0f}: the scores are those of each"
                " seed's last report, and a curve ends where its group's first seed ends."
            )


def _scores(
    title: str, groups: Mapping[str, np.ndarray], sign: float, solved: float | None, notes: list[str]
) -> Iterable[Scores]:
    """Yields the line of each group in one environment."""
    threshold = solved
    if solved is None and (threshold := stats.split_of(list(groups.values()))) is not None:
        side = "below" if sign < 0 else "above"
        notes.append(
            f"The results in {title} are bimodal: a seed counts as solved {side} {threshold:.3g}, between both clusters."
        )
    best = max(float(np.max(sign * values)) for values in groups.values())
    target = best if solved is None else sign * solved
    for label, values in groups.items():
        found = stats.summary(values)
        few = found.count <= FEW_SEEDS
        low, high = (float(values.min()), float(values.max())) if few else (found.low, found.high)
        count = None if threshold is None else int(np.sum(sign * values >= sign * threshold))
        share = (None, None) if count is None else stats.exact_interval(count, found.count)
        gap = float(stats.optimality_gap(sign * values, target))
        yield Scores(title, label, found.count, found.mean, found.iqm, low, high, count, *share, gap)


def _pairs(title: str, groups: Mapping[str, np.ndarray], sign: float) -> Iterable[Pair]:
    for pair in combinations(groups, 2):
        better, other = sorted(pair, key=lambda label: -sign * groups[label].mean())
        a, b = groups[better], groups[other]
        probability = stats.probability_of_improvement(sign * a, sign * b)
        few = min(a.size, b.size) <= FEW_SEEDS
        interval = (None, None) if few else stats.improvement_interval(sign * a, sign * b)
        yield Pair(title, better, other, float(a.mean() - b.mean()), probability, *interval, stats.seeds_needed(a, b))


def _seed_notes(values: Mapping[str, Mapping[str, np.ndarray]], pairs: Sequence[Pair]) -> Iterable[str]:
    """Yields what few seeds can show, and how many more the differences would need."""
    counts = {(title, label): len(seeds) for title, groups in values.items() for label, seeds in groups.items()}
    few = sorted({count for count in counts.values() if 1 < count <= FEW_SEEDS})
    if few:
        number = " or ".join({2: "two", 3: "three"}[count] for count in few)
        yield (
            f"Bands and intervals of groups with {number} seeds are only the range of the seeds, not a 95 % interval, and their"
            " pairs have none."
        )
    if 1 in counts.values():
        yield "A group of one seed has no interval: train several seeds with --num-seeds 5."
    for pair in pairs:
        a, b = counts[pair.environment, pair.better], counts[pair.environment, pair.other]
        if min(a, b) < 2 or (min(a, b) > FEW_SEEDS and pair.seeds_needed and pair.seeds_needed <= min(a, b)):
            continue
        between = f"{pair.environment}: the difference of {abs(pair.difference):.3g} between {pair.better} and {pair.other}"
        if pair.seeds_needed is None:
            yield f"{between} is too small to detect with a thousand seeds per group."
        else:
            yield (
                f"{between} needs about {pair.seeds_needed} seeds per group (t-test, 5 % level, 80 % power); there are"
                f" {a} and {b}."
            )


def _normalised(values: Mapping[str, Mapping[str, np.ndarray]], sign: float) -> dict[str, list[np.ndarray]]:
    """Returns each group's scores in each environment, from the worst (0) to the best seed (1) there.

    Only groups that occur in every environment can be compared over all of them; one environment gives nothing.
    """
    if len(values) < 2:
        return {}
    shared = [label for label in next(iter(values.values())) if all(label in groups for groups in values.values())]
    result: dict[str, list[np.ndarray]] = {label: [] for label in shared}
    for groups in values.values():
        every = sign * np.concatenate(list(groups.values()))
        low, span = every.min(), every.max() - every.min()
        for label in shared:
            result[label].append((sign * groups[label] - low) / span if span else np.ones(len(groups[label])))
    return result


def _missing_notes(values: Mapping[str, Mapping[str, Any]], normalised: Collection[str]) -> Iterable[str]:
    """Yields which groups are not judged over all environments, and where they are missing."""
    if len(values) < 2:
        return
    if not normalised:
        yield "No group occurs in every environment, so there is no table over all environments."
        return
    every = dict.fromkeys(label for groups in values.values() for label in groups)
    missing = {
        label: ", ".join(title for title, groups in values.items() if label not in groups)
        for label in every
        if label not in normalised
    }
    if missing:
        parts = ", ".join(f"{label} (not in {where})" for label, where in missing.items())
        yield f"The table over all environments leaves out {parts}."


def _pooled_iqm(*strata: np.ndarray, axis: int = -1) -> Any:
    return stats.iqm(np.concatenate(strata, axis=axis), axis=axis)


def _overall(label: str, strata: list[np.ndarray]) -> Overall:
    low, high = stats.stratified_interval(strata, _pooled_iqm)
    pooled = np.concatenate(strata)
    gap = float(np.mean([stats.optimality_gap(s, 1.0) for s in strata]))
    return Overall(label, pooled.size, float(stats.mean_of_means(*strata)), float(_pooled_iqm(*strata)), low, high, gap)


def _profile(strata: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the share of seeds above each threshold, with its 95 % interval."""
    above = [[(s > t).astype(float) for s in strata] for t in THRESHOLDS]
    intervals = np.array([stats.stratified_interval(shares, stats.mean_of_means, resamples=500) for shares in above])
    return np.array([stats.mean_of_means(*shares) for shares in above], float), intervals[:, 0], intervals[:, 1]


def tables(result: Comparison) -> list[tuple[str, list[str], list[list[str]]]]:
    """Returns the title, header and rows of each table, with numbers rounded for reading."""
    several = len({row.environment for row in result.scores}) > 1
    lead = ["environment"] if several else []

    def start(row: Scores | Pair | Share) -> list[str]:
        return [row.environment] if several else []

    digits = _digits([number for row in result.scores for number in (row.mean, row.low, row.high)])
    solved = any(row.solved is not None for row in result.scores)
    header = [*lead, "group", "seeds", "mean", "IQM", "95 % interval", *(["solved"] if solved else []), "optimality gap"]
    rows = []
    for row in result.scores:
        cells = [*start(row), row.group, str(row.seeds), *(f"{n:.{digits}f}" for n in (row.mean, row.iqm))]
        cells.append(_interval(row, digits))
        if solved:
            cells.append(_share(row))
        rows.append([*cells, f"{row.gap:.{digits}f}"])
    found = [(f"{result.metric} at the end of training", header, rows)]
    if result.pairs:
        header = [*lead, "better", "than", "difference", "probability of improvement", "95 % interval", "seeds needed"]
        rows = [
            [
                *(*start(p), p.better, p.other, f"{p.difference:.{digits}f}", f"{p.probability:.2f}"),
                *(
                    "–" if p.low is None else f"{p.low:.2f} … {p.high:.2f}",
                    "–" if p.seeds_needed is None else str(p.seeds_needed),
                ),
            ]
            for p in result.pairs
        ]
        found.append(("Pairs of groups", header, rows))
    if result.shares:
        header = [*lead, "group", "share between random play and scripted", "95 % interval"]
        rows = [[*start(s), s.group, f"{s.mean:.3f}", f"{s.low:.3f} … {s.high:.3f}"] for s in result.shares]
        found.append(("Scores from 0 (random play) to 1 (a scripted team)", header, rows))
    if result.overall:
        header = ["group", "seeds", "mean", "IQM", "95 % interval of the IQM", "optimality gap"]
        rows = [
            [o.group, str(o.seeds), f"{o.mean:.3f}", f"{o.iqm:.3f}", f"{o.low:.3f} … {o.high:.3f}", f"{o.gap:.3f}"]
            for o in result.overall
        ]
        found.append(("All environments, scores from 0 (the worst seed there) to 1 (the best)", header, rows))
    return found


def _digits(numbers: Sequence[float]) -> int:
    largest = max((abs(number) for number in numbers), default=0.0)
    return 3 if largest < 10 else 2 if largest < 1000 else 1


def _interval(row: Scores, digits: int) -> str:
    if row.seeds == 1:
        return "–"
    return f"{row.low:.{digits}f} … {row.high:.{digits}f}" + " (range)" * (row.seeds <= FEW_SEEDS)


def _share(row: Scores) -> str:
    if row.solved is None:
        return "–"
    return f"{row.solved}/{row.seeds} [{row.solved_low:.2f}, {row.solved_high:.2f}]"


def latex_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a LaTeX table for the booktabs package; columns of numbers are aligned right."""
    body = [list(row) for row in rows]
    kinds = "".join("r" if body and all(_is_number(row[i]) for row in body) else "l" for i in range(len(header)))
    lines = [" & ".join(map(_latex, cells)) + r" \\" for cells in (header, *body)]
    return "\n".join([rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}", ""])  # fmt: skip  # noqa: E501


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == "–"
    return True


_ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "…": r"\dots{}", "–": "--"}
_ESCAPES |= {sign: rf"\{sign}" for sign in "&%$#_{}"}


def _latex(text: str) -> str:
    """Returns a cell with LaTeX's special characters escaped and a minus sign before negative numbers."""
    words = [f"${word}$" if _is_number(word) and word.startswith("-") else None for word in text.split(" ")]
    plain = ["".join(_ESCAPES.get(sign, sign) for sign in word) for word in text.split(" ")]
    return " ".join(word or other for word, other in zip(words, plain, strict=True))


def _write(result: Comparison, grouped: Grouped, folder: Path, x: Axis, smooth: int) -> list[Path]:
    """Writes the tables and the data; returns the paths."""
    written = tables(result)
    text = [f"# Comparison by {', '.join(result.by)}\n\n![Learning curves](curves.png)\n"]
    text += [f"## {title}\n\n{markdown_table(header, rows)}" for title, header, rows in written]
    if result.overall:
        text.append("![Performance profiles](profiles.png)\n")
    text += ["".join(f"- {note}\n" for note in result.notes)] if result.notes else []
    settings = f"Curves over {x}" + f", averaged over {smooth} reports" * (smooth > 1)
    text.append(f"{settings}; {len({s.run.path for g in grouped.panels.values() for m in g.values() for s in m})} runs.\n")
    latex = "\n".join(f"% {title}\n{latex_table(header, rows)}" for title, header, rows in written)
    paths = {name: folder / name for name in (REPORT, "table.tex", "table.csv", "pairs.csv", "curves.csv", "marl-eval.json")}
    _write_text(paths[REPORT], "\n".join(text))
    _write_text(paths["table.tex"], latex)
    write_csv(paths["table.csv"], Scores._fields, result.scores)
    write_csv(paths["pairs.csv"], Pair._fields, result.pairs)
    write_csv(paths["curves.csv"], *curve_table(grouped, x))
    _write_text(paths["marl-eval.json"], json.dumps(marl_eval_data(result.metric, grouped.panels), indent=1))
    return list(paths.values())


def curve_table(grouped: Grouped, x: Axis) -> tuple[list[str], list[list[Any]]]:
    """Returns header and rows of a table with every point of every seed."""
    rows = [
        [title, label, seed.run.name, seed.number, *point]
        for title, groups in grouped.panels.items()
        for label, members in groups.items()
        for seed, curve in zip(members, grouped.curves[title][label], strict=True)
        for point in np.transpose(curve).tolist()
    ]
    return ["environment", "group", "run", "seed", X_COLUMNS[x], grouped.metric], rows


def _write_text(path: Path, text: str) -> None:
    write_whole(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def marl_eval_data(metric: str, panels: Mapping[str, Mapping[str, Sequence[Seed]]]) -> dict[str, Any]:
    """Returns the metric as marl-eval reads it: environment → task → algorithm → run → step → metric.

    marl-eval needs the same number of runs and of steps everywhere: runs beyond the fewest are left out, and of more steps as
    many are taken at equal distances up to the last. Environments with the same groups are tasks of one environment.
    """
    name = "return" if "team/" in metric or "return" in metric else metric.rpartition("/")[2].replace("_", "-").lower()
    together = len({tuple(sorted(groups)) for groups in panels.values()}) == 1
    every = [_curve(seed, "steps", metric) for groups in panels.values() for seeds in groups.values() for seed in seeds]
    runs = min(len(seeds) for groups in panels.values() for seeds in groups.values())
    steps = min(len(along) for along, _ in every)
    data: dict[str, Any] = {}
    for title, groups in panels.items():
        task = data.setdefault("counterpoint" if together else title.lower(), {}).setdefault(title.lower(), {})
        for label, seeds in groups.items():
            for number, seed in enumerate(seeds[:runs], start=1):
                along, values = _curve(seed, "steps", metric)
                picked = np.linspace(len(along) - 1, 0, steps).round().astype(int)[::-1]
                moments: dict[str, Any] = {
                    f"step_{i}": {"step_count": int(along[at]), name: [float(values[at])]}
                    for i, at in enumerate(picked, start=1)
                }
                moments["absolute_metrics"] = {name: [float(values[-1])]}
                task.setdefault(label.lower(), {})[f"run_{number}"] = moments
    return data


def _text(value: Any) -> str:
    """Returns settings as text that is the same for equal settings."""
    return json.dumps(value, sort_keys=True, default=str)
