"""Refuses networks that this machine's memory cannot hold, before anything is allocated."""

import math
import os
from typing import Any

import jax

from counterpoint.algos.base import Algorithm
from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.spaces import Spec
from counterpoint.core.types import Environment


def check_evaluation(env: Environment, episodes: int, num_seeds: int) -> None:
    """Refuses an evaluation whose episodes, all played side by side, need most of the machine's memory."""
    spec = env.spec
    each = (
        4 * spec.num_agents * (4 * spec.obs_size + 4 * spec.act_size + 16)
    )  # observations, actions and state, before and after
    size, memory = each * episodes * num_seeds, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if env.compiled is not None and size > 0.5 * memory:
        raise UsageError(
            f"--eval-episodes {episodes} need about {size / 2**30:.1f} GiB at once, and this machine has {memory / 2**30:.1f}:"
            " choose fewer."
        )


def check_size(env: Environment, algo: Algorithm, learning: Any, num_seeds: int) -> None:
    """Refuses agents whose state, beside the copy that an update makes, needs most of the machine's memory."""
    spec = env.spec
    n, memory = spec.num_agents, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if _rough_size(spec, learning) * num_seeds < 0.1 * memory:
        return  # tracing the networks to count exactly takes half a second
    size = 4 * n * n * spec.obs_size  # the tables that say which critic sees what, which exist even before the networks
    if size < 0.1 * memory:
        leaves = jax.tree.leaves(jax.eval_shape(algo.init, prng.key(0)))
        size = 2 * num_seeds * sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
        if size < 0.8 * memory:
            return
    widest = spec.agents[spec.obs_sizes.index(spec.obs_size)]
    raise UsageError(
        f"the networks of {n} agents for observations of up to {spec.obs_size} numbers ({widest} in {env.name}) need at least"
        f" {size / 2**30:.1f} GiB, and this machine has {memory / 2**30:.1f}: make the observations smaller, for instance by a"
        " wrapper that scales images down, or choose fewer --num-units."
    )


def _rough_size(spec: Spec, learning: Any) -> float:
    """Returns more bytes than networks of the usual layers take, with all their copies; infinite for a user's own network."""
    if getattr(learning, "model", "") or not {"num_units", "num_layers"} <= vars(learning).keys():
        return math.inf
    inputs, units = spec.num_agents * (spec.obs_size + spec.act_size + spec.num_agents), learning.num_units
    return 400.0 * spec.num_agents * units * (inputs + 8 * learning.num_layers * units)
