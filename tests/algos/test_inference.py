"""Inferred policies: loss and divergence by hand, what goes into the critic, and that approximations approach policies."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counterpoint.algos import inference, maddpg, offpolicy
from counterpoint.algos.inference import Newest, distance, divergence, inference_loss
from counterpoint.core import prng
from counterpoint.core.actions import LOG_FLOOR, Heads, critic_view, heads_of, log_action, log_probabilities
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import Layer
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.types import Transition
from counterpoint.training.replay import example, uniform, with_newest
from probes import spec_of

ONE = Heads(None, None, None)
SPEC = spec_of((2, 3), (Discrete((3,)), Discrete((3,))))
MIXED = spec_of((2, 2, 2), (Discrete((3,)), Discrete((2, 2)), Box(2, -1.0, 1.0)))
CONFIG = maddpg.Config(num_units=8, num_layers=1, infer_policies=True, infer_lr=0.01)


def problem_of(spec):
    return offpolicy.Problem(spec=spec, heads=heads_of(spec), sees=np.ones((spec.num_agents,) * 2, bool))


def constant(logits):
    """A network without hidden layers whose outputs do not depend on what it sees."""
    return (Layer(jnp.zeros((1, len(logits))), jnp.asarray(logits, jnp.float32)),)


def newest(action, alive=(True, True)):
    return Newest(jnp.ones((2, 1)), jnp.asarray(action, jnp.float32), jnp.asarray(alive))


def test_the_loss_by_hand():
    """Probabilities ½, ¼, ¼: the choices 0 and 1 have log-likelihoods −log 2 and −log 4, the entropy is 1.5 log 2."""
    spec = spec_of((1,), (Discrete((3,)),))
    net = constant(np.log([2.0, 1.0, 1.0]))
    soft = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]]  # stand for the choices 0 and 1
    log2 = np.log(2)
    for entropy in (0.0, 0.1):
        loss = inference_loss(ONE, entropy, net, newest(soft), problem_of(spec))
        np.testing.assert_allclose(loss, 1.5 * log2 - entropy * 1.5 * log2, rtol=1e-6)
    one_alive = inference_loss(ONE, 0.0, net, newest(soft, (False, True)), problem_of(spec))
    np.testing.assert_allclose(one_alive, 2 * log2, rtol=1e-6)
    # The gradient of the log-likelihood is p − a: (½ − ½, ¼ − ½, ¼ − 0) in the mean.
    grads = jax.grad(lambda net: inference_loss(ONE, 0.0, net, newest(soft), problem_of(spec)))(net)
    np.testing.assert_allclose(grads[0].bias, [0.0, -0.25, 0.25], atol=1e-6)


def test_the_divergence_by_hand():
    """KL((½, ½) ‖ (¼, ¾)) = ½ log 2 + ½ log ⅔."""
    spec = spec_of((1,), (Discrete((2,)),))
    first, second = constant([0.0, 0.0]), constant(np.log([1.0, 3.0]))
    found = divergence(ONE, problem_of(spec), first, second, newest(np.eye(2)))
    np.testing.assert_allclose(found, 0.5 * np.log(2) + 0.5 * np.log(2 / 3), rtol=1e-6)
    np.testing.assert_allclose(divergence(ONE, problem_of(spec), first, first, newest(np.eye(2))), 0.0, atol=1e-7)
    sees = (Layer(jnp.array([[0.0, 1.0]]), jnp.zeros(2)),)
    seen = newest(np.eye(2), (True, False))._replace(obs=jnp.array([[0.0], [50.0]]))
    found = divergence(ONE, problem_of(spec), first, sees, seen)
    np.testing.assert_allclose(found, 0.0, atol=1e-6, err_msg="the dead do not count")


def test_the_distance_of_continuous_actions_by_hand():
    """Actions (0.5, 0) and (0, −0.25): the squared distance is 0.25 + 0.0625."""
    heads = jax.tree.map(lambda table: jnp.asarray(table)[2], heads_of(MIXED))
    assert MIXED.act_size == 4
    nets = [constant(np.arctanh(action)) for action in ((0.5, 0.0, 0.9, 0.0), (0.0, -0.25, 0.0, 0.9))]
    found = distance(heads, problem_of(MIXED), *nets, newest(np.zeros((2, MIXED.act_size))))
    np.testing.assert_allclose(found, 0.3125, rtol=1e-5, err_msg="padding does not count")


def test_each_kind_of_agent_is_measured_in_its_own_way():
    """Agents 0 and 1 choose, agent 2 does not: it alone has no continuous agent beside it."""
    assert inference.metrics_of(SPEC) == ("inference_loss", "inference_kl")
    assert inference.metrics_of(MIXED) == ("inference_loss", "inference_kl", "inference_distance")
    algo = maddpg.make(CONFIG, MIXED, np.ones((3, 3), bool))
    agents = algo.init(prng.key(0))
    batch = batch_of(MIXED, 8, prng.key(1))
    batch = batch._replace(action=jnp.zeros((8, 3, MIXED.act_size)).at[..., 0].set(1.0))
    batch = batch._replace(extras=Newest(batch.obs, batch.action, batch.alive))
    metrics = jax.jit(lambda: algo.update(agents, batch, prng.key(2))[1])()
    assert (np.asarray(metrics["inference_kl"]) > 0).all()
    assert (np.asarray(metrics["inference_distance"])[:2] > 0).all()
    assert np.isnan(metrics["inference_distance"][2])


@pytest.mark.parametrize("other", [{"estimator": "gapped"}, {"norm": "batch"}, {"recurrent": True}, {"share": "all"}])
def test_what_inferred_policies_exclude(other):
    with pytest.raises(UsageError, match=r"--infer-policies and --.* exclude each other"):
        dataclasses.replace(CONFIG, **other)


def test_options_without_effect_are_refused():
    with pytest.raises(UsageError, match="--infer-policies has no effect where no critic reads another agent"):
        maddpg.make(CONFIG, SPEC, np.eye(2, dtype=bool))
    continuous = spec_of((2, 3), (Box(2, -1.0, 1.0), Box(2, -1.0, 1.0)))
    with pytest.raises(UsageError, match="--estimator gapped has no effect on continuous actions"):
        maddpg.make(maddpg.Config(estimator="gapped"), continuous, np.ones((2, 2), bool))


def test_continuous_actions_are_approximated_by_least_squares():
    heads = jax.tree.map(lambda table: jnp.asarray(table)[2], heads_of(MIXED))
    wide = jnp.zeros((2, MIXED.act_size)).at[:, :2].set(jnp.array([[0.5, -0.5], [0.5, 0.5]]))
    net = (Layer(jnp.zeros((1, MIXED.act_size)), jnp.zeros(MIXED.act_size)),)
    found = inference_loss(heads, 0.1, net, newest(wide), problem_of(MIXED))
    np.testing.assert_allclose(found, 0.5 * (0.25 + 0.25), rtol=1e-6)


def test_critics_read_logarithms_of_discrete_actions():
    tables = heads_of(MIXED)
    action = jnp.array([[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.25, 0.75], [0.3, -0.4, 0.0, 0.0]])
    found = np.asarray(critic_view(CONFIG, tables, action))
    half, quarter, rest = (1 - np.log(share) / LOG_FLOOR for share in (0.5, 0.25, 0.75))
    expected = [[half, half, 0.0, 0.0], [1.0, 0.0, quarter, rest], [0.3, -0.4, 0.0, 0.0]]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    plain = dataclasses.replace(CONFIG, infer_policies=False)
    assert critic_view(plain, tables, action) is action
    logits = jnp.log(jnp.array([[1.0, 1.0, 2.0, 9.0], [1.0, 3.0, 1.0, 1.0], [1.0, 1.0, 9.0, 9.0]]))
    shown = np.asarray(log_action(tables, logits))
    np.testing.assert_allclose(shown[0], [quarter, quarter, half, 0.0], rtol=1e-5)
    np.testing.assert_allclose(shown[1], [quarter, rest, half, half], rtol=1e-5)
    np.testing.assert_allclose(shown[2], np.zeros(4), atol=1e-6)
    np.testing.assert_allclose(log_probabilities(ONE, logits[0, :3]), np.log([0.25, 0.25, 0.5]), rtol=1e-5)


def batch_of(spec, size, key):
    n = spec.num_agents
    obs = jax.random.normal(key, (size, n, spec.obs_size)) * spec.obs_mask[None]
    return Transition(
        obs=obs,
        action=jax.nn.one_hot(jax.random.randint(key, (size, n), 0, 3), 3),
        reward=jax.random.normal(key, (size, n)),
        next_obs=obs[::-1],
        terminated=jnp.zeros((size, n), bool),
        alive=jnp.ones((size, n), bool),
        done=jnp.zeros(size, bool),
    )


@pytest.mark.slow
def test_an_update_uses_the_approximations_in_its_targets():
    """One update by the wrapped algorithm is one of MADDPG's whose target actors of the others are the approximations."""
    algo = maddpg.make(CONFIG, SPEC, np.ones((2, 2), bool))
    agents, problem = algo.init(prng.key(0)), problem_of(SPEC)
    batch = batch_of(SPEC, 16, prng.key(1))
    seen = Newest(batch.obs[:5], batch.action[:5], batch.alive[:5])
    after, metrics = jax.jit(algo.update)(agents, batch._replace(extras=seen), prng.key(2))
    assert set(metrics) == {*algo.metrics}
    log = batch._replace(action=critic_view(CONFIG, problem.heads, batch.action))
    for i in range(2):
        own = jax.tree.map(lambda leaf, i=i: leaf[i], agents)
        targets = jax.tree.map(lambda leaf, mine, i=i: leaf.at[i].set(mine), own.inferred_target, own.learner.target_actor)
        known = agents.learner._replace(target_actor=targets)
        expected, _ = maddpg.update_agent(
            CONFIG, problem, own.learner, known, offpolicy.column(log, jnp.int32(i)), log, jnp.int32(i), prng.key(2)
        )
        ours = jax.tree.map(lambda leaf, i=i: leaf[i], after.learner)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), ours, expected)
        step, _, _ = inference.infer(CONFIG, problem, own.inferred, own.inferred_opt, seen)
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, atol=1e-6), after.inferred, step)


@pytest.mark.slow
def test_critics_read_logarithms_without_inference_too():
    """One update with `log_actions` is one of MADDPG's on logarithms; without it, on the actions themselves."""
    config = dataclasses.replace(CONFIG, infer_policies=False, log_actions=True)
    problem, batch = problem_of(SPEC), batch_of(SPEC, 16, prng.key(1))
    batch = batch._replace(action=jax.nn.softmax(2.0 * batch.action))  # one-hot vectors are their own logarithms here
    algo = maddpg.make(config, SPEC, np.ones((2, 2), bool))
    agents = algo.init(prng.key(0))
    after, metrics = jax.jit(algo.update)(agents, batch, prng.key(2))
    assert set(metrics) == {*algo.metrics}
    log = batch._replace(action=critic_view(config, problem.heads, batch.action))

    def updated(batch):
        own, i = jax.tree.map(lambda leaf: leaf[1], agents), jnp.int32(1)
        return maddpg.update_agent(config, problem, own, agents, offpolicy.column(batch, i), batch, i, prng.key(2))[0]

    ours, critic = jax.tree.map(lambda leaf: leaf[1], after), lambda agent: np.asarray(agent.critic[0].weight)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), ours, updated(log))
    assert np.abs(critic(ours) - critic(updated(batch))).max() > 1e-3
    with pytest.raises(UsageError, match=r"--log-actions and --share all exclude each other"):
        dataclasses.replace(config, share="all")


def test_approximations_approach_a_fixed_policy():
    problem = problem_of(SPEC)
    agents = maddpg.make(CONFIG, SPEC, np.ones((2, 2), bool)).init(prng.key(0))
    actor = jax.tree.map(lambda leaf: 3.0 * leaf, agents.learner.actor)
    own = jax.tree.map(lambda leaf: leaf[0], agents)
    measure = inference._each(problem, lambda heads, a, b, seen: divergence(heads, problem, a, b, seen))

    @jax.jit
    def step(inferred, opt, key):
        key_obs, key_act = jax.random.split(key)
        obs = jax.random.normal(key_obs, (100, 2, 3)) * SPEC.obs_mask[None]
        logits = offpolicy.acting_outputs(problem, actor, obs)
        action = jax.nn.one_hot(jax.random.categorical(key_act, logits), 3)
        seen = Newest(obs, action, jnp.ones((100, 2), bool))
        inferred, opt, _ = inference.infer(CONFIG, problem, inferred, opt, seen)
        return inferred, opt, measure(inferred, actor, inference._by_agent(seen))

    inferred, opt, gaps = own.inferred, own.inferred_opt, []
    for k in range(200):
        inferred, opt, apart = step(inferred, opt, prng.key(k))
        gaps.append(np.asarray(apart))
    assert np.mean(gaps[-10:]) < 0.2 * np.mean(gaps[:3])


@pytest.mark.parametrize("batches", [1, 2])
def test_samples_carry_the_newest_transitions(batches):
    one = example(SPEC)
    memory = with_newest(uniform(one, 12, 4, 6, batches), one, 6, batches)
    state = memory.init()
    for k in range(3):  # wraps the ring
        steps = batch_of(SPEC, 6, prng.key(k))
        state = memory.add(state, jax.tree.map(lambda leaf: leaf[:, None], steps))
        seen = memory.sample(state, prng.key(9)).extras
        found = seen.obs if batches == 1 else seen.obs[1]
        np.testing.assert_array_equal(found, steps.obs)
        np.testing.assert_array_equal(seen.action if batches == 1 else seen.action[0], steps.action)


RUNS = {
    "shared minibatch": {"minibatch": "shared"},
    "own minibatches": {"minibatch": "per-agent"},
    "continuous": {"actions": "continuous"},
    "matd3": {"algorithm": "matd3"},
    "continuous matd3": {"algorithm": "matd3", "actions": "continuous"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_with_inferred_policies_reports_how_far_they_are_off(name, tmp_path):
    import counterpoint
    from tiny import TINY

    settings = TINY | {"scenario": "simple_speaker_listener", "num_episodes": 24, "warmup": 100} | RUNS[name]
    run = counterpoint.train(infer_policies=True, save_dir=str(tmp_path), exp_name="run", **settings)
    last = run.rows()[-1]
    reported, absent = ("distance", "kl") if "continuous" in name else ("kl", "distance")
    assert last[f"inference_{reported}/speaker_0"] > 0
    assert last[f"inference_{reported}/listener_0"] > 0
    assert f"inference_{absent}/speaker_0" not in last
    assert np.isfinite(last["inference_loss/listener_0"])
    actions = counterpoint.load(run).act({"speaker_0": np.zeros(3), "listener_0": np.zeros(11)})
    assert set(actions) == {"speaker_0", "listener_0"}
