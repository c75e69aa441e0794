"""Small replays that several tests look at, each made once; nothing is trained for them."""

import functools
import tempfile
from functools import partial
from pathlib import Path

import jax

import macpf
from macpf import training
from macpf.envs.mpe.controllers import CONTROLLERS
from macpf.envs.mpe.spread import SimpleSpread
from macpf.report.replay import Replay, replay_of_controller, replay_of_run
from macpf.runs.checkpoints import Checkpoints
from macpf.runs.directory import create
from macpf.runs.drive import keys_of
from tests.tiny import tiny_experiment

SHORT = SimpleSpread(horizon=4)


def untrained(experiment: macpf.Experiment, seeds: int) -> macpf.Run:
    """A run whose learners know nothing yet, with a checkpoint of them."""
    run = create(Path(tempfile.mkdtemp(prefix="macpf-tests-")) / "run", experiment, range(seeds))
    state = jax.jit(jax.vmap(partial(training.begin, experiment)))(keys_of(run.seeds))
    checkpoints = Checkpoints(run.checkpoints)
    checkpoints.save(0, state)
    checkpoints.wait()
    checkpoints.close()
    return macpf.load(run.path)


@functools.cache
def game_run() -> macpf.Run:
    """Two learners of the matrix game."""
    return untrained(tiny_experiment(), 2)


@functools.cache
def point_run() -> macpf.Run:
    """One learner of the multi-goal task with episodes of six steps."""
    return untrained(tiny_experiment("multi-goal", env=macpf.MultiGoal(horizon=6)), 1)


@functools.cache
def of_spread() -> Replay:
    """Two episodes of four steps of a controller on simple spread."""
    return replay_of_controller("mpe/simple-spread", SHORT, "random", CONTROLLERS["random"], 2, seed=3)


@functools.cache
def of_game() -> Replay:
    """Five sampled episodes of the dependent policy of the second learner."""
    return replay_of_run(game_run(), "dep", 5, sample=True, seed=7, learner=1)
