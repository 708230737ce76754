"""Teams written by hand for the cooperative particle worlds: what a result can be measured against.

Each function maps observations by agent name to action vectors, in the moves of the original of 2017 if `openai` is set, whose
signs differ. They also serve as frozen teams: --freeze good=counterpoint.studies.scripted:spread.
"""

from collections.abc import Callable
from functools import partial
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Observed = dict[str, Float[Array, " O"]]
Acted = dict[str, Float[Array, " A"]]

BRAKE = {"openai": 0.15, "mpe2": 0.25}
"""Seconds of motion that a moving agent allows for when it heads for a point: more where a push moves it a step later."""
GAIN = 5.0
"""Push per distance: full from 0.2 on."""


def head_for(offset: Float[Array, " 2"], velocity: Float[Array, " 2"], openai: bool) -> Float[Array, " 5"]:
    """Returns a move towards a point and to rest there: a share of each direction, the rest standing still."""
    brake = BRAKE["openai" if openai else "mpe2"]
    push = jnp.clip(GAIN * (offset - brake * velocity), -1.0, 1.0)
    push = push / jnp.maximum(jnp.sum(jnp.abs(push)), 1.0)  # shares add up to one
    push = -push if openai else push
    moves = jnp.stack([jnp.maximum(-push[0], 0), jnp.maximum(push[0], 0), jnp.maximum(-push[1], 0), jnp.maximum(push[1], 0)])
    return jnp.concatenate([1.0 - jnp.sum(moves, keepdims=True), moves])


def simple(obs: Observed, openai: bool = False) -> Acted:
    """Goes to the landmark."""
    return {agent: head_for(seen[2:4], seen[:2], openai) for agent, seen in obs.items()}


def spread(obs: Observed, openai: bool = False) -> Acted:
    """Shares out the landmarks so that the agents have the shortest way in all, and stays with the nearest such plan."""
    agents = list(obs)
    n = len(agents)
    offsets = jnp.stack([obs[agent][4 : 4 + 2 * n].reshape(n, 2) for agent in agents])
    ways = jnp.sqrt(jnp.sum(offsets**2, axis=-1))
    plans = np.array(list(permutations(range(n))))
    best = jnp.asarray(plans)[jnp.argmin(jnp.sum(ways[np.arange(n)[None], plans], axis=1))]
    return {agent: head_for(offsets[i, best[i]], obs[agent][:2], openai) for i, agent in enumerate(agents)}


def speaker_listener(obs: Observed, openai: bool = False) -> Acted:
    """The speaker names the landmark by its colour, and the listener goes where it was told."""
    listener = obs["listener_0"]
    told, landmarks = listener[8:], listener[2:8].reshape(3, 2)
    heard = jnp.sum(told) > 0.5  # nothing was said before the first step: wait in the middle
    goal = jnp.where(heard, landmarks[jnp.argmax(told)], jnp.mean(landmarks, axis=0))
    return {"speaker_0": jax.nn.one_hot(jnp.argmax(obs["speaker_0"]), 3), "listener_0": head_for(goal, listener[:2], openai)}


def reference(obs: Observed, openai: bool = False) -> Acted:
    """Both name their partner's landmark and go where they were told."""
    acted = {}
    for agent, seen in obs.items():
        landmarks, told = seen[2:8].reshape(3, 2), seen[11:]
        heard = jnp.sum(told) > 0.5
        goal = jnp.where(heard, landmarks[jnp.argmax(told[:3])], jnp.mean(landmarks, axis=0))
        word = jax.nn.one_hot(jnp.argmax(seen[8:11]), told.shape[0])
        acted[agent] = jnp.concatenate([head_for(goal, seen[:2], openai), word])
    return acted


SCRIPTED: dict[str, Callable[..., Acted]] = {
    "simple": simple,
    "simple_spread": spread,
    "simple_speaker_listener": speaker_listener,
    "simple_reference": reference,
}
"""By the name of the world."""


def team(scenario: str, flavour: str) -> Callable[[Observed], Acted]:
    """Returns the scripted team of a world in one of its flavours."""
    return partial(SCRIPTED[scenario], openai=flavour == "openai")
