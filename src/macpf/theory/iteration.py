"""Theorem 1: conditional factorised soft policy iteration, and the independent version it replaces.

Both evaluate the joint policy exactly and then improve it against the Q found.

Conditional: agent i's policy given the actions of the agents before it is soft-optimal against the soft
value of what follows.  Multiplied by the chain rule, the conditionals are the joint softmax of Q, so this
is soft policy iteration on joint actions and converges to the soft optimum from anywhere.

Independent (what FOP's assumption IGO leaves): agent i's policy is a function of the state alone.  The
improvement minimises KL(pi || softmax(Q / alpha)) over products one agent at a time, each agent once,
against the newest policies of the others: pi_i = softmax(E_{pi_-i}[Q] / alpha).  If the joint softmax is a
product (IGO), Q is a sum of one term per agent, what the others do only shifts E_{pi_-i}[Q] by a constant,
and one sweep is the joint improvement.  If it is not, every sweep still improves the policy, but the end is
an equilibrium that depends on the start and falls short of the soft optimum.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from macpf.errors import UserError
from macpf.theory.mdp import (
    MDP,
    Joint,
    Solution,
    Values,
    evaluate,
    normalised,
    soft_max,
    soft_value_iteration,
    uniform_policy,
)

Local = Float[np.ndarray, "states ..."]  # Q_i or pi_i: of the state, the actions before agent i's, its own
Marginal = Float[np.ndarray, "states _"]  # pi_i, or anything else, of the state and agent i's action alone
Improvement = Callable[[Joint, Joint, float], Joint]  # (Q, pi, alpha) to the next pi


def local_critics(q: Joint, alpha: float) -> tuple[Local, ...]:
    """Q_i(s, a_<i, a_i): the soft value of all that the agents after i can still do; Q_N is Q itself."""
    critics = [q]
    while critics[0].ndim > 2:
        critics.insert(0, soft_max(critics[0], alpha))
    return tuple(critics)


def local_policy(q_i: Local, alpha: float) -> Local:
    """pi_i(a_i | s, a_<i) = exp((Q_i - V_i) / alpha), with V_i(s, a_<i) the soft value over a_i."""
    return normalised(np.exp((q_i - soft_max(q_i, alpha)[..., None]) / alpha))


def chain(policies: Sequence[Local]) -> Joint:
    """pi_jt(a | s) = prod_i pi_i(a_i | s, a_<i)."""
    joint = policies[0]
    for pi_i in policies[1:]:
        joint = joint[..., None] * pi_i
    return joint


def recompose(critics: Sequence[Local], v: Values, alpha: float) -> Joint:
    """Q_jt(s, a) = sum_i [Q_i - V_i] + V(s), from any local critics."""
    total = v
    for q_i in critics:
        total = total[..., None] + q_i - soft_max(q_i, alpha)[..., None]
    return total


def conditional_improvement(q: Joint, pi: Joint, alpha: float) -> Joint:
    """Every agent's best soft answer to the actions before its own; what `pi` was does not matter."""
    return chain([local_policy(q_i, alpha) for q_i in local_critics(q, alpha)])


def independent_improvement(q: Joint, pi: Joint, alpha: float) -> Joint:
    """Every agent's best soft answer to the others' policies, one agent after the other."""
    policies = list(marginals(pi))
    for i in range(len(policies)):
        policies[i] = local_policy(expect_others(q, policies, i), alpha)
    return product(policies)


def expect_others(q: Joint, policies: Sequence[Marginal], i: int) -> Marginal:
    """E_{pi_-i}[Q(s, a)] as a function of agent i's action."""
    q = np.moveaxis(q, 1 + i, 1)
    for pi_j in reversed([p for j, p in enumerate(policies) if j != i]):
        q = np.einsum("s...a,sa->s...", q, pi_j)
    return q


def marginals(pi: Joint) -> tuple[Marginal, ...]:
    """Each agent's policy as a function of the state alone, whatever the others do."""
    agents = range(1, pi.ndim)
    return tuple(pi.sum(tuple(j for j in agents if j != i)) for i in agents)


def product(policies: Sequence[Marginal]) -> Joint:
    """pi_jt(a | s) = prod_i pi_i(a_i | s): the policy of agents that do not see each other's actions."""
    joint = policies[0]
    for pi_i in policies[1:]:
        joint = joint[..., None] * pi_i.reshape(len(pi_i), *[1] * (joint.ndim - 1), -1)
    return joint


def soft_policy_iteration(
    mdp: MDP,
    alpha: float,
    improvement: Improvement = conditional_improvement,
    start: Joint | None = None,
    tolerance: float = 1e-10,
    at_most: int = 10_000,
) -> list[Solution]:
    """Evaluates and improves until the policy stands still: every policy on the way, the start first."""
    path = [evaluate(mdp, uniform_policy(mdp) if start is None else start, alpha)]
    while len(path) <= at_most:
        path.append(evaluate(mdp, improvement(path[-1].q, path[-1].pi, alpha), alpha))
        if np.abs(path[-1].pi - path[-2].pi).max() <= tolerance:
            return path
    raise UserError(f"the policy still moves after {at_most} improvements.")


def shortfall(mdp: MDP, pi: Joint, alpha: float) -> Values:
    """What a policy's soft value lacks to the soft optimum's, in every state."""
    return soft_value_iteration(mdp, alpha).v - evaluate(mdp, pi, alpha).v
