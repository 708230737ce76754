"""Translates JAX functions into plain JavaScript on typed arrays.

`translate` traces a function, inlines its calls, computes what is constant and drops what nobody reads. Each remaining
equation becomes a value that knows how to write down one of its entries as an expression (`Value.at`), so chains of
elementwise operations, slices and broadcasts turn into one loop. A value is stored in a buffer only where that saves work.

Arithmetic has the precision of float32: every operation rounds by Math.fround, as the processor does under JAX. Sums and matrix
products accumulate in double precision and round once; sin, exp and the like round the double result. So single operations
agree to the last digit or two, not to the bit.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.interpreters import partial_eval

from counterpoint.core.errors import UsageError

Index = list[Any]
"""One entry per axis: an int where it is known, otherwise a JavaScript expression."""

ARRAYS = {
    "float32": "Float32Array",
    "int32": "Int32Array",
    "uint32": "Uint32Array",
    "bool": "Uint8Array",
    "int8": "Int8Array",
    "uint8": "Uint8Array",
    "int16": "Int16Array",
    "uint16": "Uint16Array",
}
CHEAP = 2
"""Expressions up to this cost are written again where they are used again; dearer ones are stored."""
FOLDED = 1 << 14
"""Constant results up to this many entries are computed in advance."""


@dataclass
class Value:
    """An array of the program: `at(index)` is the expression of one entry, `cost` the operations that it takes."""

    shape: tuple[int, ...]
    dtype: str
    at: Callable[[Index], str]
    cost: int = 0
    name: str = ""
    """The buffer or variable that holds it, if it is stored contiguously."""
    constant: np.ndarray | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Program:
    """JavaScript functions that share constants and buffers: `add` translates one more, `source` is the text of all."""

    def __init__(self) -> None:
        self.functions: list[str] = []
        self._buffers: list[str] = []
        self._constants: dict[tuple[Any, ...], str] = {}
        self._lines: list[str] = []
        self._count = 0

    def add(self, name: str, function: Callable[..., Any], *examples: Any) -> None:
        """Translates a function of arrays (trees of them) as `name`; it takes and returns lists of typed arrays."""
        closed = jax.make_jaxpr(function)(*examples)
        # Dead inputs stay parameters: callers pass whole states.
        jaxpr, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
        self._lines = []
        inputs = []
        for i, var in enumerate(jaxpr.invars):
            shape, dtype = physical(var.aval)
            if math.prod(shape) == 1:
                self._lines.append(f"const s{i}_{name}=x{i}[0];")
                inputs.append(scalar(shape, dtype, f"s{i}_{name}"))
            else:
                inputs.append(stored(shape, dtype, f"x{i}"))
        outputs = self._run(jaxpr, closed.consts, inputs)
        results = [self._fresh_copy(value) for value in outputs]
        parameters = ",".join(f"x{i}" for i in range(len(inputs)))
        body = "\n".join(self._lines)
        self.functions.append(f"function {name}({parameters}){{\n{body}\nreturn[{','.join(results)}];\n}}")
        self._lines = []

    def source(self) -> str:
        """Returns the declarations of constants, buffers and functions."""
        return "\n".join([*self._buffers, *self.functions])

    # --- Storage.

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def _emit(self, line: str) -> None:
        self._lines.append(line)

    def _buffer(self, shape: tuple[int, ...], dtype: str) -> Value:
        name = self._name("b")
        self._buffers.append(f"const {name}=new {array_type(dtype)}({math.prod(shape)});")
        return stored(shape, dtype, name)

    def _constant(self, array: Any) -> Value:
        """Returns a constant: a literal if all entries are equal, otherwise an array that is written once."""
        array = np.asarray(array)
        shape, dtype = array.shape, array.dtype.name
        array_type(dtype)
        flat = array.reshape(-1)
        if flat.size and array.tobytes() == flat[0].tobytes() * flat.size:
            text = literal(flat[0])
            return Value(shape, dtype, lambda index: text, 0, "", array)
        key = (dtype, array.tobytes())
        if key not in self._constants:
            self._constants[key] = name = self._name("c")
            self._buffers.append(f"const {name}={array_type(dtype)}.of({','.join(map(literal, flat))});")
        value = stored(shape, dtype, self._constants[key])
        value.constant = array
        return value

    def _store(self, value: Value, fresh: bool = False) -> Value:
        """Returns the value in a variable or buffer; `fresh`: in one that nothing else writes to."""
        if value.name and not fresh:
            return value
        if value.constant is not None and not fresh:
            return value
        if value.size == 1:
            name = self._name("s")
            self._emit(f"const {name}={value.at([0] * len(value.shape))};")
            return scalar(value.shape, value.dtype, name)
        buffer = self._buffer(value.shape, value.dtype)
        self._fill(buffer, value)
        return buffer

    def _fill(self, target: Value, value: Value) -> None:
        self._loop(value.shape, lambda index: f"{target.at(index)}={value.at(index)};")

    def _loop(self, shape: Sequence[int], body: Callable[[Index], str]) -> None:
        """Emits loops over the entries of a shape around the statement that `body` returns."""
        if math.prod(shape) == 0:
            return
        index: Index = []
        heads = []
        for size in shape:
            if size == 1:
                index.append(0)
            else:
                name = self._name("i")
                heads.append(f"for(let {name}=0;{name}<{size};{name}++)")
                index.append(name)
        self._emit("".join(heads) + "{" + body(index) + "}")

    def _block(self, head: str, build: Callable[[], None]) -> None:
        """Emits a block whose statements `build` emits."""
        self._emit(head + "{")
        build()
        self._emit("}")

    def _fresh_copy(self, value: Value) -> str:
        """Returns the expression of a new typed array that holds a result."""
        kind = array_type(value.dtype)
        if value.size == 1:
            return f"{kind}.of({value.at([0] * len(value.shape))})"
        if value.name:
            return f"{value.name}.slice()"
        name = self._name("r")
        self._emit(f"const {name}=new {kind}({value.size});")
        self._fill(stored(value.shape, value.dtype, name), value)
        return name

    # --- Equations.

    def _run(self, jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[Value]) -> list[Value]:
        """Emits the equations of a jaxpr and returns its outputs."""
        uses = Counter(var for eqn in jaxpr.eqns for var in eqn.invars if not isinstance(var, Literal))
        uses.update(var for var in jaxpr.outvars if not isinstance(var, Literal))
        known: dict[Any, Value] = {}
        for var, const in zip(jaxpr.constvars, consts, strict=True):
            known[var] = self._constant(key_data(const))
        for var, value in zip(jaxpr.invars, inputs, strict=True):
            known[var] = self._store(value) if uses[var] > 1 and value.cost > CHEAP else value

        def read(var: Any) -> Value:
            return self._constant(np.asarray(var.val, var.aval.dtype)) if isinstance(var, Literal) else known[var]  # pyright: ignore[reportAttributeAccessIssue]

        for eqn in jaxpr.eqns:
            operands = [read(var) for var in eqn.invars]
            results = self._fold(eqn, operands)
            if results is None:
                results = self._equation(eqn, operands)
            for var, value in zip(eqn.outvars, results, strict=True):
                if value.cost > CHEAP and uses[var] > 1:
                    value = self._store(value)
                known[var] = value
        return [read(var) for var in jaxpr.outvars]

    def _fold(self, eqn: Any, operands: list[Value]) -> list[Value] | None:
        """Returns the results of an equation whose operands are all constant."""
        if any(value.constant is None for value in operands) or eqn.effects or not operands:
            return None
        if eqn.primitive.name in INLINED:
            return None
        avals = [var.aval for var in (*eqn.invars, *eqn.outvars)]
        if any(is_key(aval) or math.prod(aval.shape) > FOLDED for aval in avals):
            return None
        if eqn.primitive.name in FOLDS:  # without a compilation
            with np.errstate(all="ignore"):
                result = FOLDS[eqn.primitive.name](eqn.params, *(value.constant for value in operands))
            shape, dtype = physical(eqn.outvars[0].aval)
            return [self._constant(np.broadcast_to(np.asarray(result).astype(dtype), shape))]
        with jax.ensure_compile_time_eval():
            results = eqn.primitive.bind(*(jnp.asarray(value.constant) for value in operands), **eqn.params)
        results = results if eqn.primitive.multiple_results else [results]
        return [self._constant(np.asarray(result)) for result in results]

    def _equation(self, eqn: Any, operands: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        inner = inlined(eqn)
        if inner is not None:
            return self._run(inner.jaxpr, inner.consts, operands)
        method = getattr(self, "_do_" + name.replace("-", "_"), None)
        if method is not None:
            results = method(eqn, operands)
            return results if isinstance(results, list) else [results]
        if name in ELEMENTWISE:
            return [self._elementwise(eqn, operands)]
        raise UsageError(
            f"the page cannot compute JAX's operation {name!r}: write that part of the world or policy without it."
        )

    def _elementwise(self, eqn: Any, operands: list[Value]) -> Value:
        shape, dtype = physical(eqn.outvars[0].aval)
        write, cost = ELEMENTWISE[eqn.primitive.name]
        source = operands[0].dtype
        operands = [self._store(v) if v.cost > CHEAP and v.size < math.prod(shape) else v for v in operands]

        def at(index: Index) -> str:
            parts = [broadcast(value, index) for value in operands]
            return write(Kind(dtype, source, eqn.params), *parts)

        return Value(shape, dtype, at, cost + sum(value.cost for value in operands))

    # --- Views: where an entry comes from. Indices beyond the operand's rank belong to the data of a random key.

    def _view(self, eqn: Any, operand: Value, where: Callable[[Index], Index]) -> Value:
        shape, dtype = physical(eqn.outvars[0].aval)
        rank = len(eqn.outvars[0].aval.shape)
        if operand.cost and math.prod(shape) > operand.size:
            operand = self._store(operand)
        return Value(shape, dtype, lambda index: operand.at(where(index[:rank]) + index[rank:]), operand.cost)

    def _do_broadcast_in_dim(self, eqn: Any, operands: list[Value]) -> Value:
        axes, sizes = eqn.params["broadcast_dimensions"], eqn.invars[0].aval.shape
        return self._view(
            eqn, operands[0], lambda index: [0 if size == 1 else index[axis] for axis, size in zip(axes, sizes, strict=True)]
        )

    def _do_squeeze(self, eqn: Any, operands: list[Value]) -> Value:
        gone = {axis % len(eqn.invars[0].aval.shape) for axis in eqn.params["dimensions"]}

        def where(index: Index) -> Index:
            rest = iter(index)
            return [0 if axis in gone else next(rest) for axis in range(len(eqn.invars[0].aval.shape))]

        return self._renamed(eqn, operands[0]) or self._view(eqn, operands[0], where)

    def _do_expand_dims(self, eqn: Any, operands: list[Value]) -> Value:
        new = set(eqn.params["dimensions"])
        return self._view(eqn, operands[0], lambda index: [entry for axis, entry in enumerate(index) if axis not in new])

    def _do_reshape(self, eqn: Any, operands: list[Value]) -> Value:
        before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
        kept = [size for size in before if size != 1]
        if not operands[0].name and kept == [size for size in after if size != 1]:  # only axes of length 1 come or go

            def where(index: Index) -> Index:
                rest = iter([entry for entry, size in zip(index, after, strict=True) if size != 1])
                return [0 if size == 1 else next(rest) for size in before]

            return self._view(eqn, operands[0], where)
        operand = operands[0] if operands[0].constant is not None and not operands[0].name else self._store(operands[0])
        if operand.constant is not None and not operand.name:
            return self._constant(operand.constant.reshape(after))
        return self._renamed(eqn, operand) or operand

    def _renamed(self, eqn: Any, operand: Value) -> Value | None:
        """Returns a stored value under another shape with the same entries in the same order."""
        if not operand.name:
            return None
        shape, dtype = physical(eqn.outvars[0].aval)
        return (
            scalar(shape, dtype, operand.name)
            if operand.size == 1 and operand.name[0] in "sv"
            else stored(shape, dtype, operand.name)
        )

    def _do_transpose(self, eqn: Any, operands: list[Value]) -> Value:
        order = eqn.params["permutation"]
        return self._view(eqn, operands[0], lambda index: [index[order.index(axis)] for axis in range(len(order))])

    def _do_rev(self, eqn: Any, operands: list[Value]) -> Value:
        axes, sizes = eqn.params["dimensions"], eqn.invars[0].aval.shape
        return self._view(
            eqn,
            operands[0],
            lambda index: [add(sizes[a] - 1, times(entry, -1)) if a in axes else entry for a, entry in enumerate(index)],
        )

    def _do_slice(self, eqn: Any, operands: list[Value]) -> Value:
        starts = eqn.params["start_indices"]
        strides = eqn.params["strides"] or (1,) * len(starts)
        return self._view(
            eqn,
            operands[0],
            lambda index: [add(times(i, step), start) for i, step, start in zip(index, strides, starts, strict=True)],
        )

    def _do_split(self, eqn: Any, operands: list[Value]) -> list[Value]:
        axis, results, start = eqn.params["axis"], [], 0
        operand = self._store(operands[0]) if operands[0].cost > CHEAP else operands[0]
        for var, size in zip(eqn.outvars, eqn.params["sizes"], strict=True):
            shape, dtype = physical(var.aval)

            def at(index: Index, start: int = start) -> str:
                return operand.at([add(entry, start) if a == axis else entry for a, entry in enumerate(index)])

            results.append(Value(shape, dtype, at, operand.cost))
            start += size
        return results

    def _do_iota(self, eqn: Any, operands: list[Value]) -> Value:
        shape, dtype = physical(eqn.outvars[0].aval)
        axis = eqn.params["dimension"]
        if math.prod(shape) <= FOLDED:
            sizes = [1] * len(shape)
            sizes[axis] = shape[axis]
            return self._constant(np.broadcast_to(np.arange(shape[axis], dtype=dtype).reshape(sizes), shape))
        return Value(shape, dtype, lambda index: str(index[axis]))

    def _do_select_n(self, eqn: Any, operands: list[Value]) -> Value:
        shape, dtype = physical(eqn.outvars[0].aval)
        which, *cases = operands
        rank = len(which.shape)

        def at(index: Index) -> str:
            choice = broadcast(which, index[:rank])
            if len(cases) == 2:
                return f"({choice}?{broadcast(cases[1], index)}:{broadcast(cases[0], index)})"
            text = broadcast(cases[-1], index)
            for k in range(len(cases) - 2, -1, -1):
                text = f"({choice}==={k}?{broadcast(cases[k], index)}:{text})"
            return text

        return Value(shape, dtype, at, 1 + which.cost * (len(cases) - 1) + sum(case.cost for case in cases))

    def _do_concatenate(self, eqn: Any, operands: list[Value]) -> Value:
        axis, start = eqn.params["dimension"], 0
        result = self._buffer(*physical(eqn.outvars[0].aval))
        if result.size == 1:
            return next(value for value in operands if value.size)
        for value in operands:

            def body(index: Index, value: Value = value, start: int = start) -> str:
                there = [add(entry, start) if a == axis else entry for a, entry in enumerate(index)]
                return f"{result.at(there)}={value.at(index)};"

            self._loop(value.shape, body)
            start += value.shape[axis]
        return result

    def _do_stack(self, eqn: Any, operands: list[Value]) -> Value:
        axis = eqn.params["axis"]
        shape, dtype = physical(eqn.outvars[0].aval)
        if math.prod(shape) <= 1:
            return Value(shape, dtype, lambda index: operands[0].at(index[:axis] + index[axis + 1 :]), operands[0].cost)
        result = self._buffer(shape, dtype)
        for k, value in enumerate(operands):

            def body(index: Index, k: int = k, value: Value = value) -> str:
                return f"{result.at([*index[:axis], k, *index[axis:]])}={value.at(index)};"

            self._loop(value.shape, body)
        return result

    def _do_unstack(self, eqn: Any, operands: list[Value]) -> list[Value]:
        axis = eqn.params["axis"]
        operand = self._store(operands[0]) if operands[0].cost > CHEAP else operands[0]
        results = []
        for k, var in enumerate(eqn.outvars):
            shape, dtype = physical(var.aval)

            def at(index: Index, k: int = k) -> str:
                return operand.at([*index[:axis], k, *index[axis:]])

            results.append(Value(shape, dtype, at, operand.cost))
        return results

    def _do_tile(self, eqn: Any, operands: list[Value]) -> Value:
        sizes, reps = eqn.invars[0].aval.shape, eqn.params["reps"]
        sizes = (1,) * (len(reps) - len(sizes)) + tuple(sizes)
        extra = len(sizes) - len(eqn.invars[0].aval.shape)

        def where(index: Index) -> Index:
            place = [
                i if rep == 1 else 0 if size == 1 else i % size if isinstance(i, int) else f"({i}%{size})"
                for i, size, rep in zip(index, sizes, reps, strict=True)
            ]
            return place[extra:]

        return self._view(eqn, operands[0], where)

    def _same(self, eqn: Any, operands: list[Value]) -> list[Value]:
        return operands

    _do_optimization_barrier = _do_pvary = _do_sharding_constraint = _do_name = _do_device_put = _do_reshard = _same

    def _do_top_k(self, eqn: Any, operands: list[Value]) -> list[Value]:
        operand, count = self._store(operands[0]), eqn.params["k"]
        if eqn.params.get("axis", len(operand.shape) - 1) % len(operand.shape) != len(operand.shape) - 1:
            raise UsageError(
                "the page cannot compute JAX's operation 'top_k' along another axis than the last: move that axis."
            )
        results = [self._buffer(*physical(var.aval)) for var in eqn.outvars]
        order, i = self._name("t"), self._name("i")

        def body(index: Index) -> str:
            row = index[:-1]
            ranks = f"compare({operand.at([*row, 'q'])},{operand.at([*row, 'p'])})"
            return (
                f"const {order}=ordered({operand.shape[-1]},(p,q)=>{ranks});for(let {i}=0;{i}<{count};{i}++){{"
                f"{results[0].at([*row, i])}={operand.at([*row, f'{order}[{i}]'])};{results[1].at([*row, i])}={order}[{i}];}}"
            )

        self._loop([*operand.shape[:-1], 1], body)
        return results

    def _do_pad(self, eqn: Any, operands: list[Value]) -> Value:
        operand, filler = operands
        config = eqn.params["padding_config"]
        shape, dtype = physical(eqn.outvars[0].aval)
        if all(low == high == inside == 0 for low, high, inside in config):
            return operand
        result = self._buffer(shape, dtype)
        self._emit(f"{result.name}.fill({filler.at([])});")

        def body(index: Index) -> str:
            there = [add(times(i, inside + 1), low) for i, (low, _, inside) in zip(index, config, strict=True)]
            cut = [
                f"{place}>=0&&{place}<{size}"
                for place, size, (low, high, _) in zip(there, shape, config, strict=True)
                if low < 0 or high < 0
            ]
            write = f"{result.at(there)}={operand.at(index)};"
            return f"if({'&&'.join(cut)}){write}" if cut else write

        self._loop(operand.shape, body)
        return result

    def _do_dynamic_slice(self, eqn: Any, operands: list[Value]) -> Value:
        operand, *starts = operands
        sizes, bounds = eqn.params["slice_sizes"], eqn.invars[0].aval.shape
        first = [self._start(s, bound - size) for s, size, bound in zip(starts, sizes, bounds, strict=True)]
        return self._view(eqn, operand, lambda index: [add(i, start) for i, start in zip(index, first, strict=True)])

    def _start(self, value: Value, last: int) -> Any:
        """Returns a start index as JAX clamps it."""
        if last == 0:
            return 0
        if value.constant is not None:
            return min(max(int(value.constant.reshape(-1)[0]), 0), last)
        name = self._name("s")
        self._emit(f"const {name}=within({value.at([0] * len(value.shape))},{last});")
        return name

    def _do_dynamic_update_slice(self, eqn: Any, operands: list[Value]) -> Value:
        operand, update, *starts = operands
        bounds = eqn.invars[0].aval.shape
        first = [self._start(s, b - size) for s, b, size in zip(starts, bounds, eqn.invars[1].aval.shape, strict=True)]
        if operand.size == 1:
            return update
        result = self._store(operand, fresh=True)
        rank = len(bounds)

        def body(index: Index) -> str:
            there = [add(i, start) for i, start in zip(index[:rank], first, strict=True)] + index[rank:]
            return f"{result.at(there)}={update.at(index)};"

        self._loop(update.shape, body)
        return result

    def _do_gather(self, eqn: Any, operands: list[Value]) -> Value:
        operand, indices = operands
        numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
        bounds, rank = eqn.invars[0].aval.shape, len(eqn.outvars[0].aval.shape)
        batching = tuple(getattr(numbers, "operand_batching_dims", ()))
        batched = tuple(getattr(numbers, "start_indices_batching_dims", ()))
        shape, dtype = physical(eqn.outvars[0].aval)
        fills = "FILL" in str(eqn.params["mode"]).upper()
        filler = eqn.params.get("fill_value")
        if filler is None:
            filler = np.nan if dtype == "float32" else lowest(dtype) if dtype.startswith("int") else highest(dtype)
        operand = operand if operand.cost <= CHEAP else self._store(operand)
        indices = indices if indices.cost <= CHEAP else self._store(indices)
        offsets = [d for d in range(len(bounds)) if d not in numbers.collapsed_slice_dims and d not in batching]

        def at(index: Index) -> str:
            batch = [index[d] for d in range(rank) if d not in numbers.offset_dims]
            offset = dict(zip(offsets, (index[d] for d in numbers.offset_dims), strict=True))
            place, inside = [], []
            for d, bound in enumerate(bounds):
                here: Any = offset.get(d, 0)
                if d in batching:
                    here = batch[batched[batching.index(d)]]
                if d in numbers.start_index_map:
                    start = indices.at([*batch, numbers.start_index_map.index(d)])
                    last = bound - sizes[d]
                    if fills:
                        inside.append(f"{start}>=0&&{start}<={last}")
                        here = add(here, start)
                    else:
                        here = add(here, f"within({start},{last})")
                place.append(here)
            found = operand.at(place + index[rank:])
            return f"({'&&'.join(inside)}?{found}:{literal(np.asarray(filler, dtype))})" if inside else found

        return Value(shape, dtype, at, 4 + operand.cost + 2 * indices.cost)

    def _scatter(self, eqn: Any, operands: list[Value], combine: Callable[[str, str, str], str]) -> Value:
        operand, indices, updates = operands
        numbers, bounds = eqn.params["dimension_numbers"], eqn.invars[0].aval.shape
        batching = tuple(getattr(numbers, "operand_batching_dims", ()))
        batched = tuple(getattr(numbers, "scatter_indices_batching_dims", ()))
        clips = "CLIP" in str(eqn.params["mode"]).upper()
        indices = indices if indices.cost <= CHEAP else self._store(indices)
        shape, dtype = physical(eqn.outvars[0].aval)
        result = self._buffer(shape, dtype)
        self._fill(result, operand)
        windowed = [d for d in range(len(bounds)) if d not in numbers.inserted_window_dims and d not in batching]
        update_shape = eqn.invars[2].aval.shape
        window = dict(zip(windowed, (update_shape[d] for d in numbers.update_window_dims), strict=True))

        def body(index: Index) -> str:
            batch = [index[d] for d in range(len(update_shape)) if d not in numbers.update_window_dims]
            offset = dict(zip(windowed, (index[d] for d in numbers.update_window_dims), strict=True))
            place, inside = [], []
            for d, bound in enumerate(bounds):
                here: Any = offset.get(d, 0)
                if d in batching:
                    here = batch[batched[batching.index(d)]]
                if d in numbers.scatter_dims_to_operand_dims:
                    start = indices.at([*batch, numbers.scatter_dims_to_operand_dims.index(d)])
                    last = bound - window.get(d, 1)
                    if clips:
                        start = f"within({start},{last})"
                    else:
                        inside.append(f"{start}>=0&&{start}<={last}")
                    here = add(here, start)
                place.append(here)
            target = result.at(place)
            write = f"{target}={combine(dtype, target, updates.at(index))};"
            return f"if({'&&'.join(inside)}){write}" if inside else write

        self._loop(updates.shape, body)
        return result

    def _do_scatter(self, eqn: Any, operands: list[Value]) -> Value:
        return self._scatter(eqn, operands, lambda dtype, old, new: new)

    def _do_scatter_add(self, eqn: Any, operands: list[Value]) -> Value:
        return self._scatter(eqn, operands, lambda dtype, old, new: arithmetic(dtype, f"{old}+{new}"))

    def _do_scatter_mul(self, eqn: Any, operands: list[Value]) -> Value:
        return self._scatter(eqn, operands, lambda dtype, old, new: arithmetic(dtype, f"{old}*{new}"))

    def _do_scatter_min(self, eqn: Any, operands: list[Value]) -> Value:
        return self._scatter(eqn, operands, lambda dtype, old, new: f"Math.min({old},{new})")

    def _do_scatter_max(self, eqn: Any, operands: list[Value]) -> Value:
        return self._scatter(eqn, operands, lambda dtype, old, new: f"Math.max({old},{new})")

    # --- Reductions.

    def _reduce(self, eqn: Any, operand: Value, first: str, combine: Callable[[str, str], str], finish: str = "{}") -> Value:
        """Reduces over the equation's axes: `first` is the initial value, `combine` the new one from old and entry."""
        axes = eqn.params["axes"]
        shape, dtype = physical(eqn.outvars[0].aval)
        kept = [d for d in range(len(operand.shape)) if d not in axes]
        total = self._name("t")

        def sums(index: Index) -> str:
            outer = dict(zip(kept, index, strict=True))
            heads, place = [], []
            for d, size in enumerate(operand.shape):
                if d in outer:
                    place.append(outer[d])
                elif size == 1:
                    place.append(0)
                else:
                    name = self._name("i")
                    heads.append(f"for(let {name}=0;{name}<{size};{name}++)")
                    place.append(name)
            step = f"{total}={combine(total, operand.at(place))};" if operand.size else ""
            return f"let {total}={first};{''.join(heads) if step else ''}{step}"

        return self._loop_into(shape, dtype, sums, finish.format(total))

    def _loop_into(self, shape: tuple[int, ...], dtype: str, compute: Callable[[Index], str], result: str) -> Value:
        """Stores in each entry what the statements of `compute` leave in the expression `result`."""
        if math.prod(shape) == 1:
            name = self._name("v")
            self._emit(f"let {name};{{{compute([0] * len(shape))}{name}={result};}}")
            return scalar(shape, dtype, name)
        buffer = self._buffer(shape, dtype)
        self._loop(shape, lambda index: f"{compute(index)}{buffer.at(index)}={result};")
        return buffer

    def _do_reduce_sum(self, eqn: Any, operands: list[Value]) -> Value:
        dtype = operands[0].dtype
        if dtype == "float32":  # in double precision, rounded once
            return self._reduce(eqn, operands[0], "0", lambda old, new: f"{old}+{new}", "F({})")
        return self._reduce(eqn, operands[0], "0", lambda old, new: arithmetic(dtype, f"{old}+{new}"))

    def _do_reduce_prod(self, eqn: Any, operands: list[Value]) -> Value:
        dtype = operands[0].dtype
        return self._reduce(eqn, operands[0], "1", lambda old, new: multiply(dtype, old, new))

    def _do_reduce_max(self, eqn: Any, operands: list[Value]) -> Value:
        least = literal(lowest(operands[0].dtype))
        return self._reduce(eqn, operands[0], least, lambda old, new: f"Math.max({old},{new})")

    def _do_reduce_min(self, eqn: Any, operands: list[Value]) -> Value:
        most = literal(highest(operands[0].dtype))
        return self._reduce(eqn, operands[0], most, lambda old, new: f"Math.min({old},{new})")

    def _do_reduce_or(self, eqn: Any, operands: list[Value]) -> Value:
        return self._reduce(eqn, operands[0], "0", lambda old, new: f"{old}|{new}")

    def _do_reduce_and(self, eqn: Any, operands: list[Value]) -> Value:
        every = "1" if operands[0].dtype == "bool" else "-1"
        return self._reduce(eqn, operands[0], every, lambda old, new: f"{old}&{new}")

    def _do_reduce_xor(self, eqn: Any, operands: list[Value]) -> Value:
        return self._reduce(eqn, operands[0], "0", lambda old, new: f"{old}^{new}")

    def _do_argmax(self, eqn: Any, operands: list[Value], better: str = ">") -> Value:
        operand, axis = operands[0], eqn.params["axes"][0]
        shape, dtype = physical(eqn.outvars[0].aval)
        best, where, entry, i = (self._name(kind) for kind in ("t", "t", "t", "i"))

        def search(index: Index) -> str:
            place = [*index[:axis], i, *index[axis:]]
            start = [*index[:axis], 0, *index[axis:]]
            return (
                f"let {best}={operand.at(start)},{where}=0;for(let {i}=1;{i}<{operand.shape[axis]};{i}++){{"
                f"const {entry}={operand.at(place)};"
                f"if({entry}{better}{best}||({entry}!=={entry}&&{best}==={best})){{{best}={entry};{where}={i};}}}}"
            )

        return self._loop_into(shape, dtype, search, where)

    def _do_argmin(self, eqn: Any, operands: list[Value]) -> Value:
        return self._do_argmax(eqn, operands, "<")

    def _cumulate(self, eqn: Any, operand: Value, combine: Callable[[str, str], str]) -> Value:
        axis, reverse = eqn.params["axis"], eqn.params["reverse"]
        size = operand.shape[axis] if operand.shape else 1
        if operand.size <= 1:
            return operand
        operand = self._store(operand) if operand.cost > CHEAP else operand
        result = self._buffer(operand.shape, operand.dtype)
        total, i = self._name("t"), self._name("i")
        outer = [1 if d == axis else s for d, s in enumerate(operand.shape)]

        def body(index: Index) -> str:
            here = f"({size - 1}-{i})" if reverse else i
            place = [here if d == axis else entry for d, entry in enumerate(index)]
            begin = [(size - 1 if reverse else 0) if d == axis else entry for d, entry in enumerate(index)]
            return (
                f"let {total}={operand.at(begin)};{result.at(begin)}={total};for(let {i}=1;{i}<{size};{i}++){{"
                f"{total}={combine(total, operand.at(place))};{result.at(place)}={total};}}"
            )

        self._loop(outer, body)
        return result

    def _do_cumsum(self, eqn: Any, operands: list[Value]) -> Value:
        dtype = operands[0].dtype
        return self._cumulate(eqn, operands[0], lambda old, new: arithmetic(dtype, f"{old}+{new}"))

    def _do_cumprod(self, eqn: Any, operands: list[Value]) -> Value:
        dtype = operands[0].dtype
        return self._cumulate(eqn, operands[0], lambda old, new: multiply(dtype, old, new))

    def _do_cummax(self, eqn: Any, operands: list[Value]) -> Value:
        return self._cumulate(eqn, operands[0], lambda old, new: f"Math.max({old},{new})")

    def _do_cummin(self, eqn: Any, operands: list[Value]) -> Value:
        return self._cumulate(eqn, operands[0], lambda old, new: f"Math.min({old},{new})")

    def _do_dot_general(self, eqn: Any, operands: list[Value]) -> Value:
        (contract_a, contract_b), (batch_a, batch_b) = eqn.params["dimension_numbers"]
        a, b = (value if value.cost == 0 else self._store(value) for value in operands)
        shape, dtype = physical(eqn.outvars[0].aval)
        free_a = [d for d in range(len(a.shape)) if d not in contract_a and d not in batch_a]
        free_b = [d for d in range(len(b.shape)) if d not in contract_b and d not in batch_b]
        total = self._name("t")

        def products(index: Index) -> str:
            place_a: Index = [0] * len(a.shape)
            place_b: Index = [0] * len(b.shape)
            rest = iter(index)
            for da, db in zip(batch_a, batch_b, strict=True):
                place_a[da] = place_b[db] = next(rest)
            for d in free_a:
                place_a[d] = next(rest)
            for d in free_b:
                place_b[d] = next(rest)
            heads = []
            for da, db in zip(contract_a, contract_b, strict=True):
                if a.shape[da] != 1:
                    name = self._name("i")
                    heads.append(f"for(let {name}=0;{name}<{a.shape[da]};{name}++)")
                    place_a[da] = place_b[db] = name
            return f"let {total}=0;{''.join(heads)}{total}+={a.at(place_a)}*{b.at(place_b)};"

        return self._loop_into(shape, dtype, products, f"F({total})" if dtype == "float32" else f"{total}|0")

    def _do_sort(self, eqn: Any, operands: list[Value]) -> list[Value]:
        axis, num_keys = eqn.params["dimension"], eqn.params["num_keys"]
        if operands[0].size <= 1:
            return operands
        operands = [self._store(value) for value in operands]
        results = [self._buffer(value.shape, value.dtype) for value in operands]
        size = operands[0].shape[axis]
        outer = [1 if d == axis else s for d, s in enumerate(operands[0].shape)]
        order, k = self._name("t"), self._name("i")

        def body(index: Index) -> str:
            def place(entry: str) -> Index:
                return [entry if d == axis else other for d, other in enumerate(index)]

            keys = "||".join(f"compare({key.at(place('p'))},{key.at(place('q'))})" for key in operands[:num_keys])
            moves = "".join(
                f"{result.at(place(k))}={value.at(place(f'{order}[{k}]'))};"
                for value, result in zip(operands, results, strict=True)
            )
            return f"const {order}=ordered({size},(p,q)=>{keys});for(let {k}=0;{k}<{size};{k}++){{{moves}}}"

        self._loop(outer, body)
        return results

    # --- Random keys: their data are their last axis.

    def _do_random_wrap(self, eqn: Any, operands: list[Value]) -> Value:
        return operands[0]

    def _do_random_unwrap(self, eqn: Any, operands: list[Value]) -> Value:
        return operands[0]

    def _do_random_clone(self, eqn: Any, operands: list[Value]) -> Value:
        return operands[0]

    def _random(self, eqn: Any, operands: list[Value], function: Callable[..., Any], impl: Any) -> list[Value]:
        """Runs a function of the generator on the data of keys, over all axes of an array of keys."""
        for _ in range(len(eqn.invars[0].aval.shape)):
            function = jax.vmap(function)
        examples = [jax.ShapeDtypeStruct(*physical(var.aval)) for var in eqn.invars]
        closed = jax.make_jaxpr(function)(*examples)
        return self._run(closed.jaxpr, closed.consts, [self._store(value) for value in operands])

    def _do_random_bits(self, eqn: Any, operands: list[Value]) -> list[Value]:
        impl, width, shape = implementation(eqn.invars[0].aval), eqn.params["bit_width"], eqn.params["shape"]
        return self._random(eqn, operands, lambda data: impl.random_bits(data, width, shape), impl)

    def _do_random_split(self, eqn: Any, operands: list[Value]) -> list[Value]:
        impl, shape = implementation(eqn.invars[0].aval), eqn.params["shape"]
        return self._random(eqn, operands, lambda data: impl.split(data, shape), impl)

    def _do_random_fold_in(self, eqn: Any, operands: list[Value]) -> list[Value]:
        impl = implementation(eqn.invars[0].aval)
        return self._random(eqn, operands, impl.fold_in, impl)

    def _do_random_seed(self, eqn: Any, operands: list[Value]) -> list[Value]:
        impl = implementation(eqn.outvars[0].aval)
        return self._random(eqn, operands, impl.seed, impl)

    def _do_iota_2x32_shape(self, eqn: Any, operands: list[Value]) -> list[Value]:
        """Counts from 0 in two words; no array here has more than 2³² entries."""
        shape = eqn.params["shape"]
        low = self._constant(np.arange(math.prod(shape), dtype=np.uint32).reshape(shape))
        return [self._constant(np.zeros(shape, np.uint32)), low]

    def _do_threefry2x32(self, eqn: Any, operands: list[Value]) -> list[Value]:
        operands = [self._store(value) if value.cost > CHEAP else value for value in operands]
        shape, dtype = physical(eqn.outvars[0].aval)
        results = [self._buffer((max(math.prod(shape), 2),), dtype) for _ in range(2)]

        def body(index: Index) -> str:
            parts = ",".join(broadcast(value, index) for value in operands)
            flat = stored(shape, dtype, "").at(index)[1:-1] if shape else "0"
            return f"threefry({parts});{results[0].name}[{flat}]=mixed[0];{results[1].name}[{flat}]=mixed[1];"

        self._loop(shape, body)
        return [stored(shape, dtype, result.name) for result in results]

    # --- Control flow. What a block reads is stored before it, so that nothing is first computed inside.

    def _do_cond(self, eqn: Any, operands: list[Value]) -> list[Value]:
        which, *rest = (self._store(value) for value in operands)
        results = [self._variable(*physical(var.aval)) for var in eqn.outvars]
        branches = eqn.params["branches"]
        choice = which.at([0] * len(which.shape))
        for k, branch in enumerate(branches):
            head = f"if({choice}<=0)" if k == 0 else f"else if({choice}==={k})"
            head = "else" if k == len(branches) - 1 and k else head

            def build(branch: Any = branch) -> None:
                outputs = self._run(branch.jaxpr, branch.consts, rest)
                for result, value in zip(results, outputs, strict=True):
                    self._assign(result, value)

            self._block(head, build)
        return results

    def _do_platform_index(self, eqn: Any, operands: list[Value]) -> Value:
        return self._constant(np.asarray(0, np.int32))

    def _variable(self, shape: tuple[int, ...], dtype: str) -> Value:
        """Returns a place that can be written more than once."""
        if math.prod(shape) == 1:
            name = self._name("v")
            self._emit(f"let {name}=0;")
            return scalar(shape, dtype, name)
        return self._buffer(shape, dtype)

    def _assign(self, place: Value, value: Value) -> None:
        if place.size == 1:
            self._emit(f"{place.name}={value.at([0] * len(value.shape))};")
        else:
            self._fill(place, value)

    def _rebind(self, places: list[Value], values: list[Value]) -> None:
        """Assigns all values at once: none may read a place that was already overwritten."""
        changed = [(p, v) for p, v in zip(places, values, strict=True) if not (v.name and v.name == p.name)]
        kept = [(p, v if v.constant is not None else self._store(v, fresh=True)) for p, v in changed]
        for place, value in kept:
            self._assign(place, value)

    def _do_while(self, eqn: Any, operands: list[Value]) -> list[Value]:
        tests, bodies = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        operands = [self._store(value) for value in operands]
        test_consts, body_consts, first = operands[:tests], operands[tests : tests + bodies], operands[tests + bodies :]
        carry = [self._variable(*physical(var.aval)) for var in eqn.outvars]
        for place, value in zip(carry, first, strict=True):
            self._assign(place, value)
        test, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]

        def build() -> None:
            (goes_on,) = self._run(test.jaxpr, test.consts, [*test_consts, *carry])
            self._emit(f"if(!{goes_on.at([0] * len(goes_on.shape))})break;")
            self._rebind(carry, self._run(body.jaxpr, body.consts, [*body_consts, *carry]))

        self._block("for(;;)", build)
        return carry

    def _do_scan(self, eqn: Any, operands: list[Value]) -> list[Value]:
        params = eqn.params
        num_consts, num_carry, length = params["num_consts"], params["num_carry"], params["length"]
        operands = [self._store(value) for value in operands]
        consts, first, rows = (
            operands[:num_consts],
            operands[num_consts : num_consts + num_carry],
            operands[num_consts + num_carry :],
        )
        carry = [self._variable(*physical(var.aval)) for var in eqn.outvars[:num_carry]]
        for place, value in zip(carry, first, strict=True):
            self._assign(place, value)
        # One row more than needed keeps a result of one entry a buffer, which the loop can index.
        stacked = []
        for var in eqn.outvars[num_carry:]:
            shape, dtype = physical(var.aval)
            stacked.append((shape, dtype, self._buffer((max(math.prod(shape), 2),), dtype).name))
        t = self._name("i")
        body = params["jaxpr"]

        def build() -> None:
            slices = [
                Value(row.shape[1:], row.dtype, lambda index, row=row: row.at([t if row.shape[0] > 1 else 0, *index]))
                for row in rows
            ]
            slices = [self._store(piece) if piece.size == 1 else piece for piece in slices]
            outputs = self._run(body.jaxpr, body.consts, [*consts, *carry, *slices])
            for (shape, dtype, name), value in zip(stacked, outputs[num_carry:], strict=True):
                target = stored(shape, dtype, name)
                self._loop(shape[1:], lambda index, target=target, value=value: f"{target.at([t, *index])}={value.at(index)};")
            self._rebind(carry, outputs[:num_carry])

        head = f"for(let {t}={length - 1};{t}>=0;{t}--)" if params["reverse"] else f"for(let {t}=0;{t}<{length};{t}++)"
        self._block(head, build)
        return [*carry, *(stored(shape, dtype, name) for shape, dtype, name in stacked)]


# --- Values, shapes and text.


def stored(shape: tuple[int, ...], dtype: str, name: str) -> Value:
    """Returns a value that lies in a typed array, row after row."""
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]

    def at(index: Index) -> str:
        place: Any = 0
        for entry, stride in zip(index, strides, strict=True):
            place = add(place, times(entry, stride))
        return f"{name}[{place}]"

    return Value(tuple(shape), dtype, at, 0, name)


def scalar(shape: tuple[int, ...], dtype: str, name: str) -> Value:
    """Returns a value of one entry that lies in a variable."""
    return Value(tuple(shape), dtype, lambda index: name, 0, name)


def broadcast(value: Value, index: Index) -> str:
    """Returns the entry of an operand of an elementwise operation: scalars and axes of length 1 are repeated."""
    return value.at([0 if size == 1 else entry for size, entry in zip(value.shape, index, strict=False)])


def add(a: Any, b: Any) -> Any:
    """Returns the sum of two indices."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0 or b == 0:
        return b if a == 0 else a
    return f"({a}+{b})" if not (isinstance(b, int) and b < 0) else f"({a}-{-b})"


def times(a: Any, factor: int) -> Any:
    """Returns a multiple of an index."""
    if isinstance(a, int):
        return a * factor
    return a if factor == 1 else 0 if factor == 0 else f"{a}*{factor}"


def literal(value: Any) -> str:
    """Returns a number as JavaScript writes it."""
    value = np.asarray(value)
    if value.dtype == bool or value.dtype.kind in "iu":
        text = str(int(value))
        return f"({text})" if text[0] == "-" else text
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "(-Infinity)"
    text = repr(number)
    text = text[:-2] if text.endswith(".0") else text
    return f"({text})" if text[0] == "-" else text


def array_type(dtype: str) -> str:
    """Returns the typed array that holds a kind of number."""
    if dtype not in ARRAYS:
        raise UsageError(f"the page cannot compute with numbers of type {dtype}: use float32, int32, uint32 or bool.")
    return ARRAYS[dtype]


def is_key(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)


def implementation(aval: Any) -> Any:
    """Returns the generator behind an array of random keys."""
    return aval.dtype._impl


def physical(aval: Any) -> tuple[tuple[int, ...], str]:
    """Returns shape and type of an array as it is stored; the data of random keys are a last axis."""
    if is_key(aval):
        return (*aval.shape, *implementation(aval).key_shape), "uint32"
    return tuple(aval.shape), aval.dtype.name


def key_data(array: Any) -> np.ndarray:
    """Returns a constant as NumPy, a random key as its data."""
    if isinstance(array, jax.Array) and is_key(array.aval):
        return np.asarray(jax.random.key_data(array))
    return np.asarray(array)


INLINED = {
    "pjit": "jaxpr",
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "custom_lin": "jaxpr",
}
"""Calls, and the parameter that holds what they call."""


def inlined(eqn: Any) -> ClosedJaxpr | None:
    """Returns what a call computes, or None if the equation is no call."""
    name = eqn.primitive.name
    if name not in INLINED:
        return None
    inner = eqn.params.get(INLINED[name]) or eqn.params.get("call_jaxpr") or eqn.params["jaxpr"]
    return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())


# --- Elementwise operations: (how to write it, cost).


@dataclass(frozen=True)
class Kind:
    """The type of a result and of the first operand, and the equation's parameters."""

    dtype: str
    source: str
    params: Any

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")


def arithmetic(dtype: str, text: str) -> str:
    """Returns the expression rounded or wrapped to a type."""
    return {"float32": f"F({text})", "int32": f"({text}|0)", "uint32": f"({text}>>>0)", "bool": f"({text}&1)"}.get(
        dtype, f"wrap_{dtype}({text})"
    )


def multiply(dtype: str, a: str, b: str) -> str:
    if dtype == "float32":
        return f"F({a}*{b})"
    return arithmetic(dtype, f"Math.imul({a},{b})")


def lowest(dtype: str) -> Any:
    return np.asarray(-np.inf, np.float32) if dtype == "float32" else False if dtype == "bool" else np.iinfo(dtype).min


def highest(dtype: str) -> Any:
    return np.asarray(np.inf, np.float32) if dtype == "float32" else True if dtype == "bool" else np.iinfo(dtype).max


def _convert(kind: Kind, a: str) -> str:
    if kind.dtype == "bool":
        return a if kind.source == "bool" else f"({a}!==0|0)"
    if kind.is_float:
        return a if kind.source in ("float32", "bool", "int8", "uint8", "int16", "uint16") else f"F({a})"
    if kind.source == "float32":
        low, high = np.iinfo(kind.dtype).min, np.iinfo(kind.dtype).max
        return f"integer({a},{low},{high})"
    return a if kind.source == "bool" else arithmetic(kind.dtype, a)


def _divide(kind: Kind, a: str, b: str) -> str:
    return f"F({a}/{b})" if kind.is_float else arithmetic(kind.dtype, f"quotient({a},{b})")


def _shift(sign: str) -> Callable[..., str]:
    def write(kind: Kind, a: str, b: str) -> str:
        shifted = f"({a}{sign}{b})" if b.isdigit() and int(b) < 32 else f"(({b}>>>0)<32?{a}{sign}{b}:0)"
        if sign == ">>" and not b.isdigit():
            shifted = f"({a}>>Math.min({b}>>>0,31))"
        return arithmetic(kind.dtype, shifted)

    return write


def _bitcast(kind: Kind, a: str) -> str:
    if kind.dtype == kind.source:
        return a
    if kind.dtype == "float32":
        return f"bits_to_float({a})"
    if kind.source == "float32":
        return arithmetic(kind.dtype, f"float_to_bits({a})")
    return arithmetic(kind.dtype, a)


def _not(kind: Kind, a: str) -> str:
    return f"({a}^1)" if kind.dtype == "bool" else arithmetic(kind.dtype, f"~{a}")


def _bitwise(sign: str) -> Callable[..., str]:
    return lambda kind, a, b: (
        f"({a}{sign}{b})" if kind.dtype in ("bool", "int32") else arithmetic(kind.dtype, f"({a}{sign}{b})")
    )


def _compare(sign: str) -> Callable[..., str]:
    return lambda kind, a, b: f"({a}{sign}{b}|0)"


def _call(name: str) -> Callable[..., str]:
    return lambda kind, *parts: f"F({name}({','.join(parts)}))"


def _any_sign(name: str) -> Callable[..., str]:
    return lambda kind, *parts: f"{name}({','.join(parts)})"


def _round(kind: Kind, a: str) -> str:
    to_even = kind.params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN
    return f"{'round_even' if to_even else 'round_away'}({a})"


def _power(kind: Kind, a: str) -> str:
    exponent = kind.params["y"]
    return f"power({a},{exponent})" if kind.is_float else arithmetic(kind.dtype, f"whole_power({a},{exponent})")


ELEMENTWISE: dict[str, tuple[Callable[..., str], int]] = {
    "add": (lambda kind, a, b: arithmetic(kind.dtype, f"{a}+{b}"), 1),
    "add_any": (lambda kind, a, b: arithmetic(kind.dtype, f"{a}+{b}"), 1),
    "sub": (lambda kind, a, b: arithmetic(kind.dtype, f"{a}-{b}"), 1),
    "mul": (lambda kind, a, b: multiply(kind.dtype, a, b), 1),
    "div": (_divide, 1),
    "rem": (lambda kind, a, b: f"({a}%{b})" if kind.is_float else arithmetic(kind.dtype, f"{a}%{b}"), 2),
    "neg": (lambda kind, a: f"(-{a})" if kind.is_float else arithmetic(kind.dtype, f"-{a}"), 1),
    "abs": (_any_sign("Math.abs"), 1),
    "sign": (_any_sign("Math.sign"), 1),
    "max": (_any_sign("Math.max"), 1),
    "min": (_any_sign("Math.min"), 1),
    "clamp": (lambda kind, low, a, high: f"Math.min(Math.max({a},{low}),{high})", 2),
    "and": (_bitwise("&"), 1),
    "or": (_bitwise("|"), 1),
    "xor": (_bitwise("^"), 1),
    "not": (_not, 1),
    "shift_left": (_shift("<<"), 1),
    "shift_right_logical": (_shift(">>>"), 1),
    "shift_right_arithmetic": (_shift(">>"), 1),
    "population_count": (lambda kind, a: f"ones({a})", 4),
    "mulhi": (lambda kind, a, b: arithmetic(kind.dtype, f"high_word({a},{b})"), 4),
    "clz": (_any_sign("Math.clz32"), 1),
    "eq": (_compare("==="), 1),
    "ne": (_compare("!=="), 1),
    "lt": (_compare("<"), 1),
    "le": (_compare("<="), 1),
    "gt": (_compare(">"), 1),
    "ge": (_compare(">="), 1),
    "is_finite": (lambda kind, a: f"(isFinite({a})|0)", 1),
    "convert_element_type": (_convert, 0),
    "bitcast_convert_type": (_bitcast, 2),
    "reduce_precision": (lambda kind, a: a, 0),
    "copy": (lambda kind, a: a, 0),
    "copy_p": (lambda kind, a: a, 0),
    "stop_gradient": (lambda kind, a: a, 0),
    "square": (lambda kind, a: f"square({a})" if kind.is_float else multiply(kind.dtype, a, a), 1),
    "integer_pow": (_power, 2),
    "pow": (_call("Math.pow"), 8),
    "sqrt": (_call("Math.sqrt"), 2),
    "rsqrt": (lambda kind, a: f"F(1/Math.sqrt({a}))", 3),
    "cbrt": (_call("Math.cbrt"), 8),
    "exp": (_call("Math.exp"), 8),
    "exp2": (lambda kind, a: f"F(Math.pow(2,{a}))", 8),
    "expm1": (_call("Math.expm1"), 8),
    "log": (_call("Math.log"), 8),
    "log1p": (_call("Math.log1p"), 8),
    "sin": (_call("Math.sin"), 8),
    "cos": (_call("Math.cos"), 8),
    "tan": (_call("Math.tan"), 8),
    "asin": (_call("Math.asin"), 8),
    "acos": (_call("Math.acos"), 8),
    "atan": (_call("Math.atan"), 8),
    "atan2": (_call("Math.atan2"), 8),
    "sinh": (_call("Math.sinh"), 8),
    "cosh": (_call("Math.cosh"), 8),
    "tanh": (_call("Math.tanh"), 8),
    "asinh": (_call("Math.asinh"), 8),
    "acosh": (_call("Math.acosh"), 8),
    "atanh": (_call("Math.atanh"), 8),
    "logistic": (lambda kind, a: f"F(1/(1+Math.exp(-{a})))", 8),
    "floor": (_any_sign("Math.floor"), 1),
    "ceil": (_any_sign("Math.ceil"), 1),
    "round": (_round, 2),
    "erf": (_call("erf"), 12),
    "erfc": (lambda kind, a: f"F(1-erf({a}))", 12),
    "erf_inv": (_call("erf_inv"), 12),
    "nextafter": (_any_sign("next_after"), 4),
}


FOLDS: dict[str, Callable[..., Any]] = {
    "add": lambda params, a, b: np.add(a, b),
    "sub": lambda params, a, b: np.subtract(a, b),
    "mul": lambda params, a, b: np.multiply(a, b),
    "neg": lambda params, a: np.negative(a),
    "and": lambda params, a, b: a & b,
    "or": lambda params, a, b: a | b,
    "xor": lambda params, a, b: a ^ b,
    "not": lambda params, a: ~a,
    "eq": lambda params, a, b: a == b,
    "ne": lambda params, a, b: a != b,
    "lt": lambda params, a, b: a < b,
    "le": lambda params, a, b: a <= b,
    "gt": lambda params, a, b: a > b,
    "ge": lambda params, a, b: a >= b,
    "copy": lambda params, a: a,
    "stop_gradient": lambda params, a: a,
    "reshape": lambda params, a: a.reshape(params["new_sizes"]),
    "squeeze": lambda params, a: a.squeeze(tuple(params["dimensions"])),
    "transpose": lambda params, a: a.transpose(params["permutation"]),
    "concatenate": lambda params, *parts: np.concatenate(parts, params["dimension"]),
    "select_n": lambda params, which, *cases: np.choose(which.astype(int), cases),
    "broadcast_in_dim": lambda params, a: np.broadcast_to(
        a.reshape(
            [
                a.shape[params["broadcast_dimensions"].index(d)] if d in params["broadcast_dimensions"] else 1
                for d in range(len(params["shape"]))
            ]
        ),
        params["shape"],
    ),
    "slice": lambda params, a: a[
        tuple(
            slice(start, stop, step)
            for start, stop, step in zip(
                params["start_indices"], params["limit_indices"], params["strides"] or (1,) * a.ndim, strict=True
            )
        )
    ],
}
"""Operations on constants that NumPy computes exactly as JAX does: a compilation for each would take seconds."""
