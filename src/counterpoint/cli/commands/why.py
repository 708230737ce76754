"""`counterpoint why`."""

from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from counterpoint.cli.parsing import RunFolder
from counterpoint.cli.registry import command

if TYPE_CHECKING:
    from counterpoint.studies.evidence import Case


@command("Trained runs")
def why(
    run: RunFolder,
    seed_index: Annotated[int | None, arg(help_behavior_hint="(default: the worst seed)")] = None,
    env: str = "",
    trust: bool = False,
) -> None:
    """Say why a run does not learn, in plain words, with evidence and a cure.

    Reads settings and reports, and plays some episodes with the run's policy and with untrained ones. The likeliest reason
    comes first.

    Args:
        run: The run's folder, or its name in ./runs.
        seed_index: Index of the seed to examine, if the run has several seeds.
        env: New place of the run's own environment, if it has moved (empty: where it was in training).
        trust: Execute the code that the run names even though you did not make the run on this machine.
    """
    from counterpoint.core.checks import shown
    from counterpoint.runs import open_run
    from counterpoint.studies.why import examine

    findings, case = examine(open_run(run), seed_index, env, trust)
    if int(case.get("num_seeds", 1)) > 1:
        print(f"seed {case.seed}:")
    for finding in findings:
        print(shown(finding.name, 100).upper())
        for label, text in (("what", finding.words), ("evidence", finding.evidence), ("cure", finding.cure)):
            print(f"  {label:<9} {shown(text, 1000)}")
    if case.note:
        print(f"note: {shown(case.note, 500)}")
    if not findings:
        print(f"nothing wrong found{_progress(case)}")


def _progress(case: "Case") -> str:
    """Returns what the team learned, in a clause."""
    parts = [f"{team} earns {each.last:.3g} per episode, untrained {each.untrained:.3g}" for team, each in case.teams.items()]
    if case.success is not None:
        parts.append(f"success {case.success:.2f}")
    return f" ({'; '.join(parts)})" if parts else ""
