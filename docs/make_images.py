"""Draws the pictures of the documentation: `python docs/make_images.py`. Agents act at random."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.core import prng
from counterpoint.core.picture import Picture
from counterpoint.envs import make
from counterpoint.envs.mpe.scenario import Scenario
from counterpoint.viz.render import save

IMAGES = Path(__file__).parent / "images"
WORLDS = (
    *("simple", "simple_spread", "simple_tag"),
    *("simple_adversary", "simple_push", "simple_world_comm"),
    *("simple_speaker_listener", "simple_reference", "simple_crypto"),
)
HOLD = 4
"""Steps between two choices: a fresh one at every step would only tremble."""


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    tag = make("simple_tag", num_good=2)
    save(episodes(tag, seed=9, count=3), IMAGES / "tag.gif")
    save([episodes(make(name), seed=20, count=1)[0][:14] for name in WORLDS], IMAGES / "worlds.png", size=400, moments=1)


def episodes(world: Scenario, seed: int, count: int) -> list[list[Picture]]:
    """Whole episodes of random choices."""
    reset, step = jax.jit(world.reset), jax.jit(world.step)
    drawn = []
    for key in jax.random.split(prng.key(seed), count):
        state, _ = reset(key)
        pictures = [world.draw(state)]
        for t in range(world.max_steps):
            action = random_action(world, jax.random.fold_in(key, t // HOLD))
            state, _ = step(jax.random.fold_in(key, t), state, action)
            pictures.append(world.draw(state))
        drawn.append(pictures)
    return drawn


def random_action(world: Scenario, key: jax.Array) -> jax.Array:
    """One-hot choices of all agents, padded."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    action = np.zeros((world.num_agents, world.spec.act_size), np.float32)
    for i, size in enumerate(world.spec.act_sizes):
        choice = tuple(int(rng.integers(head)) for head in world.spec_heads(i))
        action[i, :size] = world.action_of_integers(i, choice)
    return jnp.asarray(action)


if __name__ == "__main__":
    main()
