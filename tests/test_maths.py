"""The shared rules against numbers worked by hand, and against plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from macpf.maths import (
    UNAVAILABLE,
    greedy,
    log_mixture,
    log_softmax,
    masked_mean,
    pick,
    soft_improvement,
    taken,
    td_lambda,
)

ALMOST_ONE = np.nextafter(np.float32(1), np.float32(0))
seeds = st.integers(0, 2**32 - 1)
returns_of = jax.jit(td_lambda, static_argnames=("gamma", "lambda_"))

REWARD, VALUE, GAMMA = [1.0, 2.0, 3.0], [10.0, 20.0, 30.0, 40.0], 0.5


def random_case(seed: int, rows: int = 50) -> tuple[jax.Array, jax.Array]:
    """Logits and masks with one available action at least, many of them with one alone."""
    rng = np.random.default_rng(seed)
    avail = rng.random((rows, 5)) < rng.random((rows, 1))
    avail[np.arange(rows), rng.integers(5, size=rows)] = True
    return jnp.asarray(3 * rng.standard_normal((rows, 5)), jnp.float32), jnp.asarray(avail)


def returns(terminated: list[bool], mask: list[bool], lambda_: float) -> jax.Array:
    flags = jnp.asarray(terminated), jnp.asarray(mask)
    return returns_of(jnp.asarray(REWARD), *flags, jnp.asarray(VALUE), GAMMA, lambda_)


WHOLE = [True, True, True]
CUT = [True, True, False]  # over after two of three rows


@pytest.mark.parametrize(
    ("terminated", "mask", "lambda_", "expected"),
    [
        # cut off by the time limit after the last row: goes on in V = 40
        ([False, False, False], WHOLE, 0.0, [11, 17, 23]),
        ([False, False, False], WHOLE, 0.5, [9.8125, 15.25, 23]),
        ([False, False, False], WHOLE, 1.0, [7.75, 13.5, 23]),
        # terminated in the last row: nothing follows its reward
        ([False, False, True], WHOLE, 0.0, [11, 17, 3]),
        ([False, False, True], WHOLE, 0.5, [8.5625, 10.25, 3]),
        ([False, False, True], WHOLE, 1.0, [2.75, 3.5, 3]),
        # cut off after two rows: goes on in V = 30, whatever the padding holds
        ([False, False, False], CUT, 0.0, [11, 17]),
        ([False, False, False], CUT, 0.5, [10.25, 17]),
        ([False, False, False], CUT, 1.0, [9.5, 17]),
        # terminated after two rows
        ([False, True, False], CUT, 0.0, [11, 2]),
        ([False, True, False], CUT, 0.5, [6.5, 2]),
        ([False, True, False], CUT, 1.0, [2, 2]),
    ],
)
def test_td_lambda_by_hand(terminated, mask, lambda_, expected):
    assert_allclose(returns(terminated, mask, lambda_)[: len(expected)], expected, rtol=1e-6)


@given(seeds, st.sampled_from([0.0, 0.3, 0.8, 1.0]))
def test_td_lambda_is_the_recursion(seed, lambda_):
    rng = np.random.default_rng(seed)
    t = 8
    length = int(rng.integers(1, t + 1))
    reward, value = rng.standard_normal(t), rng.standard_normal(t + 1)
    mask, terminated = np.arange(t) < length, np.zeros(t, bool)
    terminated[length - 1] = rng.random() < 0.5
    expected = np.zeros(length)
    for i in reversed(range(length)):
        later = value[i + 1] if i == length - 1 else (1 - lambda_) * value[i + 1] + lambda_ * expected[i + 1]
        expected[i] = reward[i] + 0.9 * (0.0 if terminated[i] else later)
    arrays = (jnp.asarray(x, x.dtype if x.dtype == bool else "float32") for x in (reward, terminated, mask))
    actual = returns_of(*arrays, jnp.asarray(value, "float32"), 0.9, lambda_)
    assert_allclose(actual[:length], expected, rtol=1e-4, atol=1e-5)


def test_taken_is_the_entry_of_the_action():
    values = jnp.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert_array_equal(taken(values, jnp.asarray([2, 0])), [3.0, 4.0])


def test_taken_moves_the_entry_of_the_action_alone():
    slope = jax.grad(lambda v: jnp.sum(taken(v, jnp.asarray([1]))))(jnp.zeros((1, 3)))
    assert_array_equal(slope, [[0.0, 1.0, 0.0]])


@given(seeds)
def test_log_softmax_is_that_of_the_available_actions(seed):
    logits, avail = random_case(seed)
    probs = np.exp(log_softmax(logits, avail))
    assert (probs[~np.asarray(avail)] == 0).all()
    for row, allowed, p in zip(np.asarray(logits), np.asarray(avail), probs, strict=True):
        weights = np.exp(row[allowed])
        assert_allclose(p[allowed], weights / weights.sum(), rtol=1e-4, atol=1e-6)


@given(seeds, st.floats(0, 1))
def test_log_mixture_sums_to_one_over_available_actions(seed, epsilon):
    logits, avail = random_case(seed)
    log_pi = np.asarray(log_mixture(logits, avail, jnp.asarray(epsilon, jnp.float32)))
    assert_allclose(np.exp(log_pi).sum(axis=-1), 1.0, rtol=1e-5)
    assert (log_pi[~np.asarray(avail)] == np.float32(UNAVAILABLE)).all()


def test_log_mixture_by_hand():
    logits, avail = jnp.log(jnp.asarray([0.1, 0.2, 0.3, 0.4])), jnp.asarray([True, False, True, True])
    mixed = 0.5 * np.asarray([0.1, 0.3, 0.4]) + 0.5 / 4  # epsilon is spread over all four, then one is cut
    log_pi = log_mixture(logits, avail, jnp.asarray(0.5))
    assert_allclose(np.exp(log_pi)[[0, 2, 3]], mixed / mixed.sum(), rtol=1e-5)


@given(seeds)
def test_greedy_takes_the_best_available_action(seed):
    values, avail = random_case(seed)
    rows = zip(np.asarray(values - 100), np.asarray(avail), greedy(values - 100, avail), strict=True)
    for row, allowed, action in rows:
        assert allowed[action]
        assert row[action] == row[allowed].max()


@given(seeds, st.one_of(st.floats(0, float(ALMOST_ONE), width=32), st.sampled_from([0.0, float(ALMOST_ONE)])))
def test_pick_never_picks_an_unavailable_action(seed, luck):
    logits, avail = random_case(seed)
    actions = pick(log_softmax(logits, avail), jnp.full(len(logits), luck, jnp.float32))
    assert (actions < avail.shape[1]).all()
    assert taken(avail.astype(jnp.float32), actions).all()


def test_pick_never_picks_an_unavailable_action_at_the_edges():
    avail = jnp.asarray([[False, True, False, True, False]])
    log_pi = log_softmax(jnp.zeros((1, 5)), avail)
    lucks = jnp.asarray([[0.0], [np.nextafter(np.float32(0.5), np.float32(0))], [0.5], [ALMOST_ONE]])
    assert [int(pick(log_pi, luck)[0]) for luck in lucks] == [1, 1, 3, 3]


@given(seeds)
def test_pick_is_as_frequent_as_the_policy_says(seed):
    logits, avail = random_case(seed, rows=1)
    log_pi = log_softmax(logits, avail)[0]
    count = 2000
    lucks = (jnp.arange(count) + 0.5) / count
    actions = pick(jnp.broadcast_to(log_pi, (count, log_pi.size)), lucks)
    shares = np.bincount(np.asarray(actions), minlength=log_pi.size) / count
    assert_allclose(shares, np.exp(log_pi), atol=2 / count)


def test_masked_mean_counts_what_counts():
    values, mask = jnp.asarray([1.0, 2.0, jnp.nan, 6.0]), jnp.asarray([True, True, False, True])
    assert masked_mean(values, mask) == 3.0
    assert masked_mean(values, jnp.zeros(4, bool)) == 0.0


@given(seeds, st.floats(0.0625, 5, width=32))
def test_soft_improvement_is_least_at_the_softmax(seed, alpha):
    rng = np.random.default_rng(seed)
    q = jnp.asarray(rng.standard_normal(4), jnp.float32)
    others = jax.nn.log_softmax(jnp.asarray(3 * rng.standard_normal((100, 4)), jnp.float32))
    best = soft_improvement(jax.nn.log_softmax(q / alpha), q, jnp.asarray(alpha))
    assert_allclose(best, -alpha * jax.nn.logsumexp(q / alpha), rtol=1e-4, atol=1e-4)
    values = soft_improvement(others, jnp.broadcast_to(q, (100, 4)), jnp.asarray(alpha))
    assert (values >= best - 1e-4).all()
