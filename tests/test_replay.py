"""The ring of episodes: what it keeps, what it hands out, what it weighs."""

from functools import partial
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from macpf.replay import Replay, empty, size_in_bytes
from macpf.types import EnvSpec, Observation, Trajectory

add = jax.jit(Replay.add)


@partial(jax.jit, static_argnames="count")
def sample(replay: Replay, key: jax.Array, count: int) -> Trajectory:
    return replay.take(replay.draw(key, count))


SPEC = EnvSpec(n_agents=2, n_actions=3, obs_dim=4, state_dim=5, horizon=2)


def episodes(labels: list[int], spec: EnvSpec = SPEC) -> Trajectory:
    """Episodes that hold their label in every number."""
    rows, n, a = spec.horizon + 1, spec.n_agents, spec.n_actions

    def filled(*shape: int) -> jax.Array:
        values = np.asarray(labels, np.float32).reshape(-1, *[1] * len(shape))
        return jnp.asarray(np.broadcast_to(values, (len(labels), *shape)))

    flags = jnp.ones((len(labels), rows), bool)
    return Trajectory(
        Observation(
            filled(rows, n, spec.obs_dim),
            filled(rows, spec.state_dim),
            jnp.ones((len(labels), rows, n, a), bool),
            jnp.ones((len(labels), rows, n, n), bool),
        ),
        actions=filled(rows, n).astype(jnp.int32) % a,
        reward=filled(rows),
        terminated=flags,
        won=flags,
        mask=flags,
    )


def labels_in(replay: Replay) -> list[float]:
    return sorted(np.asarray(replay.episodes.reward)[:, 0].tolist())


def test_the_oldest_is_overwritten():
    replay = empty(SPEC, capacity=4)
    for labels, held in (
        ([1], [0, 0, 0, 1]),
        ([2, 3], [0, 1, 2, 3]),
        ([4, 5], [2, 3, 4, 5]),
        ([6, 7, 8], [5, 6, 7, 8]),
    ):
        replay = add(replay, episodes(labels))
        assert labels_in(replay) == held
    assert replay.added == 8
    assert replay.capacity == 4


def test_all_of_an_episode_stays_together():
    replay = add(add(empty(SPEC, capacity=3), episodes([1, 2])), episodes([3, 4]))
    batch = sample(replay, jax.random.key(0), 3)
    label = np.asarray(batch.reward)[:, :1]
    seen = batch.observation
    assert sorted(label[:, 0]) == [2, 3, 4]
    assert (np.asarray(batch.reward) == label).all()
    assert (np.asarray(seen.state) == label[..., None]).all()
    assert (np.asarray(seen.obs) == label[..., None, None]).all()
    assert (np.asarray(batch.actions) == label[..., None] % SPEC.n_actions).all()


@pytest.mark.parametrize(("held", "count"), [(1, 1), (4, 3), (4, 4), (6, 2)])
def test_samples_are_different_and_filled(held, count):
    replay = add(empty(SPEC, capacity=6), episodes(list(range(1, held + 1))))
    keys = jax.random.split(jax.random.key(0), 200)
    drawn = jax.jit(jax.vmap(lambda key: replay.take(replay.draw(key, count)).reward[:, 0]))(keys)
    for labels in np.asarray(drawn):
        assert len(set(labels)) == count
        assert labels.min() > 0


def test_every_set_is_equally_likely():
    replay = add(empty(SPEC, capacity=6), episodes([1, 2, 3, 4]))
    draws = 6000
    keys = jax.random.split(jax.random.key(0), draws)
    drawn = jax.jit(jax.vmap(lambda key: replay.take(replay.draw(key, 2)).reward[:, 0]))(keys)
    found = [tuple(sorted(pair)) for pair in np.asarray(drawn)]
    for pair in combinations((1.0, 2.0, 3.0, 4.0), 2):
        assert_allclose(found.count(pair) / draws, 1 / 6, atol=0.02)  # four standard deviations


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("spec", [SPEC, EnvSpec(3, 200, 7, 1, 4)])
def test_its_size_is_that_of_its_arrays(spec, half):
    arrays = jax.tree.leaves(empty(spec, 5, half).episodes)
    assert size_in_bytes(spec, 5, half) == sum(array.nbytes for array in arrays)


def test_its_size_by_hand():
    row = 4 * (2 * 4 + 5) + (2 * 3 + 2 * 2) + 2 + 4 + 3  # numbers seen, masks, actions, reward, flags
    assert size_in_bytes(SPEC, 10) == 10 * 3 * row
    assert size_in_bytes(SPEC, 10, half=True) == 10 * 3 * (row - 2 * (2 * 4 + 5))


@pytest.mark.parametrize("half", [False, True])
def test_what_is_handed_out_is_unpacked(half):
    batch = sample(add(empty(SPEC, 2, half), episodes([1])), jax.random.key(0), 1)
    expected = episodes([1])
    for x, y in zip(jax.tree.leaves(batch), jax.tree.leaves(expected), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)


def test_half_precision_rounds_what_is_seen_alone():
    third = jax.tree.map(lambda x: x / 3 if x.dtype == jnp.float32 else x, episodes([1]))
    batch = sample(add(empty(SPEC, 1, half=True), third), jax.random.key(0), 1)
    assert_array_equal(batch.observation.obs, np.float32(np.float16(1 / 3)))
    assert_array_equal(batch.observation.state, np.float32(np.float16(1 / 3)))
    assert_array_equal(batch.reward, np.float32(1) / np.float32(3))


@pytest.mark.parametrize("n_actions", [127, 128, 129, 300])
def test_the_last_action_survives_storage(n_actions):
    spec = EnvSpec(2, n_actions, 1, 1, 1)
    batch = sample(add(empty(spec, 1), episodes([n_actions - 1], spec)), jax.random.key(0), 1)
    assert (np.asarray(batch.actions) == n_actions - 1).all()
