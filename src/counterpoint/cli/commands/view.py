"""`counterpoint view`."""

import os
from typing import Annotated

from tyro.conf import Positional, arg

from counterpoint.cli.registry import command


@command("Trained runs")
def view(
    runs: Annotated[Positional[str], arg(metavar="RUNS")] = "./runs",
    port: int = 0,
    open: bool = False,
    trust: bool = False,
) -> None:
    """Show the runs in a folder in the browser, also while they train.

    Prints a link to a page on this machine: the list of runs, curves over seeds with the statistics of `counterpoint compare`,
    a stage on which the policies of a run play, the learners of a distributed run, and advice for runs in trouble. Needs the
    extra `view`.

    Args:
        runs: Folder that contains the runs, or one of them.
        port: Port of the page (0: any free one).
        open: Open the page in the browser.
        trust: Let the stage execute code that runs name, such as their environment, even if you did not make them here.
    """
    from counterpoint.view.opened import server_module

    server = server_module()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the accelerators are for whoever trains
    server.serve(runs, port, open, trust)
