"""Small tasks with known answers."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from macpf.types import EnvSpec, Observation, PRNGKey, TimeStep

# One optimum behind punished miscoordination: 8 is out of reach of a sum of values.
PUNISHED = ((8.0, -12.0, -12.0), (-12.0, 0.0, 0.0), (-12.0, 0.0, 0.0))


class Place(eqx.Module):
    """Where a game of several moves stands: what there is to see, and how many moves were made."""

    where: Int[Array, ""]
    time: Int[Array, ""]


@dataclass(frozen=True)
class TwoStep:
    """The first agent's first move leads to a safe game (7 whatever is done) or to a risky one (up to 8)."""

    safe = ((7.0, 7.0), (7.0, 7.0))
    risky = ((0.0, 1.0), (1.0, 8.0))

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(n_agents=2, n_actions=2, obs_dim=3, state_dim=3, horizon=2)

    def reset(self, key: PRNGKey) -> tuple[Place, TimeStep]:
        zero = jnp.zeros((), jnp.int32)
        return Place(zero, zero), self._arrive(Place(zero, zero), jnp.zeros(()))

    def step(self, state: Place, actions: Int[Array, " 2"], key: PRNGKey) -> tuple[Place, TimeStep]:
        payoff = jnp.where(state.where == 1, jnp.asarray(self.safe), jnp.asarray(self.risky))
        reward = jnp.where(state.time == 1, payoff[actions[0], actions[1]], 0.0)
        place = Place(jnp.where(state.time == 0, 1 + actions[0], state.where), state.time + 1)
        return place, self._arrive(place, reward)

    def _arrive(self, place: Place, reward: Array) -> TimeStep:
        seen = jax.nn.one_hot(place.where, 3)
        yes = jnp.ones((2, 2), bool)
        return TimeStep(
            Observation(jnp.tile(seen, (2, 1)), seen, yes, yes),
            reward=reward,
            terminated=place.time >= 2,
            truncated=jnp.asarray(False),
            won=jnp.asarray(False),
        )


@dataclass(frozen=True)
class Cue:
    """A cue is seen at the start alone; in the end each agent is paid for naming it.

    Until then there is nothing to choose, so that previous actions tell nothing either.
    """

    delay: int = 2

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(n_agents=2, n_actions=2, obs_dim=3, state_dim=3, horizon=self.delay + 1)

    def reset(self, key: PRNGKey) -> tuple[Place, TimeStep]:
        place = Place(jax.random.randint(key, (), 0, 2), jnp.zeros((), jnp.int32))
        return place, self._arrive(place, jnp.zeros(()))

    def step(self, state: Place, actions: Int[Array, " 2"], key: PRNGKey) -> tuple[Place, TimeStep]:
        named = jnp.mean(actions == state.where)
        reward = jnp.where(state.time == self.delay, named, 0.0)
        place = Place(state.where, state.time + 1)
        return place, self._arrive(place, reward)

    def _arrive(self, place: Place, reward: Array) -> TimeStep:
        cue = jnp.where(place.time == 0, jax.nn.one_hot(place.where, 2), 0.0)
        seen = jnp.append(cue, 1.0 * (place.time == self.delay))
        choice = jnp.stack([jnp.asarray(True), place.time == self.delay])
        return TimeStep(
            Observation(jnp.tile(seen, (2, 1)), seen, jnp.tile(choice, (2, 1)), jnp.ones((2, 2), bool)),
            reward=reward,
            terminated=place.time > self.delay,
            truncated=jnp.asarray(False),
            won=jnp.asarray(False),
        )


@dataclass(frozen=True)
class Gamble:
    """The first agent sees a coin and is paid for naming it; the second does not, and bets on its side.

    Heads, in two of five games, pays a bet on it well; tails pays little. So to bet on tails is best most
    often, and to bet on heads is best on average: 5 + 4 in place of 5 + 1.2.
    """

    heads: float = 0.4
    naming: float = 5.0
    payoff = ((10.0, 0.0), (0.0, 2.0))  # of the coin's side and the bet

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(n_agents=2, n_actions=2, obs_dim=3, state_dim=2, horizon=1)

    def reset(self, key: PRNGKey) -> tuple[Place, TimeStep]:
        side = (jax.random.uniform(key) >= self.heads).astype(jnp.int32)
        place = Place(side, jnp.zeros((), jnp.int32))
        return place, self._arrive(place, jnp.zeros(()))

    def step(self, state: Place, actions: Int[Array, " 2"], key: PRNGKey) -> tuple[Place, TimeStep]:
        named = self.naming * (actions[0] == state.where)
        place = Place(state.where, state.time + 1)
        return place, self._arrive(place, named + jnp.asarray(self.payoff)[state.where, actions[1]])

    def _arrive(self, place: Place, reward: Array) -> TimeStep:
        coin, yes = jax.nn.one_hot(place.where, 2), jnp.ones((2, 2), bool)
        seen = jnp.stack([jnp.append(coin, 0.0), jnp.asarray([0.0, 0.0, 1.0])])
        return TimeStep(
            Observation(seen, coin, yes, yes),
            reward=reward,
            terminated=place.time >= 1,
            truncated=jnp.asarray(False),
            won=jnp.asarray(False),
        )


@dataclass(frozen=True)
class Hint:
    """The first agent sees a coin, and both are paid for naming its side; then the second may bet on it.

    Told what the first does, the second names the coin too, and knows it from then on: 1 + 1 + 10. Without,
    it names the likelier side, has learned nothing by that, and had better not bet: 1 + 0.6 + 8. Who takes
    what it did for what it was told bets, and has 1 + 0.6 + 6.
    """

    heads: float = 0.6
    right: float = 10.0
    safe: float = 8.0

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(n_agents=2, n_actions=3, obs_dim=5, state_dim=3, horizon=2)

    def reset(self, key: PRNGKey) -> tuple[Place, TimeStep]:
        side = (jax.random.uniform(key) >= self.heads).astype(jnp.int32)
        place = Place(side, jnp.zeros((), jnp.int32))
        return place, self._arrive(place, jnp.zeros(()))

    def step(self, state: Place, actions: Int[Array, " 2"], key: PRNGKey) -> tuple[Place, TimeStep]:
        named = jnp.sum(1.0 * (actions == state.where))
        bet = jnp.where(actions[1] == state.where, self.right, 0.0)
        paid = jnp.where(state.time == 0, named, jnp.where(actions[1] == 2, self.safe, bet))
        place = Place(state.where, state.time + 1)
        return place, self._arrive(place, paid)

    def _arrive(self, place: Place, reward: Array) -> TimeStep:
        """In the first step both name a side; in the second the first agent has nothing more to say."""
        coin, later = jax.nn.one_hot(place.where, 2), 1.0 * (place.time > 0)
        seen = jnp.stack([jnp.append(coin, jnp.asarray([later, 1, 0])), jnp.asarray([0, 0, later, 0, 1])])
        naming, betting = jnp.asarray([[1, 1, 0]] * 2, bool), jnp.asarray([[1, 0, 0], [1, 1, 1]], bool)
        return TimeStep(
            Observation(
                seen,
                jnp.append(coin, later),
                jnp.where(place.time == 0, naming, betting),
                jnp.ones((2, 2), bool),
            ),
            reward=reward,
            terminated=place.time >= 2,
            truncated=jnp.asarray(False),
            won=jnp.asarray(False),
        )
