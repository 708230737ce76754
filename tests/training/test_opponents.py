"""Frozen teams inside the environment and leagues: who plays, who learns, and that both resume to the bit."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterpoint
import matrix_games
from counterpoint import config as configs
from counterpoint.algos import coma, league, maddpg, mappo, recurrent
from counterpoint.algos.league import League, LeaguePolicy, average, chances, decide, judged, number_of, slot_of, with_league
from counterpoint.core import numpy_policy, prng
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import Layer
from counterpoint.core.spaces import Spec
from counterpoint.envs import make
from counterpoint.envs.against import Against, part_of
from counterpoint.runs.folder import Run
from counterpoint.studies.exploit import Candidate, best_of, candidates_of, exploit, respond, trained
from counterpoint.studies.tournament import Arena, Cell, Value, elo, entry_of, player_of, rated, resampled, tournament
from counterpoint.training import opponents
from counterpoint.training import train as experiment
from counterpoint.training.rollout import rollout, start
from stopped import Stopper
from tiny import TINY

RPS: dict[str, Any] = {
    **{"env": matrix_games.RockPaperScissors, "num_envs": 10, "update_every": 10, "batch_size": 32, "num_units": 8},
    **{"num_episodes": 1500, "warmup": 50, "devices": 1, "report_every": 500, "eval_episodes": 2, "plots_dir": ""},
}
QUICK: dict[str, Any] = {"num_envs": 16, "update_every": 64, "minibatches": 1, "num_units": 8, "devices": 1, "eval_episodes": 2}
"""Settings of a best response in a matrix game."""
HERE = str(Path(matrix_games.__file__))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("opponents")


@pytest.fixture(scope="module")
def row(home: Path) -> Run:
    """A row that was trained against a column of rock."""
    return counterpoint.train(freeze=[f"col={HERE}:rock"], save_dir=str(home), exp_name="row", **RPS)


@pytest.fixture(scope="module")
def tag(home: Path) -> Run:
    """A barely trained run of simple_tag."""
    settings = TINY | {"scenario": "simple_tag", "num_episodes": 24, "warmup": 100}
    return counterpoint.train(save_dir=str(home), exp_name="tag", **settings)


def policy_of(run: Run) -> dict[str, np.ndarray]:
    return run.load_policy()[0]


def test_training_against_a_frozen_script_finds_the_best_response(row: Run) -> None:
    policy = counterpoint.load(row)
    assert policy.env.spec.agents == ("row_0",)
    assert float(np.mean(policy.evaluate(8).returns)) > 0.9, "paper beats rock"
    assert policy.act({"row_0": np.ones(1)}) == {"row_0": 1}
    assert not (row.path / "opponents").exists(), "a script has no copy"
    assert float(row.rows()[-1]["eval/payoff"]) > 0.9


@pytest.mark.slow
def test_the_frozen_team_of_a_run_plays_as_it_did_there(tag: Run) -> None:
    """In the environment with the frozen team inside, everything is as if both teams acted by the run's greedy policy."""
    whole = make("simple_tag")
    frozen = opponents.load_team(opponents.Source(str(tag.path)), whole, "adversary")
    inner, team = Against(whole, [frozen]), counterpoint.load(tag)
    assert inner.spec.agents == ("agent_0",)
    assert inner.spec.obs_sizes == (14,)
    key = prng.key(3)
    state, obs = inner.reset(key)
    plain, seen = whole.reset(key)
    np.testing.assert_array_equal(obs[0], seen[3, :14])
    move = jax.nn.one_hot(jnp.array([2]), 5)
    stepped, result = inner.step(key, state, move)
    action, _ = team.algo.greedy(team.parameters, (), seen[None])
    after, expected = whole.step(key, plain, action[0].at[3].set(move[0]))
    np.testing.assert_allclose(result.reward, expected.reward[3:], atol=1e-6)
    np.testing.assert_allclose(stepped.inner.position, after.position, atol=1e-6)
    np.testing.assert_allclose(stepped.obs, expected.obs, atol=1e-6)


@pytest.mark.slow
def test_the_frozen_team_is_copied_and_the_run_does_without_its_source(tag: Run, tmp_path: Path) -> None:
    source = Run(Path(shutil.copytree(tag.path, tmp_path / "source")))
    settings = TINY | {"scenario": "simple_tag", "num_episodes": 24, "warmup": 100, "save_dir": str(tmp_path)}
    run = counterpoint.train(freeze=[f"adversary={source.path}@best"], exp_name="good", **settings)
    before = counterpoint.load(run).evaluate(4).returns
    shutil.rmtree(source.path)
    np.testing.assert_array_equal(before, counterpoint.load(run).evaluate(4).returns)
    assert "return/adversary_0" not in run.rows()[-1]
    assert "return/agent_0" in run.rows()[-1]
    again = opponents.load_team(opponents.Source(str(run.path)), make("simple_tag"), "good")
    assert again.agents == ("agent_0",)
    with pytest.raises(UsageError, match="has no policy for adversary_0"):
        opponents.load_team(opponents.Source(str(run.path)), make("simple_tag"), "adversary")
    assert counterpoint.resume(run.path, num_episodes=32).rows()[-1]["episode"] == 32


@pytest.mark.slow
def test_an_exported_team_plays_as_its_run_does(tag: Run, tmp_path: Path) -> None:
    folder = counterpoint.export(tag, "numpy", tmp_path / "out")
    whole = make("simple_tag")
    obs = whole.reset(prng.key(1))[1]
    played = [
        opponents.load_team(opponents.Source(str(place)), whole, "adversary")
        for place in (tag.path, folder, folder / "team.npz", folder / "adversary_0.npz")[:3]
    ]
    actions = [team.act(team.parameters, (), obs, prng.key(0), None)[0] for team in played]
    np.testing.assert_allclose(actions[0][:3], actions[1][:3], atol=1e-5)
    np.testing.assert_array_equal(actions[1], actions[2])


def write_export(path: Path, spec: Spec, actor: Any, **rules: Any) -> numpy_policy.Policy:
    """Writes stacked actors as an export does, and returns the policy in the file."""
    team = numpy_policy.team_of(actor, spec.action_spaces, maddpg.Config(**rules))
    about = {"agents": spec.agents, "obs_sizes": spec.obs_sizes, "integers": [], "joined": []}
    about |= {"spaces": [space._asdict() for space in team.spaces], "rules": team.rules._asdict()}
    np.savez(path, about=np.array(json.dumps(about)), **numpy_policy.pack(team))  # pyright: ignore[reportArgumentType]
    return numpy_policy.Policy.load(path)


@pytest.mark.parametrize("hidden", [(5,), (6, 5)], ids=["unit alone", "layer before it"])
def test_the_export_of_a_recurrent_team_remembers_the_episode(hidden: tuple[int, ...], tmp_path: Path) -> None:
    whole = make("simple_push")
    masks = (jnp.asarray(mask, jnp.float32) for mask in (whole.spec.obs_mask, whole.spec.act_mask))
    fresh = jax.vmap(lambda key, obs, act: recurrent.init_network(key, obs, hidden, act, "glorot"))
    policy = write_export(tmp_path / "team.npz", whole.spec, fresh(jax.random.split(prng.key(0), 2), *masks))
    team = opponents.load_team(opponents.Source(str(tmp_path / "team.npz")), whole, "good")
    carry, memory, act = team.begin(prng.key(1)), numpy_policy.begin_hidden(policy.team), jax.jit(team.act)
    seen = np.random.default_rng(0).normal(size=(3, *whole.spec.obs_mask.shape)).astype(np.float32) * whole.spec.obs_mask
    for obs in seen:
        action, carry = act(team.parameters, carry, jnp.asarray(obs), prng.key(2), None)
        raw, memory = numpy_policy.remembering(policy.team, memory, obs)
        np.testing.assert_allclose(action[1], numpy_policy.best(policy.team, raw)[1], atol=1e-6)
    forgetful, _ = act(team.parameters, team.begin(prng.key(1)), jnp.asarray(seen[-1]), prng.key(2), None)
    assert not np.allclose(action[1], forgetful[1], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["freeze", "league", "league on-policy"])
def test_an_interrupted_run_ends_as_if_left_alone(kind: str, tag: Run, tmp_path: Path) -> None:
    extra: dict[str, Any] = (
        {"freeze": [f"good={tag.path}"]} if kind == "freeze" else {"league": 2, "league_draw": "prioritised"}
    )
    if kind == "league on-policy":
        extra |= {"algorithm": "mappo", "num_envs": 4, "update_every": 200, "num_units": 8, "epochs": 2, "minibatches": 2}
    settings = TINY | {"scenario": "simple_tag", "num_episodes": 64, "warmup": 200, "save_dir": str(tmp_path), **extra}
    calm = counterpoint.train(exp_name="calm", **settings)
    with pytest.raises(experiment.Interrupted):
        counterpoint.train(exp_name="stopped", progress=Stopper(4), **settings)
    stopped = counterpoint.resume(tmp_path / "stopped")
    for name, tensor in policy_of(calm).items():
        np.testing.assert_array_equal(tensor, policy_of(stopped)[name], err_msg=name)
    if kind == "league":
        assert int(policy_of(calm)["added"][0]) == 3, "a league of two: the third took the place of the first"
        assert any(name.startswith("past") for name in policy_of(calm))


def small_league(size: int = 3, share: float = 1.0, draw: Any = "uniform", every: int = 1) -> Any:
    env = make("simple_tag")
    algo = maddpg.make(maddpg.Config(num_units=4, num_layers=1), env.spec, np.ones((4, 4), bool))
    return env, algo, with_league(algo, env.spec, League(size, every, share, draw))


@pytest.mark.slow
def test_a_member_of_the_league_plays_one_team_for_the_whole_episode() -> None:
    env, _, wrapped = small_league()
    agents = wrapped.init(prng.key(0))
    marked = jax.tree.map(lambda leaf: leaf.at[..., 0].set(7.0 * jnp.ones(leaf.shape[:-1])), agents.past)
    agents = agents._replace(past=marked, added=jnp.ones((), jnp.int32))
    envs = start(env, wrapped, prng.key(1), 16)
    _, steps, _ = rollout(env, wrapped, wrapped.policy(agents), envs, prng.key(2), 60, jnp.int32(0))
    _, member, team = steps.extras
    assert set(np.unique(member)) == {0}
    assert set(np.unique(team)) == {0, 1}
    switches = np.asarray(team[1:] != team[:-1])
    assert switches.any()
    assert not np.any(switches & ~np.asarray(steps.done[:-1])), "the draw holds until the episode ends"
    # The marked member's outputs are equal in all entries, so its soft actions are noise alone; a fresh actor's are not.
    empty = wrapped.init(prng.key(0))
    _, alone, _ = rollout(env, wrapped, wrapped.policy(empty), envs, prng.key(2), 3, jnp.int32(0))
    assert set(np.unique(alone.extras[1])) == {league.NOBODY}, "nobody is in the league yet"
    agree = np.isclose(steps.action[:3], alone.action, atol=1e-6).all(-1)
    first = np.asarray(team[:1])[..., None] == np.array([0, 0, 0, 1])
    assert agree[0][~first[0]].all(), "the other team plays as it does now"
    assert not agree[0][first[0]].any(), "the drawn team does not"


@pytest.mark.slow
def test_updates_fill_the_ring_and_learn_as_without_a_league() -> None:
    env, algo, wrapped = small_league(size=2, every=2)
    agents, envs = wrapped.init(prng.key(0)), start(env, wrapped, prng.key(1), 4)
    _, steps, _ = rollout(env, wrapped, wrapped.policy(agents), envs, prng.key(2), 8, jnp.int32(0))
    batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), steps._replace(carry=None))
    plain, update, history = agents.learner, jax.jit(wrapped.update), []
    for k in range(6):
        agents, _ = update(agents, batch, prng.key(k))
        plain, _ = jax.jit(algo.update)(plain, batch._replace(extras=()), prng.key(k))
        history.append(algo.policy(plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), agents.learner, plain)
    assert int(agents.added) == 3
    for slot, update_number in ((0, 5), (1, 3)):  # the third overwrote the first
        kept = jax.tree.map(lambda leaf, slot=slot: leaf[..., slot], agents.past)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), kept, history[update_number])


def test_coma_trains_in_a_league(tmp_path: Path) -> None:
    """Its agents share one critic, and have actors of their own."""
    sizes = {"num_units": 4, "num_envs": 2, "update_every": 50, "report_every": 4, "eval_episodes": 0, "plots_dir": ""}
    settings: dict[str, Any] = {"scenario": "simple_push", "num_episodes": 8, "devices": 1, "save_dir": str(tmp_path), **sizes}
    run = counterpoint.train(algorithm="coma", league=2, progress=False, **settings)
    assert int(policy_of(run)["added"][0]) > 0, "an earlier version could play"


@pytest.mark.parametrize("module", [mappo, coma])
def test_what_a_member_of_the_league_does_teaches_on_policy_agents_nothing(module: Any) -> None:
    env = make("simple_push")
    algo = module.make(module.Config(num_units=4, recurrent=True, standardise_rewards=True), env.spec, np.ones((2, 2), bool))
    wrapped = with_league(algo, env.spec, League(3, 1, 0.5, "uniform"))
    agents = wrapped.init(prng.key(0))._replace(added=jnp.ones((), jnp.int32))
    envs = start(env, wrapped, prng.key(1), 8)
    _, steps, _ = rollout(env, wrapped, wrapped.policy(agents), envs, prng.key(2), 4, jnp.int32(0))
    member, team = map(np.asarray, steps.extras[1:])
    drawn = (np.array(env.spec.teams) == "adversary") == (team == 0)[..., None]
    own = ~(drawn & (member >= 0)[..., None])
    assert 0.5 < own.mean() < 1.0

    in_league, alone = jax.jit(wrapped.update), jax.jit(algo.update)
    plain = steps._replace(extras=(), carry=steps.carry.current)
    found = in_league(agents, steps, prng.key(3))[0].learner
    expected = alone(agents.learner, plain._replace(own=jnp.asarray(own)), prng.key(3))[0]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)
    paid = steps._replace(reward=jnp.where(own, steps.reward, 9.0))
    jax.tree.map(np.testing.assert_array_equal, in_league(agents, paid, prng.key(3))[0].learner, found)
    everything = alone(agents.learner, plain._replace(own=jnp.ones_like(steps.alive)), prng.key(3))[0]
    different = jax.tree.map(lambda a, b: bool(np.any(np.asarray(a) != np.asarray(b))), everything, found)
    assert any(jax.tree.leaves(different))


def test_members_are_drawn_by_chance() -> None:
    scores = jnp.array([[1.0, 3.0, 99.0], [0.0, 0.0, 0.0]])
    uniform, prioritised = (League(3, 1, 0.25, draw) for draw in ("uniform", "prioritised"))
    two = jnp.int32(2)
    np.testing.assert_allclose(chances(uniform, two, scores[0]), [0.5, 0.5, 0.0])
    odds = np.exp([1.0, -1.0])  # standardised, the scores are −1 and 1
    np.testing.assert_allclose(chances(prioritised, two, scores[0]), [*(odds / odds.sum()), 0.0], rtol=1e-5)
    policy = LeaguePolicy((), (), two, scores)
    drawn = jax.vmap(lambda chance: decide(prioritised, policy, jnp.int32(-2), jnp.int32(0), chance))(
        jax.random.uniform(prng.key(0), (4000, 3))
    )
    member, team = map(np.asarray, drawn)
    assert abs(np.mean(member == league.NOBODY) - 0.75) < 0.03
    assert abs(np.mean(member[(team == 0) & (member >= 0)] == 0) - odds[0] / odds.sum()) < 0.06
    assert set(np.unique(member)) == {-1, 0, 1}
    kept = decide(prioritised, policy, jnp.int32(1), jnp.int32(0), jnp.zeros(3))
    assert tuple(map(int, kept)) == (1, 0), "what was decided stays"


def test_scores_are_what_the_others_earn_against_a_member() -> None:
    """Team 0 is agents 0 and 1. Two samples of member 1 in team 0 pay agent 2 with 4 and 8; the running mean moves by 0.05."""
    belongs = np.array([[True, True, False], [False, False, True]])
    reward = jnp.array([[9.0, 9.0, 4.0], [9.0, 9.0, 8.0], [2.0, 4.0, 7.0], [5.0, 5.0, 5.0]])
    found = judged(belongs, jnp.full((2, 2), 10.0), reward, jnp.array([1, 1, 0, -1]), jnp.array([0, 0, 1, 0]))
    np.testing.assert_allclose(found, [[10.0, 0.95 * 10 + 0.05 * 6], [0.95 * 10 + 0.05 * 3, 10.0]], rtol=1e-6)


def test_rows_of_an_overwritten_member_say_nothing_of_its_successor() -> None:
    ring = League(3, 1, 0.25, "prioritised")
    slots = jnp.array([league.NOBODY, 0, 1, 2])
    four, six = jnp.int32(4), jnp.int32(6)
    assert number_of(ring, four, slots).tolist() == [league.NOBODY, 3, 1, 2], "the fourth took the place of the first"
    stored = number_of(ring, four, slots)
    assert slot_of(ring, four, stored).tolist() == slots.tolist()
    assert slot_of(ring, six, stored).tolist() == [league.NOBODY, 0, league.NOBODY, league.NOBODY]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"freeze": ["wolves=x"]}, "names no team here: the teams are adversary, good"),
        ({"freeze": ["adversary"]}, "must have the form TEAM=RUN"),
        ({"freeze": ["adversary=a", "adversary=b"]}, "names the team adversary twice"),
        ({"freeze": [f"adversary={HERE}:rock", f"good={HERE}:rock"]}, "leaves no team to learn"),
        ({"freeze": ["adversary=nowhere"]}, "nowhere is not a run"),
        (
            {"freeze": ["adversary=out/team.onnx"]},
            "out/team.onnx is not a NumPy export, .*`counterpoint export --format numpy`",
        ),
        ({"freeze": [f"adversary={HERE}:nobody"]}, "has no nobody"),
        ({"freeze": [f"adversary={HERE}:silent"]}, "returns no action for adversary_0"),
        ({"freeze": [f"adversary={HERE}:too_wide"]}, r"returns an action of shape \(4,\) for adversary_0"),
        ({"freeze": [f"adversary={HERE}:for_the_column"]}, r"cannot act for adversary_0, .*KeyError: 'col_0'"),
        ({"freeze": [f"adversary={HERE}:PAYOFF"]}, "a scripted policy is a function"),
        ({"league": -1}, "--league must be at least 0"),
        ({"league": 1001}, "--league must be at most 1000"),
        ({"league": 2, "scenario": "simple_spread"}, "needs two learning teams"),
        ({"league": 2, "learners": 4}, "--league 2 and --learners exclude each other"),
        ({"league": 2, "infer_policies": True}, "--league 2 and --infer-policies exclude each other"),
        ({"ensemble_teams": ["good"]}, "--ensemble-teams good says whose ensemble: choose --ensemble as well"),
        (
            {"adv_policy": "ddpg", "scenario": "simple_spread"},
            "--adv-policy ddpg needs a team adversary, and simple_spread has",
        ),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(settings: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        counterpoint.train(**{"scenario": "simple_tag", "save_dir": str(tmp_path), **settings})
    assert not list(tmp_path.iterdir())


def test_a_new_member_of_the_league_is_taken_for_an_average_one() -> None:
    scores = jnp.array([[-1.0, -3.0, 0.0, 0.0], [5.0, 7.0, 0.0, 0.0]])  # two members, two free places
    np.testing.assert_allclose(average(scores, jnp.int32(2)), [-2.0, 6.0])
    np.testing.assert_allclose(average(scores, jnp.int32(0)), [0.0, 0.0])
    np.testing.assert_allclose(average(scores, jnp.int32(9)), [-1.0, 3.0])


def test_a_run_of_another_flavour_is_refused(tag: Run) -> None:
    with pytest.raises(UsageError, match=r"was trained with --flavour mpe2, and here it is openai"):
        opponents.load_team(opponents.Source(str(tag.path)), make("simple_tag", flavour="openai"), "adversary")


@pytest.mark.slow
def test_a_team_of_another_size_is_refused(tag: Run) -> None:
    with pytest.raises(UsageError, match=r"adversary_0 of .* observes 16 numbers .* and here it observes"):
        opponents.load_team(opponents.Source(str(tag.path)), make("simple_tag", num_good=2), "adversary")


@pytest.mark.slow
def test_places_are_recorded_absolutely(tag: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tag.path.parent)
    config = configs.override(configs.Config(), freeze=["adversary=tag@best#0", "good=some.module:name"])
    assert opponents.absolute(config.opponents.freeze) == (f"adversary={tag.path.resolve()}@best#0", "good=some.module:name")
    assert opponents.source_of("tag@12000#2") == ("tag", 12000, 2)


# --- Studies of opponents, on games with known values.


def test_elo_by_hand() -> None:
    """Three wins of four are odds of 3 to 1: 400·log₁₀ 3 points. A third player who draws with the first has its rating."""
    ratings = elo(np.array([[0.0, 30.0], [10.0, 0.0]]), prior=0.0)
    np.testing.assert_allclose(ratings[0] - ratings[1], 400 * np.log10(3), rtol=1e-6)
    np.testing.assert_allclose(ratings.mean(), 1500.0)
    three = elo(np.array([[0.0, 30.0, 5.0], [10.0, 0.0, 0.0], [5.0, 0.0, 0.0]]), prior=0.0)
    np.testing.assert_allclose(three[2], three[0], atol=1e-3)
    unbeaten = elo(np.array([[0.0, 10.0], [0.0, 0.0]]))
    np.testing.assert_allclose(unbeaten[0] - unbeaten[1], 400 * np.log10(10.5 / 0.5), rtol=1e-6)


def test_a_tournament_of_rock_paper_and_scissors(row: Run, tmp_path: Path) -> None:
    """The trained row plays paper. Its cells are those of paper, and the whole matrix is the game's."""
    players = [str(row.path), *(f"{team}={HERE}:{name}" for team in ("col", "row") for name in ("rock", "paper", "scissors"))]
    result = tournament(players, episodes=8, out=tmp_path)
    assert result.teams == ("col", "row")
    found = {(Path(cell.row).name.rpartition(":")[2], Path(cell.column).name.rpartition(":")[2]): cell for cell in result.cells}
    names = ("rock", "paper", "scissors")
    for i, first in enumerate(names):  # the columns of the matrix are the row's choices: the row of the game is "row"
        for j, second in enumerate(names):
            cell = found[first, second]
            np.testing.assert_allclose(cell.returns["row"].mean, matrix_games.PAYOFF[j, i])
            np.testing.assert_allclose(cell.metrics["payoff"].mean, matrix_games.PAYOFF[j, i])
    for name, expected in zip(names, (1.0, 0.0, -1.0), strict=True):
        np.testing.assert_allclose(found[name, "row"].returns["row"].mean, expected, atol=0.1)
    assert not any(first == "row" for first, _ in found), "the run trained no column"
    ratings = {Path(r.player).name.rpartition(":")[2]: r.elo for r in result.ratings if r.team == "col"}
    assert min(ratings["scissors"], ratings["paper"]) > ratings["rock"], "two players of paper meet every column"
    assert {file.name for file in result.files} == {"tournament.md", "cells.csv", "elo.csv", "heatmap.png"}
    assert all(file.stat().st_size > 50 for file in result.files)
    text = (tmp_path / "tournament.md").read_text()
    assert "| run | team | Elo | 95 % |" in text
    assert "| col | row | payoff |" in text


def test_players_take_part_in_the_teams_that_they_have(tmp_path: Path) -> None:
    world = matrix_games.RockPaperScissors()
    for name, spec in {"row": part_of(world.spec, ["row_0"]), "both": world.spec}.items():
        layer = Layer(jnp.zeros((spec.num_agents, 1, 3)), jnp.tile(jnp.array([[0.0, 9.0, 0.0]]), (spec.num_agents, 1)))
        write_export(tmp_path / f"{name}.npz", spec, (layer,))
    assert set(player_of(str(tmp_path / "row.npz"), world).teams) == {"row"}
    assert set(player_of(str(tmp_path / "both.npz"), world).teams) == {"row", "col"}
    assert set(player_of(f"col={tmp_path / 'both.npz'}", world).teams) == {"col"}
    assert set(player_of(f"col={HERE}:for_the_column", world).teams) == {"col"}
    for text, sentence in {
        f"{HERE}:rock": "does not say which team it plays: write col=.*:rock or row=.*:rock",
        f"row={HERE}:for_the_column": r"cannot act for row_0 \(KeyError: 'col_0'\)",
        f"wolves={HERE}:rock": "names no team here: the teams are col, row",
        f"col={tmp_path / 'row.npz'}": "has no policy for col_0",
    }.items():
        with pytest.raises(UsageError, match=sentence):
            player_of(text, world)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "team.safetensors").touch()
    for place in (tmp_path / "folder", tmp_path / "row_0.safetensors", tmp_path / "team.onnx"):
        for text in (f"{place}", f"row={place}", f"{place}@best"):
            with pytest.raises(UsageError, match=f"^{place} is not a NumPy export"):
                player_of(text, world)
    with pytest.raises(UsageError, match="has no whole team of simple_push: its agents are row_0"):
        player_of(str(tmp_path / "row.npz"), make("simple_push"))


def test_a_run_whose_name_looks_like_a_team_is_a_run(row: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(row.path, tmp_path / "lr=0.01")
    monkeypatch.chdir(tmp_path)
    assert entry_of("lr=0.01@best") == ("", "lr=0.01@best")
    assert entry_of("row=lr=0.01@best") == ("row", "lr=0.01@best")
    with pytest.raises(UsageError, match="nobody here plays col"):
        tournament(["lr=0.01", "row=lr=0.01"], episodes=2, out=tmp_path / "out")


def test_intervals_of_ratings_are_over_seeds_where_there_are_several() -> None:
    """One seed always wins and one always loses: over seeds anything is possible, over their pooled episodes little."""
    value = Value(0.0, 0.0, 0.0)

    def widths(margins: list[np.ndarray]) -> list[float]:
        cells = [Cell("a", "b", {"x": value, "y": value}, {}, 200, margins)]
        return [rating.high - rating.low for rating in rated(("x", "y"), cells)]

    apart = [np.full(100, 1.0), np.full(100, -1.0)]
    assert min(widths(apart)) > 500
    assert max(widths([np.concatenate(apart)])) < 100
    alike = [np.tile([1.0, -1.0], 50)] * 2
    np.testing.assert_allclose(widths(alike), 0.0, atol=1e-6)


def test_cells_with_the_same_seeds_draw_the_same_ones() -> None:
    scores = [[np.full(2, k) for k in range(5)], [np.full(2, k) for k in range(5)], [np.arange(9)]]
    first, second, alone = resampled(np.random.default_rng(1), scores)
    np.testing.assert_array_equal(first, second)
    assert len({int(part[0]) for part in first}) > 1
    assert len(alone[0]) == 9


@pytest.mark.slow
def test_exploitability_of_paper_is_two(row: Run, tmp_path: Path) -> None:
    """Rock, against which the row was trained, loses 1 against paper; the best response, scissors, wins 1."""
    result = exploit(row, "row", num_episodes=3000, episodes=100, out=tmp_path, **QUICK)
    assert result.responder == "col"
    assert result.incumbent
    assert result.gain
    np.testing.assert_allclose(result.incumbent.mean, -1.0, atol=0.1)
    np.testing.assert_allclose(result.response.mean, 1.0, atol=0.1)
    np.testing.assert_allclose(result.gain.mean, 2.0, atol=0.15)
    assert result.gain.low > 1.5
    assert result.found_in == str(result.run.path)
    with pytest.raises(UsageError, match="was trained against a frozen col"):
        exploit(row, "col")
    with pytest.raises(UsageError, match="has no policies of col: leave it out of --rivals"):
        exploit(row, "row", rivals=[str(row.path)])
    with pytest.raises(UsageError, match="choose --team col or --team row"):
        exploit(row, "wolves")


@pytest.mark.slow
def test_the_incumbents_are_a_response_among_others(row: Run) -> None:
    """The trained row plays paper, which loses against scissors; rock, as the incumbent, wins."""
    world = matrix_games.RockPaperScissors()
    scissors, rock = (
        opponents.load_team(opponents.Source(f"{HERE}:{name}"), world, team)
        for name, team in (("scissors", "col"), ("rock", "row"))
    )
    learned, incumbent = trained(row, world, "row"), Candidate("incumbent", rock)
    assert best_of(Arena(world), scissors, [*learned, incumbent], "row", 20) is incumbent
    assert best_of(Arena(world), scissors, learned, "row", 20) in learned


@pytest.mark.slow
def test_a_rival_may_be_the_best_response(row: Run, tmp_path: Path) -> None:
    """Nothing is learned with so small a step; scissors of another file beat the paper that the row plays."""
    result = exploit(row, "row", 2, episodes=100, out=tmp_path, rivals=[f"col={HERE}:scissors"], **QUICK, lr=1e-9)
    assert result.found_in == f"col={HERE}:scissors"
    np.testing.assert_allclose(result.response.mean, 1.0, atol=0.1)


@pytest.mark.slow
def test_the_best_response_to_a_mixed_strategy_earns_its_value(tmp_path: Path) -> None:
    """Against ½ rock, ¼ paper, ¼ scissors paper earns ½ − ¼: exploitability ¼, since the game's value is 0."""
    config = configs.override(configs.Config(), env=matrix_games.RockPaperScissors)
    run = respond(config, "col", f"{HERE}:mostly_rock", 20_000, 0, tmp_path, None, QUICK)
    world = matrix_games.RockPaperScissors()
    players = [
        opponents.load_team(opponents.Source(place), world, team)
        for place, team in ((f"{HERE}:mostly_rock", "col"), (str(run.path), "row"))
    ]
    returns = Arena(world).play(players, 4000, 1).returns[:, 0]
    np.testing.assert_allclose(np.mean(returns), 0.25, atol=0.06)
    chosen = players[1].act(players[1].parameters, (), jnp.ones((2, 1)), prng.key(0), None)[0][0]
    assert int(np.argmax(chosen)) == 1
    assert float(chosen[1]) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["maddpg", "mappo"])
def test_a_best_response_starts_from_the_actors_of_a_run(algorithm: str, tmp_path: Path) -> None:
    """With a step size near zero the response chooses as the run's own prey does, but as itself: sharing is undone."""
    more: dict[str, Any] = {"share": "role", "num_units": 16, "devices": 1, "plots_dir": "", "eval_episodes": 2, "num_seeds": 2}
    more |= {"batch_size": 64, "warmup": 100, "temperature": 0.5} if algorithm == "maddpg" else {}
    run = counterpoint.train(
        scenario="simple_tag", algorithm=algorithm, num_episodes=150, save_dir=str(tmp_path), exp_name="run", **more
    )
    world = make("simple_tag")
    _, candidate = candidates_of(str(run.path), world, "adversary", False)
    assert candidate.source is not None
    assert candidate.source.seed_index == 1
    layers = opponents.perceptrons_of(candidate.source, world, "adversary")
    assert layers is not None
    assert [layer.weight.shape for layer in layers] == [(3, 16, 16), (3, 16, 16), (3, 16, 5)]
    still = {"devices": 1, "lr": 1e-9, "eval_episodes": 2}
    config = configs.from_dict(run.config)
    response = respond(config, "good", str(run.path), 128, 0, tmp_path / "out", None, still, layers)
    assert response.config["learning"]["num_units"] == 16
    (_, last) = trained(response, world, "adversary")
    obs = world.reset(prng.key(1))[1]
    old, new = (c.policy.act(c.policy.parameters, (), obs, prng.key(0), None)[0][:3] for c in (candidate, last))
    np.testing.assert_array_equal(np.argmax(old, axis=1), np.argmax(new, axis=1))
    raw = last.policy.parameters.actor.network.body
    np.testing.assert_allclose(raw[-1].weight, layers[-1].weight, atol=1e-5)
    if algorithm == "maddpg":  # what the soft action puts on a choice is how often the response makes it
        hidden = jnp.einsum("ni,nio->no", obs[:3, : layers[0].weight.shape[1]], layers[0].weight) + layers[0].bias
        hidden = jnp.einsum("ni,nio->no", jax.nn.relu(hidden), layers[1].weight) + layers[1].bias
        logits = jnp.einsum("ni,nio->no", jax.nn.relu(hidden), layers[2].weight) + layers[2].bias
        np.testing.assert_allclose(jax.nn.softmax(logits), old, atol=1e-5)


def test_networks_that_are_no_perceptrons_are_no_start(tmp_path: Path) -> None:
    world = make("simple_push")
    for name, extra in {"recurrent": {"algorithm": "mappo", "recurrent": True}, "normalised": {"norm": "layer"}}.items():
        settings: dict[str, Any] = {
            "scenario": "simple_push",
            "num_episodes": 8,
            "devices": 1,
            "num_units": 4,
            "plots_dir": "",
            **extra,
        }
        run = counterpoint.train(save_dir=str(tmp_path), exp_name=name, eval_episodes=0, **settings)
        assert opponents.perceptrons_of(opponents.Source(str(run.path)), world, "good") is None, name
    assert opponents.perceptrons_of(opponents.Source(f"{HERE}:silent"), world, "good") is None


@pytest.mark.slow
@pytest.mark.parametrize("world", ["simple_adversary", "simple_push", "simple_tag", "simple_crypto", "simple_world_comm"])
def test_both_teams_of_every_competitive_world_can_be_exploited(world: str, tmp_path: Path) -> None:
    """The response starts from the actors of the run, whose observations and actions are padded to those of the other team."""
    settings = TINY | {"scenario": world, "num_episodes": 16}
    run = counterpoint.train(save_dir=str(tmp_path), exp_name="run", **settings)
    for team in ("adversary", "good"):
        result = exploit(run, team, 128, episodes=8, out=tmp_path / team, devices=1, eval_episodes=2, num_envs=64)
        assert result.gain is not None
        assert result.gain.mean >= 0 or result.found_in != str(run.path)
        assert result.run.config["learning"]["num_units"] == TINY["num_units"]
        assert result.run.config["algorithm"] == "mappo"
