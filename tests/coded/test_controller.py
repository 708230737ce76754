"""The controller with learners as threads: it gives the same bits under delays, crashes and hangs, and decodes sums."""

import math
import threading
import time
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint import config as configs
from counterpoint.algos.base import TD_ERRORS
from counterpoint.coded import learner as learners
from counterpoint.coded.controller import DECODE_ERROR, Controller, _parts, _unpack, work_of
from counterpoint.coded.planner import COLUMNS, recording_of
from counterpoint.coded.settings import Distribution
from counterpoint.core import prng as random
from counterpoint.core.errors import UsageError
from counterpoint.training import train as experiment
from fake_learners import Crashed, ThreadTransport
from tiny import TINY

EXACT = ("uncoded", "replication", "stream:3", "backup", "hedge:1.5", "fastest-first", "backup+fastest-first", "auto")
LINEAR = ("mds", "systematic", "random-sparse", "ldpc", "cyclic:2")
VARIANTS: dict[str, dict[str, Any]] = {
    "maddpg": {},
    "ddpg, norms, standardised rewards": {"algorithm": "ddpg", "norm": "batch", "standardise_rewards": True},
    "own minibatches, prioritised": {"minibatch": "per-agent", "replay": "prioritised"},
    "matd3, n-step": {"algorithm": "matd3", "n_step": 3},
    "masac": {"algorithm": "masac"},
}
AGENTS, UPDATES = 4, 3


class Case(NamedTuple):
    """A program, inputs for some updates, and the central updates of the same per-agent program."""

    algo: Any
    memory: Any
    work: learners.Work
    compute: Any
    agents: Any
    batches: list[Any]
    keys: list[Any]
    central: list[Any]
    metrics: list[Any]


@cache
def case(variant: str = "maddpg") -> Case:
    settings = {"scenario": "simple_spread", "scenario_args": (f"N={AGENTS}",), "num_episodes": 40} | VARIANTS[variant]
    program = experiment.prepare(configs.override(configs.Config(), **(TINY | settings))).program
    algo = program.algo
    start = jax.jit(algo.init)(random.key(0))
    work = work_of(algo, program.memory, 0.0)
    keys = [random.key(10 + n) for n in range(UPDATES)]
    batches = [_batch(work.example.batch, n) for n in range(UPDATES)]
    # Another test compares the learners' program with the algorithm's function, so each variant is compiled only once here.
    compute = learners.compiled(work)
    agents, central, metrics = start, [], []
    for batch, key in zip(batches, keys, strict=True):
        rows = learners.pack(agents)
        inputs = learners.UpdateInputs(*jax.device_get((*rows, batch, jax.random.key_data(key))))
        vectors = np.stack([np.asarray(compute(inputs, np.int32(agent))) for agent in range(AGENTS)])
        agents, own = jax.jit(partial(_unpack, work))(*_parts(work, vectors, inputs))
        central.append(jax.device_get(agents))
        metrics.append(jax.device_get(algo.gather(batch, own)))
    return Case(algo, program.memory, work, compute, start, batches, keys, central, metrics)


def _batch(shapes: Any, seed: int) -> Any:
    """Returns random transitions of these shapes."""
    rng = np.random.default_rng(seed)

    def draw(leaf: Any) -> jax.Array:
        if leaf.dtype == bool:
            return jnp.asarray(rng.random(leaf.shape) < 0.9)
        if leaf.dtype == np.float32:
            return jnp.asarray(rng.random(leaf.shape), jnp.float32)
        return jnp.asarray(rng.integers(10, size=leaf.shape), leaf.dtype)

    return jax.tree.map(draw, shapes)


def test_the_central_run_matches_the_algorithms_own_function():
    about = case()
    one = jax.jit(about.algo.update_one)
    rows = [one(about.agents, about.batches[0], jnp.int32(i), about.keys[0]) for i in range(AGENTS)]
    agents, metrics = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
    assert_same_bits([jax.device_get(agents)], about.central[:1])
    assert_same_bits([jax.device_get(metrics)], about.metrics[:1])
    fused, _ = jax.jit(about.algo.update)(about.agents, about.batches[0], about.keys[0])
    assert relative_errors(fused, about.central[0], about.agents).max() < 1e-3, "different kernels round differently"


class Result(NamedTuple):
    agents: list[Any]
    metrics: list[Any]
    controller: Controller
    transport: ThreadTransport
    said: list[str]
    rows: list[Any]
    seconds: float
    """Duration of all updates."""


def learn(
    code: str, variant: str = "maddpg", count: int = 7, updates: int = UPDATES, inject: Any = None, **settings: Any
) -> Result:
    """Runs some distributed updates."""
    about = case(variant)
    pad = settings.get("pad", 0.0)
    transport = ThreadTransport(about.work._replace(pad=pad), about.compute, inject or (lambda learner, request: None))
    said: list[str] = []
    rows: list[Any] = []
    distribution = Distribution(learners=count, code=code, **settings)
    distribution.check(4)
    controller = Controller(about.algo, about.work, distribution, transport, say=said.append, record=rows.extend)
    agents, states, metrics, began = about.agents, [], [], time.monotonic()
    for n in range(updates):
        agents, found = controller(agents, about.batches[n % 3], about.keys[n % 3])
        states.append(jax.device_get(agents))
        metrics.append(jax.device_get(found))
    seconds = time.monotonic() - began
    controller.close()
    return Result(states, metrics, controller, transport, said, rows, seconds)


def assert_same_bits(found: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b, err_msg=jax.tree_util.keystr(path))


def relative_errors(found: Any, wanted: Any, before: Any) -> np.ndarray:
    """Returns ‖found − wanted‖ / ‖wanted − before‖ per agent."""
    rows = [np.asarray(learners.pack(tree)[0], np.float64) for tree in (found, wanted, before)]
    return np.linalg.norm(rows[0] - rows[1], axis=1) / np.linalg.norm(rows[1] - rows[2], axis=1)


@pytest.mark.parametrize("code", EXACT)
def test_plain_results_match_the_central_run_bit_for_bit(code):
    found = learn(code)
    assert_same_bits(found.agents, case().central)
    for metrics, central in zip(found.metrics, case().metrics, strict=True):
        assert_same_bits([{name: metrics[name] for name in central}], [central])
        np.testing.assert_array_equal(metrics[DECODE_ERROR], np.zeros(4))


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "maddpg"])
def test_every_variant_of_the_family_can_be_distributed(variant):
    found = learn("backup", variant)
    assert_same_bits(found.agents, case(variant).central)
    if "prioritised" in variant:
        assert_same_bits([found.metrics[0][TD_ERRORS]], [case(variant).metrics[0][TD_ERRORS]])
    coded = learn("mds", variant, updates=1)
    assert relative_errors(coded.agents[0], case(variant).central[0], case(variant).agents).max() < 1e-6


@pytest.mark.parametrize("code", LINEAR)
def test_sums_decode_within_the_reported_error(code):
    """Checks several updates, because errors would grow: Adam divides by decoded values."""
    found = learn(code, straggle="k=2,delay=0.2")
    for n, before in enumerate([case().agents, *case().central[:-1]]):
        errors, reported = relative_errors(found.agents[n], case().central[n], before), found.metrics[n][DECODE_ERROR]
        assert reported.max() < 1e-10
        assert errors.max() < 1e-6
        np.testing.assert_array_equal(*(np.asarray(learners.pack(tree)[1]) for tree in (found.agents[n], case().central[n])))
    assert (found.metrics[0][DECODE_ERROR] > 0).all() == (code in ("mds", "random-sparse"))


@pytest.mark.parametrize("count", [1, 2, 3, 11])
@pytest.mark.parametrize("code", ["stream:2", "backup", "uncoded"])
def test_any_number_of_learners_gives_the_same_bits(code, count):
    assert_same_bits(learn(code, count=count, updates=2).agents, case().central[:2])


@pytest.mark.parametrize("code", ["uncoded", "replication", "stream:3", "backup", "hedge:0.5", "ldpc", "mds"])
def test_the_run_continues_although_learners_crash_in_every_update(code):
    """Three of seven learners crash at their first task of every update."""
    crashed: set[tuple[int, int]] = set()

    def inject(learner, request):
        if (request.update, learner) not in crashed and learner in (request.update, request.update + 1, 6):
            crashed.add((request.update, learner))
            raise Crashed

    found = learn(code, inject=inject)
    assert found.transport.spawned >= 7 + 3
    assert "learner 1 is lost (its process died); starting a replacement" in found.said
    if code in ("mds", "ldpc"):
        assert relative_errors(found.agents[0], case().central[0], case().agents).max() < 1e-6
    else:
        assert_same_bits(found.agents, case().central)


def test_a_hanging_learner_is_replaced_after_the_patience():
    hangs = threading.Event()

    def inject(learner, request):
        if learner == 1 and request.update == 0 and not hangs.is_set():
            hangs.set()
            time.sleep(30)

    found = learn("uncoded", inject=inject, patience=1.0)
    assert found.seconds < 10
    assert "learner 1 is lost (no response for 1 s); starting a replacement" in found.said
    assert_same_bits(found.agents, case().central)
    assert next(row["outcome"] for row in found.rows if row["learner"] == 1) == "lost"


def test_a_result_that_cannot_be_fetched_is_computed_again():
    about = case()
    transport = ThreadTransport(about.work, about.compute)
    transport.unreachable = {0, 2}
    controller = Controller(about.algo, about.work, Distribution(learners=4, code="uncoded"), transport)
    agents, _ = controller(about.agents, about.batches[0], about.keys[0])
    controller.close()
    assert transport.spawned == 6
    assert_same_bits([jax.device_get(agents)], about.central[:1])


def test_with_too_few_learners_the_controller_finishes_the_update_and_stops_the_run():
    about = case()

    def inject(learner, request):
        raise Crashed

    transport = ThreadTransport(about.work, about.compute, inject)
    settings = Distribution(learners=3, code="backup", patience=1.0)
    controller = Controller(about.algo, about.work, settings, transport)
    transport.refuse_to_start = True
    agents, _ = controller(about.agents, about.batches[0], about.keys[0])
    assert "only 0 of 3 learners are alive" in controller.failed
    assert_same_bits([jax.device_get(agents)], about.central[:1])
    controller.close()


def test_learners_that_never_start_raise_a_usage_error():
    about = case()
    transport = ThreadTransport(about.work, about.compute)
    transport.refuse_to_start = True
    with pytest.raises(UsageError, match="only 0 of 2 learners started"):
        Controller(about.algo, about.work, Distribution(learners=2), transport)


@pytest.mark.parametrize("code", ["replication", "backup", "cyclic:3", "hedge:2"])
def test_the_controller_does_not_wait_for_stragglers(code):
    """One of eight learners is five seconds late in each of five updates; two copies of each agent suffice."""
    found = learn(code, count=8, straggle="k=1,delay=5.0", updates=5, pad=0.01)
    assert found.seconds < 4.0
    assert "stopped" in {row["outcome"] for row in found.rows}


def test_slow_machines_compute_longer():
    found = learn("uncoded", count=4, straggle="slow=2,factor=12", updates=3, timeline=10)
    seconds = {}
    for row in found.rows:
        seconds.setdefault(row["learner"], []).append(row["computed"])
    order = sorted(seconds, key=lambda learner: min(seconds[learner]))
    assert min(seconds[order[2]]) > 2.5 * min(seconds[order[1]])


def test_the_planner_reads_the_timeline_of_all_tasks():
    found = learn("backup", straggle="k=1,delay=0.3", updates=3, pad=0.02)
    assert all(tuple(row) == COLUMNS or set(row) == set(COLUMNS) for row in found.rows)
    for update in range(3):
        used = [row["agents"] for row in found.rows if row["update"] == update and row["outcome"] == "used"]
        assert sorted(used) == ["0", "1", "2", "3"]
    recording = recording_of(found.rows)
    assert recording.unit == pytest.approx(0.02, rel=0.3)
    assert recording.delays.start.max() > 0.01


def test_only_the_first_updates_are_recorded():
    assert {row["update"] for row in learn("backup", updates=3, timeline=2).rows} == {0, 1}


def test_auto_switches_from_backup_to_a_scheme_without_wasted_work():
    found = learn("auto", count=5, updates=22, pad=0.05)
    assert any(sentence.startswith("code auto: uncoded") for sentence in found.said), found.said
    assert "stopped" not in {row["outcome"] for row in found.rows if row["update"] > 20}


def test_fastest_first_avoids_slow_learners():
    found = learn("fastest-first", count=6, straggle="slow=2,factor=8", pad=0.01, updates=6)
    quickest: dict[int, float] = {}
    for row in found.rows:
        quickest[row["learner"]] = min(row["computed"], quickest.get(row["learner"], math.inf))
    slow = {learner for learner, seconds in quickest.items() if seconds >= 0.08}  # eight times the pad: they never take less
    assert slow
    assert not slow & {row["learner"] for row in found.rows if row["update"] == 5}


def test_agents_that_learn_one_after_another_raise_a_usage_error():
    about = case()
    with pytest.raises(UsageError, match="choose --order snapshot"):
        work_of(about.algo._replace(update_one=None), about.memory, 0.0)
    assert math.isfinite(Distribution().patience)
