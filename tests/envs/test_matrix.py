"""The matrix game, cell by cell."""

from itertools import product

import jax
import jax.numpy as jnp
import pytest
from numpy.testing import assert_array_equal

from macpf.envs.matrix import TWO_OPTIMA, MatrixGame
from macpf.errors import UserError
from macpf.types import EnvSpec, TimeStep

KEY = jax.random.key(0)
PRISONERS = ((1.0, 5.0, 2.0), (0.0, 3.0, 7.0))  # two actions against three


def outcome(game: MatrixGame, *actions: int) -> TimeStep:
    state, _ = game.reset(KEY)
    return game.step(state, jnp.asarray(actions), KEY)[1]


@pytest.mark.parametrize("actions", list(product(range(4), repeat=2)))
def test_the_table_pays(actions):
    row, column = actions
    arrived = outcome(MatrixGame(), *actions)
    assert arrived.reward == TWO_OPTIMA[row][column]
    assert arrived.terminated
    assert not arrived.truncated
    assert arrived.won == (actions in ((0, 0), (3, 3)))


def test_it_starts_with_nothing_won_or_over():
    _, first = MatrixGame().reset(KEY)
    assert (first.reward, first.terminated, first.truncated, first.won) == (0.0, False, False, False)
    assert first.observation.avail.all()
    assert first.observation.visible.all()


def test_everybody_sees_a_constant():
    _, first = MatrixGame().reset(KEY)
    assert_array_equal(first.observation.obs, [[1.0], [1.0]])
    assert_array_equal(first.observation.state, [1.0])


def test_agents_may_have_different_numbers_of_actions():
    game = MatrixGame(PRISONERS)
    assert game.spec == EnvSpec(n_agents=2, n_actions=3, obs_dim=1, state_dim=1, horizon=1)
    _, first = game.reset(KEY)
    assert_array_equal(first.observation.avail, [[True, True, False], [True, True, True]])
    assert outcome(game, 1, 2).reward == 7.0
    assert outcome(game, 1, 2).won
    assert not outcome(game, 0, 1).won


def test_there_may_be_three_agents():
    cube = (((1.0, 2.0), (3.0, 4.0)), ((5.0, 6.0), (7.0, 8.0)))
    game = MatrixGame(cube)
    assert game.spec.n_agents == 3
    for i, j, k in product(range(2), repeat=3):
        assert outcome(game, i, j, k).reward == cube[i][j][k]


@pytest.mark.parametrize("payoff", [(), ((),), ((1.0, 2.0), (3.0,)), (("a", "b"),)])
def test_impossible_payoffs_are_refused(payoff):
    with pytest.raises(UserError, match="payoff"):
        MatrixGame(payoff)
