"""Optimisers against formulas written out in numpy, and the rules of shared states and of lagging copies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from macpf.errors import UserError
from macpf.optim import Adam, RMSprop, descend, descend_lists, init, init_lists, lag

BIG = 1e9  # a clip that is never reached


def test_rmsprop_is_pytorchs():
    lr, decay, eps = 0.1, 0.9, 0.5  # an eps large enough to tell inside from outside of the root
    optimiser = RMSprop(lr=lr, decay=decay, eps=eps, clip=BIG)
    rng = np.random.default_rng(0)
    params = {"w": jnp.asarray(rng.standard_normal((2, 3)), jnp.float32), "b": jnp.zeros(3)}
    expected = {name: np.asarray(p, np.float64) for name, p in params.items()}
    square = {name: np.zeros_like(p) for name, p in expected.items()}
    state = init(optimiser, params)
    for _ in range(5):
        gradient = {name: rng.standard_normal(p.shape) for name, p in expected.items()}
        as_jax = {name: jnp.asarray(g, jnp.float32) for name, g in gradient.items()}
        params, state = descend(optimiser, params, as_jax, state)
        for name, g in gradient.items():
            square[name] = decay * square[name] + (1 - decay) * g**2
            expected[name] = expected[name] - lr * g / (np.sqrt(square[name]) + eps)
            assert_allclose(params[name], expected[name], rtol=1e-5, atol=1e-6)


def test_adam_first_step_is_the_learning_rate():
    optimiser = Adam(lr=0.1, clip=BIG)
    params = {"w": jnp.asarray([1.0, 2.0])}
    moved, _ = descend(optimiser, params, {"w": jnp.asarray([3.0, -0.5])}, init(optimiser, params))
    assert_allclose(moved["w"], [0.9, 2.1], rtol=1e-5)


@pytest.mark.parametrize("make", [RMSprop, Adam])
def test_clip_shortens_long_gradients_alone(make):
    params = {"a": jnp.zeros(1), "b": jnp.zeros(1)}
    gradient = {"a": jnp.asarray([3.0]), "b": jnp.asarray([4.0])}  # of length 5 together

    def step(gradient, clip):
        optimiser = make(clip=clip, eps=0.5)
        return jnp.stack(jax.tree.leaves(descend(optimiser, params, gradient, init(optimiser, params))[0]))

    fifth = jax.tree.map(lambda g: g / 5, gradient)
    assert_allclose(step(gradient, 1.0), step(fifth, BIG), rtol=1e-5)
    assert_array_equal(step(gradient, 6.0), step(gradient, BIG))
    assert not np.allclose(step(gradient, 1.0), step(gradient, BIG))


@pytest.mark.parametrize("make", [RMSprop, Adam])
def test_an_annealed_learning_rate_falls_to_nothing_in_a_straight_line(make):
    params = {"w": jnp.ones(3)}
    steady, falling = make(lr=0.1), make(lr=0.1, anneal=4)
    states = [init(steady, params), init(falling, params)]
    for n in range(6):
        gradient = {"w": jnp.asarray([1.0, -2.0, 0.5]) * (n + 1)}
        (one, states[0]), (two, states[1]) = (
            descend(optimiser, params, gradient, state)
            for optimiser, state in zip((steady, falling), states, strict=True)
        )
        assert_allclose(two["w"] - 1, max(0.0, 1 - n / 4) * (one["w"] - 1), rtol=1e-4, atol=1e-7)
        assert not np.allclose(one["w"], 1)


def test_impossible_optimisers_are_refused():
    for make in (RMSprop, Adam):
        with pytest.raises(UserError, match="anneal"):
            make(anneal=-1)
        with pytest.raises(UserError, match="learning rate"):
            make(lr=0.0)
        with pytest.raises(UserError, match="clip"):
            make(clip=-1.0)


def squares(state) -> list[float]:
    """The running squares in an optimiser's state; the networks of these tests have one number each."""
    return [float(x) for leaf in jax.tree.leaves(state) for x in jnp.ravel(leaf)]


@pytest.fixture
def networks():
    return {"a": jnp.asarray(1.0), "b": jnp.asarray(2.0)}


OPTIMISER = RMSprop(lr=0.1, decay=0.5, clip=BIG)
BOTH = {"a": jnp.asarray(2.0), "b": jnp.asarray(4.0)}
ONE = {"a": jnp.asarray(2.0)}


def test_a_shared_state_decays_for_absent_networks(networks):
    lists = (("a", "b"),)
    states = init_lists(OPTIMISER, networks, lists)
    after_both, states = descend_lists(OPTIMISER, networks, BOTH, states, lists)
    assert_allclose(squares(states["a+b"]), [2.0, 8.0])
    after_one, states = descend_lists(OPTIMISER, after_both, ONE, states, lists)
    assert_allclose(squares(states["a+b"]), [3.0, 4.0])
    assert after_one["a"] != after_both["a"]
    assert after_one["b"] == after_both["b"]


def test_states_of_their_own_do_not_decay_for_absent_networks(networks):
    lists = (("a",), ("b",))
    states = init_lists(OPTIMISER, networks, lists)
    _, states = descend_lists(OPTIMISER, networks, BOTH, states, lists)
    _, states = descend_lists(OPTIMISER, networks, ONE, states, lists)
    assert_allclose(squares(states["a"]), [3.0])
    assert_allclose(squares(states["b"]), [8.0])


def test_a_list_shares_one_clip(networks):
    optimiser = RMSprop(lr=0.1, decay=0.5, clip=1.0)
    gradients = {"a": jnp.asarray(3.0), "b": jnp.asarray(4.0)}
    shared, apart = (("a", "b"),), (("a",), ("b",))
    _, together = descend_lists(
        optimiser, networks, gradients, init_lists(optimiser, networks, shared), shared
    )
    _, alone = descend_lists(optimiser, networks, gradients, init_lists(optimiser, networks, apart), apart)
    assert_allclose(squares(together["a+b"]), [0.18, 0.32], rtol=1e-5)
    assert_allclose(squares(alone["a"]) + squares(alone["b"]), [0.5, 0.5], rtol=1e-5)


def test_lists_do_not_change_what_they_are_given(networks):
    lists = (("a",), ("b",))
    states = init_lists(OPTIMISER, networks, lists)
    descend_lists(OPTIMISER, networks, BOTH, states, lists)
    assert networks == {"a": 1.0, "b": 2.0}
    assert squares(states["a"]) == [0.0]


def test_lag_copies_at_every_period():
    target, seen = {"w": jnp.asarray(-1.0)}, []
    for updates in range(1, 8):
        target = lag(target, {"w": jnp.asarray(float(updates))}, jnp.asarray(updates), 3)
        seen.append(float(target["w"]))
    assert seen == [-1.0, -1.0, 3.0, 3.0, 3.0, 6.0, 6.0]
