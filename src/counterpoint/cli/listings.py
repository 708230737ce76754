"""Lists for people: the worlds, the runs, and runs drawn together."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from counterpoint import runs
from counterpoint.core.errors import UsageError
from counterpoint.runs.tables import markdown_table
from counterpoint.viz import plots


def worlds() -> str:
    """A table of all worlds."""
    from counterpoint.core.spaces import Discrete
    from counterpoint.envs import WORLDS

    rows = []
    for name, world in WORLDS.items():
        spec = world().spec
        roles = {role: spec.roles.count(role) for role in spec.roles}
        first = [spec.roles.index(role) for role in roles]
        spaces = [spec.action_spaces[i] for i in first]
        shapes = [
            "×".join(map(str, s.heads)) if isinstance(s, Discrete) else f"{s.size} in [{s.low:g}, {s.high:g}]" for s in spaces
        ]
        arguments = ", ".join(f"{f.name}={f.default}" for f in dataclasses.fields(world))
        rows.append(
            [
                name,
                ", ".join(f"{count} {role}" if count > 1 else role for role, count in roles.items()),
                ", ".join(str(spec.obs_sizes[i]) for i in first),
                ", ".join(shapes),
                arguments,
            ]
        )
    return markdown_table(["world", "agents", "observations", "actions", "arguments"], rows)


def runs_table(save_dir: str) -> str:
    """A table of the runs in a folder, the newest first."""
    found = runs.list_runs(save_dir)
    if not found:
        return f"no runs in {save_dir} yet; start one with: counterpoint train"
    rows = [[run.name, run.scenario, run.algorithm, run.episodes, run.last_return, run.state, _ago(run.age)] for run in found]
    return markdown_table(["run", "scenario", "algorithm", "episodes", "last return", "state", "written"], rows)


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def plot_runs(paths: Sequence[str], out: str, column: str) -> None:
    """Draws the curves of several runs into one figure and says where it is."""
    if not paths:
        raise UsageError("name at least one run to plot; `counterpoint runs` lists them.")
    table = {Path(path).name: runs.open_run(path).rows() for path in paths}
    plots.compare(table, out, column=column or "team/good")
    print(f"{len(table)} run{'s' * (len(table) > 1)} → {out}")
