"""What makes a mixer a mixer: more for an agent is never less for the team."""

from functools import cache, partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from macpf.networks.mixers import Hyper, HyperMixer
from macpf.types import EnvSpec

SPEC = EnvSpec(n_agents=3, n_actions=2, obs_dim=1, state_dim=4, horizon=1)
RNG = np.random.default_rng(0)
STATES = jnp.asarray(3 * RNG.standard_normal((50, 4)), jnp.float32)
QS = jnp.asarray(3 * RNG.standard_normal((50, 3)), jnp.float32)


@cache
def mixer(form: Literal["linear", "elu"]) -> HyperMixer:
    return Hyper(embed=8, hidden=16, form=form).make(jax.random.key(0), SPEC)


def value(mix: HyperMixer, q: jax.Array, state: jax.Array) -> jax.Array:
    """The mixer has no use for the best values and the actions."""
    return mix(q, q, jnp.zeros(q.shape, int), state)


def slopes(mix: HyperMixer, qs: jax.Array, states: jax.Array) -> jax.Array:
    return jax.jit(jax.vmap(jax.grad(partial(value, mix))))(qs, states)


def test_the_linear_mixer_is_a_weighted_sum():
    mix = mixer("linear")
    k = slopes(mix, QS, STATES)
    values = jax.jit(jax.vmap(partial(value, mix)))
    beta = values(jnp.zeros_like(QS), STATES)
    assert_allclose(k, slopes(mix, -2 * QS, STATES), rtol=1e-5, atol=1e-6)  # the same wherever taken
    assert_allclose(values(QS, STATES), jnp.sum(k * QS, axis=-1) + beta, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["linear", "elu"])
def test_its_slopes_are_not_negative(form):
    k = slopes(mixer(form), QS, STATES)
    assert jnp.min(k) >= 0
    assert jnp.max(k) > 0


@pytest.mark.parametrize("form", ["linear", "elu"])
def test_more_for_an_agent_is_not_less_for_the_team(form):
    mix = jax.jit(jax.vmap(partial(value, mixer(form))))
    more = jnp.asarray(RNG.exponential(size=QS.shape), jnp.float32)
    assert jnp.all(mix(QS + more, STATES) >= mix(QS, STATES))


def test_the_elu_mixer_is_no_weighted_sum():
    mix = mixer("elu")
    assert not np.allclose(slopes(mix, QS, STATES), slopes(mix, -2 * QS, STATES), rtol=1e-2)


def test_weights_and_bias_are_functions_of_the_state():
    mix = mixer("linear")
    here, there = STATES[:1], STATES[1:2]
    assert not np.allclose(slopes(mix, QS[:1], here), slopes(mix, QS[:1], there), rtol=1e-2)
    assert not np.allclose(
        value(mix, jnp.zeros(3), STATES[0]), value(mix, jnp.zeros(3), STATES[1]), rtol=1e-2
    )


def test_the_linear_mixer_written_out():
    mix, q, state = mixer("linear"), QS[0], STATES[0]

    def layers(net, x):
        first, second = net.layers
        hidden = np.maximum(np.asarray(first.weight) @ x + np.asarray(first.bias), 0)
        return np.asarray(second.weight) @ hidden + np.asarray(second.bias)

    s = np.asarray(state)
    w1 = np.abs(layers(mix.w1, s)).reshape(3, 8)
    hidden = np.asarray(q) @ w1 + np.asarray(mix.b1.weight) @ s + np.asarray(mix.b1.bias)
    expected = hidden @ np.abs(layers(mix.w2, s)) + layers(mix.v, s)[0]
    assert_allclose(value(mix, q, state), expected, rtol=1e-4)


def test_its_leaves_are_arrays():
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(mixer("elu")))
