"""`counterpoint plot`."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from counterpoint.cli.registry import command
from counterpoint.core.errors import UsageError


@command("Trained runs")
def plot(
    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="RUN …", help_behavior_hint="(at least one)")],
    out: str = "comparison.png",
    column: str = "",
) -> None:
    """Plot the learning curves of several runs in one figure.

    Args:
        runs: The folders of the runs.
        out: File to write, ending in .png, .svg or .pdf.
        column: Column of metrics.csv to plot (empty: the mean return of the good team).
    """
    from counterpoint.runs import open_run
    from counterpoint.viz import plots

    if not runs:
        raise UsageError("name at least one run to plot; `counterpoint runs` lists them.")
    rows = {Path(path).name: open_run(path).rows() for path in runs}
    plots.compare(rows, out, column=column or "team/good")
    print(f"{len(rows)} run{'s' * (len(rows) > 1)} → {out}")
