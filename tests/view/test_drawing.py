"""A world's own draw, translated: the same pictures, the right handles, honest refusals."""

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from browser import evaluated
from counterpoint.core import prng
from counterpoint.core.picture import Circle, Picture, Polygon, Speech
from counterpoint.core.spaces import Discrete
from counterpoint.core.types import Step
from counterpoint.envs import WORLDS, make
from counterpoint.envs.base import World
from counterpoint.view import drawing


def some_states(world: Any, count: int = 6) -> list[Any]:
    """States of random play, from several episodes."""
    spec = world.spec
    reset, step = jax.jit(world.reset), jax.jit(world.step)
    states = []
    for seed in range(2):
        key = prng.key(seed)
        state, _ = reset(key)
        for t in range(count):
            states.append(jax.device_get(state))
            action = np.random.default_rng([seed, t]).uniform(-1, 1, spec.act_mask.shape).astype(np.float32) * spec.act_mask
            state, _ = step(jax.random.fold_in(key, t), state, action)
    return states


@pytest.mark.parametrize("name", WORLDS)
def test_every_world_is_drawn(name):
    world = make(name)
    states = some_states(world)
    scene = drawing.trace(world, states[3])
    drawing.check(scene, world, states)
    text = drawing.javascript(scene)
    assert text.startswith("function draw(s)")
    handles = drawing.handles(scene, states[0])
    bodies = [k for k, shape in enumerate(scene.shapes) if shape[1] in "cp" and _label(shape) in world.spec.agents]
    assert len(bodies) == world.spec.num_agents
    for k in bodies:
        assert set(handles[k]) == {"x", "y"}


def _label(shape: Any) -> Any:
    return shape[6 if shape[1] == "c" else 4][1]


def test_a_wrong_scene_is_noticed():
    world = make("simple_tag")
    states = some_states(world)
    scene = drawing.trace(world, states[3])
    moved = dataclasses.replace(
        scene, shapes=(*scene.shapes[:-1], (*scene.shapes[-1][:2], ("const", 0.5), *scene.shapes[-1][3:]))
    )
    with pytest.raises(drawing.Untraceable):
        drawing.check(moved, world, states)


class Heap(NamedTuple):
    place: Any
    heat: Any
    mode: Any


def helper(value: float) -> float:
    """A function of the module, called by draw."""
    return float(np.sqrt(value * value)) + 1


@dataclass(frozen=True)
class Painted(World):
    """A world whose draw does all kinds of things."""

    agents = 2
    actions = Discrete((2,))
    max_steps: int = 5
    kind: str = "fine"

    def reset(self, key):
        place = jax.random.uniform(key, (2, 2), minval=-1.0, maxval=1.0)
        state = Heap(place, place[:, 0] * 3, jnp.argmax(place[0]))
        return state, state.place

    def observe(self, state):
        return state.place

    def step(self, key, state, action):
        place = state.place + jax.random.normal(key, (2, 2))
        late = jnp.zeros(2, bool)
        return Heap(place, place[:, 1], 1 - state.mode), Step(place, place[:, 0], late, late)

    def draw(self, state):
        if self.kind == "hashes":
            return Picture((0, 0, 1, 1), (Circle(len({int(state.mode)}), 0, 1, "agent"),))
        if self.kind == "indexes":
            return Picture((0, 0, 1, 1), (Circle([1, 2][int(state.mode)], 0, 1, "agent"),))
        if self.kind == "equals":
            same, other = (state.mode == True, state.mode != True)  # noqa: E712 — as users may write it
            shapes = [
                Circle((-1) ** state.mode, 0, 1, "goal" if same else "agent"),
                *([Circle(0, 0, 1, "agent")] if other else []),
            ]
            return Picture((0, 0, 1, 1), tuple(shapes))
        place = np.asarray(state.place)
        warm = "goal" if state.heat[0] > 0 else "landmark"
        role = {True: "agent", False: "adversary"}[bool(state.heat[1] > 0.5)]
        shapes = [Circle(2 * float(place[0, 0]) - 1, -place[0, 1], 0.1 + 0.1 * abs(float(state.heat[0])), warm, "a")]
        if state.mode == 1:
            shapes.append(Speech(0.0, 0.0, "agent", tuple(place[1].tolist())))
        x, y = place[1].tolist()
        shapes.append(Polygon(((x, y), (x + 1, y), (x, y + 1)), role, f"{helper(x):.2f}"))
        return Picture((-3.0, -3.0, 3.0, 3.0), tuple(shapes), f"heat {float(np.max(state.heat)):.1f}  mode {int(state.mode)}")


def test_branches_helpers_and_formats():
    world = Painted()
    states = some_states(world)
    scene = drawing.trace(world, states[0])
    drawing.check(scene, world, states)
    assert drawing.handles(scene, states[0])[0] == {"x": [0, 0, 2.0, False], "y": [0, 1, -1.0, False]}
    captions = {drawing.evaluate(scene.caption, jax.tree.leaves(state), {}) for state in states}
    assert captions == {world.draw(state).caption for state in states}
    assert len(captions) > 3


@pytest.mark.parametrize("kind", ["hashes", "indexes"])
def test_what_cannot_be_translated_is_refused(kind):
    world = Painted(kind=kind)
    with pytest.raises(drawing.Untraceable):
        drawing.trace(world, some_states(world, 1)[0])


def test_truth_equals_one_and_powers_of_negative_numbers_are_powers():
    world = Painted(kind="equals")
    states = some_states(world)
    scene = drawing.trace(world, states[0])
    drawing.check(scene, world, states)
    shapes = "[0, 1].map((mode) => draw([[], [], [mode]]).shapes.map((shape) => [shape[2], shape[5]]))"
    assert evaluated(drawing.javascript(scene), shapes) == [[[1, "agent"], [0, "agent"]], [[-1, "goal"]]]


def test_a_picture_that_cannot_be_computed_in_some_state_is_refused():
    world = Painted()
    state = some_states(world, 1)[0]
    scene = drawing.trace(world, state)
    for node in (("sqrt", ("const", -1.0)), ("exp", ("const", 1e4)), ("pow", ("const", 0.0), ("const", -1))):
        broken = dataclasses.replace(scene, shapes=((("const", True), "c", node, *scene.shapes[0][3:]),))
        with pytest.raises(drawing.Untraceable, match="cannot compute"):
            drawing.check(broken, world, [state])
