"""A run that was stopped, however and however often, ends as one that never was."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from macpf.runs.checkpoints import Checkpoints
from macpf.runs.directory import open_run
from macpf.runs.drive import state_shapes
from tests.tiny import FLAGS

LIMIT = 240  # seconds after which a process that should have ended is a failure


def command(*args: str) -> list[str]:
    """The command line in a process of its own."""
    return [sys.executable, "-c", "import sys; from macpf.cli import main; sys.exit(main())", *args]


def train_command(out: Path) -> list[str]:
    return command("train", "macpf", "matrix-game", *FLAGS, "--checkpoint-seconds", "0", "--out", str(out))


def resume_command(out: Path) -> list[str]:
    return command("resume", str(out), "--checkpoint-seconds", "0")


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The processes share what they compile, so that a resumed one starts quickly."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "JAX_PERSISTENT_COMPILATION_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_COMPILATION_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return os.environ | cache


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory, environ: dict[str, str]) -> Path:
    """A run that nobody stopped."""
    out = tmp_path_factory.mktemp("runs") / "untouched"
    done = subprocess.run(train_command(out), env=environ, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return out


def lines_in(out: Path) -> int:
    file = out / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def history(out: Path) -> list[dict[str, Any]]:
    """metrics.jsonl but for the wall clock."""
    lines = (json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in line.items() if name != "wall_s"} for line in lines]


def final_state(out: Path) -> list[np.ndarray]:
    """Every leaf of the latest checkpoint."""
    run = open_run(out)
    checkpoints = Checkpoints(run.checkpoints)
    latest = checkpoints.latest()
    assert latest is not None
    assert latest == run.experiment.epochs
    state = checkpoints.restore(latest, state_shapes(run))
    checkpoints.close()
    return [_numbers(leaf) for leaf in jax.tree.leaves(state)]


def _numbers(leaf: jax.Array) -> np.ndarray:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def assert_same_run(one: Path, other: Path) -> None:
    assert history(one) == history(other)
    for a, b in zip(final_state(one), final_state(other), strict=True):
        np.testing.assert_array_equal(a, b)
    results = [json.loads((path / "results.json").read_text()) for path in (one, other)]
    assert results[0] == results[1]


def stop_when(
    process: subprocess.Popen[str], out: Path, lines: int, delay: float, how: signal.Signals
) -> bool:
    """Sends the signal some time after so many lines were written; False where the run ended before."""
    deadline = time.monotonic() + LIMIT
    while lines_in(out) < lines and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    time.sleep(delay)
    stopped = process.poll() is None
    process.send_signal(how)
    process.communicate(timeout=LIMIT)
    return stopped


def start(args: list[str], environ: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(args, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_killed_again_and_again(untouched: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    out = tmp_path / "killed"
    luck = random.Random(time.time_ns())
    total = len(history(untouched))
    kills = 0
    for round_ in range(6):
        args = resume_command(out) if (out / "config.json").exists() else train_command(out)
        at = 0 if round_ == 0 else min(total - 2, lines_in(out) + luck.randint(1, total // 4))
        kills += stop_when(start(args, environ), out, at, luck.uniform(0, 0.05), signal.SIGKILL)
    assert kills >= 3
    done = subprocess.run(resume_command(out), env=environ, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert_same_run(untouched, out)


def test_ctrl_c_leaves_a_run_that_resumes(untouched: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    out = tmp_path / "stopped"
    process = start(train_command(out), environ)
    deadline = time.monotonic() + LIMIT
    while lines_in(out) < 6 and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert f"macpf resume {out}" in said
    assert len(said.splitlines()) == 1
    done = subprocess.run(resume_command(out), env=environ, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert_same_run(untouched, out)


def test_full_disk(untouched: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    """No file may grow beyond a few lines: the checkpoint fails, in one sentence, and nothing is lost."""
    out = tmp_path / "full"
    args = train_command(out)
    args[2] = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, 6_000)); {args[2]}"
    done = subprocess.run(args, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "cannot write a checkpoint" in done.stderr
    done = subprocess.run(resume_command(out), env=environ, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert_same_run(untouched, out)


def test_resuming_a_run_that_is_over_changes_nothing(untouched: Path, environ: dict[str, str]) -> None:
    before, state = history(untouched), final_state(untouched)
    done = subprocess.run(
        resume_command(untouched), env=environ, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    assert history(untouched) == before
    for a, b in zip(final_state(untouched), state, strict=True):
        np.testing.assert_array_equal(a, b)
