"""What is compiled differently for a CPU, which computes, and for a GPU, which waits for launches."""

import jax
import numpy as np
from jaxtyping import Array, Float


def on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def unroll(at_most: int = 4) -> int:
    """Steps of a scan compiled into one: a GPU gains by fewer launches, a CPU loses (measured)."""
    return 1 if on_cpu() else at_most


def kept(values: Float[Array, " K"]) -> Float[Array, " K"]:
    """Finite numbers, computed once: fusing, a CPU would compute them anew for all that is made of them.

    A product with the identity changes no number and is not fused; a barrier is gone before a CPU fuses.
    """
    return values @ np.eye(len(values), dtype=values.dtype) if on_cpu() else values
