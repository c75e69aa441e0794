"""Strategies found by search: costs against the tasks' own rewards, searches against all sequences."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from macpf.envs.mpe import FormationControl, LineControl
from macpf.envs.mpe.apart import COSTS, N, others_of, paid, returns, search, towards, without_contacts
from macpf.envs.mpe.matching import matched
from macpf.envs.mpe.world import World, distances

TASKS = (FormationControl(), LineControl())
NOTHING, LEFT, RIGHT, DOWN, UP = range(5)
nobody = partial(jnp.zeros, dtype=jnp.float32)


def at(position, landmarks) -> World:
    position = jnp.asarray(position, jnp.float32)
    return World(position, jnp.zeros_like(position), jnp.asarray(landmarks), jnp.zeros((), jnp.int32))


def play(env: FormationControl | LineControl, world: World, actions) -> tuple[np.ndarray, np.ndarray]:
    """Where everybody is after each step of the task itself, and the rewards."""
    places, rewards = [], []
    for moment in actions:
        world, arrived = env.step(world, jnp.asarray(moment), jax.random.key(0))
        places.append(world.position)
        rewards.append(arrived.reward)
    return np.stack(places), np.stack(rewards)


@pytest.mark.parametrize("env", TASKS, ids=lambda env: type(env).__name__)
@given(seed=st.integers(0, 2**31 - 1), i=st.integers(0, N - 1))
@settings(deadline=None, max_examples=15)
def test_a_cost_is_what_the_task_takes_for_it(env, seed: int, i: int):
    """For each of four points and the mean of two samples of the others, beside the task's own."""
    world, _ = env.reset(jax.random.key(seed))
    rng = np.random.default_rng(seed)
    points, others = rng.uniform(-1, 1, (4, 2)), rng.uniform(-1, 1, (2, N - 1, 2))

    def reward(point, of_others) -> float:
        standing = at(np.insert(of_others, i, point, axis=0), world.landmarks)
        return -float(jnp.sum(matched(distances(standing, env.slots(standing)))))

    cost = COSTS[type(env)](env, world, jnp.asarray(others), jnp.asarray(points))
    rewards = [np.mean([reward(point, of_others) for of_others in others]) for point in points]
    assert_allclose(cost, -np.asarray(rewards), atol=1e-5)


def test_a_search_that_keeps_all_sequences_finds_the_best_of_all():
    """One agent, whose place is the first landmark: what an episode costs are its distances from there."""
    steps, start, goal = 4, jnp.asarray([0.3, -0.2]), jnp.asarray([0.0, 0.1])
    alone = partial(paid, LineControl(n_agents=1, horizon=steps), at(start[None], [goal, goal]))
    found, path = search(towards(goal[None], 0, "own"), nobody((steps, 1, N - 1, 2)), start, beam=5**steps)
    every = jnp.asarray(list(product(range(5), repeat=steps)))[..., None]
    costs = -jax.vmap(lambda actions: alone(lambda now: actions[now.time]))(every)
    cost = np.sum(np.linalg.norm(path - goal[None], axis=-1))
    assert_allclose([cost, -alone(lambda now: found[now.time][None])], jnp.min(costs), rtol=1e-6)


def test_a_narrow_search_is_nearly_as_good_and_a_wide_one_not_worse():
    goals = jnp.asarray([[0.7, -0.4], [-0.3, 0.6], [0.2, 0.2]])

    def paid(beam: int) -> np.ndarray:
        def one(goal):
            path = search(towards(goal[None], 0, "own"), nobody((12, 1, N - 1, 2)), jnp.zeros(2), beam)[1]
            return jnp.sum(jnp.linalg.norm(path - goal[None], axis=-1))

        return np.asarray(jax.vmap(one)(goals))

    narrow, wide = paid(32), paid(512)
    assert (wide <= narrow + 1e-5).all()
    assert_allclose(narrow, wide, rtol=0.02)


def test_who_knows_that_two_places_are_taken_takes_the_third():
    """The others stand on the first two places of a line; the third is the furthest."""
    env = LineControl()
    landmarks = jnp.asarray([[-0.6, 0.0], [0.6, 0.0]])
    world = at(jnp.zeros((N, 2)), landmarks)
    taken = jnp.broadcast_to(env.slots(world)[:2], (env.horizon, 1, N - 1, 2))
    cost = partial(COSTS[LineControl], env, world)
    _, path = search(cost, taken, jnp.asarray([-0.6, 0.3]), beam=64)
    assert np.linalg.norm(path[-1] - np.asarray([0.6, 0.0])) < 0.1


def test_the_conventions_by_hand():
    places = jnp.asarray([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    points = jnp.asarray([[0.0, 1.5], [3.0, 0.0]])
    assert_allclose(towards(places, 1, "own")(nobody((1, 2, 2)), points), [np.sqrt(1 + 1.5**2), 2.0])
    assert_allclose(towards(places, 1, "nearest")(nobody((1, 2, 2)), points), [0.5, 2.0])


def test_others_come_from_all_their_starts_and_leave_oneself_out():
    paths = [jnp.full((5, 3, 2), 10.0 * j) + jnp.arange(5.0)[:, None, None] for j in range(N)]
    others = np.asarray(others_of(1, paths, jax.random.key(0)))
    assert others.shape == (3, 5, 2, 2)
    assert_array_equal(np.sort(others[0, :, 0, 0]), np.arange(5.0))
    assert_array_equal(np.sort(others[0, :, 1, 0]), 20 + np.arange(5.0))
    assert len(set(others[0, :, 1, 0] - others[0, :, 0, 0])) > 1  # starts are drawn one by one


def test_agents_that_cross_each_other_do_not_touch():
    """In the task itself they are pushed off their way."""
    env = LineControl(n_agents=2)
    meeting = at([[-0.07, 0.0], [0.07, 0.0]], jnp.zeros((2, 2)))
    actions = [(RIGHT, LEFT), (NOTHING, NOTHING)]
    (pushed, _), (free, _) = play(env, meeting, actions), play(without_contacts(env), meeting, actions)
    assert_array_equal(free[:, 0, 1], 0)
    assert_allclose(free[:, 0, 0], [-0.02, 0.0175], atol=1e-6)
    assert pushed[-1, 0, 0] < -0.001


@pytest.mark.parametrize("env", TASKS, ids=lambda env: type(env).__name__)
def test_a_return_is_the_sum_of_the_rewards(env):
    world, _ = env.reset(jax.random.key(3))
    actions = jax.random.randint(jax.random.key(4), (env.horizon, N), 0, 5)
    _, rewards = play(env, world, actions)
    assert_allclose(paid(env, world, lambda now: actions[now.time]), rewards.sum(), rtol=1e-5)


@pytest.mark.parametrize("env", TASKS, ids=lambda env: type(env).__name__)
def test_answers_to_each_other_are_better_than_a_place_for_each(env):
    """Over a few places of the landmarks; the search is a small one."""
    small = partial(returns, env, "own", rounds=2, starts=32, beam=32, plays=64)
    keys = jax.random.split(jax.random.key(0), 4)
    fixed, found = jnp.mean(jax.jit(partial(jax.lax.map, small))(keys), axis=(0, 1))
    assert -20 < fixed < fixed + 0.1 < found < -10
