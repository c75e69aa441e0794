"""How policies act: sampled or greedy, exploring or not; and what exploration does to their probabilities."""

from collections.abc import Callable
from typing import Literal

import jax
from jaxtyping import Array, Bool, Float

from macpf.maths import by_chance, greedy, log_mixture, log_softmax, pick
from macpf.networks.agents import Agent, see
from macpf.schedules import Schedule
from macpf.types import Actions, Memory, Observation, PRNGKey, Step

# Where epsilon acts: nowhere; as a chance of a random action in behaviour; or in the published code's way,
# in behaviour, mixed into the policy, and in the losses.
EpsilonMode = Literal["none", "behaviour", "everywhere"]
LogPolicy = Callable[[Float[Array, "*b A"], Bool[Array, "*b A"]], Float[Array, "*b A"]]


def chance(mode: EpsilonMode, epsilon: Schedule, step: Step) -> Float[Array, ""] | float:
    """The chance of a random action in training."""
    return 0.0 if mode == "none" else epsilon(step)


def training_policy(mode: EpsilonMode, epsilon: Schedule, step: Step) -> LogPolicy:
    """How logits become log-probabilities in training."""
    if mode == "everywhere":
        return lambda logits, avail: log_mixture(logits, avail, epsilon(step))
    return log_softmax


def explore(
    policy: Agent,
    memory: Memory,
    observation: Observation,
    key: PRNGKey,
    log_policy: LogPolicy,
    epsilon: Float[Array, ""] | float,
) -> tuple[Actions, Memory]:
    """Every agent samples its own policy, or by chance does anything."""
    luck_key, force_key = jax.random.split(key)
    logits, _, hidden = see(policy, memory, observation)
    luck = jax.random.uniform(luck_key, logits.shape[:1])
    sampled = pick(log_policy(logits, observation.avail), luck)
    actions = by_chance(sampled, observation.avail, epsilon, force_key)
    return actions, Memory(hidden, actions)


def execute(
    policy: Agent, memory: Memory, observation: Observation, key: PRNGKey, *, sample: bool
) -> tuple[Actions, Memory]:
    """Every agent by its own policy alone: the likeliest action, or a sampled one."""
    logits, _, hidden = see(policy, memory, observation)
    log_pi = log_softmax(logits, observation.avail)
    luck = jax.random.uniform(key, logits.shape[:1])
    actions = pick(log_pi, luck) if sample else greedy(log_pi, observation.avail)
    return actions, Memory(hidden, actions)
