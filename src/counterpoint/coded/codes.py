"""Codes for distributed learning: which learner computes whose update, and how the answers give every update back.

After Wang, Xie, Atanasov, "Coding for Distributed Multi-Agent Reinforcement Learning" (ICRA 2021, arXiv:2101.02308).
Learner j computes the update u_i of every agent i with C[j, i] ≠ 0 and answers y_j = Σ_i C[j, i] u_i. The controller decodes
as soon as the answers I that arrived determine every u_i: when the condition number κ(C_I) is below MAX_CONDITION.

Differs from the authors' code:
- Answers travel in float64 and are signed square roots (`fold`): what is decoded rounds to the float32 it was.
- A bare rank test is never used. Their Vandermonde matrices pass it at 10 agents and decode with an error of 88 %.
- Dense and sparse real codes are drawn, vetted and polished until every smallest set of answers is well conditioned.
- Peeling falls back on least squares over all answers, so it cannot stall where the answers suffice.
Axis letters: J learners · N agents · K answers that arrived · D numbers in one update · S sets of learners.
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
"""Answers are decoded only below this κ; float32 noise of 6e-8 then grows to at most a thousandth, typically far less."""

_NOISE = 1024.0
"""Numbers below so many errors of the decoding matrix, times what they are decoded from, are taken for zero."""

_CHUNK = 1 << 16
"""Columns decoded at a time, so that float64 copies of long updates stay in the cache."""


class Code(NamedTuple):
    """An assignment of agents to learners with the coefficients of each learner's answer."""

    name: str
    matrix: Float[np.ndarray, "J N"]
    tolerance: int
    """So many learners, whichever, may be lost. For large codes this is vetted on a sample of losses only."""

    @property
    def num_learners(self) -> int:
        return self.matrix.shape[0]

    @property
    def num_agents(self) -> int:
        return self.matrix.shape[1]

    @property
    def loads(self) -> np.ndarray:
        """Updates that each learner computes."""
        return np.count_nonzero(self.matrix, axis=1)

    @property
    def load(self) -> float:
        """Updates per learner in the mean."""
        return float(self.loads.mean())


class Decoded(NamedTuple):
    updates: Float[np.ndarray, "N D"]
    condition: float
    """κ of the rows that arrived."""
    residual: float
    """‖C_I u − y‖ / ‖y‖: above float32 rounding when learners did not compute the same updates."""
    error: Float[np.ndarray, " N"]
    """Relative error to expect in each update, because answers were rounded; 0 for those copied bit for bit."""


def condition(matrix: Float[np.ndarray, "J N"], arrived: Bool[np.ndarray, "S J"]) -> Float[np.ndarray, " S"]:
    """κ of the rows of each set; infinite when they do not determine every agent."""
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
    """Which sets of learners give every update back."""
    used = code.matrix != 0
    covered = (arrived.astype(np.float32) @ used.astype(np.float32) > 0).all(axis=1)
    plain = (code.matrix == 1) & (code.loads == 1)[:, None]
    result = (arrived.astype(np.float32) @ plain.astype(np.float32) > 0).all(axis=1)
    open_sets = covered & ~result & ((arrived & used.any(axis=1)).sum(axis=1) >= code.num_agents)
    if open_sets.any():
        result[open_sets] = condition(code.matrix, arrived[open_sets]) < MAX_CONDITION
    return result


def recoverable(code: Code, arrived: Bool[np.ndarray, " J"]) -> bool:
    """Whether the learners that arrived give every update back."""
    return bool(recoverable_sets(code, arrived[None])[0])


def peelable_sets(code: Code, arrived: Bool[np.ndarray, "S J"]) -> Bool[np.ndarray, " S"]:
    """Which sets of learners peeling alone decodes: again and again an answer with one unknown agent is solved for it."""
    used = (code.matrix != 0).astype(np.float32)
    unknown = np.ones((len(arrived), code.num_agents), np.float32)
    while True:
        single = arrived & (unknown @ used.T == 1)
        solved = (single.astype(np.float32) @ used > 0) & (unknown > 0)
        if not solved.any():
            return np.logical_not(unknown.any(axis=1))
        unknown[solved] = 0


def encode(
    rows: Float[np.ndarray, "K n"], updates: Float[np.ndarray, "n D"], kind: type = np.float32
) -> Float[np.ndarray, "K D"]:
    """The answers y = rows · updates; a learner passes its own row without zeros and only its own updates."""
    answers = np.empty((rows.shape[0], updates.shape[1]), kind)
    for part in _chunks(updates.shape[1]):
        answers[:, part] = rows.astype(np.float64) @ updates[:, part].astype(np.float64)
    return answers


def decode(code: Code, arrived: Sequence[int], messages: Float[np.ndarray, "K D"]) -> Decoded:
    """Every agent's update from the messages of the learners in `arrived`, in that order.

    Answers that hold one agent with coefficient 1 are taken bit for bit. The rest is peeled when all coefficients are 0 or 1,
    else solved by least squares over all answers: one small decoding matrix [N, K], one product with the messages. What is
    no more than rounding beside the answers it came from is zero.
    """
    rows = code.matrix[np.asarray(arrived, int)]
    mask = np.zeros(code.num_learners, bool)
    mask[list(arrived)] = True
    if not recoverable(code, mask):
        raise ValueError(f"the answers of learners {sorted(arrived)} do not determine every update of code {code.name}")
    solve = _decoding_matrix(rows)
    copied = (np.count_nonzero(solve, axis=1) == 1) & (solve.max(axis=1) == 1)
    kappa = float(condition(code.matrix, mask[None])[0])
    rounding = float(np.finfo(messages.dtype).eps) / 4  # its root mean square, about
    # Of the answers, and of the decoding matrix, whose zeros are only nearly so.
    noise_floor = (8 * rounding + _NOISE * kappa * 2.0**-54) * np.abs(solve[~copied]).max(axis=1, initial=0.0)
    updates = np.empty((code.num_agents, messages.shape[1]), messages.dtype)
    updates[copied] = messages[solve[copied].argmax(axis=1)]
    error, sizes, found = 0.0, np.zeros(len(rows)), np.zeros(code.num_agents)
    for part in _chunks(messages.shape[1]):
        answers = messages[:, part].astype(np.float64)
        solved = solve[~copied] @ answers
        solved[np.abs(solved) < noise_floor[:, None] * np.abs(answers).sum(axis=0)] = 0.0
        updates[~copied, part] = solved
        error += float(np.sum((rows @ updates[:, part].astype(np.float64) - answers) ** 2))
        sizes += np.sum(answers**2, axis=1)
        found += np.sum(updates[:, part].astype(np.float64) ** 2, axis=1)
    size = float(sizes.sum())
    # Rounding of each answer, carried through the decoding matrix; plain answers are not rounded, copies are nobody's sum.
    rounded = np.where((np.count_nonzero(rows, axis=1) == 1) & (rows.sum(axis=1) == 1), 0.0, sizes)
    noise = rounding * np.sqrt((solve**2) @ rounded + found)
    return Decoded(
        updates=updates,
        condition=kappa,
        residual=math.sqrt(error / size) if size else 0.0,
        error=np.where(copied, 0.0, noise / np.sqrt(np.maximum(found, 1e-300))),
    )


def fold(values: np.ndarray) -> np.ndarray:
    """Signed square roots in float64.

    The error of a decoded number is relative to the largest that other agents have in its place. Adam's squared gradients
    span so many orders of magnitude that a small one would be lost, even change its sign; their roots span half as many.
    """
    wide = values.astype(np.float64)
    return np.copysign(np.sqrt(np.abs(wide)), wide)


def unfold(values: np.ndarray) -> np.ndarray:
    """The float32 numbers that `fold` was given."""
    return (values * np.abs(values)).astype(np.float32)


def _decoding_matrix(rows: Float[np.ndarray, "K N"]) -> Float[np.ndarray, "N K"]:
    """The matrix that takes answers to updates."""
    used, identity = rows != 0, np.eye(len(rows))
    known, solve = np.zeros(rows.shape[1], bool), np.zeros(rows.shape[::-1])
    # Chains of divisions by small Gaussians lose digits, so only 0/1 codes are peeled beyond the plain answers.
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
    """One learner per agent; further learners idle."""
    return Code(name="uncoded", matrix=np.eye(num_learners, num_agents), tolerance=0)


def replication(num_agents: int, num_learners: int) -> Code:
    """Agents dealt round robin, one to each learner."""
    matrix = np.eye(num_agents)[np.arange(num_learners) % num_agents]
    return Code(name="replication", matrix=matrix, tolerance=num_learners // num_agents - 1)


def mds(num_agents: int, num_learners: int, seed: int = 0, vet: bool = True) -> Code:
    """Dense Gaussian: any N answers suffice, and every learner does the whole job."""
    matrix = _vetted(lambda rng: rng.normal(size=(num_learners, num_agents)), num_learners - num_agents, seed, vet)
    return Code(name="mds", matrix=matrix, tolerance=num_learners - num_agents)


def systematic(num_agents: int, num_learners: int, seed: int = 0, vet: bool = True) -> Code:
    """[I; Gaussian]: MDS whose first N learners have one agent each, the rest all."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        return np.concatenate([np.eye(num_agents), rng.normal(size=(num_learners - num_agents, num_agents))])

    matrix = _vetted(draw, num_learners - num_agents, seed, vet)
    return Code(name="systematic", matrix=matrix, tolerance=num_learners - num_agents)


def random_sparse(num_agents: int, num_learners: int, seed: int = 0, vet: bool = True, keep: float = 0.8) -> Code:
    """Gaussian entries, each kept with probability `keep`; learners left empty get one agent."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        kept = rng.random((num_learners, num_agents)) < keep
        kept[np.arange(num_learners), rng.integers(num_agents, size=num_learners)] |= ~kept.any(axis=1)
        return rng.normal(size=kept.shape) * kept

    lost = num_learners - num_agents
    code = Code(name="random_sparse", matrix=_vetted(draw, lost, seed, vet), tolerance=lost)
    # Zeros in unlucky places: the code then survives fewer losses.
    while (
        vet
        and code.tolerance
        and not recoverable_sets(code, _losses(num_learners, code.tolerance, _affordable(num_agents))[0]).all()
    ):
        code = code._replace(tolerance=code.tolerance - 1)
    return code


def cyclic(num_agents: int, num_learners: int, tolerance: int, seed: int = 0, vet: bool = True) -> Code:
    """Agent i on `tolerance` + 1 consecutive learners from ⌊iJ/N⌋: the least work that survives any `tolerance` losses."""
    agents = np.arange(num_agents)
    learners = (agents * num_learners // num_agents + np.arange(tolerance + 1)[:, None]) % num_learners

    def draw(rng: np.random.Generator) -> np.ndarray:
        values = rng.normal(size=learners.shape)
        matrix = np.zeros((num_learners, num_agents))
        matrix[learners, agents] = values + np.copysign(0.5, values)
        alone = np.count_nonzero(matrix, axis=1) == 1
        matrix[alone] = matrix[alone] != 0
        return matrix

    return Code(name="cyclic", matrix=_vetted(draw, tolerance, seed, vet), tolerance=tolerance)


def ldpc(num_agents: int, num_learners: int) -> Code:
    """A regular binary array code with systematic 0/1 generator, used over the reals as the paper does.

    The parity check is γ × ρ blocks, block (a, b) the p×p cyclic shift to the power ab. For prime p and γ ≤ p it has rank
    γ(p−1) + 1, so pρ learners carry pρ − γ(p−1) − 1 agents: (p, ρ, γ) = (3, 5, 3) is the paper's code for 8 agents and
    15 learners, (3, 5, 2) the one for 10. Other sizes take the smallest such code with agents and parities enough, shortened
    to N agents and punctured to J learners, of its parities those kept that cover most; an agent still uncovered joins the
    lightest. Learners with one agent come first.
    """
    num_parities = num_learners - num_agents
    if num_parities == 0:
        return Code(name="ldpc", matrix=np.eye(num_agents), tolerance=0)
    parity = _parity_rows(*_array_parameters(num_agents, num_parities))[:, :num_agents]
    parity = parity[parity.any(axis=1)]
    kept = _cover(parity, num_parities)
    # Shortening may leave fewer parities than learners: the rest repeat agents round robin.
    spare = np.eye(num_agents)[np.arange(num_parities - len(kept)) % num_agents]
    matrix = np.concatenate([np.eye(num_agents), parity[kept], spare])
    loads = matrix[num_agents:].sum(axis=1)
    for agent in np.flatnonzero(matrix.sum(axis=0) == 1):
        lightest = int(loads.argmin())
        matrix[num_agents + lightest, agent] = 1
        loads[lightest] += 1
    # Any single loss is peeled: each agent stands alone on one learner and in the sum of another. More is claimed if proved.
    code = Code(name="ldpc", matrix=matrix, tolerance=1)
    while code.tolerance + 1 < matrix.sum(axis=0).min():
        arrived, complete = _losses(num_learners, code.tolerance + 1, _affordable(num_agents))
        if not (complete and recoverable_sets(code, arrived).all()):
            break
        code = code._replace(tolerance=code.tolerance + 1)
    return code


def _array_parameters(num_agents: int, num_parities: int) -> tuple[int, int, int]:
    """(p, ρ, γ) of the smallest array code with at least so many agents and parities."""
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
    """The parity rows [parities, agents] of the array code's systematic generator: Gaussian elimination modulo 2."""
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
    """Up to `count` parity rows, greedily those that cover most of the agents covered least; lighter rows first."""
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
        # Only what changed is counted again: a thousand agents would otherwise take many seconds.
        changed = np.flatnonzero(now != least)
        gain = gain + parity[:, changed] @ np.where(now[changed], 1.0, -1.0)
        least = now
    return sorted(kept)


def _vetted(draw: Callable[[np.random.Generator], np.ndarray], lost: int, seed: int, vet: bool) -> np.ndarray:
    """The best conditioned of some draws over losses of `lost` learners, polished where all of these can be enumerated."""
    best, best_worst = draw(np.random.default_rng([seed, 0])), np.inf
    num_learners, num_agents = best.shape
    arrived, complete = _losses(num_learners, lost, _affordable(num_agents) if vet else 0)
    if not vet or len(arrived) == 0:
        return best
    for attempt in range(8):
        matrix = draw(np.random.default_rng([seed, attempt]))
        # What is polished on a sample only fits the sample.
        matrix, worst = _polished(matrix, arrived, rounds=5 if complete else 0)
        if worst < best_worst:
            best, best_worst = matrix, worst
        if complete and best_worst < MAX_CONDITION:
            break
    return best


def _polished(matrix: np.ndarray, arrived: np.ndarray, rounds: int) -> tuple[np.ndarray, float]:
    """The matrix moved uphill in the smallest singular values of its worst sets until all are well conditioned; its worst κ.

    With v the singular vector of the smallest σ of C_I, the gradient of σ is (C_I v) vᵀ / σ. Zeros and plain rows stay.
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
    """The matrix after some steps, each taken only if it lowers the worst κ of these sets."""
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
        # Sets that are not watched grow worse meanwhile: aim somewhat below the limit, no further.
        if kappa.max() < 0.7 * MAX_CONDITION:
            break
    return matrix


def _affordable(num_agents: int) -> int:
    """How many sets are worth an eigenvalue problem of this size: about a second's work, none beyond 368 agents."""
    return int(5e7 / num_agents**3)


def _losses(num_learners: int, lost: int, limit: int) -> tuple[np.ndarray, bool]:
    """Sets left after losing `lost` learners: all of them when that is at most ~`limit`, else a sample of up to 200."""
    complete = math.comb(num_learners, lost) <= min(limit, 10_000)
    if complete:
        gone = np.array(list(itertools.combinations(range(num_learners), lost)), int)
        gone = gone.reshape(math.comb(num_learners, lost), lost)
    else:
        rng = np.random.default_rng(num_learners)
        gone = rng.random((min(limit, 200), num_learners)).argsort(axis=1)[:, :lost]
    arrived = np.ones((len(gone), num_learners), bool)
    arrived[np.arange(len(gone))[:, None], gone] = False
    return arrived, complete


CODES = ("uncoded", "replication", "mds", "systematic", "random_sparse", "ldpc", "cyclic")
"""Every code by name."""


@lru_cache(maxsize=64)
def make_code(
    name: str, num_agents: int, num_learners: int, seed: int = 0, tolerance: int | None = None, vet: bool = True
) -> Code:
    """The code of that name; `tolerance`: losses it must survive (cyclic: exactly so many, else 2 or more).

    Unless it is vetted, its coefficients are the first drawn: enough to count with, not to decode with.
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
            # At least two, and no learner left without work.
            usual = min(spare, max(2, math.ceil(num_learners / num_agents) - 1))
            code = cyclic(num_agents, num_learners, usual if tolerance is None else tolerance, seed, vet)
    if tolerance is not None and code.tolerance < tolerance:
        raise UsageError(f"{name} survives any {code.tolerance} losses at this size, not {tolerance}; use cyclic or mds.")
    code.matrix.flags.writeable = False
    return code
