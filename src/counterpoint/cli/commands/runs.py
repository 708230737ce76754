"""`counterpoint runs`."""

from counterpoint.cli.registry import command


@command("Trained runs")
def runs(save_dir: str = "./runs") -> None:
    """List the runs in a folder, most recent first.

    Args:
        save_dir: Folder that contains the runs.
    """
    from counterpoint.runs import list_runs
    from counterpoint.runs.tables import markdown_table

    found = list_runs(save_dir)
    if not found:
        print(f"there are no runs in {save_dir} yet; start one with: counterpoint train")
        return
    rows = [[run.name, run.scenario, run.algorithm, run.episodes, run.last_return, run.state, _ago(run.age)] for run in found]
    print(markdown_table(["run", "scenario", "algorithm", "episodes", "last return", "state", "written"], rows))


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
