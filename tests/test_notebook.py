"""The notebook of the documentation runs, and its page shows what it holds."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TINY = 'num_episodes=40, report_every=10, eval_episodes=2, batch_size=64, warmup=200, num_units=8, plots_dir=""'
PROGRAM = """
import json, sys
import make_notebook as maker
stored = maker.read()
page, pictures = maker.page(stored)
assert page == maker.PAGE.read_text(), "run python docs/make_notebook.py"
assert pictures == {path.name: path.read_bytes() for path in maker.PICTURES.iterdir()}
for cell in stored.cells:
    cell.source = cell.source.replace("num_episodes=4_000", sys.argv[1]).replace("num_episodes=5_000", "num_episodes=50")
cells = [cell for cell in maker.executed(stored).cells if cell.cell_type == "code"]
print(json.dumps([[output.get("data", output) for output in cell.outputs] for cell in cells]))
"""


@pytest.mark.skipif(importlib.util.find_spec("nbclient") is None, reason="nbclient, of the dev extra, is not installed")
def test_the_notebook_runs(tmp_path: Path) -> None:
    """In a process of its own: the kernel's libraries warn, and here warnings are errors."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, TINY],
        cwd=ROOT / "docs",
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": f"{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    trained, run, table, team, loop, resumed = json.loads(done.stdout.splitlines()[-1])
    assert len(trained) == 1, "training shows one line"
    assert "40 episodes" in trained[0]["text/plain"]
    assert run[0]["text/html"].count("<img") == 2
    assert "dataframe" in table[0]["text/html"]
    assert "agent_0" in team[0]["text/html"]
    assert "return of one episode: -" in loop[0]["text"]
    assert resumed[0]["text"] == "stretched with --num-episodes 50: --lr-steps 121 instead of 97.\n"
    assert "50 episodes" in resumed[1]["text/plain"]
