"""The controllers: what they do by hand, and that their scores are those of a separate simulation."""

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose

from macpf.envs.mpe import FormationControl, LineControl, SimpleSpread
from macpf.envs.mpe.controllers import (
    CONTROLLERS,
    LookAhead,
    Random,
    Simple,
    Stay,
    best_push,
    reach,
    shared_out,
)
from macpf.envs.mpe.physics import Integration, coasting, move, pushes
from macpf.errors import UserError
from macpf.evaluation import score_controller
from macpf.reproduce.mpe_controllers import TABLES, Score
from tests.envs.mpe.worlds import KEY, world
from tests.helpers import few, quick_jit, seeds

NOTHING, LEFT, RIGHT, DOWN, UP = range(5)
ORDERS: tuple[Integration, ...] = ("velocity-first", "position-first")
APART = np.asarray([[-0.5, -0.5], [0.5, -0.5], [0.0, 0.5]])


def acted(controller: Any, env: Any, state: Any, places: Any) -> list[int]:
    return list(np.asarray(controller.act(env, state, jnp.asarray(places, jnp.float32), KEY)))


def simulated(velocity: Any, actions: Any, integration: Integration) -> np.ndarray:
    """Where a lone body is after each of its actions, and where it coasts to, by the physics themselves."""
    return np.asarray(SIMULATED[integration](jnp.asarray(velocity, jnp.float32), jnp.asarray(actions)))


def _simulated(velocity: jax.Array, actions: jax.Array, integration: Integration) -> jax.Array:
    position, speed = jnp.zeros((1, 2)), velocity[None]
    rows = []
    for action in actions:
        position, speed = move(position, speed, pushes(action[None]), integration)
        rows.append(position[0])
    return jnp.stack([*rows, position[0] + coasting(integration) * speed[0]])


SIMULATED = {order: quick_jit(partial(_simulated, integration=order)) for order in ORDERS}
SEARCH = {order: quick_jit(partial(best_push, depth=2, last=4.0, integration=order)) for order in ORDERS}


def test_stay_and_random():
    start, _ = SimpleSpread().reset(KEY)
    assert acted(Stay(), SimpleSpread(), start, APART) == [NOTHING] * 3
    keys = jax.random.split(KEY, 1000)
    drawn = jax.vmap(lambda key: Random().act(SimpleSpread(), start, start.position, key))(keys)
    shares = np.stack([np.mean(np.asarray(drawn) == action, axis=0) for action in range(5)])
    assert_allclose(shares, 0.2, atol=0.05)


@pytest.mark.parametrize(
    ("offset", "velocity", "action"),
    [
        ((0.5, 0.3), (0, 0), RIGHT),
        ((-0.5, 0.3), (0, 0), LEFT),
        ((0.2, 0.3), (0, 0), UP),
        ((0.2, -0.3), (0, 0), DOWN),
        ((0.09, -0.09), (0, 0), NOTHING),
        ((0.5, 0.3), (1.5, 0), UP),  # it will coast 0.45 of the 0.5
        ((0.5, 0.0), (1.5, 0), NOTHING),
        ((0.3, 0.0), (2.0, 0), LEFT),
    ],
)
def test_simple_by_hand(offset, velocity, action):
    state = world(APART, APART, velocity=[velocity, (0, 0), (0, 0)])
    places = APART + np.asarray([offset, (0, 0), (0, 0)])
    assert acted(Simple(), SimpleSpread(), state, places) == [action, NOTHING, NOTHING]


def test_places_are_shared_out_for_the_least_distance():
    state = world(APART, APART[[1, 2, 0]] + 0.1)
    assert_allclose(shared_out(SimpleSpread(), state), APART + 0.1, rtol=1e-6)
    assert_allclose(LookAhead().plan(SimpleSpread(), state), APART + 0.1, rtol=1e-6)
    assert_allclose(Simple().plan(SimpleSpread(), state), APART + 0.1, rtol=1e-6)
    assert_allclose(LookAhead(places="own").plan(SimpleSpread(), state), APART[[1, 2, 0]] + 0.1)


def test_own_places_do_not_depend_on_the_others():
    for env in (FormationControl(), LineControl()):
        state, _ = env.reset(KEY)
        moved = replace(state, position=state.position[::-1] + 0.3)
        assert_allclose(env.own_slots(state), env.own_slots(moved))
    ring = FormationControl().own_slots(world(APART, [[0.1, 0.2]]))
    assert_allclose(np.linalg.norm(ring - np.asarray([[0.1, 0.2]]), axis=-1), 0.5, rtol=1e-6)


@pytest.mark.parametrize("integration", ORDERS)
@few(5)
@given(seed=seeds)
def test_where_pushes_lead_is_what_the_physics_say(integration, seed):
    rng = np.random.default_rng(seed)
    velocity, actions = rng.uniform(-2, 2, 2), rng.integers(5, size=3)
    found = []
    for steps in (1, 2, 3, np.inf):
        made = min(3, steps)
        carried, pushed = reach(int(made), steps, integration)
        at = sum(int(a) * 5**k for k, a in enumerate(actions[: int(made)]))
        found.append(carried * velocity + pushed[:, at])
    assert_allclose(found, simulated(velocity, actions, integration), atol=1e-5)


@pytest.mark.parametrize("integration", ORDERS)
@few(4)
@given(seed=seeds)
def test_the_search_finds_the_best_of_all_sequences(integration, seed):
    rng = np.random.default_rng(seed)
    offset, velocity = rng.uniform(-0.4, 0.4, 2), rng.uniform(-1, 1, 2)
    sequences = list(itertools.product(range(5), repeat=2))
    missed = [np.linalg.norm(offset - simulated(velocity, s, integration), axis=-1) for s in sequences]
    costs = np.asarray(missed) @ [1, 1, 4.0]
    action = int(SEARCH[integration](jnp.asarray(offset, jnp.float32), jnp.asarray(velocity, jnp.float32)))
    best = min(cost for cost, sequence in zip(costs, sequences, strict=True) if sequence[0] == action)
    assert_allclose(best, np.min(costs), rtol=1e-5)


def test_the_search_goes_there_and_stays_near():
    env = LineControl()
    step = quick_jit(env.step)
    act = quick_jit(lambda state, places: LookAhead().act(env, state, places, KEY))
    state = world([[-0.9, -0.9], [0.9, -0.9], [0.5, 0.7]], [[0.0, 0.1], [1.0, 0.85]])
    places = env.slots(state)
    missed = []
    for _ in range(40):
        state, arrived = step(state, act(state, places), KEY)
        missed.append(-arrived.reward / 3)
    assert missed[0] > 0.7
    assert np.max(missed[20:]) < 0.1
    assert np.mean(missed[20:]) < 0.05


def test_impossible_depths_are_refused():
    with pytest.raises(UserError, match="depth of the search must be 1 to 7, not 8"):
        LookAhead(depth=8)


def test_an_episode_that_ends_is_not_scored_further():
    env = SimpleSpread(stop_on_success=True, success_distance=9.0, horizon=7)  # ends at once
    found = score_controller(env, Stay(), KEY, episodes=3)
    assert_allclose(found.length, 1)
    assert_allclose(found.won, 1)
    whole = score_controller(replace(env, stop_on_success=False), Stay(), KEY, episodes=3)
    assert_allclose(whole.length, 7)
    assert_allclose(whole.won, 1)
    assert np.all(whole.returns < found.returns)


def agrees(task: str, controller: str) -> None:
    convention = TABLES[task][0]
    found = score_controller(convention.env, CONTROLLERS[controller], KEY, episodes=500)
    score = Score(convention, controller, np.asarray(found.returns))
    assert score.z is not None
    assert abs(score.z) < 3, f"{score.mean} +- {score.half_width}, not {score.numpy}"


@pytest.mark.parametrize("controller", ["stay", "random", "simple"])
@pytest.mark.parametrize("task", TABLES)
def test_scores_are_those_of_the_separate_simulation(task, controller):
    agrees(task, controller)


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("controller", ["look-ahead", "fixed"])
@pytest.mark.parametrize("task", TABLES)
def test_scores_of_the_search_are_those_of_the_separate_simulation(task, controller):
    agrees(task, controller)
