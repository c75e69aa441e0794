"""Centralised control: soft Q-learning (Haarnoja et al., 2017) over the joint actions of the whole team.

One network sees everything and has a value for every joint action: what any decentralised method can at
best come near to, where the number of joint actions allows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from macpf.algorithms import learning
from macpf.algorithms.learning import LearnerState, Rows
from macpf.errors import require
from macpf.maths import greedy, log_softmax, pick, soft_value, taken
from macpf.networks.agents import Agent, make_body, no_memory, previous_actions
from macpf.optim import Optimiser, RMSprop
from macpf.schedules import Linear, Schedule
from macpf.types import Actions, EnvSpec, Memory, Metrics, Observation, Policy, PRNGKey, Step, Trajectory

sg = jax.lax.stop_gradient
LISTS = (("q",),)
LARGEST = 20_000  # joint actions


class Networks(NamedTuple):
    """One critic for all; its target is a copy."""

    q: Agent


@dataclass(frozen=True)
class Central:
    """The hyper-parameters of centralised control, and what it does with them.

    Args:
        recurrent: the controller remembers (a GRU) or not.
        hidden: units of every layer.
        optimiser: how parameters descend.
        gamma: discount.
        alpha: temperature of the joint policy, over environment steps.
        td_lambda: how far returns look ahead.
        target_period: updates between copies to the target network.
    """

    on_policy: ClassVar[bool] = False

    recurrent: bool = True
    hidden: int = 64
    optimiser: Optimiser = field(default_factory=RMSprop)
    gamma: float = 0.99
    alpha: Schedule = field(default_factory=lambda: Linear(0.5, 0.05, 200_000))
    td_lambda: float = 0.0
    target_period: int = 200

    def __post_init__(self) -> None:
        learning.check(self.gamma, self.td_lambda, self.hidden, self.target_period)

    @property
    def policies(self) -> Mapping[str, Policy]:
        return {"ind": self.execute}

    def init(self, key: PRNGKey, spec: EnvSpec) -> LearnerState:
        joint = spec.n_actions**spec.n_agents
        require(
            joint <= LARGEST,
            f"centralised control has a value for each joint action: {joint:,} are more than {LARGEST:,}",
        )
        body_key, head_key = jax.random.split(key)
        inputs = spec.state_dim + spec.n_agents * (spec.obs_dim + spec.n_actions)
        body = make_body(body_key, inputs, self.hidden, self.recurrent)
        networks = Networks(Agent(body, eqx.nn.Linear(self.hidden, joint, key=head_key)))
        return learning.fresh(networks, networks, self.optimiser, LISTS)

    def init_memory(self, spec: EnvSpec) -> Memory:
        """The controller's memory, in every agent's row."""
        return no_memory(spec, self.hidden, self.recurrent)

    def explore(
        self, learner: LearnerState, memory: Memory, observation: Observation, key: PRNGKey, step: Step
    ) -> tuple[Actions, Memory]:
        return self._act(learner, memory, observation, jax.random.uniform(key), self.alpha(step))

    def execute(
        self,
        learner: LearnerState,
        memory: Memory,
        observation: Observation,
        key: PRNGKey,
        *,
        sample: bool = False,
    ) -> tuple[Actions, Memory]:
        """The best joint action, or one sampled at the final temperature; not decentralised."""
        luck = jax.random.uniform(key) if sample else None
        return self._act(learner, memory, observation, luck, jnp.asarray(self.alpha.final))

    def log_prob(
        self, learner: LearnerState, memory: Memory, observation: Observation, actions: Actions
    ) -> Mapping[str, Float[Array, ""]]:
        q, _ = _see(learner.networks.q, memory, observation)
        log_pi = log_softmax(q / self.alpha.final, joint_avail(observation.avail))
        return {"ind": taken(log_pi, joint_index(actions, observation.avail.shape[-1]))}

    def _act(
        self,
        learner: LearnerState,
        memory: Memory,
        observation: Observation,
        luck: Float[Array, ""] | None,
        alpha: Float[Array, ""],
    ) -> tuple[Actions, Memory]:
        """A joint action by its soft value; the best one, where no luck is given."""
        q, hidden = _see(learner.networks.q, memory, observation)
        avail = joint_avail(observation.avail)
        index = greedy(q, avail) if luck is None else pick(log_softmax(q / alpha, avail), luck)
        n_agents, n_actions = observation.avail.shape
        actions = jnp.stack(jnp.unravel_index(index, (n_actions,) * n_agents))
        return actions, Memory(jnp.broadcast_to(hidden, memory.hidden.shape), actions)

    def update(
        self, learner: LearnerState, batch: Trajectory, key: PRNGKey, step: Step
    ) -> tuple[LearnerState, Metrics]:
        def losses(networks: Networks, episode: Trajectory, key: PRNGKey) -> tuple[Rows, Rows]:
            return self.losses(networks, learner.targets, episode, step), {}

        how = (self.optimiser, LISTS, _targets, self.target_period)
        learner, metrics = learning.learn(learner, losses, batch, key, *how)
        return learner, {**metrics, "alpha": self.alpha(step)}

    def losses(self, networks: Networks, targets: Networks, episode: Trajectory, step: Step) -> Rows:
        """The squared soft Bellman error at every step of one episode."""
        seen, alpha = episode.observation, self.alpha(step)
        n_actions = seen.avail.shape[-1]
        avail = jax.vmap(joint_avail)(seen.avail)
        xs = jax.vmap(_inputs)(seen, previous_actions(episode.actions))
        q, q_hat = (jax.vmap(n.q.head)(n.q.body.unroll(xs)) for n in (networks, targets))
        index = jax.vmap(lambda a: joint_index(a, n_actions))(episode.actions)
        y = learning.target(episode, soft_value(q_hat, avail, alpha), self.gamma, self.td_lambda)
        return {"loss": (taken(q, index)[:-1] - sg(y)) ** 2}


def joint_avail(avail: Bool[Array, "N A"]) -> Bool[Array, " J"]:
    """Which joint actions every agent can do its part of; the last agent's action counts fastest."""
    joint = avail[0]
    for row in avail[1:]:
        joint = (joint[:, None] & row[None]).ravel()
    return joint


def joint_index(actions: Actions, n_actions: int) -> Array:
    """The index of a joint action."""
    weights = n_actions ** jnp.arange(actions.shape[0] - 1, -1, -1)
    return jnp.sum(actions * weights)


def _inputs(observation: Observation, previous: Actions) -> Float[Array, " I"]:
    """All there is to see: the state, what every agent sees, what every agent did last."""
    did = jax.nn.one_hot(previous, observation.avail.shape[-1])
    return jnp.concatenate([observation.state, observation.obs.ravel(), did.ravel()])


def _see(q: Agent, memory: Memory, observation: Observation):
    """The value of every joint action at this moment, and the controller's memory after it."""
    h, hidden = q.body(_inputs(observation, memory.previous), memory.hidden[0])
    return q.head(h), hidden[None]


def _targets(networks: Networks) -> Networks:
    return networks
