"""The ground of SMAC's maps: open cells with a grid, cliffs, and the edges where open ground ends."""

from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Bool

from macpf.envs.smac.terrain import SIZE, Terrain
from macpf.report.replay.shapes import Colour, Line, Plain, Rect

SEAM = 0.02  # by which neighbours overlap, so that no line is seen between them

Row = Bool[np.ndarray, " 32"]
Grid = Bool[np.ndarray, "32 32"]


def ground(land: Terrain) -> Iterator[Plain]:
    """All that is not closed; the lines of the grid are as far apart as a move leads."""
    yield from _cells(land.ground, Colour.GROUND)
    yield from _lines(land.ground, np.logical_and, Colour.GRID, every=2)
    yield from _cells(land.cliff & ~land.ground, Colour.CLIFF)
    yield from _lines(land.ground, np.logical_xor, Colour.SOFT)


def _cells(grid: Grid, colour: Colour) -> Iterator[Plain]:
    """Cells, a run of a row at a time."""
    for y, row in enumerate(grid):
        for start, end in _runs(row):
            yield Rect(start - SEAM, y - SEAM, end - start + 2 * SEAM, 1 + 2 * SEAM, fill=colour)


def _lines(grid: Grid, between: Callable[[Row, Row], Row], colour: Colour, every: int = 1) -> Iterator[Plain]:
    """Lines between cells of which something holds, along both axes."""
    for k in range(every, SIZE, every):
        for start, end in _runs(between(grid[k - 1], grid[k])):
            yield Line(((start, float(k)), (end, float(k))), colour, 0.06)
        for start, end in _runs(between(grid[:, k - 1], grid[:, k])):
            yield Line(((float(k), start), (float(k), end)), colour, 0.06)


def _runs(row: Row) -> list[tuple[float, float]]:
    """Where runs of what holds begin and end."""
    turns = np.flatnonzero(np.diff(np.pad(row, 1).astype(int)))
    return [(float(start), float(end)) for start, end in turns.reshape(-1, 2)]
