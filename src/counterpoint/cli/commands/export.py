"""`counterpoint export`."""

import json
from typing import Annotated, Literal

from tyro.conf import arg

from counterpoint.cli.parsing import RunFolder
from counterpoint.cli.registry import command


@command("Trained runs")
def export(
    run: RunFolder,
    format: Literal["onnx", "numpy", "safetensors"] = "onnx",
    out: str = "",
    seed_index: int = 0,
    at: str = "last",
    env: str = "",
    trust: bool = False,
    member: Annotated[int | None, arg(metavar="INDEX", help_behavior_hint="(default: the first)")] = None,
) -> None:
    """Export a run's policy for use without counterpoint.

    The export has one file per agent and one for the team. Each file is checked by running it on random observations.

    Args:
        run: The run's folder, or its name in ./runs.
        format: File format (onnx: for onnxruntime and compatible programs; numpy: for NumPy alone; safetensors: plain arrays).
        out: Folder to write (empty: export/FORMAT in the run's folder).
        seed_index: Index of the seed whose policy is exported, if the run has several seeds.
        at: Policy to export: last, best (by evaluation), or a number of episodes (the nearest policy that was kept).
        env: New place of the run's own environment, if it has moved (empty: where it was in training).
        trust: Execute the code that the run names even though you did not make the run on this machine.
        member: Sub-policy of an ensemble, counted from 0.
    """
    from counterpoint.policies import export as exports

    folder = exports.export(run, format, out, seed_index, at, env, trust, member)
    facts = json.loads((folder / exports.MANIFEST).read_text())
    print("\n".join(facts["files"]))
    apart = f"{facts['largest_difference']:.1e}"
    print(f"→ {folder}; run on {exports.NUM_TRIALS} observations, they differ from the policy by at most {apart}")
