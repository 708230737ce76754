"""`counterpoint reproduce`."""

from typing import Annotated

from tyro.conf import Positional, arg

from counterpoint.cli.registry import command


@command("Distributed learning and published results")
def reproduce(
    result: Annotated[Positional[str], arg(metavar="[RESULT]")] = "", quick: bool = False, out: str = "./reproduced"
) -> None:
    """Rerun a published result and print our numbers beside the published ones.

    Args:
        result: Name of the published result (empty: list the names).
        quick: Run only a small part, which takes a minute or two, to check that everything works.
        out: Folder for tables and figures; measurements that it already contains are not repeated.
    """
    from counterpoint.studies import reproduce as study

    study.reproduce(result, quick, out)
