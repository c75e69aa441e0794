"""The units of SMAC as figures: a shape for each kind, as large as the unit, its number and its bars."""

import math
from collections.abc import Iterator, Mapping

from macpf.envs.smac import Unit
from macpf.envs.smac.combat import ENERGY_MOST
from macpf.report.replay.shapes import Bar, Circle, Colour, Figure, Line, Plain, Point, Polygon, Rect, Text

RIM = 0.05
BAR_HEIGHT = 0.12


def _star(corners: int, inner: float = 1.0, turn: float = 0.0) -> tuple[Point, ...]:
    """A regular polygon of radius 1, one corner above, or a star with dents of an inner radius."""
    radii = [1.0] if inner == 1.0 else [1.0, inner]
    count = corners * len(radii)
    angles = [math.pi / 2 + 2 * math.pi * (k + turn) / count for k in range(count)]
    return tuple(
        (radii[k % len(radii)] * math.cos(a), radii[k % len(radii)] * math.sin(a))
        for k, a in enumerate(angles)
    )


_ARM = 0.4  # half the width of an arm of the medivac's cross
_CROSS = ((-_ARM, 1.0), (_ARM, 1.0), (_ARM, _ARM), (1.0, _ARM), (1.0, -_ARM), (_ARM, -_ARM))

OUTLINES: Mapping[str, tuple[Point, ...]] = {
    "marauder": _star(4, turn=0.5),
    "medivac": (*_CROSS, *((-x, -y) for x, y in _CROSS)),
    "stalker": _star(4),
    "zealot": _star(5),
    "colossus": _star(8, 0.72),
    "zergling": tuple((1.25 * x, 1.25 * y) for x, y in _star(3)),
    "baneling": _star(10, 0.78),
    "hydralisk": _star(6, 0.62),
    "spine_crawler": _star(12, 0.7),
}


def body(unit: Unit, colour: Colour, x: float = 0.0, y: float = 0.0, r: float | None = None) -> Plain:
    """The shape of a kind, a disc where it has no outline of its own."""
    r = unit.radius if r is None else r
    if unit.name not in OUTLINES:
        return Circle(x, y, r, fill=colour, stroke=Colour.PAPER, width=RIM)
    points = tuple((x + r * px, y + r * py) for px, py in OUTLINES[unit.name])
    return Polygon(points, fill=colour, stroke=Colour.PAPER, width=RIM)


def standing(unit: Unit, number: int, colour: Colour) -> Figure:
    """A living unit, with bars of health, and of shield or energy where it has them."""
    r = unit.radius
    low = -0.12 * r if unit.name == "zergling" else 0.0
    word = Text(0.0, low, str(number), (1.05 if number < 10 else 0.85) * r, Colour.PAPER, bold=True)
    return (body(unit, colour), word, *_bars(unit))


def levels(unit: Unit, health: float, shield: float, energy: float) -> tuple[float, ...]:
    """What the bars of a standing unit show, in their order; used up, energy may round to below 0."""
    left = max(energy, 0.0) / ENERGY_MOST
    second = (shield / unit.shield,) if unit.shield else (left,) if unit.heals else ()
    return (health / unit.health, *second)


def _bars(unit: Unit) -> Iterator[Plain | Bar]:
    colours = [Colour.GOOD, *[Colour.SHIELD] * (unit.shield > 0), *[Colour.ENERGY] * unit.heals]
    wide = 1.7 * unit.radius
    for k, colour in enumerate(colours):
        y = 0.75 * unit.radius + k * BAR_HEIGHT
        yield Rect(-wide / 2, y, wide, BAR_HEIGHT, fill=Colour.INK, alpha=0.6)
        yield Bar(-wide / 2, y, wide, BAR_HEIGHT, colour)


def fallen(colour: Colour) -> Figure:
    """Where somebody fell."""
    a = 0.16
    return tuple(Line(((-a, -b), (a, b)), colour, 0.07, alpha=0.45) for b in (a, -a))
