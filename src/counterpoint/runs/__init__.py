"""The run folder: settings, metrics, checkpoints, tables and statistics. Nothing here imports jax.

folder.py        a run's folder: settings, metrics, policy file
metrics.py       the metrics table, appended row by row
checkpoints.py   manifests, state files and replay segments
saver.py         checkpoints written in the background
history.py       the best policy and some along the way
lock.py          one writer per run
trust.py         whose code a run may execute
integrity.py     checks every file of a run against its checksum
listing.py       the list of runs in a folder
files.py         files that are never half written
tables.py        tables as Markdown, HTML and CSV
display.py       a run's last report, and a run as HTML for notebooks
trend.py         whether the reports of a run improve
stats.py         means, bootstrap intervals and averaged curves
"""

from counterpoint.runs.checkpoints import Checkpoint, Segment
from counterpoint.runs.folder import Run, create, open_run
from counterpoint.runs.listing import Summary, list_runs
from counterpoint.runs.saver import Saver

__all__ = ["Checkpoint", "Run", "Saver", "Segment", "Summary", "create", "list_runs", "open_run"]
