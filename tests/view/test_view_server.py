"""The server of `counterpoint view`, asked without a browser: who is answered, and what the answers say."""

import csv
import io
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
import webbrowser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import counterpoint
from counterpoint.cli.main import main
from counterpoint.core.errors import UsageError
from counterpoint.runs import lock
from counterpoint.studies import compare, why
from counterpoint.view import catalogue, share
from counterpoint.view.catalogue import Catalogue, id_of
from counterpoint.view.server import application, place_of
from served import HOSTILE, TOKEN, learners_table, made_run, row_of, served

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have another package than httpx
    from starlette.testclient import TestClient

ORIGIN = "http://127.0.0.1:8765"


def client(root: Path, token: str = TOKEN, **headers: str) -> TestClient:
    cookies = {"counterpoint-8765": token} if token else {}
    app = application(root, TOKEN, 8765)
    return TestClient(app, base_url=ORIGIN, headers=headers, cookies=cookies)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("outer") / "runs"
    made_run(root, "slow", seeds=5, lr=0.01)
    made_run(root, "fast", seeds=5, lr=0.02, reports=10, planned=2000)
    made_run(root, "tag", scenario="simple_tag", reports=8)
    (root / "no run").mkdir()
    (root.parent / "secret").mkdir()
    (root.parent / "secret" / "config.json").write_text("{}")
    return root


# --- Who is answered.

ADDRESSES = ("/", "/app/main.js", "/plotly.js", "/api/runs", "/api/curves", "/api/curves.csv", "/stage", "/film", "/nothing")


@pytest.mark.parametrize("address", ADDRESSES)
def test_nothing_is_answered_without_the_token(folder, address):
    for token in ("", "wrong", TOKEN[:-1], f"{TOKEN}x", "ü"):
        answer = client(folder, "" if token == "ü" else token).get(address, params={"token": token})
        assert answer.status_code == 403
        assert "no valid token" in answer.text
        assert "set-cookie" not in answer.headers


def test_the_link_sets_a_cookie_that_scripts_cannot_read(folder):
    visitor = client(folder, "")
    answer = visitor.get("/", params={"token": TOKEN})
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in answer.text
    assert visitor.get("/api/runs").status_code == 200


@pytest.mark.parametrize(
    "host", ["example.com", "example.com:8765", "127.0.0.1", "127.0.0.1:80", "localhost:8765.example.com", ""]
)
def test_a_foreign_host_is_refused(folder, host):
    assert client(folder, host=host).get("/api/runs").status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://example.com"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8765"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-dest": "script"},
        {"sec-fetch-site": "cross-site", "sec-fetch-dest": "iframe"},
    ],
)
def test_a_foreign_page_is_refused(folder, headers):
    assert client(folder, **headers).get("/api/runs").status_code == 403


def test_its_own_page_and_a_link_to_it_are_answered(folder):
    assert client(folder, origin=ORIGIN).get("/api/runs").status_code == 200
    assert client(folder, host="localhost:8765", origin="http://localhost:8765").get("/api/runs").status_code == 200
    assert client(folder, **{"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}).get("/").status_code == 200


def test_nothing_can_be_changed(folder):
    visitor = client(folder)
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert visitor.request(method, "/api/runs").status_code == 405


def test_every_answer_forbids_what_the_page_does_not_need(folder):
    visitor = client(folder)
    for address in ADDRESSES:
        headers = visitor.get(address).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
    assert client(folder, "").get("/").headers["content-security-policy"] == visitor.get("/").headers["content-security-policy"]


PATHS = ("../secret", "..", ".", "", "/etc", "%2e%2e/secret", "..%2fsecret", "secret", "no run", "slow/../../secret", "a\0b")


@pytest.mark.parametrize("path", PATHS)
def test_paths_lead_nowhere(folder, path):
    visitor = client(folder)
    for address in (
        "/api/run",
        "/api/curves",
        "/api/curves.csv",
        "/api/learners",
        "/api/stage",
        "/stage",
        "/api/policy",
        "/film",
    ):
        for name in (path, id_of(path)):
            answer = visitor.get(address, params={"run": name})
            assert answer.status_code == 404
            assert answer.json() == {"error": "There is no such run in this folder."}


def test_paths_among_the_pages_own_files_lead_nowhere(folder):
    with served(folder) as server:
        import http.client

        for path in (
            "/app/../server.py",
            "/app/..%2fserver.py",
            "/app/%2e%2e/guard.py",
            "/app//etc/passwd",
            "/app/",
            "/../../etc/passwd",
        ):
            connection = http.client.HTTPConnection(server.origin.removeprefix("http://"))
            connection.putrequest("GET", path)  # as it is: other clients tidy up
            connection.putheader("Cookie", f"counterpoint-{server.origin.rpartition(':')[2]}={TOKEN}")
            connection.endheaders()
            answer = connection.getresponse()
            assert answer.status == 404, path
            assert b"import" not in answer.read()
            connection.close()


def test_links_out_of_the_folder_are_not_read(tmp_path):
    outside = made_run(tmp_path / "outside", "private")
    inside = made_run(tmp_path / "runs", "inside")
    (tmp_path / "runs" / "linked").symlink_to(outside.path)
    made_run(tmp_path / "runs", "half")
    os.unlink(tmp_path / "runs" / "half" / "metrics.csv")
    (tmp_path / "runs" / "half" / "metrics.csv").symlink_to(outside.metrics_path)
    visitor = client(tmp_path / "runs")
    states = {run["name"]: run["state"] for run in visitor.get("/api/runs").json()["runs"]}
    assert states == {"inside": "finished", "linked": "unreadable", "half": "unreadable"}
    assert visitor.get("/api/curves", params={"run": id_of("linked")}).status_code == 404
    assert visitor.get("/api/curves", params={"run": id_of("half")}).status_code == 404
    assert visitor.get("/api/curves", params={"run": id_of(inside.name)}).status_code == 200


def made_grid(root: Path, name: str, **cells: dict[str, Any]) -> None:
    """Makes a grid: runs in a folder that records their settings."""
    for cell, settings in cells.items():
        made_run(root / name, cell, reports=3, **settings)
    (root / name / "grid.json").write_text("{}")


def test_the_cells_of_a_grid_are_runs(tmp_path):
    made_run(tmp_path, "single", lr=0.1)
    made_grid(tmp_path, "sweep", small={"lr": 0.2}, large={"lr": 0.3})
    made_grid(tmp_path, "again", small={"lr": 0.4})
    made_run(tmp_path / "no-grid", "hidden")
    made_grid(tmp_path / "sweep", "deeper", hidden={})
    visitor = client(tmp_path)
    found = {run["name"]: run for run in visitor.get("/api/runs").json()["runs"]}
    assert set(found) == {"single", "sweep/small", "sweep/large", "again/small"}
    for name, run in found.items():
        assert run["id"] == id_of(name)
        assert run["differs"]
        fields = {"run": run["id"], "by": "run"}
        (finding,) = visitor.get("/api/run", params=fields).json()["advice"]
        assert finding["cure"] == f"Go on: counterpoint resume {tmp_path / name}."
        (panel,) = visitor.get("/api/curves", params=fields).json()["panels"]
        assert panel["groups"][0]["label"].endswith(name)
        assert name in visitor.get("/api/curves.csv", params=fields).text
        answer = visitor.get("/api/stage", params=fields)
        assert "has saved no policy yet" in answer.json()["error"]


def test_links_out_of_a_grid_are_not_read(tmp_path):
    outside = made_run(tmp_path / "outside", "private")
    (tmp_path / "outside" / "grid.json").write_text("{}")
    root = tmp_path / "runs"
    made_grid(root, "sweep", small={})
    made_run(root, "single")
    (root / "sweep" / "linked").symlink_to(outside.path)
    (root / "sweep" / "crossed").symlink_to(root / "single")
    (root / "foreign").symlink_to(tmp_path / "outside")
    visitor = client(root)
    states = {run["name"]: run["state"] for run in visitor.get("/api/runs").json()["runs"]}
    assert states == {
        "single": "finished",
        "sweep/small": "finished",
        "sweep/linked": "unreadable",
        "sweep/crossed": "unreadable",
    }
    for name in ("sweep/linked", "sweep/crossed", "foreign", "foreign/private", "sweep/../single", "sweep"):
        assert visitor.get("/api/curves", params={"run": id_of(name)}).status_code == 404
    os.rename(root / "sweep", root / "moved")
    (root / "sweep").symlink_to(tmp_path / "outside")
    assert visitor.get("/api/curves", params={"run": id_of("sweep/small")}).status_code == 404


@pytest.mark.parametrize("name", ["diverged.txt", "metrics.sums", "learners.sums", "checkpoints", "policies/best.safetensors"])
def test_no_link_out_of_a_run_is_followed(tmp_path, name):
    run = made_run(tmp_path / "runs", "half", reports=2)
    place, outside = run.path / name, tmp_path / "outside"
    outside.mkdir()
    (run.path / "policies").mkdir()
    (run.path / "checkpoints").rmdir()
    place.unlink(missing_ok=True)
    place.symlink_to(outside)
    (listed,) = Catalogue(tmp_path / "runs").changes(-1)["runs"]
    assert listed["state"] == "unreadable"
    assert "lead out" in listed["problem"]


@pytest.mark.skipif(os.name != "posix", reason="there are no named pipes")
@pytest.mark.parametrize("name", ["config.json", "lock", "metrics.csv"])
def test_pipes_do_not_block_the_list(tmp_path, name):
    made_run(tmp_path, "other", reports=2)
    run = made_run(tmp_path, "piped", reports=2)
    (run.path / name).unlink(missing_ok=True)
    os.mkfifo(run.path / name)
    code = "import sys, pathlib; from counterpoint.view.catalogue import Catalogue\n"
    code += "from counterpoint.runs import lock, list_runs\n"
    code += "root = pathlib.Path(sys.argv[1]); print({r['name']: r['state'] for r in Catalogue(root).changes(-1)['runs']})\n"
    code += "lock.owner(root / 'piped'); list_runs(root) if sys.argv[2] == 'config.json' else None"
    done = subprocess.run([sys.executable, "-c", code, tmp_path, name], timeout=30, capture_output=True, text=True, check=False)
    assert "'other': 'finished'" in done.stdout, done.stderr
    assert done.returncode == 0
    assert "'piped': 'unreadable'" in done.stdout or name == "config.json"


# --- The list.


def test_the_list_says_what_counterpoint_runs_says(folder):
    answer = client(folder).get("/api/runs").json()
    found = {run["name"]: run for run in answer["runs"]}
    assert set(found) == {"slow", "fast", "tag"}
    fast = found["fast"]
    assert (fast["state"], fast["episodes"], fast["planned"], fast["seeds"]) == ("stopped", 1000, 2000, 5)
    assert fast["differs"] == {"lr": "0.02"}
    assert fast["speed"] == pytest.approx(5 * 2500 / 1.5)
    assert fast["returns"] == {"good": pytest.approx(-50 + 20 + 2 + 2)}
    assert fast["success"] == pytest.approx(0.25)
    assert found["slow"]["state"] == "finished"
    assert found["tag"]["differs"] == {}


def test_only_what_changed_is_sent_again(tmp_path, monkeypatch):
    monkeypatch.setattr("counterpoint.view.catalogue.REST", 0.0)
    first, second = (made_run(tmp_path, name) for name in ("first", "second"))
    listing = Catalogue(tmp_path)
    start = listing.changes(-1)
    assert len(start["runs"]) == 2
    assert listing.changes(start["revision"])["runs"] == []
    first.append_metrics(row_of(21))
    after = listing.changes(start["revision"])
    assert [run["name"] for run in after["runs"]] == ["first"]
    assert after["runs"][0]["episodes"] == 2100
    with lock.hold(second.path):
        busy = listing.changes(after["revision"])
        assert [(run["name"], run["state"]) for run in busy["runs"]] == [("second", "running")]
    second.path.rename(tmp_path.parent / "elsewhere")
    assert listing.changes(busy["revision"])["gone"] == [id_of("second")]
    assert listing.run(id_of("second")) is None


def test_unchanged_runs_are_not_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr("counterpoint.view.catalogue.REST", 0.0)
    for k in range(3):
        made_run(tmp_path, f"run{k}", reports=2)
    listing = Catalogue(tmp_path)
    listing.changes(-1)
    monkeypatch.setattr("counterpoint.view.catalogue.summary", lambda path: pytest.fail(f"reads {path}"))
    assert len(listing.changes(-1)["runs"]) == 3


def strange_name(root):
    os.mkdir(os.fsencode(root) + b"/\xff\xfe")
    os.rename(made_run(root, "old", reports=2).path / "config.json", os.fsencode(root) + b"/\xff\xfe/config.json")


def half_characters(root):
    made_run(root, "strange", reports=2, note="\ud800")


def enormous_numbers(root):
    run = made_run(root, "strange", reports=2, planned=10**400)
    run.append_metrics(dict.fromkeys(row_of(1), 10**400))


def infinite_speed(root):
    run = made_run(root, "strange", reports=0, planned=100)
    for k in (1, 2):
        run.append_metrics({"step": 1e308 * (2 * k - 3), "seconds": k, "seed": 0, "episode": k})


@pytest.mark.parametrize("strange", [strange_name, half_characters, enormous_numbers, infinite_speed])
def test_one_strange_folder_does_not_hide_the_others(tmp_path, strange):
    made_run(tmp_path, "other", reports=2)
    strange(tmp_path)
    answer = client(tmp_path).get("/api/runs")
    assert answer.status_code == 200
    found = json.loads(answer.text, parse_constant=lambda name: pytest.fail(name))["runs"]
    assert len(found) == 2
    assert "other" in {run["name"] for run in found}
    assert all(run["planned"] <= 2**53 for run in found)


def test_whatever_fails_in_one_run_does_not_hide_the_others(tmp_path, monkeypatch):
    for name in ("first", "second"):
        made_run(tmp_path, name, reports=2)
    true = catalogue.summary
    monkeypatch.setattr(catalogue, "summary", lambda path: true(path) if path.name == "first" else 1 / 0)
    found = {run["name"]: run for run in Catalogue(tmp_path).changes(-1)["runs"]}
    assert (found["first"]["state"], found["second"]["state"]) == ("finished", "unreadable")
    assert "ZeroDivisionError" in found["second"]["problem"]


def test_a_silent_run_is_named_and_gets_advice(tmp_path, monkeypatch):
    run = made_run(tmp_path, "quiet", planned=9000)
    for name in ("config.json", "metrics.csv"):
        os.utime(run.path / name, (1e9, 1e9))
    with lock.hold(run.path):
        visitor = client(tmp_path)
        assert visitor.get("/api/runs").json()["runs"][0]["trouble"] == ["silent"]
        found = visitor.get("/api/run", params={"run": id_of("quiet")}).json()["advice"]
        assert [finding["name"] for finding in found][:1] == ["silent"]
        assert "counterpoint resume" in found[0]["cure"]


def test_a_damaged_run_says_so(tmp_path):
    run = made_run(tmp_path, "hurt")
    text = run.metrics_path.read_bytes()
    run.metrics_path.write_bytes(text.replace(b"1900,0,", b"1900,7,"))
    visitor = client(tmp_path)
    listed = visitor.get("/api/runs").json()["runs"][0]
    assert listed["trouble"] == ["damaged"]
    assert "damaged or missing" in listed["problem"]
    assert visitor.get("/api/curves", params={"run": id_of("hurt")}).status_code == 200


def test_hostile_names_are_plain_text(tmp_path):
    name = HOSTILE.replace("/", "∕")
    made_run(tmp_path, name, columns=[f"eval/{HOSTILE}"], reports=3, note=HOSTILE)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_bytes(b'{"format": 1, "world": ' + b"[" * 5000)
    visitor = client(tmp_path)
    answer = visitor.get("/api/runs")
    assert answer.headers["content-type"] == "application/json"
    found = {run["state"]: run for run in answer.json()["runs"]}
    assert set(found) == {"finished", "unreadable"}
    for text in (found["finished"]["name"], found["finished"]["settings"]["note"], answer.text):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert found["finished"]["id"].isalnum()
    families = visitor.get("/api/metrics", params={"run": id_of(name)}).json()["families"]
    labels = {metric["label"]: metric["id"] for family in families for metric in family["metrics"]}
    strange = next(label for label in labels if "onerror" in label)
    drawn = visitor.get("/api/curves", params={"run": id_of(name), "metric": labels[strange], "by": "run"})
    assert drawn.json()["panels"][0]["groups"][0]["mean"] == [1.0, 2.0, 3.0]
    assert "\x1b" not in drawn.text
    table = visitor.get("/api/curves.csv", params={"run": id_of(name), "metric": labels[strange]})
    assert table.headers["content-disposition"] == 'attachment; filename="curves.csv"'


# --- Curves and statistics.


def asked(folder: Path, address: str, **fields):
    return client(folder).get(address, params={"run": [id_of("slow"), id_of("fast")]} | fields)


def test_statistics_are_those_of_compare(folder):
    found = asked(folder, "/api/statistics").json()
    result, _ = compare.judge(compare.group([folder / "slow", folder / "fast"]))
    assert len(result.pairs) == 1
    assert [(table["title"], table["header"], table["rows"]) for table in found["tables"]] == compare.tables(result)
    assert found["notes"] == result.notes


def test_bands_are_over_seeds(folder):
    (panel,) = asked(folder, "/api/curves").json()["panels"]
    assert panel["title"] == "simple_spread"
    assert [(group["label"], group["seeds"]) for group in panel["groups"]] == [("lr=0.01", 5), ("lr=0.02", 5)]
    group = panel["groups"][0]
    assert group["x"][:2] == [100.0, 200.0]
    assert group["mean"][0] == pytest.approx(-44)
    assert group["low"][0] < group["mean"][0] < group["high"][0]
    every = asked(folder, "/api/curves", seeds=1, smooth=4, x="steps").json()["panels"][0]["groups"][0]
    assert len(every["lines"]) == 5
    assert every["x"][0] == 2500.0
    assert every["mean"][5] == pytest.approx(-44 + 2 * (5 - 1.5))


def test_metrics_are_offered_by_team_and_agent(folder):
    families = {family["family"]: family["metrics"] for family in asked(folder, "/api/metrics").json()["families"]}
    agents = families["training: return of agents"]
    assert [metric["label"] for metric in agents] == ["agent_0", "agent_1"]
    assert "critic loss of agents" in families
    panels = asked(folder, "/api/curves", metric=[metric["id"] for metric in agents]).json()["panels"]
    assert [panel["metric"] for panel in panels] == ["return/agent_0", "return/agent_1"]


def test_a_run_without_the_metric_is_left_out_with_a_note(tmp_path):
    made_run(tmp_path, "with", columns=["eval/collisions"], lr=0.1)
    made_run(tmp_path, "without", lr=0.2)
    made_run(tmp_path, "new", reports=0, planned=100, lr=0.3)
    runs = [id_of(name) for name in ("with", "without", "new")]
    found = client(tmp_path).get("/api/curves", params={"run": runs, "metric": id_of("eval/collisions")}).json()
    assert len(found["panels"][0]["groups"]) == 1
    assert found["notes"] == ["new has no reports yet and is left out.", "without has no eval/collisions and is left out."]


def test_several_runs_without_reports_have_none(tmp_path):
    made_run(tmp_path, "with", reports=2)
    for name in ("new", "newer"):
        made_run(tmp_path, name, reports=0, planned=100)
    runs = [id_of(name) for name in ("with", "new", "newer")]
    found = client(tmp_path).get("/api/curves", params={"run": runs}).json()
    assert found["notes"][0] == "new, newer have no reports yet and are left out."


def test_seeds_without_a_common_part_are_in_sight(tmp_path):
    run = made_run(tmp_path, "apart", reports=0, planned=1000, seeds=2)
    for report in range(1, 7):
        run.append_metrics(row_of(report, seed=report // 4))
    (panel,) = client(tmp_path).get("/api/curves", params={"run": id_of("apart")}).json()["panels"]
    assert (panel["groups"][0]["x"], len(panel["groups"][0]["lines"])) == ([], 2)
    assert not panel["share"], "the axis is not that of a share, from 0 to 1"


def test_a_stage_is_kept_for_the_rivals_that_it_has(tmp_path, monkeypatch):
    from counterpoint.view import stages

    first, second = (made_run(tmp_path, name, reports=0, planned=9) for name in ("first", "second"))
    made, refused = [], [second.name]

    def load(run, *rest, **options):
        if run.name in refused:
            raise UsageError("there is no policy yet")
        return object.__new__(stages.Policy)

    class Text:
        def text(self, *parts):
            return ""

        allowed = text

    def prepared(team, rivals, about):
        made.append([name for name, _ in rivals])
        return Text(), ""

    monkeypatch.setattr(stages, "load", load)
    monkeypatch.setattr(stages, "load_history", lambda run, *rest, **options: [load(run)])
    monkeypatch.setattr(stages, "prepared", prepared)
    for name in ("check_rival", "compiled"):
        monkeypatch.setattr(stages, name, lambda *parts: SimpleNamespace(spec=None))
    monkeypatch.setattr(stages, "packed_rivals", lambda rivals: [])
    monkeypatch.setattr(stages.Stages, "_kept", lambda *parts: [])
    kept = stages.Stages()
    for act in (lambda: None, lambda: None, refused.clear, lambda: os.utime(second.path / "config.json", (1, 1))):
        act()
        kept.stage(first, 0, [second])
    assert made == [[], ["second"], ["second"]]
    many = [made_run(tmp_path, f"other-{k}", reports=0, planned=9) for k in range(7)]
    assert "so it leaves out other-5, other-6: choose fewer runs." in kept.stage(first, 0, many).note
    assert made[-1] == [f"other-{k}" for k in range(5)]


@pytest.mark.parametrize(
    "fields", [{"x": "moons"}, {"smooth": "0"}, {"smooth": "x"}, {"by": "seed"}, {"by": "nothing"}, {"metric": "abc"}]
)
def test_a_strange_wish_is_refused_in_a_sentence(folder, fields):
    answer = asked(folder, "/api/curves", **fields)
    assert answer.status_code == 422
    assert answer.json()["error"].endswith((".", "?"))


def test_too_many_groups_are_not_judged(tmp_path):
    for k in range(13):
        made_run(tmp_path, f"run{k}", reports=2, lr=k)
    runs = [id_of(f"run{k}") for k in range(13)]
    answer = client(tmp_path).get("/api/statistics", params={"run": runs})
    assert answer.status_code == 422
    assert "13 groups" in answer.json()["error"]
    assert len(client(tmp_path).get("/api/curves", params={"run": runs}).json()["panels"][0]["groups"]) == 13


def test_csv_has_every_point_and_no_formula(tmp_path):
    made_run(tmp_path, "=1+1", reports=3, seeds=2)
    text = client(tmp_path).get("/api/curves.csv", params={"run": id_of("=1+1")}).text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 6
    assert {row["run"] for row in rows} == {"'=1+1"}
    assert [float(row["value"]) for row in rows[:3]] == [-46.0, -44.0, -42.0]


# --- Learners, film, the command.


def test_learners_over_time(tmp_path):
    run = made_run(tmp_path, "coded")
    times = {"sent": 0.0, "waited": 0.1, "computed": 0.5, "arrived": 1.0}
    outcomes = ((0, 0, "used"), (0, 1, "stopped"), (1, 0, "used"), (1, 1, "lost"))
    tasks = [
        {"update": update, "learner": learner, "scheme": "mds", "agents": "0+1", **times, "outcome": outcome}
        for update, learner, outcome in outcomes
    ]
    learners_table(run, tasks)
    visitor = client(tmp_path)
    assert visitor.get("/api/runs").json()["runs"][0]["distributed"] is True
    found = visitor.get("/api/learners", params={"run": id_of("coded")}).json()
    assert [(task["learner"], task["outcome"], task["sent"]) for task in found["tasks"]][2:] == [
        (0, "used", 1.04),
        (1, "lost", 1.04),
    ]
    assert found["learners"][1] == {"learner": 1, "used": 0, "unused": 0, "stopped": 1, "lost": 1}
    made_run(tmp_path, "alone")
    assert visitor.get("/api/learners", params={"run": id_of("alone")}).status_code in (404, 422)


def test_only_a_film_is_shown_as_a_film(tmp_path):
    run = made_run(tmp_path, "filmed")
    visitor = client(tmp_path)
    assert visitor.get("/film", params={"run": id_of("filmed")}).status_code == 404
    run.gif_path.write_bytes(b"<script>alert(1)</script>")
    assert visitor.get("/film", params={"run": id_of("filmed")}).status_code == 422
    run.gif_path.write_bytes(b"GIF89a and more")
    answer = visitor.get("/film", params={"run": id_of("filmed")})
    assert answer.headers["content-type"] == "image/gif"


def test_a_run_stands_for_its_folder(folder, monkeypatch):
    assert place_of(folder) == (folder, "")
    assert place_of(folder / "slow") == (folder.resolve(), "slow")
    with pytest.raises(UsageError, match="is not a folder"):
        place_of(folder / "nowhere")


def test_a_bare_name_stands_for_a_run_in_runs(tmp_path, monkeypatch):
    made_run(tmp_path / "runs", "simple_tag")
    made_run(tmp_path / "runs" / "grid", "cell")
    (tmp_path / "simple_tag").mkdir()  # a folder of films, say, that is no run
    monkeypatch.chdir(tmp_path)
    runs = (tmp_path / "runs").resolve()
    assert place_of("simple_tag") == (runs, "simple_tag")
    assert place_of("grid/cell") == (runs / "grid", "cell")
    assert place_of("grid")[0].resolve() == runs / "grid"


def test_without_the_extra_one_sentence_says_what_to_install(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "counterpoint.view.server", None)
    monkeypatch.delitem(sys.modules, "counterpoint.view.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setattr(sys, "argv", ["counterpoint", "view", str(folder)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "needs uvicorn, which is not installed: pip install 'counterpoint[view]'" in capsys.readouterr().err


def test_the_command_prints_a_link_and_ends_when_interrupted(folder):
    import http.client
    import signal

    words = [sys.executable, "-m", "counterpoint", "view", str(folder / "slow")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        link = line.rpartition(" ")[2].strip()
        host, _, rest = link.removeprefix("http://").partition("/")
        assert host.startswith("127.0.0.1:")
        assert rest.endswith(f"#run={id_of('slow')}")
        connection = http.client.HTTPConnection(host)
        connection.request("GET", "/" + rest.partition("#")[0])
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, 130)
    assert "Traceback" not in errors


def test_python_serves_the_page_until_it_is_closed(folder):
    with counterpoint.view_runs(folder / "slow") as page:
        address = page.url.partition("#")[0]
        with urllib.request.urlopen(address.replace("?", "api/runs?")) as answer:
            assert {run["name"] for run in json.load(answer)["runs"]} == {"slow", "fast", "tag"}
        assert page.url.endswith(f"#run={id_of('slow')}")
        with pytest.raises(UsageError, match="cannot be used"):
            counterpoint.view_runs(folder, port=int(address.partition("/?")[0].rpartition(":")[2]))
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address)
    page.close()
    page.wait()


def test_python_opens_the_browser_if_asked(folder, monkeypatch):
    links = []
    monkeypatch.setattr(webbrowser, "open", links.append)
    with counterpoint.view_runs(folder, open_browser=True) as page:
        assert links == [page.url]


def test_json_is_json(folder):
    text = asked(folder, "/api/curves").text
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name))


def test_advice_is_that_of_why(tmp_path, monkeypatch):
    asked_for = []

    def diagnose(run, play):
        asked_for.append((run.name, play))
        return [why.Finding("mute", "No words.", f"{HOSTILE} 0.0 bits", "Speak up.")]

    monkeypatch.setattr(why, "diagnose", diagnose)
    made_run(tmp_path, "silent")
    visitor = client(tmp_path)
    for _ in range(2):
        (found,) = visitor.get("/api/run", params={"run": id_of("silent")}).json()["advice"]
        assert (found["name"], found["words"], found["cure"]) == ("mute", "No words.", "Speak up.")
        assert "\x1b" not in found["evidence"]
    assert asked_for == [("silent", False)]  # once, as long as nothing changes, and without playing


def test_a_run_that_diverged_is_marked_and_gets_the_advice_of_why(tmp_path):
    """Training gives up before it writes a report of what diverged, so every report is finite."""
    run = made_run(tmp_path, "bad")
    visitor = client(tmp_path)
    first = visitor.get("/api/runs").json()
    assert first["runs"][0]["trouble"] == []
    run.save_divergence("the actor of agent_0 became infinite or NaN by step 9.")
    time.sleep(2 * catalogue.REST)
    (listed,) = visitor.get("/api/runs", params={"since": first["revision"]}).json()["runs"]
    assert listed["trouble"] == ["diverged"]
    (found,) = visitor.get("/api/run", params={"run": id_of("bad")}).json()["advice"]
    assert (found["name"], found["evidence"]) == ("diverged", "the actor of agent_0 became infinite or NaN by step 9.")
    assert "--lr" in found["cure"]
    run.save_divergence("")
    time.sleep(2 * catalogue.REST)
    assert visitor.get("/api/runs").json()["runs"][0]["trouble"] == []


def test_reports_of_a_mute_speaker_give_the_advice_of_why(tmp_path):
    run = made_run(tmp_path, "mute", reports=0, planned=100, algorithm="ddpg", scenario="simple_reference")
    for report in range(1, 21):
        flat = dict.fromkeys(("team/good", "eval/team/good", "return/agent_0", "return/agent_1"), -10.0 - report % 2)
        words = {"eval/message_variation/agent_0": 0.001, "eval/action_variation/agent_0": 0.8, "eval/success": 0.1}
        run.append_metrics(row_of(report) | flat | words)
    found = client(tmp_path).get("/api/run", params={"run": id_of("mute")}).json()["advice"]
    mute = next(finding for finding in found if finding["name"] == "mute speaker")
    assert "agent_0" in mute["words"]
    assert "--algorithm maddpg" in mute["cure"]


def test_a_shared_page_has_results_and_no_diagnostic_statistics():
    shown = share.results([row_of(4) | {"eval/action_variation/agent_0": 0.5, "eval/at_bound/agent_0": 0.25}])
    assert "team/good" in shown
    assert "variation" not in shown
    assert "bound" not in shown
