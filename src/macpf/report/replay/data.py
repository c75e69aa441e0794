"""A replay as a value: what happened, step by step, and what it looked like; and the same as JSON."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise
from typing import Any

from macpf.report.replay.record import Played
from macpf.report.replay.shapes import (
    DARK,
    LIGHT,
    Bar,
    Colour,
    Figure,
    Flash,
    Plain,
    Shape,
    Sprite,
    View,
    of_agent,
)

DIGITS = 5  # of a coordinate in the page: less than a tenth of a pixel
GRAINS, LEVELS = 5000, 100  # of a sprite: whole numbers for the width of the view, and for a full bar
STEP_MS = 140  # of a step in the page, unless a drawing says otherwise


@dataclass(frozen=True)
class Frame:
    """A moment: its picture, and the step that led there (at the start: no actions, reward 0)."""

    shapes: tuple[Shape, ...]
    actions: tuple[str, ...]
    reward: float
    total: float


@dataclass(frozen=True)
class Episode:
    """An episode of T steps in T + 1 frames, and how it ended, where there is a word for it."""

    frames: tuple[Frame, ...]
    outcome: str

    @property
    def total(self) -> float:
        return self.frames[-1].total


@dataclass(frozen=True)
class Agent:
    """What an agent is called, and its colour."""

    name: str
    colour: Colour


@dataclass(frozen=True)
class Replay:
    """Some episodes of one policy in one world; the rest is as its drawing has it."""

    title: str
    policy: str
    agents: tuple[Agent, ...]
    view: View
    backdrop: tuple[Plain, ...]
    figures: tuple[Figure, ...]
    step_ms: int
    episodes: tuple[Episode, ...]


@dataclass(frozen=True)
class Drawing:
    """The pictures of some episodes: one for every moment of each, all before the same backdrop.

    `figures` are what sprites show; `step_ms` is the time that a step takes.
    """

    view: View
    backdrop: tuple[Plain, ...]
    episodes: tuple[tuple[tuple[Shape, ...], ...], ...]
    figures: tuple[Figure, ...] = ()
    step_ms: int = STEP_MS


def numbered(env: Any) -> tuple[Agent, ...]:
    """Agents that are called by their number."""
    return tuple(Agent(f"agent {i + 1}", of_agent(i)) for i in range(env.spec.n_agents))


def won_or_not(env: Any, played: Played) -> str:
    """The end of an episode of a task that can be won."""
    return "won" if played.won else ""


@dataclass(frozen=True)
class Family:
    """How a kind of task is shown.

    `actions`: the names of the actions of agent i, `draw`: the pictures of episodes, `agents`: what the
    agents are called, `outcome`: how an episode ended, in a word.
    """

    actions: Callable[[Any, int], Sequence[str]]
    draw: Callable[[Any, Sequence[Played]], Drawing]
    agents: Callable[[Any], tuple[Agent, ...]] = numbered
    outcome: Callable[[Any, Played], str] = won_or_not


def replay(title: str, policy: str, env: Any, family: Family, plays: Sequence[Played]) -> Replay:
    """Some episodes of a task, as a replay."""
    drawing, agents = family.draw(env, plays), family.agents(env)
    names = [family.actions(env, i) for i in range(len(agents))]
    episodes = (
        _episode(played, shapes, names, family.outcome(env, played))
        for played, shapes in zip(plays, drawing.episodes, strict=True)
    )
    return Replay(
        title,
        policy,
        agents,
        drawing.view,
        drawing.backdrop,
        drawing.figures,
        drawing.step_ms,
        tuple(episodes),
    )


def _episode(
    played: Played, pictures: Sequence[tuple[Shape, ...]], names: Sequence[Sequence[str]], outcome: str
) -> Episode:
    rewards = [0.0, *map(float, played.reward)]
    chosen = (tuple(own[int(a)] for own, a in zip(names, joint, strict=True)) for joint in played.actions)
    rows = zip(pictures, [(), *chosen], rewards, accumulate(rewards), strict=True)
    return Episode(tuple(Frame(*row) for row in rows), outcome)


def to_json(shown: Replay) -> str:
    """The whole replay for the page, with both themes."""
    grain = shown.view.width / GRAINS
    more = {"themes": {"light": LIGHT, "dark": DARK}, "grain": grain, "full": LEVELS}

    def plain(value: Any) -> Any:
        """A value as JSON has it; what is no number is null."""
        if isinstance(value, Sprite):
            return _packed(value, shown.view, grain)
        if isinstance(value, Flash):
            return plain(value.shape) | {"since": _rounded(value.since)}
        if isinstance(value, Plain | Bar):
            usual = {f.name: f.default for f in fields(value)}
            told = {name: _rounded(v) for name, v in vars(value).items() if v != usual[name]}
            return {"kind": type(value).__name__.lower()} | told
        if isinstance(value, Replay | Agent | Episode | Frame | View):
            return {name: plain(v) for name, v in vars(value).items()}
        if isinstance(value, tuple):
            return [plain(part) for part in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(shown) | more, separators=(",", ":"))


def _packed(sprite: Sprite, view: View, grain: float) -> list[int | float | None]:
    """A sprite as numbers in a row: its figure, when it is gone, its first moment, how the others differ."""
    rows = [
        (
            round((x - view.left) / grain),
            round((y - view.bottom) / grain),
            *(math.ceil(LEVELS * level) for level in levels),
        )
        for x, y, *levels in sprite.moments
    ]
    later = (b - a for before, after in pairwise(rows) for a, b in zip(before, after, strict=True))
    return [sprite.figure, sprite.until, *rows[0], *later]


def _rounded(value: Any) -> Any:
    """A part of a shape, its numbers no longer than a picture needs."""
    if isinstance(value, tuple):
        return [_rounded(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
