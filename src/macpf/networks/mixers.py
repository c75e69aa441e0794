"""Mixers: from the agents' values to the value of the team; only they see the state."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from macpf.types import EnvSpec, PRNGKey


class TwoLayers(eqx.Module):
    """Linear, ReLU, Linear; its leaves are arrays alone, as in all networks here."""

    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __call__(self, x: Float[Array, " I"]) -> Float[Array, " J"]:
        return self.second(jax.nn.relu(self.first(x)))


def two_layers(key: PRNGKey, inputs: int, hidden: int, outputs: int) -> TwoLayers:
    first_key, second_key = jax.random.split(key)
    return TwoLayers(
        eqx.nn.Linear(inputs, hidden, key=first_key), eqx.nn.Linear(hidden, outputs, key=second_key)
    )


class HyperMixer(eqx.Module):
    """Layers whose weights are non-negative functions of the state.

    Without a non-linearity ("linear", the paper's) this is a weighted sum, sum_i k_i(s) q_i + beta(s)
    with k_i >= 0; with "elu" it is QMIX's.
    """

    w1: TwoLayers
    b1: eqx.nn.Linear
    w2: TwoLayers
    v: TwoLayers
    form: Literal["linear", "elu"] = eqx.field(static=True)

    def __call__(self, q: Float[Array, " N"], state: Float[Array, " S"]) -> Float[Array, ""]:
        w1 = jnp.abs(self.w1(state)).reshape(q.size, -1)
        w2 = jnp.abs(self.w2(state))
        hidden = q @ w1 + self.b1(state)
        activated = jax.nn.elu(hidden) if self.form == "elu" else hidden
        return activated @ w2 + self.v(state)[0]


def make_hyper_mixer(
    key: PRNGKey, spec: EnvSpec, embed: int, hidden: int, form: Literal["linear", "elu"]
) -> HyperMixer:
    """A mixer for the task's agents and state, with `embed` units and hypernetworks of `hidden` units."""
    w1, b1, w2, v = jax.random.split(key, 4)
    state = spec.state_dim
    return HyperMixer(
        w1=two_layers(w1, state, hidden, embed * spec.n_agents),
        b1=eqx.nn.Linear(state, embed, key=b1),
        w2=two_layers(w2, state, hidden, embed),
        v=two_layers(v, state, hidden, 1),
        form=form,
    )
