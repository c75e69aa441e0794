"""The multi-goal task, step by step."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from macpf.envs.multi_goal import MultiGoal, Point
from macpf.errors import UserError
from macpf.types import TimeStep

KEY = jax.random.key(0)
TASK = MultiGoal(stride=0.5, horizon=30)
RIGHT, UP, LEFT, DOWN = range(4)
step = jax.jit(TASK.step)


def after(x: float, y: float, *actions: int, time: int = 0) -> tuple[Point, TimeStep]:
    return step(Point(jnp.asarray([x, y]), jnp.asarray(time)), jnp.asarray(actions), KEY)


@pytest.mark.parametrize(
    ("action", "position"), [(RIGHT, (1.5, 2)), (UP, (1, 2.5)), (LEFT, (0.5, 2)), (DOWN, (1, 1.5))]
)
def test_it_moves_where_both_want(action, position):
    point, arrived = after(1.0, 2.0, action, action)
    assert_allclose(point.position, position)
    assert_allclose(arrived.observation.state, np.asarray(position) / 7, rtol=1e-6)
    assert_allclose(arrived.observation.obs, [np.asarray(position) / 7] * 2, rtol=1e-6)
    assert point.time == 1


@pytest.mark.parametrize("actions", [(RIGHT, UP), (UP, RIGHT), (LEFT, RIGHT), (DOWN, UP)])
def test_it_stays_unless_both_agree(actions):
    point, _ = after(1.0, 2.0, *actions)
    assert_allclose(point.position, (1.0, 2.0))
    assert point.time == 1


def test_all_of_three_agents_must_agree():
    task = MultiGoal(n_agents=3, stride=0.5)
    start = Point(jnp.zeros(2), jnp.asarray(0))
    assert_allclose(task.step(start, jnp.asarray([UP, UP, UP]), KEY)[0].position, (0.0, 0.5))
    assert_allclose(task.step(start, jnp.asarray([UP, UP, DOWN]), KEY)[0].position, (0.0, 0.0))


@pytest.mark.parametrize(
    ("x", "y", "reward"),
    [
        (5.0, 0.0, 1.0),  # on a goal
        (0.0, -5.0, 1.0),  # on another
        (4.0, 0.0, math.exp(-0.5)),  # one width from it
        (0.0, 0.0, 4 * math.exp(-12.5)),  # between all four
        (2.5, 2.5, 2 * math.exp(-6.25)),  # between two
    ],
)
def test_it_is_paid_for_where_it_stands(x, y, reward):
    _, arrived = after(x, y, RIGHT, UP)
    assert_allclose(arrived.reward, reward, rtol=1e-4)


def test_it_is_paid_for_where_it_arrives():
    _, arrived = after(4.5, 0.0, RIGHT, RIGHT)
    assert_allclose(arrived.reward, 1.0, rtol=1e-4)


@pytest.mark.parametrize(("action", "position"), [(RIGHT, (7, 6.8)), (UP, (6.8, 7))])
def test_it_does_not_leave_the_square(action, position):
    point, arrived = after(6.8, 6.8, action, action)
    assert_allclose(point.position, position, rtol=1e-6)
    assert jnp.max(arrived.observation.state) <= 1


def test_it_is_cut_off_at_the_horizon_and_never_terminates():
    state, first = TASK.reset(KEY)
    assert not (first.terminated | first.truncated | first.won)
    for t in range(1, 31):
        state, arrived = step(state, jnp.asarray([RIGHT, RIGHT]), KEY)
        assert arrived.truncated == (t == 30)
        assert not arrived.terminated


@pytest.mark.parametrize(
    ("x", "time", "won"), [(5.0, 29, True), (4.1, 29, True), (3.9, 29, False), (5.0, 28, False)]
)
def test_it_is_won_by_ending_near_a_goal(x, time, won):
    _, arrived = after(x, 0.0, RIGHT, UP, time=time)
    assert arrived.won == won


def test_it_starts_near_the_middle():
    starts = jax.vmap(lambda key: TASK.reset(key)[0].position)(jax.random.split(KEY, 2000))
    assert_allclose(jnp.mean(starts, axis=0), 0, atol=0.01)
    assert_allclose(jnp.std(starts, axis=0), 0.1, atol=0.01)


@pytest.mark.parametrize(
    "wrong",
    [{"horizon": 0}, {"n_agents": 0}, {"stride": 0.0}, {"goal_width": -1.0}, {"goal_distance": 8.0}],
)
def test_impossible_tasks_are_refused(wrong):
    with pytest.raises(UserError):
        MultiGoal(**wrong)
