"""SMAC's scenarios; a new one is one entry of `SCENARIOS`: teams, where they start, terrain, order."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

Point = tuple[float, float]


@dataclass(frozen=True)
class Group:
    """So many units of a kind that appear at one point; groups of one point form one block."""

    unit: str
    count: int
    at: Point


@dataclass(frozen=True)
class AttackMove:
    """Walk to the point and attack whatever comes into sight on the way."""

    to: Point


@dataclass(frozen=True)
class AttackBetween:
    """The same, to a point between the two that is drawn anew in every episode."""

    one: Point
    other: Point


@dataclass(frozen=True)
class Hunt:
    """Attack the opponents wherever they are."""


@dataclass(frozen=True)
class Hold:
    """No order: stand, and shoot at what comes near."""


Order = AttackMove | AttackBetween | Hunt | Hold


@dataclass(frozen=True)
class Scenario:
    """A map of SMAC.

    The agents' indices follow the order of `allies`, and west to east within a kind; those of the
    opponents the order of `enemies`. `kinds` is the order of an ally's one-hot type (empty: SMAC shows
    no types) and `enemy_kinds` that of an opponent's. `allies_seen`: does an agent observe teammates?
    """

    allies: tuple[Group, ...]
    enemies: tuple[Group, ...]
    terrain: str
    order: Order
    limit: int
    kinds: tuple[str, ...] = ()
    enemy_kinds: tuple[str, ...] = ()
    sight: float = 9.0
    allies_seen: bool = True

    @property
    def what(self) -> str:
        """The two teams in words."""
        ours, theirs = (", ".join(_counted(team)) for team in (self.allies, self.enemies))
        dim = "" if self.allies_seen else ", short-sighted"
        return f"{ours} against {theirs}{dim}"


def _counted(groups: tuple[Group, ...]) -> list[str]:
    """ "3 stalkers", each kind once."""
    counts: dict[str, int] = {}
    for group in groups:
        counts[group.unit] = counts.get(group.unit, 0) + group.count
    plural = {"colossus": "colossi"}
    return [
        f"{count} {plural.get(unit, f'{unit}s') if count > 1 else unit}".replace("_", " ")
        for unit, count in counts.items()
    ]


WEST, EAST = (9.0, 16.0), (23.0, 16.0)


def _team(words: str, at: Point) -> tuple[Group, ...]:
    """ "2 stalker, 3 zealot" as groups at one point."""
    parts = (part.split() for part in words.split(","))
    return tuple(Group(unit, int(count), at) for count, unit in parts)


def _field(
    allies: str,
    enemies: str,
    limit: int,
    kinds: tuple[str, ...] = (),
    enemy_kinds: tuple[str, ...] = (),
    terrain: str = "simple",
) -> Scenario:
    """Two teams that start west and east of each other; the opponents attack-move to the allies' start."""
    return Scenario(
        allies=_team(allies, WEST),
        enemies=_team(enemies, EAST),
        terrain=terrain,
        order=AttackMove(WEST),
        limit=limit,
        kinds=kinds,
        enemy_kinds=enemy_kinds or kinds,
    )


MMM_KINDS = ("marauder", "marine", "medivac")
SZ_KINDS, SZ_ENEMY_KINDS = (
    ("stalker", "zealot"),
    ("zealot", "stalker"),
)  # SMAC numbers them the other way round
CSZ_KINDS = ("colossus", "stalker", "zealot")
SOUTH_WEST = AttackMove((4.47, 4.33))
NORTH_EAST = (27.91, 28.24)

SCENARIOS: Mapping[str, Scenario] = {
    "3m": _field("3 marine", "3 marine", 60),
    "8m": _field("8 marine", "8 marine", 120),
    "25m": _field("25 marine", "25 marine", 150),
    "5m_vs_6m": _field("5 marine", "6 marine", 70),
    "8m_vs_9m": _field("8 marine", "9 marine", 120),
    "10m_vs_11m": _field("10 marine", "11 marine", 150),
    "27m_vs_30m": _field("27 marine", "30 marine", 180),
    "MMM": _field(
        "2 marauder, 7 marine, 1 medivac", "7 marine, 2 marauder, 1 medivac", 150, MMM_KINDS, MMM_KINDS
    ),
    "MMM2": _field(
        "2 marauder, 7 marine, 1 medivac", "8 marine, 3 marauder, 1 medivac", 180, MMM_KINDS, MMM_KINDS
    ),
    "2s3z": _field("2 stalker, 3 zealot", "2 stalker, 3 zealot", 120, SZ_KINDS, SZ_ENEMY_KINDS),
    "3s5z": _field("3 stalker, 5 zealot", "3 stalker, 5 zealot", 150, SZ_KINDS, SZ_ENEMY_KINDS),
    "3s5z_vs_3s6z": _field("3 stalker, 5 zealot", "3 stalker, 6 zealot", 170, SZ_KINDS, SZ_ENEMY_KINDS),
    "1c3s5z": _field(
        "1 colossus, 3 stalker, 5 zealot", "1 colossus, 3 stalker, 5 zealot", 180, CSZ_KINDS, CSZ_KINDS
    ),
    "3s_vs_3z": _field("3 stalker", "3 zealot", 150, terrain="flat"),
    "3s_vs_4z": _field("3 stalker", "4 zealot", 200, terrain="flat"),
    "3s_vs_5z": _field("3 stalker", "5 zealot", 250, terrain="flat"),
    "6h_vs_8z": Scenario(
        allies=_team("6 hydralisk", (14.60, 9.49)),
        enemies=_team("8 zealot", (14.41, 16.76)),
        terrain="cross",
        order=AttackMove((14.60, 9.49)),
        limit=150,
    ),
    "corridor": Scenario(
        allies=_team("6 zealot", (19.04, 19.12)),
        enemies=_team("24 zergling", NORTH_EAST),
        terrain="corridor",
        order=SOUTH_WEST,
        limit=400,
    ),
    "so_many_baneling": Scenario(
        allies=_team("7 zealot", (11.47, 12.02)),
        enemies=_team("32 baneling", NORTH_EAST),
        terrain="band",
        order=SOUTH_WEST,
        limit=100,
    ),
    "2c_vs_64zg": Scenario(
        allies=_team("2 colossus", (16.0, 16.0)),
        enemies=_team("64 zergling", (16.0, 9.0)),
        terrain="ravine",
        order=Hunt(),
        limit=400,
    ),
    "bane_vs_bane": Scenario(
        allies=(Group("baneling", 4, (16.0, 8.0)), Group("zergling", 20, (16.0, 11.0))),
        enemies=(Group("zergling", 20, (16.0, 21.0)), Group("baneling", 4, (16.0, 24.0))),
        terrain="octagon",
        order=AttackMove((16.0, 8.0)),
        limit=200,
        kinds=("baneling", "zergling"),
        enemy_kinds=("baneling", "zergling"),
    ),
    "2m_vs_1z": Scenario(
        allies=(Group("marine", 1, (13.0, 12.0)), Group("marine", 1, (19.0, 12.0))),
        enemies=_team("1 zealot", (16.0, 19.0)),
        terrain="octagon",
        order=AttackBetween((13.0, 12.0), (19.0, 12.0)),
        limit=150,
    ),
    "2s_vs_1sc": Scenario(
        allies=(Group("stalker", 1, (11.12, 10.34)), Group("stalker", 1, (16.98, 10.37))),
        enemies=_team("1 spine_crawler", (13.92, 20.04)),
        terrain="pentagon",
        order=Hold(),
        limit=300,
    ),
}


def _myopic(name: str) -> Scenario:
    """The same with sight 6, and without teammates in the observation."""
    return replace(SCENARIOS[name], sight=6.0, allies_seen=False)


SCENARIOS = {
    **SCENARIOS,
    "8m_vs_9m_myopic": _myopic("8m_vs_9m"),
    "10m_vs_11m_myopic": _myopic("10m_vs_11m"),
}
