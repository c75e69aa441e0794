"""The multi-goal point mass of the paper's Figure 1: two agents move one point, if they agree where."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from macpf.errors import require
from macpf.types import EnvSpec, Observation, PRNGKey, TimeStep

DIRECTIONS = ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))


class Point(eqx.Module):
    """Where the point is, and how many steps it has been under way."""

    position: Float[Array, " 2"]
    time: Int[Array, ""]


@dataclass(frozen=True)
class MultiGoal:
    """A point in a square with four goals on the axes, rewarded by a Gaussian around each.

    It moves by `stride` when all agents choose the same of four directions and stays otherwise. Nothing
    ends the task but the time limit.
    """

    horizon: int = 20
    stride: float = 1.0
    goal_distance: float = 5.0
    goal_width: float = 1.0
    bound: float = 7.0
    start_spread: float = 0.1
    n_agents: int = 2

    def __post_init__(self) -> None:
        require(self.horizon > 0, f"an episode lasts at least one step, not {self.horizon}")
        require(
            self.n_agents > 0, f"somebody must move the point: n_agents must be positive, not {self.n_agents}"
        )
        require(self.stride > 0 and self.goal_width > 0, "stride and goal_width must be positive")
        require(0 < self.goal_distance <= self.bound, "the goals must lie inside the bound")

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(self.n_agents, len(DIRECTIONS), obs_dim=2, state_dim=2, horizon=self.horizon)

    @property
    def goals(self) -> Float[Array, "4 2"]:
        return self.goal_distance * jnp.asarray(DIRECTIONS)

    def reset(self, key: PRNGKey) -> tuple[Point, TimeStep]:
        point = Point(self.start_spread * jax.random.normal(key, (2,)), jnp.zeros((), jnp.int32))
        return point, self._arrive(point, jnp.zeros(()))

    def step(self, state: Point, actions: Int[Array, " N"], key: PRNGKey) -> tuple[Point, TimeStep]:
        agreed = jnp.all(actions == actions[0])
        move = jnp.where(agreed, self.stride, 0.0) * jnp.asarray(DIRECTIONS)[actions[0]]
        position = jnp.clip(state.position + move, -self.bound, self.bound)
        point = Point(position, state.time + 1)
        distance2 = jnp.sum((position[None] - self.goals) ** 2, axis=-1)
        return point, self._arrive(point, jnp.sum(jnp.exp(-distance2 / (2 * self.goal_width**2))))

    def _arrive(self, point: Point, reward: Float[Array, ""]) -> TimeStep:
        n, a = self.spec.n_agents, self.spec.n_actions
        seen = point.position / self.bound
        reached = jnp.min(jnp.linalg.norm(point.position[None] - self.goals, axis=-1)) <= self.goal_width
        over = point.time >= self.horizon
        return TimeStep(
            Observation(jnp.tile(seen, (n, 1)), seen, jnp.ones((n, a), bool), jnp.ones((n, n), bool)),
            reward=reward,
            terminated=jnp.asarray(False),
            truncated=over,
            won=over & reached,
        )
