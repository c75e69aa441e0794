"""Mixers: from the agents' values to the value of the team; only they see the state.

Each is called with the values q_i of what the agents do, the values v_i of the agents' best (hard or
soft) choice, the joint action and the state; a mixer leaves out what it has no use for. How a mixer is
made is a value too (`Additive`, `Hyper`, `Duplex`, `Attention`,
`Advantage`): the `mixer` option of an algorithm.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from macpf.errors import require
from macpf.networks.layers import Layers, make_layers, make_several, of_each
from macpf.types import EnvSpec, PRNGKey

TINY = 1e-10  # keeps positive weights off zero


@runtime_checkable
class Mixer(Protocol):
    """The value of the team, and what the loss of its critic adds to keep the mixer tame."""

    def __call__(
        self,
        q: Float[Array, " N"],
        v: Float[Array, " N"],
        actions: Int[Array, " N"],
        state: Float[Array, " S"],
    ) -> Float[Array, ""]: ...

    def penalty(self, state: Float[Array, " S"]) -> Float[Array, ""]: ...


class Sum(eqx.Module):
    """VDN's: the plain sum."""

    def __call__(
        self,
        q: Float[Array, " N"],
        v: Float[Array, " N"],
        actions: Int[Array, " N"],
        state: Float[Array, " S"],
    ) -> Float[Array, ""]:
        return jnp.sum(q)

    def penalty(self, state: Float[Array, " S"]) -> Float[Array, ""]:
        return jnp.zeros(())


class HyperMixer(eqx.Module):
    """Layers whose weights are non-negative functions of the state.

    Without a non-linearity ("linear", MACPF's) this is a weighted sum, sum_i k_i(s) q_i + beta(s)
    with k_i >= 0; with "elu" it is QMIX's.
    """

    w1: Layers
    b1: eqx.nn.Linear
    w2: Layers
    v: Layers
    form: Literal["linear", "elu"] = eqx.field(static=True)

    def __call__(
        self,
        q: Float[Array, " N"],
        v: Float[Array, " N"],
        actions: Int[Array, " N"],
        state: Float[Array, " S"],
    ) -> Float[Array, ""]:
        w1 = jnp.abs(self.w1(state)).reshape(q.size, -1)
        w2 = jnp.abs(self.w2(state))
        hidden = q @ w1 + self.b1(state)
        activated = jax.nn.elu(hidden) if self.form == "elu" else hidden
        return activated @ w2 + self.v(state)[0]

    def penalty(self, state: Float[Array, " S"]) -> Float[Array, ""]:
        return jnp.zeros(())


class AdvantageMixer(eqx.Module):
    """A weighted sum, and the agents' advantages weighted once more by the joint action.

    Q_jt = sum_i w_i q_i + b + sum_i sg(w_i (q_i - v_i)) (lambda_i(s, a) - 1), with w_i and lambda_i > 0:
    where v_i is an agent's best value this is QPLEX, where it is its soft value, FOP.
    """

    weights: "StateWeights | AttentionWeights"
    joint: "JointWeights"

    def __call__(
        self,
        q: Float[Array, " N"],
        v: Float[Array, " N"],
        actions: Int[Array, " N"],
        state: Float[Array, " S"],
    ) -> Float[Array, ""]:
        w, b = self.weights(state)
        advantage = jax.lax.stop_gradient(w * (q - v))
        return jnp.sum(w * q) + b + jnp.sum(advantage * (self.joint(state, actions) - 1))

    def penalty(self, state: Float[Array, " S"]) -> Float[Array, ""]:
        return self.weights.penalty(state)


class SoftAdvantage(eqx.Module):
    """sum_i [q_i - v_i] + V(s): with v_i the soft value of agent i's choice this has one solution alone.

    Each bracket is a temperature times a log-probability, so V(s) is the soft value of the state.
    """

    value: Layers

    def __call__(
        self,
        q: Float[Array, " N"],
        v: Float[Array, " N"],
        actions: Int[Array, " N"],
        state: Float[Array, " S"],
    ) -> Float[Array, ""]:
        return jnp.sum(q - v) + self.value(state)[0]

    def penalty(self, state: Float[Array, " S"]) -> Float[Array, ""]:
        return jnp.zeros(())


class JointWeights(eqx.Module):
    """lambda_i(s, a) > 0: a sum over heads of a key of the state, agents' shares, and actions' shares."""

    key: Layers
    agents: Layers
    actions: Layers
    n_actions: int = eqx.field(static=True)

    def __call__(self, state: Float[Array, " S"], actions: Int[Array, " N"]) -> Float[Array, " N"]:
        with_actions = jnp.concatenate([state, jax.nn.one_hot(actions, self.n_actions).ravel()])
        key = jnp.abs(of_each(self.key, state)) + TINY
        shares = jax.nn.sigmoid(of_each(self.agents, state)) * jax.nn.sigmoid(
            of_each(self.actions, with_actions)
        )
        return jnp.sum(key * shares, axis=0)


class StateWeights(eqx.Module):
    """QPLEX's w_i(s) > 0, and the sum of its v_i(s)."""

    w: Layers
    v: Layers

    def __call__(self, state: Float[Array, " S"]) -> tuple[Float[Array, " N"], Float[Array, ""]]:
        return jnp.abs(self.w(state)) + TINY, jnp.sum(self.v(state))

    def penalty(self, state: Float[Array, " S"]) -> Float[Array, ""]:
        return jnp.zeros(())


class AttentionWeights(eqx.Module):
    """FOP's w_i(s) > 0: how much the state attends to the features of each agent in it, and V(s)."""

    selectors: Layers
    keys: Float[Array, "K U E"]
    v: Layers
    n_agents: int = eqx.field(static=True)
    unit_dim: int = eqx.field(static=True)
    penalty_scale: float = eqx.field(static=True)

    def __call__(self, state: Float[Array, " S"]) -> tuple[Float[Array, " N"], Float[Array, ""]]:
        scaled = self.logits(state) / jnp.sqrt(self.keys.shape[-1])
        return jnp.sum(jax.nn.softmax(scaled, axis=-1), axis=0) + TINY, self.v(state)[0]

    def logits(self, state: Float[Array, " S"]) -> Float[Array, "K N"]:
        """Head by head, the product of the state's selector with each agent's key."""
        units = state[: self.n_agents * self.unit_dim].reshape(self.n_agents, -1)
        features = units if self.unit_dim else jnp.eye(self.n_agents)
        return jnp.einsum("ke,kue,nu->kn", of_each(self.selectors, state), self.keys, features)

    def penalty(self, state: Float[Array, " S"]) -> Float[Array, ""]:
        return self.penalty_scale * jnp.sum(jnp.mean(self.logits(state) ** 2, axis=-1))


@dataclass(frozen=True)
class Additive:
    """The plain sum of VDN."""

    def make(self, key: PRNGKey, spec: EnvSpec) -> Sum:
        return Sum()


@dataclass(frozen=True)
class Hyper:
    """`embed` units whose weights come from hypernetworks of `hidden` units; linear, or QMIX's elu."""

    embed: int = 32
    hidden: int = 64
    form: Literal["linear", "elu"] = "elu"

    def __post_init__(self) -> None:
        require(min(self.embed, self.hidden) > 0, "a mixer's embed and hidden must be positive")

    def make(self, key: PRNGKey, spec: EnvSpec) -> HyperMixer:
        w1, b1, w2, v = jax.random.split(key, 4)
        state = spec.state_dim
        return HyperMixer(
            w1=make_layers(w1, (state, self.hidden, self.embed * spec.n_agents)),
            b1=eqx.nn.Linear(state, self.embed, key=b1),
            w2=make_layers(w2, (state, self.hidden, self.embed)),
            v=make_layers(v, (state, self.embed, 1)),
            form=self.form,
        )


@dataclass(frozen=True)
class Duplex:
    """QPLEX's mixer; the networks of each of its `heads` have so many `layers`."""

    heads: int = 4
    layers: int = 1
    hidden: int = 64

    def __post_init__(self) -> None:
        _check(self.heads, self.layers, self.hidden)

    def make(self, key: PRNGKey, spec: EnvSpec) -> AdvantageMixer:
        w_key, v_key, joint_key = jax.random.split(key, 3)
        sizes = (spec.state_dim, self.hidden, spec.n_agents)
        weights = StateWeights(make_layers(w_key, sizes), make_layers(v_key, sizes))
        return AdvantageMixer(weights, _joint_weights(joint_key, spec, self.heads, self.layers, self.hidden))


@dataclass(frozen=True)
class Attention:
    """FOP's mixer: `heads` of attention with `embed` units, selectors of `hidden` ones."""

    heads: int = 4
    embed: int = 32
    hidden: int = 64
    penalty: float = 0.001

    def __post_init__(self) -> None:
        _check(self.heads, self.embed, self.hidden)
        require(self.penalty >= 0, f"a mixer's penalty must not be negative, not {self.penalty}")

    def make(self, key: PRNGKey, spec: EnvSpec) -> AdvantageMixer:
        selector_key, key_key, v_key, joint_key = jax.random.split(key, 4)
        unit = spec.unit_dim or spec.n_agents

        def selector(key: PRNGKey) -> Layers:
            first, second = jax.random.split(key)
            last = eqx.nn.Linear(self.hidden, self.embed, use_bias=False, key=second)
            return Layers((eqx.nn.Linear(spec.state_dim, self.hidden, key=first), last))

        weights = AttentionWeights(
            selectors=make_several(selector_key, self.heads, selector),
            keys=jax.random.uniform(
                key_key, (self.heads, unit, self.embed), minval=-(unit**-0.5), maxval=unit**-0.5
            ),
            v=make_layers(v_key, (spec.state_dim, self.embed, 1)),
            n_agents=spec.n_agents,
            unit_dim=spec.unit_dim,
            penalty_scale=self.penalty,
        )
        return AdvantageMixer(weights, _joint_weights(joint_key, spec, self.heads, 1, self.hidden))


@dataclass(frozen=True)
class Advantage:
    """The paper's own decomposition into soft advantages; `layers` of `hidden` units value the state."""

    hidden: int = 64
    layers: int = 1

    def __post_init__(self) -> None:
        _check(self.hidden, self.layers)

    def make(self, key: PRNGKey, spec: EnvSpec) -> SoftAdvantage:
        return SoftAdvantage(make_layers(key, (spec.state_dim, *(self.hidden,) * self.layers, 1)))


Mixing = Additive | Hyper | Duplex | Attention | Advantage


def _joint_weights(key: PRNGKey, spec: EnvSpec, heads: int, layers: int, hidden: int) -> JointWeights:
    key_key, agents_key, actions_key = jax.random.split(key, 3)
    between = (hidden,) * (layers - 1)
    state, n = spec.state_dim, spec.n_agents
    joint = state + n * spec.n_actions
    return JointWeights(
        key=make_several(key_key, heads, lambda k: make_layers(k, (state, *between, 1))),
        agents=make_several(agents_key, heads, lambda k: make_layers(k, (state, *between, n))),
        actions=make_several(actions_key, heads, lambda k: make_layers(k, (joint, *between, n))),
        n_actions=spec.n_actions,
    )


def _check(*sizes: int) -> None:
    require(min(sizes) > 0, "a mixer's heads, layers and units must be positive")
