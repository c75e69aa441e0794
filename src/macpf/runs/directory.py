"""A run directory: what was run, what came of it, where to go on.

config.json       the whole experiment, the seeds, the versions of everything that matters
metrics.jsonl     one line per evaluation and seed
results.json      the same in the layout that marl-eval reads
checkpoints/      the whole training state      figures/, tensorboard/      to look at
"""

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from macpf.envs import TASKS
from macpf.errors import UserError, require
from macpf.experiments.codec import decode, encode
from macpf.experiments.experiment import Experiment
from macpf.version import __version__

FORMAT = 1  # of the files in a run directory; one that differs is not read


@dataclass(frozen=True)
class RunDirectory:
    """A run directory that was opened, and what its config.json says."""

    path: Path
    experiment: Experiment[Any, Any]
    seeds: tuple[int, ...]
    versions: dict[str, Any]

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    def read_metrics(self) -> list[dict[str, Any]]:
        """All whole lines of metrics.jsonl; a line that a crash cut short is not one."""
        if not self.metrics_file.exists():
            return []
        whole, _, _ = self.metrics_file.read_text().rpartition("\n")
        try:
            return [json.loads(line) for line in whole.splitlines()]
        except json.JSONDecodeError as error:
            raise UserError(f"{self.metrics_file} is damaged ({error})") from error

    def cut_metrics(self, epochs: int) -> None:
        """Forgets every line after so many epochs: the run goes on from there."""
        kept = [line for line in self.read_metrics() if line["epoch"] <= epochs]
        write_whole(self.metrics_file, "".join(json.dumps(line) + "\n" for line in kept))

    def append_metrics(self, lines: Iterable[dict[str, Any]]) -> None:
        with self.metrics_file.open("a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))

    def write_results(self) -> None:
        """results.json: environment, task, algorithm, seed, step, and the best mean in absolute_metrics."""
        seeds: dict[str, dict[str, Any]] = {}
        for line in self.read_metrics():
            steps = seeds.setdefault(f"seed_{line['seed']}", {})
            scores = {
                name: [v] for name, v in line.items() if name.startswith(("return_", "won_", "length_"))
            }
            steps[f"step_{len(steps)}"] = {"step_count": line["steps"]} | scores
        for steps in seeds.values():
            names = [name for name in next(iter(steps.values())) if name != "step_count"]
            steps["absolute_metrics"] = {name: [max(s[name][0] for s in steps.values())] for name in names}
        family, _, task = self.experiment.task.rpartition("/")
        tree = {family or task: {task: {self.experiment.name: seeds}}}
        write_whole(self.path / "results.json", json.dumps(tree, indent=1))


def create(path: Path, experiment: Experiment[Any, Any], seeds: Sequence[int]) -> RunDirectory:
    """A new run directory; what is there already is never overwritten."""
    require(len(seeds) > 0, "a run needs at least one seed")
    require(len(set(seeds)) == len(seeds), f"the seeds of a run must differ, not {list(seeds)}")
    if (path / "config.json").exists():
        raise UserError(
            f"{path} already holds a run: resume it with `macpf resume {path}`, or choose another --out"
        )
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} is there already and is not a run directory: choose another --out")
    versions = versions_of(experiment.task)
    config = {
        "format": FORMAT,
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "seeds": list(seeds),
        "versions": versions,
        "experiment": encode(experiment),
    }
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_whole(path / "config.json", json.dumps(config, indent=1))
    except OSError as error:
        raise UserError(f"cannot write to {path}: {error.strerror or error}") from error
    return RunDirectory(path, experiment, tuple(seeds), versions)


def open_run(path: Path, env: Any = None) -> RunDirectory:
    """The run in a directory; whatever is wrong with it is said, and nothing in it is changed."""
    require(path.is_dir(), f"there is no run directory {path}")
    file = path / "config.json"
    require(file.is_file(), f"{path} is not a run directory: it has no config.json")
    try:
        config = json.loads(file.read_text())
        found = config["format"]
        require(found == FORMAT, f"{path} has format {found} and this version of macpf reads format {FORMAT}")
        experiment = decode(config["experiment"], env)
        seeds, versions = tuple(config["seeds"]), config["versions"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{file} is damaged ({type(error).__name__}: {error})") from error
    except UserError as error:
        raise UserError(f"cannot open {path}: {error}") from error
    require(isinstance(experiment, Experiment), f"{file} is damaged: it holds no experiment")
    version, present = versions.get("task"), _task_version(experiment.task)
    require(
        version == present,
        f"{path} was run on version {version} of {experiment.task}, whose rules have changed (now {present})",
    )
    return RunDirectory(path, experiment, seeds, versions)


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file in one piece: whoever reads it finds the old content or the new one."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def versions_of(task: str) -> dict[str, Any]:
    packages = ("jax", "jaxlib", "equinox", "optax", "numpy")
    found = {"macpf": __version__} | {name: importlib.metadata.version(name) for name in packages}
    device = jax.devices()[0].device_kind
    return found | {"python": platform.python_version(), "task": _task_version(task), "device": device}


def _task_version(task: str) -> int | None:
    return TASKS[task].version if task in TASKS else None
