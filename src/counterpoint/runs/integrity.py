"""Checks every file of a run against its checksum, and says what can still be used."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import safetensors

from counterpoint.core.checks import shown
from counterpoint.core.errors import UsageError
from counterpoint.runs import checkpoints, files, history, metrics, trust
from counterpoint.runs.folder import Run, read_json, read_policy


class Finding(NamedTuple):
    """What is known about one file."""

    file: str
    """Its path within the run."""
    state: str
    """intact, damaged, or unchecked (it has no checksum)."""
    note: str = ""


def code_of(path: Path) -> dict[str, str]:
    """Returns the settings of a run that name code, ready to be shown; none if the settings cannot be read."""
    try:
        return {shown(name): shown(text) for name, text in trust.named_code(Run(path).config).items()}
    except UsageError:
        return {}


def is_own(path: Path) -> bool:
    """Returns whether this user made the run on this machine."""
    return Run(path).is_trusted()


def check(path: Path) -> list[Finding]:
    """Returns a finding for each file of a run that matters. Changes nothing, and executes nothing."""
    return [Finding(str(file.relative_to(path)), state, shown(note, 300)) for file, state, note in _check(path)]


def _check(path: Path) -> Iterator[tuple[Path, str, str]]:
    run = Run(path)
    yield _tried(path / "config.json", lambda: bool(run.config) and files.SEAL in read_json(path / "config.json"))
    if (path / "spec.json").exists():
        yield _tried(path / "spec.json", run.load_spec)
    for table in (run.metrics_path, run.learners_path):
        if table.exists():
            yield _tried(table, lambda table=table: _table(table))
    policies = [run.policy_path, history.folder(run) / "best.safetensors", *history.kept(run).values()]
    for policy in filter(Path.exists, policies):
        yield _tried(policy, lambda policy=policy: _policy(policy))
    for manifest, problem in checkpoints.problems(path):
        yield manifest, "damaged" if problem else "intact", problem
    for manifest in sorted(path.glob("export/*/export.json")):
        yield from _export(manifest)


def _tried(file: Path, read: Callable[[], Any]) -> tuple[Path, str, str]:
    try:
        return file, "intact" if read() else "unchecked", ""
    except (UsageError, OSError, ValueError, TypeError) as error:
        return file, "damaged", str(error)


def _policy(path: Path) -> bool:
    """Returns whether an intact policy has a seal; older ones have none."""
    read_policy(path)
    with safetensors.safe_open(path, "np") as file:
        return files.SEAL in json.loads(file.metadata()["about"])


def _table(path: Path) -> bool:
    if problem := metrics.check(path).problem:
        raise UsageError(problem)
    return metrics.sums_path(path).exists()


def _export(manifest: Path) -> Iterator[tuple[Path, str, str]]:
    """Yields the files of an export."""
    try:
        facts = read_json(manifest)
        sums = facts["sums"]
        if not files.is_intact(facts) or not isinstance(sums, dict):
            raise ValueError("its content does not match its checksum")
    except (OSError, ValueError, KeyError, TypeError, json.JSONDecodeError) as error:
        yield manifest, "damaged", f"{type(error).__name__}: {error}: export the run again."
        return
    yield manifest, "intact" if files.SEAL in facts else "unchecked", ""
    for name, digest in sums.items():
        file = manifest.parent / Path(str(name)).name
        if not file.is_file():
            yield file, "damaged", "it is missing: export the run again."
        else:
            intact = files.digest_of_file(file) == digest
            yield file, "intact" if intact else "damaged", "" if intact else "its content does not match: export the run again."
