"""Compiled environments, one file each.

base.py       the base class, and what it derives from a world's methods
registry.py   all built-in worlds by name
against.py    an environment with frozen teams inside it
own.py        worlds of the user's own: any class with `reset` and `step`
check.py      the contract, as sentences about what a world gets wrong
mpe/          the twelve particle worlds
switch.py, tennis.py   a corridor, and two rackets
jaxmarl.py, gymnax.py  environments of these packages; jax_spaces.py translates their spaces
"""

from counterpoint.envs.registry import WORLDS as WORLDS
from counterpoint.envs.registry import make as make
