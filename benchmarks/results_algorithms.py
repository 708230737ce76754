"""Algorithms × worlds in `make results`: which experiments, and the table that docs/results.md has of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoint import presets
from counterpoint.runs import stats, tables

Rows = list[dict[str, Any]]
FEW = {"eval_episodes": 1}
"""Greedy play in Switch is always the same."""
TALK = presets.PRECISE | {
    "flavour": "openai",
    "scenario": "simple_speaker_listener",
    "num_episodes": 10_000,
    "lr_steps": 8_200,
}
BOTH_TALK = TALK | {"scenario": "simple_reference"}
PPO = presets.PPO_SHARED | {"num_episodes": 80_000, "lr_steps": 2_000_000, "entropy_steps": 1_000_000}
PPO_TALK, PPO_BOTH = PPO | {"scenario": "simple_speaker_listener"}, PPO | {"scenario": "simple_reference"}


class Cell(NamedTuple):
    """One algorithm in one world."""

    world: str
    algorithm: str
    name: str
    """The experiment."""
    settings: dict[str, Any] | None
    """None if another part of the results trains it."""
    unit: str
    published: str = "–"

    @property
    def full(self) -> dict[str, Any] | None:
        """The settings with the algorithm."""
        if self.settings is None or "preset" in self.settings:
            return self.settings
        return {"algorithm": self.algorithm.lower(), **self.settings}


ONE, SUM = "return of one agent, openai", "return summed, mpe2"
BETTER, SWITCH = "score of the better player", "return summed"
SOLVED = {BETTER: 0.5, SWITCH: 7.0}
"""From where on a seed counts as solved."""


def _without_temperature(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings of MADDPG for MASAC, which needs no Gumbel-softmax."""
    return {name: value for name, value in settings.items() if name != "temperature"}


CELLS = [
    Cell("simple_spread", "MADDPG", "spread-tuned", None, ONE, "−136.7 ± 0.8"),
    Cell("simple_spread", "COMA", "spread-coma", None, ONE, "−169.0 ± 2.7"),
    Cell("simple_spread", "MAPPO", "spread-mappo", {"preset": "mappo-spread"}, ONE, "−128.6 ± 2.8"),
    Cell("simple_spread", "IPPO", "spread-ippo", {"preset": "ippo-spread"}, ONE, "−132.5 ± 3.5"),
    Cell("simple_spread, continuous", "MATD3", "spread-continuous-matd3", {"preset": "matd3-spread"}, SUM, "≈ −63"),
    Cell("simple_speaker_listener", "MADDPG", "speaker-precise-maddpg", TALK, ONE),
    Cell("simple_speaker_listener", "DDPG", "speaker-precise-ddpg", TALK, ONE),
    Cell("simple_speaker_listener", "MATD3", "speaker-matd3", TALK, ONE),
    Cell("simple_speaker_listener", "MASAC", "speaker-masac", _without_temperature(TALK), ONE),
    Cell("simple_speaker_listener", "COMA", "speaker-coma", None, ONE, "≈ −30"),
    Cell("simple_speaker_listener", "MAPPO", "speaker-mappo", PPO_TALK, ONE),
    Cell("simple_speaker_listener", "IPPO", "speaker-ippo", PPO_TALK, ONE),
    Cell("simple_reference", "MADDPG", "reference-maddpg", BOTH_TALK, ONE),
    Cell("simple_reference", "DDPG", "reference-ddpg", BOTH_TALK, ONE),
    Cell("simple_reference", "MATD3", "reference-matd3", BOTH_TALK, ONE),
    Cell("simple_reference", "MASAC", "reference-masac", _without_temperature(BOTH_TALK), ONE),
    Cell("simple_reference", "COMA", "reference-coma", presets.COMA_PARTICLES | {"scenario": "simple_reference"}, ONE),
    Cell("simple_reference", "MAPPO", "reference-mappo", PPO_BOTH, ONE),
    Cell("simple_reference", "IPPO", "reference-ippo", PPO_BOTH, ONE),
    Cell("switch2", "COMA", "switch2-coma", None, SWITCH),
    Cell("switch2", "MAPPO", "switch2-mappo", {"preset": "tuned-switch2", **FEW}, SWITCH),
    Cell("switch2", "IPPO", "switch2-ippo", {"preset": "ippo-switch2", **FEW}, SWITCH),
    Cell("Switch2-v0", "COMA, recurrent", "switch2-v0-coma", None, SWITCH),
    Cell("Switch2-v0", "MASAC, recurrent", "switch2-v0-masac", {"preset": "masac-switch2-v0", **FEW}, SWITCH),
    Cell("switch4", "COMA", "switch4-coma", None, SWITCH),
    Cell("switch4", "MAPPO", "switch4-mappo", {"preset": "tuned-switch4", **FEW}, SWITCH),
    Cell("switch4", "IPPO", "switch4-ippo", {"preset": "ippo-switch4", **FEW}, SWITCH),
    Cell("tennis", "MATD3", "tennis-matd3", {"preset": "matd3-tennis"}, BETTER, "≥ 0.5 counts as solved"),
    Cell("tennis", "MASAC", "tennis-masac", {"preset": "masac-tennis"}, BETTER, "≥ 0.5 counts as solved"),
    Cell("tennis", "MAPPO", "tennis-tuned", None, BETTER, "≥ 0.5 counts as solved"),
]
EXPERIMENTS: list[tuple[str, dict[str, Any], int, str]] = [
    (cell.name, cell.full, 5, f"{cell.world}, {cell.algorithm}") for cell in CELLS if cell.full is not None
]
"""Name, settings, seeds, title."""


def measured(rows: Rows, unit: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns each seed's training and greedy results at its last report, in the unit; tennis has no score of training."""
    ends = list({row["seed"]: row for row in rows}.values())
    if unit == BETTER:
        return np.full(len(ends), np.nan), np.array([end["eval/score"] for end in ends])
    if unit == ONE:
        training, greedy = ([end[name] for end in ends] for name in ("team/good", "eval/team/good"))
        return np.array(training), np.array(greedy)
    training, greedy = (
        [sum(end[name] for name in end if name.startswith(prefix)) for end in ends] for prefix in ("return/", "eval/return/")
    )
    return np.array(training), np.array(greedy)


def line(cell: Cell, rows: Rows) -> list[str]:
    """Returns a row of the table."""
    training, greedy = measured(rows, cell.unit)
    low, high = stats.bootstrap_interval(greedy)
    ends = list({row["seed"]: row for row in rows}.values())
    steps, minutes = (np.mean([end[name] for end in ends]) for name in ("step", "seconds"))
    digits = 2 if cell.unit in SOLVED else 1
    spread = f"{greedy.min():.{digits}f} … {greedy.max():.{digits}f}"
    if cell.unit in SOLVED:
        spread += f", solved {int(np.sum(greedy >= SOLVED[cell.unit]))} of {len(greedy)}"
    mean = "–" if np.isnan(training).any() else f"{training.mean():.{digits}f}"
    interval = f"{greedy.mean():.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
    cells = [f"{steps / 1e6:.1f}", f"{minutes / 60:.1f}", mean, interval, spread]
    return [cell.world, cell.algorithm, cell.unit, str(len(ends)), *cells, cell.published]


def section(rows_of: Callable[[str], Rows]) -> str:
    """What the page of results says about algorithms and worlds."""
    found = [(cell, rows_of(cell.name)) for cell in CELLS]
    missing = [f"{cell.algorithm} in {cell.world}" for cell, rows in found if not rows]
    text = TEXT.format(table=tables.markdown_table(HEADER, [line(cell, rows) for cell, rows in found if rows]))
    return text + (f"\nNot measured: {', '.join(missing)}.\n" if missing else "")


def write_into_pages(rows_of: Callable[[str], Rows], folder: Path) -> None:
    """Writes each algorithm's rows of the table between two comments of its page."""
    for name, algorithms in PAGES.items():
        header = list(HEADER)
        rows = [(cell, rows_of(cell.name)) for cell in CELLS if cell.algorithm.partition(",")[0] in algorithms]
        lines = [line(cell, found) for cell, found in rows if found]
        if len(algorithms) == 1:
            del header[1]
            lines = [[world, *rest] for world, _, *rest in lines]
        page = folder / f"{name}.md"
        before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        _, end, after = rest.partition(END)
        assert begin, f"{page} has no {BEGIN}"
        assert end, f"{page} has no {END}"
        page.write_text(f"{before}{BEGIN}\n\n{tables.markdown_table(header, lines)}\n{END}{after}", encoding="utf-8")


HEADER = [
    *("world", "algorithm", "unit", "seeds", "million steps", "core minutes"),
    *("training", "greedy", "worst … best", "published"),
]
PAGES = {"maddpg": ("MADDPG", "DDPG"), "matd3": ("MATD3",), "masac": ("MASAC",), "coma": ("COMA",), "mappo": ("MAPPO", "IPPO")}
"""Pages of the documentation, and the algorithms of each."""
BEGIN, END = "<!-- results: written by benchmarks/results.py -->", "<!-- end of results -->"

TEXT = """
## Algorithms and worlds

Results at the last report: of training, with exploration, and greedy with its 95 % interval over seeds. All seeds of a row
were trained in one program on one core (tennis and older rows: one after another); steps and minutes are those of one seed.
Settings were chosen on seeds from 100 on, except those of COMA (see [its page](algorithms/coma.md)) and of MADDPG in
simple_spread (see [cooperative navigation](#cooperative-navigation)); reported are seeds from 0 on. MASAC's tennis was then
made 500 episodes longer, and the step size of both off-policy presets falls sooner, because seed 0 of MASAC, a reported one,
was unsteady and ended at 0.47. MATD3's was tuned only until its seeds 100 and 101 began to hit the ball. A seed of tennis is
solved from 0.5 on, one of switch from 7. Published values are EPyMARL's (20 million steps for COMA, MAPPO and IPPO, 2 million
for MADDPG) and, for continuous actions, HARL's (5 million, read off a figure). EPyMARL's are those of the evaluation during
training at which the mean over its seeds was highest; ours are those at the end of training.

{table}"""
