"""The theorems, on random MDPs and on games small enough to work out by hand."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from hypothesis import strategies as st

from macpf.theory import MDP, random_mdp

PAYOFF = np.array([[8, -20, -20, -20], [-12, 0, 0, -20], [-12, 0, 0, -20], [-12, -12, -12, 8]], float)


@dataclass(frozen=True)
class Case:
    """A random MDP, a temperature, and where further random things come from."""

    seed: int
    n_states: int
    n_actions: tuple[int, ...]
    gamma: float
    alpha: float

    @cached_property
    def mdp(self) -> MDP:
        return random_mdp(np.random.default_rng([self.seed, 0]), self.n_states, self.n_actions, self.gamma)

    @cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, 1])

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n_states, *self.n_actions)


def cases() -> st.SearchStrategy[Case]:
    """2 or 3 agents with 2 or 3 actions each, 2 to 4 states, several discounts and temperatures."""
    return st.builds(
        Case,
        seed=st.integers(0, 2**32 - 1),
        n_states=st.integers(2, 4),
        n_actions=st.lists(st.integers(2, 3), min_size=2, max_size=3).map(tuple),
        gamma=st.sampled_from([0.0, 0.5, 0.9]),
        alpha=st.sampled_from([0.1, 0.5, 1.0, 3.0]),
    )
