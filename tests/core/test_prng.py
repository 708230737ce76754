"""The generator behind `counterpoint.core.prng`: uniform, independent by key, and the same however it is batched."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.core import prng

SIGMAS = 5.0
"""Seeds are fixed, so this is decided once: a good generator fails one check in two million."""


def assert_uniform(cells: np.ndarray, num_cells: int) -> None:
    """Chi-square: counts over the cells are as even as chance makes them, neither less nor more."""
    counts = np.bincount(cells.ravel(), minlength=num_cells)
    assert counts.size == num_cells
    expected = cells.size / num_cells
    chi_square, freedom = np.sum((counts - expected) ** 2) / expected, num_cells - 1
    assert abs(chi_square - freedom) < SIGMAS * np.sqrt(2 * freedom)


def assert_independent(a: np.ndarray, b: np.ndarray) -> None:
    """Two lists of 32-bit words share nothing visible: not in equal bits, not in their leading or trailing nibbles."""
    equal = np.mean(np.bitwise_count(a ^ b)) / 32
    assert abs(equal - 0.5) < SIGMAS * 0.5 / np.sqrt(32 * a.size)
    for shift in (0, 28):
        assert_uniform(((a >> shift) % 16) * 16 + (b >> shift) % 16, 256)


@partial(jax.jit, static_argnums=1)
def words(key: jax.Array, count: int = 1 << 16) -> jax.Array:
    return jax.random.bits(key, (count,), jnp.uint32)


@jax.jit
def first_words(keys: jax.Array) -> jax.Array:
    return jax.vmap(lambda key: jax.random.bits(key, (), jnp.uint32))(keys)


def data(keys: jax.Array) -> np.ndarray:
    """Keys as 64-bit integers."""
    pair = np.asarray(jax.random.key_data(keys)).astype(np.uint64)
    return pair[..., 0] << np.uint64(32) | pair[..., 1]


@pytest.mark.parametrize("seed", [0, 1, 2**40, -3])
def test_words_are_uniform(seed):
    drawn = np.asarray(words(prng.key(seed)))
    assert_uniform(drawn.view(np.uint8), 256)
    ones = np.mean(drawn[:, None] >> np.arange(32, dtype=np.uint32) & 1, axis=0)
    assert np.max(np.abs(ones - 0.5)) < SIGMAS * 0.5 / np.sqrt(drawn.size)
    for lag in (1, 2, 64):
        assert_independent(drawn[lag:], drawn[:-lag])


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.uint16])
def test_narrow_words_are_uniform(dtype):
    drawn = np.asarray(jax.random.bits(prng.key(5), (1 << 16,), dtype))
    assert drawn.dtype == dtype
    assert_uniform(drawn.view(np.uint8), 256)


def test_wide_words_are_uniform_in_both_halves():
    with jax.enable_x64(True):
        drawn = np.asarray(jax.random.bits(prng.key(5), (1 << 15,), jnp.uint64))
        fractions = np.asarray(jax.random.uniform(prng.key(5), (1000,), jnp.float64))
    assert drawn.dtype == np.uint64
    assert_uniform(drawn.view(np.uint8), 256)
    assert_independent((drawn >> np.uint64(32)).astype(np.uint32), drawn.astype(np.uint32))
    assert np.mean(fractions * 2**24 % 1 == 0) < 0.01  # finer than float32 could be
    assert np.all((fractions >= 0) & (fractions < 1))


def test_samplers_of_jax_have_their_moments():
    normal = np.asarray(jax.random.normal(prng.key(11), (100_000,)))
    moments = [np.mean(normal), np.mean(normal**2) - 1, np.mean(normal**3), np.mean(normal**4) - 3]
    errors = np.sqrt(np.array([1, 2, 15, 96]) / normal.size)
    assert np.all(np.abs(moments) < SIGMAS * errors)
    assert_uniform(np.asarray(jax.random.randint(prng.key(12), (70_000,), 0, 7)), 7)


def test_split_children_are_independent_of_each_other_and_of_their_parent():
    parent = prng.key(3)
    children = jax.random.split(parent, 4)
    streams = [np.asarray(words(key)) for key in (parent, *children, *jax.random.split(children[0], 2))]
    for i, stream in enumerate(streams):
        for other in streams[:i]:
            assert_independent(stream, other)


def test_fold_in_is_independent_of_its_number_of_split_and_of_the_parent():
    parent = prng.key(3)
    numbers = (0, 1, 2, 1 << 31, 0xFFFFFFFF)
    keys = [parent, *(jax.random.fold_in(parent, np.uint32(n)) for n in numbers), *jax.random.split(parent, 2)]
    streams = [np.asarray(words(key)) for key in keys]
    for i, stream in enumerate(streams):
        for other in streams[:i]:
            assert_independent(stream, other)


@pytest.mark.parametrize("family", ["split", "fold_in", "seed"])
def test_first_words_of_sibling_keys_are_uniform(family):
    """What a batch of worlds draws at once: one word under each of many sibling keys."""
    count = 1 << 15
    numbers = jnp.arange(count)
    keys = {
        "split": lambda: jax.random.split(prng.key(9), count),
        "fold_in": lambda: jax.vmap(partial(jax.random.fold_in, prng.key(9)))(numbers),
        "seed": lambda: jax.vmap(prng.key)(numbers),
    }[family]()
    drawn = np.asarray(first_words(keys))
    assert_uniform(drawn.view(np.uint8), 256)
    assert_independent(drawn[1:], drawn[:-1])
    for half in jax.random.key_data(keys).T:
        assert_uniform(np.asarray(half).view(np.uint8), 256)


def test_every_key_bit_flips_every_word_bit_half_of_the_time():
    samples = 1000
    keys = np.random.default_rng(0).integers(1 << 32, size=(samples, 2), dtype=np.uint32)
    masks = np.zeros((65, 2), np.uint32)
    masks[np.arange(64), np.arange(64) // 32] = np.uint32(1) << np.arange(64, dtype=np.uint32) % 32
    drawn = np.asarray(first_words(prng.wrap((keys[None] ^ masks[:, None]).reshape(-1, 2)))).reshape(65, samples)
    flipped = (drawn[:64] ^ drawn[64])[..., None] >> np.arange(32, dtype=np.uint32) & 1
    assert np.max(np.abs(np.mean(flipped, axis=1) - 0.5)) < 0.5 * (SIGMAS + 1) / np.sqrt(samples)  # the worst of 2048


def test_batches_equal_loops():
    keys = jax.random.split(prng.key(4), 5)

    def draw(key):
        left, right = jax.random.split(key)
        folded = jax.random.fold_in(right, 3)
        return jax.random.uniform(left, (3,)), jax.random.key_data(folded), jax.random.randint(folded, (2,), 0, 100)

    batched = jax.jit(jax.vmap(draw))(keys)
    for i, key in enumerate(keys):
        jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda leaf, i=i: leaf[i], batched), draw(key))


def test_a_draw_does_not_depend_on_how_many_follow():
    np.testing.assert_array_equal(words(prng.key(1), 8), words(prng.key(1), 16)[:8])


def test_distinct_seeds_give_distinct_streams():
    seeds = [0, 1, 2, -1, -2, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 2**32 + 1, 2**33, 2**63 - 1, 2**63, -(2**62)]
    streams = {tuple(np.asarray(words(prng.key(seed), 4)).tolist()) for seed in seeds}
    assert len(streams) == len(seeds)
    assert len(np.unique(data(jax.vmap(prng.key)(jnp.arange(-50_000, 50_000))))) == 100_000


@pytest.mark.parametrize("seed", [0, 5, -1, 2**31 - 1, -(2**31)])
def test_a_seed_means_the_same_as_python_numpy_and_traced_integer(seed):
    expected = data(prng.key(seed))
    assert data(prng.key(np.int64(seed))) == expected
    assert data(prng.key(jnp.int32(seed))) == expected
    with jax.enable_x64(True):
        assert data(prng.key(jnp.int64(seed))) == expected


def test_wide_seeds_mean_the_same_with_and_without_64_bits():
    expected = [data(prng.key(seed)) for seed in (2**40 + 5, -(2**40))]
    with jax.enable_x64(True):
        assert [data(prng.key(jnp.asarray(seed))) for seed in (2**40 + 5, -(2**40))] == expected


def test_wrap_brings_a_key_back():
    key = jax.random.split(prng.key(8), 3)
    np.testing.assert_array_equal(words(prng.wrap(jax.random.key_data(key))[1], 4), words(key[1], 4))


def test_split_keys_do_not_collide():
    flat = jax.random.split(prng.key(0), 100_000)
    nested = jax.vmap(lambda key: jax.random.split(key, 100))(jax.random.split(prng.key(1), 1000)).ravel()
    # 64-bit keys: 200 000 of them meet with probability 1e-9. Their 32-bit halves may, n²/2³³ ≈ 1.2 times in expectation.
    assert len(np.unique(np.concatenate([data(flat), data(nested)]))) == 200_000
    for half in np.asarray(jax.random.key_data(nested)).T:
        assert 100_000 - len(np.unique(half)) <= 8


def test_split_and_fold_in_share_no_half_of_a_key():
    """The two ways to a child are often taken from one parent; 4000 halves meet by chance once in five hundred runs."""
    parent = prng.key(2)
    split = jax.random.split(parent, 1000)
    folded = jax.vmap(partial(jax.random.fold_in, parent))(jnp.arange(1000))
    halves = np.concatenate([np.asarray(jax.random.key_data(keys)).ravel() for keys in (split, folded)])
    assert len(np.unique(halves)) == len(halves)
