"""One-shot games drawn at random: several equal optima, and punishment for missing each other."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from macpf.errors import require
from macpf.types import EnvSpec, Observation, PRNGKey, TimeStep

BEST = 8.0
SAFE = (0.0, 4.0)
PUNISHED = (-20.0, -8.0)


class Drawn(NamedTuple):
    """A game: who has a choice of what, and the optima (agent i's part of optimum j is `parts[i, j]`)."""

    avail: Bool[Array, "N A"]
    parts: Int[Array, "N A"]
    optima: Int[Array, ""]
    key: PRNGKey


@dataclass(frozen=True)
class RandomGame:
    """The game that the number `game` stands for: 2 to `n_agents` agents with 2 to `n_actions` actions.

    Two or three joint actions pay 8, and no agent has the same part in two of them. Whoever takes part in
    an optimum that does not come about is punished; where nobody does, there is a small safe payoff.
    Agents who are not in the game have one action, which counts for nothing.
    """

    game: int = 0
    n_agents: int = 4
    n_actions: int = 5

    def __post_init__(self) -> None:
        require(min(self.n_agents, self.n_actions) >= 2, "a game needs at least two agents and two actions")

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(self.n_agents, self.n_actions, obs_dim=1, state_dim=1, horizon=1)

    def reset(self, key: PRNGKey) -> tuple[tuple[()], TimeStep]:
        return (), self._arrive(jnp.zeros(()), terminated=False)

    def step(self, state: tuple[()], actions: Int[Array, " N"], key: PRNGKey) -> tuple[tuple[()], TimeStep]:
        return (), self._arrive(self.payoff(actions), terminated=True)

    def draw(self) -> Drawn:
        """The rules of this game."""
        key = jax.random.fold_in(jax.random.key(0), jnp.asarray(self.game, jnp.int32))
        agents_key, actions_key, optima_key, parts_key, key = jax.random.split(key, 5)
        agents = jax.random.randint(agents_key, (), 2, self.n_agents + 1)
        actions = jax.random.randint(actions_key, (), 2, self.n_actions + 1)
        optima = jax.random.randint(optima_key, (), 2, jnp.minimum(actions, 3) + 1)
        counts = jnp.where(jnp.arange(self.n_agents) < agents, actions, 1)
        avail = jnp.arange(self.n_actions)[None] < counts[:, None]
        order = jnp.where(avail, jax.random.uniform(parts_key, avail.shape), 2.0)
        return Drawn(avail, jnp.argsort(order, axis=1), optima, key)

    def payoff(self, actions: Int[Array, " N"]) -> Float[Array, ""]:
        """What a joint action pays."""
        avail, parts, optima, key = self.draw()
        plays = jnp.sum(avail, axis=1) > 1
        takes = (actions[:, None] == parts) & (jnp.arange(self.n_actions) < optima)[None]
        agreed = jnp.any(jnp.all(takes | ~plays[:, None], axis=0))
        missed = jnp.any(takes & plays[:, None])
        weights = self.n_actions ** jnp.arange(self.n_agents)
        low, high = jnp.where(missed, jnp.asarray(PUNISHED), jnp.asarray(SAFE))
        number = jnp.sum(jnp.where(plays, actions, 0) * weights)
        other = jax.random.uniform(jax.random.fold_in(key, number), minval=low, maxval=high)
        return jnp.where(agreed, BEST, other)

    def _arrive(self, reward: Float[Array, ""], terminated: bool) -> TimeStep:
        n = self.n_agents
        seen = Observation(jnp.ones((n, 1)), jnp.ones(1), self.draw().avail, jnp.ones((n, n), bool))
        return TimeStep(
            seen,
            reward=reward,
            terminated=jnp.asarray(terminated),
            truncated=jnp.asarray(False),
            won=terminated & (reward == BEST),
        )
