"""A scenario as arrays of numbers, made once before anything is traced, and where its units start.

Axis letters beside those of the package: E opponents, U all units (the N agents first), and for one
direction of fire K attackers and V victims.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Bool, Float

from macpf.envs.smac.maps import Group, Scenario
from macpf.envs.smac.rules import Rules
from macpf.envs.smac.terrain import MAPS, SIZE, Terrain, terrain
from macpf.envs.smac.units import FRAMES_PER_SECOND, LIBERTY, Unit, units
from macpf.errors import require, unknown

BLAST_RADIUS = 2.2  # of a baneling
NEVER = -1.0  # a squared distance that nothing is within


@dataclass(frozen=True, eq=False)
class Fire:
    """What the units of one team can do to those of the other.

    `reach2` and `scan2` are the squared distances at which a weapon fires and a target is noticed
    (`NEVER` where it cannot be shot at); `power` is the damage of all hits of one shot; `blast2` is the
    squared distance within which an explosion reaches a victim. The slices are the rows of those who
    shoot otherwise, or None.
    """

    reach2: Float[np.ndarray, "K V"]
    scan2: Float[np.ndarray, "K V"]
    power: Float[np.ndarray, "K V"]
    hits: Float[np.ndarray, " K"]
    blast2: Float[np.ndarray, " V"]
    radius: Float[np.ndarray, " V"]
    colossi: slice | None
    banelings: slice | None


@dataclass(frozen=True, eq=False)
class Field:
    """All numbers of a scenario; vectors are over all units, agents first."""

    scenario: Scenario
    rules: Rules
    land: Terrain
    kinds: tuple[Unit, ...]
    n: int
    e: int
    start: Float[np.ndarray, "2 U"]
    health: Float[np.ndarray, " U"]
    shield: Float[np.ndarray, " U"]
    armour: Float[np.ndarray, " U"]
    period: Float[np.ndarray, " U"]
    speed: Float[np.ndarray, " U"]
    regeneration: Float[np.ndarray, " U"]
    radius: Float[np.ndarray, " U"]
    flies: Bool[np.ndarray, " U"]
    strides: Bool[np.ndarray, " U"]
    heals: Bool[np.ndarray, " U"]
    ours: Fire
    theirs: Fire
    apart: Float[np.ndarray, "U U"]  # the least distance of two centres, 0 where they do not collide

    def medivac(self, ally: bool) -> int | None:
        """The index of a team's medivac among all units; no map has two in a team."""
        who = np.flatnonzero(self.heals[: self.n] if ally else self.heals[self.n :])
        return int(who[0]) + (0 if ally else self.n) if len(who) else None


def check(scenario: Scenario) -> None:
    """Raises a sentence about what a scenario of one's own must not be."""
    for team in _teams(scenario):
        names = [group.unit for group in team]
        for name in names:
            if name not in LIBERTY:
                raise unknown("unit", name, LIBERTY)
        require(min((group.count for group in team), default=0) > 0, "both teams need units")
        kinds = [name for name, last in zip(names, [None, *names], strict=False) if name != last]
        require(len(kinds) == len(set(kinds)), "groups of the same unit must follow each other in a team")
        healers = sum(group.count for group in team if group.unit == "medivac")
        require(healers <= 1, f"a team has one medivac at most, not {healers}")
    if scenario.terrain not in MAPS:
        raise unknown("terrain", scenario.terrain, MAPS)
    require(scenario.limit > 0, f"an episode lasts at least one step, not {scenario.limit}")
    fits = len(scenario.enemy_kinds) <= len(scenario.kinds)
    require(fits, "there must be as many enemy_kinds as kinds, or fewer")


@cache
def field_of(scenario: Scenario, rules: Rules) -> Field:
    """The numbers of a scenario under some rules."""
    table, land = units(rules.balance), terrain(scenario.terrain)
    allies, enemies = ([table[g.unit] for g in team for _ in range(g.count)] for team in _teams(scenario))
    kinds, n = (*allies, *enemies), len(allies)

    def vector(values: Sequence[float]) -> np.ndarray:
        return np.asarray(values, np.float32)

    return Field(
        scenario=scenario,
        rules=rules,
        land=land,
        kinds=kinds,
        n=n,
        e=len(enemies),
        start=_start(scenario, rules, land, kinds),
        health=vector([u.health for u in kinds]),
        shield=vector([u.shield for u in kinds]),
        armour=vector([u.armour for u in kinds]),
        period=vector([u.period * FRAMES_PER_SECOND for u in kinds]),
        speed=vector([u.speed / FRAMES_PER_SECOND for u in kinds]),
        regeneration=vector([u.life_regeneration / FRAMES_PER_SECOND for u in kinds]),
        radius=vector([u.radius for u in kinds]),
        flies=np.asarray([u.flies for u in kinds]),
        strides=np.asarray([u.strides for u in kinds]),
        heals=np.asarray([u.heals for u in kinds]),
        ours=_fire(allies, enemies, rules),
        theirs=_fire(enemies, allies, rules),
        apart=_apart(kinds),
    )


def _teams(scenario: Scenario) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    return scenario.allies, scenario.enemies


def _fire(attackers: Sequence[Unit], victims: Sequence[Unit], rules: Rules) -> Fire:
    shape = (len(attackers), len(victims))
    reach2, scan2, power = (np.full(shape, value, np.float32) for value in (NEVER, NEVER, 0.0))
    for k, attacker in enumerate(attackers):
        for v, victim in enumerate(victims):
            damage, radii = attacker.damage_to(victim), attacker.radius + victim.radius
            if damage > 0:
                reach2[k, v] = (attacker.range + radii) ** 2
                scan2[k, v] = (max(rules.minimum_scan, attacker.range) + radii) ** 2
                power[k, v] = damage * attacker.hits
    return Fire(
        reach2=reach2,
        scan2=scan2,
        power=power,
        hits=np.asarray([u.hits for u in attackers], np.float32),
        blast2=np.asarray(
            [NEVER if u.flies else (BLAST_RADIUS + u.radius) ** 2 for u in victims], np.float32
        ),
        radius=np.asarray([NEVER if u.flies else u.radius for u in victims], np.float32),
        colossi=_rows([u.sweeps for u in attackers]),
        banelings=_rows([u.explodes for u in attackers]),
    )


def _rows(which: Sequence[bool]) -> slice | None:
    """The rows that hold, which stand together."""
    rows = np.flatnonzero(which)
    return slice(int(rows[0]), int(rows[-1]) + 1) if len(rows) else None


def _apart(kinds: Sequence[Unit]) -> np.ndarray:
    """The least distance of two centres: walkers keep apart, so do flyers; colossi walk over walkers."""

    def collide(a: Unit, b: Unit) -> bool:
        if a.strides or b.strides:
            other = b if a.strides else a
            return other.strides or other.flies or "structure" in other.attributes
        return a.flies == b.flies

    apart = [[(a.separation + b.separation) * collide(a, b) for b in kinds] for a in kinds]
    return np.asarray(apart, np.float32) * (1 - np.eye(len(kinds), dtype=np.float32))


# Where they start


def _start(scenario: Scenario, rules: Rules, land: Terrain, kinds: tuple[Unit, ...]) -> np.ndarray:
    """The places at the start, agents of a kind in the order west to east, then south to north."""
    table = units(rules.balance)
    allies = _places(scenario.allies, table, rules.spawn_gap, mirrored=False)
    enemies = _places(scenario.enemies, table, rules.spawn_gap, mirrored=True)
    place = _settled(np.concatenate([allies, enemies], axis=1), land, kinds)
    n = allies.shape[1]
    kind = np.asarray([kinds.index(unit) for unit in kinds[:n]])  # the first index of a kind stands for it
    order = np.lexsort((place[1, :n], place[0, :n], kind))
    return np.concatenate([place[:, order], place[:, n:]], axis=1).astype(np.float32)


def _places(groups: Sequence[Group], table: Mapping[str, Unit], gap: float, mirrored: bool) -> np.ndarray:
    """Each block in rows around its point."""
    blocks = {}
    for index, group in enumerate(g for g in groups for _ in range(g.count)):
        blocks.setdefault(group.at, []).append((index, table[group.unit].radius))
    places = np.zeros((2, sum(g.count for g in groups)))
    for at, members in blocks.items():
        offsets = _block([radius for _, radius in members], gap)
        indices = [index for index, _ in members]
        places[:, indices] = np.asarray(at)[:, None] + (-offsets if mirrored else offsets)
    return places


def _block(radii: Sequence[float], gap: float) -> np.ndarray:
    """Rows of ceil(sqrt(n)) circles that almost touch, centred on the origin."""
    width = int(np.ceil(np.sqrt(len(radii))))
    xs, ys, y = [], [], 0.0
    for first in range(0, len(radii), width):
        row = np.asarray(radii[first : first + width])
        ends = np.cumsum(2 * row + gap)
        centres = ends - row
        xs += list(centres - (centres[0] - row[0] + ends[-1]) / 2)
        ys += [y + row.max()] * len(row)
        y += 2 * row.max() + gap
    places = np.asarray([xs, ys])
    return places - (places.min(axis=1) + places.max(axis=1))[:, None] / 2


def _settled(places: np.ndarray, land: Terrain, kinds: Sequence[Unit]) -> np.ndarray:
    """Units that would start in a wall or in each other are moved to where there is room."""
    apart = _apart(kinds)
    ys, xs = np.nonzero(land.ground)
    for _ in range(500):
        gap = places[:, :, None] - places[:, None, :]
        distance = np.hypot(*gap) + 1e-9
        push = np.maximum(apart - distance, 0) / distance
        moved = places + 0.5 * np.sum(gap * push[None], axis=2)
        for u, (x, y) in enumerate(moved.T):
            if not (0 <= x < SIZE and 0 <= y < SIZE and land.ground[int(y), int(x)]):
                inside = np.stack([np.clip(x, xs, xs + 0.95), np.clip(y, ys, ys + 0.95)])
                nearest = np.argmin(np.hypot(inside[0] - x, inside[1] - y))
                moved[:, u] = inside[:, nearest]
        if np.abs(moved - places).max() < 1e-6:
            break
        places = moved
    return places
