"""A run as one HTML file: the world and its teams play inside it, without a server and without the network."""

import base64
import dataclasses
import json
import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from counterpoint import __version__
from counterpoint.core import prng
from counterpoint.core.action_stats import STATISTICS
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Box, Spec
from counterpoint.core.types import Env
from counterpoint.policies.policy import Policy, load, load_history
from counterpoint.runs import Run, open_run
from counterpoint.runs.files import write_whole
from counterpoint.training.evaluate import reductions_of
from counterpoint.view import curves, drawing, program
from counterpoint.view.curves import hashed, plain
from counterpoint.view.javascript import Program
from counterpoint.viz.plots import columns
from counterpoint.viz.render import colour_of

MODULES = ("runtime.js", "stage.js", "painter.js", "page.js")
"""The page's own code, in the order of its imports."""
LARGEST = 1_000_000
"""Bytes that a page may have: of the policies that the run kept along the way, as many are taken as fit."""
TRIED = 12
"""Episodes that are tried for the first one to show: the best of them."""
SPEED = 12
"""Steps per second at first, as in films."""


class Shared(NamedTuple):
    """A page that was written."""

    path: Path
    size: int
    """Bytes."""
    moments: int
    """Policies along the way that it holds."""
    note: str
    """Why the world is not drawn; empty if it is."""
    warning: str
    """What makes the page larger than it should be; empty if it is not."""


def share(
    run: str | Path | Run,
    path: str | Path = "",
    others: Sequence[str | Path | Run] = (),
    at: str | int = "last",
    seed_index: int = 0,
    env: str = "",
    trust: bool = False,
) -> Shared:
    """Writes a run as one HTML file in which its team plays (empty path: team.html in the run's folder).

    The policies of `others`, runs of the same world, can take a team's place. `at` selects the policy that plays first.
    A run that names code and was not made by you on this machine needs `trust`.
    """
    run = run if isinstance(run, Run) else open_run(run)
    path = Path(path) if str(path) not in ("", ".") else run.path / "team.html"
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"cannot write {path}: the name must end in .html.")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: {path.parent} is not a folder.")
    team = load(run, seed_index, at, env, trust)
    moments = load_history(run, seed_index, env, trust)
    found = [other if isinstance(other, Run) else open_run(other) for other in others]
    rivals = [(other, load(other, 0, "last", env, trust)) for other in found]
    about = About(
        run=run.name,
        algorithm=str(run.config.get("algorithm", "")),
        rows=run.rows(),
        settings=run.config,
    )
    page = build(team, moments, [(other.name, rival) for other, rival in rivals], about)
    content = page.html.encode()
    write_whole(path, lambda draft: draft.write_bytes(content))
    return Shared(path, len(content), page.moments, page.note, page.warning)


@dataclasses.dataclass(frozen=True)
class About:
    """What a page says of a run below the stage."""

    run: str
    algorithm: str = ""
    rows: Sequence[Any] = ()
    settings: Any = dataclasses.field(default_factory=dict)


class Built(NamedTuple):
    html: str
    moments: int
    note: str
    warning: str


def build(team: Policy, moments: Sequence[Policy], rivals: Sequence[tuple[str, Policy]], about: About) -> Built:
    """Returns the text of a page: `team` plays first, `moments` are the same team at other times, `rivals` can take a team's
    place."""
    pages, note = prepared(team, rivals, about)
    final = packed(team, label_of(team), "t0")
    swaps = packed_rivals(rivals)
    empty = pages.text([final, *swaps], [0])
    others = [untrained(team), *(moment for moment in moments if label_of(moment) != label_of(team))]
    small = [packed(moment, label_of(moment), "t0", 16) for moment in others]
    room = (LARGEST - len(empty.encode()) - 4096) // max((len(json.dumps(policy)) for policy in small), default=1)
    own = sorted([*spread(small, max(room, 0)), final], key=lambda policy: policy["episodes"])
    html = pages.text([*own, *swaps], list(range(len(own))), own.index(final))
    return Built(html, len(own), note, size_warning(len(html.encode()), final, swaps, len(own)))


def size_warning(size: int, team: dict[str, Any], rivals: Sequence[dict[str, Any]], moments: int) -> str:
    """Returns a sentence about what makes a page large and how to make it smaller; nothing if the page is small enough."""
    if size <= LARGEST:
        return ""
    own, theirs = len(json.dumps(team)), len(json.dumps(rivals)) if rivals else 0
    parts = [f"the team's policy takes {own / 1000:,.0f} kB"]
    parts += [f"those of --with {theirs / 1000:,.0f} kB"] if theirs else []
    history = "" if moments > 1 else " and leaves no room for earlier policies"
    cure = "leave out --with, or train" if theirs else "train"
    return (
        f"the page has {size / 1000:,.0f} kB, more than {LARGEST / 1000:,.0f} kB{history}: {', '.join(parts)}; {cure} smaller"
        " networks (--num-units) or shared ones (--share role)."
    )


def packed_rivals(rivals: Sequence[tuple[str, Policy]]) -> list[dict[str, Any]]:
    """Returns the policies of other runs as the page reads them."""
    return [{**packed(rival, plain(name), f"t{k + 1}"), "other": True} for k, (name, rival) in enumerate(rivals)]


def prepared(team: Policy, rivals: Sequence[tuple[str, Policy]], about: About) -> tuple["Pages", str]:
    """Returns a page without its policies, and why the world is not drawn, if it is not."""
    world = compiled(team)
    for name, rival in rivals:
        check_rival(world.spec, name, compiled(rival).spec)
    translated = Program()
    num_state = program.add_world(translated, world)
    for k, one in enumerate([team, *(rival for _, rival in rivals)]):
        program.add_team(translated, f"t{k}", world, one.algo, one.parameters)
    played = team._evaluate(team.parameters, 2, 0, False, record=True)
    scene, note = scene_of(world, played.states)
    info = {
        "world": plain(world.name),
        "run": plain(about.run),
        "agents": agents_of(world.spec, scene),
        "teams": list(dict.fromkeys(map(plain, world.spec.teams))),
        "num_state": num_state,
        "act_size": world.spec.act_size,
        "obs_size": world.spec.obs_size,
        "metrics": [plain(name) for name in reductions_of(world)],
        "outcomes": [plain(text) for text in getattr(world, "outcomes", ("success", "no success"))],
        "handles": drawing.handles(scene, first_of(played.states)) if scene else [],
        "colours": {role: colour_of(role) for role in roles_of(world.spec, scene)},
        "seed": best_seed(team),
        "speed": SPEED,
    }
    return Pages(info, script(translated, world, 1 + len(rivals), scene), about, world), note


def compiled(team: Policy) -> Env:
    """Returns the compiled world of a team, or refuses."""
    if team.env.compiled is None:
        raise UsageError(
            f"{team.env.name} is stepped by Python, which a page cannot run: share needs a compiled world;"
            " `counterpoint play` records a film."
        )
    return team.env.compiled


def check_rival(own: Spec, name: str, other: Spec) -> None:
    """Refuses a run whose policies cannot act in this world."""
    for what, a, b in (
        ("agents", own.agents, other.agents),
        ("observations", own.obs_sizes, other.obs_sizes),
        ("actions", own.action_spaces, other.action_spaces),
    ):
        if a != b:
            raise UsageError(f"the {what} of {name} are not those of the shared run: --with takes runs of the same world.")


def untrained(team: Policy) -> Policy:
    """Returns the team as it is before any training."""
    fresh = jax.jit(lambda key: team.algo.policy(team.algo.init(key)))(prng.key(0))
    return team.with_parameters(jax.device_get(fresh), {"episodes": 0})


def label_of(team: Policy) -> str:
    """Returns how long a policy was trained, in words."""
    episodes = int(team.about.get("episodes", 0))
    return f"after {episodes:,} episodes" if episodes else "untrained"


def packed(team: Policy, label: str, kind: str, bits: int = 32) -> dict[str, Any]:
    """Returns a policy as the page reads it: base64 of float32, or of float16 where that holds the numbers."""
    leaves = [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(jax.device_get(team.parameters))]
    with np.errstate(over="ignore"):
        halves = [leaf.astype(np.float16) for leaf in leaves]
    if bits == 16 and not all(np.isfinite(half).all() for half in halves):
        bits = 32
    arrays = [
        base64.b64encode((half if bits == 16 else leaf).tobytes()).decode() for half, leaf in zip(halves, leaves, strict=True)
    ]
    return {"label": label, "kind": kind, "bits": bits, "arrays": arrays, "episodes": int(team.about.get("episodes", 0))}


def spread(items: list[Any], count: int) -> list[Any]:
    """Returns at most `count` items, evenly spaced, the first included."""
    if len(items) <= count:
        return items
    chosen = sorted({round(k * (len(items) - 1) / max(count - 1, 1)) for k in range(count)})
    return [items[k] for k in chosen]


def first_of(states: Any, time: int = 0, episode: int = 0) -> Any:
    """Returns one state of recorded episodes."""
    return jax.tree.map(lambda leaf: leaf[time, episode], states)


def scene_of(world: Env, states: Any) -> tuple[drawing.Scene | None, str]:
    """Returns the world's drawing and, if there is none, why."""
    length, episodes = jax.tree.leaves(states)[0].shape[:2]
    times = sorted({round(k * (length - 1) / 5) for k in range(6)})
    samples = [first_of(states, time, episode) for time in times for episode in range(episodes)]
    try:
        scene = drawing.trace(world, samples[len(samples) // 2])
        if scene is None:
            return None, f"{world.name} has no draw: the page shows observations instead"
        drawing.check(scene, world, samples)
    except drawing.Untraceable as reason:
        return None, f"the draw of {world.name} cannot be translated ({reason}): the page shows observations instead"
    return scene, ""


def agents_of(spec: Spec, scene: drawing.Scene | None) -> list[dict[str, Any]]:
    """Returns what the page knows of each agent."""
    agents = []
    for i, name in enumerate(spec.agents):
        space = spec.action_spaces[i]
        agent: dict[str, Any] = {
            "name": plain(name),
            "role": plain(spec.roles[i]),
            "team": plain(spec.teams[i]),
            "size": space.size,
            "obs_size": spec.obs_sizes[i],
            "heads": None,
            "speaks": None,
        }
        if isinstance(space, Box):
            agent["low"] = (space.middle - space.half_width).tolist()
            agent["high"] = (space.middle + space.half_width).tolist()
        else:
            agent["heads"] = list(space.heads)
            words = spoken_words(scene, name)
            if words in space.heads:
                agent["speaks"] = len(space.heads) - 1 - space.heads[::-1].index(words)
        agents.append(agent)
    return agents


def spoken_words(scene: drawing.Scene | None, agent: str) -> int:
    """Returns how many words an agent has: those of the message that is drawn where its body is."""
    shapes = scene.shapes if scene else ()
    bodies = {shape[2:4] for shape in shapes if shape[1] == "c" and shape[6] == ("const", agent)}
    return next((len(shape[5]) - 1 for shape in shapes if shape[1] == "s" and shape[2:4] in bodies), 0)


def roles_of(spec: Spec, scene: drawing.Scene | None) -> list[str]:
    """Returns every role that a picture can name."""
    found = list(map(plain, spec.roles))
    places = {"c": (5, 9), "p": (3, 5), "l": (3,), "s": (4,)}

    def collect(node: Any) -> None:
        if node[0] == "const" and isinstance(node[1], str):
            found.append(node[1])
        elif node[0] == "choose":
            collect(node[2])
            collect(node[3])

    for shape in scene.shapes if scene else ():
        for place in places[shape[1]]:
            collect(shape[place])
    return [role for role in dict.fromkeys(found) if role]


def best_seed(team: Policy) -> int:
    """Returns the seed of the episode to show first: a success with a middling return, else the best."""
    spec = team.env.spec
    good = np.array([name == "good" for name in spec.teams])
    good = good if good.any() else ~good

    def score(seed: int) -> tuple[float, float]:
        played = team.evaluate(1, seed)
        success = float(np.asarray(played.metrics["success"])[0]) if "success" in played.metrics else 0.0
        return success, float(np.asarray(played.returns)[0][good].mean())

    scores = sorted((score(seed), seed) for seed in range(TRIED))
    won = [seed for (success, _), seed in scores if success >= 1]
    # The highest return of a success is an episode that was won before it began.
    return won[len(won) // 3] if won else scores[-1][1]


# --- The text of the page.


def script(translated: Program, world: Env, num_teams: int, scene: drawing.Scene | None) -> str:
    """Returns the page's script: its own modules, and the program as one object."""
    names = ["first_keys", "step_key", "reset", "step", "metrics"]
    names += [name for name in ("legal", "observe") if any(f.startswith(f"function {name}(") for f in translated.functions)]
    drawn = [drawing.javascript(scene)] if scene else []
    teams = ",".join(f"t{k}:{{begin:begin_t{k},act:act_t{k}}}" for k in range(num_teams))
    members = ",".join([*names, *(["draw"] if drawn else []), f"teams:{{{teams}}}"])
    body = "\n".join([translated.source(), *drawn])
    return "\n".join(
        [
            "(()=>{",
            '"use strict";',
            *map(module, MODULES),
            f"const program=(()=>{{\n{body}\nreturn{{{members}}};\n}})();",
            'globalThis.counterpoint=open(program,JSON.parse(document.getElementById("run").textContent),document);',
            "})();",
        ]
    )


def module(name: str) -> str:
    """Returns a module without its imports and exports: in the page, all of them share one scope."""
    text = (resources.files("counterpoint.view") / name).read_text(encoding="utf-8")
    text = re.sub(r"^import .*?;\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*//.*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^export (?=const|function|class)", "", text, flags=re.MULTILINE)


class Pages(NamedTuple):
    """Everything on a page but its policies."""

    info: dict[str, Any]
    code: str
    about: About
    world: Env

    def allowed(self) -> str:
        """Returns the page's content security policy: its own script and style by their hashes, and nothing else."""
        own = f"script-src {hashed(self.code)}; style-src {hashed(style_sheet())}"
        return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"

    def text(self, policies: list[dict[str, Any]], moments: list[int], first: int = -1) -> str:
        """Returns the page with these policies; `moments` are those of the run itself, in the order of training, and `first`
        is the index of the one that plays first."""
        info = {**self.info, "policies": policies, "moments": moments, "first": moments[first]}
        data = json.dumps(info, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
        about = self.about
        facts = [about.algorithm, f"run {about.run}", policies[moments[first]]["label"]]
        rows = list(about.rows)
        parts = {
            "policy": self.allowed(),
            "version": escape(__version__),
            "title": escape(plain(f"{self.world.name} · {about.run}")),
            "style": style_sheet(),
            "world": escape(plain(self.world.name)),
            "about": escape(plain(" · ".join(filter(None, facts)))),
            "curves": curves.figures(rows),
            "table": results(rows),
            "settings": settings_table(about.settings),
            "data": data,
            "script": self.code,
        }
        template = (resources.files("counterpoint.view") / "page.html").read_text(encoding="utf-8")
        # One pass: what comes from the run is never searched for placeholders.
        return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def style_sheet() -> str:
    return (resources.files("counterpoint.view") / "page.css").read_text(encoding="utf-8")


def results(rows: Sequence[Any]) -> str:
    """Returns the last evaluation of a run as a table, averaged over its seeds."""
    names = [name for name in columns(rows) if name.startswith("eval/") and name.split("/")[1] not in STATISTICS]
    last: dict[Any, dict[str, float]] = {}
    for row in rows:
        for name in names:
            if isinstance(row.get(name), int | float):
                last.setdefault(name, {})[str(row.get("seed"))] = float(row[name])
    lines = [
        [plain(name.removeprefix("eval/")).replace("_", " "), curves.number(float(np.mean(list(values.values()))))]
        for name, values in last.items()
    ]
    return f"<h2>Last evaluation</h2>{curves.table(['measure', 'mean over seeds'], lines)}" if lines else ""


def settings_table(settings: Any) -> str:
    """Returns a run's settings, group by group."""
    lines = [[plain(name), plain(json.dumps(value, default=str))] for name, value in flattened(settings)]
    return curves.table(["setting", "value"], lines) if lines else ""


def flattened(settings: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Returns nested settings as pairs of a dotted name and a value; of a path on this machine, its last part."""
    found: list[tuple[str, Any]] = []
    for name, value in settings.items():
        found += (
            flattened(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", without_folder(value))]
        )
    return found


def without_folder(value: Any) -> Any:
    """Returns a setting as it may be shown: the folders of whoever trained are nobody's business."""
    if isinstance(value, list | tuple):
        return [without_folder(inner) for inner in value]
    if not isinstance(value, str):
        return value
    if Path(value).is_absolute() or (value.startswith("~") and "/" in value):
        return Path(value).name
    name, sign, place = value.partition("=")  # --freeze has the form TEAM=/a/run
    return f"{name}={without_folder(place)}" if sign else value
