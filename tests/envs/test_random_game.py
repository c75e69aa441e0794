"""Random games: every payoff of several of them, by enumeration."""

import os
import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from macpf.envs.check import check_env
from macpf.envs.random_game import BEST, PUNISHED, SAFE, RandomGame
from macpf.errors import UserError
from macpf.types import EnvSpec
from tests.helpers import quick_jit

N, A = 4, 5
JOINT = np.asarray(list(product(range(A), repeat=N)))
GAMES = range(8)
ROOT = Path(__file__).parents[2]

games = pytest.mark.parametrize("game", GAMES)


@cache
def payoffs(game: int) -> np.ndarray:
    """The payoff of every joint action, available or not: [A, ..., A]."""
    found = quick_jit(jax.vmap(RandomGame(game).payoff))(jnp.asarray(JOINT))
    return np.asarray(found).reshape((A,) * N)


@cache
def choices(game: int) -> tuple[int, ...]:
    """How many actions each agent has."""
    _, first = RandomGame(game).reset(jax.random.key(0))
    avail = np.asarray(first.observation.avail)
    counts = avail.sum(axis=1)
    assert_array_equal(avail, np.arange(A) < counts[:, None])
    return tuple(counts.tolist())


@cache
def legal(game: int) -> np.ndarray:
    """The payoffs of the joint actions that the players can take."""
    return payoffs(game)[tuple(slice(0, count) for count in choices(game))]


@games
def test_two_agents_or_more_play_with_equally_many_actions(game: int):
    counts = choices(game)
    players = [count for count in counts if count > 1]
    assert len(players) >= 2
    assert len(set(players)) == 1
    assert counts == (*players, *[1] * (N - len(players)))


@games
def test_two_or_three_joint_actions_are_best_and_no_agent_has_one_part_twice(game: int):
    optima = np.argwhere(legal(game) == BEST)
    assert len(optima) in (2, 3)
    assert len(optima) == RandomGame(game).draw().optima
    for agent, count in enumerate(choices(game)):
        if count > 1:
            assert len(set(optima[:, agent])) == len(optima)
    assert legal(game).max() == BEST


@games
def test_a_missed_optimum_is_punished_and_the_rest_is_safe(game: int):
    table = legal(game)
    optima = [tuple(o) for o in np.argwhere(table == BEST)]
    players = [agent for agent, count in enumerate(choices(game)) if count > 1]
    for actions in product(*map(range, table.shape)):
        takes_part = any(actions[i] == optimum[i] for optimum in optima for i in players)
        low, high = PUNISHED if takes_part else SAFE
        assert actions in optima or low <= table[actions] <= high, actions


def test_all_kinds_of_games_are_met():
    """Otherwise the tests of each game would say little."""
    players = {sum(count > 1 for count in choices(game)) for game in GAMES}
    assert players == {2, 3, 4}
    assert {int((legal(game) == BEST).sum()) for game in GAMES} == {2, 3}
    assert any(((legal(game) >= SAFE[0]) & (legal(game) < BEST)).any() for game in GAMES)
    assert all((legal(game) < 0).any() for game in GAMES)


@games
def test_what_absent_agents_do_counts_for_nothing(game: int):
    table = payoffs(game)
    for agent, count in enumerate(choices(game)):
        assert bool(np.all(np.ptp(table, axis=agent) == 0)) == (count == 1), agent


def test_every_number_is_a_game_of_its_own():
    tables = {payoffs(game).tobytes() for game in GAMES}
    assert len(tables) == len(GAMES)


@games
def test_a_step_pays_and_ends_the_game(game: int):
    env, key = RandomGame(game), jax.random.key(game)
    optimum = tuple(np.argwhere(legal(game) == BEST)[0])
    for actions, won in ((optimum, True), ((0, *optimum[1:]) if optimum[0] else (1, *optimum[1:]), False)):
        _, arrived = env.step((), jnp.asarray(actions), key)
        assert arrived.reward == payoffs(game)[actions]
        assert arrived.terminated
        assert not arrived.truncated
        assert arrived.won == won


@pytest.mark.parametrize("game", [0, 3])
def test_it_keeps_the_rules(game: int):
    env = RandomGame(game)
    assert env.spec == EnvSpec(N, A, obs_dim=1, state_dim=1, horizon=1)
    check_env(env)


@pytest.mark.parametrize("sizes", [(1, 3), (3, 1)])
def test_a_game_of_one_is_refused(sizes: tuple[int, int]):
    with pytest.raises(UserError, match="at least two agents and two actions"):
        RandomGame(0, *sizes)


TRACED = """
import sys
from dataclasses import replace
from itertools import product
import jax, jax.numpy as jnp, numpy as np
from macpf.envs.random_game import RandomGame
joint = jnp.asarray(list(product(range(5), repeat=4)))
def payoffs(game):
    env = replace(RandomGame(), game=game)
    return jax.vmap(env.payoff)(joint), env.reset(jax.random.key(0))[1].observation.avail
found, avail = jax.jit(jax.vmap(payoffs))(jnp.arange(8, dtype=jnp.float32))
np.savez(sys.argv[1], payoffs=found, avail=avail)
"""


def test_a_traced_number_is_the_same_game_as_a_plain_one(tmp_path: Path):
    """In a process of its own: where annotations are checked, the number of a game is a plain int."""
    path = tmp_path / "found.npz"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", TRACED, str(path)], check=True, env=environment, timeout=120)
    with np.load(path) as found:
        for game in GAMES:
            np.testing.assert_allclose(found["payoffs"][game].reshape((A,) * N), payoffs(game), rtol=1e-6)
            assert tuple(found["avail"][game].sum(axis=1)) == choices(game)
