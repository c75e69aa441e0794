"""VDN, QMIX and QPLEX: Q-learning on the value of the team, mixed from the values of the agents.

They are one algorithm with three mixers: a sum (Sunehag et al., 2018), monotonic layers (Rashid et al.,
2018), duplex dueling (Wang et al., 2021). In each the best joint action is every agent's own best.
"""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import jax

from macpf.algorithms import learning, q_learning
from macpf.algorithms.learning import LearnerState, Rows
from macpf.maths import best, greedy, taken
from macpf.networks.agents import (
    Agent,
    agent_inputs,
    each,
    make_agent,
    previous_actions,
    unroll_together,
)
from macpf.networks.mixers import Hyper, Mixer, Mixing
from macpf.optim import Optimiser, RMSprop
from macpf.schedules import Linear, Schedule
from macpf.types import EnvSpec, Metrics, PRNGKey, Step, Trajectory

sg = jax.lax.stop_gradient
LISTS = (("q", "mixer"),)


class Networks(NamedTuple):
    """The agents' values and how they are mixed; the targets are a copy of both."""

    q: Agent
    mixer: Mixer


@dataclass(frozen=True)
class ValueDecomposition:
    """The hyper-parameters of a value decomposition, and what it does with them.

    Args:
        recurrent: agents remember (a GRU) or not.
        hidden: units of every layer of the agents.
        mixer: from the agents' values to the team's: what makes it VDN, QMIX or QPLEX.
        optimiser: how parameters descend.
        gamma: discount.
        epsilon: chance of a random action in training, over environment steps.
        td_lambda: how far returns look ahead; 0 is the papers' one step.
        double_q: the online networks choose the action the targets value.
        target_period: updates between copies to the target networks.
    """

    on_policy: ClassVar[bool] = False

    recurrent: bool = True
    hidden: int = 64
    mixer: Mixing = field(default_factory=Hyper)
    optimiser: Optimiser = field(default_factory=RMSprop)
    gamma: float = 0.99
    epsilon: Schedule = field(default_factory=lambda: Linear(1.0, 0.05, 50_000))
    td_lambda: float = 0.0
    double_q: bool = True
    target_period: int = 200

    def __post_init__(self) -> None:
        learning.check(self.gamma, self.td_lambda, self.hidden, self.target_period)

    def init(self, key: PRNGKey, spec: EnvSpec) -> LearnerState:
        q_key, mixer_key = jax.random.split(key)
        q = make_agent(q_key, spec, self.hidden, self.recurrent)
        networks = Networks(q, self.mixer.make(mixer_key, spec))
        return learning.fresh(networks, networks, self.optimiser, LISTS)

    policies = q_learning.policies
    init_memory = q_learning.init_memory
    explore = q_learning.explore
    execute = q_learning.execute
    log_prob = q_learning.log_prob

    def update(
        self, learner: LearnerState, batch: Trajectory, key: PRNGKey, step: Step
    ) -> tuple[LearnerState, Metrics]:
        def losses(networks: Networks, episode: Trajectory, key: PRNGKey) -> tuple[Rows, Rows]:
            return self.losses(networks, learner.targets, episode)

        how = (self.optimiser, LISTS, _targets, self.target_period)
        learner, metrics = learning.learn(learner, losses, batch, key, *how)
        return learner, {**metrics, "epsilon": self.epsilon(step)}

    def losses(self, networks: Networks, targets: Networks, episode: Trajectory) -> tuple[Rows, Rows]:
        """The squared error of the team's value at every step of one episode."""
        seen, actions = episode.observation, episode.actions
        xs = agent_inputs(seen.obs, previous_actions(actions), seen.avail.shape[-1])
        h, h_hat = unroll_together([networks.q.body], xs, fixed=[targets.q.body])
        q, q_hat = each(networks.q.head)(h), each(targets.q.head)(h_hat)
        chosen = greedy(q if self.double_q else q_hat, seen.avail)
        v, v_hat = sg(best(q, seen.avail)), best(q_hat, seen.avail)
        q_tot = jax.vmap(networks.mixer)(taken(q, actions), v, actions, seen.state)
        q_tot_hat = jax.vmap(targets.mixer)(taken(q_hat, chosen), v_hat, chosen, seen.state)
        y = learning.target(episode, q_tot_hat, self.gamma, self.td_lambda)
        return {"loss": (q_tot[:-1] - sg(y)) ** 2}, {"q_tot": q_tot[:-1]}


def _targets(networks: Networks) -> Networks:
    return networks
