"""MAPPO's networks: layer normalisation everywhere, orthogonal weights, a value or one number per action."""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from macpf.networks.gru import gru_scan, gru_step
from macpf.types import PRNGKey

Activation = Literal["relu", "tanh"]
ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "relu": (jax.nn.relu, 2**0.5),
    "tanh": (jnp.tanh, 5 / 3),
}  # with the gain that keeps the size of what passes through


class Normed(eqx.Module):
    """Normalised inputs, blocks of layer, activation and normalisation, maybe a GRU, and a head."""

    first: eqx.nn.LayerNorm
    blocks: tuple[tuple[eqx.nn.Linear, eqx.nn.LayerNorm], ...]
    memory: tuple[eqx.nn.GRUCell, eqx.nn.LayerNorm] | None
    head: eqx.nn.Linear
    activation: Activation = eqx.field(static=True)

    def __call__(
        self, x: Float[Array, " I"], hidden: Float[Array, " M"]
    ) -> tuple[Float[Array, " J"], Float[Array, " M"]]:
        """One agent at one moment."""
        x = self.features(x)
        if self.memory is None:
            return self.head(x), hidden
        cell, norm = self.memory
        hidden = gru_step(cell, x, hidden)
        return self.head(norm(hidden)), hidden

    def unroll(
        self, xs: Float[Array, "T I"], start: Float[Array, " M"]
    ) -> tuple[Float[Array, "T J"], Float[Array, "T M"]]:
        """One agent at all moments after `start`, and its hidden units after each."""
        xs = jax.vmap(self.features)(xs)
        if self.memory is None:
            return jax.vmap(self.head)(xs), jnp.zeros((len(xs), 0))
        cell, norm = self.memory
        hidden = gru_scan(cell, xs, start)
        return jax.vmap(lambda h: self.head(norm(h)))(hidden), hidden

    def features(self, x: Float[Array, " I"]) -> Float[Array, " H"]:
        function, _ = ACTIVATIONS[self.activation]
        x = self.first(x)
        for layer, norm in self.blocks:
            x = norm(function(layer(x)))
        return x


def make_normed(
    key: PRNGKey,
    inputs: int,
    hidden: int,
    outputs: int,
    *,
    recurrent: bool,
    layers: int,
    activation: Activation,
    gain: float,
) -> Normed:
    """Orthogonal weights with the activation's gain, and `gain` in the head; no biases to start with."""
    _, inner = ACTIVATIONS[activation]
    keys = jax.random.split(key, layers + 2)
    sizes = (inputs,) + (hidden,) * layers
    blocks = tuple(
        (_orthogonal(k, i, hidden, inner), eqx.nn.LayerNorm(hidden))
        for k, i in zip(keys[2:], sizes[:-1], strict=True)
    )
    memory = (_orthogonal_cell(keys[0], hidden), eqx.nn.LayerNorm(hidden)) if recurrent else None
    head = _orthogonal(keys[1], hidden, outputs, gain)
    return Normed(eqx.nn.LayerNorm(inputs), blocks, memory, head, activation)


def _orthogonal(key: PRNGKey, inputs: int, outputs: int, gain: float) -> eqx.nn.Linear:
    layer = eqx.nn.Linear(inputs, outputs, key=key)
    weight = jax.nn.initializers.orthogonal(gain)(key, (outputs, inputs))
    return eqx.tree_at(lambda x: (x.weight, x.bias), layer, (weight, jnp.zeros(outputs)))


def _orthogonal_cell(key: PRNGKey, hidden: int) -> eqx.nn.GRUCell:
    cell = eqx.nn.GRUCell(hidden, hidden, key=key)
    in_key, hidden_key = jax.random.split(key)
    make = jax.nn.initializers.orthogonal()
    weights = (make(in_key, (3 * hidden, hidden)), make(hidden_key, (3 * hidden, hidden)))
    biases = (jnp.zeros(3 * hidden), jnp.zeros(hidden))
    return eqx.tree_at(lambda c: (c.weight_ih, c.weight_hh, c.bias, c.bias_n), cell, (*weights, *biases))
