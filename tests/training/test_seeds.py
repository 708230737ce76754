"""On one device, a seed draws the same random numbers alone as among several; only rounding differs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint
from tiny import TINY


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["maddpg", "coma"])
def test_a_seed_alone_equals_itself_among_several_but_for_rounding(algorithm: str, tmp_path: Path) -> None:
    usual: dict[str, Any] = TINY | {
        "scenario": "simple_spread",
        "algorithm": algorithm,
        "num_episodes": 16,
        "save_dir": str(tmp_path),
    }
    if algorithm == "coma":
        usual = {name: value for name, value in usual.items() if name not in ("batch_size", "warmup")}
    several = counterpoint.train(num_seeds=2, seed=3, exp_name="several", **usual)
    alone = counterpoint.train(seed=4, exp_name="alone", **usual)
    mine, theirs = alone.load_policy()[0], several.load_policy()[0]
    for name, value in mine.items():
        np.testing.assert_allclose(value[0], theirs[name][1], atol=1e-5, err_msg=name)
    rows = [row for row in several.rows() if row["seed"] == 4]
    np.testing.assert_allclose([row["return_sum"] for row in alone.rows()], [row["return_sum"] for row in rows], rtol=1e-4)
