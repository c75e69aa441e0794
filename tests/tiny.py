"""A run small enough to train in every test session, made once."""

import functools
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import macpf
from macpf.networks.mixers import Hyper

SIZES = {
    "steps": 200,
    "eval-every": 10,
    "seeds": 2,
    "hidden": 8,
    "mixer.embed": 8,
    "mixer.hidden": 8,
    "replay": 64,
    "batch": 16,
    "burn-in": 16,
}
FLAGS = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]


def tiny_experiment(task: str = "matrix-game", **changes: Any) -> macpf.Experiment:
    """A small experiment of MACPF; `changes` are fields of the experiment."""
    made = macpf.experiment("macpf", task)
    algorithm = replace(made.algorithm, hidden=8, mixer=Hyper(8, 8, "linear"))
    sizes = {"steps": 40, "eval_every": 10, "replay": 32, "batch": 8, "burn_in": 8, "eval_episodes": 2}
    return replace(made, algorithm=algorithm, **(sizes | changes))


@functools.cache
def tiny_run() -> macpf.Run:
    """The run of the tiny experiment with seeds 0 and 1."""
    out = Path(tempfile.mkdtemp(prefix="macpf-tests-")) / "run"
    return macpf.train(tiny_experiment(), seeds=2, out=out)
