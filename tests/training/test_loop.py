"""The compiled loop: one program, however it is cut, spread or taken apart."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint import config as configs
from counterpoint.core import prng
from counterpoint.training import program as programs
from counterpoint.training.loop import Loop, Program, compile_advance, compile_begin, compiled_absorb, compiled_pieces, stepped
from counterpoint.training.replay import example, row_size
from tiny import TINY

GOLDEN = Path(__file__).parents[1] / "golden" / "first_losses.json"
WARM, ROUNDS = 2, 8
"""Iterations before learning, and until the first report is due (32 episodes of 25 steps, 100 steps per iteration)."""


@cache
def program(**settings: Any) -> Program:
    """Two agents, a ring of 50 000 rows, a report every 32 episodes."""
    own = {"scenario": "simple_spread", "scenario_args": ("N=2",), "num_episodes": 4000, "buffer_size": 50_000}
    config = configs.override(configs.Config(), **(TINY | own | {"report_every": 32, "save_rate": 32} | settings))
    return programs.prepare(config).program


@cache
def advance(program: Program, learn: bool) -> Any:
    return compile_advance(program, learn)


@cache
def _begin(program: Program) -> Any:
    return compile_begin(program)


def start(program: Program, first_seed: int = 0) -> Loop:
    return _begin(program)(jax.vmap(prng.key)(jnp.arange(program.num_seeds, dtype=jnp.uint32) + first_seed))


def run(program: Program, limit: int, first_seed: int = 0) -> Loop:
    """The loop when its first report is due, advanced in calls of at most `limit` iterations."""
    loop, steps = start(program, first_seed), -1
    while steps != (steps := int(loop.step[0])):
        loop = advance(program, steps >= program.schedule.warmup)(loop, limit, False)
    return loop


def plain(loop: Loop) -> Any:
    """The loop as NumPy arrays that can be compared."""
    return jax.device_get(loop._replace(key=jax.random.key_data(loop.key)))


def assert_same_bits(one: Any, other: Any) -> None:
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=jax.tree_util.keystr(path))


def test_a_run_is_the_same_however_it_is_cut_into_calls() -> None:
    whole = plain(run(program(), 1000))
    assert int(whole.step[0]) == ROUNDS * 100
    assert int(whole.window.updates[0]) == ROUNDS - WARM
    assert_same_bits(plain(run(program(), 1)), whole)
    assert_same_bits(plain(run(program(), 3)), whole)


def step_through(program: Program, parts: Any = None, absorb: Any = None) -> Any:
    """The first rounds of a program, carried out piece by piece."""
    engine = stepped(program, parts, absorb)
    loop = engine.begin(jax.vmap(prng.key)(jnp.zeros(1, jnp.uint32)))
    return plain(engine.advance(engine.advance(loop, False, 1000, False), True, 1000, False))


@pytest.mark.parametrize("absorb", [None, compiled_absorb], ids=["each piece", "all that follows a rollout"])
def test_pieces_compiled_by_themselves_do_what_the_fused_program_does(absorb: Any) -> None:
    """But for rounding: some processors contract a product and a sum in one program and not in the other."""
    ours = step_through(program(), absorb=absorb and absorb(program()))
    for (path, a), b in zip(
        jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(plain(run(program(), 1000))), strict=True
    ):
        name = jax.tree_util.keystr(path)
        if np.issubdtype(a.dtype, np.floating):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)


def test_a_piece_may_leave_the_process() -> None:
    """Plain Python takes the place of a compiled piece."""
    calls = []
    parts = compiled_pieces(program())

    def update(agents: Any, batch: Any, key: Any) -> Any:
        calls.append(np.asarray(batch.reward).shape)
        return parts.update(agents, batch, key)

    loop = step_through(program(), parts._replace(update=update))
    assert calls == [(64, 2)] * (ROUNDS - WARM)
    assert_same_bits(loop, step_through(program()))


def test_stepping_refuses_several_devices_and_several_seeds() -> None:
    with pytest.raises(ValueError, match="one seed on one device, not 1 on 2"):
        stepped(program(devices=2))
    with pytest.raises(ValueError, match="one seed on one device, not 2 on 1"):
        stepped(program(num_seeds=2))


def test_two_devices_share_one_seed() -> None:
    """Before learning they hold, together, the transitions one device holds; after, they agree on the agents."""
    one, two = (advance(p, False)(start(p), WARM, False) for p in (program(), program(devices=2)))
    added, rows = int(one.replay.added[0]), np.asarray(one.replay.rows)[0]
    halves = np.asarray(two.replay.rows)[0].reshape(2, -1, rows.shape[-1])
    assert int(two.replay.added[0]) * 2 == added == WARM * 100
    for device in (0, 1):
        np.testing.assert_array_equal(halves[device, : added // 2], rows[:added][device::2])
    two = advance(program(devices=2), True)(two, 3, False)
    assert int(two.window.updates[0]) == 3
    leaf = two.agents.actor[0].weight
    copies = [np.asarray(shard.data) for shard in leaf.addressable_shards]
    assert len(copies) == 2
    np.testing.assert_array_equal(copies[0], copies[1])
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(jax.device_get(two.agents)))


def test_seeds_in_one_program_are_each_what_they_are_alone() -> None:
    """To rounding: XLA sums a batch of matrix products in another order."""
    both = plain(run(program(num_seeds=2), 1000))
    for seed in (0, 1):
        alone = plain(run(program(), 1000, first_seed=seed))
        for a, b in zip(jax.tree.leaves(both), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[seed], b[0], rtol=1e-3, atol=1e-4)
    assert not np.allclose(both.replay.rows[0, :200], both.replay.rows[1, :200])


def test_replay_is_not_copied_inside_the_loop() -> None:
    shapes = jax.eval_shape(_begin(program()), jax.eval_shape(lambda: jax.vmap(prng.key)(jnp.zeros(1, jnp.uint32))))
    ring = 50_000 * row_size(example(program().env.spec)) * 4
    memory = advance(program(), True).lower(shapes, 1, False).compile().memory_analysis()
    assert memory.temp_size_in_bytes < ring / 2
    assert memory.alias_size_in_bytes >= ring


def test_nor_by_what_follows_a_rollout_from_outside() -> None:
    loop = jax.eval_shape(_begin(program()), jax.eval_shape(lambda: jax.vmap(prng.key)(jnp.zeros(1, jnp.uint32))))
    seed = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), loop)
    _, steps, finished = jax.eval_shape(compiled_pieces(program()).rollout, seed.agents, seed.envs, seed.key, seed.step)
    ring = 50_000 * row_size(example(program().env.spec)) * 4
    lowered = compiled_absorb(program()).lower(seed._replace(envs=None), steps, finished, seed.key, True)
    memory = lowered.compile().memory_analysis()
    assert memory.temp_size_in_bytes < ring / 2
    assert memory.alias_size_in_bytes >= ring


def first_losses() -> list[dict[str, list[float]]]:
    """The losses of the first five updates of seed 0, per agent."""
    loop = advance(program(), False)(start(program()), 1000, False)
    losses = []
    for _ in range(5):
        loop = advance(program(), True)(loop, 1, True)
        losses.append({name: loop.window.metrics[name][0].tolist() for name in ("critic_loss", "actor_loss")})
    return losses


def test_the_first_losses_are_those_on_record() -> None:
    """If they changed on purpose: `python tests/test_loop.py` writes them anew, and the changelog says so."""
    recorded = json.loads(GOLDEN.read_text())
    for now, then in zip(first_losses(), recorded, strict=True):
        assert now.keys() == then.keys()
        for name in then:
            np.testing.assert_allclose(now[name], then[name], rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(first_losses(), indent=2) + "\n")
