"""Experiments that differ in some numbers, written for one and vmapped over many, or in their length."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from macpf.experiments.experiment import Experiment

Value = TypeVar("Value")


def vary(value: Value, changes: Mapping[str, Any]) -> Value:
    """A dataclass with some fields changed, however deep: {"algorithm.optimiser.lr": 1e-3}.

    The numbers may be traced, so a grid of settings is one more axis of the compiled program; a field
    that decides what is computed (a size, an option by name) may not.
    """
    for path, new in changes.items():
        first, _, rest = path.partition(".")
        inner = vary(getattr(value, first), {rest: new}) if rest else new
        value = replace(value, **{first: inner})  # type: ignore[type-var]
    return value


def lasting(experiment: Experiment[Any, Any], scale: float) -> Experiment[Any, Any]:
    """An experiment so many times as long; learning rates that fall do so over all of it."""
    steps, optimiser = max(1, round(experiment.steps * scale)), experiment.algorithm.optimiser
    if experiment.algorithm.on_policy or not optimiser.anneal:
        return replace(experiment, steps=steps)
    steady = replace(experiment.algorithm, optimiser=replace(optimiser, anneal=0))
    longer = replace(experiment, steps=steps, algorithm=steady)
    falling = replace(steady, optimiser=replace(optimiser, anneal=longer.updates))
    return replace(longer, algorithm=falling)
