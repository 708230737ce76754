"""Complete distributed runs with learners as threads, so that a run takes seconds."""

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
from fake_learners import Crashed, ThreadTransport
from tiny import TINY

OWN: dict[str, Any] = {"scenario": "simple_spread", "scenario_args": ("N=2",), "num_episodes": 48, "learners": 3}


@cache
def compute() -> Any:
    """Returns the learners' program, compiled once per session."""
    program = prepare(configs.override(configs.Config(), **(TINY | OWN))).program
    return learners.compiled(distributed.work_of(program.algo, program.memory, 0.0))


@pytest.fixture
def threads(monkeypatch):
    """Replaces Ray by threads; returns a list whose first entry injects faults and whose others are the transports."""
    made: list[Any] = [lambda learner, request: None]

    def transport(work, num_learners, address):
        made.append(ThreadTransport(work, compute(), made[0]))
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


def test_crashed_and_late_learners_do_not_change_a_run(threads, tmp_path):
    calm = train(tmp_path, "calm", code="uncoded")
    crashed: set[tuple[int, int]] = set()

    def inject(learner, request):
        if learner == request.update % 3 and (learner, request.update) not in crashed:
            crashed.add((learner, request.update))
            raise Crashed

    threads[0] = inject
    stormy = train(tmp_path, "stormy", code="backup", straggle="k=1,delay=0.02")
    assert len(crashed) >= 5
    assert_same_policy(calm, stormy)
    columns = [name for name in calm.rows()[0] if name not in ("seconds", "steps_per_second")]
    for one, other in zip(calm.rows(), stormy.rows(), strict=True):
        np.testing.assert_array_equal([one[name] for name in columns], [other[name] for name in columns])
    assert f"{DECODE_ERROR}/agent_0" in columns
    assert (stormy.path / "learners.png").stat().st_size > 5000
    assert read_recording(stormy.path).delays.start.shape[1] == 3


@pytest.mark.slow
def test_a_distributed_run_matches_the_run_without_learners(threads, tmp_path, monkeypatch):
    """They match up to rounding, because XLA may fuse a learner's packing with the last steps of the update."""
    run = train(tmp_path, "run", code="stream:2")
    config = configs.from_dict(run.config)
    program = prepare(config).program
    one = jax.jit(program.algo.update_one)

    def update(agents, batch, key):
        rows = [one(agents, batch, jnp.int32(i), key) for i in range(2)]
        agents, metrics = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
        return agents, metrics | {DECODE_ERROR: jnp.zeros(2)}

    engine = stepped(program, compiled_pieces(program)._replace(update=update))
    monkeypatch.setattr(experiment, "open_engine", lambda *settings: nullcontext(engine))
    central = experiment.runs.create(tmp_path, "central", run.config)
    experiment._train(central, Prepared(configs.override(config, learners=0), program), experiment.Progress())
    for name, tensor in tensors(run).items():
        np.testing.assert_allclose(tensor, tensors(central)[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_run_without_learners_left_saves_and_resumes_exactly(threads, tmp_path):
    whole = train(tmp_path, "whole")

    def inject(learner, request):
        if request.update >= 3:
            threads[-1].refuse_to_start = True
            raise Crashed

    threads[0] = inject
    with pytest.raises(experiment.TooFewLearners, match=r"only 0 of 3 learners are alive.*resume .*/cut$"):
        train(tmp_path, "cut", patience=1.0)
    threads[0] = lambda learner, request: None
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
def test_settings_that_cannot_be_distributed_are_refused_before_a_folder_is_created(settings, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        train(tmp_path, "never", **settings)
    assert not list(tmp_path.iterdir())


def test_missing_ray_raises_a_usage_error(monkeypatch, tmp_path):
    monkeypatch.setattr(distributed.ray_transport.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'counterpoint\[ray\]'"):
        train(tmp_path, "never")
    assert not list(tmp_path.iterdir())
