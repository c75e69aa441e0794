"""The dependency corrections b_dep and c_dep, and the chain of dependent choices they make.

A correction of agent i is W2 [h_i ; z_i] + b2 with z_i a pooled embedding of what its predecessors do.
Both parts are affine in their inputs, so it is a sum: one term of h_i, and one term per predecessor that
depends on who it is and what it does alone. The second kind is a table of N x A rows, made once; walking
along the chain is then adding rows of that table.

So what two predecessors do together cannot matter, only what each of them does. A deep correction,
W3 relu(W2 [h_i ; z_i] + b2), has no such limit, and walks the same way: its table has rows of units.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from macpf.backend import on_cpu, unroll
from macpf.types import EnvSpec, PRNGKey

Pool = Literal["sum/N", "mean", "sum"]
Given = TypeVar("Given")
# What each of some agents does, by its logits and what else it is given.
Decide = Callable[[Float[Array, "M A"], Given], Int[Array, " M"]]


class Correction(eqx.Module):
    """One correction network: b_dep over a policy's features, or c_dep over a critic's."""

    w1_id: Float[Array, "N H"]
    w1_action: Float[Array, "A H"]
    b1: Float[Array, " H"]
    w2_own: Float[Array, "H K"]
    w2_told: Float[Array, "H K"]
    b2: Float[Array, " K"]
    w3: Float[Array, "K A"] | None = None

    def own(self, h: Float[Array, " H"]) -> Float[Array, " K"]:
        """What the agent's own features say."""
        return h @ self.w2_own + self.b2

    def chain(
        self, base: Float[Array, "*b N A"], own: Float[Array, "*b N K"], weight: Float[Array, "*b N N"]
    ) -> "Chain":
        """Numbers of their own, and this correction to them, of agents whose features say `own`."""
        if self.w3 is None:
            return Chain(base + own, self.table(), weight)
        return Chain(own, self.table(), weight, base, self.w3)

    def table(self) -> Float[Array, "N A K"]:
        """What predecessor j doing a adds to the correction of whoever follows it: row [j, a]."""
        return jax.nn.elu(self.w1_id[:, None] + self.w1_action[None] + self.b1[None, None]) @ self.w2_told


def make_correction(key: PRNGKey, spec: EnvSpec, hidden: int, deep: bool = False) -> Correction:
    """A correction for features of `hidden` units, every layer uniform within 1 / sqrt(its inputs)."""
    n, a, h = spec.n_agents, spec.n_actions, hidden
    k = hidden if deep else a
    shapes = ((n, h), (a, h), (h,), (h, k), (h, k), (k,), *[(k, a)] * deep)
    bounds = (n + a,) * 3 + (2 * h,) * 3 + (k,) * deep
    keys = jax.random.split(key, len(shapes))
    return Correction(
        *(
            jax.random.uniform(key, shape, minval=-(inputs**-0.5), maxval=inputs**-0.5)
            for key, shape, inputs in zip(keys, shapes, bounds, strict=True)
        )
    )


def predecessors(n_agents: int, groups: int | None = None) -> Bool[np.ndarray, "N N"]:
    """Entry [i, j]: may agent i depend on what agent j does?  It may on all of earlier groups.

    With as many groups as agents (the default) these are all j < i.
    """
    group = _groups(n_agents, groups)
    return group[:, None] > group[None, :]


def pooled(depends: Bool[Array, "N N"], pool: Pool) -> Float[Array, "N N"]:
    """The weight of each predecessor in the pooled embedding z."""
    n = depends.shape[0]
    count = jnp.sum(depends, axis=1, keepdims=True)
    scale = {"sum/N": jnp.full((n, 1), 1 / n), "mean": 1 / jnp.maximum(count, 1), "sum": jnp.ones((n, 1))}
    return depends * scale[pool]


class Chain(eqx.Module):
    """The dependent logits (or values) of one moment (or of many), as a function of everybody's actions."""

    own: Float[Array, "*b N K"]
    table: Float[Array, "N A K"]
    weight: Float[Array, "*b N N"]
    base: Float[Array, "*b N A"] | None = None
    read: Float[Array, "K A"] | None = None

    def __call__(self, actions: Int[Array, " N"]) -> Float[Array, "N A"]:
        """Agent i's numbers, given what the agents it depends on do."""
        return self.numbers(self.base, self.own + _pool(self.weight, _rows(self.table, actions)))

    def numbers(self, base: Float[Array, "M A"] | None, x: Float[Array, "M K"]) -> Float[Array, "M A"]:
        """The numbers of some agents, by what they and those before them say: a deep chain reads it first."""
        return x if base is None or self.read is None else base + jax.nn.relu(x) @ self.read

    def along(self, actions: Int[Array, "T N"]) -> Float[Array, "T N A"]:
        """The same at every step of an episode."""
        return self.over_steps(lambda chain, a: chain(a), actions)

    def over_steps(self, function: Callable[..., Array], *args: Any) -> Array:
        """A function of the chain of one step and more, at every step of an episode."""

        def at(own, weight, base, *args):
            return function(Chain(own, self.table, weight, base, self.read), *args)

        return jax.vmap(at)(self.own, self.weight, self.base, *args)


def _rows(table: Float[Array, "M A K"], actions: Int[Array, " M"]) -> Float[Array, "M K"]:
    """The row of the table that each agent's action picks."""
    return jnp.einsum("na,nab->nb", jax.nn.one_hot(actions, table.shape[1]), table)


def _pool(weight: Float[Array, "M N"], rows: Float[Array, "N K"]) -> Float[Array, "M K"]:
    """The weighted sum of all rows: a GPU is slow with batches of such small products, a CPU is not."""
    if on_cpu():
        return weight @ rows
    return jnp.sum(weight[:, :, None] * rows[None], axis=1)


def choose_in_turn(
    chain: Chain, decide: Decide[Given], given: Given, groups: int | None = None
) -> Int[Array, " N"]:
    """The joint action of agents that decide one after the other (group by group).

    `given` is what else each agent decides by (a leading axis N): its luck, its available actions.
    """
    n_agents, units = chain.own.shape
    starts, size = _windows(n_agents, groups)

    def turn(carry, start):
        def now(x):
            return jax.lax.dynamic_slice_in_dim(x, start, size)

        actions, told = carry
        base = None if chain.base is None else now(chain.base)
        numbers = chain.numbers(base, now(chain.own) + _pool(now(chain.weight), told))
        chosen = decide(numbers, jax.tree.map(now, given))
        actions = jax.lax.dynamic_update_slice_in_dim(actions, chosen, start, 0)
        told = jax.lax.dynamic_update_slice_in_dim(told, _rows(now(chain.table), chosen), start, 0)
        return (actions, told), None

    nobody = (jnp.zeros(n_agents, jnp.int32), jnp.zeros((n_agents, units)))
    (actions, _), _ = jax.lax.scan(turn, nobody, jnp.asarray(starts), unroll=unroll())
    return actions


def choose_at_once(
    chain: Chain, decide: Decide[Given], given: Given
) -> tuple[Int[Array, " N"], Int[Array, ""]]:
    """The same joint action by iteration, and the number of rounds it took.

    In every round all agents answer the present choices of all others at once. Once its luck is drawn, an
    agent's choice is a function of its predecessors'; after k rounds the first k agents (groups) have their
    final answers, so N rounds are enough, and it ends with the first round that changes nothing.
    """
    n_agents = chain.own.shape[0]

    def unsettled(carry):
        _, settled, rounds = carry
        return ~settled & (rounds < n_agents)

    def answer(carry):
        actions, _, rounds = carry
        answers = decide(chain(actions), given)
        return answers, jnp.all(answers == actions), rounds + 1

    first = (decide(chain.numbers(chain.base, chain.own), given), jnp.asarray(False), jnp.asarray(1))
    actions, _, rounds = jax.lax.while_loop(unsettled, answer, first)
    return actions, rounds


def _groups(n_agents: int, groups: int | None) -> Int[np.ndarray, " N"]:
    return np.arange(n_agents) * (groups or n_agents) // n_agents


def _windows(n_agents: int, groups: int | None) -> tuple[Int[np.ndarray, " K"], int]:
    """Where the window of agents that decide together starts at each turn, and its size.

    A window ends with its group. One of a smaller group also holds neighbours: earlier ones decide again
    as they did, later ones decide again when it is their turn.
    """
    group = _groups(n_agents, groups)
    _, sizes = np.unique(group, return_counts=True)
    return np.maximum(np.cumsum(sizes) - sizes.max(), 0), int(sizes.max())
