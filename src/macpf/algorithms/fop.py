"""FOP (Zhang et al., 2021): factorised soft policies, one per agent, under twin attention-mixed critics.

The joint policy is a product of the agents' own. Its critic is decomposed so that the best response of the
product to the joint soft value is the tuple of the agents' best responses (individual-global optimality).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from macpf.algorithms import acting, learning
from macpf.algorithms.acting import EpsilonMode
from macpf.algorithms.learning import LearnerState, Rows, mixed
from macpf.maths import entropy, log_softmax, pick, soft_improvement, taken
from macpf.networks.agents import (
    Agent,
    agent_inputs,
    each,
    make_agent,
    no_memory,
    previous_actions,
    see,
    unroll_together,
)
from macpf.networks.mixers import Attention, Mixer, Mixing
from macpf.optim import Optimiser, RMSprop
from macpf.schedules import Linear, Schedule
from macpf.types import Actions, EnvSpec, Memory, Metrics, Observation, Policy, PRNGKey, Step, Trajectory

sg = jax.lax.stop_gradient
LISTS = (("pi",), ("q1", "mixer1"), ("q2", "mixer2"))


class Networks(NamedTuple):
    """The agents' policy, and two critics, each with a mixer of its own."""

    pi: Agent
    q1: Agent
    mixer1: Mixer
    q2: Agent
    mixer2: Mixer


class Targets(NamedTuple):
    """The copies that lag behind; the policy has none."""

    q1: Agent
    mixer1: Mixer
    q2: Agent
    mixer2: Mixer


@dataclass(frozen=True)
class FOP:
    """FOP's hyper-parameters, and what it does with them.

    Args:
        recurrent: policies (and critics, unless told otherwise) remember (a GRU) or not.
        hidden: units of every layer of the agents.
        critic: critics are like the policies, or as in FOP's first code two layers on the observation alone.
        mixer: from the agents' values to the team's, for each critic.
        optimiser: how parameters descend.
        gamma: discount.
        alpha: temperature, over environment steps.
        epsilon: exploration rate, over environment steps.
        epsilon_mode: where epsilon acts: nowhere; as a chance of a random action in behaviour; or
            in behaviour, mixed into the policy, and in the losses.
        td_lambda: how far returns look ahead.
        entropy_reduce: the entropy of the joint policy is the sum over agents, or their mean.
        entropy_terminal: the next state's entropy is discounted and ends with the task, or always counts.
        target_period: updates between copies to the target networks.
    """

    on_policy: ClassVar[bool] = False

    recurrent: bool = True
    hidden: int = 64
    critic: Literal["agent", "mlp"] = "agent"
    mixer: Mixing = field(default_factory=Attention)
    optimiser: Optimiser = field(default_factory=RMSprop)
    gamma: float = 0.99
    alpha: Schedule = field(default_factory=lambda: Linear(0.5, 0.05, 200_000))
    epsilon: Schedule = field(default_factory=lambda: Linear(1.0, 0.05, 50_000))
    epsilon_mode: EpsilonMode = "none"
    td_lambda: float = 0.8
    entropy_reduce: Literal["mean", "sum"] = "mean"
    entropy_terminal: Literal["bootstrap", "always"] = "bootstrap"
    target_period: int = 200

    def __post_init__(self) -> None:
        learning.check(self.gamma, self.td_lambda, self.hidden, self.target_period)

    @property
    def policies(self) -> Mapping[str, Policy]:
        return {"ind": self.execute}

    def init(self, key: PRNGKey, spec: EnvSpec) -> LearnerState:
        pi, q1, mixer1, q2, mixer2 = jax.random.split(key, 5)
        mlp = self.critic == "mlp"
        recurrent, depth = self.recurrent and not mlp, 2 if mlp else 1
        networks = Networks(
            pi=make_agent(pi, spec, self.hidden, self.recurrent),
            q1=make_agent(q1, spec, self.hidden, recurrent, depth),
            mixer1=self.mixer.make(mixer1, spec),
            q2=make_agent(q2, spec, self.hidden, recurrent, depth),
            mixer2=self.mixer.make(mixer2, spec),
        )
        return learning.fresh(networks, _targets(networks), self.optimiser, LISTS)

    def init_memory(self, spec: EnvSpec) -> Memory:
        return no_memory(spec, self.hidden, self.recurrent)

    def explore(
        self, learner: LearnerState, memory: Memory, observation: Observation, key: PRNGKey, step: Step
    ) -> tuple[Actions, Memory]:
        log_policy = acting.training_policy(self.epsilon_mode, self.epsilon, step)
        epsilon = acting.chance(self.epsilon_mode, self.epsilon, step)
        return acting.explore(learner.networks.pi, memory, observation, key, log_policy, epsilon)

    def execute(
        self,
        learner: LearnerState,
        memory: Memory,
        observation: Observation,
        key: PRNGKey,
        *,
        sample: bool = False,
    ) -> tuple[Actions, Memory]:
        return acting.execute(learner.networks.pi, memory, observation, key, sample=sample)

    def log_prob(
        self, learner: LearnerState, memory: Memory, observation: Observation, actions: Actions
    ) -> Mapping[str, Float[Array, ""]]:
        logits, _, _ = see(learner.networks.pi, memory, observation)
        return {"ind": jnp.sum(taken(log_softmax(logits, observation.avail), actions))}

    def update(
        self, learner: LearnerState, batch: Trajectory, key: PRNGKey, step: Step
    ) -> tuple[LearnerState, Metrics]:
        def losses(networks: Networks, episode: Trajectory, key: PRNGKey) -> tuple[Rows, Rows]:
            return self.losses(networks, learner.targets, episode, key, step)

        how = (self.optimiser, LISTS, _targets, self.target_period)
        learner, metrics = learning.learn(learner, losses, batch, key, *how)
        return learner, {**metrics, "alpha": self.alpha(step), "epsilon": self.epsilon(step)}

    def losses(
        self, networks: Networks, targets: Targets, episode: Trajectory, key: PRNGKey, step: Step
    ) -> tuple[Rows, Rows]:
        """The losses of the policy and of both critics at every step of one episode."""
        seen, actions, alpha = episode.observation, episode.actions, self.alpha(step)
        log_policy = acting.training_policy(self.epsilon_mode, self.epsilon, step)
        before, n_actions = previous_actions(actions), seen.avail.shape[-1]
        xs = agent_inputs(seen.obs, before, n_actions)
        critics = (networks.q1, networks.q2, targets.q1, targets.q2)
        q1_body, q2_body, *lagging = (critic.body for critic in critics)
        if self.critic == "mlp":
            xs_q = agent_inputs(seen.obs, jnp.full_like(before, -1), n_actions)
            (h_pi,) = unroll_together([networks.pi.body], xs)
            features = unroll_together([q1_body, q2_body], xs_q, fixed=lagging)
        else:
            h_pi, *features = unroll_together([networks.pi.body, q1_body, q2_body], xs, fixed=lagging)
        log_pi = log_policy(each(networks.pi.head)(h_pi), seen.avail)
        q1, q2, q1_hat, q2_hat = (each(c.head)(h) for c, h in zip(critics, features, strict=True))

        a_new = pick(sg(log_pi), jax.random.uniform(key, actions.shape))
        q_hat = jnp.minimum(
            mixed(targets.mixer1, q1_hat, a_new, seen, alpha),
            mixed(targets.mixer2, q2_hat, a_new, seen, alpha),
        )
        y = learning.soft_target(
            episode,
            q_hat,
            taken(log_pi, a_new),
            alpha,
            gamma=self.gamma,
            lambda_=self.td_lambda,
            reduce=self.entropy_reduce,
            terminal=self.entropy_terminal,
        )

        def critic_loss(q: Float[Array, "rows N A"], mixer: Mixer) -> Float[Array, " T"]:
            error = mixed(mixer, q, actions, seen, alpha)[:-1] - sg(y)
            return error**2 + jax.vmap(mixer.penalty)(seen.state[:-1])

        least = sg(jnp.minimum(q1, q2))
        losses = {
            "j": jnp.mean(soft_improvement(log_pi, least, alpha), axis=-1)[:-1],
            "l1": critic_loss(q1, networks.mixer1),
            "l2": critic_loss(q2, networks.mixer2),
        }
        return losses, {"entropy_ind": jnp.mean(entropy(log_pi), axis=-1)[:-1]}


def _targets(networks: Networks) -> Targets:
    return Targets(networks.q1, networks.mixer1, networks.q2, networks.mixer2)
