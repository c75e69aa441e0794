"""Experiments that differ from one another in some numbers: written for one, vmapped over many."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

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
