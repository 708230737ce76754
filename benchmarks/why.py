"""Trains runs that fail in different ways, cures them as `counterpoint why` says, and trains healthy runs beside them.

The table is written to docs/results/why.md. Runs are kept in --folder: finished ones are not trained again.
"""

import argparse
import math
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import counterpoint
from counterpoint.core.errors import Diverged
from counterpoint.runs import Run, open_run, trend
from counterpoint.runs.tables import markdown_table
from counterpoint.studies.why import examine

PAGE = Path("docs/results/why.md")
WORLDS = Path(__file__).parent / "why_worlds.py"
SMALL: dict[str, Any] = {
    **{"batch_size": 256, "buffer_size": 20_000, "num_envs": 10, "update_every": 10, "warmup": 500, "num_units": 32},
    **{"lr": 3e-3, "gamma": 0.75, "num_episodes": 2000, "report_every": 100, "save_rate": 500, "plots_dir": "", "devices": 1},
}
"""Settings that learn the small worlds in seconds."""


class Failure(NamedTuple):
    """A run that fails on purpose, and the settings that cure it."""

    finding: str
    """What `why` should say."""
    about: str
    """What is wrong, as the person knows who did it."""
    settings: dict[str, Any]
    cure: dict[str, Any]
    said: str
    """What the cure that `why` suggests should contain."""


class Healthy(NamedTuple):
    """A run that learns."""

    about: str
    settings: dict[str, Any]


def cue(*arguments: str, **settings: Any) -> dict[str, Any]:
    """Returns settings for the world `cue` with some arguments."""
    return SMALL | {"env": f"{WORLDS}:Cue", "scenario_args": arguments} | settings


ON_POLICY: dict[str, Any] = {"num_envs": 10, "update_every": 100, "num_episodes": 1000, "report_every": 100, "devices": 1}
EXPLORE = {"entropy_start": 0.03, "entropy_end": 0.01, "epsilon_start": 0.5, "epsilon_end": 0.02}
COMA: dict[str, Any] = {"algorithm": "coma", "scenario": "switch2", "num_episodes": 20_000, "devices": 1}
FEW: dict[str, Any] = {"batch_size": 64, "eval_episodes": 40}
"""Smaller minibatches and evaluations of `cue`."""
STAIRS: dict[str, Any] = ON_POLICY | {
    **{"env": f"{WORLDS}:Stairs", "algorithm": "coma", "lr": 5e-3, "num_units": 32, "epsilon_steps": 20_000},
    **{"num_episodes": 20_000, "num_envs": 20, "report_every": 1000, "save_rate": 20_000, "eval_episodes": 20},
}
SPEAKER: dict[str, Any] = {
    **{"scenario": "simple_speaker_listener", "num_envs": 30, "update_every": 30, "batch_size": 256, "buffer_size": 60_000},
    **{"temperature": 0.5, "critic_activation": "silu", "lr": 3e-3, "gamma": 0.75, "report_every": 500, "devices": 1},
    **{"warmup": 500, "save_rate": 500},
}
FAILURES = (
    Failure("learning rate too large", "`cue` with `--lr 1`", cue(lr=1.0), {"lr": 5e-3}, "--lr 0.005"),
    Failure("diverged", "`cue` with `--lr 1e9`", cue(lr=1e9), {"lr": 5e-3}, "--lr 0.005"),
    Failure(
        "rewards in another unit",
        "`cue` that pays 100,000 for a right answer",
        cue("reward_scale=100000.0"),
        {"standardise_rewards": True},
        "--standardise-rewards",
    ),
    Failure(
        "no reward", "`cue` that never pays", cue("reward_scale=0.0"), {"scenario_args": ()}, "reward depends on the actions"
    ),
    Failure(
        "ignores its observation",
        "`cue` with observations in units of 1000",
        cue("obs_scale=0.001"),
        {"scenario_args": ("obs_scale=2.0",)},
        "Multiply its observations",
    ),
    Failure(
        "observations in another unit",
        "`cue` with observations that have a distant origin",
        cue("obs_shift=1000.0", num_episodes=1500),
        {"scenario_args": ()},
        "Shift and divide the observations",
    ),
    Failure(
        "too little data",
        "`cue` for 200 episodes with an update per 100 steps",
        cue(num_episodes=200, update_every=100),
        {"num_episodes": 2000, "update_every": 10},
        "--update-every 10",
    ),
    Failure(
        "unlucky seed",
        "`levers` with 8 seeds",
        SMALL
        | {
            "env": f"{WORLDS}:Levers",
            "scenario_args": ("prize=5.0",),
            "algorithm": "ddpg",
            "num_episodes": 800,
            "num_seeds": 8,
        },
        {"num_seeds": 1, "seed": 0},
        "--seed-index 0",
    ),
    Failure(
        "replay turned over",
        "`cue` with one quadrant per episode of 500 steps and a replay of 64",
        cue("stays=True", "max_steps=500", lr=9e-3, num_envs=1, update_every=4, save_rate=60)
        | FEW
        | {"num_episodes": 30, "report_every": 2, "buffer_size": 64},
        {"buffer_size": 100_000},
        "--buffer-size 100000",
    ),
    Failure(
        "runaway Q",
        "`cue` with observations that grow by 30 % at each step, `--tau 1`, `--gamma 0.99` and `--critic-lr 0.01`",
        cue("growth=1.3", gamma=0.99, tau=1.0, critic_lr=0.01) | FEW,
        {"tau": 0.01, "gamma": 0.97, "critic_lr": 1e-3},
        "--tau 0.01, --gamma 0.97, --critic-lr 0.001",
    ),
    Failure(
        "dead units",
        "`cue` with observations around 10 and `--lr 0.06`",
        cue("obs_shift=10.0", lr=0.06) | FEW,
        {"lr": 5e-3, "norm": "layer"},
        "--norm layer",
    ),
    Failure(
        "stuck at the bounds",
        "`cue` with continuous actions, observations around 5, `--lr 0.03` and `--logit-cost 0`",
        cue("continuous=True", "obs_shift=5.0", lr=0.03, logit_cost=0.0) | FEW,
        {"logit_cost": 0.01, "noise_start": 0.3, "lr": 5e-3},
        "--logit-cost 0.01",
    ),
    Failure(
        "entropy gone",
        "COMA in `stairs` without entropy and without random choices",
        STAIRS | dict.fromkeys(EXPLORE, 0.0),
        {"entropy_start": 0.03, "entropy_end": 0.01, "epsilon_start": 0.5},
        "--entropy-start 0.03",
    ),
    Failure(
        "mute speaker",
        "`simple_speaker_listener` with critics that see only their own agent",
        SPEAKER | {"algorithm": "ddpg", "num_episodes": 3000},
        {"algorithm": "maddpg", "num_episodes": 8000, "lr_steps": 6500},
        "--algorithm maddpg",
    ),
)
HEALTHY = (
    Healthy("tuned-simple", {"preset": "tuned-simple"}),
    Healthy("MADDPG in cue", cue()),
    Healthy("MADDPG in cue with continuous actions", cue("continuous=True")),
    Healthy("COMA in switch2, 20,000 episodes", COMA | EXPLORE | {"lr": 2e-3}),
    Healthy("MAPPO in cue", ON_POLICY | {"env": f"{WORLDS}:Cue", "algorithm": "mappo"}),
)

ABOUT = """# Runs that fail on purpose

`python benchmarks/why.py` trains runs that fail in different ways, asks `counterpoint why` for the reason, trains them again
with the cure that it names, and trains healthy runs beside them. Runs of `cue`, `levers` and `stairs` are in the small worlds
of `benchmarks/why_worlds.py`. The score is the success of the last greedy evaluations where the world reports it, otherwise
the return of the good team; of several seeds it is the share that succeeded.

Read the table with these limits. The faults were chosen so that runs fail, and recipes that learned in spite of them were
dropped (a replay of one episode of 10 steps, targets without lag, actions without noise). Each row is one seed unless it says
otherwise. Some thresholds of `why` were changed after seeing these runs, so the table shows that the findings work here, not
how often they are right elsewhere. The cured run of `levers` is the seed that is named, which is known to have succeeded: it
shows that the settings can work, not that more seeds succeed. Where the cure is `scenario_args=()`, the fault in the world was
taken out, which leaves the healthy run of `cue`. The cured run of the mute speaker was also longer, and its steps fell to zero;
independent critics trained in the same way for as long say a little and reach 0.02.
The cures of dead units and of actions stuck at the bounds free them, but observations around 10 or 5 remain hard to learn from.
Dead units depend on rounding: with observations around 5 the same run had none at another time.
Lost entropy depends on the decoy of `stairs`: with 0.15 instead of 0.2, and smaller steps, COMA learned without exploration;
with 0.3, in a shorter run, the cure did not help.
Runaway Q took several tries. Targets without lag (`--tau 1`), `--gamma 0.99` and steps of 0.03 to 0.3 did not provoke it in the
plain `cue`. Observations that grow during an episode did, because critics extrapolate to what follows the last step. Growth by
5 % or 20 % was not enough, and at 50 % the named cure did not help: values ran away more slowly (-12,100,000 became -227).
"""


def trained(folder: Path, what: Failure | Healthy, cured: bool = False) -> Run:
    """Returns the run of a failure, of its cure or of a healthy setting; trains it if it is not there yet."""
    settings: dict[str, Any] = {"plots_dir": ""} | what.settings | (what.cure if isinstance(what, Failure) and cured else {})
    place = _place(folder, what, cured)
    with suppress(Diverged):
        if not (place / "config.json").exists():
            counterpoint.train(**settings, save_dir=str(folder), exp_name=place.name, progress=False)
        elif not open_run(place).divergence():
            counterpoint.resume(place, progress=False)
    return open_run(place)


def _place(folder: Path, what: Failure | Healthy, cured: bool = False) -> Path:
    """Returns the folder of a run."""
    title = what.finding if isinstance(what, Failure) else what.about
    return folder / ("".join(letter if letter.isalnum() else "-" for letter in title) + "-cured" * cured)


def score(run: Run) -> float:
    """Returns how well a run did: its success or its return, or the share of its seeds that succeeded."""
    rows = run.rows()
    seeds = dict.fromkeys(row["seed"] for row in rows)
    if len(seeds) > 1:
        return float(np.mean([(trend.success(trend.of_seed(rows, seed)) or 0) >= trend.SOLVED for seed in seeds]))
    for name in ("eval/success", "eval/team/good"):
        if (values := trend.finite(rows, name)).size:
            return float(values[-3:].mean())
    return -math.inf  # it has no report


def _judged(run: Run) -> tuple[list[Any], float]:
    """Returns what is found in a run, and its score."""
    return examine(run).findings, score(run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/why"), help="folder for the runs")
    parser.add_argument("--as-is", action="store_true", help="leave out runs that are not there yet instead of training them")
    folder, as_is = vars(parser.parse_args()).values()
    failed, healthy = [], []
    for failure in FAILURES:
        if as_is and not _place(folder, failure).exists():
            continue
        found, before = _judged(trained(folder, failure))
        left, after = ("not measured", math.nan)
        if not as_is or (_place(folder, failure, True) / "policy.safetensors").exists():
            cured, after = _judged(trained(folder, failure, True))
            left = ", ".join(f.name for f in cured) or "nothing"
        names, evidence, cure = (", ".join(getattr(f, part) for f in found) for part in ("name", "evidence", "cure"))
        applied = " ".join(f"`{name}={value}`" for name, value in failure.cure.items())
        failed.append(
            [
                failure.about,
                names or "nothing",
                evidence,
                cure,
                applied,
                f"{before:.2f} → {after:.2f}".replace("nan", "–").replace("-inf", "–"),
                left,
            ]
        )
        print(failure.finding, "|", *failed[-1][1::4], "|", left, flush=True)
    for each in HEALTHY:
        if as_is and not (_place(folder, each) / "policy.safetensors").exists():
            continue
        findings, reached = _judged(trained(folder, each))
        found = ", ".join(f.name for f in findings) or "nothing"
        healthy.append([each.about, f"{reached:.2f}", found])
        print(each.about, "|", healthy[-1][1], "|", found, flush=True)
    header = ["what was done", "finding", "evidence", "cure it names", "cure applied", "score", "then found"]
    tables = markdown_table(header, _plain(failed)), markdown_table(["healthy run", "score", "found"], healthy)
    text = f"{ABOUT}\n## Failures\n\n{tables[0]}\n## Healthy runs\n\n{tables[1]}"
    PAGE.write_text(text.replace(str(folder), "runs/why"))


def _plain(rows: list[list[str]]) -> list[list[str]]:
    """Returns rows without the folder of the runs on this machine and without what would end a cell."""
    return [[str(cell).replace("|", "/") for cell in row] for row in rows]


if __name__ == "__main__":
    main()
