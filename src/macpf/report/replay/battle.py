"""A battle looked at again, frame by frame: where all were in every step, who shot, healed and burst."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt32

from macpf.envs.smac import SMAC, Battle
from macpf.envs.smac.combat import ENERGY_MOST, ENERGY_PER_FRAME
from macpf.envs.smac.env import orders_of
from macpf.envs.smac.observe import FIRST_TARGET
from macpf.envs.smac.simulation import delays, frame
from macpf.report.replay.record import Played

LEAST_WORK = 1e-4  # energy that healing takes, at least


@dataclass(frozen=True)
class Course:
    """A step of F frames: row f of the states is before frame f, row F at the end.

    `shot[f, u]` and `healed[f, u]`: at whom unit u fired in frame f, and whom it healed, -1 for nobody;
    `burst[f, u]`: did the baneling explode?
    """

    states: Battle
    shot: Int[np.ndarray, "F U"]
    healed: Int[np.ndarray, "F U"]
    burst: Bool[np.ndarray, "F U"]

    @property
    def frames(self) -> int:
        return len(self.shot)


def courses(env: SMAC, plays: Sequence[Played]) -> tuple[tuple[Course, ...], ...]:
    """The course of every step of every episode."""
    befores, dones, keys = zip(*(_steps(played) for played in plays), strict=True)
    before = jax.tree.map(lambda *parts: jnp.concatenate(parts), *befores)
    again = _watch(env, before, jnp.concatenate(dones), jnp.concatenate(keys))
    again = jax.tree.map(np.asarray, again)
    found = iter([_course(env, jax.tree.map(lambda x, t=t: x[t], again)) for t in range(len(again.time))])
    return tuple(tuple(next(found) for _ in range(played.steps)) for played in plays)


def _steps(played: Played) -> tuple[Battle, Int[np.ndarray, "T N"], UInt32[np.ndarray, "T 2"]]:
    """The battle before every step, what was done in it, and its key."""
    return jax.tree.map(lambda x: x[:-1], played.states), played.states.actions[1:], played.keys


@partial(jax.jit, static_argnums=0)
def _watch(env: SMAC, before: Battle, done: Int[Array, "T N"], keys: UInt32[Array, "T 2"]) -> Battle:
    """The steps once more, with the battle before each frame and at the end, as `SMAC.step` has them."""

    def step(now: tuple[Battle, Array, Array]) -> Battle:
        battle, actions, words = now
        orders = orders_of(env.field, env.interface, battle, actions)
        delay = delays(env.field, jax.random.wrap_key_data(words))

        def advance(battle: Battle, _: None) -> tuple[Battle, Battle]:
            after = frame(env.field, battle, orders, delay)
            return after, after

        battle = eqx.tree_at(lambda b: b.actions, battle, actions)
        _, later = jax.lax.scan(advance, battle, length=env.interface.step_mul)
        return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), battle, later)

    return jax.lax.map(step, (before, done, keys))


def _course(env: SMAC, states: Battle) -> Course:
    """Who did what, by what became of weapons and of energy."""
    field, aims = env.field, _aims(env, states)
    before, after = (
        jax.tree.map(lambda x, rows=rows: x[rows], states) for rows in (slice(-1), slice(1, None))
    )
    burst = before.loaded & ~after.loaded
    shot = (after.cooldown > np.maximum(before.cooldown - 1, 0)) & ~burst
    rested = np.minimum(before.energy + ENERGY_PER_FRAME, ENERGY_MOST)
    healed = field.heals & (before.health > 0) & (after.energy < rested - LEAST_WORK)
    return Course(states, np.where(shot, aims, -1), np.where(healed, aims, -1), burst)


def _aims(env: SMAC, states: Battle) -> Int[np.ndarray, "F U"]:
    """Whom all aim at in every frame, by the order of the step or, of opponents, by their own choice."""
    n, heals = env.field.n, env.field.heals
    told = states.actions[1:] - FIRST_TARGET
    ours = np.where(heals[:n], told, told + n)
    theirs = np.where(heals[n:], states.target[1:] + n, states.target[1:])
    return np.concatenate([ours, theirs], axis=1)
