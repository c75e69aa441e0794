"""Pictures of the particle tasks: agents with their paths and pushes, and the places they should be in."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import linear_sum_assignment

from macpf.envs.mpe.formation import FormationControl
from macpf.envs.mpe.line import LineControl
from macpf.envs.mpe.physics import DIRECTIONS
from macpf.envs.mpe.spread import SimpleSpread
from macpf.envs.mpe.world import ParticleTask
from macpf.report.replay.data import Drawing, Family
from macpf.report.replay.record import Played
from macpf.report.replay.shapes import Circle, Colour, Line, Plain, Rect, Text, View, of_agent

ACTIONS = ("stay", "left", "right", "down", "up")
MARGIN = 0.12
LABEL = 0.075  # height of an agent's number

Points = Float[np.ndarray, "_ 2"]


@dataclass(frozen=True)
class Ground:
    """What there is of one moment besides the agents: under them, and over them."""

    under: tuple[Plain, ...]
    over: tuple[Plain, ...] = ()


# Of the landmarks, the places and the agents at one moment.
Lay = Callable[[Points, Points, Points], Ground]


def draw_spread(env: SimpleSpread, plays: Sequence[Played]) -> Drawing:
    """Landmarks, green when covered, each tied to the agent nearest to it; colliding agents are ringed."""

    def lay(landmarks: Points, places: Points, agents: Points) -> Ground:
        distance = _distances(agents, landmarks)
        if env.spread_reward == "hungarian":
            pairs = _matching(distance)
        else:
            pairs = [(int(i), j) for j, i in enumerate(np.argmin(distance, axis=0))]
        reached = [bool(distance[pair] < env.success_distance) for pair in pairs]
        ties = (_tie(agents[i], landmarks[j], r) for (i, j), r in zip(pairs, reached, strict=True))
        marks = (_landmark(landmarks[j], r) for (_, j), r in zip(pairs, reached, strict=True))
        hits = (
            Circle(*_xy(agent), env.radius + 0.02, stroke=Colour.BAD, width=0.022)
            for agent in agents[_colliding(agents, env.radius)]
        )
        return Ground(tuple(ties), (*hits, *marks))

    return _draw(env, plays, lay)


def draw_formation(env: FormationControl, plays: Sequence[Played]) -> Drawing:
    """The circle about the landmark and the places on it, each tied to the agent that is matched with it."""

    def lay(landmarks: Points, places: Points, agents: Points) -> Ground:
        x, y = _xy(landmarks[0])
        circle = Circle(x, y, env.circle, stroke=Colour.SOFT, width=0.008, alpha=0.5)
        return Ground((circle, Circle(x, y, 0.025, fill=Colour.INK), *_shared_out(env, agents, places)))

    return _draw(env, plays, lay)


def draw_line(env: LineControl, plays: Sequence[Played]) -> Drawing:
    """The line between the landmarks and the places on it, each tied to the agent that is matched with it."""

    def lay(landmarks: Points, places: Points, agents: Points) -> Ground:
        line = Line(tuple(map(_xy, landmarks)), Colour.SOFT, 0.01, alpha=0.5)
        ends = (Circle(*_xy(end), 0.018, fill=Colour.INK) for end in landmarks)
        return Ground((line, *ends, *_shared_out(env, agents, places)))

    return _draw(env, plays, lay)


SPREAD = Family(lambda env, agent: ACTIONS, draw_spread)
FORMATION = Family(lambda env, agent: ACTIONS, draw_formation)
LINE = Family(lambda env, agent: ACTIONS, draw_line)


def _draw(env: ParticleTask, plays: Sequence[Played], lay: Lay) -> Drawing:
    """The pictures of a task that differs from others by the ground of its agents."""

    def pictures(played: Played) -> tuple[tuple[Plain, ...], ...]:
        world = played.states
        moments = zip(world.landmarks, np.asarray(jax.vmap(env.slots)(world)), world.position, strict=True)
        grounds = [lay(*moment) for moment in moments]
        return tuple(
            (*ground.under, *_discs(env, played, t), *ground.over, *_numbers(env, played.states.position[t]))
            for t, ground in enumerate(grounds)
        )

    return Drawing(_view(plays), _backdrop(), tuple(map(pictures, plays)))


def _discs(env: ParticleTask, played: Played, t: int) -> Iterator[Plain]:
    """Every agent's path so far, then its push and its disc."""
    paths = np.moveaxis(played.states.position[: t + 1], 1, 0)
    for i, path in enumerate(paths):
        if t > 0:
            yield Line(tuple(map(_xy, path)), of_agent(i), 0.012, alpha=0.45)
    for i, path in enumerate(paths):
        if t > 0 and played.actions[t - 1, i] > 0:
            yield from _arrow(path[-1], DIRECTIONS[played.actions[t - 1, i]], env.radius, of_agent(i))
        yield Circle(*_xy(path[-1]), env.radius, of_agent(i))


def _numbers(env: ParticleTask, agents: Points) -> Iterator[Plain]:
    """The agents' numbers, beside their discs, where no arrow is."""
    aside = 0.75 * env.radius + 0.06
    for i, agent in enumerate(agents):
        x, y = _xy(agent)
        yield Text(x + aside, y + aside, str(i + 1), LABEL, of_agent(i), bold=True)


def _arrow(at: np.ndarray, d: np.ndarray, radius: float, colour: Colour) -> Iterator[Plain]:
    """From the rim of a disc, in a direction."""
    across = np.asarray((-d[1], d[0]))
    tip = at + (radius + 0.085) * d
    yield Line((_xy(at + radius * d), _xy(tip)), colour, 0.018)
    yield Line((_xy(tip - 0.035 * (d + across)), _xy(tip), _xy(tip - 0.035 * (d - across))), colour, 0.018)


def _shared_out(env: ParticleTask, agents: Points, places: Points) -> Iterator[Plain]:
    """Places, each a ring that fits round an agent, tied to its agent in the best matching."""
    distance = _distances(agents, places)
    for i, j in _matching(distance):
        reached = bool(distance[i, j] < env.success_distance)
        yield _tie(agents[i], places[j], reached)
        colour = Colour.GOOD if reached else Colour.SOFT
        yield Circle(*_xy(places[j]), env.radius + 0.022, stroke=colour, width=0.016)


def _landmark(at: np.ndarray, reached: bool) -> Plain:
    """A landmark that an agent may hide: a ring, or a green disc on the agent that covers it."""
    if reached:
        return Circle(*_xy(at), 0.065, fill=Colour.GOOD, stroke=Colour.PAPER, width=0.016)
    return Circle(*_xy(at), 0.06, fill=Colour.PAPER, stroke=Colour.SOFT, width=0.016)


def _tie(agent: np.ndarray, place: np.ndarray, reached: bool) -> Plain:
    return Line(
        (_xy(agent), _xy(place)), Colour.GOOD if reached else Colour.SOFT, 0.007, alpha=0.7, dash=0.03
    )


def _backdrop() -> tuple[Plain, ...]:
    """The square where agents start, with a grid."""
    ticks = [-0.5, 0.0, 0.5]
    grid = chain.from_iterable(
        (Line(((x, -1.0), (x, 1.0)), Colour.GRID, 0.006), Line(((-1.0, x), (1.0, x)), Colour.GRID, 0.006))
        for x in ticks
    )
    return (*grid, Rect(-1.0, -1.0, 2.0, 2.0, stroke=Colour.GRID, width=0.012))


def _view(plays: Sequence[Played]) -> View:
    """A square about the middle that holds everybody all the time, and at least [-1, 1]^2."""
    furthest = max(float(np.max(np.abs(played.states.position))) for played in plays)
    half = max(1.0, furthest) + MARGIN
    return View(-half, -half, 2 * half, 2 * half)


def _matching(distance: Float[np.ndarray, "N L"]) -> list[tuple[int, int]]:
    """The pairs of an agent and a place whose total distance is least."""
    agents, places = linear_sum_assignment(distance)
    return list(zip(agents.tolist(), places.tolist(), strict=True))


def _distances(one: Points, other: Points) -> Float[np.ndarray, "N L"]:
    return np.linalg.norm(one[:, None] - other[None], axis=-1)


def _colliding(agents: Points, radius: float) -> Bool[np.ndarray, " N"]:
    """Who touches somebody else."""
    return np.sum(_distances(agents, agents) < 2 * radius, axis=1) > 1


def _xy(point: np.ndarray) -> tuple[float, float]:
    return float(point[0]), float(point[1])
