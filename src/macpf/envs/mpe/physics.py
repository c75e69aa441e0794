"""The physics of the particle environments: pushes, damping, soft contacts."""

from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

DT = 0.1
DAMPING = 0.25
PUSH = 5.0
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 0.001
TINY = 1e-8  # agents on one spot have no line of centres: no force, instead of 0 / 0

DIRECTIONS = np.asarray([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)], np.float32)  # of the five actions
N_ACTIONS = len(DIRECTIONS)

# What is moved first: the original moves with the new velocity, newer packages with the old one.
Integration = Literal["velocity-first", "position-first"]


def coasting(integration: Integration) -> float:
    """How far a body goes without another push, for each unit of its velocity."""
    steps = DT / DAMPING  # DT (1 + (1 - DAMPING) + (1 - DAMPING)^2 + ...)
    return steps * (1 - DAMPING) if integration == "velocity-first" else steps


def pushes(actions: Int[Array, " N"]) -> Float[Array, "N 2"]:
    """The force of each agent's action: none, -x, +x, -y, +y."""
    x = (actions == 2).astype(jnp.float32) - (actions == 1)
    y = (actions == 4).astype(jnp.float32) - (actions == 3)
    return PUSH * jnp.stack([x, y], axis=-1)


def offsets(one: Float[Array, "N 2"], other: Float[Array, "M 2"]) -> Float[Array, "N M 2"]:
    """From each of the ones to each of the others."""
    return other[None] - one[:, None]


def lengths(vectors: Float[Array, "*b 2"]) -> Float[Array, "*b"]:
    return jnp.sqrt(jnp.sum(vectors**2, axis=-1))


def contacts(position: Float[Array, "N 2"], radius: float) -> Float[Array, "N 2"]:
    """The sum of the contact forces on each agent: along the line of centres, equal and opposite."""
    apart = -offsets(position, position)
    distance = lengths(apart)
    penetration = CONTACT_MARGIN * jnp.logaddexp(0.0, (2 * radius - distance) / CONTACT_MARGIN)
    force = CONTACT_FORCE * penetration / jnp.maximum(distance, TINY)
    return jnp.sum(force[..., None] * apart, axis=1)


def move(
    position: Float[Array, "N 2"],
    velocity: Float[Array, "N 2"],
    force: Float[Array, "N 2"],
    integration: Integration,
) -> tuple[Float[Array, "N 2"], Float[Array, "N 2"]]:
    """Position and velocity (mass 1) after one step under a force."""
    faster = (1 - DAMPING) * velocity + force * DT
    carried = faster if integration == "velocity-first" else velocity
    return position + carried * DT, faster
