"""What is compiled differently for a CPU, which computes, and for a GPU, which waits for launches."""

import jax


def on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def unroll(at_most: int = 4) -> int:
    """Steps of a scan compiled into one: a GPU gains by fewer launches, a CPU loses (measured)."""
    return 1 if on_cpu() else at_most
