"""`counterpoint runs`."""

from typing import Annotated, Any

from tyro.conf import arg

from counterpoint.cli.registry import command

MOST_DIFFERENCES = 4
"""Settings shown per run."""


@command("Trained runs")
def runs(
    save_dir: str = "./runs",
    sort: str = "written",
    filter: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE …", help_behavior_hint="(default: all runs)")] = (),
) -> None:
    """List the runs in a folder, newest last.

    A run is running, stopped or finished. The return is the mean over a team's agents at the last report, as training prints
    it. The last column lists the settings in which runs with the same environment and algorithm differ.

    Args:
        save_dir: Folder that contains the runs.
        sort: Column to sort by, largest last: name, env, algorithm, episodes, return, success, state, written, or a setting.
        filter: Conditions that the listed runs must meet, such as state=running lr=0.01 env=simple_*.
    """
    from counterpoint.runs.listing import filtered, list_runs, sorted_by, with_differences
    from counterpoint.runs.tables import print_table

    found = list_runs(save_dir)
    if not found:
        print(f"there are no runs in {save_dir} yet; start one with: counterpoint train")
        return
    chosen = sorted_by(with_differences(filtered(found, filter)), sort)
    if not chosen:
        print(f"none of the {len(found)} runs in {save_dir} meets {' '.join(filter)}.")
        return
    columns: dict[str, list[Any]] = {
        "run": [run.name for run in chosen],
        "environment": [run.env for run in chosen],
        "algorithm": [run.algorithm for run in chosen],
        "episodes": [_episodes(run) for run in chosen],
        "return": [_returns(run) for run in chosen],
        "success": [run.success for run in chosen],
        "state": [run.state for run in chosen],
        "written": [_ago(run.age) for run in chosen],
        "differs in": [_differences(run) for run in chosen],
    }
    for name in ("success", "differs in"):
        if not any(value not in (None, "") for value in columns[name]):
            del columns[name]
    rows = zip(*columns.values(), strict=True)
    optional = ["differs in", "written", "algorithm", "success", "environment"]
    print_table(list(columns), rows, [name for name in optional if name in columns])


def _episodes(run: Any) -> Any:
    return run.episodes if run.episodes >= run.planned else f"{run.episodes} of {run.planned}"


def _returns(run: Any) -> Any:
    """Returns the number of the only team, or each team with its number."""
    kind = "" if run.greedy or not run.returns else " (training)"
    if set(run.returns) <= {"good"}:
        number = run.returns.get("good")
        return f"{number:.2f}{kind}" if number is not None and kind else number
    return ", ".join(f"{team} {value:.2f}" for team, value in sorted(run.returns.items(), reverse=True)) + kind


def _differences(run: Any) -> str:
    texts = [f"{name}={_plain(value)}" for name, value in run.differs.items()]
    more = f" and {len(texts) - MOST_DIFFERENCES} more" if len(texts) > MOST_DIFFERENCES else ""
    return " ".join(texts[:MOST_DIFFERENCES]) + more


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"
