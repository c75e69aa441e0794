"""How long one training iteration takes: losses, gradients and targets on random batches of known shapes."""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from macpf.algorithms import ALGORITHMS
from macpf.errors import UserError, unknown
from macpf.types import Algorithm, EnvSpec, Observation, Trajectory
from macpf.version import __version__

IN_A_ROW = 4


@dataclass(frozen=True)
class Shape:
    """The sizes of one batch."""

    name: str
    agents: int
    actions: int
    obs: int
    state: int
    steps: int
    batch: int

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(self.agents, self.actions, self.obs, self.state, self.steps)


SHAPES = (
    Shape("8m_vs_9m", 8, 15, 85, 179, 120, 32),
    Shape("simple spread", 3, 5, 18, 54, 25, 64),
    Shape("27m_vs_30m", 27, 36, 285, 1170, 180, 32),
)


def random_batch(shape: Shape, seed: int = 0) -> Trajectory:
    """Episodes of full length with random contents."""
    rng = np.random.default_rng(seed)
    rows = (shape.batch, shape.steps + 1)
    n, a = shape.agents, shape.actions
    avail = rng.random((*rows, n, a)) < 0.7
    avail[..., 0] = True
    actions = np.argmax(rng.random(avail.shape) * avail, axis=-1)
    mask = np.ones(rows, bool)
    mask[:, -1] = False
    return Trajectory(
        Observation(
            jnp.asarray(rng.standard_normal((*rows, n, shape.obs)), jnp.float32),
            jnp.asarray(rng.standard_normal((*rows, shape.state)), jnp.float32),
            jnp.asarray(avail),
            jnp.asarray(rng.random((*rows, n, n)) < 0.8),
        ),
        actions=jnp.asarray(actions, jnp.int32),
        reward=jnp.asarray(rng.standard_normal(rows), jnp.float32),
        terminated=jnp.zeros(rows, bool),
        won=jnp.zeros(rows, bool),
        mask=jnp.asarray(mask),
    )


def time_update(algorithm: Algorithm[Any], shape: Shape, seeds: int, seconds: float) -> float:
    """Milliseconds of one update of `seeds` vmapped learners, each with a batch of its own.

    As in training, several updates follow one another inside one compiled program.
    """
    keys = jax.random.split(jax.random.key(0), seeds)
    learners = jax.vmap(lambda key: algorithm.init(key, shape.spec))(keys)
    batches = [random_batch(shape, seed) for seed in range(seeds)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)

    @jax.jit
    @jax.vmap
    def updates(learner, batch, key):
        def update(learner, key):
            return algorithm.update(learner, batch, key, jnp.zeros((), jnp.int32))[0], None

        return jax.lax.scan(update, learner, jax.random.split(key, IN_A_ROW))[0]

    return median_ms(lambda: jax.block_until_ready(updates(learners, batch, keys)), seconds) / IN_A_ROW


def time_torch(shape: Shape, seconds: float) -> float | None:
    """The same iteration, written plainly in PyTorch; None where torch is not installed.

    In a process of its own: the threads of both libraries in one process get into each other's way. On a
    CPU with all its threads and with one, and the quicker counts: for small batches that is one.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    device = "cpu" if jax.default_backend() == "cpu" else "cuda"
    sizes = (shape.agents, shape.actions, shape.obs, shape.state, shape.steps, shape.batch)
    code = (
        "from macpf.benchmarks.learner import median_ms; "
        "from macpf.benchmarks.torch_learner import make_iteration; "
        f"print(median_ms(make_iteration(*{sizes}, device={device!r}), {seconds}))"
    )
    here = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_WAIT_POLICY": "PASSIVE"}
    ways = (here, here | {"OMP_NUM_THREADS": "1"}) if device == "cpu" else (here,)
    found = (
        subprocess.run([sys.executable, "-c", code], env=e, capture_output=True, text=True) for e in ways
    )
    times = [float(done.stdout) for done in found if done.returncode == 0]
    return min(times, default=None)


def median_ms(iteration: Callable[[], Any], seconds: float) -> float:
    """The median time of one call, after a warm-up, in about so many seconds and at least three calls."""
    iteration()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        start = time.perf_counter()
        iteration()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def main(
    seeds: Sequence[int], seconds: float, out: Path | None, algorithms: Sequence[str] = tuple(ALGORITHMS)
) -> None:
    """Times algorithms on every shape, writes the numbers as they come where asked to, prints the table."""
    for name in algorithms:
        if name not in ALGORITHMS:
            raise unknown("algorithm", name, ALGORITHMS)
    device = jax.devices()[0].device_kind
    table = Table(title=f"One training iteration on {device}, ms (x: times MACPF in plain PyTorch)")
    for column in ("algorithm", "shape", "PyTorch", *(f"{n} seed{'s' * (n > 1)}" for n in seeds)):
        table.add_column(column, justify="left" if column in ("algorithm", "shape") else "right")
    result: dict[str, Any] = {
        "command": " ".join(["macpf", *sys.argv[1:]]),
        "device": device,
        "versions": {"macpf": __version__, "jax": jax.__version__},
        "rows": [],
    }
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("timing", total=len(algorithms) * len(SHAPES) * len(seeds))
        for shape in SHAPES:
            for name in algorithms:
                torch_ms = time_torch(shape, seconds) if name == "macpf" else None
                ms: dict[int, float | None] = {}
                for n in seeds:
                    try:
                        ms[n] = time_update(ALGORITHMS[name].make(), shape, n, seconds)
                    except UserError:  # an algorithm that cannot do this size says so
                        ms[n] = None
                    progress.advance(task)
                row = {"algorithm": name, "shape": asdict(shape), "torch_ms": torch_ms, "ms": ms}
                result["rows"].append(row)
                if out is not None:
                    out.write_text(json.dumps(result, indent=1) + "\n")
                table.add_row(name, shape.name, _cell(torch_ms), *(_cell(v, torch_ms) for v in ms.values()))
    Console().print(table)


def _cell(ms: float | None, against: float | None = None) -> str:
    if ms is None:
        return "-"
    return f"{ms:.1f}" + (f" ({ms / against:.2f}x)" if against else "")
