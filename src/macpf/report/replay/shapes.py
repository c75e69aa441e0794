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


Shape = Circle | Line | Rect | Text
