"""MAPPO (Yu et al., 2022): PPO for teams, every agent's own policy under a critic that sees the state.

On-policy: an update sees the episodes just played, several times over, and then they are gone. The
policies that played them are those the update starts from, so what they thought is computed again
rather than stored. Agents without a choice (in SMAC, the dead) do not count in the policy's loss.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from macpf import optim
from macpf.algorithms import learning
from macpf.errors import require
from macpf.maths import entropy, gae, greedy, log_softmax, masked_mean, pick, taken
from macpf.networks.agents import agent_inputs, input_size, no_memory, previous_actions
from macpf.networks.normed import Activation, Normed, make_normed
from macpf.optim import Adam, Optimiser, OptState
from macpf.types import Actions, EnvSpec, Memory, Metrics, Observation, Policy, PRNGKey, Step, Trajectory

LISTS = (("pi",), ("v",))


class Scale(eqx.Module):
    """The running mean and square of the returns, each summed with a `weight` that tells how much is in."""

    mean: Float[Array, ""]
    square: Float[Array, ""]
    weight: Float[Array, ""]

    def add(self, values: Float[Array, "..."], mask: Bool[Array, "..."], beta: float) -> "Scale":
        """The scale after these returns too."""
        news = (masked_mean(values, mask), masked_mean(values**2, mask), jnp.ones(()))
        olds = (self.mean, self.square, self.weight)
        return Scale(*(beta * old + (1 - beta) * new for old, new in zip(olds, news, strict=True)))

    @property
    def moments(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean, and the standard deviation (0.1 at the least)."""
        weight = jnp.maximum(self.weight, 1e-5)
        mean = self.mean / weight
        return mean, jnp.sqrt(jnp.maximum(self.square / weight - mean**2, 1e-2))


class Networks(NamedTuple):
    """The policy of all agents, and the critic."""

    pi: Normed
    v: Normed


class MAPPOLearner(eqx.Module):
    """Both networks, the state of their optimisers, the scale of the returns, the number of updates."""

    networks: Networks
    optimisers: Mapping[str, OptState]
    scale: Scale
    updates: Int[Array, ""]


class Rollout(NamedTuple):
    """What the losses need to know of some episodes, in pieces as long as gradients look back."""

    xs_pi: Float[Array, "B K C N I"]
    xs_v: Float[Array, "B K C N J"]
    start_pi: Float[Array, "B K N M"]
    start_v: Float[Array, "B K N M"]
    avail: Bool[Array, "B K C N A"]
    actions: Int[Array, "B K C N"]
    log_pi: Float[Array, "B K C N"]
    value: Float[Array, "B K C N"]
    advantage: Float[Array, "B K C N"]
    returns: Float[Array, "B K C N"]
    mask: Bool[Array, "B K C N"]
    choice: Bool[Array, "B K C N"]


@dataclass(frozen=True)
class MAPPO:
    """MAPPO's hyper-parameters, and what it does with them.

    Args:
        recurrent: policies and critic remember (a GRU) or not.
        hidden: units of every layer.
        layers: hidden layers before the GRU, or in all.
        activation: between the layers.
        own_inputs: agents are told their index and previous action, and the critic what the agent sees.
        optimiser: how parameters descend.
        gamma: discount.
        gae_lambda: how far advantages look ahead.
        clip: how far the policy (and the value) may move in one update.
        ppo_epochs: passes over the episodes of one update.
        minibatches: parts of the episodes that are learned from one after the other.
        chunk: steps that gradients look back through the GRU.
        entropy_bonus: weight of the policy's entropy.
        huber: error of the value beyond which its loss grows linearly.
        gain: size of the policy's first logits.
        value_beta: how slowly the scale of the returns forgets.
    """

    on_policy: ClassVar[bool] = True

    recurrent: bool = True
    hidden: int = 64
    layers: int = 2
    activation: Activation = "relu"
    own_inputs: bool = True
    optimiser: Optimiser = field(default_factory=lambda: Adam(lr=5e-4, eps=1e-5))
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    ppo_epochs: int = 10
    minibatches: int = 1
    chunk: int = 10
    entropy_bonus: float = 0.01
    huber: float = 10.0
    gain: float = 0.01
    value_beta: float = 0.99999

    def __post_init__(self) -> None:
        learning.check(self.gamma, self.gae_lambda, self.hidden, 1)
        counts = (self.layers, self.ppo_epochs, self.minibatches, self.chunk)
        require(min(counts) > 0, "layers, ppo_epochs, minibatches and chunk must be positive")
        require(self.clip > 0 and self.huber > 0, "clip and huber must be positive")
        require(0 <= self.value_beta < 1, f"value_beta must be in [0, 1), not {self.value_beta}")

    @property
    def policies(self) -> Mapping[str, Policy]:
        return {"ind": self.execute}

    def init(self, key: PRNGKey, spec: EnvSpec) -> MAPPOLearner:
        pi_key, v_key = jax.random.split(key)
        own = input_size(spec)
        sizes = (own, spec.state_dim + own) if self.own_inputs else (spec.obs_dim, spec.state_dim)
        shape = {"recurrent": self.recurrent, "layers": self.layers, "activation": self.activation}
        networks = Networks(
            pi=make_normed(pi_key, sizes[0], self.hidden, spec.n_actions, gain=self.gain, **shape),
            v=make_normed(v_key, sizes[1], self.hidden, 1, gain=1.0, **shape),
        )
        optimisers = optim.init_lists(self.optimiser, networks._asdict(), LISTS)
        zero = jnp.zeros(())
        return MAPPOLearner(networks, optimisers, Scale(zero, zero, zero), jnp.zeros((), jnp.int32))

    def init_memory(self, spec: EnvSpec) -> Memory:
        return no_memory(spec, self.hidden, self.recurrent)

    # Acting

    def explore(
        self, learner: MAPPOLearner, memory: Memory, observation: Observation, key: PRNGKey, step: Step
    ) -> tuple[Actions, Memory]:
        return self.execute(learner, memory, observation, key, sample=True)

    def execute(
        self,
        learner: MAPPOLearner,
        memory: Memory,
        observation: Observation,
        key: PRNGKey,
        *,
        sample: bool = False,
    ) -> tuple[Actions, Memory]:
        log_pi, hidden = self._see(learner.networks.pi, memory, observation)
        luck = jax.random.uniform(key, log_pi.shape[:1])
        actions = pick(log_pi, luck) if sample else greedy(log_pi, observation.avail)
        return actions, Memory(hidden, actions)

    def log_prob(
        self, learner: MAPPOLearner, memory: Memory, observation: Observation, actions: Actions
    ) -> Mapping[str, Float[Array, ""]]:
        log_pi, _ = self._see(learner.networks.pi, memory, observation)
        return {"ind": jnp.sum(taken(log_pi, actions))}

    def _see(self, pi: Normed, memory: Memory, observation: Observation):
        """Every agent's policy at this moment, and its hidden units after it."""
        xs, _ = self._inputs(observation, memory.previous)
        logits, hidden = jax.vmap(pi)(xs, memory.hidden)
        return log_softmax(logits, observation.avail), hidden

    def _inputs(self, seen: Observation, previous: Actions) -> tuple[Array, Array]:
        """What the policy is told of each agent, and the critic: of those without a choice, nothing."""
        states = jnp.broadcast_to(seen.state[..., None, :], (*seen.obs.shape[:-1], seen.state.shape[-1]))
        if not self.own_inputs:
            return seen.obs, states
        xs = agent_inputs(seen.obs, previous, seen.avail.shape[-1])
        told = jnp.concatenate([states, xs], axis=-1)
        return xs, jnp.where(_has_choice(seen.avail)[..., None], told, 0.0)

    # Learning

    def update(
        self, learner: MAPPOLearner, batch: Trajectory, key: PRNGKey, step: Step
    ) -> tuple[MAPPOLearner, Metrics]:
        """Several passes over the episodes just played."""
        episodes = batch.mask.shape[0]
        require(
            episodes % self.minibatches == 0,
            f"{episodes} parallel episodes cannot be split into {self.minibatches} minibatches",
        )
        rollout = self.judge(learner, batch)

        def learn(learner: MAPPOLearner, part: Rollout) -> tuple[MAPPOLearner, Metrics]:
            scale = learner.scale.add(part.returns, part.mask, self.value_beta)
            (gradients, metrics) = jax.grad(self.loss, has_aux=True)(learner.networks, scale, part)
            networks, optimisers = optim.descend_lists(
                self.optimiser,
                learner.networks._asdict(),
                gradients._asdict(),
                learner.optimisers,
                LISTS,
            )
            return MAPPOLearner(Networks(**networks), optimisers, scale, learner.updates + 1), metrics

        def once(learner: MAPPOLearner, key: PRNGKey):
            order = jax.random.permutation(key, episodes).reshape(self.minibatches, -1)
            parts = jax.tree.map(lambda x: x[order], rollout)
            return jax.lax.scan(learn, learner, parts)

        learner, metrics = jax.lax.scan(once, learner, jax.random.split(key, self.ppo_epochs))
        return learner, {name: jnp.mean(values) for name, values in metrics.items()}

    def judge(self, learner: MAPPOLearner, batch: Trajectory) -> Rollout:
        """What the networks of this moment think of the episodes, and how these went against expectation."""
        seen, previous = batch.observation, jax.vmap(previous_actions)(batch.actions)
        xs_pi, xs_v = self._inputs(seen, previous)

        start = jnp.zeros((xs_pi.shape[0], xs_pi.shape[2], self.hidden if self.recurrent else 0))
        logits, hidden_pi = _unroll(learner.networks.pi, xs_pi, start)
        values, hidden_v = _unroll(learner.networks.v, xs_v, start)
        value, (mean, std) = values[..., 0], learner.scale.moments

        def advantages(episode: Trajectory, value: Float[Array, "rows N"]) -> Float[Array, "T N"]:
            rows = (episode.reward[:-1], episode.terminated[:-1], episode.mask[:-1])
            return jax.vmap(lambda v: gae(*rows, v, self.gamma, self.gae_lambda), in_axes=1, out_axes=1)(
                value
            )

        advantage = jax.vmap(advantages)(batch, value * std + mean)
        mask = jnp.broadcast_to(batch.mask[..., None], value.shape)[:, :-1]
        choice = mask & _has_choice(seen.avail)[:, :-1]
        centre = masked_mean(advantage, choice)
        spread = jnp.sqrt(masked_mean((advantage - centre) ** 2, choice))
        cut = self._cut
        return Rollout(
            xs_pi=cut(xs_pi[:, :-1]),
            xs_v=cut(xs_v[:, :-1]),
            start_pi=self._starts(start, hidden_pi),
            start_v=self._starts(start, hidden_v),
            avail=cut(seen.avail[:, :-1]),
            actions=cut(batch.actions[:, :-1]),
            log_pi=cut(taken(log_softmax(logits, seen.avail), batch.actions)[:, :-1]),
            value=cut(value[:, :-1]),
            advantage=cut((advantage - centre) / (spread + 1e-5)),
            returns=cut(advantage + (value * std + mean)[:, :-1]),
            mask=cut(mask),
            choice=cut(choice),
        )

    def loss(
        self, networks: Networks, scale: Scale, part: Rollout
    ) -> tuple[Float[Array, ""], Mapping[str, Float[Array, ""]]]:
        """The clipped loss of the policy with its entropy, and the clipped loss of the value."""
        unroll = jax.vmap(_unroll, in_axes=(None, 0, 0))  # over episodes; inside, over their pieces
        log_pi = log_softmax(unroll(networks.pi, part.xs_pi, part.start_pi)[0], part.avail)
        value = unroll(networks.v, part.xs_v, part.start_v)[0][..., 0]
        ratio = jnp.exp(taken(log_pi, part.actions) - part.log_pi)
        clipped = jnp.clip(ratio, 1 - self.clip, 1 + self.clip)
        gain = masked_mean(jnp.minimum(ratio * part.advantage, clipped * part.advantage), part.choice)
        bonus = masked_mean(entropy(log_pi), part.choice)
        mean, std = scale.moments
        near = part.value + jnp.clip(value - part.value, -self.clip, self.clip)
        errors = (huber((part.returns - mean) / std - v, self.huber) for v in (value, near))
        value_loss = masked_mean(jnp.maximum(*errors), part.mask)
        total = -gain - self.entropy_bonus * bonus + value_loss
        return total, {"policy_gain": gain, "entropy_ind": bonus, "value_loss": value_loss}

    def _cut(self, rows: Array) -> Array:
        """The rows [B, T, ...] of episodes in pieces [B, K, C, ...], the last one padded with nothing."""
        steps, size = rows.shape[1], self._piece(rows.shape[1])
        pieces = -(-steps // size)
        padding = [(0, 0), (0, pieces * size - steps)] + [(0, 0)] * (rows.ndim - 2)
        return jnp.pad(rows, padding).reshape(rows.shape[0], pieces, size, *rows.shape[2:])

    def _starts(self, start: Float[Array, "B N M"], hidden: Float[Array, "B rows N M"]) -> Array:
        """What the agents remembered at the start of every piece."""
        before = jnp.concatenate([start[:, None], hidden[:, :-2]], axis=1)
        return self._cut(before)[:, :, 0]

    def _piece(self, steps: int) -> int:
        return min(self.chunk, steps) if self.recurrent else steps


def huber(error: Float[Array, "..."], delta: float) -> Float[Array, "..."]:
    """Half the square of small errors, a straight line beyond `delta`."""
    size = jnp.abs(error)
    return jnp.where(size <= delta, 0.5 * error**2, delta * (size - 0.5 * delta))


def _has_choice(avail: Bool[Array, "*b A"]) -> Bool[Array, "*b"]:
    return jnp.sum(avail, axis=-1) > 1


def _unroll(
    network: Normed, xs: Float[Array, "B T N I"], start: Float[Array, "B N M"]
) -> tuple[Float[Array, "B T N J"], Float[Array, "B T N M"]]:
    """A network over all agents of some stretches of time."""
    agents = jax.vmap(network.unroll, in_axes=(1, 0), out_axes=1)
    return jax.vmap(agents)(xs, start)
