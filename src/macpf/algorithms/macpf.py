"""MACPF: multi-agent conditional policy factorisation (Wang, Ye and Lu, ICLR 2023).

Every agent has an independent policy pi_ind and critic q_ind, and a correction to each, b_dep and c_dep,
that sees what the agents before it do. Together they make the dependent policy, which collects the data
and can express any joint policy; the independent one is learned beside it and is what is executed.
Equation numbers are the paper's. A reader finds them in the order: networks and policies (10 to 15) in
`MACPF.losses`, the four losses (16 to 19) at its end, what each of them moves in `MACPF._moves`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from macpf import optim
from macpf.errors import require
from macpf.maths import (
    entropy,
    forced_actions,
    greedy,
    log_mixture,
    log_softmax,
    masked_mean,
    pick,
    soft_improvement,
    taken,
    td_lambda,
)
from macpf.networks.agents import (
    Agent,
    agent_inputs,
    each,
    make_agent,
    previous_actions,
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
from macpf.networks.mixers import HyperMixer, make_hyper_mixer
from macpf.optim import Optimiser, OptState, RMSprop
from macpf.schedules import Linear, Schedule
from macpf.types import Actions, EnvSpec, Memory, Metrics, Observation, Policy, PRNGKey, Step, Trajectory

sg = jax.lax.stop_gradient


class Networks(NamedTuple):
    """What MACPF learns: theta, phi, psi, omega and Theta, under the names of what they parameterise."""

    pi_ind: Agent
    b_dep: Correction
    q_ind: Agent
    c_dep: Correction
    mixer: HyperMixer


class Targets(NamedTuple):
    """The copies that lag behind; the policy has none."""

    q_ind: Agent
    c_dep: Correction
    mixer: HyperMixer


class Losses(NamedTuple):
    """One entry for each of the four losses: its value, or the networks it is a function of."""

    j_ind: Any
    j_dep: Any
    l_ind: Any
    l_dep: Any


class MACPFLearner(eqx.Module):
    """The networks with their targets, the state of their optimisers, and the number of updates made."""

    networks: Networks
    targets: Targets
    optimisers: Mapping[str, OptState]
    updates: Int[Array, ""]


@dataclass(frozen=True)
class MACPF:
    """MACPF's hyper-parameters, and what it does with them.

    Args:
        recurrent: agents remember (a GRU) or not.
        hidden: units of every layer of the agents and corrections.
        mixer_embed: units of the mixer.
        mixer_hidden: units of the mixer's hypernetworks.
        optimiser: how parameters descend.
        gamma: discount.
        alpha: temperature, over environment steps.
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
        mixer_grad: the mixer is moved by both critic losses, or by the independent one alone.
        shared_optimiser: one optimiser state for actor and one for critic, rather than one per network.
        target_period: updates between copies to the target networks.
        groups: agents decide in this many groups, each depending on earlier groups only (None: one by one).
        sampler: the chain is walked agent by agent, or found by iteration; the actions are the same.
    """

    recurrent: bool = True
    hidden: int = 64
    mixer_embed: int = 64
    mixer_hidden: int = 64
    optimiser: Optimiser = field(default_factory=RMSprop)
    gamma: float = 0.99
    alpha: Schedule = field(default_factory=lambda: Linear(0.5, 0.05, 200_000))
    epsilon: Schedule = field(default_factory=lambda: Linear(1.0, 0.05, 50_000))
    epsilon_mode: Literal["none", "behaviour", "everywhere"] = "none"
    td_lambda: float = 0.8
    entropy_reduce: Literal["mean", "sum"] = "mean"
    entropy_terminal: Literal["bootstrap", "always"] = "bootstrap"
    dep_grad_through_trunk: bool = False
    critic_dep_scope: Literal["predecessors", "visible"] = "predecessors"
    dep_mask: Literal["visible", "all"] = "visible"
    dep_pool: Pool = "sum/N"
    mixer_grad: Literal["both", "ind"] = "both"
    shared_optimiser: bool = False
    target_period: int = 200
    groups: int | None = None
    sampler: Literal["in-turn", "at-once"] = "in-turn"

    def __post_init__(self) -> None:
        require(0 <= self.gamma <= 1, f"gamma must be in [0, 1], not {self.gamma}")
        require(0 <= self.td_lambda <= 1, f"td_lambda must be in [0, 1], not {self.td_lambda}")
        sizes = (self.hidden, self.mixer_embed, self.mixer_hidden, self.target_period)
        require(min(sizes) > 0, "hidden, mixer_embed, mixer_hidden and target_period must be positive")
        require(self.groups is None or self.groups > 0, f"groups must be positive, not {self.groups}")

    @property
    def policies(self) -> Mapping[str, Policy]:
        return {"ind": self.execute, "dep": self.execute_dep}

    def init(self, key: PRNGKey, spec: EnvSpec) -> MACPFLearner:
        pi_key, b_key, q_key, c_key, mixer_key = jax.random.split(key, 5)
        networks = Networks(
            pi_ind=make_agent(pi_key, spec, self.hidden, self.recurrent),
            b_dep=make_correction(b_key, spec, self.hidden),
            q_ind=make_agent(q_key, spec, self.hidden, self.recurrent),
            c_dep=make_correction(c_key, spec, self.hidden),
            mixer=make_hyper_mixer(mixer_key, spec, self.mixer_embed, self.mixer_hidden, "linear"),
        )
        optimisers = optim.init_lists(self.optimiser, networks._asdict(), self._optimiser_lists())
        return MACPFLearner(networks, _targets(networks), optimisers, jnp.zeros((), jnp.int32))

    def init_memory(self, spec: EnvSpec) -> Memory:
        size = self.hidden if self.recurrent else 0
        return Memory(jnp.zeros((spec.n_agents, size)), jnp.full(spec.n_agents, -1))

    # Acting

    def explore(
        self, learner: MACPFLearner, memory: Memory, observation: Observation, key: PRNGKey, step: Step
    ) -> tuple[Actions, Memory]:
        """The behaviour of training: the dependent policy, sampled along the chain."""
        luck_key, force_key = jax.random.split(key)
        chain, hidden = self._chain_now(learner.networks, memory, observation)
        log_policy = self._log_policy(step)
        epsilon = 0.0 if self.epsilon_mode == "none" else self.epsilon(step)
        forced = forced_actions(observation.avail, epsilon, force_key)
        luck = jax.random.uniform(luck_key, forced.shape)

        def decide(logits, given):
            avail, luck, forced = given
            return jnp.where(forced >= 0, forced, pick(log_policy(logits, avail), luck))

        actions = self._choose(chain, decide, (observation.avail, luck, forced))
        return actions, Memory(hidden, actions)

    def execute(
        self,
        learner: MACPFLearner,
        memory: Memory,
        observation: Observation,
        key: PRNGKey,
        *,
        sample: bool = False,
    ) -> tuple[Actions, Memory]:
        """The independent policy: every agent by what it has seen itself."""
        logits, _, hidden = self._logits_now(learner.networks, memory, observation)
        log_pi = log_softmax(logits, observation.avail)  # Eq. 12
        luck = jax.random.uniform(key, logits.shape[:1])
        actions = pick(log_pi, luck) if sample else greedy(log_pi, observation.avail)
        return actions, Memory(hidden, actions)

    def execute_dep(
        self,
        learner: MACPFLearner,
        memory: Memory,
        observation: Observation,
        key: PRNGKey,
        *,
        sample: bool = False,
    ) -> tuple[Actions, Memory]:
        """The dependent policy: every agent told what its predecessors do."""
        chain, hidden = self._chain_now(learner.networks, memory, observation)
        luck = jax.random.uniform(key, chain.own.shape[:1])

        def decide(logits, given):
            avail, luck = given
            return pick(log_softmax(logits, avail), luck) if sample else greedy(logits, avail)

        actions = self._choose(chain, decide, (observation.avail, luck))
        return actions, Memory(hidden, actions)

    def log_prob(
        self, learner: MACPFLearner, memory: Memory, observation: Observation, actions: Actions
    ) -> Mapping[str, Float[Array, ""]]:
        """The log-probability of a joint action under both joint policies."""
        logits, _, _ = self._logits_now(learner.networks, memory, observation)
        chain, _ = self._chain_now(learner.networks, memory, observation)
        ind = log_softmax(logits, observation.avail)
        dep = log_softmax(chain(actions), observation.avail)
        return {"ind": jnp.sum(taken(ind, actions)), "dep": jnp.sum(taken(dep, actions))}  # Eqs. 12, 11

    def _logits_now(self, networks: Networks, memory: Memory, observation: Observation):
        """The independent logits of this moment, the features under them, and the memory after it."""
        xs = agent_inputs(observation.obs, memory.previous, observation.avail.shape[-1])
        h, hidden = jax.vmap(networks.pi_ind.body)(xs, memory.hidden)
        return jax.vmap(networks.pi_ind.head)(h), h, hidden

    def _chain_now(self, networks: Networks, memory: Memory, observation: Observation):
        """The chain of dependent logits of this moment, and the memory after it."""
        logits, h, hidden = self._logits_now(networks, memory, observation)
        weight = pooled(self._depends(observation.visible), self.dep_pool)
        own = logits + jax.vmap(networks.b_dep.own)(h)  # Eq. 10
        return Chain(own, networks.b_dep.table(), weight), hidden

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

    def _log_policy(self, step: Step):
        """How logits become log-probabilities in training."""
        if self.epsilon_mode == "everywhere":
            return lambda logits, avail: log_mixture(logits, avail, self.epsilon(step))
        return log_softmax

    # Learning

    def update(
        self, learner: MACPFLearner, batch: Trajectory, key: PRNGKey, step: Step
    ) -> tuple[MACPFLearner, Metrics]:
        """One step on each of the four losses, all taken on the same batch and at the same parameters."""
        keys = jax.random.split(key, batch.mask.shape[0])

        def total(by: Losses) -> tuple[Float[Array, ""], Metrics]:
            per_row, metrics = jax.vmap(self.losses, in_axes=(None, None, 0, 0, None))(
                by, learner.targets, batch, keys, step
            )
            mask = batch.mask[:, :-1]
            losses = Losses(*(masked_mean(rows, mask) for rows in per_row))
            averages = {name: masked_mean(rows, mask) for name, rows in metrics.items()}
            return sum(losses, jnp.zeros(())), losses._asdict() | averages

        gradients, metrics = jax.grad(total, has_aux=True)(Losses(*[learner.networks] * 4))
        networks, optimisers = learner.networks._asdict(), learner.optimisers
        for gradient, moves in zip(gradients, self._moves(), strict=True):
            moved = {name: network for name, network in gradient._asdict().items() if name in moves}
            networks, optimisers = optim.descend_lists(
                self.optimiser, networks, moved, optimisers, self._optimiser_lists()
            )
        networks, updates = Networks(**networks), learner.updates + 1
        targets = optim.lag(learner.targets, _targets(networks), updates, self.target_period)
        scales = {"alpha": self.alpha(step), "epsilon": self.epsilon(step)}
        return MACPFLearner(networks, targets, optimisers, updates), {**metrics, **scales}

    def losses(
        self, by: Losses, targets: Targets, episode: Trajectory, key: PRNGKey, step: Step
    ) -> tuple[Losses, Mapping[str, Float[Array, " T"]]]:
        """The four losses at every step of one episode.

        `by.j_ind` are the networks as far as J_ind is concerned, and so on: the gradient of the sum with
        respect to each is the gradient of that one loss, and is zero but for what that loss may move.
        """
        seen, actions = episode.observation, episode.actions
        alpha, log_policy = self.alpha(step), self._log_policy(step)
        xs = agent_inputs(seen.obs, previous_actions(actions), seen.avail.shape[-1])
        h_pi, h_q = unroll_together([by.j_ind.pi_ind.body, by.l_ind.q_ind.body], xs)
        (h_hat,) = unroll_together([targets.q_ind.body], xs)
        through = self.dep_grad_through_trunk
        h_b = unroll_together([by.j_dep.pi_ind.body], xs)[0] if through else sg(h_pi)
        h_c = unroll_together([by.l_dep.q_ind.body], xs)[0] if through else sg(h_q)
        told_b = jax.vmap(lambda v: pooled(self._depends(v), self.dep_pool))(seen.visible)
        told_c = jax.vmap(lambda v: pooled(self._critic_depends(v), self.dep_pool))(seen.visible)

        # The independent policy and critic, for all actions of every agent at every step
        l_ind = each(by.j_ind.pi_ind.head)(h_pi)
        q_ind = each(by.l_ind.q_ind.head)(h_q)
        q_ind_hat = each(targets.q_ind.head)(h_hat)
        log_pi_ind = log_policy(l_ind, seen.avail)

        # The dependent ones, given what predecessors do
        pi_dep = Chain(sg(l_ind) + each(by.j_dep.b_dep.own)(h_b), by.j_dep.b_dep.table(), told_b)  # Eq. 10
        q_dep = Chain(sg(q_ind) + each(by.l_dep.c_dep.own)(h_c), by.l_dep.c_dep.table(), told_c)  # Eq. 13
        q_dep_hat = Chain(q_ind_hat + each(targets.c_dep.own)(h_hat), targets.c_dep.table(), told_c)

        # a' from the current policies, at every step
        luck_ind, luck_dep = jax.random.uniform(key, (2, *actions.shape))
        a_ind = pick(sg(log_pi_ind), luck_ind)
        a_dep = self._choose_sequence(sg(pi_dep), luck_dep, seen.avail, log_policy)
        log_pi_dep = log_policy(pi_dep.along(a_dep), seen.avail)

        # The values of joint actions: stored ones by the critics, a' by the targets
        mix, mix_hat = jax.vmap(by.l_ind.mixer), jax.vmap(targets.mixer)
        mix_dep = jax.vmap(by.l_dep.mixer if self.mixer_grad == "both" else sg(by.l_dep.mixer))
        q_jt_ind = mix(taken(q_ind, actions), seen.state)  # Eq. 15
        q_jt_dep = mix_dep(taken(q_dep.along(actions), actions), seen.state)  # Eq. 14
        q_hat_ind = mix_hat(taken(q_ind_hat, a_ind), seen.state)
        q_hat_dep = mix_hat(taken(q_dep_hat.along(a_dep), a_dep), seen.state)
        y_ind = self.target(episode, q_hat_ind, taken(log_pi_ind, a_ind), alpha)
        y_dep = self.target(episode, q_hat_dep, taken(log_pi_dep, a_dep), alpha)

        q_dep_now = q_dep.along(a_dep)
        losses = Losses(
            j_ind=jnp.mean(soft_improvement(log_pi_ind, sg(q_ind), alpha), axis=-1)[:-1],  # Eq. 19
            j_dep=jnp.mean(soft_improvement(log_pi_dep, sg(q_dep_now), alpha), axis=-1)[:-1],  # Eq. 18
            l_ind=(q_jt_ind[:-1] - sg(y_ind)) ** 2,  # Eq. 17
            l_dep=(q_jt_dep[:-1] - sg(y_dep)) ** 2,  # Eq. 16
        )
        return losses, {
            "entropy_ind": jnp.mean(entropy(log_pi_ind), axis=-1)[:-1],
            "entropy_dep": jnp.mean(entropy(log_pi_dep), axis=-1)[:-1],
        }

    def target(
        self,
        episode: Trajectory,
        q_hat: Float[Array, " rows"],
        log_pi: Float[Array, "rows N"],
        alpha: Float[Array, ""],
    ) -> Float[Array, " T"]:
        """What a critic should say: r + gamma (Q_hat(s', a') - alpha log pi(a'|s')), or its lambda-return."""
        rows = (episode.reward[:-1], episode.terminated[:-1], episode.mask[:-1])
        returns = td_lambda(*rows, q_hat, self.gamma, self.td_lambda)
        log_pi_jt = jnp.sum(log_pi, axis=-1) if self.entropy_reduce == "sum" else jnp.mean(log_pi, axis=-1)
        on = 1.0 if self.entropy_terminal == "always" else self.gamma * (1.0 - episode.terminated[:-1])
        return returns - alpha * on * log_pi_jt[1:]

    def _choose_sequence(self, chain: Chain, luck, avail, log_policy) -> Actions:
        """One draw of the dependent policy at every step of an episode."""

        def decide(logits, given):
            avail, luck = given
            return pick(log_policy(logits, avail), luck)

        def at(own, weight, *given):
            return self._choose(Chain(own, chain.table, weight), decide, given)

        return jax.vmap(at)(chain.own, chain.weight, avail, luck)

    def _moves(self) -> Losses:
        """The networks that each loss moves."""
        mixer = {"mixer"} if self.mixer_grad == "both" else set()
        pi_trunk, q_trunk = ({"pi_ind"}, {"q_ind"}) if self.dep_grad_through_trunk else (set(), set())
        return Losses(
            j_ind={"pi_ind"},
            j_dep={"b_dep"} | pi_trunk,
            l_ind={"q_ind", "mixer"},
            l_dep={"c_dep"} | mixer | q_trunk,
        )

    def _optimiser_lists(self) -> tuple[tuple[str, ...], ...]:
        """Which networks share the state of an optimiser, and one clip of the gradient norm."""
        if self.shared_optimiser:
            return (("pi_ind", "b_dep"), ("q_ind", "c_dep", "mixer"))
        return tuple((name,) for name in Networks._fields)


def _targets(networks: Networks) -> Targets:
    return Targets(networks.q_ind, networks.c_dep, networks.mixer)
