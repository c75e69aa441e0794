"""Recorded episodes are those that evaluations play, and their states are the environment's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

import macpf
from macpf.envs.mpe.controllers import CONTROLLERS
from macpf.evaluation import score_controller
from macpf.report.replay.record import Played, of_controller, of_policy
from tests.report.replay.plays import SHORT, game_run, point_run


def retraced(env: Any, key: Any, played: Played) -> list[Any]:
    """The states of an episode, stepped through one by one with the keys of `rollout.play`."""
    reset_key, key = jax.random.split(key)
    state, _ = env.reset(reset_key)
    states, step = [state], jax.jit(env.step)
    for t, k in enumerate(jax.random.split(key, env.spec.horizon)[: played.steps]):
        step_key = jax.random.split(k)[1]
        assert_array_equal(jax.random.key_data(step_key), played.keys[t])
        state, arrived = step(state, jnp.asarray(played.actions[t]), step_key)
        assert_allclose(arrived.reward, played.reward[t], rtol=1e-5)
        states.append(state)
    return states


def of_run(run: macpf.Run, learner: int, **options: Any) -> tuple[Played, ...]:
    acting = run.policy("dep", learner)
    return of_policy(acting.algorithm, acting.env, acting.learner, jax.random.key(5), policy="dep", **options)


def test_episodes_are_those_of_evaluate_and_states_the_environments() -> None:
    run = point_run()
    scores = run.evaluate("dep", 6, sample=True, seed=5)
    plays = of_run(run, 0, episodes=3, sample=True)
    assert_allclose([p.reward.sum() for p in plays], scores.returns[0, :3], rtol=1e-5)
    assert_array_equal([p.won for p in plays], scores.won[0, :3])
    assert_array_equal([p.steps for p in plays], scores.length[0, :3])
    for key, played in zip(jax.random.split(jax.random.key(5), 3), plays, strict=True):
        states = retraced(run.experiment.env, key, played)
        assert_allclose(played.states.position, np.stack([s.position for s in states]), rtol=1e-5)


def test_every_learner_has_its_own_episodes() -> None:
    run = game_run()
    scores = run.evaluate("dep", 8, sample=True, seed=5)
    for row, learner in enumerate(run.seeds):
        plays = of_run(run, learner, episodes=8, sample=True)
        assert_allclose([p.reward.sum() for p in plays], scores.returns[row])


def test_a_controller_is_played_as_it_is_scored() -> None:
    key = jax.random.key(1)
    plays = of_controller(SHORT, CONTROLLERS["random"], key, episodes=2)
    scores = score_controller(SHORT, CONTROLLERS["random"], key, episodes=2)
    assert_allclose([p.reward.sum() for p in plays], scores.returns, rtol=1e-5)
    for k, played in zip(jax.random.split(key, 2), plays, strict=True):
        states = retraced(SHORT, k, played)
        assert_allclose(played.states.position, np.stack([s.position for s in states]), rtol=1e-5)


def test_an_episode_that_ends_early_is_cut_there() -> None:
    env = macpf.LineControl(horizon=2, stop_on_success=True, success_distance=9.0)
    (played,) = of_controller(env, CONTROLLERS["stay"], jax.random.key(0), episodes=1)
    assert played.won
    assert played.actions.shape == (1, 3)
    assert played.states.position.shape == (2, 3, 2)
