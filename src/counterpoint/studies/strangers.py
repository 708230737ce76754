"""Scores between teams that were not trained together: tables over seeds, their means, bootstrap samples."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float


def cross(play: Callable[[int, int], float], seeds: int) -> Float[np.ndarray, "K K"]:
    """Returns the score of every seed of one team (rows) against every other seed of the other; NaN for the same seed.

    Teams of the same seed may have been trained together, and all cells must meet strangers.
    """
    table = np.full((seeds, seeds), np.nan)
    for k in range(seeds):
        for j in range(seeds):
            if k != j:
                table[k, j] = play(k, j)
    return table


def means(tables: Float[np.ndarray, "*b K K"]) -> Float[np.ndarray, "*b"]:
    """Returns the mean of each table over the pairs that met; NaN if there are none."""
    met = np.isfinite(tables)
    count = met.sum(axis=(-2, -1))
    return np.where(count, np.where(met, tables, 0.0).sum(axis=(-2, -1)) / np.maximum(count, 1), np.nan)


def resampled(tables: Float[np.ndarray, "2 2 K K"], draws: int = 2000) -> Float[np.ndarray, "R 2 2"]:
    """Returns the means of all cells for resampled seeds, which are drawn for each kind of either side.

    Pairs that share a seed are not independent, so seeds are drawn, not pairs. Draws in which nobody met are left out.
    """
    seeds = tables.shape[-1]
    first, second = np.random.default_rng(0).integers(0, seeds, (2, draws, 2, seeds))
    cells = [[means(tables[a, g][first[:, a, :, None], second[:, g, None, :]]) for g in range(2)] for a in range(2)]
    found = np.moveaxis(np.array(cells), -1, 0)
    return found[np.isfinite(found).all(axis=(1, 2))]
