"""One-shot games: every agent chooses once, a table says what the team gets."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from macpf.errors import require
from macpf.types import EnvSpec, Observation, PRNGKey, TimeStep

Payoff = tuple[Any, ...]  # numbers, nested once per agent

# The game of the paper's Figure 4: two optima, (A, A) and (D, D), and punished miscoordination.
TWO_OPTIMA = (
    (8.0, -20.0, -20.0, -20.0),
    (-12.0, 0.0, 0.0, -20.0),
    (-12.0, 0.0, 0.0, -20.0),
    (-12.0, -12.0, -12.0, 8.0),
)


@dataclass(frozen=True)
class MatrixGame:
    """A one-step game for as many agents as the payoff has axes; everybody sees a constant 1.

    Agents may have different numbers of actions: those an agent lacks are never available to it.
    """

    payoff: Payoff = TWO_OPTIMA

    def __post_init__(self) -> None:
        shape = _shape(self.payoff)
        require(
            len(shape) > 0 and min(shape) > 0, "a payoff needs at least one agent, and one action for each"
        )

    @property
    def table(self) -> Float[np.ndarray, "..."]:
        return np.asarray(self.payoff, np.float32)

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(self.table.ndim, max(self.table.shape), obs_dim=1, state_dim=1, horizon=1)

    def reset(self, key: PRNGKey) -> tuple[tuple[()], TimeStep]:
        return (), self._arrive(jnp.zeros(()), terminated=False)

    def step(self, state: tuple[()], actions: Int[Array, " N"], key: PRNGKey) -> tuple[tuple[()], TimeStep]:
        return (), self._arrive(jnp.asarray(self.table)[tuple(actions)], terminated=True)

    def _arrive(self, reward: Float[Array, ""], terminated: bool) -> TimeStep:
        n, a = self.spec.n_agents, self.spec.n_actions
        avail = jnp.arange(a)[None] < jnp.asarray(self.table.shape)[:, None]
        return TimeStep(
            Observation(jnp.ones((n, 1)), jnp.ones(1), avail, jnp.ones((n, n), bool)),
            reward=reward,
            terminated=jnp.asarray(terminated),
            truncated=jnp.asarray(False),
            won=terminated & (reward == self.table.max()),
        )


def _shape(payoff: Payoff) -> tuple[int, ...]:
    """The shape of a nested tuple; a ragged one is a user's mistake."""
    try:
        return np.asarray(payoff, np.float32).shape
    except (ValueError, TypeError):
        require(False, "a payoff is a table of numbers, nested once per agent, with rows of equal length")
        raise
