"""How many steps of SMAC's maps a second of random legal play makes, and how many of SMAX's, its peer."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from macpf.benchmarks import smax
from macpf.envs.smac import SMAC
from macpf.errors import require
from macpf.types import PRNGKey
from macpf.version import __version__

MAPS = ("8m", "MMM2", "27m_vs_30m", "2c_vs_64zg")
COPIES = (1, 64, 1024, 8192)
LONGEST, MOST = 32, 32_768  # steps of one call: of every copy, and of all together


class Speed(NamedTuple):
    """Steps a second of all copies together, and the seconds it took to compile."""

    steps: float
    compiling: float


def legal(key: PRNGKey, avail: Bool[Array, "N A"]) -> Int[Array, " N"]:
    """Any available action of each agent."""
    return jnp.argmax(jnp.where(avail, jax.random.uniform(key, avail.shape), -1.0), axis=-1).astype(jnp.int32)


def battles(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """How copies of a map begin, and how they go on: a battle that ended begins anew.

    What agents observe is carried along, or compilers would leave it out.
    """
    env = SMAC(name)

    def begin(key: PRNGKey) -> Any:
        battle, first = env.reset(key)
        return battle, first.observation, first.reward

    def go_on(carry: Any, key: PRNGKey) -> Any:
        battle, seen, _ = carry
        act_key, step_key, reset_key = jax.random.split(key, 3)
        battle, arrived = env.step(battle, legal(act_key, seen.avail), step_key)
        over = arrived.terminated | arrived.truncated
        gone_on = battle, arrived.observation, arrived.reward
        return jax.tree.map(lambda new, old: jnp.where(over, new, old), begin(reset_key), gone_on)

    return begin, go_on


def in_a_row(copies: int) -> int:
    """The steps that every copy makes in one call."""
    return max(1, min(LONGEST, MOST // copies))


class Program(NamedTuple):
    """Some steps of all copies at once, what they begin with, and the seconds it took to compile."""

    some: Any
    begin: Any
    compiling: float


def compiled(begin: Callable[..., Any], go_on: Callable[..., Any], copies: int) -> Program:
    """The program of so many copies side by side; nothing of it is run."""

    def some(carry: Any, key: PRNGKey) -> Any:
        def step(carry: Any, key: PRNGKey) -> tuple[Any, None]:
            return jax.vmap(go_on)(carry, jax.random.split(key, copies)), None

        return jax.lax.scan(step, carry, jax.random.split(key, in_a_row(copies)))[0]

    key, begins = jax.random.key(0), jax.jit(jax.vmap(begin))
    keys = jax.random.split(key, copies)
    first, carry = begins.lower(keys).compile(), jax.eval_shape(begins, keys)
    started = time.perf_counter()
    made = jax.jit(some).lower(carry, key).compile()
    return Program(made, first, time.perf_counter() - started)


def speed(program: Program, copies: int, seconds: float) -> Speed:
    """Steps a second of a program, the median of several calls."""
    key = jax.random.key(0)
    carry = jax.block_until_ready(program.some(program.begin(jax.random.split(key, copies)), key))
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        started = time.perf_counter()
        carry = jax.block_until_ready(program.some(carry, key))
        times.append(time.perf_counter() - started)
    return Speed(in_a_row(copies) * copies / float(np.median(times)), program.compiling)


def rivals(name: str, copies: int) -> tuple[Program, Program | None]:
    """The program of a map, and that of SMAX with as many units on each side where JaxMARL is installed."""
    field = SMAC(name).field
    ours = compiled(*battles(name), copies)
    return ours, compiled(*smax.battles(field.n, field.e), copies) if smax.installed() else None


def main(maps: Sequence[str], copies: Sequence[int], seconds: float, out: Path | None) -> None:
    """Times every map at every number of copies, prints the table, and writes the numbers where asked to.

    Where JaxMARL is installed, its SMAX plays as many units beside each. All is compiled before anything is
    timed, several programs at once where there are cores for it.
    """
    for n in copies:
        require(n > 0, f"there must be a copy at least, not {n}")
    for name in maps:
        SMAC(name)  # an unknown one says so before anything is timed
    device = jax.devices()[0].device_kind
    table = Table(title=f"Environment steps a second on {device}, random legal actions")
    for column in ("map", "copies", "steps/s", "compiling, s", "SMAX, steps/s", "times SMAX"):
        table.add_column(column, justify="left" if column == "map" else "right")
    rows: list[dict[str, Any]] = []
    cells, workers = [*product(maps, copies)], max(1, (os.cpu_count() or 1) // 4)
    with (
        Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress,
        ThreadPoolExecutor(workers) as pool,
    ):
        made = pool.map(lambda cell: rivals(*cell), cells)
        programs = [*progress.track(made, total=len(cells), description="compiling")]
        timed = progress.track(zip(cells, programs, strict=True), total=len(cells), description="timing")
        for (name, n), (our_program, their_program) in timed:
            ours = speed(our_program, n, seconds)
            theirs = speed(their_program, n, seconds) if their_program else None
            row = {"map": name, "copies": n, **ours._asdict(), "smax": theirs and theirs._asdict()}
            rows.append(row)
            beside = (f"{theirs.steps:,.0f}", f"{ours.steps / theirs.steps:.1f}") if theirs else "--"
            table.add_row(name, f"{n:,}", f"{ours.steps:,.0f}", f"{ours.compiling:.1f}", *beside)
    Console().print(table)
    if out is not None:
        versions = {"macpf": __version__, "jax": jax.__version__}
        command = " ".join(["macpf", *sys.argv[1:]])
        result = {"command": command, "device": device, "versions": versions, "rows": rows}
        out.write_text(json.dumps(result, indent=1) + "\n")
