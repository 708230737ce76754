"""A world's `draw` as JavaScript, and which shapes can be dragged.

`draw` is ordinary Python: it reads numbers, calls NumPy, branches and formats a caption. Here it runs on numbers that remember
how they were computed (`Number`). Each `if` that depends on the state is taken both ways, and what differs becomes a choice in
the page. The result is checked: on states of real episodes it must give the picture that `draw` itself gives.

A shape whose coordinates are entries of the state, up to a factor and a shift, can be dragged: the page changes those entries.
"""

import builtins
import copy
import inspect
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any

import jax
import numpy as np

from counterpoint.core.picture import Circle, Line, Picture, Polygon, Speech
from counterpoint.core.types import Env
from counterpoint.view.curves import plain

MOST_CHOICES = 2000
"""A draw with more branches than this is not translated."""
TOLERANCE = 1e-4
"""Numbers of the checked pictures differ by at most this, relative to 1 + their size."""

OPERATIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "add": (lambda a, b: a + b, "({}+{})"),
    "sub": (lambda a, b: a - b, "({}- {})"),
    "mul": (lambda a, b: a * b, "({}*{})"),
    "div": (lambda a, b: a / b if b else math.nan, "({}/{})"),
    "floordiv": (lambda a, b: a // b if b else 0, "Math.floor({}/{})"),
    "mod": (lambda a, b: a % b if b else 0, "modulo({},{})"),
    "pow": (lambda a, b: a**b, "(({})**{})"),
    "neg": (lambda a: -a, "(-{})"),
    "abs": (abs, "Math.abs({})"),
    "int": (lambda a: int(a), "Math.trunc({})"),
    "round": (lambda a, digits: round(a, digits), "rounded({},{})"),
    "lt": (lambda a, b: a < b, "({}<{})"),
    "le": (lambda a, b: a <= b, "({}<={})"),
    "gt": (lambda a, b: a > b, "({}>{})"),
    "ge": (lambda a, b: a >= b, "({}>={})"),
    "eq": (lambda a, b: a == b, "(+{}===+{})"),
    "ne": (lambda a, b: a != b, "(+{}!==+{})"),
    "and": (lambda a, b: a & b, "({}&{})"),
    "or": (lambda a, b: a | b, "({}|{})"),
    "not": (lambda a: not a, "({}?0:1)"),
    "arctan2": (math.atan2, "Math.atan2({},{})"),
    "hypot": (math.hypot, "Math.hypot({},{})"),
    **{
        name: (getattr(math, js), f"Math.{js}({{}})")
        for name, js in [
            *((name, name) for name in ("sqrt", "sin", "cos", "tan", "exp", "log", "tanh", "floor", "ceil")),
            *(("arcsin", "asin"), ("arccos", "acos"), ("arctan", "atan")),
        ]
    },
}
"""By name: how Python computes it, and how JavaScript writes it."""
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not")


class Untraceable(Exception):
    """`draw` did something with a number that the page could not do later."""


class Number:
    """A number that `draw` computes: its value now (`value`), and how it came about (`node`)."""

    __slots__ = ("kind", "node", "session", "value")
    __hash__ = None  # type: ignore[assignment] — a set or dict would compare values that change

    def __init__(self, session: "Session", node: tuple[Any, ...], value: Any, kind: str) -> None:
        self.session, self.node, self.value, self.kind = session, node, value, kind

    def _make(self, name: str, *others: Any, reverse: bool = False) -> Any:
        parts = [self, *(other.item() if isinstance(other, np.generic) else other for other in others)]
        if any(not isinstance(part, Number | int | float) for part in parts):
            return NotImplemented
        parts = parts[::-1] if reverse else parts
        value = OPERATIONS[name][0](*(part.value if isinstance(part, Number) else part for part in parts))
        kind = "bool" if name in COMPARISONS else "int" if isinstance(value, int) else "float"
        return Number(self.session, (name, *(node_of(part) for part in parts)), value, kind)

    def __bool__(self) -> bool:
        return self.session.decide(self)

    def __format__(self, spec: str) -> str:
        return self.session.marker(self, spec)

    def __str__(self) -> str:
        return self.session.marker(self, "")

    __repr__ = __str__

    def __float__(self) -> float:
        raise Untraceable("it passes a number of the state to a function that needs a plain float")

    __int__ = __index__ = __float__  # type: ignore[assignment]

    def item(self) -> "Number":
        return self

    def tolist(self) -> "Number":
        return self

    def astype(self, kind: Any) -> "Number":
        return as_int(self) if np.issubdtype(np.dtype(kind), np.integer) else self


def _define() -> None:
    """Gives `Number` its operators and the methods that NumPy's functions call on objects."""
    binary = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floordiv", "mod": "mod", "pow": "pow"}
    binary |= {"and": "and", "or": "or"}
    for dunder, name in binary.items():
        setattr(Number, f"__{dunder}__", lambda self, other, name=name: self._make(name, other))
        setattr(Number, f"__r{dunder}__", lambda self, other, name=name: self._make(name, other, reverse=True))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Number, f"__{name}__", lambda self, other, name=name: self._make(name, other))
    for dunder, name in {"neg": "neg", "abs": "abs", "invert": "not"}.items():
        setattr(Number, f"__{dunder}__", lambda self, name=name: self._make(name))
    Number.__round__ = lambda self, digits=0: self._make("round", digits)  # type: ignore[attr-defined]
    for name in OPERATIONS:
        if name in ("arctan2", "hypot"):
            setattr(Number, name, lambda self, other, name=name: self._make(name, other))
        elif not hasattr(Number, name) and name not in ("int", "round", "not"):
            setattr(Number, name, lambda self, name=name: self._make(name))
    Number.logical_not = lambda self: self._make("not")  # type: ignore[attr-defined]


_define()


def node_of(part: Any) -> tuple[Any, ...]:
    """Returns how a value came about; a plain one is a constant."""
    if isinstance(part, Number):
        return part.node
    return ("const", part.item() if isinstance(part, np.generic) else part)


def as_int(number: Any, *rest: Any) -> Any:
    """Returns what int(number) would."""
    number = number.item() if isinstance(number, np.ndarray) else number
    if not isinstance(number, Number):
        return int(number, *rest)
    return number if number.kind in ("int", "bool") else number._make("int")


def as_float(number: Any = 0.0) -> Any:
    """Returns what float(number) would."""
    number = number.item() if isinstance(number, np.ndarray) else number
    return number if isinstance(number, Number) else float(number)


def _plain(name: str) -> Callable[..., Any]:
    """Returns a function of the module math that accepts such numbers."""
    method = {"atan2": "arctan2", "atan": "arctan", "asin": "arcsin", "acos": "arccos"}.get(name, name)

    def call(*parts: Any) -> Any:
        if any(isinstance(part, Number) for part in parts):
            first = next(part for part in parts if isinstance(part, Number))
            whole = [Number(first.session, node_of(part), part, "float") if part is not first else part for part in parts]
            whole = [part if isinstance(part.value, int | float) else part.value for part in whole]
            return getattr(whole[0], method)(*whole[1:])
        return getattr(math, name)(*parts)

    return call


MATH = SimpleNamespace(
    **{name: getattr(math, name) for name in dir(math) if not name.startswith("_")}
    | {name: _plain(name) for name in ("atan2", "hypot", "sqrt", "sin", "cos", "tan", "exp", "log", "atan", "floor", "ceil")}
)


class Session:
    """One call of `draw`: which branches to take, and which were met."""

    def __init__(self, taken: dict[Any, bool]) -> None:
        self.taken = taken
        self.met: dict[Any, bool] = {}
        self.texts: dict[str, tuple[tuple[Any, ...], str]] = {}

    def decide(self, number: Number) -> bool:
        choice = self.taken.get(number.node, bool(number.value))
        self.met[number.node] = choice
        if len(self.met) > MOST_CHOICES:
            raise Untraceable(f"it branches more than {MOST_CHOICES} times on numbers of the state")
        return choice

    def marker(self, number: Number, spec: str) -> str:
        """Returns a text that stands for the number in a caption or label."""
        code = f"\x00{len(self.texts)}\x00"
        self.texts[code] = (number.node, spec, number.kind)  # type: ignore[assignment]
        return code


@dataclass(frozen=True)
class Scene:
    """The shapes of every state: Python tuples whose numbers and texts are nodes."""

    window: tuple[Any, ...]
    caption: tuple[Any, ...]
    shapes: tuple[tuple[Any, ...], ...]
    """(node of whether it is shown, letter, fields…)."""


def trace(world: Env, state: Any) -> Scene | None:
    """Returns the scene of a world, None if it does not draw; raises Untraceable if it cannot be translated."""
    if world.draw(jax.device_get(state)) is None:
        return None
    twin = _twin(world)

    def run(taken: dict[Any, bool]) -> tuple[Scene, dict[Any, bool]]:
        session = Session(taken)
        picture = twin.draw(_numbers(session, state))
        return _scene(session, picture), session.met

    try:
        return _explore(run, {}, ())
    except Untraceable:
        raise
    except Exception as error:
        raise Untraceable(f"{type(error).__name__}: {error}") from error


def _explore(run: Callable[..., Any], taken: dict[Any, bool], known: Sequence[Any]) -> Scene:
    """Returns the scene of one path, with every branch that it is the first to meet taken the other way as well."""
    base, met = run(taken)
    window, caption, seen = base.window, base.caption, [*known, *met]
    slots: list[Slot] = list(enumerate(base.shapes))
    for condition, way in met.items():
        if condition in known or condition in taken:
            continue
        other = _explore(run, {**taken, condition: not way}, seen)
        choice = Choice(condition, way)
        window = choice.fields(base.window, other.window, window)
        caption = choice.field(base.caption, other.caption, caption)
        slots = _joined(choice, base.shapes, other.shapes, slots)
    return Scene(window, caption, tuple(shape for _, shape in slots))


Slot = tuple[int | None, tuple[Any, ...]]
"""A shape of the scene, and which shape of the base path it is; None if only another path has it."""


@dataclass(frozen=True)
class Choice:
    """A branch: its condition, and which way the base path goes."""

    condition: tuple[Any, ...]
    way: bool

    def field(self, base: Any, other: Any, now: Any) -> Any:
        """Returns `now`, or, where the paths differ, a choice between it and the other path's."""
        if base == other:
            return now
        return ("choose", self.condition, now, other) if self.way else ("choose", self.condition, other, now)

    def fields(self, base: Any, other: Any, now: Any) -> Any:
        return tuple(map(self.field, base, other, now))

    def only(self, shape: tuple[Any, ...], on_base: bool) -> tuple[Any, ...]:
        """Returns a shape that is shown on one of the two paths alone."""
        condition = self.condition if self.way == on_base else ("not", self.condition)
        return (("and", condition, shape[0]), *shape[1:])


def _joined(choice: Choice, base: Sequence[Any], other: Sequence[Any], slots: list[Slot]) -> list[Slot]:
    """Returns the slots with what differs between two paths made a choice."""
    if [(shape[1], len(shape)) for shape in base] == [(shape[1], len(shape)) for shape in other]:
        return [(k, now if k is None else choice.fields(base[k], other[k], now)) for k, now in slots]
    joined: list[Slot] = []
    position = 0
    for k, now in slots:
        if k is None:
            joined.append((k, now))
        elif base[k] in other[position:]:
            place = list(other).index(base[k], position)
            joined += [(None, choice.only(shape, on_base=False)) for shape in other[position:place]]
            joined.append((k, now))
            position = place + 1
        else:
            joined.append((k, choice.only(now, on_base=True)))
    return joined + [(None, choice.only(shape, on_base=False)) for shape in other[position:]]


def _numbers(session: Session, state: Any) -> Any:
    """Returns a state whose entries are such numbers, in arrays of objects."""
    leaves, structure = jax.tree.flatten(state)

    def array(k: int, leaf: Any) -> Any:
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        leaf = np.asarray(leaf)
        kind = {"f": "float", "b": "bool"}.get(leaf.dtype.kind, "int")
        whole = np.empty(leaf.size, object)
        for i, value in enumerate(leaf.ravel().tolist()):
            whole[i] = Number(session, ("entry", k, i), value, kind)
        return whole.reshape(leaf.shape)

    return jax.tree.unflatten(structure, [array(k, leaf) for k, leaf in enumerate(leaves)])


def _twin(world: Any) -> Any:
    """Returns a copy of the world whose methods call int, float, math and jax.numpy in versions that accept such numbers."""
    spaces: dict[int, dict[str, Any]] = {}

    def namespace(function: FunctionType) -> dict[str, Any]:
        original = function.__globals__
        if id(original) not in spaces:
            space = spaces[id(original)] = dict(original)
            replaced = {id(jax.numpy): np, id(math): MATH, id(builtins.float): as_float, id(builtins.int): as_int}
            for name, thing in original.items():
                if id(thing) in replaced:
                    space[name] = replaced[id(thing)]
                    continue
                inner = inspect.unwrap(thing) if callable(thing) else None
                if isinstance(inner, FunctionType) and inner.__module__ == original.get("__name__"):
                    space[name] = rebuilt(inner)
            space.setdefault("float", as_float)
            space.setdefault("int", as_int)
        return spaces[id(original)]

    def rebuilt(function: FunctionType) -> FunctionType:
        new = FunctionType(
            function.__code__, namespace(function), function.__name__, function.__defaults__, function.__closure__
        )
        new.__kwdefaults__ = function.__kwdefaults__
        return new

    def of_class(kind: type) -> dict[str, Any]:
        methods: dict[str, Any] = {}
        for base in reversed(kind.__mro__[:-1]):
            for name, thing in vars(base).items():
                function = inspect.unwrap(thing) if isinstance(thing, FunctionType) else None
                if isinstance(function, FunctionType) and not (name.startswith("__") and name.endswith("__")):
                    methods[name] = rebuilt(function)
                else:
                    methods.pop(name, None)
        return methods

    getattr(world, "spec", None)  # derived from the original methods, before they are replaced
    twin = copy.copy(world)
    object.__setattr__(twin, "__class__", type(type(world).__name__, (type(world),), of_class(type(world))))
    if hasattr(twin, "world"):  # one that adopts another
        object.__setattr__(twin, "world", _twin(twin.world))
    return twin


# --- Pictures become nodes.


def _scene(session: Session, picture: Picture) -> Scene:
    shapes = []
    for shape in picture.shapes:
        always = ("const", True)
        match shape:
            case Circle(x, y, radius, role, label, heading, trail, owner):
                numbers = (_node(x), _node(y), _node(radius))
                texts = (_text(session, role), _text(session, label))
                shapes.append((always, "c", *numbers, *texts, _node(heading), _text(session, trail), _text(session, owner)))
            case Polygon(points, role, label, owner):
                texts = (_text(session, role), _text(session, label), _text(session, owner))
                shapes.append((always, "p", _points(points), *texts))
            case Line(points, role, width):
                shapes.append((always, "l", _points(points), _text(session, role), _node(width)))
            case Speech(x, y, role, words):
                shapes.append((always, "s", _node(x), _node(y), _text(session, role), ("list", *map(_node, words))))
            case _:
                raise Untraceable(f"a picture holds a {type(shape).__name__}")
    return Scene(tuple(map(_node, picture.window)), _text(session, picture.caption), tuple(shapes))


def _node(value: Any) -> tuple[Any, ...]:
    value = value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
    if not (value is None or isinstance(value, Number | int | float | np.generic)):
        raise Untraceable(f"a picture holds {type(value).__name__} where a number belongs")
    return node_of(value)


def _points(points: Any) -> tuple[Any, ...]:
    return ("list", *(("list", _node(x), _node(y)) for x, y in points))


def _text(session: Session, text: Any) -> tuple[Any, ...]:
    """Returns a text as its parts: plain ones, and formatted numbers."""
    parts: list[Any] = []
    for part in re.split("(\x00\\d+\x00)", str(text)):
        if part in session.texts:
            node, spec, kind = session.texts[part]  # type: ignore[misc]
            parts.append(("format", node, spec, kind))
        elif part:
            parts.append(("const", part))
    if len(parts) == 1 and parts[0][0] == "const":
        return parts[0]
    return ("text", *parts) if parts else ("const", "")


# --- Nodes become values (to check them) and JavaScript.


def evaluate(node: Any, leaves: Sequence[np.ndarray], memo: dict[Any, Any]) -> Any:
    """Returns the value of a node in a state given by its leaves."""
    if node in memo:
        return memo[node]
    name, *parts = node
    if name == "const":
        return parts[0]
    if name == "entry":
        return leaves[parts[0]].reshape(-1)[parts[1]].item()
    if name == "choose":
        result = evaluate(parts[1] if evaluate(parts[0], leaves, memo) else parts[2], leaves, memo)
    elif name == "list":
        result = tuple(evaluate(part, leaves, memo) for part in parts)
    elif name == "text":
        result = "".join(evaluate(part, leaves, memo) for part in parts)
    elif name == "format":
        result = format(evaluate(parts[0], leaves, memo), parts[1])
    else:
        result = OPERATIONS[name][0](*(evaluate(part, leaves, memo) for part in parts))
    memo[node] = result
    return result


def check(scene: Scene, world: Env, states: Sequence[Any]) -> None:
    """Raises Untraceable if the scene differs from the world's own picture in one of the states."""
    for state in states:
        leaves = [np.asarray(leaf) if not _is_key(leaf) else np.zeros(0) for leaf in jax.tree.leaves(state)]
        memo: dict[Any, Any] = {}
        try:
            shown = [s for s in scene.shapes if evaluate(s[0], leaves, memo)]
            found = [tuple(evaluate(part, leaves, memo) for part in shape[2:]) for shape in shown]
        except (ValueError, OverflowError, ZeroDivisionError) as error:
            raise Untraceable(f"the page cannot compute its picture in some states ({error})") from error
        wanted = world.draw(state)
        assert wanted is not None
        theirs = [_plain_fields(shape) for shape in wanted.shapes]
        if len(found) != len(theirs) or not all(_alike(a, b) for a, b in zip(found, theirs, strict=True)):
            raise Untraceable("it gives another picture than the page's in some states: branch less on numbers of the state")


def _is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain_fields(shape: Any) -> tuple[Any, ...]:
    if isinstance(shape, Circle):
        return (*shape[:5], shape.heading, shape.trail, shape.owner)
    return tuple(shape)


def _alike(a: Any, b: Any) -> bool:
    """Returns whether two fields agree: texts exactly, numbers up to the tolerance (angles may differ by a turn)."""
    if isinstance(a, tuple | list):
        return isinstance(b, tuple | list) and len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, str) or a is None or isinstance(b, str) or b is None:
        return a == b
    a, b = float(a), float(b)
    return abs(a - b) <= TOLERANCE * (1 + abs(b)) or (math.isnan(a) and math.isnan(b))


def javascript(scene: Scene) -> str:
    """Returns the function draw(state): {window, caption, shapes}, each shape [letter, number of the shape, fields…]."""
    lines: list[str] = []
    names: dict[Any, str] = {}

    def write(node: Any) -> str:
        name, *parts = node
        if name == "const":
            value = parts[0]
            return text_literal(plain(value)) if isinstance(value, str) else json.dumps(value) if value == value else "NaN"
        if name == "entry":
            return f"s[{parts[0]}][{parts[1]}]"
        if name == "list":
            return f"[{','.join(map(write, parts))}]"
        if name == "text":
            return "+".join(['""', *map(write, parts)])
        if node not in names:
            if name == "choose":
                text = f"({write(parts[0])}?{write(parts[1])}:{write(parts[2])})"
            elif name == "format":
                text = f"formatted({write(parts[0])},{text_literal(parts[1])},{text_literal(parts[2])})"
            else:
                text = OPERATIONS[name][1].format(*map(write, parts))
            names[node] = f"t{len(names)}"
            lines.append(f"const {names[node]}={text};")
        return names[node]

    window, caption = ",".join(map(write, scene.window)), write(scene.caption)
    pushes = []
    for k, (shown, letter, *fields) in enumerate(scene.shapes):
        shape = ",".join([f'"{letter}"', str(k), *map(write, fields)])
        condition = "" if shown == ("const", True) else f"if({write(shown)})"
        pushes.append(f"{condition}shapes.push([{shape}]);")
    body = "\n".join([*lines, "const shapes=[];", *pushes])
    return f"function draw(s){{\n{body}\nreturn{{window:[{window}],caption:{caption},shapes}};\n}}"


def text_literal(text: str) -> str:
    """Returns a text as JavaScript that is safe inside a page's script."""
    return json.dumps(text).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


# --- Dragging.


def handles(scene: Scene, state: Any) -> list[dict[str, list[Any]] | None]:
    """Returns for each shape which entries of the state move it: {"x": [leaf, entry, factor, is whole], "y": …}, or None."""
    whole = [np.asarray(leaf).dtype.kind in "iub" if not _is_key(leaf) else True for leaf in jax.tree.leaves(state)]
    found: list[dict[str, list[Any]] | None] = []
    for shape in scene.shapes:
        places: list[tuple[Any, Any]] = []
        if shape[1] == "c":
            places = [(shape[2], shape[3])]
        elif shape[1] == "p":
            places = [(point[1], point[2]) for point in shape[2][1:]]
        handle = {}
        for axis, name in enumerate("xy"):
            affine = {_affine(place[axis]) for place in places}
            entries = {(a[0], a[1]) if a else None for a in affine}
            if len(entries) == 1 and (entry := entries.pop()) and entry[0] is not None and entry[1]:
                leaf, k = entry[0]
                handle[name] = [leaf, k, entry[1], bool(whole[leaf])]
        found.append(handle or None)
    return found


def _affine(node: Any) -> tuple[Any, float, float] | None:
    """Returns (entry, factor, shift) of a node that is factor · entry + shift; entry is None for a constant."""
    name, *parts = node
    if name == "const" and isinstance(parts[0], int | float):
        return None, 0.0, float(parts[0])
    if name == "entry":
        return tuple(parts), 1.0, 0.0
    if name in ("add", "sub", "mul", "div", "neg"):
        sides = [_affine(part) for part in parts]
        if any(side is None for side in sides):
            return None
        a: Any = sides[0]
        if name == "neg":
            return a[0], -a[1], -a[2]
        b: Any = sides[1]
        if name in ("add", "sub"):
            sign = 1 if name == "add" else -1
            if a[0] is None or b[0] is None or a[0] == b[0]:
                return a[0] or b[0], a[1] + sign * b[1], a[2] + sign * b[2]
        elif name == "mul" and (a[0] is None or b[0] is None):
            factor, other = (a, b) if a[0] is None else (b, a)
            return other[0], factor[2] * other[1], factor[2] * other[2]
        elif name == "div" and b[0] is None and b[2]:
            return a[0], a[1] / b[2], a[2] / b[2]
    return None
