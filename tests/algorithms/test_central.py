"""Centralised control: joint actions, their soft values, and what is done by them."""

from functools import cache
from itertools import product
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

from macpf.algorithms.central import Central, Networks, _see, joint_avail, joint_index
from macpf.algorithms.learning import LearnerState
from macpf.errors import UserError
from macpf.networks.agents import FeedForward
from macpf.optim import RMSprop
from macpf.rollout import play
from macpf.schedules import Linear
from macpf.types import EnvSpec, Memory, Observation, Trajectory
from tests.helpers import (
    SPEC,
    STEP,
    Noise,
    few,
    quick_jit,
    random_episode,
    random_episodes,
    random_observation,
    same,
    seeds,
)

N, A, T = SPEC.n_agents, SPEC.n_actions, SPEC.horizon
JOINT = np.asarray(list(product(range(A), repeat=N)))
HOT, COLD = 1.5, 0.4


def small(**options: Any) -> Central:
    """Centralised control with few units, whose temperature falls."""
    defaults = {
        "recurrent": False,
        "hidden": 8,
        "optimiser": RMSprop(lr=1e-2, eps=1e-3),
        "alpha": Linear(HOT, COLD, 100),
        "gamma": 0.9,
        "target_period": 3,
    }
    return Central(**(defaults | options))


FEED_FORWARD = small()


@cache
def _shapes(recurrent: bool) -> LearnerState:
    return jax.eval_shape(lambda key: small(recurrent=recurrent).init(key, SPEC), jax.random.key(0))


def random_learner(recurrent: bool, seed: int) -> LearnerState:
    """A learner with sizeable parameters, whose targets are others than its networks."""
    rng = np.random.default_rng(seed)
    shapes = _shapes(recurrent)

    def random(tree: Any) -> Any:
        return jax.tree.map(lambda x: jnp.asarray(0.4 * rng.standard_normal(x.shape), x.dtype), tree)

    optimisers = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes.optimisers)
    return LearnerState(random(shapes.networks), random(shapes.targets), optimisers, jnp.zeros((), jnp.int32))


# Joint actions


def test_joint_actions_by_hand():
    assert int(joint_index(jnp.asarray([0, 0, 0]), 4)) == 0
    assert int(joint_index(jnp.asarray([0, 0, 3]), 4)) == 3
    assert int(joint_index(jnp.asarray([0, 1, 0]), 4)) == 4
    assert int(joint_index(jnp.asarray([2, 1, 3]), 4)) == 39
    assert int(joint_index(jnp.asarray([2]), 5)) == 2


def test_availability_by_hand():
    avail = jnp.asarray([[True, False, True], [False, True, True]])
    assert_array_equal(np.flatnonzero(joint_avail(avail)), [1, 2, 7, 8])  # 01, 02, 21 and 22


def test_every_joint_action_has_an_index_of_its_own():
    indices = jax.vmap(lambda a: joint_index(a, A))(jnp.asarray(JOINT))
    assert_array_equal(indices, np.arange(A**N))
    assert_array_equal(np.stack(np.unravel_index(np.asarray(indices), (A,) * N), axis=-1), JOINT)


@few(20)
@given(seed=seeds)
def test_a_joint_action_is_available_when_everybodys_part_is(seed):
    avail = np.random.default_rng(seed).random((N, A)) < 0.6
    expected = [all(avail[i, a] for i, a in enumerate(actions)) for actions in JOINT]
    assert_array_equal(joint_avail(jnp.asarray(avail)), expected)


def test_too_many_joint_actions_are_a_mistake():
    crowd = EnvSpec(n_agents=5, n_actions=8, obs_dim=1, state_dim=1, horizon=1)
    with pytest.raises(UserError, match=r"32,768 are more than 20,000$"):
        Central().init(jax.random.key(0), crowd)
    pair = EnvSpec(n_agents=2, n_actions=100, obs_dim=1, state_dim=1, horizon=1)
    learner = jax.eval_shape(lambda key: small().init(key, pair), jax.random.key(0))
    assert learner.networks.q.head.out_features == 10_000


# Values by hand


def values(networks: Networks, seen: Observation, previous: Any) -> np.ndarray:
    """The value of every joint action at one moment, without memory, in double precision."""
    did = np.zeros((N, A))
    for agent, action in enumerate(np.asarray(previous)):
        if action >= 0:
            did[agent, action] = 1
    x = np.concatenate([np.ravel(part) for part in (seen.state, seen.obs, did)]).astype(float)
    body = networks.q.body
    assert isinstance(body, FeedForward)
    (layer,), head = body.layers.layers, networks.q.head
    h = np.maximum(np.asarray(layer.weight, float) @ x + np.asarray(layer.bias), 0)
    return np.asarray(head.weight, float) @ h + np.asarray(head.bias)


def possible(avail: Any) -> Any:
    """Which joint actions can be done."""
    return np.asarray(avail)[np.arange(N), JOINT].all(-1)


def row(tree: Any, t: int) -> Any:
    return jax.tree.map(lambda x: x[t], tree)


@cache
def losses_of(algorithm: Central):
    """The compiled loss of one episode."""
    return quick_jit(lambda learner, e, step: algorithm.losses(learner.networks, learner.targets, e, step))


@few(12)
@given(seed=seeds)
def test_the_loss_is_the_squared_soft_bellman_error(seed):
    learner, episode = random_learner(False, seed), random_episode(seed)
    step, alpha = STEP + 50, (HOT + COLD) / 2
    actual = losses_of(FEED_FORWARD)(learner, episode, step)["loss"]
    for t in range(int(episode.mask.sum())):
        before = episode.actions[t - 1] if t else np.full(N, -1)
        q = values(learner.networks, row(episode.observation, t), before)
        stored = int(np.ravel_multi_index(tuple(np.asarray(episode.actions[t])), (A,) * N))
        later = row(episode.observation, t + 1)
        q_hat = values(learner.targets, later, episode.actions[t])[possible(later.avail)]
        v_hat = alpha * np.log(np.exp(q_hat / alpha).sum())
        y = float(episode.reward[t]) + 0.9 * (0.0 if episode.terminated[t] else v_hat)
        assert_allclose(actual[t], (q[stored] - y) ** 2, rtol=1e-3, atol=1e-3)


def ended(episode: Trajectory, terminated: bool) -> Trajectory:
    last = int(episode.mask.sum()) - 1
    return eqx.tree_at(lambda e: e.terminated, episode, jnp.arange(T + 1) == (last if terminated else -1))


def test_a_terminated_episode_has_no_future_and_one_cut_off_has():
    learner = random_learner(False, 1)
    episode = random_episode(1)
    last = int(episode.mask.sum()) - 1
    behind = eqx.tree_at(
        lambda e: e.observation.state, episode, episode.observation.state.at[last + 1].add(3.0)
    )
    loss = losses_of(FEED_FORWARD)
    for terminated in (True, False):
        one, other = (loss(learner, ended(e, terminated), STEP)["loss"] for e in (episode, behind))
        assert (one[last] == other[last]) == terminated
        assert_array_equal(one[:last], other[:last])


def test_the_update_descends_the_mean_loss_and_copies_the_target():
    update = quick_jit(FEED_FORWARD.update)
    learner, batch = random_learner(False, 2), random_episodes(2, 3)
    rows = np.stack([losses_of(FEED_FORWARD)(learner, row(batch, b), STEP)["loss"] for b in range(3)])
    first = rows[np.asarray(batch.mask)[:, :-1]].mean()
    for count in range(1, 5):
        before = learner
        learner, metrics = update(learner, batch, jax.random.key(count), STEP)
        if count == 1:
            assert_allclose(metrics["loss"], first, rtol=1e-4)
        assert same(learner.targets, learner.networks if count == 3 else before.targets)
        assert not same(learner.networks, before.networks)
        assert_allclose(metrics["alpha"], HOT)
        if count == 3:
            assert metrics["loss"] < first


# Acting


@cache
def acting_of(algorithm: Central, count: int):
    """Actions of many keys: exploring, sampled, greedy; and the log-probabilities of all joint actions."""

    def act(learner, memory, observation, keys):
        explored, sampled, greedy = (
            jax.vmap(how)(keys)
            for how in (
                lambda key: algorithm.explore(learner, memory, observation, key, STEP)[0],
                lambda key: algorithm.execute(learner, memory, observation, key, sample=True)[0],
                lambda key: algorithm.execute(learner, memory, observation, key)[0],
            )
        )
        log_prob = jax.vmap(lambda a: algorithm.log_prob(learner, memory, observation, a)["ind"])
        return explored, sampled, greedy, log_prob(jnp.asarray(JOINT))

    def acting(learner, memory, observation, seed):
        return act(learner, memory, observation, jax.random.split(jax.random.key(seed), count))

    return quick_jit(acting)


def moment(seed: int, algorithm: Central) -> tuple[Memory, Observation]:
    """A random moment in the middle of an episode."""
    rng = np.random.default_rng(seed)
    previous = jnp.asarray(rng.integers(0, A, N), jnp.int32)
    return Memory(algorithm.init_memory(SPEC).hidden, previous), random_observation(rng, ())


def index(actions: Any) -> Any:
    return np.ravel_multi_index(tuple(np.asarray(actions).T), (A,) * N)


@few(3)
@given(seed=seeds)
def test_joint_actions_are_as_frequent_as_their_soft_values_say(seed):
    learner = random_learner(False, seed)
    memory, observation = moment(seed, FEED_FORWARD)
    q = values(learner.networks, observation, memory.previous)
    count = 4000
    explored, sampled, _, log_prob = acting_of(FEED_FORWARD, count)(learner, memory, observation, seed)
    for actions, alpha in ((explored, HOT), (sampled, COLD)):
        weights = np.where(possible(observation.avail), np.exp((q - q.max()) / alpha), 0.0)
        probs = weights / weights.sum()
        shares = np.bincount(index(actions), minlength=A**N) / count
        spread = np.sqrt(probs * (1 - probs) / count)
        assert (np.abs(shares - probs) <= 5 * spread + 1e-3).all()
        assert (shares[~possible(observation.avail)] == 0).all()
    assert_allclose(np.exp(np.asarray(log_prob, float)), probs, rtol=1e-3, atol=1e-5)


@few(10)
@given(seed=seeds)
def test_the_greedy_joint_action_is_the_best_possible_one(seed):
    learner = random_learner(False, seed)
    memory, observation = moment(seed, FEED_FORWARD)
    q = values(learner.networks, observation, memory.previous)
    _, _, greedy, _ = acting_of(FEED_FORWARD, 4000)(learner, memory, observation, seed)
    allowed = possible(observation.avail)
    assert (index(greedy) == np.argmax(np.where(allowed, q, -np.inf))).all()


# Memory


def test_the_values_of_a_stored_episode_are_those_it_was_played_by():
    algorithm = small(recurrent=True)
    learner = random_learner(True, 3)
    met: list[np.ndarray] = []

    def act(memory, observation, key):
        q, _ = _see(learner.networks.q, memory, observation)
        actions, after = algorithm.explore(learner, memory, observation, key, STEP)
        jax.debug.callback(lambda *x: met.append(np.stack(x)), q, ordered=True)
        return actions, after

    rollout = quick_jit(lambda key: play(Noise(), act, algorithm.init_memory(SPEC), key))
    blind = small(recurrent=True, gamma=0.0)  # without a future the loss is (Q - r)^2
    losses = quick_jit(lambda e: blind.losses(learner.networks, learner.targets, e, STEP)["loss"])
    lengths = set()
    for key in jax.random.split(jax.random.key(0), 6):
        met.clear()
        episode = rollout(key)
        jax.effects_barrier()
        q = np.stack(met)[:, 0][np.arange(T), index(episode.actions[:-1])]
        assert_allclose(losses(episode), (q - np.asarray(episode.reward[:-1])) ** 2, rtol=1e-3, atol=1e-4)
        lengths.add(int(episode.mask.sum()))
    assert max(lengths) > 2


def test_the_controller_remembers_for_all():
    algorithm = small(recurrent=True)
    learner = random_learner(True, 4)
    memory, observation = moment(4, algorithm)
    actions, after = algorithm.execute(learner, memory, observation, jax.random.key(0))
    assert after.hidden.shape == (N, 8)
    assert np.abs(after.hidden).max() > 0
    assert_array_equal(after.hidden, np.tile(np.asarray(after.hidden[:1]), (N, 1)))
    assert_array_equal(after.previous, actions)
