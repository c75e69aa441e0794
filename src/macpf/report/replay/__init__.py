"""Replays: episodes of a run or of a controller, as an animated GIF and as one page for a browser."""

from macpf.report.replay.data import Drawing, Episode, Family, Frame, Replay
from macpf.report.replay.make import replay_of_controller, replay_of_run, write
from macpf.report.replay.record import Played
from macpf.report.replay.shapes import Circle, Colour, Line, Rect, Shape, Text, View

__all__ = [
    "Circle",
    "Colour",
    "Drawing",
    "Episode",
    "Family",
    "Frame",
    "Line",
    "Played",
    "Rect",
    "Replay",
    "Shape",
    "Text",
    "View",
    "replay_of_controller",
    "replay_of_run",
    "write",
]
