"""MAPPO's networks: the same step by step and at once, and how they begin."""

from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from macpf.networks.normed import Activation, Normed, make_normed
from tests.helpers import quick_jit

INPUTS, HIDDEN, OUTPUTS, T = 7, 6, 3, 5
RNG = np.random.default_rng(0)
XS = jnp.asarray(2 * RNG.standard_normal((T, INPUTS)) + 1, jnp.float32)
START = jnp.asarray(RNG.uniform(-1, 1, HIDDEN), jnp.float32)

both = pytest.mark.parametrize("recurrent", [False, True], ids=["feed-forward", "recurrent"])
activations = pytest.mark.parametrize(("activation", "gain"), [("relu", 2**0.5), ("tanh", 5 / 3)])


@cache
def fresh(recurrent: bool, activation: Activation = "relu") -> Normed:
    """A network as it is made."""
    key = jax.random.key(0)
    make = partial(make_normed, key, INPUTS, HIDDEN, OUTPUTS, layers=2, gain=0.01)
    return make(recurrent=recurrent, activation=activation)


@cache
def random(recurrent: bool, activation: Activation = "relu") -> Normed:
    """A network with other numbers everywhere: in biases and normalisations too."""
    rng = np.random.default_rng(1)
    return jax.tree.map(
        lambda x: jnp.asarray(0.7 * rng.standard_normal(x.shape), jnp.float32), fresh(recurrent, activation)
    )


def step_by_step(network: Normed, start: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """What calls one after the other give, and what is remembered after each."""
    call, hidden, outs, remembered = quick_jit(lambda x, h: network(x, h)), start, [], []
    for x in XS:
        out, hidden = call(x, hidden)
        outs.append(np.asarray(out))
        remembered.append(np.asarray(hidden))
    return np.stack(outs), np.stack(remembered)


@both
@activations
def test_step_by_step_is_the_whole(recurrent, activation, gain):
    network = random(recurrent, activation)
    start = jnp.zeros(HIDDEN if recurrent else 0)
    outs, hidden = quick_jit(lambda: network.unroll(XS, start))()
    expected, remembered = step_by_step(network, start)
    assert_allclose(outs, expected, rtol=1e-5, atol=1e-5)
    assert_allclose(hidden, remembered, rtol=1e-5, atol=1e-5)


def test_the_whole_begins_where_it_is_told_to():
    network = random(True)
    unroll = quick_jit(lambda start: network.unroll(XS, start))
    outs, hidden = unroll(START)
    expected, remembered = step_by_step(network, START)
    assert_allclose(outs, expected, rtol=1e-5, atol=1e-5)
    assert_allclose(hidden, remembered, rtol=1e-5, atol=1e-5)
    assert np.abs(outs - unroll(jnp.zeros(HIDDEN))[0]).min(axis=1)[0] > 1e-4
    pieces, at = [], START
    for part in (XS[:2], XS[2:]):
        made, states = network.unroll(part, at)
        pieces.append(made)
        at = states[-1]
    assert_allclose(jnp.concatenate(pieces), outs, rtol=1e-5, atol=1e-5)


def normalised(norm: eqx.nn.LayerNorm, x: np.ndarray) -> np.ndarray:
    spread = np.sqrt(x.var() + 1e-5)
    return np.asarray(norm.weight) * (x - x.mean()) / spread + np.asarray(norm.bias)


def through(layer: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(layer.weight, float) @ x + np.asarray(layer.bias)


@pytest.mark.parametrize(
    ("activation", "function"), [("relu", lambda x: np.maximum(x, 0)), ("tanh", np.tanh)]
)
def test_inputs_are_normalised_then_every_layer_after_its_activation(activation, function):
    network = random(False, activation)
    for x in np.asarray(XS, float):
        h = normalised(network.first, x)
        for layer, norm in network.blocks:
            h = normalised(norm, function(through(layer, h)))
        out, _ = network(jnp.asarray(x, jnp.float32), jnp.zeros(0))
        assert_allclose(out, through(network.head, h), rtol=1e-4, atol=1e-4)


def test_the_memory_is_normalised_for_the_head_and_carried_as_it_is():
    network = random(True)
    assert network.memory is not None
    cell, norm = network.memory
    out, hidden = network(XS[0], START)
    after = cell(network.features(XS[0]), START)
    assert_allclose(hidden, after, rtol=1e-5, atol=1e-6)
    assert_allclose(out, through(network.head, normalised(norm, np.asarray(after))), rtol=1e-4, atol=1e-5)


# How they begin


def assert_orthogonal(weight: Any, gain: float) -> None:
    """Rows, or columns where they are fewer, are at right angles and of length `gain`."""
    rows = np.asarray(weight, float)
    rows = rows if rows.shape[0] <= rows.shape[1] else rows.T
    assert_allclose(rows @ rows.T, gain**2 * np.eye(len(rows)), atol=1e-5 * max(1, gain**2))


@both
@activations
def test_weights_are_orthogonal_with_the_gain_of_their_activation(recurrent, activation, gain):
    network = fresh(recurrent, activation)
    assert len(network.blocks) == 2
    for layer, _ in network.blocks:
        assert_orthogonal(layer.weight, gain)
    assert_orthogonal(100 * network.head.weight, 1.0)
    assert (network.memory is not None) == recurrent
    if network.memory is not None:
        cell, _ = network.memory
        assert_orthogonal(cell.weight_ih, 1.0)
        assert_orthogonal(cell.weight_hh, 1.0)
        assert np.abs(cell.weight_ih - cell.weight_hh).max() > 0.1


@pytest.mark.parametrize("gain", [0.01, 1.0, 3.0])
def test_the_head_has_a_gain_of_its_own(gain):
    key = jax.random.key(2)
    made = make_normed(key, INPUTS, HIDDEN, OUTPUTS, recurrent=False, layers=1, activation="relu", gain=gain)
    assert_orthogonal(made.head.weight / gain, 1.0)
    assert_orthogonal(made.blocks[0][0].weight, 2**0.5)


@both
def test_biases_are_zero_at_first(recurrent):
    network = fresh(recurrent)
    biases = [network.first.bias, network.head.bias]
    biases += [part.bias for block in network.blocks for part in block]
    if network.memory is not None:
        cell, norm = network.memory
        biases += [cell.bias, cell.bias_n, norm.bias]
    for bias in biases:
        assert bias is not None
        assert_array_equal(bias, np.zeros(bias.shape))


def test_layers_begin_with_weights_of_their_own():
    network = make_normed(
        jax.random.key(3), HIDDEN, HIDDEN, HIDDEN, recurrent=True, layers=2, activation="relu", gain=2**0.5
    )
    weights = [layer.weight for layer, _ in network.blocks] + [network.head.weight]
    for i, one in enumerate(weights):
        for other in weights[:i]:
            assert np.abs(one - other).max() > 0.1
