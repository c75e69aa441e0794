"""The shared rules against numbers worked by hand, and against plain loops."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from macpf.maths import (
    UNAVAILABLE,
    best,
    by_chance,
    gae,
    greedy,
    log_mixture,
    log_softmax,
    masked_mean,
    pick,
    soft_imitation,
    soft_improvement,
    soft_regression,
    soft_value,
    taken,
    td_lambda,
)

ALMOST_ONE = np.nextafter(np.float32(1), np.float32(0))
seeds = st.integers(0, 2**32 - 1)
returns_of = jax.jit(td_lambda, static_argnames=("gamma", "lambda_"))
advantages_of = jax.jit(gae, static_argnames=("gamma", "lambda_"))

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
    least = soft_improvement(jax.nn.log_softmax(q / alpha), q, jnp.asarray(alpha))
    assert_allclose(least, -alpha * jax.nn.logsumexp(q / alpha), rtol=1e-4, atol=1e-4)
    values = soft_improvement(others, jnp.broadcast_to(q, (100, 4)), jnp.asarray(alpha))
    assert (values >= least - 1e-4).all()


# Generalised advantages


@pytest.mark.parametrize(
    ("terminated", "mask", "expected"),
    [
        # errors 1 + 20/2 - 10, 2 + 30/2 - 20 and 3 + 40/2 - 30: cut off, goes on in V = 40
        (3 * [False], WHOLE, [1 + Fraction(-19, 4) / 4, -3 + Fraction(-7, 4), -7]),
        # the last error is 3 - 30: terminated, nothing follows its reward
        ([False, False, True], WHOLE, [1 + Fraction(-39, 4) / 4, -3 + Fraction(-27, 4), -27]),
        # cut off after two rows: the second goes on in V = 30 and nowhere else
        (3 * [False], CUT, [1 + Fraction(-3, 4), -3]),
        # terminated after two rows: the second error is 2 - 20
        ([False, True, False], CUT, [1 + Fraction(-18, 4), -18]),
    ],
)
def test_gae_by_hand(terminated, mask, expected):
    flags = jnp.asarray(terminated), jnp.asarray(mask)
    actual = advantages_of(jnp.asarray(REWARD), *flags, jnp.asarray(VALUE), GAMMA, 0.5)
    assert_allclose(actual[: len(expected)], [float(x) for x in expected], rtol=1e-6)


def random_end(seed: int) -> tuple[int, bool, list[np.ndarray]]:
    """An episode's length, whether it terminated, and its rewards, ends, mask and values."""
    rng = np.random.default_rng(seed)
    length, terminates = int(rng.integers(1, 9)), bool(rng.random() < 0.5)
    row = np.arange(8)
    reward, value = rng.standard_normal(8), rng.standard_normal(9)
    return length, terminates, [reward, (row == length - 1) & terminates, row < length, value]


def advantages(rows: list[np.ndarray], lambda_: float) -> np.ndarray:
    reward, terminated, mask, value = rows
    numbers = (jnp.asarray(x, jnp.float32) for x in (reward, value))
    reward, value = numbers
    return np.asarray(advantages_of(reward, jnp.asarray(terminated), jnp.asarray(mask), value, 0.9, lambda_))


def errors(length: int, terminates: bool, rows: list[np.ndarray]) -> np.ndarray:
    """The one-step errors r + 0.9 V' - V of the real rows."""
    reward, _, _, value = rows
    onward = np.where(terminates & (np.arange(length) == length - 1), 0.0, value[1 : length + 1])
    return reward[:length] + 0.9 * onward - value[:length]


@given(seeds, st.sampled_from([0.0, 0.3, 0.95, 1.0]))
def test_gae_is_the_discounted_sum_of_one_step_errors(seed, lambda_):
    length, terminates, rows = random_end(seed)
    delta = errors(length, terminates, rows)
    expected = [sum((0.9 * lambda_) ** k * d for k, d in enumerate(delta[t:])) for t in range(length)]
    assert_allclose(advantages(rows, lambda_)[:length], expected, rtol=1e-4, atol=1e-5)


@given(seeds)
def test_gae_with_lambda_1_is_the_return_less_the_value_and_with_0_the_one_step_error(seed):
    length, terminates, rows = random_end(seed)
    reward, _, _, value = rows
    end = 0.0 if terminates else 0.9**length * value[length]
    future = [(sum(0.9**k * reward[k] for k in range(t, length)) + end) / 0.9**t for t in range(length)]
    assert_allclose(advantages(rows, 1.0)[:length], future - value[:length], rtol=1e-4, atol=1e-5)
    assert_allclose(advantages(rows, 0.0)[:length], errors(length, terminates, rows), rtol=1e-4, atol=1e-5)


@given(seeds)
def test_gae_does_not_look_behind_the_end(seed):
    length, terminates, rows = random_end(seed)
    reward, terminated, mask, value = rows
    behind = np.arange(9) >= (length if terminates else length + 1)
    other = [np.where(mask, reward, 99.0), terminated, mask, np.where(behind, -99.0, value)]
    assert_array_equal(advantages(other, 0.95)[:length], advantages(rows, 0.95)[:length])


# Three ways to come near exp(Q / alpha)


@given(seeds)
def test_all_ways_to_improve_a_policy_end_at_the_same(seed):
    """All gradients vanish at the softmax, and only there: moved off it, all point back."""
    q, avail = random_case(seed)
    alpha = jnp.asarray(0.5)

    def by_imitation(logits):
        return jnp.sum(soft_imitation(log_softmax(logits, avail), q, avail, alpha))

    def by_divergence(logits):
        return jnp.sum(soft_improvement(log_softmax(logits, avail), jnp.where(avail, q, 0.0), alpha))

    def by_regression(logits):
        return jnp.sum(soft_regression(logits, q, avail, alpha))

    best = log_softmax(q / alpha, avail)
    off = best + jnp.arange(q.shape[-1])[None]
    for loss in (by_imitation, by_divergence, by_regression):
        assert_allclose(jax.grad(loss)(best), 0, atol=2e-4)
        assert float(loss(best)) <= float(loss(off)) + 1e-4


def test_imitation_pulls_where_a_policy_is_sure_of_a_wrong_action():
    """The gradient is pi - exp(Q / alpha): 1 off, where the divergence's own is nearly nothing."""
    avail, alpha = jnp.ones((1, 2), bool), jnp.asarray(1.0)
    q, logits = jnp.asarray([[10.0, 0.0]]), jnp.asarray([[0.0, 20.0]])
    pulls = jax.grad(lambda x: soft_imitation(log_softmax(x, avail), q, avail, alpha)[0])(logits)
    back = jax.grad(lambda x: soft_regression(x, q, avail, alpha)[0])(logits)
    flat = jax.grad(lambda x: soft_improvement(log_softmax(x, avail), q, alpha)[0])(logits)
    assert_allclose(pulls, [[-1.0, 1.0]], atol=1e-3)
    assert_allclose(back, [[0.0, 2 * (20.0 + 10.0)]], atol=1e-3)
    assert float(jnp.max(jnp.abs(flat))) < 1e-6


@given(seeds)
def test_what_cannot_be_done_is_not_imitated(seed):
    q, avail = random_case(seed)
    log_pi = log_softmax(jnp.flip(q, axis=-1), avail)
    for loss in (soft_imitation, soft_regression):
        one, two = (loss(log_pi, x, avail, jnp.asarray(0.5)) for x in (q, jnp.where(avail, q, 1e6)))
        assert_array_equal(one, two)
        assert np.isfinite(np.asarray(one)).all()


def test_who_sees_less_than_the_critic_follows_what_is_best_on_average_or_most_often():
    """A side of a coin that is not seen decides what two bets pay; heads is rare, and pays well."""
    chance, pays = np.asarray([0.4, 0.6]), jnp.asarray([[10.0, 0.0], [0.0, 2.0]])
    avail, alpha = jnp.ones((2, 2), bool), jnp.asarray(0.5)

    def least(loss):
        """The policy of least expected loss, the same for both sides."""
        logits = jnp.zeros(2)
        slope = jax.jit(jax.grad(lambda x: jnp.sum(chance * loss(jnp.tile(x, (2, 1))))))
        for _ in range(3000):
            logits = logits - 0.5 * slope(logits)
        return np.asarray(jax.nn.softmax(logits))

    most_often = least(lambda x: soft_imitation(log_softmax(x, avail), pays, avail, alpha))
    on_average = least(lambda x: soft_regression(x, pays, avail, alpha))
    best = np.asarray(jax.nn.softmax(pays / alpha))
    assert_allclose(most_often, chance @ best, atol=1e-3)  # 0.41 and 0.59
    assert_allclose(on_average, jax.nn.softmax(chance @ pays / alpha), atol=1e-3)  # 0.996 and 0.004
    assert (most_often.argmax(), on_average.argmax()) == (1, 0)


# The best, and the soft best


def test_best_by_hand():
    values = jnp.asarray([[1.0, 5.0, 3.0], [-7.0, 0.0, -8.0]])
    avail = jnp.asarray([[True, False, True], [True, False, True]])
    assert_array_equal(best(values, avail), [3.0, -7.0])


@given(seeds)
def test_best_is_the_value_of_the_greedy_action(seed):
    values, avail = random_case(seed)
    assert_array_equal(best(values, avail), taken(values, greedy(values, avail)))


def test_soft_value_by_hand():
    q = 0.5 * jnp.log(jnp.asarray([[1.0, 2.0, 5.0], [4.0, 4.0, 4.0]]))
    avail = jnp.asarray([[True, False, True], [True, True, True]])
    assert_allclose(soft_value(q, avail, jnp.asarray(0.5)), 0.5 * np.log([6.0, 12.0]), rtol=1e-6)


@given(seeds, st.floats(0.0625, 5, width=32))
def test_what_cannot_be_done_does_not_count_in_the_soft_value(seed, alpha):
    q, avail = random_case(seed)
    expected = [
        alpha * np.log(np.exp(row[allowed] / alpha).sum())
        for row, allowed in zip(np.asarray(q, float), np.asarray(avail), strict=True)
    ]
    assert_allclose(soft_value(q, avail, jnp.asarray(alpha)), expected, rtol=1e-4, atol=1e-4)
    elsewhere = soft_value(jnp.where(avail, q, 1e6), avail, jnp.asarray(alpha))
    assert_array_equal(elsewhere, soft_value(q, avail, jnp.asarray(alpha)))


@given(seeds)
def test_the_soft_value_tends_to_the_best_as_the_temperature_falls(seed):
    q, avail = random_case(seed)
    top, choices = np.asarray(best(q, avail)), np.asarray(avail).sum(-1)
    for alpha in (1.0, 0.1, 1e-3):
        over = np.asarray(soft_value(q, avail, jnp.asarray(alpha))) - top
        assert (over >= -1e-4).all()
        assert (over <= alpha * np.log(choices) + 1e-4).all()


# Exploration by chance

AVAIL = jnp.asarray([[True, True, False, True], [True, True, True, True], [False, True, False, False]])
CHOSEN = jnp.asarray([3, 2, 1])


@jax.jit
def explored(epsilon: jax.Array) -> jax.Array:
    keys = jax.random.split(jax.random.key(0), 6000)
    return jax.vmap(lambda key: by_chance(CHOSEN, AVAIL, epsilon, key))(keys)


def test_by_chance_never_leaves_the_chosen_action_without_epsilon():
    assert_array_equal(explored(jnp.asarray(0.0)), np.tile(np.asarray(CHOSEN), (6000, 1)))


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_by_chance_every_available_action_is_as_likely_as_any_other(epsilon):
    actions = np.asarray(explored(jnp.asarray(epsilon)))
    for agent, avail in enumerate(np.asarray(AVAIL)):
        shares = np.bincount(actions[:, agent], minlength=4) / 6000
        expected = epsilon * avail / avail.sum()
        expected[int(CHOSEN[agent])] += 1 - epsilon
        assert_allclose(shares, expected, atol=0.025)
        assert (shares[~avail] == 0).all()


def test_by_chance_agents_explore_each_on_its_own():
    strayed = np.asarray(explored(jnp.asarray(0.5))) != np.asarray(CHOSEN)
    both, one, other = strayed[:, :2].all(1).mean(), strayed[:, 0].mean(), strayed[:, 1].mean()
    assert_allclose([one, other], [0.5 * 2 / 3, 0.5 * 3 / 4], atol=0.025)
    assert_allclose(both, one * other, atol=0.02)
