"""A run: from settings to a trained team.

train.py       starts or resumes a run, reports, saves, and writes its results
program.py     opens the environment once and binds environment, algorithm and memory together
engine.py      selects how a run executes: compiled, with worker processes, or with remote learners
loop.py        one round of acting, remembering and learning, compiled or stepped from Python
rollout.py     environments × policy → transitions; the only automatic reset
replay.py      memories: uniform, prioritised, on-policy
evaluate.py    whole episodes under a fixed policy, for reports, benchmark, play and films
opponents.py   frozen teams inside the environment, and the league of a run's own past
external.py    the engine for external environments
learners.py    the remote learners of a run
report.py      rows of metrics
checkpoint.py  the whole loop as named arrays
progress.py    what a person sees of a run
keywords.py    the keywords of train, resume and grid, typed (written by make_keywords in docs)
size.py        refuses networks that do not fit into memory
recorded.py    an environment as a run describes it, without the environment
sources.py     records the files of --env and --algorithm with a run
"""
