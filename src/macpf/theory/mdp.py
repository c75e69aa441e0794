"""A small multi-agent MDP as a table, and its soft values, exactly.

Axes: `states`, then one axis per agent (`*actions`), then, for transitions, `states` again.
A joint policy is a table pi_jt[s, a_1, ..., a_N] whose entries sum to one in every state; the entropy is
that of the whole joint action, -log pi_jt.  Evaluated with temperature 0, a policy has its plain values.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from macpf.errors import require

Values = Float[np.ndarray, " states"]
Joint = Float[np.ndarray, "states *actions"]

ROUNDING = 1e-14  # relative; no sum of a few products of float64 can be asked to stand stiller than this


@dataclass(frozen=True)
class MDP:
    """A multi-agent MDP: P[s, a_1, ..., a_N, s'], r[s, a_1, ..., a_N] and the discount."""

    transition: Float[np.ndarray, "states *actions states"]
    reward: Joint
    gamma: float

    def __post_init__(self) -> None:
        p, r = self.transition, self.reward
        require(r.ndim > 1, "an MDP needs one agent at least: the reward has no axis of actions.")
        require(
            p.shape == (*r.shape, len(r)), "the transition's axes must be the reward's and the next states."
        )
        require(np.all(p >= 0), "a probability of the transition is negative.")
        require(np.allclose(p.sum(-1), 1), "the probabilities of the next states must sum to one.")
        require(np.all(np.isfinite(r)), "a reward is not finite.")
        require(0 <= self.gamma < 1, f"the discount must be in [0, 1), and {self.gamma} is not.")


class Solution(NamedTuple):
    """A joint policy with its (soft) values V(s) and Q(s, a)."""

    pi: Joint
    v: Values
    q: Joint


def random_mdp(
    rng: np.random.Generator, n_states: int, n_actions: tuple[int, ...], gamma: float, scale: float = 1.0
) -> MDP:
    """Transitions drawn evenly from the simplex, rewards from a normal distribution of this scale."""
    transition = rng.dirichlet(np.ones(n_states), (n_states, *n_actions))
    return MDP(transition, scale * rng.standard_normal((n_states, *n_actions)), gamma)


def repeated_game(payoff: Float[np.ndarray, "*actions"], gamma: float = 0.0) -> MDP:
    """A matrix game played for ever: one state, in which every joint action leads to itself."""
    return MDP(np.ones((1, *payoff.shape, 1)), payoff[None], gamma)


def random_policy(rng: np.random.Generator, shape: tuple[int, ...], sharpness: float = 2.0) -> Joint:
    """A dependent joint policy with random logits."""
    return softmax(sharpness * rng.standard_normal(shape), 1.0)


def uniform_policy(mdp: MDP) -> Joint:
    """Every joint action with the same probability."""
    return softmax(np.zeros(mdp.reward.shape), 1.0)


def expect(pi: Joint, x: Joint) -> Values:
    """E_pi[x] in every state."""
    return per_state(pi * x).sum(-1)


def entropy(pi: Joint) -> Values:
    """The entropy of the joint action in every state, with 0 log 0 = 0."""
    return -expect(pi, np.log(np.where(pi > 0, pi, 1.0)))


def divergence(pi: Joint, other: Joint) -> Values:
    """KL(pi || other) in every state; `other` must be positive wherever `pi` is."""
    return -entropy(pi) - expect(pi, np.log(np.where(pi > 0, other, 1.0)))


def soft_value(q: Joint, alpha: float) -> Values:
    """alpha log sum_a exp(Q(s, a) / alpha), over joint actions."""
    return soft_max(per_state(q), alpha)


def softmax(q: Joint, alpha: float) -> Joint:
    """The soft-optimal joint policy against Q: exp((Q - V) / alpha)."""
    return normalised(np.exp((per_state(q) - soft_value(q, alpha)[:, None]) / alpha)).reshape(q.shape)


def backup(mdp: MDP, v: Values) -> Joint:
    """Q(s, a) = r(s, a) + gamma E[V(s')]."""
    return mdp.reward + mdp.gamma * mdp.transition @ v


def evaluate(mdp: MDP, pi: Joint, alpha: float = 0.0) -> Solution:
    """The soft values of any joint policy, by solving V = E_pi[r + gamma V' - alpha log pi] for V."""
    require(pi.shape == mdp.reward.shape, "the policy's axes must be the reward's.")
    require(np.allclose(per_state(pi).sum(-1), 1), "the probabilities of the joint actions must sum to one.")
    p = np.einsum("sa,sat->st", per_state(pi), mdp.transition.reshape(len(pi), -1, len(pi)))
    v = np.linalg.solve(np.eye(len(pi)) - mdp.gamma * p, expect(pi, mdp.reward) + alpha * entropy(pi))
    return Solution(pi, v, backup(mdp, v))


def soft_value_iteration(mdp: MDP, alpha: float, tolerance: float = 1e-11) -> Solution:
    """The soft-optimal joint policy and its values, which are within `tolerance` (times their size)."""
    v, error = np.zeros(len(mdp.reward)), np.inf
    while error > max(tolerance * (1 - mdp.gamma), ROUNDING) * max(1.0, np.abs(v).max()):
        v, old = soft_value(backup(mdp, v), alpha), v
        error = np.abs(v - old).max()
    q = backup(mdp, v)
    return Solution(softmax(q, alpha), v, q)


def soft_max(q: Float[np.ndarray, "*b last"], alpha: float) -> Float[np.ndarray, "*b"]:
    """alpha log sum exp(q / alpha) over the last axis."""
    require(alpha > 0, f"the temperature must be positive, and {alpha} is not.")
    top = q.max(-1, keepdims=True)
    return top[..., 0] + alpha * np.log(np.exp((q - top) / alpha).sum(-1))


def normalised(p: Float[np.ndarray, "*b last"]) -> Float[np.ndarray, "*b last"]:
    """The last axis made to sum to one, to the last bit that rounding leaves."""
    return p / p.sum(-1, keepdims=True)


def per_state(x: Joint) -> Float[np.ndarray, "states joint"]:
    """The joint actions of each state as one axis."""
    return x.reshape(len(x), -1)
