"""Studies: results that combine several runs or predictions.

- compare.py: compares the seeds of several runs, with a figure, tables and statistics
- doctor.py: checks whether this machine can learn
- tournament.py: plays the teams of several runs against each other, with Elo ratings
- exploit.py: trains a best response against a frozen team and measures its gain
- strangers.py: scores between teams that were not trained together
- units.py: converts returns between published units, and to a scale from random play to a scripted team
- scripted.py: teams written by hand for cooperative particle worlds
- evidence.py: what a run shows of itself, for why.py: reports, and how its policy acts in some episodes
- grid.py: trains every combination of some settings and compares the runs
- plan.py: predicts the cost of each scheme of distributed learning and recommends one
- why.py: says why a run does not learn, with evidence and a cure
- reproduce/: published results, measured again; one file each
"""
