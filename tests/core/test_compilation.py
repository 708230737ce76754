"""Where compiled programs are kept, and which of them."""

from pathlib import Path

import jax
import pytest

from counterpoint.core.compilation import THRESHOLD, keep_programs

NAMES = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


@pytest.fixture(autouse=True)
def as_before():
    """Leaves the settings of the session as they were."""
    before = {name: jax.config.values[name] for name in NAMES}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize(("wanted", "kept"), [(None, 0.3), ("5", 5.0)])
def test_long_compilations_are_kept_unless_the_user_says_which(
    wanted: str | None, kept: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(THRESHOLD, raising=False)
    if wanted is not None:
        monkeypatch.setenv(THRESHOLD, wanted)
    jax.config.update(NAMES[1], 5.0)  # what JAX has read from the environment
    keep_programs(str(tmp_path))
    assert [jax.config.values[name] for name in NAMES] == [str(tmp_path), kept]


def test_nothing_is_kept_without_a_folder() -> None:
    keep_programs("")
    assert jax.config.values[NAMES[0]] is None
