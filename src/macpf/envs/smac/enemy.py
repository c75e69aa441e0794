"""The opponents' mind: what SC2's units do by themselves under an attack order, and no more."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from macpf.envs.smac.battle import Battle
from macpf.envs.smac.field import Field
from macpf.envs.smac.maps import Hunt

KEPT, HEALER = -1e6, -1e4  # ranks before any distance
ANSWERED = 1e4  # and behind any
NOBODY = -1


def choose_targets(field: Field, battle: Battle, distance2: Float[Array, "N E"]) -> Int[Array, " E"]:
    """Each opponent's target: the present one while in reach, else the nearest in sight, else who hit it.

    Sight is the scan range of its weapon, unless the order is to hunt. Ties go to the lowest index.
    """
    n, fire, rules = field.n, field.theirs, field.rules
    index = jnp.arange(n, dtype=jnp.int32)[:, None]
    can = (battle.alive[:n, None] & battle.alive[None, n:]) & (fire.reach2.T >= 0)
    hunts = isinstance(field.scenario.order, Hunt)
    seen = can if hunts else can & (distance2 <= fire.scan2.T)
    kept = can & (battle.target[None] == index) & (distance2 <= fire.reach2.T)
    answered = (battle.foe[None] == index) & (battle.alarm > 0)[None] & (distance2 <= rules.leash**2)
    rank = jnp.where(seen, distance2, jnp.where(can & answered, distance2 + ANSWERED, jnp.inf))
    rank = jnp.where(kept, KEPT, rank)
    if rules.healer_priority == "top" and field.heals[:n].any():
        rank = jnp.where(seen & field.heals[:n, None], distance2 + HEALER + KEPT, rank)
    best = jnp.min(rank, axis=0)
    first = jnp.min(jnp.where(rank <= best[None], index, n), axis=0)
    chosen = jnp.where(jnp.isfinite(best), first, NOBODY)
    return jnp.where(field.heals[n:], battle.target, chosen)  # a medivac has its own way to choose


def call_for_help(field: Field, battle: Battle, frames: int) -> tuple[Int[Array, " E"], Int[Array, " E"]]:
    """Whom each opponent remembers as its foe, and how long, once those just hit have told their friends."""
    n, rules = field.n, field.rules
    x, y = battle.x[n:], battle.y[n:]
    beside = (x[:, None] - x[None]) ** 2 + (y[:, None] - y[None]) ** 2 <= rules.help_radius**2
    heard = (
        rules.memory_frames - frames
    )  # less than those who were hit will remember it, so that it is not passed on
    fresh = battle.alarm > heard
    told = jnp.min(jnp.where(beside & fresh[None], battle.foe[None], n), axis=1)
    hears = ~fresh & (told < n)
    foe = jnp.where(hears, told, battle.foe)
    return foe, jnp.where(hears, heard, battle.alarm)


def follow(field: Field, battle: Battle) -> tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]]:
    """Where their medivac flies when nobody needs it: to the middle of its living friends."""
    n = field.n
    friends = battle.alive[n:] & ~field.heals[n:]
    count = jnp.sum(1.0 * friends)
    middle_x = jnp.sum(jnp.where(friends, battle.x[n:], 0.0)) / jnp.maximum(count, 1.0)
    middle_y = jnp.sum(jnp.where(friends, battle.y[n:], 0.0)) / jnp.maximum(count, 1.0)
    follows = (count > 0) if field.rules.enemy_medivac == "follow" else jnp.asarray(False)
    return middle_x, middle_y, follows
