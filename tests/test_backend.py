"""What is compiled differently for a CPU and for a GPU is the same all the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macpf import backend
from tests.helpers import few

NUMBERS = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)


@few(20)
@given(values=st.lists(NUMBERS, min_size=1, max_size=40))
def test_what_is_kept_stays_the_number_it_was(values):
    there = np.asarray(values, np.float32)
    assert (np.asarray(jax.jit(backend.kept)(there)) == there).all()


@pytest.mark.parametrize("cpu", [True, False])
def test_kept_numbers_can_be_batched_and_have_their_slope(cpu, monkeypatch):
    monkeypatch.setattr(backend, "on_cpu", lambda: cpu)
    rows = jnp.arange(12.0).reshape(3, 4)
    assert (jax.vmap(backend.kept)(rows) == rows).all()
    assert (jax.grad(lambda x: jnp.sum(backend.kept(x) ** 2))(rows[1]) == 2 * rows[1]).all()


@pytest.mark.parametrize(("cpu", "steps"), [(True, 1), (False, 8)])
def test_loops_are_unrolled_on_a_gpu_alone(cpu, steps, monkeypatch):
    monkeypatch.setattr(backend, "on_cpu", lambda: cpu)
    assert backend.unroll(8) == steps


@pytest.mark.parametrize("cpu", [True, False])
def test_what_is_settled_or_summed_at_once_is_what_it_was(cpu, monkeypatch):
    monkeypatch.setattr(backend, "on_cpu", lambda: cpu)
    one, other = jnp.arange(24.0).reshape(2, 3, 4), jnp.arange(24.0)[::-1].reshape(2, 3, 4) ** 2
    settled = jax.jit(jax.vmap(backend.settled))({"one": one, "other": other > 100})
    assert (settled["one"] == one).all()
    assert (settled["other"] == (other > 100)).all()
    sums = jax.jit(jax.vmap(backend.row_sums))(one, other)
    assert np.asarray(sums[0]).tolist() == one.sum(2).tolist()
    assert np.asarray(sums[1]).tolist() == other.sum(2).tolist()
