"""Builds the gallery: a page for every world in which its team plays.

    python docs/make_gallery.py                     builds docs/gallery/WORLD.html from docs/gallery/policies
    python docs/make_gallery.py --train             first trains a small team for every world that has none, and keeps it
    python docs/make_gallery.py --take runs/hunt …  first keeps the policies of these runs, each for its world;
                                                    with --at best, the best by evaluation instead of the last

What is kept of a run is small: its settings, a few rows of its metrics, and one policy with some earlier ones as float16.
"""

import argparse
import csv
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import counterpoint
from counterpoint.envs import WORLDS
from counterpoint.runs import history, open_run
from counterpoint.runs.files import compact_json, pack_tensors
from counterpoint.runs.folder import Run, read_policy
from counterpoint.view.share import without_folder

HERE = Path(__file__).parent
PAGES, POLICIES = HERE / "gallery", HERE / "gallery" / "policies"
EARLIER = 3
"""Policies along the way that are kept of a run."""
ROWS = 60
"""Rows of metrics that are kept."""
EPISODES = {"simple": 3000, "simple_spread": 8000, "tennis": 1500, "switch2": 2000, "switch4": 4000}
"""Episodes of a small training, where they differ from 5000."""


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--train", action="store_true")
    words.add_argument("--take", nargs="+", default=[], metavar="RUN")
    words.add_argument("--at", default="last", choices=["last", "best"])
    words.add_argument("--only", nargs="+", default=list(WORLDS), metavar="WORLD")
    given = words.parse_args()
    for path in given.take:
        run = open_run(path)
        keep(run, run.config["world"]["scenario"], given.at)
    for world in given.only if given.train else ():
        if not (POLICIES / world).exists():
            with tempfile.TemporaryDirectory() as folder:
                keep(trained(world, folder), world)
    if missing := [world for world in given.only if not (POLICIES / world).exists()]:
        raise SystemExit(f"there is no team for {', '.join(missing)}: train one with --train, or take one with --take RUN.")
    for world in given.only:
        build(world)


def trained(world: str, folder: str) -> Run:
    """Returns a short run of a world, from its own preset if it has one."""
    episodes = EPISODES.get(world, 5000)
    return counterpoint.train(
        scenario=world,
        num_episodes=episodes,
        save_rate=episodes // 8,
        report_every=max(episodes // 50, 1),
        num_units=32,
        save_dir=folder,
        exp_name=world,
        plots_dir="",
    )


def keep(run: Run, world: str, at: str = "last") -> None:
    """Writes what the gallery keeps of a run's first seed."""
    target = POLICIES / world
    shutil.rmtree(target, ignore_errors=True)
    (target / "policies").mkdir(parents=True)
    config = json.loads((run.path / "config.json").read_text())
    config.pop("sha256", None)  # its content changes
    config["training"]["num_seeds"] = 1
    config = {
        name: {key: without_folder(value) for key, value in part.items()} if isinstance(part, dict) else without_folder(part)
        for name, part in config.items()
    }
    (target / "config.json").write_text(json.dumps(config, indent=1))
    rows = [row for row in run.rows() if row.get("seed") == run.rows()[0].get("seed")]
    rows = [rows[k] for k in np.unique(np.linspace(0, len(rows) - 1, min(len(rows), ROWS)).round().astype(int))]
    with open(target / "metrics.csv", "w", newline="") as file:
        names = [name for name in rows[0] if name in ("episode", "step", "seed") or name.startswith(("eval/", "team/"))]
        table = csv.DictWriter(file, names, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    tensors, about = history.load_at(run, at)
    along = [path for episodes, path in history.kept(run).items() if episodes < about["episodes"]]
    for k in np.unique(np.linspace(0, len(along) - 1, min(len(along), EARLIER)).round().astype(int)) if along else ():
        write(*read_policy(along[k]), target / "policies" / along[k].name, np.float16)
    write(tensors, about, target / "policy.safetensors", np.float16)


def write(tensors: Mapping[str, np.ndarray], about: Mapping[str, Any], target: Path, kind: type) -> None:
    """Writes the policy of the first seed with its floats in another precision."""
    tensors = {name: tensor[:1] for name, tensor in tensors.items()}
    tensors = {name: t.astype(kind) if t.dtype.kind == "f" else t for name, t in tensors.items()}
    target.write_bytes(pack_tensors(tensors, {"about": compact_json(about)}))


def build(world: str) -> None:
    """Writes the page of a world from what was kept."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / f"{world}-team"
        shutil.copytree(POLICIES / world, place)
        for path in [place / "policy.safetensors", *(place / "policies").glob("*.safetensors")]:
            write(*read_policy(path), path, np.float32)
        written = counterpoint.share(place, PAGES / f"{world}.html")
    print(f"{written.path}  {written.size / 1000:.0f} kB  {written.note}", file=sys.stderr)


if __name__ == "__main__":
    main()
