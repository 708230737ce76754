"""Policies along the way: bounded, evenly spaced, and the best by the stated rule."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint import runs
from counterpoint.core.errors import UsageError
from counterpoint.runs import history
from counterpoint.runs.folder import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return runs.create(tmp_path, "first", {})


def tensors(value: float, seeds: int = 1) -> dict[str, np.ndarray]:
    return {"w": np.full((seeds, 2), value, np.float32)}


def save(run: Run, episodes: int, spacing: int = 10) -> None:
    about = {"episodes": episodes, "step": 25 * episodes}
    history.keep(run, tensors(episodes), about, spacing)
    run.save_policy(tensors(episodes), about)


@given(gaps=st.lists(st.integers(1, 40), min_size=1, max_size=400), spacing=st.integers(1, 30))
def test_the_history_is_bounded_and_does_not_depend_on_when_it_is_thinned(gaps: list[int], spacing: int) -> None:
    episodes = np.cumsum(gaps).tolist()
    kept: list[int] = []
    for count in episodes:
        kept = history.thinned([*kept, count], spacing)
        assert len(kept) <= history.MOST
    assert kept == history.thinned(episodes, spacing)
    assert kept[0] == episodes[0]


def test_kept_policies_are_evenly_spaced(run: Run) -> None:
    for episodes in range(10, 1010, 10):
        save(run, episodes)
    kept = list(history.kept(run))
    assert kept == [10, *range(80, 1010, 80)]
    assert len(list((run.path / "policies").iterdir())) == len(kept)
    assert history.episodes_of(run) == [*kept, 1000]


def test_a_number_of_episodes_means_the_nearest_kept_policy(run: Run) -> None:
    for episodes in (10, 20, 30):
        save(run, episodes)
    for at, episodes in {"20": 20, 24: 20, 26: 30, "last": 30, 0: 10, 30: 30}.items():
        found, about = history.load_at(run, at)
        assert about["episodes"] == episodes, at
        assert found["w"][0, 0] == episodes
    for at, words in {
        "31": "--at 31 is outside the run, which has 30 episodes",
        "-1": "outside",
        "soon": "--at must be best",
    }.items():
        with pytest.raises(UsageError, match=words):
            history.load_at(run, at)
    with pytest.raises(UsageError, match=r"has no best policy.*use --at last"):
        history.load_at(run, "best")


def test_an_abandoned_course_leaves_no_policies(run: Run) -> None:
    for episodes in (10, 20, 30):
        save(run, episodes)
    history.remove_after(run, 20)
    assert list(history.kept(run)) == [10, 20]


def row(episode: int, good: float, success: float | None = None) -> dict[str, Any]:
    figures = {"episode": episode, "step": 25 * episode, "eval/team/good": good, "eval/team/adversary": 100.0}
    return figures | ({} if success is None else {"eval/success": success})


def test_success_counts_before_the_return_and_the_return_otherwise() -> None:
    assert history.score(row(1, -3.0)) == (-3.0,)
    assert history.score(row(1, -3.0, 0.5)) == (0.5, -3.0)
    assert history.score({"episode": 1, "team/good": -3.0}) is None
    assert history.score(row(1, float("nan"))) is None
    assert history.score(row(1, -9.0, 0.6)) > history.score(row(1, -1.0, 0.5))  # pyright: ignore[reportOperatorIssue]


def test_empty_cells_are_no_evaluation() -> None:
    assert history.score({"eval/team/good": None, "eval/success": None}) is None
    assert history.score({"eval/team/good": None, "eval/team/adversary": 2.0}) == (2.0,)


def test_each_seed_keeps_its_best(run: Run) -> None:
    best = history.Best(run, 2)
    best.offer(tensors(1, 2), [row(1, -5.0), row(1, -5.0)])
    best.offer(tensors(2, 2), [row(2, -4.0), row(2, -6.0)])
    best.offer(tensors(3, 2), [row(3, -4.0), row(3, float("nan"))])
    best.save({"agents": ["a"]})
    for seed, episodes in enumerate((2, 1)):
        found, about = history.load_at(run, "best", seed)
        assert (found["w"][seed, 0], about["episodes"]) == (episodes, episodes)
    resumed = history.Best(run, 2)
    resumed.offer(tensors(4, 2), [row(4, -4.5), row(4, -4.5)])
    resumed.save({})
    found, _ = history.load_at(run, "best")
    assert found["w"][:, 0].tolist() == [2, 4], "a resumed run competes with its past"


def test_a_damaged_best_is_replaced(run: Run) -> None:
    (run.path / "policies").mkdir()
    (run.path / "policies" / "best.safetensors").write_bytes(b"torn")
    best = history.Best(run, 1)
    best.offer(tensors(1), [row(1, -5.0)])
    best.save({})
    assert history.load_at(run, "best")[1]["episodes"] == 1
