"""What controllers written by hand score under every convention of the particle tasks."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from macpf.envs.mpe import FormationControl, LineControl, SimpleSpread
from macpf.envs.mpe.controllers import CONTROLLERS
from macpf.envs.mpe.world import ParticleTask
from macpf.evaluation import score_controller
from macpf.runs.directory import versions_of

SEED = 0  # the same episodes for all controllers


class Convention(NamedTuple):
    """A reading of a task, and what a separate simulation in numpy found for it in so many episodes."""

    name: str
    env: ParticleTask
    episodes: int = 0
    numpy: tuple[tuple[str, float], ...] = ()


class Score(NamedTuple):
    """The returns of one controller under one convention."""

    convention: Convention
    controller: str
    returns: np.ndarray

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns, dtype=np.float64))

    @property
    def std(self) -> float:
        return float(np.std(self.returns, dtype=np.float64))

    @property
    def half_width(self) -> float:
        """Of the 95 % interval of the mean."""
        return 1.96 * self.std / math.sqrt(len(self.returns))

    @property
    def numpy(self) -> float | None:
        return dict(self.convention.numpy).get(self.controller)

    @property
    def z(self) -> float | None:
        """How far the means of both simulations are apart, in standard errors of the difference."""
        if self.numpy is None:
            return None
        error = self.std * math.sqrt(1 / len(self.returns) + 1 / self.convention.episodes)
        return (self.mean - self.numpy) / error


def _found(random: float, simple: float, fixed: float, look_ahead: float) -> tuple[tuple[str, float], ...]:
    return (("random", random), ("simple", simple), ("fixed", fixed), ("look-ahead", look_ahead))


AGARWAL = SimpleSpread(
    horizon=50,
    radius=0.05,
    landmark_scale=1.0,
    spread_reward="hungarian",
    observe_others=False,
    communication=False,
)
MPE2 = SimpleSpread(landmark_scale=1.0, spread_reward="local-ratio", integration="position-first")

SPREAD = (
    Convention(
        "sum over agents, self-collision",
        SimpleSpread(),
        1000,
        (*_found(-220.1, -119.3, -124.8, -111.7), ("stay", -205.0)),
    ),
    Convention(
        "the same, landmarks in the whole square",
        SimpleSpread(landmark_scale=1.0),
        1000,
        _found(-229.4, -120.1, -128.2, -110.7),
    ),
    Convention(
        "sum, no self-collision",
        SimpleSpread(count_self_collision=False),
        1000,
        _found(-145.1, -44.3, -49.8, -36.7),
    ),
    Convention(
        "mean over agents",
        SimpleSpread(reward_scale="mean"),
        1000,
        _found(-73.4, -39.8, -41.6, -37.2),
    ),
    Convention(
        "local ratio 0.5, summed",
        SimpleSpread(spread_reward="local-ratio"),
        1000,
        _found(-72.6, -22.1, -24.9, -18.3),
    ),
    Convention("as the package mpe2, summed", MPE2),
    Convention("Agarwal's task, 50 steps", AGARWAL, 166, _found(-144.2, -22.2, -18.5, -14.6)),
    Convention("the same, ends on success", replace(AGARWAL, stop_on_success=True)),
)

# agents, steps, ends on success; episodes of the simulation; what it found in formation and in line control
BOTH = (
    (3, 25, False, 1000, _found(-59.0, -14.4, -13.6, -10.6), _found(-68.4, -17.1, -16.3, -13.4)),
    (3, 50, False, 166, _found(-134.0, -20.2, -15.1, -12.3), _found(-151.0, -22.8, -18.5, -15.2)),
    (3, 50, True, 166, _found(-134.0, -20.1, -12.4, -9.3), _found(-151.0, -22.6, -15.9, -12.4)),
    (4, 25, False, 166, _found(-75.0, -18.6, -17.5, -13.5), _found(-90.0, -22.2, -21.1, -17.3)),
    (4, 50, False, 166, _found(-174.0, -26.2, -20.0, -16.0), _found(-199.0, -29.8, -23.5, -19.6)),
    (4, 50, True, 166, _found(-174.0, -26.0, -16.3, -12.0), _found(-199.0, -29.8, -20.1, -16.0)),
)
STAY = {FormationControl: -51.5, LineControl: -62.6}


def _conventions(task: type[FormationControl] | type[LineControl], column: int) -> Iterator[Convention]:
    for row, (agents, steps, ends, episodes, *found) in enumerate(BOTH):
        env = task(n_agents=agents, horizon=steps, stop_on_success=ends)
        stay = (("stay", STAY[task]),) if row == 0 else ()
        name = f"{agents} agents, {steps} steps{', ends on success' * ends}"
        yield Convention(name, env, episodes, (*found[column], *stay))


TABLES = {
    "mpe/simple-spread": SPREAD,
    "mpe/formation-control": tuple(_conventions(FormationControl, 0)),
    "mpe/line-control": tuple(_conventions(LineControl, 1)),
}


def reproduce(out: Path, episodes: int, console: Console) -> None:
    """Scores every controller under every convention, prints the tables, writes the data."""
    out.mkdir(parents=True, exist_ok=True)
    scores: dict[str, list[Score]] = {}
    for task, conventions in TABLES.items():
        scores[task] = []
        for convention in conventions:
            console.print(f"{task}: {convention.name}", highlight=False)
            for name, controller in CONTROLLERS.items():
                key = jax.random.key(SEED)
                found = score_controller(convention.env, controller, key, episodes=episodes)
                scores[task].append(Score(convention, name, np.asarray(found.returns)))
        Console().print(_table(task, scores[task]))
    _write(out, scores, episodes)
    console.print(f"data and tables: {out}", highlight=False, soft_wrap=True)


def _cells(scores: list[Score]) -> Iterator[tuple[str, ...]]:
    """A row for each convention: what each controller scores, and behind it what the simulation found."""
    for convention in dict.fromkeys(score.convention.name for score in scores):
        row = [score for score in scores if score.convention.name == convention]
        yield convention, *(_cell(score) for score in row)


def _cell(score: Score) -> str:
    theirs = "" if score.numpy is None else f" ({score.numpy:g})"
    return f"{score.mean:.1f} ± {score.half_width:.1f}{theirs}"


def _table(task: str, scores: list[Score]) -> Table:
    table = Table("convention", *CONTROLLERS, title=f"{task}: mean return ± 95 % (numpy)")
    for row in _cells(scores):
        table.add_row(*row)
    return table


def _write(out: Path, scores: dict[str, list[Score]], episodes: int) -> None:
    """table.md for people, scores.json for programs, returns.npz for those who doubt."""
    lines, raw, data = [], {}, {}
    for task, found in scores.items():
        header = ("convention", *CONTROLLERS)
        rows = [header, ("---",) * len(header), *_cells(found)]
        lines += [f"{task}: mean return ± 95 % (what a simulation in numpy found)", ""]
        lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
        data[task] = [
            {
                "convention": score.convention.name,
                "env": repr(score.convention.env),
                "controller": score.controller,
                "mean": score.mean,
                "std": score.std,
                "half_width_95": score.half_width,
                "numpy": score.numpy,
                "numpy_episodes": score.convention.episodes,
                "z": score.z,
            }
            for score in found
        ]
        raw |= {f"{task}|{score.convention.name}|{score.controller}": score.returns for score in found}
    versions = {task: versions_of(task) for task in scores}
    about = {
        "command": f"macpf reproduce mpe-controllers --seeds {episodes}",
        "episodes": episodes,
        "seed": 0,
    }
    (out / "table.md").write_text("\n".join(lines))
    (out / "scores.json").write_text(
        json.dumps(about | {"versions": versions, "scores": data}, indent=1) + "\n"
    )
    np.savez_compressed(out / "returns.npz", **raw)
