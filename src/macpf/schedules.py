"""Temperatures and exploration rates by the environment steps taken so far; `final`: how they end."""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from macpf.errors import require
from macpf.types import Step


@dataclass(frozen=True)
class Constant:
    """The same value always."""

    value: float

    def __post_init__(self) -> None:
        require(self.value >= 0, f"a schedule's value must not be negative, not {self.value}")

    @property
    def final(self) -> float:
        return self.value

    def __call__(self, step: Step) -> Float[Array, ""]:
        return jnp.full((), self.value)


@dataclass(frozen=True)
class Linear:
    """From `start` to `end` in a straight line over `steps`, then flat.

    With `unit_slope` it falls by 1/steps per step whatever the distance, so 0.5 -> 0.05 over 200k steps
    is over after 90k: the published code's reading of the same three numbers.
    """

    start: float
    end: float
    steps: int
    unit_slope: bool = False

    def __post_init__(self) -> None:
        require(
            (self.end >= 0) & (self.end <= self.start),
            f"a schedule must fall to a value >= 0: {self.start} -> {self.end}",
        )
        require(self.steps > 0, f"a schedule must last at least one step, not {self.steps}")

    @property
    def final(self) -> float:
        return self.end

    def __call__(self, step: Step) -> Float[Array, ""]:
        drop = 1.0 if self.unit_slope else self.start - self.end
        return jnp.maximum(self.end, self.start - drop * step / self.steps)


@dataclass(frozen=True)
class Exponential:
    """From `start`, times `rate` at every step, but never below `end`."""

    start: float
    end: float
    rate: float

    def __post_init__(self) -> None:
        require(
            (self.end >= 0) & (self.end <= self.start),
            f"a schedule must fall to a value >= 0: {self.start} -> {self.end}",
        )
        require((self.rate > 0) & (self.rate <= 1), f"a schedule's rate must be in (0, 1], not {self.rate}")

    @property
    def final(self) -> float:
        return self.end

    def __call__(self, step: Step) -> Float[Array, ""]:
        return jnp.maximum(self.end, self.start * self.rate**step)


Schedule = Constant | Linear | Exponential
