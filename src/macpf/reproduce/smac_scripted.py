"""How often policies that know everything and act by rules win on SMAC's maps."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

from macpf.envs.smac import SCENARIOS, SMAC, Rules
from macpf.envs.smac.scripted import SCRIPTS, hold_the_choke, results
from macpf.runs.directory import versions_of

MAPS = tuple(name for name in SCENARIOS if not name.endswith("_myopic"))  # sight makes no difference here
SEED = 0

# From SMAC's own places all battles of a policy begin alike; from varied ones a rate says more about a map.
PLACES = {"own": Rules(), "varied": Rules(spawn_jitter=0.3)}
COLUMNS = (*SCRIPTS, hold_the_choke.__name__.replace("_", " "))

Scores = dict[str, dict[str, Any]]  # of every map: from which places, by which policy, the averages


def reproduce(out: Path, maps: tuple[str, ...], episodes: int, console: Console) -> None:
    """Plays every policy on every map, prints the table, writes the data as they come."""
    for name in maps:
        SMAC(name)  # an unknown one says so before anything is played
    about = {
        "command": f"macpf reproduce smac-scripted --seeds {episodes}",
        "episodes": episodes,
        "seed": SEED,
        "versions": versions_of(f"smac/{MAPS[0]}"),
    }
    out.mkdir(parents=True, exist_ok=True)
    scores = _known(out / "scores.json", about)
    for name in maps:
        if name not in scores:
            console.print(name, highlight=False)
            scores[name] = {places: played(SMAC(name, rules), episodes) for places, rules in PLACES.items()}
            (out / "scores.json").write_text(json.dumps(about | {"scores": scores}, indent=1) + "\n")
    asked = {name: scores[name] for name in maps}
    table = Table("map", *COLUMNS, title="Win rates from SMAC's own starting places / from varied ones")
    for row in cells(asked):
        table.add_row(*row)
    Console().print(table)
    header = ("map", *COLUMNS)
    lines = ["| " + " | ".join(row) + " |" for row in (header, ("---",) * len(header), *cells(asked))]
    (out / "table.md").write_text("\n".join(lines) + "\n")
    console.print(f"data and table: {out}", highlight=False, soft_wrap=True)


def played(env: SMAC, episodes: int) -> dict[str, dict[str, float]]:
    """The averages of every policy that a map has, all episodes at once."""
    found = results(env, jax.random.key(SEED), episodes)
    return {
        policy: {what: round(float(v), 4) for what, v in averages._asdict().items()}
        for policy, averages in found.items()
    }


def cells(scores: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """A row for each map: the win rates of each policy, nothing where a map does not have it."""
    for name, places in scores.items():
        own, varied = places["own"], places["varied"]
        won = (f"{own[p]['won']:.2f} / {varied[p]['won']:.2f}" if p in own else "" for p in COLUMNS)
        yield name, *won


def _known(path: Path, about: Mapping[str, Any]) -> Scores:
    """What an earlier call found in as many episodes with the same versions."""
    try:
        there = json.loads(path.read_text())
        return there["scores"] if {k: there[k] for k in about} == about else {}
    except (OSError, ValueError, KeyError):
        return {}
