"""How much there is to gain on formation and line control, where agents do not see each other.

How far teams found by search, and those that were learned, are ahead of the controller `fixed`, whose agent i
takes place i.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from macpf.envs import make
from macpf.envs.mpe.apart import FIXED, Convention, returns, without_contacts
from macpf.errors import require
from macpf.evaluation import score_controller
from macpf.report.statistics import Difference, Sample, difference
from macpf.reproduce import mpe
from macpf.reproduce.lanes import load
from macpf.runs.directory import versions_of

TASKS = ("formation-control", "line-control")
CONVENTIONS: Mapping[Convention, str] = {
    "own": "found from: agent i takes place i",
    "nearest": "found from: each takes the nearest",
}
SEARCH = {"rounds": 4, "starts": 64, "beam": 128, "plays": 64}
SEED = 1  # the settings of the search were tried out with the places of seed 0
HEADER = ("task", "team", "ahead of `fixed` by [95 % interval]")

Played = Float[np.ndarray, "landmarks plays 2"]  # returns of `fixed`, and of a team found by search


def reproduce(out: Path, trained: Path, landmarks: int, console: Console) -> None:
    """Searches from every convention, prints the table, writes the data as they come.

    `trained` is where `macpf reproduce mpe` left its data; methods that are not there are not in the table.
    """
    require(landmarks > 1, "an interval takes at least two places of the landmarks")
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    with Progress(console=console) as progress:
        for task in TASKS:
            teams = []
            for convention, name in CONVENTIONS.items():
                bar = progress.add_task(f"{task}, {name}", total=landmarks)
                played = _known(out, task, convention, landmarks)
                if played is None:
                    played = searched(task, convention, landmarks, partial(progress.advance, bar))
                    _save(out, task, convention, played)
                progress.update(bar, completed=landmarks)
                teams.append(played)
                rows.append((task, name, str(lead(played))))
            rows.append((task, "the better of both, place by place", str(lead(better(teams)))))
            rows += [(task, who, str(ahead)) for who, ahead in in_common_episodes(trained, task)]
    table = Table(*HEADER)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    lines = ["| " + " | ".join(row) + " |" for row in (HEADER, ("---",) * len(HEADER), *rows)]
    (out / "table.md").write_text("\n".join(lines) + "\n")
    console.print(f"data and table: {out}", highlight=False, soft_wrap=True)


def searched(task: str, convention: Convention, landmarks: int, advance: Callable[[], None]) -> Played:
    """One search for each place of the landmarks, side by side."""
    env: Any = make(f"mpe/{task}")
    one = jax.jit(partial(returns, env, convention, **SEARCH))

    def told(key: Any) -> np.ndarray:
        played = np.asarray(one(key))
        advance()
        return played

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.stack(list(pool.map(told, jax.random.split(jax.random.key(SEED), landmarks))))


def lead(played: Played) -> Difference:
    """How far a team found by search is ahead of `fixed`; places of the landmarks are the sample."""
    by_landmarks = Sample.of((played[..., 1] - played[..., 0]).mean(axis=1))
    half = 1.96 * by_landmarks.std / np.sqrt(by_landmarks.n)
    return Difference(by_landmarks.mean, by_landmarks.mean - half, by_landmarks.mean + half)


def better(teams: Sequence[Played]) -> Float[np.ndarray, "landmarks half 2"]:
    """The team that did better with these landmarks in every other episode, in the episodes between them."""
    chosen = np.argmax([team[:, ::2, 1].mean(axis=1) for team in teams], axis=0)
    return np.stack([teams[team][place, 1::2] for place, team in enumerate(chosen)])


def in_common_episodes(trained: Path, task: str) -> Iterator[tuple[str, Difference]]:
    """How far `fixed` without contacts, and every method's decentralised policy, are ahead of `fixed`."""
    env: Any = make(f"mpe/{task}")

    def fixed(env: Any) -> mpe.Returns:
        key = jax.random.key(mpe.EPISODES)
        return np.asarray(score_controller(env, FIXED, key, episodes=mpe.EPISODES).returns)[None]

    mark = fixed(env)
    yield "`fixed` without contacts", difference(fixed(without_contacts(env)), mark)
    for row in mpe.ROWS:
        lanes = mpe.lanes_of(row.algorithm, task, mpe.PAPER_SEEDS, 1.0)
        there = load(lanes, trained / lanes.name)
        if there is not None:
            yield row.label, difference(mpe.final({lanes.name: there}, task, row.algorithm), mark)


def _about(task: str) -> Mapping[str, Any]:
    return {"search": SEARCH, "seed": SEED, "task_version": versions_of(f"mpe/{task}")["task"]}


def _known(out: Path, task: str, convention: Convention, landmarks: int) -> Played | None:
    """What an earlier call found for as many landmarks with the same search."""
    try:
        there = json.loads(_path(out, task, convention).read_text())
        same = {name: there[name] for name in _about(task)} == _about(task)
        return np.asarray(there["returns"]) if same and len(there["returns"]) == landmarks else None
    except (OSError, ValueError, KeyError):
        return None


def _save(out: Path, task: str, convention: Convention, played: Played) -> None:
    told = {
        "command": f"macpf reproduce mpe-apart --seeds {len(played)}",
        "versions": versions_of(f"mpe/{task}"),
        **_about(task),
        "returns": played.astype(float).round(3).tolist(),
    }
    _path(out, task, convention).write_text(json.dumps(told) + "\n")


def _path(out: Path, task: str, convention: Convention) -> Path:
    return out / f"{task}-{convention}.json"
