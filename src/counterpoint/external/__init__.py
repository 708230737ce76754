"""Environments that Python steps, and ours for programs that expect PettingZoo.

opening.py      opens what `--env` names
environment.py  what an external environment is: agents, spaces, time limit
adapters.py     PettingZoo and Gymnasium environments as arrays (no jax)
workers.py      processes that step them (no jax)
check.py        `check_env`: what is wrong with an environment, in sentences
pettingzoo.py   compiled worlds as PettingZoo environments
unity.py        Unity builds as PettingZoo environments (no jax)
"""
