"""Theorem 2: independent joint policies in the place of a dependent one.

Let V and Q be the plain values (no entropy) of the dependent policy.  In every state V(s) = E_dep[Q(s, .)] is
an average, so it lies between the smallest and the largest Q(s, a).  Both belong to a deterministic joint
action, which is a product policy.  Walk from the one joint action to the other by changing one agent's action
at a time: some step goes from at most V(s) to at least V(s).  On that step only one agent changes, so mixing
its two actions moves the expected Q along a straight line, and one weight gives V(s) exactly.

Matching state by state is enough: E_ind[Q(s, .)] = V(s) in every state says V = E_ind[r + gamma V'], that is,
V is a fixed point of the Bellman operator of the independent policy.  That operator contracts by gamma, so
it has one fixed point only, which is the independent policy's value.

The same fails for soft values: V(s) then holds the entropy of the dependent policy and may exceed every
Q(s, a), and a product policy may have no way to make up for it.  In a matrix game a policy falls short of the
soft optimum pi* by alpha KL(pi || pi*), which no product brings to 0 unless pi* is a product itself.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from macpf.theory.iteration import Local, Marginal
from macpf.theory.mdp import MDP, Joint, evaluate, per_state

Independent = tuple[Marginal, ...]  # pi_i[s, a_i], agent by agent
Actions = Int[np.ndarray, " agents"]


def matching_policy(mdp: MDP, pi_dep: Joint) -> Independent:
    """An independent policy with `pi_dep`'s value in every state; in each, one agent at most is random."""
    _, v, q = evaluate(mdp, pi_dep)
    return by_agent([match(q[s], v[s]) for s in range(len(v))], q.shape[1:])


def greedy_policy(mdp: MDP, pi_dep: Joint) -> Independent:
    """An independent policy at least as good as `pi_dep` in every state: one joint argmax of its Q."""
    _, _, q = evaluate(mdp, pi_dep)
    return by_agent([(a, a, 0.0) for a in joint_actions(q, per_state(q).argmax(-1))], q.shape[1:])


def match(q: Float[np.ndarray, "*actions"], v: float) -> tuple[Actions, Actions, float]:
    """Two joint actions that differ in one agent at most, and the weight of the second at which E[q] = v."""
    steps = staircase(*(np.array(np.unravel_index(a, q.shape)) for a in (q.argmin(), q.argmax())))
    heights = np.array([q[tuple(a)] for a in steps])
    k = int(np.argmax(heights[1:] >= min(v, heights[-1])))  # the first step that reaches v from below
    rise = heights[k + 1] - heights[k]
    return steps[k], steps[k + 1], float(np.clip((v - heights[k]) / rise, 0.0, 1.0)) if rise > 0 else 0.0


def staircase(low: Actions, high: Actions) -> list[Actions]:
    """From one joint action to the other, one agent after the other."""
    n = len(low)
    return [np.where(np.arange(n) < k, high, low) for k in range(n + 1)]


def by_agent(mixtures: Sequence[tuple[Actions, Actions, float]], sizes: tuple[int, ...]) -> Independent:
    """Every agent's policy, when each state has (first, second, weight of the second) for all agents."""
    policies = tuple(np.zeros((len(mixtures), size)) for size in sizes)
    for s, (first, second, weight) in enumerate(mixtures):
        for pi_i, a, b in zip(policies, first, second, strict=True):
            pi_i[s, a] += 1 - weight
            pi_i[s, b] += weight
    return policies


def greedy_chain(conditionals: Sequence[Local]) -> Joint:
    """Each agent takes its likeliest action given those taken before: in general not the joint argmax."""
    actions = np.zeros((len(conditionals[0]), 0), int)
    for pi_i in conditionals:
        own = pi_i[(np.arange(len(pi_i)), *actions.T)].argmax(-1)
        actions = np.column_stack([actions, own])
    joint = np.zeros(conditionals[-1].shape)
    joint[(np.arange(len(joint)), *actions.T)] = 1.0
    return joint


def joint_actions(q: Joint, flat: Int[np.ndarray, " states"]) -> Int[np.ndarray, "states agents"]:
    """Numbers of joint actions, one a state, as the actions of the agents."""
    return np.column_stack(np.unravel_index(flat, q.shape[1:]))
