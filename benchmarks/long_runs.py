"""Memory and speed over long use: one run of ten million steps, and eight runs in one process.

    python benchmarks/long_runs.py              both; writes the tables of docs/robustness.md
    python benchmarks/long_runs.py steps        only the long run
    python benchmarks/long_runs.py runs         only the eight runs

Memory is the resident memory of the training process, as the kernel counts it.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from counterpoint.runs import metrics
from counterpoint.runs.tables import markdown_table

PAGE = Path(__file__).parents[1] / "docs" / "robustness.md"
STEPS, PARTS = 10_000_000, 10
EIGHT = """
import counterpoint, os, tempfile
for number in range(8):
    with tempfile.TemporaryDirectory() as folder:
        counterpoint.train(
            scenario="simple_spread" if number % 2 else "tennis", num_episodes=60, batch_size=64, warmup=200, progress=False,
            seed=number, save_dir=folder, plots_dir="",
        )
    print(int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 10**6, flush=True)
"""


def megabytes(process: int) -> int:
    """Returns the resident memory of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 10**6


def size_of(folder: Path) -> float:
    """Returns the megabytes of a folder's files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def steps() -> str:
    """Trains for ten million steps and returns the table."""
    header = ("steps", "steps/s since the row before", "memory, MB", "folder, MB", "rows of metrics")
    rows: list[tuple[Any, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        words = ["--scenario", "simple_spread", "--num-episodes", str(STEPS // 25), "--save-dir", folder, "--exp-name", "long"]
        command = [sys.executable, "-m", "counterpoint", "train", *words, "--plots-dir", ""]
        process, run = subprocess.Popen(command, stdout=subprocess.DEVNULL), Path(folder) / "long"
        before = (0, 0.0)
        while process.poll() is None:
            time.sleep(0.5)
            last: list[dict[str, Any]] = metrics.last_rows(run / "metrics.csv", 1) if (run / "metrics.csv").exists() else []
            if last and last[0]["step"] >= len(rows) * STEPS / PARTS + STEPS / PARTS:
                step, seconds = int(last[0]["step"]), float(last[0]["seconds"])
                speed = (step - before[0]) / (seconds - before[1])
                lines = sum(1 for _ in (run / "metrics.csv").open()) - 1
                rows.append((f"{step:,}", f"{speed:,.0f}", megabytes(process.pid), f"{size_of(run):.1f}", lines))
                before = (step, seconds)
        if process.returncode:
            raise SystemExit(f"training ended with {process.returncode}")
    return markdown_table(header, rows)


def runs() -> str:
    """Trains eight runs in one process and returns the table."""
    done = subprocess.run([sys.executable, "-c", EIGHT], stdout=subprocess.PIPE, text=True, check=True)
    sizes = done.stdout.split()
    return markdown_table(("run", "memory after it, MB"), [(i + 1, int(size)) for i, size in enumerate(sizes)])


def main() -> None:
    for name, measure in {"steps": steps, "runs": runs}.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            text = measure()
            print(text, flush=True)
            begin, end = f"<!-- long {name}: begin -->", f"<!-- long {name}: end -->"
            before, _, rest = PAGE.read_text().partition(begin)
            PAGE.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}")


if __name__ == "__main__":
    main()
