"""Whole runs whose updates learners compute; here the learners are threads, so that a run takes seconds."""

from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint import config as configs
from counterpoint.coded import learner as learners
from counterpoint.coded.controller import DECODE_ERROR
from counterpoint.coded.planner import read_recording
from counterpoint.core.errors import UsageError
from counterpoint.runs.folder import Run
from counterpoint.training import learners as distributed
from counterpoint.training import train as experiment
from counterpoint.training.loop import compiled_pieces, stepped
from counterpoint.training.program import Prepared, prepare
from fake_learners import Died, Threads
from tiny import TINY

OWN: dict[str, Any] = {"scenario": "simple_spread", "scenario_args": ("N=2",), "num_episodes": 48, "learners": 3}


@cache
def compute() -> Any:
    """The learners' program, compiled once for the session."""
    program = prepare(configs.override(configs.Config(), **(TINY | OWN))).program
    return learners.compiled(distributed.work_of(program.algo, program.memory, 0.0))


@pytest.fixture
def threads(monkeypatch):
    """Learners as threads; returns the list of transports, and takes their mischief from its first entry."""
    made: list[Any] = [lambda learner, order: None]

    def transport(work, num_learners, address):
        made.append(Threads(work, compute(), made[0]))
        return made[-1]

    program = compute()
    monkeypatch.setattr(distributed.ray_transport, "RayTransport", transport)
    monkeypatch.setattr(learners, "compiled", lambda work: program)
    return made


def train(tmp_path: Path, name: str, **settings: Any) -> Run:
    return experiment.train(**(TINY | OWN | {"save_dir": str(tmp_path), "exp_name": name} | settings))


def tensors(run: Run) -> dict[str, np.ndarray]:
    return run.load_policy()[0]


def assert_same_policy(one: Run, other: Run) -> None:
    a, b = tensors(one), tensors(other)
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        np.testing.assert_array_equal(tensor, b[name], err_msg=name)


def test_a_run_is_the_same_whatever_becomes_of_its_learners(threads, tmp_path):
    calm = train(tmp_path, "calm", code="uncoded")
    dead: set[tuple[int, int]] = set()

    def mischief(learner, order):
        if learner == order.update % 3 and (learner, order.update) not in dead:
            dead.add((learner, order.update))
            raise Died

    threads[0] = mischief
    stormy = train(tmp_path, "stormy", code="backup", straggle="k=1,delay=0.02")
    assert len(dead) >= 5
    assert_same_policy(calm, stormy)
    columns = [name for name in calm.rows()[0] if name not in ("seconds", "steps_per_second")]
    for one, other in zip(calm.rows(), stormy.rows(), strict=True):
        np.testing.assert_array_equal([one[name] for name in columns], [other[name] for name in columns])
    assert f"{DECODE_ERROR}/agent_0" in columns
    assert (stormy.path / "learners.png").stat().st_size > 5000
    assert read_recording(stormy.path).delays.start.shape[1] == 3


@pytest.mark.slow
def test_it_is_the_run_of_the_algorithm_without_learners(threads, tmp_path, monkeypatch):
    """To rounding: a learner's program packs what it returns, and XLA may fuse that with the last steps of the update."""
    run = train(tmp_path, "run", code="stream:2")
    config = configs.from_dict(run.config)
    program = prepare(config).program
    one = jax.jit(program.algo.update_one)

    def update(agents, batch, key):
        rows = [one(agents, batch, jnp.int32(i), key) for i in range(2)]
        agents, figures = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
        return agents, figures | {DECODE_ERROR: jnp.zeros(2)}

    engine = stepped(program, compiled_pieces(program)._replace(update=update))
    monkeypatch.setattr(experiment, "open_engine", lambda *settings: nullcontext(engine))
    central = experiment.runs.create(tmp_path, "central", run.config)
    experiment._train(central, Prepared(configs.override(config, learners=0), program), experiment.Progress())
    for name, tensor in tensors(run).items():
        np.testing.assert_allclose(tensor, tensors(central)[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_without_learners_it_saves_and_goes_on_exactly(threads, tmp_path):
    whole = train(tmp_path, "whole")

    def mischief(learner, order):
        if order.update >= 3:
            threads[-1].refuse_to_start = True
            raise Died

    threads[0] = mischief
    with pytest.raises(experiment.TooFewLearners, match=r"only 0 of 3 learners live.*resume .*/cut$"):
        train(tmp_path, "cut", patience=1.0)
    threads[0] = lambda learner, order: None
    resumed = experiment.resume(tmp_path / "cut")
    assert_same_policy(whole, resumed)
    updates = [int(line.split(",")[0]) for line in (tmp_path / "cut" / "learners.csv").read_text().splitlines()[1:]]
    assert max(updates) > 5, "the resumed run adds to the timeline"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": "sequential"}, "choose --order snapshot"),
        ({"num_seeds": 2}, "--learners take one seed and one device"),
        ({"algorithm": "coma", "batch_size": 1024, "warmup": 0}, "leave out --learners 3"),
        ({"code": "ldcp"}, "unknown scheme 'ldcp'"),
    ],
)
def test_what_cannot_be_distributed_is_refused_before_a_folder_is_made(settings, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        train(tmp_path, "never", **settings)
    assert not list(tmp_path.iterdir())


def test_a_missing_ray_is_said_in_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(distributed.ray_transport.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'counterpoint\[ray\]'"):
        train(tmp_path, "never")
    assert not list(tmp_path.iterdir())
