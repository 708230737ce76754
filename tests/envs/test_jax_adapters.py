"""Environments of JaxMARL and gymnax obey our contract; these packages are extras."""

from collections.abc import Iterator

import jax
import pytest

import counterpoint
from counterpoint.envs.check import problems_of
from counterpoint.external.opening import open_environment
from tiny import TINY

NEEDS = "is an extra: pip install 'counterpoint[jaxmarl,gymnax]'"


@pytest.fixture(autouse=True)
def their_broadcasting() -> Iterator[None]:
    """Their code relies on shapes that our tests forbid to mix."""
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.filterwarnings("ignore")  # of their packages
@pytest.mark.parametrize("name", ["MPE_simple_spread_v3", "MPE_simple_tag_v3", "switch_riddle"])
def test_jaxmarl_obeys(name):
    pytest.importorskip("jaxmarl", reason=f"jaxmarl {NEEDS}")
    env = open_environment(f"jaxmarl:{name}", {}, (), 0)
    assert problems_of(env) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_gymnax_obeys(name):
    pytest.importorskip("gymnax", reason=f"gymnax {NEEDS}")
    env = open_environment(f"gymnax:{name}", {}, (), 30)
    assert env.max_steps == 30
    assert problems_of(env) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["jaxmarl:MPE_simple_tag_v3", "gymnax:CartPole-v1"])
def test_it_trains_in_the_compiled_loop_and_plays(name, tmp_path):
    package = name.partition(":")[0]
    pytest.importorskip(package, reason=f"{package} {NEEDS}")
    run = counterpoint.train(env=name, num_episodes=16, max_episode_len=10, save_dir=str(tmp_path), **TINY | {"warmup": 70})
    (*_, last) = run.rows()
    assert int(last["episode"]) >= 16
    assert float(last["critic_loss/" + counterpoint.load(run).env.spec.agents[0]]) > 0
    assert counterpoint.load(run).evaluate(3).returns.shape[0] == 3
