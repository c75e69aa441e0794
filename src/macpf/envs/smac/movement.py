"""Movement: where units want to go, how they make room for each other, and where the ground lets them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from macpf.backend import kept, row_sums, settled
from macpf.envs.smac.battle import Battle
from macpf.envs.smac.field import Field
from macpf.envs.smac.terrain import BORDER, EDGE, SIZE, heading, is_open

Vector = Float[Array, " U"]
Place = tuple[Vector, Vector]

FAR = 1e3  # further than anybody can be from another
LARGEST_PUSH = 0.25  # of a unit by its neighbours in one sweep
SQUEEZE = 0.05  # about so far a unit may be about to walk into somebody without going round it
GOING_YIELDS, STANDING_YIELDS = 1e-3, 0.1  # how readily one makes room for its own
STUCK = 0.5  # with less than this part of its step done, a unit made no progress


class Pairs(NamedTuple):
    """Vectors from the first of two units to the second, and the room between them; no roots are needed.

    `closing` is by how much a step of the first brings it nearer to the second, times their distance d. As
    long as that is at most `room`, two whose centres keep a distance of a do not come to overlap, since
    (d^2 - a^2) / 2 <= d (d - a).
    """

    x: Float[Array, "U U"]
    y: Float[Array, "U U"]
    room: Float[Array, "U U"]

    def closing(self, by: Place) -> Float[Array, "U U"]:
        return by[0][:, None] * self.x + by[1][:, None] * self.y

    def met(self, by: Place) -> Float[Array, "U U"]:
        """The same for the second's step towards the first."""
        return -(by[0][None] * self.x + by[1][None] * self.y)


def pairs(field: Field, battle: Battle) -> Pairs:
    """All pairs of units; the dead are far from everybody, and two at the very same place part by index."""
    order = np.arange(len(field.kinds), dtype=np.float32)
    x = kept(jnp.where(battle.alive, battle.x + 1e-5 * order, FAR * (1 + order)))
    dx, dy = x[None] - x[:, None], battle.y[None] - battle.y[:, None]
    apart2 = np.where(field.apart > 0, field.apart**2, -(FAR**2))
    return Pairs(dx, dy, (dx**2 + dy**2 - apart2) / 2)


def steps(
    field: Field,
    battle: Battle,
    goal: Place,
    goes: Bool[Array, " U"],
    straight: Bool[Array, " U"],
    pace: Vector,
) -> Place:
    """How far each unit moves in this frame towards its goal, round corners unless it goes straight."""
    to_x, to_y = goal
    if field.land.paths is not None:
        way_x, way_y = heading(field.land.paths, battle.x, battle.y, to_x, to_y)
        direct = straight | (field.strides | field.flies)
        to_x, to_y = jnp.where(direct, to_x, way_x), jnp.where(direct, to_y, way_y)
    dx, dy = to_x - battle.x, to_y - battle.y
    share = jnp.minimum(pace / jnp.maximum(jnp.sqrt(dx**2 + dy**2), 1e-6), 1.0)
    share = jnp.where(goes, share, 0.0)
    return dx * share, dy * share


def move(field: Field, battle: Battle, by: Place, fixed: Bool[Array, " U"]) -> tuple[Place, Vector]:
    """The places after a frame, and the side on which each unit goes round others.

    Everybody steps, who would run into others gives way, then the ground and the room that is left have the
    last word. Between teams only who moves gives way; of one team, whoever is not `fixed`.
    """
    x, y = battle.x, battle.y
    between = pairs(field, battle)
    by, turn = settled(round_others(field, battle, between, by, fixed))
    by_x, by_y = make_room(field, between, by, fixed)
    to_x, to_y = on_ground(field, (x, y), (x + by_x, y + by_y))
    to_x, to_y = keep_apart(field, (x, y), (to_x, to_y), between)
    done2 = (to_x - x) ** 2 + (to_y - y) ** 2
    stuck = done2 < STUCK**2 * (by[0] ** 2 + by[1] ** 2)
    return (to_x, to_y), _reconsidered(turn, stuck)


def _reconsidered(turn: Vector, stuck: Bool[Array, " U"]) -> Vector:
    """The side after a frame: half of 1 or -1 after one without progress, the other side after two."""
    side = jnp.sign(turn)
    return jnp.where(stuck, jnp.where(jnp.abs(turn) < 1, -side, side / 2), side)


def round_others(
    field: Field, battle: Battle, between: Pairs, by: Place, fixed: Bool[Array, " U"]
) -> tuple[Place, Vector]:
    """Who is about to walk into somebody that stands goes along its edge instead, round one side of it.

    The side is at first the one away from the middle of its own team, so that a team flows round both
    flanks of what it attacks; it is kept until there is no way through.
    """
    x, y, (by_x, by_y) = battle.x, battle.y, by
    goes = (by_x != 0) | (by_y != 0)
    stands = fixed | ~goes
    middle_x, middle_y = _middles(field, battle)
    outward = jnp.where(by_x * (y - middle_y) - by_y * (x - middle_x) >= 0, 1.0, -1.0)
    turn = jnp.where(battle.turn == 0, outward, battle.turn)
    side = jnp.sign(turn)
    ahead = between.closing(by)
    aside = between.closing((-by_y * side, by_x * side))
    blocks = (ahead > jnp.maximum(between.room, 0.0) + SQUEEZE) & stands[None]
    # The sine of the angle to the one in the way that is furthest round on that side.
    sine = aside * jax.lax.rsqrt(ahead**2 + aside**2 + 1e-12)
    worst = jnp.max(jnp.where(blocks, sine, -2.0), axis=1)
    blocked = worst >= -1
    across = side * jnp.sqrt(jnp.maximum(1 - worst**2, 0.0))
    along_x, along_y = -worst * by_x - across * by_y, -worst * by_y + across * by_x
    by = jnp.where(blocked, along_x, by_x), jnp.where(blocked, along_y, by_y)
    return by, jnp.where(goes, jnp.where(blocked, turn, battle.turn), 0.0)


def _middles(field: Field, battle: Battle) -> Place:
    """The middle of each unit's team."""
    n = field.n
    alive = jnp.where(battle.alive, 1.0, 0.0)
    ours = np.arange(len(field.kinds)) < n

    def middle(v: Vector) -> Vector:
        mine = jnp.sum(alive[:n] * v[:n]) / jnp.maximum(jnp.sum(alive[:n]), 1.0)
        theirs = jnp.sum(alive[n:] * v[n:]) / jnp.maximum(jnp.sum(alive[n:]), 1.0)
        return jnp.where(ours, mine, theirs)

    return middle(battle.x), middle(battle.y)


def make_room(field: Field, between: Pairs, by: Place, fixed: Bool[Array, " U"]) -> Place:
    """Some sweeps in which those who would run into each other, or do overlap, give way, all at once."""
    by_x, by_y = by
    team = np.arange(len(field.kinds)) >= field.n
    mates = (team[:, None] == team[None]).astype(np.float32)
    moving = (by_x != 0) | (by_y != 0)
    yields = jnp.where(fixed | (field.speed == 0), 0.0, jnp.where(moving, GOING_YIELDS, STANDING_YIELDS))
    # Each gives way by its part of the closing in; for its own, who is free to counts as if it did some.
    mine = jnp.maximum(between.closing(by), 0.0) + mates * yields[:, None]
    yours = jnp.maximum(between.met(by), 0.0) + mates * yields[None]
    share = mine / (mine + yours + 1e-9) * (field.rules.yielding / np.maximum(field.apart, 1e-6) ** 2)
    for _ in range(field.rules.sweeps):
        closing = between.closing((by_x, by_y)) + between.met((by_x, by_y))
        back = jnp.maximum(closing - between.room, 0.0) * share
        push_x, push_y = row_sums(back * between.x, back * between.y)
        by_x = by_x - jnp.clip(push_x, -LARGEST_PUSH, LARGEST_PUSH)
        by_y = by_y - jnp.clip(push_y, -LARGEST_PUSH, LARGEST_PUSH)
    return by_x, by_y


def keep_apart(field: Field, old: Place, new: Place, between: Pairs) -> Place:
    """As much of the way to the new place as there is room for, however far the others come.

    Two that close in share the room between them; one that the other leaves has all of it. So nobody comes
    to overlap by more than `contact`, nor deeper where two do.
    """
    by_x, by_y = by = new[0] - old[0], new[1] - old[1]
    closing, met = between.closing(by), jnp.maximum(between.met(by), 0.0)
    contact2 = field.apart**2 - np.maximum(field.apart - field.rules.contact, 0.0) ** 2
    room = jnp.maximum(between.room + contact2 / 2, 0.0)
    part = jnp.where(closing > 0, room / jnp.maximum(closing + met, 1e-6), 1.0)
    part = jnp.minimum(jnp.min(part, axis=1), 1.0)
    x, y = old[0] + part * by_x, old[1] + part * by_y
    if field.land.rectangle is not None:
        return x, y
    stands = _stands(field, x, y) | field.flies  # a way cut short may end in a corner
    return jnp.where(stands, x, old[0]), jnp.where(stands, y, old[1])


def on_ground(field: Field, old: Place, new: Place) -> Place:
    """The new place, or as much of it as the ground allows: one axis after the other, along walls."""
    (x, y), (to_x, to_y), land = old, new, field.land
    air_x, air_y = (jnp.clip(v, BORDER, SIZE - BORDER - EDGE) for v in (to_x, to_y))
    if land.rectangle is not None:
        west, south, east, north = land.rectangle
        x, y = jnp.clip(to_x, west, east), jnp.clip(to_y, south, north)
    else:
        x = jnp.where(_stands(field, to_x, y), to_x, x)
        y = jnp.where(_stands(field, x, to_y), to_y, y)
    if not field.flies.any():
        return x, y
    return jnp.where(field.flies, air_x, x), jnp.where(field.flies, air_y, y)


def _stands(field: Field, x: Vector, y: Vector) -> Bool[Array, " U"]:
    open_ground = is_open(field.land.ground, x, y)
    if field.strides.any() and (field.land.cliff != field.land.ground).any():
        return jnp.where(field.strides, is_open(field.land.cliff, x, y), open_ground)
    return open_ground
