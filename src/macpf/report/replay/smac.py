"""Pictures of SMAC: the ground, both teams with their health, shots, beams, heals, explosions, deaths."""

from collections.abc import Iterator, Sequence
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np

from macpf.envs.smac import SMAC, Battle, Unit
from macpf.envs.smac.combat import BEAM_LENGTH, BEAM_WIDTH
from macpf.envs.smac.env import outcome
from macpf.envs.smac.field import BLAST_RADIUS
from macpf.report.replay.battle import Course, courses
from macpf.report.replay.data import Agent, Drawing, Family
from macpf.report.replay.figures import body, fallen, levels, standing
from macpf.report.replay.ground import ground
from macpf.report.replay.record import Played
from macpf.report.replay.shapes import Circle, Colour, Flash, Line, Plain, Rect, Shape, Sprite, Text, View

STEP_MS = 360  # eight frames at the speed that StarCraft is played at
ROOM = 2.5  # around everybody
RIM = 0.6  # of what is closed, around open ground
LEGEND, LETTER = 0.052, 0.022  # heights of the strip below the ground and of its words, in widths of the view
MOVES = ("no-op", "stop", "move north", "move south", "move east", "move west")


def draw(env: SMAC, plays: Sequence[Played]) -> Drawing:
    """Every unit goes its way through the frames of a step; what happens in one flashes at its moment."""
    view = _view(env, plays)
    figures = (
        *(standing(*unit) for unit in zip(env.field.kinds, _numbers(env), _colours(env), strict=True)),
        fallen(Colour.ALLY),
        fallen(Colour.ENEMY),
    )
    episodes = tuple(
        tuple(tuple(shapes) for shapes in _pictures(env, view, played, steps))
        for played, steps in zip(plays, courses(env, plays), strict=True)
    )
    return Drawing(view, tuple(_backdrop(env, view)), episodes, figures, STEP_MS)


def agents(env: SMAC) -> tuple[Agent, ...]:
    """The agents by kind and number."""
    return tuple(Agent(name, Colour.ALLY) for name in _names(env)[: env.field.n])


def actions(env: SMAC, agent: int) -> tuple[str, ...]:
    """What an agent can do, in words."""
    n, units = env.field.n, _names(env)
    if env.field.heals[agent]:
        return (*MOVES, *(f"heal {name}" for name in units[:n]))
    return (*MOVES, *(f"attack {name}" for name in units[n:]))


def ending(env: SMAC, played: Played) -> str:
    """Who won."""
    how = outcome(env.field, jax.tree.map(jnp.asarray, _at(played.states, -1)))
    return "won" if how.won else "lost" if how.lost else "draw" if how.draw else "out of time"


BATTLE = Family(actions, draw, agents, ending)


def _at(states: Battle, time: int | slice) -> Battle:
    return jax.tree.map(lambda x: x[time], states)


# Who is who


def _numbers(env: SMAC) -> list[int]:
    """Every unit's number among those of its kind and team."""
    kinds, n = env.field.kinds, env.field.n
    return [kinds[0 if u < n else n : u + 1].count(unit) for u, unit in enumerate(kinds)]


def _names(env: SMAC) -> list[str]:
    pairs = zip(env.field.kinds, _numbers(env), strict=True)
    return [f"{unit.name} {number}".replace("_", " ") for unit, number in pairs]


def _colours(env: SMAC) -> list[Colour]:
    return [Colour.ALLY] * env.field.n + [Colour.ENEMY] * env.field.e


# What moves


def _pictures(env: SMAC, view: View, played: Played, steps: Sequence[Course]) -> Iterator[Iterator[Shape]]:
    """The start, and each step with what came of it."""
    start = _at(played.states, slice(1))
    yield chain(_units(env, start), _score(env, view, start))
    for t, step in enumerate(steps, 1):
        end = _banner(view, ending(env, played)) if t == len(steps) else ()
        yield chain(_units(env, step.states), _events(env, step), _score(env, view, step.states), end)


def _score(env: SMAC, view: View, states: Battle) -> Iterator[Plain]:
    """How many of each team are left at the end, in the legend."""
    alive = states.health[-1] > 0
    x, y, size, n = view.left + view.width / 2, _legend_y(view), 1.3 * LETTER * view.width, env.field.n
    yield Text(x, y, ":", size, Colour.SOFT, bold=True)
    yield Text(x - size / 2, y, str(np.sum(alive[:n])), size, Colour.ALLY, "end", bold=True)
    yield Text(x + size / 2, y, str(np.sum(alive[n:])), size, Colour.ENEMY, "start", bold=True)


def _banner(view: View, end: str) -> Iterator[Shape]:
    """How the battle ended."""
    size, colour = 0.07 * view.width, Colour.GOOD if end == "won" else Colour.BAD
    x, y = view.left + view.width / 2, view.bottom + view.height - size
    yield Flash(Text(x, y, end, size, colour, bold=True), 1.0)


def _units(env: SMAC, states: Battle) -> Iterator[Shape]:
    """The fallen, then those on the ground from north to south, then those above them."""
    field, last = env.field, len(states.health) - 1
    falls = np.argmax(states.health <= 0, axis=0)
    dead = states.health[-1] <= 0
    for u in np.flatnonzero(dead).tolist():
        mark = len(field.kinds) + (u >= field.n)
        yield Sprite(mark, ((float(states.x[-1, u]), float(states.y[-1, u])),))
    for u in np.lexsort((-states.y[-1], field.flies)).tolist():
        if states.health[0, u] > 0:
            until = float(falls[u] / last) if dead[u] else None
            yield Sprite(u, _moments(field.kinds[u], states, u), until)


def _moments(unit: Unit, states: Battle, u: int) -> tuple[tuple[float, ...], ...]:
    """Where a unit was in a step and how it fared, at every other frame; once if nothing changed."""
    stride = 2 if len(states.x) % 2 else 1
    columns = (states.x, states.y, states.health, states.shield, states.energy)
    rows = np.stack([column[::stride, u] for column in columns], axis=1)
    rows = rows[:1] if (rows == rows[:1]).all() else rows
    return tuple((x, y, *levels(unit, h, s, e)) for x, y, h, s, e in rows.tolist())


# What happens


def _events(env: SMAC, step: Course) -> Iterator[Shape]:
    """All that happens in a step, at its moment."""
    kinds, colours, states = env.field.kinds, _colours(env), step.states
    places = np.stack([states.x, states.y], axis=-1).astype(float)
    for f, u in np.argwhere(step.shot >= 0).tolist():
        for shape in _shot(kinds[u], places[f, u], places[f, step.shot[f, u]], colours[u]):
            yield Flash(shape, f / step.frames)
    for f, u in np.argwhere(step.burst).tolist():
        blast = Circle(
            *_xy(places[f, u]), BLAST_RADIUS, Colour.ACCENT, stroke=colours[u], width=0.1, alpha=0.25
        )
        yield Flash(blast, f / step.frames)
    for f, u in np.argwhere((states.health[:-1] > 0) & (states.health[1:] <= 0)).tolist():
        ring = Circle(*_xy(places[f, u]), 1.25 * kinds[u].radius, stroke=colours[u], width=0.14)
        yield Flash(ring, f / step.frames)
    for u in np.flatnonzero((step.healed >= 0).any(axis=0)).tolist():
        patients = step.healed[:, u]
        most = int(np.bincount(patients[patients >= 0]).argmax())
        f = int(np.argmax(patients == most))
        for shape in _heal(places[f, u], places[f, most], kinds[most]):
            yield Flash(shape, f / step.frames)


def _shot(unit: Unit, start: np.ndarray, end: np.ndarray, colour: Colour) -> Iterator[Plain]:
    """From the rim of who fires to its target; of a colossus, the beam across that line too."""
    away = end - start
    ahead = away / max(float(np.hypot(*away)), 1e-6)
    if unit.sweeps:
        aside = BEAM_LENGTH * np.asarray((-ahead[1], ahead[0]))
        yield Line((_xy(start), _xy(end)), Colour.ACCENT, 0.08, alpha=0.7)
        yield Line((_xy(end - aside), _xy(end + aside)), Colour.ACCENT, 2 * BEAM_WIDTH, alpha=0.85)
    else:
        yield Line((_xy(start + 0.6 * unit.radius * ahead), _xy(end)), colour, 0.09, alpha=0.85)


def _heal(medivac: np.ndarray, patient: np.ndarray, unit: Unit) -> Iterator[Plain]:
    """A line to whom the medivac healed longest in the step, and a ring round that one."""
    yield Line((_xy(medivac), _xy(patient)), Colour.GOOD, 0.13, alpha=0.8, dash=0.3)
    yield Circle(*_xy(patient), unit.radius + 0.1, stroke=Colour.GOOD, width=0.13)


def _xy(point: np.ndarray) -> tuple[float, float]:
    return float(point[0]), float(point[1])


# What stays


def _view(env: SMAC, plays: Sequence[Played]) -> View:
    """Where everybody was at any time, at least as wide as high, and a strip below for the legend."""
    ys, xs = np.nonzero(env.field.land.cliff)
    left, right = _span(np.concatenate([played.states.x.ravel() for played in plays]), xs)
    bottom, top = _span(np.concatenate([played.states.y.ravel() for played in plays]), ys)
    aside = max(top - bottom - (right - left), 0.0) / 2
    wide = right - left + 2 * aside
    return View(left - aside, bottom - LEGEND * wide, wide, top - bottom + LEGEND * wide)


def _span(places: np.ndarray, cells: np.ndarray) -> tuple[float, float]:
    """All places along an axis with some room, but little of what is closed, unless somebody flies there."""
    low = min(max(places.min() - ROOM, cells.min() - RIM), places.min() - 1)
    high = max(min(places.max() + ROOM, cells.max() + 1 + RIM), places.max() + 1)
    return float(low), float(high)


def _backdrop(env: SMAC, view: View) -> Iterator[Plain]:
    """Walls, the ground within them, and the legend."""
    yield Rect(view.left, view.bottom, view.width, view.height, fill=Colour.WALL)
    yield from ground(env.field.land)
    yield Rect(view.left, view.bottom, view.width, LEGEND * view.width, fill=Colour.PAPER)
    yield from _legend(env, view)


def _legend(env: SMAC, view: View) -> Iterator[Plain]:
    """The kinds of both teams: the agents' from the left, the opponents' from the right."""
    n, size = env.field.n, LETTER * view.width
    ours, theirs = (list(dict.fromkeys(team)) for team in (env.field.kinds[:n], env.field.kinds[n:]))
    x = view.left + size / 2
    for unit in ours:
        yield from _entry(unit, Colour.ALLY, x, view)
        x += size * _letters(unit)
    x = view.left + view.width
    for unit in reversed(theirs):
        x -= size * _letters(unit)
        yield from _entry(unit, Colour.ENEMY, x, view)


def _entry(unit: Unit, colour: Colour, x: float, view: View) -> Iterator[Plain]:
    size, y = LETTER * view.width, _legend_y(view)
    yield body(unit, colour, x + 0.6 * size, y, 0.6 * size)
    yield Text(x + 1.5 * size, y, unit.name.replace("_", " "), size, Colour.INK, align="start")


def _letters(unit: Unit) -> float:
    """The width of a kind in the legend, in heights of a letter."""
    return 2.3 + 0.56 * len(unit.name)


def _legend_y(view: View) -> float:
    return view.bottom + LEGEND * view.width / 2
