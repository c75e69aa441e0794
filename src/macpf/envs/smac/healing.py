"""The medivacs: whom they heal, where they fly."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from macpf.envs.smac.battle import Battle, Orders, of_all
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

    patient: Bool[Array, "*m U"]
    x: Float[Array, "*m"]
    y: Float[Array, "*m"]
    goes: Bool[Array, "*m"]
    pace: Float[Array, "*m"]


class Flight(NamedTuple):
    """Where units want to go, whether they do, and how far in a frame."""

    goal: Place
    wants: Bool[Array, " U"]
    pace: Float[Array, " U"]


def medivacs(field: Field, battle: Battle, orders: Orders, flight: Flight) -> tuple[Battle, Flight]:
    """A frame of both teams' medivacs, and the flight of all with theirs in its place."""
    wishes: list[Wish] = []
    ours, theirs = field.medivac(ally=True), field.medivac(ally=False)
    if ours is not None:
        wishes.append(_as_ordered(field, battle, orders, flight, ours))
    if theirs is not None:
        battle, wish = _by_itself(field, battle, theirs)
        wishes.append(wish)
    rows = np.arange(len(wishes))  # one or two; by a choice, for the reason that `of_all` gives

    def in_rows(first: Array, last: Array) -> Array:
        return jnp.where(rows.reshape(-1, *[1] * first.ndim) == 0, first[None], last[None])

    wish = jax.tree.map(in_rows, wishes[0], wishes[-1])
    return _serve(field, battle, flight, np.flatnonzero(field.heals), wish)


def _as_ordered(field: Field, battle: Battle, orders: Orders, flight: Flight, medivac: int) -> Wish:
    """An agent's: it heals whom it was told to, if that one needs it."""
    told = of_all(orders.heal[medivac], jnp.zeros(field.e, bool))
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
    itself = np.arange(field.n, len(field.kinds)) == medivac
    battle = eqx.tree_at(lambda b: b.target, battle, jnp.where(itself, chosen, battle.target))
    busy = chosen >= 0
    patient = (jnp.arange(len(field.kinds)) - field.n == chosen) & busy
    x, y, follows = follow(field, battle, medivac)
    speeds = [u.speed for u in field.kinds[field.n :] if not u.heals]
    slowest = min(speeds, default=0.0) / FRAMES_PER_SECOND
    return battle, Wish(patient, x, y, follows, jnp.where(busy, field.speed[medivac], slowest))


def _serve(
    field: Field, battle: Battle, flight: Flight, medivac: Int[np.ndarray, " M"], wish: Wish
) -> tuple[Battle, Flight]:
    """They heal patients in range, and fly to those out of it; a medivac is slow to gather speed."""

    def own(of_each: Shaped[Array, " M"], others: Shaped[Array, " U"]) -> Shaped[Array, " U"]:
        """The values of all, with the medivacs' own in their place."""
        for itself, value in zip(_which(field, medivac), of_each, strict=True):
            others = jnp.where(itself, value, others)
        return others

    alive = battle.alive[medivac]
    in_range, _ = near(field, battle, medivac, np.asarray([field.kinds[m].range for m in medivac]))
    battle = heal(field, battle, medivac, wish.patient & in_range)
    busy, arrived = jnp.any(wish.patient, axis=1), jnp.any(wish.patient & in_range, axis=1)
    goes = (busy | wish.goes) & ~arrived & alive
    x, y = (
        jnp.where(busy, jnp.sum(jnp.where(wish.patient, at[None], 0.0), axis=1), otherwise)
        for at, otherwise in ((battle.x, wish.x), (battle.y, wish.y))
    )
    acceleration = np.asarray([field.kinds[m].acceleration for m in medivac], np.float32)
    gathered = battle.pace[medivac] + acceleration / FRAMES_PER_SECOND**2
    pace = jnp.where(goes, jnp.minimum(gathered, wish.pace), 0.0)
    battle = eqx.tree_at(lambda b: b.pace, battle, own(pace, battle.pace))
    goal = own(x, flight.goal[0]), own(y, flight.goal[1])
    return battle, Flight(goal, own(goes, flight.wants), own(pace, flight.pace))


def _which(field: Field, medivac: Int[np.ndarray, " M"]) -> Bool[np.ndarray, "M U"]:
    """Which unit each medivac is."""
    return medivac[:, None] == np.arange(len(field.kinds))


def can_be_healed(field: Field, battle: Battle) -> Bool[Array, " U"]:
    """Living things that lack some life."""
    biological = [("biological" in unit.attributes) for unit in field.kinds]
    return battle.alive & (battle.health < field.health) & jnp.asarray(biological)


def heal(field: Field, battle: Battle, medivac: Int[np.ndarray, " M"], patient: Bool[Array, "M U"]) -> Battle:
    """A frame of each medivac's work on its one patient, if there is one and energy is left."""
    missing = jnp.sum(jnp.where(patient, (field.health - battle.health)[None], 0.0), axis=1)
    life = jnp.minimum(jnp.minimum(HEAL_PER_FRAME, missing), battle.energy[medivac] / ENERGY_PER_LIFE)
    life = jnp.where(battle.alive[medivac], life, 0.0)
    who = patient, _which(field, medivac)
    gained, spent = (jnp.sum(jnp.where(rows, life[:, None], 0.0), axis=0) for rows in who)
    return eqx.tree_at(
        lambda b: (b.health, b.energy),
        battle,
        (jnp.minimum(battle.health + gained, field.health), battle.energy - ENERGY_PER_LIFE * spent),
    )


def near(
    field: Field, battle: Battle, medivac: Int[np.ndarray, " M"], distance: float | Float[np.ndarray, " M"]
) -> tuple[Bool[Array, "M U"], Float[Array, "M U"]]:
    """Which units are within a distance of a medivac's edge, and every squared distance of centres."""
    x, y = (at[None] - at[medivac][:, None] for at in (battle.x, battle.y))
    away2 = x**2 + y**2
    reach = np.asarray(distance + field.radius[medivac])[:, None] + field.radius
    return away2 <= reach.astype(np.float32) ** 2, away2


def patient_of(field: Field, battle: Battle, medivac: int) -> Int[Array, ""]:
    """The opponent whom their medivac looks after: lowest share of life, then nearest; -1 for none."""
    (in_search,), (away2,) = near(field, battle, np.asarray([medivac]), HEAL_SEARCH)
    theirs = jnp.arange(len(field.kinds)) >= field.n
    candidate = can_be_healed(field, battle) & theirs & in_search
    share = jnp.where(candidate, battle.health / field.health, jnp.inf)
    nearest = jnp.where(candidate & (share <= jnp.min(share)), away2, jnp.inf)
    healing = battle.target[medivac - field.n] >= 0
    energy = battle.energy[medivac]
    able = battle.alive[medivac] & jnp.where(healing, energy > 0, energy >= ENERGY_TO_START)
    found = able & jnp.any(candidate)
    return jnp.where(found, jnp.argmin(nearest).astype(jnp.int32) - field.n, -1)
