"""`counterpoint tournament`."""

from typing import Annotated

from tyro.conf import Positional, arg

from counterpoint.cli.registry import command


@command("Trained runs")
def tournament(
    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="RUN …", help_behavior_hint="(at least two)")],
    episodes: int = 1000,
    seed: int = 0,
    out: str = "tournament",
    env: str = "",
    trust: bool = False,
) -> None:
    """Play the teams of several runs against each other: cross-play matrix, metrics and Elo ratings.

    Writes a table, CSV files and a heat map to a folder.

    Args:
        runs: The folders of the runs; @best, @12000 (episodes) and #2 (one seed) may follow. Exported teams (team.npz) and
            functions (adversary=my_policy.py:function) may take part; a team's name before = selects the team that one plays.
        episodes: Episodes of each pair, over all its seeds.
        seed: Seed of the episodes; every pair starts from the same positions.
        out: Folder for the files.
        env: New place of the runs' own environment, if it has moved (empty: where it was in training).
        trust: Execute the code that the runs name even though you did not make them on this machine.
    """
    from counterpoint.runs.tables import print_table
    from counterpoint.studies import tournament as study

    result = study.tournament(runs, episodes, seed, out, env, trust)
    for team in result.teams:
        print(f"return of one agent of {team} [95 % interval]\n")
        print_table(*study.matrix(result, team))
    if result.cells[0].metrics:
        print_table(*study.metric_table(result))
    print_table(study.RATING_HEADER, study.rating_rows(result))
    print(f"→ {result.files[0].parent}")
