"""Movement: where units want to go, how they make room for each other, and where the ground lets them."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from macpf.envs.smac.battle import Battle
from macpf.envs.smac.field import Field
from macpf.envs.smac.terrain import BORDER, EDGE, SIZE, heading, is_open

Vector = Float[Array, " U"]
Place = tuple[Vector, Vector]

LARGEST_PUSH = 0.25  # of a unit by its neighbours in one sweep
SQUEEZE = 0.9  # the part of the distance to keep at which somebody is in the way
STUCK = 0.3  # with less than this part of its step done, a unit made no progress


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

    Everybody steps, overlapping units make room, the ground has the last word. Between teams only who moves
    gives way, and it stays where it was if it would still stand in an opponent. Of one team, whoever is not
    `fixed` gives way.
    """
    x, y = battle.x, battle.y
    by, turn = round_others(field, battle, by, fixed)
    moved = push_apart(field, (x + by[0], y + by[1]), battle.alive, by, fixed)
    moved = _kept_out(field, battle, moved)
    to_x, to_y = on_ground(field, (x, y), moved)
    done2 = (to_x - x) ** 2 + (to_y - y) ** 2
    stuck = done2 < STUCK**2 * (by[0] ** 2 + by[1] ** 2)
    return (to_x, to_y), _reconsidered(turn, stuck)


def _reconsidered(turn: Vector, stuck: Bool[Array, " U"]) -> Vector:
    """The side after a frame: half of 1 or -1 after one without progress, the other side after two."""
    side = jnp.sign(turn)
    return jnp.where(stuck, jnp.where(jnp.abs(turn) < 1, -side, side / 2), side)


def round_others(field: Field, battle: Battle, by: Place, fixed: Bool[Array, " U"]) -> tuple[Place, Vector]:
    """Who is about to walk into somebody that stands goes along its edge instead, round one side of it.

    The side is at first the one away from the middle of its own team, so that a team flows round both
    flanks of what it attacks; it is kept until there is no way through.
    """
    x, y, (by_x, by_y) = battle.x, battle.y, by
    goes = (by_x != 0) | (by_y != 0)
    stands = battle.alive & (fixed | ~goes)
    middle_x, middle_y = _middles(field, battle)
    outward = jnp.where(by_x * (y - middle_y) - by_y * (x - middle_x) >= 0, 1.0, -1.0)
    turn = jnp.where(battle.turn == 0, outward, battle.turn)
    side = jnp.sign(turn)
    dx, dy = x[:, None] - x[None], y[:, None] - y[None]  # from the second of a pair to the first
    ahead = dx * by_x[None] + dy * by_y[None]
    aside = (dy * by_x[None] - dx * by_y[None]) * side[None]
    after2 = (dx - by_x[None]) ** 2 + (dy - by_y[None]) ** 2
    blocks = (ahead > 0) & (after2 < (SQUEEZE * field.apart) ** 2) & stands[:, None]
    # The sine of the angle to the one in the way that is furthest round on that side.
    sine = aside * jax.lax.rsqrt(ahead**2 + aside**2 + 1e-12)
    worst = jnp.max(jnp.where(blocks, sine, -2.0), axis=0)
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


def push_apart(
    field: Field, place: Place, alive: Bool[Array, " U"], by: Place, fixed: Bool[Array, " U"]
) -> Place:
    """Some sweeps in which overlapping units are pushed apart, all at once."""
    x, y = place
    team = np.arange(len(field.kinds)) >= field.n
    mates = (team[:, None] == team[None]).astype(np.float32)
    mobile = field.speed > 0
    yields = jnp.where(alive & ~fixed & mobile, 1.0, 0.0)
    moving = jnp.where((by[0] != 0) | (by[1] != 0), 1.0, 0.0)
    # The part of an overlap that the second of a pair makes good: half where the first does too, else all
    # of it; two of a team that stand in each other part slowly.
    stay = jnp.where(mobile, 1.0 - yields, 0.0)[None] * (1 - yields[:, None])
    share = mates * (yields[None] * (1 - 0.5 * yields[:, None]) + 0.25 * stay)
    share = share + (1 - mates) * (moving[None] * (1 - 0.5 * moving[:, None]))
    share = jnp.where(alive[:, None] & alive[None], share * field.rules.yielding, 0.0)
    order = np.arange(len(team))
    aside = 1e-4 * np.sign(order[None] - order[:, None]).astype(np.float32)
    for _ in range(field.rules.sweeps):
        dx = x[None] - x[:, None] + aside  # two at the very same place part by index
        dy = y[None] - y[:, None]
        push = field.apart * jax.lax.rsqrt(dx**2 + dy**2 + 1e-12) - 1
        push = jnp.maximum(push, 0.0) * share
        x = x + jnp.clip(jnp.sum(push * dx, axis=0), -LARGEST_PUSH, LARGEST_PUSH)
        y = y + jnp.clip(jnp.sum(push * dy, axis=0), -LARGEST_PUSH, LARGEST_PUSH)
    return x, y


def _kept_out(field: Field, battle: Battle, moved: Place) -> Place:
    """Whoever would come to stand deeper in an opponent than it may stays where it was."""
    n = field.n
    apart = field.apart[:n, n:]
    if not apart.any():
        return moved
    limit2 = np.maximum(apart - field.rules.contact, 0.0) ** 2

    def away2(x: Vector, y: Vector) -> Float[Array, "N E"]:
        return (x[:n, None] - x[None, n:]) ** 2 + (y[:n, None] - y[None, n:]) ** 2

    alive = battle.alive
    after = away2(*moved)
    deeper = (after < limit2) & (after < away2(battle.x, battle.y)) & alive[:n, None] & alive[None, n:]
    stays = jnp.concatenate([jnp.any(deeper, axis=1), jnp.any(deeper, axis=0)])
    return jnp.where(stays, battle.x, moved[0]), jnp.where(stays, battle.y, moved[1])


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
