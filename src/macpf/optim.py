"""The optimisers of the reference implementations, and copies of networks that lag behind.

The only file that knows optax: everywhere else an optimiser is a value with `init` and `descend`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from macpf.errors import require
from macpf.types import Step

Params = TypeVar("Params")
OptState = Any


@dataclass(frozen=True)
class RMSprop:
    """PyTorch's RMSprop as PyMARL sets it: no momentum, not centred, eps outside the square root.

    `anneal`: the learning rate falls to nothing in a straight line over so many updates (0: it stays).
    """

    lr: float = 5e-4
    decay: float = 0.99
    eps: float = 1e-5
    clip: float = 10.0
    anneal: int = 0

    def __post_init__(self) -> None:
        _check(self.lr, self.clip, self.anneal)

    def transform(self) -> optax.GradientTransformation:
        rms = optax.scale_by_rms(decay=self.decay, eps=self.eps, initial_scale=0.0, eps_in_sqrt=False)
        return _flat(optax.clip_by_global_norm(self.clip), rms, _step(self.lr, self.anneal))


@dataclass(frozen=True)
class Adam:
    """Adam, with the same clip of the global gradient norm, and the same `anneal`."""

    lr: float = 5e-4
    eps: float = 1e-8
    clip: float = 10.0
    anneal: int = 0

    def __post_init__(self) -> None:
        _check(self.lr, self.clip, self.anneal)

    def transform(self) -> optax.GradientTransformation:
        adam = optax.scale_by_adam(eps=self.eps)
        return _flat(optax.clip_by_global_norm(self.clip), adam, _step(self.lr, self.anneal))


Optimiser = RMSprop | Adam


def _flat(*links: optax.GradientTransformation) -> optax.GradientTransformation:
    """A chain over all parameters as one vector: a few operations, however many arrays they are."""
    return optax.flatten(optax.chain(*links))


def _step(lr: float, anneal: int) -> optax.GradientTransformation:
    """The last link of the chain: against the gradient, by the learning rate of this update."""
    if not anneal:
        return optax.scale(-lr)
    return optax.scale_by_schedule(lambda updates: -lr * jnp.maximum(0.0, 1 - updates / anneal))


def _check(lr: float, clip: float, anneal: int) -> None:
    require(lr > 0, f"the learning rate must be positive, not {lr}")
    require(anneal >= 0, f"anneal is a number of updates, not {anneal}")
    require(clip > 0, f"the clip of the gradient norm must be positive, not {clip}")


def init(optimiser: Optimiser, params: Any) -> OptState:
    """The optimiser's state for these parameters."""
    return optimiser.transform().init(eqx.filter(params, eqx.is_array))


def descend(
    optimiser: Optimiser, params: Params, gradient: Params, state: OptState
) -> tuple[Params, OptState]:
    """One step against the gradient."""
    updates, state = optimiser.transform().update(gradient, state)  # type: ignore[arg-type]
    return eqx.apply_updates(params, updates), state


def init_lists(
    optimiser: Optimiser, networks: Mapping[str, Any], lists: Iterable[tuple[str, ...]]
) -> dict[str, OptState]:
    """One state for every list of networks that shares an optimiser."""
    return {"+".join(names): init(optimiser, {n: networks[n] for n in names}) for names in lists}


def descend_lists(
    optimiser: Optimiser,
    networks: Mapping[str, Any],
    gradients: Mapping[str, Any],
    states: Mapping[str, OptState],
    lists: Iterable[tuple[str, ...]],
) -> tuple[dict[str, Any], dict[str, OptState]]:
    """One step of every list that has a gradient; a network without one in such a list counts with zero."""
    networks, states = dict(networks), dict(states)
    for names in lists:
        if any(name in gradients for name in names):
            params = {name: networks[name] for name in names}
            zeros = jax.tree.map(jnp.zeros_like, eqx.filter(params, eqx.is_array))
            gradient = {name: gradients.get(name, zeros[name]) for name in names}
            moved, states["+".join(names)] = descend(optimiser, params, gradient, states["+".join(names)])
            networks.update(moved)
    return networks, states


def lag(target: Params, online: Params, updates: Step, period: int) -> Params:
    """The target network after `updates` updates: a copy of the online one at every `period`-th."""
    copy = updates % period == 0
    return jax.tree.map(lambda old, new: jnp.where(copy, new, old), target, online)
