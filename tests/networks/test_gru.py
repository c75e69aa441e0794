"""The GRU and its own backward pass, against equinox's cell and automatic differentiation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from macpf.networks import gru
from macpf.networks.gru import gru_step

T, H, B = 6, 4, 3
CELL = eqx.nn.GRUCell(H, H, key=jax.random.key(0))
XS, WEIGHTS = jnp.asarray(np.random.default_rng(0).standard_normal((2, B, T, H)), jnp.float32)


@pytest.fixture(params=["cpu", "gpu"])
def backend(request, monkeypatch):
    """Lets the code believe in a backend: what it compiles may differ, what it computes may not."""
    monkeypatch.setattr(jax, "default_backend", lambda: request.param)


def plain_scan(cell: eqx.nn.GRUCell, xs: jax.Array) -> jax.Array:
    """All hidden states, by equinox alone."""

    def step(h, x):
        h = cell(x, h)
        return h, h

    return jax.lax.scan(step, jnp.zeros(cell.hidden_size), xs)[1]


def gru_scan(cell: eqx.nn.GRUCell, xs: jax.Array) -> jax.Array:
    """From an empty memory."""
    return gru.gru_scan(cell, xs, jnp.zeros(cell.hidden_size))


def test_a_step_is_equinoxs():
    ours, theirs = jax.vmap(lambda x, h: (gru_step(CELL, x, h), CELL(x, h)))(XS[0], WEIGHTS[0])
    assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_scan_is_many_steps():
    h, hs = jnp.zeros(H), []
    for x in XS[0]:
        h = gru_step(CELL, x, h)
        hs.append(h)
    assert_allclose(gru_scan(CELL, XS[0]), jnp.stack(hs), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("backend")
def test_a_scan_is_that_of_equinox():
    assert_allclose(gru_scan(CELL, XS[0]), plain_scan(CELL, XS[0]), rtol=1e-5, atol=1e-6)


def gradients(scan, xs: jax.Array, weights: jax.Array):
    """The slopes of a weighted sum of all hidden states, by parameters and by inputs."""

    @jax.jit
    @jax.grad
    def slopes(params_and_inputs):
        cell, xs = params_and_inputs
        return jnp.sum(weights * jnp.tanh(scan(cell, xs)))

    return slopes((CELL, xs))


def assert_same_gradients(one, other):
    (cell, xs), (other_cell, other_xs) = one, other
    for name in ("weight_ih", "weight_hh", "bias", "bias_n"):
        expected = getattr(other_cell, name)
        assert jnp.max(jnp.abs(expected)) > 1e-2
        assert_allclose(getattr(cell, name), expected, rtol=1e-4, atol=1e-5, err_msg=name)
    assert_allclose(xs, other_xs, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("backend")
def test_its_gradient_is_that_of_the_plain_scan():
    assert_same_gradients(gradients(gru_scan, XS[0], WEIGHTS[0]), gradients(plain_scan, XS[0], WEIGHTS[0]))


def test_its_gradient_is_that_of_the_plain_scan_under_vmap():
    def over_batch(scan):
        return jax.vmap(scan, in_axes=(None, 0))

    ours, theirs = (gradients(over_batch(scan), XS, WEIGHTS) for scan in (gru_scan, plain_scan))
    assert_same_gradients(ours, theirs)


def test_its_gradient_is_that_of_the_plain_scan_under_vmap_over_cells():
    cells = jax.tree.map(lambda p: p[None] * jnp.arange(1.0, B + 1).reshape(-1, *[1] * p.ndim), CELL)

    def slopes(scan):
        def loss(cell, xs, weights):
            return jnp.sum(weights * scan(cell, xs))

        return jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1))))(cells, XS, WEIGHTS)

    for x, y in zip(jax.tree.leaves(slopes(gru_scan)), jax.tree.leaves(slopes(plain_scan)), strict=True):
        assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_a_scan_goes_on_from_any_memory():
    """Its second half from where the first ended is the whole, and so are all gradients."""

    def in_two(cell, xs):
        first = gru_scan(cell, xs[:2])
        return jnp.concatenate([first, gru.gru_scan(cell, xs[2:], first[-1])])

    assert_allclose(in_two(CELL, XS[0]), gru_scan(CELL, XS[0]), rtol=1e-5, atol=1e-6)
    assert_same_gradients(gradients(in_two, XS[0], WEIGHTS[0]), gradients(gru_scan, XS[0], WEIGHTS[0]))


def test_a_cell_without_biases_is_refused():
    bare = eqx.nn.GRUCell(H, H, use_bias=False, key=jax.random.key(0))
    with pytest.raises(ValueError, match="biases"):
        gru_scan(bare, XS[0])
