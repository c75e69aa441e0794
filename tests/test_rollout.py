"""Episodes of a clock that stops at a known step."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Int
from numpy.testing import assert_array_equal

from macpf.rollout import play
from macpf.types import EnvSpec, Memory, Observation, PRNGKey, TimeStep, Trajectory

HORIZON = 5


@dataclass(frozen=True)
class Clock:
    """Shows the time, rewards it, and goes on ticking and rewarding whatever was over."""

    end: int
    terminates: bool

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(n_agents=2, n_actions=3, obs_dim=1, state_dim=1, horizon=HORIZON)

    def reset(self, key: PRNGKey) -> tuple[Int[Array, ""], TimeStep]:
        return jnp.asarray(0), self._arrive(jnp.asarray(0))

    def step(
        self, state: Int[Array, ""], actions: Int[Array, " N"], key: PRNGKey
    ) -> tuple[Int[Array, ""], TimeStep]:
        return state + 1, self._arrive(state + 1)

    def _arrive(self, time: Int[Array, ""]) -> TimeStep:
        now = time.astype(jnp.float32)
        seen = Observation(
            jnp.full((2, 1), now), jnp.full(1, now), jnp.ones((2, 3), bool), jnp.ones((2, 2), bool)
        )
        over = time >= self.end
        return TimeStep(seen, now, over & self.terminates, over & (not self.terminates), over)


def act(memory: Memory, observation: Observation, key: PRNGKey) -> tuple[jax.Array, Memory]:
    """Counts its calls in memory and does what it counted."""
    actions = (memory.previous + 1) % 3
    return actions, Memory(memory.hidden + observation.obs, actions)


def episode(end: int, terminates: bool) -> Trajectory:
    memory = Memory(jnp.zeros((2, 1)), jnp.full(2, -1))
    return jax.jit(lambda key: play(Clock(end, terminates), act, memory, key))(jax.random.key(0))


@pytest.mark.parametrize("terminates", [True, False])
@pytest.mark.parametrize("end", [1, 3, HORIZON])
def test_an_episode_row_by_row(end, terminates):
    rows = episode(end, terminates)
    row = np.arange(HORIZON + 1)
    assert_array_equal(rows.mask, row < end)
    assert_array_equal(rows.reward, np.where(row < end, row + 1, 0))
    assert_array_equal(rows.terminated, terminates & (row == end - 1))
    assert_array_equal(rows.won, row == end - 1)
    assert_array_equal(rows.observation.state[:, 0], np.minimum(row, end))
    assert_array_equal(rows.observation.obs[:, 0, 0], np.minimum(row, end))


def test_actions_are_those_of_the_policy():
    rows = episode(4, True)
    assert_array_equal(rows.actions[:4], [[0, 0], [1, 1], [2, 2], [0, 0]])
    assert_array_equal(rows.actions[-1], [0, 0])


def test_a_policy_sees_the_row_it_acts_in():
    def by_time(memory, observation, key):
        return observation.obs[:, 0].astype(jnp.int32) % 3, memory

    rows = play(Clock(HORIZON, True), by_time, Memory(jnp.zeros((2, 1)), jnp.full(2, -1)), jax.random.key(0))
    assert_array_equal(rows.actions[:-1, 0], [0, 1, 2, 0, 1])


def test_every_step_has_luck_of_its_own():
    def by_luck(memory, observation, key):
        return jax.random.randint(key, (2,), 0, 1000), memory

    memory = Memory(jnp.zeros((2, 1)), jnp.full(2, -1))
    one, other = (play(Clock(HORIZON, True), by_luck, memory, jax.random.key(seed)) for seed in (0, 1))
    assert len(set(np.asarray(one.actions)[:-1].ravel().tolist())) > 2
    assert not np.array_equal(one.actions, other.actions)
