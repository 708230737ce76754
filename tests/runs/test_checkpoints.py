"""Checkpoints survive kills, damage and a full disk, and restore the replay ring exactly."""

import errno
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint import runs
from counterpoint.core.errors import UsageError
from counterpoint.runs import Saver, Segment, files


@pytest.fixture
def run(tmp_path):
    return runs.create(tmp_path, "tag", {"algorithm": "maddpg"})


def state_of(step):
    return {"agents/w": np.full((2, 3), step, np.float32), "key": np.full(2, step, np.uint32)}


def rows_of(values):
    """One row of two floats per value, on two devices; the second holds the negatives."""
    column = np.array(values, np.float32).reshape(1, -1, 1)
    return np.concatenate([column, -column]) * np.array([[[1, 10]]], np.float32)


def save(run, step, first, values, capacity=8, **kwargs):
    run.save(step, state_of(step), {"step": step}, [Segment(first, rows_of(values))], capacity, **kwargs)


def three_saves(run):
    """Rows 1–4, 5–8 and 9–12 in a ring of 8: the last two checkpoints stay."""
    for step in (1, 2, 3):
        save(run, step, 4 * step - 4, range(4 * step - 3, 4 * step + 1))


def files_of(run, step):
    """Returns the names of the files that only this checkpoint needs, by kind."""
    names = os.listdir(run.path / "checkpoints")
    return {
        "manifest": next(name for name in names if name == f"ckpt-{step:012d}.json"),
        "state": next(name for name in names if name.startswith(f"state-{step:012d}")),
        "replay": next(name for name in names if name.startswith(f"replay-{4 * step - 4:012d}")),
    }


def test_checkpoint_round_trip(run):
    state = {
        "weights": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32).T,
        "count": np.array(7, np.int32),
        "mask": np.array([True, False]),
        "key": np.array([1, 2**32 - 1], np.uint32),
        "empty": np.zeros((0, 3), np.float32),
    }
    counters = {"episodes": np.int64(3), "best": np.float32(0.5), "seeds": (1, 2), "lowest": float("-inf")}
    run.save(10, state, counters)
    loaded = run.load()
    assert (loaded.step, loaded.added, loaded.ring, loaded.problems) == (10, 0, None, ())
    assert loaded.counters == {"episodes": 3, "best": 0.5, "seeds": [1, 2], "lowest": float("-inf")}
    assert loaded.state.keys() == state.keys()
    for name, array in state.items():
        assert loaded.state[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded.state[name], array)


def test_bytes_on_disk_are_those_of_format_1(run):
    """The names carry the checksums of the content, so these lines fix every byte: older run folders still load."""
    three_saves(run)
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (run.path / "checkpoints").iterdir()}
    assert sorted(digests) == [
        "ckpt-000000000002.json",
        "ckpt-000000000003.json",
        "replay-000000000000-2346eda5.safetensors",
        "replay-000000000004-76d1ed5b.safetensors",
        "replay-000000000008-776a02c1.safetensors",
        "state-000000000002-6a7aa808.safetensors",
        "state-000000000003-4ca939d7.safetensors",
    ]
    assert digests["ckpt-000000000002.json"].startswith("2089b9cc3f9469d6")
    assert digests["ckpt-000000000003.json"].startswith("04064a0a6bd704c8")


def test_same_step_saved_again(run):
    three_saves(run)
    run.save(3, state_of(33), {}, [Segment(12, rows_of([]))], 8)
    loaded = run.load()
    assert loaded.state["key"][0] == 33
    assert loaded.added == 12
    assert loaded.ring[0, :, 0].tolist() == [9, 10, 11, 12, 5, 6, 7, 8]


def test_only_new_rows_are_written_and_old_files_go(run):
    (run.path / "checkpoints" / "mine.txt").write_text("not yours")
    three_saves(run)
    folder = run.path / "checkpoints"
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    rows = ["replay-000000000000", "replay-000000000004", "replay-000000000008"]
    assert sorted(path.name[:19] for path in before if path.name.startswith("replay")) == rows
    assert len(before) == 1 + 2 + 2 + 3
    save(run, 4, 12, range(13, 17))
    after = set(folder.iterdir())
    assert all(path.stat().st_mtime_ns == before[path] for path in after & set(before))
    assert {path.name[:19] for path in set(before) - after} == {
        "ckpt-000000000002.j",
        "replay-000000000000",
        "state-000000000002-",
    }
    assert {path.name[:19] for path in after - set(before)} == {
        "ckpt-000000000004.j",
        "replay-000000000012",
        "state-000000000004-",
    }


def test_segments_must_be_contiguous(run):
    with pytest.raises(ValueError, match=r"the ring needs the rows 0 to 6"):
        save(run, 1, 4, [1, 2])
    with pytest.raises(ValueError, match=r"must pass a segment"):
        run.save(1, {}, {}, [], 8)
    with pytest.raises(ValueError, match=r"the ring needs"):
        run.save(1, {}, {}, [Segment(0, rows_of([1])), Segment(2, rows_of([3]))], 8)
    assert os.listdir(run.path / "checkpoints") == []
    save(run, 1, 100, range(8))  # a segment that fills the ring needs no earlier rows
    assert run.load().ring[0, :, 0].tolist() == [4, 5, 6, 7, 0, 1, 2, 3]


def test_rows_the_ring_has_lost_are_not_written(run):
    run.save(1, {}, {}, [Segment(0, rows_of(range(5))), Segment(5, rows_of(range(5, 20)))], 8)
    (path,) = (run.path / "checkpoints").glob("replay-*")
    assert path.name.startswith("replay-000000000012-")
    assert path.stat().st_size < 8 * 16 + 200
    assert run.load().ring[1, :, 0].tolist() == [-16, -17, -18, -19, -12, -13, -14, -15]


def test_removed_segment_is_noticed_at_the_next_save(run):
    three_saves(run)
    gone = files_of(run, 3)["replay"]
    (run.path / "checkpoints" / gone).unlink()
    with pytest.raises(UsageError, match=f"{gone} was removed or truncated"):
        save(run, 4, 12, range(13, 17))


EVENT = st.tuples(
    st.lists(st.integers(0, 12), min_size=1, max_size=3), st.sampled_from(["go", "resume", "damage", "damage, rewind"]),
    st.integers(1, 3),
)  # fmt: skip


@settings(max_examples=80)
@given(capacity=st.integers(1, 9), events=st.lists(EVENT, min_size=1, max_size=8))
def test_ring_equals_a_list(capacity, events):
    """After any sequence of additions, saves, damage and resumption, the ring holds the last rows of a plain list."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(os, "fsync"):
        run = runs.create(folder, "run", {})
        past: list[float] = []  # every row added on the current course
        saved: dict[int, list[float]] = {}
        step, fresh_value, whole = 0, 0, 0
        for sizes, event, stride in events:
            segments = []
            for size in sizes:
                values = [fresh_value + i + 1 for i in range(size)]  # never the same value, not even after going back
                fresh_value += size
                segments.append(Segment(len(past), rows_of(values)))
                past = past + values
            step += stride
            run.save(step, state_of(step), {"rows": len(past)}, segments, capacity)
            saved[step] = past
            whole += 1
            if event.startswith("damage") and whole >= 2:
                newest = next((run.path / "checkpoints").glob(f"state-{step:012d}-*"))
                newest.write_bytes(newest.read_bytes()[:-1] + b"\xff")
                broken = step
            elif event == "go":
                continue
            else:
                broken = None
            loaded = run.load()
            step, past = loaded.step, saved[loaded.step]
            assert (broken is None) == (loaded.problems == ())
            assert step == max(s for s in saved if s != broken)
            if broken is not None:
                del saved[broken]
                whole = 1 if event == "damage, rewind" else 0
            if event == "damage, rewind":
                run.rewind(step)
            expected = np.zeros((2, capacity, 2), np.float32)
            for i in range(max(0, len(past) - capacity), len(past)):
                expected[:, i % capacity] = rows_of([past[i]])[:, 0]
            assert loaded.added == loaded.counters["rows"] == len(past)
            assert loaded.state["key"][0] == step
            assert (loaded.ring is None) == (not past)
            if past:
                np.testing.assert_array_equal(loaded.ring, expected)


@pytest.mark.parametrize("kind", ["manifest", "state", "replay"])
@pytest.mark.parametrize("harm", ["truncate", "flip", "empty", "remove"])
def test_damage_is_named_and_the_previous_checkpoint_used(run, kind, harm):
    three_saves(run)
    path = run.path / "checkpoints" / files_of(run, 3)[kind]
    data = path.read_bytes()
    if harm == "remove":
        path.unlink()
    else:
        harmed = {"truncate": data[:-1], "empty": b"", "flip": bytes([data[0] ^ 1]) + data[1:]}[harm]
        path.write_bytes(harmed)
    before = sorted(os.listdir(run.path / "checkpoints"))
    loaded = run.load()
    assert loaded.step == 2
    assert loaded.state["key"].tolist() == [2, 2]
    assert loaded.ring[0, :, 0].tolist() == list(range(1, 9))
    if (kind, harm) == ("manifest", "remove"):  # nothing shows that it existed
        assert loaded.problems == ()
    else:
        (problem,) = loaded.problems
        assert f"because {path.name} is {'missing' if harm == 'remove' else ''}" in problem
        assert "checkpoint 3 of" in problem
    assert sorted(os.listdir(run.path / "checkpoints")) == before

    save(run, 3, 8, range(9, 13))  # the resumed run reaches the same step and writes the same file names
    assert path.read_bytes() == data
    loaded = run.load()
    assert (loaded.step, loaded.problems) == (3, ())
    assert loaded.ring[0, :, 0].tolist() == [9, 10, 11, 12, 5, 6, 7, 8]


def test_every_flipped_bit_of_a_small_checkpoint_is_found(run):
    with mock.patch.object(os, "fsync"):
        three_saves(run)
    for name in files_of(run, 3).values():
        path = run.path / "checkpoints" / name
        data = path.read_bytes()
        for at in range(len(data)):
            path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
            loaded = run.load()
            assert loaded.step == 2, (name, at)
            assert name in loaded.problems[0]
        path.write_bytes(data)
    assert run.load().step == 3


def test_without_an_intact_checkpoint_the_files_are_named(run):
    three_saves(run)
    shared = next(name for name in os.listdir(run.path / "checkpoints") if name.startswith("replay-000000000004"))
    (run.path / "checkpoints" / shared).write_bytes(b"")
    state = files_of(run, 3)["state"]
    (run.path / "checkpoints" / state).unlink()
    with pytest.raises(UsageError, match=f"no intact checkpoint.*{state} is missing.*{shared} is truncated"):
        run.load()


def test_rewind_removes_later_damaged_checkpoints(run):
    three_saves(run)
    for step in (1, 2, 3):
        run.append_metrics({"step": step})
    (run.path / "checkpoints" / files_of(run, 3)["state"]).unlink()
    run.rewind(run.load().step)
    assert run.rows() == [{"step": 1}, {"step": 2}]
    save(run, 4, 8, range(9, 13))
    assert sorted(path.name for path in (run.path / "checkpoints").glob("ckpt-*")) == [
        "ckpt-000000000002.json", "ckpt-000000000004.json"
    ]  # fmt: skip
    assert run.load().problems == ()


def test_checkpoints_of_an_abandoned_course_are_removed(run):
    save(run, 1, 0, [1])
    save(run, 9, 1, [2])
    (run.path / "checkpoints" / next((run.path / "checkpoints").glob("state-000000000009-*")).name).write_bytes(b"")
    assert run.load().step == 1
    save(run, 5, 1, [3])
    assert run.load().step == 5
    assert run.load().problems == ()


CHILD = """
import sys
import numpy as np
from counterpoint import runs
from counterpoint.runs import Saver, Segment

run = runs.open_run(sys.argv[1])
loaded = run.load()
step, added = (loaded.step, loaded.added) if loaded else (0, 0)
run.rewind(step)
print("ready", flush=True)
with Saver(run) as saver:
    while True:
        step += 1
        run.append_metrics({"step": step, "twice": 2 * step})
        rows = np.arange(added, added + 7, dtype=np.float32).reshape(1, 7, 1) + np.zeros((2, 1, 500), np.float32)
        state = {name: np.full(20_000, step, np.float32) for name in "abc"}
        saver.submit(step, state, {"step": step}, [Segment(added, rows[:, :4]), Segment(added + 4, rows[:, 4:])], 50)
        added += 7
"""


def test_killed_at_any_moment(run):
    """After each of six kills, the newest intact checkpoint is one state of the run, and the next child continues from it."""
    moments = random.Random(1)
    step = 0
    for _ in range(6):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(run.path)], stdout=subprocess.PIPE)
        with child:
            assert child.stdout.readline() == b"ready\n"
            time.sleep(moments.uniform(0.05, 0.35))
            child.send_signal(signal.SIGKILL)
        loaded = run.load()
        if loaded is None:
            assert step == 0
            continue
        assert loaded.problems == ()
        assert loaded.step >= step
        step = loaded.step
        assert loaded.counters == {"step": step}
        assert loaded.added == 7 * step
        assert all((array == step).all() for array in loaded.state.values())
        expected = np.zeros(50, np.float32)
        for i in range(max(0, loaded.added - 50), loaded.added):
            expected[i % 50] = i
        np.testing.assert_array_equal(loaded.ring, np.broadcast_to(expected[None, :, None], (2, 50, 500)))
        rows = run.rows()
        assert rows == [{"step": at, "twice": 2 * at} for at in range(1, len(rows) + 1)]
        assert len(rows) >= step
    assert step >= 6
    assert len(list((run.path / "checkpoints").glob("ckpt-*"))) in (2, 3)


def full_disk(monkeypatch, kind):
    """Makes the disk appear full after half of the bytes of each file of a kind."""

    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

        def write(self, data):
            self.file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

    def open_full(path, mode):
        file = open(path, mode)  # noqa: SIM115 (the caller closes it)
        return Full(file) if Path(path).name.startswith(f".{kind}") else file

    monkeypatch.setattr(files, "open", open_full, raising=False)


@pytest.mark.parametrize("kind", ["replay", "state", "ckpt"])
def test_full_disk_leaves_the_previous_checkpoint(run, monkeypatch, kind):
    three_saves(run)
    saver = Saver(run)
    with monkeypatch.context() as patch:
        full_disk(patch, kind)
        saver.submit(4, state_of(4), {}, [Segment(12, rows_of([13, 14]))], 8)
        with pytest.raises(UsageError, match=f"{kind}-.* because the disk is full: free some space"):
            saver.submit(5, state_of(5), {}, [Segment(12, rows_of([13, 14]))], 8)
    assert list((run.path / "checkpoints").glob(".*")) == []
    loaded = run.load()
    assert (loaded.step, loaded.problems) == (3, ())
    saver.submit(5, state_of(5), {}, [Segment(12, rows_of([13, 14]))], 8)  # after some space was freed
    saver.close()
    assert run.load().step == 5
    assert len(os.listdir(run.path / "checkpoints")) == 2 + 2 + 3


def test_full_disk_is_reported_at_close(run, monkeypatch):
    full_disk(monkeypatch, "state")
    with pytest.raises(UsageError, match=r"state-.*disk is full"), Saver(run) as saver:
        saver.submit(1, state_of(1), {})
    assert run.load() is None


def test_saver_saves_in_the_background_one_at_a_time(run):
    go, active, most = threading.Event(), [], []
    write = files.write_durably

    def slow(path, data):
        active.append(path)
        most.append(len(active))
        assert go.wait(10)
        write(path, data)
        active.remove(path)

    with mock.patch.object(files, "write_durably", slow), Saver(run) as saver:
        saver.submit(1, state_of(1), {})
        assert run.load() is None  # submit came back while the save still waits
        threading.Timer(0.05, go.set).start()
        saver.submit(2, state_of(2), {})
        assert go.is_set()  # the second waited for the first
        assert run.load().step >= 1
        saver.wait()
        assert run.load().step == 2
    assert max(most) == 1


def test_files_appear_complete_and_the_manifest_last(run, monkeypatch):
    """Bytes go to a hidden file that is on disk before it takes its name, and the name before the next file is begun."""
    log = []
    replace, fsync = os.replace, os.fsync

    def open_logged(path, mode):
        log.append(f"{mode} {'hidden' if Path(path).name.startswith('.') else Path(path).name}")
        return open(path, mode)

    monkeypatch.setattr(files, "open", open_logged, raising=False)
    monkeypatch.setattr(os, "fsync", lambda descriptor: (log.append("sync"), fsync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda temp, path: (log.append(path.name.split("-")[0]), replace(temp, path)))
    save(run, 1, 0, [1, 2])
    assert log == [step for kind in ("replay", "state", "ckpt") for step in ("wb hidden", "sync", kind, "sync")]


def test_leftovers_of_a_kill_are_removed(run):
    for name in (".state-000000000001-0a1b2c3d.safetensors.tmp", "replay-000000000000-0a1b2c3d.safetensors"):
        (run.path / "checkpoints" / name).write_bytes(b"half")
    save(run, 2, 0, [1])
    assert len(os.listdir(run.path / "checkpoints")) == 3
    assert run.load().step == 2
