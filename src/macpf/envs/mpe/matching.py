"""The best matching of few agents and few places: every permutation is tried."""

from functools import cache
from itertools import permutations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

MOST = 7  # 5040 permutations; more agents need another method


@cache
def _orders(n: int) -> np.ndarray:
    """Row p: the place of each agent in the p-th matching."""
    return np.asarray(list(permutations(range(n))), np.int32)


def matching(cost: Float[Array, "N N"]) -> Int[Array, " N"]:
    """The place of each agent in the matching of least total cost (agents are rows)."""
    return jnp.asarray(_orders(len(cost)))[_best(_by_order(cost))]


def matched(cost: Float[Array, "N N"]) -> Float[Array, " N"]:
    """Each agent's cost in the matching of least total cost."""
    costs = _by_order(cost)
    return costs[_best(costs)]


def _by_order(cost: Float[Array, "N N"]) -> Float[Array, "P N"]:
    """Each agent's cost in every matching."""
    return cost[np.arange(len(cost)), _orders(len(cost))]


def _best(costs: Float[Array, "P N"]) -> Int[Array, ""]:
    return jnp.argmin(jnp.sum(costs, axis=1))
