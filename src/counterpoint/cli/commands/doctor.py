"""`counterpoint doctor`."""

from counterpoint.cli.registry import command
from counterpoint.core.errors import UsageError


@command("Training")
def doctor() -> None:
    """Check in about a minute whether this machine can train: versions, devices, a short training, speed and extras."""
    from counterpoint.studies.doctor import examine

    faults = []
    for finding in examine():
        mark = "ok" if finding.ok else "PROBLEM"
        note = f" ({finding.advice})" if finding.ok and finding.advice and finding.what.startswith("extra") else ""
        print(f"{mark:<8} {finding.what}: {finding.value}{note}", flush=True)
        if not finding.ok:
            faults.append(f"{finding.what}: {finding.advice}")
    if faults:
        raise UsageError(f"{len(faults)} problem{'s' * (len(faults) > 1)} found: {'; '.join(faults)}.")
    print("this machine can train")
