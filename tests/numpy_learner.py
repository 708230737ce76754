"""A learner in NumPy, float64, with loops and no autodiff: the networks that oracles of the algorithms share."""

import jax.numpy as jnp
import numpy as np

from counterpoint.core.spaces import Box, Spec
from counterpoint.core.types import Transition

# A network is a list of (weight, bias); a gradient has the same form.


def forward(net, x):
    """The output, and the input of every layer."""
    inputs = []
    for depth, (weight, bias) in enumerate(net):
        inputs.append(x)
        x = x @ weight + bias
        if depth < len(net) - 1:
            x = np.where(x > 0, x, 0.0)
    return x, inputs


def backward(net, inputs, grad):
    """The gradient of the parameters and of the network's input, given that of its output."""
    grads = []
    for depth in reversed(range(len(net))):
        grads.append((inputs[depth].T @ grad, grad.sum(0)))
        grad = grad @ net[depth][0].T
        if depth > 0:
            grad = np.where(inputs[depth] > 0, grad, 0.0)
    return grads[::-1], grad


def clip(config, grads):
    norms = [[np.sqrt(np.sum(array**2)) for array in layer] for layer in grads]
    if config.clip_by == "global":
        whole = np.sqrt(sum(norm**2 for layer in norms for norm in layer))
        norms = [[whole for _ in layer] for layer in norms]
    scale = lambda norm: config.clip / norm if config.clip and norm > config.clip else 1.0  # noqa: E731
    return [[array * scale(norm) for array, norm in zip(*pair, strict=True)] for pair in zip(grads, norms, strict=True)]


def adam(net, grads, memory, lr, epsilon=1e-8):
    """The network after a step; `memory` is {"t", "m", "v"} and is changed."""
    memory["t"] += 1
    stepped = []
    for depth, (layer, layer_grads) in enumerate(zip(net, grads, strict=True)):
        arrays = []
        for which, (array, grad) in enumerate(zip(layer, layer_grads, strict=True)):
            m = memory["m"][depth, which] = 0.9 * memory["m"].get((depth, which), 0.0) + 0.1 * grad
            v = memory["v"][depth, which] = 0.999 * memory["v"].get((depth, which), 0.0) + 0.001 * grad**2
            unbiased_m, unbiased_v = m / (1 - 0.9 ** memory["t"]), v / (1 - 0.999 ** memory["t"])
            arrays.append(array - lr * unbiased_m / (np.sqrt(unbiased_v) + epsilon))
        stepped.append(tuple(arrays))
    return stepped


def slide(target, net, tau):
    """Targets a little closer to their network."""
    return [
        tuple((1 - tau) * old + tau * new for old, new in zip(*layers, strict=True)) for layers in zip(target, net, strict=True)
    ]


def play(config, space, outputs, noise):
    """Actions of one agent, and the function that takes a gradient back from the actions to the outputs."""
    if isinstance(space, Box):
        action = np.tanh(outputs)
        return action, lambda grad: grad * (1 - action**2)
    soft, shown, start = [], [], 0
    for width in space.heads:
        part = (outputs + noise)[:, start : start + width] / config.temperature
        weight = np.exp(part - part.max(1, keepdims=True))
        soft.append(weight / weight.sum(1, keepdims=True))
        shown.append(np.eye(width)[part.argmax(1)] if config.estimator == "straight-through" else soft[-1])
        start += width

    def back(grad):
        pieces = np.split(grad, np.cumsum(space.heads)[:-1], axis=1)
        return np.concatenate(
            [p * (g - (g * p).sum(1, keepdims=True)) / config.temperature for p, g in zip(soft, pieces, strict=True)], axis=1
        )

    return np.concatenate(shown, axis=1), back


def rows_of_critic(spec, sees, i):
    """Where critic i's true inputs lie in the padded joint vector: observations, then actions, of those it sees."""
    n, o, a = spec.num_agents, spec.obs_size, spec.act_size
    watched = [j for j in range(n) if sees[i, j]]
    obs = [j * o + k for j in watched for k in range(spec.obs_sizes[j])]
    action = [n * o + j * a + k for j in watched for k in range(spec.act_sizes[j])]
    return np.array(obs + action)


def unpad_batch(spec, batch):
    """Each field as a list over agents, at true sizes."""
    sizes = {"obs": spec.obs_sizes, "next_obs": spec.obs_sizes, "action": spec.act_sizes}
    fields = {name: np.asarray(getattr(batch, name)) for name in ("obs", "action", "reward", "next_obs", "terminated", "alive")}
    return {
        name: [array[:, j, : sizes[name][j]] if name in sizes else array[:, j] for j in range(spec.num_agents)]
        for name, array in fields.items()
    }


def random_batch(spec: Spec, seed, shape, dtype, all_alive):
    """Transitions [*shape, N, …] with real-looking entries, zero where padded."""
    rng = np.random.default_rng(seed)
    n = spec.num_agents
    obs, next_obs = (rng.normal(size=(*shape, n, spec.obs_size)) * spec.obs_mask for _ in range(2))
    action = np.zeros((*shape, n, spec.act_size))
    for i, space in enumerate(spec.action_spaces):
        if isinstance(space, Box):
            action[..., i, : space.size] = rng.uniform(-1, 1, (*shape, space.size))
        else:
            parts = [rng.dirichlet(np.ones(width), shape) for width in space.heads]
            action[..., i, : space.size] = np.concatenate(parts, axis=-1)
    alive = np.full((*shape, n), True) if all_alive else rng.random((*shape, n)) < 0.7
    arrays = [np.asarray(array, dtype) for array in (obs, action, rng.normal(size=(*shape, n)), next_obs)]
    ended = rng.random((*shape, n)) < 0.2
    return Transition(*map(jnp.asarray, arrays), jnp.asarray(ended), jnp.asarray(alive), jnp.zeros(shape, bool))


def random_networks(rng, params, inputs, outputs, dtype):
    """Stacked networks of the shapes of `params` with random weights, zero where the masks [N, I] and [N, H] are."""
    layers = []
    for depth, layer in enumerate(params):
        weight = rng.normal(size=layer.weight.shape) / np.sqrt(layer.weight.shape[1])
        bias = 0.1 * rng.normal(size=layer.bias.shape)
        if depth == 0:
            weight *= inputs[:, :, None]
        if depth == len(params) - 1:
            weight, bias = weight * outputs[:, None, :], bias * outputs
        layers.append(layer._replace(weight=jnp.asarray(weight, dtype), bias=jnp.asarray(bias, dtype)))
    return tuple(layers)


def true_size(params, i, rows, columns):
    """Agent i's network without padding, as a list of (weight, bias)."""
    layers = [[np.asarray(layer.weight[i], np.float64), np.asarray(layer.bias[i], np.float64)] for layer in params]
    layers[0][0] = layers[0][0][rows]
    layers[-1] = [layers[-1][0][:, columns], layers[-1][1][columns]]
    return [tuple(layer) for layer in layers]


def apart(ours, theirs):
    """The largest difference between two networks."""
    return max(np.max(np.abs(a - b)) for pair in zip(ours, theirs, strict=True) for a, b in zip(*pair, strict=True))


def at_rest():
    """Adam before its first step."""
    return {"t": 0, "m": {}, "v": {}}


# --- Networks with a recurrent unit: flat lists of arrays, a weight and a bias for each layer.


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def remembered(net, x, hidden):
    """The hidden states after one step of inputs [..., I]; the layers are any before the unit, its two, and the last."""
    *before, input_weight, input_bias, state_weight, state_bias, _, _ = net
    for weight, bias in zip(before[::2], before[1::2], strict=True):
        x = np.maximum(x @ weight + bias, 0.0)
    gates, own = x @ input_weight + input_bias, hidden @ state_weight + state_bias
    (reset, update, new), (reset_by, update_by, new_by) = (np.split(part, 3, axis=-1) for part in (gates, own))
    keep = sigmoid(update + update_by)
    return keep * hidden + (1 - keep) * np.tanh(new + sigmoid(reset + reset_by) * new_by)


def flat_arrays(network, i):
    """The arrays of agent i's network, perceptron or recurrent, as float64."""
    layers = network.body
    if network.cell is not None:
        layers = (*network.body, network.cell.inputs, network.cell.state, *network.head)
    return [np.asarray(array[i], np.float64) for layer in layers for array in (layer.weight, layer.bias)]


def differences(loss, net, step=1e-6):
    """The gradient of a loss of a list of arrays, by central differences."""
    grads = []
    for k, array in enumerate(net):
        grad = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            sides = []
            for sign in (1, -1):
                moved = array.copy()
                moved[place] += sign * step
                sides.append(loss([*net[:k], moved, *net[k + 1 :]]))
            grad[place] = (sides[0] - sides[1]) / (2 * step)
        grads.append(grad)
    return grads
