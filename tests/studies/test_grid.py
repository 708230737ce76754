"""A grid trains each combination once, goes on where it stopped, and refuses settings that differ from its record."""

import json
from pathlib import Path
from typing import Any

import pytest

import counterpoint
from counterpoint.core.errors import UsageError
from counterpoint.runs.folder import Run
from counterpoint.studies import grid as study
from counterpoint.training.progress import Progress
from made import made_run


class Listening(Progress):
    """Remembers what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


class FakeTraining:
    """Stands in for the training of runs: a run is finished at once, unless its cell is to fail or to be interrupted."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int]] = []
        self.finished: dict[str, int] = {}
        self.trouble: dict[str, Exception] = {}
        self.schedules: list[dict[str, int]] = []
        """Those that each resumed cell was given."""

    def train(self, config: Any, progress: Progress) -> Run:
        name, algorithm = config.name, config.algorithm
        self.calls.append(("train", name, config.training.num_episodes))
        score = {"maddpg": 5.0, "ddpg": 1.0, "coma": 3.0}[algorithm]
        scores = [score + k for k in range(config.training.num_seeds)]
        folder = Path(config.checkpoints.save_dir)
        run = made_run(folder, name, scores, algorithm, config.world.scenario, lr=config.learning.lr)
        return self._end(run, config.training.num_episodes, progress, config)

    def resume(self, run: Run, progress: Progress, num_episodes: int = 0, **schedules: int) -> Run:
        self.calls.append(("resume", run.name, num_episodes))
        self.schedules.append(schedules)
        return self._end(run, num_episodes, progress, None)

    def _end(self, run: Run, episodes: int, progress: Progress, config: Any) -> Run:
        if config is not None:
            progress.start(run.path, config, config.world.build().spec)
        progress.update(0, 0, 0.0)
        progress.update(episodes // 2, 10, 1.0)
        if error := self.trouble.pop(run.name, None):
            raise error
        progress.update(episodes, 20, 2.0)
        self.finished[str(run.path)] = episodes
        progress.finish(run)
        return run

    def is_finished(self, run: Run, num_episodes: int) -> bool:
        return self.finished.get(str(run.path), 0) >= num_episodes


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    fake = FakeTraining()
    for name in ("train", "resume", "is_finished"):
        monkeypatch.setattr(study.training, name, getattr(fake, name))
    monkeypatch.setattr("counterpoint.viz.comparison.SUFFIXES", (".svg",))
    return fake


SIZE: dict[str, Any] = {"num_seeds": 4, "num_episodes": 100}
TWO: dict[str, Any] = {"algorithm": ["maddpg", "coma"], "scenario": ["simple_spread", "simple_tag"], **SIZE}
CELLS = ["maddpg-simple_spread", "maddpg-simple_tag", "coma-simple_spread", "coma-simple_tag"]


def test_each_combination_is_a_run_and_all_are_compared(fake: FakeTraining, tmp_path: Path) -> None:
    found = counterpoint.grid(save_dir=str(tmp_path), **TWO)
    assert found.path == tmp_path / "maddpg+coma-simple_spread+simple_tag"
    assert fake.calls == [("train", name, 100) for name in CELLS]
    assert list(found.runs) == CELLS
    assert sorted(path.parent.name for path in found.path.glob("*/config.json")) == sorted(CELLS)
    assert found.comparison is not None
    assert found.comparison.by == ("algorithm",)
    assert [(row.environment, row.group, row.seeds) for row in found.comparison.scores] == [
        (scenario, algorithm, 4) for scenario in ("simple_spread", "simple_tag") for algorithm in ("maddpg", "coma")
    ]
    assert (found.path / "comparison" / "comparison.md").exists()


def test_the_same_grid_goes_on_and_skips_what_is_finished(fake: FakeTraining, tmp_path: Path) -> None:
    fake.trouble["maddpg-simple_tag"] = study.training.Interrupted("stopped")
    with pytest.raises(study.training.Interrupted):
        counterpoint.grid(save_dir=str(tmp_path), **TWO)
    assert [name for _, name, _ in fake.calls] == CELLS[:2]
    fake.calls.clear()
    found = counterpoint.grid(save_dir=str(tmp_path), **TWO)
    assert fake.calls == [("resume", CELLS[1], 100), ("train", CELLS[2], 100), ("train", CELLS[3], 100)]
    assert list(found.runs) == CELLS
    fake.calls.clear()
    longer = counterpoint.grid(save_dir=str(tmp_path), **{**TWO, "num_episodes": 150})
    assert fake.calls == [("resume", name, 150) for name in CELLS]
    assert longer.path == found.path


def test_the_schedules_of_a_preset_stretch_when_a_grid_goes_on(fake: FakeTraining, tmp_path: Path) -> None:
    fixed: dict[str, Any] = {"preset": "demo", "seed": [0, 1], "save_dir": str(tmp_path), "exp_name": "g"}
    counterpoint.grid(num_episodes=100, **fixed)
    counterpoint.grid(num_episodes=300, **fixed)
    counterpoint.grid(num_episodes=400, lr_steps=7, **fixed)
    assert fake.schedules == 2 * [{"lr_steps": 246}] + 2 * [{"lr_steps": 7}]
    with pytest.raises(UsageError, match="was started with lr_steps 7, not 328"):
        counterpoint.grid(num_episodes=400, **fixed)


def test_a_folder_left_empty_by_a_kill_is_used(fake: FakeTraining, tmp_path: Path) -> None:
    (tmp_path / "g" / CELLS[0] / "checkpoints").mkdir(parents=True)
    found = counterpoint.grid(save_dir=str(tmp_path), exp_name="g", **TWO)
    assert found.runs[CELLS[0]].path == tmp_path / "g" / CELLS[0]
    other = tmp_path / "h" / CELLS[0]
    other.mkdir(parents=True)
    (other / "thesis.txt").touch()
    with pytest.raises(UsageError, match="is in the way, and is not a run"):
        counterpoint.grid(save_dir=str(tmp_path), exp_name="h", **TWO)
    assert (other / "thesis.txt").exists()


def test_other_settings_in_the_same_folder_are_refused_before_training(fake: FakeTraining, tmp_path: Path) -> None:
    counterpoint.grid(save_dir=str(tmp_path), exp_name="g", **TWO)
    fake.calls.clear()
    with pytest.raises(UsageError, match=r"was started with lr 0.01, not 0.5: choose another --exp-name"):
        counterpoint.grid(save_dir=str(tmp_path), exp_name="g", **{**TWO, "algorithm": ["maddpg", "ddpg"], "lr": 0.5})
    with pytest.raises(UsageError, match="num_episodes 100, not 50"):
        counterpoint.grid(save_dir=str(tmp_path), exp_name="g", **{**TWO, "num_episodes": 50})
    assert fake.calls == []
    added = counterpoint.grid(save_dir=str(tmp_path), exp_name="g", **{**TWO, "algorithm": ["maddpg", "ddpg", "coma"]})
    assert [name for _, name, _ in fake.calls] == ["ddpg-simple_spread", "ddpg-simple_tag"]
    assert len(added.runs) == 6
    (tmp_path / "g" / "grid.json").write_text("{")
    with pytest.raises(UsageError, match=r"grid.json cannot be read"):
        counterpoint.grid(save_dir=str(tmp_path), exp_name="g", **TWO)


def test_a_cell_that_diverges_does_not_stop_the_others(fake: FakeTraining, tmp_path: Path) -> None:
    fake.trouble[CELLS[0]] = study.training.Diverged("the actor became NaN")
    found = counterpoint.grid(save_dir=str(tmp_path), **TWO)
    assert found.failed == {CELLS[0]: "the actor became NaN"}
    assert list(found.runs) == CELLS[1:]
    assert found.comparison is not None
    assert len(found.comparison.scores) == 3


def test_progress_covers_the_whole_grid(fake: FakeTraining, tmp_path: Path) -> None:
    progress = Listening()
    counterpoint.grid(progress, save_dir=str(tmp_path), **TWO)
    assert progress.said[0] == "cell 1 of 4, 0% of the grid"
    assert any(line.startswith("[3/4] coma-simple_spread is finished, 75% of the grid, about") for line in progress.said)
    assert progress.said[-1] == "[4/4] coma-simple_tag is finished, 100% of the grid"


def test_other_settings_span_a_grid_and_seeds_do_not_make_groups(fake: FakeTraining, tmp_path: Path) -> None:
    found = counterpoint.grid(save_dir=str(tmp_path), scenario="simple", lr=[0.1, 0.01], seed=[0, 10], num_seeds=2)
    assert list(found.runs) == [f"lr={lr}-seed={seed}" for lr in (0.1, 0.01) for seed in (0, 10)]
    assert found.comparison is not None
    assert found.comparison.by == ("lr",)
    seeds = counterpoint.grid(save_dir=str(tmp_path), scenario="simple", num_seeds=[2, 3], freeze=())
    assert seeds.comparison is not None
    assert list(seeds.runs) == ["num_seeds=2", "num_seeds=3"]
    settings = json.loads((found.path / "grid.json").read_text())["cells"]["lr=0.1-seed=10"]
    assert (settings["learning"]["lr"], settings["training"]["seed"]) == (0.1, 10)
    assert settings["evaluation"]["plots_dir"] == ""


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown algorithm": ({"algorithm": ["maddpg", "mapg"]}, "mapg"),
    "unknown scenario": ({"scenario": ["simple", "simple_sprad"]}, "perhaps simple_spread?"),
    "repeated value": ({"lr": [0.1, 0.1]}, "--lr 0.1,0.1 repeats a value"),
    "two kinds of environment": ({"env": "CartPole-v1", "scenario": ["simple", "simple_tag"]}, "exclude each other"),
    "empty value": ({"algorithm": ["maddpg", ""]}, "--algorithm maddpg, has an empty value"),
    "a cell that cannot work": ({"scenario": ["simple_tag", "simple"], "num_agents": 4}, "simple always has 1 agent"),
    "a league of one team": ({"scenario": ["simple_tag", "simple_spread"], "league": 3}, "simple_spread has one"),
    "an ensemble without replay": ({"algorithm": ["maddpg", "coma"], "ensemble": 3}, "coma has others"),
    "name with a slash": ({"lr": [0.1, 0.2], "exp_name": "a/b"}, "--exp-name must be the name of a folder"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_refused_before_anything_is_trained(fake: FakeTraining, tmp_path: Path, case: str) -> None:
    settings, sentence = WRONG[case]
    with pytest.raises(UsageError) as error:
        counterpoint.grid(save_dir=str(tmp_path / "runs"), **settings)
    assert sentence in str(error.value)
    assert fake.calls == []
    assert not (tmp_path / "runs").exists()


def test_names_of_long_grids_stay_short_and_presets_do_not_name_them(fake: FakeTraining, tmp_path: Path) -> None:
    rates = [round(0.01 + 0.001 * k, 3) for k in range(20)]
    axes = {"lr": rates}
    make = study.configs.override
    cells = study.cells_of(axes, lambda values: make(study.configs.Config(), **values))
    assert len(study.grid_path(cells, axes).name) == study.LONGEST_NAME
    demo = study.cells_of({"lr": [0.1, 0.2]}, lambda values: make(study.presets.preset("demo"), **values))
    assert study.grid_path(demo, {"lr": [0.1, 0.2]}).name == "lr=0.1+lr=0.2"
