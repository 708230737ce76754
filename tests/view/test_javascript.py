"""Translated functions agree with JAX: every kind of operation, control flow, random keys, whole worlds."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from browser import evaluated, executable
from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.view.javascript import Program
from counterpoint.view.share import module

pytestmark = pytest.mark.skipif(not (shutil.which("node") or executable()), reason="neither Node nor Chromium is installed")

X = np.array([[-2.5, -0.3, 0.0], [0.7, 1.0, 3.25]], np.float32)
Y = np.array([[1.5, -0.3, 2.0], [0.2, -4.0, 0.5]], np.float32)
U = np.array([[0.1, -0.9, 0.5], [0.99, -0.2, 0.0]], np.float32)
K = np.array([[7, -3, 0], [2147483647, -2147483648, 5]], np.int32)
J = np.array([[2, 5, -1], [3, 1, 4]], np.int32)
W = np.array([0, 1, 4294967295, 2654435769], np.uint32)
B = np.array([[True, False, True], [False, False, True]])
KEY = np.array([123456789, 4294967290], np.uint32)


def threefry(data):
    key = jax.random.wrap_key_data(data, impl="threefry2x32")
    one, two = jax.random.split(key)
    return jax.random.bits(one, (3, 5)), jax.random.normal(two, (7,)), jax.random.key_data(jax.random.fold_in(two, 9))


def drawn(data):
    keys = jax.random.split(prng.wrap(data), 3)
    numbers = jax.vmap(lambda key: jax.random.uniform(key, (4,), minval=-2.0, maxval=3.0))(keys)
    order = jax.random.permutation(keys[0], 6)
    chosen = jax.random.choice(keys[1], 10, (4,))
    return numbers, jax.random.randint(keys[2], (5,), -3, 9), jax.random.bernoulli(keys[1], 0.3, (6,)), order, chosen


FUNCTIONS = {
    "arithmetic": (lambda x, y: [x + y, x - y, x * y, x / y, -x, abs(x), x**2, x**3, x**-2, jnp.sign(x), jnp.fmod(x, y)], X, Y),
    "exponents": (
        lambda x: [jnp.exp(x), jnp.expm1(x), jnp.log1p(abs(x)), jnp.sqrt(abs(x)), lax.rsqrt(abs(x) + 1), jnp.exp2(x)],
        X,
    ),
    "angles": (lambda x, y: [jnp.sin(x), jnp.cos(x), jnp.tan(y), jnp.arctan2(x, y), jnp.tanh(x), jnp.arctan(x)], X, Y),
    "activations": (lambda x: [jax.nn.softplus(x), jax.nn.sigmoid(x), jax.nn.silu(x), jax.nn.softmax(x), jax.nn.gelu(x)], X),
    "inverse_error": (lambda u: [lax.erf_inv(u), lax.erf(u), jnp.arcsin(u), jnp.arctanh(u * 0.9), lax.erfc(u)], U),
    "rounding": (
        lambda x, y: [jnp.floor(x), jnp.ceil(x), jnp.round(x * 2), jnp.round(x, 1), lax.round(x), jnp.clip(x, -1, y)],
        X,
        Y,
    ),
    "comparisons": (lambda x, y: [x < y, x <= y, x > y, x >= y, x == y, x != y, jnp.maximum(x, y), jnp.minimum(x, y)], X, Y),
    "logic": (lambda b, x: [~b, b & (x > 0), b | (x > 0), b ^ (x > 0), jnp.where(b, x, -x), b.any(0), b.all(1), b.sum()], B, X),
    "integers": (
        lambda i, j: [
            i + j,
            i - j,
            i * j,
            i // j,
            i % j,
            lax.div(i, j),
            lax.rem(i, j),
            j**3,
            i & j,
            i | j,
            i ^ j,
            ~i,
            -i,
            abs(j),
        ],
        K,
        J,
    ),
    "shifts": (
        lambda w: [w << 3, w >> 5, w * np.uint32(2654435761), w + 7, w ^ 99, lax.population_count(w), lax.clz(w), w << w % 40],
        W,
    ),
    "conversions": (
        lambda x, i, b: [x.astype(int), i.astype(jnp.float32), b * 1.0, x.astype(bool), b.astype(int), i.astype(jnp.uint32)],
        X,
        K,
        B,
    ),
    "bits": (lambda x, w: [lax.bitcast_convert_type(x, jnp.uint32), lax.bitcast_convert_type(w >> 2, jnp.float32)], X, W),
    "views": (
        lambda x: [
            x.T,
            x[::-1],
            x[:, ::2],
            x.reshape(3, 2),
            x[None, :, None],
            x[0],
            x[1:, 1],
            jnp.tile(x, (2, 2)),
            jnp.flip(x),
        ],
        X,
    ),
    "joins": (
        lambda x, y: [
            jnp.concatenate([x, y], 1),
            jnp.stack([x, y], 1),
            jnp.pad(x, ((1, 0), (2, 1)), constant_values=7),
            jnp.repeat(x, 2, 0),
            jnp.roll(x, 1, 1),
            lax.pad(x, 0.0, ((-1, 0, 0), (1, 2, 1))),
            jnp.split(jnp.concatenate([x, y]), 2),
        ],
        X,
        Y,
    ),
    "reductions": (
        lambda x, i: [x.sum(), x.sum(0), x.mean(1), x.max(1), x.min(), x.prod(0), x.argmax(1), x.argmin(0), i.max(0), x.var()],
        X,
        J,
    ),
    "running": (lambda x, i: [jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, 1, reverse=True), jnp.cumsum(i, 0)], X, J),
    "products": (
        lambda x, y: [x @ y.T, jnp.einsum("ij,kj->ik", x, y), jnp.einsum("ij,ij->i", x, y), x[0] @ y[1], jnp.outer(x[0], y[0])],
        X,
        Y,
    ),
    "batched_products": (lambda x, y: jnp.einsum("bi,bij->bj", x, jnp.stack([y, 2 * y]).transpose(1, 2, 0)[:2]), X, Y),
    "sorting": (
        lambda x, i: [
            jnp.sort(x, 0),
            jnp.argsort(x, 1),
            jnp.sort(x)[:, ::-1],
            jnp.median(x, 1),
            jax.lax.top_k(x, 2),
            jnp.sort(i),
        ],
        X,
        J,
    ),
    "gathers": (
        lambda x, i: [
            x[:, i[0] % 3],
            x[i[1] % 2, i[0] % 3],
            jnp.take_along_axis(x, jnp.abs(i) % 3, 1),
            jnp.take(x, i[0], axis=1, mode="fill"),
            jnp.take(x, i[0], axis=1, mode="clip"),
            jax.vmap(lambda row, k: row[k])(x, i[:, 1] % 3),
        ],
        X,
        J,
    ),
    "scatters": (
        lambda x, i: [
            x.at[:, i[0] % 3].set(9.0),
            x.at[0, i[1] % 3].add(1.0),
            x.at[i[0, 0] % 2].multiply(2.0),
            x.at[:, 7].set(5.0, mode="drop"),
            x.at[0].max(0.5),
            jax.nn.one_hot(i[0] % 3, 3),
        ],
        X,
        J,
    ),
    "dynamic": (
        lambda x, i: [
            lax.dynamic_slice(x, (i[0, 0], i[0, 1]), (1, 2)),
            lax.dynamic_update_slice(x, x[:1, :2] * 0, (i[0, 0], i[0, 2])),
            x[i[1, 1] % 2],
            lax.dynamic_index_in_dim(x, i[1, 0] % 2, 0),
        ],
        X,
        J,
    ),
    "loops": (
        lambda x: [
            lax.fori_loop(0, 5, lambda k, c: (c[1], c[0] + k), (x, 2 * x)),
            lax.while_loop(lambda c: jnp.sum(c) < 50, lambda c: c * 1.5 + 1, abs(x)),
            lax.scan(lambda c, row: (c + row, c * row), jnp.ones(3), x),
            lax.scan(lambda c, row: (c + row.sum(), c), 0.0, x, reverse=True),
        ],
        X,
    ),
    "branches": (
        lambda x, i: [
            lax.cond(x[0, 0] > 0, lambda: x + 1, lambda: x * 2),
            lax.switch(i[0, 0], [lambda: x.sum(), lambda: x.min(), lambda: x.max(), lambda: 0.0]),
            lax.select_n(i[0] % 3, x[0], x[1], x[0] * 10),
            jnp.select([x > 1, x > 0], [x, -x], 3.0),
        ],
        X,
        J,
    ),
    "empty": (lambda x: [x[:, :0].sum(1), jnp.concatenate([x[:, :0], x], 1), x[:0]], X),
    "one_entry": (lambda x: [x[:1, :1] @ x[:1, :1], x[:1, :1].reshape(1), jnp.stack([x[0, 0]]), x[0, 0][None, None]], X),
    "threefry_keys": (threefry, KEY),
    "own_keys": (drawn, KEY),
}


@pytest.fixture(scope="module")
def results():
    """What all functions return in JavaScript, from one process."""
    program = Program()
    calls = []
    for name, (function, *inputs) in FUNCTIONS.items():
        program.add(name, function, *inputs)
        kinds = {"f": "Float32Array", "i": "Int32Array", "u": "Uint32Array", "b": "Uint8Array"}
        arrays = ",".join(f"{kinds[x.dtype.kind]}.from({json.dumps(x.ravel().tolist())})" for x in inputs)
        calls.append(f"{name}:{name}({arrays}).map(x=>Array.from(x))")
    return evaluated(module("runtime.js") + program.source(), "{" + ",".join(calls) + "}")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_agrees_with_jax(name, results):
    function, *inputs = FUNCTIONS[name]
    with jax.numpy_rank_promotion("allow"):
        wanted = jax.tree.leaves(jax.jit(function)(*inputs))
    found = results[name]
    assert len(found) == len(wanted)
    for k, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        theirs = np.asarray(theirs)
        ours = np.array([float(x) for x in ours]).reshape(theirs.shape)
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=3e-6, atol=3e-7, err_msg=f"result {k}")
        else:
            np.testing.assert_array_equal(ours, theirs.astype(float), err_msg=f"result {k}")


def test_an_unknown_operation_is_refused_by_name():
    with pytest.raises(UsageError, match="'lgamma'"):
        Program().add("f", lax.lgamma, X)
    with pytest.raises(UsageError, match="float16"):
        Program().add("f", lambda x: x.astype(jnp.float16) + 1, X)


def test_dead_and_constant_code_is_not_translated():
    program = Program()

    def function(x):
        jnp.sin(x).sum()  # nobody reads it
        return x + jnp.cos(jnp.arange(3.0)[None] * jnp.ones((2, 1)))

    program.add("f", function, X)
    assert "sin" not in program.source()
    assert "cos" not in program.source()
