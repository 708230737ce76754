"""Takes screenshots, wide and narrow, light and dark.

`python docs/make_screenshots.py share [FOLDER]` shows the gallery's page of simple_speaker_listener, which it builds first,
`python docs/make_screenshots.py PAGE [FOLDER]` any other page that `counterpoint share` wrote,
`python docs/make_screenshots.py view [FOLDER]` the page of `counterpoint view` for runs that are made of docs/results and
docs/gallery/policies; the delays of the one with learners are invented.
`python docs/make_screenshots.py site [FOLDER]` shows pages of the documentation that `make docs` built in site/.
"""

import csv
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint import runs
from counterpoint.runs import lock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import make_gallery  # noqa: E402 — the path comes first

from browser import Browser, opened  # noqa: E402
from served import served  # noqa: E402

SIZES = {"wide": (1100, 860), "narrow": (375, 800)}
VIEW_SIZES = {"wide": (1280, 960), "narrow": (390, 844)}


def looks(browser: Browser, sizes: dict[str, tuple[int, int]], origin: str = "") -> Iterator[tuple[str, Any]]:
    """Yields an empty page of each size and colour, and their name."""
    for name, (width, height) in sizes.items():
        for dark in (False, True):
            yield (
                f"{name}-{'dark' if dark else 'light'}",
                browser.page(width, height, dark, touch=name == "narrow", origin=origin),
            )


def shoot(page: Any, path: Path) -> None:
    page.screenshot(path)
    print(path)
    for problem in page.problems():
        print(problem, file=sys.stderr)


def gallery_page(world: str = "simple_speaker_listener") -> Path:
    """Builds a page of the gallery and returns its file."""
    make_gallery.build(world)
    return make_gallery.PAGES / f"{world}.html"


def share(browser: Browser, file: Path, target: Path) -> None:
    for look, page in looks(browser, SIZES):
        page.open(file)
        page.wait("counterpoint.frames_drawn > 2 && counterpoint.stage.cursor >= 8")
        page.run("counterpoint.play(false)")
        page.wait("!counterpoint.dirty")
        shoot(page, target / f"share-{look}.png")


def view(browser: Browser, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(chdir(folder))  # so that the page shows a short name of the folder
        place = Path("runs")
        busy = made_runs(place)
        stack.enter_context(lock.hold(busy))
        server = stack.enter_context(served(place))
        for look, page in looks(browser, VIEW_SIZES, server.origin):
            page.visit(server.link)
            page.wait("globalThis.app && app.revision >= 0")
            page.run("document.getElementById('search').value = 'simple_spread'; app.list.show()")
            page.click("#choose-shown")
            page.run("document.getElementById('search').value = ''; app.list.show()")
            page.run("app.list.open([...app.list.runs.values()].find((run) => run.name === 'spread-64-units').id)")
            page.wait("document.querySelectorAll('#by option').length > 3")
            page.run("document.getElementById('by').value = 'run'; app.show()")
            page.wait("app.charts.charts.length && app.charts.charts[0].data?.some((trace) => trace.name === 'spread-tuned')")
            for tab, ready in TABS.items():
                page.run(f"app.open('{tab}')")
                ready(page)
                top = tab == "curves" and "wide" in look
                page.run("scrollTo(0, 0)" if top else "document.getElementById('panel').scrollIntoView()")
                shoot(page, target / f"view-{'' if tab == 'curves' else f'{tab}-'}{look}.png")
            if "narrow" in look:
                page.run("scrollTo(0, 0)")
                shoot(page, target / f"view-list-{look}.png")


def made_runs(folder: Path) -> Path:
    """Makes runs of published results and returns one that is to look as if it were training."""
    gallery = ROOT / "docs" / "gallery" / "policies" / "simple_spread"
    plain = {
        name: value for name, value in json.loads((gallery / "config.json").read_text()).items() if isinstance(value, dict)
    }
    for name, scenario, algorithm, lr, seeds in (
        ("tag", "simple_tag", "maddpg", 0.01, 1),
        ("speaker-ddpg", "simple_speaker_listener", "ddpg", 0.01, 10),
        ("speaker-maddpg", "simple_speaker_listener", "maddpg", 0.01, 10),
        ("spread-maddpg", "simple_spread", "maddpg", 0.01, 10),
        ("spread-tuned", "simple_spread", "maddpg", 0.003, 10),
    ):
        results = ROOT / "docs" / "results" / (f"{name}-curve" if name == "tag" else name)
        tables = [list(csv.DictReader((results / f"seed{k}.csv").open())) for k in range(seeds)]
        planned = int(tables[0][-1]["episode"]) * (1 if name != "tag" else 4)
        settings = {
            **{"algorithm": algorithm, **plain},
            "world": plain["world"] | {"scenario": scenario},
            "training": plain["training"] | {"num_episodes": planned, "num_seeds": seeds, "seed": 0},
            "learning": plain["learning"] | {"lr": lr},
        }
        run = runs.create(folder, name, settings)
        for rows in zip(*tables, strict=True):
            for row in rows:
                run.append_metrics(row)
        if name == "speaker-maddpg":
            run.append_learners(*invented_tasks())
    shutil.copytree(gallery, folder / "spread-64-units")
    return folder / "tag"


def invented_tasks(updates: int = 12, learners: int = 7) -> tuple[list[str], list[dict[str, Any]]]:
    """Returns a timeline with a slow learner and one that dies."""
    rng, rows = np.random.default_rng(0), []
    for update in range(updates):
        done = rng.uniform(0.2, 0.3, learners) + 0.4 * (np.arange(learners) == 5)
        enough = np.sort(done)[learners - 3]
        for learner, seconds in enumerate(done):
            lost, late = learner == 2 and update == 8, seconds > enough
            outcome = "lost" if lost else "used" if not late else "stopped" if learner == 5 else "unused"
            arrived = min(seconds, enough + 0.05) + 0.03
            times = {"sent": 0.0, "waited": 0.02, "computed": 0.0 if lost else arrived - 0.05, "arrived": arrived}
            rows.append({"update": update, "learner": learner, "scheme": "mds", "agents": "0+1", **times, "outcome": outcome})
    return list(rows[0]), rows


def stage_ready(page: Any) -> None:
    page.wait("app.player.page?.frames_drawn > 2 && app.player.page.stage.cursor >= 8")
    page.run("app.player.page.play(false)")
    page.wait("!app.player.page.dirty")


def learners_ready(page: Any) -> None:
    page.run("app.list.open([...app.list.runs.values()].find((run) => run.distributed).id)")
    page.run("app.open('learners')")
    page.wait("document.querySelectorAll('#learners .bars path').length > 20")


TABS: dict[str, Callable[[Any], None]] = {
    "curves": lambda page: page.wait("document.querySelector('#view-curves').ariaBusy === 'false'"),
    "statistics": lambda page: page.wait("document.querySelector('#statistics table')"),
    "stage": stage_ready,
    "about": lambda page: page.wait("document.querySelector('#about table')"),
    "learners": lambda page: learners_ready(page),
}


SITE = ("index", "tutorials/train-watch-improve", "results", "algorithms/maddpg", "worlds/simple_tag", "gallery")


def site(browser: Browser, target: Path) -> None:
    for name in SITE:
        for look, page in looks(browser, VIEW_SIZES):
            page.open(ROOT / "site" / f"{name}.html")
            page.run("localStorage.clear()")  # it remembers the colours of the last visit
            page.open(ROOT / "site" / f"{name}.html")
            page.run("new Promise((done) => setTimeout(done, 1000))")  # colours fade in
            shoot(page, target / f"site-{Path(name).name}-{look}.png")


def main(what: str, folder: str = "") -> None:
    target = Path(folder).resolve() if folder else ROOT / "docs" / "images"
    with opened() as browser:
        if what == "view":
            view(browser, target)
        elif what == "site":
            site(browser, target)
        else:
            share(browser, gallery_page() if what == "share" else Path(what), target)


if __name__ == "__main__":
    main(*sys.argv[1:])
