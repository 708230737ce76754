"""`counterpoint compare`."""

from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from counterpoint.cli.registry import command

if TYPE_CHECKING:
    from counterpoint.studies.compare import Comparison

OPTIONAL = ("optimality gap", "IQM", "seeds needed", "seeds", "solved")
"""Columns that a narrow terminal leaves out, in this order; the files have them all."""


@command("Trained runs")
def compare(
    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="RUN …", help_behavior_hint="(at least one)")],
    by: Annotated[str, arg(help_behavior_hint="(default: what differs)")] = "",
    metric: Annotated[str, arg(help_behavior_hint="(default: evaluated return of the team)")] = "",
    x: Literal["episodes", "steps", "seconds"] = "episodes",
    smooth: int = 1,
    log: bool = False,
    solved: Annotated[float | None, arg(metavar="SCORE", help_behavior_hint="(default: none)")] = None,
    lower_is_better: bool = False,
    style: Literal["paper", "slide"] = "paper",
    width: float = 0.0,
    out: str = "comparison",
    scale: bool = False,
) -> None:
    """Compare runs over their seeds: a figure, a table and the statistics behind it.

    Writes Markdown, CSV, LaTeX, PNG, PDF, SVG and the JSON of marl-eval to a folder.

    Args:
        runs: The folders of the runs, or folders that contain runs; also their names in ./runs.
        by: Settings that make the groups, such as algorithm or algorithm,lr; `run` compares single runs. Seeds never make one.
        metric: Column of metrics.csv to compare; `success` stands for eval/success.
        x: Horizontal axis of the curves.
        smooth: Number of reports that each point averages; the score is the average of the last ones.
        log: Use a logarithmic vertical axis.
        solved: Score from which a seed counts as having solved its task.
        lower_is_better: Treat lower values of the metric as better.
        style: Sizes of fonts and lines: for a paper or for a slide.
        width: Width of the figure in inches (0: 5.5 for a paper, 12 for a slide).
        out: Folder for the files.
        scale: Also print scores as shares between random play (0) and a scripted team (1), where these are known.
    """
    from counterpoint.studies import compare as study
    from counterpoint.viz.comparison import Look

    show(study.compare(runs, by, metric, x, smooth, solved, lower_is_better, out, Look(style, width, log), scale))


def show(result: "Comparison") -> None:
    """Prints the tables and notes of a comparison, and where its files are."""
    from counterpoint.runs.tables import print_table
    from counterpoint.studies.compare import tables

    for title, header, rows in tables(result):
        print(f"{title}\n")
        print_table(header, rows, [name for name in OPTIONAL if name in header])
        print()
    for note in result.notes:
        print(f"note: {note}")
    print(f"by {', '.join(result.by)} → {result.files[0].parent}")
