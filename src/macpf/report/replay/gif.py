"""A replay as an animated GIF: the same shapes as in the page, in the light theme."""

import io
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw, ImageFont

from macpf.report.replay.data import Episode, Replay
from macpf.report.replay.motion import at_rest, on_the_way
from macpf.report.replay.shapes import LIGHT, Circle, Colour, Line, Plain, Point, Polygon, Rect, Text, View

SMOOTH = 3  # drawn so many times as large, then made smaller
CAPTION = 54  # pixels below the picture
STEP_MS, HOLD_MS = 120, 1200  # an image, and the last of an episode
FINEST = 128  # colours of the GIF
SAMPLES = 5  # images whose colours are looked at
LONGEST = 400  # images; more are for the page alone


def to_gif(shown: Replay, size: int = 420, tell: Callable[[], None] = lambda: None) -> bytes:
    """All episodes, one after the other, `size` pixels wide; `tell` is called after each frame."""
    backdrop = _backdrop(shown, size)
    images, durations = [], []
    for number, episode in enumerate(shown.episodes):
        last = len(episode.frames) - 1
        for t, share in _times(shown, episode):
            images.append(_image(shown, backdrop, number, t, share))
            ends = t == last and share is None
            durations.append(HOLD_MS if ends else STEP_MS if last > 1 else HOLD_MS // 3)
            tell()
    return _encode(images, durations)


def beginning(shown: Replay) -> Replay:
    """As many whole episodes as an animation holds, and at least one."""
    images = np.cumsum([len(_times(shown, episode)) for episode in shown.episodes])
    return replace(shown, episodes=shown.episodes[: max(1, int(np.sum(images <= LONGEST)))])


def still(shown: Replay, episode: int, t: int, size: int = 420) -> Image.Image:
    """One frame as an image."""
    return _image(shown, _backdrop(shown, size), episode, t, None)


def images_of(shown: Replay) -> int:
    """How many images the animation of a replay has."""
    return sum(len(_times(shown, episode)) for episode in shown.episodes)


def _times(shown: Replay, episode: Episode) -> list[tuple[int, float | None]]:
    """When there is an image: at rest at every frame or, where a step takes longer, some on the way."""
    some, last = max(1, round(shown.step_ms / STEP_MS)), len(episode.frames) - 1
    if some == 1:
        return [(t, None) for t in range(last + 1)]
    on_the_way = [(t, (k + 0.5) / some) for t in range(1, last + 1) for k in range(some)]
    return [(0, None), *on_the_way, (last, None)]


def _backdrop(shown: Replay, size: int) -> Image.Image:
    """What lies behind every frame, as large as it is drawn."""
    high = round(size * shown.view.height / shown.view.width)
    image = Image.new("RGB", (size * SMOOTH, high * SMOOTH), LIGHT[Colour.PAPER])
    _paint(image, shown.view, shown.backdrop)
    return image


def _image(shown: Replay, backdrop: Image.Image, episode: int, t: int, share: float | None) -> Image.Image:
    """A frame, or what leads to it, before the backdrop, with its caption below."""
    frames, outcome = shown.episodes[episode].frames, shown.episodes[episode].outcome
    picture = backdrop.copy()
    if share is None:
        shapes = at_rest(shown.figures, frames[t])
    else:
        shapes = on_the_way(shown.figures, frames[t - 1], frames[t], share)
    _paint(picture, shown.view, shapes)
    picture = picture.resize((picture.width // SMOOTH, picture.height // SMOOTH), Image.Resampling.BOX)
    whole = Image.new("RGB", (picture.width, picture.height + CAPTION), LIGHT[Colour.PAPER])
    whole.paste(picture, (0, 0))
    pen, top, right = ImageDraw.Draw(whole), picture.height, picture.width - 12
    ink, soft = LIGHT[Colour.INK], LIGHT[Colour.SOFT]
    words = f"episode {episode + 1} of {len(shown.episodes)}    step {t} of {len(frames) - 1}"
    if outcome and share is None and t == len(frames) - 1:
        words += f" · {outcome}"
    pen.line([(12, top + 2), (right, top + 2)], fill=LIGHT[Colour.GRID])
    title = _fitting(f"{shown.title} · {shown.policy}", right - 12)
    pen.text((12, top + 18), title, ink, _font(13, bold=True), anchor="lm")
    pen.text((12, top + 38), words, soft, _font(12), anchor="lm")
    pen.text((right, top + 38), f"return {frames[t].total:.2f}", ink, _font(12), anchor="rm")
    return whole


def _paint(image: Image.Image, view: View, shapes: Iterable[Plain]) -> None:
    """Draws shapes on an image that shows a view; those one can see through are laid over it."""
    scale = image.width / view.width

    def at(x: float, y: float) -> Point:
        return (x - view.left) * scale, (view.bottom + view.height - y) * scale

    pen = ImageDraw.Draw(image, "RGBA")
    for shape in shapes:
        _draw(pen, shape, at, scale)


def _draw(pen: ImageDraw.ImageDraw, shape: Plain, at: Callable[[float, float], Point], scale: float) -> None:
    """One shape."""
    match shape:
        case Circle(x, y, r, fill, stroke, width, alpha):
            cx, cy = at(x, y)
            if fill is not None:
                r_ = r * scale
                pen.ellipse((cx - r_, cy - r_, cx + r_, cy + r_), fill=_rgba(fill, alpha))
            if stroke is not None:  # a canvas strokes on both sides of the rim, Pillow inside it
                r_, w = (r + width / 2) * scale, max(1, round(width * scale))
                pen.ellipse((cx - r_, cy - r_, cx + r_, cy + r_), outline=_rgba(stroke, alpha), width=w)
        case Rect(x, y, w, h, fill, stroke, width, alpha):
            (left, low), (right, high) = at(x, y), at(x + w, y + h)
            if fill is not None:
                pen.rectangle((left, high, right, low), fill=_rgba(fill, alpha))
            if stroke is not None:
                o, thick = width * scale / 2, max(1, round(width * scale))
                box = (left - o, high - o, right + o, low + o)
                pen.rectangle(box, outline=_rgba(stroke, alpha), width=thick)
        case Polygon(points, fill, stroke, width, alpha):
            corners = [at(*p) for p in points]
            if fill is not None:
                pen.polygon(corners, fill=_rgba(fill, alpha))
            if stroke is not None:
                rim, thick = [*corners, *corners[:2]], max(1, round(width * scale))
                pen.line(rim, fill=_rgba(stroke, alpha), width=thick, joint="curve")
        case Line(points, stroke, width, alpha, dash):
            parts = _dashes(points, dash) if dash else [points]
            thick = max(1, round(width * scale))
            for part in parts:
                pen.line([at(*p) for p in part], fill=_rgba(stroke, alpha), width=thick, joint="curve")
        case Text(x, y, text, size, fill, align, bold, alpha):
            anchor = {"start": "lm", "middle": "mm", "end": "rm"}[align]
            pen.text(at(x, y), text, _rgba(fill, alpha), _font(round(size * scale), bold), anchor=anchor)


def _dashes(points: tuple[Point, ...], dash: float) -> list[tuple[Point, ...]]:
    """The drawn parts of a dashed line between its first point and its last."""
    start, end = np.asarray(points[0]), np.asarray(points[-1])
    long = float(np.linalg.norm(end - start))
    steps = np.arange(0, long, 2 * dash) / max(long, 1e-12)
    ends = np.minimum(steps + dash / max(long, 1e-12), 1.0)
    spots = [(start + a * (end - start), start + b * (end - start)) for a, b in zip(steps, ends, strict=True)]
    return [((float(p[0]), float(p[1])), (float(q[0]), float(q[1]))) for p, q in spots]


def _rgba(colour: Colour, alpha: float) -> tuple[int, int, int, int]:
    digits = LIGHT[colour]
    red, green, blue = (int(digits[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue, round(255 * alpha)


@cache
def _font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """The font that comes with matplotlib."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, max(size, 1))


def _fitting(text: str, width: int) -> str:
    """A title, cut where it would not fit."""
    font = _font(13, bold=True)
    while font.getlength(text) > width and len(text) > 1:
        text = text[:-2].rstrip() + "…"
    return text


def _encode(images: list[Image.Image], durations: list[int]) -> bytes:
    """One palette for all frames, so that nothing flickers: the theme's colours, tints, and others."""
    some = [images[k] for k in np.linspace(0, len(images) - 1, SAMPLES).astype(int)]
    sheet = Image.new("RGB", (images[0].width, sum(image.height for image in some)))
    for k, image in enumerate(some):
        sheet.paste(image, (0, k * image.height))
    exact = np.asarray([_rgba(colour, 1.0)[:3] for colour in LIGHT], np.float32)
    tints = exact + 0.55 * (255 - exact)  # of what is thin and one can see through, such as paths
    between = sheet.quantize(FINEST - 2 * len(exact), dither=Image.Dither.NONE).getpalette() or []
    some_more = np.asarray(between, np.float32).reshape(-1, 3)
    palette = np.concatenate([exact, tints, some_more])[:FINEST].round()
    nearest, numbers = _nearest(palette), palette.astype(int).ravel().tolist()
    flat = [_flat(image, nearest, numbers) for image in images]
    out = io.BytesIO()
    flat[0].save(
        out, "GIF", save_all=True, append_images=flat[1:], duration=durations, loop=0, optimize=False
    )
    return out.getvalue()


def _nearest(palette: Float[np.ndarray, "P 3"]) -> UInt8[np.ndarray, "32 32 32"]:
    """The colour of the palette nearest to each of 32 x 32 x 32 colours (Pillow's search is not exact)."""
    ramp = np.linspace(0, 255, 32, dtype=np.float32)
    colours = np.stack(np.meshgrid(ramp, ramp, ramp, indexing="ij"), axis=-1).reshape(-1, 1, 3)
    distance = np.sum((colours - palette[None]) ** 2, axis=-1)
    return np.argmin(distance, axis=1).astype(np.uint8).reshape(32, 32, 32)


def _flat(image: Image.Image, nearest: UInt8[np.ndarray, "32 32 32"], palette: list[int]) -> Image.Image:
    """An image in the colours of a palette."""
    red, green, blue = np.moveaxis(np.asarray(image) >> 3, -1, 0)
    made = Image.frombytes("P", image.size, nearest[red, green, blue].tobytes())
    made.putpalette(palette)
    return made
