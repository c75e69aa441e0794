"""What all tests share: the CPU unless told otherwise, hypothesis's settings, checked annotations."""

import os
from collections.abc import Iterator

import jax
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook


@pytest.fixture
def optimised() -> Iterator[None]:
    """For a test that runs for longer than it compiles."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


jax.config.update("jax_platforms", os.environ.get("JAX_PLATFORMS", "cpu"))
jax.config.update("jax_disable_most_optimizations", True)  # most tests compile for longer than they run
jax.config.update("jax_numpy_rank_promotion", "raise")
install_import_hook("macpf", "beartype.beartype")
settings.register_profile("macpf", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("macpf")
