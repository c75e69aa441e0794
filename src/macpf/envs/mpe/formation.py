"""Formation control: agents stand on a circle about a landmark, at equal angles."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from macpf.envs.mpe.matching import MOST, matched
from macpf.envs.mpe.physics import Integration
from macpf.envs.mpe.world import (
    RewardScale,
    TimeLimit,
    World,
    arrived,
    begun,
    check_options,
    distances,
    moved,
    spec_of,
    start,
)
from macpf.errors import require
from macpf.types import EnvSpec, PRNGKey, TimeStep


@dataclass(frozen=True)
class FormationControl:
    """Places on a circle, the first where the agent of the smallest angle stands, the others at equal angles.

    An agent's reward is minus the mean of the clipped distances in the best matching of agents and places,
    which move with the agents.

    Args:
        n_agents: agents, and places.
        horizon: steps of an episode.
        radius: of an agent; agents push each other away when they touch.
        circle: radius of the formation.
        landmark_range: the landmark is uniform in [-landmark_range, landmark_range]^2.
        clip_distance: the most that a distance costs.
        reward_scale: the team's reward is the sum of its agents' or their mean.
        observe_others: agents see the offsets of the others.
        communication: agents see zeros where the others could speak.
        stop_on_success: the task ends when all are in place.
        success_distance: how near an agent must be to be in place.
        time_limit: the last step cuts an episode off, or ends the task.
        integration: what is moved first.
    """

    n_agents: int = 3
    horizon: int = 25
    radius: float = 0.05
    circle: float = 0.5
    landmark_range: float = 0.5
    clip_distance: float = 2.0
    reward_scale: RewardScale = "sum"
    observe_others: bool = False
    communication: bool = False
    stop_on_success: bool = False
    success_distance: float = 0.05
    time_limit: TimeLimit = "truncation"
    integration: Integration = "velocity-first"

    def __post_init__(self) -> None:
        check_options(self, MOST)
        require(self.circle > 0, f"the circle's radius must be positive, not {self.circle}")
        require(self.landmark_range >= 0, f"landmark_range must not be negative, not {self.landmark_range}")

    @property
    def spec(self) -> EnvSpec:
        return spec_of(self, landmarks=1)

    def slots(self, world: World) -> Float[Array, "N 2"]:
        return self.ring(world.landmarks, jnp.min(angles(world.position - world.landmarks)))

    def own_slots(self, world: World) -> Float[Array, "N 2"]:
        return self.ring(world.landmarks, jnp.zeros(()))

    def ring(self, centre: Float[Array, "1 2"], first: Float[Array, ""]) -> Float[Array, "N 2"]:
        """Places at equal angles from the first."""
        angle = first + jnp.asarray(2 * np.pi * np.arange(self.n_agents) / self.n_agents, jnp.float32)
        return centre + self.circle * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)

    def reset(self, key: PRNGKey) -> tuple[World, TimeStep]:
        agents_key, landmark_key = jax.random.split(key)
        r = self.landmark_range
        landmark = jax.random.uniform(landmark_key, (1, 2), minval=-r, maxval=r)
        world = start(agents_key, self.n_agents, landmark)
        return world, begun(self, world)

    def step(self, state: World, actions: Int[Array, " N"], key: PRNGKey) -> tuple[World, TimeStep]:
        world = moved(self, state, actions)
        costs = matched(distances(world, self.slots(world)))
        return world, arrived(self, world, -jnp.sum(jnp.clip(costs, max=self.clip_distance)), costs)


def angles(vectors: Float[Array, "*b 2"]) -> Float[Array, "*b"]:
    """From 0 to 2 pi."""
    x, y = jnp.moveaxis(vectors, -1, 0)
    angle = jnp.arctan2(y, x)
    return jnp.where(angle < 0, angle + 2 * math.pi, angle)
