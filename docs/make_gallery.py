"""Builds the gallery: a page for every world in which its team plays.

    python docs/make_gallery.py                     builds docs/gallery/WORLD.html from docs/gallery/policies
    python docs/make_gallery.py --train             first trains a small team for every world that has none, and keeps it
    python docs/make_gallery.py --take runs/hunt …  first keeps the policies of these runs, each for its world

What is kept of a run is small: its settings, a few rows of its metrics, and its last policy with some earlier ones as float16.
"""

import argparse
import csv
import json
import shutil
import sys
import tempfile
from pathlib import Path

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
    words.add_argument("--only", nargs="+", default=list(WORLDS), metavar="WORLD")
    given = words.parse_args()
    for path in given.take:
        run = open_run(path)
        keep(run, run.config["world"]["scenario"])
    for world in given.only if given.train else ():
        if not (POLICIES / world).exists():
            with tempfile.TemporaryDirectory() as folder:
                keep(trained(world, folder), world)
    for world in given.only:
        if (POLICIES / world).exists():
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


def keep(run: Run, world: str) -> None:
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
    along = list(history.kept(run).values())
    for k in np.unique(np.linspace(0, len(along) - 1, min(len(along), EARLIER)).round().astype(int)) if along else ():
        convert(along[k], target / "policies" / along[k].name, np.float16, first=True)
    convert(run.policy_path, target / "policy.safetensors", np.float16, first=True)


def convert(source: Path, target: Path, kind: type, first: bool = False) -> None:
    """Copies a policy with its floats in another precision; `first`: of the first seed alone."""
    tensors, about = read_policy(source)
    tensors = {name: tensor[:1] if first else tensor for name, tensor in tensors.items()}
    tensors = {name: t.astype(kind) if t.dtype.kind == "f" else t for name, t in tensors.items()}
    target.write_bytes(pack_tensors(tensors, {"about": compact_json(about)}))


def build(world: str) -> None:
    """Writes the page of a world from what was kept."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / f"{world}-team"
        shutil.copytree(POLICIES / world, place)
        for path in [place / "policy.safetensors", *(place / "policies").glob("*.safetensors")]:
            convert(path, path, np.float32)
        written = counterpoint.share(place, PAGES / f"{world}.html")
    print(f"{written.path}  {written.size / 1000:.0f} kB  {written.note}", file=sys.stderr)


if __name__ == "__main__":
    main()
