"""Schedules by hand."""

import jax
import jax.numpy as jnp
import pytest

from macpf.errors import UserError
from macpf.schedules import Constant, Exponential, Linear, Schedule


def at(schedule: Schedule, step: int) -> float:
    return float(jax.jit(schedule)(jnp.asarray(step)))


def test_constant():
    assert at(Constant(0.25), 0) == at(Constant(0.25), 10**6) == 0.25


@pytest.mark.parametrize(("step", "value"), [(0, 0.5), (100_000, 0.275), (200_000, 0.05), (10**9, 0.05)])
def test_linear_falls_over_its_steps(step, value):
    assert at(Linear(0.5, 0.05, 200_000), step) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize(
    ("step", "value"), [(0, 0.5), (40_000, 0.3), (89_000, 0.055), (90_000, 0.05), (10**9, 0.05)]
)
def test_linear_of_unit_slope_is_over_sooner(step, value):
    assert at(Linear(0.5, 0.05, 200_000, unit_slope=True), step) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize(("step", "value"), [(0, 1.0), (1, 0.999), (100, 0.904792), (692, 0.500401)])
def test_exponential_falls_by_its_rate(step, value):
    assert at(Exponential(1.0, 0.5, 0.999), step) == pytest.approx(value, rel=1e-4)


def test_exponential_reaches_its_floor():
    schedule = Exponential(1.0, 0.5, 0.999)
    assert at(schedule, 692) > 0.5
    assert at(schedule, 693) == at(schedule, 10**9) == 0.5


@pytest.mark.parametrize(
    "make",
    [
        lambda: Constant(-1.0),
        lambda: Linear(0.1, 0.5, 10),
        lambda: Linear(0.5, -0.1, 10),
        lambda: Linear(0.5, 0.1, 0),
        lambda: Exponential(0.5, 1.0, 0.9),
        lambda: Exponential(1.0, 0.5, 1.1),
        lambda: Exponential(1.0, 0.5, 0.0),
    ],
)
def test_impossible_schedules_are_refused(make):
    with pytest.raises(UserError, match="schedule"):
        make()
