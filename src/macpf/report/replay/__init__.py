"""Replays: episodes of a run or of a controller, as an animated GIF and as one page for a browser."""

from macpf.report.replay.data import Agent, Drawing, Episode, Family, Frame, Replay
from macpf.report.replay.make import replay_of_controller, replay_of_run, write
from macpf.report.replay.record import Played
from macpf.report.replay.shapes import (
    Bar,
    Circle,
    Colour,
    Flash,
    Line,
    Polygon,
    Rect,
    Shape,
    Sprite,
    Text,
    View,
)

__all__ = [
    "Agent",
    "Bar",
    "Circle",
    "Colour",
    "Drawing",
    "Episode",
    "Family",
    "Flash",
    "Frame",
    "Line",
    "Played",
    "Polygon",
    "Rect",
    "Replay",
    "Shape",
    "Sprite",
    "Text",
    "View",
    "replay_of_controller",
    "replay_of_run",
    "write",
]
