"""The page of `counterpoint view` in a real browser: list, curves, live points, stage, learners, and names that attack it."""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from browser import executable, opened
from counterpoint.view.catalogue import id_of
from served import HOSTILE, TOKEN, learners_table, made_run, served
from tiny import trained_run

pytestmark = pytest.mark.skipif(executable() is None, reason="no browser is installed (chromium or google-chrome)")


@pytest.fixture(scope="module")
def browser():
    with opened() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    made_run(root, "slow", seeds=5, lr=0.01)
    made_run(root, "fast", seeds=5, lr=0.02, reports=10, planned=2000)
    made_run(root, "tag", scenario="simple_tag", algorithm="mappo", reports=8)
    return root


@pytest.fixture(scope="module")
def server(folder):
    with served(folder) as found:
        yield found


def visit(browser: Any, server: Any, more: str = "", **options: Any) -> Any:
    """Opens the page and waits until it has read the runs."""
    page = browser.page(**({"width": 1200} | options), origin=server.origin)
    page.visit(server.link + more)
    page.wait("globalThis.app && app.revision >= 0 && document.getElementById('live').dataset.state === 'on'")
    return page


def address(*names: str, tab: str = "curves") -> str:
    return f"#run={','.join(map(id_of, names))}&tab={tab}"


def names(page: Any) -> list[str]:
    return page.run("[...document.querySelectorAll('#rows .name')].map((name) => name.textContent)")


def typed(page: Any, text: str) -> None:
    """Types into what has the focus."""
    page.call("Input.insertText", text=text)


def test_the_list_is_searched_sorted_and_filtered(browser, server):
    page = visit(browser, server)
    assert sorted(names(page)) == ["fast", "slow", "tag"]
    assert page.run("location.search") == ""  # the token is out of the address
    assert TOKEN not in page.run("document.documentElement.outerHTML")
    page.key("/")
    assert page.run("document.activeElement.id") == "search"
    for text, found in (("lr=0.02", ["fast"]), ("env=simple_* algorithm=mappo", ["tag"]), ("SLO", ["slow"]), ("zzz", [])):
        page.run("document.getElementById('search').select()")
        typed(page, text)
        assert names(page) == found
    assert page.run("document.getElementById('empty').textContent") == "No run meets the search and the filters."
    page.run("document.getElementById('search').select()")
    page.key("Backspace")
    page.run("document.getElementById('search').value = ''; app.list.show()")
    page.click("th[data-key=name] button")
    assert names(page) == ["fast", "slow", "tag"]
    page.click("th[data-key=name] button")
    assert names(page) == ["tag", "slow", "fast"]
    assert page.run("document.querySelector('th[data-key=name]').getAttribute('aria-sort')") == "descending"
    page.run("document.getElementById('state').focus()")
    page.key("ArrowDown")
    assert names(page) == ["fast"]
    text = page.run("document.querySelector('#rows tr').textContent")
    for part in ("1,000 of 2,000", "stopped", "8.3k", "lr=0.02", "25 %"):
        assert part in text
    assert page.problems() == []


def test_two_runs_have_bands_and_statistics(browser, server):
    page = visit(browser, server, address("slow"))
    page.click("tr[data-id='" + id_of("fast") + "'] input")
    page.wait("document.querySelectorAll('#curves .chart .fills path').length >= 2")
    traces = page.run("app.charts.charts[0].data.map((trace) => [trace.name, trace.fill ?? ''])")
    assert [name for name, fill in traces if fill == "tonexty"] == ["lr=0.01 high", "lr=0.02 high"]
    assert page.run("app.charts.charts[0].getAttribute('aria-label')").count("mean of 5 seeds") == 2
    buttons = page.run("[...document.querySelectorAll('.modebar-btn')].map((button) => button.dataset.title)")
    assert buttons == ["Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"]  # none that sends the data away
    page.click("#tab-statistics")
    page.wait("document.querySelectorAll('#statistics table').length === 2")
    assert "probability of improvement" in page.run("document.getElementById('statistics').textContent")
    assert page.run("getComputedStyle(app.charts.charts[0]).display") != ""
    page.click("#tab-curves")
    family = "[...document.querySelectorAll('#metric option')].find((o) => o.textContent === 'each of the 2')"
    page.wait(f"{family} !== undefined")
    page.run(f"document.getElementById('metric').value = {family}.value; app.charts.panels = []; app.show()")
    page.wait("document.querySelectorAll('#curves .chart').length === 2")
    page.run("document.getElementById('smooth').value = 5; document.getElementById('log').click()")
    page.wait("app.charts.charts[0].layout.yaxis.type === 'log'")
    assert page.problems() == []


def test_charts_are_exported(browser, server, tmp_path):
    page = visit(browser, server, address("slow", "fast"))
    page.wait("app.charts.charts.length === 1 && app.charts.charts[0].data?.length > 0")
    for kind, start in (("png", "data:image/png;base64,"), ("svg", "data:image/svg+xml")):
        assert page.run(f"Plotly.toImage(app.charts.charts[0], {{format: '{kind}'}})").startswith(start)
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.click("#png")
    page.click("#csv")
    for name in ("simple_spread-eval-team-good.png", "curves.csv"):
        page.wait("true")
        wait_for(tmp_path / name)
    assert (tmp_path / "simple_spread-eval-team-good.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "curves.csv").read_text().startswith("environment,group,run,seed,episode,metric,value\n")
    assert page.problems() == []


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert path.exists()


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from served import row_of
from counterpoint.runs import Run, lock
run = Run(Path(sys.argv[1]))
with lock.hold(run.path):
    print("ready", flush=True)
    for line in sys.stdin:
        run.append_metrics(row_of(int(line)))
        print("written", flush=True)
"""


WATCH = """
globalThis.looks = []; // when the page asked for changes, and the episodes of the first run after that
globalThis.pauses = []; // milliseconds between one answer and the next question
{
  const look = app.look, wait = setTimeout;
  app.look = async () => {
    const began = Date.now();
    await look.call(app);
    looks.push([began, [...app.list.runs.values()][0].episodes]);
  };
  globalThis.setTimeout = (act, pause, ...rest) => {
    if (String(act).includes("look()")) pauses.push(pause);
    return wait(act, pause, ...rest);
  };
}
"""


def test_a_point_of_a_run_in_another_process_appears(browser, tmp_path):
    run = made_run(tmp_path, "live", reports=3, planned=1000)
    words = [sys.executable, "-c", WRITER, str(run.path), str(Path(__file__).parents[1])]
    with (
        served(tmp_path) as server,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as writer,
    ):
        assert writer.stdin is not None
        assert writer.stdout is not None
        try:
            assert writer.stdout.readline() == "ready\n"
            page = visit(browser, server, address("live"))
            page.wait("app.charts.charts[0]?.data?.[0]?.x.length === 3")
            page.wait("document.querySelector('#rows .badge').textContent === 'running'")
            assert "1 run training" in page.run("document.getElementById('live').textContent")
            page.run(WATCH)
            page.wait("looks.length > 1")
            writer.stdin.write("4\n")
            assert writer.stdout.readline() == "written\n"
            written = 1000 * time.time()
            page.wait("app.charts.charts[0].data[0].x.at(-1) === 400")
            drawn = page.run("Date.now()")
            print(f"a new point appears after {drawn - 1000 * run.metrics_path.stat().st_mtime:.0f} ms")
            # Within two seconds, however busy this machine is: the second look after the report finds it at the latest.
            after = [found for began, found in page.run("looks") if began >= written]
            assert 400 in after[:2]
            assert max(page.run("pauses")) <= 1000
            assert "400 of 1,000" in page.run("document.querySelector('#rows tr').textContent")
            made_run(tmp_path, "newcomer", reports=1)
            page.wait("document.querySelectorAll('#rows tr').length === 2")
            assert page.run("document.getElementById('news').textContent") == "newcomer is new."
        finally:
            writer.stdin.close()
            writer.wait(60)
        page.wait("document.getElementById('news').textContent === 'live is stopped.'")
        assert page.problems() == []


def test_hostile_names_are_shown_as_text(browser, tmp_path):
    hostile = HOSTILE.replace("/", "∕")
    made_run(tmp_path, hostile, seeds=2, columns=[f"eval/{HOSTILE}", f"team/{HOSTILE}"], note=HOSTILE, lr=0.2)
    other = made_run(tmp_path, "</title><script>alert(4)</script>".replace("/", "∕"), algorithm=HOSTILE, scenario=HOSTILE)
    learners_table(
        other,
        [
            {
                **{"update": 0, "learner": 0, "scheme": HOSTILE, "agents": HOSTILE},
                **{"sent": 0.0, "waited": 0.0, "computed": 1.0, "arrived": 1.0, "outcome": "lost"},
            }
        ],
    )
    with served(tmp_path) as server:
        page = visit(browser, server, address(hostile, other.name))
        page.wait("app.charts.charts.length === 2 && app.charts.charts.every((chart) => chart.data?.length > 0)")
        shown = page.run("[...document.querySelectorAll('#rows .name')].map((name) => name.textContent).join()")
        assert '<img src=x onerror="alert(1)">' in shown
        page.run(
            "document.getElementById('metric').value ="
            " [...document.querySelectorAll('#metric option')].find((o) => o.textContent.includes('onerror')).value;"
            " document.getElementById('by').value = 'run'; app.show()"
        )
        page.wait("app.charts.panels.some((panel) => panel.metric.includes('onerror'))")
        page.wait("[...document.querySelectorAll('.chart text')].some((text) => text.textContent.includes('onerror'))")
        for tab in ("statistics", "learners", "about"):
            page.click(f"#tab-{tab}")
            page.wait(f"!document.getElementById('view-{tab}').hidden && document.querySelector('#view-{tab} td')")
        assert "onerror" in page.run("document.getElementById('about').textContent")
        assert page.run("[...document.querySelectorAll('img, script:not([src]), [onerror]')].length") == 0
        assert page.run("document.title") == "Runs · counterpoint"
        assert page.run("/[\\x1b\\u202e]/.test(document.body.textContent)") is False
        assert page.problems() == []


def test_a_foreign_page_learns_nothing(browser, server, folder):
    page = visit(browser, server)
    page.visit(server.origin + "/")
    page.wait("globalThis.app && app.revision >= 0")  # the cookie suffices
    with served(folder) as other:
        stranger = browser.page(origin=other.origin)
        stranger.visit(other.origin + "/")  # without its token
        assert "no valid token" in stranger.run("document.body.textContent")
        assert stranger.run("document.cookie") == ""
        stranger.call("Page.setBypassCSP", enabled=True)
        stranger.visit(other.link)
        stranger.wait("globalThis.app && app.revision >= 0")
        tried = stranger.run(
            "Promise.all(['cors', 'no-cors'].map((mode) =>"
            f" fetch('{server.origin}/api/runs', {{mode, credentials: 'include'}})"
            ".then((answer) => answer.text(), () => 'refused')))"
        )
        assert tried[0] == "refused"
        assert tried[1] in ("refused", "")


def test_the_keyboard_suffices(browser, server):
    page = visit(browser, server, address("slow"))
    page.wait("app.charts.charts[0]?.data?.length > 0")
    page.run("document.querySelector('tr[data-id=\"" + id_of("fast") + "\"] input').focus()")
    page.key(" ")
    page.wait("app.list.chosen.size === 2")
    page.key("Tab")
    assert page.run("document.activeElement.textContent") == "fast"
    page.key("Enter")
    assert page.run("app.list.current") == id_of("fast")
    assert page.run("document.activeElement.getAttribute('aria-current')") == "true"
    page.run("document.getElementById('tab-curves').focus()")
    page.key("ArrowRight")
    assert page.run("document.activeElement.id") == "tab-statistics"
    page.wait("!document.getElementById('view-statistics').hidden")
    page.key("End")
    assert page.run("app.tab") == "about"
    page.wait("document.getElementById('about').textContent.includes('counterpoint why RUN plays the policy as well')")
    page.key("Home")
    assert page.run("app.tab") == "curves"
    page.wait("app.charts.charts[0]?._fullLayout?.xaxis.range")
    page.run("app.charts.charts[0].focus()")
    before = page.run("app.charts.charts[0]._fullLayout.xaxis.range")
    page.key("+")
    page.wait(f"app.charts.charts[0]._fullLayout.xaxis.range[0] > {before[0]}")
    page.key("0")
    page.wait("app.charts.charts[0]._fullLayout.xaxis.autorange")
    unnamed = page.run(
        "[...document.querySelectorAll('button, select, input, a, iframe')].filter((e) => !e.closest('[hidden]') &&"
        " !(e.textContent.trim() || e.getAttribute('aria-label') || e.title || e.closest('label')?.textContent.trim()))"
        ".map((e) => e.outerHTML)"
    )
    assert unnamed == []
    assert page.problems() == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_has_room_and_colours_can_be_changed(browser, server, dark):
    page = visit(browser, server, address("slow", "fast"), width=390, height=800, dark=dark, touch=True)
    page.wait("app.charts.charts[0]?.data?.length > 0")
    assert page.run("document.documentElement.scrollWidth") <= 390
    ground = "getComputedStyle(document.body).backgroundColor"
    first = page.run(ground)
    assert (first == "rgb(255, 255, 255)") is not dark
    wanted = "light" if dark else "dark"
    page.run(f"app.theme.choose('{wanted}')")
    assert page.run(ground) != first
    page.wait(
        "app.charts.charts[0].layout.paper_bgcolor === getComputedStyle(document.documentElement).getPropertyValue('--paper')"
    )
    page.run("app.theme.choose('')")
    assert page.run(ground) == first
    assert page.problems() == []


def test_learners_late_and_dead(browser, tmp_path):
    run = made_run(tmp_path, "coded")
    outcomes = [("used", "used", "stopped"), ("used", "lost", "stopped"), ("used", "used", "used")]
    learners_table(
        run,
        [
            {
                **{"update": update, "learner": learner, "scheme": "mds", "agents": "0+1", "sent": 0.0, "waited": 0.1},
                **{"computed": 0.5, "arrived": 1.0, "outcome": outcome},
            }
            for update, row in enumerate(outcomes)
            for learner, outcome in enumerate(row)
        ],
    )
    with served(tmp_path) as server:
        page = visit(browser, server, address("coded", tab="learners"))
        page.wait("document.querySelectorAll('#learners .bars path').length >= 9")
        remarks = page.run(
            "[...document.querySelectorAll('#learners tbody tr')].map((row) => row.lastElementChild.textContent)"
        )
        assert remarks == ["", "dead once", "late in 67 % of its tasks"]
        assert page.run("document.querySelectorAll('#learners tr.trouble').length") == 2
        assert page.problems() == []


def test_any_kept_policy_plays_and_the_newest_is_followed(browser, tmp_path):
    trained = trained_run()
    shutil.copytree(trained.path, tmp_path / "team")
    kept = tmp_path / "team" / "policies"
    newest = (tmp_path / "team" / "policy.safetensors").read_bytes()
    earlier = sorted(kept.glob("policy-*.safetensors"))[0]
    (tmp_path / "team" / "policy.safetensors").write_bytes(earlier.read_bytes())  # as it was at that time
    for path in sorted(kept.glob("policy-*.safetensors"))[1:]:
        path.unlink()
    (kept / "best.safetensors").unlink(missing_ok=True)
    with served(tmp_path) as server:
        page = visit(browser, server, address("team", tab="stage"))
        page.wait("app.player.page?.frames_drawn > 2")
        assert page.run("document.getElementById('stage-note').textContent") == ""
        labels = page.run("app.player.page.info.moments.map((k) => app.player.page.stage.policies[k].label)")
        assert labels == ["untrained", f"after {int(earlier.stem[7:])} episodes"]
        page.wait("app.player.page.stage.cursor > 1")
        (tmp_path / "team" / "policy.safetensors").write_bytes(newest)
        page.wait("app.player.page.info.moments.length === 3")
        assert page.run("app.player.page.document.getElementById('moment-text').textContent") == "after 48 episodes"
        chosen = page.run("Object.values(app.player.page.stage.chosen)")
        assert set(chosen) == {2}
        page.run("app.player.page.get('moment').focus(); app.player.frame.focus()")
        page.run("app.theme.choose('dark')")
        page.wait("app.player.page.painter.dark")
        assert page.problems() == []


def test_a_stage_opened_before_the_first_policy_plays_when_there_is_one(browser, tmp_path):
    trained = trained_run()
    shutil.copytree(trained.path, tmp_path / "team")
    shutil.rmtree(tmp_path / "team" / "policies")
    policy = tmp_path / "team" / "policy.safetensors"
    saved = policy.read_bytes()
    policy.unlink()
    with served(tmp_path) as server:
        page = visit(browser, server, address("team", tab="stage"))
        page.wait("document.getElementById('stage-note').textContent.includes('has saved no policy yet')")
        policy.write_bytes(saved)
        page.wait("app.player.page?.frames_drawn > 2")
        assert page.run("document.getElementById('stage-note').textContent") == ""
        assert page.run("app.player.page.document.getElementById('moment-text').textContent") == "after 48 episodes"


def place_in_frame(page: Any, code: str) -> list[float]:
    """Returns a place of the stage's page in the coordinates of the window; `code` is one in its own."""
    return page.run(
        f"(() => {{ const inner = app.player.page, [x, y] = {code};"
        " const box = app.player.frame.getBoundingClientRect(); return [box.left + x, box.top + y]; })()"
    )


MIDDLE = (
    "(() => {{ const e = inner.document.querySelector('{selector}'); e.scrollIntoView({{block: 'center'}});"
    " const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; }})()"
)
BODY = (
    "(() => { inner.play(false); inner.reset(3); inner.paint(); const c = inner.get('stage');"
    " c.scrollIntoView({block: 'center'}); const b = c.getBoundingClientRect();"
    " const s = inner.stage.picture().shapes.find((s) => s[0] === 'c' && s[6] === 'agent_0');"
    " const p = inner.painter.at(s[2], s[3]); return [b.left + p[0], b.top + p[1]]; })()"
)


def test_bodies_agents_and_rivals_of_the_stage_answer_to_the_mouse(browser, tmp_path):
    trained = trained_run()
    for name in ("team", "sweep/rival"):
        shutil.copytree(trained.path, tmp_path / name)
    (tmp_path / "sweep" / "grid.json").write_text("{}")
    with served(tmp_path) as server:
        page = visit(browser, server, address("team", "sweep/rival", tab="stage"))
        page.wait("app.player.page?.frames_drawn > 2")
        x, y = place_in_frame(page, BODY)
        before = page.run("Array.from(app.player.page.stage.frame.state[0])")
        page.mouse("mousePressed", x, y)
        page.mouse("mouseMoved", x - 30, y + 15, held=True)
        page.mouse("mouseReleased", x - 30, y + 15)
        moved = [b - a for a, b in zip(before, page.run("Array.from(app.player.page.stage.frame.state[0])"), strict=True)]
        scale = page.run("app.player.page.painter.scale")
        assert moved == pytest.approx([-30 / scale, -15 / scale], rel=1e-3)

        def click(selector: str) -> None:
            x, y = place_in_frame(page, MIDDLE.format(selector=selector))
            page.mouse("mousePressed", x, y)
            page.mouse("mouseReleased", x, y)

        click("#agents tr:nth-child(1) button")
        assert page.run("app.player.page.stage.held.agent") == 0
        page.key("ArrowRight", up=False)
        page.wait("app.player.page.stage.frame.action?.[2] === 1")
        page.key("ArrowRight", down=False)
        page.key("Escape")
        assert page.run("app.player.page.stage.held") is None
        rival = page.run("app.player.page.info.policies.findIndex((policy) => policy.other)")
        assert page.run(f"app.player.page.info.policies[{rival}].label") == "sweep/rival"
        page.run("app.player.page.document.querySelector('#swaps select').focus()")
        page.key("ArrowDown")
        assert page.run("app.player.page.stage.chosen.good") == rival
        assert page.problems() == []


def test_a_run_that_cannot_play_says_why(browser, tmp_path):
    run = made_run(tmp_path, "data only")
    run.gif_path.write_bytes((Path(__file__).parents[2] / "docs" / "images" / "tag.gif").read_bytes())
    with served(tmp_path) as server:
        page = visit(browser, server, address("data only", tab="stage"))
        page.wait("document.querySelector('#stage img')?.complete")
        assert page.run("document.querySelector('#stage img').naturalWidth") > 100
        assert "has saved no policy yet" in page.run("document.getElementById('stage-note').textContent")
        assert [problem for problem in page.problems() if "the server responded with a status of" not in problem] == []
