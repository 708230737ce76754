"""The site of the documentation works from disk: search finds pages without a server and without a network."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from browser import Browser, Page, executable, opened

pytest.importorskip("mkdocs", reason="mkdocs, of the dev extra, is not installed")
pytestmark = pytest.mark.skipif(executable() is None, reason="no browser is installed (chromium or google-chrome)")

ROOT = Path(__file__).parents[1]
RESULTS = "document.querySelectorAll('.md-search-result__item')"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened() as browser:
        yield browser


def search(page: Page, words: str) -> list[str]:
    """Types words into the field at the top and returns where the results lead."""
    page.click("label.md-header__button[for=__search]" if page.run("innerWidth < 960") else ".md-search__input")
    page.wait("document.activeElement.matches('.md-search__input')")
    for letter in words:
        page.key(letter)
    page.wait(f"{RESULTS}.length > 0")
    links: list[str] = page.run(f"[...{RESULTS}].map(item => item.querySelector('a').href)")
    return links


@pytest.mark.parametrize("start", ["index.html", "adr/0003-one-loop.html"])
@pytest.mark.parametrize("width", [1300, 400])
def test_search_from_disk_finds_pages(site: Path, browser: Browser, start: str, width: int) -> None:
    page = browser.page(width=width)
    page.open(site / start)
    links = search(page, "exploitability")
    files = [Path(unquote(urlsplit(link).path)) for link in links]
    assert site / "results" / "league.html" in files, "the page about it"
    assert all(file.is_relative_to(site) and file.exists() for file in files), files
    assert [problem for problem in page.problems() if not problem.startswith("request for data:")] == []
