"""Trains an algorithm on a probe under one jit: rollout, add, sample, update."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.core import prng
from counterpoint.core.actions import to_world
from counterpoint.training.replay import example, sequences, uniform
from counterpoint.training.rollout import rollout, start

NUM_ENVS, NUM_STEPS, BATCH, CAPACITY = 16, 4, 64, 64 * 512


def climb(make, env, config, iterations=300, seed=0, sees=None):
    """Agents after that many rounds."""
    spec = env.spec
    algo = make(config, spec, np.ones((spec.num_agents,) * 2, bool) if sees is None else sees)
    if config.recurrent:
        sizes = max(1, BATCH // config.sequence_length), NUM_ENVS * NUM_STEPS, NUM_ENVS, config.burn_in, config.sequence_length
        memory = sequences(example(spec), CAPACITY, *sizes)
    else:
        memory = uniform(example(spec), CAPACITY, BATCH, NUM_ENVS * NUM_STEPS)

    def iteration(loop, key):
        agents, worlds, ring = loop
        key_roll, key_sample, key_learn = jax.random.split(key, 3)
        worlds, steps, _ = rollout(env, algo, algo.policy(agents), worlds, key_roll, NUM_STEPS, jnp.zeros((), jnp.int32))
        ring = memory.add(ring, steps)
        agents, _ = algo.update(agents, memory.sample(ring, key_sample), key_learn)
        return (agents, worlds, ring), None

    # Each world is compiled once and run for a blink: the compiler need not try hard.
    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def run(key):
        key_init, key_start, key_loop = jax.random.split(key, 3)
        loop = algo.init(key_init), start(env, algo, key_start, NUM_ENVS), memory.init()
        (agents, _, _), _ = jax.lax.scan(iteration, loop, jax.random.split(key_loop, iterations))
        return agents

    return run(prng.key(seed))


def greedy(make, env, config, agents, obs):
    """The noiseless actions [B, N, A] as the world receives them."""
    spec = env.spec
    algo = make(config, spec, np.ones((spec.num_agents,) * 2, bool))
    action, _ = algo.greedy(algo.policy(agents), algo.begin(prng.key(0)), jnp.asarray(obs, jnp.float32))
    return np.asarray(to_world(spec, action))


def parity(make, env, config, agents):
    """What a team earns in `Xor` for each cue, at most 1."""
    obs = np.stack([env.observe(env.reset(prng.key(0))[0]._replace(cue=jnp.float32(cue))) for cue in (-1, 1)])
    action = greedy(make, env, config, agents, obs)
    side = action[..., 1] - action[..., 0]
    return np.array([-1.0, 1.0]) * side[:, 0] * side[:, 1]


def recalled(make, env, config, agents):
    """What the noiseless agents of a `Recall` do at each step after each cue, [T, 2, N, A]."""
    algo = make(config, env.spec, np.ones((1, 1), bool))
    carry = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), algo.begin(prng.key(0)))
    seen = np.zeros((env.max_steps, 2, 1, 1), np.float32)
    seen[0, :, 0, 0] = 1.0, -1.0
    actions = []
    for obs in seen:
        action, carry = algo.greedy(algo.policy(agents), carry, jnp.asarray(obs))
        actions.append(np.asarray(action))
    return np.stack(actions)
