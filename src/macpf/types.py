"""The words every other file speaks: what is seen, what is done, what comes of it.

Axis letters, used in every shape of the package:
N agents, A actions of one agent, O features of one observation, S features of the state,
H hidden units, T steps of an episode (T+1 rows of a trajectory), B episodes of a batch;
`*b` stands for any leading batch axes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Key

EnvState = TypeVar("EnvState")
Learner = TypeVar("Learner")

PRNGKey = Key[Array, ""]
Step = Int[Array, ""]
Actions = Int[Array, "*b N"]
Metrics = Mapping[str, Float[Array, ""]]


@dataclass(frozen=True)
class EnvSpec:
    """The sizes of a task: agents, actions of each, features seen, features of the state, longest episode.

    `unit_dim`: the state begins with so many features of each agent in turn (0: it does not).
    """

    n_agents: int
    n_actions: int
    obs_dim: int
    state_dim: int
    horizon: int
    unit_dim: int = 0


class Observation(eqx.Module):
    """What can be seen at time t; `visible[i, j]`: does agent i see teammate j?"""

    obs: Float[Array, "*b N O"]
    state: Float[Array, "*b S"]
    avail: Bool[Array, "*b N A"]
    visible: Bool[Array, "*b N N"]


class TimeStep(eqx.Module):
    """What an environment returns on arriving at time t."""

    observation: Observation
    reward: Float[Array, "*b"]
    terminated: Bool[Array, "*b"]
    truncated: Bool[Array, "*b"]
    won: Bool[Array, "*b"]


class Trajectory(eqx.Module):
    """One whole episode in T+1 rows; row t holds what was seen at t, done at t, and what came of it.

    `terminated[t]`: did action t end the task?  `mask[t]`: is row t a real transition?  The mask is
    False after the end, and in row T, which holds the last observation, to bootstrap from.
    """

    observation: Observation
    actions: Actions
    reward: Float[Array, "*b"]
    terminated: Bool[Array, "*b"]
    won: Bool[Array, "*b"]
    mask: Bool[Array, "*b"]


class Memory(eqx.Module):
    """What the agents carry from moment to moment: hidden units and the previous action (-1: none yet)."""

    hidden: Float[Array, "*b N H"]
    previous: Actions


@runtime_checkable
class Environment(Protocol[EnvState]):
    """One copy of a task; callers vmap."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: PRNGKey) -> tuple[EnvState, TimeStep]: ...

    def step(self, state: EnvState, actions: Int[Array, " N"], key: PRNGKey) -> tuple[EnvState, TimeStep]: ...


@runtime_checkable
class Controller(Protocol):
    """A policy written by hand, which knows the whole state: a plan at the start, and how to act on it."""

    def plan(self, env: Any, state: Any, /) -> Any: ...

    def act(self, env: Any, state: Any, plan: Any, key: PRNGKey, /) -> Int[Array, " N"]: ...


@runtime_checkable
class Policy(Protocol):
    """A way to act with what was learned: greedy, or sampled where the policy is stochastic."""

    def __call__(
        self, learner: Any, memory: Memory, observation: Observation, key: PRNGKey, *, sample: bool = False
    ) -> tuple[Actions, Memory]: ...


@runtime_checkable
class Algorithm(Protocol[Learner]):
    """A frozen dataclass of hyper-parameters, and the functions that learn and act with them.

    `on_policy` says what `update` is given: the episodes just played, once, or a draw from the replay.
    `explore` is the behaviour policy of training at environment step `step`; it may be centralised.
    `execute` is the decentralised policy that remains; `policies` names every policy worth evaluating,
    "ind" (which is `execute`) always among them; `log_prob` tells how likely each of them is to choose
    a joint action.
    """

    on_policy: ClassVar[bool]

    @property
    def policies(self) -> Mapping[str, Policy]: ...

    def init(self, key: PRNGKey, spec: EnvSpec) -> Learner: ...

    def init_memory(self, spec: EnvSpec) -> Memory: ...

    def explore(
        self, learner: Learner, memory: Memory, observation: Observation, key: PRNGKey, step: Step
    ) -> tuple[Actions, Memory]: ...

    def execute(
        self,
        learner: Learner,
        memory: Memory,
        observation: Observation,
        key: PRNGKey,
        *,
        sample: bool = False,
    ) -> tuple[Actions, Memory]: ...

    def log_prob(
        self, learner: Learner, memory: Memory, observation: Observation, actions: Actions
    ) -> Mapping[str, Float[Array, ""]]: ...

    def update(
        self, learner: Learner, batch: Trajectory, key: PRNGKey, step: Step
    ) -> tuple[Learner, Metrics]: ...
