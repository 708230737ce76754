"""A flipped or cut byte in any file of a run is noticed, or changes nothing."""

import json
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterpoint import runs
from counterpoint.core.errors import Damage, UsageError
from counterpoint.runs import files, history, integrity, metrics
from counterpoint.runs.folder import Run

TENSORS = {"w": np.arange(24, dtype=np.float32).reshape(1, 4, 6)}
ABOUT = {"episodes": 8, "step": 200, "agents": ["a"], "finished": True}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = runs.create(tmp_path, "run", {"algorithm": "maddpg", "world": {"scenario": "simple"}, "training": {"lr": 0.01}})
    for i in range(30):
        made.append_metrics({"step": 25 * i, "episode": i, "seed": 0, 'return/agent, "0"': -i / 7})
    made.append_learners(["update", "outcome"], [{"update": i, "outcome": "used"} for i in range(9)])
    made.save_policy(TENSORS, ABOUT)
    history.keep(made, TENSORS, ABOUT, 4)
    made.save_spec({"name": "simple", "agents": ["a"]})
    for step in (100, 200):
        made.save(step, {"x": np.arange(step)}, {"seconds": 1.5, "fresh": True})
    folder = made.path / "export" / "numpy"
    folder.mkdir(parents=True)
    (folder / "team.npz").write_bytes(bytes(range(200)))
    sums = {"team.npz": files.digest_of_file(folder / "team.npz")}
    (folder / "export.json").write_text(json.dumps(files.sealed({"files": ["team.npz"], "sums": sums}), indent=2))
    return made


def uses(run: Run) -> dict[str, Callable[[], Any]]:
    """What commands read of a run."""
    return {
        "settings": lambda: run.config,
        "spec": run.load_spec,
        "rows": run.rows,
        "last rows": lambda: metrics.last_rows(run.metrics_path, 3),
        "learners": lambda: metrics.read_rows(run.learners_path),
        "policy": run.load_policy,
        "history": lambda: history.load_at(run, 8),
        "checkpoint": run.load,
        "all": lambda: [finding for finding in integrity.check(run.path) if finding.state == "damaged"],
    }


def damaged(data: bytes, count: int, rng: random.Random) -> Iterator[bytes]:
    """Yields copies with one bit flipped, and copies that are cut short."""
    for _ in range(count):
        at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        yield data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
        yield data[: rng.randrange(len(data))]


def test_no_damage_goes_unnoticed(run: Run) -> None:
    truth = {name: repr(use()) for name, use in uses(run).items()}
    assert truth["all"] == "[]"
    rng, outcomes = random.Random(0), {"noticed": 0, "harmless": 0}
    for path in sorted(path for path in run.path.rglob("*") if path.is_file()):
        data = path.read_bytes()
        for copy in damaged(data, 10, rng):
            path.write_bytes(copy)
            for name, use in uses(run).items():
                with warnings.catch_warnings():
                    warnings.simplefilter("error", Damage)
                    try:
                        found = use()
                        told = name == "all" or (name == "checkpoint" and found is not None and found.problems)
                        outcome = "harmless" if repr(found) == truth[name] else "noticed" if told else "UNNOTICED"
                    except (UsageError, Damage):
                        outcome = "noticed"
                assert outcome in outcomes, f"{path.name}, {name}: {copy!r}"
                outcomes[outcome] += 1
        path.write_bytes(data)
    assert outcomes["noticed"] > 200, outcomes


def test_verify_names_the_damaged_file_and_what_helps(run: Run) -> None:
    data = bytearray(run.policy_path.read_bytes())
    data[-1] ^= 1
    run.policy_path.write_bytes(data)
    [finding] = [finding for finding in integrity.check(run.path) if finding.state != "intact"]
    assert finding.file == "policy.safetensors"
    assert finding.state == "damaged"
    assert "use another policy of the run by --at" in finding.note


def test_damaged_rows_are_left_out_with_a_warning_and_a_resume_drops_them(run: Run) -> None:
    lines = run.metrics_path.read_bytes().split(b"\n")
    lines[5] = lines[5].replace(b"4", b"5", 1)
    run.metrics_path.write_bytes(b"\n".join(lines))
    with pytest.warns(Damage, match=r"1 of 30 rows of .*metrics.csv are damaged or missing and left out: the other rows"):
        assert len(run.rows()) == 29
    assert "1 of 30 rows" in run.rewind(200)
    assert len(run.rows()) == 8
    run.append_metrics({"step": 225, "episode": 9, "seed": 0})
    assert len(run.rows()) == 9


def test_a_damaged_row_is_found_although_a_record_before_it_lost_a_byte(run: Run) -> None:
    sums = metrics.sums_path(run.metrics_path)
    data = sums.read_bytes()
    sums.write_bytes(data[: 3 * metrics.RECORD] + data[3 * metrics.RECORD + 1 :])
    lines = run.metrics_path.read_bytes().split(b"\n")
    lines[25] = lines[25].replace(b"2", b"3", 1)
    run.metrics_path.write_bytes(b"\n".join(lines))
    with pytest.warns(Damage, match="2 of 30 rows"):  # the row, and the one whose record is gone
        assert len(run.rows()) == 28


def test_a_table_with_damaged_columns_is_moved_aside_by_a_resume(run: Run) -> None:
    run.metrics_path.write_bytes(b"stop" + run.metrics_path.read_bytes()[4:])
    with pytest.raises(UsageError, match="damaged in its first line"):
        run.rows()
    assert "it is now metrics.damaged.csv" in run.rewind(100)
    run.append_metrics({"step": 125, "episode": 5, "seed": 0})
    assert len(run.rows()) == 1


def test_older_runs_without_checksums_are_read(run: Run) -> None:
    config = json.loads((run.path / "config.json").read_text())
    del config["sha256"]
    (run.path / "config.json").write_text(json.dumps(config))
    metrics.sums_path(run.metrics_path).unlink()
    run.policy_path.write_bytes(files.pack_tensors(TENSORS, {"about": files.compact_json(ABOUT)}))
    assert run.config["training"] == {"lr": 0.01}
    assert len(run.rows()) == 30
    assert run.load_policy()[1] == ABOUT
    manifest = run.path / "export" / "numpy" / "export.json"
    facts = json.loads(manifest.read_text())
    del facts["sha256"]
    manifest.write_text(json.dumps(facts))
    states = {f.file: f.state for f in integrity.check(run.path)}
    unchecked = {name for name, state in states.items() if state == "unchecked"}
    assert unchecked == {"config.json", "metrics.csv", "policy.safetensors", "export/numpy/export.json"}
    assert "damaged" not in states.values()


@pytest.mark.parametrize("change", [lambda text: text.replace("sha256", "sha257"), lambda text: "{}"])
def test_settings_that_cannot_be_opened_are_damaged(change: Callable[[str], str], run: Run) -> None:
    path = run.path / "config.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(UsageError):
        runs.open_run(run.path)
    assert integrity.check(run.path)[0][:2] == ("config.json", "damaged")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n\n\n",
        b"episode,seed\n1,0\n",
        b"step\xff\xfe,seed\n\xff,0\n",
        b"step,seed\n" + b"x" * 200_000 + b",0\n1,1\n",
        b'step,"seed\n1,0\n',
        b"step,seed\n" + b"9" * 5000 + b",0\n",
        b"step,seed\nnan,inf\n1e999,-0\n",
    ],
)
def test_an_odd_table_is_read_as_far_as_it_can_be_and_a_run_goes_on(text: bytes, tmp_path: Path) -> None:
    run = runs.create(tmp_path, "odd", {"algorithm": "maddpg"})
    run.metrics_path.write_bytes(text)
    assert isinstance(run.rows(), list)
    assert isinstance(metrics.last_rows(run.metrics_path, 2), list)
    run.rewind(100)
    if b"step,seed" in text or not run.metrics_path.exists():
        run.append_metrics({"step": 5, "seed": 0})
        assert run.rows()[-1]["step"] == 5


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b"[1, 2]",
        b"7",
        b'{"format": NaN}',
        b'{"format": "1"}',
        b'{"format": 1e400}',
        b'{"format": ' + b"9" * 5000 + b"}",
        b"\xff\xfe",
        b'{"format": 1, "x": "' + b"y" * 11_000_000 + b'"}',
    ],
)
def test_a_hostile_settings_file_is_refused_in_one_sentence(text: bytes, tmp_path: Path) -> None:
    run = runs.create(tmp_path, "odd", {"algorithm": "maddpg"})
    (run.path / "config.json").write_bytes(text)
    with pytest.raises(UsageError) as error:
        runs.open_run(run.path)
    assert len(str(error.value)) < 600
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [{"capacity": 2**60}, {"capacity": -1}, {"step": "x"}, {"counters": []}, {"added": None}, {"segments": 5}, {"state": {}}],
)
def test_a_hostile_manifest_with_a_right_checksum_is_skipped(change: dict[str, Any], run: Run) -> None:
    import hashlib

    path = max((run.path / "checkpoints").glob("ckpt-*.json"))
    facts = json.loads(path.read_bytes())["checkpoint"] | change
    digest = hashlib.sha256(files.compact_json(facts).encode()).hexdigest()
    path.write_bytes(files.compact_json({"sha256": digest, "checkpoint": facts}).encode())
    saved = run.load()
    assert saved is not None
    if change != {"capacity": 2**60}:  # without a replay, its capacity does not matter
        assert saved.step == 100
        assert saved.problems
