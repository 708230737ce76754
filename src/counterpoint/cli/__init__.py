"""The command line.

main.py       the entry point: finds the command, prints usage, turns errors into exit codes
registry.py   the table of commands, filled from the modules in commands/
parsing.py    words of the command line become arguments; refusals are one sentence
training.py   runs a training job and reports how it ended
grids.py      options with several values become a grid of runs
commands/     one module per command; a new command is a new file there
"""
