"""Pictures of a one-shot game: its payoffs, the joint action chosen, and how often each was so far."""

from collections.abc import Iterator, Sequence

import numpy as np

from macpf.envs.matrix import MatrixGame
from macpf.errors import require
from macpf.report.joint import LARGEST, LETTERS
from macpf.report.replay.data import Drawing, Family
from macpf.report.replay.record import Played
from macpf.report.replay.shapes import Circle, Colour, Plain, Rect, Text, View, of_agent

GAP = 0.05
ROOMY = 12  # columns: where there are more, cells have no words in them


def draw(env: MatrixGame, plays: Sequence[Played]) -> Drawing:
    """Rows are the first agent's actions, columns the others'; a cell fills up as it is chosen."""
    rows, columns = _size(env)
    require(rows * columns <= LARGEST, f"a game of {rows * columns} joint actions is too large for a picture")
    chosen = np.asarray([np.ravel_multi_index(tuple(played.actions[0]), env.table.shape) for played in plays])
    counts = np.cumsum(chosen[:, None] == np.arange(rows * columns)[None], axis=0)
    before = np.concatenate([np.zeros_like(counts[:1]), counts[:-1]])
    pictures = tuple(
        ((*_shares(env, old),), (*_shares(env, new), *_choice(env, int(cell))))
        for old, new, cell in zip(before, counts, chosen, strict=True)
    )
    view = View(-0.95, -rows - 0.15, columns + 1.1, rows + 1.1)
    return Drawing(view, tuple(_backdrop(env)), pictures)


def names(env: MatrixGame, agent: int) -> tuple[str, ...]:
    """Letters for the actions."""
    return tuple(LETTERS[a % 26] for a in range(env.spec.n_actions))


GAME = Family(names, draw)


def _size(env: MatrixGame) -> tuple[int, int]:
    rows = env.table.shape[0]
    return rows, env.table.size // rows


def _backdrop(env: MatrixGame) -> Iterator[Plain]:
    """Payoffs, green above 0 and red below, and the headings."""
    rows, columns = _size(env)
    table = env.table.reshape(rows, columns)
    largest = max(float(np.max(np.abs(table))), 1e-9)
    for (i, j), value in np.ndenumerate(table):
        colour = Colour.GOOD if value > 0 else Colour.BAD if value < 0 else Colour.SOFT
        strength = 0.08 + 0.32 * abs(float(value)) / largest
        yield Rect(j + GAP / 2, -i - 1 + GAP / 2, 1 - GAP, 1 - GAP, fill=colour, alpha=strength)
        if columns <= ROOMY:
            yield Text(j + 0.5, -i - 0.42, f"{value:g}", 0.3, Colour.INK, bold=True)
    for i in range(rows):
        yield Text(-0.28, -i - 0.5, LETTERS[i % 26], 0.26, of_agent(0), bold=True)
    yield Text(-0.75, 0.68, "agent 1 ↓", 0.17, of_agent(0), align="start")
    if columns > 1:
        others = "agent 2 →" if env.table.ndim == 2 else "other agents →"
        yield Text(columns - GAP, 0.68, others, 0.17, of_agent(1), align="end")
        for j, actions in enumerate(np.ndindex(*env.table.shape[1:])):
            if columns <= 4 * ROOMY:
                size = 0.26 if columns <= ROOMY else 0.5 / len(actions)
                word = "".join(LETTERS[a % 26] for a in actions)
                yield Text(j + 0.5, 0.28, word, size, of_agent(1), bold=True)


def _shares(env: MatrixGame, counts: np.ndarray) -> Iterator[Plain]:
    """A bar at the foot of each cell: its share of the choices so far."""
    _, columns = _size(env)
    of = max(int(np.sum(counts)), 1)
    for cell, count in enumerate(counts):
        if count:
            i, j = divmod(cell, columns)
            wide = 1 - 2 * GAP - 0.1
            x, y = j + GAP + 0.05, -i - 1 + GAP + 0.05
            yield Rect(x, y, wide, 0.07, fill=Colour.INK, alpha=0.12)
            yield Rect(x, y, wide * float(count) / of, 0.07, fill=Colour.ACCENT)
            if columns <= ROOMY:
                yield Text(j + 0.5, y + 0.19, f"{count} of {of}", 0.135, Colour.SOFT)


def _choice(env: MatrixGame, cell: int) -> Iterator[Plain]:
    """The chosen cell, framed, and its row and column marked."""
    i, j = divmod(cell, _size(env)[1])
    yield Rect(j + GAP / 2, -i - 1 + GAP / 2, 1 - GAP, 1 - GAP, stroke=Colour.ACCENT, width=0.06)
    yield Circle(-0.28, -i - 0.5, 0.22, stroke=of_agent(0), width=0.035)
    if _size(env)[1] > 1:
        yield Circle(j + 0.5, 0.28, 0.22, stroke=of_agent(1), width=0.035)
