"""`counterpoint share`."""

from typing import Annotated

from tyro.conf import arg

from counterpoint.cli.parsing import RunFolder
from counterpoint.cli.registry import command


@command("Trained runs")
def share(
    run: RunFolder,
    out: str = "",
    with_: Annotated[tuple[str, ...], arg(name="with", metavar="OTHER …", help_behavior_hint="(default: none)")] = (),
    at: str = "last",
    seed_index: int = 0,
    env: str = "",
    trust: bool = False,
) -> None:
    """Write a run as one HTML file in which its team plays.

    The file needs no server and no network. The world and the policies run in it: watch, drag bodies, take over an agent,
    compare the team with its earlier selves.

    Args:
        run: The run's folder, or its name in ./runs.
        out: File to write, ending in .html (empty: team.html in the run's folder).
        with_: Other runs of the same world, whose policies can take a team's place.
        at: Policy that plays first: last, best (by evaluation), or a number of episodes (the nearest policy that was kept). The
            slider reaches the others.
        seed_index: Index of the seed whose policy plays, if the run has several seeds.
        env: New place of the run's own environment, if it has moved (empty: where it was in training).
        trust: Execute the code that the run names even though you did not make the run on this machine.
    """
    from counterpoint.view.share import share as write

    written = write(run, out, with_, at, seed_index, env, trust)
    for sentence in filter(None, (written.note, written.warning)):
        print(sentence)
    print(
        f"{written.moments} {'policies' if written.moments > 1 else 'policy'}, {written.size / 1000:,.0f} kB → {written.path}"
    )
