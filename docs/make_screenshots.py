"""Takes screenshots, wide and narrow, light and dark.

`python docs/make_screenshots.py PAGE [FOLDER]` shows a page that `counterpoint share` wrote,
`python docs/make_screenshots.py view RUNS [FOLDER]` the page of `counterpoint view` for a folder of runs: curves and statistics
of all of them and, of the newest one, the stage.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser import Browser, opened  # noqa: E402 — the path comes first
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


def share(browser: Browser, file: str, target: Path) -> None:
    for look, page in looks(browser, SIZES):
        page.open(Path(file))
        page.wait("counterpoint.frames_drawn > 2 && counterpoint.stage.cursor >= 8")
        page.run("counterpoint.play(false)")
        page.wait("!counterpoint.dirty")
        shoot(page, target / f"share-{look}.png")


def view(browser: Browser, runs: str, target: Path) -> None:
    with served(Path(runs)) as server:
        for look, page in looks(browser, VIEW_SIZES, server.origin):
            page.visit(server.link)
            page.wait("globalThis.app && app.revision >= 0")
            page.click("#choose-shown")
            page.wait("app.charts.charts.length && app.charts.charts.every((chart) => chart.data?.length > 2)")
            for tab, ready in TABS.items():
                page.click(f"#tab-{tab}")
                ready(page)
                page.run(
                    "scrollTo(0, 0)"
                    if tab == "curves" and "wide" in look
                    else "document.getElementById('panel').scrollIntoView()"
                )
                shoot(page, target / f"view-{'' if tab == 'curves' else f'{tab}-'}{look}.png")
            if "narrow" in look:
                page.run("scrollTo(0, 0)")
                shoot(page, target / f"view-list-{look}.png")


def stage_ready(page: Any) -> None:
    page.wait("app.player.page?.frames_drawn > 2 && app.player.page.stage.cursor >= 8")
    page.run("app.player.page.play(false)")
    page.wait("!app.player.page.dirty")


TABS: dict[str, Callable[[Any], None]] = {
    "curves": lambda page: page.wait("document.querySelector('#view-curves').ariaBusy === 'false'"),
    "statistics": lambda page: page.wait("document.querySelector('#statistics table')"),
    "stage": stage_ready,
    "about": lambda page: page.wait("document.querySelector('#about table')"),
}


def main(what: str, *more: str) -> None:
    runs, folder = (more[0], more[1:]) if what == "view" else ("", more)
    target = Path(folder[0]) if folder else ROOT / "docs" / "images"
    with opened() as browser:
        if what == "view":
            view(browser, runs, target)
        else:
            share(browser, what, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
