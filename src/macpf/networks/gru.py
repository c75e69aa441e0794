"""The gated recurrent unit over a whole episode, with a backward pass of its own.

The scan of either direction holds only what is sequential: the products with the hidden weights. The
gradient of those weights is one product over all steps, made after the backward scan; left to automatic
differentiation it would be a sum carried through every step. The three gates (reset, update, candidate)
are kept as three arrays rather than as slices of one: slices keep a CPU from vectorising the scan's body.
A GPU, which waits for launches, makes their three products as one.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from macpf.networks.backend import on_cpu, unroll

Gates = tuple[Float[Array, "..."], ...]  # reset, update, candidate


def gru_step(
    cell: eqx.nn.GRUCell, inputs: Float[Array, " H"], hidden: Float[Array, " H"]
) -> Float[Array, " H"]:
    """One step; equal to `cell(inputs, hidden)`."""
    weights_i, weights_h, biases, bias_n = _split(cell)
    gi = tuple(inputs @ w + b for w, b in zip(weights_i, biases, strict=True))
    return _advance(gi, weights_h, bias_n, hidden)[0]


def gru_scan(
    cell: eqx.nn.GRUCell, inputs: Float[Array, "T H"], start: Float[Array, " H"]
) -> Float[Array, "T H"]:
    """All hidden states after `start`: the inputs of all steps are projected first."""
    weights_i, weights_h, biases, bias_n = _split(cell)
    gi = tuple(inputs @ w + b[None] for w, b in zip(weights_i, biases, strict=True))
    return _scan(gi, weights_h, bias_n, start)


def _split(cell: eqx.nn.GRUCell) -> tuple[Gates, Gates, Gates, Float[Array, " H"]]:
    """The cell's parameters gate by gate, weights transposed."""
    if cell.bias is None or cell.bias_n is None:
        raise ValueError("a GRU cell without biases is not supported")
    weights_i, weights_h, biases = (jnp.split(p, 3) for p in (cell.weight_ih, cell.weight_hh, cell.bias))
    return tuple(w.T for w in weights_i), tuple(w.T for w in weights_h), tuple(biases), cell.bias_n


def _advance(gi: Gates, weights: Gates, bias_n: Float[Array, " H"], h: Float[Array, " H"]):
    """The next hidden state, and what made it: the gates, and the candidate's share of the old state."""
    rh, zh, nh = _times(h, weights)
    m = nh + bias_n
    r, z = jax.nn.sigmoid(gi[0] + rh), jax.nn.sigmoid(gi[1] + zh)
    n = jnp.tanh(gi[2] + r * m)
    return n + z * (h - n), r, z, n, m


def _times(h: Float[Array, " H"], weights: Gates) -> Sequence[Float[Array, " H"]]:
    """The product with the weights of every gate."""
    if on_cpu():
        return [h @ w for w in weights]
    return jnp.split(h @ jnp.concatenate(weights, axis=1), len(weights))


def _times_transposed(gates: Gates, weights: Gates) -> Float[Array, " H"]:
    """The way back: the sum of every gate's product with its transposed weights."""
    if on_cpu():
        return sum((d @ w.T for d, w in zip(gates, weights, strict=True)), jnp.zeros(()))
    return jnp.concatenate(gates) @ jnp.concatenate(weights, axis=1).T


@jax.custom_vjp
def _scan(
    gi: Gates, weights: Gates, bias_n: Float[Array, " H"], start: Float[Array, " H"]
) -> Float[Array, "T H"]:
    def step(h, gi):
        h = _advance(gi, weights, bias_n, h)[0]
        return h, h

    return jax.lax.scan(step, start, gi, unroll=unroll())[1]


def _forward(gi, weights, bias_n, start):
    def step(h, gi):
        made = _advance(gi, weights, bias_n, h)
        return made[0], (h, *made)

    _, (before, hs, *gates) = jax.lax.scan(step, start, gi, unroll=unroll())
    return hs, (weights, before, gates)


def _backward(saved, dhs):
    weights, before, gates = saved

    def step(dh, row):
        dh_out, h, r, z, n, m = row
        dh = dh + dh_out
        dn = dh * (1 - z) * (1 - n * n)
        dz = dh * (h - n) * z * (1 - z)
        dr = dn * m * r * (1 - r)
        dm = dn * r
        return dh * z + _times_transposed((dr, dz, dm), weights), (dr, dz, dn, dm)

    rows = (dhs, before, *gates)
    zero = jnp.zeros_like(dhs[0])
    dstart, (dr, dz, dn, dm) = jax.lax.scan(step, zero, rows, reverse=True, unroll=unroll())
    return (dr, dz, dn), tuple(before.T @ d for d in (dr, dz, dm)), jnp.sum(dm, axis=0), dstart


_scan.defvjp(_forward, _backward)
