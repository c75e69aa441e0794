"""One evaluator for all algorithms and environments."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from macpf.rollout import play
from macpf.types import Algorithm, Environment, PRNGKey, Trajectory


class Evaluation(eqx.Module):
    """What a policy achieved in some episodes, episode by episode: return, win, length."""

    returns: Float[Array, " E"]
    won: Float[Array, " E"]
    length: Float[Array, " E"]


def rollouts(
    algorithm: Algorithm[Any],
    env: Environment[Any],
    learner: Any,
    key: PRNGKey,
    *,
    policy: str = "ind",
    episodes: int = 32,
    sample: bool = False,
) -> Trajectory:
    """Some episodes of a learned policy."""
    act = partial(algorithm.policies[policy], learner, sample=sample)
    memory = algorithm.init_memory(env.spec)
    return jax.vmap(lambda key: play(env, act, memory, key))(jax.random.split(key, episodes))


def score(episodes: Trajectory) -> Evaluation:
    """What came of some episodes: undiscounted return, whether they were won, how long they lasted."""
    returns = jnp.sum(jnp.where(episodes.mask, episodes.reward, 0.0), axis=1)
    length = jnp.sum(episodes.mask, axis=1)
    return Evaluation(
        returns, jnp.any(episodes.won, axis=1).astype(returns.dtype), length.astype(returns.dtype)
    )
