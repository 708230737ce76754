"""Pytrees as files know them."""

from typing import Any

import jax


def names_of(tree: Any) -> list[str]:
    """Returns the names of a state's leaves, such as actor.0.weight."""
    return [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
