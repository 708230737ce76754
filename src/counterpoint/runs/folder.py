"""A run is a folder, and only this package reads and writes its files.

config.json           the settings, written when the run is created and when resuming changes some
spec.json             the agents and their spaces, so that nothing needs the environment to describe the run
metrics.csv           one row per report and seed; metrics.sums holds the checksum of each line
checkpoints/          ckpt-<step>.json and the files it lists: one state-… and the replay-… segments still in the ring
policy.safetensors    the networks that act
policies/             the best policy by evaluation and at most 20 along the way (history.py states the rule)
env/                  a copy of the file of --env, to read, never executed
lock                  exists while a process trains the run, and names it
diverged.txt          the sentence with which training gave up, if numbers became infinite or NaN
learners.csv          what each learner computed and when, if learning was distributed
curve.png, team.gif   the learning curve and a film
"""

import difflib
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from counterpoint import __version__
from counterpoint.core.checks import shown
from counterpoint.core.errors import UsageError
from counterpoint.runs import checkpoints, display, files, metrics, trust
from counterpoint.runs.checkpoints import Checkpoint, Segment
from counterpoint.runs.metrics import Cell

RUNS = Path("runs")
"""The folder in which a bare name is looked up."""
GRID = "grid.json"
"""The file that makes a folder a grid: the folders in it are runs, named GRID/CELL."""
OWN_KEYS = ("format", "counterpoint", "changes", trust.SOURCES, trust.SIGNATURE, files.SEAL)
"""What config.json holds besides the settings."""
LONGEST_CONFIG = 10_000_000
"""Bytes of the longest settings file that is read."""
LONGEST_SENTENCE = 1000
"""Characters of the longest sentence that is read."""
FORMAT = 1
"""Increased whenever an older counterpoint could no longer read what this one writes."""


@dataclass(frozen=True)
class Run:
    """A run's folder, as `create` and `open_run` return it."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def curve_path(self) -> Path:
        return self.path / "curve.png"

    @property
    def gif_path(self) -> Path:
        return self.path / "team.gif"

    @property
    def learners_path(self) -> Path:
        return self.path / "learners.csv"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def policy_path(self) -> Path:
        return self.path / "policy.safetensors"

    @property
    def config(self) -> dict[str, Any]:
        """The settings that `create` received, with the changes since."""
        return {key: value for key, value in _read_config(self.path).items() if key not in OWN_KEYS}

    @property
    def changes(self) -> list[dict[str, Any]]:
        """The settings that changed when the run was resumed: [{"episode": 4000, "lr": [0.01, 0.001]}], old and new value."""
        return _read_config(self.path).get("changes", [])

    def is_trusted(self) -> bool:
        """Returns whether the run names no code, or this user made it on this machine."""
        config = _read_config(self.path)
        return not trust.named_code(config) or trust.is_signed(config)

    def require_trust(self, given: Collection[str] = (), trusted: bool = False) -> None:
        """Refuses the run if it names code that is not in `given`, unless it is trusted or this user made it here."""
        trust.require(self.path, _read_config(self.path), given, trusted)

    def require_seed(self, index: int) -> None:
        """Refuses the index of a seed that the run does not have."""
        count = int(self.config.get("training", {}).get("num_seeds", 1))
        if count == 1 and index != 0:
            raise UsageError(f"{self.path} has one seed: leave out --seed-index {index}.")
        if not 0 <= index < count:
            raise UsageError(f"{self.path} has {count} seeds: choose --seed-index from 0 to {count - 1}, not {index}.")

    def rewrite_config(self, config: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> None:
        """Replaces the settings of a run that goes on with others, and records what changed."""
        recorded = [*self.changes, *([dict(changes)] if changes else [])]
        write_config(self.path, config, recorded)

    def keep_source(self, source: Path) -> None:
        """Copies the text of a Python file into the folder, for people who read it where the file is missing."""
        target = self.path / "env" / source.name
        with files.explained(target):
            target.parent.mkdir(exist_ok=True)
        files.write_durably(target, source.read_bytes())

    def append_metrics(self, row: Mapping[str, int | float | str | np.generic]) -> None:
        """Appends a row to the metrics at once. It may leave columns out, and a new column is empty in the rows before."""
        metrics.append_row(self.metrics_path, row)

    def rows(self) -> list[dict[str, Cell]]:
        """Returns the metrics row by row, numbers as numbers, without lines that are torn or mangled."""
        return metrics.read_rows(self.metrics_path)

    @property
    def metrics(self) -> Any:
        """The metrics as a pandas DataFrame, one row per report and seed.

        Without pandas it is a dictionary of NumPy arrays by column, so that `run.metrics["episode"]` works either way.
        """
        return metrics.columns_of(self.metrics_path)

    def _repr_html_(self) -> str:
        """Returns the run for a notebook: its last report, curve and film."""
        return display.run_html(self)

    def truncate_metrics(self, step: int) -> str:
        """Drops the metrics beyond `step`, so that a resumed run writes each row once; returns a sentence about damage."""
        return metrics.truncate(self.metrics_path, step)

    def append_learners(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Appends rows to the timeline of the learners, with seconds rounded to a tenth of a millisecond."""
        path = self.learners_path
        cells = [[round(row[c], 4) if isinstance(row[c], float) else row[c] for c in columns] for row in rows]
        metrics.append(path, list(columns), cells)

    def save_policy(self, tensors: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
        """Replaces policy.safetensors by these tensors and a JSON description of them."""
        files.write_durably(self.policy_path, files.pack_policy(tensors, about))

    def load_policy(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Returns the tensors of policy.safetensors and their description."""
        return read_policy(self.policy_path)

    def policy_about(self) -> dict[str, Any]:
        """Returns the description of policy.safetensors."""
        return read_policy(self.policy_path)[1]

    def save_divergence(self, sentence: str) -> None:
        """Records that training gave up because it diverged; an empty sentence says that it goes on."""
        path = self.path / "diverged.txt"
        with files.explained(path):
            if sentence:
                path.write_text(sentence + "\n")
            else:
                path.unlink(missing_ok=True)

    def divergence(self) -> str:
        """Returns the sentence with which training gave up, or nothing if it did not diverge."""
        try:
            with (self.path / "diverged.txt").open(errors="replace") as file:
                return shown(file.read(LONGEST_SENTENCE).strip(), LONGEST_SENTENCE)
        except OSError:
            return ""

    def save_spec(self, facts: Mapping[str, Any]) -> None:
        """Writes spec.json: what commands need to know about the environment without opening it."""
        files.write_durably(self.path / "spec.json", json.dumps(files.sealed(facts), indent=1).encode())

    def load_spec(self) -> dict[str, Any] | None:
        """Returns the content of spec.json, or None if the run has none."""
        path = self.path / "spec.json"
        if not path.exists():
            return None
        try:
            facts = read_json(path)
            intact = isinstance(facts, dict) and files.SEAL in facts and files.is_intact(facts)
        except (OSError, ValueError):
            facts, intact = {}, False
        if not intact:
            raise UsageError(f"{path} is damaged (its content does not match its checksum): resume the run to write it again.")
        return facts

    def save(
        self, step: int, state: Mapping[str, np.ndarray], counters: Mapping[str, Any], segments: Sequence[Segment] = (),
        capacity: int = 0, keep: int = 2,
    ) -> None:  # fmt: skip
        """Writes checkpoint `step` and keeps the last `keep`; see `checkpoints.save`."""
        checkpoints.save(self.path, step, state, counters, segments, capacity, keep)

    def load(self) -> Checkpoint | None:
        """Returns the newest checkpoint whose files are all intact, or None if there is none yet. Changes nothing on disk."""
        return checkpoints.load(self.path)

    def rewind(self, step: int) -> str:
        """Restores the folder to checkpoint `step`: drops newer metrics and newer (that is, damaged) checkpoints.

        Returns a sentence about damaged metrics, if there are any.
        """
        problem = self.truncate_metrics(step)
        checkpoints.remove_after(self.path, step)
        return problem


def create(save_dir: str | os.PathLike[str], exp_name: str, config: Mapping[str, Any]) -> Run:
    """Creates a run in <save_dir>/<exp_name>, or in <exp_name>-2, -3, … if that name is taken."""
    if not exp_name or exp_name in (".", "..") or re.search(r"[/\\\0]", exp_name):
        name = shown(repr(exp_name))
        raise UsageError(f"exp_name must be the name of a folder, without slashes, not {name}: choose one like 'tag-1'")
    text = _render_config(config)
    parent = files.expanded(save_dir)
    path = parent / exp_name
    with files.explained(path):
        parent.mkdir(parents=True, exist_ok=True)
        count = 1
        while True:
            try:
                path.mkdir()  # without a check beforehand: if two programs start at once, one must get the next name
                break
            except FileExistsError:
                count += 1
                path = parent / f"{exp_name}-{count}"
        (path / "checkpoints").mkdir()
        files.sync(parent)
        files.write_durably(path / "config.json", text)
    return Run(path)


def write_config(folder: Path, config: Mapping[str, Any], changes: Sequence[Mapping[str, Any]] = ()) -> None:
    """Writes the settings of the run in a folder, sealed and, if they name code, signed."""
    files.write_durably(folder / "config.json", _render_config(config, changes))


def open_run(path: str | os.PathLike[str]) -> Run:
    """Returns the run in a folder that `create` made; a bare name, or GRID/CELL, is also looked up in ./runs."""
    folder = find(path)
    _read_config(folder)
    return Run(folder)


def find(path: str | os.PathLike[str]) -> Path:
    """Returns the folder that a path, or the name of a run in ./runs, stands for."""
    folder = files.expanded(path)
    try:
        if _is_name(path) and not (folder / "config.json").exists() and (RUNS / folder / "config.json").exists():
            folder = RUNS / folder
    except OSError as error:
        raise UsageError(f"{shown(str(path))} is not a run ({error.strerror}): check the path.") from None
    return folder


def _is_name(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path is a name as lists of runs show it: without folders, or that of a cell in a grid."""
    parts = os.fspath(path).split(os.sep)
    return len(parts) <= 2 and not {"", ".", "..", "~"} & set(parts)


def read_policy(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Returns the tensors of a policy file and their description; refuses a file that is not as it was written."""
    try:
        # The header says how large each tensor is, and safetensors refuses one that differs from the file's own size.
        with safetensors.safe_open(path, "np") as file:
            facts, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if facts.keys() != {"about"}:
            raise ValueError(f"its header has the entries {shown(', '.join(sorted(facts)))} instead of a description")
        about = json.loads(facts["about"])
        if not isinstance(about, dict):
            raise ValueError("it has no description")
        seal = about.pop(files.SEAL, None)
        if (seal is None and files.has_stray_seal(about)) or seal not in (None, files.policy_digest(tensors, about)):
            raise ValueError("its content does not match its checksum")
        return tensors, about
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist: the run has saved no policy yet, let it train longer.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, safetensors.SafetensorError) as error:
        spare = ", or use another policy of the run by --at" if path.parent.name != "policies" else ": use another one by --at"
        again = ": resume the run to write it again" if path.parent.name != "policies" else ""
        raise UsageError(f"{path} is damaged ({shown(str(error), 200)}){again}{spare}") from None


def _render_config(config: Mapping[str, Any], changes: Sequence[Mapping[str, Any]] = ()) -> bytes:
    if taken := config.keys() & set(OWN_KEYS):
        raise ValueError(f"the settings {sorted(taken)} are written by runs.create itself")
    facts = {"format": FORMAT, "counterpoint": __version__, **config} | ({"changes": list(changes)} if changes else {})
    return json.dumps(files.sealed(trust.signed(json.loads(json.dumps(facts)))), indent=2).encode()


def read_json(path: Path) -> Any:
    """Returns the content of a small JSON file; raises ValueError for one that is too long or nested too deep."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a file")  # reading a pipe would never end
    with path.open("rb") as file:
        data = file.read(LONGEST_CONFIG + 1)
    if len(data) > LONGEST_CONFIG:
        raise ValueError(f"it is longer than {LONGEST_CONFIG} bytes")
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = read_json(path)
        version = config["format"]
        if not isinstance(config, dict) or not isinstance(version, int):
            raise ValueError("it does not hold the settings of a run")
    except (FileNotFoundError, NotADirectoryError):
        inside = sorted(found.parent.name for found in folder.glob("*/config.json"))
        more = ", …" if inside[5:] else ""
        hint = (
            f"choose one of the runs in it ({', '.join(inside[:5])}{more})" if inside else f"check the path{_similar(folder)}"
        )
        raise UsageError(f"{folder} is not a run, it has no config.json: {hint}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} cannot be read ({shown(repr(error), 200)}): restore it or start a new run") from None
    if version > FORMAT:
        other = shown(str(config.get("counterpoint")))
        raise UsageError(
            f"{folder} was written by counterpoint {other} in format {version}, but this is {__version__} "
            f"and reads formats up to {FORMAT}: upgrade counterpoint"
        )
    if not files.is_intact(config):
        raise UsageError(
            f"{path} is damaged or was edited (its content does not match its checksum): restore it, or remove its entry"
            f" {files.SEAL!r} to accept it as it is."
        )
    return config


def _similar(folder: Path) -> str:
    """Returns a hint at the run in ./runs whose name is most like a folder's."""
    close = difflib.get_close_matches(folder.name, [found.parent.name for found in RUNS.glob("*/config.json")], 1)
    return f" (perhaps {close[0]}?)" if close else ""
