"""Units placed by hand: a battle in which everything but what a test names is as at the start."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from macpf.envs.smac import SMAC, Battle, Group, Rules, Scenario
from macpf.envs.smac.env import begin, orders_of
from macpf.envs.smac.maps import Hold, Order
from macpf.envs.smac.simulation import simulate
from tests.helpers import quick_jit

NOWHERE = (2.5, 2.5)
STILL = Rules(weapon_delay=(0, 0), first_frames=0)  # no chance, and the first observation at once


def duel(
    allies: str, enemies: str, *, terrain: str = "flat", order: Order | None = None, limit: int = 1000
) -> Scenario:
    """A scenario of "2 marine, 1 medivac" against others, who have no order."""

    def team(words: str) -> tuple[Group, ...]:
        pairs = [part.split() for part in words.split(",")]
        return tuple(Group(unit, int(count), (10.0 + 9 * (words == enemies), 16.0)) for count, unit in pairs)

    return Scenario(team(allies), team(enemies), terrain, order or Hold(), limit)


def staged(env: SMAC, places: Sequence[tuple[float, float]], **changes: Any) -> Battle:
    """The start with all units at the places; a change of a field maps units to values, or is an array."""
    key = jax.random.key(0)
    battle = begin(env.field, key, key)
    x, y = jnp.asarray(places, jnp.float32).T
    battle = replace(battle, x=x, y=y)
    for name, change in changes.items():
        value = np.array(getattr(battle, name))
        if isinstance(change, Mapping):
            for unit, entry in change.items():
                value[unit] = entry
        else:
            value = np.asarray(change, value.dtype)
        battle = replace(battle, **{name: jnp.asarray(value)})
    return battle


@cache
def frame_of(env: SMAC) -> Callable[..., Battle]:
    """One frame of the simulation under some actions, compiled: (battle, actions, key) -> battle."""

    def one(battle: Battle, actions: Any, key: Any) -> Battle:
        orders = orders_of(env.field, env.interface, battle, actions)
        return simulate(env.field, battle, orders, key, 1)

    return quick_jit(one)


@cache
def step_of(env: SMAC) -> Callable[..., Any]:
    """The step of an environment, compiled."""
    return quick_jit(env.step)


@cache
def seen_of(env: SMAC) -> Callable[..., Any]:
    """What the environment shows of a battle, compiled."""
    return quick_jit(lambda battle: env._arrive(battle, jnp.zeros(())))


def play_frames(
    env: SMAC, battle: Battle, actions: Sequence[int], frames: int, seed: int = 0
) -> list[Battle]:
    """The battle after each of some frames of the same actions; a move's goal is ever the same way off."""
    run, chosen = frame_of(env), jnp.asarray(actions, jnp.int32)
    out = [battle]
    for key in jax.random.split(jax.random.key(seed), frames):
        out.append(run(out[-1], chosen, key))
    return out


def with_health(battle: Battle, health: Mapping[int, float]) -> Battle:
    """The battle with the health of some units set."""
    value = battle.health
    for unit, life in health.items():
        value = value.at[unit].set(life)
    return eqx.tree_at(lambda b: b.health, battle, value)
