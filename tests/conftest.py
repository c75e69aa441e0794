"""What all tests share: the CPU unless told otherwise, hypothesis's settings, checked annotations."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest
from beartype import beartype
from beartype.roar import BeartypeDecorHintPep3119Exception
from hypothesis import settings
from jaxtyping import install_import_hook


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its annotations checked at every call, where that is possible."""
    try:
        return beartype(function)
    except BeartypeDecorHintPep3119Exception:  # a protocol that cannot be looked for at run time
        return function


@pytest.fixture
def optimised() -> Iterator[None]:
    """For a test that runs for longer than it compiles."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


jax.config.update("jax_platforms", os.environ.get("JAX_PLATFORMS", "cpu"))
jax.config.update("jax_disable_most_optimizations", True)  # most tests compile for longer than they run
install_import_hook("macpf", f"{__name__}.checked")
settings.register_profile("macpf", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("macpf")
