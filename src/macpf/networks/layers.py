"""Plain stacks of linear layers; their leaves are arrays alone, as in all networks here."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Float

from macpf.types import PRNGKey

Network = TypeVar("Network")


class Layers(eqx.Module):
    """Linear layers with a ReLU between each two."""

    layers: tuple[eqx.nn.Linear, ...]

    def __call__(self, x: Float[Array, " I"]) -> Float[Array, " J"]:
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


def make_layers(key: PRNGKey, sizes: Sequence[int]) -> Layers:
    """Layers from the first size by way of the others to the last."""
    keys = jax.random.split(key, len(sizes) - 1)
    return Layers(tuple(eqx.nn.Linear(i, o, key=k) for k, (i, o) in zip(keys, pairwise(sizes), strict=True)))


def make_several(key: PRNGKey, count: int, make: Callable[[PRNGKey], Network]) -> Network:
    """Several networks of one kind in one, with a leading axis over them; call it through `of_each`."""
    return jax.vmap(make)(jax.random.split(key, count))


def of_each(networks: Callable[[Array], Array], x: Float[Array, " I"]) -> Float[Array, "K J"]:
    """What each of several networks makes of the same input."""
    return jax.vmap(lambda network: network(x))(networks)
