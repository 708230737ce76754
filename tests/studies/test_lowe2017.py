"""The reproductions of Lowe et al.: data, tables and the pipeline, each run quickly."""

import csv
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.envs.mpe.scenario import Scenario, State
from counterpoint.envs.mpe.tag import Tag
from counterpoint.runs import Run
from counterpoint.studies import reproduce
from counterpoint.studies.reproduce import (
    _lowe2017,
    authors,
    lowe2017_communication,
    lowe2017_deception,
    lowe2017_ensembles,
    lowe2017_gradients,
    lowe2017_inference,
)
from counterpoint.studies.reproduce._lowe2017 import (
    Effort,
    Plan,
    Row,
    claims_of,
    cost_verdict,
    gain_verdict,
    train_all,
    write_up,
)
from counterpoint.studies.reproduce._lowe2017_worlds import Chase, Deception, KeepAway
from counterpoint.studies.reproduce.lowe2017_predator_prey import FastTag
from counterpoint.training import train as train_module

NAMES = ["communication", "navigation", "predator-prey", "deception", "covert", "ensembles", "inference", "gradients"]


def test_every_result_is_registered():
    found = reproduce.published_results()
    assert {f"lowe2017-{name}" for name in NAMES} | {"authors", "wang2021"} == set(found)
    assert all(entry.title.endswith(".") for entry in found.values())


def test_one_gradient_sample_in_two_to_the_n_points_the_right_way(tmp_path):
    """One agent is right with a half: it is paid only if it chooses 1, and then the sample points up."""
    assert lowe2017_gradients.right_way(1, 10_000) / 10_000 == pytest.approx(0.5, abs=0.02)
    assert lowe2017_gradients.right_way(4, 40_000) / 40_000 == pytest.approx(1 / 16, abs=0.006)
    reproduce.reproduce("lowe2017-gradients", True, str(tmp_path))
    folder = tmp_path / "lowe2017-gradients-quick"
    rows = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    assert [row["what"] for row in rows[:3]] == ["N = 1", "N = 2", "N = 3"]
    assert all(float(row["low"]) < float(row["published"]) < float(row["high"]) for row in rows[:5])
    assert (folder / "figure.png").stat().st_size > 5000
    assert "A quick run" in (folder / "table.md").read_text()


def test_the_verdict_says_on_which_side_ours_is(tmp_path, capsys):
    rows = [
        Row("a", "m", "%", 10.0).measured([9.0, 11.0]),
        Row("b", "m", "%", 10.0).measured([1.0, 2.0]),
        Row("c", "m", "%", 10.0).measured([20.0, 21.0]),
        Row("d", "m", "%", 10.0),
    ]
    rows.append(rows[2]._replace(published_low=9.0, published_high=20.0))
    rows.append(rows[2]._replace(published_low=9.0, published_high=19.0))
    write_up(tmp_path, "title", "about", rows, Effort(False), 0.0)
    expected = ["yes", "ours lower", "ours higher", "–", "yes", "ours higher"]
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ") and "what" not in line]
    assert [line.split("|")[-2].strip() for line in lines if ":--" not in line] == expected
    assert "| 10 [9, 19] |" in lines[-1], "the published interval is shown"


def test_the_order_of_cells_is_judged_by_their_intervals():
    seeds = {"a": [8.0, 9.0], "b": [7.0, 8.5], "c": [1.0, 2.0]}
    rows = [Row(name, "m", "%", 1.0).measured(values) for name, values in seeds.items()]
    rows.append(Row("d", "m", "%", 1.0))
    claims = claims_of(rows, ("m", "a", "c"), ("m", "a", "b"), ("m", "c", "a"), ("m", "a", "d"))
    expected = ["holds, intervals are apart", "holds, intervals overlap", "does not hold", "not measured"]
    assert [claim.verdict for claim in claims] == expected
    assert claims[0].text == "m: more in a than in c"


def test_a_target_is_reached_if_no_other_landmark_is_nearer():
    """The listener is the second agent; it ends at (1, 0), far from the first landmark and nearest to the third."""
    landmarks = np.array([[-1.0, 0.0], [0.0, 0.0], [0.4, 0.1]], np.float32)
    agents = np.array([[-1.0, 0.0], [1.0, 0.0]], np.float32)
    three = [np.stack([array] * 3) for array in (agents, agents, np.zeros((2, 3), np.float32), landmarks)]
    states = State(*three, goal=np.array([[0], [1], [2]], np.int32), step=np.full(3, 25, np.int32))
    np.testing.assert_array_equal(lowe2017_communication.nearest_is_target(states), [0.0, 0.0, 1.0])


def test_deceivers_succeed_if_one_of_them_is_near_the_target():
    """The adversary is 0.3 from the first landmark; of the others one is 0.5 and one 0.39 from the second."""
    landmarks = np.array([[0.0, 0.0], [2.0, 0.0]], np.float32)
    agents = np.array([[0.3, 0.0], [1.5, 0.0], [2.0, 0.39]], np.float32)
    two = [np.stack([array] * 2) for array in (agents, agents, np.zeros((3, 0), np.float32), landmarks)]
    goal = np.array([[0, 0, 0], [1, 1, 1]], np.int32)
    states = State(*two, goal=goal, step=np.full(2, 25, np.int32))
    adversary, good = lowe2017_deception.near_target(states)
    np.testing.assert_array_equal(adversary, [1.0, 0.0])
    np.testing.assert_array_equal(good, [0.0, 1.0])


def placed(world: Scenario, position: list[list[float]], landmarks: list[list[float]]) -> State:
    """Returns a state with agents and landmarks at these places; the first landmark is the goal."""
    state, _ = world.reset(prng.key(0))
    places = {"position": jnp.array(position), "landmarks": jnp.array(landmarks)}
    return state._replace(**places, goal=jnp.zeros_like(state.goal))


@pytest.mark.parametrize(("away", "reward", "score"), [(0.04, [0.5 - 0.04 + 1, -0.5], 1.0), (0.06, [0.5 - 0.06, -0.5], 0.0)])
def test_rewards_of_keep_away_by_hand(away, reward, score):
    """The agent stays at 0.5 from the target, the adversary is inside or outside of 0.05."""
    world = KeepAway()
    state = placed(world, [[away, 0.0], [0.5, 0.0]], [[0.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(world.reward(state), reward, rtol=1e-6)
    assert world.metrics(state)["score"].value == score
    at_home = placed(world, [[0.5, 0.0], [0.03, 0.0]], [[0.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(world.reward(at_home), [0.03 - 0.5, 1 - 0.03], rtol=1e-5)


@pytest.mark.parametrize(("away", "own", "score"), [(0.08, 1 - 0.08, 1.0), (0.12, -0.12, 0.0)])
def test_rewards_of_deception_by_hand(away, own, score):
    """The agents are 0.3 and 0.7 from the target; they earn the adversary's distance less that of the nearer one."""
    world = Deception()
    state = placed(world, [[away, 0.0], [0.0, 0.3], [0.0, 0.7]], [[0.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(world.reward(state), [own, away - 0.3, away - 0.3], rtol=1e-5)
    assert world.metrics(state)["score"].value == score


@pytest.mark.parametrize(("away", "caught"), [(0.13, 1.0), (0.14, 0.0)])
def test_rewards_of_the_chase_by_hand(away, caught):
    """Three predators are 0.5 to 0.7 from the prey at (0, 0), the fourth is within reach or just out of it."""
    world = Chase()
    state = placed(world, [[0.5, 0.0], [0.0, 0.6], [0.7, 0.0], [0.0, -away], [0.0, 0.0]], [[1.0, 1.0]])
    hunt, flee = 5 * caught - (0.5 + 0.6 + 0.7 + away), away - 5 * caught
    np.testing.assert_allclose(world.reward(state), [hunt] * 4 + [flee], rtol=1e-5)
    assert world.metrics(state)["score"].value == caught
    outside = placed(world, [[0.5, 0.0]] * 4 + [[0.95, 0.0]], [[1.0, 1.0]])
    np.testing.assert_allclose(world.reward(outside)[-1], 0.45 - 0.5, atol=1e-5, err_msg="leaving the screen costs 0.5 here")


def test_a_sub_policy_has_as_much_data_as_a_single_policy(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(train_module, "train", lambda **settings: asked.append(settings))
    plans = [Plan("one", {"scenario": "simple"}), Plan("three", {"scenario": "simple", "ensemble": 3}, times=3)]
    for plan in plans:
        with pytest.raises(UsageError):  # nothing was trained, so there is no run to open
            train_all(tmp_path, [plan], Effort(quick=False, episodes=100, seeds=1))
    one, three = asked
    assert (one["num_episodes"], three["num_episodes"]) == (100, 300)
    assert "batch_size" not in one
    assert {name: three[name] for name in ("batch_size", "update_every", "buffer_size")} == {
        "batch_size": 3 * 1024,
        "update_every": 300,
        "buffer_size": 3_000_000,
    }


def test_gains_of_ensembles_by_hand():
    """Adversary single 4, 2 and ensemble 7, 3 against agents single, ensemble: it gains (3 + 1) / 2, and agents (2 + 4) / 2."""
    contest = lowe2017_ensembles.CONTESTS[0]
    off = np.where(np.eye(3, dtype=bool), np.nan, 1.0)
    tables = np.array([[4.0, 2.0], [7.0, 3.0]])[:, :, None, None] * off
    rows = lowe2017_ensembles.rows_of(contest, tables)
    assert [row.ours for row in rows] == pytest.approx([4.0, 2.0, 7.0, 3.0, 2.0, 3.0])
    assert [row.published for row in rows] == pytest.approx([7.94, 7.74, 8.35, 8.11, 0.39, 0.22])
    assert all(row.low == pytest.approx(row.ours) == row.high for row in rows), "seeds that do not differ have no spread"
    claims = lowe2017_ensembles.claims_about(contest, rows)
    assert [claim.verdict for claim in claims] == ["holds, intervals are apart"] * 2 + ["holds, the interval is above 0"] * 2
    assert claims[1].text.endswith("more in single adversary v single agents than in single adversary v ensemble agents")
    assert "gain of ensemble agents" in claims[3].text


def test_the_cost_of_inference_is_judged_by_the_difference():
    free = Row("d", "return", "unit", 0.0).difference([-14.0, -15.0, -13.5], [-14.2, -13.0, -15.0])
    assert free.ours == pytest.approx(-14.1667 + 14.0667, abs=1e-3)
    assert free.low < 0 < free.high
    assert cost_verdict(free).startswith("holds, the interval includes 0; a cost of up to ")
    dear = Row("d", "return", "unit", 0.0).difference([-20.0, -21.0], [-14.0, -15.0])
    assert cost_verdict(dear) == "does not hold: it costs 5 to 7"
    assert cost_verdict(Row("d", "return", "unit", 0.0).difference([-10.0, -11.0], [-14.0, -15.0])) == "holds, it gains"
    assert gain_verdict(dear) == "does not hold"
    assert gain_verdict(free._replace(ours=0.1)) == "holds, the interval includes 0"
    assert gain_verdict(Row("d", "m", "%", 1.0)) == cost_verdict(Row("d", "m", "%", 1.0)) == "not measured"


def test_divergences_have_a_last_and_a_largest_value(tmp_path):
    values = {0: [float("nan"), 1.5, 0.9], 1: [float("nan"), 0.0, 0.5]}
    rows = [{"seed": seed, "inference_kl/speaker_0": each[t]} for t in range(3) for seed, each in values.items()]
    last, peak = lowe2017_inference.divergences(recorded_run(tmp_path / "run", rows), "speaker_0")
    assert (last, peak) == ([0.9, 0.5], [1.5, 0.5])


def recorded_run(path, rows):
    """Returns a run with these rows of metrics and nothing else."""
    path.mkdir()
    run = Run(path)
    for row in rows:
        run.append_metrics(row)
    return run


def test_minutes_are_those_that_the_runs_recorded(tmp_path):
    """Two runs: one of 120 s for each of two seeds, which train together, and one that was resumed and reached 60 s."""
    reports = {"a": [(0, 60.0), (1, 60.0), (0, 120.0), (1, 120.0)], "b": [(0, 30.0), (0, 60.0)]}
    runs = {
        name: recorded_run(tmp_path / name, [{"seed": seed, "seconds": seconds} for seed, seconds in rows])
        for name, rows in reports.items()
    }
    text = _lowe2017._duration(runs, time.perf_counter() - 30.0)
    assert text == "Training took 3.0 minutes, as the runs recorded it over all calls, and evaluation 0.5."


@pytest.mark.parametrize(
    ("result", "options", "sentence"),
    [
        ("wang2021", {"episodes": 5}, "wang2021 has no number of episodes to choose: leave out --episodes"),
        ("lowe2017-gradients", {"seeds": 3}, "no number of seeds to choose"),
        ("lowe2017-covert", {"seeds": 1}, "--seeds must be at least 2, not 1"),
        ("lowe2017-covert", {"episodes": -1}, "--episodes must be at least 1, not -1"),
    ],
)
def test_efforts_that_do_not_exist_are_refused(result, options, sentence, tmp_path):
    with pytest.raises(UsageError, match=sentence):
        reproduce.reproduce(result, True, str(tmp_path), **options)
    assert not list(tmp_path.iterdir())


def test_only_the_speed_of_the_prey_differs():
    usual, fast = Tag(), FastTag(faster=100)
    np.testing.assert_allclose(fast.bodies.max_speed[:4], [1.0, 1.0, 1.0, 2.0])
    np.testing.assert_allclose(FastTag(faster=30).bodies.max_speed[:4], usual.bodies.max_speed[:4])
    np.testing.assert_array_equal(fast.bodies.accel, usual.bodies.accel)


WORLDS = ("simple_spread", "simple_speaker_listener", "simple_reference", "simple_adversary")


def test_the_authors_curves_are_whole():
    rows = authors.read()
    curves = {(row["scenario"], row["team"]): [] for row in rows}
    assert {scenario for scenario, _ in curves} == set(WORLDS)
    for row in rows:
        curves[row["scenario"], row["team"]].append(int(row["episodes"]))
        assert float(row["lowest"]) < float(row["low"]) < float(row["mean"]) < float(row["high"]) < float(row["highest"])
    assert all(at == list(range(1000, 61_000, 1000)) for at in curves.values())
    ends = {(row["scenario"], row["team"]): float(row["mean"]) for row in rows if row["episodes"] == "60000"}
    published = {"simple_spread": -138.6, "simple_speaker_listener": -24.7, "simple_reference": -21.8, "simple_adversary": 8.55}
    assert all(ends[world, "good"] == pytest.approx(mean, abs=0.06) for world, mean in published.items())


def trained_runs(folder, returns):
    """Returns a run of each world and kind; its seeds report these returns three times, the last time at 60 000 episodes."""
    rows = [
        {"seed": seed, "episode": episode, "team/good": value, "team/adversary": value}
        for episode in (20_000, 40_000, 60_000)
        for seed, value in enumerate(returns)
    ]
    names = [authors.run_name(world, kind) for world in WORLDS for kind in authors.KINDS]
    return {name: recorded_run(folder / name, rows) for name in names}


def test_seeds_that_communicate_are_counted_beside_the_authors(tmp_path):
    """Of four seeds one ends above −20 and two are mute; the authors have 6 and 12 of 21."""
    runs = trained_runs(tmp_path, [-15.0, -23.0, -27.0, -29.0])
    speaks, mute = authors.shares(runs["simple_speaker_listener-our"], "our defaults", quick=True)
    assert (speaks.ours, mute.ours) == (25.0, 50.0)
    assert (speaks.published, mute.published) == (pytest.approx(100 * 6 / 21), pytest.approx(100 * 12 / 21))
    assert (speaks.metric, mute.metric) == ("seeds above −20 at 60,000", "seeds mute, below −26 at 60,000")
    assert speaks.low < 25.0 < speaks.high
    assert speaks.published_low < speaks.published < speaks.published_high


def test_the_authors_interval_decides_what_is_inside(tmp_path):
    line = next(row for row in authors.read() if row["scenario"] == "simple_spread" and row["episodes"] == "60000")
    for value, verdict in ((-140.0, "yes"), (-141.0, "ours lower"), (-136.0, "ours higher")):
        (tmp_path / str(value)).mkdir()
        row, _ = authors.rows_of(line, trained_runs(tmp_path / str(value), [value] * 3), quick=True)
        assert _lowe2017._verdict(row) == verdict
        assert row.published == -138.6


def test_the_figure_shows_training_curves_of_the_authors_and_ours(tmp_path, monkeypatch):
    drawn = []

    def keep(size, path, dpi, draw):
        drawn.append(Figure(figsize=size))
        draw(drawn[0])

    monkeypatch.setattr(authors, "save_figure", keep)
    authors.figure(authors.read(), trained_runs(tmp_path, [-15.0, -23.0]), tmp_path / "figure.png")
    panels = [axes for axes in drawn[0].axes if axes.lines]
    assert [axes.get_title() for axes in panels][-1] == "simple_adversary, adversary"
    assert [[len(line.get_xdata()) for line in axes.lines] for axes in panels] == [[60, 3, 3]] * 5
    assert all(len(axes.collections) == 4 for axes in panels), "their range and interval, and the intervals of ours"


def smaller(monkeypatch):
    tiny = {"warmup": 100, "num_units": 8, "report_every": 8, "save_rate": 16}
    monkeypatch.setattr(_lowe2017, "QUICK", _lowe2017.QUICK | tiny)
    monkeypatch.setattr(_lowe2017, "QUICK_EPISODES", 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES[:-1])
def test_the_pipeline_runs_and_does_not_repeat_itself(name, tmp_path, monkeypatch, capsys):
    smaller(monkeypatch)
    for _ in range(2):
        reproduce.reproduce(f"lowe2017-{name}", True, str(tmp_path), episodes=16)
    out = capsys.readouterr().out
    folder = tmp_path / f"lowe2017-{name}-quick"
    runs = sorted(path.name for path in (folder / "runs").iterdir())
    assert out.count("] training ") == len(runs), "the second call trains nothing"
    rows = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    ours = [row for row in rows if row["ours"]]
    assert len(ours) >= 4
    assert all(np.isfinite(float(row["ours"])) and row["seeds"] == "2" for row in ours)
    assert Path(folder / "figure.png").exists()
    text = (folder / "table.md").read_text()
    assert f"{len(runs)} runs of 2 seeds, each trained for 16 episodes." in text
    assert f"`counterpoint reproduce lowe2017-{name} --quick --episodes 16`. Training took " in text
    if name == "communication":
        reproduce.reproduce(f"lowe2017-{name}", True, str(tmp_path), episodes=24)
        assert "each trained for 24 episodes" in (folder / "table.md").read_text(), "longer training continues the runs"
        with pytest.raises(UsageError, match="has 2 seeds, not 3: choose --seeds 2 or another --out"):
            reproduce.reproduce(f"lowe2017-{name}", True, str(tmp_path), episodes=24, seeds=3)


@pytest.mark.slow
def test_the_authors_runs_are_compared(tmp_path, monkeypatch):
    smaller(monkeypatch)
    reproduce.reproduce("authors", True, str(tmp_path), episodes=16)
    rows = list(csv.DictReader((tmp_path / "authors-quick" / "table.csv").read_text().splitlines()))
    assert len(rows) == 2 * (2 * 5 + 2), "five teams at two moments and two shares of seeds, with either settings"
    assert all(np.isfinite(float(row["ours"])) for row in rows)
