"""One experiment written as another with some numbers changed."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import pytest
from numpy.testing import assert_allclose

import macpf
from macpf.errors import UserError
from macpf.experiments.vary import lasting, vary
from tests.tiny import tiny_experiment


def test_fields_change_however_deep_and_nothing_else_does():
    start = tiny_experiment()
    changes = {
        "steps": 7,
        "algorithm.gamma": 0.5,
        "algorithm.optimiser.lr": 0.25,
        "algorithm.alpha.rate": 0.9,
    }
    found = vary(start, changes)
    assert (found.steps, found.algorithm.gamma) == (7, 0.5)
    assert (found.algorithm.optimiser.lr, found.algorithm.alpha.rate) == (0.25, 0.9)
    algorithm = replace(
        start.algorithm,
        gamma=0.5,
        optimiser=replace(start.algorithm.optimiser, lr=0.25),
        alpha=replace(start.algorithm.alpha, rate=0.9),
    )
    assert found == replace(start, steps=7, algorithm=algorithm)
    assert found != start


def test_no_change_is_the_same_value():
    assert vary(tiny_experiment(), {}) == tiny_experiment()


def test_two_changes_of_one_part_are_both_made():
    found = vary(tiny_experiment(), {"algorithm.optimiser.lr": 0.25, "algorithm.optimiser.eps": 0.125})
    assert found.algorithm.optimiser == replace(tiny_experiment().algorithm.optimiser, lr=0.25, eps=0.125)


@pytest.mark.parametrize("path", ["colour", "algorithm.colour", "algorithm.optimiser.colour"])
def test_a_field_that_is_not_there_is_not_made_up(path: str):
    with pytest.raises((TypeError, AttributeError), match="colour"):
        vary(tiny_experiment(), {path: 1.0})


def test_a_value_that_does_not_fit_is_still_refused():
    with pytest.raises(UserError, match="learning rate must be positive"):
        vary(tiny_experiment(), {"algorithm.optimiser.lr": -1.0})


@dataclass(frozen=True)
class Inner:
    slope: float = 2.0


@dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    offset: float = 1.0


def test_numbers_may_be_traced():
    def line(slope, offset):
        made = vary(Outer(), {"inner.slope": slope, "offset": offset})
        return made.inner.slope * 10.0 + made.offset

    found = jax.jit(jax.vmap(line))(jnp.asarray([1.0, 3.0]), jnp.asarray([0.5, 0.25]))
    assert_allclose(found, [10.5, 30.25])


def test_the_original_stays_as_it_was():
    start = macpf.experiment("vdn", "matrix-game")
    vary(start, {"algorithm.optimiser.lr": 0.5})
    assert start == macpf.experiment("vdn", "matrix-game")


@pytest.mark.parametrize(("name", "anneal"), [("qmix", 40_000), ("mappo", 0)])
def test_half_as_long_learning_rates_fall_twice_as_fast(name: str, anneal: int):
    whole = macpf.experiment(name, "mpe/simple-spread")
    half = lasting(whole, 0.5)
    assert (half.steps, half.algorithm.optimiser.anneal) == (1_000_000, anneal)
    assert lasting(half, 2.0) == lasting(whole, 1.0) == whole
