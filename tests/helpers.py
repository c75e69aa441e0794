"""What several tests share: a small task, a small learner, random episodes, a noisy environment."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from jaxtyping import Array, Int

from macpf.algorithms.learning import LearnerState
from macpf.algorithms.macpf import MACPF, Losses
from macpf.networks.mixers import Hyper
from macpf.optim import RMSprop
from macpf.schedules import Constant
from macpf.types import EnvSpec, Observation, PRNGKey, TimeStep, Trajectory

Function = TypeVar("Function", bound=Callable[..., Any])

SPEC = EnvSpec(n_agents=3, n_actions=4, obs_dim=5, state_dim=6, horizon=5)
STEP = jnp.zeros((), jnp.int32)

seeds = st.integers(0, 2**31 - 1)


def few(examples: int) -> settings:
    """So many examples, as long as they take, the same ones in every run."""
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


@cache
def _quick_options() -> dict[str, Any]:
    """Options of the compiler that make it quick; none where it does not know them."""
    options = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda: jnp.zeros(()), compiler_options=options)()
    except Exception:  # what is raised depends on the version of jax
        return {}
    return options


def quick_jit(function: Function) -> Function:
    """Compiles without optimising: what a test runs a few times is then ready sooner."""
    return jax.jit(function, compiler_options=_quick_options())  # type: ignore[return-value]


def tiny(**options: Any) -> MACPF:
    """MACPF with few units, constant schedules and frequent target copies."""
    defaults = {
        "recurrent": False,
        "hidden": 8,
        "mixer": Hyper(embed=8, hidden=8, form="linear"),
        "optimiser": RMSprop(lr=1e-2, eps=1e-3),
        "alpha": Constant(0.3),
        "epsilon": Constant(0.4),
        "target_period": 3,
    }
    return MACPF(**(defaults | options))


@cache
def _shapes(algorithm: MACPF) -> LearnerState:
    return jax.eval_shape(lambda key: algorithm.init(key, SPEC), jax.random.key(0))


def random_learner(algorithm: MACPF, seed: int) -> LearnerState:
    """A learner with sizeable parameters, whose targets are others than its networks."""
    rng = np.random.default_rng(seed)
    shapes = _shapes(algorithm)

    def random(tree: Any) -> Any:
        return jax.tree.map(lambda x: jnp.asarray(0.5 * rng.standard_normal(x.shape), x.dtype), tree)

    optimisers, updates = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), (shapes.optimisers, shapes.updates)
    )
    return LearnerState(random(shapes.networks), random(shapes.targets), optimisers, updates)


@cache
def update_of(algorithm: MACPF) -> Callable[..., Any]:
    """The compiled update."""
    return quick_jit(algorithm.update)


@cache
def gradients_of(algorithm: MACPF) -> Callable[..., Losses]:
    """The gradient of each loss over a batch (an axis of 4) with respect to each of the four arguments."""

    def gradients(learner: LearnerState, batch: Trajectory, key: PRNGKey) -> Losses:
        keys = jax.random.split(key, batch.mask.shape[0])
        counts = batch.mask[:, :-1]

        def means(by: Losses) -> Array:
            losses, _ = jax.vmap(lambda e, k: algorithm.losses(by, learner.targets, e, k, STEP))(batch, keys)
            return jnp.stack([jnp.sum(jnp.where(counts, rows, 0.0)) / jnp.sum(counts) for rows in losses])

        return jax.jacrev(means)(Losses(*[learner.networks] * 4))

    return quick_jit(gradients)


def same(one: Any, other: Any) -> bool:
    """Equal bit for bit."""
    return all(np.array_equal(a, b) for a, b in _pairs(one, other))


def close(one: Any, other: Any, tolerance: float = 1e-5) -> bool:
    """Equal but for rounding."""
    return all(np.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in _pairs(one, other))


def _pairs(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    return zip(map(_numbers, jax.tree.leaves(one)), map(_numbers, jax.tree.leaves(other)), strict=True)


def _numbers(leaf: Any) -> np.ndarray:
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def random_observation(rng: np.random.Generator, rows: tuple[int, ...], spec: EnvSpec = SPEC) -> Observation:
    """Random contents; every agent has an action available, and sees some others."""
    n, a = spec.n_agents, spec.n_actions
    avail = rng.random((*rows, n, a)) < 0.6
    np.put_along_axis(avail, rng.integers(a, size=(*rows, n, 1)), True, axis=-1)
    return Observation(
        jnp.asarray(rng.standard_normal((*rows, n, spec.obs_dim)), jnp.float32),
        jnp.asarray(rng.standard_normal((*rows, spec.state_dim)), jnp.float32),
        jnp.asarray(avail),
        jnp.asarray(rng.random((*rows, n, n)) < 0.6),
    )


def random_episodes(seed: int, batch: int, spec: EnvSpec = SPEC) -> Trajectory:
    """Episodes of random length, some of them terminated; what lies behind their end is random too."""
    rng = np.random.default_rng(seed)
    rows = (batch, spec.horizon + 1)
    observation = random_observation(rng, rows, spec)
    actions = np.argmax(rng.random(observation.avail.shape) * np.asarray(observation.avail), axis=-1)
    length = rng.integers(1, spec.horizon + 1, size=(batch, 1))
    row = np.arange(spec.horizon + 1)
    return Trajectory(
        observation,
        actions=jnp.asarray(actions, jnp.int32),
        reward=jnp.asarray(5 * rng.standard_normal(rows), jnp.float32),
        terminated=jnp.asarray((row == length - 1) & (rng.random((batch, 1)) < 0.5)),
        won=jnp.zeros(rows, bool),
        mask=jnp.asarray(row < length),
    )


def random_episode(seed: int, spec: EnvSpec = SPEC) -> Trajectory:
    """One such episode."""
    return jax.tree.map(lambda rows: rows[0], random_episodes(seed, 1, spec))


class Clock(eqx.Module):
    """The time, and when and how the episode will end."""

    time: Int[Array, ""]
    end: Int[Array, ""]
    terminates: Array


@dataclass(frozen=True)
class Noise:
    """An environment of random observations and rewards whose episodes end early, in one of two ways."""

    spec: EnvSpec = SPEC

    def reset(self, key: PRNGKey) -> tuple[Clock, TimeStep]:
        end_key, how_key, key = jax.random.split(key, 3)
        end = jax.random.randint(end_key, (), 1, self.spec.horizon + 1)
        clock = Clock(jnp.zeros((), jnp.int32), end, jax.random.bernoulli(how_key))
        return clock, self._arrive(clock, key)

    def step(self, state: Clock, actions: Int[Array, " N"], key: PRNGKey) -> tuple[Clock, TimeStep]:
        clock = Clock(state.time + 1, state.end, state.terminates)
        return clock, self._arrive(clock, key)

    def _arrive(self, clock: Clock, key: PRNGKey) -> TimeStep:
        n, a = self.spec.n_agents, self.spec.n_actions
        keys = jax.random.split(key, 5)
        over = clock.time >= clock.end
        observation = Observation(
            jax.random.normal(keys[0], (n, self.spec.obs_dim)),
            jax.random.normal(keys[1], (self.spec.state_dim,)),
            jax.random.bernoulli(keys[2], 0.6, (n, a)).at[:, 0].set(True),
            jax.random.bernoulli(keys[3], 0.6, (n, n)),
        )
        return TimeStep(
            observation,
            reward=jax.random.normal(keys[4], ()),
            terminated=over & clock.terminates,
            truncated=over & ~clock.terminates,
            won=jnp.asarray(False),
        )
