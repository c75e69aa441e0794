"""Scores by hand, and the policies and episodes that an evaluation plays."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_array_equal

from macpf.algorithms.macpf import MACPF
from macpf.envs.matrix import MatrixGame
from macpf.envs.multi_goal import MultiGoal
from macpf.evaluation import rollouts, score
from macpf.types import Observation, Policy, Trajectory


def test_score_by_hand():
    shape = (3, 4)
    nothing = Observation(
        jnp.zeros((*shape, 1, 1)),
        jnp.zeros((*shape, 1)),
        jnp.ones((*shape, 1, 1), bool),
        jnp.ones((*shape, 1, 1), bool),
    )
    found = score(
        Trajectory(
            nothing,
            actions=jnp.zeros((*shape, 1), jnp.int32),
            reward=jnp.asarray([[1.0, 2.0, 4.0, 99.0], [1.0, -3.0, 99.0, 99.0], [0.5, 99.0, 99.0, 99.0]]),
            terminated=jnp.zeros(shape, bool),
            won=jnp.asarray([[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]], bool),
            mask=jnp.asarray([[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]], bool),
        )
    )
    assert_array_equal(found.returns, [7.0, -2.0, 0.5])
    assert_array_equal(found.won, [1.0, 0.0, 1.0])
    assert_array_equal(found.length, [3.0, 2.0, 1.0])


@dataclass(frozen=True)
class Scripted(MACPF):
    """Always the action that was "learned", or when sampling the last one."""

    recurrent: bool = False

    @property
    def policies(self) -> Mapping[str, Policy]:
        def follow(learner, memory, observation, key, *, sample=False):
            return jnp.full(2, 3 if sample else learner), memory

        def stay(learner, memory, observation, key, *, sample=False):
            return jnp.asarray([0, 1]), memory

        return {"ind": follow, "apart": stay}


def test_the_named_policy_plays():
    def payoff(learner: int, **options) -> list[float]:
        played = rollouts(Scripted(), MatrixGame(), learner, jax.random.key(0), episodes=2, **options)
        return score(played).returns.tolist()

    assert payoff(0) == [8.0, 8.0]
    assert payoff(1) == [0.0, 0.0]
    assert payoff(1, sample=True) == [8.0, 8.0]
    assert payoff(0, policy="apart") == [-20.0, -20.0]


def test_every_episode_is_another():
    played = rollouts(Scripted(), MultiGoal(horizon=2), 0, jax.random.key(0), episodes=3)
    assert played.reward.shape == (3, 3)
    starts = np.asarray(played.observation.state)[:, 0]
    assert len({tuple(start) for start in starts.tolist()}) == 3


def test_the_same_key_plays_the_same():
    one, two = (rollouts(Scripted(), MultiGoal(horizon=2), 0, jax.random.key(7)) for _ in range(2))
    assert one.mask.shape[0] == 32
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert_array_equal(x, y)
