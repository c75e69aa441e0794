"""The page of a battle in a real browser without a window, cut off from the network: it plays and scrubs."""

import base64
import functools
import io
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from macpf.envs import make
from macpf.envs.controllers import controllers_of
from macpf.report.replay import Colour, Replay, replay_of_controller
from macpf.report.replay.gif import still
from macpf.report.replay.page import to_html
from macpf.report.replay.shapes import LIGHT
from tests.report.replay.test_files import Scripts

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--window-size=800,600",
    "--dump-dom",
)
DRIVER = Path(__file__).with_name("browser.js")

pytestmark = pytest.mark.skipif(BROWSER is None, reason="neither Chromium nor Chrome is on the PATH")


@functools.cache
def battle() -> Replay:
    """One episode of three marines against three."""
    env = make("smac/3m")
    return replay_of_controller("smac/3m", env, "focus-fire", controllers_of(env)["focus-fire"], 1)


def dumped(page: Path) -> "subprocess.CompletedProcess[str]":
    """The browser's last word on a page."""
    command = [str(BROWSER), *OPTIONS, f"--user-data-dir={page.parent}/profile", page.as_uri()]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)


@functools.cache
def report() -> dict[str, Any]:
    """What the driver saw of the page, from its loading on."""
    driven = to_html(battle()).replace("<head>", f"<head><script>{DRIVER.read_text()}</script>", 1)
    with tempfile.TemporaryDirectory(prefix="macpf-tests-", ignore_cleanup_errors=True) as folder:
        page = Path(folder) / "page.html"
        page.write_text("<p>starts</p>", encoding="utf-8")
        if "<p>starts</p>" not in dumped(page).stdout:
            pytest.skip(f"{BROWSER} does not start here")
        page.write_text(driven, encoding="utf-8")
        done = dumped(page)
    scripts = Scripts(done.stdout).scripts
    assert "report" in scripts, f"{BROWSER} left no report: {done.stderr}"
    return json.loads(scripts["report"])


def pixels(seen: dict[str, Any]) -> np.ndarray:
    """The canvas before the page's paper, as numbers."""
    _, data = seen["picture"].split(",")
    with Image.open(io.BytesIO(base64.b64decode(data))) as canvas:
        paper = Image.new("RGBA", canvas.size, LIGHT[Colour.PAPER])
        return np.asarray(Image.alpha_composite(paper, canvas.convert("RGBA")).convert("RGB"), float)


def at(seen: dict[str, Any]) -> int:
    """The number of the frame that is shown."""
    return int(seen["step"].split()[0])


def test_nothing_goes_wrong_in_the_page() -> None:
    assert report()["errors"] == []


def test_the_page_loads_nothing_from_elsewhere() -> None:
    assert report()["loaded"] == []
    page = to_html(battle())
    assert Scripts(page).elsewhere == []
    assert "://" not in page
    assert "url(" not in page


def test_it_plays_by_itself() -> None:
    loading, started = report()["loading"], report()["started"]
    assert (loading["play"], at(loading)) == ("❚❚", 0)
    assert at(started) == 1


def test_it_moves_within_a_step() -> None:
    started, gliding = report()["started"], report()["gliding"]
    assert at(gliding) == at(started)
    assert (pixels(gliding) != pixels(started)).any()


def test_pause_stops_it() -> None:
    assert report()["paused"]["play"] == "▶"
    assert report()["later"] == report()["paused"]


def test_play_goes_on_with_another_picture() -> None:
    paused, resumed = report()["paused"], report()["resumed"]
    assert resumed["play"] == "❚❚"
    assert at(resumed) == int(resumed["scrubber"]) == at(paused) + 1
    assert (pixels(resumed) != pixels(paused)).any()


def test_every_moment_can_be_scrubbed_to_and_play_stops_there() -> None:
    scrubbed, last = report()["scrubbed"], len(battle().episodes[0].frames) - 1
    steps = [f"{t} of {last}" for t in range(last)] + [f"{last} of {last} · {battle().episodes[0].outcome}"]
    assert [seen["step"] for seen in scrubbed] == steps
    assert {seen["play"] for seen in scrubbed} == {"▶"}
    assert report()["rested"] == scrubbed[-1]


def test_the_actions_of_a_moment_are_read_beside_it() -> None:
    for seen, frame in zip(report()["scrubbed"], battle().episodes[0].frames, strict=True):
        actions = frame.actions or ["–"] * len(battle().agents)
        rows = [[agent.name, action] for agent, action in zip(battle().agents, actions, strict=True)]
        assert seen["actions"] == rows


def test_another_moment_is_another_picture_and_the_same_moment_the_same() -> None:
    pictures = [seen["picture"] for seen in report()["scrubbed"]]
    assert len(set(pictures)) == len(pictures)
    assert report()["again"] == report()["scrubbed"]


def test_the_picture_of_a_moment_is_the_one_of_the_gif() -> None:
    seen = [pixels(moment) for moment in report()["scrubbed"]]
    high, wide, _ = seen[0].shape
    stills = [np.asarray(still(battle(), 0, t, wide), float)[:high] for t in range(len(seen))]
    nearest = [int(np.argmin([np.abs(one - other).mean() for other in stills])) for one in seen]
    assert nearest == list(range(len(seen)))


def test_four_times_the_speed_is_faster() -> None:
    assert report()["quick"] < report()["usual"] / 2
