"""Line control: agents stand at equal distances on the line between two landmarks."""

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

TURNS = np.radians(np.arange(0, 360, 5)).astype(np.float32)
LONGEST = 1.35  # from every point of the square, one of the turned lines of this length ends inside it


@dataclass(frozen=True)
class LineControl:
    """Places at equal distances from one landmark to the other, both ends included.

    An agent's reward is minus the mean of the clipped distances in the best matching of agents and places.

    Args:
        n_agents: agents, and places.
        horizon: steps of an episode.
        radius: of an agent; agents push each other away when they touch.
        line_length: distance of the landmarks.
        landmark_range: the first landmark is uniform in [-landmark_range, landmark_range]^2, the other in a
            uniform direction from it, turned by 5 degrees until it lies in (-1, 1)^2.
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
    radius: float = 0.03
    line_length: float = 1.25
    landmark_range: float = 0.25
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
        long = self.line_length
        require(0 < long <= LONGEST, f"line_length must be positive and at most {LONGEST}, not {long}")
        r = self.landmark_range
        require(0 <= r < 1, f"landmark_range must not be negative, and below 1, not {r}")

    @property
    def spec(self) -> EnvSpec:
        return spec_of(self, landmarks=2)

    def slots(self, world: World) -> Float[Array, "N 2"]:
        first, last = world.landmarks[:1], world.landmarks[1:]
        share = jnp.asarray(np.linspace(0, 1, self.n_agents), jnp.float32)[:, None]
        return first + share * (last - first)

    def own_slots(self, world: World) -> Float[Array, "N 2"]:
        return self.slots(world)

    def reset(self, key: PRNGKey) -> tuple[World, TimeStep]:
        agents_key, first_key, angle_key = jax.random.split(key, 3)
        r = self.landmark_range
        first = jax.random.uniform(first_key, (2,), minval=-r, maxval=r)
        angle = jax.random.uniform(angle_key, (), maxval=2 * math.pi)
        world = start(agents_key, self.n_agents, jnp.stack([first, self._other_end(first, angle)]))
        return world, begun(self, world)

    def _other_end(self, first: Float[Array, " 2"], angle: Float[Array, ""]) -> Float[Array, " 2"]:
        """In the direction of the angle, turned in steps until it lies inside the square."""
        angles = angle + TURNS
        ends = first[None] + self.line_length * jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1)
        inside = jnp.all(jnp.abs(ends) < 1, axis=-1)
        return ends[jnp.argmax(inside)]

    def step(self, state: World, actions: Int[Array, " N"], key: PRNGKey) -> tuple[World, TimeStep]:
        world = moved(self, state, actions)
        costs = matched(distances(world, self.slots(world)))
        return world, arrived(self, world, -jnp.sum(jnp.clip(costs, max=self.clip_distance)), costs)
