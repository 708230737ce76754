"""JaxMARL's `MPE_simple_spread_v3` under a random policy, timed on request. Runs in .venv-bench, apart from counterpoint.

Each line read is a request {"agents", "width", "steps"}; each line written answers {"seconds", "compile_seconds"}.
Written by its own means: `step` resets by itself, keys are JAX's default, actions are uniform integers, one world per row
of a vmap. Observations and rewards are summed, so that the compiler must compute them.
"""

import json
import sys
import time
from functools import cache

import jax
import jax.numpy as jnp
from jaxmarl import make


@cache
def program(agents: int, width: int, steps: int):
    """The compiled scan, the state it starts from, and how long compiling took."""
    env = make("MPE_simple_spread_v3", num_agents=agents, num_landmarks=agents)

    def advance(carry, key):
        state, total = carry
        key_act, key_step = jax.random.split(key)
        choice = jax.random.randint(key_act, (len(env.agents), width), 0, 5)
        actions = {agent: choice[i] for i, agent in enumerate(env.agents)}
        obs, state, reward, _, _ = jax.vmap(env.step)(jax.random.split(key_step, width), state, actions)
        total += sum(jnp.sum(leaf) for leaf in jax.tree.leaves((obs, reward)))
        return (state, total), None

    def run(state, key):
        return jax.lax.scan(advance, (state, jnp.zeros(())), jax.random.split(key, steps))[0]

    _, state = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), width))
    began = time.perf_counter()
    compiled = jax.jit(run).lower(state, jax.random.key(1)).compile()
    return compiled, state, time.perf_counter() - began


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        run, state, compile_seconds = program(request["agents"], request["width"], request["steps"])
        began = time.perf_counter()
        jax.block_until_ready(run(state, jax.random.key(2)))
        print(json.dumps({"seconds": time.perf_counter() - began, "compile_seconds": compile_seconds}), flush=True)


if __name__ == "__main__":
    main()
