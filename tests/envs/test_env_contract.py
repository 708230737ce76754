"""Every built-in world obeys the contract: the checks that `check_env` runs find nothing."""

import jax
import pytest

from counterpoint.core import prng
from counterpoint.envs import WORLDS, make
from counterpoint.envs.check import problems_of
from counterpoint.envs.mpe.scenario import Scenario

VARIANTS = [
    *((name, {}) for name in WORLDS),
    *((name, {"actions": "continuous"}) for name in ("simple_reference",)),
    ("simple_spread", {"flavour": "openai", "N": 2, "terminate_on_success": True}),
    ("simple_tag", {"num_agent_neighbors": 5, "num_landmark_neighbors": 1, "curriculum": True}),
    ("switch2", {"observation": "full", "clock": False}),
]


@pytest.mark.parametrize(("name", "arguments"), VARIANTS, ids=[" ".join([n, *map(str, a.values())]) for n, a in VARIANTS])
def test_nothing_is_wrong_with(name, arguments):
    assert problems_of(make(name, **arguments)) == []


def test_worlds_are_found_without_a_list():
    assert list(WORLDS) == sorted(WORLDS)
    assert len(WORLDS) == 15
    assert not any(vars(world).get("name") is None for world in WORLDS.values())
    assert Scenario not in WORLDS.values()


def test_sizes_are_those_of_what_agents_observe():
    world = make("simple_world_comm", num_good=3, num_forests=1)
    groups = jax.eval_shape(lambda key: world.observe(world.reset(key)[0]), prng.key(0))
    assert world.spec.obs_sizes == tuple(group.shape[1] for group in groups for _ in range(group.shape[0]))
    assert len(set(world.spec.obs_sizes)) == 2
