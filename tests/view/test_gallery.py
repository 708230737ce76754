"""The gallery of the docs: every world has a team and a link, and its page opens."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from browser import executable, opened
from counterpoint.envs import WORLDS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def make_gallery() -> ModuleType:
    """The script that builds the gallery."""
    found = importlib.util.spec_from_file_location("make_gallery", DOCS / "make_gallery.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_world_has_a_team_and_a_link():
    teams = {path.name for path in (DOCS / "gallery" / "policies").iterdir()}
    links = re.findall(r'href="gallery/(\w+)\.html"', (DOCS / "gallery.md").read_text())
    assert teams == set(WORLDS)
    assert sorted(links) == sorted(WORLDS)


def test_a_world_without_a_team_is_refused(make_gallery, tmp_path, monkeypatch):
    monkeypatch.setattr(make_gallery, "POLICIES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["make_gallery.py", "--only", "simple", "tennis"])
    with pytest.raises(SystemExit, match=r"no team for simple, tennis: .*--train"):
        make_gallery.main()


@pytest.mark.skipif(executable() is None, reason="there is no Chromium on this machine")
def test_a_page_of_the_gallery_opens(make_gallery, tmp_path, monkeypatch):
    monkeypatch.setattr(make_gallery, "PAGES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["make_gallery.py", "--only", "simple"])
    make_gallery.main()
    with opened() as browser:
        page = browser.page()
        page.open(tmp_path / "simple.html")
        page.wait("counterpoint.frames_drawn > 2 && counterpoint.stage.cursor > 1")
        assert page.run("document.getElementById('moment-text').textContent") == "after 4,000 episodes"
        assert page.run("counterpoint.info.moments.length") > 2
        assert page.problems() == []
