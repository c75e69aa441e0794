"""A replay as one web page that needs nothing else: template, style, player and data in a single file."""

import html
import re
from importlib import resources

from macpf.report.replay.data import Replay, to_json


def to_html(shown: Replay) -> str:
    """The whole page."""
    parts = {
        "TITLE": html.escape(f"{shown.title} · {shown.policy}"),
        "STYLE": _asset("page.css"),
        "PLAYER": _asset("player.js"),
        "REPLAY": embedded(to_json(shown)),
    }
    return re.sub("%([A-Z]+)%", lambda found: parts[found[1]], _asset("page.html"))


def embedded(data: str) -> str:
    """JSON as it may stand inside a script element: no tag or comment can begin in it."""
    return data.replace("<", "\\u003c")


def _asset(name: str) -> str:
    return resources.files("macpf.report.replay").joinpath("assets", name).read_text(encoding="utf-8")
