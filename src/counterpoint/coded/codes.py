"""Linear codes for distributed learning: they assign agents to learners and recover every update from a subset of results.

After Wang, Xie, Atanasov, "Coding for Distributed Multi-Agent Reinforcement Learning" (ICRA 2021, arXiv:2101.02308).
Learner j computes the update u_i of every agent i with C[j, i] ≠ 0 and returns the result y_j = Σ_i C[j, i] u_i. The
controller decodes as soon as the results I that arrived determine every u_i, which means κ(C_I) < MAX_CONDITION.

Differs from the authors' code:
- Results are float64 signed square roots (`signed_sqrt`), so decoded values round to the original float32 values.
- We never rely on rank alone. The authors' Vandermonde matrices pass a rank test at 10 agents and decode with 88 % error.
- Real-valued codes are sampled, checked and refined until every minimal set of results is well conditioned.
- Peeling falls back to least squares over all results, so decoding never stalls when the results suffice.
Axis letters: J learners · N agents · K results that arrived · D numbers in one update · S sets of learners.
"""

import difflib
import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from counterpoint.core.errors import UsageError

MAX_CONDITION = 1e4
"""Largest κ at which results are decoded; it amplifies float32 noise of 6e-8 to at most 1e-3, and usually far less."""

_NOISE = 1024.0
"""Decoded values smaller than this multiple of the decoding matrix's rounding error are set to zero."""

_CHUNK = 1 << 16
"""Number of columns decoded at once, so that float64 copies of long updates stay in the cache."""


class Code(NamedTuple):
    """Assigns agents to learners and holds the coefficients of each learner's result."""

    name: str
    matrix: Float[np.ndarray, "J N"]
    tolerance: int
    """Number of arbitrary learners that may be lost. For large codes only a sample of losses is checked."""

    @property
    def num_learners(self) -> int:
        return self.matrix.shape[0]

    @property
    def num_agents(self) -> int:
        return self.matrix.shape[1]

    @property
    def loads(self) -> np.ndarray:
        """Returns the number of updates that each learner computes."""
        return np.count_nonzero(self.matrix, axis=1)

    @property
    def load(self) -> float:
        """Returns the mean number of updates per learner."""
        return float(self.loads.mean())


class Decoded(NamedTuple):
    """Decoded updates with estimates of their error."""

    updates: Float[np.ndarray, "N D"]
    condition: float
    """κ of the rows whose results arrived."""
    residual: float
    """‖C_I u − y‖ / ‖y‖; exceeds float32 rounding if learners computed different updates."""
    error: Float[np.ndarray, " N"]
    """Expected relative error of each update due to rounded results; 0 for updates copied bit for bit."""


def condition(matrix: Float[np.ndarray, "J N"], arrived: Bool[np.ndarray, "S J"]) -> Float[np.ndarray, " S"]:
    """Returns κ of each set's rows, or infinity if they do not determine every agent."""
    num_learners, num_agents = matrix.shape
    squares = np.empty((len(arrived), 2))
    products = (matrix[:, :, None] * matrix[:, None, :]).reshape(num_learners, -1) if num_agents <= 64 else None
    step = max(1, 2**22 // num_agents**2)
    for first in range(0, len(arrived), step):
        part = arrived[first : first + step].astype(float)
        if products is None:
            gram = np.stack([rows.T @ rows for rows in (matrix[mask > 0] for mask in part)])
        else:
            gram = (part @ products).reshape(-1, num_agents, num_agents)
        squares[first : first + step] = np.linalg.eigvalsh(gram)[:, [0, -1]]
    # The Gram matrix squares κ: beyond 1e7 its smallest eigenvalue is rounding.
    singular = squares[:, 0] <= 1e-14 * squares[:, 1]
    return np.where(singular, np.inf, np.sqrt(squares[:, 1] / np.where(singular, 1.0, squares[:, 0])))


def recoverable_sets(code: Code, arrived: Bool[np.ndarray, "S J"]) -> Bool[np.ndarray, " S"]:
    """Returns which sets of learners determine every update."""
    used = code.matrix != 0
    covered = (arrived.astype(np.float32) @ used.astype(np.float32) > 0).all(axis=1)
    plain = (code.matrix == 1) & (code.loads == 1)[:, None]
    result = (arrived.astype(np.float32) @ plain.astype(np.float32) > 0).all(axis=1)
    open_sets = covered & ~result & ((arrived & used.any(axis=1)).sum(axis=1) >= code.num_agents)
    if open_sets.any():
        result[open_sets] = condition(code.matrix, arrived[open_sets]) < MAX_CONDITION
    return result


def recoverable(code: Code, arrived: Bool[np.ndarray, " J"]) -> bool:
    """Returns whether the results that arrived determine every update."""
    return bool(recoverable_sets(code, arrived[None])[0])


def peelable_sets(code: Code, arrived: Bool[np.ndarray, "S J"]) -> Bool[np.ndarray, " S"]:
    """Returns which sets peeling alone decodes, by repeatedly solving results with one unknown agent."""
    used = (code.matrix != 0).astype(np.float32)
    unknown = np.ones((len(arrived), code.num_agents), np.float32)
    while True:
        single = arrived & (unknown @ used.T == 1)
        solved = (single.astype(np.float32) @ used > 0) & (unknown > 0)
        if not solved.any():
            return np.logical_not(unknown.any(axis=1))
        unknown[solved] = 0


def encode(
    rows: Float[np.ndarray, "K n"], updates: Float[np.ndarray, "n D"], dtype: type = np.float32
) -> Float[np.ndarray, "K D"]:
    """Returns the results y = rows · updates; a learner passes the nonzeros of its row and the matching updates."""
    results = np.empty((rows.shape[0], updates.shape[1]), dtype)
    for part in _chunks(updates.shape[1]):
        results[:, part] = rows.astype(np.float64) @ updates[:, part].astype(np.float64)
    return results


def decode(code: Code, arrived: Sequence[int], results: Float[np.ndarray, "K D"]) -> Decoded:
    """Recovers every agent's update from the results of the learners in `arrived`, given in that order.

    Results that hold a single agent with coefficient 1 are copied bit for bit. The rest are peeled if all coefficients are 0
    or 1, and otherwise solved by least squares over all results: one small decoding matrix [N, K] times the results. Values
    within rounding error of the results they came from become zero.
    """
    rows = code.matrix[np.asarray(arrived, int)]
    mask = np.zeros(code.num_learners, bool)
    mask[list(arrived)] = True
    if not recoverable(code, mask):
        raise ValueError(f"the results of learners {sorted(arrived)} do not determine every update of code {code.name}")
    solve = _decoding_matrix(rows)
    copied = (np.count_nonzero(solve, axis=1) == 1) & (solve.max(axis=1) == 1)
    kappa = float(condition(code.matrix, mask[None])[0])
    rounding = float(np.finfo(results.dtype).eps) / 4  # approximate root mean square
    # Rounding of the results and of the decoding matrix, whose zeros are only approximate.
    noise_floor = (8 * rounding + _NOISE * kappa * 2.0**-54) * np.abs(solve[~copied]).max(axis=1, initial=0.0)
    updates = np.empty((code.num_agents, results.shape[1]), results.dtype)
    updates[copied] = results[solve[copied].argmax(axis=1)]
    error, sizes, found = 0.0, np.zeros(len(rows)), np.zeros(code.num_agents)
    for part in _chunks(results.shape[1]):
        part_results = results[:, part].astype(np.float64)
        solved = solve[~copied] @ part_results
        solved[np.abs(solved) < noise_floor[:, None] * np.abs(part_results).sum(axis=0)] = 0.0
        updates[~copied, part] = solved
        error += float(np.sum((rows @ updates[:, part].astype(np.float64) - part_results) ** 2))
        sizes += np.sum(part_results**2, axis=1)
        found += np.sum(updates[:, part].astype(np.float64) ** 2, axis=1)
    size = float(sizes.sum())
    # Propagate each result's rounding through the decoding matrix; results with one plain update are not rounded.
    rounded = np.where((np.count_nonzero(rows, axis=1) == 1) & (rows.sum(axis=1) == 1), 0.0, sizes)
    noise = rounding * np.sqrt((solve**2) @ rounded + found)
    return Decoded(
        updates=updates,
        condition=kappa,
        residual=math.sqrt(error / size) if size else 0.0,
        error=np.where(copied, 0.0, noise / np.sqrt(np.maximum(found, 1e-300))),
    )


def signed_sqrt(values: np.ndarray) -> np.ndarray:
    """Returns signed square roots in float64.

    The error of a decoded number is relative to the largest value that any agent has at that position. Adam's squared
    gradients span so many orders of magnitude that small ones would be lost or change sign; their roots span half as many.
    """
    wide = values.astype(np.float64)
    return np.copysign(np.sqrt(np.abs(wide)), wide)


def signed_square(values: np.ndarray) -> np.ndarray:
    """Inverts `signed_sqrt` and returns float32 values."""
    return (values * np.abs(values)).astype(np.float32)


def _decoding_matrix(rows: Float[np.ndarray, "K N"]) -> Float[np.ndarray, "N K"]:
    """Returns the matrix that maps results to updates."""
    used, identity = rows != 0, np.eye(len(rows))
    known, solve = np.zeros(rows.shape[1], bool), np.zeros(rows.shape[::-1])
    # Repeated division by small Gaussians loses digits, so only 0/1 codes are peeled beyond single-agent results.
    binary = bool(np.isin(rows, (0.0, 1.0)).all())
    while True:
        open_entries = used & ~known
        single = np.flatnonzero((open_entries.sum(axis=1) == 1) & (binary | (rows.sum(axis=1) == 1)))
        agents, first = np.unique(open_entries[single].argmax(axis=1), return_index=True)
        if len(agents) == 0:
            break
        single = single[first]
        solve[agents] = (identity[single] - rows[single] @ solve) / rows[single, agents][:, None]
        known[agents] = True
        if not binary:
            break
    if not known.all():
        solve[~known] = np.linalg.pinv(rows[:, ~known]) @ (identity - rows[:, known] @ solve[known])
    return solve


def _chunks(size: int) -> list[slice]:
    return [slice(first, min(first + _CHUNK, size)) for first in range(0, size, _CHUNK)]


def uncoded(num_agents: int, num_learners: int) -> Code:
    """Assigns one learner per agent; additional learners stay idle."""
    return Code(name="uncoded", matrix=np.eye(num_learners, num_agents), tolerance=0)


def replication(num_agents: int, num_learners: int) -> Code:
    """Assigns one agent to each learner, round robin."""
    matrix = np.eye(num_agents)[np.arange(num_learners) % num_agents]
    return Code(name="replication", matrix=matrix, tolerance=num_learners // num_agents - 1)


def mds(num_agents: int, num_learners: int, seed: int = 0, vet: bool = True) -> Code:
    """Returns a dense Gaussian code: any N results suffice, but every learner computes every update."""
    matrix = _vetted(lambda rng: rng.normal(size=(num_learners, num_agents)), num_learners - num_agents, seed, vet)
    return Code(name="mds", matrix=matrix, tolerance=num_learners - num_agents)


def systematic(num_agents: int, num_learners: int, seed: int = 0, vet: bool = True) -> Code:
    """Returns [I; Gaussian], an MDS code whose first N learners compute one agent each and the others all agents."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        return np.concatenate([np.eye(num_agents), rng.normal(size=(num_learners - num_agents, num_agents))])

    matrix = _vetted(draw, num_learners - num_agents, seed, vet)
    return Code(name="systematic", matrix=matrix, tolerance=num_learners - num_agents)


def random_sparse(num_agents: int, num_learners: int, seed: int = 0, vet: bool = True, keep: float = 0.8) -> Code:
    """Keeps each Gaussian entry with probability `keep` and gives every empty learner one agent."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        kept = rng.random((num_learners, num_agents)) < keep
        kept[np.arange(num_learners), rng.integers(num_agents, size=num_learners)] |= ~kept.any(axis=1)
        return rng.normal(size=kept.shape) * kept

    lost = num_learners - num_agents
    code = Code(name="random_sparse", matrix=_vetted(draw, lost, seed, vet), tolerance=lost)
    # Unfavourably placed zeros reduce the number of losses the code survives.
    while (
        vet
        and code.tolerance
        and not recoverable_sets(code, _losses(num_learners, code.tolerance, _affordable(num_agents))[0]).all()
    ):
        code = code._replace(tolerance=code.tolerance - 1)
    return code


def cyclic(num_agents: int, num_learners: int, tolerance: int, seed: int = 0, vet: bool = True) -> Code:
    """Assigns agent i to `tolerance` + 1 consecutive learners from ⌊iJ/N⌋, the least work that survives `tolerance` losses."""
    agents = np.arange(num_agents)
    learners = (agents * num_learners // num_agents + np.arange(tolerance + 1)[:, None]) % num_learners

    def draw(rng: np.random.Generator) -> np.ndarray:
        values = rng.normal(size=learners.shape)
        matrix = np.zeros((num_learners, num_agents))
        matrix[learners, agents] = values + np.copysign(0.5, values)
        single = np.count_nonzero(matrix, axis=1) == 1
        matrix[single] = matrix[single] != 0
        return matrix

    return Code(name="cyclic", matrix=_vetted(draw, tolerance, seed, vet), tolerance=tolerance)


def ldpc(num_agents: int, num_learners: int) -> Code:
    """Returns a regular binary array code with a systematic 0/1 generator, used over the reals as in the paper.

    The parity check matrix has γ × ρ blocks; block (a, b) is the p×p cyclic shift to the power ab. For prime p and γ ≤ p its
    rank is γ(p−1) + 1, so pρ learners support pρ − γ(p−1) − 1 agents. (p, ρ, γ) = (3, 5, 3) is the paper's code for 8 agents
    and 15 learners, (3, 5, 2) the one for 10. Other sizes shorten the smallest sufficient code to N agents and puncture it to
    J learners, keeping the parities that cover the most agents; an uncovered agent joins the parity with the smallest load.
    Learners with one agent come first.
    """
    num_parities = num_learners - num_agents
    if num_parities == 0:
        return Code(name="ldpc", matrix=np.eye(num_agents), tolerance=0)
    parity = _parity_rows(*_array_parameters(num_agents, num_parities))[:, :num_agents]
    parity = parity[parity.any(axis=1)]
    kept = _cover(parity, num_parities)
    # Shortening may leave fewer parities than learners; the remaining learners repeat agents round robin.
    spare = np.eye(num_agents)[np.arange(num_parities - len(kept)) % num_agents]
    matrix = np.concatenate([np.eye(num_agents), parity[kept], spare])
    loads = matrix[num_agents:].sum(axis=1)
    for agent in np.flatnonzero(matrix.sum(axis=0) == 1):
        lightest = int(loads.argmin())
        matrix[num_agents + lightest, agent] = 1
        loads[lightest] += 1
    # Peeling recovers any single loss: each agent is alone on one learner and in the sum of another. Claim more only if proved.
    code = Code(name="ldpc", matrix=matrix, tolerance=1)
    while code.tolerance + 1 < matrix.sum(axis=0).min():
        arrived, complete = _losses(num_learners, code.tolerance + 1, _affordable(num_agents))
        if not (complete and recoverable_sets(code, arrived).all()):
            break
        code = code._replace(tolerance=code.tolerance + 1)
    return code


def _array_parameters(num_agents: int, num_parities: int) -> tuple[int, int, int]:
    """Returns (p, ρ, γ) of the smallest array code with at least this many agents and parities."""
    found = []
    for p in range(2, num_parities + 3):
        if all(p % q for q in range(2, math.isqrt(p) + 1)):
            gamma = max(2, math.ceil((num_parities - 1) / (p - 1)))
            rho = math.ceil((num_agents + gamma * (p - 1) + 1) / p)
            if gamma <= p:
                found.append((p * rho, gamma, p, rho))
    _, gamma, p, rho = min(found)
    return p, rho, gamma


def _parity_rows(p: int, rho: int, gamma: int) -> np.ndarray:
    """Returns the parity rows [parities, agents] of the systematic generator, by Gaussian elimination modulo 2."""
    shifts = np.arange(gamma)[:, None] * np.arange(rho) % p
    check = np.block([[np.roll(np.eye(p, dtype=bool), shift, axis=1) for shift in row] for row in shifts])
    pivots: list[int] = []
    for column in range(check.shape[1]):
        below = np.flatnonzero(check[len(pivots) :, column])
        if len(below):
            row = len(pivots)
            check[[row, row + below[0]]] = check[[row + below[0], row]]
            others = np.flatnonzero(check[:, column])
            check[others[others != row]] ^= check[row]
            pivots.append(column)
    free = np.setdiff1d(np.arange(check.shape[1]), pivots)
    return check[: len(pivots)][:, free].astype(float)


def _cover(parity: np.ndarray, count: int) -> list[int]:
    """Greedily picks up to `count` parity rows that cover the least covered agents, preferring lighter rows."""
    if len(parity) <= count:
        return list(range(len(parity)))
    kept: list[int] = []
    covered = np.zeros(parity.shape[1])
    least = np.ones(parity.shape[1], bool)
    gain, cost = parity.sum(axis=1), 1e-3 * parity.sum(axis=1)
    left = np.ones(len(parity), bool)
    for _ in range(count):
        best = int(np.where(left, gain - cost, -np.inf).argmax())
        left[best] = False
        covered += parity[best]
        kept.append(best)
        now = covered == covered.min()
        # Recount only what changed; otherwise a thousand agents would take many seconds.
        changed = np.flatnonzero(now != least)
        gain = gain + parity[:, changed] @ np.where(now[changed], 1.0, -1.0)
        least = now
    return sorted(kept)


def _vetted(draw: Callable[[np.random.Generator], np.ndarray], lost: int, seed: int, vet: bool) -> np.ndarray:
    """Returns the best conditioned of several samples when `lost` learners fail; refines it if all losses can be enumerated."""
    best, best_worst = draw(np.random.default_rng([seed, 0])), np.inf
    num_learners, num_agents = best.shape
    arrived, complete = _losses(num_learners, lost, _affordable(num_agents) if vet else 0)
    if not vet or len(arrived) == 0:
        return best
    for attempt in range(8):
        matrix = draw(np.random.default_rng([seed, attempt]))
        # Refining on a sample of losses would only fit that sample.
        matrix, worst = _refined(matrix, arrived, rounds=5 if complete else 0)
        if worst < best_worst:
            best, best_worst = matrix, worst
        if complete and best_worst < MAX_CONDITION:
            break
    return best


def _refined(matrix: np.ndarray, arrived: np.ndarray, rounds: int) -> tuple[np.ndarray, float]:
    """Raises the smallest singular values of the worst sets by gradient ascent; returns the matrix and its worst κ.

    With v the singular vector of the smallest σ of C_I, the gradient of σ is (C_I v) vᵀ / σ. Zeros and single-agent rows stay.
    """
    free = (matrix != 0) & (np.count_nonzero(matrix, axis=1) > 1)[:, None]
    kappa = condition(matrix, arrived)
    best, best_worst = matrix, float(kappa.max())
    for _ in range(rounds):
        if best_worst < MAX_CONDITION or not free.any():
            break
        watched = arrived[np.argsort(-kappa)[:1000]]
        matrix = _climb(matrix, free, watched)
        kappa = condition(matrix, arrived)
        if kappa.max() < best_worst:
            best, best_worst = matrix, float(kappa.max())
    return best, best_worst


def _climb(matrix: np.ndarray, free: np.ndarray, arrived: np.ndarray, rounds: int = 20) -> np.ndarray:
    """Takes ascent steps, keeping each only if it lowers the worst κ of these sets."""
    kappa, step = condition(matrix, arrived), 0.03
    for _ in range(rounds):
        worst = arrived[np.argsort(-kappa)[:60]]
        _, sigma, right = np.linalg.svd(worst[:, :, None] * matrix, full_matrices=False)
        vector, sigma = right[:, -1], np.maximum(sigma[:, -1], 1e-9)
        weight = (sigma.min() / sigma) ** 2
        gradient = np.einsum("s,sj,sn->jn", weight / sigma, worst * (vector @ matrix.T), vector) * free
        moved = matrix + step * gradient / np.abs(gradient).max()
        moved_kappa = condition(moved, arrived)
        if moved_kappa.max() < kappa.max():
            matrix, kappa, step = moved, moved_kappa, 1.3 * step
        else:
            step /= 2
        # Other sets get worse meanwhile, so stop slightly below the limit.
        if kappa.max() < 0.7 * MAX_CONDITION:
            break
    return matrix


def _affordable(num_agents: int) -> int:
    """Returns how many eigenvalue problems of this size take about a second; 0 beyond 368 agents."""
    return int(5e7 / num_agents**3)


def _losses(num_learners: int, lost: int, limit: int) -> tuple[np.ndarray, bool]:
    """Returns the sets that remain after `lost` losses: all of them up to about `limit`, otherwise a sample of up to 200."""
    complete = math.comb(num_learners, lost) <= min(limit, 10_000)
    if complete:
        lost_learners = np.array(list(itertools.combinations(range(num_learners), lost)), int)
        lost_learners = lost_learners.reshape(math.comb(num_learners, lost), lost)
    else:
        rng = np.random.default_rng(num_learners)
        lost_learners = rng.random((min(limit, 200), num_learners)).argsort(axis=1)[:, :lost]
    arrived = np.ones((len(lost_learners), num_learners), bool)
    arrived[np.arange(len(lost_learners))[:, None], lost_learners] = False
    return arrived, complete


CODES = ("uncoded", "replication", "mds", "systematic", "random_sparse", "ldpc", "cyclic")
"""Names of all codes."""


@lru_cache(maxsize=64)
def make_code(
    name: str, num_agents: int, num_learners: int, seed: int = 0, tolerance: int | None = None, vet: bool = True
) -> Code:
    """Returns the named code; `tolerance` is the number of losses it must survive (cyclic: exactly; default 2 or more).

    Without `vet`, the first sampled coefficients are used: good enough to count results, not to decode them.
    """
    if name not in CODES:
        close = difflib.get_close_matches(name, CODES, 1)
        hint = f" (perhaps {close[0]}?)" if close else ""
        raise UsageError(f"unknown code {name!r}{hint}; known are {', '.join(CODES)}.")
    if num_agents < 1:
        raise UsageError(f"a code needs at least one agent, got {num_agents}.")
    if num_learners < num_agents:
        raise UsageError(
            f"{num_agents} agents need at least {num_agents} learners, got {num_learners}; raise the number of learners."
        )
    spare = num_learners - num_agents
    if tolerance is not None and not 0 <= tolerance <= spare:
        raise UsageError(
            f"{num_learners} learners for {num_agents} agents survive between 0 and {spare} losses, not {tolerance}; "
            "lower the tolerance or add learners."
        )
    match name:
        case "uncoded":
            code = uncoded(num_agents, num_learners)
        case "replication":
            code = replication(num_agents, num_learners)
        case "mds":
            code = mds(num_agents, num_learners, seed, vet)
        case "systematic":
            code = systematic(num_agents, num_learners, seed, vet)
        case "random_sparse":
            code = random_sparse(num_agents, num_learners, seed, vet)
        case "ldpc":
            code = ldpc(num_agents, num_learners)
        case _:
            # Tolerate at least two losses, and leave no learner without work.
            usual = min(spare, max(2, math.ceil(num_learners / num_agents) - 1))
            code = cyclic(num_agents, num_learners, usual if tolerance is None else tolerance, seed, vet)
    if tolerance is not None and code.tolerance < tolerance:
        raise UsageError(f"{name} survives any {code.tolerance} losses at this size, not {tolerance}; use cyclic or mds.")
    code.matrix.flags.writeable = False
    return code
