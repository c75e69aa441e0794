"""What is compiled differently for a CPU and for a GPU, where each kernel costs time, little as it may do."""

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Values = TypeVar("Values")


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


def settled(values: Values) -> Values:
    """Values computed once: a GPU fuses all they are made of into every kernel that reads them.

    A CPU drops such barriers before it fuses; what helps there is `kept`.
    """
    return values if on_cpu() else jax.lax.optimization_barrier(values)


def row_sums(
    one: Float[Array, "K L"], other: Float[Array, "K L"]
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """The sums of both arrays' rows; a GPU walks over them once, or it would first write both to memory."""
    if on_cpu():
        return jnp.sum(one, axis=1), jnp.sum(other, axis=1)
    zero = jnp.zeros((), one.dtype)
    return jax.lax.reduce((one, other), (zero, zero), lambda a, b: (a[0] + b[0], a[1] + b[1]), (1,))
