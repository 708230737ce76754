"""Linear codes: which losses they survive, and what decoding returns."""

import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.coded import codes
from counterpoint.coded.codes import (
    CODES,
    MAX_CONDITION,
    Code,
    condition,
    decode,
    encode,
    make_code,
    peelable_sets,
    recoverable,
    recoverable_sets,
)
from counterpoint.core.errors import UsageError

SIZES = ((1, 1), (1, 4), (2, 3), (3, 5), (5, 6), (5, 11), (7, 21), (8, 15), (10, 15), (32, 48), (100, 150))
PAPER_SIZES = ((8, 15), (10, 15))
EPS = float(np.finfo(np.float32).eps)


@functools.cache
def every_set(num_learners: int) -> np.ndarray:
    return (np.arange(2**num_learners)[:, None] >> np.arange(num_learners) & 1).astype(bool)


def losses(num_learners: int, lost: int) -> np.ndarray:
    gone = np.array(list(itertools.combinations(range(num_learners), lost)), int)
    arrived = np.ones((len(gone), num_learners), bool)
    np.put_along_axis(arrived, gone, False, axis=1)
    return arrived


def draw_updates(num_agents: int, size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(num_agents, size)).astype(np.float32)


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float((np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)).max())


def vandermonde(num_agents: int, num_learners: int) -> Code:
    """Returns the authors' MDS code."""
    return Code("vandermonde", np.vander(np.linspace(0.1, 0.5, num_learners), num_agents, increasing=True), 0)


@pytest.mark.parametrize(
    ("name", "num_agents", "tolerance", "load", "undecodable"),
    [
        ("replication", 8, None, 1.0, (0.067, 0.200, 0.385, 0.590, 0.776)),
        ("ldpc", 8, None, 1.87, (0, 0.057, 0.171, 0.332, 0.516)),
        ("cyclic", 8, 2, 1.6, (0, 0, 0.022, 0.094, 0.244)),
        ("cyclic", 8, 7, 4.27, (0, 0, 0, 0, 0)),
        ("replication", 10, None, 1.0, (0.333, 0.619, 0.824, 0.941, 0.989)),
        ("ldpc", 10, None, 2.27, (0, 0.057, 0.176, 0.395, 0.708)),
        ("cyclic", 10, 5, 4.0, (0, 0, 0, 0, 0)),
    ],
)
def test_the_share_of_undecodable_losses_matches_known_values(name, num_agents, tolerance, load, undecodable):
    """Checks every loss of 1 … 5 among 15 learners; the paper's LDPC values assume peeling."""
    code = make_code(name, num_agents, 15, tolerance=tolerance)
    test = peelable_sets if name == "ldpc" else recoverable_sets
    found = [1 - test(code, losses(15, lost)).mean() for lost in range(1, 6)]
    assert code.load == pytest.approx(load, abs=5e-3)
    np.testing.assert_allclose(found, undecodable, atol=5.1e-4)


@pytest.mark.parametrize(("num_agents", "parameters"), [(8, (3, 5, 3)), (10, (3, 5, 2))])
def test_ldpc_is_the_array_code_of_the_paper(num_agents, parameters):
    assert codes._array_parameters(num_agents, 15 - num_agents) == parameters
    p, rho, gamma = parameters
    shift = np.roll(np.eye(p, dtype=int), 1, axis=1)
    check = np.block([[np.linalg.matrix_power(shift, a * b) for b in range(rho)] for a in range(gamma)])
    parity = codes._parity_rows(p, rho, gamma).astype(int)
    # Reordering learners makes every column of the generator a codeword; elimination puts the pivots first.
    pivots = [c for c in range(15) if _rank2(check[:, : c + 1]) > _rank2(check[:, :c])]
    generator = np.zeros((15, num_agents), int)
    generator[pivots] = parity
    generator[[c for c in range(15) if c not in pivots]] = np.eye(num_agents, dtype=int)
    assert not (check @ generator % 2).any()
    np.testing.assert_array_equal(make_code("ldpc", num_agents, 15).matrix[num_agents:], parity)


def _rank2(matrix: np.ndarray) -> int:
    """Returns the rank modulo 2, with rows as bits of integers."""
    basis: list[int] = []
    for row in matrix % 2:
        value = int("".join(map(str, row)) or "0", 2)
        for other in basis:
            value = min(value, value ^ other)
        if value:
            basis.append(value)
    return len(basis)


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_code_survives_its_tolerance(name, size):
    num_agents, num_learners = size
    code = make_code(name, num_agents, num_learners)
    assert code.matrix.shape == (num_learners, num_agents)
    assert code.matrix.any(axis=0).all(), "no learner computes some agent"
    assert name == "uncoded" or code.matrix.any(axis=1).all(), "some learner has no work"
    assert recoverable(code, np.ones(num_learners, bool))
    if math.comb(num_learners, code.tolerance) < 10_000:
        assert recoverable_sets(code, losses(num_learners, code.tolerance)).all()


@pytest.mark.parametrize("size", PAPER_SIZES, ids=str)
@pytest.mark.parametrize("name", CODES)
def test_all_32768_sets_are_decoded_or_rejected(name, size):
    """Accepted sets decode within κ times float32 rounding; rejected sets are rank deficient or ill conditioned."""
    num_agents, num_learners = size
    code = make_code(name, num_agents, num_learners)
    arrived = every_set(num_learners)
    accepted = recoverable_sets(code, arrived)
    updates = draw_updates(num_agents, 3, seed=1)
    results = encode(code.matrix, updates)
    sigma = np.linalg.svd(code.matrix * arrived[:, :, None], compute_uv=False)
    assert (sigma[accepted, 0] < 1.01 * MAX_CONDITION * sigma[accepted, -1]).all()
    assert (1.01 * sigma[~accepted, 0] >= MAX_CONDITION * sigma[~accepted, -1]).all()
    for mask in arrived[accepted][:: max(1, accepted.sum() // 100)]:
        learners = np.flatnonzero(mask)
        decoded = decode(code, learners.tolist(), results[learners])
        assert relative_error(decoded.updates, updates) < 20 * EPS * decoded.condition
        assert decoded.residual < 10 * EPS


@pytest.mark.parametrize("name", CODES)
def test_least_squares_over_every_accepted_set_gives_the_updates(name):
    """Solves all accepted sets of 8 agents on 15 learners at once, with float32 results."""
    code = make_code(name, 8, 15)
    arrived = every_set(15)[recoverable_sets(code, every_set(15))]
    updates = draw_updates(8, 1, seed=2)
    results = encode(code.matrix, updates).astype(float)
    rows = code.matrix * arrived[:, :, None]
    found = np.linalg.solve(rows.transpose(0, 2, 1) @ rows, rows.transpose(0, 2, 1) @ results)
    assert len(arrived) > 100
    assert np.abs(found - updates).max() < 1e-2


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(CODES), size=st.sampled_from(SIZES), lost=st.floats(0, 1), seed=st.integers(0, 2**32 - 1))
def test_decoding_inverts_encoding(name, size, lost, seed):
    """Any set of learners in any order decodes within κ times rounding, or raises an error."""
    num_agents, num_learners = size
    code = make_code(name, num_agents, num_learners)
    rng = np.random.default_rng(seed)
    learners = rng.permutation(num_learners)[: num_learners - round(lost * (num_learners - num_agents))]
    mask = np.isin(np.arange(num_learners), learners)
    updates = draw_updates(num_agents, 5, seed)
    results = encode(code.matrix[learners], updates)
    if recoverable(code, mask):
        decoded = decode(code, learners.tolist(), results)
        assert decoded.updates.dtype == np.float32
        assert decoded.condition < MAX_CONDITION or np.count_nonzero(code.loads[mask] == 1) >= num_agents
        assert relative_error(decoded.updates, updates) < 20 * EPS * decoded.condition
    else:
        assert lost > 0
        with pytest.raises(ValueError, match="do not determine"):
            decode(code, learners.tolist(), results)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(CODES), size=st.sampled_from(SIZES), agent=st.integers(0, 99), seed=st.integers(0, 2**32 - 1))
def test_sets_that_miss_an_agent_are_rejected(name, size, agent, seed):
    """A set is rejected if it lacks the learners of one agent or cannot separate two agents."""
    code = make_code(name, *size)
    agent %= code.num_agents
    assert not recoverable(code, code.matrix[:, agent] == 0)
    if code.num_agents > 1:
        twin = code.matrix.copy()
        twin[:, agent] = 3 * twin[:, (agent + 1) % code.num_agents]
        assert not recoverable(code._replace(matrix=twin), np.ones(code.num_learners, bool))
    few = np.random.default_rng(seed).permutation(code.num_learners) < code.num_agents - 1
    assert not recoverable(code, few)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(CODES), size=st.sampled_from(SIZES), seed=st.integers(0, 2**32 - 1))
def test_an_additional_result_never_hurts(name, size, seed):
    code = make_code(name, *size)
    order = np.random.default_rng(seed).permutation(code.num_learners)
    growing = order[None, :] <= np.arange(code.num_learners)[:, None]
    accepted = recoverable_sets(code, growing)
    assert (np.diff(accepted.astype(int)) >= 0).all()


@pytest.mark.parametrize("num_agents", [3, 8, 10, 32, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["mds", "systematic", "random_sparse", "cyclic"])
def test_real_codes_are_well_conditioned_with_all_spares_lost(name, num_agents):
    """Uses 1.5 learners per agent; unvetted codes reach errors of 9e-3. Small codes must not have a single bad set."""
    num_learners = math.ceil(1.5 * num_agents)
    spare = num_learners - num_agents
    code = make_code(name, num_agents, num_learners, tolerance=spare)
    rng = np.random.default_rng(0)
    enumerable = num_agents <= 10
    arrived = losses(num_learners, spare) if enumerable else rng.random((40, num_learners)).argsort(axis=1) < num_agents
    accepted = recoverable_sets(code, arrived)
    assert accepted.all() if enumerable else accepted.mean() > 0.9
    updates = draw_updates(num_agents, 4, seed=3)
    results = encode(code.matrix, updates)
    worst = condition(code.matrix, arrived[accepted]).argsort()[-40:]
    errors = []
    for mask in arrived[accepted][worst]:
        learners = np.flatnonzero(mask)
        errors.append(relative_error(decode(code, learners.tolist(), results[learners]).updates, updates))
    assert max(errors) < 2e-3


def test_the_condition_test_rejects_a_full_rank_set():
    """The authors' Vandermonde code has full rank but is useless in float32."""
    code = vandermonde(10, 15)
    mask = np.arange(15) < 10
    assert np.linalg.matrix_rank(code.matrix[mask]) == 10
    assert condition(code.matrix, mask[None])[0] > 1e6
    assert not recoverable(code, mask)


@pytest.mark.parametrize(("weakest", "accepted"), [(1 / 5_000, True), (1 / 20_000, False)])
def test_the_condition_limit_is_ten_thousand(weakest, accepted):
    code = Code("weak", np.array([[1.0, 0.0], [0.0, weakest]]), 0)
    assert recoverable(code, np.array([True, True])) is accepted


def test_condition_is_the_ratio_of_singular_values():
    matrix = np.array([[3.0, 0.0], [0.0, 0.5], [0.0, 0.0]])
    found = condition(matrix, np.array([[True, True, True], [True, False, True]]))
    np.testing.assert_allclose(found, [6.0, np.inf])


@pytest.mark.parametrize("name", ["uncoded", "replication", "systematic", "ldpc"])
def test_plain_results_are_copied_bit_for_bit(name):
    code = make_code(name, 8, 15)
    updates = draw_updates(8, 1000, seed=4) * np.float32(1e-3)
    learners = np.flatnonzero(code.loads == 1)
    decoded = decode(code, learners.tolist(), encode(code.matrix[learners], updates))
    np.testing.assert_array_equal(decoded.updates, updates)


def test_peeling_and_least_squares_by_hand():
    """u0, u0 + u1, u1 + u2 can be peeled; u0 + u1, u1 + u2, u0 + u2 need least squares."""
    chain = Code("chain", np.array([[1.0, 0, 0], [1, 1, 0], [0, 1, 1]]), 0)
    ring = Code("ring", np.array([[1.0, 1, 0], [0, 1, 1], [1, 0, 1]]), 0)
    everyone = np.ones((1, 3), bool)
    assert peelable_sets(chain, everyone)[0]
    assert not peelable_sets(ring, everyone)[0]
    updates = np.array([[1.0], [2.0], [4.0]], np.float32)
    np.testing.assert_array_equal(decode(chain, [0, 1, 2], np.array([[1.0], [3.0], [6.0]], np.float32)).updates, updates)
    np.testing.assert_allclose(decode(ring, [2, 0, 1], np.array([[5.0], [3.0], [6.0]], np.float32)).updates, updates, rtol=1e-6)


def test_the_residual_shows_that_learners_disagree():
    code = make_code("mds", 3, 5)
    updates = draw_updates(3, 50, seed=5)
    results = encode(code.matrix, updates)
    assert decode(code, range(5), results).residual < 1e-6
    results[2] += 0.1
    assert decode(code, range(5), results).residual > 1e-3


def test_a_learner_needs_only_its_own_updates_to_encode():
    code = make_code("cyclic", 8, 15, tolerance=2)
    updates = draw_updates(8, 20, seed=6)
    whole = encode(code.matrix, updates)
    for learner, row in enumerate(code.matrix):
        mine = np.flatnonzero(row)
        np.testing.assert_array_equal(encode(row[None, mine], updates[mine])[0], whole[learner])


def test_long_updates_are_decoded_in_chunks():
    code = make_code("cyclic", 3, 5)
    updates = draw_updates(3, 2 * codes._CHUNK + 17, seed=7)
    decoded = decode(code, [4, 1, 2], encode(code.matrix[[4, 1, 2]], updates))
    assert relative_error(decoded.updates, updates) < 1e-5


def test_codes_are_deterministic_and_depend_on_the_seed():
    again = make_code.__wrapped__("mds", 3, 5)
    np.testing.assert_array_equal(again.matrix, make_code("mds", 3, 5).matrix)
    assert (make_code("mds", 3, 5, seed=1).matrix != again.matrix).any()


@pytest.mark.parametrize("bound", [(10, 15), (8, 12), (100, 150)], ids=str)
def test_cyclic_does_the_least_work_for_its_tolerance(bound):
    num_agents, num_learners = bound
    code = make_code("cyclic", num_agents, num_learners, tolerance=num_learners - num_agents)
    assert (np.count_nonzero(code.matrix, axis=0) == num_learners - num_agents + 1).all()
    assert code.load == pytest.approx(num_agents * (num_learners - num_agents + 1) / num_learners)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cyclid", 3, 5), "perhaps cyclic"),
        (("mds", 8, 5), "at least 8 learners, got 5"),
        (("mds", 0, 5), "at least one agent, got 0"),
        (("cyclic", 3, 5, 0, 3), "between 0 and 2 losses, not 3"),
        (("cyclic", 3, 5, 0, -1), "between 0 and 2 losses, not -1"),
        (("replication", 3, 5, 0, 1), "replication survives any 0 losses"),
    ],
)
def test_invalid_arguments_raise_a_usage_error(arguments, message):
    with pytest.raises(UsageError, match=message):
        make_code(*arguments)


@pytest.mark.parametrize("name", [name for name in CODES if name != "uncoded"])
def test_decoded_squares_are_never_negative(name):
    """Squared gradients from 0 to 1e-24 beside another agent's 1 decode to the same value or to 0, from every set."""
    rng = np.random.default_rng(0)
    values = (10.0 ** rng.uniform(-24, 0, (4, 2000)) * (rng.random((4, 2000)) < 0.7)).astype(np.float32)
    code = make_code(name, 4, 7)
    results = encode(code.matrix, codes.signed_sqrt(values), np.float64)
    for arrived in every_set(7)[recoverable_sets(code, every_set(7))]:
        learners = np.flatnonzero(arrived).tolist()
        found = decode(code, learners, results[learners])
        back = codes.signed_square(found.updates)
        assert back.min() >= 0
        np.testing.assert_array_equal(back[values == 0], 0)
        np.testing.assert_array_equal(back[values > 1e-6], values[values > 1e-6])
        assert found.error.max() < 1e-10


def test_the_expected_error_matches_the_actual_error():
    code, updates = make_code("mds", 8, 15), draw_updates(8, 4000, seed=3)
    arrived = list(range(8))
    found = decode(code, arrived, encode(code.matrix[arrived], updates))
    true = np.linalg.norm(found.updates - updates, axis=1) / np.linalg.norm(updates, axis=1)
    np.testing.assert_array_less(true / 3, found.error)
    np.testing.assert_array_less(found.error, true * 3)
