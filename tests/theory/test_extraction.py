"""Theorem 2: an independent policy of the same value, and what that does and does not mean."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from macpf.theory import (
    divergence,
    entropy,
    evaluate,
    expect,
    greedy_chain,
    greedy_policy,
    local_critics,
    local_policy,
    marginals,
    matching_policy,
    product,
    random_mdp,
    random_policy,
    repeated_game,
    soft_policy_iteration,
    soft_value_iteration,
    softmax,
    uniform_policy,
)
from tests.theory import PAYOFF, Case, cases

COORDINATION = np.eye(2)  # 1 for the same action, 0 otherwise
DIAGONAL = 0.5 * np.eye(2)[None]  # both say the same, either with probability 1/2: no product


def along_the_diagonal(q: np.ndarray, v: float) -> list[np.ndarray]:
    """Another product policy with E[q] = v, by bisection: all agents turn from worst to best together."""
    worst, best = (np.unravel_index(a, q.shape) for a in (q.argmin(), q.argmax()))

    def turned(t: float) -> list[np.ndarray]:
        ends = zip(q.shape, worst, best, strict=True)
        return [(1 - t) * np.eye(n)[a] + t * np.eye(n)[b] for n, a, b in ends]

    low, high = 0.0, 1.0
    for _ in range(60):
        t = (low + high) / 2
        below = (product([p[None] for p in turned(t)])[0] * q).sum() < v
        low, high = (t, high) if below else (low, t)
    return turned(low)


# The matching policy.


@given(cases())
def test_the_matching_policy_has_the_same_value_in_every_state(case: Case) -> None:
    pi_dep = random_policy(case.rng, case.shape)
    pi_ind = product(matching_policy(case.mdp, pi_dep))
    assert_allclose(evaluate(case.mdp, pi_ind).v, evaluate(case.mdp, pi_dep).v, atol=1e-9)


@given(cases())
def test_the_matching_policy_is_a_product_in_which_one_agent_at_most_is_random(case: Case) -> None:
    policies = matching_policy(case.mdp, random_policy(case.rng, case.shape))
    for pi_i in policies:
        assert np.all(pi_i >= 0)
        assert_allclose(pi_i.sum(-1), 1)
    joint = product(policies)
    letters = "abc"[: len(policies)]
    outer = np.einsum(",".join("s" + i for i in letters) + "->s" + letters, *marginals(joint))
    assert_allclose(joint, outer, atol=1e-12)
    assert np.all(sum((pi_i.max(-1) < 1).astype(int) for pi_i in policies) <= 1)


@given(cases())
def test_the_optimum_of_theorem_1_has_a_match_too(case: Case) -> None:
    pi_dep = soft_policy_iteration(case.mdp, case.alpha)[-1].pi
    pi_ind = product(matching_policy(case.mdp, pi_dep))
    assert_allclose(evaluate(case.mdp, pi_ind).v, evaluate(case.mdp, pi_dep).v, atol=1e-9)


@given(cases())
def test_another_match_by_bisection_has_the_same_value_again(case: Case) -> None:
    """Matching E[Q_dep] state by state is all that matters, however it is done."""
    _, v, q = evaluate(case.mdp, random_policy(case.rng, case.shape))
    by_state = [along_the_diagonal(q[s], v[s]) for s in range(len(v))]
    pi_ind = product([np.stack(pi_i) for pi_i in zip(*by_state, strict=True)])
    assert_allclose(evaluate(case.mdp, pi_ind).v, v, atol=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.5])
@pytest.mark.parametrize(
    ("good", "expected"),
    [
        # from (0, 0) by (1, 0) to (1, 1) Q rises 0, 2, 4; pi_dep plays (1, 1) with chance `good`, else (0, 0)
        (0.25, ([0.5, 0.5], [1.0, 0.0])),  # V = 1: agent 1 mixes, agent 2 stays
        (0.5, ([0.0, 1.0], [1.0, 0.0])),  # V = 2: the corner itself
        (0.75, ([0.0, 1.0], [0.5, 0.5])),  # V = 3: agent 1 has moved, agent 2 mixes
        (1.0, ([0.0, 1.0], [0.0, 1.0])),  # V = 4: the maximum
        (0.0, ([1.0, 0.0], [1.0, 0.0])),  # V = 0: the minimum
    ],
)
def test_matches_by_hand(good: float, gamma: float, expected: tuple[list[float], list[float]]) -> None:
    mdp = repeated_game(np.array([[0.0, 1.0], [2.0, 4.0]]), gamma)
    pi_dep = np.array([[[1 - good, 0.0], [0.0, good]]])
    for pi_i, by_hand in zip(matching_policy(mdp, pi_dep), expected, strict=True):
        assert_allclose(pi_i, [by_hand], atol=1e-12)


def test_a_match_is_neither_unique_nor_greedy() -> None:
    mdp = repeated_game(np.array([[0.0, 1.0], [2.0, 4.0]]))
    pi_dep = np.array([[[0.25, 0.0], [0.0, 0.75]]])
    one = product(matching_policy(mdp, pi_dep))
    other = product([p[None] for p in along_the_diagonal(mdp.reward[0], 3.0)])
    for pi in (one, other):
        assert_allclose(evaluate(mdp, pi).v, [3.0])
    assert np.abs(one - other).max() > 0.1
    assert_allclose(evaluate(mdp, product(greedy_policy(mdp, pi_dep))).v, [4.0])


def test_the_same_value_is_not_the_same_distribution() -> None:
    """The dependent policy has two modes; its match plays one of them and makes up for it elsewhere."""
    mdp = repeated_game(PAYOFF)
    pi_dep = softmax(mdp.reward, 1.0)
    pi_ind = product(matching_policy(mdp, pi_dep))
    assert_allclose(evaluate(mdp, pi_ind).v, evaluate(mdp, pi_dep).v, atol=1e-9)
    assert 0.5 * np.abs(pi_ind - pi_dep).sum() > 0.49  # the probability that must move


def test_the_product_of_the_marginals_is_no_match() -> None:
    """Modes (A, A) and (D, D) with 1/2 each: the marginals meet in 8, -20, -12 and 8, a quarter each."""
    mdp = repeated_game(PAYOFF)
    pi_dep = np.zeros((1, 4, 4))
    pi_dep[0, 0, 0] = pi_dep[0, 3, 3] = 0.5
    assert_allclose(evaluate(mdp, product(marginals(pi_dep))).v, [-4.0])
    assert_allclose(evaluate(mdp, product(matching_policy(mdp, pi_dep))).v, [8.0])


# With entropy the theorem fails.


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0, 5.0])
def test_no_product_has_the_soft_value_of_a_soft_optimum_that_is_none(alpha: float) -> None:
    best = soft_value_iteration(repeated_game(COORDINATION), alpha)
    p, q = (x.ravel() for x in np.meshgrid(np.linspace(0, 1, 201), np.linspace(0, 1, 201)))
    grid = product([np.stack([p, 1 - p], -1), np.stack([q, 1 - q], -1)])
    soft = expect(grid, COORDINATION + np.zeros(grid.shape)) + alpha * entropy(grid)
    assert soft.max() < best.v - 1e-3
    distance = divergence(grid, np.broadcast_to(best.pi, grid.shape))
    assert_allclose(best.v - soft, alpha * distance, atol=1e-9)


def test_a_soft_value_may_lie_above_every_q() -> None:
    """1/2 (A, A), 1/2 (B, B), alpha = 1: return 1, entropy log 2, so 1 + log 2 above the largest payoff 1."""
    mdp = repeated_game(COORDINATION)
    assert_allclose(evaluate(mdp, DIAGONAL).v, [1.0])
    assert_allclose(evaluate(mdp, DIAGONAL, 1.0).v, [1 + np.log(2)])
    pi_ind = product(matching_policy(mdp, DIAGONAL))
    assert_allclose(evaluate(mdp, pi_ind).v, [1.0])
    assert_allclose(evaluate(mdp, pi_ind, 1.0).v, [1.0])


# The greedy policy.


@given(cases())
def test_the_greedy_policy_is_at_least_as_good_in_every_state(case: Case) -> None:
    pi_dep = random_policy(case.rng, case.shape)
    policies = greedy_policy(case.mdp, pi_dep)
    assert all(set(np.unique(pi_i)) == {0.0, 1.0} for pi_i in policies)
    before, after = evaluate(case.mdp, pi_dep), evaluate(case.mdp, product(policies))
    best_step = before.q.reshape(len(before.v), -1).max(-1)
    assert np.all(best_step > before.v)
    assert np.all(after.v >= best_step - 1e-9)


def test_of_two_equal_optima_all_agents_take_the_same() -> None:
    """Agent 1's A and agent 2's D both belong to a best joint action, but together pay -20."""
    mdp = repeated_game(PAYOFF)
    policies = greedy_policy(mdp, uniform_policy(mdp))
    assert_array_equal(policies[0], policies[1])
    assert_allclose(evaluate(mdp, product(policies)).v, [8.0])


def test_the_greedy_chain_may_be_worse_than_the_policy_it_comes_from() -> None:
    """Agent 1 weighs three ways to 0 (log 3) above one way to 1 (about 1): the greedy pair gets 0."""
    payoff = np.array([[0.0, 0.0, 0.0], [1.0, -9.0, -9.0]])
    mdp = repeated_game(payoff)
    pi_dep = softmax(mdp.reward, 1.0)
    conditionals = [local_policy(q_i, 1.0) for q_i in local_critics(mdp.reward, 1.0)]
    sampled = (np.e - 18 * np.exp(-9)) / (3 + np.e + 2 * np.exp(-9))
    assert_allclose(evaluate(mdp, pi_dep).v, [sampled])
    assert_allclose(evaluate(mdp, greedy_chain(conditionals)).v, [0.0])
    assert_allclose(evaluate(mdp, product(greedy_policy(mdp, pi_dep))).v, [1.0])


@given(cases())
def test_the_greedy_chain_follows_the_likeliest_action_of_each_agent(case: Case) -> None:
    conditionals = [local_policy(q_i, 1.0) for q_i in local_critics(case.mdp.reward, 1.0)]
    joint = greedy_chain(conditionals)
    assert_allclose(joint.reshape(len(joint), -1).sum(-1), 1)
    for s in range(len(joint)):
        actions: tuple[int, ...] = ()
        for pi_i in conditionals:
            actions = (*actions, int(pi_i[s][actions].argmax()))
        assert joint[s][actions] == 1


# Corners.


@given(st.integers(0, 2**32 - 1))
def test_one_agent_alone_is_matched_with_two_actions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, 3, (4,), 0.9)
    pi_dep = random_policy(rng, (3, 4))
    (pi_ind,) = matching_policy(mdp, pi_dep)
    assert np.all((pi_ind > 0).sum(-1) <= 2)
    assert_allclose(evaluate(mdp, pi_ind).v, evaluate(mdp, pi_dep).v, atol=1e-9)


@pytest.mark.parametrize("extract", [matching_policy, greedy_policy])
def test_with_one_action_each_every_policy_is_the_same(extract: Callable[..., Any]) -> None:
    mdp = random_mdp(np.random.default_rng(0), 3, (1, 1), 0.9)
    policies = extract(mdp, uniform_policy(mdp))
    assert_array_equal(product(policies), np.ones((3, 1, 1)))


def test_where_all_joint_actions_are_equal_any_match_will_do() -> None:
    mdp = repeated_game(np.full((2, 3), 0.1), 0.9)
    pi_ind = product(matching_policy(mdp, softmax(np.arange(6.0).reshape(1, 2, 3), 1.0)))
    assert_allclose(evaluate(mdp, pi_ind).v, [1.0])
