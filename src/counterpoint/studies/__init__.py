"""Studies: results that combine several runs or predictions.

- plan.py: predicts the cost of each scheme of distributed learning and recommends one
- reproduce/: published results, measured again; one file each
"""
