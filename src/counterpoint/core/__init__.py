"""What everyone speaks: data types, spaces, arithmetic and errors.

errors.py         `UsageError`, a mistake that the user can fix
checks.py         bounds that settings check in `__post_init__` (no jax)
spaces.py         action spaces and `Spec` (no jax)
types.py          `Environment`, `Env`, `Step`, `Transition`, `Metric`
picture.py        pictures as plain data (no jax)
marked.py         processes that are never left behind (no jax)
loading.py        objects by address, such as package.module:name (no jax)
trees.py          names of a pytree's arrays
prng.py           random keys
compilation.py    where compiled programs are kept
nets.py           perceptrons and gated recurrent units as plain arrays; `Model`, a network of the user's own
actions.py        network outputs become action vectors
action_stats.py   how much actions differ from step to step (no jax)
distributions.py  distributions of actions
ops.py            returns, schedules, moments, clipping
numpy_policy.py   actors in NumPy alone (no jax)
"""
