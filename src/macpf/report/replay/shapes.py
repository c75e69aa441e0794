"""What a picture is made of: a few shapes in the coordinates of the world, and colours by their meaning."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Point = tuple[float, float]


class Colour(StrEnum):
    """A colour by what it stands for; what it looks like depends on the theme."""

    PAPER = "paper"
    INK = "ink"
    SOFT = "soft"
    GRID = "grid"
    GOOD = "good"
    BAD = "bad"
    ACCENT = "accent"
    ALLY = "ally"
    ENEMY = "enemy"
    SHIELD = "shield"
    ENERGY = "energy"
    GROUND = "ground"
    CLIFF = "cliff"
    WALL = "wall"
    AGENT_1 = "agent_1"
    AGENT_2 = "agent_2"
    AGENT_3 = "agent_3"
    AGENT_4 = "agent_4"
    AGENT_5 = "agent_5"
    AGENT_6 = "agent_6"
    AGENT_7 = "agent_7"
    AGENT_8 = "agent_8"


Theme = dict[Colour, str]

LIGHT: Theme = {
    Colour.PAPER: "#ffffff",
    Colour.INK: "#1c2430",
    Colour.SOFT: "#6b7686",
    Colour.GRID: "#e3e7ed",
    Colour.GOOD: "#1a9c6b",
    Colour.BAD: "#d64545",
    Colour.ACCENT: "#f2a900",
    Colour.ALLY: "#2463d6",
    Colour.ENEMY: "#d13b3b",
    Colour.SHIELD: "#22a7d8",
    Colour.ENERGY: "#9a5be0",
    Colour.GROUND: "#f1f0ea",
    Colour.CLIFF: "#d9cfbd",
    Colour.WALL: "#b9bec6",
    Colour.AGENT_1: "#2f6fde",
    Colour.AGENT_2: "#e8702a",
    Colour.AGENT_3: "#8a4fd3",
    Colour.AGENT_4: "#12949c",
    Colour.AGENT_5: "#c93a86",
    Colour.AGENT_6: "#7a8b1d",
    Colour.AGENT_7: "#9a6433",
    Colour.AGENT_8: "#50627d",
}
DARK: Theme = {
    Colour.PAPER: "#141a22",
    Colour.INK: "#eef2f7",
    Colour.SOFT: "#98a4b5",
    Colour.GRID: "#2a3340",
    Colour.GOOD: "#3ecf97",
    Colour.BAD: "#ff7070",
    Colour.ACCENT: "#ffc53d",
    Colour.ALLY: "#5b97ff",
    Colour.ENEMY: "#ff6464",
    Colour.SHIELD: "#5bd0f5",
    Colour.ENERGY: "#c193ff",
    Colour.GROUND: "#232b36",
    Colour.CLIFF: "#3d3a33",
    Colour.WALL: "#0d1117",
    Colour.AGENT_1: "#6ba1ff",
    Colour.AGENT_2: "#ff9a5c",
    Colour.AGENT_3: "#b98aff",
    Colour.AGENT_4: "#41c9d1",
    Colour.AGENT_5: "#f57ab8",
    Colour.AGENT_6: "#b7c94f",
    Colour.AGENT_7: "#cf9a68",
    Colour.AGENT_8: "#9db0cc",
}

AGENTS = tuple(colour for colour in Colour if colour.value.startswith("agent_"))


def of_agent(i: int) -> Colour:
    """The colour of an agent; they come round again after the eighth."""
    return AGENTS[i % len(AGENTS)]


@dataclass(frozen=True)
class View:
    """The part of the world that is shown: from (left, bottom), so wide and so high; y points up."""

    left: float
    bottom: float
    width: float
    height: float


@dataclass(frozen=True)
class Circle:
    """A disc, a ring (no fill), or both."""

    x: float
    y: float
    r: float
    fill: Colour | None = None
    stroke: Colour | None = None
    width: float = 0.0
    alpha: float = 1.0


@dataclass(frozen=True)
class Line:
    """A line through some points."""

    points: tuple[Point, ...]
    stroke: Colour
    width: float
    alpha: float = 1.0
    dash: float = 0.0


@dataclass(frozen=True)
class Polygon:
    """The area within some corners, filled, outlined, or both."""

    points: tuple[Point, ...]
    fill: Colour | None = None
    stroke: Colour | None = None
    width: float = 0.0
    alpha: float = 1.0


@dataclass(frozen=True)
class Rect:
    """A rectangle with its lower left corner at (x, y), filled, outlined, or both."""

    x: float
    y: float
    w: float
    h: float
    fill: Colour | None = None
    stroke: Colour | None = None
    width: float = 0.0
    alpha: float = 1.0


@dataclass(frozen=True)
class Text:
    """A word that is centred on (x, y), or begins or ends there; `size` is the height of its letters' box."""

    x: float
    y: float
    text: str
    size: float
    fill: Colour = Colour.INK
    align: Literal["start", "middle", "end"] = "middle"
    bold: bool = False
    alpha: float = 1.0


Plain = Circle | Line | Polygon | Rect | Text


@dataclass(frozen=True)
class Bar:
    """Part of a figure: a rectangle, as much of its width as a sprite's level says."""

    x: float
    y: float
    w: float
    h: float
    fill: Colour


Figure = tuple[Plain | Bar, ...]  # around (0, 0)


@dataclass(frozen=True)
class Sprite:
    """A figure of the drawing, by its number, on its way through the step that led to the frame.

    `moments` are evenly spread from the start of the step to its end (one is enough for who stands still);
    each has x, y and a level from 0 to 1 for every bar. `until`: the share of the step after which it is
    gone, for one that is not there at the end.
    """

    figure: int
    moments: tuple[tuple[float, ...], ...]
    until: float | None = None


@dataclass(frozen=True)
class Flash:
    """A shape that lights up when a share of the step has passed, and fades."""

    shape: Plain
    since: float


Shape = Plain | Sprite | Flash
