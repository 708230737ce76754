"""simple_spread beyond ten agents, where sums are no longer written out, beside the plain formulas in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.core import prng
from counterpoint.envs import make
from counterpoint.envs.mpe.world import UNROLLED, contact_force

QUICK = {"xla_backend_optimization_level": 0}


@pytest.mark.parametrize("agents", [UNROLLED + 1, 16])
def test_a_crowd_sees_feels_and_earns_what_the_formulas_say(agents):
    """Agents close together, so that many touch, two of them in the same place."""
    world = make("simple_spread", N=agents)
    rng = np.random.default_rng(0)
    position, landmarks = rng.uniform(-0.6, 0.6, (agents, 2)), rng.uniform(-1, 1, (agents, 2))
    position[3] = position[5]
    velocity = rng.normal(size=(agents, 2))
    single = [array.astype(np.float32) for array in (position, velocity, landmarks)]
    state = world.reset(prng.key(0))[0]._replace(**dict(zip(("position", "velocity", "landmarks"), single, strict=True)))

    @functools.partial(jax.jit, compiler_options=QUICK)
    def answers(state):
        force = contact_force(state.position, state.landmarks, world.bodies)
        return world.observe(state), force, world.nearest(state), world.bumps(state), world.reward(state)

    seen, force, nearest, bumps, reward = map(np.asarray, answers(jax.tree.map(jnp.asarray, state)))
    p, v, marks = single
    for i in range(agents):
        others = np.delete(p, i, axis=0) - p[i]
        row = np.concatenate([v[i], p[i], (marks - p[i]).ravel(), others.ravel(), np.zeros(2 * (agents - 1))])
        np.testing.assert_array_equal(seen[i], row)
    delta = position[:, None] - position[None]
    distance = np.linalg.norm(delta, axis=-1)
    apart = np.where(distance > 0, distance, 1.0)
    strength = 100 * 0.001 * np.logaddexp(0, (0.3 - apart) / 0.001) / apart * ~np.eye(agents, dtype=bool)
    np.testing.assert_allclose(force, (strength[..., None] * delta).sum(1), rtol=1e-4, atol=1e-4)
    near = np.linalg.norm(position[:, None] - landmarks[None], axis=-1).min(0)
    np.testing.assert_allclose(nearest, near, rtol=1e-5)
    touching = (distance < 0.3).sum(1) - 1
    assert touching.max() > 2
    np.testing.assert_array_equal(bumps, touching)
    np.testing.assert_allclose(reward, -0.5 * near.sum() - 0.5 * touching, rtol=1e-5)
