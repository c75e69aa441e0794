"""The ten units of SMAC, as the Liberty mod of StarCraft II has them; a unit is one entry of a table.

Times are in seconds of the game's normal speed and speeds in cells per such second; a frame is 1/16 s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

FRAMES_PER_SECOND = 16

Balance = Literal["liberty", "lotv"]


@dataclass(frozen=True)
class Unit:
    """What one kind of unit can do and stand.

    `damage` is of one hit; `bonus` is added against targets with the attribute `bonus_against`.
    `range` is measured between the edges of two circles of their `radius`; `separation` is the radius
    that others of its plane keep away from. `hits_air`: can it shoot at flyers? `normal_cooldown` is
    what SMAC divides the cooldown by, which for some units is not their period.
    """

    name: str
    health: float
    shield: float
    armour: float
    damage: float
    hits: int
    period: float
    range: float
    speed: float
    radius: float
    separation: float
    attributes: frozenset[str]
    normal_cooldown: float
    hits_air: bool = False
    bonus: float = 0.0
    bonus_against: str = ""
    life_regeneration: float = 0.0
    acceleration: float = 0.0  # 0: at full speed at once

    @property
    def flies(self) -> bool:
        return "flying" in self.attributes

    @property
    def heals(self) -> bool:
        return self.name == "medivac"

    @property
    def sweeps(self) -> bool:
        """Does it cut along a line (the colossus)?"""
        return self.name == "colossus"

    @property
    def explodes(self) -> bool:
        return self.name == "baneling"

    @property
    def strides(self) -> bool:
        """Does it walk over cliffs and over other ground units (the colossus)?"""
        return self.name == "colossus"

    def damage_to(self, other: "Unit") -> float:
        """One hit on the other, before armour; 0 where it cannot be shot at."""
        if other.flies and not self.hits_air:
            return 0.0
        return self.damage + self.bonus * (self.bonus_against in other.attributes)


def _are(words: str) -> frozenset[str]:
    return frozenset(words.split())


ZERG = 0.2734  # life that zerg regain in a second

_LIBERTY = (
    Unit(
        "marine",
        health=45.0,
        shield=0.0,
        armour=0.0,
        damage=6.0,
        hits=1,
        period=0.8608,
        range=5.0,
        speed=2.25,
        radius=0.375,
        separation=0.375,
        attributes=_are("light biological"),
        normal_cooldown=15.0,
        hits_air=True,
    ),
    Unit(
        "marauder",
        health=125.0,
        shield=0.0,
        armour=1.0,
        damage=10.0,
        hits=1,
        period=1.5,
        range=6.0,
        speed=2.25,
        radius=0.5625,
        separation=0.5,
        attributes=_are("armored biological"),
        normal_cooldown=25.0,
        bonus=10.0,
        bonus_against="armored",
    ),
    Unit(
        "medivac",
        health=150.0,
        shield=0.0,
        armour=1.0,
        damage=0.0,
        hits=0,
        period=0.0,
        range=4.0,
        speed=2.75,
        radius=0.75,
        separation=0.75,
        attributes=_are("armored mechanical flying"),
        normal_cooldown=200.0,
        acceleration=2.3125,
    ),
    Unit(
        "stalker",
        health=80.0,
        shield=80.0,
        armour=1.0,
        damage=10.0,
        hits=1,
        period=1.44,
        range=6.0,
        speed=2.9531,
        radius=0.625,
        separation=0.625,
        attributes=_are("armored mechanical"),
        normal_cooldown=35.0,
        hits_air=True,
        bonus=4.0,
        bonus_against="armored",
    ),
    Unit(
        "zealot",
        health=100.0,
        shield=50.0,
        armour=1.0,
        damage=8.0,
        hits=2,
        period=1.2,
        range=0.1,
        speed=2.25,
        radius=0.5,
        separation=0.375,
        attributes=_are("light biological"),
        normal_cooldown=22.0,
    ),
    Unit(
        "colossus",
        health=200.0,
        shield=150.0,
        armour=1.0,
        damage=20.0,
        hits=2,
        period=2.2,
        range=6.0,
        speed=2.25,
        radius=1.0,
        separation=0.75,
        attributes=_are("armored mechanical massive"),
        normal_cooldown=24.0,
    ),
    Unit(
        "zergling",
        health=35.0,
        shield=0.0,
        armour=0.0,
        damage=5.0,
        hits=1,
        period=0.696,
        range=0.1,
        speed=2.9531,
        radius=0.375,
        separation=0.375,
        attributes=_are("light biological"),
        normal_cooldown=11.0,
        life_regeneration=ZERG,
    ),
    Unit(
        "baneling",
        health=30.0,
        shield=0.0,
        armour=0.0,
        damage=20.0,
        hits=1,
        period=0.833,
        range=0.25,
        speed=2.5,
        radius=0.375,
        separation=0.375,
        attributes=_are("biological"),
        normal_cooldown=1.0,
        bonus=15.0,
        bonus_against="light",
        life_regeneration=ZERG,
    ),
    Unit(
        "hydralisk",
        health=80.0,
        shield=0.0,
        armour=0.0,
        damage=12.0,
        hits=1,
        period=0.83,
        range=5.0,
        speed=2.25,
        radius=0.625,
        separation=0.5,
        attributes=_are("light biological"),
        normal_cooldown=10.0,
        hits_air=True,
        life_regeneration=ZERG,
    ),
    Unit(
        "spine_crawler",
        health=300.0,
        shield=0.0,
        armour=2.0,
        damage=25.0,
        hits=1,
        period=1.6,
        range=7.0,
        speed=0.0,
        radius=0.875,
        separation=0.875,
        attributes=_are("armored biological structure"),
        normal_cooldown=15.0,
        bonus=5.0,
        bonus_against="armored",
        life_regeneration=ZERG,
    ),
)

LIBERTY: Mapping[str, Unit] = {unit.name: unit for unit in _LIBERTY}

# What later balance changed, for comparison with simulators that took their figures from it.
LOTV: Mapping[str, Unit] = {
    **LIBERTY,
    "medivac": replace(LIBERTY["medivac"], speed=2.5),
    "stalker": replace(LIBERTY["stalker"], damage=13.0, bonus=5.0, period=1.34 * 1.4),
    "colossus": replace(
        LIBERTY["colossus"], damage=10.0, bonus=5.0, bonus_against="light", period=1.07 * 1.4, range=7.0
    ),
    "spine_crawler": replace(LIBERTY["spine_crawler"], period=1.32 * 1.4),
}


def units(balance: Balance) -> Mapping[str, Unit]:
    """The table of a balance."""
    return LIBERTY if balance == "liberty" else LOTV
