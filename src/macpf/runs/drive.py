"""Driving a run from Python: the same compiled epoch again and again, with logs and checkpoints between."""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key
from rich.console import Console

from macpf import replay, training
from macpf.errors import UserError, require
from macpf.experiments.experiment import Experiment
from macpf.runs import memory
from macpf.runs.checkpoints import Checkpoints
from macpf.runs.directory import RunDirectory, create
from macpf.runs.logs import Display, TensorBoard, metric_lines
from macpf.training import TrainState

CHECKPOINT_SECONDS = 60.0


class InterruptedRunError(Exception):
    """The user asked to stop; the run was saved and can be resumed."""


@dataclass
class Stop:
    """Whether somebody asked the run to stop."""

    asked: bool = field(default=False)


def start(
    path: Path,
    experiment: Experiment[Any, Any],
    seeds: Sequence[int],
    console: Console,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> RunDirectory:
    """A new run, from nothing to its end."""
    require(checkpoint_seconds >= 0, f"checkpoint_seconds must not be negative, not {checkpoint_seconds}")
    check_memory(experiment, len(seeds))
    run = create(path, experiment, seeds)
    proceed(run, console, checkpoint_seconds)
    return run


def proceed(run: RunDirectory, console: Console, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> None:
    """A run from its latest checkpoint to its end."""
    experiment = run.experiment
    check_memory(experiment, len(run.seeds))
    epoch = jax.jit(jax.vmap(partial(training.epoch, experiment)), donate_argnums=0)
    checkpoints = Checkpoints(run.checkpoints)
    try:
        with _listening() as stop, Display(console, experiment.steps) as display:
            state, done = _resume_point(run, checkpoints)
            run.cut_metrics(done)
            board = TensorBoard(run.path / "tensorboard", run.seeds, int(np.max(state.steps)) + 1)
            saved_at = started = time.monotonic()
            while experiment.goes_on(done, int(np.min(state.steps))) and not stop.asked:
                state, record = epoch(state)
                done += 1
                lines = metric_lines(record, run.seeds, done, round(time.monotonic() - started, 3))
                run.append_metrics(lines)
                board.log(lines)
                display.show(lines)
                if time.monotonic() - saved_at >= checkpoint_seconds:
                    checkpoints.save(done, state)
                    saved_at = time.monotonic()
            display.say("saving")
            if checkpoints.latest() != done:
                checkpoints.save(done, state)
            checkpoints.wait()
            board.close()
        run.write_results()
    except OSError as error:
        raise UserError(f"cannot write to {run.path}: {error.strerror or error}") from error
    finally:
        checkpoints.close()
    steps = int(np.min(state.steps))
    if experiment.goes_on(done, steps):
        raise InterruptedRunError(
            f"stopped after {steps} of {experiment.steps} steps; go on with: macpf resume {run.path}"
        )


def keys_of(seeds: Sequence[int]) -> Key[Array, " seeds"]:
    """One key per seed."""
    return jax.vmap(jax.random.key)(jnp.asarray(seeds))


def state_shapes(run: RunDirectory) -> TrainState:
    """The structure, shapes and dtypes of the run's training state."""
    return jax.eval_shape(jax.vmap(partial(training.begin, run.experiment)), keys_of(run.seeds))


def check_memory(experiment: Experiment[Any, Any], seeds: int) -> None:
    """Refuses a replay that does not fit, before anything is compiled."""
    needed = seeds * replay.size_in_bytes(experiment.env.spec, experiment.remembered, experiment.replay_half)
    free = memory.free_bytes()
    if free is not None and needed > free:
        raise UserError(
            f"the replay of {seeds} seeds needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} are free: "
            "take a smaller replay, fewer seeds, or half precision (replay_half)"
        )


def _resume_point(run: RunDirectory, checkpoints: Checkpoints) -> tuple[TrainState, int]:
    """The state to go on from, and the epochs it has behind it."""
    done = checkpoints.latest()
    if done is None:
        return jax.jit(jax.vmap(partial(training.begin, run.experiment)))(keys_of(run.seeds)), 0
    return checkpoints.restore(done, state_shapes(run)), done


@contextmanager
def _listening() -> Iterator[Stop]:
    """Notes the first Ctrl-C (or SIGTERM), so that the epoch in flight ends well; a second one breaks off."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, _: object) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
