"""`counterpoint verify`."""

import sys

from counterpoint.cli.parsing import RunFolder
from counterpoint.cli.registry import command


@command("Trained runs")
def verify(run: RunFolder) -> None:
    """Check every file of a run against its checksum.

    Prints a row per file and exits with 2 if one is damaged. Nothing that the run names is executed.

    Args:
        run: The run's folder, or its name in ./runs.
    """
    from counterpoint.core.errors import UsageError
    from counterpoint.runs import folder, integrity
    from counterpoint.runs.tables import print_table

    try:
        path = folder.open_run(run).path
    except UsageError:
        path = folder.find(run)  # its settings may be what is damaged
        if not (path / "config.json").exists():
            raise
    found = integrity.check(path)
    print_table(["file", "state", "note"], [[f.file, f.state, f.note or "–"] for f in found])
    damaged = [f for f in found if f.state == "damaged"]
    code = sorted(f"{name} {text}" for name, text in integrity.code_of(path).items())
    if code:
        print(f"names code: {', '.join(code)}; made by you on this machine: {'yes' if integrity.is_own(path) else 'no'}")
    if damaged:
        print(f"counterpoint: {len(damaged)} of {len(found)} files of {path} are damaged.", file=sys.stderr)
        sys.exit(2)
    print(f"{len(found)} files of {path} are not damaged")
