"""Controllers of the particle tasks, written by hand: they know where everybody is, and learn nothing.

What they score says what a task's numbers mean: what is chance, what is near the best, and what is the best
for agents that do not see each other. Their plan is the place where each agent is to go.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from macpf.envs.mpe.matching import matching
from macpf.envs.mpe.physics import DAMPING, DIRECTIONS, DT, N_ACTIONS, PUSH, Integration, coasting
from macpf.envs.mpe.world import ParticleTask, World, distances
from macpf.errors import require
from macpf.types import Controller, PRNGKey

NOTHING, LEFT, RIGHT, DOWN, UP = range(N_ACTIONS)
FOREVER = math.inf

Places = Float[Array, "N 2"]


def shared_out(env: ParticleTask, world: World) -> Places:
    """A place for every agent, so that the total distance is least."""
    slots = env.slots(world)
    return slots[matching(distances(world, slots))]


@dataclass(frozen=True)
class Stay:
    """Does nothing."""

    def plan(self, env: ParticleTask, world: World) -> Places:
        return world.position

    def act(self, env: ParticleTask, world: World, places: Places, key: PRNGKey) -> Int[Array, " N"]:
        return jnp.zeros(env.n_agents, jnp.int32)


@dataclass(frozen=True)
class Random:
    """Every action as likely as any other."""

    def plan(self, env: ParticleTask, world: World) -> Places:
        return world.position

    def act(self, env: ParticleTask, world: World, places: Places, key: PRNGKey) -> Int[Array, " N"]:
        return jax.random.randint(key, (env.n_agents,), 0, N_ACTIONS)


@dataclass(frozen=True)
class Simple:
    """Pushes along the axis on which coasting would end further off, and lets go within a tolerance."""

    tolerance: float = 0.1

    def plan(self, env: ParticleTask, world: World) -> Places:
        return shared_out(env, world)

    def act(self, env: ParticleTask, world: World, places: Places, key: PRNGKey) -> Int[Array, " N"]:
        x, y = jnp.moveaxis(places - world.position - coasting(env.integration) * world.velocity, -1, 0)
        along_x, along_y = jnp.where(x < 0, LEFT, RIGHT), jnp.where(y < 0, DOWN, UP)
        push = jnp.where(jnp.abs(x) >= jnp.abs(y), along_x, along_y)
        near = jnp.maximum(jnp.abs(x), jnp.abs(y)) < self.tolerance
        return jnp.where(near, NOTHING, push).astype(jnp.int32)


@dataclass(frozen=True)
class LookAhead:
    """Tries all sequences of `depth` actions of each agent, as if alone, and takes the best one's first.

    A sequence costs the sum of the distances on its way, and `last` times the distance where coasting ends.
    Places are `shared` out at the start, or each agent has its `own`, whatever the others do.
    """

    depth: int = 5
    last: float = 4.0
    places: Literal["shared", "own"] = "shared"

    def __post_init__(self) -> None:
        require(1 <= self.depth <= 7, f"the depth of the search must be 1 to 7, not {self.depth}")

    def plan(self, env: ParticleTask, world: World) -> Places:
        return shared_out(env, world) if self.places == "shared" else env.own_slots(world)

    def act(self, env: ParticleTask, world: World, places: Places, key: PRNGKey) -> Int[Array, " N"]:
        def best(offset: Float[Array, " 2"], velocity: Float[Array, " 2"]) -> Int[Array, ""]:
            return best_push(offset, velocity, self.depth, self.last, env.integration)

        return jax.vmap(best)(places - world.position, world.velocity)


def best_push(
    offset: Float[Array, " 2"],
    velocity: Float[Array, " 2"],
    depth: int,
    last: float,
    integration: Integration,
) -> Int[Array, ""]:
    """The first action of the best sequence towards a place at an offset.

    Motion is linear: where a sequence leads is the sum of where the velocity leads and where the pushes do,
    which is a table. Sequences that begin alike share their beginning, so that few distances are needed.
    """

    def missed(pushes: int, steps: int | float) -> Float[Array, " K"]:
        carried, (pushed_x, pushed_y) = reach(pushes, steps, integration)
        x, y = offset - carried * velocity
        return jnp.sqrt((x - pushed_x) ** 2 + (y - pushed_y) ** 2)  # one array an axis: four times as fast

    value = missed(depth, depth) + last * missed(depth, FOREVER)
    for steps in range(depth - 1, 0, -1):
        value = missed(steps, steps) + jnp.min(value.reshape(N_ACTIONS, -1), axis=0)
    return jnp.argmin(value).astype(jnp.int32)


@cache
def reach(pushes: int, steps: int | float, integration: Integration) -> tuple[float, np.ndarray]:
    """Where a body is some steps later: for each unit of velocity, and for each sequence of so many pushes.

    Column 5^(k-1) a_k + ... + 5 a_2 + a_1 of the table is of the actions a_1, ..., a_k; its rows are x and y.
    """
    late = integration == "position-first"

    def moves(n: int | float) -> float:
        return (1 - (1 - DAMPING) ** n) / DAMPING  # 1 + (1 - DAMPING) + ..., n terms

    carried = DT * (1 if late else 1 - DAMPING) * moves(steps)
    pushed = np.zeros((1, 2))
    for before in range(pushes):
        effect = PUSH * DT * DT * moves(steps - before - late) * DIRECTIONS
        pushed = (effect[:, None] + pushed[None]).reshape(-1, 2)
    return carried, pushed.T.astype(np.float32)


CONTROLLERS: Mapping[str, Controller] = {
    "stay": Stay(),
    "random": Random(),
    "simple": Simple(),
    "look-ahead": LookAhead(),
    "fixed": LookAhead(places="own"),
}
