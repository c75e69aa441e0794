"""The gated recurrent unit over a whole episode, with a backward pass of its own.

Only what is sequential is in a loop: the products with the hidden weights. A first walk finds all hidden
states, and stores nothing else. Given these, every step is made again at once (`_again`), so that the
gradients of all weights are single products over all steps of all episodes; and what a step does to the
slope of its hidden state is one factor for each gate, known before the walk back begins. Left to automatic
differentiation, gates would be stored and sums of gradients carried through every step.

The three gates (reset, update, candidate) are kept as three arrays rather than as slices of one: slices
keep a CPU from vectorising the loop's body. A GPU, which waits for launches, makes their three products as
one; and loops take each step out of arrays in which time is not the first axis, so nothing is transposed.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from macpf.backend import on_cpu, unroll

Gates = tuple[Float[Array, "..."], ...]  # reset, update, candidate

sg = jax.lax.stop_gradient


def gru_step(
    cell: eqx.nn.GRUCell, inputs: Float[Array, " H"], hidden: Float[Array, " H"]
) -> Float[Array, " H"]:
    """One step; equal to `cell(inputs, hidden)`."""
    weights_i, weights_h, biases, bias_n = _split(cell)
    gi = tuple(inputs @ w + b for w, b in zip(weights_i, biases, strict=True))
    return _advance(gi, weights_h, bias_n, hidden)


def gru_scan(
    cell: eqx.nn.GRUCell, inputs: Float[Array, "T H"], start: Float[Array, " H"]
) -> Float[Array, "T H"]:
    """All hidden states after `start`."""
    return gru_again(cell, inputs, start, gru_walk(cell, inputs, start))


def gru_walk(
    cell: eqx.nn.GRUCell, inputs: Float[Array, "T H"], start: Float[Array, " H"]
) -> Float[Array, "T H"]:
    """All hidden states after `start`, as constants."""
    weights_i, weights_h, biases, bias_n = _split(sg(cell))
    gi = _project(sg(inputs), weights_i, biases)

    def step(t, carry):
        h, hs = carry
        h = _advance(_at(gi, t), weights_h, bias_n, h)
        return h, jax.lax.dynamic_update_index_in_dim(hs, h, t, 0)

    hs = jnp.zeros((len(inputs), cell.hidden_size))
    return jax.lax.fori_loop(0, len(inputs), step, (sg(start), hs), unroll=unroll())[1]


def gru_again(
    cell: eqx.nn.GRUCell, inputs: Float[Array, "T H"], start: Float[Array, " H"], hs: Float[Array, "T H"]
) -> Float[Array, "T H"]:
    """The hidden states that `gru_walk` found, as a function of what made them."""
    weights_i, weights_h, biases, bias_n = _split(cell)
    gi = _project(inputs, weights_i, biases)
    none = jnp.zeros_like(bias_n)
    gh = _project(_before(sg(start), sg(hs)), weights_h, (none, none, bias_n))
    return _again(gi, gh, sg(weights_h), start, sg(hs))


def _split(cell: eqx.nn.GRUCell) -> tuple[Gates, Gates, Gates, Float[Array, " H"]]:
    """The cell's parameters gate by gate, weights transposed."""
    if cell.bias is None or cell.bias_n is None:
        raise ValueError("a GRU cell without biases is not supported")
    weights_i, weights_h, biases = (jnp.split(p, 3) for p in (cell.weight_ih, cell.weight_hh, cell.bias))
    return tuple(w.T for w in weights_i), tuple(w.T for w in weights_h), tuple(biases), cell.bias_n


def _project(x: Float[Array, "T H"], weights: Gates, biases: Gates) -> Gates:
    """What each gate is told by all steps at once."""
    return tuple(x @ w + b[None] for w, b in zip(weights, biases, strict=True))


def _at(rows: Gates, t: Array) -> Gates:
    """One step out of all."""
    return tuple(jax.lax.dynamic_index_in_dim(row, t, 0, keepdims=False) for row in rows)


def _before(start: Float[Array, " H"], hs: Float[Array, "T H"]) -> Float[Array, "T H"]:
    """The hidden state that each step starts from."""
    return jnp.concatenate([start[None], hs[:-1]])


def _advance(
    gi: Gates, weights: Gates, bias_n: Float[Array, " H"], h: Float[Array, " H"]
) -> Float[Array, " H"]:
    """The next hidden state."""
    rh, zh, nh = _times(h, weights)
    _, z, n = _gates(gi, (rh, zh, nh + bias_n))
    return n + z * (h - n)


def _gates(gi: Gates, gh: Gates) -> Gates:
    """The gates by what the input and what the hidden state tell them."""
    r, z = jax.nn.sigmoid(gi[0] + gh[0]), jax.nn.sigmoid(gi[1] + gh[1])
    return r, z, jnp.tanh(gi[2] + r * gh[2])


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
def _again(
    gi: Gates, gh: Gates, weights: Gates, start: Float[Array, " H"], hs: Float[Array, "T H"]
) -> Float[Array, "T H"]:
    """The hidden states, which are known; only their slopes by `gi`, `gh` and `start` are of interest."""
    return hs


def _forward(gi, gh, weights, start, hs):
    return hs, (gi, gh, weights, start, hs)


def _backward(saved, dhs):
    gi, gh, weights, start, hs = saved
    r, z, n = _gates(gi, gh)
    to_n = (1 - z) * (1 - n * n)
    to_m = to_n * r
    to_z = (_before(start, hs) - n) * z * (1 - z)
    to_r = to_m * gh[2] * (1 - r)
    last = len(hs) - 1

    def step(i, carry):
        dh, dhs_all = carry
        dh_out, z_t, *to_gates = _at((dhs, z, to_r, to_z, to_m), last - i)
        dh = dh + dh_out
        dhs_all = jax.lax.dynamic_update_index_in_dim(dhs_all, dh, last - i, 0)
        return dh * z_t + _times_transposed(tuple(dh * to for to in to_gates), weights), dhs_all

    zero = (jnp.zeros_like(start), jnp.zeros_like(hs))
    dstart, dh = jax.lax.fori_loop(0, len(hs), step, zero, unroll=unroll())
    dr, dz, dn, dm = (dh * to for to in (to_r, to_z, to_n, to_m))
    return (dr, dz, dn), (dr, dz, dm), None, dstart, None


_again.defvjp(_forward, _backward)
