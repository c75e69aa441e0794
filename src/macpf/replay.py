"""Replay: a ring of whole episodes, as a value."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from macpf.types import EnvSpec, Observation, PRNGKey, Trajectory


class Replay(eqx.Module):
    """The latest `capacity` episodes; `added` counts all that were ever added."""

    episodes: Trajectory
    added: Int[Array, "*seeds"]

    @property
    def capacity(self) -> int:
        return self.episodes.mask.shape[0]

    def add(self, episodes: Trajectory) -> "Replay":
        """The replay with these episodes (a leading axis) in place of the oldest."""
        count = episodes.mask.shape[0]
        where = (self.added + jnp.arange(count)) % self.capacity
        kept = jax.tree.map(
            lambda ring, new: ring.at[where].set(new.astype(ring.dtype)), self.episodes, episodes
        )
        return Replay(kept, self.added + count)

    def draw(self, key: PRNGKey, count: int) -> Int[Array, " B"]:
        """Where `count` different episodes are, every set of them equally likely."""
        held = jnp.arange(self.capacity) < self.added
        return jax.lax.top_k(jnp.where(held, jax.random.uniform(key, held.shape), -1.0), count)[1]

    def take(self, where: Int[Array, " B"]) -> Trajectory:
        """The episodes at these places."""
        return jax.tree.map(lambda ring: _unpacked(ring[where]), self.episodes)


def empty(spec: EnvSpec, capacity: int, half: bool = False) -> Replay:
    """A replay with room for `capacity` episodes of the task."""
    shapes = _layout(spec, half)
    rings = jax.tree.map(lambda row: jnp.zeros((capacity, spec.horizon + 1, *row.shape), row.dtype), shapes)
    return Replay(rings, jnp.zeros((), jnp.int32))


def size_in_bytes(spec: EnvSpec, capacity: int, half: bool = False) -> int:
    """The memory that such a replay takes."""
    rows = jax.tree.leaves(_layout(spec, half))
    return capacity * (spec.horizon + 1) * sum(int(np.prod(r.shape)) * r.dtype.itemsize for r in rows)


def _layout(spec: EnvSpec, half: bool) -> Trajectory:
    """What one row holds; observations in half precision where asked for, actions in the bytes they need."""
    seen = jnp.float16 if half else jnp.float32
    action = jnp.int8 if spec.n_actions <= 127 else jnp.int16
    n, a = spec.n_agents, spec.n_actions

    def row() -> Trajectory:
        obs, state = jnp.zeros((n, spec.obs_dim), seen), jnp.zeros(spec.state_dim, seen)
        observation = Observation(obs, state, jnp.zeros((n, a), bool), jnp.zeros((n, n), bool))
        no = jnp.zeros((), bool)
        return Trajectory(observation, jnp.zeros(n, action), jnp.zeros(()), terminated=no, won=no, mask=no)

    return jax.eval_shape(row)


def _unpacked(stored: Array) -> Array:
    """Stored numbers as networks want them."""
    if jnp.issubdtype(stored.dtype, jnp.floating):
        return stored.astype(jnp.float32)
    return stored.astype(jnp.int32) if jnp.issubdtype(stored.dtype, jnp.integer) else stored
