"""The bodies and heads of agents: each takes one agent at one moment; weights are shared over agents."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from macpf.backend import on_cpu
from macpf.networks.gru import gru_again, gru_step, gru_walk
from macpf.networks.layers import Layers, make_layers
from macpf.types import EnvSpec, Memory, Observation, PRNGKey


class FeedForward(eqx.Module):
    """Hidden layers (one, unless told otherwise), no memory."""

    layers: Layers
    memory_size: int = eqx.field(static=True, default=0)

    def __call__(
        self, x: Float[Array, " I"], hidden: Float[Array, " 0"]
    ) -> tuple[Float[Array, " H"], Float[Array, " 0"]]:
        return jax.nn.relu(self.layers(x)), hidden

    def unroll(self, xs: Float[Array, "T I"]) -> Float[Array, "T H"]:
        return jax.nn.relu(jax.vmap(self.layers)(xs))

    def walk(self, xs: Float[Array, "T I"]) -> Float[Array, "T H"]:
        """The same as constants."""
        return jax.lax.stop_gradient(self.unroll(xs))

    def again(self, xs: Float[Array, "T I"], hs: Float[Array, "T H"]) -> Float[Array, "T H"]:
        """The same as a function of the parameters."""
        return self.unroll(xs)


class Recurrent(eqx.Module):
    """A hidden layer, then a GRU: its output is both feature and memory."""

    layer: eqx.nn.Linear
    cell: eqx.nn.GRUCell
    memory_size: int = eqx.field(static=True)

    def __call__(
        self, x: Float[Array, " I"], hidden: Float[Array, " H"]
    ) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
        h = gru_step(self.cell, jax.nn.relu(self.layer(x)), hidden)
        return h, h

    def unroll(self, xs: Float[Array, "T I"]) -> Float[Array, "T H"]:
        return self.again(xs, self.walk(xs))

    def walk(self, xs: Float[Array, "T I"]) -> Float[Array, "T H"]:
        """The same as constants."""
        return gru_walk(self.cell, self._inputs(xs), jnp.zeros(self.memory_size))

    def again(self, xs: Float[Array, "T I"], hs: Float[Array, "T H"]) -> Float[Array, "T H"]:
        """The states a walk found, as a function of the parameters."""
        return gru_again(self.cell, self._inputs(xs), jnp.zeros(self.memory_size), hs)

    def _inputs(self, xs: Float[Array, "T I"]) -> Float[Array, "T H"]:
        return jax.nn.relu(jax.vmap(self.layer)(xs))


Body = FeedForward | Recurrent


class Agent(eqx.Module):
    """A body and a head that gives one number per action: logits of a policy, or values of a critic."""

    body: Body
    head: eqx.nn.Linear


def make_body(key: PRNGKey, inputs: int, hidden: int, recurrent: bool, depth: int = 1) -> Body:
    """A body of `hidden` units; one without memory may have several layers of them."""
    layer_key, cell_key = jax.random.split(key)
    if not recurrent:
        return FeedForward(make_layers(layer_key, (inputs, *(hidden,) * depth)))
    layer = eqx.nn.Linear(inputs, hidden, key=layer_key)
    return Recurrent(layer, eqx.nn.GRUCell(hidden, hidden, key=cell_key), memory_size=hidden)


def make_agent(key: PRNGKey, spec: EnvSpec, hidden: int, recurrent: bool, depth: int = 1) -> Agent:
    """An agent for the task's inputs and actions."""
    body_key, head_key = jax.random.split(key)
    body = make_body(body_key, input_size(spec), hidden, recurrent, depth)
    return Agent(body, eqx.nn.Linear(hidden, spec.n_actions, key=head_key))


def input_size(spec: EnvSpec) -> int:
    """The number of features `agent_inputs` gives."""
    return spec.obs_dim + spec.n_actions + spec.n_agents


def agent_inputs(
    obs: Float[Array, "*b N O"], previous: Int[Array, "*b N"], n_actions: int
) -> Float[Array, "*b N I"]:
    """What each agent is told: its observation, its previous action (zeros at first), its index."""
    n_agents = obs.shape[-2]
    ids = jnp.broadcast_to(jnp.eye(n_agents), (*obs.shape[:-1], n_agents))
    return jnp.concatenate([obs, jax.nn.one_hot(previous, n_actions), ids], axis=-1)


def no_memory(spec: EnvSpec, hidden: int, recurrent: bool) -> Memory:
    """The memory of agents that have seen nothing yet."""
    return Memory(jnp.zeros((spec.n_agents, hidden if recurrent else 0)), jnp.full(spec.n_agents, -1))


def see(
    agent: Agent, memory: Memory, observation: Observation
) -> tuple[Float[Array, "N A"], Float[Array, "N H"], Float[Array, "N M"]]:
    """Every agent's numbers at this moment, the features under them, and its hidden units after it."""
    xs = agent_inputs(observation.obs, memory.previous, observation.avail.shape[-1])
    h, hidden = jax.vmap(agent.body)(xs, memory.hidden)
    return jax.vmap(agent.head)(h), h, hidden


def previous_actions(actions: Int[Array, "T N"]) -> Int[Array, "T N"]:
    """The action before each row of an episode (-1: none yet)."""
    return jnp.concatenate([jnp.full_like(actions[:1], -1), actions[:-1]])


def each(network: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A network for one agent at one moment, over all agents and moments of an episode."""
    return jax.vmap(jax.vmap(network))


def unroll_together(
    bodies: Sequence[Body], xs: Float[Array, "T N I"], fixed: Sequence[Body] = ()
) -> list[Float[Array, "T N H"]]:
    """The features several bodies of one shape make of the same episode; those of `fixed` ones as constants.

    A GPU waits for launches, so there one walk carries all bodies; a CPU computes, and is quicker with
    one walk for each.
    """
    everyone, learned = (*bodies, *fixed), len(bodies)
    if on_cpu():
        walks = [_walk(body, xs) for body in everyone]
        return [*map(_again, bodies, [xs] * learned, walks[:learned]), *walks[learned:]]
    at_once = jax.vmap(_walk, in_axes=(0, None))(_stacked(everyone), xs)
    again = jax.vmap(_again, in_axes=(0, None, 0))(_stacked(bodies), xs, at_once[:learned])
    return [*again, *at_once[learned:]]


def _walk(body: Body, xs: Float[Array, "T N I"]) -> Float[Array, "T N H"]:
    return jax.vmap(body.walk, in_axes=1, out_axes=1)(xs)


def _again(body: Body, xs: Float[Array, "T N I"], hs: Float[Array, "T N H"]) -> Float[Array, "T N H"]:
    return jax.vmap(body.again, in_axes=1, out_axes=1)(xs, hs)


def _stacked(bodies: Sequence[Body]) -> Body:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *bodies)
