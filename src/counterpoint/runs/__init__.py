"""The run folder: settings, metrics, checkpoints, tables and statistics. Nothing here imports jax.

folder.py   a run's files, read and written here only
tables.py   tables for people, files written whole
stats.py    means and intervals
"""

from counterpoint.runs.folder import Checkpoint, Run, Saver, Segment, Summary, create, list_runs, open_run

__all__ = ["Checkpoint", "Run", "Saver", "Segment", "Summary", "create", "list_runs", "open_run"]
