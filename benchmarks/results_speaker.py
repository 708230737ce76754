"""Of `make results`: why some speakers stay mute. Many seeds in one program, for 6000 episodes, which settle their fate."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import fisher_exact

from counterpoint.envs.mpe.speaker_listener import COLOURS, SPEAKER
from counterpoint.runs import tables
from counterpoint.runs.folder import Run

Rows = list[dict[str, Any]]

EARLY: dict[str, Any] = {"scenario": "simple_speaker_listener", "flavour": "openai", "num_episodes": 6000, "num_seeds": 32}
GLOROT = EARLY | {"init": "glorot"}
EXPERIMENTS: list[tuple[str, dict[str, Any], int, str]] = [
    ("speaker-early", EARLY, 1, "our default (He)"),
    ("speaker-early-glorot", GLOROT, 1, "`--init glorot`"),
    (
        "speaker-early-order",
        GLOROT | {"order": "sequential", "minibatch": "per-agent"},
        1,
        "`--init glorot --order sequential --minibatch per-agent`",
    ),
]
"""Name, settings, programs, title."""
THEIRS = "speaker-authors"
"""What `benchmarks/authors.py` wrote."""

MUTE = -26.0
"""Whoever is below it at the end has learnt nothing from the speaker: the centroid gives −28.6, two words of three −22."""
LIVE = "live_units"


def with_live_units(run: Run, rows: Rows) -> Rows:
    """The rows with how many first units of their seed's speaker, as it was at the end, answer to any goal at all."""
    tensors, _ = run.load_policy()
    weight, bias = (tensors[f"actor.0.{name}"][:, SPEAKER] for name in ("weight", "bias"))
    sums = np.einsum("go,koh->kgh", COLOURS, weight[:, : COLOURS.shape[1]]) + bias[:, None]
    live = (sums > 0).any(axis=1).sum(axis=1)
    first = min(row["seed"] for row in rows)
    return [row | {LIVE: float(live[int(row["seed"] - first)])} for row in rows]


def section(rows_of: Callable[[str], Rows]) -> str:
    """Returns the table of mute speakers, with the tests of the difference between the authors' code and ours."""
    titles = {THEIRS: "the authors' own code"} | {name: title for name, _, _, title in EXPERIMENTS}
    ends = {name: list({row["seed"]: row for row in rows_of(name)}.values()) for name in titles}
    mute = {name: [row for row in rows if row["team/good"] < MUTE] for name, rows in ends.items()}
    solved = {name: [row for row in rows if row["team/good"] > -20] for name, rows in ends.items()}
    lines = []
    for name, rows in ends.items():
        others = [row for row in rows if row["team/good"] >= MUTE]
        lines.append([titles[name], len(rows), len(mute[name]), len(solved[name]), _units(mute[name]), _units(others)])
    header = ["", "seeds", "mute", "above −20", "live units of mute speakers", "of others"]
    tests = {"mute": _p_value(mute, ends), "solved": _p_value(solved, ends)}
    return TEXT.format(table=tables.markdown_table(header, lines), **tests)


def _p_value(kept: dict[str, Rows], ends: dict[str, Rows]) -> str:
    """Returns the p-value of Fisher's exact test that a share is the same with the authors' code and with ours."""
    counts = [[len(kept[name]), len(ends[name]) - len(kept[name])] for name in (THEIRS, "speaker-early-order")]
    return f"{fisher_exact(counts).pvalue:.2f}"


def _units(rows: Rows) -> str | None:
    """The median of live units, if they were counted."""
    return f"{np.median([row[LIVE] for row in rows]):g}" if rows and LIVE in rows[0] else None


TEXT = """### Why speakers stay mute

A speaker sees one of three colours, all of whose entries are positive, so its hidden units are pushed alike. Glorot's rule
counts a layer's outputs too, and with 3 inputs and 64 units its weights are a fifth of what ReLUs want (He et al. 2015).
Adam's first steps of 0.01 are large beside them, and before the critic knows anything they push units below zero for every
colour, where no gradient reaches them again. A speaker with few units left cannot tell three goals apart, however long it
trains. Authors' settings after 6000 episodes; mute is below −26, a unit of the speaker's first layer (64) lives if some
goal makes it positive. The authors' own code was run by `benchmarks/authors.py`, everything else by `make results`:

{table}
We compare the authors' code with ours in its order, minibatches and weights by Fisher's exact test (two-sided): p = {mute}
for the share of mute seeds, p = {solved} for the share above −20. So their code loses speakers as ours does. After 6000
episodes ours is further ahead; we have not looked for the reason, and their code was not run to 60 000 episodes. Among our own
settings, the order of updates makes no difference to speakers, and the initial weights do.
"""
