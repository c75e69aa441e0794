"""The best matching is the Hungarian method's."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linear_sum_assignment

from macpf.envs.mpe.matching import matched, matching
from tests.helpers import few, quick_jit, seeds

both = quick_jit(lambda cost: (matching(cost), matched(cost)))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
@few(20)
@given(seed=seeds, decimals=st.sampled_from([1, 6]))
def test_it_is_the_hungarian_methods(n, seed, decimals):
    cost = np.random.default_rng(seed).random((n, n)).round(decimals).astype(np.float32)
    places, costs = both(jnp.asarray(cost))
    rows, columns = linear_sum_assignment(cost)
    assert sorted(np.asarray(places)) == list(range(n))
    assert_allclose(costs, cost[np.arange(n), places])
    assert_allclose(np.sum(costs), cost[rows, columns].sum(), rtol=1e-5)


def test_it_is_not_the_greedy_one():
    places, costs = both(jnp.asarray([[0.0, 1.0], [1.0, 5.0]]))
    assert list(places) == [1, 0]
    assert_allclose(costs, [1, 1])
