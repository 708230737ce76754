"""Studies: results that combine several runs or predictions.

- compare.py: compares the seeds of several runs, with a figure, tables and statistics
- doctor.py: checks whether this machine can learn
- grid.py: trains every combination of some settings and compares the runs
- plan.py: predicts the cost of each scheme of distributed learning and recommends one
- reproduce/: published results, measured again; one file each
"""
