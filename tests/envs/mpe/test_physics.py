"""Pushes, damping and contacts, by hand and by what physics keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from macpf.envs.mpe.physics import Integration, coasting, contacts, move, pushes
from macpf.envs.mpe.world import others
from tests.helpers import quick_jit

NOTHING, LEFT, RIGHT, DOWN, UP = range(5)
ORDERS: tuple[Integration, ...] = ("velocity-first", "position-first")
positions = arrays(np.float32, (4, 2), elements=st.floats(-1, 1, width=32))
small = quick_jit(lambda position: contacts(position, 0.05))
large = quick_jit(lambda position: contacts(position, 0.15))


def alone(actions: list[int], integration: Integration) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities along x of one agent that starts at 0, at rest."""
    position, velocity = jnp.zeros((1, 2)), jnp.zeros((1, 2))
    rows = []
    for action in actions:
        position, velocity = move(position, velocity, pushes(jnp.asarray([action])), integration)
        rows.append((position[0, 0], velocity[0, 0]))
    return np.asarray(rows)[:, 0], np.asarray(rows)[:, 1]


def test_the_five_actions():
    assert_allclose(pushes(jnp.arange(5)), [[0, 0], [-5, 0], [5, 0], [0, -5], [0, 5]])


def test_one_push_from_rest():
    position, velocity = alone([RIGHT, NOTHING, NOTHING], "velocity-first")
    assert_allclose(velocity, [0.5, 0.375, 0.28125], rtol=1e-6)
    assert_allclose(np.diff(position, prepend=0), [0.05, 0.0375, 0.028125], rtol=1e-5)


def test_one_push_moves_a_fifth_in_all():
    for integration in ORDERS:
        assert_allclose(alone([RIGHT] + [NOTHING] * 60, integration)[0][-1], 0.2, rtol=1e-5)


def test_position_first_moves_with_the_old_velocity():
    position, velocity = alone([RIGHT, NOTHING, NOTHING], "position-first")
    assert_allclose(velocity, [0.5, 0.375, 0.28125], rtol=1e-6)
    assert_allclose(position, [0, 0.05, 0.0875], rtol=1e-6)


def test_ten_pushes():
    _, velocity = alone([RIGHT] * 10, "velocity-first")
    assert_allclose(velocity[-1], 2 * (1 - 0.75**10), rtol=1e-6)
    assert_allclose(velocity[-1], 1.887, atol=5e-4)


@pytest.mark.parametrize("integration", ORDERS)
def test_coasting_is_told_beforehand(integration):
    position, velocity = alone([RIGHT, RIGHT, LEFT, RIGHT] + [NOTHING] * 60, integration)
    assert_allclose(position[3] + coasting(integration) * velocity[3], position[-1], rtol=1e-5)


def test_a_contact_by_hand():
    force = large(jnp.asarray([[0.0, 0.0], [0.29, 0.0]]))
    assert_allclose(force, [[-1, 0], [1, 0]], rtol=1e-3)
    _, velocity = move(jnp.zeros((2, 2)), jnp.zeros((2, 2)), force, "velocity-first")
    assert_allclose(velocity, [[-0.1, 0], [0.1, 0]], rtol=1e-3)


def test_a_contact_is_soft_where_two_just_touch():
    force = large(jnp.asarray([[0.0, 0.0], [0.0, 0.3]]))
    assert_allclose(force, [[0, -0.1 * np.log(2)], [0, 0.1 * np.log(2)]], rtol=1e-3)


def test_a_contact_has_three_sides():
    corners = 0.1 * np.stack([np.cos([0, 2, 4]), np.sin([0, 2, 4])], axis=-1)
    together = np.asarray(large(jnp.asarray(corners, jnp.float32)))
    pairs = np.zeros((3, 2))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        pairs[[i, j]] += np.asarray(large(jnp.asarray(corners[[i, j]], jnp.float32)))
    assert_allclose(together, pairs, rtol=1e-4)


@given(positions)
def test_contacts_keep_momentum_and_push_apart(position):
    force = np.asarray(large(jnp.asarray(position)))
    assert np.isfinite(force).all()
    assert_allclose(force.sum(axis=0), 0, atol=1e-4 * (1 + np.abs(force).max()))
    one, other = np.asarray(large(jnp.asarray(position[:2])))
    assert np.sum((position[0] - position[1]) * one) >= 0
    assert_allclose(one, -other)


@given(positions)
def test_what_does_not_touch_is_not_pushed(position):
    corners = np.asarray([[-1, -1], [-1, 1], [1, -1], [1, 1]], np.float32)
    assert np.abs(small(jnp.asarray(corners + 0.9 * position))).max() < 1e-6


def test_agents_on_one_spot_do_not_break():
    assert_allclose(large(jnp.zeros((3, 2))), 0)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_others_are_by_index_without_oneself(n):
    pairs = jax.random.normal(jax.random.key(n), (n, n, 2))
    expected = [[pairs[i, j] for j in range(n) if j != i] for i in range(n)]
    assert_allclose(others(pairs), np.asarray(expected).reshape(n, n - 1, 2))
