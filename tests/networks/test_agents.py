"""Bodies, whole episodes at once or step by step, and the inputs they are given."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from macpf.networks.agents import (
    agent_inputs,
    input_size,
    make_agent,
    make_body,
    previous_actions,
    unroll_together,
)
from macpf.types import EnvSpec

T, N, INPUTS, HIDDEN = 5, 3, 4, 6
XS = jnp.asarray(np.random.default_rng(0).standard_normal((T, N, INPUTS)), jnp.float32)

both_bodies = pytest.mark.parametrize("recurrent", [False, True])


def stepped(body, xs: jax.Array) -> jax.Array:
    """The features of one agent's episode, step by step."""
    memory, features = jnp.zeros(body.memory_size), []
    for x in xs:
        feature, memory = body(x, memory)
        features.append(feature)
    return jnp.stack(features)


@both_bodies
def test_unrolling_is_stepping(recurrent):
    body = make_body(jax.random.key(0), INPUTS, HIDDEN, recurrent)
    assert body.memory_size == (HIDDEN if recurrent else 0)
    assert_allclose(body.unroll(XS[:, 0]), stepped(body, XS[:, 0]), rtol=1e-5, atol=1e-6)


@both_bodies
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_unrolling_together_is_unrolling_each(recurrent, backend, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    bodies = [make_body(key, INPUTS, HIDDEN, recurrent) for key in jax.random.split(jax.random.key(0))]
    for fixed in (0, 1):
        together = unroll_together(bodies[fixed:], XS, fixed=bodies[:fixed])
        for body, features in zip((*bodies[fixed:], *bodies[:fixed]), together, strict=True):
            expected = jax.jit(jax.vmap(partial(stepped, body), in_axes=1, out_axes=1))(XS)
            assert_allclose(features, expected, rtol=1e-5, atol=1e-6)


@both_bodies
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_slopes_are_those_of_unrolling_each_and_fixed_bodies_have_none(recurrent, backend, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    keys = jax.random.split(jax.random.key(0), 3)
    bodies = [make_body(key, INPUTS, HIDDEN, recurrent) for key in keys]
    weights = jax.random.normal(jax.random.key(1), (3, *XS.shape[:2], HIDDEN))

    def together(bodies):
        return jnp.sum(weights * jnp.stack(unroll_together(bodies[:2], XS, fixed=bodies[2:])))

    def alone(bodies):
        unrolled = [jax.vmap(body.unroll, in_axes=1, out_axes=1)(XS) for body in bodies[:2]]
        return jnp.sum(weights[:2] * jnp.stack(unrolled))

    found, expected = jax.jit(jax.grad(together))(bodies), jax.jit(jax.grad(alone))(bodies)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    assert all(jnp.any(x != 0) for x in jax.tree.leaves(found[0]))
    assert not any(jnp.any(x != 0) for x in jax.tree.leaves(found[2]))


def test_agent_inputs_are_observation_previous_action_and_index():
    obs = jnp.asarray([[0.1, 0.2], [0.3, 0.4]])
    assert_allclose(
        agent_inputs(obs, jnp.asarray([-1, 2]), 3),
        [[0.1, 0.2, 0, 0, 0, 1, 0], [0.3, 0.4, 0, 0, 1, 0, 1]],
    )


def test_agent_inputs_have_any_leading_axes():
    rng = np.random.default_rng(0)
    obs, previous = rng.random((4, T, N, 2), np.float32), rng.integers(-1, 3, (4, T, N))
    whole = agent_inputs(jnp.asarray(obs), jnp.asarray(previous), 3)
    assert_array_equal(
        np.asarray(whole)[2, 3], agent_inputs(jnp.asarray(obs[2, 3]), jnp.asarray(previous[2, 3]), 3)
    )


def test_previous_actions_are_those_of_the_row_before():
    actions = jnp.asarray([[1, 2], [3, 4], [5, 6]])
    assert_array_equal(previous_actions(actions), [[-1, -1], [1, 2], [3, 4]])


@both_bodies
def test_an_agent_fits_its_task(recurrent):
    spec = EnvSpec(n_agents=3, n_actions=4, obs_dim=5, state_dim=1, horizon=1)
    agent = make_agent(jax.random.key(0), spec, HIDDEN, recurrent)
    xs = agent_inputs(jnp.ones((3, 5)), jnp.full(3, -1), 4)
    assert xs.shape == (3, input_size(spec))
    h, _ = jax.vmap(agent.body)(xs, jnp.zeros((3, agent.body.memory_size)))
    assert jax.vmap(agent.head)(h).shape == (3, 4)
    assert len(np.unique(np.asarray(h), axis=0)) == 3  # its index alone tells an agent from another
