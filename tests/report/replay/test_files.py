"""The GIF, the page, the command: what is written, and what is said about mistakes."""

import io
import json
import math
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

from macpf.cli import main
from macpf.report.replay.data import to_json
from macpf.report.replay.gif import HOLD_MS, STEP_MS, beginning, still, to_gif
from macpf.report.replay.make import write
from macpf.report.replay.page import embedded, to_html
from macpf.report.replay.shapes import LIGHT, Circle, Colour, Text
from tests.report.replay.plays import game_run, of_game, of_spread
from tests.test_cli import contents, printed, said


class Scripts(HTMLParser):
    """The scripts of a page by their id, everything that it would load from elsewhere, and its title."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: dict[str, str] = {}
        self.elsewhere: list[str] = []
        self.title = ""
        self._in = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs) -> None:
        self.elsewhere += [v or "" for name, v in attrs if name in ("src", "href", "srcset")]
        self._in = dict(attrs).get("id") or tag if tag in ("script", "title") else ""

    def handle_endtag(self, tag) -> None:
        self._in = ""

    def handle_data(self, data) -> None:
        if self._in == "title":
            self.title += data
        elif self._in:
            self.scripts[self._in] = self.scripts.get(self._in, "") + data


def test_the_page_is_one_file_with_the_whole_replay() -> None:
    page = Scripts(to_html(of_spread()))
    assert page.elsewhere == []
    assert "url(" not in to_html(of_spread())
    assert page.scripts.keys() == {"replay", "player"}
    data = json.loads(page.scripts["replay"])
    assert data == json.loads(to_json(of_spread()))
    assert data["title"] == "mpe/simple-spread"
    for written, episode in zip(data["episodes"], of_spread().episodes, strict=True):
        assert [f["actions"] for f in written["frames"]] == [list(f.actions) for f in episode.frames]
        assert [f["total"] for f in written["frames"]] == [f.total for f in episode.frames]
        for shapes, frame in zip(written["frames"], episode.frames, strict=True):
            circles = [(s["x"], s["y"]) for s in shapes["shapes"] if s["kind"] == "circle"]
            expected = [(s.x, s.y) for s in frame.shapes if isinstance(s, Circle)]
            assert np.asarray(circles) == pytest.approx(np.asarray(expected), rel=1e-4)


@pytest.mark.parametrize(
    "text", ["</script><script>alert(1)</script>", "<!-- <script", "a & b \u2028 %STYLE%"]
)
def test_what_looks_like_a_tag_is_data(text: str) -> None:
    shown = replace(of_game(), title=text, backdrop=(Text(0.0, 0.0, text, 0.1),))
    page = Scripts(to_html(shown))
    assert page.scripts.keys() == {"replay", "player"}
    data = json.loads(page.scripts["replay"])
    assert data["title"] == data["backdrop"][0]["text"] == text
    assert page.title.startswith(text)
    assert json.loads(embedded(json.dumps(text))) == text


def test_what_is_no_number_is_null() -> None:
    episode = of_game().episodes[0]
    frame = replace(episode.frames[1], reward=math.nan, total=-math.inf)
    shown = replace(of_game(), episodes=(replace(episode, frames=(frame,)),))
    written = json.loads(to_json(shown))["episodes"][0]["frames"][0]
    assert (written["reward"], written["total"]) == (None, None)


def test_the_gif_has_every_frame() -> None:
    told: list[int] = []
    data = to_gif(of_spread(), size=200, tell=lambda: told.append(1))
    with Image.open(io.BytesIO(data)) as gif:
        assert (gif.format, gif.size) == ("GIF", (200, 254))
        assert gif.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
        times = [frame.info["duration"] for frame in ImageSequence.Iterator(gif)]
    assert len(told) == 2 * 5
    assert times == ([STEP_MS] * 4 + [HOLD_MS]) * 2


def test_the_gif_of_many_episodes_shows_the_first() -> None:
    shown = of_spread()
    many = replace(shown, episodes=shown.episodes * 100)
    assert beginning(many) == replace(shown, episodes=shown.episodes * 40)
    long = replace(shown.episodes[0], frames=shown.episodes[0].frames * 100)
    assert beginning(replace(shown, episodes=(long, long))) == replace(shown, episodes=(long,))
    assert beginning(shown) == shown


def test_a_picture_has_its_colours_in_their_places() -> None:
    shown = of_spread()
    image = still(shown, 0, 0, size=400)
    scale = 400 / shown.view.width
    for disc in shown.episodes[0].frames[0].shapes:
        if isinstance(disc, Circle) and disc.fill == Colour.AGENT_2:
            x, y = disc.x - 0.1 - shown.view.left, shown.view.bottom + shown.view.height - disc.y
            red, green, blue = (int(LIGHT[Colour.AGENT_2][i : i + 2], 16) for i in (1, 3, 5))
            assert image.getpixel((round(x * scale), round(y * scale))) == (red, green, blue)
            return
    pytest.fail("there is no second agent")


def test_three_episodes_are_small(tmp_path: Path) -> None:
    episode = of_spread().episodes[0]
    long = replace(episode, frames=(episode.frames * 6)[:26])
    page, gif = write(replace(of_spread(), episodes=(long,) * 3), tmp_path / "new" / "folder", "name")
    assert sorted(p.name for p in gif.parent.iterdir()) == ["name.gif", "name.html"]
    assert gif.stat().st_size < 2_000_000
    assert page.stat().st_size < 2_000_000


def test_play_writes_both_files_into_the_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = str(game_run().path)
    out = printed(
        capsys, "play", run, "--policy", "dep", "--sample", "--episodes", "2", "--out", str(tmp_path)
    )
    stem = tmp_path / "macpf-matrix-game-dep-sampled-learner-0-seed-0"
    assert out.splitlines() == [f"html: {stem}.html", f"gif: {stem}.gif"]
    data = json.loads(Scripts(Path(f"{stem}.html").read_text()).scripts["replay"])
    assert (data["title"], data["policy"]) == ("macpf on matrix-game, seed 0", "sampled pi_dep")
    returns = game_run().evaluate("dep", 2, sample=True).returns[0]
    assert [e["frames"][-1]["total"] for e in data["episodes"]] == returns.tolist()
    printed(capsys, "play", run, "--learner", "1")
    written = game_run().path / "replays" / "macpf-matrix-game-ind-greedy-learner-1-seed-0.html"
    episodes = json.loads(Scripts(written.read_text()).scripts["replay"])["episodes"]
    returns = game_run().evaluate("ind", 32).returns[1]
    assert [e["frames"][-1]["total"] for e in episodes] == returns.tolist()


def test_play_shows_a_controller(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = printed(
        capsys, "play", "mpe/line-control", "--controller", "stay", "--episodes", "1", "--seed", "4"
    )
    stem = "replays/mpe-line-control-stay-seed-4"
    assert out.splitlines() == [f"html: {stem}.html", f"gif: {stem}.gif"]
    with Image.open(f"{stem}.gif") as gif:
        assert len(list(ImageSequence.Iterator(gif))) == 26


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["nowhere"], "there is no run directory nowhere"),
        ([], "run"),
        (["mpe/simple-spread"], "is a task, not a run directory: train on it, or name a --controller"),
        (["mpe/simple-spread", "--controller", "look"], "did you mean look-ahead?"),
        (["matrix-game", "--controller", "stay"], "no controllers of matrix-game, only of mpe/"),
        (["mpe/line-control", "--controller", "stay", "--sample"], "no trained policy"),
        (["mpe/line-control", "--controller", "stay", "--learner", "0"], "no trained policy"),
        (["mpe/line-control", "--controller", "stay", "--episodes", "0"], "episodes must be positive, not 0"),
        (["RUN", "--episodes", "-1"], "episodes must be positive, not -1"),
        (["RUN", "--policy", "indep"], "unknown policy of macpf 'indep'"),
        (["RUN", "--learner", "7"], "unknown seed '7': known are 0, 1."),
        (["RUN", "--out", "a-file"], "a-file is there already and is no folder"),
    ],
)
def test_mistakes_are_one_sentence(
    args: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("precious")
    run = game_run().path
    before = contents(tmp_path) | contents(run)
    assert expected in said(capsys, "play", *(str(run) if arg == "RUN" else arg for arg in args))
    assert contents(tmp_path) | contents(run) == before


def test_help_tells_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "  play " in printed(capsys)
    with pytest.raises(SystemExit):
        main(["play", "--help"])
    assert "--controller" in capsys.readouterr().out
