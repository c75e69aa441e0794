"""Playing episodes: from a policy and an environment to a trajectory."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from macpf.types import Actions, Environment, Memory, Observation, PRNGKey, Trajectory

Act = Callable[[Memory, Observation, PRNGKey], tuple[Actions, Memory]]


def play(env: Environment[Any], act: Act, memory: Memory, key: PRNGKey) -> Trajectory:
    """One episode, padded to the longest: after its end the world stands still and the mask is False."""
    reset_key, key = jax.random.split(key)
    state, first = env.reset(reset_key)

    def advance(carry, key):
        state, observation, memory, alive = carry
        act_key, step_key = jax.random.split(key)
        actions, memory = act(memory, observation, act_key)
        state_next, arrived = env.step(state, actions, step_key)
        row = Trajectory(
            observation=observation,
            actions=actions,
            reward=jnp.where(alive, arrived.reward, 0.0),
            terminated=alive & arrived.terminated,
            won=alive & arrived.won,
            mask=alive,
        )
        state, observation = jax.tree.map(
            lambda new, old: jnp.where(alive, new, old),
            (state_next, arrived.observation),
            (state, observation),
        )
        return (state, observation, memory, alive & ~(arrived.terminated | arrived.truncated)), row

    start = (state, first.observation, memory, jnp.asarray(True))
    keys = jax.random.split(key, env.spec.horizon)
    (_, last, _, _), rows = jax.lax.scan(advance, start, keys)
    end = Trajectory(
        observation=last,
        actions=jnp.zeros_like(rows.actions[0]),
        reward=jnp.zeros_like(rows.reward[0]),
        terminated=jnp.asarray(False),
        won=jnp.asarray(False),
        mask=jnp.asarray(False),
    )
    return jax.tree.map(lambda rows, end: jnp.concatenate([rows, end[None]]), rows, end)
