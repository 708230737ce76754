"""Random keys: JAX's interface over a cheap counter-based generator.

Noise for actions and resets is drawn inside the hot loop, where threefry's 20 rounds cost more than the physics. A keyed
integer hash is enough there (ADR 0004): word `i` under key (a, b) is mix(mix(i + a) ^ b), with `mix` a 32-bit bijection of
full avalanche. Everything else is `jax.random`, and `vmap` over keys equals a loop over keys.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl

from counterpoint.core.types import Key

Words = Any
"""A JAX or NumPy array of unsigned 32-bit integers."""


def _mix(word: Words) -> Words:
    """Returns a bijection of 32-bit words: every input bit flips every output bit with a probability of about one half."""
    word = (word ^ (word >> 17)) * np.uint32(0xED5AD4BB)
    word = (word ^ (word >> 11)) * np.uint32(0xAC4C1B51)
    word = (word ^ (word >> 15)) * np.uint32(0x31848BAB)
    return word ^ (word >> 14)


def _hash(key: jax.Array, counter: jax.Array) -> jax.Array:
    return _mix(_mix(counter * np.uint32(0x9E3779B9) + key[0]) ^ key[1])


def _seed(seed: jax.Array) -> jax.Array:
    """Returns the key of a 64-bit seed; shorter seeds are sign-extended, so that −1 is the same seed in every width."""
    low = seed.astype(jnp.uint32)
    if seed.dtype.itemsize > 4:
        high = (seed >> 32).astype(jnp.uint32)
    else:
        high = jnp.where(seed < 0, np.uint32(0xFFFFFFFF), np.uint32(0))
    return _key_of_words(low, high)


def _key_of_words(low: Words, high: Words) -> jax.Array:
    return jnp.stack([_mix(low ^ np.uint32(0x6A09E667)), _mix(_mix(low) + high + np.uint32(0xBB67AE85))])


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    count = jnp.arange(int(np.prod(shape)), dtype=jnp.uint32).reshape(shape)
    return jnp.stack([_hash(key, 2 * count), _hash(key ^ np.uint32(0x3C6EF372), 2 * count + 1)], axis=-1)


def _fold_in(key: jax.Array, data: Words) -> jax.Array:
    data = jnp.asarray(data).astype(jnp.uint32)
    return jnp.stack([_hash(key ^ np.uint32(0xA54FF53A), data), _hash(key ^ np.uint32(0x510E527F), ~data)])


def _bits(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    count = jnp.arange(int(np.prod(shape)), dtype=jnp.uint32).reshape(shape)
    if bit_width == 64:
        high = _hash(key, count).astype(jnp.uint64)
        return (high << 32) | _hash(key ^ np.uint32(0x9B05688C), count).astype(jnp.uint64)
    return _hash(key, count).astype({8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[bit_width])


_IMPL = define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_bits, fold_in=_fold_in, name="counterpoint_hash", tag="cp"
)


def key(seed: int | np.integer | jax.Array) -> Key:
    """Returns the root key of a run. Python integers count modulo 2⁶⁴; JAX's own keys keep only 32 bits."""
    if isinstance(seed, int | np.integer):
        low, high = np.array([[int(seed) & 0xFFFFFFFF], [int(seed) >> 32 & 0xFFFFFFFF]], np.uint32)
        return wrap(_key_of_words(low, high)[:, 0])
    return jax.random.key(seed, impl=_IMPL)


def of_words(low: Words, high: Words) -> Key:
    """Returns `key` of a seed that is given as the lower and upper half of 64 bits."""
    return wrap(_key_of_words(low, high))


def wrap(data: Words) -> Key:
    """Returns the key whose `jax.random.key_data` is `data`, as a checkpoint stores it."""
    return jax.random.wrap_key_data(data, impl=_IMPL)
