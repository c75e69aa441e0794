"""The medivacs: whom they heal, where they fly."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from macpf.backend import kept
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

    patient: Bool[Array, " T"]
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
    ours, theirs, after = field.medivac(ally=True), field.medivac(ally=False), battle
    if ours is not None:
        wish = _as_ordered(field, battle, orders, ours)
        after, flight = _serve(field, battle, after, flight, ours, wish)
    if theirs is not None:
        wish = _by_itself(field, battle, theirs)
        after, flight = _serve(field, battle, after, flight, theirs, wish)
        itself = np.arange(field.n, len(field.kinds)) == theirs
        patient = jnp.max(jnp.where(wish.patient, np.arange(field.e, dtype=np.int32), -1))
        after = eqx.tree_at(lambda b: b.target, after, jnp.where(itself, patient, after.target))
    return after, flight


def _team(field: Field, medivac: int) -> slice:
    """Those whom a medivac can heal: all of its team."""
    return slice(0, field.n) if medivac < field.n else slice(field.n, None)


def _as_ordered(field: Field, battle: Battle, orders: Orders, medivac: int) -> Wish:
    """An agent's: it heals whom it was told to, if that one needs it."""
    patient = orders.heal[medivac] & can_be_healed(field, battle, medivac)
    x, y, goes = (of[medivac] for of in (orders.goal_x, orders.goal_y, orders.moves))
    return Wish(patient, x, y, goes, jnp.asarray(field.speed[medivac]))


def _by_itself(field: Field, battle: Battle, medivac: int) -> Wish:
    """The opponents': it looks after the worst wounded, else stays with its team and no faster than it."""
    patient = patient_of(field, battle, medivac)
    x, y, follows = follow(field, battle)
    speeds = [u.speed for u in field.kinds[field.n :] if not u.heals]
    slowest = min(speeds, default=0.0) / FRAMES_PER_SECOND
    return Wish(patient, x, y, follows, jnp.where(jnp.any(patient), field.speed[medivac], slowest))


def _serve(
    field: Field, battle: Battle, after: Battle, flight: Flight, medivac: int, wish: Wish
) -> tuple[Battle, Flight]:
    """In `after`: it heals a patient in range, flies to one out of it, and is slow to gather speed."""
    itself, team = np.arange(len(field.kinds)) == medivac, _team(field, medivac)
    in_range, _ = near(field, battle, medivac, field.kinds[medivac].range)
    busy, arrived = jnp.any(wish.patient), jnp.any(wish.patient & in_range)
    goes = (busy | wish.goes) & ~arrived
    x, y = (
        jnp.where(busy, jnp.sum(jnp.where(wish.patient, at[team], 0.0)), otherwise)
        for at, otherwise in ((battle.x, wish.x), (battle.y, wish.y))
    )
    gathered = battle.pace[medivac] + field.kinds[medivac].acceleration / FRAMES_PER_SECOND**2
    pace = jnp.where(goes, jnp.minimum(gathered, wish.pace), 0.0)
    life = life_given(field, battle, medivac, wish.patient & in_range)
    after = eqx.tree_at(
        lambda b: (b.health, b.energy, b.pace),
        after,
        (
            jnp.minimum(after.health + _of_all(field, medivac, life), field.health),
            jnp.where(itself, battle.energy - ENERGY_PER_LIFE * jnp.sum(life), after.energy),
            jnp.where(itself, pace, after.pace),
        ),
    )
    own = Flight((x, y), goes, pace)
    return after, jax.tree.map(lambda mine, others: jnp.where(itself, mine, others), own, flight)


def _of_all(field: Field, medivac: int, of_team: Float[Array, " T"]) -> Float[Array, " U"]:
    """The values of a medivac's team, and 0 of the other."""
    others = jnp.zeros(len(field.kinds) - len(of_team))
    return of_all(of_team, others) if medivac < field.n else of_all(others, of_team)


def can_be_healed(field: Field, battle: Battle, medivac: int) -> Bool[Array, " T"]:
    """Living things of a medivac's team that lack some life."""
    biological = np.asarray([("biological" in unit.attributes) for unit in field.kinds])
    return (battle.alive & (battle.health < field.health) & biological)[_team(field, medivac)]


def life_given(field: Field, battle: Battle, medivac: int, patient: Bool[Array, " T"]) -> Float[Array, " T"]:
    """What a frame of a medivac's work gives to its one patient, if there is one and energy is left."""
    missing = (field.health - battle.health)[_team(field, medivac)]
    life = jnp.minimum(jnp.minimum(HEAL_PER_FRAME, missing), battle.energy[medivac] / ENERGY_PER_LIFE)
    return jnp.where(patient & battle.alive[medivac], life, 0.0)


def near(
    field: Field, battle: Battle, medivac: int, distance: float
) -> tuple[Bool[Array, " T"], Float[Array, " T"]]:
    """Who of its team is within a distance of a medivac's edge, and every squared distance of centres."""
    team = _team(field, medivac)
    x, y = (at[team] - at[medivac] for at in (battle.x, battle.y))
    away2 = x**2 + y**2
    return away2 <= (distance + field.radius[medivac] + field.radius[team]) ** 2, away2


def patient_of(field: Field, battle: Battle, medivac: int) -> Bool[Array, " T"]:
    """The opponent whom their medivac looks after: lowest share of life, then nearest, then first."""
    in_search, away2 = near(field, battle, medivac, HEAL_SEARCH)
    healing = battle.target[medivac - field.n] >= 0
    energy = battle.energy[medivac]
    able = battle.alive[medivac] & jnp.where(healing, energy > 0, energy >= ENERGY_TO_START)
    candidate = can_be_healed(field, battle, medivac) & in_search & able
    share = (battle.health / field.health)[field.n :]
    share = kept(jnp.where(candidate, share, 2.0))  # nobody has more than 1
    before = np.tri(field.e, k=-1, dtype=bool).T  # of each pair, whether the one comes before the other
    for rank in (away2, share):
        one, other = rank[:, None], rank[None]
        before = (one < other) | ((one == other) & before)
    return candidate & ~jnp.any(before, axis=0)
