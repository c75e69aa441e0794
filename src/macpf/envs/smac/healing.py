"""The medivacs: whom they heal, where they fly."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from macpf.envs.smac.battle import Battle, Orders
from macpf.envs.smac.enemy import NOBODY, follow
from macpf.envs.smac.field import Field
from macpf.envs.smac.movement import Place
from macpf.envs.smac.units import FRAMES_PER_SECOND

HEAL_PER_FRAME = 9.0 / FRAMES_PER_SECOND
ENERGY_PER_LIFE = 0.33
ENERGY_TO_START = 5.0  # an opponent's medivac does not begin to heal with less
HEAL_SEARCH = 6.0  # and looks this far for somebody wounded


class Wish(NamedTuple):
    """What a medivac would do: heal the patient (its index) if one is `given`; without one, fly to (x, y).

    The latter if it `goes`; at most so fast.
    """

    patient: Int[Array, ""]
    given: Bool[Array, ""]
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
        patient = jnp.where(wish.given, wish.patient - field.n, NOBODY)
        after = eqx.tree_at(lambda b: b.target, after, jnp.where(itself, patient, after.target))
    return after, flight


def _as_ordered(field: Field, battle: Battle, orders: Orders, medivac: int) -> Wish:
    """An agent's: it heals whom it was told to, if that one needs it."""
    told = orders.heal[medivac]
    patient = jnp.clip(told, 0, field.n - 1)
    given = (told >= 0) & _of(patient, can_be_healed(field, battle))
    x, y, goes = (of[medivac] for of in (orders.goal_x, orders.goal_y, orders.moves))
    return Wish(patient, given, x, y, goes, jnp.asarray(field.speed[medivac]))


def _by_itself(field: Field, battle: Battle, medivac: int) -> Wish:
    """The opponents': it looks after the worst wounded, else stays with its team and no faster than it."""
    patient, given = patient_of(field, battle, medivac)
    x, y, follows = follow(field, battle)
    speeds = [u.speed for u in field.kinds[field.n :] if not u.heals]
    slowest = min(speeds, default=0.0) / FRAMES_PER_SECOND
    return Wish(patient, given, x, y, follows, jnp.where(given, field.speed[medivac], slowest))


def _serve(
    field: Field, battle: Battle, after: Battle, flight: Flight, medivac: int, wish: Wish
) -> tuple[Battle, Flight]:
    """In `after`: it heals a patient in range, flies to one out of it, and is slow to gather speed."""
    index = np.arange(len(field.kinds), dtype=np.int32)
    itself, patient = index == medivac, index == wish.patient
    x, y = _of(wish.patient, battle.x), _of(wish.patient, battle.y)
    away2 = (x - battle.x[medivac]) ** 2 + (y - battle.y[medivac]) ** 2
    arrived = wish.given & (away2 <= _of(wish.patient, _reach2(field, medivac, field.kinds[medivac].range)))
    goes = (wish.given | wish.goes) & ~arrived
    gathered = battle.pace[medivac] + field.kinds[medivac].acceleration / FRAMES_PER_SECOND**2
    pace = jnp.where(goes, jnp.minimum(gathered, wish.pace), 0.0)
    life = jnp.where(arrived, life_given(field, battle, medivac, wish.patient), 0.0)
    after = eqx.tree_at(
        lambda b: (b.health, b.energy, b.pace),
        after,
        (
            jnp.minimum(after.health + jnp.where(patient, life, 0.0), field.health),
            jnp.where(itself, battle.energy - ENERGY_PER_LIFE * life, after.energy),
            jnp.where(itself, pace, after.pace),
        ),
    )
    goal = jnp.where(wish.given, x, wish.x), jnp.where(wish.given, y, wish.y)
    own = Flight(goal, goes, pace)
    return after, jax.tree.map(lambda mine, others: jnp.where(itself, mine, others), own, flight)


def _of(unit: Int[Array, ""], values: Array | np.ndarray) -> Array:
    """What a vector over all units says of one."""
    return jnp.take(values, unit, mode="clip")


def can_be_healed(field: Field, battle: Battle) -> Bool[Array, " U"]:
    """Living things that lack some life."""
    biological = np.asarray([("biological" in unit.attributes) for unit in field.kinds])
    return battle.alive & (battle.health < field.health) & biological


def life_given(field: Field, battle: Battle, medivac: int, patient: Int[Array, ""]) -> Float[Array, ""]:
    """What a frame of a medivac's work gives to a patient in range, while it lives and has energy left."""
    missing = _of(patient, field.health - battle.health)
    life = jnp.minimum(jnp.minimum(HEAL_PER_FRAME, missing), battle.energy[medivac] / ENERGY_PER_LIFE)
    return jnp.where(battle.alive[medivac], life, 0.0)


def _reach2(field: Field, medivac: int, distance: float) -> Float[np.ndarray, " U"]:
    """The squared distances of centres within which others are that far from a medivac's edge."""
    return (distance + field.radius[medivac] + field.radius) ** 2


def patient_of(field: Field, battle: Battle, medivac: int) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """Whom the opponents' medivac looks after: lowest share of life, then nearest, then first; if anybody."""
    n = field.n
    x, y = battle.x - battle.x[medivac], battle.y - battle.y[medivac]
    away2 = x**2 + y**2
    healing, energy = battle.target[medivac - n] >= 0, battle.energy[medivac]
    able = battle.alive[medivac] & jnp.where(healing, energy > 0, energy >= ENERGY_TO_START)
    candidate = can_be_healed(field, battle) & (away2 <= _reach2(field, medivac, HEAL_SEARCH)) & able
    share = jnp.where(candidate, battle.health / field.health, 2.0)  # nobody has more than 1
    least, _, patient = _first((share[n:], away2[n:], jnp.arange(n, len(field.kinds), dtype=jnp.int32)))
    return patient, least <= 1.0


Ranked = tuple[Array, Array, Array]


def _first(ranks: Ranked) -> Ranked:
    """The least of all by the first number, of those alike by the second, then by the third, an index."""

    def lesser(one: Ranked, other: Ranked) -> Ranked:
        (a, b, c), (x, y, z) = one, other
        before = (a < x) | ((a == x) & ((b < y) | ((b == y) & (c < z))))
        return jnp.where(before, a, x), jnp.where(before, b, y), jnp.where(before, c, z)

    last = jnp.asarray(jnp.inf), jnp.asarray(jnp.inf), jnp.asarray(jnp.iinfo(jnp.int32).max)
    a, b, c = jax.lax.reduce(ranks, last, lesser, (0,))
    return a, b, c
