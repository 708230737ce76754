"""Studies: results that combine several runs or predictions.

- compare.py: compares the seeds of several runs, with a figure, tables and statistics
- doctor.py: checks whether this machine can learn
- evidence.py: what a run shows of itself, for why.py: reports, and how its policy acts in some episodes
- grid.py: trains every combination of some settings and compares the runs
- plan.py: predicts the cost of each scheme of distributed learning and recommends one
- why.py: says why a run does not learn, with evidence and a cure
- reproduce/: published results, measured again; one file each
"""
