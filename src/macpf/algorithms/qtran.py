"""QTRAN (Son et al., 2019): a joint critic without structure, and a sum of values made to agree with it.

With abar the agents' own best actions, Q'(a) = sum_i Q_i(a_i) + V(s) has to equal Q_jt at abar and to be
no less than it elsewhere; then abar is the best joint action of Q_jt too.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from macpf.algorithms import learning, q_learning
from macpf.algorithms.learning import LearnerState, Rows
from macpf.errors import require
from macpf.maths import best, greedy, taken
from macpf.networks.agents import (
    Agent,
    agent_inputs,
    each,
    make_agent,
    previous_actions,
    unroll_together,
)
from macpf.networks.layers import Layers, make_layers
from macpf.optim import Optimiser, RMSprop
from macpf.schedules import Linear, Schedule
from macpf.types import EnvSpec, Metrics, Observation, PRNGKey, Step, Trajectory

sg = jax.lax.stop_gradient
LISTS = (("q", "q_jt", "v_jt"),)


class JointCritic(eqx.Module):
    """Q_jt(s, h, a): agents' features and actions, encoded one by one, added up, read with the state."""

    encoder: Layers
    reader: Layers
    n_actions: int = eqx.field(static=True)

    def __call__(
        self, h: Float[Array, "N H"], actions: Int[Array, " N"], state: Float[Array, " S"]
    ) -> Float[Array, ""]:
        return self.read(jnp.sum(self.encode(h, actions), axis=0), state)

    def encode(self, h: Float[Array, "N H"], actions: Int[Array, " N"]) -> Float[Array, "N E"]:
        did = jax.nn.one_hot(actions, self.n_actions)
        return jax.vmap(self.encoder)(jnp.concatenate([h, did], axis=-1))

    def read(self, encoded: Float[Array, " E"], state: Float[Array, " S"]) -> Float[Array, ""]:
        return self.reader(jnp.concatenate([encoded, state]))[0]

    def counterfactual(
        self, h: Float[Array, "N H"], actions: Int[Array, " N"], state: Float[Array, " S"]
    ) -> Float[Array, "N A"]:
        """The value of every agent doing something else while the others do what they do."""
        alone = self.encode(h, actions)
        others = jnp.sum(alone, axis=0, keepdims=True) - alone
        any_ = jax.vmap(lambda a: self.encode(h, jnp.full_like(actions, a)), out_axes=1)(
            jnp.arange(self.n_actions)
        )
        return jax.vmap(jax.vmap(self.read, in_axes=(0, None)), in_axes=(0, None))(
            others[:, None] + any_, state
        )


class Networks(NamedTuple):
    """The agents' values, the joint critic, and what the agents' sum lacks."""

    q: Agent
    q_jt: JointCritic
    v_jt: Layers


class Targets(NamedTuple):
    """The copies that lag behind."""

    q: Agent
    q_jt: JointCritic


@dataclass(frozen=True)
class QTRAN:
    """QTRAN's hyper-parameters, and what it does with them.

    Args:
        recurrent: agents remember (a GRU) or not.
        hidden: units of every layer.
        variant: the condition on all other actions: as it stands (base), or for each agent's worst (alt).
        opt_weight: weight of the loss of the agents' best actions.
        nopt_weight: weight of the loss of all others.
        optimiser: how parameters descend.
        gamma: discount.
        epsilon: chance of a random action in training, over environment steps.
        target_period: updates between copies to the target networks.
    """

    on_policy: ClassVar[bool] = False

    recurrent: bool = True
    hidden: int = 64
    variant: Literal["base", "alt"] = "base"
    opt_weight: float = 1.0
    nopt_weight: float = 0.1
    optimiser: Optimiser = field(default_factory=RMSprop)
    gamma: float = 0.99
    epsilon: Schedule = field(default_factory=lambda: Linear(1.0, 0.05, 50_000))
    target_period: int = 200

    def __post_init__(self) -> None:
        learning.check(self.gamma, 0.0, self.hidden, self.target_period)
        require(min(self.opt_weight, self.nopt_weight) >= 0, "QTRAN's weights must not be negative")

    def init(self, key: PRNGKey, spec: EnvSpec) -> LearnerState:
        q_key, encoder_key, reader_key, v_key = jax.random.split(key, 4)
        encoded, units, state = self.hidden + spec.n_actions, self.hidden, spec.state_dim
        networks = Networks(
            q=make_agent(q_key, spec, self.hidden, self.recurrent),
            q_jt=JointCritic(
                make_layers(encoder_key, (encoded, encoded, encoded)),
                make_layers(reader_key, (encoded + state, units, units, 1)),
                spec.n_actions,
            ),
            v_jt=make_layers(v_key, (state, units, units, 1)),
        )
        return learning.fresh(networks, _targets(networks), self.optimiser, LISTS)

    policies = q_learning.policies
    init_memory = q_learning.init_memory
    explore = q_learning.explore
    execute = q_learning.execute
    log_prob = q_learning.log_prob

    def update(
        self, learner: LearnerState, batch: Trajectory, key: PRNGKey, step: Step
    ) -> tuple[LearnerState, Metrics]:
        def losses(networks: Networks, episode: Trajectory, key: PRNGKey) -> tuple[Rows, Rows]:
            return self.losses(networks, learner.targets, episode), {}

        how = (self.optimiser, LISTS, _targets, self.target_period)
        learner, metrics = learning.learn(learner, losses, batch, key, *how)
        return learner, {**metrics, "epsilon": self.epsilon(step)}

    def losses(self, networks: Networks, targets: Targets, episode: Trajectory) -> Rows:
        """The three losses at every step of one episode."""
        seen, actions = episode.observation, episode.actions
        xs = agent_inputs(seen.obs, previous_actions(actions), seen.avail.shape[-1])
        h, h_hat = unroll_together([networks.q.body], xs, fixed=[targets.q.body])
        q = each(networks.q.head)(h)
        a_bar = greedy(q, seen.avail)
        v_jt = jax.vmap(networks.v_jt)(seen.state)[:, 0]

        q_jt = jax.vmap(networks.q_jt)(h, actions, seen.state)
        q_jt_bar = sg(jax.vmap(networks.q_jt)(h, a_bar, seen.state))
        q_jt_hat = jax.vmap(targets.q_jt)(h_hat, a_bar, seen.state)
        y = learning.target(episode, q_jt_hat, self.gamma, 0.0)

        over_bar = jnp.sum(best(q, seen.avail), axis=-1) - q_jt_bar + v_jt
        if self.variant == "base":
            over = jnp.sum(taken(q, actions), axis=-1) - sg(q_jt) + v_jt
            l_nopt = jnp.minimum(over, 0.0) ** 2
        else:
            least = jax.vmap(_least_over, in_axes=(None, 0, 0, 0, 0, 0, 0))
            l_nopt = jnp.mean(least(sg(networks.q_jt), sg(h), q, actions, v_jt, *_seen(seen)) ** 2, axis=-1)
        return {
            "l_td": (q_jt[:-1] - sg(y)) ** 2,
            "l_opt": self.opt_weight * over_bar[:-1] ** 2,
            "l_nopt": self.nopt_weight * l_nopt[:-1],
        }


def _least_over(
    q_jt: JointCritic,
    h: Float[Array, "N H"],
    q: Float[Array, "N A"],
    actions: Int[Array, " N"],
    v_jt: Float[Array, ""],
    state: Float[Array, " S"],
    avail: Bool[Array, "N A"],
) -> Float[Array, " N"]:
    """min over u_i of Q_i(u_i) + sum_{j != i} Q_j(a_j) - Q_jt(u_i, a_-i) + V, for every agent i."""
    stored = taken(q, actions)
    others = jnp.sum(stored) - stored
    over = q + others[:, None] - q_jt.counterfactual(h, actions, state) + v_jt
    return jnp.min(jnp.where(avail, over, jnp.inf), axis=-1)


def _seen(seen: Observation) -> tuple[Array, Array]:
    return seen.state, seen.avail


def _targets(networks: Networks) -> Targets:
    return Targets(networks.q, networks.q_jt)
