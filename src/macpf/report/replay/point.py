"""Pictures of the multi-goal task: hills of reward, the point and its path, and what each agent chose."""

from collections.abc import Iterator, Sequence

import numpy as np

from macpf.envs.multi_goal import DIRECTIONS, MultiGoal
from macpf.report.replay.data import Drawing, Family
from macpf.report.replay.record import Played
from macpf.report.replay.shapes import Circle, Colour, Line, Plain, Rect, View, of_agent

ACTIONS = ("right", "up", "left", "down")
RINGS = np.linspace(2.0, 0.2, 10)  # of a hill, in widths of its Gaussian


def draw(env: MultiGoal, plays: Sequence[Played]) -> Drawing:
    """The point before the hills; an arrow for each agent's choice, one beside the other."""
    half = 1.06 * env.bound
    pictures = tuple(
        tuple(tuple(_moment(env, played, t)) for t in range(played.steps + 1)) for played in plays
    )
    return Drawing(View(-half, -half, 2 * half, 2 * half), tuple(_backdrop(env)), pictures)


POINT = Family(lambda env, agent: ACTIONS, draw)


def _moment(env: MultiGoal, played: Played, t: int) -> Iterator[Plain]:
    path = played.states.position[: t + 1].astype(float)
    x, y = map(float, path[-1])
    u = env.bound / 7
    if t > 0:
        yield Line(tuple((float(a), float(b)) for a, b in path), Colour.INK, 0.09 * u, alpha=0.45)
        for a, b in path[:-1]:
            yield Circle(float(a), float(b), 0.1 * u, fill=Colour.INK, alpha=0.45)
        actions = played.actions[t - 1]
        agreed = len(set(actions.tolist())) == 1
        yield Circle(x, y, 0.42 * u, stroke=Colour.GOOD if agreed else Colour.BAD, width=0.09 * u)
        for i, action in enumerate(actions):
            yield from _arrow(path[-1], np.asarray(DIRECTIONS[action]), i, env)
    yield Circle(x, y, 0.27 * u, fill=Colour.INK)


def _arrow(at: np.ndarray, d: np.ndarray, i: int, env: MultiGoal) -> Iterator[Plain]:
    """The way that an agent chose, drawn beside those of the others."""
    u = env.bound / 7
    across = np.asarray((-d[1], d[0]))
    base = at + (0.36 * (i - (env.n_agents - 1) / 2)) * u * across
    tail, tip = base + 0.55 * u * d, base + 1.45 * u * d
    barbs = (tip - 0.28 * u * (d + across), tip, tip - 0.28 * u * (d - across))
    yield Line(((float(tail[0]), float(tail[1])), (float(tip[0]), float(tip[1]))), of_agent(i), 0.13 * u)
    yield Line(tuple((float(p[0]), float(p[1])) for p in barbs), of_agent(i), 0.13 * u)


def _backdrop(env: MultiGoal) -> Iterator[Plain]:
    """A hill at every goal, the axes, and the walls."""
    b, u = env.bound, env.bound / 7
    yield Line(((-b, 0.0), (b, 0.0)), Colour.GRID, 0.04 * u)
    yield Line(((0.0, -b), (0.0, b)), Colour.GRID, 0.04 * u)
    for gx, gy in env.goal_distance * np.asarray(DIRECTIONS):
        for ring in RINGS:
            yield Circle(float(gx), float(gy), float(ring * env.goal_width), fill=Colour.ACCENT, alpha=0.085)
        yield Circle(float(gx), float(gy), 0.12 * u, fill=Colour.ACCENT)
    yield Rect(-b, -b, 2 * b, 2 * b, stroke=Colour.GRID, width=0.08 * u)
