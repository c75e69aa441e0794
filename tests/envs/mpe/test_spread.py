"""Simple spread, step by step and option by option."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from macpf.envs.mpe import SimpleSpread
from macpf.errors import UserError
from tests.envs.mpe.worlds import KEY, waited, world
from tests.helpers import few, quick_jit, seeds

APART = [[-0.5, -0.5], [0.5, -0.5], [0.0, 0.5]]
HUNGARIAN = SimpleSpread(
    radius=0.05, landmark_scale=1.0, spread_reward="hungarian", observe_others=False, communication=False
)
TASKS = {
    "nearest": SimpleSpread(),
    "hungarian": HUNGARIAN,
    "local-ratio": SimpleSpread(spread_reward="local-ratio"),
}
STEPS = {name: quick_jit(task.step) for name, task in TASKS.items()}


def test_sizes():
    spec = SimpleSpread().spec
    assert (spec.n_agents, spec.n_actions, spec.obs_dim, spec.state_dim, spec.unit_dim) == (3, 5, 18, 54, 18)
    assert spec.horizon == 25
    assert HUNGARIAN.spec.obs_dim == 10
    assert SimpleSpread(n_agents=4, communication=False).spec.obs_dim == 4 + 8 + 6


def test_all_covered_costs_three_for_colliding_with_oneself():
    assert_allclose(waited(SimpleSpread(), world(APART, APART)).reward, -3)
    assert_allclose(waited(SimpleSpread(count_self_collision=False), world(APART, APART)).reward, 0)


def test_a_landmark_costs_everybody_the_distance_of_the_nearest():
    landmarks = [[-0.5, -0.5], [0.5, -0.5], [0.3, 0.9]]  # the last is 0.5 from the third agent
    assert_allclose(waited(SimpleSpread(), world(APART, landmarks)).reward, -3 * 0.5 - 3, rtol=1e-5)
    assert_allclose(waited(SimpleSpread(reward_scale="mean"), world(APART, landmarks)).reward, -0.5 - 1)


def test_one_agent_may_cover_two_landmarks_unless_matched():
    landmarks = [[-0.5, -0.5], [-0.5, -0.5], [0.0, 0.5]]
    assert_allclose(waited(SimpleSpread(), world(APART, landmarks)).reward, -3)
    assert_allclose(waited(HUNGARIAN, world(APART, landmarks)).reward, -1, rtol=1e-5)


def test_a_colliding_pair_costs_two():
    position = [[-0.5, -0.5], [-0.25, -0.5], [0.0, 0.5]]
    task = SimpleSpread(count_self_collision=False)
    # pushed apart by 5 each: to 0.25 + 0.1 between the centres, out of contact; a velocity holds them
    together = world(position, position, velocity=[[2.0 / 3, 0], [-2.0 / 3, 0], [0, 0]])
    assert_allclose(task.step(together, jnp.zeros(3, jnp.int32), KEY)[0].position, position, atol=1e-5)
    assert_allclose(waited(task, together).reward, -2, atol=1e-4)
    assert_allclose(waited(SimpleSpread(), together).reward, -5, atol=1e-4)
    apart = world(position, position)
    assert_allclose(waited(task, apart).reward, -3 * 2 * 0.05, rtol=1e-3)


def test_pushed_apart_by_hand():
    start = world([[0.0, 0.0], [0.29, 0.0], [0.0, 9.0]], APART)
    after, _ = SimpleSpread().step(start, jnp.zeros(3, jnp.int32), KEY)
    assert_allclose(after.velocity, [[-0.1, 0], [0.1, 0], [0, 0]], rtol=1e-3)
    assert_allclose(after.position, [[-0.01, 0], [0.3, 0], [0, 9]], rtol=1e-3)


def test_the_local_ratio_weighs_collisions():
    landmarks = [[-0.5, -0.5], [0.5, -0.5], [0.3, 0.9]]
    position = [[-0.5, -0.5], [0.5, -0.5], [0.0, 0.5]]
    for ratio in (0.0, 0.5, 1.0):
        task = SimpleSpread(spread_reward="local-ratio", local_ratio=ratio)
        assert_allclose(waited(task, world(position, landmarks)).reward, -(1 - ratio) * 3 * 0.5, rtol=1e-5)
    crowd = world([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]], landmarks)  # on one spot: no force, six ordered pairs
    task = SimpleSpread(spread_reward="local-ratio", local_ratio=1.0)
    assert_allclose(waited(task, crowd).reward, -6)


def test_the_hungarian_reward_is_clipped():
    far = [[100.0, 0.0], [100.0, 1.0], [100.0, 2.0]]
    assert_allclose(waited(HUNGARIAN, world(APART, far)).reward, -45)


def test_what_is_seen_by_hand():
    position = [[0.1, 0.2], [-0.3, 0.4], [0.5, -0.6]]
    velocity = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    before = world(np.asarray(position) - 0.075 * np.asarray(velocity), APART, velocity)
    after, arrived = SimpleSpread(radius=0.01).step(before, jnp.zeros(3, jnp.int32), KEY)
    second = [2.25, 3, -0.3, 0.4, -0.2, -0.9, 0.8, -0.9, 0.3, 0.1, 0.4, -0.2, 0.8, -1, 0, 0, 0, 0]
    assert_allclose(arrived.observation.obs[1], second, rtol=1e-4, atol=1e-5)
    assert_allclose(arrived.observation.state, arrived.observation.obs.reshape(-1))
    assert_allclose(after.landmarks, APART)
    assert arrived.observation.avail.all()
    assert arrived.observation.visible.all()


def test_starts():
    worlds, first = jax.jit(jax.vmap(SimpleSpread().reset))(jax.random.split(KEY, 2000))
    assert_allclose(np.abs(worlds.position).max(), 1, atol=1e-2)
    assert_allclose(np.abs(worlds.landmarks).max(), 0.8, atol=1e-2)
    for found, half in ((worlds.position, 1.0), (worlds.landmarks, 0.8)):
        assert_allclose(np.mean(found, axis=(0, 1)), 0, atol=0.03)
        assert_allclose(np.std(found, axis=(0, 1)), half / math.sqrt(3), atol=0.02)
    assert not worlds.velocity.any()
    assert not (first.terminated | first.truncated | first.won).any()


def test_landmarks_in_the_whole_square():
    worlds, _ = jax.vmap(SimpleSpread(landmark_scale=1.0).reset)(jax.random.split(KEY, 500))
    assert_allclose(np.abs(worlds.landmarks).max(), 1, atol=1e-2)


@pytest.mark.parametrize("kind", TASKS)
@few(15)
@given(seed=seeds, order=st.permutations(range(3)))
def test_who_is_who_does_not_matter(kind, seed, order):
    rng = np.random.default_rng(seed)
    order = list(order)
    position, landmarks = rng.uniform(-0.5, 0.5, (2, 3, 2))
    actions = jnp.asarray(rng.integers(5, size=3), jnp.int32)
    step = STEPS[kind]
    first, arrived = step(world(position, landmarks), actions, KEY)
    other, as_well = step(world(position[order], landmarks), actions[jnp.asarray(order)], KEY)
    assert_allclose(arrived.reward, as_well.reward, rtol=1e-4)
    assert_allclose(np.asarray(first.position)[order], other.position, atol=1e-4)
    again = step(world(position, landmarks[order]), actions, KEY)[1]
    assert_allclose(arrived.reward, again.reward, rtol=1e-4)


@few(15)
@given(seed=seeds)
def test_without_the_others_an_agent_does_not_see_them(seed):
    rng = np.random.default_rng(seed)
    position, velocity, landmarks = rng.uniform(-1, 1, (3, 3, 2))
    elsewhere, faster = rng.uniform(-1, 1, (2, 3, 2))
    elsewhere[0], faster[0] = position[0], velocity[0]
    actions = jnp.asarray(rng.integers(5, size=3), jnp.int32)
    # far from each other, so that nothing is felt either
    spread = 10 * np.arange(3)[:, None]
    see = STEPS["hungarian"]
    one = see(world(position + spread, landmarks, velocity), actions, KEY)[1].observation.obs
    other = see(world(elsewhere + spread, landmarks, faster), actions, KEY)[1].observation.obs
    assert_allclose(one[0], other[0], rtol=1e-6)
    assert not np.allclose(one[1], other[1])


def test_in_place_at_the_end_wins():
    near = np.add(APART, [0.09, 0])
    for time, position, won in ((24, APART, True), (24, near, True), (23, APART, False)):
        arrived = waited(SimpleSpread(), world(position, APART, time=time))
        assert arrived.won == won
        assert arrived.truncated == (time == 24)
        assert not arrived.terminated
    far = np.add(APART, [0.11, 0])
    assert not waited(SimpleSpread(), world(far, APART, time=24)).won


def test_stop_on_success():
    arrived = waited(SimpleSpread(stop_on_success=True), world(APART, APART))
    assert arrived.terminated & arrived.won
    assert not arrived.truncated
    arrived = waited(SimpleSpread(stop_on_success=True), world(APART, np.asarray(APART) + 0.2))
    assert not (arrived.terminated | arrived.won | arrived.truncated)


def test_a_terminal_time_limit():
    task = SimpleSpread(time_limit="terminal", horizon=4)
    for time, over in ((2, False), (3, True)):
        arrived = waited(task, world(APART, np.asarray(APART) + 0.2, time=time))
        assert arrived.terminated == over
        assert not arrived.truncated


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"n_agents": 0}, "1 to 100 agents"),
        ({"n_agents": 8, "spread_reward": "hungarian"}, "1 to 7 agents with this reward, not 8"),
        ({"horizon": 0}, "at least one step"),
        ({"radius": 0.0}, "radius of an agent must be positive"),
        ({"landmark_scale": -1.0}, "landmark_scale must be positive"),
        ({"local_ratio": 1.5}, "from 0 to 1, not 1.5"),
        ({"clip_distance": 0.0}, "clip_distance must be positive"),
        ({"success_distance": 0.0}, "success_distance must be positive"),
    ],
)
def test_impossible_tasks_are_refused(wrong, sentence):
    with pytest.raises(UserError, match=sentence):
        SimpleSpread(**wrong)
