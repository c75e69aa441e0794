"""The ground: which cells are open, and the way round what is not.

Axes as in StarCraft II: x east, y north, cell (i, j) covers [i, i+1) x [j, j+1).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.sparse import lil_array
from scipy.sparse.csgraph import dijkstra

SIZE = 32  # cells along each side
BORDER = 2.0  # flyers stay this far from the edge
EDGE = 1e-3  # centres stay this far inside the last open cell

# The open cells, as "rows: from-to from-to; rows: ..."
MAPS: Mapping[str, str] = {
    "simple": "7-24: 2-29",
    "flat": "2-29: 2-29",
    "corridor": "2: 2-13; 3-10: 2-12; 11: 2-13; 12: 2-14; 13: 11-25; 14: 12-26; 15: 13-27; 16: 13-28;"
    "17: 12-29; 18-21: 11-29; 22: 12-29; 23: 13-29; 24: 14-29; 25: 15-29; 26: 16-29; 27: 17-29; 28: 18-29;"
    "29: 19-29",
    "band": "2: 2-8; 3: 2-11; 4-6: 2-12; 7: 2-15; 8: 2-16; 9-10: 3-16; 11: 3-19; 12: 4-20; 13-15: 7-20;"
    "16: 8-20; 17: 9-25; 18: 10-26; 19-20: 13-26; 21: 13-29; 22: 14-29; 23: 15-29; 24: 16-29; 25-27: 19-29;"
    "28: 20-29; 29: 21-29",
    "ravine": "5: 4-27; 6: 3-28; 7-11: 2-29; 12: 2-3 28-29; 13-18: 2-29; 19: 3-4 7-24 27-28;"
    "20: 4-5 7-24 26-27",
    "cross": "7: 10-19; 8: 9-20; 9: 8-21; 10-17: 7-22; 18: 8-21; 19: 9-20; 20: 10-19",
    "octagon": "5: 10-21; 6: 9-22; 7: 8-23; 8: 7-24; 9: 6-25; 10-21: 5-26; 22: 6-25; 23: 7-24; 24: 8-23;"
    "25: 9-22; 26: 10-21",
    "pentagon": "7: 8-19; 8-19: 7-20; 20: 8-19; 21: 9-18; 22: 10-17; 23: 11-16; 24: 12-15",
}
# Cells where only colossi can stand beside the open ones: the cliff's face and the sides of the ramps.
CLIFFS: Mapping[str, str] = {"ravine": "12: 4-27; 19: 5-6 25-26; 20: 6-6 25-25"}
WINDING = frozenset({"corridor", "band", "ravine"})  # a straight line does not do there


@dataclass(frozen=True, eq=False)
class Terrain:
    """The ground of a map, made before anything is traced.

    `ground[y, x]` says where walkers can stand and `cliff[y, x]` where colossi can; `rectangle` is
    (west, south, east, north) where that is all there is to know; where the ground is `winding`, `paths`
    leads round its corners.
    """

    ground: Bool[np.ndarray, "32 32"]
    cliff: Bool[np.ndarray, "32 32"]
    rectangle: tuple[float, float, float, float] | None
    winding: bool

    @cached_property
    def paths(self) -> "Paths | None":
        """Found when first asked for, which takes about a second."""
        return find_paths(self.ground) if self.winding else None


@dataclass(frozen=True, eq=False)
class Paths:
    """The next place to head for, from every open cell to every other.

    `room[cell]` numbers the open cell nearest to a cell; `via[room, room]` is the cell to head for,
    or -1 where the goal itself is in plain view. Cells are numbered 32 y + x.
    """

    room: np.ndarray
    via: np.ndarray


def _span(words: str) -> slice:
    first, _, last = words.partition("-")
    return slice(int(first), int(last or first) + 1)


def _grid(text: str) -> np.ndarray:
    """Rows in words as booleans [y, x]."""
    grid = np.zeros((SIZE, SIZE), bool)
    for row in filter(None, (part.strip() for part in text.split(";"))):
        rows, _, spans = row.partition(":")
        for span in spans.split():
            grid[_span(rows), _span(span)] = True
    return grid


@cache
def terrain(name: str) -> Terrain:
    """The ground of a map of this name."""
    ground = _grid(MAPS[name])
    cliff = ground | _grid(CLIFFS.get(name, ""))
    ys, xs = np.nonzero(ground)
    west, south, east, north = xs.min(), ys.min(), xs.max() + 1, ys.max() + 1
    whole = bool(ground[south:north, west:east].all())
    rectangle = (float(west), float(south), float(east) - EDGE, float(north) - EDGE) if whole else None
    return Terrain(ground, cliff, rectangle, name in WINDING)


def is_open(grid: np.ndarray, x: Float[Array, "*u"], y: Float[Array, "*u"]) -> Bool[Array, "*u"]:
    """Is the cell under each point open? Nothing is outside the map."""
    i, j = jnp.floor(x).astype(jnp.int32), jnp.floor(y).astype(jnp.int32)
    inside = (i >= 0) & (i < SIZE) & (j >= 0) & (j < SIZE)
    cell = jnp.clip(j * SIZE + i, 0, SIZE * SIZE - 1)
    return inside & jnp.asarray(grid.reshape(-1))[cell]


def is_open_ground(land: Terrain, x: Float[Array, "*u"], y: Float[Array, "*u"]) -> Bool[Array, "*u"]:
    """The same for walkers, without a look at the grid where the open cells are a rectangle."""
    if land.rectangle is None:
        return is_open(land.ground, x, y)
    west, south, east, north = land.rectangle
    return (x >= west) & (x < east + EDGE) & (y >= south) & (y < north + EDGE)


def heading(
    paths: Paths,
    x: Float[Array, " U"],
    y: Float[Array, " U"],
    to_x: Float[Array, " U"],
    to_y: Float[Array, " U"],
) -> tuple[Float[Array, " U"], Float[Array, " U"]]:
    """Where to head for on the way to a goal: the goal itself if it is in view, else the next corner."""
    room = jnp.asarray(paths.room)
    here, there = (
        room[jnp.floor(j).astype(jnp.int32) * SIZE + jnp.floor(i).astype(jnp.int32)]
        for i, j in ((x, y), (to_x, to_y))
    )
    via = jnp.asarray(paths.via.reshape(-1))[here * paths.via.shape[1] + there].astype(jnp.int32)
    in_view = via < 0
    return jnp.where(in_view, to_x, via % SIZE + 0.5), jnp.where(in_view, to_y, via // SIZE + 0.5)


def find_paths(ground: Bool[np.ndarray, "32 32"]) -> Paths:
    """Shortest ways over open cells, eight neighbours each, no corner cut; straight in plain view."""
    ys, xs = np.nonzero(ground)
    number = np.full((SIZE, SIZE), -1)
    number[ys, xs] = np.arange(len(xs))
    far = (np.arange(SIZE)[:, None, None] - ys) ** 2 + (np.arange(SIZE)[None, :, None] - xs) ** 2
    room = np.argmin(far, axis=-1).reshape(-1).astype(np.int32)
    _, before = dijkstra(_neighbours(ground, number), return_predecessors=True)
    step = before.T.copy()  # step[a, g]: the cell after a on the way from g back to a, turned round
    np.fill_diagonal(step, np.arange(len(xs)))
    view = _in_view(ground, xs, ys)
    goals = np.arange(len(xs))[None, :]
    via = step.copy()
    for _ in range(2 * SIZE):  # as far along the way as can be seen
        further = step[via, goals]
        seen = np.take_along_axis(view, further, axis=1)
        via = np.where(seen, further, via)
    cells = (ys * SIZE + xs)[via]
    return Paths(room, np.where(view, -1, cells).astype(np.int16))


def _neighbours(ground: np.ndarray, number: np.ndarray) -> lil_array:
    graph = lil_array((number.max() + 1, number.max() + 1))
    for j, i in np.argwhere(ground):
        for dj, di in ((0, 1), (1, 0), (1, 1), (1, -1)):
            if ground[j + dj, i + di] and ground[j, i + di] and ground[j + dj, i]:
                a, b = number[j, i], number[j + dj, i + di]
                graph[a, b] = graph[b, a] = np.hypot(dj, di)
    return graph


def _in_view(ground: np.ndarray, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """Which open cells see each other: nothing is between any corner of the one and of the other."""
    count = len(xs)
    clear = np.ones((count, count), bool)
    reach = 0.45
    for t in np.linspace(0, 1, 97):
        for dx, dy in ((-reach, -reach), (-reach, reach), (reach, -reach), (reach, reach)):
            x = xs[:, None] * (1 - t) + xs[None, :] * t + 0.5 + dx
            y = ys[:, None] * (1 - t) + ys[None, :] * t + 0.5 + dy
            clear &= ground[y.astype(int), x.astype(int)]
    return clear
