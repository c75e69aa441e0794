"""Many runs of one algorithm as one compiled program: every lane is a seed under a setting of its own."""

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from macpf.errors import UserError, require
from macpf.evaluation import Evaluation
from macpf.experiments.codec import decode, encode
from macpf.experiments.experiment import Experiment
from macpf.experiments.vary import vary
from macpf.runs.directory import versions_of
from macpf.training import begin, epoch

Setting = Mapping[str, float]  # numbers of an experiment by their path


@dataclass(frozen=True)
class Lanes:
    """What to run: an experiment, settings of it, and how many seeds under each (seeds 0, 1, ...)."""

    name: str
    experiment: Experiment[Any, Any]
    settings: tuple[Setting, ...] = ({},)
    seeds: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        paths = {tuple(sorted(setting)) for setting in self.settings}
        require(len(paths) == 1, "the settings of all lanes must name the same numbers")
        require(len(self.settings) == len(self.seeds), "every setting needs a number of seeds")

    @property
    def seed_of(self) -> Int[np.ndarray, " L"]:
        return np.concatenate([np.arange(n) for n in self.seeds])

    @property
    def setting_of(self) -> Int[np.ndarray, " L"]:
        return np.repeat(np.arange(len(self.settings)), self.seeds)

    @property
    def changes(self) -> dict[str, Float[np.ndarray, " L"]]:
        """Every number that differs, lane by lane."""
        paths = sorted({path for setting in self.settings for path in setting})
        return {p: np.asarray([s[p] for s in self.settings], np.float32)[self.setting_of] for p in paths}

    @property
    def described(self) -> dict[str, Any]:
        """All that decides what comes out."""
        return {
            "name": self.name,
            "experiment": encode(self.experiment),
            "settings": [dict(s) for s in self.settings],
            "seeds": list(self.seeds),
        }


@dataclass(frozen=True)
class Found:
    """What came of the lanes: steps of each evaluation, returns and wins of each policy, what was asked."""

    lanes: Lanes
    steps: Int[np.ndarray, " K"]
    returns: Mapping[str, Float[np.ndarray, "L K"]]
    extra: Mapping[str, np.ndarray]
    won: Mapping[str, Float[np.ndarray, "L K"]] = field(default_factory=dict)

    def of(self, setting: int, policy: str) -> Float[np.ndarray, "n K"]:
        """The returns of all seeds under one setting."""
        return self.returns[policy][self.lanes.setting_of == setting]


Look = Callable[[Experiment[Any, Any], Any], Mapping[str, Any]]  # what else to know of a learner


def nothing(experiment: Experiment[Any, Any], learner: Any) -> Mapping[str, Any]:
    """Nothing else."""
    return {}


class Program(NamedTuple):
    """The compiled functions of some lanes: how they begin, how they go on, what is seen in the end."""

    lanes: Lanes
    changes: Mapping[str, Any]
    keys: Any
    begin: Any
    epoch: Any
    look: Any


def compile_(lanes: Lanes, look: Look = nothing) -> Program:
    """Compiles all that `run` needs, without running it."""
    changes = {path: jnp.asarray(values) for path, values in lanes.changes.items()}
    keys = jax.vmap(jax.random.key)(jnp.asarray(lanes.seed_of))

    def varied(changes):
        return vary(lanes.experiment, changes)

    start = jax.jit(jax.vmap(lambda c, key: begin(varied(c), key)))
    go_on = jax.jit(jax.vmap(lambda c, state: epoch(varied(c), state)), donate_argnums=1)
    see = jax.jit(jax.vmap(lambda c, learner: dict(look(varied(c), learner))))
    state = jax.eval_shape(start, changes, keys)
    made = (
        start.lower(changes, keys),
        go_on.lower(changes, state),
        see.lower(changes, state.learner),
    )
    return Program(lanes, changes, keys, *(lowered.compile() for lowered in made))


def run(program: Program, advanced: Callable[[int], None]) -> Found:
    """Trains all lanes at once; `advanced` is told the steps that every lane has behind it."""
    lanes, changes = program.lanes, program.changes
    state = program.begin(changes, program.keys)
    scores: list[dict[str, Evaluation]] = []
    steps: list[int] = []
    while lanes.experiment.goes_on(len(scores), int(np.min(state.steps))):
        state, record = program.epoch(changes, state)
        scores.append(jax.tree.map(lambda values: np.asarray(values).mean(axis=-1), record.scores))
        steps.append(int(np.mean(record.steps)))
        advanced(int(np.min(record.steps)))
    returns = {name: np.stack([np.asarray(s[name].returns) for s in scores], axis=1) for name in scores[0]}
    won = {name: np.stack([np.asarray(s[name].won) for s in scores], axis=1) for name in scores[0]}
    seen = {name: np.asarray(v) for name, v in program.look(changes, state.learner).items()}
    return Found(lanes, np.asarray(steps), returns, seen, won)


def run_all(wanted: Sequence[Lanes], out: Path, console: Console, look: Look = nothing) -> dict[str, Found]:
    """Runs all lanes that are not saved already, each while the next are compiled, and saves them."""
    found = {lanes.name: load(lanes, out / lanes.name) for lanes in wanted}
    todo = [lanes for lanes in wanted if found[lanes.name] is None]
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} steps"),
        TimeRemainingColumn(),
        console=console,
    )
    workers = max(1, (os.cpu_count() or 1) // 4)
    with progress, ThreadPoolExecutor(workers) as pool:
        programs = [pool.submit(compile_, lanes, look) for lanes in todo]
        for lanes, program in zip(todo, programs, strict=True):
            task = progress.add_task(f"{lanes.name} (compiling)", total=lanes.experiment.steps)
            ready = program.result()
            progress.update(task, description=lanes.name)
            started = time.monotonic()
            done = run(ready, partial(_advance, progress, task))
            save(done, out / lanes.name, time.monotonic() - started)
            found[lanes.name] = done
    return {name: done for name, done in found.items() if done is not None}


def _advance(progress: Progress, task: TaskID, steps: int) -> None:
    progress.update(task, completed=steps)


def save(found: Found, path: Path, seconds: float) -> None:
    """A folder with the configuration, versions, command and every number; whole or not at all."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").unlink(missing_ok=True)
    arrays = {f"returns_{name}": values.astype(np.float32) for name, values in found.returns.items()}
    arrays |= {f"won_{name}": values.astype(np.float32) for name, values in found.won.items()}
    arrays |= {name: v.astype(np.float32) for name, v in found.extra.items()}
    arrays["steps"] = found.steps
    np.savez_compressed(path / "data.npz", allow_pickle=False, **arrays)
    config = {
        "command": shlex.join(["macpf", *sys.argv[1:]]),
        "versions": versions_of(found.lanes.experiment.task),
        "seconds": round(seconds, 1),
        **found.lanes.described,
    }
    (path / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def load(lanes: Lanes, path: Path) -> Found | None:
    """What an earlier call saved of exactly these lanes; None where there is no such thing."""
    try:
        config = json.loads((path / "config.json").read_text())
        same = (config["settings"], config["seeds"]) == ([*lanes.settings], [*lanes.seeds])
        same &= config["versions"]["task"] == versions_of(lanes.experiment.task)["task"]
        if not same or decode(config["experiment"]) != lanes.experiment:
            return None
        with np.load(path / "data.npz", allow_pickle=False) as data:
            arrays = dict(data)
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, UserError):
        return None
    steps = arrays.pop("steps")
    returns, won = (
        {k.removeprefix(what): arrays.pop(k) for k in [*arrays] if k.startswith(what)}
        for what in ("returns_", "won_")
    )
    return Found(lanes, steps, returns, arrays, won)
