"""Writes a page and a picture for each built-in world: `python docs/make_worlds.py`. Agents in the pictures act at random.

Everything on a page comes from the registry: the docstring of the world's file, its fields, its `Spec` and its metrics.
"""

import csv
import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from counterpoint.core import prng
from counterpoint.core.picture import Picture
from counterpoint.core.spaces import Discrete
from counterpoint.envs import WORLDS
from counterpoint.policies.random import random_algorithm
from counterpoint.presets import PRESETS
from counterpoint.runs.tables import markdown_table
from counterpoint.training.evaluate import reductions_of
from counterpoint.viz.render import save

sys.path.append(str(Path(__file__).parent))
from make_reference import field_docs

PAGES = Path(__file__).parent / "worlds"
HOLD = 4
"""Steps between two choices: a new choice at every step would only tremble."""
ORDER = {"last": "value at the last step", "mean": "mean over steps", "sum": "sum over steps", "max": "maximum over steps"}

EXPERIMENTS = {"switch2": "switch2-mappo", "switch4": "switch4-mappo", "tennis": "tennis-tuned"}
"""Where the results of a tuned preset are in docs/results/, if not in success/."""


def main() -> None:
    PAGES.mkdir(exist_ok=True)
    for name in WORLDS:
        (PAGES / f"{name}.md").write_text(page(name))
        save([episode(WORLDS[name](), seed=20)[:14]], PAGES / f"{name}.png", size=480, moments=1)


def tuned_result(name: str) -> str:
    """Returns a sentence about what the tuned preset of a world reaches, from the measured tables; empty if there is none."""
    tables = Path(__file__).parent / "results"
    presets = [f"tuned-{name}", *(preset for preset, config in PRESETS.items() if config.world.scenario == name)]
    for preset in presets:
        if (file := tables / "success" / f"{preset}.csv").exists():
            values = [float(row["success"]) for row in _rows(file)]
            return (
                f"`--preset {preset}` ends with a greedy success of {sum(values) / len(values):.3f} over 1000 fresh episodes,"
                f" and {min(values):.3f} on the worst of {len(values)} seeds ([teams that succeed](../results/success.md))."
            )
    if name in EXPERIMENTS:
        ends = [_rows(file)[-1] for file in sorted((tables / EXPERIMENTS[name]).glob("seed*.csv"))]
        columns = ["eval/score"] if name == "tennis" else [column for column in ends[0] if column.startswith("eval/return/")]
        scores = [sum(float(end[column]) for column in columns) for end in ends]
        what = "a score of the better player" if name == "tennis" else "a return, summed over agents,"
        return (
            f"`--preset tuned-{name}` ends with {what} of {sum(scores) / len(scores):.2f} in greedy play, and {min(scores):.2f}"
            f" on the worst of {len(scores)} seeds ([algorithms and worlds](../results.md#algorithms-and-worlds))."
        )
    met = tables / "head-to-head.csv"
    if met.exists() and any(row["world"] == name for row in _rows(met)):
        return "What a preset earns here against teams with the authors' settings: [head to head](../results/head-to-head.md)."
    return ""


def film(name: str) -> str:
    """Returns the film of a world's tuned team, with its caption; empty if none was kept."""
    folder = f"results/{name}-tuned"
    if not (Path(__file__).parent / folder / "team.gif").exists():
        return ""
    return f"![A team of {name} trained with --preset tuned-{name}](../{folder}/team.gif)"


def _rows(table: Path) -> list[dict[str, str]]:
    """Returns the rows of a CSV file."""
    with table.open() as file:
        return list(csv.DictReader(file))


def page(name: str) -> str:
    """Returns the page of a world."""
    kind = WORLDS[name]
    world, spec = kind(), kind().spec
    title, _, facts = (inspect.getmodule(kind).__doc__ or "").partition("\n")
    about = title.partition(": ")[2]
    agents = [
        [f"`{agent}`", team, size, _space(space)]
        for agent, team, size, space in zip(spec.agents, spec.teams, spec.obs_sizes, spec.action_spaces, strict=True)
    ]
    docs = field_docs(kind)
    fields = [[f"`{field.name}`", f"`{field.default}`", docs.get(field.name, "")] for field in dataclasses.fields(kind)]
    metrics = [[f"`{metric}`", ORDER[how]] for metric, how in reductions_of(world).items()]
    presets = [f"`--preset {preset}`" for preset, config in PRESETS.items() if config.world.scenario == name]
    file = Path(inspect.getfile(kind)).relative_to(Path(inspect.getfile(sys.modules["counterpoint"])).parent)
    return (
        "\n\n".join(
            [
                "<!-- Written by docs/make_worlds.py. -->",
                f"# {name}",
                f"{inspect.getdoc(kind)} An episode lasts at most {world.max_steps} steps.",
                f"![A moment of {name}, with agents that act at random]({name}.png)",
                f"```\ncounterpoint train --scenario {name}\ncounterpoint play {name} --out {name}.gif\n```",
                *([f"Presets: {', '.join(presets)}."] if presets else []),
                *(part for part in (tuned_result(name), film(name)) if part),
                "## Observations and rewards",
                about[:1].upper() + about[1:],
                f"```text\n{facts.strip(chr(10))}\n```",
                "## Agents",
                markdown_table(["agent", "team", "observation size", "actions"], agents).strip(),
                "## Metrics",
                markdown_table(["metric", "per episode"], metrics).strip(),
                "## Arguments",
                "Pass them as `--scenario-args NAME=VALUE`, or to `counterpoint.make`.",
                markdown_table(["argument", "default", "meaning"], fields).strip(),
                f"The rules are in `src/counterpoint/{file}`.",
            ]
        )
        + "\n"
    )


def _space(space: Any) -> str:
    """Returns an action space in words."""
    if isinstance(space, Discrete):
        return " and ".join(f"one of {size}" for size in space.heads)
    return f"{space.size} real numbers in [{space.low:g}, {space.high:g}]"


def episode(world: Any, seed: int) -> list[Picture]:
    """Returns the pictures of an episode of random actions."""
    algo = random_algorithm(world.spec)
    reset, step, act = jax.jit(world.reset), jax.jit(world.step), jax.jit(algo.act)
    key = prng.key(seed)
    state, obs = reset(key)
    pictures = [world.draw(state)]
    for t in range(world.max_steps):
        action = act((), (), obs[None], jax.random.fold_in(key, t // HOLD), jnp.zeros((), jnp.int32))[0][0]
        state, result = step(jax.random.fold_in(key, t), state, action)
        obs = result.obs
        pictures.append(world.draw(state))
        if bool((result.terminated | result.truncated).all()):
            break
    return pictures


if __name__ == "__main__":
    main()
