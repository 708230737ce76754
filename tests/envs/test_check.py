"""Each mistake that a world can make is found and named; every world here makes one."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.core.errors import UsageError
from counterpoint.core.picture import Picture
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Metric, Step
from counterpoint.envs.base import World
from counterpoint.envs.check import problems_of
from counterpoint.envs.own import Adopted, TimeLimit, as_world, is_world, makes_world


class State(NamedTuple):
    place: jax.Array
    step: jax.Array


@dataclass(frozen=True)
class Good:
    """A world that inherits nothing: two agents on a line, of whom the second sees less."""

    max_steps: int = 4

    agents = ("adversary_0", "walker_0")
    actions = (Discrete((2, 3)), Box(2, -2.0, 1.0))
    obs_sizes = (2, 1)

    def observe_both(self, state):
        seen = jnp.stack([state.place, state.step * jnp.ones(2)], axis=1)
        return seen * jnp.array([[1.0, 1.0], [1.0, 0.0]])

    def reset(self, key):
        state = State(jax.random.uniform(key, (2,)), jnp.zeros((), jnp.int32))
        return state, self.observe_both(state)

    def step(self, key, state, action):
        state = State(state.place + action[:, 0], state.step + 1)
        late = jnp.full(2, state.step >= self.max_steps)
        return state, Step(self.observe_both(state), state.place, jnp.zeros(2, bool), late)

    def metrics(self, state):
        return {"place": Metric(state.place[0], "last")}

    def legal(self, state):
        return jnp.array([[True, False, True, False, True], [True, True, False, False, False]])

    def draw(self, state):
        return Picture((0.0, 0.0, 1.0, 1.0), ())


def altered(world: Any, **change: Any) -> Any:
    """A step whose result has some fields changed by functions of (state, result)."""

    def step(self, key, state, action):
        state, result = world.step(self, key, state, action)
        return state, result._replace(**{name: make(state, result) for name, make in change.items()})

    return step


def returning(**methods: Any) -> type:
    """The good world with other methods."""
    return dataclass(frozen=True)(type("Bad", (Good,), methods))


def late_reset(self, key, state, action):
    """As environments that reset themselves do."""
    state, result = Good.step(self, key, state, action)
    fresh, obs = self.reset(key)
    over = result.truncated[0]
    state = jax.tree.map(lambda a, b: jnp.where(over, a, b), fresh, state)
    return state, result._replace(obs=jnp.where(over, obs, result.obs))


def reset_after_win(self, key, state, action):
    """Resets itself after a game is over, but keeps counting as it should when time is up."""
    state, result = Good.step(self, key, state, action)
    won = state.step == 3
    state = state._replace(step=jnp.where(won, 0, state.step))
    return state, result._replace(terminated=jnp.full(2, won), truncated=jnp.full(2, state.step >= 4))


def grows(self, key, state, action):
    state, result = Good.step(self, key, state, action)
    return state._replace(place=jnp.concatenate([state.place, state.place])), result


def with_if(self, key, state, action):
    if state.step > 1:
        state = state._replace(step=state.step * 0)
    return Good.step(self, key, state, action)


def lucky(self, key):
    state = State(jnp.asarray(np.random.default_rng().random(2), jnp.float32), jnp.zeros((), jnp.int32))
    return state, self.observe_both(state)


def noisy_step(self, key, state, action):
    state, result = Good.step(self, key, state, action)
    return state, result._replace(reward=result.reward + float(np.random.default_rng().random()))


def comes_back(state, result):
    return jnp.array([False, True]) & (state.step == 2)


BAD = {
    "obs shape": (
        {"reset": lambda s, k: (Good.reset(s, k)[0], jnp.zeros(2))},
        r"reset must .* shape \[2, 2\], not \[2\]",
    ),
    "obs type": (
        {"reset": lambda s, k: (Good.reset(s, k)[0], jnp.zeros((2, 2), jnp.int32))},
        "reset must return obs as float32, not int32",
    ),
    "reset alone": ({"reset": lambda s, k: Good.reset(s, k)[1]}, r"reset must return \(state, obs\), not a"),
    "reset fails": ({"reset": lambda s, k: 1 / 0}, r"reset fails \(ZeroDivisionError: division by zero\)"),
    "step is no Step": (
        {"step": lambda s, k, st, a: (st, None)},
        r"step must return \(state, Step\), but its second part is None",
    ),
    "state grows": ({"step": grows}, r"step must return state\.place as reset does, float32\[2\], not float32\[4\]"),
    "state changes": ({"step": lambda s, k, st, a: (st.place, Good.step(s, k, st, a)[1])}, "fields of the state that reset"),
    "reward shape": ({"step": altered(Good, reward=lambda s, r: jnp.ones(()))}, r"reward with shape \[2\], not \[\]"),
    "reward type": (
        {"step": altered(Good, reward=lambda s, r: s.step * jnp.ones(2, jnp.int32))},
        "reward as float32, not",
    ),
    "terminated type": ({"step": altered(Good, terminated=lambda s, r: jnp.zeros(2))}, "terminated as bool, not float32"),
    "truncated shape": ({"step": altered(Good, truncated=lambda s, r: jnp.zeros((), bool))}, "truncated with shape"),
    "reward NaN": (
        {"step": altered(Good, reward=lambda s, r: jnp.array([0.0, jnp.nan]))},
        "step returns a reward that is not finite, to walker_0",
    ),
    "obs NaN": (
        {"step": altered(Good, obs=lambda s, r: r.obs.at[0, 0].set(jnp.inf))},
        "step returns an observation that is not finite, of adversary_0",
    ),
    "padding": (
        {"step": altered(Good, obs=lambda s, r: r.obs + 1)},
        "step must return zeros beyond an agent",
    ),
    "if": ({"step": with_if}, "step cannot be compiled: use jnp.where"),
    "random reset": ({"reset": lucky}, "reset differs between calls with the same key: draw every random number"),
    "random step": ({"step": noisy_step}, "step differs between calls with the same key: draw every random number"),
    "never ends": (
        {"step": altered(Good, truncated=lambda s, r: jnp.zeros(2, bool))},
        "must end every episode within",
    ),
    "resets itself": ({"step": late_reset}, "step starts a new episode by itself"),
    "resets after a win": ({"step": reset_after_win}, "step starts a new episode by itself"),
    "comes back": (
        {"step": altered(Good, terminated=comes_back)},
        "step must keep terminated True until reset, but walker_0 plays on",
    ),
    "both ends": (
        {"step": altered(Good, terminated=lambda s, r: r.truncated)},
        "terminated and truncated together for adversary_0",
    ),
    "metric array": (
        {"metrics": lambda s, st: {"place": Metric(st.place, "last")}},
        "one number for 'place', not an array",
    ),
    "metric plain": ({"metrics": lambda s, st: {"place": st.place[0]}}, "must return a Metric for 'place'"),
    "metric list": ({"metrics": lambda s, st: [st.place[0]]}, "metrics must return a dict of Metric by name, not a list"),
    "metric reduction": (
        {"metrics": lambda s, st: {"place": Metric(st.place[0], "median")}},
        "reduction 'median', which must be one of sum, mean, last, max",
    ),
    "metric NaN": (
        {"metrics": lambda s, st: {"place": Metric(st.place[0] * jnp.nan)}},
        "metrics returns a 'place' that is not finite",
    ),
    "nothing legal": (
        {"legal": lambda s, st: Good.legal(s, st).at[0, 2:].set(False)},
        "legal leaves adversary_0 no legal action in head 1",
    ),
    "legal shape": ({"legal": lambda s, st: jnp.ones(5, bool)}, r"legal must return its mask with shape \[2, 5\], not \[5\]"),
    "legal type": ({"legal": lambda s, st: jnp.ones((2, 5))}, "legal must return its mask as bool, not float32"),
    "picture": ({"draw": lambda s, st: [1, 2]}, r"draw must return a Picture \(or None\), not a list"),
    "draw fails": ({"draw": lambda s, st: st.nothing}, r"draw fails \(AttributeError"),
    "agents": ({"agents": ""}, "agents must be the names of its agents"),
    "actions": ({"actions": (Discrete((2,)),)}, "has 2 agents and 1 action spaces"),
    "no actions": ({"actions": None}, "needs `actions`"),
}


def test_nothing_is_wrong_with_a_good_world():
    assert problems_of(Good) == []
    assert problems_of(Good(max_steps=1)) == []


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_named(name):
    methods, sentence = BAD[name]
    problems = problems_of(returning(**methods))
    assert len(problems) == 1, problems
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(problems[0])


def test_a_world_that_can_change_is_refused():
    @dataclass
    class Loose:
        reset, step = Good.reset, Good.step

    @dataclass(frozen=True)
    class Listed(Good):
        names: list = field(default_factory=list)

    class Undecorated(Good):
        pass

    assert problems_of(Undecorated()) == [
        "Undecorated can change after it is made: write @dataclass(frozen=True) above the class."
    ]
    assert problems_of(Loose()) == ["Loose can change after it is made: write @dataclass(frozen=True) above the class."]
    assert problems_of(Listed()) == ["the field names of Listed is a list, which has no hash: use a tuple, a number or a text."]


def test_observe_that_needs_spec_is_named():
    @dataclass(frozen=True)
    class Circular(World):
        max_steps: int = 2
        agents = 1
        actions = 2

        def reset(self, key):
            return jnp.zeros(()), jnp.zeros((1, self.spec.obs_size))

    assert problems_of(Circular()) == ["spec uses `spec`, which is derived from it: use the world's own fields instead."]


def test_a_world_is_recognised_before_anything_is_called():
    def factory(n: int = 2) -> Good:
        raise AssertionError("called")

    def silent(n=2):
        raise AssertionError("called")

    class Gym:
        def reset(self, seed=None): ...
        def step(self, action): ...

    assert is_world(Good)
    assert is_world(Good())
    assert makes_world(factory)
    assert not makes_world(silent)
    assert not is_world(Gym)
    assert not is_world(3)


def test_what_a_world_leaves_out_is_completed():
    world = as_world(Good)
    assert isinstance(world, Adopted)
    assert world.name == "Good"
    assert world.spec.agents == ("adversary_0", "walker_0")
    assert world.spec.roles == ("adversary", "walker")
    assert world.spec.teams == ("adversary", "good")
    assert world.spec.obs_sizes == (2, 1)
    assert world.spec.action_spaces == Good.actions
    assert world.has_masks
    assert as_world(Good(), max_steps=7).max_steps == 7
    assert as_world(Good(), teams=("red", "blue")).spec.teams == ("red", "blue")


def test_a_world_without_a_limit_gets_one():
    @dataclass(frozen=True)
    class Endless:
        agents = 1
        actions = 3

        def reset(self, key):
            return jnp.zeros(()), jnp.zeros((1, 2))

        def step(self, key, state, action):
            no = jnp.zeros(1, bool)
            return state + 1, (jnp.zeros((1, 2)), jnp.ones(1), no, no)

    world = as_world(Endless(), max_steps=3)
    assert isinstance(world, TimeLimit)
    assert as_world(Endless()).max_steps == 1000
    assert problems_of(Endless()) == []
    state, _ = world.reset(jax.random.key(0))
    ends = []
    for _ in range(3):
        state, step = world.step(jax.random.key(0), state, jnp.zeros((1, 3)))
        ends.append((bool(step.truncated[0]), bool(step.terminated[0])))
    assert ends == [(False, False), (False, False), (True, False)]
    assert world.spec.action_spaces == (Discrete((3,)),)
    assert world.metrics(state) == {}
    assert world.draw(state) is None
    assert not world.has_masks
    with pytest.raises(UsageError, match="is not a compiled environment"):
        as_world(3)
