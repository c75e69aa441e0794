"""How all Q-learners act: every agent by its own values; written once, as methods for their classes."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float

from macpf.maths import UNAVAILABLE, by_chance, greedy
from macpf.networks.agents import Agent, no_memory, see
from macpf.schedules import Schedule
from macpf.types import Actions, EnvSpec, Memory, Observation, Policy, PRNGKey, Step


@runtime_checkable
class QLearner(Protocol):
    """What acting needs to know of a Q-learner, whose learner's `networks.q` are the agents' values."""

    @property
    def recurrent(self) -> bool: ...

    @property
    def hidden(self) -> int: ...

    @property
    def epsilon(self) -> Schedule: ...


@property
def policies(self: QLearner) -> Mapping[str, Policy]:
    return {"ind": execute.__get__(self)}


def init_memory(self: QLearner, spec: EnvSpec) -> Memory:
    return no_memory(spec, self.hidden, self.recurrent)


def explore(
    self: QLearner, learner: Any, memory: Memory, observation: Observation, key: PRNGKey, step: Step
) -> tuple[Actions, Memory]:
    return act(learner.networks.q, memory, observation, key, self.epsilon(step))


def execute(
    self: QLearner,
    learner: Any,
    memory: Memory,
    observation: Observation,
    key: PRNGKey,
    *,
    sample: bool = False,
) -> tuple[Actions, Memory]:
    """Every agent's own best action; there is nothing to sample."""
    return act(learner.networks.q, memory, observation, key, 0.0)


def log_prob(
    self: QLearner, learner: Any, memory: Memory, observation: Observation, actions: Actions
) -> Mapping[str, Float[Array, ""]]:
    """A deterministic joint policy: 0 for what it does, as good as minus infinity for all else."""
    values, _, _ = see(learner.networks.q, memory, observation)
    does = jnp.all(greedy(values, observation.avail) == actions)
    return {"ind": jnp.where(does, 0.0, UNAVAILABLE)}


def act(
    q: Agent, memory: Memory, observation: Observation, key: PRNGKey, epsilon: Float[Array, ""] | float
) -> tuple[Actions, Memory]:
    """Every agent's own best action, or by chance any."""
    values, _, hidden = see(q, memory, observation)
    actions = by_chance(greedy(values, observation.avail), observation.avail, epsilon, key)
    return actions, Memory(hidden, actions)
