"""Takes screenshots of a shared page, wide and narrow, light and dark: `python docs/make_screenshots.py PAGE [FOLDER]`."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser import opened  # noqa: E402 — the path comes first

SIZES = {"wide": (1100, 860), "narrow": (375, 800)}


def main(page: str, folder: str = "") -> None:
    target = Path(folder) if folder else ROOT / "docs" / "images"
    with opened() as browser:
        for name, (width, height) in SIZES.items():
            for dark in (False, True):
                view = browser.page(width, height, dark, touch=name == "narrow")
                view.open(Path(page))
                view.wait("counterpoint.frames_drawn > 2 && counterpoint.stage.cursor >= 8")
                view.run("counterpoint.play(false)")
                view.wait("!counterpoint.dirty")
                path = target / f"share-{name}-{'dark' if dark else 'light'}.png"
                view.screenshot(path)
                print(path)
                for problem in view.problems():
                    print(problem, file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
