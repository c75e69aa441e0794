"""Worlds by hand."""

from typing import Any

import jax
import jax.numpy as jnp

from macpf.envs.mpe.world import World
from macpf.types import TimeStep

KEY = jax.random.key(0)


def world(position: Any, landmarks: Any, velocity: Any = None, time: int = 0) -> World:
    """A world of plain numbers, at rest unless told otherwise."""
    position = jnp.asarray(position, jnp.float32)
    velocity = jnp.zeros_like(position) if velocity is None else jnp.asarray(velocity, jnp.float32)
    return World(position, velocity, jnp.asarray(landmarks, jnp.float32), jnp.asarray(time, jnp.int32))


def waited(env: Any, before: World) -> TimeStep:
    """What comes of doing nothing for a step."""
    return env.step(before, jnp.zeros(len(before.position), jnp.int32), KEY)[1]
