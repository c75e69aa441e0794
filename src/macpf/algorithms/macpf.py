"""MACPF: multi-agent conditional policy factorisation (Wang, Ye and Lu, ICLR 2023).

Every agent has an independent policy pi_ind and critic q_ind, and a correction to each, b_dep and c_dep,
that sees what the agents before it do. Together they make the dependent policy, which collects the data
and can express any joint policy; the independent one is learned beside it and is what is executed.
Equation numbers are the paper's. A reader finds them in the order: networks and policies (10 to 15) in
`MACPF.losses`, the four losses (16 to 19) at its end, what each of them moves in `MACPF._moves`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from macpf.algorithms import acting, learning
from macpf.algorithms.acting import EpsilonMode, LogPolicy
from macpf.algorithms.learning import LearnerState, Lists, Rows, mixed
from macpf.errors import require
from macpf.maths import (
    entropy,
    forced_actions,
    greedy,
    log_softmax,
    pick,
    soft_imitation,
    soft_improvement,
    soft_regression,
    taken,
)
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
from macpf.networks.corrections import (
    Chain,
    Correction,
    Decide,
    Given,
    Pool,
    choose_at_once,
    choose_in_turn,
    make_correction,
    pooled,
    predecessors,
)
from macpf.networks.mixers import Advantage, Hyper, Mixer, Mixing, SoftAdvantage
from macpf.optim import Optimiser, RMSprop
from macpf.schedules import Linear, Schedule
from macpf.types import Actions, EnvSpec, Memory, Metrics, Observation, Policy, PRNGKey, Step, Trajectory

sg = jax.lax.stop_gradient


class Networks(NamedTuple):
    """What MACPF learns: theta, phi, psi, omega and Theta, under the names of what they parameterise."""

    pi_ind: Agent
    b_dep: Correction
    q_ind: Agent
    c_dep: Correction
    mixer: Mixer


class Targets(NamedTuple):
    """The copies that lag behind; the policy has none."""

    q_ind: Agent
    c_dep: Correction
    mixer: Mixer


class Losses(NamedTuple):
    """One entry for each of the four losses: its value, or the networks it is a function of."""

    j_ind: Any
    j_dep: Any
    l_ind: Any
    l_dep: Any


@dataclass(frozen=True)
class MACPF:
    """MACPF's hyper-parameters, and what it does with them.

    Args:
        recurrent: agents remember (a GRU) or not.
        hidden: units of every layer of the agents and corrections.
        dependent: agents learn dependent policies and act by them; without, the ablation CONTROL.
        dependence: the chance, over environment steps, that agents act by their dependent policies in a step
            of training, in the paper always; else they act by the independent ones, and what they have done
            tells them no more than it will when they are alone.
        mixer: from the agents' values to the team's; MACPF's is linear in them.
        optimiser: how parameters descend.
        gamma: discount.
        alpha: temperature, over environment steps.
        alpha_ind: the temperature of pi_ind, in those of the joint policy.
        epsilon: exploration rate, over environment steps.
        epsilon_mode: where epsilon acts: nowhere; as a chance of a random action in behaviour; or as in
            the published code, in behaviour, mixed into the policy, and in the losses.
        td_lambda: how far returns look ahead; 0 is the paper's one step.
        entropy_reduce: the entropy of the joint policy is the sum over agents, or their mean.
        entropy_terminal: the next state's entropy is discounted and ends with the task, or always counts.
        dep_grad_through_trunk: the losses of the corrections also move the trunks they stand on.
        critic_dep_scope: c_dep sees predecessors, or as in the published code all visible teammates.
        dep_mask: agents depend on the predecessors they see, or on all.
        dep_pool: how predecessors' embeddings are pooled.
        deep: corrections have one more layer, so that what several predecessors do together counts.
        mixer_grad: the mixer is moved by both critic losses, or by the independent one alone.
        shared_optimiser: one optimiser state for actor and one for critic, rather than one per network.
        target_period: updates between copies to the target networks.
        critic_speed: the critics' learning rate, in those of the actors.
        extraction: pi_ind learns from q_ind, a critic of its own; or it is committed: from the dependent
            critic, where all others do what they are likeliest to do.
        improvement: policies minimise their divergence from exp(Q / alpha) as in the paper; or, by imitation,
            its divergence from them, which has the same answer but no plateau where a policy is sure of a
            wrong one. A committed pi_ind sees less than the critic: by imitation it does what is best most
            often, by expectation what is best on average (pi_dep then imitates).
        delta: what a committed agent is paid for the action it is likeliest to take anyway; more than that
            it will not lose by it, and much less than the temperature does not hold a tie broken.
        targets: the critic's targets are sampled, or the value of the next state (mixer Advantage).
        groups: agents decide in this many groups, each depending on earlier groups only (None: one by one).
        sampler: the chain is walked agent by agent, or found by iteration; the actions are the same.
    """

    on_policy: ClassVar[bool] = False

    recurrent: bool = True
    hidden: int = 64
    dependent: bool = True
    dependence: Schedule = field(default_factory=lambda: Linear(1.0, 1.0, 1_000_000))
    mixer: Mixing = field(default_factory=lambda: Hyper(embed=64, hidden=64, form="linear"))
    optimiser: Optimiser = field(default_factory=RMSprop)
    gamma: float = 0.99
    alpha: Schedule = field(default_factory=lambda: Linear(0.5, 0.05, 200_000))
    alpha_ind: float = 1.0
    epsilon: Schedule = field(default_factory=lambda: Linear(1.0, 0.05, 50_000))
    epsilon_mode: EpsilonMode = "none"
    td_lambda: float = 0.8
    entropy_reduce: Literal["mean", "sum"] = "mean"
    entropy_terminal: Literal["bootstrap", "always"] = "bootstrap"
    dep_grad_through_trunk: bool = False
    critic_dep_scope: Literal["predecessors", "visible"] = "predecessors"
    dep_mask: Literal["visible", "all"] = "visible"
    dep_pool: Pool = "sum/N"
    deep: bool = False
    mixer_grad: Literal["both", "ind"] = "both"
    shared_optimiser: bool = False
    target_period: int = 200
    critic_speed: float = 1.0
    extraction: Literal["factored", "committed"] = "factored"
    improvement: Literal["paper", "imitation", "expectation"] = "paper"
    delta: float = 0.1
    targets: Literal["sampled", "value"] = "sampled"
    groups: int | None = None
    sampler: Literal["in-turn", "at-once"] = "in-turn"

    def __post_init__(self) -> None:
        learning.check(self.gamma, self.td_lambda, self.hidden, self.target_period)
        require(self.critic_speed > 0, f"critic_speed must be positive, not {self.critic_speed}")
        require(self.alpha_ind > 0, f"alpha_ind must be positive, not {self.alpha_ind}")
        require(self.delta >= 0, f"delta must not be negative, not {self.delta}")
        known = self.targets == "sampled" or isinstance(self.mixer, Advantage)
        require(known, "only the mixer Advantage knows the value of a state: targets must be sampled")
        require(
            self.dependent or self.extraction == "factored", "committed extraction needs dependent policies"
        )
        stuck = self.extraction == "committed" and self.mixer_grad == "ind"
        require(
            not stuck, "with committed extraction the mixer is moved by the dependent critic: mixer_grad both"
        )
        require(self.groups is None or self.groups > 0, f"groups must be positive, not {self.groups}")

    @property
    def policies(self) -> Mapping[str, Policy]:
        return {"ind": self.execute} | ({"dep": self.execute_dep} if self.dependent else {})

    def init(self, key: PRNGKey, spec: EnvSpec) -> LearnerState:
        pi_key, b_key, q_key, c_key, mixer_key = jax.random.split(key, 5)
        networks = Networks(
            pi_ind=make_agent(pi_key, spec, self.hidden, self.recurrent),
            b_dep=make_correction(b_key, spec, self.hidden, self.deep),
            q_ind=make_agent(q_key, spec, self.hidden, self.recurrent),
            c_dep=make_correction(c_key, spec, self.hidden, self.deep),
            mixer=self.mixer.make(mixer_key, spec),
        )
        return learning.fresh(networks, _targets(networks), self.optimiser, self._optimiser_lists())

    def init_memory(self, spec: EnvSpec) -> Memory:
        return no_memory(spec, self.hidden, self.recurrent)

    # Acting

    def explore(
        self, learner: LearnerState, memory: Memory, observation: Observation, key: PRNGKey, step: Step
    ) -> tuple[Actions, Memory]:
        """The behaviour of training: the dependent policy, sampled along the chain."""
        log_policy = acting.training_policy(self.epsilon_mode, self.epsilon, step)
        epsilon = acting.chance(self.epsilon_mode, self.epsilon, step)
        if not self.dependent:
            return acting.explore(learner.networks.pi_ind, memory, observation, key, log_policy, epsilon)
        luck_key, force_key = jax.random.split(key)
        chain, logits, hidden = self._chain_now(learner.networks, memory, observation)
        forced = forced_actions(observation.avail, epsilon, force_key)
        luck = jax.random.uniform(luck_key, forced.shape)
        alone = jax.random.uniform(jax.random.fold_in(key, 0)) >= self.dependence(step)

        def decide(logits, given):
            avail, own, luck, forced = given
            log_pi = log_policy(jnp.where(alone, own, logits), avail)
            return jnp.where(forced >= 0, forced, pick(log_pi, luck))

        actions = self._choose(chain, decide, (observation.avail, logits, luck, forced))
        return actions, Memory(hidden, actions)

    def execute(
        self,
        learner: LearnerState,
        memory: Memory,
        observation: Observation,
        key: PRNGKey,
        *,
        sample: bool = False,
    ) -> tuple[Actions, Memory]:
        """The independent policy: every agent by what it has seen itself."""
        return acting.execute(learner.networks.pi_ind, memory, observation, key, sample=sample)  # Eq. 12

    def execute_dep(
        self,
        learner: LearnerState,
        memory: Memory,
        observation: Observation,
        key: PRNGKey,
        *,
        sample: bool = False,
    ) -> tuple[Actions, Memory]:
        """The dependent policy: every agent told what its predecessors do."""
        chain, _, hidden = self._chain_now(learner.networks, memory, observation)
        luck = jax.random.uniform(key, chain.own.shape[:1])

        def decide(logits, given):
            avail, luck = given
            return pick(log_softmax(logits, avail), luck) if sample else greedy(logits, avail)

        actions = self._choose(chain, decide, (observation.avail, luck))
        return actions, Memory(hidden, actions)

    def log_prob(
        self, learner: LearnerState, memory: Memory, observation: Observation, actions: Actions
    ) -> Mapping[str, Float[Array, ""]]:
        """The log-probability of a joint action under each joint policy."""
        logits, _, _ = see(learner.networks.pi_ind, memory, observation)
        log_pi = {"ind": log_softmax(logits, observation.avail)}  # Eq. 12
        if self.dependent:
            chain, _, _ = self._chain_now(learner.networks, memory, observation)
            log_pi["dep"] = log_softmax(chain(actions), observation.avail)  # Eq. 11
        return {name: jnp.sum(taken(of_each, actions)) for name, of_each in log_pi.items()}

    def _chain_now(self, networks: Networks, memory: Memory, observation: Observation):
        """The chain of dependent logits of this moment, the independent ones, and the memory after it."""
        logits, h, hidden = see(networks.pi_ind, memory, observation)
        weight = pooled(self._depends(observation.visible), self.dep_pool)
        own = jax.vmap(networks.b_dep.own)(h)
        return networks.b_dep.chain(self._base(logits), own, weight), logits, hidden  # Eq. 10

    def _base(self, logits: Float[Array, "*b N A"]) -> Float[Array, "*b N A"]:
        """What the dependent policy adds its correction to: a committed pi_ind is no base for another."""
        return jnp.zeros_like(logits) if self._committed else logits

    @property
    def _committed(self) -> bool:
        return self.extraction == "committed"

    def _choose(self, chain: Chain, decide: Decide[Given], given: Given) -> Actions:
        if self.sampler == "at-once":
            return choose_at_once(chain, decide, given)[0]
        return choose_in_turn(chain, decide, given, self.groups)

    def _depends(self, visible: Bool[Array, "N N"]) -> Bool[Array, "N N"]:
        """Whom each agent's choice depends on."""
        before = jnp.asarray(predecessors(visible.shape[0], self.groups))
        return before & visible if self.dep_mask == "visible" else before

    def _critic_depends(self, visible: Bool[Array, "N N"]) -> Bool[Array, "N N"]:
        """Whom each agent's dependent critic is told of."""
        if self.critic_dep_scope == "predecessors":
            return self._depends(visible)
        everyone = np.arange(visible.shape[0])
        others = (everyone[:, None] != everyone) & (everyone[:, None] > 0)  # the first is told nothing
        return visible & others if self.dep_mask == "visible" else jnp.asarray(others)

    # Learning

    def update(
        self, learner: LearnerState, batch: Trajectory, key: PRNGKey, step: Step
    ) -> tuple[LearnerState, Metrics]:
        """One step on each of the four losses, all taken on the same batch and at the same parameters."""

        def losses(by: Losses, episode: Trajectory, key: PRNGKey) -> tuple[Rows, Rows]:
            found, metrics = self.losses(by, learner.targets, episode, key, step)
            return found._asdict(), metrics

        found, metrics = learning.gradients(losses, Losses(*[learner.networks] * 4), batch, key)
        slow = self.optimiser
        fast = replace(slow, lr=slow.lr * self.critic_speed)
        each_moves = (
            (optimiser, {name: gradient._asdict()[name] for name in moves})
            for optimiser, gradient, moves in zip((slow, slow, fast, fast), found, self._moves(), strict=True)
        )
        improved = learning.improve(
            learner, each_moves, self._optimiser_lists(), _targets, self.target_period
        )
        return improved, {**metrics, "alpha": self.alpha(step), "epsilon": self.epsilon(step)}

    def losses(
        self, by: Losses, targets: Targets, episode: Trajectory, key: PRNGKey, step: Step
    ) -> tuple[Losses, Rows]:
        """The four losses at every step of one episode.

        `by.j_ind` are the networks as far as J_ind is concerned, and so on: the gradient of the sum with
        respect to each is the gradient of that one loss, and is zero but for what that loss may move.
        """
        seen, actions = episode.observation, episode.actions
        alpha, alpha_ind = self.alpha(step), self.alpha_ind * self.alpha(step)
        log_policy = acting.training_policy(self.epsilon_mode, self.epsilon, step)
        xs = agent_inputs(seen.obs, previous_actions(actions), seen.avail.shape[-1])
        through, committed = self.dep_grad_through_trunk, self._committed
        critic = (by.l_dep if committed else by.l_ind).q_ind  # a committed policy needs one critic alone
        learned, lagging = [by.j_ind.pi_ind.body, critic.body], [targets.q_ind.body]
        h_pi, h_q, h_hat = unroll_together(learned, xs, fixed=lagging)
        h_b, h_c = sg(h_pi), h_q if committed else sg(h_q)
        if through:
            h_b, h_c = unroll_together([by.j_dep.pi_ind.body, by.l_dep.q_ind.body], xs)
        told_b = jax.vmap(lambda v: pooled(self._depends(v), self.dep_pool))(seen.visible)
        told_c = jax.vmap(lambda v: pooled(self._critic_depends(v), self.dep_pool))(seen.visible)

        # The independent policy and critic, for all actions of every agent at every step
        l_ind = each(by.j_ind.pi_ind.head)(h_pi)
        q_ind = each(critic.head)(h_q)
        q_ind_hat = each(targets.q_ind.head)(h_hat)
        log_pi_ind = log_policy(l_ind, seen.avail)

        # The dependent ones, given what predecessors do
        l_base, q_base = sg(self._base(l_ind)), q_ind if committed else sg(q_ind)
        b_dep, c_dep, c_dep_hat = by.j_dep.b_dep, by.l_dep.c_dep, targets.c_dep
        pi_dep = b_dep.chain(l_base, each(b_dep.own)(h_b), told_b)  # Eq. 10
        q_dep = c_dep.chain(q_base, each(c_dep.own)(h_c), told_c)  # Eq. 13
        q_dep_hat = c_dep_hat.chain(q_ind_hat, each(c_dep_hat.own)(h_hat), told_c)

        # a' from the current policies, at every step
        luck_ind, luck_dep = jax.random.uniform(key, (2, *actions.shape))
        a_ind = pick(sg(log_pi_ind), luck_ind)
        a_dep = self._choose_sequence(sg(pi_dep), luck_dep, seen.avail, log_policy)
        log_pi_dep = log_policy(pi_dep.along(a_dep), seen.avail)

        # The values of joint actions: stored ones by the critics, a' by the targets
        mixer, mixer_hat = by.l_ind.mixer, targets.mixer
        mixer_dep = by.l_dep.mixer if self.mixer_grad == "both" else sg(by.l_dep.mixer)
        q_jt_ind = mixed(mixer, q_ind, actions, seen, alpha)  # Eq. 15
        q_jt_dep = mixed(mixer_dep, q_dep.along(actions), actions, seen, alpha)  # Eq. 14
        q_hat_ind = mixed(mixer_hat, q_ind_hat, a_ind, seen, alpha)
        q_hat_dep = mixed(mixer_hat, q_dep_hat.along(a_dep), a_dep, seen, alpha)
        y_ind = self.target(episode, q_hat_ind, taken(log_pi_ind, a_ind), alpha)
        y_dep = self.target(episode, q_hat_dep, taken(log_pi_dep, a_dep), alpha)
        if isinstance(mixer_hat, SoftAdvantage) and self.targets == "value":
            v_hat = jax.vmap(mixer_hat.value)(seen.state)[:, 0]
            y_dep = learning.target(episode, v_hat, self.gamma, self.td_lambda)

        q_dep_now = q_dep.along(a_dep)
        q_own = self.committed_values(l_ind, q_dep, seen.avail) if committed else q_ind
        losses = Losses(
            j_ind=self.policy_loss(log_pi_ind, sg(q_own), seen.avail, alpha_ind)[:-1],  # Eq. 19
            j_dep=self.policy_loss(log_pi_dep, sg(q_dep_now), seen.avail, alpha)[:-1],  # Eq. 18
            l_ind=(q_jt_ind[:-1] - sg(y_ind)) ** 2 + jax.vmap(mixer.penalty)(seen.state[:-1]),  # Eq. 17
            l_dep=(q_jt_dep[:-1] - sg(y_dep)) ** 2 + jax.vmap(mixer_dep.penalty)(seen.state[:-1]),  # Eq. 16
        )
        if self.improvement == "expectation":
            expected = jnp.mean(soft_regression(l_ind, sg(q_own), seen.avail, alpha_ind), axis=-1)
            losses = losses._replace(j_ind=expected[:-1])
        metrics = {"entropy_ind": jnp.mean(entropy(log_pi_ind), axis=-1)[:-1]}
        nothing = jnp.zeros_like(losses.j_ind)
        if not self.dependent:
            return losses._replace(j_dep=nothing, l_dep=nothing), metrics
        if committed:
            losses = losses._replace(l_ind=nothing)
        return losses, metrics | {"entropy_dep": jnp.mean(entropy(log_pi_dep), axis=-1)[:-1]}

    def policy_loss(
        self,
        log_pi: Float[Array, "rows N A"],
        q: Float[Array, "rows N A"],
        avail: Bool[Array, "rows N A"],
        alpha: Float[Array, ""],
    ) -> Float[Array, " rows"]:
        """How far the agents' policies are from the soft-optimal ones under a critic."""
        if self.improvement == "paper":
            return jnp.mean(soft_improvement(log_pi, q, alpha), axis=-1)
        return jnp.mean(soft_imitation(log_pi, q, avail, alpha), axis=-1)

    def committed_values(
        self, l_ind: Float[Array, "rows N A"], q_dep: Chain, avail: Bool[Array, "rows N A"]
    ) -> Float[Array, "rows N A"]:
        """The dependent values where all predecessors are greedy, and a bonus for being greedy oneself."""
        a_bar = greedy(l_ind, avail)
        return q_dep.along(a_bar) + self.delta * jax.nn.one_hot(a_bar, l_ind.shape[-1])

    def target(
        self,
        episode: Trajectory,
        q_hat: Float[Array, " rows"],
        log_pi: Float[Array, "rows N"],
        alpha: Float[Array, ""],
    ) -> Float[Array, " T"]:
        """What a critic should say of the stored actions."""
        return learning.soft_target(
            episode,
            q_hat,
            log_pi,
            alpha,
            gamma=self.gamma,
            lambda_=self.td_lambda,
            reduce=self.entropy_reduce,
            terminal=self.entropy_terminal,
        )

    def _choose_sequence(self, chain: Chain, luck, avail, log_policy: LogPolicy) -> Actions:
        """One draw of the dependent policy at every step of an episode."""

        def decide(logits, given):
            avail, luck = given
            return pick(log_policy(logits, avail), luck)

        return chain.over_steps(lambda chain, *given: self._choose(chain, decide, given), avail, luck)

    def _moves(self) -> Losses:
        """The networks that each loss moves."""
        mixer = {"mixer"} if self.mixer_grad == "both" else set()
        pi_trunk, q_trunk = ({"pi_ind"}, {"q_ind"}) if self.dep_grad_through_trunk else (set(), set())
        if not self.dependent:
            return Losses(j_ind={"pi_ind"}, j_dep=set(), l_ind={"q_ind", "mixer"}, l_dep=set())
        if self._committed:
            moved = {"b_dep"} | pi_trunk
            return Losses(j_ind={"pi_ind"}, j_dep=moved, l_ind=set(), l_dep={"q_ind", "c_dep", "mixer"})
        return Losses(
            j_ind={"pi_ind"},
            j_dep={"b_dep"} | pi_trunk,
            l_ind={"q_ind", "mixer"},
            l_dep={"c_dep"} | mixer | q_trunk,
        )

    def _optimiser_lists(self) -> Lists:
        """Which networks share the state of an optimiser, and one clip of the gradient norm."""
        if self.shared_optimiser:
            return (("pi_ind", "b_dep"), ("q_ind", "c_dep", "mixer"))
        return tuple((name,) for name in Networks._fields)


def _targets(networks: Networks) -> Targets:
    return Targets(networks.q_ind, networks.c_dep, networks.mixer)
