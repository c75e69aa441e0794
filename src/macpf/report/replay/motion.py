"""What is to be seen in the course of a step, in plain shapes: sprites on their way, flashes that fade."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from macpf.report.replay.data import Frame
from macpf.report.replay.shapes import Bar, Figure, Flash, Line, Plain, Polygon, Rect, Sprite

FADE = 0.6  # of a step, until a flash is gone


def at_rest(figures: Sequence[Figure], frame: Frame) -> Iterator[Plain]:
    """A frame that nothing leads away from: all where they came to, with all that flashed in the step."""
    for shape in frame.shapes:
        if isinstance(shape, Sprite):
            yield from _placed(figures, shape, 1.0)
        else:
            yield shape.shape if isinstance(shape, Flash) else shape


def on_the_way(figures: Sequence[Figure], before: Frame, frame: Frame, share: float) -> Iterator[Plain]:
    """When a share of the step from one frame to the next has passed."""
    for shape in frame.shapes:
        if isinstance(shape, Sprite):
            yield from _placed(figures, shape, share)
        elif isinstance(shape, Flash):
            yield from _faded(shape, share - shape.since)
        else:
            yield shape
    for shape in before.shapes:
        if isinstance(shape, Flash):
            yield from _faded(shape, 1.0 + share - shape.since)


def _placed(figures: Sequence[Figure], sprite: Sprite, share: float) -> Iterator[Plain]:
    """The figure where the sprite is by then, with its bars."""
    if sprite.until is not None and share >= sprite.until:
        return
    x, y, *levels = _moment(sprite, share)
    for part in figures[sprite.figure]:
        if isinstance(part, Bar):
            yield Rect(x + part.x, y + part.y, part.w * levels.pop(0), part.h, part.fill)
        elif isinstance(part, Line | Polygon):
            yield replace(part, points=tuple((x + px, y + py) for px, py in part.points))
        else:
            yield replace(part, x=x + part.x, y=y + part.y)


def _moment(sprite: Sprite, share: float) -> tuple[float, ...]:
    """Between the two moments around a time."""
    last = len(sprite.moments) - 1
    k = max(0, min(int(share * last), last - 1))
    part = share * last - k
    pairs = zip(sprite.moments[k], sprite.moments[min(k + 1, last)], strict=True)
    return tuple(a + part * (b - a) for a, b in pairs)


def _faded(flash: Flash, age: float) -> Iterator[Plain]:
    if 0 <= age < FADE:
        yield replace(flash.shape, alpha=flash.shape.alpha * (1 - age / FADE))
