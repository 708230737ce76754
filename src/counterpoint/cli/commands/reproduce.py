"""`counterpoint reproduce`."""

from typing import Annotated

from tyro.conf import Positional, arg

from counterpoint.cli.registry import command


@command("Distributed learning and published results")
def reproduce(
    result: Annotated[Positional[str], arg(metavar="[RESULT]")] = "",
    quick: bool = False,
    out: str = "./reproduced",
    episodes: Annotated[int, arg(help_behavior_hint="(default: as published, 25,000 or 60,000)")] = 0,
    seeds: Annotated[int, arg(help_behavior_hint="(default: 6, or 10 for authors)")] = 0,
) -> None:
    """Rerun a published result and print our numbers beside the published ones.

    Args:
        result: Name of the published result (empty: list the names).
        quick: Run only a small part, which takes a minute or two, to check that everything works.
        out: Folder for tables and figures; measurements that it already contains are not repeated.
        episodes: Training episodes of each run; the table states them.
        seeds: Seeds of each run.
    """
    from counterpoint.studies import reproduce as study

    study.reproduce(result, quick, out, episodes, seeds)
