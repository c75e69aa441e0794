"""Stacks of layers against products worked by hand, and several in one against each alone."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from macpf.networks.layers import Layers, make_layers, make_several, of_each


def linear(weight: list[list[float]], bias: list[float]) -> eqx.nn.Linear:
    made = eqx.nn.Linear(len(weight[0]), len(weight), key=jax.random.key(0))
    return eqx.tree_at(lambda x: (x.weight, x.bias), made, (jnp.asarray(weight), jnp.asarray(bias)))


FIRST = linear([[1.0, 2.0], [-1.0, 0.0], [0.0, -3.0]], [0.5, 0.0, 1.0])
SECOND = linear([[1.0, 10.0, 100.0], [-2.0, 0.0, 1.0]], [0.0, -4.0])


def test_layers_by_hand():
    """The first layer gives 5.5, -1 and -5: what is negative stops there, the end may be negative."""
    out = Layers((FIRST, SECOND))(jnp.asarray([1.0, 2.0]))
    assert_array_equal(out, [5.5, -15.0])


def test_one_layer_alone_is_linear():
    assert_array_equal(Layers((FIRST,))(jnp.asarray([1.0, 2.0])), [5.5, -1.0, -5.0])


@pytest.mark.parametrize("sizes", [(3, 2), (3, 5, 2), (3, 5, 4, 1)])
def test_made_layers_have_the_sizes_and_different_weights(sizes):
    layers = make_layers(jax.random.key(0), sizes).layers
    assert [layer.weight.shape for layer in layers] == [(o, i) for i, o in pairwise(sizes)]
    firsts = [float(layer.weight.ravel()[0] * layer.weight.shape[1] ** 0.5) for layer in layers]
    assert len(set(firsts)) == len(firsts)


def test_several_networks_in_one_are_each_of_them():
    key, x = jax.random.key(1), jnp.asarray([0.3, -1.0, 2.0])

    def make(key: jax.Array) -> Layers:
        return make_layers(key, (3, 5, 2))

    alone = [make(k)(x) for k in jax.random.split(key, 4)]
    together = of_each(make_several(key, 4, make), x)
    assert together.shape == (4, 2)
    assert_allclose(together, np.stack(alone), rtol=1e-5, atol=1e-6)
    assert np.ptp(np.asarray(together), axis=0).min() > 1e-3
