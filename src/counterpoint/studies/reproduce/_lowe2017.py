"""What the reproductions of Lowe et al. (2017) share: training that resumes, evaluation over seeds, and the table.

Settings are the paper's: Adam 0.01, τ 0.01, γ 0.95, an update of 1024 samples every 100 steps, 25 000 episodes of the original
game unless another number is asked for. Everything else is our default, which differs from the authors' code in the initial
weights, in the order of updates and in the minibatch, which all agents share.
Policies are evaluated without exploration noise. Intervals are bootstraps over seeds.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoint.core.errors import UsageError
from counterpoint.runs import Run, open_run, stats
from counterpoint.runs.files import write_whole
from counterpoint.runs.tables import markdown_table, write_csv
from counterpoint.viz.plots import hex_of, save_figure
from counterpoint.viz.render import BLUE, STONE

PAPER: dict[str, Any] = {"flavour": "openai", "plots_dir": "", "eval_episodes": 50}
QUICK: dict[str, Any] = {
    **{"batch_size": 64, "warmup": 200, "num_units": 16, "report_every": 20, "save_rate": 60},
    **{"eval_episodes": 2, "devices": 1},
}
EPISODES, QUICK_EPISODES = 1000, 20
"""Episodes of an evaluation."""
PAIRS = (("maddpg", "maddpg"), ("maddpg", "ddpg"), ("ddpg", "maddpg"), ("ddpg", "ddpg"))
"""Algorithms of the good team and of the adversaries, in the order of the paper's tables."""


class Row(NamedTuple):
    """One number of a published table, and ours."""

    cell: str
    """What was trained."""
    metric: str
    unit: str
    published: float | None
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 0
    published_low: float | None = None
    """Lower end of the 95 % interval of the published number, where one is known."""
    published_high: float | None = None

    def difference(self, values: Sequence[float], others: Sequence[float]) -> "Row":
        """Returns the row with the difference between the means of two sets of seeds and its interval."""
        low, high = stats.stratified_interval([values, others], lambda a, b, axis: a.mean(axis=axis) - b.mean(axis=axis))
        return self._replace(ours=float(np.mean(values) - np.mean(others)), low=low, high=high, seeds=len(values))

    def measured(self, values: Sequence[float]) -> "Row":
        """Returns the row with the mean of our seeds and its interval."""
        low, high = stats.bootstrap_interval(list(values))
        return self._replace(ours=float(np.mean(values)), low=low, high=high, seeds=len(values))


class Claim(NamedTuple):
    """A claim of the paper, and whether it holds here."""

    text: str
    verdict: str


def order_verdict(more: Row, less: Row) -> str:
    """Returns whether the first of two cells has more, and whether the intervals are apart."""
    if more.ours is None or less.ours is None or more.low is None or less.high is None:
        return "not measured"
    if more.ours <= less.ours:
        return "does not hold"
    return "holds, intervals are apart" if more.low > less.high else "holds, intervals overlap"


def gain_verdict(row: Row) -> str:
    """Returns whether a difference is above zero, and whether its interval is."""
    if row.ours is None or row.low is None:
        return "not measured"
    if row.ours <= 0:
        return "does not hold"
    return "holds, the interval is above 0" if row.low > 0 else "holds, the interval includes 0"


def cost_verdict(row: Row) -> str:
    """Returns whether a difference is a loss that its interval tells from zero, and how large a loss it leaves possible."""
    if row.low is None or row.high is None:
        return "not measured"
    if row.high < 0:
        return f"does not hold: it costs {-row.high:.3g} to {-row.low:.3g}"
    return f"holds, the interval includes 0; a cost of up to {-row.low:.3g} is possible" if row.low < 0 else "holds, it gains"


class Effort(NamedTuple):
    """How much is trained; 0 stands for the default."""

    quick: bool
    episodes: int = 0
    seeds: int = 0

    def settings(self, episodes: int = 25_000, seeds: int = 6) -> dict[str, Any]:
        """Returns the settings of a training, given the defaults."""
        usual = (60, 2) if self.quick else (episodes, seeds)
        chosen = {"num_episodes": self.episodes or usual[0], "num_seeds": self.seeds or usual[1]}
        return (QUICK if self.quick else {}) | chosen

    def command(self, name: str) -> str:
        """Returns the command that measures a result with this effort."""
        asked = (("--quick", self.quick), ("--episodes", self.episodes), ("--seeds", self.seeds))
        words = [word if value is True else f"{word} {value}" for word, value in asked if value]
        return " ".join(["counterpoint reproduce", name, *words])


class Plan(NamedTuple):
    """A run of a reproduction."""

    name: str
    settings: Mapping[str, Any]
    times: int = 1
    """How often the usual data: so many times the episodes, with updates so many times as large and as rare."""


def train_all(folder: Path, plans: Sequence[Plan], effort: Effort, **defaults: int) -> dict[str, Run]:
    """Returns the finished runs of a reproduction: trains what is missing and resumes what was interrupted.

    `defaults` are those of `Effort.settings`.
    """
    from counterpoint.config import Training
    from counterpoint.training.train import is_finished, resume, train

    began, found, usual = time.perf_counter(), {}, vars(Training())
    for number, (name, settings, times) in enumerate(plans, 1):
        path = folder / "runs" / name
        wanted: dict[str, Any] = PAPER | dict(settings) | effort.settings(**defaults)
        if times > 1:
            scaled = ("num_episodes", "batch_size", "update_every", "buffer_size")
            wanted |= {setting: times * wanted.get(setting, usual[setting]) for setting in scaled}
        episodes, seeds = wanted["num_episodes"], wanted["num_seeds"]
        where = f"[{number}/{len(plans)}]"
        spent = f"{(time.perf_counter() - began) / 60:.1f} min so far"
        if not (path / "config.json").exists():
            print(f"{where} training {name}, {seeds} seeds of {episodes:,} episodes, {spent} …", flush=True)
            train(**wanted, save_dir=str(folder / "runs"), exp_name=name)
        run = open_run(path)
        if (present := int(run.config["training"]["num_seeds"])) != seeds:
            raise UsageError(f"{path} has {present} seeds, not {seeds}: choose --seeds {present} or another --out.")
        if not is_finished(run, episodes):
            print(f"{where} resuming {name}, {spent} …", flush=True)
            resume(path, num_episodes=episodes)
        found[name] = run
    return found


LastMetrics = Mapping[str, Callable[[Any], np.ndarray]]
"""Further metrics by name: each maps the last states of episodes [E, …] to a number per episode."""


def evaluate(run: Run, effort: Effort, explore: bool = False, last: LastMetrics | None = None) -> list[dict[str, float]]:
    """Returns the mean metrics of each seed over whole episodes; `return/AGENT` are returns.

    `last` measures what the world's own metrics leave out.
    """
    import jax

    from counterpoint.policies.policy import load

    episodes, results, team = (QUICK_EPISODES if effort.quick else EPISODES), [], None
    for k in range(int(run.config["training"]["num_seeds"])):
        policy = load(run, k)
        if team is None:
            team = policy
        team.parameters = policy.parameters  # one program for all seeds
        played = team.evaluate(episodes, seed=1000 + k, explore=explore, record=bool(last))
        means = {name: float(np.mean(values)) for name, values in played.metrics.items()}
        ends = jax.tree.map(lambda leaf: np.asarray(leaf[-1]), played.states)
        means |= {name: float(np.mean(measure(ends))) for name, measure in (last or {}).items()}
        returns = np.asarray(played.returns).mean(axis=0)
        results.append(means | {f"return/{agent}": float(r) for agent, r in zip(team.env.spec.agents, returns, strict=True)})
    return results


HEADER = ["what", "metric", "unit", "published", "ours", "95 % interval", "seeds", "inside"]


def write_up(
    folder: Path,
    title: str,
    about: str,
    rows: Sequence[Row],
    effort: Effort,
    began: float,
    runs: Mapping[str, Run] | None = None,
    claims: Sequence[Claim] = (),
    draw: Callable[[Path], None] | None = None,
) -> None:
    """Writes a reproduction as Markdown, CSV and a figure, and prints it.

    `began` is when evaluation began, `runs` are those that were trained, and `draw` writes another figure than the usual one.
    """
    body = [
        [r.cell, r.metric, r.unit, _published(r), _number(r.ours), _interval(r), r.seeds or None, _verdict(r)] for r in rows
    ]
    parts = [f"# {title}", about]
    if effort.quick:
        parts.append("A quick run: these numbers prove that the pipeline works, and nothing else.")
    command = effort.command(folder.name.removesuffix("-quick"))
    parts.append(f"{_trained(runs or {})}Made by `{command}`. {_duration(runs or {}, began)}")
    parts.append(markdown_table(HEADER, body).rstrip())
    if claims:
        parts.append(markdown_table(["what the paper claims", "here"], [[c.text, c.verdict] for c in claims]).rstrip())
    text = "\n\n".join(parts) + "\n"
    write_whole(folder / "table.md", lambda draft: draft.write_text(text, encoding="utf-8"))
    names = ["what", "metric", "unit", "published", "ours", "low", "high", "seeds", "published low", "published high"]
    write_csv(folder / "table.csv", names, [list(row) for row in rows])
    path = folder / "figure.png"
    draw(path) if draw else figure(rows, path, title)
    print(f"\n{text}\n→ {folder}/table.md, table.csv, figure.png{', runs/' if runs else ''}")


def _trained(runs: Mapping[str, Run]) -> str:
    """Returns a sentence about how long the runs were trained, as they recorded it."""
    if not runs:
        return ""
    episodes = sorted({int(run.policy_about()["episodes"]) for run in runs.values()})
    seeds = sorted({int(run.config["training"]["num_seeds"]) for run in runs.values()})
    of = " to ".join(f"{count:,}" for count in dict.fromkeys((episodes[0], episodes[-1])))
    return f"{len(runs)} runs of {' to '.join(map(str, seeds))} seeds, each trained for {of} episodes. "


def _duration(runs: Mapping[str, Run], began: float) -> str:
    """Returns how long the training took, as the runs recorded it over all calls, and how long the evaluation since `began`."""
    evaluation = (time.perf_counter() - began) / 60
    if not runs:
        return f"It took {evaluation:.1f} minutes."
    training = sum(max(float(row["seconds"] or 0.0) for row in run.rows()) for run in runs.values()) / 60
    return f"Training took {training:.1f} minutes, as the runs recorded it over all calls, and evaluation {evaluation:.1f}."


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def _published(row: Row) -> str | None:
    """Returns the published number, with its interval where one is known."""
    known = row.published_low is not None and row.published_high is not None
    around = f" [{row.published_low:.4g}, {row.published_high:.4g}]" if known else ""
    return None if row.published is None else f"{_number(row.published)}{around}"


def _interval(row: Row) -> str:
    return "–" if row.low is None or row.high is None else f"{row.low:.4g} … {row.high:.4g}"


def _verdict(row: Row) -> str:
    """Returns whether our interval contains the published number, or meets its interval, or on which side of it ours is."""
    if row.published is None or row.low is None or row.high is None:
        return "–"
    least = row.published if row.published_low is None else row.published_low
    most = row.published if row.published_high is None else row.published_high
    return "ours higher" if row.low > most else "ours lower" if row.high < least else "yes"


def figure(rows: Sequence[Row], path: Path, title: str) -> None:
    """Draws our numbers with their intervals beside the published ones, a panel for each metric."""
    metrics = list(dict.fromkeys(row.metric for row in rows))

    def draw(page: Any) -> None:
        shown: list[str] = []
        for i, metric in enumerate(metrics):
            axes = page.add_subplot(1, len(metrics), i + 1)
            own = [row for row in rows if row.metric == metric]
            for at, row in enumerate(own):
                if row.ours is not None and row.low is not None and row.high is not None:
                    around = [[row.ours - row.low], [row.high - row.ours]]
                    axes.errorbar([row.ours], [at], xerr=around, fmt="o", color=hex_of(BLUE), markersize=4)
                if row.published is not None:
                    axes.plot([row.published], [at], "|", color=hex_of(STONE), markersize=12, markeredgewidth=2)
            cells = [row.cell for row in own]
            axes.set_yticks(range(len(own)), cells if cells != shown else [])
            shown = cells
            axes.invert_yaxis()
            axes.set_title(metric, size=8)
        page.suptitle(f"{title} (dot: ours with 95 %, tick: published)", x=0.01, ha="left", size=9)

    longest = max(sum(row.metric == metric for row in rows) for metric in metrics)
    save_figure((2.2 + 2.0 * len(metrics), 1.2 + 0.3 * longest), path, 160, draw)


def claims_of(rows: Sequence[Row], *orders: tuple[str, str, str]) -> list[Claim]:
    """Returns the claims that a metric, named first, is larger in the second cell than in the third."""
    known = {(row.metric, row.cell): row for row in rows}
    return [
        Claim(f"{metric}: more in {more} than in {less}", order_verdict(known[metric, more], known[metric, less]))
        for metric, more, less in orders
    ]


def pair_name(good: str, adversary: str) -> str:
    """Returns a pairing as the paper writes it."""
    return f"{good.upper()} v {adversary.upper()}"


def paired_plans(settings: Mapping[str, Any], suffix: str = "") -> list[Plan]:
    """Returns a run for each of `PAIRS`, named GOOD-ADVERSARY and the suffix."""
    return [
        Plan(f"{good}-{adversary}{suffix}", {**settings, "algorithm": "maddpg", "good_policy": good, "adv_policy": adversary})
        for good, adversary in PAIRS
    ]
