"""Simple spread: agents cover landmarks and keep out of each other's way."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
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

MANY = 100


@dataclass(frozen=True)
class SimpleSpread:
    """As many landmarks as agents; each agent pays for uncovered landmarks and for collisions.

    An agent's reward is, by `spread_reward`:
    `nearest`: minus the sum over landmarks of the nearest agent's distance, minus 1 for every collision;
    `hungarian`: minus the mean distance of agents and landmarks in the best matching, clipped;
    `local-ratio`: the first sum times 1 - local_ratio, collisions times local_ratio.

    Args:
        n_agents: agents, and landmarks.
        horizon: steps of an episode.
        radius: of an agent; two collide when their centres are less than two radii apart.
        landmark_scale: landmarks are uniform in the square of so many times [-1, 1]^2.
        spread_reward: what an agent is paid.
        count_self_collision: an agent collides with itself too, which costs it 1 a step (nearest).
        clip_distance: the most that the mean distance costs (hungarian).
        local_ratio: the share of collisions in the reward (local-ratio).
        reward_scale: the team's reward is the sum of its agents' or their mean.
        observe_others: agents see the offsets of the others.
        communication: agents see zeros where the others could speak.
        stop_on_success: the task ends when all landmarks are covered.
        success_distance: how near an agent must be to cover a landmark.
        time_limit: the last step cuts an episode off, or ends the task.
        integration: what is moved first.
    """

    n_agents: int = 3
    horizon: int = 25
    radius: float = 0.15
    landmark_scale: float = 0.8
    spread_reward: Literal["nearest", "hungarian", "local-ratio"] = "nearest"
    count_self_collision: bool = True
    clip_distance: float = 15.0
    local_ratio: float = 0.5
    reward_scale: RewardScale = "sum"
    observe_others: bool = True
    communication: bool = True
    stop_on_success: bool = False
    success_distance: float = 0.1
    time_limit: TimeLimit = "truncation"
    integration: Integration = "velocity-first"

    def __post_init__(self) -> None:
        check_options(self, most=MOST if self.spread_reward == "hungarian" else MANY)
        require(self.landmark_scale > 0, f"landmark_scale must be positive, not {self.landmark_scale}")
        require(0 <= self.local_ratio <= 1, f"local_ratio is a share, from 0 to 1, not {self.local_ratio}")

    @property
    def spec(self) -> EnvSpec:
        return spec_of(self, landmarks=self.n_agents)

    def slots(self, world: World) -> Float[Array, "N 2"]:
        return world.landmarks

    def own_slots(self, world: World) -> Float[Array, "N 2"]:
        return world.landmarks

    def reset(self, key: PRNGKey) -> tuple[World, TimeStep]:
        agents_key, landmarks_key = jax.random.split(key)
        square = jax.random.uniform(landmarks_key, (self.n_agents, 2), minval=-1.0, maxval=1.0)
        world = start(agents_key, self.n_agents, self.landmark_scale * square)
        return world, begun(self, world)

    def step(self, state: World, actions: Int[Array, " N"], key: PRNGKey) -> tuple[World, TimeStep]:
        world = moved(self, state, actions)
        distance = distances(world, world.landmarks)
        if self.spread_reward == "hungarian":
            costs = matched(distance)
            total = -self.n_agents * jnp.clip(jnp.mean(costs), max=self.clip_distance)
        else:
            costs = jnp.min(distance, axis=0)
            total = self._paid(jnp.sum(costs), self._collisions(world))
        return world, arrived(self, world, total, costs)

    def _collisions(self, world: World) -> Float[Array, ""]:
        """The number of ordered pairs that collide, everybody with itself among them."""
        return jnp.sum(distances(world, world.position) < 2 * self.radius, dtype=jnp.float32)

    def _paid(self, uncovered: Float[Array, ""], collisions: Float[Array, ""]) -> Float[Array, ""]:
        """The sum of the agents' rewards."""
        n = self.n_agents
        if self.spread_reward == "local-ratio":
            return -(1 - self.local_ratio) * n * uncovered - self.local_ratio * (collisions - n)
        return -n * uncovered - collisions + (0 if self.count_self_collision else n)
