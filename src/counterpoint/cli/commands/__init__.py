"""One module per command: its function's parameters are the options, its docstring is the help.

Each module registers its function with `@command`, and needs no edit elsewhere. Import what takes time
to load inside the function: `counterpoint --help` imports every module here.

train.py       train a team
resume.py      continue a run
doctor.py      check this machine
envs.py        list the environments
presets.py     list the presets
runs.py        list the runs
play.py        record a film
benchmark.py   measure a policy
export.py      export a policy
verify.py      check the files of a run
why.py         say why a run does not learn
share.py       write a run as one HTML file
view.py        serve a page with the runs of a folder
plot.py        draw learning curves
compare.py     compare groups of runs
tournament.py  play the teams of several runs against each other
exploit.py     train a best response against a frozen team
units.py       convert a return between published units
completion.py  print a completion script for a shell
plan.py        predict the cost of distributed learning
reproduce.py   rerun published results
"""
