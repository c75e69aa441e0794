"""What the particle tasks share: the world, what agents see of it, and how an episode ends."""

from typing import Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from macpf.envs.mpe.physics import N_ACTIONS, Integration, contacts, lengths, move, offsets, pushes
from macpf.errors import require
from macpf.types import EnvSpec, Observation, PRNGKey, TimeStep

# The team's reward: the sum of the agents' rewards, or their mean.
RewardScale = Literal["sum", "mean"]

# The last step of an episode cuts it off (its value goes on), or ends the task.
TimeLimit = Literal["truncation", "terminal"]


class World(eqx.Module):
    """Where everybody is and how fast, where the landmarks are, and how many steps were made."""

    position: Float[Array, "N 2"]
    velocity: Float[Array, "N 2"]
    landmarks: Float[Array, "L 2"]
    time: Int[Array, ""]


@runtime_checkable
class Options(Protocol):
    """The options that all particle tasks have."""

    @property
    def n_agents(self) -> int: ...
    @property
    def horizon(self) -> int: ...
    @property
    def radius(self) -> float: ...
    @property
    def clip_distance(self) -> float: ...
    @property
    def reward_scale(self) -> RewardScale: ...
    @property
    def observe_others(self) -> bool: ...
    @property
    def communication(self) -> bool: ...
    @property
    def stop_on_success(self) -> bool: ...
    @property
    def success_distance(self) -> float: ...
    @property
    def time_limit(self) -> TimeLimit: ...
    @property
    def integration(self) -> Integration: ...


@runtime_checkable
class ParticleTask(Options, Protocol):
    """An environment that also tells the places where its agents should be."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: PRNGKey) -> tuple[World, TimeStep]: ...

    def step(self, state: World, actions: Int[Array, " N"], key: PRNGKey) -> tuple[World, TimeStep]: ...

    def slots(self, world: World) -> Float[Array, "N 2"]:
        """The places that the reward asks for, to be shared out among the agents."""
        ...

    def own_slots(self, world: World) -> Float[Array, "N 2"]:
        """A place for each agent, the same whatever the others do."""
        ...


def check_options(task: Options, most: int) -> None:
    """Refuses sizes that make no task."""
    n = task.n_agents
    require(1 <= n <= most, f"there can be 1 to {most} agents with this reward, not {n}")
    require(task.horizon > 0, f"an episode lasts at least one step, not {task.horizon}")
    require(task.radius > 0, f"the radius of an agent must be positive, not {task.radius}")
    require(task.clip_distance > 0, f"clip_distance must be positive, not {task.clip_distance}")
    near = task.success_distance
    require(near > 0, f"success_distance must be positive, not {near}")


def spec_of(task: Options, landmarks: int) -> EnvSpec:
    """The sizes of a task; its state is the agents' observations in turn."""
    n = task.n_agents
    seen = 4 + 2 * landmarks + 2 * (n - 1) * (task.observe_others + task.communication)
    return EnvSpec(n, N_ACTIONS, seen, n * seen, task.horizon, unit_dim=seen)


def start(key: PRNGKey, n_agents: int, landmarks: Float[Array, "L 2"]) -> World:
    """Agents at rest, anywhere in [-1, 1]^2."""
    position = jax.random.uniform(key, (n_agents, 2), minval=-1.0, maxval=1.0)
    return World(position, jnp.zeros_like(position), landmarks, jnp.zeros((), jnp.int32))


def moved(task: Options, world: World, actions: Int[Array, " N"]) -> World:
    """The world one step later: forces where the agents are, then velocity and position."""
    force = pushes(actions) + contacts(world.position, task.radius)
    position, velocity = move(world.position, world.velocity, force, task.integration)
    return World(position, velocity, world.landmarks, world.time + 1)


def observe(task: Options, world: World) -> Observation:
    """Own velocity and position, offsets of the landmarks, and as asked of the others, in this order."""
    n = task.n_agents
    parts = [world.velocity, world.position, offsets(world.position, world.landmarks).reshape(n, -1)]
    if task.observe_others:
        parts.append(others(offsets(world.position, world.position)).reshape(n, -1))
    if task.communication:
        parts.append(jnp.zeros((n, 2 * (n - 1))))
    obs = jnp.concatenate(parts, axis=-1)
    return Observation(obs, obs.reshape(-1), jnp.ones((n, N_ACTIONS), bool), jnp.ones((n, n), bool))


def others(pairs: Float[Array, "N N K"]) -> Float[Array, "N M K"]:
    """Leaves out the diagonal: of each agent, the others by index; cut and folded, nothing is looked up."""
    n, _, k = pairs.shape
    return pairs.reshape(n * n, k)[1:].reshape(n - 1, n + 1, k)[:, :-1].reshape(n, n - 1, k)


def begun(task: Options, world: World) -> TimeStep:
    """The time step of a reset."""
    no = jnp.asarray(False)
    return TimeStep(observe(task, world), jnp.zeros(()), terminated=no, truncated=no, won=no)


def arrived(task: Options, world: World, total: Float[Array, ""], missed: Float[Array, " L"]) -> TimeStep:
    """The time step of a move: `total` is the sum of the agents' rewards, `missed` how far each place is.

    An episode is won if all are in place when it ends.
    """
    reward = total if task.reward_scale == "sum" else total / task.n_agents
    in_place = jnp.all(missed < task.success_distance)
    over = world.time >= task.horizon
    terminated = (in_place & task.stop_on_success) | (over & (task.time_limit == "terminal"))
    ends = over | terminated
    return TimeStep(
        observe(task, world), reward, terminated, truncated=ends & ~terminated, won=ends & in_place
    )


def distances(world: World, places: Float[Array, "L 2"]) -> Float[Array, "N L"]:
    """From every agent to every place."""
    return lengths(offsets(world.position, places))
