"""Attacks real training processes, their files, their environments and their arguments, and counts what goes wrong.

    make chaos                      the long version, at least 500 attacks
    make chaos ARGS=--short         under two minutes, for every change
    make chaos ARGS="--seed 7 --only files,kills --count 50"

Deterministic from the seed: the same attacks in the same order, though a signal meets a process where the machine's speed has
brought it. After each attack on a process the run is resumed until it is finished and compared with the undisturbed one, bit by
bit. Every process carries a mark; whatever has the mark after the attack is an orphan. A hang is a process that has not ended
after --limit seconds.
"""

import argparse
import contextlib
import io
import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from counterpoint.core import marked
from counterpoint.core.errors import Damage, UsageError
from counterpoint.runs import history, integrity, metrics
from counterpoint.runs.folder import Run

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "robustness.md"
MARK = "COUNTERPOINT_CHAOS"
TIMES = ("seconds", "steps_per_second")
CHECKED = (".json", ".csv", ".sums", ".safetensors")
BEGIN, END = "<!-- chaos: begin -->", "<!-- chaos: end -->"
SEEN_BEGIN, SEEN_END = "<!-- sockets: begin -->", "<!-- sockets: end -->"
SMALL = (
    "--batch-size 32 --num-units 8 --warmup 100 --devices 1 --report-every 8 --save-rate 8 --eval-episodes 2 --plots-dir="
    " --num-episodes 48 --update-every 50"
)
ROLLOUTS = "--num-units 8 --devices 1 --report-every 8 --save-rate 8 --eval-episodes 2 --plots-dir= --num-episodes 48"
KINDS = {
    "maddpg": f"--scenario simple_spread --scenario-args N=2 {SMALL}",
    "matd3": f"--scenario simple_spread --scenario-args N=2 --algorithm matd3 {SMALL}",
    "masac": f"--scenario simple_spread --scenario-args N=2 --algorithm masac {SMALL}",
    "coma": f"--scenario simple_spread --scenario-args N=2 --algorithm coma {ROLLOUTS}",
    "mappo": f"--scenario simple_spread --scenario-args N=2 --algorithm mappo {ROLLOUTS}",
    "seeds": f"--scenario simple --num-seeds 2 {SMALL}",
    "external": f"--env {HERE / 'hostile.py'}:Hostile --num-envs 2 --workers 2 {SMALL}",
    "grid": f"--scenario simple --lr 0.01,0.02 {SMALL}",
    "learners": f"--scenario simple_spread --scenario-args N=2 --learners 2 --code backup {SMALL}",
}
"""The kinds of training process, by name."""
FINE = {0, 2, 3, 4, 130}
"""Exit codes that counterpoint promises; 1 is an error that nobody caught."""


class Outcome(NamedTuple):
    """What an attack led to."""

    what: str
    """equal bits, noticed, harmless, refused, went on."""
    faults: tuple[str, ...] = ()
    """What must not happen: orphans, temporary files, tracebacks, hangs, other bits, unnoticed damage, wrong exit codes."""


@dataclass
class Tally:
    """What happened in one category."""

    attacks: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def add(self, name: str, outcome: Outcome) -> None:
        self.attacks += 1
        self.outcomes[outcome.what] = self.outcomes.get(outcome.what, 0) + 1
        self.faults += [f"{name}: {fault}" for fault in outcome.faults]


class Ended(NamedTuple):
    """A process that has ended, or was killed because it hung."""

    code: int
    said: str
    hung: bool


class Chaos:
    """Runs attacks in a folder of its own."""

    def __init__(self, seed: int, limit: float) -> None:
        self.rng, self.limit = random.Random(seed), limit
        self.folder = Path(tempfile.mkdtemp(prefix="counterpoint-chaos-"))
        self.mark = f"{os.getpid()}-{self.folder.name}"
        self.calm: dict[str, Path] = {}
        self.numbers = itertools.count()
        self.watches: list[str] = []

    def start(self, words: str, limits: Callable[[], None] | None = None, **more: str) -> subprocess.Popen[str]:
        """Starts `counterpoint WORDS` with the mark."""
        settings = self.variables()
        command = [sys.executable, "-m", "counterpoint", *words.split()]
        return subprocess.Popen(
            command, env=settings | more, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", preexec_fn=limits, start_new_session=True,
        )  # fmt: skip

    def variables(self) -> dict[str, str]:
        """Returns the environment variables of a process of ours: the mark, folders of its own, and a compiler in a hurry."""
        kept = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "PYTHONPATH")}
        path = os.pathsep.join([str(HERE), *os.environ.get("PYTHONPATH", "").split(":")])
        folders = {"XDG_CONFIG_HOME": str(self.folder / "config"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        hurry = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
        return {**kept, **folders, **hurry, MARK: self.mark, "PYTHONPATH": path}

    def end(self, process: subprocess.Popen[str]) -> Ended:
        """Waits for the end of a process; kills one that hangs."""
        try:
            said, _ = process.communicate(timeout=self.limit)
            return Ended(process.returncode, said, False)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return Ended(process.returncode, said, True)

    def undisturbed(self, kind: str) -> Path:
        """Returns the finished run of a kind that nobody attacked."""
        if kind not in self.calm:
            ended = self.end(self.start(f"train {KINDS[kind]} --save-dir runs --exp-name calm-{kind}"))
            if ended.code != 0:
                raise SystemExit(f"the undisturbed run of {kind} failed with {ended.code}:\n{ended.said}")
            self.calm[kind] = self.folder / "runs" / f"calm-{kind}"
        return self.calm[kind]

    def faults_of(self, ended: Ended, path: Path | None = None) -> list[str]:
        """Returns what must not happen: hangs, uncaught errors, orphans and temporary files."""
        faults = ["hang"] * ended.hung
        if not ended.hung and ended.code not in FINE and ended.code >= 0:
            faults.append(f"exit code {ended.code}: {_last(ended.said)}")
        if "Traceback (most recent call last)" in ended.said.partition("counterpoint: ")[0]:
            faults.append(f"traceback: {_last(ended.said)}")
        deadline = time.monotonic() + 30
        while (left := marked.processes(MARK, self.mark)) and time.monotonic() < deadline:
            time.sleep(0.2)
        if left:
            faults.append(f"{len(left)} orphans: {', '.join(map(_command, left))}")
            marked.end(MARK, self.mark)
        if path and path.exists():
            faults += [f"temporary file {file.name}" for file in path.rglob(".*") if file.is_file()]
        return faults

    def resumed(self, kind: str, path: Path, words: str, faults: list[str]) -> str:
        """Trains a run to its end, compares it with the undisturbed one, and returns the outcome."""
        for _ in range(3):
            again = f"train {words}" if kind == "grid" or not (path / "config.json").exists() else f"resume {path}"
            if kind != "grid" and not (path / "config.json").exists() and path.exists():
                shutil.rmtree(path)  # killed before the settings were written: nothing was trained
            ended = self.end(self.start(again))
            faults += self.faults_of(ended, path)
            if ended.code == 0:
                break
        else:
            faults.append(f"does not resume: {_last(ended.said)}")
            return "failed"
        other = self.undisturbed(kind)
        pairs = [(path / cell.name, cell) for cell in sorted(other.iterdir()) if (cell / "config.json").exists()]
        for mine, theirs in pairs or [(path, other)]:
            faults += [f"other bits: {what}" for what in different(mine, theirs)]
        return "equal bits"

    # --- attacks on processes

    def kill(self, kind: str, number: int, lines: int, twice: bool = False) -> Outcome:
        """Sends a signal after so many lines of metrics, then resumes."""
        path, words = self._place(kind)
        process = self.start(f"train {words}")
        self._wait(process, path, lines)
        time.sleep(self.rng.uniform(0, 0.3))
        if number == signal.SIGSTOP:
            process.send_signal(number)
            time.sleep(0.5)
            process.send_signal(signal.SIGCONT)
        else:
            process.send_signal(number)
            if twice:
                time.sleep(self.rng.uniform(0, 0.2))
                process.send_signal(number)
        ended = self.end(process)
        faults = [fault for fault in self.faults_of(ended, path) if not (number == signal.SIGKILL and "temporary" in fault)]
        return Outcome(self.resumed(kind, path, words, faults), tuple(faults))

    def call(self, kind: str, call: str) -> Outcome:
        """Kills the process at a chosen system call, or lets the call fail."""
        path, words = self._place(kind)
        ended = self.end(self.start(f"train {words}", CHAOS_CALL=call))
        faults = [fault for fault in self.faults_of(ended, path) if not ("temporary" in fault and ended.code < 0)]
        return Outcome(self.resumed(kind, path, words, faults), tuple(faults))

    def limited(self, kind: str, name: str) -> Outcome:
        """Runs out of file handles, file size or memory, or sees the clock jump."""
        path, words = self._place(kind)

        def limits() -> None:
            bounds = {
                "handles": (resource.RLIMIT_NOFILE, 40), "size": (resource.RLIMIT_FSIZE, 3000),
                "memory": (resource.RLIMIT_AS, 3 * 2**30),
            }  # fmt: skip
            if name in bounds:
                which, bound = bounds[name]
                resource.setrlimit(which, (bound, resource.getrlimit(which)[1]))

        more = {"CHAOS_CLOCK": "86400"} if name == "clock" else {}
        ended = self.end(self.start(f"train {words}", limits, **more))
        faults = self.faults_of(ended, path)
        if name in ("handles", "memory"):  # a library may give up in its own words, as long as the run goes on
            faults = [fault for fault in faults if not fault.startswith(("exit code", "traceback"))]
        return Outcome(self.resumed(kind, path, words, faults), tuple(faults))

    def filled(self, kind: str, share: float) -> Outcome:
        """Trains on a disk that holds only this share of the run, makes the disk larger, and resumes."""
        size = sum(file.stat().st_size for file in self.undisturbed(kind).rglob("*"))
        disk = self.folder / f"disk-{next(self.numbers)}"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={int(share * size)}", "tmpfs", disk], check=True)
        try:
            path, words = disk / "run", f"{KINDS[kind]} --save-dir {disk} --exp-name run"
            ended = self.end(self.start(f"train {words}"))
            faults = self.faults_of(ended, path)
            if ended.code == 0:
                faults.append("nothing said of a full disk")
            subprocess.run(["mount", "-o", f"remount,size={100 * size}", disk], check=True)
            return Outcome(self.resumed(kind, path, words, faults), tuple(faults))
        finally:
            subprocess.run(["umount", "--lazy", disk], check=True)

    def forbidden(self, kind: str) -> Outcome:
        """Takes away the folder's permission during the run; for root, who may write everywhere, replaces it by a file."""
        path, words = self._place(kind)
        process = self.start(f"train {words}")
        self._wait(process, path, 2)
        inner, aside = path / "checkpoints", path / "aside"
        if os.geteuid():
            inner.chmod(0o500)
        else:
            with contextlib.suppress(OSError):
                inner.rename(aside)
                inner.write_text("")
        ended = self.end(process)
        if os.geteuid():
            inner.chmod(0o700)
        elif aside.exists():
            if inner.is_file():
                inner.unlink()
            if not inner.exists():
                aside.rename(inner)
        faults = self.faults_of(ended, path)
        return Outcome(self.resumed(kind, path, words, faults), tuple(faults))

    def bereaved(self, kind: str, victim: str) -> Outcome:
        """Kills a worker, a learner or a process of Ray; the run goes on or stops with a sentence, and resumes."""
        path, words = self._place(kind)
        process = self.start(f"train {words}")
        self._wait(process, path, 3)
        for number in marked.processes(MARK, self.mark):
            if victim in _command(number) and number != process.pid:
                with contextlib.suppress(OSError):
                    os.kill(number, signal.SIGKILL)
                break
        ended = self.end(process)
        faults = self.faults_of(ended, path)
        return Outcome(self.resumed(kind, path, words, faults), tuple(faults))

    def twice(self, kind: str) -> Outcome:
        """Starts a second writer of the same folder, which must be refused."""
        path, words = self._place(kind)
        process = self.start(f"train {words}")
        self._wait(process, path, 2)
        second = self.end(self.start(f"resume {path}"))
        faults = [] if second.code == 2 and "is in use by process" in second.said else [f"second writer: {_last(second.said)}"]
        ended = self.end(process)
        if second.code == 0 and "is finished" in second.said:
            faults = []  # the first one was faster
        faults += self.faults_of(ended, path)
        return Outcome(self.resumed(kind, path, words, faults), tuple(faults))

    def hostile(self, kind: str) -> Outcome:
        """Trains in an environment that misbehaves."""
        path = self.folder / "runs" / f"hostile-{next(self.numbers)}"
        words = f"--env {HERE / 'hostile.py'}:Hostile --scenario-args kind={kind} --num-envs 2 --workers 2 --worker-timeout 3"
        opening = ("import counterpoint.external.environment as e; e.OPEN_SECONDS = 10.0; import counterpoint.training.evaluate"
                   " as v; v.EPISODE_SECONDS = 3.0; from counterpoint.cli.main import main; main()")  # fmt: skip
        short = SMALL.replace("--num-episodes 48", "--num-episodes 12")  # each copy meets its trouble in the third episode
        line = f"train {words} {short} --save-dir runs --exp-name {path.name}".split()
        command = [sys.executable, "-c", opening, *line]
        process = subprocess.Popen(
            command, env=self.variables(), cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
        ended = self.end(process)
        faults = self.faults_of(ended, path)
        logs = sum(file.stat().st_size for file in path.rglob("*.log")) if path.exists() else 0
        if logs > 20_000_000:
            faults.append(f"{logs} bytes of logs")
        return Outcome("went on" if ended.code == 0 else "refused", tuple(faults))

    def watched(self, kind: str) -> Outcome:
        """Watches the sockets of an undisturbed run: all of them must stay within this machine."""
        _, words = self._place(kind)
        process, seen, names = self.start(f"train {words}"), set(), set()
        deadline = time.monotonic() + self.limit
        while process.poll() is None and time.monotonic() < deadline:
            for number in marked.processes(MARK, self.mark):
                names.add(_title(number))
                seen |= sockets_of(number)
            time.sleep(0.1)
        ended = self.end(process)
        outside = sorted(end for end in seen if not end.local)
        names_ = ", ".join(sorted(names - {"?", ""}))
        listening = len({end for end in seen if end.listening})
        self.watches.append(f"| {kind} | {names_} | {listening} | {len(seen) - listening} | {len(outside)} |")
        faults = [f"socket {end.text}" for end in outside] + self.faults_of(ended)
        return Outcome("loopback only" if seen else "no sockets", tuple(faults))

    # --- attacks on files and arguments

    def damage(self, kind: str, file: Path, copy: bytes) -> Outcome:
        """Replaces a file of a finished run by a damaged copy and reads the run in every way."""
        run = Run(self.undisturbed(kind))
        data = file.read_bytes()
        uses = _uses(run)
        truth = {name: repr(use()) for name, use in uses.items()}
        seen, faults = set(), []
        try:
            file.write_bytes(copy)
            for name, use in uses.items():
                seen.add(_use(name, use, truth[name], faults))
        finally:
            file.write_bytes(data)
        return Outcome("noticed" if "noticed" in seen else "harmless", tuple(faults))

    def say(self, line: str) -> Outcome:
        """Calls the command line, in this process, with words that must be refused."""
        from counterpoint.cli import main

        old, out = sys.argv, io.StringIO()
        sys.argv = ["counterpoint", *line.split()]
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                main.main()
            code: Any = 0
        except SystemExit as end:
            code = end.code
        except BaseException as error:
            return Outcome("failed", (f"{type(error).__name__} for {line[:60]}",))
        finally:
            sys.argv = old
            os.chdir(before)
        said = out.getvalue()
        wrong = code != 2 or not said.startswith("counterpoint: ") or said.count("\n") != 1
        return Outcome("refused", (f"code {code}, {said[:200]!r} for {line[:60]}",) if wrong else ())

    def _place(self, kind: str) -> tuple[Path, str]:
        self.undisturbed(kind)
        path = self.folder / "runs" / f"{kind}-{next(self.numbers)}"
        return path, f"{KINDS[kind]} --save-dir runs --exp-name {path.name}"

    def _wait(self, process: subprocess.Popen[str], path: Path, lines: int) -> None:
        """Waits until a run, or the first one of a grid, has so many lines of metrics, or the process has ended."""
        deadline = time.monotonic() + self.limit
        while process.poll() is None and time.monotonic() < deadline:
            tables = [path / "metrics.csv", *path.glob("*/metrics.csv")]
            if sum(_lines(table) for table in tables) >= lines:
                return
            time.sleep(0.01)


def may_mount() -> bool:
    """Returns whether this user may mount a small disk; says so if not."""
    may = not os.geteuid() and subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).returncode == 0
    if not may:
        print("no full disks: only root may mount them", flush=True)
    return may


class Socket(NamedTuple):
    """A network socket: its two ends, and whether both are within this machine."""

    text: str
    listening: bool
    local: bool


def sockets_of(process: int) -> set[Socket]:
    """Returns the TCP and UDP sockets of a process."""
    found: set[Socket] = set()
    with contextlib.suppress(OSError):
        links = [os.readlink(entry) for entry in _entries(f"/proc/{process}/fd")]
        inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
        for table in ("tcp", "tcp6", "udp", "udp6") if inodes else ():
            for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[9] in inodes:
                    listening = words[3] == "0A"
                    ends = words[1:2] if listening else words[1:3]
                    found.add(Socket(f"{table} {' '.join(ends)}", listening, all(map(_is_local, ends))))
    return found


def _entries(folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in os.listdir(folder)]


def _is_local(end: str) -> bool:
    """Returns whether an address of /proc/net is one of the loopback device, or no address yet."""
    address, _, port = end.partition(":")
    mapped = address.removeprefix("0000000000000000FFFF0000") if len(address) == 32 else address
    loopback = (mapped.endswith("7F") and len(mapped) == 8) or address == "0" * 24 + "01000000"
    return loopback or (set(address) == {"0"} and port == "0000")


TITLES = {
    "external.workers": "environment workers", "raylet": "raylet", "gcs_server": "gcs_server",
    "ray::": "learners and agents of Ray", "ray/": "helpers of Ray", " -I -S ": "reaper", "counterpoint": "counterpoint",
}  # fmt: skip
"""Part of a command → what the process is."""


def _title(process: int) -> str:
    """Returns what a process is, in a word or two; nothing if it has just ended or begun."""
    command = _command(process)
    return next((title for part, title in TITLES.items() if part in command), Path(command.partition(" ")[0]).name)


def _lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


def _last(said: str) -> str:
    return (said.strip().splitlines() or ["nothing said"])[-1][:200]


def _command(process: int) -> str:
    """Returns what a process runs, as far as the system tells."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:100]
    except OSError:
        return "?"


def _uses(run: Run) -> dict[str, Callable[[], Any]]:
    return {
        "settings": lambda: run.config,
        "spec": run.load_spec,
        "rows": run.rows,
        "last rows": lambda: metrics.last_rows(run.metrics_path, 3),
        "policy": lambda: _bytes(*run.load_policy()),
        "best": lambda: _bytes(*history.load_at(run, "best")),
        "history": lambda: _bytes(*history.load_at(run, 16)),
        "checkpoint": lambda: _plain(run.load()),
        "verify": lambda: [finding for finding in integrity.check(run.path) if finding.state == "damaged"],
    }


def _plain(saved: Any) -> Any:
    return saved and (saved.step, _bytes(saved.state, saved.counters), saved.problems)


def _bytes(tensors: Any, about: Any) -> Any:
    """Returns all numbers: the text of a large array leaves most of them out."""
    return {name: (array.shape, str(array.dtype), array.tobytes()) for name, array in sorted(tensors.items())}, about


def _use(name: str, use: Callable[[], Any], truth: str, faults: list[str]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error", Damage)
        try:
            found = use()
        except (UsageError, Damage):
            return "noticed"
        except Exception as error:
            faults.append(f"{type(error).__name__} in {name}")
            return "failed"
    if repr(found) == truth:
        return "harmless"
    if name == "verify" or (name == "checkpoint" and found and found[2]):
        return "noticed"
    faults.append(f"unnoticed damage in {name}")
    return "failed"


def different(one: Path, other: Path) -> list[str]:
    """Returns in what two finished runs differ, other than in their times."""
    rows = [[{k: v for k, v in row.items() if k not in TIMES} for row in Run(path).rows()] for path in (one, other)]
    found = [] if list(map(repr, rows[0])) == list(map(repr, rows[1])) else ["metrics"]
    mine, theirs = Run(one).load(), Run(other).load()
    if mine is None or theirs is None or mine.step != theirs.step or mine.state.keys() != theirs.state.keys():
        return [*found, "checkpoint"]
    found += [name for name, value in mine.state.items() if value.tobytes() != theirs.state[name].tobytes()]
    if (one / "policy.safetensors").read_bytes() != (other / "policy.safetensors").read_bytes():
        found.append("policy")
    return found


Attack = tuple[str, str, Callable[[], Outcome]]
"""The category, a name and what to do."""


def attacks(chaos: Chaos, counts: dict[str, int], kinds: list[str]) -> Iterator[Attack]:
    """Yields the attacks of a plan: how many of each category."""
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    from hostile import KINDS as TROUBLES

    from hostile_lines import LINES

    rng = chaos.rng
    for line in LINES[: counts["arguments"]]:
        yield "arguments", line[:40], lambda line=line: chaos.say(line)
    for _ in range(counts["files"]):
        kind = rng.choice([kind for kind in kinds if kind != "grid"])
        files = sorted(
            path for path in chaos.undisturbed(kind).rglob("*") if path.suffix in (".json", ".csv", ".sums", ".safetensors")
        )
        file = rng.choice(files)
        data = file.read_bytes()
        at, bit, cut = rng.randrange(len(data)), 1 << rng.randrange(8), rng.random() < 0.3
        copy = data[:at] if cut else data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
        yield "files", f"{kind} {file.name} {at}", lambda kind=kind, file=file, copy=copy: chaos.damage(kind, file, copy)
    numbers = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGSTOP]
    for i in range(counts["kills"]):
        kind, number, lines, again = kinds[i % len(kinds)], rng.choice(numbers), rng.randrange(0, 6), rng.random() < 0.3
        twice = again and number in (signal.SIGINT, signal.SIGTERM)
        name = f"{kind} {signal.Signals(number).name} after {lines} lines"
        yield "kills", name, lambda k=kind, n=number, m=lines, t=twice: chaos.kill(k, n, m, t)
    calls = [
        f"{name}:{count}:{what}:{times}"
        for count in range(1, 25)
        for name, what, times in (
            ("fsync", "kill", 1), ("replace", "kill", 1), ("replace", "late", 1), ("unlink", "kill", 1), ("open", "late", 1),
            ("fsync", "ENOSPC", 10**6), ("open", "EMFILE", 1), ("replace", "EIO", 1), ("open", "EACCES", 1),
        )
    ]  # fmt: skip
    rng.shuffle(calls)
    for i, call in enumerate(calls[: counts["calls"]]):
        kind = kinds[i % len(kinds)]
        yield "system calls", f"{kind} {call}", lambda kind=kind, call=call: chaos.call(kind, call)
    names = ["handles", "size", "memory", "clock"]
    for i in range(counts["limits"]):
        kind, name = kinds[i // len(names) % len(kinds)], names[i % len(names)]
        yield "limits", f"{kind} {name}", lambda kind=kind, name=name: chaos.limited(kind, name)
    for _, kind in zip(range(counts["disks"] * may_mount()), itertools.cycle(kinds), strict=False):
        share = rng.uniform(0.1, 0.8)
        yield "full disks", f"{kind} {share:.2f}", lambda kind=kind, share=share: chaos.filled(kind, share)
    for _, kind in zip(range(counts["permissions"]), itertools.cycle(kinds), strict=False):
        yield "permissions", kind, lambda kind=kind: chaos.forbidden(kind)
    single = [kind for kind in kinds if kind != "grid"]
    for _, kind in zip(range(counts["writers"]), itertools.cycle(single), strict=False):
        yield "two writers", kind, lambda kind=kind: chaos.twice(kind)
    victims = [("external", "external.workers")]
    victims += [("learners", name) for name in ("ray::Learner", "raylet", "gcs_server")] if "learners" in kinds else []
    for i in range(counts["losses"]):
        kind, victim = victims[i % len(victims)]
        yield "lost processes", f"{kind} {victim}", lambda kind=kind, victim=victim: chaos.bereaved(kind, victim)
    for _, kind in zip(range(counts["sockets"]), kinds, strict=False):
        yield "sockets", kind, lambda kind=kind: chaos.watched(kind)
    for kind in list(TROUBLES)[: counts["environments"]]:
        yield "environments", kind, lambda kind=kind: chaos.hostile(kind)


LONG = {
    "arguments": 100, "files": 380, "kills": 36, "calls": 36, "limits": 12, "disks": 6, "permissions": 6, "writers": 6,
    "losses": 12, "environments": 100, "sockets": 9,
}  # fmt: skip
SHORT = {
    "arguments": 100, "files": 60, "kills": 2, "calls": 1, "limits": 0, "disks": 0, "permissions": 0, "writers": 0,
    "losses": 0, "environments": 0, "sockets": 0,
}  # fmt: skip


Row = tuple[str, int, str, int]
"""What was attacked, how often, what came of it, and how many failures there were."""


def rows_of(tallies: dict[str, Tally]) -> list[Row]:
    """Returns a row for every category."""
    return [
        (name, tally.attacks, ", ".join(f"{n} {what}" for what, n in sorted(tally.outcomes.items())), len(tally.faults))
        for name, tally in tallies.items()
    ]


def table(rows: list[Row]) -> str:
    """Returns the Markdown table of what happened."""
    lines = ["| attacked | attacks | outcome | failures |", "|:--|--:|:--|--:|"]
    lines += [f"| {name} | {attacks_} | {outcome} | {faults} |" for name, attacks_, outcome, faults in rows]
    return "\n".join([*lines, f"| **all** | **{sum(row[1] for row in rows)}** | | **{sum(row[3] for row in rows)}** |"])


def write_docs(rows: list[Row], seed: int) -> None:
    """Puts the rows into the table of the documentation: other categories keep theirs, from a run of --only."""
    page = DOCS.read_text()
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in old.splitlines() if line.startswith("| ")]
    kept: dict[str, Row] = {c[0]: (c[0], int(c[1]), c[2], int(c[3])) for c in cells if c[0] not in ("attacked", "**all**")}
    merged = list((kept | {row[0]: row for row in rows}).values())
    DOCS.write_text(f"{before}{BEGIN}\n`make chaos`, seed {seed}:\n\n{table(merged)}\n{END}{after}")


def watch_table(watches: list[str]) -> str:
    """Returns the table of the processes and sockets that were seen in undisturbed runs."""
    header = [
        "| kind of run | processes | listening sockets | connections | of them beyond this machine |",
        "|:--|:--|--:|--:|--:|",
    ]
    return "\n".join([*header, *watches])


def main() -> None:
    parser = argparse.ArgumentParser(description="Attack training processes, files, environments and arguments.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="few attacks, under two minutes")
    parser.add_argument("--only", default="", help="categories with commas between them")
    parser.add_argument("--count", type=int, default=0, help="attacks of each category")
    parser.add_argument("--kinds", default="", help=f"kinds of process: {', '.join(KINDS)}")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a process counts as hung")
    parser.add_argument("--docs", action="store_true", help="write the table to docs/robustness.md")
    parser.add_argument("--verbose", action="store_true", help="a line for every attack")
    options = parser.parse_args()
    usual = ["maddpg"] if options.short else list(KINDS)
    kinds = options.kinds.split(",") if options.kinds else usual
    counts = dict(SHORT if options.short else LONG)
    if options.only:
        counts = {name: (options.count or counts[name] or LONG[name]) * (name in options.only.split(",")) for name in counts}
    chaos = Chaos(options.seed, options.limit)
    tallies: dict[str, Tally] = {}
    began = time.monotonic()
    try:
        for category, name, attack in attacks(chaos, counts, kinds):
            began_one = time.monotonic()
            try:
                outcome = attack()
            except Exception as error:  # the harness itself failed: that is a failure too
                outcome = Outcome("failed", (f"harness: {type(error).__name__}: {error}",))
            tallies.setdefault(category, Tally()).add(name, outcome)
            if options.verbose:
                print(f"{category}: {name}: {outcome.what}, {time.monotonic() - began_one:.0f} s", flush=True)
            for fault in outcome.faults:
                print(f"FAILED {category}: {name}: {fault}", flush=True)
    finally:
        marked.end(MARK, chaos.mark)
        shutil.rmtree(chaos.folder, ignore_errors=True)
    rows = rows_of(tallies)
    print(f"\n{table(rows)}\n\nseed {options.seed}, {time.monotonic() - began:.0f} s")
    if options.docs:
        write_docs(rows, options.seed)
    if chaos.watches:
        print(watch_table(chaos.watches))
        if options.docs:
            before, _, rest = DOCS.read_text().partition(SEEN_BEGIN)
            DOCS.write_text(f"{before}{SEEN_BEGIN}\n{watch_table(chaos.watches)}\n{SEEN_END}{rest.partition(SEEN_END)[2]}")
    sys.exit(any(tally.faults for tally in tallies.values()))


if __name__ == "__main__":
    main()
