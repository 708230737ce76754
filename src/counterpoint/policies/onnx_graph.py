"""An agent's network and heads as an ONNX graph. Imported only where onnx is installed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from counterpoint import __version__
from counterpoint.core.numpy_policy import EPSILON, Layer, Rules, Space, Team, without_deviations


def save(path: Path, graphs: list["Graph"], about: dict[str, Any]) -> None:
    """Writes agents side by side as one model, the facts about them beside it."""
    joined = [
        [item for graph in graphs for item in getattr(graph, kind)] for kind in ("nodes", "inputs", "results", "constants")
    ]
    graph = helper.make_graph(joined[0], path.stem, joined[1], joined[2], joined[3])
    # Old enough for runtimes of the last years; nothing newer is needed.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name, model.producer_version = "counterpoint", __version__
    helper.set_model_props(model, {"about": json.dumps(about)})
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


class Graph:
    """One agent's network and heads as ONNX nodes: `obs` [batch, O] in; `action`, `outputs` and `choice` out.

    A recurrent agent also takes `hidden` [batch, H], zeros at the start of an episode, and returns `next_hidden`, for the next
    step.
    """

    def __init__(self, prefix: str, team: Team) -> None:
        self.prefix = prefix
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.results: list[Any] = []
        (space,), rules = team.spaces, team.rules
        (x,) = self.declare(self.inputs, "obs", np.float32, team.layers[0].weight.shape[1])
        active = False  # whether an activation precedes the layer: not at the inputs, nor behind a recurrent unit
        for layer in without_deviations(team):
            x = self.layer(layer, self.add("Relu", [x]) if active else x)
            active = layer.state_weight is None
            if layer.state_weight is not None and layer.state_bias is not None:
                x = self.unit(x, layer.state_weight[0], layer.state_bias[0, 0])
        self.name(x, "outputs", np.float32, space.size)
        if space.heads:
            action, choice = self.heads(x, space, rules)
            self.name(choice, "choice", np.int64, len(space.heads))
        else:
            action = self.add("Tanh", [x])
            action = self.add("Mul", [action, self.constant(team.tables.scale[0])])
            action = self.add("Add", [action, self.constant(team.tables.shift[0])])
        self.name(action, "action", np.float32, space.size)

    def layer(self, layer: Layer, x: str) -> str:
        product, bias = self.add("MatMul", [x, self.constant(layer.weight[0])]), self.constant(layer.bias[0, 0])
        if layer.scale is None:
            return self.add("Add", [product, bias])
        scale = self.constant(layer.scale[0, 0])
        if layer.mean is None or layer.variance is None:
            return self.add("LayerNormalization", [product, scale, bias], axis=-1, epsilon=float(EPSILON))
        centred = self.add("Sub", [product, self.constant(layer.mean[0, 0])])
        deviation = self.constant(np.sqrt(layer.variance[0, 0] + EPSILON))
        return self.add("Add", [self.add("Mul", [self.add("Div", [centred, deviation]), scale]), bias])

    def unit(self, gates: str, weight: np.ndarray, bias: np.ndarray) -> str:
        """Returns the next hidden state of a gated recurrent unit, given the inputs' part of its gates; see `numpy_policy`."""
        width = weight.shape[0]
        (hidden,) = self.declare(self.inputs, "hidden", np.float32, width)
        by_state = self.add("Add", [self.add("MatMul", [hidden, self.constant(weight)]), self.constant(bias)])
        sizes = self.constant(np.array([width] * 3, np.int64))
        reset, update, candidate = self.add_many("Split", [gates, sizes], 3, axis=1)
        reset_by, update_by, candidate_by = self.add_many("Split", [by_state, sizes], 3, axis=1)
        keep = self.add("Sigmoid", [self.add("Add", [update, update_by])])
        reset = self.add("Sigmoid", [self.add("Add", [reset, reset_by])])
        new = self.add("Tanh", [self.add("Add", [candidate, self.add("Mul", [reset, candidate_by])])])
        change = self.add("Mul", [keep, self.add("Sub", [hidden, new])])
        after = self.add("Add", [new, change])
        self.name(after, "next_hidden", np.float32, width)
        return after

    def heads(self, x: str, space: Space, rules: Rules) -> tuple[str, str]:
        """Returns the action vector and the chosen entry of each head."""
        parts = [x]
        if len(space.heads) > 1:
            parts = self.add_many("Split", [x, self.constant(np.array(space.heads, np.int64))], len(space.heads), axis=1)
        actions, choices = [], []
        for part, width in zip(parts, space.heads, strict=True):
            choices.append(self.add("ArgMax", [part], axis=1, keepdims=1))
            if rules.world_action == "soft":
                scaled = self.add("Div", [part, self.constant(np.float32(rules.temperature))])
                actions.append(self.add("Softmax", [scaled], axis=1))
            else:
                flat = self.add("Squeeze", [choices[-1], self.constant(np.array([1], np.int64))])
                wide, levels = self.constant(np.array(width, np.int64)), self.constant(np.array([0, 1], np.float32))
                actions.append(self.add("OneHot", [flat, wide, levels], axis=1))
        return self.add("Concat", actions, axis=1), self.add("Concat", choices, axis=1)

    def add(self, operation: str, inputs: list[str], **attributes: Any) -> str:
        return self.add_many(operation, inputs, 1, **attributes)[0]

    def add_many(self, operation: str, inputs: list[str], count: int, **attributes: Any) -> list[str]:
        outputs = [f"{self.prefix}{operation}_{len(self.nodes)}_{k}" for k in range(count)]
        self.nodes.append(helper.make_node(operation, inputs, outputs, **attributes))
        return outputs

    def constant(self, array: Any) -> str:
        name = f"{self.prefix}constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(np.shape(array)), name))
        return name

    def declare(self, where: list[Any], name: str, kind: Any, size: int) -> list[str]:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        where.append(helper.make_tensor_value_info(self.prefix + name, kind, ["batch", size]))
        return [self.prefix + name]

    def name(self, inner: str, name: str, kind: Any, size: int) -> None:
        """Gives a result its name in the interface."""
        self.nodes.append(helper.make_node("Identity", [inner], self.declare(self.results, name, kind, size)))
