"""`--env` opens compiled worlds, adapters and Python environments, and knows which is which before it starts anything."""

import sys
from pathlib import Path

import pytest

import counterpoint
from counterpoint.core.errors import UsageError
from counterpoint.external.check import check_env
from counterpoint.external.check import problems_of as problems_with
from counterpoint.external.opening import open_environment
from tiny import HOME, TINY

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "own_world.py")
ADDRESS = f"{EXAMPLE}:Gather"


def test_a_class_of_the_users_own_is_a_compiled_world():
    env = open_environment(ADDRESS, {"n": 3}, (), 0)
    assert env.compiled is env
    assert env.spec.agents == ("scout", "follower_0", "follower_1")
    assert env.spec.obs_sizes == (4, 2, 2)
    assert env.max_steps == 20


def test_flags_apply_to_compiled_worlds():
    env = open_environment(ADDRESS, {}, ("follower_*=adversary",), 5)
    assert env.spec.teams == ("good", "adversary")
    assert env.max_steps == 5


def test_wrong_arguments_are_named():
    with pytest.raises(UsageError, match=r"Gather has no argument 'm'; it takes n, max_steps"):
        open_environment(ADDRESS, {"m": 3}, (), 0)
    with pytest.raises(UsageError, match=r"--teams wolf=adversary matches none of the agents"):
        open_environment(ADDRESS, {}, ("wolf=adversary",), 0)


def test_other_environments_are_python_s():
    env = open_environment("mpe2.simple_spread_v3:parallel_env", {}, (), 0)
    assert env.compiled is None
    assert env.spec.num_agents == 3


def test_the_example_obeys_the_contract_and_trains_plays():
    check_env(ADDRESS)
    world = open_environment(ADDRESS, {"n": 2}, (), 0)
    settings = {**TINY, "save_dir": str(HOME / "own"), "exp_name": "gather", "num_episodes": 32}
    run = counterpoint.train(env=world, **settings)
    assert "distance" in " ".join(run.rows()[-1])
    team = counterpoint.load(str(run.path))
    assert team.env.compiled is not None
    film = HOME / "gather.gif"
    assert team.save_film(film, 1)
    assert film.read_bytes()[:3] == b"GIF"


def test_a_missing_adapter_names_its_extra(monkeypatch):
    for prefix in ("jaxmarl", "gymnax"):
        monkeypatch.setitem(sys.modules, prefix, None)
        with pytest.raises(UsageError, match=rf"pip install 'counterpoint\[{prefix}\]'"):
            open_environment(f"{prefix}:Nothing-v0", {}, (), 0)


def test_python_environments_are_checked_too():
    assert problems_with("mpe2.simple_tag_v3:parallel_env") == []
    assert problems_with("simple_tag") == []
    assert problems_with("gymnasium.envs.classic_control.cartpole:CartPoleEnv") == []
    with pytest.raises(UsageError, match="has no possible_agents"):
        check_env(object())


def test_an_environment_that_fails_to_close_has_done_its_work(capsys: pytest.CaptureFixture[str]):
    hostile = Path(__file__).parents[1] / "chaos" / "hostile.py"
    env = open_environment(f"{hostile}:Hostile", {"kind": "close_raises"}, (), 0)
    assert env.spec.num_agents == 1
    assert "close raised ValueError: cannot close" in capsys.readouterr().err
