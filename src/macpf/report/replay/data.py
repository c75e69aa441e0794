"""A replay as a value: what happened, step by step, and what it looked like; and the same as JSON."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

from macpf.report.replay.record import Played
from macpf.report.replay.shapes import DARK, LIGHT, Shape, View

DIGITS = 5  # of a coordinate in the page: less than a tenth of a pixel


@dataclass(frozen=True)
class Frame:
    """A moment: its picture, and the step that led there (at the start: no actions, reward 0)."""

    shapes: tuple[Shape, ...]
    actions: tuple[str, ...]
    reward: float
    total: float


@dataclass(frozen=True)
class Episode:
    """An episode of T steps in T + 1 frames."""

    frames: tuple[Frame, ...]
    won: bool

    @property
    def total(self) -> float:
        return self.frames[-1].total


@dataclass(frozen=True)
class Replay:
    """Some episodes of one policy in one world; `backdrop` lies behind every frame."""

    title: str
    policy: str
    view: View
    backdrop: tuple[Shape, ...]
    episodes: tuple[Episode, ...]


@dataclass(frozen=True)
class Drawing:
    """The pictures of some episodes: one for every moment of each, all before the same backdrop."""

    view: View
    backdrop: tuple[Shape, ...]
    episodes: tuple[tuple[tuple[Shape, ...], ...], ...]


@dataclass(frozen=True)
class Family:
    """How a kind of task is shown: the names of its actions, and the pictures of episodes in it."""

    actions: Callable[[Any], Sequence[str]]
    draw: Callable[[Any, Sequence[Played]], Drawing]


def replay(title: str, policy: str, env: Any, family: Family, plays: Sequence[Played]) -> Replay:
    """Some episodes of a task, as a replay."""
    drawing, names = family.draw(env, plays), family.actions(env)
    episodes = (_episode(p, shapes, names) for p, shapes in zip(plays, drawing.episodes, strict=True))
    return Replay(title, policy, drawing.view, drawing.backdrop, tuple(episodes))


def _episode(played: Played, pictures: Sequence[tuple[Shape, ...]], names: Sequence[str]) -> Episode:
    rewards = [0.0, *map(float, played.reward)]
    actions = [(), *(tuple(names[a] for a in joint) for joint in played.actions)]
    rows = zip(pictures, actions, rewards, accumulate(rewards), strict=True)
    return Episode(tuple(Frame(*row) for row in rows), played.won)


def to_json(shown: Replay) -> str:
    """The whole replay for the page, with both themes."""
    return json.dumps(_plain(shown) | {"themes": {"light": LIGHT, "dark": DARK}}, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """A value as JSON has it; what is no number is null."""
    if isinstance(value, Shape):
        usual = {f.name: f.default for f in fields(value)}
        told = {name: _rounded(v) for name, v in vars(value).items() if v != usual[name]}
        return {"kind": type(value).__name__.lower()} | told
    if isinstance(value, Replay | Episode | Frame | View):
        return {name: _plain(v) for name, v in vars(value).items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rounded(value: Any) -> Any:
    """A part of a shape, its numbers no longer than a picture needs."""
    if isinstance(value, tuple):
        return [_rounded(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
