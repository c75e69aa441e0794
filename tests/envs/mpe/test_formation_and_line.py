"""Formation and line control, by hand and by their symmetries."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linear_sum_assignment

from macpf.envs.mpe import FormationControl, LineControl
from macpf.errors import UserError
from tests.envs.mpe.worlds import KEY, waited, world
from tests.helpers import few, quick_jit, seeds

CENTRE = np.asarray([0.2, -0.1])
LINE = np.asarray([[0.0, 0.1], [1.0, 0.85]])  # 1.25 long
STEPS = {type(task): quick_jit(task.step) for task in (FormationControl(), LineControl())}
TASKS: list[tuple[Any, Any]] = [(FormationControl, [CENTRE]), (LineControl, LINE)]


def around(degrees: Any, radius: float = 0.5) -> np.ndarray:
    angles = np.radians(degrees)
    return CENTRE + radius * np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def formation_reward(position: np.ndarray) -> float:
    step = STEPS[FormationControl]
    return float(step(world(position, [CENTRE]), jnp.zeros(3, jnp.int32), KEY)[1].reward)


def test_sizes():
    for task, seen in ((FormationControl(), 6), (LineControl(), 8)):
        spec = task.spec
        assert (spec.n_agents, spec.n_actions, spec.horizon) == (3, 5, 25)
        assert (spec.obs_dim, spec.state_dim, spec.unit_dim) == (seen, 3 * seen, seen)
    assert FormationControl(observe_others=True, n_agents=4).spec.obs_dim == 6 + 6
    assert LineControl(observe_others=True, communication=True).spec.obs_dim == 8 + 8


# Formation control


def test_a_formation_is_free():
    assert_allclose(formation_reward(around([10, 130, 250])), 0, atol=1e-6)


@given(st.floats(0, 360), st.permutations(range(3)))
def test_a_turned_formation_is_free_whoever_stands_where(angle, order):
    assert_allclose(formation_reward(around(np.asarray([10, 130, 250]) + angle)[list(order)]), 0, atol=5e-6)


def test_the_smallest_angle_is_the_anchor():
    task = FormationControl()
    slots = task.slots(world(around([350, 40, 100], radius=0.3), [CENTRE]))  # -10 degrees counts as 350
    assert_allclose(slots, around([40, 160, 280]), atol=1e-6)


def test_places_are_where_the_agents_arrive():
    before = around([20, 140, 260])
    velocity = around([80, 200, 320], radius=1.0) - CENTRE
    after = before + 0.075 * velocity
    arrived = waited(FormationControl(), world(before, [CENTRE], velocity))
    angles = np.degrees(np.arctan2(*(after - CENTRE).T[::-1])) % 360
    missed = np.linalg.norm(after - around(np.min(angles) + np.asarray([0, 120, 240])), axis=-1)
    assert np.all(missed > 0.01)
    assert_allclose(arrived.reward, -np.sum(missed), rtol=1e-4)


@few(20)
@given(seed=seeds, order=st.permutations(range(3)), angle=st.floats(1, 359))
def test_a_formation_is_the_same_for_whoever_and_turned(seed, order, angle):
    rng = np.random.default_rng(seed)
    angles, radii = rng.uniform(1, 359, 3), rng.uniform(0.2, 1.0, 3)[:, None]
    position = CENTRE + radii * (around(angles, 1.0) - CENTRE)
    reward = formation_reward(position)
    assert_allclose(formation_reward(position[list(order)]), reward, rtol=1e-4, atol=1e-5)
    turn = min(angle, 359.5 - angles.max())  # nobody passes the line of angle 0, where the anchor changes
    turned = CENTRE + radii * (around(angles + turn, 1.0) - CENTRE)
    assert_allclose(formation_reward(turned), reward, rtol=1e-3, atol=1e-4)


def test_landmark_of_the_formation():
    worlds, _ = jax.vmap(FormationControl().reset)(jax.random.split(KEY, 2000))
    assert worlds.landmarks.shape == (2000, 1, 2)
    assert_allclose(np.abs(worlds.landmarks).max(), 0.5, atol=1e-2)
    assert_allclose(np.std(worlds.landmarks), 0.5 / math.sqrt(3), atol=1e-2)
    assert_allclose(np.std(worlds.position), 1 / math.sqrt(3), atol=1e-2)


# Line control


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
def test_a_line_is_free_whoever_stands_where(order):
    places = LINE[0] + np.asarray([0, 0.5, 1])[:, None] * (LINE[1] - LINE[0])
    assert_allclose(LineControl().slots(world(places, LINE)), places, atol=1e-6)
    assert_allclose(np.linalg.norm(np.diff(places, axis=0), axis=-1), 0.625)
    assert_allclose(waited(LineControl(), world(places[list(order)], LINE)).reward, 0, atol=1e-6)


def test_the_other_landmark_is_near_enough_and_inside():
    worlds, _ = jax.jit(jax.vmap(LineControl().reset))(jax.random.split(KEY, 2000))
    first, last = np.moveaxis(np.asarray(worlds.landmarks), 1, 0)
    assert np.all(np.abs(first) <= 0.25)
    assert np.all(np.abs(last) < 1)
    assert_allclose(np.linalg.norm(last - first, axis=-1), 1.25, rtol=1e-5)


@given(st.floats(-0.25, 0.25), st.floats(-0.25, 0.25), st.floats(0, 360, exclude_max=True))
def test_the_other_landmark_is_turned_as_little_as_needed(x, y, degrees):
    turns = degrees + 5 * np.arange(72)
    ends = np.asarray([x, y]) + 1.25 * np.stack([np.cos(np.radians(turns)), np.sin(np.radians(turns))], -1)
    room = 1 - np.max(np.abs(ends), axis=-1)
    end = LineControl()._other_end(jnp.asarray([x, y]), jnp.radians(jnp.asarray(degrees, jnp.float32)))
    if np.min(np.abs(room)) > 1e-5:  # no candidate so near the edge that rounding decides
        assert_allclose(end, ends[np.argmax(room > 0)], atol=1e-5)


def test_the_longest_line_fits_from_everywhere():
    task = LineControl(line_length=1.35, landmark_range=0.99)
    worlds, _ = jax.jit(jax.vmap(task.reset))(jax.random.split(KEY, 5000))
    middle = jax.vmap(task._other_end)(jnp.zeros((360, 2)), jnp.radians(jnp.arange(360.0)))
    assert np.abs(worlds.landmarks).max() < 1
    assert np.abs(middle).max() < 1


# Both


@pytest.mark.parametrize(("make", "landmarks"), TASKS)
@few(20)
@given(seed=seeds, order=st.permutations(range(3)))
def test_the_reward_is_that_of_the_hungarian_method(make, landmarks, seed, order):
    rng = np.random.default_rng(seed)
    task, step = make(), STEPS[make]
    position = rng.uniform(-1.5, 1.5, (3, 2))
    actions = jnp.asarray(rng.integers(5, size=3), jnp.int32)
    after, arrived = step(world(position, landmarks), actions, KEY)
    cost = np.linalg.norm(np.asarray(after.position)[:, None] - np.asarray(task.slots(after)), axis=-1)
    matched = cost[linear_sum_assignment(cost)]
    assert_allclose(arrived.reward, -np.sum(np.clip(matched, 0, 2)), rtol=1e-4)
    order = list(order)
    other = step(world(position[order], landmarks), actions[jnp.asarray(order)], KEY)[1]
    assert_allclose(arrived.reward, other.reward, rtol=1e-4)


@pytest.mark.parametrize(("make", "landmarks"), TASKS)
def test_the_mean_of_the_agents_and_clipping(make, landmarks):
    far = [[50.0, 0.0], [50.0, 1.0], [50.0, 2.0]]
    assert_allclose(waited(make(), world(far, landmarks)).reward, -6)
    assert_allclose(waited(make(reward_scale="mean"), world(far, landmarks)).reward, -2)
    assert_allclose(waited(make(clip_distance=1.0), world(far, landmarks)).reward, -3)


@pytest.mark.parametrize(("make", "landmarks"), TASKS)
@few(15)
@given(seed=seeds)
def test_an_agent_does_not_see_the_others(make, landmarks, seed):
    rng = np.random.default_rng(seed)
    position, velocity, elsewhere, faster = rng.uniform(-1, 1, (4, 3, 2))
    elsewhere[0], faster[0] = position[0], velocity[0]
    apart = 10 * np.arange(3)[:, None]  # so that nothing is felt either
    actions = jnp.asarray(rng.integers(5, size=3), jnp.int32)
    see = STEPS[make]
    one = see(world(position + apart, landmarks, velocity), actions, KEY)[1].observation.obs
    other = see(world(elsewhere + apart, landmarks, faster), actions, KEY)[1].observation.obs
    assert_allclose(one[0], other[0], rtol=1e-6)
    assert not np.allclose(one[1:], other[1:])


@pytest.mark.parametrize(("make", "landmarks"), TASKS)
def test_the_others_are_seen_on_demand(make, landmarks):
    position = np.asarray([[0.1, 0.2], [-0.3, 0.4], [0.5, -0.6]])
    task = make(observe_others=True, communication=True)
    obs = waited(task, world(position, landmarks)).observation.obs
    own = [0, 0, -0.3, 0.4, *(np.asarray(landmarks) - position[1]).reshape(-1)]
    assert_allclose(obs[1], [*own, 0.4, -0.2, 0.8, -1.0, 0, 0, 0, 0], atol=1e-6)


@pytest.mark.parametrize(("make", "landmarks"), TASKS)
@pytest.mark.parametrize(("off", "stopped"), [(0.04, True), (0.06, False)])
def test_stop_on_success(make, landmarks, off, stopped):
    if make is FormationControl:
        places = around([10, 130, 250])
        places[2] = around([250], radius=0.5 + off)[0]
    else:
        places = np.linspace(LINE[0], LINE[1], 3)
        places[2, 1] += off
    arrived = waited(make(stop_on_success=True), world(places, landmarks))
    assert (arrived.terminated, arrived.won, arrived.truncated) == (stopped, stopped, False)
    arrived = waited(make(), world(places, landmarks))
    assert not (arrived.terminated | arrived.won)


@pytest.mark.parametrize(("make", "landmarks"), TASKS)
def test_time_limits(make, landmarks):
    far = [[50.0, 0.0], [50.0, 1.0], [50.0, 2.0]]
    for time in (23, 24):
        cut = waited(make(), world(far, landmarks, time=time))
        assert (cut.truncated, cut.terminated, cut.won) == (time == 24, False, False)
        ended = waited(make(time_limit="terminal"), world(far, landmarks, time=time))
        assert (ended.truncated, ended.terminated) == (False, time == 24)


@pytest.mark.parametrize(
    ("make", "wrong", "sentence"),
    [
        (FormationControl, {"n_agents": 8}, "1 to 7 agents"),
        (FormationControl, {"circle": 0.0}, "circle's radius must be positive"),
        (FormationControl, {"landmark_range": -0.1}, "landmark_range must not be negative"),
        (LineControl, {"line_length": 1.5}, "at most 1.35, not 1.5"),
        (LineControl, {"landmark_range": 1.0}, "below 1, not 1.0"),
        (LineControl, {"horizon": 0}, "at least one step"),
    ],
)
def test_impossible_tasks_are_refused(make, wrong, sentence):
    with pytest.raises(UserError, match=sentence):
        make(**wrong)
