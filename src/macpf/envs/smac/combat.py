"""The rules of combat: who fires, what a hit does, explosions, healing, regeneration."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from macpf.backend import kept
from macpf.envs.smac.battle import Battle, of_all
from macpf.envs.smac.field import Field, Fire
from macpf.envs.smac.units import FRAMES_PER_SECOND

LEAST_HIT = 0.5  # what a hit takes of life however thick the armour
BEAM_LENGTH, BEAM_WIDTH = 1.4, 0.15  # of a colossus, half of each
SHIELD_WAIT = 10.0 * FRAMES_PER_SECOND  # without a hit before shields regenerate
SHIELD_PER_FRAME = 2.0 / FRAMES_PER_SECOND
ENERGY_START, ENERGY_MOST = 50.0, 200.0  # of a medivac
ENERGY_PER_FRAME = 0.5625 / FRAMES_PER_SECOND


def recover(field: Field, battle: Battle) -> Battle:
    """One frame of time: weapons cool down; shields, zerg life and energy come back to the living."""
    alive = battle.alive
    health, shield, unhurt, energy = battle.health, battle.shield, battle.unhurt, battle.energy
    if field.regeneration.any():
        healed = jnp.minimum(health + field.regeneration, field.health)
        health = jnp.where(alive, healed, health)
    if field.shield.any():
        unhurt = jnp.maximum(unhurt - 1.0, 0.0)
        charged = jnp.minimum(shield + SHIELD_PER_FRAME, field.shield)
        shield = jnp.where(alive & (unhurt <= 0), charged, shield)
    if field.heals.any():
        energy = jnp.where(field.heals & alive, jnp.minimum(energy + ENERGY_PER_FRAME, ENERGY_MOST), energy)
    cooldown = jnp.where(battle.cooldown > 0, battle.cooldown - 1.0, 0.0)
    alarm = jnp.maximum(battle.alarm - 1, 0)
    return eqx.tree_at(
        lambda b: (b.health, b.shield, b.unhurt, b.energy, b.cooldown, b.alarm),
        battle,
        (health, shield, unhurt, energy, cooldown, alarm),
    )


Damage = tuple[Array, Array]  # of each victim: the sum of all hits before armour, and their number


class Aim(eqx.Module):
    """Whom each of one team goes for: its index, its place, if there is anybody, and if it is in reach."""

    target: Int[Array, " K"]
    x: Float[Array, " K"]
    y: Float[Array, " K"]
    given: Bool[Array, " K"]
    reached: Bool[Array, " K"]


def aim(field: Field, battle: Battle, target: Int[Array, " K"], ally: bool) -> Aim:
    """One team's targets (of those below 0 nothing is so but the index), as far as they can be attacked."""
    n = field.n
    fire, mine, others = (
        (field.ours, slice(0, n), slice(n, None)) if ally else (field.theirs, slice(n, None), slice(0, n))
    )
    which = jnp.clip(target, 0, fire.reach2.shape[1] - 1)
    row = np.arange(len(target), dtype=np.int32) * fire.reach2.shape[1]
    reach2 = jnp.take(fire.reach2.ravel(), row + which, mode="clip")
    x, y, lives = (jnp.take(of[others], which, mode="clip") for of in (battle.x, battle.y, battle.alive))
    given = (target >= 0) & battle.alive[mine] & lives & (reach2 >= 0)
    away2 = (x - battle.x[mine]) ** 2 + (y - battle.y[mine]) ** 2
    return Aim(target, x, y, given, given & (away2 <= reach2))


class Volley(eqx.Module):
    """What one team's weapons do in a frame: `hit[k, v]`: does k's shot strike v?"""

    fired: Bool[Array, " K"]
    hit: Bool[Array, "K V"]


def volley(
    fire: Fire,
    aim: Aim,
    ready: Bool[Array, " K"],
    x: Float[Array, " K"],
    y: Float[Array, " K"],
    victims_x: Float[Array, " V"],
    victims_y: Float[Array, " V"],
) -> Volley:
    """Whoever is ready and has its target in reach fires; a colossus strikes all that its beam touches."""
    fired = kept(jnp.where(aim.reached & ready, 1.0, 0.0)) > 0
    hit = (aim.target[:, None] == jnp.arange(len(victims_x), dtype=jnp.int32)[None]) & fired[:, None]
    if fire.colossi is not None:
        rows = fire.colossi
        touched = _beam(fire, aim.x[rows], aim.y[rows], x[rows], y[rows], victims_x, victims_y)
        hit = hit.at[rows].set(touched & fired[rows, None])
    if fire.banelings is not None:  # their damage is that of the explosion
        hit = hit.at[fire.banelings].set(False)
    return Volley(fired, hit)


def _beam(
    fire: Fire,
    aim_x: Float[Array, " C"],
    aim_y: Float[Array, " C"],
    x: Float[Array, " C"],
    y: Float[Array, " C"],
    victims_x: Float[Array, " V"],
    victims_y: Float[Array, " V"],
) -> Bool[Array, "C V"]:
    """Whose circle touches the rectangle across the line of fire, with the target in its middle."""
    dx, dy = aim_x - x, aim_y - y
    length = jnp.sqrt(dx**2 + dy**2)
    ahead_x = jnp.where(length > 0, dx / jnp.maximum(length, 1e-6), 1.0)[:, None]
    ahead_y = jnp.where(length > 0, dy / jnp.maximum(length, 1e-6), 0.0)[:, None]
    off_x, off_y = victims_x[None] - aim_x[:, None], victims_y[None] - aim_y[:, None]
    along = jnp.maximum(jnp.abs(off_x * ahead_x + off_y * ahead_y) - BEAM_WIDTH, 0.0)
    across = jnp.maximum(jnp.abs(off_x * ahead_y - off_y * ahead_x) - BEAM_LENGTH, 0.0)
    return (along**2 + across**2 <= (fire.radius**2)[None]) & (fire.radius >= 0)[None]


def wound(
    health: Float[Array, " V"],
    shield: Float[Array, " V"],
    armour: ndarray,
    raw: Float[Array, " V"],
    hits: Float[Array, " V"],
) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
    """What is left after so many hits with so much damage in sum: shields first, then life, less armour.

    Exact for one hit, and for several without shields; what passes a shield is spread over the hits evenly.
    """
    absorbed = jnp.minimum(shield, raw)
    through = raw - absorbed
    piercing = jnp.ceil(hits * through / jnp.maximum(raw, 1e-6) - 1e-4)
    loss = jnp.maximum(LEAST_HIT * piercing, through - armour * piercing)
    return jnp.maximum(health - loss, 0.0), shield - absorbed


def struck(fire: Fire, shots: Volley) -> Damage:
    """What every victim takes of the shots."""
    raw = jnp.sum(jnp.where(shots.hit, fire.power, 0.0), axis=0)
    hits = jnp.sum(jnp.where(shots.hit, fire.hits[:, None], 0.0), axis=0)
    return raw, hits


def blasted(fire: Fire, bursts: Bool[Array, " K"], distance2: Float[Array, "K V"]) -> Damage:
    """What every victim takes of the explosions of those of the team's banelings that burst."""
    rows = fire.banelings
    caught = bursts[rows, None] & (distance2[rows] <= fire.blast2[None])
    return jnp.sum(jnp.where(caught, fire.power[rows], 0.0), axis=0), jnp.sum(1.0 * caught, axis=0)


def fight(
    field: Field,
    battle: Battle,
    distance2: Float[Array, "N E"],
    ours: Aim,
    theirs: Aim,
    delay: Float[Array, " U"],
) -> Battle:
    """All weapons of one frame at once."""
    n, x, y = field.n, battle.x, battle.y
    ready = battle.cooldown <= 0
    our_shots = volley(field.ours, ours, ready[:n], x[:n], y[:n], x[n:], y[n:])
    their_shots = volley(field.theirs, theirs, ready[n:], x[n:], y[n:], x[:n], y[:n])
    fired = of_all(our_shots.fired, their_shots.fired)
    raw, hits = _both(struck(field.theirs, their_shots), struck(field.ours, our_shots))
    alive = battle.alive
    raw = jnp.where(alive, raw, 0.0)
    health, shield = wound(battle.health, battle.shield, field.armour, raw, hits)
    hurt, loaded = raw > 0, battle.loaded
    if field.ours.banelings is not None or field.theirs.banelings is not None:
        bursts = loaded & (fired | (health <= 0))
        health, loaded = jnp.where(bursts, 0.0, health), loaded & ~bursts
        raw, hits = _explosions(field, bursts, distance2)
        raw = jnp.where(health > 0, raw, 0.0)
        health, shield = wound(health, shield, field.armour, raw, hits)
        hurt = hurt | (raw > 0)
    first = jnp.min(jnp.where(our_shots.hit, jnp.arange(n, dtype=jnp.int32)[:, None], n), axis=0)
    hit = first < n
    return eqx.tree_at(
        lambda b: (b.health, b.shield, b.cooldown, b.unhurt, b.loaded, b.foe, b.alarm),
        battle,
        (
            health,
            shield,
            jnp.where(fired, battle.cooldown + field.period + delay, battle.cooldown),
            jnp.where(hurt, SHIELD_WAIT, battle.unhurt),
            loaded,
            jnp.where(hit, first, battle.foe),
            jnp.where(hit, field.rules.memory_frames, battle.alarm),
        ),
    )


def _both(allies: Damage, enemies: Damage) -> Damage:
    return of_all(allies[0], enemies[0]), of_all(allies[1], enemies[1])


def _explosions(field: Field, bursts: Bool[Array, " U"], distance2: Float[Array, "N E"]) -> Damage:
    """Damage and hits that all units take from the other team's banelings."""
    n = field.n

    def of(fire: Fire, bursts: Bool[Array, " K"], distance2: Float[Array, "K V"]) -> Damage:
        if fire.banelings is None:
            return jnp.zeros(distance2.shape[1]), jnp.zeros(distance2.shape[1])
        return blasted(fire, bursts, distance2)

    return _both(of(field.theirs, bursts[n:], distance2.T), of(field.ours, bursts[:n], distance2))
