"""What is compiled differently for a CPU, which computes, and for a GPU, which waits for launches."""

from typing import Any

import jax
import jax.numpy as jnp
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


WARP = 32  # threads of a GPU that add up together


def wide(rows: Any) -> Any:
    """Rows with so many zeros behind them that a GPU makes and sums them in one kernel; numpy stays numpy.

    XLA lets the threads of a warp share a row if it is at least as long as a warp or divides it; another is
    made in one kernel and walked through in a second. A CPU has no use for it.
    """
    length = rows.shape[-1]
    if on_cpu() or length >= WARP:
        return rows
    missing = (1 << (length - 1).bit_length()) - length
    pad = np.pad if isinstance(rows, np.ndarray) else jnp.pad
    return pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, missing)])
