"""The contract of algorithms: one suite for everything registered and for the example in a user's own file."""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counterpoint
import probes
from counterpoint.algos import base, sharing
from counterpoint.algos.base import TD_ERRORS, Replay, entries, visibility
from counterpoint.core import numpy_policy, prng
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Transition
from counterpoint.runs.folder import Run
from counterpoint.training import train as experiment
from probes import spec_of
from stopped import Stopper, assert_same_end

QUICKLY = {"xla_backend_optimization_level": 0}
OWN = str(Path(__file__).parents[2] / "examples" / "own_algorithm.py") + ":entry"


def variant(name, kind, **settings):
    """The entry with other defaults, as another algorithm."""
    entry = entries()[name]
    fields = [(field, type(value), value) for field, value in settings.items() if field in entry.settings.__dataclass_fields__]
    chosen = dataclasses.make_dataclass(f"{kind}{name}", fields, bases=(entry.settings,), frozen=True)
    return dataclasses.replace(entry, name=f"{name}-{kind}", settings=chosen, learners=False)


VARIANTS = {
    entry.name: entry
    for entry in (
        # sequences of three steps after one that refreshes memory
        *(variant(name, "recurrent", recurrent=True, sequence_length=3, burn_in=1) for name in entries()),
        *(variant(name, "shared", share="role") for name in entries()),
        *(variant(name, "one-for-all", share="all") for name in entries()),
        *(variant(name, "attention", share="role", critic="attention") for name in ("maddpg", "matd3")),
        *(variant(name, "one-of-each", share="role", critic="attention", agents_per_sample=1) for name in ("maddpg", "matd3")),
    )
}
ENTRIES = [*entries(), OWN, *VARIANTS]
SEQUENCES = 2
"""Sequences of a recurrent minibatch."""


def find(name):
    """The entry of a name, an address or a variant."""
    return VARIANTS.get(name) or base.find(name)


def with_roles(roles, *sizes):
    """A team of agents with these roles and sizes."""
    return dataclasses.replace(spec_of(*sizes), roles=roles)


SPECS = {
    "plain": with_roles(("twin", "twin"), (2, 2), (Discrete((3,)), Discrete((3,)))),
    "padded heads": spec_of((4, 2), (Discrete((2, 3)), Discrete((4,)))),
    "continuous": spec_of((3, 2), (Box(1, 0.0, 1.0), Box(2, -1.0, 1.0))),
    "mixed": spec_of((2, 3), (Discrete((2, 2)), Box(1, -1.0, 3.0))),
}


def settings_of(entry, **changes):
    """Settings with small networks and these changes, as far as the algorithm has such settings."""
    fields = {field.name for field in dataclasses.fields(entry.settings)}
    wanted = {"num_units": 8, "num_layers": 1, **changes}
    return entry.settings(**{name: value for name, value in wanted.items() if name in fields})


PAIRS = ("twin", "twin", "other")
SHARED_SPECS = {
    "plain": SPECS["plain"],
    "padded heads": with_roles(PAIRS, (4, 4, 2), (Discrete((2, 3)), Discrete((2, 3)), Discrete((4,)))),
    "continuous": with_roles(PAIRS, (3, 3, 2), (Box(1, 0.0, 1.0), Box(1, 0.0, 1.0), Box(2, -1.0, 1.0))),
    "mixed": with_roles(PAIRS, (2, 2, 3), (Discrete((2, 2)), Discrete((2, 2)), Box(1, -1.0, 3.0))),
}
"""The same kinds of actions for agents of which two have one role, and the third has sizes of its own."""
TIMES, ENVS, BATCH = 4, 3, 8


def share_of(entry):
    """Which agents share parameters: "none", "role" or "all"."""
    return getattr(settings_of(entry), "share", "none")


def spec_named(name, spec):
    """The spec for an algorithm: one with roles if the algorithm shares parameters."""
    return (SPECS if share_of(find(name)) == "none" else SHARED_SPECS)[spec]


def supported(entry):
    """The names of the specs whose actions the algorithm declares."""
    kinds = {name: {"continuous" if isinstance(s, Box) else "discrete" for s in SPECS[name].action_spaces} for name in SPECS}
    refused = {"mixed"} if entry.name.startswith("masac") and share_of(entry) == "all" else set()
    return [name for name in SPECS if kinds[name] <= set(entry.actions) and name not in refused]


MASKED = ("padded heads", "mixed")
"""Specs that are tried with masks; the others without: each spec, and each of both, with every algorithm."""
QUICK = {("maddpg-recurrent", "padded heads"), ("masac-recurrent", "mixed"), ("matd3-attention", "plain")}
"""Of the recurrent networks and the critics with attention, those that are tried each time."""
SELDOM = {name for name in VARIANTS if not name.endswith(("-shared", "-one-for-all"))}


def some(names):
    """Names as parameters, of which some variants are slow."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in SELDOM), id=find(name).name) for name in names]


CASES = [
    pytest.param(
        name,
        spec,
        spec in MASKED,
        id=f"{find(name).name}-{spec}-{'masks' if spec in MASKED else 'free'}",
        marks=[pytest.mark.slow] * (name in SELDOM and (name, spec) not in QUICK),
    )
    for name in ENTRIES
    for spec in supported(find(name))
]
each_entry = pytest.mark.parametrize("name", some(ENTRIES))


@functools.cache
def made(name, spec, axis=None, **changes):
    entry, spec = find(name), spec_named(name, spec)
    sees = visibility(spec, {"good": entry.critic == "joint"})
    return entry.make(settings_of(entry, **changes), spec, sees, axis)


def legal_of(spec, rng, lead):
    """Random masks with at least one legal choice in every head; entries of boxes are legal, padding is not."""
    legal = np.zeros((*lead, spec.num_agents, spec.act_size), bool)
    for i, space in enumerate(spec.action_spaces):
        widths = (space.size,) if isinstance(space, Box) else space.heads
        for start, width in zip(np.cumsum((0, *widths)), widths, strict=False):
            part = rng.random((*lead, width)) < 0.5
            part |= np.eye(width, dtype=bool)[rng.integers(width, size=lead)] | isinstance(space, Box)
            legal[..., i, start : start + width] = part
    return jnp.asarray(legal)


@functools.cache
def start_of(name, spec):
    """The agents before learning."""
    return jax.jit(made(name, spec).init, compiler_options=QUICKLY)(prng.key(0))


@functools.cache
def batch_of(name, spec, masks, seed=0):
    """A batch as the algorithm's memory gives it."""
    algo, spec, rng = made(name, spec), spec_named(name, spec), np.random.default_rng(seed)
    replays = isinstance(find(name).memory(settings_of(find(name))), Replay)
    lead, n = (BATCH,) if replays else (TIMES, ENVS), spec.num_agents
    obs, next_obs = (jnp.asarray(rng.normal(size=(*lead, n, spec.obs_size)) * spec.obs_mask, jnp.float32) for _ in range(2))
    legal, next_legal = (legal_of(spec, rng, lead) if masks else None for _ in range(2))
    action = np.zeros((*lead, n, spec.act_size), np.float32)
    for i, space in enumerate(spec.action_spaces):
        if isinstance(space, Box):
            action[..., i, : space.size] = rng.uniform(-1, 1, (*lead, space.size))
            continue
        for start, width in zip(np.cumsum((0, *space.heads)), space.heads, strict=False):
            score = rng.random((*lead, width))
            score += 0 if legal is None else np.asarray(legal[..., i, start : start + width])
            action[..., i, start : start + width] = np.eye(width)[score.argmax(-1)]
    done = rng.random(lead) < 0.2
    begins = None
    if find(name).recurrent(settings_of(find(name))) and replays:
        begins = jnp.asarray(np.concatenate([np.ones(SEQUENCES, bool), done[:-SEQUENCES]]))
    carry = None if replays else jax.jit(jax.vmap(lambda _: algo.begin(prng.key(0))))(jnp.arange(ENVS))
    return Transition(
        obs=obs,
        action=jnp.asarray(action),
        reward=jnp.asarray(rng.normal(size=(*lead, n)), jnp.float32),
        next_obs=next_obs,
        terminated=jnp.asarray(rng.random((*lead, n)) < 0.2),
        alive=jnp.asarray(rng.random((*lead, n)) < 0.8),
        done=jnp.asarray(done),
        begins=begins,
        carry=jax.tree.map(lambda leaf: leaf[None], carry),
        legal=legal,
        next_legal=next_legal,
    )


def same(one, other, **close):
    jax.tree.map(functools.partial(np.testing.assert_allclose, **{"rtol": 1e-4, "atol": 1e-5, **close}), one, other)


def read_by(share, spec):
    """True where an entry of an observation is real for some agent with the same parameters."""
    sharers = sharing.sharing_of(share, spec)
    return spec.obs_mask if sharers is None else np.stack([spec.obs_mask[sharers.sets == m].any(0) for m in sharers.sets])


@pytest.mark.parametrize(("name", "spec_name", "masks"), CASES)
def test_acting_and_learning_keep_the_contract(name, spec_name, masks):
    """Shapes, types, finite numbers; discrete heads are distributions over legal choices; padding is zero and is not read."""
    spec, algo = spec_named(name, spec_name), made(name, spec_name)
    batch, rng = batch_of(name, spec_name, masks), np.random.default_rng(1)
    obs = jnp.asarray(rng.normal(size=(ENVS, spec.num_agents, spec.obs_size)) * spec.obs_mask, jnp.float32)
    legal = legal_of(spec, rng, (ENVS,)) if masks else None
    noisy = jnp.where(jnp.broadcast_to(read_by(share_of(find(name)), spec), obs.shape), obs, 9.0)

    @functools.partial(jax.jit, compiler_options=QUICKLY)
    def run(key, batch):
        before = algo.init(key)
        carry = jax.vmap(algo.begin)(jax.random.split(key, ENVS))
        after, metrics = algo.update(before, batch, key)
        policy = algo.policy(after)
        acted = algo.act(policy, carry, obs, key, jnp.int32(3), legal)
        greedy = algo.greedy(policy, carry, obs, legal)
        return before, after, metrics, acted, greedy, algo.greedy(policy, carry, noisy, legal), policy, carry

    before, after, metrics, (action, new_carry, _), (best, _), (unmoved, _), policy, carry = run(prng.key(0), batch)
    shape = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)  # noqa: E731
    assert shape(before) == shape(after)
    assert shape(carry) == shape(new_carry)
    assert len(jax.tree.leaves(policy)) < len(jax.tree.leaves(after)), "acting needs only a part"
    assert set(metrics) == set(algo.metrics)
    assert {(value.shape, value.dtype) for value in metrics.values()} == {((spec.num_agents,), np.dtype("float32"))}
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, metrics)))
    assert any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True))
    # The compiler may round the two calls differently; a weight that had moved would show far above that.
    np.testing.assert_allclose(best, unmoved, atol=1e-6, err_msg="weights of padded observations stay zero")
    for vectors in map(np.asarray, (action, best)):
        assert (vectors.shape, vectors.dtype) == ((ENVS, spec.num_agents, spec.act_size), np.float32)
        assert not vectors[:, ~spec.act_mask].any()
        assert np.abs(vectors).max() <= 1
        if legal is not None:
            assert not vectors[~np.asarray(legal)].any(), "an illegal action has no weight"
        for i, space in enumerate(spec.action_spaces):
            if isinstance(space, Discrete):
                parts = np.split(vectors[:, i, : space.size], np.cumsum(space.heads)[:-1], axis=-1)
                np.testing.assert_allclose([part.sum(-1) for part in parts], 1.0, rtol=1e-5)


@each_entry
def test_seeds_that_train_together_equal_seeds_that_train_alone(name):
    algo, spec = made(name, "padded heads"), "padded heads"
    batches = [batch_of(name, spec, False, seed) for seed in range(2)]
    keys = jnp.stack([prng.key(seed) for seed in range(2)])
    learn = lambda key, batch: algo.update(algo.init(key), batch, key)  # noqa: E731
    both = jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
    together = jax.device_get(jax.jit(jax.vmap(learn), compiler_options=QUICKLY)(keys, both))
    alone = jax.jit(learn, compiler_options=QUICKLY)
    for k, batch in enumerate(batches):
        same(jax.tree.map(lambda leaf, k=k: leaf[k], together), alone(keys[k], batch))


SPLIT = [name for name in ENTRIES if find(name).splits_batch and not name.endswith("-one-of-each")]
"""Who learns from a sample depends on its place in the minibatch, if not all agents of a set do."""


@pytest.mark.parametrize("name", SPLIT, ids=lambda name: find(name).name)
def test_two_devices_learn_what_one_learns(name, monkeypatch):
    """Without noise on continuous actions halves of a minibatch add up to the whole."""
    monkeypatch.setattr(jax.random, "normal", lambda key, shape, dtype=jnp.float32: jnp.zeros(shape, dtype))
    batch, key = batch_of(name, "continuous", False), prng.key(0)
    agents = jax.jit(made(name, "continuous", policy_delay=1).init)(key)
    whole = jax.jit(made(name, "continuous", policy_delay=1).update, compiler_options=QUICKLY)(agents, batch, key)
    if batch.begins is None:
        halves = jax.tree.map(lambda leaf: leaf.reshape(2, BATCH // 2, *leaf.shape[1:]), batch)
    else:  # each device has a sequence
        halves = jax.tree.map(lambda leaf: leaf.reshape(-1, SEQUENCES, *leaf.shape[1:]).swapaxes(0, 1), batch)
    split = jax.vmap(
        made(name, "continuous", axis="devices", policy_delay=1).update, in_axes=(None, 0, None), axis_name="devices"
    )
    learnt = jax.device_get(jax.jit(split, compiler_options=QUICKLY)(agents, halves, key))
    for half in range(2):
        same(jax.tree.map(lambda leaf, k=half: leaf[k], learnt), whole)


@pytest.mark.parametrize("name", [name for name in ENTRIES if find(name).learners], ids=lambda name: find(name).name)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_agents_that_learn_apart_equal_agents_that_learn_together(name, weighted):
    algo, batch, key = made(name, "mixed"), batch_of(name, "mixed", False), prng.key(0)
    assert algo.update_one is not None
    assert algo.gather is not None
    if weighted:
        batch = batch._replace(weight=jnp.linspace(0.5, 1.0, BATCH), index=jnp.arange(BATCH))
    agents = start_of(name, "mixed")
    expected, metrics = jax.jit(algo.update, compiler_options=QUICKLY)(agents, batch, key)
    one = jax.jit(algo.update_one, compiler_options=QUICKLY)
    rows, parts = zip(*(jax.device_get(one(agents, batch, np.int32(i), key)) for i in range(2)), strict=True)
    stack = lambda *leaves: np.stack(leaves)  # noqa: E731
    same(jax.tree.map(stack, *rows), expected)
    same(jax.jit(algo.gather)(batch, jax.tree.map(stack, *parts)), metrics)
    assert (TD_ERRORS in metrics) == weighted


@each_entry
def test_plain_networks_act_like_the_policy(name):
    entry = find(name)
    for spec_name in supported(entry):
        algo, spec = made(name, spec_name), spec_named(name, spec_name)
        agents = jax.jit(algo.init, compiler_options=QUICKLY)(prng.key(4))
        plain = entry.actors(settings_of(entry), spec, algo.policy(agents))
        assert plain is not None
        spaces = tuple(map(numpy_policy.space_of, spec.action_spaces))
        team = numpy_policy.make_team(numpy_policy.layers_of(plain.layers), spaces, numpy_policy.Rules(**plain.rules))
        obs = np.random.default_rng(2).normal(size=(16, *spec.obs_mask.shape)).astype(np.float32) * spec.obs_mask

        def act(agents, obs, algo=algo):
            carry = jax.vmap(algo.begin)(jax.random.split(prng.key(0), 16))
            return algo.greedy(algo.policy(agents), carry, obs)[0]

        expected = jax.jit(act, compiler_options=QUICKLY)(agents, obs)
        np.testing.assert_allclose(numpy_policy.greedy(team, obs), expected, atol=2e-6)


RUN = {
    **{"num_units": 8, "num_layers": 1, "num_envs": 4, "num_seeds": 2, "devices": 2, "num_episodes": 48, "max_episode_len": 3},
    **{"report_every": 8, "save_rate": 8, "eval_episodes": 1, "plots_dir": "", "scenario_args": ("max_steps=3",)},
}
REPLAYED = {"batch_size": 16, "warmup": 24, "update_every": 12, "buffer_size": 120}
ON_POLICY = {"update_every": 24, "epochs": 2, "minibatches": 2}
LEARNING = ("num_units", "num_layers", "epochs", "minibatches")
"""Settings that not every algorithm has."""


def run_of(name):
    """A small run of two seeds in a world with padding and, if the algorithm takes both, actions of both kinds."""
    entry = find(name)
    world = "Kinds" if "continuous" in entry.actions else "Choices"
    fields = entry.settings.__dataclass_fields__
    more = REPLAYED if isinstance(entry.memory(entry.settings()), Replay) else ON_POLICY
    settings = {field: value for field, value in (RUN | more).items() if field in fields or field not in LEARNING}
    return settings | {"algorithm": name, "env": f"{probes.__file__}:{world}"}


@pytest.mark.parametrize("name", [*entries(), OWN], ids=lambda name: find(name).name)
def test_a_stopped_run_of_two_seeds_ends_as_if_left_alone_and_devices_do_not_matter(name, tmp_path):
    settings = run_of(name) | {"save_dir": str(tmp_path)}
    calm = counterpoint.train(exp_name="calm", **settings)
    with pytest.raises(experiment.Interrupted):
        counterpoint.train(exp_name="rough", progress=Stopper(after=2), **settings)
    assert len(Run(tmp_path / "rough").rows()) < len(calm.rows())
    assert_same_end(calm, counterpoint.resume(tmp_path / "rough"))
    alone = counterpoint.train(exp_name="alone", **settings | {"devices": 1})
    losses = [[[value for key, value in row.items() if "loss" in key] for row in run.rows()] for run in (calm, alone)]
    learnt = next(k for k, row in enumerate(losses[0]) if row and np.isfinite(row).all())
    np.testing.assert_allclose(losses[0][learnt], losses[1][learnt], rtol=1e-3, atol=1e-4)
