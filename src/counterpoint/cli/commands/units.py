"""`counterpoint units`."""

from typing import Annotated, Literal

from tyro.conf import Positional, arg

from counterpoint.cli.registry import command
from counterpoint.core.errors import UsageError


@command("Trained runs")
def units(
    value: Annotated[Positional[str], arg(metavar="[VALUE]")] = "",
    scenario: str = "",
    from_: Annotated[Literal["openai", "openai-sum", "mpe2", "mpe2-sum"], arg(name="from")] = "mpe2",
    record: Annotated[str, arg(metavar="FILE", help_behavior_hint="(default: do not record)")] = "",
    episodes: int = 20_000,
) -> None:
    """Convert a return to every published unit and to a scale from random play (0) to a scripted team (1).

    Args:
        value: Return to convert (empty: list the references).
        scenario: World that the return was measured in (empty: simple_spread), or whose references to list (empty: all).
        from_: Unit of the value: rules of the original or of mpe2, one agent's return or the sum over agents.
        record: Measure random play and the scripted teams anew and write them to this CSV file.
        episodes: Episodes of each measurement that is recorded.
    """
    from counterpoint.runs.tables import print_table
    from counterpoint.studies import units as study

    if record:
        if episodes < 2:
            raise UsageError(f"--episodes must be at least 2, not {episodes}.")
        print(f"→ {study.record(record, episodes)}")
        return
    if not value:
        rows = [
            [*key, f"{r.mean:.2f}", f"{r.low:.2f} … {r.high:.2f}", str(r.episodes)]
            for key, r in study.references_of(scenario).items()
        ]
        print_table(["scenario", "flavour", "policy", "return of one agent", "95 %", "episodes"], rows)
        return
    scenario = scenario or "simple_spread"
    scale = study.units(value, scenario, from_)
    way = f"{100 * scale.share:.1f} % of the way from random play to the scripted team"
    print(f"{value} in {scenario}, unit {from_}: {way}\n")
    print_table(study.TABLE_HEADER, study.table(scale))
    print("≈ marks conversions between flavours, which keep the share.")
