"""Theorem 1: the conditional iteration finds the soft optimum; the independent one only where IGO holds."""

from itertools import pairwise
from itertools import product as every

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from macpf.errors import UserError
from macpf.theory import (
    MDP,
    chain,
    conditional_improvement,
    divergence,
    entropy,
    evaluate,
    expect,
    independent_improvement,
    local_critics,
    local_policy,
    marginals,
    product,
    random_mdp,
    random_policy,
    recompose,
    repeated_game,
    shortfall,
    soft_policy_iteration,
    soft_value,
    soft_value_iteration,
    softmax,
    uniform_policy,
)
from macpf.theory.iteration import Improvement, expect_others
from tests.theory import PAYOFF, Case, cases

ALPHAS = [0.25, 1.0, 2.0, 8.0]


# The values themselves.


@given(cases())
def test_evaluation_solves_the_soft_bellman_equation(case: Case) -> None:
    pi, v, q = evaluate(case.mdp, random_policy(case.rng, case.shape), case.alpha)
    assert_allclose(v, expect(pi, q - case.alpha * np.log(pi)), atol=1e-11)
    assert_allclose(q, case.mdp.reward + case.mdp.gamma * np.einsum("s...t,t->s...", case.mdp.transition, v))


@given(cases())
def test_no_policy_has_a_higher_soft_value_than_value_iteration_finds(case: Case) -> None:
    best = soft_value_iteration(case.mdp, case.alpha)
    assert_allclose(best.v, evaluate(case.mdp, best.pi, case.alpha).v, rtol=1e-9)
    for pi in (random_policy(case.rng, case.shape), softmax(best.q, 1.1 * case.alpha)):
        assert np.all(best.v > evaluate(case.mdp, pi, case.alpha).v)


def test_a_two_state_chain_by_hand() -> None:
    """State 0 pays 1 if both agents say 1 and then leads to state 1, which pays 2 for ever."""
    transition = np.zeros((2, 2, 2, 2))
    transition[0, ..., 0], transition[1, ..., 1] = 1.0, 1.0
    transition[0, 1, 1] = [0.0, 1.0]
    reward = np.array([[[0.0, 0.0], [0.0, 1.0]], np.full((2, 2), 2.0)])
    mdp = MDP(transition, reward, 0.5)
    # plain, uniform: V1 = 2 / (1 - 1/2) = 4;  V0 = 1/4 (1 + 4/2) + 3/4 V0 / 2  =>  V0 = (3/4) / (5/8)
    assert_allclose(evaluate(mdp, uniform_policy(mdp)).v, [1.2, 4.0])
    # alpha = 1: log 4 of entropy at every step adds log 4 / (1 - 1/2) in both states
    assert_allclose(evaluate(mdp, uniform_policy(mdp), 1.0).v, np.array([1.2, 4.0]) + 2 * np.log(4))


# The conditionals.


def test_the_conditionals_of_a_tiny_game_by_hand() -> None:
    """exp(Q / alpha) = 1 3 / 1 1: they sum to 6, the rows to 4 and 2."""
    q = 2.0 * np.log([[[1.0, 3.0], [1.0, 1.0]]])
    q_1, q_2 = local_critics(q, 2.0)
    assert_allclose(q_1, 2.0 * np.log([[4.0, 2.0]]))
    assert_allclose(local_policy(q_1, 2.0), [[2 / 3, 1 / 3]])
    assert_allclose(local_policy(q_2, 2.0), [[[1 / 4, 3 / 4], [1 / 2, 1 / 2]]])
    assert_allclose(conditional_improvement(q, softmax(q, 1.0), 2.0), [[[1 / 6, 1 / 2], [1 / 6, 1 / 6]]])
    assert_allclose(soft_value(q, 2.0), [2.0 * np.log(6)])
    assert_allclose(soft_value_iteration(repeated_game(q[0], 0.5), 2.0).v, [4.0 * np.log(6)])


@given(cases())
def test_the_conditionals_are_those_of_the_joint_softmax(case: Case) -> None:
    q = case.mdp.reward
    policies = [local_policy(q_i, case.alpha) for q_i in local_critics(q, case.alpha)]
    joint = np.exp(q / case.alpha)
    joint /= joint.sum(tuple(range(1, q.ndim)), keepdims=True)
    assert_allclose(chain(policies), joint, rtol=1e-9)
    for i, pi_i in enumerate(policies, start=1):
        upto = joint.sum(tuple(range(i + 1, q.ndim)))
        assert_allclose(pi_i, upto / upto.sum(-1, keepdims=True), rtol=1e-9)


@given(cases())
def test_the_decomposition_gives_back_q(case: Case) -> None:
    q = case.mdp.reward
    critics = local_critics(q, case.alpha)
    assert_allclose(recompose(critics, soft_value(q, case.alpha), case.alpha), q, atol=1e-10)


@given(cases())
def test_any_local_critics_hold_the_policy_and_the_soft_value_of_what_they_compose_to(case: Case) -> None:
    shapes = [case.shape[: i + 1] for i in range(1, len(case.shape))]
    critics = [case.rng.standard_normal(shape) for shape in shapes]
    v = case.rng.standard_normal(case.shape[0])
    q = recompose(critics, v, case.alpha)
    assert_allclose(soft_value(q, case.alpha), v, atol=1e-10)
    assert_allclose(chain([local_policy(c, case.alpha) for c in critics]), softmax(q, case.alpha), rtol=1e-9)


@given(cases())
def test_local_critics_are_free_by_a_function_of_the_earlier_actions_alone(case: Case) -> None:
    q, alpha = case.mdp.reward, case.alpha
    critics = local_critics(q, alpha)
    shifted = [c + case.rng.standard_normal((*c.shape[:-1], 1)) for c in critics]
    assert_allclose(recompose(shifted, soft_value(q, alpha), alpha), q, atol=1e-10)
    tilted = [critics[0] + np.arange(q.shape[1]), *critics[1:]]
    assert np.abs(recompose(tilted, soft_value(q, alpha), alpha) - q).max() > 0.1


def test_a_linear_mixer_fits_the_game_with_opposite_first_policies() -> None:
    k_1, k_2, b = 0.5, 2.0, 1.0
    for first in ([9.0, 0.0, 0.0, 0.0], [0.0, 9.0, 0.0, 0.0]):
        q_1 = np.array([first])
        q_2 = (PAYOFF - k_1 * q_1[..., None] - b) / k_2
        assert_allclose(k_1 * q_1[..., None] + k_2 * q_2 + b, PAYOFF[None])
        assert local_policy(q_1, 1.0).argmax() == np.argmax(first)
    exact, _ = local_critics(PAYOFF[None], 1.0)
    assert_allclose(local_policy(exact, 1.0), [[0.4997, 0.0003, 0.0003, 0.4997]], atol=1e-4)


# Theorem 1.


@given(cases())
def test_q_never_falls_at_any_joint_action(case: Case) -> None:
    path = soft_policy_iteration(case.mdp, case.alpha, start=random_policy(case.rng, case.shape))
    for old, new in pairwise(path):
        assert np.all(new.q >= old.q - 1e-9)
        assert np.all(new.v >= old.v - 1e-9)
    assert np.all(path[-1].v > path[0].v)


@given(cases())
def test_one_improvement_gains_alpha_times_the_divergence_of_the_old_policy(case: Case) -> None:
    pi, v, q = evaluate(case.mdp, random_policy(case.rng, case.shape), case.alpha)
    better = conditional_improvement(q, pi, case.alpha)
    gain = expect(better, q) + case.alpha * entropy(better) - v
    assert_allclose(gain, case.alpha * divergence(pi, better), atol=1e-9)
    assert np.all(gain > 0)


@given(cases())
def test_the_conditional_iteration_ends_at_the_soft_optimum_from_anywhere(case: Case) -> None:
    best = soft_value_iteration(case.mdp, case.alpha)
    for start in (None, random_policy(case.rng, case.shape, sharpness=20.0)):
        last = soft_policy_iteration(case.mdp, case.alpha, start=start)[-1]
        assert_allclose(last.pi, best.pi, atol=1e-6)
        assert_allclose(last.v, best.v, atol=1e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("gamma", [0.0, 0.9])
def test_the_payoff_matrix_is_no_obstacle_to_the_conditional_iteration(alpha: float, gamma: float) -> None:
    mdp = repeated_game(PAYOFF, gamma)
    last = soft_policy_iteration(mdp, alpha)[-1]
    expected = np.exp(PAYOFF / alpha) / np.exp(PAYOFF / alpha).sum()
    assert_allclose(last.pi[0], expected, atol=1e-9)
    assert_allclose(last.v, [alpha * np.log(np.exp(PAYOFF / alpha).sum()) / (1 - gamma)])


# Independent policies.


def additive(case: Case) -> MDP:
    """Rewards that are one term per agent, transitions that no action changes: IGO holds."""
    n_states, *n_actions = case.shape
    reward = np.zeros(case.shape)
    for i, n in enumerate(n_actions):
        reward += case.rng.standard_normal((n_states, *[1] * i, n, *[1] * (len(n_actions) - 1 - i)))
    transition = case.rng.dirichlet(np.ones(n_states), n_states)
    passive = np.broadcast_to(
        transition.reshape(n_states, *[1] * len(n_actions), n_states), (*case.shape, n_states)
    )
    return MDP(passive.copy(), reward, case.mdp.gamma)


def side_by_side(first: MDP, second: MDP) -> MDP:
    """Two agents, each in a world of its own; the state is the pair of theirs, the reward the sum."""
    p = np.einsum("sax,tby->stabxy", first.transition, second.transition)
    r = first.reward[:, None, :, None] + second.reward[None, :, None, :]
    n_states, n_actions = r.shape[0] * r.shape[1], r.shape[2:]
    return MDP(p.reshape(n_states, *n_actions, n_states), r.reshape(n_states, *n_actions), first.gamma)


@given(cases())
def test_expectation_over_the_others_against_plain_loops(case: Case) -> None:
    policies = marginals(random_policy(case.rng, case.shape))
    for i, pi_i in enumerate(policies):
        expected = np.zeros(pi_i.shape)
        for s, *a in every(*map(range, case.shape)):
            weight = np.prod([pi_j[s, a[j]] for j, pi_j in enumerate(policies) if j != i])
            expected[s, a[i]] += weight * case.mdp.reward[s, *a]
        assert_allclose(expect_others(case.mdp.reward, policies, i), expected, atol=1e-12)


@given(cases())
def test_products_and_marginals_undo_each_other(case: Case) -> None:
    policies = marginals(random_policy(case.rng, case.shape))
    joint = product(policies)
    for s, *a in every(*map(range, case.shape)):
        assert np.isclose(
            joint[s, *a], np.prod([pi_i[s, a_i] for pi_i, a_i in zip(policies, a, strict=True)])
        )
    for pi_i, back in zip(policies, marginals(joint), strict=True):
        assert_allclose(back, pi_i)


@given(cases())
def test_where_igo_holds_the_independent_iteration_is_the_conditional_one(case: Case) -> None:
    mdp = additive(case)
    start = product(marginals(random_policy(case.rng, case.shape)))
    conditional = soft_policy_iteration(mdp, case.alpha, start=start)
    independent = soft_policy_iteration(mdp, case.alpha, independent_improvement, start)
    assert len(independent) == len(conditional)
    for one, other in zip(independent, conditional, strict=True):
        assert_allclose(one.pi, other.pi, atol=1e-9)
    assert_allclose(independent[-1].pi, soft_value_iteration(mdp, case.alpha).pi, atol=1e-6)
    assert_allclose(shortfall(mdp, independent[-1].pi, case.alpha), 0, atol=1e-6)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.5, 0.9]), st.sampled_from([0.1, 1.0]))
def test_agents_in_worlds_of_their_own_need_no_dependence(seed: int, gamma: float, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    mdp = side_by_side(random_mdp(rng, 2, (3,), gamma), random_mdp(rng, 2, (2,), gamma))
    last = soft_policy_iteration(mdp, alpha, independent_improvement)[-1]
    best = soft_value_iteration(mdp, alpha)
    assert_allclose(last.pi, best.pi, atol=1e-6)
    assert_allclose(last.v, best.v, atol=1e-6)


@given(cases())
def test_elsewhere_the_independent_iteration_improves_but_falls_short(case: Case) -> None:
    alpha = max(case.alpha, 0.5)  # colder, the optimum may be one joint action to the last bit: a product
    start = product(marginals(random_policy(case.rng, case.shape)))
    path = soft_policy_iteration(case.mdp, alpha, independent_improvement, start, tolerance=1e-7)
    for old, new in pairwise(path):
        assert np.all(new.v >= old.v - 1e-9)
    assert shortfall(case.mdp, path[-1].pi, alpha).max() > 1e-4


@given(cases(), st.sampled_from([0.0, 0.5, 0.9]))
def test_in_a_game_every_policy_falls_short_by_alpha_times_its_divergence(case: Case, gamma: float) -> None:
    mdp = repeated_game(case.mdp.reward[0], gamma)
    best = soft_value_iteration(mdp, case.alpha)
    pi = random_policy(case.rng, mdp.reward.shape)
    for policy in (pi, product(marginals(pi))):
        gap = case.alpha * divergence(policy, best.pi) / (1 - gamma)
        assert_allclose(shortfall(mdp, policy, case.alpha), gap, atol=1e-7)


def test_in_the_payoff_matrix_a_cool_independent_team_keeps_one_mode_of_two() -> None:
    """At alpha = 1 it finds (D, D): the return is there, the other mode and its log 2 of entropy are not."""
    mdp = repeated_game(PAYOFF)
    last = soft_policy_iteration(mdp, 1.0, independent_improvement)[-1]
    assert last.pi[0, 3, 3] > 0.999
    assert_allclose(shortfall(mdp, last.pi, 1.0), [np.log(2)], atol=1e-3)


def test_in_the_payoff_matrix_a_warm_independent_team_settles_for_nothing() -> None:
    """At alpha = 2 it ends in the middle block of zeros: about 0 where the dependent policy earns 7.7."""
    mdp = repeated_game(PAYOFF)
    last = soft_policy_iteration(mdp, 2.0, independent_improvement)[-1]
    best = soft_value_iteration(mdp, 2.0)
    assert last.pi[0, 1:3, 1:3].sum() > 0.99
    assert evaluate(mdp, last.pi).v < 0
    assert evaluate(mdp, best.pi).v > 7.7
    assert_allclose(shortfall(mdp, last.pi, 2.0), [6.681], atol=1e-3)


def test_where_the_independent_team_ends_depends_on_where_it_starts() -> None:
    mdp = repeated_game(PAYOFF)
    ends = []
    for action in (0, 1, 3):
        pi_i = np.full((1, 4), 0.01) + 0.96 * np.eye(4)[[action]]
        path = soft_policy_iteration(mdp, 1.0, independent_improvement, product([pi_i, pi_i]))
        ends.append(path[-1].v[0])
    assert_allclose(ends, [8, 2 * np.log(2), 8], atol=1e-3)


# Corners.


@given(st.integers(0, 2**32 - 1))
def test_one_agent_alone_has_nobody_to_depend_on(seed: int) -> None:
    mdp = random_mdp(np.random.default_rng(seed), 3, (4,), 0.9)
    best = soft_value_iteration(mdp, 0.5)
    for improvement in (conditional_improvement, independent_improvement):
        last = soft_policy_iteration(mdp, 0.5, improvement)[-1]
        assert_allclose(last.pi, best.pi, atol=1e-6)
        assert_allclose(last.v, best.v, atol=1e-6)


@pytest.mark.parametrize("improvement", [conditional_improvement, independent_improvement])
def test_with_one_action_each_there_is_nothing_to_choose(improvement: Improvement) -> None:
    mdp = repeated_game(np.array([[[3.0]]]), 0.5)
    for found in (soft_policy_iteration(mdp, 2.0, improvement)[-1], soft_value_iteration(mdp, 2.0)):
        assert_allclose(found.pi, np.ones((1, 1, 1, 1)))
        assert_allclose(found.v, [6.0])


def test_an_agent_with_one_action_changes_nothing_for_the_others() -> None:
    with_idle = soft_value_iteration(repeated_game(PAYOFF[:, None, :]), 1.0)
    last = soft_policy_iteration(repeated_game(PAYOFF[:, None, :]), 1.0)[-1]
    assert_allclose(last.pi, with_idle.pi, atol=1e-9)
    assert_allclose(last.pi[:, :, 0], soft_policy_iteration(repeated_game(PAYOFF), 1.0)[-1].pi, atol=1e-9)


GOOD = (np.full((2, 3, 2), 0.5), np.zeros((2, 3)), 0.9)


@pytest.mark.parametrize(
    ("transition", "reward", "gamma", "sentence"),
    [
        (np.full((2, 3, 2), 0.4), GOOD[1], 0.9, "sum to one"),
        (np.stack([np.full((2, 3), 1.5), np.full((2, 3), -0.5)], -1), GOOD[1], 0.9, "negative"),
        (np.full((2, 2), 0.5), np.zeros(2), 0.9, "one agent at least"),
        (GOOD[0], np.full((2, 3), np.inf), 0.9, "not finite"),
        (GOOD[0], GOOD[1], 1.0, "discount"),
    ],
)
def test_a_table_that_is_no_mdp_is_refused(
    transition: np.ndarray, reward: np.ndarray, gamma: float, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        MDP(transition, reward, gamma)


def test_what_is_no_policy_no_temperature_or_not_yet_an_end_is_refused() -> None:
    mdp = MDP(*GOOD)
    with pytest.raises(UserError, match="sum to one"):
        evaluate(mdp, np.full((2, 3), 0.5))
    with pytest.raises(UserError, match="temperature"):
        soft_value_iteration(mdp, 0.0)
    with pytest.raises(UserError, match="still moves after 1 "):
        soft_policy_iteration(repeated_game(PAYOFF), 1.0, independent_improvement, at_most=1)
