"""`counterpoint benchmark`."""

import json
from pathlib import Path

from counterpoint.cli.parsing import RunFolder
from counterpoint.cli.registry import command
from counterpoint.core.errors import UsageError


@command("Trained runs")
def benchmark(
    run: RunFolder, benchmark_iters: int = 100_000, benchmark_dir: str = "./benchmark_files/", explore: bool = False
) -> None:
    """Measure the returns and metrics of a run's policy, with confidence intervals.

    The results are printed as a table and written to a JSON file.

    Args:
        run: The run's folder.
        benchmark_iters: Number of environment steps to measure over.
        benchmark_dir: Folder for the file with the results.
        explore: Act with the exploration noise of training instead of greedily.
    """
    import jax
    import numpy as np

    from counterpoint.policies.policy import load
    from counterpoint.runs import files, stats
    from counterpoint.runs.tables import markdown_table

    if benchmark_iters < 1:
        raise UsageError(f"--benchmark-iters must be at least 1, not {benchmark_iters}.")
    team = load(run)
    batch = max(1, min(1000, benchmark_iters // team.env.max_steps))
    steps, parts = 0, []
    while steps < benchmark_iters:
        parts.append(team.evaluate(batch, len(parts), explore))
        steps += int(parts[-1].length.sum())
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    returns = {f"return of {agent}": whole.returns[:, i] for i, agent in enumerate(team.env.spec.agents)}
    values = returns | {"length": whole.length} | whole.metrics
    summaries = {name: stats.summary(value) for name, value in values.items()}
    table = markdown_table(
        ["per episode", "mean", "95 % interval", "episodes"],
        [[name, f"{s.mean:.3f}", f"{s.low:.3f} … {s.high:.3f}", s.count] for name, s in summaries.items()],
    )
    metrics = {name: summary._asdict() for name, summary in summaries.items()}
    facts = {"run": run, "steps": steps, "greedy": not explore, "metrics": metrics}
    file = Path(benchmark_dir) / f"{Path(run).resolve().name}.json"
    files.make_folder(file.parent, "--benchmark-dir")
    files.write_whole(file, lambda draft: draft.write_text(json.dumps(facts, indent=2)))
    print(f"{table}\n{steps} steps, {'with exploration' if explore else 'greedy'} → {file}")
