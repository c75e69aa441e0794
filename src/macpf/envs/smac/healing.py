"""The medivacs: whom they heal, where they fly."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from macpf.envs.smac.battle import Battle, Orders
from macpf.envs.smac.enemy import follow
from macpf.envs.smac.field import Field
from macpf.envs.smac.movement import Place
from macpf.envs.smac.units import FRAMES_PER_SECOND

HEAL_PER_FRAME = 9.0 / FRAMES_PER_SECOND
ENERGY_PER_LIFE = 0.33
ENERGY_TO_START = 5.0  # an opponent's medivac does not begin to heal with less
HEAL_SEARCH = 6.0  # and looks this far for somebody wounded


class Wish(NamedTuple):
    """What a medivac would do: heal the patient; without one, fly to (x, y) if it `goes`; at most so fast."""

    patient: Bool[Array, " U"]
    x: Float[Array, ""]
    y: Float[Array, ""]
    goes: Bool[Array, ""]
    pace: Float[Array, ""]


class Flight(NamedTuple):
    """Where units want to go, whether they do, and how far in a frame."""

    goal: Place
    wants: Bool[Array, " U"]
    pace: Float[Array, " U"]


def medivacs(field: Field, battle: Battle, orders: Orders, flight: Flight) -> tuple[Battle, Flight]:
    """A frame of both teams' medivacs, and the flight of all with theirs in its place."""
    for ally in (True, False):
        medivac = field.medivac(ally)
        if medivac is not None:
            if ally:
                wish = _as_ordered(field, battle, orders, flight, medivac)
            else:
                battle, wish = _by_itself(field, battle, medivac)
            battle, flight = _serve(field, battle, flight, medivac, wish)
    return battle, flight


def _as_ordered(field: Field, battle: Battle, orders: Orders, flight: Flight, medivac: int) -> Wish:
    """An agent's: it heals whom it was told to, if that one needs it."""
    told = jnp.concatenate([orders.heal[medivac], jnp.zeros(field.e, bool)])
    (x, y), wants = flight.goal, flight.wants
    return Wish(
        told & can_be_healed(field, battle),
        x[medivac],
        y[medivac],
        wants[medivac],
        jnp.asarray(field.speed[medivac]),
    )


def _by_itself(field: Field, battle: Battle, medivac: int) -> tuple[Battle, Wish]:
    """The opponents': it looks after the worst wounded, else stays with its team and no faster than it."""
    chosen = patient_of(field, battle, medivac)
    battle = eqx.tree_at(lambda b: b.target, battle, battle.target.at[medivac - field.n].set(chosen))
    busy = chosen >= 0
    patient = (jnp.arange(len(field.kinds)) - field.n == chosen) & busy
    x, y, follows = follow(field, battle, medivac)
    speeds = [u.speed for u in field.kinds[field.n :] if not u.heals]
    slowest = min(speeds, default=0.0) / FRAMES_PER_SECOND
    return battle, Wish(patient, x, y, follows, jnp.where(busy, field.speed[medivac], slowest))


def _serve(field: Field, battle: Battle, flight: Flight, medivac: int, wish: Wish) -> tuple[Battle, Flight]:
    """Heals the patient in range, flies to one out of it; a medivac is slow to gather speed."""
    unit = np.arange(len(field.kinds)) == medivac
    in_range, _ = near(field, battle, medivac, field.kinds[medivac].range)
    battle = heal(field, battle, medivac, wish.patient & in_range)
    busy, arrived = jnp.any(wish.patient), jnp.any(wish.patient & in_range)
    goes = (busy | wish.goes) & ~arrived & battle.alive[medivac]
    x, y = (
        jnp.where(busy, jnp.sum(jnp.where(wish.patient, at, 0.0)), otherwise)
        for at, otherwise in ((battle.x, wish.x), (battle.y, wish.y))
    )
    gathered = battle.pace[medivac] + field.kinds[medivac].acceleration / FRAMES_PER_SECOND**2
    pace = jnp.where(goes, jnp.minimum(gathered, wish.pace), 0.0)
    battle = eqx.tree_at(lambda b: b.pace, battle, jnp.where(unit, pace, battle.pace))
    goal = jnp.where(unit, x, flight.goal[0]), jnp.where(unit, y, flight.goal[1])
    return battle, Flight(goal, jnp.where(unit, goes, flight.wants), jnp.where(unit, pace, flight.pace))


def can_be_healed(field: Field, battle: Battle) -> Bool[Array, " U"]:
    """Living things that lack some life."""
    biological = [("biological" in unit.attributes) for unit in field.kinds]
    return battle.alive & (battle.health < field.health) & jnp.asarray(biological)


def heal(field: Field, battle: Battle, medivac: int, patient: Bool[Array, " U"]) -> Battle:
    """A frame of a medivac's work on the one patient, if there is one and energy is left."""
    missing = jnp.sum(jnp.where(patient, field.health - battle.health, 0.0))
    energy = battle.energy[medivac]
    life = jnp.minimum(jnp.minimum(HEAL_PER_FRAME, missing), energy / ENERGY_PER_LIFE)
    life = jnp.where(battle.alive[medivac], life, 0.0)
    return eqx.tree_at(
        lambda b: (b.health, b.energy),
        battle,
        (
            jnp.minimum(battle.health + jnp.where(patient, life, 0.0), field.health),
            battle.energy.at[medivac].add(-ENERGY_PER_LIFE * life),
        ),
    )


def near(
    field: Field, battle: Battle, medivac: int, distance: float
) -> tuple[Bool[Array, " U"], Float[Array, " U"]]:
    """Which units are within a distance of a medivac's edge, and every squared distance of centres."""
    away2 = (battle.x - battle.x[medivac]) ** 2 + (battle.y - battle.y[medivac]) ** 2
    return away2 <= (distance + field.radius[medivac] + field.radius) ** 2, away2


def patient_of(field: Field, battle: Battle, medivac: int) -> Int[Array, ""]:
    """The opponent whom their medivac looks after: lowest share of life, then nearest; -1 for none."""
    in_search, away2 = near(field, battle, medivac, HEAL_SEARCH)
    theirs = jnp.arange(len(field.kinds)) >= field.n
    candidate = can_be_healed(field, battle) & theirs & in_search
    share = jnp.where(candidate, battle.health / field.health, jnp.inf)
    nearest = jnp.where(candidate & (share <= jnp.min(share)), away2, jnp.inf)
    healing = battle.target[medivac - field.n] >= 0
    energy = battle.energy[medivac]
    able = battle.alive[medivac] & jnp.where(healing, energy > 0, energy >= ENERGY_TO_START)
    found = able & jnp.any(candidate)
    return jnp.where(found, jnp.argmin(nearest).astype(jnp.int32) - field.n, -1)
