"""How long one training iteration takes: losses, gradients and targets on random batches of known shapes."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from macpf.types import Algorithm, EnvSpec, Observation, Trajectory


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


def time_update(algorithm: Algorithm[Any], shape: Shape, seeds: int, seconds: float = 3.0) -> float:
    """Milliseconds of one update of `seeds` vmapped learners, the median over some repetitions."""
    keys = jax.random.split(jax.random.key(0), seeds)
    learners = jax.vmap(lambda key: algorithm.init(key, shape.spec))(keys)
    batches = [random_batch(shape, seed) for seed in range(seeds)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)

    @jax.jit
    @jax.vmap
    def update(learner, batch, key):
        return algorithm.update(learner, batch, key, jnp.zeros((), jnp.int32))[0]

    return median_ms(lambda: jax.block_until_ready(update(learners, batch, keys)), seconds)


def median_ms(iteration: Callable[[], Any], seconds: float) -> float:
    """The median time of one call, after a warm-up, in about so many seconds and at least five calls."""
    iteration()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 5:
        start = time.perf_counter()
        iteration()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)
